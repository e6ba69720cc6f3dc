//! This machine as a target: system calls, child processes, the account database.

mod files;
mod process;
mod replace;
#[cfg(test)]
mod tests;
mod variables;
mod walk;
mod web;
mod written;

use std::io;
use std::time::{Duration, Instant};

use nix::unistd;

pub use variables::{Variables, is_own};

use super::{
    AccountName, Algorithm, CommandLine, Compared, ContentDigest, Expected, Group, Output,
    Ownership, Request, Response, Result, Stat, Stop, Target, Tree, User, check_path,
};
use crate::error::{Cause, Operation, TargetError};

/// When written data reaches the disk. Whoever looks always sees whole files; this is about the loss
/// of power.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// With every file.
    Each,
    /// When `Target::sync` is called: a few files one by one, many with all of their file system. What was
    /// written before that is whole or missing afterwards, and not recorded as deployed.
    #[default]
    Batched,
    /// When the kernel likes.
    None,
}

/// This machine.
#[derive(Debug, Default)]
pub struct LocalTarget {
    durability: Durability,
    variables: Variables,
    written: written::Written,
    web: web::Client,
    #[cfg(test)]
    faults: tests::Faults,
}

/// The name of this machine, as its system has it.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

impl LocalTarget {
    pub fn new(durability: Durability) -> Self {
        LocalTarget { durability, ..LocalTarget::default() }
    }

    /// The same machine, whose commands get these variables of this process.
    #[must_use]
    pub fn with_variables(self, variables: Variables) -> Self {
        LocalTarget { variables, ..self }
    }

    /// A place between two system calls, where tests let things go wrong.
    #[inline]
    fn step(&self) -> io::Result<()> {
        #[cfg(test)]
        self.faults.step()?;
        Ok(())
    }

    /// Whether a test pretends that the process was killed, so that nobody tidies up.
    #[inline]
    fn is_dead(&self) -> bool {
        #[cfg(test)]
        return self.faults.is_dead();
        #[cfg(not(test))]
        false
    }
}

/// How long an operation waits for file descriptors, all tries together.
const DESCRIPTORS_WITHIN: Duration = Duration::from_secs(20);

/// Tries an operation again while there are no file descriptors for it: others give theirs back, and nothing was done yet.
///
/// # Errors
/// Those of the operation; that there are no descriptors, after a while.
pub fn patiently<T>(stop: Option<&Stop>, mut operation: impl FnMut() -> Result<T>) -> Result<T> {
    let began = Instant::now();
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

/// A path whose directories cannot be walked.
fn astray(operation: Operation, subject: &str, found: walk::Astray) -> TargetError {
    match found {
        walk::Astray::Link { link, uid } => {
            TargetError::new(operation, subject, Cause::ForeignLink { link, uid })
        }
        walk::Astray::Io(error) => failed(operation, subject, error),
    }
}

fn failed(operation: Operation, subject: &str, error: impl Into<io::Error>) -> TargetError {
    TargetError::new(operation, subject, Cause::of(error.into()))
}

impl Target for LocalTarget {
    fn stat(&self, path: &str) -> Result<Option<Stat>> {
        let path = check_path(Operation::Stat, path)?;
        patiently(None, || files::stat(path))
    }

    fn stat_following(&self, path: &str) -> Result<Option<Stat>> {
        let path = check_path(Operation::Stat, path)?;
        patiently(None, || files::stat_following(path))
    }

    fn read_file(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        let path = check_path(Operation::Read, path)?;
        patiently(None, || files::read(path, limit))
    }

    fn digest(&self, path: &str, algorithm: Algorithm) -> Result<Option<ContentDigest>> {
        let path = check_path(Operation::Read, path)?;
        patiently(None, || files::digest(path, algorithm))
    }

    fn compare(&self, path: &str, expected: Expected<'_>) -> Result<Option<Compared>> {
        let path = check_path(Operation::Read, path)?;
        patiently(None, || files::compare(path, expected))
    }

    fn write_file(&self, path: &str, content: &[u8], ownership: Ownership) -> Result<()> {
        let path = check_path(Operation::Write, path)?;
        patiently(None, || replace::write(self, path, content, ownership))
    }

    fn set_attributes(&self, path: &str, ownership: Ownership) -> Result<()> {
        let path = check_path(Operation::SetAttributes, path)?;
        patiently(None, || files::set_attributes(self, path, ownership))
    }

    fn make_directory(&self, path: &str, ownership: Ownership) -> Result<()> {
        let path = check_path(Operation::MakeDirectory, path)?;
        patiently(None, || files::make_directory(self, path, ownership))
    }

    fn make_symlink(&self, path: &str, leads_to: &str) -> Result<()> {
        let path = check_path(Operation::MakeSymlink, path)?;
        patiently(None, || replace::symlink(self, path, leads_to))
    }

    fn read_link(&self, path: &str) -> Result<Option<String>> {
        let path = check_path(Operation::ReadLink, path)?;
        patiently(None, || files::read_link(path))
    }

    fn remove_file(&self, path: &str) -> Result<bool> {
        let path = check_path(Operation::Remove, path)?;
        patiently(None, || files::remove_file(self, path))
    }

    fn remove_directory(&self, path: &str, tree: Tree) -> Result<bool> {
        let path = check_path(Operation::Remove, path)?;
        patiently(None, || files::remove_directory(self, path, tree))
    }

    fn list_directory(&self, path: &str) -> Result<Vec<String>> {
        let path = check_path(Operation::List, path)?;
        patiently(None, || files::list(path))
    }

    fn sync(&self) -> Result<()> {
        let duties = self.written.take();
        let synced = duties.iter().try_for_each(written::Duty::carry_out);
        synced.map_err(|error| failed(Operation::Sync, "the file system", error))
    }

    fn run(&self, command: &CommandLine, stop: &Stop) -> Result<Output> {
        let done = patiently(Some(stop), || process::run(self, command, stop));
        self.written.note_command();
        done
    }

    fn request(&self, request: &Request, stop: &Stop) -> Result<Response> {
        patiently(Some(stop), || self.web.send(request, stop))
    }

    fn user(&self, name: AccountName<'_>) -> Result<Option<User>> {
        let look_up = || match name {
            AccountName::Name(name) => unistd::User::from_name(name),
            AccountName::Id(uid) => unistd::User::from_uid(uid.into()),
        };
        let found =
            patiently(None, || look_up().map_err(|error| look_up_failed("user", name, error)))?;
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
        let found =
            patiently(None, || look_up().map_err(|error| look_up_failed("group", name, error)))?;
        Ok(found.map(|group| Group {
            name: group.name,
            gid: group.gid.as_raw(),
            members: group.mem,
        }))
    }

    /// Where this process looks, and where tools for administrators are: an ordinary user does not look
    /// there.
    fn search_path(&self) -> String {
        const USUAL: [&str; 6] =
            ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
        let mut path = std::env::var("PATH").unwrap_or_default();
        for directory in USUAL {
            if !path.split(':').any(|other| other == directory) {
                if !path.is_empty() {
                    path.push(':');
                }
                path.push_str(directory);
            }
        }
        path
    }
}

fn look_up_failed(what: &str, name: AccountName<'_>, error: nix::Error) -> TargetError {
    let subject = match name {
        AccountName::Name(name) => format!("{what} {name}"),
        AccountName::Id(id) => format!("{what} {id}"),
    };
    failed(Operation::LookUp, &subject, error)
}
