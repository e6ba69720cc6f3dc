//! `orrery compile --serve-host`: a compile for a process that runs module code itself, such as
//! module tests. Standard input is a socket to that process.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use orrery_compiler::Compilation;
use orrery_compiler::export::{ExportProblem, ExportResult, FinalView};
use orrery_compiler::host::InstanceView;
use orrery_compiler::report::error_json;
use orrery_project::ProjectRequest;
use serde_json::{Value as Json, json};

use crate::Exit;
use crate::cli::ProjectOptions;
use crate::cli::deploy::LimitOptions;

use super::compile::compile_project;
use super::deploy::failed;

pub(super) fn run(project: &ProjectOptions, limits: &LimitOptions) -> Exit {
    let socket = match std::io::stdin().as_fd().try_clone_to_owned() {
        Ok(socket) => UnixStream::from(socket),
        Err(error) => return failed(&error),
    };
    let request = ProjectRequest { code_socket: Some(socket), ..project.request(limits) };
    let project = compile_project(project, request);
    let compiled = &project.compiled;
    let message = match (&project.exported, &project.export_error) {
        (Some(exported), _) => {
            let errors = exported.problems.iter().map(problem).collect();
            outcome(compiled, errors, exported)
        }
        (None, Some(error)) => {
            let text = error.to_string();
            let error = json!({"class": "CompilerException", "message": text, "text": text});
            outcome(compiled, vec![error], &ExportResult::default())
        }
        (None, None) => outcome(compiled, errors(compiled), &ExportResult::default()),
    };
    let host = project.host();
    if let Err(error) = host.report(&message) {
        tracing::debug!(error, "the outcome could not be delivered");
        return Exit::Error;
    }
    let view = compiled.model.as_ref().map(|model| FinalView { model, sources: &compiled.sources });
    host.serve(view.as_ref().map(|view| view as &dyn InstanceView));
    project.finish();
    Exit::Done
}

fn errors(compiled: &Compilation) -> Vec<Json> {
    let all = compiled.outcome.as_ref().err().into_iter().map(|error| {
        let mut json = error_json(&compiled.sources, error);
        // The full text has all causes; the message is the first one.
        let (whole, first) = (json["message"].take(), json["text"].take());
        json["text"] = whole;
        json["message"] = first;
        json
    });
    all.collect()
}

/// An export problem, in the wording that module tests expect.
fn problem(problem: &ExportProblem) -> Json {
    let (class, text) = match problem {
        ExportProblem::Code { resource, cause } => match &cause.field {
            Some(field) => {
                let entity = &resource.entity;
                let head = format!("Failed to get attribute '{field}' for export on '{entity}'");
                let class =
                    if cause.explicit { "ExplicitPluginException" } else { "ExternalException" };
                (class, format!("{head}\ncaused by:\n  {}: {}\n", cause.class, cause.message))
            }
            None => (cause.class.as_str(), cause.message.clone()),
        },
        ExportProblem::DuplicateId { id, .. } => (
            "CompilerException",
            format!("Resource {id} exists more than once in the configuration model"),
        ),
        ExportProblem::Cycle { .. } => ("DependencyCycleException", problem.to_string()),
        _ => ("CompilerException", problem.to_string()),
    };
    json!({"class": class, "message": text, "text": text})
}

fn outcome(compiled: &Compilation, errors: Vec<Json>, exported: &ExportResult) -> Json {
    let resource = |resource: &orrery_model::Resource| {
        let mut fields: Json =
            serde_json::from_str(resource.attributes.as_str()).unwrap_or_else(|_| json!({}));
        fields["id"] = resource.id.as_str().into();
        let requires = resource.requires.iter().map(|id| Json::from(id.as_str())).collect();
        fields["requires"] = Json::Array(requires);
        fields
    };
    let sets: serde_json::Map<String, Json> = exported
        .resources
        .iter()
        .filter_map(|of| Some((of.id.to_string(), of.set.as_deref()?.into())))
        .collect();
    let resources: Vec<Json> = exported.resources.iter().map(resource).collect();
    json!({
        "k": "compiled",
        "ok": errors.is_empty(),
        "errors": errors,
        "output": compiled.output,
        "resources": resources,
        "sets": sets,
    })
}
