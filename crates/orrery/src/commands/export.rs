//! `orrery export`: compiles a project here and pushes it to a server.

use std::sync::Arc;
use std::time::Instant;

use orrery_api::client::{ClientError, path, query};
use orrery_api::{
    CompileProblem, Me, Parameter, UploadScope, VersionResource, VersionStored, VersionSummary,
    VersionUpload,
};
use orrery_compiler::plugins::ServerSide;
use orrery_compiler::project::Limits;
use serde_json::{Map, Value, json};

use crate::cli::ProjectOptions;
use crate::cli_deploy::{LimitOptions, Takeover};
use crate::cli_export::Export;
use crate::code::ServerEnvironment;
use crate::known::Known;
use crate::making::{self, Made, Telling};
use crate::remote::RemoteEnvironment;
use crate::{Exit, output, projects, style};

use super::deploy::unmanaged::{Unmanaged, refuse_to_prune};
use super::trouble::{Trouble, finish};

/// Why nothing was stored.
#[derive(Debug)]
pub(super) enum ExportError {
    Trouble(Trouble),
    /// They were told already.
    Model(Vec<CompileProblem>),
}

impl<E: Into<Trouble>> From<E> for ExportError {
    fn from(error: E) -> Self {
        ExportError::Trouble(error.into())
    }
}

impl ExportError {
    /// Tells of it, and how the command ends.
    pub(super) fn tell(self, json: bool) -> Exit {
        let (trouble, problems) = match self {
            ExportError::Trouble(trouble) => (trouble, Vec::new()),
            ExportError::Model(problems) => {
                (Trouble::said("the model does not compile: nothing is stored"), problems)
            }
        };
        if !json {
            return finish(Err(trouble));
        }
        let message = trouble.to_string();
        let report = json!({ "status": "error", "message": message, "errors": problems });
        let _ = output::print(|out| writeln!(out, "{report:#}"));
        Exit::Error
    }
}

pub(crate) fn run(options: &Export, verbose: bool) -> Exit {
    let started = Instant::now();
    match export(options, verbose) {
        Ok((of, stored)) => tell(options, &of, &stored, started),
        Err(error) => error.tell(options.json),
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
        info: info(options.message.as_deref().unwrap_or("pushed by orrery export")),
        release: match (options.release, options.no_release) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        },
        ..VersionUpload::default()
    };
    for set in unknown_sets(&of, &options.delete_resource_set) {
        let warning = style::warning("warning");
        let set = style::harmless(&set);
        output::say(&format!("{warning}: there is no resource set {set}, so none is removed"));
    }
    let stored = push.push(&of, version)?;
    Ok((of, stored))
}

/// Those that the newest version does not have. Who may not look is not warned.
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

/// How a project is compiled for a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Push<'a> {
    pub(super) project: &'a ProjectOptions,
    pub(super) limits: &'a LimitOptions,
    pub(super) exporters: &'a [String],
    pub(super) verbose: bool,
    /// What the model prints is not wanted.
    pub(super) quiet: bool,
    pub(super) takeover: Takeover,
    /// What the model does not have any more is removed.
    pub(super) prune: bool,
}

/// An environment of another project is not replaced: who means the wrong one learns that before anything is compiled.
pub(super) fn refuse_other_project(
    of: &RemoteEnvironment,
    declared: &str,
    takeover: Takeover,
) -> Result<(), Trouble> {
    let bound = match of.details() {
        Ok(details) => &details.model_project,
        // The server knows.
        Err(_) => return Ok(()),
    };
    if bound.is_empty() || bound == declared || takeover.rebind {
        return Ok(());
    }
    let text = format!(
        "{} belongs to the project {bound}, and this is the project {declared}: nothing is stored",
        of.place()
    );
    let help = "choose an environment for this directory: orrery environment use NAME; or take this one over: orrery deploy --rebind";
    Err(Trouble::said(text).help(help))
}

/// Who may not store versions learns that before anything is compiled. The server decides in the end: who may not even ask goes on.
fn refuse_if_too_weak(of: &RemoteEnvironment) -> Result<(), Trouble> {
    let Ok(me) = of.client.get::<Me>(&path(&["me"])) else { return Ok(()) };
    // A role of another project is no reason to refuse somebody who may not know which one this belongs to.
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
        "{} may not push versions to {}, which needs the role developer there",
        me.name,
        of.place()
    );
    let help = "an operator can use `orrery repair`, and `orrery version dry-run N` and `release N` for versions that others pushed";
    Err(Trouble::said(text).help(help))
}

impl Push<'_> {
    /// Compiles the project and stores it on a server as a version of which some things are said already.
    pub(super) fn push(
        &self,
        of: &RemoteEnvironment,
        version: VersionUpload,
    ) -> Result<VersionStored, ExportError> {
        let (upload, _) = self.make(of, version)?;
        Ok(store(of, &upload)?)
    }

    /// Compiles the project, and sends what the version needs before it is stored. The answer names the entities whose handlers are in
    /// the code of modules, too.
    pub(super) fn make(
        &self,
        of: &RemoteEnvironment,
        version: VersionUpload,
    ) -> Result<(VersionUpload, Vec<String>), ExportError> {
        refuse_if_too_weak(of)?;
        let scratch = tempfile::tempdir().map_err(|error| scratch_trouble(&error))?;
        let known = Arc::new(known(of)?);
        let mut project = projects::options(self.project).map_err(Trouble::Project)?;
        project.limits = Limits {
            instances: self.limits.max_instances,
            creation_depth: self.limits.max_depth,
            memory_bytes: self.limits.max_memory.saturating_mul(1 << 20),
            text_bytes: self.limits.max_text.saturating_mul(1 << 20),
        };
        let name = projects::name_of(&project.project_dir);
        refuse_other_project(of, &name, self.takeover)?;
        let (tls, host, port) = of.client.place();
        let side = ServerSide {
            environment: of.id.to_string(),
            environment_name: of.details()?.name.clone(),
            host,
            port,
            tls,
            ca: of.client.ca().to_owned(),
        };
        let place = ServerEnvironment { side, files: scratch.path().to_owned(), known };
        let telling = Telling { verbose: self.verbose, quiet: self.quiet, project: None };
        let made = making::make(&project, &place, self.exporters, telling);
        let Made { upload, contents, coded, left_out } = made.map_err(ExportError::Model)?;
        if self.prune {
            refuse_to_prune(&left_out)?;
        }
        let hashes: Vec<String> = contents.into_keys().collect();
        for sha1 in of.client.missing_files(&hashes)? {
            let content = std::fs::read(scratch.path().join(&sha1));
            of.client.put_file(&sha1, content.map_err(|error| scratch_trouble(&error))?)?;
        }
        let VersionUpload { resources, unknowns, code, files, local_agents, .. } = upload;
        let project = Some(name);
        let upload =
            VersionUpload { resources, unknowns, code, files, local_agents, project, ..version };
        Ok((upload, coded))
    }
}

/// Stores what was made as a version.
pub(super) fn store(
    of: &RemoteEnvironment,
    upload: &VersionUpload,
) -> Result<VersionStored, ClientError> {
    of.client.post(&of.path(&["versions"]), upload)
}

fn scratch_trouble(error: &std::io::Error) -> Trouble {
    Trouble::said(format!("a temporary directory cannot be used: {error}"))
}

/// What the server knows, for the model to ask for.
fn known(of: &RemoteEnvironment) -> Result<Known, ClientError> {
    let mut known = Vec::new();
    for kind in ["parameters", "facts"] {
        for one in of.client.list::<Parameter>(&of.path(&[kind])).large() {
            let one = one?;
            known.push((one.resource, one.name, one.value));
        }
    }
    Ok(Known::new(known))
}

/// What a version is about.
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

fn tell(
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
    let name = style::harmless(&of.name());
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
    if let Some(project) = &stored.rebound_from {
        let project = style::harmless(project);
        output::say(&format!("{}: taken over from the project {project}", style::help("note")));
    }
    if !version.released {
        let number = version.number;
        let note = style::help("note");
        output::say(&format!("{note}: `orrery version release {number}` deploys it"));
    }
    Unmanaged::of_server(stored.unmanaged.clone()).tell();
    Exit::Done
}
