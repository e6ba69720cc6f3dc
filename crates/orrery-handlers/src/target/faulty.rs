//! A target on which one operation fails: shows that handlers leave nothing half-done behind.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{
    AccountName, Algorithm, CommandLine, Compared, ContentDigest, Expected, Group, Machine, Output,
    Ownership, Request, Response, Result, Stat, Stop, Target, Tree, User,
};
use crate::error::{Cause, Operation, TargetError};

/// Where in the failing operation the fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing happens.
    Before,
    /// It happens, but the answer is lost.
    After,
}

/// Passes everything on, but for one operation.
#[derive(Debug)]
pub struct FaultyTarget<'t, T> {
    target: &'t T,
    fault: Fault,
    /// Number of the operation that fails, from 0.
    fails_at: usize,
    count: AtomicUsize,
}

impl<'t, T: Target> FaultyTarget<'t, T> {
    pub fn new(target: &'t T, fails_at: usize, fault: Fault) -> Self {
        FaultyTarget { target, fault, fails_at, count: AtomicUsize::new(0) }
    }

    /// Whether the fault has happened.
    pub fn failed(&self) -> bool {
        self.count.load(Ordering::Relaxed) > self.fails_at
    }

    fn pass<R>(
        &self,
        operation: Operation,
        subject: &str,
        run: impl FnOnce(&T) -> Result<R>,
    ) -> Result<R> {
        if self.count.fetch_add(1, Ordering::Relaxed) != self.fails_at {
            return run(self.target);
        }
        if self.fault == Fault::After {
            // What it answers does not matter: the answer is what gets lost.
            let _ = run(self.target);
        }
        let cause = Cause::Unexpected("the connection was lost".to_owned());
        Err(TargetError::new(operation, subject, cause))
    }
}

impl<T: Target> Target for FaultyTarget<'_, T> {
    fn machine(&self) -> Machine<'_> {
        self.target.machine()
    }

    fn stat(&self, path: &str) -> Result<Option<Stat>> {
        self.pass(Operation::Stat, path, |target| target.stat(path))
    }

    fn stat_following(&self, path: &str) -> Result<Option<Stat>> {
        self.pass(Operation::Stat, path, |target| target.stat_following(path))
    }

    fn read_file(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        self.pass(Operation::Read, path, |target| target.read_file(path, limit))
    }

    fn digest(&self, path: &str, algorithm: Algorithm) -> Result<Option<ContentDigest>> {
        self.pass(Operation::Read, path, |target| target.digest(path, algorithm))
    }

    fn compare(&self, path: &str, expected: Expected<'_>) -> Result<Option<Compared>> {
        self.pass(Operation::Read, path, |target| target.compare(path, expected))
    }

    fn write_file(&self, path: &str, content: &[u8], ownership: Ownership) -> Result<()> {
        self.pass(Operation::Write, path, |target| target.write_file(path, content, ownership))
    }

    fn set_attributes(&self, path: &str, ownership: Ownership) -> Result<()> {
        self.pass(Operation::SetAttributes, path, |target| target.set_attributes(path, ownership))
    }

    fn make_directory(&self, path: &str, ownership: Ownership) -> Result<()> {
        self.pass(Operation::MakeDirectory, path, |target| target.make_directory(path, ownership))
    }

    fn make_symlink(&self, path: &str, leads_to: &str) -> Result<()> {
        self.pass(Operation::MakeSymlink, path, |target| target.make_symlink(path, leads_to))
    }

    fn read_link(&self, path: &str) -> Result<Option<String>> {
        self.pass(Operation::ReadLink, path, |target| target.read_link(path))
    }

    fn remove_file(&self, path: &str) -> Result<bool> {
        self.pass(Operation::Remove, path, |target| target.remove_file(path))
    }

    fn remove_directory(&self, path: &str, tree: Tree) -> Result<bool> {
        self.pass(Operation::Remove, path, |target| target.remove_directory(path, tree))
    }

    fn list_directory(&self, path: &str) -> Result<Vec<String>> {
        self.pass(Operation::List, path, |target| target.list_directory(path))
    }

    fn sync(&self) -> Result<()> {
        self.pass(Operation::Sync, "the file system", T::sync)
    }

    fn run(&self, command: &CommandLine, stop: &Stop) -> Result<Output> {
        self.pass(Operation::Run, command.program(), |target| target.run(command, stop))
    }

    fn request(&self, request: &Request, stop: &Stop) -> Result<Response> {
        self.pass(Operation::Request, &request.url, |target| target.request(request, stop))
    }

    fn user(&self, name: AccountName<'_>) -> Result<Option<User>> {
        self.pass(Operation::LookUp, "user", |target| target.user(name))
    }

    fn group(&self, name: AccountName<'_>) -> Result<Option<Group>> {
        self.pass(Operation::LookUp, "group", |target| target.group(name))
    }

    fn search_path(&self) -> String {
        self.target.search_path()
    }

    fn which(&self, command: &str, search_path: Option<&str>) -> Result<Option<String>> {
        self.pass(Operation::Stat, command, |target| target.which(command, search_path))
    }
}
