//! Messages between a server and a target host: one line each, followed by the announced number of
//! raw bytes.
//!
//! Types of targets are declared a second time for serialization (`serde(remote)`): a changed type
//! does not compile until its declaration follows.

use std::io;
use std::time::Duration;

use orrery_handlers::target::{
    AccountName, Algorithm, CommandLine, FileComparison, FileKind, Group, Ownership, Request, Stat,
    TransportError, User,
};
use orrery_handlers::{Cause, TargetError, TargetVerb};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Message of the server: an operation, a cancellation or an extension.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Call {
    /// Sequence number, repeated in the answer.
    pub(super) seq: u64,
    /// End of the permit, as [`Moment::to_nanoseconds`](orrery_handlers::Moment::to_nanoseconds);
    /// `None`: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<u64>,
    /// Number of raw bytes that follow.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) bytes: u64,
    pub(super) what: TargetOperation,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Operations of `Target`. Data that is neither a path nor short is in the bytes that follow.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TargetOperation {
    Stat {
        path: String,
    },
    StatFollowing {
        path: String,
    },
    ReadFile {
        path: String,
        limit: u64,
    },
    Digest {
        path: String,
        #[serde(with = "WireAlgorithm")]
        algorithm: Algorithm,
    },
    Compare {
        path: String,
        /// Without it, the bytes are the expected content.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<String>,
    },
    WriteFile {
        path: String,
        #[serde(with = "WireOwnership")]
        ownership: Ownership,
    },
    SetAttributes {
        path: String,
        #[serde(with = "WireOwnership")]
        ownership: Ownership,
    },
    MakeDirectory {
        path: String,
        #[serde(with = "WireOwnership")]
        ownership: Ownership,
    },
    MakeSymlink {
        path: String,
        leads_to: String,
    },
    ReadLink {
        path: String,
    },
    RemoveFile {
        path: String,
    },
    RemoveDirectory {
        path: String,
        with_content: bool,
    },
    ListDirectory {
        path: String,
    },
    Sync,
    /// The bytes are the input.
    Run {
        #[serde(with = "WireCommand")]
        command: CommandLine,
        time_left: Option<Duration>,
    },
    /// The bytes are the body.
    Request {
        #[serde(with = "WireRequest")]
        request: Request,
        has_body: bool,
        time_left: Option<Duration>,
    },
    User(Account),
    Group(Account),
    SearchPath,
    Which {
        command: String,
        search_path: Option<String>,
    },
    Ping,
    /// Cancels the command or request with this number, which still sends its own answer.
    Cancel,
    /// Extends the permit.
    Extend,
}

impl TargetOperation {
    /// Returns the operation and its path, if it has one.
    pub(super) fn path(&self) -> Option<(TargetVerb, &str)> {
        Some(match self {
            TargetOperation::Stat { path } | TargetOperation::StatFollowing { path } => {
                (TargetVerb::Stat, path)
            }
            TargetOperation::ReadFile { path, .. }
            | TargetOperation::Digest { path, .. }
            | TargetOperation::Compare { path, .. } => (TargetVerb::Read, path),
            TargetOperation::WriteFile { path, .. } => (TargetVerb::Write, path),
            TargetOperation::SetAttributes { path, .. } => (TargetVerb::SetAttributes, path),
            TargetOperation::MakeDirectory { path, .. } => (TargetVerb::MakeDirectory, path),
            TargetOperation::MakeSymlink { path, .. } => (TargetVerb::MakeSymlink, path),
            TargetOperation::ReadLink { path } => (TargetVerb::ReadLink, path),
            TargetOperation::RemoveFile { path }
            | TargetOperation::RemoveDirectory { path, .. } => (TargetVerb::Remove, path),
            TargetOperation::ListDirectory { path } => (TargetVerb::List, path),
            TargetOperation::Sync
            | TargetOperation::Run { .. }
            | TargetOperation::Request { .. }
            | TargetOperation::User(_)
            | TargetOperation::Group(_)
            | TargetOperation::SearchPath
            | TargetOperation::Which { .. }
            | TargetOperation::Ping
            | TargetOperation::Cancel
            | TargetOperation::Extend => return None,
        })
    }

    /// Returns true if the operation is safe to repeat.
    pub(super) fn only_reads(&self) -> bool {
        match self {
            TargetOperation::Stat { .. }
            | TargetOperation::StatFollowing { .. }
            | TargetOperation::ReadFile { .. }
            | TargetOperation::Digest { .. }
            | TargetOperation::Compare { .. }
            | TargetOperation::ReadLink { .. }
            | TargetOperation::ListDirectory { .. }
            | TargetOperation::User(_)
            | TargetOperation::Group(_)
            | TargetOperation::SearchPath
            | TargetOperation::Which { .. }
            | TargetOperation::Ping => true,
            TargetOperation::WriteFile { .. }
            | TargetOperation::SetAttributes { .. }
            | TargetOperation::MakeDirectory { .. }
            | TargetOperation::MakeSymlink { .. }
            | TargetOperation::RemoveFile { .. }
            | TargetOperation::RemoveDirectory { .. }
            | TargetOperation::Sync
            | TargetOperation::Run { .. }
            | TargetOperation::Request { .. }
            | TargetOperation::Cancel
            | TargetOperation::Extend => false,
        }
    }
}

/// Identifier of an account.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Account {
    Name(String),
    Id(u32),
}

impl From<AccountName<'_>> for Account {
    fn from(name: AccountName<'_>) -> Self {
        match name {
            AccountName::Name(name) => Account::Name(name.to_owned()),
            AccountName::Id(id) => Account::Id(id),
        }
    }
}

impl Account {
    pub(super) fn name(&self) -> AccountName<'_> {
        match self {
            Account::Name(name) => AccountName::Name(name),
            Account::Id(id) => AccountName::Id(*id),
        }
    }
}

/// Answer of the host, untrusted.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    /// Number of the call; 0 if the host could not read it.
    pub(super) seq: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) bytes: u64,
    pub(super) reply: Reply,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reply {
    Done,
    Stat(Option<StatOf>),
    /// True if the file exists; its content follows.
    Content(bool),
    Text(Option<String>),
    Compared(Option<ComparedOf>),
    Flag(bool),
    /// The names follow, each terminated by a zero byte.
    Names,
    /// `stdout` bytes of standard output follow, and then standard error.
    Output {
        code: i32,
        stdout: u64,
        truncated: bool,
    },
    Response {
        status: u16,
    },
    User(Option<UserOf>),
    Group(Option<GroupOf>),
    Failed(Failure),
    /// The permit had ended: nothing was done.
    Unauthorized,
}

/// A failed operation.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Failure {
    #[serde(with = "WireOperation")]
    operation: TargetVerb,
    subject: Box<str>,
    #[serde(with = "WireCause")]
    cause: Cause,
}

impl From<TargetError> for Failure {
    fn from(error: TargetError) -> Self {
        let TargetError { operation, subject, cause } = error;
        Failure { operation, subject, cause }
    }
}

impl From<Failure> for TargetError {
    fn from(failure: Failure) -> Self {
        let Failure { operation, subject, cause } = failure;
        TargetError { operation, subject, cause }
    }
}

/// Newtypes for values with a remote declaration, where an attribute cannot name it.
macro_rules! described {
    ($name:ident, $inner:ty, $description:literal) => {
        #[derive(Debug, Serialize, Deserialize)]
        #[serde(transparent)]
        pub(super) struct $name(#[serde(with = $description)] pub(super) $inner);
    };
}

described!(StatOf, Stat, "WireStat");
described!(ComparedOf, FileComparison, "WireCompared");
described!(UserOf, User, "WireUser");
described!(GroupOf, Group, "WireGroup");

#[derive(Serialize, Deserialize)]
#[serde(remote = "Algorithm", rename_all = "snake_case")]
enum WireAlgorithm {
    Md5,
    Sha1,
    Sha256,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "FileKind", rename_all = "snake_case")]
enum WireFileKind {
    File,
    Directory,
    Symlink,
    Other,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Stat")]
struct WireStat {
    #[serde(with = "WireFileKind")]
    kind: FileKind,
    mode: u32,
    uid: u32,
    gid: u32,
    size: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "FileComparison")]
struct WireCompared {
    #[serde(with = "WireStat")]
    stat: Stat,
    same: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Ownership")]
struct WireOwnership {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "User")]
struct WireUser {
    name: String,
    uid: u32,
    gid: u32,
    home: String,
    shell: String,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Group")]
struct WireGroup {
    name: String,
    gid: u32,
    members: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "CommandLine")]
struct WireCommand {
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    directory: Option<String>,
    #[serde(skip)]
    input: Vec<u8>,
    search_path: Option<String>,
    timeout: Option<Duration>,
    output_limit: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Request")]
struct WireRequest {
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    #[serde(skip)]
    body: Option<Vec<u8>>,
    timeout: Duration,
    body_limit: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "TargetVerb", rename_all = "snake_case")]
enum WireOperation {
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

#[derive(Serialize, Deserialize)]
#[serde(remote = "Cause", rename_all = "snake_case")]
enum WireCause {
    NotFound,
    ParentMissing,
    PermissionDenied,
    ReadOnly,
    NoSpace,
    IsADirectory,
    NotADirectory,
    NotARegularFile,
    NotASymlink,
    NotEmpty,
    TooLarge { limit: u64 },
    TooManyLinks,
    ForeignLink { link: String, uid: u32 },
    InvalidPath,
    UnknownUser,
    UnknownGroup,
    CommandNotFound,
    TimedOut,
    Cancelled,
    NoMachine(String),
    Confined(String),
    Policy(String),
    Transport(TransportError),
    Unexpected(String),
    Io(#[serde(serialize_with = "write_io", deserialize_with = "read_io")] io::Error),
}

/// A system error: its number, or its text.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireIo {
    Number(i32),
    Refused(String),
    Other(String),
}

fn write_io<S: Serializer>(error: &io::Error, serializer: S) -> Result<S::Ok, S::Error> {
    let wire = match error.raw_os_error() {
        Some(number) => WireIo::Number(number),
        None if error.kind() == io::ErrorKind::ConnectionRefused => {
            WireIo::Refused(error.to_string())
        }
        None => WireIo::Other(error.to_string()),
    };
    wire.serialize(serializer)
}

fn read_io<'de, D: Deserializer<'de>>(deserializer: D) -> Result<io::Error, D::Error> {
    Ok(match WireIo::deserialize(deserializer)? {
        WireIo::Number(number) => io::Error::from_raw_os_error(number),
        WireIo::Refused(text) => io::Error::new(io::ErrorKind::ConnectionRefused, text),
        WireIo::Other(text) => io::Error::other(text),
    })
}

#[cfg(test)]
mod tests {
    use orrery_handlers::target::TransportErrorKind;

    use super::*;

    fn there(cause: Cause) -> Cause {
        let failure = Failure::from(TargetError::new(TargetVerb::Remove, "/a", cause));
        let text = serde_json::to_string(&failure).unwrap();
        let error = TargetError::from(serde_json::from_str::<Failure>(&text).unwrap());
        assert_eq!((error.operation, &*error.subject), (TargetVerb::Remove, "/a"));
        error.cause
    }

    /// Causes and texts of errors survive the round trip.
    #[test]
    fn errors_survive_the_round_trip() {
        let numbers = [1, 2, 5, 13, 23, 24, 28, 39, 110, 111];
        let system = |number| Cause::Io(io::Error::from_raw_os_error(number));
        let mut causes: Vec<(Cause, Cause)> =
            numbers.into_iter().map(|number| (system(number), there(system(number)))).collect();
        let refused = || Cause::Io(io::Error::new(io::ErrorKind::ConnectionRefused, "no"));
        let other = || Cause::Io(io::Error::other("tls: odd"));
        let link = || Cause::ForeignLink { link: "/l".to_owned(), uid: 7 };
        let simple: [fn() -> Cause; 24] = [
            || Cause::NotFound,
            || Cause::ParentMissing,
            || Cause::PermissionDenied,
            || Cause::ReadOnly,
            || Cause::NoSpace,
            || Cause::IsADirectory,
            || Cause::NotADirectory,
            || Cause::NotARegularFile,
            || Cause::NotASymlink,
            || Cause::NotEmpty,
            || Cause::TooLarge { limit: 9 },
            || Cause::TooManyLinks,
            || Cause::InvalidPath,
            || Cause::UnknownUser,
            || Cause::UnknownGroup,
            || Cause::CommandNotFound,
            || Cause::TimedOut,
            || Cause::Cancelled,
            || Cause::NoMachine("none".to_owned()),
            || Cause::Confined("sandbox".to_owned()),
            || Cause::Policy("policy".to_owned()),
            || {
                let kind = TransportErrorKind::Lost;
                Cause::Transport(TransportError::new(kind, "web1", "cut").with_help("mend it"))
            },
            || Cause::Unexpected("what".to_owned()),
            || Cause::Io(io::Error::from_raw_os_error(24)),
        ];
        causes.extend(simple.iter().map(|cause| (cause(), there(cause()))));
        causes.extend([
            (refused(), there(refused())),
            (other(), there(other())),
            (link(), there(link())),
        ]);
        for (here, there) in causes {
            assert_eq!(here.to_string(), there.to_string());
            assert_eq!(here.hint(), there.hint(), "{here}");
            assert_eq!(here.is_unclear(), there.is_unclear(), "{here}");
            assert_eq!(here.is_descriptors_exhausted(), there.is_descriptors_exhausted(), "{here}");
            assert_eq!(std::mem::discriminant(&here), std::mem::discriminant(&there), "{here}");
        }
    }

    #[test]
    fn a_command_survives_the_round_trip_without_its_input() {
        let mut command = CommandLine::new(["sh", "-c", "a\nb"]).env("A", "ü\0");
        command.directory = Some("/tmp".to_owned());
        command.timeout = Some(Duration::from_millis(1_500));
        command.input = vec![1, 2];
        let what = TargetOperation::Run {
            command: command.clone(),
            time_left: Some(Duration::from_nanos(7)),
        };
        let text = serde_json::to_string(&what).unwrap();
        let TargetOperation::Run { command: mut read, time_left } =
            serde_json::from_str(&text).unwrap()
        else {
            panic!("{text}")
        };
        assert_eq!((read.input.len(), time_left), (0, Some(Duration::from_nanos(7))));
        read.input = vec![1, 2];
        assert_eq!(read, command);
    }
}
