//! What can go wrong: an operation on a target (`TargetError`), and a run of a handler (`HandlerError`).

use std::borrow::Cow;
use std::fmt;
use std::io;

/// What was being done to a target when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
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

impl Operation {
    /// The verb, as messages use it.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Stat => "look at",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::SetAttributes => "set the attributes of",
            Operation::MakeDirectory => "make the directory",
            Operation::MakeSymlink => "make the symbolic link",
            Operation::ReadLink => "read the symbolic link",
            Operation::Remove => "remove",
            Operation::List => "list",
            Operation::Sync => "flush to disk",
            Operation::Run => "run",
            Operation::Request => "ask",
            Operation::LookUp => "look up",
        }
    }
}

/// Why an operation failed, as far as a handler or a person would act differently on it.
#[derive(Debug)]
pub enum Cause {
    NotFound,
    /// The directory that should hold it is missing.
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
    /// A link on the way that another user controls leads to what that user does not own.
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
    /// There is no machine that the operation may be done on.
    NoMachine(String),
    /// The sandbox of an environment keeps it from being done; the text says how.
    Confined(String),
    /// A tool or peer answered something that is not understood.
    Unexpected(String),
    Io(io::Error),
}

impl Cause {
    /// Whether what was asked for may have been done nevertheless.
    pub fn is_unclear(&self) -> bool {
        match self {
            Cause::TimedOut | Cause::Cancelled | Cause::Unexpected(_) => true,
            Cause::Io(error) => error.kind() != io::ErrorKind::ConnectionRefused,
            _ => false,
        }
    }

    /// The error of a system call, for a path whose parent may be what is missing.
    pub fn of(error: io::Error) -> Self {
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

    /// Whether this process, or the machine, has no more file descriptors: that says nothing about what the operation was to do.
    pub fn is_descriptors_exhausted(&self) -> bool {
        let exhausted = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
        let code = match self {
            Cause::Io(error) => error.raw_os_error(),
            _ => None,
        };
        exhausted.iter().any(|errno| code == Some(errno.raw_os_error()))
    }

    /// What a person could do about it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Cause::ParentMissing => "declare a std::Directory for it and require it",
            Cause::PermissionDenied => {
                "run as a user who may do this, or choose a place that this user owns"
            }
            Cause::ReadOnly => {
                "the file system is mounted read-only: remount it, or choose another place"
            }
            Cause::NoSpace => "the disk or the quota is full",
            Cause::IsADirectory => {
                "there is a directory in its place: purge it first, or choose another path"
            }
            Cause::NotADirectory => {
                "a part of the path is no directory: purge what is in its place, or choose another path"
            }
            Cause::NotARegularFile => {
                "only regular files and symbolic links are replaced: remove by hand what is in its place"
            }
            Cause::NotASymlink => {
                "only symbolic links are replaced: purge what is in its place first"
            }
            Cause::NotEmpty => {
                "move or remove what is in it; `purge_content` of a directory in the model removes all of it"
            }
            Cause::TooManyLinks => "the symbolic links on the way lead in a circle, or too far",
            Cause::ForeignLink { .. } => {
                "a user could choose in this way what is read, written or removed: name the directory that the link leads to, or let root own the link"
            }
            Cause::InvalidPath => "a path begins with `/`, has no `..` and no zero byte",
            Cause::UnknownUser => "declare a user::User for it and require it, or use a numeric id",
            Cause::UnknownGroup => {
                "declare a user::Group for it and require it, or use a numeric id"
            }
            Cause::CommandNotFound => {
                "install the package that has it and require it, or give its full path"
            }
            Cause::Confined(_) => {
                "the environment acts on the server's own machine without the server's rights: invite the machine as a remote agent (`orrery agent invite`), give the place to that user, or see --sandbox-writable and --own-machine of `orrery server`"
            }
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
                return write!(f, "the symbolic link {link} on the way is controlled by the user with the id {uid}");
            }
            Cause::InvalidPath => "it is not an absolute, normal path",
            Cause::UnknownUser => "there is no such user",
            Cause::UnknownGroup => "there is no such group",
            Cause::CommandNotFound => "command not found",
            Cause::TimedOut => "it took too long",
            Cause::Cancelled => "cancelled",
            Cause::NoMachine(what) | Cause::Confined(what) | Cause::Unexpected(what) => what,
            Cause::Io(error) => return fmt::Display::fmt(error, f),
        })
    }
}

/// A failed operation: what was done, to what, and why it failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {} {subject}: {cause}", operation.as_str())]
pub struct TargetError {
    pub operation: Operation,
    /// The path, command, account or address.
    pub subject: Box<str>,
    pub cause: Cause,
}

impl TargetError {
    pub fn new(operation: Operation, subject: impl Into<Box<str>>, cause: Cause) -> Self {
        TargetError { operation, subject: subject.into(), cause }
    }

    pub fn hint(&self) -> Option<&'static str> {
        self.cause.hint()
    }
}

/// Why a run of a handler did not end well.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    #[error(transparent)]
    Target(TargetError),
    /// It cannot be done, for a reason that another try does not cure by itself.
    #[error("{message}")]
    Failed { message: String, hint: Option<Cow<'static, str>> },
    /// It is not ready yet: to be tried again later.
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
            let what = "the process that deploys has no file descriptors left";
            return HandlerError::Skipped(format!("{error}: {what}; it is tried again"));
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
