//! A machine that is reached over a transport and offers nothing but a POSIX shell.
//!
//! Every operation is one script and one round trip. The scripts use what POSIX, GNU and `BusyBox`
//! offer; the rest is probed once per connection. Paths, variables and contents travel on the
//! standard input, never in an argument that other users of the machine could read. A script that
//! arrives incompletely does nothing.

mod accounts;
mod cause;
mod files;
mod listing;
mod local_shell;
mod process;
mod read_ahead;
mod request;
mod script;
mod session;

use std::fmt;
use std::sync::Arc;

use super::transport::Transport;
use super::{
    AccountName, Algorithm, CancelToken, CommandLine, ContentDigest, ExpectedContent,
    FileComparison, Group, Output, Ownership, ReadAhead, RemovalMode, Request, Response, Result,
    Stat, Target, User, check_path,
};
use crate::error::{TargetError, TargetVerb};

pub use local_shell::LocalShell;

use session::Session;

/// A machine as its shell shows it.
pub struct ShellTarget {
    session: Session,
}

impl fmt::Debug for ShellTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShellTarget({})", self.session.transport().destination())
    }
}

impl ShellTarget {
    /// Connects at the first operation.
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        ShellTarget { session: Session::new(transport) }
    }

    /// Ends commands that may still run after a lost connection, before another way to the machine
    /// is used.
    ///
    /// # Errors
    /// If that is not known.
    pub fn end_commands(&self) -> Result<()> {
        let ended = self.session.end_abandoned();
        ended.map_err(|cause| TargetError::new(TargetVerb::Run, "an earlier command", cause))
    }
}

impl Target for ShellTarget {
    fn changes_started(&self) -> u64 {
        self.session.changes_started()
    }

    fn stat(&self, path: &str) -> Result<Option<Stat>> {
        files::stat(&self.session, check_path(TargetVerb::Stat, path)?)
    }

    fn stat_following(&self, path: &str) -> Result<Option<Stat>> {
        files::stat_following(&self.session, check_path(TargetVerb::Stat, path)?)
    }

    fn read_file(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        files::read(&self.session, check_path(TargetVerb::Read, path)?, limit)
    }

    fn digest(&self, path: &str, algorithm: Algorithm) -> Result<Option<ContentDigest>> {
        files::digest(&self.session, check_path(TargetVerb::Read, path)?, algorithm)
    }

    fn compare(&self, path: &str, expected: ExpectedContent<'_>) -> Result<Option<FileComparison>> {
        files::compare(&self.session, check_path(TargetVerb::Read, path)?, expected)
    }

    fn prefetch_max(&self, path: &str) -> usize {
        self.session.read_ahead.prefetch_max(path)
    }

    fn prefetch(&self, reads: &[ReadAhead<'_>]) {
        read_ahead::prefetch(&self.session, reads);
    }

    fn write_file(&self, path: &str, content: &[u8], ownership: Ownership) -> Result<()> {
        let path = check_path(TargetVerb::Write, path)?;
        files::write(&self.session, path, content, ownership)
    }

    fn set_attributes(&self, path: &str, ownership: Ownership) -> Result<()> {
        let path = check_path(TargetVerb::SetAttributes, path)?;
        files::set_attributes(&self.session, path, ownership)
    }

    fn make_directory(&self, path: &str, ownership: Ownership) -> Result<()> {
        let path = check_path(TargetVerb::MakeDirectory, path)?;
        files::make_directory(&self.session, path, ownership)
    }

    fn make_symlink(&self, path: &str, leads_to: &str) -> Result<()> {
        files::make_symlink(&self.session, check_path(TargetVerb::MakeSymlink, path)?, leads_to)
    }

    fn read_link(&self, path: &str) -> Result<Option<String>> {
        files::read_link(&self.session, check_path(TargetVerb::ReadLink, path)?)
    }

    fn remove_file(&self, path: &str) -> Result<bool> {
        files::remove(&self.session, check_path(TargetVerb::Remove, path)?, "file")
    }

    fn remove_directory(&self, path: &str, tree: RemovalMode) -> Result<bool> {
        let what = match tree {
            RemovalMode::OnlyIfEmpty => "empty",
            RemovalMode::WithContent => "tree",
        };
        files::remove(&self.session, check_path(TargetVerb::Remove, path)?, what)
    }

    fn list_directory(&self, path: &str) -> Result<Vec<String>> {
        files::list(&self.session, check_path(TargetVerb::List, path)?)
    }

    fn sync(&self) -> Result<()> {
        files::sync(&self.session)
    }

    fn run(&self, command: &CommandLine, stop: &CancelToken) -> Result<Output> {
        process::run(&self.session, command, stop)
    }

    /// Sends the request with `curl` from the machine.
    fn request(&self, request: &Request, stop: &CancelToken) -> Result<Response> {
        request::send(&self.session, request, stop)
    }

    fn user(&self, name: AccountName<'_>) -> Result<Option<User>> {
        accounts::user(&self.session, name)
    }

    fn group(&self, name: AccountName<'_>) -> Result<Option<Group>> {
        accounts::group(&self.session, name)
    }

    fn search_path(&self) -> String {
        process::search_path(&self.session)
    }

    fn which(&self, command: &str, search_path: Option<&str>) -> Result<Option<String>> {
        process::which(&self.session, command, search_path)
    }
}
