//! Errors of the store.

use std::path::{Path, PathBuf};

use orrery_model::VersionNumber;
use postgres::error::SqlState;

use crate::Holder;

pub type Result<T> = std::result::Result<T, StoreError>;

/// An error of the store. `Display` says what happened and, where a person can act, the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error(
        "{path} is in use by {holder}; wait until it has finished, or stop it",
        path = .path.display(),
        holder = describe(.holder.as_ref())
    )]
    Busy { path: PathBuf, holder: Option<Holder> },

    #[error("the environment is leased by {holder}; wait until it has finished, or stop it")]
    Leased { holder: Holder },

    #[error(
        "this process lost the lease of the environment: it has epoch {held}, and the current epoch is {current}; restart it"
    )]
    StaleEpoch { held: u64, current: u64 },

    #[error(
        "{path} was written by a newer program: it has schema {found}, and this one knows schemas up to {supported}; use the newer program (the file is unchanged)",
        path = .path.display()
    )]
    Newer { path: PathBuf, found: u32, supported: u32 },

    #[error(
        "{path} has the older schema {found} and was opened for reading only; a command that writes, such as a deploy, migrates it to schema {supported}",
        path = .path.display()
    )]
    Older { path: PathBuf, found: u32, supported: u32 },

    #[error(
        "{path} is not a store of this program, or its first page is damaged; choose another path for the state, or move the file away (it is unchanged)",
        path = .path.display()
    )]
    Foreign { path: PathBuf },

    #[error(
        "{path} is damaged ({detail}); restore it from a backup, or move it away together with all files that begin with its name: the next deploy then starts a new history and verifies every resource (the file is unchanged)",
        path = .path.display()
    )]
    Damaged { path: PathBuf, detail: String },

    #[error("{path} does not exist: nothing was deployed here yet", path = .path.display())]
    Missing { path: PathBuf },

    #[error("{path} was opened for reading only", path = .path.display())]
    ReadOnly { path: PathBuf },

    #[error("no space left for {path}; free some and try again (nothing was written partially)", path = .path.display())]
    Full { path: PathBuf },

    #[error("{path} cannot be used", path = .path.display())]
    Io { path: PathBuf, source: std::io::Error },

    #[error("{reason}: expected postgres://user:password@host:port/name")]
    BadUrl { reason: String },

    #[error(
        "{database} cannot be reached ({reason}); check that it runs, and that host and port are right"
    )]
    Unreachable { database: String, reason: String },

    #[error("{database} refused the connection: {reason}")]
    Refused { database: String, reason: String },

    #[error(
        "the connection to {database} was lost ({reason}); the change may or may not be stored: read again before repeating it"
    )]
    ConnectionLost { database: String, reason: String },

    #[error(
        "all {size} connections to {database} were in use for {seconds} seconds; try again, or allow more with --database-connections"
    )]
    NoConnection { database: String, size: usize, seconds: u64 },

    #[error(
        "{attempts} attempts conflicted with other transactions in {database}; try again later"
    )]
    Contended { database: String, attempts: u32 },

    #[error(
        "{database} was written by a newer program: it has schema {found}, and this one knows schemas up to {supported}; use the newer program (the database is unchanged)"
    )]
    NewerDatabase { database: String, found: i64, supported: u32 },

    #[error(
        "{database} holds tables of another program; create a separate one with CREATE DATABASE (this one is unchanged)"
    )]
    ForeignDatabase { database: String },

    #[error("{database} cannot be used: {reason}")]
    UnfitDatabase { database: String, reason: String },

    #[error("{database} cannot store this: {reason}")]
    Unstorable { database: String, reason: String },

    /// The database refused a statement that should have been valid.
    #[error("the database failed")]
    Database { source: Box<dyn std::error::Error + Send + Sync> },

    /// A stored value that no version of this program wrote.
    #[error("stored data is not readable: {0}")]
    Unreadable(String),

    #[error("there is no environment {0:?}")]
    NoEnvironment(String),

    #[error("there is already an environment {name:?} in the project {project:?}")]
    EnvironmentExists { project: String, name: String },

    #[error("there is no version {0}")]
    NoVersion(VersionNumber),

    #[error("version {0} is stored already, and versions are immutable")]
    VersionExists(VersionNumber),

    #[error("version {0} was never reserved")]
    VersionNotReserved(VersionNumber),

    #[error("version {0} is released already")]
    AlreadyReleased(VersionNumber),

    #[error("version {number} cannot be released: the newer version {newest} is released already")]
    Superseded { number: VersionNumber, newest: VersionNumber },

    #[error("version {0} is in use and cannot be deleted")]
    VersionInUse(VersionNumber),

    #[error("the resource {0} is in the version twice")]
    DuplicateResource(String),

    #[error("{resource} requires {requires}, which is not in the version")]
    DanglingRequires { resource: String, requires: String },

    #[error("version {base} is not the newest any more; compute the change again")]
    BaseChanged { base: VersionNumber, newest: Option<VersionNumber> },

    #[error(
        "the environment belongs to the project {bound:?}, and this is the project {declared:?}; choose another environment, or take this one over with `orrery deploy --rebind`"
    )]
    OtherProject { bound: String, declared: String },

    #[error("there is no resource {0}")]
    NoResource(String),

    #[error("there is no {kind} {name}")]
    NotFound { kind: &'static str, name: String },

    #[error("there is already {} {kind} {name:?}", article(kind))]
    Exists { kind: &'static str, name: String },

    /// Only projects can be in use: by their environments.
    #[error(
        "the {kind} {name:?} is in use by its environments: delete them, or move them to another {kind}, first"
    )]
    InUse { kind: &'static str, name: String },

    #[error(
        "the {kind} was changed concurrently: it has revision {current}, not {expected}; read it again"
    )]
    Outdated { kind: &'static str, expected: i64, current: i64 },

    #[error("cluster documents were changed meanwhile; read them again")]
    DocumentsChanged,

    #[error(
        "the operation {number} ({kind}) of the cluster {cluster} is open; wait until it has ended, or abort it"
    )]
    OperationOpen { cluster: String, number: i64, kind: String },

    #[error(
        "the project may have {limit} {what}, and {used} are in use; delete some, or ask an administrator to raise the quota"
    )]
    QuotaExceeded { what: &'static str, limit: u32, used: u32 },

    #[error("{0:?} is the last administrator account; create another one first")]
    LastAdministrator(String),

    #[error("the setting {name} is protected by {by}; change it there")]
    Protected { name: String, by: String },

    #[error("{0}")]
    Conflict(String),
    /// Another content has the same SHA-1: one of them is a deliberate collision.
    #[error("another content is stored under the SHA-1 {0}: this one is refused")]
    ContentCollision(String),

    #[error("there are secrets that were sealed with another key")]
    OtherKey,

    #[error("the environment {0:?} is being deleted")]
    Deleting(String),
}

fn describe(holder: Option<&Holder>) -> String {
    holder.map_or_else(|| "another process".to_owned(), Holder::to_string)
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        StoreError::Database { source: Box::new(error) }
    }
}

/// Indefinite article for the name of a kind.
fn article(kind: &str) -> &'static str {
    if kind.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" }
}

impl StoreError {
    /// True if a retry may succeed: the database is unreachable, busy or full. After a lost
    /// connection, the change may or may not have been committed.
    pub fn is_temporary(&self) -> bool {
        match self {
            StoreError::Busy { .. }
            | StoreError::Full { .. }
            | StoreError::Io { .. }
            | StoreError::Unreachable { .. }
            | StoreError::ConnectionLost { .. }
            | StoreError::NoConnection { .. }
            | StoreError::Contended { .. } => true,
            StoreError::Database { source } => is_cancelled(source.as_ref()),
            _ => false,
        }
    }

    pub(crate) fn not_found(kind: &'static str, name: impl Into<String>) -> Self {
        StoreError::NotFound { kind, name: name.into() }
    }

    pub(crate) fn exists(kind: &'static str, name: &str) -> Self {
        StoreError::Exists { kind, name: name.to_owned() }
    }

    /// Fails if the expected revision is not the current one.
    pub(crate) fn check_revision(
        kind: &'static str,
        expected: Option<i64>,
        current: i64,
    ) -> Result<()> {
        match expected {
            Some(expected) if expected != current => {
                Err(StoreError::Outdated { kind, expected, current })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        StoreError::Io { path: path.to_owned(), source }
    }

    /// Translates a database error for the file at `path`.
    pub(crate) fn at(self, path: &Path) -> Self {
        use rusqlite::ErrorCode;
        let StoreError::Database { source } = self else { return self };
        let Some(error) = source.downcast_ref::<rusqlite::Error>() else {
            return StoreError::Database { source };
        };
        let path = path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt) => {
                StoreError::Damaged { path, detail: error.to_string() }
            }
            Some(ErrorCode::NotADatabase) => StoreError::Foreign { path },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                StoreError::Busy { path, holder: None }
            }
            Some(ErrorCode::DiskFull) => StoreError::Full { path },
            Some(ErrorCode::ReadOnly) => StoreError::ReadOnly { path },
            Some(
                ErrorCode::CannotOpen | ErrorCode::SystemIoFailure | ErrorCode::PermissionDenied,
            ) => StoreError::Io { path, source: std::io::Error::other(error.to_string()) },
            _ => StoreError::Database { source },
        }
    }
}

/// True if the database cancelled a statement, by timeout or on request.
pub(crate) fn is_cancelled(error: &(dyn std::error::Error + 'static)) -> bool {
    sql_state(error).is_some_and(|state| *state == SqlState::QUERY_CANCELED)
}

/// SQLSTATE of a database error.
pub(crate) fn sql_state<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a SqlState> {
    error.downcast_ref::<postgres::Error>().and_then(postgres::Error::code)
}
