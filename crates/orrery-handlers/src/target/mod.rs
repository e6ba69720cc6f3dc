//! Targets: the only access of handlers to machines, so the same handlers run on this machine, over
//! a connection, or in memory.
//!
//! Paths are absolute and UTF-8. No operation follows a symbolic link in the last component unless
//! its name says so. Links in parent directories are followed if root or the user of this process
//! controls them, or if their user also owns the destination directory.

mod account;
mod cancellation;
mod command;
mod digest;
mod fault_injection;
mod http;
mod local;
mod memory;
mod outward;
mod permit;
mod shell;
mod transport;

pub use account::{AccountName, Group, User};
pub use cancellation::{CancelCause, CancelToken};
pub use command::{CommandLine, Output};
pub use digest::{Algorithm, ContentDigest};
pub use fault_injection::{Fault, FaultyTarget};
pub use http::{Request, Response};
pub use local::{
    CommandRecords, Durability, LeftBehindError, LocalTarget, Variables, host_name,
    is_orrery_variable, retry_on_descriptor_exhaustion,
};
pub use memory::{Content, Invocation, MemoryTarget, Node};
pub use outward::OutwardTarget;
pub use permit::{Moment, Permit};
pub use shell::{LocalShell, ShellTarget};
pub use transport::{ExecLimits, ProcessControl, RemoteProcess, Transport};

use std::time::Duration;

use orrery_model::{MACHINE_FACTS_SCRIPT, MachineFacts};

use crate::drift::DriftWatch;
use crate::error::{Cause, TargetError, TargetVerb};
pub use crate::transport_error::{InterruptCause, TransportError, TransportErrorKind};

/// Time limit of the script that collects facts.
const FACTS_TIME: Duration = Duration::from_secs(60);

pub type Result<T> = std::result::Result<T, TargetError>;

/// Kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    /// A device, pipe or socket.
    Other,
}

impl FileKind {
    pub fn as_str(self) -> &'static str {
        match self {
            FileKind::File => "file",
            FileKind::Directory => "directory",
            FileKind::Symlink => "symlink",
            FileKind::Other => "special",
        }
    }
}

/// Attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub kind: FileKind,
    /// Permission bits, with set-id and sticky bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
}

/// Owner, group and mode; `None` leaves a part unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

/// Expected content of a file.
#[derive(Clone, Copy, Debug)]
pub enum ExpectedContent<'a> {
    Bytes(&'a [u8]),
    Digest(&'a ContentDigest),
}

/// A read that a run will start with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAhead<'a> {
    pub path: &'a str,
    /// Digest of the content that will be compared; `None` if only attributes will be read.
    pub content: Option<Algorithm>,
}

/// Result of `Target::compare`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileComparison {
    pub stat: Stat,
    /// True if it is a regular file with the expected content.
    pub same: bool,
}

/// Removal mode of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalMode {
    OnlyIfEmpty,
    WithContent,
}

/// Machine of an agent, for handlers that connect to it themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentMachine<'a> {
    /// The target itself.
    Here,
    /// Another machine, at this address.
    Address(&'a str),
    /// No reachable machine.
    None { reason: &'a str, help: &'a str },
}

/// A machine, as handlers access it.
pub trait Target: Send + Sync {
    /// Returns the machine of the agent.
    fn machine(&self) -> AgentMachine<'_> {
        AgentMachine::Here
    }

    /// Returns the watch of its files, if there is one.
    fn drift_watch(&self) -> Option<&dyn DriftWatch> {
        None
    }

    /// Number of operations that may have changed something; grows with each. Always 0 where no
    /// connection can be lost.
    fn changes_started(&self) -> u64 {
        0
    }

    /// Returns `None` if the path does not exist.
    fn stat(&self, path: &str) -> Result<Option<Stat>>;

    /// Like `stat`, following a symbolic link; `None` for a dangling one, too.
    fn stat_following(&self, path: &str) -> Result<Option<Stat>>;

    /// Reads a regular file; `None` if it does not exist.
    fn read_file(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>>;

    /// Digest of a regular file; `None` if it does not exist.
    fn digest(&self, path: &str, algorithm: Algorithm) -> Result<Option<ContentDigest>>;

    /// Reads the attributes of a file and compares its content, in as few steps as possible: most
    /// runs of most handlers do only this. `None` if it does not exist.
    fn compare(&self, path: &str, expected: ExpectedContent<'_>) -> Result<Option<FileComparison>>;

    /// Number of reads to prefetch before a run that begins by reading `path`; 0 if its state is
    /// known, or reads are cheap.
    fn prefetch_max(&self, _path: &str) -> usize {
        0
    }

    /// Reads the state of many paths at once, for runs that are about to start. A state is used
    /// once, within seconds, and only until something is changed through this target. Does nothing
    /// where reads are cheap.
    fn prefetch(&self, _reads: &[ReadAhead<'_>]) {}

    /// Replaces a file atomically: readers see the old or the new one, with its owner and mode. A
    /// symbolic link at the path is replaced, not followed. A `mode` of `None` means 0600 for a new
    /// file, and otherwise keeps the old mode.
    fn write_file(&self, path: &str, content: &[u8], ownership: Ownership) -> Result<()>;

    /// Sets owner and mode of a file or directory; rejects symbolic links.
    fn set_attributes(&self, path: &str, ownership: Ownership) -> Result<()>;

    /// Creates one directory; its parent must exist.
    fn make_directory(&self, path: &str, ownership: Ownership) -> Result<()>;

    /// Creates a symbolic link, or redirects an existing one atomically; rejects any other file.
    fn make_symlink(&self, path: &str, leads_to: &str) -> Result<()>;

    /// Destination of a symbolic link; `None` if it does not exist.
    fn read_link(&self, path: &str) -> Result<Option<String>>;

    /// Removes a file or symbolic link; returns true if it existed.
    fn remove_file(&self, path: &str) -> Result<bool>;

    /// Removes a directory; returns true if it existed.
    fn remove_directory(&self, path: &str, tree: RemovalMode) -> Result<bool>;

    /// Names in a directory, sorted.
    fn list_directory(&self, path: &str) -> Result<Vec<String>>;

    /// Makes all writes durable against power loss. Called before resources are recorded as
    /// deployed, once per batch.
    fn sync(&self) -> Result<()>;

    /// Runs a command until it ends or `stop` is triggered, which ends its whole process group.
    fn run(&self, command: &CommandLine, stop: &CancelToken) -> Result<Output>;

    /// Collects the facts of the machine. Only reads, by a script that the caller cannot choose.
    fn machine_facts(&self, stop: &CancelToken) -> Result<MachineFacts> {
        let mut script = CommandLine::shell(MACHINE_FACTS_SCRIPT).plain();
        script.timeout = Some(FACTS_TIME);
        let output = self.run(&script, stop)?;
        Ok(MachineFacts::parse(&output.stdout_text()))
    }

    /// Sends an HTTP request from the target.
    fn request(&self, request: &Request, stop: &CancelToken) -> Result<Response>;

    fn user(&self, name: AccountName<'_>) -> Result<Option<User>>;

    fn group(&self, name: AccountName<'_>) -> Result<Option<Group>>;

    /// Search path for commands without a slash.
    fn search_path(&self) -> String;

    /// Returns the full path of an installed command, from `search_path` or the target's default.
    fn which(&self, command: &str, search_path: Option<&str>) -> Result<Option<String>> {
        let executable = |path: &str| -> Result<bool> {
            let stat = self.stat_following(path)?;
            Ok(stat.is_some_and(|stat| stat.kind == FileKind::File && stat.mode & 0o111 != 0))
        };
        if command.contains('/') {
            return Ok(executable(command)?.then(|| command.to_owned()));
        }
        let default;
        let directories = match search_path {
            Some(directories) => directories,
            None => {
                default = self.search_path();
                &default
            }
        };
        for directory in directories.split(':').filter(|directory| !directory.is_empty()) {
            let path = format!("{}/{command}", directory.trim_end_matches('/'));
            match executable(&path) {
                Ok(true) => return Ok(Some(path)),
                Ok(false) => {}
                // Skip relative and inaccessible directories, like shells.
                Err(TargetError {
                    cause:
                        Cause::PermissionDenied
                        | Cause::InvalidPath
                        | Cause::NotADirectory
                        | Cause::TooManyLinks,
                    ..
                }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// Validates a path and removes trailing slashes, which would follow a link. Rejects relative and
/// non-normal paths.
pub fn check_path(operation: TargetVerb, path: &str) -> Result<&str> {
    let trimmed = path.trim_end_matches('/');
    let normal = trimmed.starts_with('/')
        && !trimmed.contains('\0')
        && trimmed.split('/').all(|part| part != "." && part != "..");
    if normal { Ok(trimmed) } else { Err(TargetError::new(operation, path, Cause::InvalidPath)) }
}

/// Splits a path into directory and name. The path has passed `check_path`.
pub(crate) fn split_path(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((directory, name)) => (directory, name),
        None => ("/", path),
    }
}
