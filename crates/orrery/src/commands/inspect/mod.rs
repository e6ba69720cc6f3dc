//! Commands that look at a deployment and change nothing: at the state of a local project, also while another
//! command writes to it, or at an environment on a server.
//!
//! `source` says what can be asked, `local` and `on_server` answer. One module for each command; `find` turns what people type into a resource, `text`, `changes` and
//! `json` are the words and forms that they share. JSON forms are documented in
//! `docs/guide/looking.md`: keys are added there, never renamed.

mod cause;
pub(in crate::commands) mod changes;
mod diff;
mod facts;
pub(super) mod find;
mod from_api;
mod json;
mod local;
mod log;
pub(super) mod on_server;
mod removed;
mod resources;
pub(in crate::commands) mod source;
mod status;
pub(in crate::commands) mod text;
pub(in crate::commands) mod unfinished;
mod unknown;
mod versions;
mod why;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use orrery_model::{Source, VersionNumber};
use orrery_store::VersionInfo;

use crate::cli_inspect::{self as cli, LookOptions};
use crate::remote::RemoteEnvironment;
use crate::{Exit, projects, style};

use super::effects::Acting;
use super::trouble::{Trouble, finish};
use local::Local;
use on_server::OnServer;
use source::Deployment;

pub(crate) fn status(options: &cli::ShowStatus) -> Exit {
    finish(Look::open(&options.look).and_then(|look| status::run(&look, options)))
}

pub(crate) fn resources(options: &cli::Resources) -> Exit {
    finish(Look::open(&options.look).and_then(|look| resources::run(&look, options)))
}

pub(crate) fn log(options: &cli::Log, verbose: bool) -> Exit {
    finish(Look::open(&options.look).and_then(|look| log::run(&look, options, verbose)))
}

pub(crate) fn why(options: &cli::Why) -> Exit {
    finish(Look::open(&options.look).and_then(|look| why::run(&look, options)))
}

pub(crate) fn versions(options: &cli::Versions) -> Exit {
    finish(Look::open(&options.look).and_then(|look| versions::run(&look, options)))
}

pub(crate) fn diff(options: &cli::Diff) -> Exit {
    finish(Look::open(&options.look).and_then(|look| diff::run(&look, options)))
}

pub(crate) fn facts(options: &cli::Facts) -> Exit {
    finish(Look::open(&options.look).and_then(|look| facts::run(&look, options)))
}

/// How two versions of an environment on a server differ, as `orrery diff` tells it.
pub(in crate::commands) fn compare(
    of: RemoteEnvironment,
    (from, to): (u32, u32),
    short: bool,
    json: bool,
) -> Result<Exit, Trouble> {
    let look = Look::at(of, None);
    diff::show(&look, (VersionNumber(from), VersionNumber(to)), short, json)
}

/// What is looked at.
pub(crate) struct Look {
    /// The project's directory, for the names of files.
    project: PathBuf,
    source: Box<dyn Deployment>,
}

impl std::ops::Deref for Look {
    type Target = dyn Deployment;

    fn deref(&self) -> &Self::Target {
        &*self.source
    }
}

impl Look {
    fn open(options: &LookOptions) -> Result<Self, Trouble> {
        if options.state.data.is_none()
            && let Some(remote) = options.place.remote(options.project.as_deref())?
        {
            return Ok(Look::at(remote, options.project.clone()));
        }
        let (project, local) = Local::open(options)?;
        Ok(Look { project, source: Box::new(local) })
    }

    fn at(remote: RemoteEnvironment, project: Option<PathBuf>) -> Self {
        let project = project.or_else(projects::around_here);
        let project = project.unwrap_or_else(|| PathBuf::from("."));
        Look { project, source: Box::new(OnServer::new(remote)) }
    }

    /// The version that is wanted, and a newer one that waits for its release.
    fn released(&self) -> Result<(VersionInfo, Option<VersionInfo>), Trouble> {
        let mut versions = self.versions()?;
        // A local deploy releases what it stores.
        let is_candidate = |version: &mut VersionInfo| !version.released;
        let candidate = match self.environment() {
            Some(_) => versions.pop_if(is_candidate),
            None => None,
        };
        match (versions.into_iter().rfind(|version| version.released), candidate) {
            (Some(released), candidate) => Ok((released, candidate)),
            (None, Some(candidate)) => Err(self.nothing_deployed().help(unreleased(&candidate))),
            (None, None) => Err(self.nothing_deployed()),
        }
    }

    /// When a decision about an unknown effect takes effect.
    fn acting(&self) -> Acting {
        if self.environment().is_some() { Acting::AtOnce } else { Acting::NextDeploy }
    }

    /// A place in the model as it is called from the working directory.
    fn place(&self, source: &Source) -> String {
        let file = projects::path_from_here(&self.project, &source.file);
        let file = file.strip_prefix("./").unwrap_or(&file);
        style::harmless(&format!("{file}:{}:{}", source.line, source.column))
    }
}

/// Says that a version is not released, and how to change that.
fn unreleased(version: &VersionInfo) -> String {
    let number = version.number;
    format!("version {number} is not released: `orrery version release {number}` deploys it")
}

/// Standard output for text with styles, through a buffer.
type Paper = BufWriter<anstream::AutoStream<io::StdoutLock<'static>>>;

fn paper() -> Paper {
    BufWriter::with_capacity(1 << 16, anstream::stdout().lock())
}

pub(in crate::commands) fn print_json(value: &serde_json::Value) -> Result<(), Trouble> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(out.flush()?)
}
