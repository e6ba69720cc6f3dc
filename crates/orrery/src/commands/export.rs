//! `orrery export`: compiles a project here and pushes it to a server.

use std::sync::Arc;
use std::time::Instant;

use orrery_api::client::{Client, ClientError, ContextsError};
use orrery_api::{
    CompileProblem, Environment, Parameter, UploadScope, VersionStored, VersionUpload,
};
use orrery_compiler::project::Limits;
use serde_json::{Map, Value, json};

use crate::cli_server_side::Export;
use crate::code::ServerEnvironment;
use crate::known::Known;
use crate::making::{self, Made};
use crate::{Exit, output, projects, style};

use super::deploy::failed;

/// Why nothing was stored.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error(transparent)]
    Contexts(#[from] ContextsError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{0}")]
    Project(String),
    #[error("a temporary directory cannot be used")]
    Scratch(#[from] std::io::Error),
    #[error("the model does not compile: nothing is stored")]
    Model(Vec<CompileProblem>),
}

pub(crate) fn run(options: &Export, verbose: bool) -> Exit {
    let started = Instant::now();
    match export(options, verbose) {
        Ok((environment, stored)) => tell(options, &environment, &stored, started),
        Err(error) if options.json => {
            let problems = match &error {
                ExportError::Model(problems) => problems.clone(),
                _ => Vec::new(),
            };
            let report = json!({
                "status": "error", "message": error.to_string(), "errors": problems,
            });
            let _ = output::print(|out| writeln!(out, "{report:#}"));
            Exit::Error
        }
        Err(error) => failed(&error),
    }
}

fn export(options: &Export, verbose: bool) -> Result<(Environment, VersionStored), ExportError> {
    let target = options.connection.target(options.environment.environment.as_deref())?;
    let client = Client::new(&target)?;
    let environment = client.environment(target.environment()?)?;
    let scratch = tempfile::tempdir()?;
    let known = Arc::new(known(&client, &environment)?);
    let mut project = projects::options(&options.project)
        .map_err(|error| ExportError::Project(error.text.clone()))?;
    project.limits = Limits {
        instances: options.limits.max_instances,
        creation_depth: options.limits.max_depth,
        memory_bytes: options.limits.max_memory.saturating_mul(1 << 20),
        text_bytes: options.limits.max_text.saturating_mul(1 << 20),
    };
    project.facts = Some(Arc::clone(&known) as _);
    let place = ServerEnvironment {
        id: environment.id.to_string(),
        files: scratch.path().to_owned(),
        known,
    };
    let made = making::make(&project, &place, &options.exporter, verbose, options.json);
    let Made { upload, contents } = made.map_err(ExportError::Model)?;
    let hashes: Vec<String> = contents.into_keys().collect();
    for sha1 in client.missing_files(&hashes)? {
        client.put_file(&sha1, &std::fs::read(scratch.path().join(&sha1))?)?;
    }
    let upload = VersionUpload {
        scope: if options.partial { UploadScope::Partial } else { UploadScope::Full },
        removed_sets: options.delete_resource_set.clone(),
        allow_code_update: options.allow_code_update,
        info: info(options.message.as_deref()),
        release: match (options.release, options.no_release) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        },
        ..upload
    };
    let path = format!("/api/v1/environments/{}/versions", environment.id);
    let stored = client.post(&path, &upload)?;
    Ok((environment, stored))
}

/// What the server knows, for the model to ask for.
fn known(client: &Client, environment: &Environment) -> Result<Known, ClientError> {
    let path = format!("/api/v1/environments/{}", environment.id);
    let parameters: Vec<Parameter> = client.all(&format!("{path}/parameters"))?;
    let facts: Vec<Parameter> = client.all(&format!("{path}/facts"))?;
    let all = parameters.into_iter().chain(facts);
    Ok(Known::new(all.map(|one| (one.resource, one.name, one.value))))
}

fn info(message: Option<&str>) -> Map<String, Value> {
    let message = message.unwrap_or("pushed by orrery export");
    let mut metadata = Map::new();
    metadata.insert("type".to_owned(), "manual".into());
    metadata.insert("message".to_owned(), message.into());
    if let Ok(user) = std::env::var("USER") {
        metadata.insert("cli-user".to_owned(), user.into());
    }
    let mut info = Map::new();
    info.insert("message".to_owned(), message.into());
    info.insert("export_metadata".to_owned(), metadata.into());
    info
}

fn tell(
    options: &Export,
    environment: &Environment,
    stored: &VersionStored,
    started: Instant,
) -> Exit {
    if options.json {
        let report = json!({
            "status": "ok",
            "environment": environment.id,
            "version": stored.version,
            "created": stored.created_now,
        });
        let printed = output::print(|out| writeln!(out, "{report:#}"));
        return if printed { Exit::Done } else { Exit::Error };
    }
    let version = &stored.version;
    let released = match version.released {
        true => "released",
        false => "not released",
    };
    let name = style::harmless(&format!("{}/{}", environment.project_name, environment.name));
    output::say(&format!(
        "{} version {} of {name} with {} in {} ({} added, {} changed, {} removed), {released}",
        style::good("stored"),
        version.number,
        style::count(usize::try_from(version.total).unwrap_or(usize::MAX), "resource"),
        style::duration(started.elapsed()),
        version.added,
        version.changed,
        version.removed,
    ));
    Exit::Done
}
