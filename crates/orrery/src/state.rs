//! Where a project keeps what was deployed, and how commands get at it.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::{Args, ValueHint};
use orrery_model::Timestamp;
use orrery_store::{Holder, SqliteStore, StoreError};

/// Below the project's directory.
pub(crate) const DIRECTORY: &str = "data/deploy";
const FILE: &str = "state.db";

#[derive(Debug, Args)]
pub(crate) struct StateOptions {
    /// Where the state of deploys is kept [default: data/deploy in the project]
    #[arg(long, value_name = "DIR", env = "ORRERY_DATA", hide_env_values = true)]
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) data: Option<PathBuf>,
}

impl StateOptions {
    /// The file that holds the state of a project.
    pub(crate) fn file(&self, project: &Path) -> PathBuf {
        self.directory(project).join(FILE)
    }

    /// Where the state of a project and what belongs to it is kept.
    pub(crate) fn directory(&self, project: &Path) -> PathBuf {
        self.data.clone().unwrap_or_else(|| project.join(DIRECTORY))
    }

    /// Opens the state for a command that changes something; nobody else can at the same time.
    pub(crate) fn open(&self, project: &Path, command: &str) -> Result<SqliteStore, StoreError> {
        let holder = Holder::this_process(format!("orrery {command}"), now());
        SqliteStore::open(self.file(project), &holder)
    }

    /// Opens the state for a command that only looks, also while another one changes it.
    pub(crate) fn look(&self, project: &Path) -> Result<SqliteStore, StoreError> {
        SqliteStore::open_read_only(self.file(project))
    }
}

pub(crate) fn now() -> Timestamp {
    Timestamp::from_system(system_now())
}

#[expect(clippy::disallowed_methods, reason = "the command line is where the clock is read")]
pub(crate) fn system_now() -> SystemTime {
    SystemTime::now()
}
