//! Compiles and exports a project as an upload for a server: resources, unknown values and handler
//! code.

use std::collections::BTreeMap;
use std::path::Path;

use orrery_api::{
    CompileProblem, ProblemCategory, ResourceUpload, SourceLocation, UnknownUpload, VersionUpload,
};
use orrery_base::clock::monotonic;
use orrery_compiler::export::ExcludedResources;
use orrery_model::Resource;
use orrery_project::{
    CompiledProject, DeployingMachine, ExportMode, FactSource, FoundProject, ProjectRequest,
    ServerContext, UnknownLookup, collect_contents,
};

use super::compile_problems::problems;
use super::project_output::ProjectPrinter;

/// Result of exporting a project.
pub(super) struct ExportedProject {
    pub(super) upload: VersionUpload,
    /// Contents that the upload refers to, by SHA-1. They are in the environment's file directory.
    pub(super) contents: BTreeMap<String, u64>,
    /// Entities with handlers in module code.
    pub(super) coded: Vec<String>,
    /// Resources of the model that are not in the upload, since they cannot be identified yet.
    pub(super) left_out: ExcludedResources,
}

/// Output during an export.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExportOutput<'a> {
    pub(super) verbose: bool,
    /// Suppresses the output of the model.
    pub(super) quiet: bool,
    /// Project path in messages, if it differs from the real path.
    pub(super) project: Option<&'a Path>,
}

/// Compiles a project for an environment of a server, and reports diagnostics.
///
/// # Errors
/// The problems of the model, in the form of the API.
pub(super) fn export_project(
    project: FoundProject,
    request: ProjectRequest,
    environment: &ServerContext,
    export_output: ExportOutput<'_>,
) -> Result<ExportedProject, Vec<CompileProblem>> {
    let started = monotonic();
    let request = ProjectRequest {
        facts: FactSource::Server(environment.clone()),
        export: ExportMode::Resources(DeployingMachine::Unknown),
        ..request
    };
    let mut project = orrery_project::compile(project, request);
    project.fail_on_export_error();
    let printer = ProjectPrinter::new(&project, export_output.verbose).at(export_output.project);
    if !export_output.quiet {
        let _ = printer.model_output();
    }
    if project.exported.is_some() {
        printer.export_summary();
    }
    printer.summary(started);
    let result = match problems(&project) {
        problems if !problems.is_empty() => Err(problems),
        _ => upload(&mut project, environment).map_err(|text| vec![internal_problem(text)]),
    };
    project.finish();
    result
}

fn internal_problem(message: String) -> CompileProblem {
    CompileProblem {
        category: ProblemCategory::Export,
        r#type: "ExportError".to_owned(),
        message,
        ..CompileProblem::default()
    }
}

fn upload(
    project: &mut CompiledProject,
    environment: &ServerContext,
) -> Result<ExportedProject, String> {
    let left_out = project.left_out_resources();
    let exported = project.exported.take().ok_or("the model produced no result")?;
    let code = project.take_code();
    let coded = code.as_ref().map(|set| set.handlers.clone()).unwrap_or_default();
    let inventory = project.inventory.as_ref();
    let inventory = inventory.map(|one| one.store_document(&environment.files)).transpose();
    let inventory = inventory.map_err(|error| format!("the inventory: {error}"))?;
    let collected =
        collect_contents(&environment.files, code).map_err(|error| error.to_string())?;
    let upload = VersionUpload {
        project: project.declared_name.clone(),
        resources: exported.resources.into_iter().map(resource_upload).collect(),
        unknowns: environment.known.unknowns().into_iter().map(unknown_upload).collect(),
        code: collected.code,
        local_agents: project.local_agents.clone(),
        inventory,
        files: collected.files,
        ..VersionUpload::default()
    };
    Ok(ExportedProject { upload, contents: collected.contents, coded, left_out })
}

fn unknown_upload(UnknownLookup { name, resource }: UnknownLookup) -> UnknownUpload {
    let source = if resource.is_none() { "plugin" } else { "fact" }.to_owned();
    UnknownUpload { name, resource, source }
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
