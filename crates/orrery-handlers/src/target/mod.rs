//! The one way to the outside: everything that a handler reads or changes goes through a `Target`, so
//! that the same handlers run on this machine, over a connection, or in memory.
//!
//! Paths are absolute and UTF-8. No operation follows a symbolic link in the last part of a path
//! unless its name says so. Links in the directories before it are followed if root or the user of
//! this process controls them, or if the user who does also owns the directory that they lead to.

mod account;
mod command;
mod digest;
mod faulty;
mod http;
mod local;
mod memory;
mod outward;
mod permit;
mod stop;

pub use account::{AccountName, Group, User};
pub use command::{CommandLine, Output};
pub use digest::{Algorithm, ContentDigest};
pub use faulty::{Fault, FaultyTarget};
pub use http::{Request, Response};
pub use local::{Durability, LocalTarget, Variables, host_name, is_own, patiently};
pub use memory::{Content, Invocation, MemoryTarget, Node};
pub use outward::OutwardTarget;
pub use permit::{Moment, Permit};
pub use stop::{Stop, StopReason};

use crate::error::{Cause, Operation, TargetError};

pub type Result<T> = std::result::Result<T, TargetError>;

/// What a path leads to.
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

/// What is known of a path without reading its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub kind: FileKind,
    /// Permission bits, with those for set-id and sticky.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
}

/// Who owns something and who may do what with it; `None` leaves a part as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

/// What a file should hold.
#[derive(Clone, Copy, Debug)]
pub enum Expected<'a> {
    Bytes(&'a [u8]),
    Digest(&'a ContentDigest),
}

/// What `Target::compare` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compared {
    pub stat: Stat,
    /// Whether it is a regular file that holds what was expected.
    pub same: bool,
}

/// Whether a directory may be removed with what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tree {
    OnlyIfEmpty,
    WithContent,
}

/// Machine of an agent, for handlers whose code makes its own way there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine<'a> {
    /// The one that the target is.
    Here,
    /// Another one, at this address.
    Address(&'a str),
    /// None that can be reached.
    None { reason: &'a str, help: &'a str },
}

/// Something that can be managed: a machine, as handlers see it.
pub trait Target: Send + Sync {
    /// The machine of the agent that this target stands for.
    fn machine(&self) -> Machine<'_> {
        Machine::Here
    }

    /// `None` if there is nothing.
    fn stat(&self, path: &str) -> Result<Option<Stat>>;

    /// As `stat`, for what a symbolic link leads to; `None` too if it leads nowhere.
    fn stat_following(&self, path: &str) -> Result<Option<Stat>>;

    /// The whole content of a regular file; `None` if there is nothing.
    fn read_file(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>>;

    /// The digest of a regular file's content; `None` if there is nothing.
    fn digest(&self, path: &str, algorithm: Algorithm) -> Result<Option<ContentDigest>>;

    /// Looks at a file and at whether it holds what is expected, in as few steps as possible: this is
    /// what most runs of most handlers come to. `None` if there is nothing.
    fn compare(&self, path: &str, expected: Expected<'_>) -> Result<Option<Compared>>;

    /// Puts a whole file in place, at once: whoever looks sees the old one or the new one, with its
    /// owner and permissions. A symbolic link in its place is replaced, not followed. A `mode` of
    /// `None` means 0600 for a new file, and what the old one had otherwise.
    fn write_file(&self, path: &str, content: &[u8], ownership: Ownership) -> Result<()>;

    /// Changes owner and permissions of a file or directory; refuses symbolic links.
    fn set_attributes(&self, path: &str, ownership: Ownership) -> Result<()>;

    /// Makes one directory; its parent must exist.
    fn make_directory(&self, path: &str, ownership: Ownership) -> Result<()>;

    /// Makes a symbolic link, or turns an existing one at once; refuses to replace anything else.
    fn make_symlink(&self, path: &str, leads_to: &str) -> Result<()>;

    /// Where a symbolic link leads; `None` if there is nothing.
    fn read_link(&self, path: &str) -> Result<Option<String>>;

    /// Removes a file or symbolic link; whether there was one.
    fn remove_file(&self, path: &str) -> Result<bool>;

    /// Removes a directory; whether there was one.
    fn remove_directory(&self, path: &str, tree: Tree) -> Result<bool>;

    /// Names in a directory, sorted.
    fn list_directory(&self, path: &str) -> Result<Vec<String>>;

    /// Makes all that was written so far survive a loss of power. Whoever records that resources are
    /// deployed calls this first, once for many of them.
    fn sync(&self) -> Result<()>;

    /// Runs a command until it ends or `stop` says so; then its whole process group is ended.
    fn run(&self, command: &CommandLine, stop: &Stop) -> Result<Output>;

    /// Sends an HTTP request from where the target is.
    fn request(&self, request: &Request, stop: &Stop) -> Result<Response>;

    fn user(&self, name: AccountName<'_>) -> Result<Option<User>>;

    fn group(&self, name: AccountName<'_>) -> Result<Option<Group>>;

    /// Directories in which commands without a slash are looked for.
    fn search_path(&self) -> String;

    /// The full path of a command, if it is installed; looked for in `search_path`, or where the target
    /// usually looks.
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
                // Search paths name many a place that is relative, or not for this user; shells pass by, too.
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

/// A path as it is used: without slashes at its end, which would have the system follow a link. Refuses
/// paths whose meaning depends on something else than the path.
pub fn check_path(operation: Operation, path: &str) -> Result<&str> {
    let trimmed = path.trim_end_matches('/');
    let normal = trimmed.starts_with('/')
        && !trimmed.contains('\0')
        && trimmed.split('/').all(|part| part != "." && part != "..");
    if normal { Ok(trimmed) } else { Err(TargetError::new(operation, path, Cause::InvalidPath)) }
}

/// The directory that holds a path, and its name there. The path has passed `check_path`.
pub(crate) fn split_path(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((directory, name)) => (directory, name),
        None => ("/", path),
    }
}
