//! The server's side of a target host: a target like any other.

use std::io;
use std::sync::Arc;

use orrery_handlers::target::{
    AccountName, Algorithm, CommandLine, Compared, ContentDigest, Expected, Group, Output,
    Ownership, Request, Response, Result, Stat, Tree, User, patiently,
};
use orrery_handlers::{Cause, Operation, Permit, Stop, StopReason, Target, TargetError};
use rustix::io::Errno;

use super::host::{Question, TargetHost, Trouble, Unsynced};
use super::message::{ComparedOf, GroupOf, Reply, StatOf, UserOf, What};

/// Names of one directory, together.
const NAMES_MAX: u64 = 256 << 20;
/// No file, output or response is larger.
const ANSWER_MAX: u64 = 4 << 30;
/// Where commands are looked for while the host cannot be asked.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// This machine, through a process with other rights than this one.
#[derive(Debug)]
pub struct SandboxedTarget {
    host: Arc<TargetHost>,
    /// What is done through this target is done under it.
    permit: Option<Permit>,
}

/// What is asked about, for errors.
#[derive(Clone, Copy)]
struct About<'a> {
    operation: Operation,
    subject: &'a str,
}

impl About<'_> {
    fn error(self, cause: Cause) -> TargetError {
        TargetError::new(self.operation, self.subject, cause)
    }

    /// The host answered something that does not answer this.
    fn unfitting<T>(self) -> Result<T> {
        let what = "its target host gave an answer that does not fit".to_owned();
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

    fn ask(&self, about: About<'_>, what: What) -> Result<(Reply, Vec<u8>)> {
        self.ask_with(about, what, &[], 0, None)
    }

    fn ask_with(
        &self,
        about: About<'_>,
        what: What,
        bytes: &[u8],
        answer_max: u64,
        stop: Option<&Stop>,
    ) -> Result<(Reply, Vec<u8>)> {
        if !what.only_looks() {
            self.host.note_change();
        }
        let permit = self.permit.as_ref();
        let question = Question { what, bytes, permit, stop, answer_max };
        let done = patiently(stop, || {
            self.host.ask(&question).map_err(|trouble| about.error(cause(trouble)))
        });
        match done? {
            (Reply::Failed(failure), _) => Err(failure.into()),
            (Reply::Unauthorized, _) => Err(about.error(Cause::Cancelled)),
            answer => Ok(answer),
        }
    }

    fn done(&self, about: About<'_>, what: What, bytes: &[u8]) -> Result<()> {
        match self.ask_with(about, what, bytes, 0, None)? {
            (Reply::Done, _) => Ok(()),
            _ => about.unfitting(),
        }
    }

    fn flag(&self, about: About<'_>, what: What) -> Result<bool> {
        match self.ask(about, what)? {
            (Reply::Flag(flag), _) => Ok(flag),
            _ => about.unfitting(),
        }
    }

    fn text(&self, about: About<'_>, what: What) -> Result<Option<String>> {
        match self.ask(about, what)? {
            (Reply::Text(text), _) => Ok(text),
            _ => about.unfitting(),
        }
    }

    fn stat_with(&self, path: &str, what: What) -> Result<Option<Stat>> {
        let about = About { operation: Operation::Stat, subject: path };
        match self.ask(about, what)? {
            (Reply::Stat(stat), _) => Ok(stat.map(|StatOf(stat)| stat)),
            _ => about.unfitting(),
        }
    }
}

fn cause(trouble: Trouble) -> Cause {
    match trouble {
        Trouble::Unavailable(reason) => Cause::NoMachine(format!(
            "the sandbox in which this environment acts on the server's own machine is not there: {reason}"
        )),
        Trouble::Exhausted => Cause::Io(io::Error::from_raw_os_error(Errno::MFILE.raw_os_error())),
        Trouble::Lost(how) => Cause::Unexpected(format!(
            "the sandbox in which this environment acts on the server's own machine was lost meanwhile, and it may have been done nevertheless: {how}"
        )),
        Trouble::Stopped(StopReason::Cancelled) | Trouble::Unauthorized => Cause::Cancelled,
        Trouble::Stopped(StopReason::DeadlinePassed) => Cause::TimedOut,
    }
}

impl Target for SandboxedTarget {
    fn stat(&self, path: &str) -> Result<Option<Stat>> {
        self.stat_with(path, What::Stat { path: path.to_owned() })
    }

    fn stat_following(&self, path: &str) -> Result<Option<Stat>> {
        self.stat_with(path, What::StatFollowing { path: path.to_owned() })
    }

    fn read_file(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        let about = About { operation: Operation::Read, subject: path };
        let what = What::ReadFile { path: path.to_owned(), limit };
        match self.ask_with(about, what, &[], limit.min(ANSWER_MAX), None)? {
            (Reply::Content(exists), bytes) => Ok(exists.then_some(bytes)),
            _ => about.unfitting(),
        }
    }

    fn digest(&self, path: &str, algorithm: Algorithm) -> Result<Option<ContentDigest>> {
        let about = About { operation: Operation::Read, subject: path };
        let text = self.text(about, What::Digest { path: path.to_owned(), algorithm })?;
        let digest = text.map(|text| text.parse::<ContentDigest>()).transpose();
        match digest {
            Ok(digest) if digest.is_none_or(|digest| digest.algorithm == algorithm) => Ok(digest),
            _ => about.unfitting(),
        }
    }

    fn compare(&self, path: &str, expected: Expected<'_>) -> Result<Option<Compared>> {
        let about = About { operation: Operation::Read, subject: path };
        let (digest, bytes) = match expected {
            Expected::Bytes(bytes) => (None, bytes),
            Expected::Digest(digest) => (Some(digest.to_string()), &[][..]),
        };
        let what = What::Compare { path: path.to_owned(), digest };
        match self.ask_with(about, what, bytes, 0, None)? {
            (Reply::Compared(found), _) => Ok(found.map(|ComparedOf(compared)| compared)),
            _ => about.unfitting(),
        }
    }

    fn write_file(&self, path: &str, content: &[u8], ownership: Ownership) -> Result<()> {
        let about = About { operation: Operation::Write, subject: path };
        self.done(about, What::WriteFile { path: path.to_owned(), ownership }, content)
    }

    fn set_attributes(&self, path: &str, ownership: Ownership) -> Result<()> {
        let about = About { operation: Operation::SetAttributes, subject: path };
        self.done(about, What::SetAttributes { path: path.to_owned(), ownership }, &[])
    }

    fn make_directory(&self, path: &str, ownership: Ownership) -> Result<()> {
        let about = About { operation: Operation::MakeDirectory, subject: path };
        self.done(about, What::MakeDirectory { path: path.to_owned(), ownership }, &[])
    }

    fn make_symlink(&self, path: &str, leads_to: &str) -> Result<()> {
        let about = About { operation: Operation::MakeSymlink, subject: path };
        let (path, leads_to) = (path.to_owned(), leads_to.to_owned());
        self.done(about, What::MakeSymlink { path, leads_to }, &[])
    }

    fn read_link(&self, path: &str) -> Result<Option<String>> {
        let about = About { operation: Operation::ReadLink, subject: path };
        self.text(about, What::ReadLink { path: path.to_owned() })
    }

    fn remove_file(&self, path: &str) -> Result<bool> {
        let about = About { operation: Operation::Remove, subject: path };
        self.flag(about, What::RemoveFile { path: path.to_owned() })
    }

    fn remove_directory(&self, path: &str, tree: Tree) -> Result<bool> {
        let about = About { operation: Operation::Remove, subject: path };
        let with_content = tree == Tree::WithContent;
        self.flag(about, What::RemoveDirectory { path: path.to_owned(), with_content })
    }

    fn list_directory(&self, path: &str) -> Result<Vec<String>> {
        let about = About { operation: Operation::List, subject: path };
        let what = What::ListDirectory { path: path.to_owned() };
        let (Reply::Names, bytes) = self.ask_with(about, what, &[], NAMES_MAX, None)? else {
            return about.unfitting();
        };
        let names = bytes.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        let names: std::result::Result<Vec<String>, _> =
            names.map(|name| std::str::from_utf8(name).map(str::to_owned)).collect();
        names.or_else(|_| about.unfitting())
    }

    /// What a host that was lost had written is somewhere on this machine: all of it is synced then.
    fn sync(&self) -> Result<()> {
        let about = About { operation: Operation::Sync, subject: "the file system" };
        match self.host.take_unsynced() {
            Unsynced::Nothing => return Ok(()),
            Unsynced::Lost => {
                rustix::fs::sync();
                return Ok(());
            }
            Unsynced::Changed => {}
        }
        // Not under a permit: it changes nothing that anybody could see.
        let (what, stop) = (What::Sync, None);
        let question = Question { what, bytes: &[], permit: None, stop, answer_max: 0 };
        match self.host.ask(&question) {
            Ok((Reply::Done, _)) => Ok(()),
            Ok((Reply::Failed(failure), _)) => Err(failure.into()),
            Ok(_) => about.unfitting(),
            Err(_) => {
                rustix::fs::sync();
                Ok(())
            }
        }
    }

    fn run(&self, command: &CommandLine, stop: &Stop) -> Result<Output> {
        let display = command.display();
        let about = About { operation: Operation::Run, subject: &display };
        let time_left = stop.remaining();
        let sent = CommandLine { input: Vec::new(), ..command.clone() };
        let what = What::Run { command: sent, time_left };
        let answer_max = 2 * command.output_limit as u64;
        let answer = self.ask_with(about, what, &command.input, answer_max, Some(stop))?;
        let (Reply::Output { code, stdout, truncated }, mut stdout_bytes) = answer else {
            return about.unfitting();
        };
        let Some(length) = usize::try_from(stdout).ok().filter(|at| *at <= stdout_bytes.len())
        else {
            return about.unfitting();
        };
        let stderr = stdout_bytes.split_off(length);
        Ok(Output { code, stdout: stdout_bytes, stderr, truncated })
    }

    fn request(&self, request: &Request, stop: &Stop) -> Result<Response> {
        let about = About { operation: Operation::Request, subject: &request.url };
        let body = request.body.as_deref();
        let sent = Request { body: None, ..request.clone() };
        let what =
            What::Request { request: sent, has_body: body.is_some(), time_left: stop.remaining() };
        let answer_max = request.body_limit as u64;
        let bytes = body.unwrap_or_default();
        match self.ask_with(about, what, bytes, answer_max, Some(stop))? {
            (Reply::Response { status }, body) => Ok(Response { status, body }),
            _ => about.unfitting(),
        }
    }

    fn user(&self, name: AccountName<'_>) -> Result<Option<User>> {
        let about = About { operation: Operation::LookUp, subject: "a user" };
        match self.ask(about, What::User(name.into()))? {
            (Reply::User(user), _) => Ok(user.map(|UserOf(user)| user)),
            _ => about.unfitting(),
        }
    }

    fn group(&self, name: AccountName<'_>) -> Result<Option<Group>> {
        let about = About { operation: Operation::LookUp, subject: "a group" };
        match self.ask(about, What::Group(name.into()))? {
            (Reply::Group(group), _) => Ok(group.map(|GroupOf(group)| group)),
            _ => about.unfitting(),
        }
    }

    fn search_path(&self) -> String {
        let about = About { operation: Operation::LookUp, subject: "the search path" };
        let found = self.text(about, What::SearchPath).ok().flatten();
        found.unwrap_or_else(|| SEARCH_PATH.to_owned())
    }

    fn which(&self, command: &str, search_path: Option<&str>) -> Result<Option<String>> {
        let about = About { operation: Operation::Stat, subject: command };
        let search_path = search_path.map(str::to_owned);
        self.text(about, What::Which { command: command.to_owned(), search_path })
    }
}
