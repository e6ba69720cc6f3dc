//! `orrery compile`: compiles a project and reports the result.

use std::time::Instant;

use orrery_base::clock::monotonic;
use orrery_compiler::export::ExportResult;
use orrery_model::Resource;
use orrery_project::{CompiledProject, DeployingMachine, ExportMode, ProjectRequest};

use crate::cli::{Compile, ProjectOptions};
use crate::{Exit, output, style};

use super::project_output::ProjectPrinter;
use super::{compile_serve, report};

pub(crate) fn run(options: &Compile, verbose: bool) -> Exit {
    if options.serve_host {
        return compile_serve::run(&options.project, &options.limits);
    }
    let started = monotonic();
    let with_resources = options.resources || !options.exporter.is_empty();
    let export = match with_resources {
        true => ExportMode::Resources(DeployingMachine::Unknown),
        false => ExportMode::OnlyIfCyclic,
    };
    let exporters = options.exporter.clone();
    let request = options.project.request(&options.limits);
    let mut project =
        compile_project(&options.project, ProjectRequest { export, exporters, ..request });
    project.fail_on_export_error();
    let has_cycles = !project.cycles().is_empty();
    let has_problems =
        project.exported.as_ref().is_some_and(|exported| !exported.problems.is_empty());
    let mut exit = if project.compiled.outcome.is_err() || has_cycles {
        Exit::Error
    } else if with_resources && has_problems {
        Exit::Pending
    } else {
        Exit::Done
    };
    if !options.report.json && !print(options, &project, has_cycles, started, verbose) {
        exit = Exit::Error;
    }
    if has_cycles && !with_resources {
        project.fail("cyclic requirements: resources cannot be deployed".to_owned());
    }
    let exported = project.exported.as_ref().filter(|_| with_resources || has_cycles);
    let written = |out: &mut dyn std::io::Write| {
        orrery_compiler::report::write_with(&project.compiled, exported, out)
    };
    if !report::deliver(&options.report, &written) {
        exit = Exit::Error;
    }
    project.finish();
    exit
}

/// Prints the result for a reader; returns false if the output failed.
fn print(
    options: &Compile,
    project: &CompiledProject,
    has_cycles: bool,
    started: Instant,
    verbose: bool,
) -> bool {
    let with_resources = options.resources || !options.exporter.is_empty();
    let printer = ProjectPrinter::new(project, verbose);
    let mut printed = printer.model_output();
    if let Some(exported) = project.exported.as_ref().filter(|_| with_resources) {
        if options.resources {
            printed &= print_resources(exported);
        }
        printer.export_summary();
    }
    match has_cycles && !with_resources {
        true => printer.cycles(started),
        false => printer.summary(started),
    }
    printed
}

/// Finds and compiles a project. Without one, the result has that error.
pub(super) fn compile_project(given: &ProjectOptions, request: ProjectRequest) -> CompiledProject {
    match given.find() {
        Ok(project) => orrery_project::compile(project, request),
        Err(error) => CompiledProject::not_found(error),
    }
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
