//! Target of an agent without a local machine: sends requests, and rejects access to this machine.

use super::{
    AccountName, AgentMachine, Algorithm, CancelToken, CommandLine, ContentDigest, ExpectedContent,
    FileComparison, Group, LocalTarget, Output, Ownership, RemovalMode, Request, Response, Result,
    Stat, Target, User,
};
use crate::error::{Cause, TargetError, TargetVerb};

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

    /// The same target, with the cause of the reason.
    #[must_use]
    pub fn because(&self, cause: &str) -> Self {
        let reason = format!("{}: {cause}", self.reason);
        OutwardTarget::new(self.address.clone(), reason, self.help.clone())
    }

    pub fn reason(&self) -> &str {
        &self.reason
    }

    pub fn help(&self) -> &str {
        &self.help
    }

    fn refuse<T>(&self, operation: TargetVerb, subject: &str) -> Result<T> {
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
        self.refuse(TargetVerb::Stat, path)
    }

    fn stat_following(&self, path: &str) -> Result<Option<Stat>> {
        self.refuse(TargetVerb::Stat, path)
    }

    fn read_file(&self, path: &str, _: u64) -> Result<Option<Vec<u8>>> {
        self.refuse(TargetVerb::Read, path)
    }

    fn digest(&self, path: &str, _: Algorithm) -> Result<Option<ContentDigest>> {
        self.refuse(TargetVerb::Read, path)
    }

    fn compare(&self, path: &str, _: ExpectedContent<'_>) -> Result<Option<FileComparison>> {
        self.refuse(TargetVerb::Read, path)
    }

    fn write_file(&self, path: &str, _: &[u8], _: Ownership) -> Result<()> {
        self.refuse(TargetVerb::Write, path)
    }

    fn set_attributes(&self, path: &str, _: Ownership) -> Result<()> {
        self.refuse(TargetVerb::SetAttributes, path)
    }

    fn make_directory(&self, path: &str, _: Ownership) -> Result<()> {
        self.refuse(TargetVerb::MakeDirectory, path)
    }

    fn make_symlink(&self, path: &str, _: &str) -> Result<()> {
        self.refuse(TargetVerb::MakeSymlink, path)
    }

    fn read_link(&self, path: &str) -> Result<Option<String>> {
        self.refuse(TargetVerb::ReadLink, path)
    }

    fn remove_file(&self, path: &str) -> Result<bool> {
        self.refuse(TargetVerb::Remove, path)
    }

    fn remove_directory(&self, path: &str, _: RemovalMode) -> Result<bool> {
        self.refuse(TargetVerb::Remove, path)
    }

    fn list_directory(&self, path: &str) -> Result<Vec<String>> {
        self.refuse(TargetVerb::List, path)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn run(&self, command: &CommandLine, _: &CancelToken) -> Result<Output> {
        self.refuse(TargetVerb::Run, command.program())
    }

    fn request(&self, request: &Request, stop: &CancelToken) -> Result<Response> {
        self.local.request(request, stop)
    }

    fn user(&self, _: AccountName<'_>) -> Result<Option<User>> {
        self.refuse(TargetVerb::LookUp, "user")
    }

    fn group(&self, _: AccountName<'_>) -> Result<Option<Group>> {
        self.refuse(TargetVerb::LookUp, "group")
    }

    fn search_path(&self) -> String {
        String::new()
    }

    fn which(&self, command: &str, _: Option<&str>) -> Result<Option<String>> {
        self.refuse(TargetVerb::Stat, command)
    }
}
