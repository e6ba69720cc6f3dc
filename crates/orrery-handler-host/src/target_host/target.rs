//! The server's side of a target host, as a `Target`.

use std::io;
use std::sync::Arc;

use orrery_handlers::target::{
    AccountName, Algorithm, CommandLine, ContentDigest, ExpectedContent, FileComparison, Group,
    Output, Ownership, RemovalMode, Request, Response, Result, Stat, User,
    retry_on_descriptor_exhaustion,
};
use orrery_handlers::{CancelCause, CancelToken, Cause, Permit, Target, TargetError, TargetVerb};
use rustix::io::Errno;

use super::host::{CallError, HostRequest, TargetHost, Unsynced};
use super::message::{ComparedOf, GroupOf, Reply, StatOf, TargetOperation, UserOf};

/// Maximum bytes of the names of one directory.
const NAMES_MAX: u64 = 256 << 20;
/// Maximum bytes of a file, output or response.
const ANSWER_MAX: u64 = 4 << 30;
/// Search path for commands while the host is unavailable.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// This machine, through a process with other privileges.
#[derive(Debug)]
pub struct SandboxedTarget {
    host: Arc<TargetHost>,
    /// Permit for all operations of this target.
    permit: Option<Permit>,
}

/// Operation and subject of a call, for errors.
#[derive(Clone, Copy)]
struct CallSubject<'a> {
    operation: TargetVerb,
    subject: &'a str,
}

impl CallSubject<'_> {
    fn error(self, cause: Cause) -> TargetError {
        TargetError::new(self.operation, self.subject, cause)
    }

    /// Error of an answer of the wrong type.
    fn unexpected_reply<T>(self) -> Result<T> {
        let what = "its target host sent an answer of the wrong type".to_owned();
        Err(self.error(Cause::Unexpected(what)))
    }
}

impl SandboxedTarget {
    pub fn new(host: Arc<TargetHost>, permit: Option<Permit>) -> Self {
        SandboxedTarget { host, permit }
    }

    pub fn host(&self) -> &Arc<TargetHost> {
        &self.host
    }

    fn ask(&self, about: CallSubject<'_>, what: TargetOperation) -> Result<(Reply, Vec<u8>)> {
        self.ask_with(about, what, &[], 0, None)
    }

    fn ask_with(
        &self,
        about: CallSubject<'_>,
        what: TargetOperation,
        bytes: &[u8],
        answer_max: u64,
        stop: Option<&CancelToken>,
    ) -> Result<(Reply, Vec<u8>)> {
        if !what.only_reads() {
            self.host.note_change();
        }
        let permit = self.permit.as_ref();
        let question = HostRequest { what, bytes, permit, stop, answer_max };
        let done = retry_on_descriptor_exhaustion(stop, || {
            self.host.ask(&question).map_err(|error| about.error(cause(error)))
        });
        match done? {
            (Reply::Failed(failure), _) => Err(failure.into()),
            (Reply::Unauthorized, _) => Err(about.error(Cause::Cancelled)),
            answer => Ok(answer),
        }
    }

    fn done(&self, about: CallSubject<'_>, what: TargetOperation, bytes: &[u8]) -> Result<()> {
        match self.ask_with(about, what, bytes, 0, None)? {
            (Reply::Done, _) => Ok(()),
            _ => about.unexpected_reply(),
        }
    }

    fn flag(&self, about: CallSubject<'_>, what: TargetOperation) -> Result<bool> {
        match self.ask(about, what)? {
            (Reply::Flag(flag), _) => Ok(flag),
            _ => about.unexpected_reply(),
        }
    }

    fn text(&self, about: CallSubject<'_>, what: TargetOperation) -> Result<Option<String>> {
        match self.ask(about, what)? {
            (Reply::Text(text), _) => Ok(text),
            _ => about.unexpected_reply(),
        }
    }

    fn stat_with(&self, path: &str, what: TargetOperation) -> Result<Option<Stat>> {
        let about = CallSubject { operation: TargetVerb::Stat, subject: path };
        match self.ask(about, what)? {
            (Reply::Stat(stat), _) => Ok(stat.map(|StatOf(stat)| stat)),
            _ => about.unexpected_reply(),
        }
    }
}

fn cause(error: CallError) -> Cause {
    match error {
        CallError::Unavailable(reason) => Cause::NoMachine(format!(
            "this environment's sandbox on the server's own machine is not available: {reason}"
        )),
        CallError::Exhausted => {
            Cause::Io(io::Error::from_raw_os_error(Errno::MFILE.raw_os_error()))
        }
        CallError::Lost(how) => Cause::Unexpected(format!(
            "this environment's sandbox on the server's own machine was lost, and the operation may have taken effect: {how}"
        )),
        CallError::Stopped(CancelCause::Cancelled) | CallError::Unauthorized => Cause::Cancelled,
        CallError::Stopped(CancelCause::DeadlinePassed) => Cause::TimedOut,
    }
}

impl Target for SandboxedTarget {
    fn stat(&self, path: &str) -> Result<Option<Stat>> {
        self.stat_with(path, TargetOperation::Stat { path: path.to_owned() })
    }

    fn stat_following(&self, path: &str) -> Result<Option<Stat>> {
        self.stat_with(path, TargetOperation::StatFollowing { path: path.to_owned() })
    }

    fn read_file(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        let about = CallSubject { operation: TargetVerb::Read, subject: path };
        let what = TargetOperation::ReadFile { path: path.to_owned(), limit };
        match self.ask_with(about, what, &[], limit.min(ANSWER_MAX), None)? {
            (Reply::Content(exists), bytes) => Ok(exists.then_some(bytes)),
            _ => about.unexpected_reply(),
        }
    }

    fn digest(&self, path: &str, algorithm: Algorithm) -> Result<Option<ContentDigest>> {
        let about = CallSubject { operation: TargetVerb::Read, subject: path };
        let text =
            self.text(about, TargetOperation::Digest { path: path.to_owned(), algorithm })?;
        let digest = text.map(|text| text.parse::<ContentDigest>()).transpose();
        match digest {
            Ok(digest) if digest.is_none_or(|digest| digest.algorithm == algorithm) => Ok(digest),
            _ => about.unexpected_reply(),
        }
    }

    fn compare(&self, path: &str, expected: ExpectedContent<'_>) -> Result<Option<FileComparison>> {
        let about = CallSubject { operation: TargetVerb::Read, subject: path };
        let (digest, bytes) = match expected {
            ExpectedContent::Bytes(bytes) => (None, bytes),
            ExpectedContent::Digest(digest) => (Some(digest.to_string()), &[][..]),
        };
        let what = TargetOperation::Compare { path: path.to_owned(), digest };
        match self.ask_with(about, what, bytes, 0, None)? {
            (Reply::Compared(found), _) => Ok(found.map(|ComparedOf(compared)| compared)),
            _ => about.unexpected_reply(),
        }
    }

    fn write_file(&self, path: &str, content: &[u8], ownership: Ownership) -> Result<()> {
        let about = CallSubject { operation: TargetVerb::Write, subject: path };
        self.done(about, TargetOperation::WriteFile { path: path.to_owned(), ownership }, content)
    }

    fn set_attributes(&self, path: &str, ownership: Ownership) -> Result<()> {
        let about = CallSubject { operation: TargetVerb::SetAttributes, subject: path };
        self.done(about, TargetOperation::SetAttributes { path: path.to_owned(), ownership }, &[])
    }

    fn make_directory(&self, path: &str, ownership: Ownership) -> Result<()> {
        let about = CallSubject { operation: TargetVerb::MakeDirectory, subject: path };
        self.done(about, TargetOperation::MakeDirectory { path: path.to_owned(), ownership }, &[])
    }

    fn make_symlink(&self, path: &str, leads_to: &str) -> Result<()> {
        let about = CallSubject { operation: TargetVerb::MakeSymlink, subject: path };
        let (path, leads_to) = (path.to_owned(), leads_to.to_owned());
        self.done(about, TargetOperation::MakeSymlink { path, leads_to }, &[])
    }

    fn read_link(&self, path: &str) -> Result<Option<String>> {
        let about = CallSubject { operation: TargetVerb::ReadLink, subject: path };
        self.text(about, TargetOperation::ReadLink { path: path.to_owned() })
    }

    fn remove_file(&self, path: &str) -> Result<bool> {
        let about = CallSubject { operation: TargetVerb::Remove, subject: path };
        self.flag(about, TargetOperation::RemoveFile { path: path.to_owned() })
    }

    fn remove_directory(&self, path: &str, tree: RemovalMode) -> Result<bool> {
        let about = CallSubject { operation: TargetVerb::Remove, subject: path };
        let with_content = tree == RemovalMode::WithContent;
        self.flag(about, TargetOperation::RemoveDirectory { path: path.to_owned(), with_content })
    }

    fn list_directory(&self, path: &str) -> Result<Vec<String>> {
        let about = CallSubject { operation: TargetVerb::List, subject: path };
        let what = TargetOperation::ListDirectory { path: path.to_owned() };
        let (Reply::Names, bytes) = self.ask_with(about, what, &[], NAMES_MAX, None)? else {
            return about.unexpected_reply();
        };
        let names = bytes.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        let names: std::result::Result<Vec<String>, _> =
            names.map(|name| std::str::from_utf8(name).map(str::to_owned)).collect();
        names.or_else(|_| about.unexpected_reply())
    }

    /// Syncs all file systems if a lost host had unsynced writes.
    fn sync(&self) -> Result<()> {
        let about = CallSubject { operation: TargetVerb::Sync, subject: "the file system" };
        match self.host.take_unsynced() {
            Unsynced::Nothing => return Ok(()),
            Unsynced::Lost => {
                rustix::fs::sync();
                return Ok(());
            }
            Unsynced::Changed => {}
        }
        // No permit needed: a sync has no visible effect.
        let (what, stop) = (TargetOperation::Sync, None);
        let question = HostRequest { what, bytes: &[], permit: None, stop, answer_max: 0 };
        match self.host.ask(&question) {
            Ok((Reply::Done, _)) => Ok(()),
            Ok((Reply::Failed(failure), _)) => Err(failure.into()),
            Ok(_) => about.unexpected_reply(),
            Err(_) => {
                rustix::fs::sync();
                Ok(())
            }
        }
    }

    fn run(&self, command: &CommandLine, stop: &CancelToken) -> Result<Output> {
        let display = command.display();
        let about = CallSubject { operation: TargetVerb::Run, subject: &display };
        let time_left = stop.remaining();
        let sent = CommandLine { input: Vec::new(), ..command.clone() };
        let what = TargetOperation::Run { command: sent, time_left };
        let answer_max = 2 * command.output_limit as u64;
        let answer = self.ask_with(about, what, &command.input, answer_max, Some(stop))?;
        let (Reply::Output { code, stdout, truncated }, mut stdout_bytes) = answer else {
            return about.unexpected_reply();
        };
        let Some(length) = usize::try_from(stdout).ok().filter(|at| *at <= stdout_bytes.len())
        else {
            return about.unexpected_reply();
        };
        let stderr = stdout_bytes.split_off(length);
        Ok(Output { code, stdout: stdout_bytes, stderr, truncated })
    }

    fn request(&self, request: &Request, stop: &CancelToken) -> Result<Response> {
        let about = CallSubject { operation: TargetVerb::Request, subject: &request.url };
        let body = request.body.as_deref();
        let sent = Request { body: None, ..request.clone() };
        let what = TargetOperation::Request {
            request: sent,
            has_body: body.is_some(),
            time_left: stop.remaining(),
        };
        let answer_max = request.body_limit as u64;
        let bytes = body.unwrap_or_default();
        match self.ask_with(about, what, bytes, answer_max, Some(stop))? {
            (Reply::Response { status }, body) => Ok(Response { status, body }),
            _ => about.unexpected_reply(),
        }
    }

    fn user(&self, name: AccountName<'_>) -> Result<Option<User>> {
        let about = CallSubject { operation: TargetVerb::LookUp, subject: "a user" };
        match self.ask(about, TargetOperation::User(name.into()))? {
            (Reply::User(user), _) => Ok(user.map(|UserOf(user)| user)),
            _ => about.unexpected_reply(),
        }
    }

    fn group(&self, name: AccountName<'_>) -> Result<Option<Group>> {
        let about = CallSubject { operation: TargetVerb::LookUp, subject: "a group" };
        match self.ask(about, TargetOperation::Group(name.into()))? {
            (Reply::Group(group), _) => Ok(group.map(|GroupOf(group)| group)),
            _ => about.unexpected_reply(),
        }
    }

    fn search_path(&self) -> String {
        let about = CallSubject { operation: TargetVerb::LookUp, subject: "the search path" };
        let found = self.text(about, TargetOperation::SearchPath).ok().flatten();
        found.unwrap_or_else(|| SEARCH_PATH.to_owned())
    }

    fn which(&self, command: &str, search_path: Option<&str>) -> Result<Option<String>> {
        let about = CallSubject { operation: TargetVerb::Stat, subject: command };
        let search_path = search_path.map(str::to_owned);
        self.text(about, TargetOperation::Which { command: command.to_owned(), search_path })
    }
}
