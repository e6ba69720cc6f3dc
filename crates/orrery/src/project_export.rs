//! Compiles and exports a project as an upload for a server: resources, unknown values and handler
//! code.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use orrery_api::{
    CompileLocation, CompilePosition, CompileProblem, CompileRange, ResourceUpload, SourceLocation,
    VersionUpload,
};
use orrery_compiler::Compilation;
use orrery_compiler::diagnostic::{Diagnostic, diagnostic_id};
use orrery_compiler::error::CompileError;
use orrery_compiler::export::{ExcludedResources, ExportResult};
use orrery_compiler::project::Options;
use orrery_compiler::source::Sources;
use orrery_handlers::Registry;
use orrery_host::bundle::sha1_hex;
use orrery_host::code_store::{CodeSet, CodeStore};
use orrery_model::Resource;
use orrery_syntax::ast::FileId;

use crate::commands::compile;
use crate::compile_session::{CompileSession, DeployingMachine, ServerContext};
use crate::{output, projects};

/// Result of exporting a project.
pub(crate) struct ExportedProject {
    pub(crate) upload: VersionUpload,
    /// Contents that the upload refers to, by SHA-1. They are in the environment's file directory.
    pub(crate) contents: BTreeMap<String, u64>,
    /// Entities with handlers in module code.
    pub(crate) coded: Vec<String>,
    /// Resources of the model that are not in the upload, since they cannot be identified yet.
    pub(crate) left_out: ExcludedResources,
}

/// Output during an export.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExportOutput<'a> {
    pub(crate) verbose: bool,
    /// Suppresses the output of the model.
    pub(crate) quiet: bool,
    /// Project path in messages, if it differs from the real path.
    pub(crate) project: Option<&'a Path>,
}

/// Compiles a project for an environment of a server, and reports diagnostics.
///
/// # Errors
/// The problems of the model, in the form of the API.
pub(crate) fn export_project(
    options: &Options,
    environment: &ServerContext,
    exporters: &[String],
    export_output: ExportOutput<'_>,
) -> Result<ExportedProject, Vec<CompileProblem>> {
    let started = Instant::now();
    let mut options = options.clone();
    options.server = Some(environment.side.clone());
    options.facts = Some(Arc::clone(&environment.known) as _);
    let mut work = CompileSession::compile_for(&options, None, Some(environment));
    let exported = work.export(&Registry::native(), DeployingMachine::Unknown).transpose();
    let exported = exported.and_then(|exported| {
        work.run_exporters(exporters)?;
        Ok(exported)
    });
    let code = work.code();
    let local_agents = work.local_agents();
    let CompileSession { project, mut compiled, host, .. } = work;
    compiled.output.push_str(&host.take_output());
    let exported = exported.unwrap_or_else(|error| {
        compiled.outcome = Err(CompileError::new("CompilerException", error.to_string()));
        None
    });
    if !export_output.quiet {
        let _ = output::print(|out| out.write_all(compiled.output.as_bytes()));
    }
    if let Some(exported) = &exported {
        compile::print_resource_summary(
            export_output.project.unwrap_or(&project),
            &compiled,
            exported,
        );
    }
    compile::print_summary(
        export_output.project.unwrap_or(&project),
        &compiled,
        started,
        export_output.verbose,
    );
    let problems = problems(&compiled, exported.as_ref());
    let result = match exported {
        Some(exported) if problems.is_empty() => {
            let left_out = exported.left_out_resources();
            let result = upload(exported.resources, environment, code, local_agents);
            let named = result.map(|result| ExportedProject {
                left_out,
                upload: VersionUpload {
                    project: projects::described_name(&project),
                    ..result.upload
                },
                ..result
            });
            named.map_err(|text| vec![internal_problem(text)])
        }
        _ if !problems.is_empty() => Err(problems),
        _ => Err(vec![internal_problem("the model produced no result".to_owned())]),
    };
    // The process exits soon: freeing a large model would take longer than leaking it.
    std::mem::forget(compiled);
    drop(host);
    result
}

fn internal_problem(message: String) -> CompileProblem {
    CompileProblem {
        category: "export_error".to_owned(),
        r#type: "ExportError".to_owned(),
        message,
        ..CompileProblem::default()
    }
}

fn upload(
    resources: Vec<Resource>,
    environment: &ServerContext,
    code: Option<CodeSet>,
    local_agents: Vec<String>,
) -> Result<ExportedProject, String> {
    let directory = &environment.files;
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    std::fs::create_dir_all(directory).map_err(failed)?;
    let coded = code.as_ref().map(|set| set.handlers.clone()).unwrap_or_default();
    let code = code.map(|set| pack(set, directory)).transpose()?;
    let (mut contents, mut files) = (BTreeMap::new(), BTreeMap::new());
    let entries: Result<Vec<_>, _> = std::fs::read_dir(directory).map_err(failed)?.collect();
    for entry in entries.map_err(failed)? {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        let content = std::fs::read(entry.path()).map_err(failed)?;
        let sha1 = sha1_hex(&content);
        if name != sha1 {
            // Module code may use its own ids; uploads are addressed by hash.
            std::fs::write(directory.join(&sha1), &content).map_err(failed)?;
            files.insert(name, sha1.clone());
        }
        contents.insert(sha1, content.len() as u64);
    }
    let upload = VersionUpload {
        resources: resources.into_iter().map(resource_upload).collect(),
        unknowns: environment.known.unknowns(),
        code,
        local_agents,
        files,
        ..VersionUpload::default()
    };
    Ok(ExportedProject { upload, contents, coded, left_out: ExcludedResources::default() })
}

/// Adds the handler code to the contents and returns the hash of its description.
fn pack(mut set: CodeSet, directory: &Path) -> Result<String, String> {
    // The code will run with another interpreter.
    set.program = std::path::PathBuf::new();
    set.path = Vec::new();
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let store = CodeStore::new(scratch.path().to_owned());
    let (hash, _) = store.put(&set).map_err(|error| error.to_string())?;
    let (bundle, files) = store.bundle(&hash).map_err(|error| error.to_string())?;
    let description = bundle.to_json().map_err(|error| error.to_string())?;
    let hash = sha1_hex(&description);
    for (name, content) in files.iter().chain([(&hash, &description)]) {
        let path = directory.join(name);
        std::fs::write(&path, content).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(hash)
}

fn resource_upload(resource: Resource) -> ResourceUpload {
    let place = |source: orrery_model::Source| SourceLocation {
        file: source.file.to_string(),
        line: source.line,
        column: source.column,
    };
    ResourceUpload {
        id: resource.id.to_string(),
        attributes: resource.attributes,
        requires: resource.requires.iter().map(ToString::to_string).collect(),
        set: resource.set.as_deref().map(str::to_owned),
        undefined: resource.flags.undefined,
        source: resource.source.map(place),
    }
}

/// All problems that prevent a version.
fn problems(compiled: &Compilation, exported: Option<&ExportResult>) -> Vec<CompileProblem> {
    let sources = &compiled.sources;
    if let Err(error) = &compiled.outcome {
        if !compiled.syntax_errors.is_empty() {
            let all = compiled.syntax_errors.iter();
            let shown = all.map(|error| CompileProblem {
                category: "parse_error".to_owned(),
                r#type: error.class.to_owned(),
                message: error.message.trim_end().to_owned(),
                help: Diagnostic::from(error).help,
                id: diagnostic_id(error.class, &error.message).map(str::to_owned),
                location: Some(location(sources, error.loc.file, &error.highlight)),
                source: source_line(sources, error.loc.file, error.highlight.start),
            });
            return shown.collect();
        }
        let parts: Vec<&CompileError> =
            if error.parts.is_empty() { vec![error] } else { error.parts.iter().collect() };
        return parts.into_iter().map(|error| problem(sources, error)).collect();
    }
    let left_out = exported.map(|exported| exported.problems.iter()).into_iter().flatten();
    left_out.map(|problem| left_out_problem(sources, &Diagnostic::from(problem))).collect()
}

/// Classes of errors that module code raises.
const OF_CODE: [&str; 4] =
    ["ExternalException", "ExplicitPluginException", "PluginException", "PluginTypeException"];

fn problem(sources: &Sources, error: &CompileError) -> CompileProblem {
    let shown = Diagnostic::from(error);
    let category = if OF_CODE.contains(&error.class) {
        "plugin_exception"
    } else if error.class == "ParserException" {
        "parse_error"
    } else {
        "runtime_error"
    };
    let mut message = error.text.trim_end().to_owned();
    for cause in &error.causes {
        message.push_str(&format!("\ncaused by: {}", cause.text.trim_end()));
    }
    CompileProblem {
        category: category.to_owned(),
        r#type: error.class.to_owned(),
        message,
        ..located_problem(sources, &shown)
    }
}

fn left_out_problem(sources: &Sources, shown: &Diagnostic) -> CompileProblem {
    let mut message = shown.message.clone();
    for line in &shown.details {
        message.push('\n');
        message.push_str(line);
    }
    let r#type = shown.id.unwrap_or("ExportError").to_owned();
    CompileProblem {
        category: "export_error".to_owned(),
        r#type,
        message,
        ..located_problem(sources, shown)
    }
}

/// A diagnostic's location with its source line and help.
fn located_problem(sources: &Sources, shown: &Diagnostic) -> CompileProblem {
    let place = shown.primary.as_ref();
    CompileProblem {
        location: place.map(|place| location(sources, place.file(), &place.underlined())),
        source: place
            .and_then(|place| source_line(sources, place.file(), place.underlined().start)),
        help: shown.help.clone(),
        id: shown.id.map(str::to_owned),
        ..CompileProblem::default()
    }
}

fn location(sources: &Sources, file: FileId, range: &std::ops::Range<u32>) -> CompileLocation {
    let source = sources.file(file);
    let name = source.name.strip_prefix("./").unwrap_or(&source.name);
    let at = |offset: u32| position(&source.text, offset);
    CompileLocation {
        uri: name.to_owned(),
        range: CompileRange { start: at(range.start), end: at(range.end) },
    }
}

/// Line and character, zero-based. Characters are UTF-16 code units, as in editors.
fn position(text: &str, offset: u32) -> CompilePosition {
    let offset = text.floor_char_boundary((offset as usize).min(text.len()));
    let before = &text[..offset];
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count();
    let character = before[start..].encode_utf16().count();
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    CompilePosition { line: number(line), character: number(character) }
}

/// Longer source lines are cut.
const LINE_BYTES_MAX: usize = 400;

fn source_line(sources: &Sources, file: FileId, offset: u32) -> Option<String> {
    let text = &sources.file(file).text;
    let offset = text.floor_char_boundary((offset as usize).min(text.len()));
    let start = text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
    let line = text[start..].lines().next()?;
    Some(line[..line.floor_char_boundary(LINE_BYTES_MAX)].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_utf16_as_in_editors() {
        let text = "a\n\u{1f980}b = 1\n";
        let at = |offset| {
            let CompilePosition { line, character } = position(text, offset);
            (line, character)
        };
        assert_eq!(at(0), (0, 0));
        assert_eq!(at(2), (1, 0));
        assert_eq!(at(6), (1, 2));
        assert_eq!(at(4), (1, 0));
        assert_eq!(at(99), (2, 0));
    }
}
