//! `orrery compile`: compiles a project and reports the result.

use std::path::Path;
use std::time::Instant;

use orrery_compile_host::HostOrigin;
use orrery_compiler::Compilation;
use orrery_compiler::diagnostic::Diagnostic;
use orrery_compiler::error::CompileError;
use orrery_compiler::export::{ExportProblem, ExportResult, has_requirement_cycle};
use orrery_compiler::project::CompileLimits;
use orrery_handlers::Registry;
use orrery_model::Resource;

use crate::cli::deploy::LimitOptions;
use crate::cli::{Compile, ProjectOptions};
use crate::compile_session::{CompileSession, DeployingMachine};
use crate::render::DiagnosticRenderer;
use crate::state::StateOptions;
use crate::{Exit, output, projects, style};

use super::{compile_serve, report};

/// Shown only with --verbose: users know which modules are in their module path.
pub(super) const QUIET_WARNING: &str = "legacy-module";

pub(crate) fn run(options: &Compile, verbose: bool) -> Exit {
    if options.serve_host {
        return compile_serve::run(&options.project, &options.limits);
    }
    let started = Instant::now();
    let mut work = compile(&options.project, &options.limits, None);
    let with_resources = options.resources || !options.exporter.is_empty();
    // A cycle of requirements is an error of the model, even if nothing is exported.
    let is_circular = work.compiled.model.as_ref().is_some_and(has_requirement_cycle);
    let exports = with_resources || is_circular;
    let exported =
        exports.then(|| work.export(&Registry::native(), DeployingMachine::Unknown)).flatten();
    let exported = exported.transpose().and_then(|exported| {
        work.run_exporters(&options.exporter)?;
        Ok(exported)
    });
    let CompileSession { project, mut compiled, host, .. } = work;
    compiled.output.push_str(&host.take_output());
    let exported = match exported {
        Ok(exported) => exported,
        Err(error) => {
            compiled.outcome = Err(CompileError::new("CompilerException", error.to_string()));
            None
        }
    };
    let has_cycles = exported.as_ref().is_some_and(|exported| {
        exported.problems.iter().any(|problem| matches!(problem, ExportProblem::Cycle { .. }))
    });
    let mut exit = if compiled.outcome.is_err() || has_cycles {
        Exit::Error
    } else if with_resources
        && exported.as_ref().is_some_and(|exported| !exported.problems.is_empty())
    {
        Exit::Pending
    } else {
        Exit::Done
    };
    if !options.report.json {
        if !output::print(|out| out.write_all(compiled.output.as_bytes())) {
            exit = Exit::Error;
        }
        if let Some(exported) = exported.as_ref().filter(|_| with_resources) {
            if options.resources && !print_resources(exported) {
                exit = Exit::Error;
            }
            print_resource_summary(&project, &compiled, exported);
        }
        match exported.as_ref().filter(|_| has_cycles && !with_resources) {
            Some(exported) => print_cycles(&project, &compiled, exported, started),
            None => print_summary(&project, &compiled, started, verbose),
        }
    }
    if has_cycles && !with_resources {
        let text = "cyclic requirements: resources cannot be deployed";
        compiled.outcome = Err(CompileError::new("CompilerException", text.to_owned()));
    }
    let exported = exported.filter(|_| with_resources || has_cycles);
    let written = |out: &mut dyn std::io::Write| {
        orrery_compiler::report::write_with(&compiled, exported.as_ref(), out)
    };
    if !report::deliver(&options.report, &written) {
        exit = Exit::Error;
    }
    // The process exits here: freeing a large model would take longer than leaking it.
    std::mem::forget(compiled);
    drop(host);
    exit
}

/// Compiles a project. `state` has the facts of deployed resources.
pub(super) fn compile(
    given: &ProjectOptions,
    limits: &LimitOptions,
    state: Option<&StateOptions>,
) -> CompileSession {
    compile_from(given, limits, state, None)
}

/// Compiles with an existing host.
pub(super) fn compile_from(
    given: &ProjectOptions,
    limits: &LimitOptions,
    state: Option<&StateOptions>,
    origin: Option<HostOrigin>,
) -> CompileSession {
    let mut project_options = match projects::options(given) {
        Ok(found) => found,
        Err(error) => return CompileSession::failed(error),
    };
    project_options.limits = CompileLimits {
        instances: limits.max_instances,
        creation_depth: limits.max_depth,
        memory_bytes: limits.max_memory.saturating_mul(1 << 20),
        text_bytes: limits.max_text.saturating_mul(1 << 20),
    };
    project_options.facts = state.map(|state| state.facts(&project_options.project_dir));
    CompileSession::compile(&project_options, origin)
}

/// Prints resource ids, sorted, with their source locations.
fn print_resources(exported: &ExportResult) -> bool {
    let mut resources: Vec<&Resource> = exported.resources.iter().collect();
    resources.sort_by(|one, other| one.id.cmp(&other.id));
    output::print(|out| {
        for resource in resources {
            let id = style::sanitize(resource.id.as_str());
            match &resource.source {
                Some(source) => writeln!(out, "{id}  ({})", style::sanitize(&source.to_string()))?,
                None => writeln!(out, "{id}")?,
            }
        }
        Ok(())
    })
}

/// Warns if a model has no resources.
pub(crate) fn warn_if_no_resources(exported: usize, problems: usize) {
    if exported > 0 || problems > 0 {
        return;
    }
    output::print_status(&format!(
        "{}: the model has no resources: nothing to deploy",
        style::warning("note")
    ));
    output::print_status(&format!(
        "{}: add one to the model: `std::File(host=std::Host(name=\"localhost\", os=std::linux), \
         path=\"/tmp/hello.txt\", content=\"Hello!\\n\")`; `orrery docs` lists the types",
        style::help("help")
    ));
}

/// Reports cycles of requirements and the number of affected resources.
fn print_cycles(project: &Path, compiled: &Compilation, exported: &ExportResult, started: Instant) {
    let path = |name: &str| projects::path_from_here(project, name);
    let shown =
        DiagnosticRenderer { sources: &compiled.sources, path: &path, width: output::width() };
    let cycles = exported.problems.iter().filter(|one| matches!(one, ExportProblem::Cycle { .. }));
    let cycles: Vec<Diagnostic> = cycles.map(Diagnostic::from).collect();
    report::show_errors(&shown, &cycles);
    let count = style::count(exported.left_out(), "resource");
    let time = style::duration(started.elapsed());
    output::print_status(&format!(
        "{} after {time}: {count} cannot be deployed",
        style::error("failed")
    ));
}

/// Prints a summary of the export.
pub(crate) fn print_resource_summary(
    project: &Path,
    compiled: &Compilation,
    exported: &ExportResult,
) {
    let path = |name: &str| projects::path_from_here(project, name);
    let shown =
        DiagnosticRenderer { sources: &compiled.sources, path: &path, width: output::width() };
    for note in &exported.warnings {
        let text = style::sanitize(&note.to_string());
        output::print_status(&format!("{}: {text}", style::warning("warning")));
    }
    let problems: Vec<Diagnostic> = exported.problems.iter().map(Diagnostic::from).collect();
    report::show_errors(&shown, &problems);
    let count = exported.resources.len();
    let shown_count = style::count(count, "resource");
    let left_out = match exported.left_out() {
        0 => String::new(),
        left_out => format!(", {} left out", style::grouped(left_out)),
    };
    output::print_status(&format!("{} {shown_count}{left_out}", style::good("exported")));
    warn_if_no_resources(count, problems.len());
}

/// Prints warnings, errors and the closing line.
pub(crate) fn print_summary(
    project: &Path,
    compiled: &Compilation,
    started: Instant,
    verbose: bool,
) {
    let path = |name: &str| projects::path_from_here(project, name);
    let shown =
        DiagnosticRenderer { sources: &compiled.sources, path: &path, width: output::width() };
    let warnings: Vec<Diagnostic> = compiled
        .warnings
        .iter()
        .map(Diagnostic::from)
        .filter(|warning| verbose || warning.id != Some(QUIET_WARNING))
        .collect();
    report::show_warnings(&shown, &warnings);
    let errors = compiled.errors();
    report::show_errors(&shown, &errors);
    let warned = match warnings.len() {
        0 => String::new(),
        count => format!(", {}", style::count(count, "warning")),
    };
    let time = style::duration(started.elapsed());
    output::print_status(&match &compiled.outcome {
        Ok(summary) => format!(
            "{} {} from {} of {} in {time}{warned}",
            style::good("compiled"),
            style::count(summary.instances, "instance"),
            style::count(summary.files, "file"),
            style::count(compiled.modules.len() + 1, "module"),
        ),
        Err(_) => format!(
            "{} after {time}: {}{warned}",
            style::error("failed"),
            style::count(errors.len(), "error")
        ),
    });
}
