//! `orrery export`: compiles a project locally and uploads it to a server.

use std::sync::Arc;
use std::time::Instant;

use orrery_api::client::{ClientError, path, query};
use orrery_api::{
    CompileProblem, Me, Parameter, UploadScope, VersionResource, VersionStored, VersionSummary,
    VersionUpload,
};
use orrery_base::clock::monotonic;
use orrery_compiler::plugins::ServerEnvironmentInfo;
use orrery_project::{FactSnapshot, ProjectRequest, ServerContext};
use serde_json::{Map, Value, json};

use crate::cli::ProjectOptions;
use crate::cli::deploy::{LimitOptions, Takeover};
use crate::cli::export::Export;
use crate::remote::RemoteEnvironment;
use crate::{Exit, output, style};

use super::deploy::unmanaged::{Unmanaged, refuse_to_prune};
use super::version_upload::{ExportOutput, ExportedProject, export_project};
use crate::error::{CliError, finish};

/// Reason why nothing was stored.
#[derive(Debug)]
pub(super) enum ExportError {
    Cli(CliError),
    /// Problems of the model, already reported.
    Model(Vec<CompileProblem>),
}

impl<E: Into<CliError>> From<E> for ExportError {
    fn from(error: E) -> Self {
        ExportError::Cli(error.into())
    }
}

impl ExportError {
    /// Reports the error and returns the exit code.
    pub(super) fn report(self, json: bool) -> Exit {
        let (error, problems) = match self {
            ExportError::Cli(error) => (error, Vec::new()),
            ExportError::Model(problems) => {
                (CliError::new("the model does not compile: nothing was stored"), problems)
            }
        };
        if !json {
            return finish(Err(error));
        }
        let message = error.to_string();
        let report = json!({ "status": "error", "message": message, "errors": problems });
        let _ = output::print(|out| writeln!(out, "{report:#}"));
        Exit::Error
    }
}

pub(crate) fn run(options: &Export, verbose: bool) -> Exit {
    let started = monotonic();
    match export(options, verbose) {
        Ok((of, stored)) => print_stored(options, &of, &stored, started),
        Err(error) => error.report(options.json),
    }
}

fn export(
    options: &Export,
    verbose: bool,
) -> Result<(RemoteEnvironment, VersionStored), ExportError> {
    let project = options.project.project.as_deref();
    let remote = options.server.open_for(Some(&options.environment), project)?;
    let of = remote.in_environment()?;
    let push = Push {
        project: &options.project,
        limits: &options.limits,
        exporters: &options.exporter,
        verbose,
        quiet: options.json,
        takeover: options.takeover,
        prune: false,
    };
    let version = VersionUpload {
        binding: options.takeover.upload_binding(),
        scope: if options.partial { UploadScope::Partial } else { UploadScope::Full },
        removed_sets: options.delete_resource_set.clone(),
        allow_code_update: options.allow_code_update,
        info: info(options.message.as_deref().unwrap_or("orrery export")),
        release: match (options.release, options.no_release) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        },
        ..VersionUpload::default()
    };
    for set in unknown_sets(&of, &options.delete_resource_set) {
        let warning = style::warning("warning");
        let set = style::sanitize(&set);
        output::print_status(&format!("{warning}: no resource set {set}: nothing removed"));
    }
    let stored = push.push(&of, version)?;
    Ok((of, stored))
}

/// Resource sets that the newest version lacks. Without the right to read versions, there is no
/// warning.
fn unknown_sets(of: &RemoteEnvironment, named: &[String]) -> Vec<String> {
    let mut missing = named.to_vec();
    if missing.is_empty() {
        return missing;
    }
    let newest = query(&of.path(&["versions"]), &[("limit", Some("1"))]);
    let newest = match of.client.list::<VersionSummary>(&newest).next() {
        Some(Ok(newest)) => newest,
        Some(Err(_)) => return Vec::new(),
        None => return missing,
    };
    let at = of.path(&["versions", &newest.number.to_string(), "resources"]);
    for resource in of.client.list::<VersionResource>(&at).large() {
        let Ok(resource) = resource else { return Vec::new() };
        missing.retain(|set| resource.set.as_ref() != Some(set));
        if missing.is_empty() {
            break;
        }
    }
    missing
}

/// Options of a compile for a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Push<'a> {
    pub(super) project: &'a ProjectOptions,
    pub(super) limits: &'a LimitOptions,
    pub(super) exporters: &'a [String],
    pub(super) verbose: bool,
    /// True to suppress the output of the model.
    pub(super) quiet: bool,
    pub(super) takeover: Takeover,
    /// True to remove resources that are no longer in the model.
    pub(super) prune: bool,
}

/// Rejects an environment that is bound to another project, before compiling.
pub(super) fn refuse_other_project(
    of: &RemoteEnvironment,
    declared: &str,
    takeover: Takeover,
) -> Result<(), CliError> {
    let bound = match of.details() {
        Ok(details) => &details.model_project,
        // The server checks it.
        Err(_) => return Ok(()),
    };
    if bound.is_empty() || bound == declared || takeover.rebind {
        return Ok(());
    }
    let text = format!(
        "{} is bound to project {bound}, not to this project {declared}: nothing was stored",
        of.display_name()
    );
    let help = "select another environment with `orrery environment use NAME`, or take this one over with `orrery deploy --rebind`";
    Err(CliError::new(text).help(help))
}

/// Rejects a caller without the right to store versions, before compiling. If the roles cannot be
/// read, the server decides.
fn check_role(of: &RemoteEnvironment) -> Result<(), CliError> {
    let Ok(me) = of.client.get::<Me>(&path(&["me"])) else { return Ok(()) };
    // The project of the environment may be unknown to the caller; then any suitable role is
    // accepted.
    let project = of.details().ok().map(|details| details.project);
    let may = me.roles.iter().any(|granted| {
        matches!(granted.role.as_str(), "developer" | "admin")
            && granted.environment.is_none_or(|id| id == of.id)
            && granted.project.is_none_or(|id| project.is_none_or(|project| id == project))
    });
    if may {
        return Ok(());
    }
    let text = format!(
        "{} may not store versions in {}: the role developer is required",
        me.name,
        of.display_name()
    );
    let help = "operators can run `orrery repair`, and `orrery version dry-run N` and `release N` for stored versions";
    Err(CliError::new(text).help(help))
}

impl Push<'_> {
    /// Compiles the project and stores it on a server, based on the given version.
    pub(super) fn push(
        &self,
        of: &RemoteEnvironment,
        version: VersionUpload,
    ) -> Result<VersionStored, ExportError> {
        let (upload, _) = self.prepare_upload(of, version)?;
        Ok(store(of, &upload)?)
    }

    /// Compiles the project and uploads the contents of the version before it is stored. Also
    /// returns the entities with handlers in module code.
    pub(super) fn prepare_upload(
        &self,
        of: &RemoteEnvironment,
        version: VersionUpload,
    ) -> Result<(VersionUpload, Vec<String>), ExportError> {
        check_role(of)?;
        let scratch = tempfile::tempdir().map_err(|error| scratch_error(&error))?;
        let known = Arc::new(fetch_facts(of)?);
        let project = self.project.find().map_err(CliError::Project)?;
        let name = project.name();
        refuse_other_project(of, &name, self.takeover)?;
        let (tls, host, port) = of.client.endpoint();
        let side = ServerEnvironmentInfo {
            environment: of.id.to_string(),
            environment_name: of.details()?.name.clone(),
            host,
            port,
            tls,
            ca: of.client.ca().to_owned(),
        };
        let place = ServerContext { side, files: scratch.path().to_owned(), known };
        let export_output =
            ExportOutput { verbose: self.verbose, quiet: self.quiet, project: None };
        let exporters = self.exporters.to_vec();
        let request = ProjectRequest { exporters, ..self.project.request(self.limits) };
        let made = export_project(project, request, &place, export_output);
        let ExportedProject { upload, contents, coded, left_out } =
            made.map_err(ExportError::Model)?;
        if self.prune {
            refuse_to_prune(&left_out)?;
        }
        let hashes: Vec<String> = contents.into_keys().collect();
        for sha1 in of.client.missing_files(&hashes)? {
            let content = std::fs::read(scratch.path().join(&sha1));
            of.client.put_file(&sha1, content.map_err(|error| scratch_error(&error))?)?;
        }
        let VersionUpload { resources, unknowns, code, files, local_agents, inventory, .. } =
            upload;
        let project = Some(name);
        let upload = VersionUpload {
            resources,
            unknowns,
            code,
            files,
            local_agents,
            inventory,
            project,
            ..version
        };
        Ok((upload, coded))
    }
}

/// Stores an upload as a version.
pub(super) fn store(
    of: &RemoteEnvironment,
    upload: &VersionUpload,
) -> Result<VersionStored, ClientError> {
    of.client.post(&of.path(&["versions"]), upload)
}

fn scratch_error(error: &std::io::Error) -> CliError {
    CliError::new(format!("cannot use a temporary directory: {error}"))
}

/// Fetches parameters and facts for the compile.
fn fetch_facts(of: &RemoteEnvironment) -> Result<FactSnapshot, ClientError> {
    let mut known = Vec::new();
    for kind in ["parameters", "facts"] {
        for one in of.client.list::<Parameter>(&of.path(&[kind])).large() {
            let one = one?;
            known.push((one.resource, one.name, one.value));
        }
    }
    Ok(FactSnapshot::new(known))
}

/// Metadata of a version.
pub(super) fn info(message: &str) -> Map<String, Value> {
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

fn print_stored(
    options: &Export,
    of: &RemoteEnvironment,
    stored: &VersionStored,
    started: Instant,
) -> Exit {
    if options.json {
        let report = json!({
            "status": "ok",
            "environment": of.id,
            "version": stored.version,
            "created": stored.created_now,
            "unmanaged": stored.unmanaged,
        });
        let printed = output::print(|out| writeln!(out, "{report:#}"));
        return if printed { Exit::Done } else { Exit::Error };
    }
    let version = &stored.version;
    let released = match version.released {
        true => "released",
        false => "not released",
    };
    let name = style::sanitize(&of.name());
    output::print_status(&format!(
        "{} version {} of {name} with {} in {} ({} added, {} changed, {} removed), {released}",
        style::good("stored"),
        version.number,
        style::count(usize::try_from(version.total).unwrap_or(usize::MAX), "resource"),
        style::duration(started.elapsed()),
        version.added,
        version.changed,
        version.removed,
    ));
    if let Some(project) = &stored.rebound_from {
        let project = style::sanitize(project);
        output::print_status(&format!(
            "{}: taken over from project {project}",
            style::help("note")
        ));
    }
    if !version.released {
        let number = version.number;
        let note = style::help("note");
        output::print_status(&format!("{note}: `orrery version release {number}` deploys it"));
    }
    Unmanaged::of_server(stored.unmanaged.clone()).report();
    Exit::Done
}
