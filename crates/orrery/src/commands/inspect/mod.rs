//! Commands that look at a deployment and change nothing: they open the state for reading, also while
//! another command writes to it.
//!
//! One module for each command; `find` turns what people type into a resource, `text`, `changes` and
//! `json` are the words and forms that they share. JSON forms are documented in
//! `docs/guide/looking.md`: keys are added there, never renamed.

mod cause;
mod changes;
mod diff;
mod facts;
mod find;
mod json;
mod log;
mod resources;
mod status;
pub(in crate::commands) mod text;
mod versions;
mod why;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use orrery_model::Source;
use orrery_store::{EnvironmentKey, SqliteStore, Store, StoreError, VersionInfo};

use crate::cli_inspect::{self as cli, LookOptions};
use crate::projects::{self, MAIN_FILE};
use crate::{Exit, style};

use super::trouble::{Trouble, finish};

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

/// The state of one project, open for reading.
struct Look {
    project: PathBuf,
    file: PathBuf,
    store: SqliteStore,
    environment: EnvironmentKey,
}

impl Look {
    fn open(options: &LookOptions) -> Result<Self, Trouble> {
        let project = match projects::directory(options.project.as_deref(), MAIN_FILE) {
            Ok(project) => project,
            // Whoever names the state needs no project.
            Err(_) if options.project.is_none() && options.state.data.is_some() => {
                PathBuf::from(".")
            }
            Err(error) => return Err(Trouble::Project(error)),
        };
        let file = options.state.file(&project);
        let store = options.state.look(&project)?;
        let environment = store.default_environment().map_err(|error| match error {
            // There is none, and to make one is not for those who look.
            StoreError::ReadOnly { .. } => nothing_deployed(&file),
            error => error.into(),
        })?;
        Ok(Look { project, file, store, environment })
    }

    /// By ascending number.
    fn versions(&self) -> Result<Vec<VersionInfo>, Trouble> {
        Ok(self.store.versions(self.environment)?)
    }

    /// The version that is wanted, if there is one.
    fn released(&self) -> Result<Option<VersionInfo>, Trouble> {
        Ok(self.versions()?.into_iter().rfind(|version| version.released))
    }

    /// A place in the model as it is called from the working directory.
    fn place(&self, source: &Source) -> String {
        let file = projects::path_from_here(&self.project, &source.file);
        let file = file.strip_prefix("./").unwrap_or(&file);
        style::harmless(&format!("{file}:{}:{}", source.line, source.column))
    }
}

fn nothing_deployed(file: &Path) -> Trouble {
    let file = file.display();
    Trouble::said(format!("{file} holds no version: nothing was deployed here yet"))
}

/// Standard output for text with styles, through a buffer.
type Paper = BufWriter<anstream::AutoStream<io::StdoutLock<'static>>>;

fn paper() -> Paper {
    BufWriter::with_capacity(1 << 16, anstream::stdout().lock())
}

fn print_json(value: &serde_json::Value) -> Result<(), Trouble> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(out.flush()?)
}
