//! Commands that inspect a deployment: a local project's state, also during a deploy, or an
//! environment on a server.
//!
//! `deployment` has the trait, `local` and `on_server` implement it. One module per command; `find`
//! resolves resource arguments; `text`, `changes` and `json` are shared formats. JSON forms are
//! documented in `docs/guide/looking.md`: keys may be added, never renamed.

mod cause;
pub(in crate::commands) mod changes;
pub(in crate::commands) mod deployment;
mod diff;
mod facts;
pub(super) mod find;
mod from_api;
mod from_store;
mod json;
mod local;
mod log;
pub(super) mod on_server;
mod removal_record;
mod resources;
mod status;
pub(in crate::commands) mod text;
mod undefined_values;
pub(in crate::commands) mod unfinished_removal;
mod versions;
pub(crate) mod view;
mod why;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use orrery_model::{Source, VersionNumber};

use crate::cli::inspect::{self as cli, InspectOptions};
use crate::remote::RemoteEnvironment;
use crate::render::path_from_here;
use crate::{Exit, style};
use view::VersionView;

use super::effects::SettleTiming;
use crate::error::{CliError, finish};
use deployment::Deployment;
pub(super) use from_api::placement_kind;
use local::Local;
use on_server::OnServer;

pub(crate) fn status(options: &cli::ShowStatus) -> Exit {
    finish(
        OpenDeployment::open(&options.inspect)
            .and_then(|deployment| status::run(&deployment, options)),
    )
}

pub(crate) fn resources(options: &cli::Resources) -> Exit {
    finish(
        OpenDeployment::open(&options.inspect)
            .and_then(|deployment| resources::run(&deployment, options)),
    )
}

pub(crate) fn log(options: &cli::Log, verbose: bool) -> Exit {
    finish(
        OpenDeployment::open(&options.inspect)
            .and_then(|deployment| log::run(&deployment, options, verbose)),
    )
}

pub(crate) fn why(options: &cli::Why) -> Exit {
    finish(
        OpenDeployment::open(&options.inspect)
            .and_then(|deployment| why::run(&deployment, options)),
    )
}

pub(crate) fn versions(options: &cli::Versions) -> Exit {
    finish(
        OpenDeployment::open(&options.inspect)
            .and_then(|deployment| versions::run(&deployment, options)),
    )
}

pub(crate) fn diff(options: &cli::Diff) -> Exit {
    finish(
        OpenDeployment::open(&options.inspect)
            .and_then(|deployment| diff::run(&deployment, options)),
    )
}

pub(crate) fn facts(options: &cli::Facts) -> Exit {
    finish(
        OpenDeployment::open(&options.inspect)
            .and_then(|deployment| facts::run(&deployment, options)),
    )
}

/// Compares two versions of an environment on a server, as `orrery diff` does.
pub(in crate::commands) fn compare(
    of: RemoteEnvironment,
    (from, to): (u32, u32),
    short: bool,
    json: bool,
) -> Result<Exit, CliError> {
    let deployment = OpenDeployment::at(of, None);
    diff::show(&deployment, (VersionNumber(from), VersionNumber(to)), short, json)
}

/// The deployment that a command inspects.
pub(crate) struct OpenDeployment {
    /// Project directory, for file names.
    project: PathBuf,
    source: Box<dyn Deployment>,
}

impl std::ops::Deref for OpenDeployment {
    type Target = dyn Deployment;

    fn deref(&self) -> &Self::Target {
        &*self.source
    }
}

impl OpenDeployment {
    fn open(options: &InspectOptions) -> Result<Self, CliError> {
        if options.state.data.is_none()
            && let Some(remote) = options.deployment.remote(options.project.as_deref())?
        {
            return Ok(OpenDeployment::at(remote, options.project.clone()));
        }
        let (project, local) = Local::open(options)?;
        Ok(OpenDeployment { project, source: Box::new(local) })
    }

    fn at(remote: RemoteEnvironment, project: Option<PathBuf>) -> Self {
        let project = project.or_else(orrery_project::around_here);
        let project = project.unwrap_or_else(|| PathBuf::from("."));
        OpenDeployment { project, source: Box::new(OnServer::new(remote)) }
    }

    /// The released version, and a newer unreleased one.
    fn released(&self) -> Result<(VersionView, Option<VersionView>), CliError> {
        let mut versions = self.versions()?;
        // A local deploy releases its version.
        let is_candidate = |version: &mut VersionView| !version.released;
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

    /// Time at which a decision about an unknown effect is applied.
    fn settle_timing(&self) -> SettleTiming {
        if self.environment().is_some() { SettleTiming::AtOnce } else { SettleTiming::NextDeploy }
    }

    /// Source location relative to the working directory.
    fn location(&self, source: &Source) -> String {
        let file = path_from_here(&self.project, &source.file);
        let file = file.strip_prefix("./").unwrap_or(&file);
        style::sanitize(&format!("{file}:{}:{}", source.line, source.column))
    }
}

/// Note on an unreleased version.
fn unreleased(version: &VersionView) -> String {
    let number = version.number;
    format!("version {number} is not released: `orrery version release {number}` deploys it")
}

/// Buffered standard output for styled text.
type StyledStdout = BufWriter<anstream::AutoStream<io::StdoutLock<'static>>>;

fn styled_stdout() -> StyledStdout {
    BufWriter::with_capacity(1 << 16, anstream::stdout().lock())
}

pub(in crate::commands) fn print_json(value: &serde_json::Value) -> Result<(), CliError> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(out.flush()?)
}
