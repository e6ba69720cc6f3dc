//! Target of an agent without a local machine: sends requests, and rejects access to this machine.

use super::{
    AccountName, AgentMachine, Algorithm, CancelToken, CommandLine, ContentDigest, ExpectedContent,
    FileComparison, Group, LocalTarget, Output, Ownership, RemovalMode, Request, Response, Result,
    Stat, Target, User,
};
use crate::error::{Cause, Operation, TargetError};

/// Sends requests from this machine, and rejects everything that would act on it.
#[derive(Debug)]
pub struct OutwardTarget {
    local: LocalTarget,
    address: Option<String>,
    reason: String,
    help: String,
}

impl OutwardTarget {
    /// `address` is that of the agent's machine, if it has one.
    pub fn new(address: Option<String>, reason: String, help: String) -> Self {
        OutwardTarget { local: LocalTarget::default(), address, reason, help }
    }

    pub fn reason(&self) -> &str {
        &self.reason
    }

    pub fn help(&self) -> &str {
        &self.help
    }

    fn refuse<T>(&self, operation: Operation, subject: &str) -> Result<T> {
        Err(TargetError::new(operation, subject, Cause::NoMachine(self.reason.clone())))
    }
}

impl Target for OutwardTarget {
    fn machine(&self) -> AgentMachine<'_> {
        match &self.address {
            Some(address) => AgentMachine::Address(address),
            None => AgentMachine::None { reason: &self.reason, help: &self.help },
        }
    }

    fn stat(&self, path: &str) -> Result<Option<Stat>> {
        self.refuse(Operation::Stat, path)
    }

    fn stat_following(&self, path: &str) -> Result<Option<Stat>> {
        self.refuse(Operation::Stat, path)
    }

    fn read_file(&self, path: &str, _: u64) -> Result<Option<Vec<u8>>> {
        self.refuse(Operation::Read, path)
    }

    fn digest(&self, path: &str, _: Algorithm) -> Result<Option<ContentDigest>> {
        self.refuse(Operation::Read, path)
    }

    fn compare(&self, path: &str, _: ExpectedContent<'_>) -> Result<Option<FileComparison>> {
        self.refuse(Operation::Read, path)
    }

    fn write_file(&self, path: &str, _: &[u8], _: Ownership) -> Result<()> {
        self.refuse(Operation::Write, path)
    }

    fn set_attributes(&self, path: &str, _: Ownership) -> Result<()> {
        self.refuse(Operation::SetAttributes, path)
    }

    fn make_directory(&self, path: &str, _: Ownership) -> Result<()> {
        self.refuse(Operation::MakeDirectory, path)
    }

    fn make_symlink(&self, path: &str, _: &str) -> Result<()> {
        self.refuse(Operation::MakeSymlink, path)
    }

    fn read_link(&self, path: &str) -> Result<Option<String>> {
        self.refuse(Operation::ReadLink, path)
    }

    fn remove_file(&self, path: &str) -> Result<bool> {
        self.refuse(Operation::Remove, path)
    }

    fn remove_directory(&self, path: &str, _: RemovalMode) -> Result<bool> {
        self.refuse(Operation::Remove, path)
    }

    fn list_directory(&self, path: &str) -> Result<Vec<String>> {
        self.refuse(Operation::List, path)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn run(&self, command: &CommandLine, _: &CancelToken) -> Result<Output> {
        self.refuse(Operation::Run, command.program())
    }

    fn request(&self, request: &Request, stop: &CancelToken) -> Result<Response> {
        self.local.request(request, stop)
    }

    fn user(&self, _: AccountName<'_>) -> Result<Option<User>> {
        self.refuse(Operation::LookUp, "user")
    }

    fn group(&self, _: AccountName<'_>) -> Result<Option<Group>> {
        self.refuse(Operation::LookUp, "group")
    }

    fn search_path(&self) -> String {
        String::new()
    }

    fn which(&self, command: &str, _: Option<&str>) -> Result<Option<String>> {
        self.refuse(Operation::Stat, command)
    }
}
