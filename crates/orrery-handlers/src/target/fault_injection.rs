//! A target with an injected fault: tests that handlers leave nothing half-done.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{
    AccountName, AgentMachine, Algorithm, CancelToken, CommandLine, ContentDigest, ExpectedContent,
    FileComparison, Group, Output, Ownership, RemovalMode, Request, Response, Result, Stat, Target,
    User,
};
use crate::error::{Cause, TargetError, TargetVerb};

/// Position of the fault in the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing happens.
    Before,
    /// The operation happens, but its result is lost.
    After,
}

/// Forwards all operations but one.
#[derive(Debug)]
pub struct FaultyTarget<'t, T> {
    target: &'t T,
    fault: Fault,
    /// Index of the failing operation.
    fails_at: usize,
    count: AtomicUsize,
}

impl<'t, T: Target> FaultyTarget<'t, T> {
    pub fn new(target: &'t T, fails_at: usize, fault: Fault) -> Self {
        FaultyTarget { target, fault, fails_at, count: AtomicUsize::new(0) }
    }

    /// Returns true after the fault.
    pub fn failed(&self) -> bool {
        self.count.load(Ordering::Relaxed) > self.fails_at
    }

    fn inject<R>(
        &self,
        operation: TargetVerb,
        subject: &str,
        run: impl FnOnce(&T) -> Result<R>,
    ) -> Result<R> {
        if self.count.fetch_add(1, Ordering::Relaxed) != self.fails_at {
            return run(self.target);
        }
        if self.fault == Fault::After {
            // The result is what gets lost.
            let _ = run(self.target);
        }
        let cause = Cause::Unexpected("the connection was lost".to_owned());
        Err(TargetError::new(operation, subject, cause))
    }
}

impl<T: Target> Target for FaultyTarget<'_, T> {
    fn machine(&self) -> AgentMachine<'_> {
        self.target.machine()
    }

    fn stat(&self, path: &str) -> Result<Option<Stat>> {
        self.inject(TargetVerb::Stat, path, |target| target.stat(path))
    }

    fn stat_following(&self, path: &str) -> Result<Option<Stat>> {
        self.inject(TargetVerb::Stat, path, |target| target.stat_following(path))
    }

    fn read_file(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        self.inject(TargetVerb::Read, path, |target| target.read_file(path, limit))
    }

    fn digest(&self, path: &str, algorithm: Algorithm) -> Result<Option<ContentDigest>> {
        self.inject(TargetVerb::Read, path, |target| target.digest(path, algorithm))
    }

    fn compare(&self, path: &str, expected: ExpectedContent<'_>) -> Result<Option<FileComparison>> {
        self.inject(TargetVerb::Read, path, |target| target.compare(path, expected))
    }

    fn write_file(&self, path: &str, content: &[u8], ownership: Ownership) -> Result<()> {
        self.inject(TargetVerb::Write, path, |target| target.write_file(path, content, ownership))
    }

    fn set_attributes(&self, path: &str, ownership: Ownership) -> Result<()> {
        self.inject(TargetVerb::SetAttributes, path, |target| {
            target.set_attributes(path, ownership)
        })
    }

    fn make_directory(&self, path: &str, ownership: Ownership) -> Result<()> {
        self.inject(TargetVerb::MakeDirectory, path, |target| {
            target.make_directory(path, ownership)
        })
    }

    fn make_symlink(&self, path: &str, leads_to: &str) -> Result<()> {
        self.inject(TargetVerb::MakeSymlink, path, |target| target.make_symlink(path, leads_to))
    }

    fn read_link(&self, path: &str) -> Result<Option<String>> {
        self.inject(TargetVerb::ReadLink, path, |target| target.read_link(path))
    }

    fn remove_file(&self, path: &str) -> Result<bool> {
        self.inject(TargetVerb::Remove, path, |target| target.remove_file(path))
    }

    fn remove_directory(&self, path: &str, tree: RemovalMode) -> Result<bool> {
        self.inject(TargetVerb::Remove, path, |target| target.remove_directory(path, tree))
    }

    fn list_directory(&self, path: &str) -> Result<Vec<String>> {
        self.inject(TargetVerb::List, path, |target| target.list_directory(path))
    }

    fn sync(&self) -> Result<()> {
        self.inject(TargetVerb::Sync, "the file system", T::sync)
    }

    fn run(&self, command: &CommandLine, stop: &CancelToken) -> Result<Output> {
        self.inject(TargetVerb::Run, command.program(), |target| target.run(command, stop))
    }

    fn request(&self, request: &Request, stop: &CancelToken) -> Result<Response> {
        self.inject(TargetVerb::Request, &request.url, |target| target.request(request, stop))
    }

    fn user(&self, name: AccountName<'_>) -> Result<Option<User>> {
        self.inject(TargetVerb::LookUp, "user", |target| target.user(name))
    }

    fn group(&self, name: AccountName<'_>) -> Result<Option<Group>> {
        self.inject(TargetVerb::LookUp, "group", |target| target.group(name))
    }

    fn search_path(&self) -> String {
        self.target.search_path()
    }

    fn which(&self, command: &str, search_path: Option<&str>) -> Result<Option<String>> {
        self.inject(TargetVerb::Stat, command, |target| target.which(command, search_path))
    }
}
