//! A compile for somebody who runs the code of modules in a process of their own, such as a run of a module's tests:
//! `orrery compile --serve-host`, with a socket as standard input.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use orrery_compiler::Compiled;
use orrery_compiler::export::{Exported, Frozen, Problem};
use orrery_compiler::host::View;
use orrery_compiler::report::error_json;
use orrery_host::compiling::Origin;
use serde_json::{Value as Json, json};

use crate::Exit;
use crate::cli::ProjectOptions;
use crate::cli_deploy::LimitOptions;
use crate::code::Work;

use super::compile::compile_from;
use super::deploy::failed;

pub(super) fn run(project: &ProjectOptions, limits: &LimitOptions) -> Exit {
    let socket = match std::io::stdin().as_fd().try_clone_to_owned() {
        Ok(socket) => UnixStream::from(socket),
        Err(error) => return failed(&error),
    };
    let mut work = compile_from(project, limits, None, Some(Origin::Socket(socket)));
    let exported = work.export_by_code();
    let Work { compiled, host, .. } = work;
    let message = match exported {
        None => outcome(&compiled, errors(&compiled), &Exported::default()),
        Some(Err(error)) => {
            let text = error.to_string();
            let error = json!({"class": "CompilerException", "message": text, "text": text});
            outcome(&compiled, vec![error], &Exported::default())
        }
        Some(Ok(exported)) => {
            let errors = exported.problems.iter().map(problem).collect();
            outcome(&compiled, errors, &exported)
        }
    };
    if let Err(error) = host.report(&message) {
        tracing::debug!(error, "nobody waits for the outcome");
        return Exit::Error;
    }
    let view = compiled.model.as_ref().map(|model| Frozen { model, sources: &compiled.sources });
    host.serve(view.as_ref().map(|view| view as &dyn View));
    std::mem::forget(compiled);
    Exit::Done
}

fn errors(compiled: &Compiled) -> Vec<Json> {
    let all = compiled.outcome.as_ref().err().into_iter().map(|error| {
        let mut json = error_json(&compiled.sources, error);
        // The whole text has all causes; the message is the first of them.
        let (whole, first) = (json["message"].take(), json["text"].take());
        json["text"] = whole;
        json["message"] = first;
        json
    });
    all.collect()
}

/// A resource that cannot be exported, in the words that tests of modules expect.
fn problem(problem: &Problem) -> Json {
    let (class, text) = match problem {
        Problem::Code { resource, cause } => match &cause.field {
            Some(field) => {
                let entity = &resource.entity;
                let head = format!("Failed to get attribute '{field}' for export on '{entity}'");
                let class =
                    if cause.explicit { "ExplicitPluginException" } else { "ExternalException" };
                (class, format!("{head}\ncaused by:\n  {}: {}\n", cause.class, cause.message))
            }
            None => (cause.class.as_str(), cause.message.clone()),
        },
        Problem::DuplicateId { id, .. } => (
            "CompilerException",
            format!("Resource {id} exists more than once in the configuration model"),
        ),
        Problem::Cycle { .. } => ("DependencyCycleException", problem.to_string()),
        _ => ("CompilerException", problem.to_string()),
    };
    json!({"class": class, "message": text, "text": text})
}

fn outcome(compiled: &Compiled, errors: Vec<Json>, exported: &Exported) -> Json {
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
