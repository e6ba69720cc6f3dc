//! `orrery compile`: compiles a project and tells how it went.

use std::path::Path;
use std::time::Instant;

use orrery_compiler::Compiled;
use orrery_compiler::diagnostic::Diagnostic;
use orrery_compiler::error::CompileError;
use orrery_compiler::export::{Exported, Problem, has_requirement_circle};
use orrery_compiler::project::Limits;
use orrery_handlers::Registry;
use orrery_host::compiling::Origin;
use orrery_model::Resource;

use crate::cli::{Compile, ProjectOptions};
use crate::cli_deploy::LimitOptions;
use crate::code::{DeployingMachine, Work};
use crate::render::Shown;
use crate::state::StateOptions;
use crate::{Exit, output, projects, style};

use super::{report, serve};

/// A warning about every module in the module path says nothing that its owner does not know; it is
/// for those who want to know more.
pub(super) const QUIET_WARNING: &str = "legacy-module";

pub(crate) fn run(options: &Compile, verbose: bool) -> Exit {
    if options.serve_host {
        return serve::run(&options.project, &options.limits);
    }
    let started = Instant::now();
    let mut work = compile(&options.project, &options.limits, None);
    let with_resources = options.resources || !options.exporter.is_empty();
    // An order that cannot be kept is an error of the model, also where nothing is exported.
    let is_circular = work.compiled.model.as_ref().is_some_and(has_requirement_circle);
    let exports = with_resources || is_circular;
    let exported =
        exports.then(|| work.export(&Registry::native(), DeployingMachine::Unknown)).flatten();
    let exported = exported.transpose().and_then(|exported| {
        work.run_exporters(&options.exporter)?;
        Ok(exported)
    });
    let Work { project, mut compiled, host, .. } = work;
    compiled.output.push_str(&host.take_output());
    let exported = match exported {
        Ok(exported) => exported,
        Err(error) => {
            compiled.outcome = Err(CompileError::new("CompilerException", error.to_string()));
            None
        }
    };
    let has_cycles = exported.as_ref().is_some_and(|exported| {
        exported.problems.iter().any(|problem| matches!(problem, Problem::Cycle { .. }))
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
            tell_resources(&project, &compiled, exported);
        }
        match exported.as_ref().filter(|_| has_cycles && !with_resources) {
            Some(exported) => tell_cycles(&project, &compiled, exported, started),
            None => tell(&project, &compiled, started, verbose),
        }
    }
    if has_cycles && !with_resources {
        let text = "resources require each other: they cannot be deployed";
        compiled.outcome = Err(CompileError::new("CompilerException", text.to_owned()));
    }
    let exported = exported.filter(|_| with_resources || has_cycles);
    let written = |out: &mut dyn std::io::Write| {
        orrery_compiler::report::write_with(&compiled, exported.as_ref(), out)
    };
    if !report::deliver(&options.report, &written) {
        exit = Exit::Error;
    }
    // The process ends here: giving a large model's memory back piece by piece would take longer.
    std::mem::forget(compiled);
    drop(host);
    exit
}

/// `state`: where facts about what is deployed are found.
pub(super) fn compile(
    given: &ProjectOptions,
    limits: &LimitOptions,
    state: Option<&StateOptions>,
) -> Work {
    compile_from(given, limits, state, None)
}

/// The same with a host that is there already.
pub(super) fn compile_from(
    given: &ProjectOptions,
    limits: &LimitOptions,
    state: Option<&StateOptions>,
    origin: Option<Origin>,
) -> Work {
    let mut project_options = match projects::options(given) {
        Ok(found) => found,
        Err(error) => return Work::failed(error),
    };
    project_options.limits = Limits {
        instances: limits.max_instances,
        creation_depth: limits.max_depth,
        memory_bytes: limits.max_memory.saturating_mul(1 << 20),
        text_bytes: limits.max_text.saturating_mul(1 << 20),
    };
    project_options.facts = state.map(|state| state.facts(&project_options.project_dir));
    Work::compile(&project_options, origin)
}

/// Prints the id of each resource, sorted, and where the model defines it.
fn print_resources(exported: &Exported) -> bool {
    let mut resources: Vec<&Resource> = exported.resources.iter().collect();
    resources.sort_by(|one, other| one.id.cmp(&other.id));
    output::print(|out| {
        for resource in resources {
            let id = style::harmless(resource.id.as_str());
            match &resource.source {
                Some(source) => writeln!(out, "{id}  ({})", style::harmless(&source.to_string()))?,
                None => writeln!(out, "{id}")?,
            }
        }
        Ok(())
    })
}

/// Says why nothing will happen, where a model describes no resources.
pub(crate) fn tell_if_no_resources(exported: usize, problems: usize) {
    if exported > 0 || problems > 0 {
        return;
    }
    output::say(&format!(
        "{}: the model describes no resources, so there is nothing to deploy",
        style::warning("note")
    ));
    output::say(&format!(
        "{}: add one to the model: `std::File(host=std::Host(name=\"localhost\", os=std::linux), \
         path=\"/tmp/hello.txt\", content=\"Hello!\\n\")`; `orrery docs` lists the types",
        style::help("help")
    ));
}

/// Resources that require each other, and how many cannot be deployed because of that.
fn tell_cycles(project: &Path, compiled: &Compiled, exported: &Exported, started: Instant) {
    let path = |name: &str| projects::path_from_here(project, name);
    let shown = Shown { sources: &compiled.sources, path: &path, width: output::width() };
    let cycles = exported.problems.iter().filter(|one| matches!(one, Problem::Cycle { .. }));
    let cycles: Vec<Diagnostic> = cycles.map(Diagnostic::from).collect();
    report::show_errors(&shown, &cycles);
    let count = style::count(exported.left_out(), "resource");
    let time = style::duration(started.elapsed());
    output::say(&format!("{} after {time}: {count} cannot be deployed", style::error("failed")));
}

/// What became of the resources.
pub(crate) fn tell_resources(project: &Path, compiled: &Compiled, exported: &Exported) {
    let path = |name: &str| projects::path_from_here(project, name);
    let shown = Shown { sources: &compiled.sources, path: &path, width: output::width() };
    for note in &exported.notes {
        let text = style::harmless(&note.to_string());
        output::say(&format!("{}: {text}", style::warning("warning")));
    }
    let problems: Vec<Diagnostic> = exported.problems.iter().map(Diagnostic::from).collect();
    report::show_errors(&shown, &problems);
    let count = exported.resources.len();
    let shown_count = style::count(count, "resource");
    let left_out = match exported.left_out() {
        0 => String::new(),
        left_out => format!(", {} left out", style::grouped(left_out)),
    };
    output::say(&format!("{} {shown_count}{left_out}", style::good("exported")));
    tell_if_no_resources(count, problems.len());
}

/// Warnings, errors and the closing line.
pub(crate) fn tell(project: &Path, compiled: &Compiled, started: Instant, verbose: bool) {
    let path = |name: &str| projects::path_from_here(project, name);
    let shown = Shown { sources: &compiled.sources, path: &path, width: output::width() };
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
    output::say(&match &compiled.outcome {
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
