//! From a project to what a server stores: resources, what could not be known, and the code that handlers need.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use orrery_api::{
    CompileLocation, CompilePosition, CompileProblem, CompileRange, ResourceUpload, SourcePlace,
    VersionUpload,
};
use orrery_compiler::Compiled;
use orrery_compiler::diagnostic::{Diagnostic, diagnostic_id};
use orrery_compiler::error::CompileError;
use orrery_compiler::export::{Exported, LeftOutResources};
use orrery_compiler::project::Options;
use orrery_compiler::source::Sources;
use orrery_handlers::Registry;
use orrery_host::bundle::sha1_hex;
use orrery_host::code::{CodeSet, CodeStore};
use orrery_model::Resource;
use orrery_syntax::ast::FileId;

use crate::code::{DeployingMachine, ServerEnvironment, Work};
use crate::commands::compile;
use crate::{output, projects};

/// What a project came to.
pub(crate) struct Made {
    pub(crate) upload: VersionUpload,
    /// Contents that the upload refers to, by SHA-1: they lie in the directory of the environment's files.
    pub(crate) contents: BTreeMap<String, u64>,
    /// Entities whose handlers are in the code of modules.
    pub(crate) coded: Vec<String>,
    /// Resources that the model has and the upload lacks, since they cannot be identified yet.
    pub(crate) left_out: LeftOutResources,
}

/// What people are told on the way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Telling<'a> {
    pub(crate) verbose: bool,
    /// Nothing of what the model prints.
    pub(crate) quiet: bool,
    /// Where files of the project are said to be, if not where it is.
    pub(crate) project: Option<&'a Path>,
}

/// Compiles a project for an environment of a server. People are told of everything on the way.
///
/// # Errors
/// What is wrong with the model, for programs.
pub(crate) fn make(
    options: &Options,
    environment: &ServerEnvironment,
    exporters: &[String],
    telling: Telling<'_>,
) -> Result<Made, Vec<CompileProblem>> {
    let started = Instant::now();
    let mut options = options.clone();
    options.server = Some(environment.side.clone());
    options.facts = Some(Arc::clone(&environment.known) as _);
    let mut work = Work::compile_for(&options, None, Some(environment));
    let exported = work.export(&Registry::native(), DeployingMachine::Unknown).transpose();
    let exported = exported.and_then(|exported| {
        work.run_exporters(exporters)?;
        Ok(exported)
    });
    let code = work.code();
    let local_agents = work.local_agents();
    let Work { project, mut compiled, host, .. } = work;
    compiled.output.push_str(&host.take_output());
    let exported = exported.unwrap_or_else(|error| {
        compiled.outcome = Err(CompileError::new("CompilerException", error.to_string()));
        None
    });
    if !telling.quiet {
        let _ = output::print(|out| out.write_all(compiled.output.as_bytes()));
    }
    if let Some(exported) = &exported {
        compile::tell_resources(telling.project.unwrap_or(&project), &compiled, exported);
    }
    compile::tell(telling.project.unwrap_or(&project), &compiled, started, telling.verbose);
    let problems = problems(&compiled, exported.as_ref());
    let made = match exported {
        Some(exported) if problems.is_empty() => {
            let left_out = exported.left_out_resources();
            let made = upload(exported.resources, environment, code, local_agents);
            let named = made.map(|made| Made {
                left_out,
                upload: VersionUpload {
                    project: projects::described_name(&project),
                    ..made.upload
                },
                ..made
            });
            named.map_err(|text| vec![own_problem(text)])
        }
        _ if !problems.is_empty() => Err(problems),
        _ => Err(vec![own_problem("the model came to nothing".to_owned())]),
    };
    // The process ends soon: giving a large model's memory back piece by piece would take longer.
    std::mem::forget(compiled);
    drop(host);
    made
}

fn own_problem(message: String) -> CompileProblem {
    CompileProblem {
        category: "export_error".to_owned(),
        r#type: "ExportError".to_owned(),
        message,
        ..CompileProblem::default()
    }
}

fn upload(
    resources: Vec<Resource>,
    environment: &ServerEnvironment,
    code: Option<CodeSet>,
    local_agents: Vec<String>,
) -> Result<Made, String> {
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
            // Code may choose ids of its own; what travels is found by its hash.
            std::fs::write(directory.join(&sha1), &content).map_err(failed)?;
            files.insert(name, sha1.clone());
        }
        contents.insert(sha1, content.len() as u64);
    }
    let upload = VersionUpload {
        resources: resources.into_iter().map(as_sent).collect(),
        unknowns: environment.known.unknowns(),
        code,
        local_agents,
        files,
        ..VersionUpload::default()
    };
    Ok(Made { upload, contents, coded, left_out: LeftOutResources::default() })
}

/// Puts the code that handlers need to the other contents; gives the hash of its description.
fn pack(mut set: CodeSet, directory: &Path) -> Result<String, String> {
    // Where it will run, there is another interpreter.
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

fn as_sent(resource: Resource) -> ResourceUpload {
    let place = |source: orrery_model::Source| SourcePlace {
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

/// All that keeps the model from being a version.
fn problems(compiled: &Compiled, exported: Option<&Exported>) -> Vec<CompileProblem> {
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

/// The classes of errors that come from code.
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
        ..placed(sources, &shown)
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
        ..placed(sources, shown)
    }
}

/// The place of a diagnostic, with its line and what helps.
fn placed(sources: &Sources, shown: &Diagnostic) -> CompileProblem {
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

/// Line and character from 0; characters are counted as editors do, in units of UTF-16.
fn position(text: &str, offset: u32) -> CompilePosition {
    let offset = text.floor_char_boundary((offset as usize).min(text.len()));
    let before = &text[..offset];
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count();
    let character = before[start..].encode_utf16().count();
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    CompilePosition { line: number(line), character: number(character) }
}

/// Longer lines are cut.
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
    fn places_are_counted_as_editors_do() {
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
