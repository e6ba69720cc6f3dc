//! This machine as a target: system calls, child processes, account database.

mod atomic_write;
mod command_records;
mod files;
mod http;
mod pending_sync;
mod process;
#[cfg(test)]
mod tests;
mod variables;
mod walk;

use orrery_base::clock::monotonic;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use nix::unistd;

pub use command_records::{CommandRecords, LeftBehindError};
pub(super) use process::cancel_cause;
pub use variables::{Variables, is_orrery_variable};

use super::command::with_usual_directories;
use super::{
    AccountName, Algorithm, CancelToken, CommandLine, ContentDigest, ExpectedContent,
    FileComparison, Group, Output, Ownership, RemovalMode, Request, Response, Result, Stat, Target,
    User, check_path,
};
use crate::drift::DriftWatch;
use crate::error::{Cause, TargetError, TargetVerb};

/// Durability of writes against power loss. Readers always see whole files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Syncs every file.
    Each,
    /// Syncs on `Target::sync`: a few files one by one, many with their whole file system. A power
    /// loss before that leaves files whole or missing, and not recorded as deployed.
    #[default]
    Batched,
    /// Never syncs.
    None,
}

/// This machine.
#[derive(Debug, Default)]
pub struct LocalTarget {
    durability: Durability,
    variables: Variables,
    pending_sync: pending_sync::PendingSync,
    watch: Option<Arc<dyn DriftWatch>>,
    records: Option<CommandRecords>,
    web: http::Client,
    #[cfg(test)]
    faults: tests::Faults,
}

/// Host name of this machine.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

impl LocalTarget {
    pub fn new(durability: Durability) -> Self {
        LocalTarget { durability, ..LocalTarget::default() }
    }

    /// Sets the environment variables that commands inherit.
    #[must_use]
    pub fn with_variables(self, variables: Variables) -> Self {
        LocalTarget { variables, ..self }
    }

    /// Watches the files of resources after their runs.
    #[must_use]
    pub fn with_watch(self, watch: Arc<dyn DriftWatch>) -> Self {
        LocalTarget { watch: Some(watch), ..self }
    }

    /// Records commands while they run.
    #[must_use]
    pub fn with_records(self, records: CommandRecords) -> Self {
        LocalTarget { records: Some(records), ..self }
    }

    /// Fault injection point between two system calls, for tests.
    #[inline]
    fn step(&self) -> io::Result<()> {
        #[cfg(test)]
        self.faults.step()?;
        Ok(())
    }

    /// Returns true if a test simulates a killed process, which must not clean up.
    #[inline]
    fn is_dead(&self) -> bool {
        #[cfg(test)]
        return self.faults.is_dead();
        #[cfg(not(test))]
        false
    }
}

/// Time limit for waiting for file descriptors, over all attempts.
const DESCRIPTORS_WITHIN: Duration = Duration::from_secs(20);

/// Retries an operation while file descriptors are exhausted: others return theirs, and nothing was
/// done yet.
///
/// # Errors
/// Errors of the operation, or exhausted descriptors after the time limit.
pub fn retry_on_descriptor_exhaustion<T>(
    stop: Option<&CancelToken>,
    mut operation: impl FnMut() -> Result<T>,
) -> Result<T> {
    let began = monotonic();
    let mut pause = Duration::from_millis(20);
    loop {
        match operation() {
            Err(error) if error.cause.is_descriptors_exhausted() => {
                let is_over = stop.is_some_and(|stop| stop.reason().is_some());
                if is_over || began.elapsed() > DESCRIPTORS_WITHIN {
                    return Err(error);
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_secs(1));
            }
            done => return done,
        }
    }
}

/// Maps an error of a path walk.
fn walk_error(operation: TargetVerb, subject: &str, found: walk::WalkError) -> TargetError {
    match found {
        walk::WalkError::Link { link, uid } => {
            TargetError::new(operation, subject, Cause::ForeignLink { link, uid })
        }
        walk::WalkError::Io(error) => failed(operation, subject, error),
    }
}

fn failed(operation: TargetVerb, subject: &str, error: impl Into<io::Error>) -> TargetError {
    TargetError::new(operation, subject, Cause::from_io(error.into()))
}

impl Target for LocalTarget {
    fn drift_watch(&self) -> Option<&dyn DriftWatch> {
        self.watch.as_deref()
    }

    fn stat(&self, path: &str) -> Result<Option<Stat>> {
        let path = check_path(TargetVerb::Stat, path)?;
        retry_on_descriptor_exhaustion(None, || files::stat(path))
    }

    fn stat_following(&self, path: &str) -> Result<Option<Stat>> {
        let path = check_path(TargetVerb::Stat, path)?;
        retry_on_descriptor_exhaustion(None, || files::stat_following(path))
    }

    fn read_file(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        let path = check_path(TargetVerb::Read, path)?;
        retry_on_descriptor_exhaustion(None, || files::read(path, limit))
    }

    fn digest(&self, path: &str, algorithm: Algorithm) -> Result<Option<ContentDigest>> {
        let path = check_path(TargetVerb::Read, path)?;
        retry_on_descriptor_exhaustion(None, || files::digest(path, algorithm))
    }

    fn compare(&self, path: &str, expected: ExpectedContent<'_>) -> Result<Option<FileComparison>> {
        let path = check_path(TargetVerb::Read, path)?;
        retry_on_descriptor_exhaustion(None, || files::compare(path, expected))
    }

    fn write_file(&self, path: &str, content: &[u8], ownership: Ownership) -> Result<()> {
        let path = check_path(TargetVerb::Write, path)?;
        retry_on_descriptor_exhaustion(None, || atomic_write::write(self, path, content, ownership))
    }

    fn set_attributes(&self, path: &str, ownership: Ownership) -> Result<()> {
        let path = check_path(TargetVerb::SetAttributes, path)?;
        retry_on_descriptor_exhaustion(None, || files::set_attributes(self, path, ownership))
    }

    fn make_directory(&self, path: &str, ownership: Ownership) -> Result<()> {
        let path = check_path(TargetVerb::MakeDirectory, path)?;
        retry_on_descriptor_exhaustion(None, || files::make_directory(self, path, ownership))
    }

    fn make_symlink(&self, path: &str, leads_to: &str) -> Result<()> {
        let path = check_path(TargetVerb::MakeSymlink, path)?;
        retry_on_descriptor_exhaustion(None, || atomic_write::symlink(self, path, leads_to))
    }

    fn read_link(&self, path: &str) -> Result<Option<String>> {
        let path = check_path(TargetVerb::ReadLink, path)?;
        retry_on_descriptor_exhaustion(None, || files::read_link(path))
    }

    fn remove_file(&self, path: &str) -> Result<bool> {
        let path = check_path(TargetVerb::Remove, path)?;
        retry_on_descriptor_exhaustion(None, || files::remove_file(self, path))
    }

    fn remove_directory(&self, path: &str, tree: RemovalMode) -> Result<bool> {
        let path = check_path(TargetVerb::Remove, path)?;
        retry_on_descriptor_exhaustion(None, || files::remove_directory(self, path, tree))
    }

    fn list_directory(&self, path: &str) -> Result<Vec<String>> {
        let path = check_path(TargetVerb::List, path)?;
        retry_on_descriptor_exhaustion(None, || files::list(path))
    }

    fn sync(&self) -> Result<()> {
        let actions = self.pending_sync.drain();
        let synced = actions.iter().try_for_each(pending_sync::SyncAction::execute);
        synced.map_err(|error| failed(TargetVerb::Sync, "the file system", error))
    }

    fn run(&self, command: &CommandLine, stop: &CancelToken) -> Result<Output> {
        let done = retry_on_descriptor_exhaustion(Some(stop), || process::run(self, command, stop));
        self.pending_sync.record_command();
        done
    }

    fn request(&self, request: &Request, stop: &CancelToken) -> Result<Response> {
        retry_on_descriptor_exhaustion(Some(stop), || self.web.send(request, stop))
    }

    fn user(&self, name: AccountName<'_>) -> Result<Option<User>> {
        let look_up = || match name {
            AccountName::Name(name) => unistd::User::from_name(name),
            AccountName::Id(uid) => unistd::User::from_uid(uid.into()),
        };
        let found = retry_on_descriptor_exhaustion(None, || {
            look_up().map_err(|error| look_up_failed("user", name, error))
        })?;
        Ok(found.map(|user| User {
            name: user.name,
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            home: user.dir.to_string_lossy().into_owned(),
            shell: user.shell.to_string_lossy().into_owned(),
        }))
    }

    fn group(&self, name: AccountName<'_>) -> Result<Option<Group>> {
        let look_up = || match name {
            AccountName::Name(name) => unistd::Group::from_name(name),
            AccountName::Id(gid) => unistd::Group::from_gid(gid.into()),
        };
        let found = retry_on_descriptor_exhaustion(None, || {
            look_up().map_err(|error| look_up_failed("group", name, error))
        })?;
        Ok(found.map(|group| Group {
            name: group.name,
            gid: group.gid.as_raw(),
            members: group.mem,
        }))
    }

    /// `PATH` of this process plus the system directories, which ordinary users may lack.
    fn search_path(&self) -> String {
        with_usual_directories(std::env::var("PATH").unwrap_or_default())
    }
}

fn look_up_failed(what: &str, name: AccountName<'_>, error: nix::Error) -> TargetError {
    let subject = match name {
        AccountName::Name(name) => format!("{what} {name}"),
        AccountName::Id(id) => format!("{what} {id}"),
    };
    failed(TargetVerb::LookUp, &subject, error)
}
