//! Errors of target operations (`TargetError`) and of handler runs (`HandlerError`).

use std::borrow::Cow;
use std::fmt;
use std::io;

use crate::transport_error::{InterruptCause, TransportError, TransportErrorKind};

/// Failed operation on a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetVerb {
    Stat,
    Read,
    Write,
    SetAttributes,
    MakeDirectory,
    MakeSymlink,
    ReadLink,
    Remove,
    List,
    Sync,
    Run,
    Request,
    LookUp,
}

impl TargetVerb {
    /// Verb for messages.
    pub fn as_str(self) -> &'static str {
        match self {
            TargetVerb::Stat => "stat",
            TargetVerb::Read => "read",
            TargetVerb::Write => "write",
            TargetVerb::SetAttributes => "set the attributes of",
            TargetVerb::MakeDirectory => "create the directory",
            TargetVerb::MakeSymlink => "create the symbolic link",
            TargetVerb::ReadLink => "read the symbolic link",
            TargetVerb::Remove => "remove",
            TargetVerb::List => "list",
            TargetVerb::Sync => "flush to disk",
            TargetVerb::Run => "run",
            TargetVerb::Request => "request",
            TargetVerb::LookUp => "look up",
        }
    }
}

/// Cause of a failed operation, as far as handlers or people distinguish it.
#[derive(Debug)]
pub enum Cause {
    NotFound,
    /// The parent directory is missing.
    ParentMissing,
    PermissionDenied,
    ReadOnly,
    NoSpace,
    IsADirectory,
    NotADirectory,
    NotARegularFile,
    NotASymlink,
    NotEmpty,
    TooLarge {
        limit: u64,
    },
    TooManyLinks,
    /// A link in the path, controlled by a user that does not own its destination.
    ForeignLink {
        link: String,
        uid: u32,
    },
    InvalidPath,
    UnknownUser,
    UnknownGroup,
    CommandNotFound,
    TimedOut,
    Cancelled,
    /// The agent has no machine.
    NoMachine(String),
    /// Denied by the sandbox of the environment; the text has the details.
    Confined(String),
    /// Forbidden by the policy of the machine; the text has the details.
    Policy(String),
    /// The connection to the machine failed.
    Transport(TransportError),
    /// Unexpected response of a tool or peer.
    Unexpected(String),
    Io(io::Error),
}

impl Cause {
    /// Returns true if the operation may have happened nevertheless.
    pub fn is_unclear(&self) -> bool {
        match self {
            Cause::TimedOut | Cause::Cancelled | Cause::Unexpected(_) => true,
            Cause::Io(error) => error.kind() != io::ErrorKind::ConnectionRefused,
            Cause::Transport(error) => error.may_have_run(),
            _ => false,
        }
    }

    /// Returns true if the connection to the machine failed, rather than the operation.
    pub fn is_transport(&self) -> bool {
        matches!(self, Cause::Transport(_))
    }

    /// Maps the failure of a transport.
    pub fn from_transport(error: TransportError) -> Self {
        match error.kind {
            TransportErrorKind::Interrupted(InterruptCause::TimedOut) => Cause::TimedOut,
            TransportErrorKind::Interrupted(InterruptCause::Cancelled) => Cause::Cancelled,
            _ => Cause::Transport(error),
        }
    }

    /// Maps the error of a system call on a path.
    pub fn from_io(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Cause::NotFound,
            io::ErrorKind::PermissionDenied => Cause::PermissionDenied,
            io::ErrorKind::ReadOnlyFilesystem => Cause::ReadOnly,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Cause::NoSpace,
            io::ErrorKind::IsADirectory => Cause::IsADirectory,
            io::ErrorKind::NotADirectory => Cause::NotADirectory,
            io::ErrorKind::DirectoryNotEmpty => Cause::NotEmpty,
            _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                Cause::TooManyLinks
            }
            _ => Cause::Io(error),
        }
    }

    /// Returns true if the process or machine has no file descriptors left, which says nothing
    /// about the operation.
    pub fn is_descriptors_exhausted(&self) -> bool {
        let exhausted = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
        let code = match self {
            Cause::Io(error) => error.raw_os_error(),
            _ => None,
        };
        exhausted.iter().any(|errno| code == Some(errno.raw_os_error()))
    }

    /// Remedy for people.
    pub fn hint(&self) -> Option<&str> {
        Some(match self {
            Cause::ParentMissing => "declare a std::Directory for it and require it",
            Cause::PermissionDenied => {
                "run as a user with the permission, or choose a path that this user owns"
            }
            Cause::ReadOnly => {
                "the file system is mounted read-only: remount it, or choose another path"
            }
            Cause::NoSpace => "the disk or the quota is full",
            Cause::IsADirectory => {
                "a directory exists at this path: purge it first, or choose another path"
            }
            Cause::NotADirectory => {
                "a part of the path is not a directory: purge it, or choose another path"
            }
            Cause::NotARegularFile => {
                "only regular files and symbolic links are replaced: remove the existing file by hand"
            }
            Cause::NotASymlink => "only symbolic links are replaced: purge the existing file first",
            Cause::NotEmpty => {
                "move or remove its content, or set `purge_content` of the directory in the model"
            }
            Cause::TooManyLinks => {
                "the symbolic links in the path form a loop or a chain that is too long"
            }
            Cause::ForeignLink { .. } => {
                "a user could redirect this operation: use the directory that the link points to, or make root the owner of the link"
            }
            Cause::InvalidPath => "a path begins with `/`, has no `..` and no zero byte",
            Cause::UnknownUser => "declare a user::User for it and require it, or use a numeric id",
            Cause::UnknownGroup => {
                "declare a user::Group for it and require it, or use a numeric id"
            }
            Cause::CommandNotFound => {
                "install the package that provides it and require it, or use its full path"
            }
            Cause::Confined(_) => {
                "the environment runs in a sandbox on the server's machine: invite the machine as a remote agent (`orrery agent invite`), make the sandbox user the owner of the path, or see --sandbox-writable and --own-machine of `orrery server`"
            }
            Cause::Policy(_) => {
                "change the model, or let an administrator of the machine change its policy.toml"
            }
            Cause::Transport(error) => return error.help.as_deref(),
            Cause::NotFound
            | Cause::TooLarge { .. }
            | Cause::TimedOut
            | Cause::Cancelled
            | Cause::NoMachine(_)
            | Cause::Unexpected(_)
            | Cause::Io(_) => return None,
        })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::NotFound => "it does not exist",
            Cause::ParentMissing => "its directory does not exist",
            Cause::PermissionDenied => "permission denied",
            Cause::ReadOnly => "the file system is read-only",
            Cause::NoSpace => "no space left",
            Cause::IsADirectory => "it is a directory",
            Cause::NotADirectory => "a part of the path is not a directory",
            Cause::NotARegularFile => "it is not a regular file",
            Cause::NotASymlink => "it is not a symbolic link",
            Cause::NotEmpty => "the directory is not empty",
            Cause::TooLarge { limit } => {
                return write!(f, "it is larger than {limit} bytes");
            }
            Cause::TooManyLinks => "too many symbolic links",
            Cause::ForeignLink { link, uid } => {
                return write!(
                    f,
                    "the symbolic link {link} in the path is controlled by the user with id {uid}"
                );
            }
            Cause::InvalidPath => "it is not an absolute, normal path",
            Cause::UnknownUser => "there is no such user",
            Cause::UnknownGroup => "there is no such group",
            Cause::CommandNotFound => "command not found",
            Cause::TimedOut => "timed out",
            Cause::Cancelled => "cancelled",
            Cause::NoMachine(what)
            | Cause::Confined(what)
            | Cause::Policy(what)
            | Cause::Unexpected(what) => what,
            Cause::Transport(error) => return fmt::Display::fmt(error, f),
            Cause::Io(error) => return fmt::Display::fmt(error, f),
        })
    }
}

/// A failed operation with its subject and cause.
#[derive(Debug, thiserror::Error)]
#[error("cannot {} {subject}: {cause}", operation.as_str())]
pub struct TargetError {
    pub operation: TargetVerb,
    /// Path, command, account or address.
    pub subject: Box<str>,
    pub cause: Cause,
}

impl TargetError {
    pub fn new(operation: TargetVerb, subject: impl Into<Box<str>>, cause: Cause) -> Self {
        TargetError { operation, subject: subject.into(), cause }
    }

    pub fn hint(&self) -> Option<&str> {
        self.cause.hint()
    }
}

/// Error of a handler run.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    #[error(transparent)]
    Target(TargetError),
    /// Failed for a reason that a retry alone does not fix.
    #[error("{message}")]
    Failed { message: String, hint: Option<Cow<'static, str>> },
    /// Not ready yet: retry later.
    #[error("{0}")]
    Skipped(String),
    #[error("the attributes cannot be read: {0}")]
    Attributes(#[source] serde_json::Error),
    #[error("cancelled")]
    Cancelled,
    #[error("the deadline has passed")]
    DeadlinePassed,
}

impl From<TargetError> for HandlerError {
    fn from(error: TargetError) -> Self {
        if error.cause.is_descriptors_exhausted() {
            let what = "the deploying process has no file descriptors left";
            return HandlerError::Skipped(format!("{error}: {what}; it will be retried"));
        }
        HandlerError::Target(error)
    }
}

impl HandlerError {
    pub fn failed(message: impl Into<String>) -> Self {
        HandlerError::Failed { message: message.into(), hint: None }
    }

    pub fn failed_with_hint(
        message: impl Into<String>,
        hint: impl Into<Cow<'static, str>>,
    ) -> Self {
        HandlerError::Failed { message: message.into(), hint: Some(hint.into()) }
    }

    pub fn hint(&self) -> Option<&str> {
        match self {
            HandlerError::Target(error) => error.hint(),
            HandlerError::Failed { hint, .. } => hint.as_deref(),
            HandlerError::Attributes(_) => {
                Some("the model and the program disagree about this resource type")
            }
            _ => None,
        }
    }
}
