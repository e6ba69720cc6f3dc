//! A target that allows only what the policy of the machine lists.
//!
//! Handlers reach the machine only through a target, so nothing bypasses the policy. Symbolic links
//! in a path are resolved first: a link in an allowed directory opens no other one.

use std::sync::Arc;

use orrery_handlers::drift::DriftWatch;
use orrery_handlers::target::{
    AccountName, Algorithm, CommandLine, ContentDigest, ExpectedContent, FileComparison, FileKind,
    Group, Output, Ownership, RemovalMode, Request, Response, Result, Stat, User, check_path,
};
use orrery_handlers::{AgentMachine, CancelToken, Cause, Target, TargetError, TargetVerb};
use orrery_model::MachineFacts;

use crate::policy::Policy;

/// Maximum number of symbolic links in a path.
const LINKS_MAX: usize = 40;

/// Permission bits with which a file runs with the rights of its owner or group.
const SET_ID_BITS: u32 = 0o6000;

/// Directory of the scripts that start services.
const SERVICE_SCRIPTS: &str = "/etc/init.d/";

/// Variables with this prefix load code into any program.
const LOADER_PREFIX: &str = "LD_";

pub(crate) struct PolicyTarget {
    target: Arc<dyn Target>,
    policy: Arc<Policy>,
}

fn forbidden(operation: TargetVerb, subject: &str, reason: String) -> TargetError {
    TargetError::new(operation, subject, Cause::Policy(reason))
}

impl PolicyTarget {
    pub(crate) fn new(target: Arc<dyn Target>, policy: Arc<Policy>) -> Self {
        PolicyTarget { target, policy }
    }

    /// Fails unless the policy allows the path, with the links in its parents resolved.
    fn check_path(&self, operation: TargetVerb, path: &str) -> Result<()> {
        self.check_resolved(operation, path, false)
    }

    /// Fails unless the policy allows the path that `path` leads to, if it is a link.
    fn check_destination(&self, operation: TargetVerb, path: &str) -> Result<()> {
        self.check_resolved(operation, path, true)
    }

    fn check_resolved(&self, operation: TargetVerb, path: &str, follows: bool) -> Result<()> {
        let real = self.resolve(operation, path, follows)?;
        if self.policy.allows_path(&real) {
            return Ok(());
        }
        let via = if real == path { String::new() } else { format!(" (that is {real})") };
        let reason = format!("the policy of the machine does not list its path{via}");
        Err(forbidden(operation, path, reason))
    }

    /// Replaces the symbolic links in the parents of a path by their destinations, and the path
    /// itself if it is to be followed.
    fn resolve(&self, operation: TargetVerb, path: &str, follows: bool) -> Result<String> {
        let path = check_path(operation, path)?;
        let parts = |text: &str| -> Vec<String> {
            text.split('/').filter(|part| !part.is_empty()).rev().map(str::to_owned).collect()
        };
        let mut rest = parts(path);
        let mut real = String::new();
        let mut links = 0;
        while let Some(part) = rest.pop() {
            match part.as_str() {
                "." => continue,
                ".." => {
                    real.truncate(real.rfind('/').unwrap_or(0));
                    continue;
                }
                _ => {}
            }
            let next = format!("{real}/{part}");
            let is_link = (follows || !rest.is_empty())
                && self.target.stat(&next)?.is_some_and(|stat| stat.kind == FileKind::Symlink);
            if !is_link {
                real = next;
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(TargetError::new(operation, path, Cause::TooManyLinks));
            }
            let leads_to = self.target.read_link(&next)?.unwrap_or_default();
            if leads_to.starts_with('/') {
                real.clear();
            }
            rest.extend(parts(&leads_to));
        }
        Ok(real)
    }

    /// Fails unless the policy allows the owner, and no file gets the rights of another user.
    fn check_owner(&self, operation: TargetVerb, path: &str, ownership: Ownership) -> Result<()> {
        let Some(users) = self.policy.users() else { return Ok(()) };
        if ownership.mode.is_some_and(|mode| mode & SET_ID_BITS != 0) {
            let reason = "the policy of the machine does not allow set-id bits for all users";
            return Err(forbidden(operation, path, reason.to_owned()));
        }
        let Some(uid) = ownership.uid else { return Ok(()) };
        for user in users {
            let allowed = match user.parse() {
                Ok(id) => Some(id),
                Err(_) => self.target.user(AccountName::Name(user))?.map(|user| user.uid),
            };
            if allowed == Some(uid) {
                return Ok(());
            }
        }
        let reason = format!("the policy of the machine does not list its owner, user {uid}");
        Err(forbidden(operation, path, reason))
    }
}

impl Target for PolicyTarget {
    fn machine(&self) -> AgentMachine<'_> {
        self.target.machine()
    }

    fn drift_watch(&self) -> Option<&dyn DriftWatch> {
        self.target.drift_watch()
    }

    fn stat(&self, path: &str) -> Result<Option<Stat>> {
        self.target.stat(path)
    }

    /// Refuses other paths than scripts of services: `creates` of a command may be any path.
    fn stat_following(&self, path: &str) -> Result<Option<Stat>> {
        if path.strip_prefix(SERVICE_SCRIPTS).is_none_or(|name| name.contains('/')) {
            self.check_destination(TargetVerb::Stat, path)?;
        }
        self.target.stat_following(path)
    }

    fn read_file(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        self.check_path(TargetVerb::Read, path)?;
        self.target.read_file(path, limit)
    }

    fn digest(&self, path: &str, algorithm: Algorithm) -> Result<Option<ContentDigest>> {
        self.check_path(TargetVerb::Read, path)?;
        self.target.digest(path, algorithm)
    }

    fn compare(&self, path: &str, expected: ExpectedContent<'_>) -> Result<Option<FileComparison>> {
        self.check_path(TargetVerb::Read, path)?;
        self.target.compare(path, expected)
    }

    fn write_file(&self, path: &str, content: &[u8], ownership: Ownership) -> Result<()> {
        self.check_path(TargetVerb::Write, path)?;
        self.check_owner(TargetVerb::Write, path, ownership)?;
        self.target.write_file(path, content, ownership)
    }

    fn set_attributes(&self, path: &str, ownership: Ownership) -> Result<()> {
        self.check_path(TargetVerb::SetAttributes, path)?;
        self.check_owner(TargetVerb::SetAttributes, path, ownership)?;
        self.target.set_attributes(path, ownership)
    }

    fn make_directory(&self, path: &str, ownership: Ownership) -> Result<()> {
        self.check_path(TargetVerb::MakeDirectory, path)?;
        self.check_owner(TargetVerb::MakeDirectory, path, ownership)?;
        self.target.make_directory(path, ownership)
    }

    fn make_symlink(&self, path: &str, leads_to: &str) -> Result<()> {
        self.check_path(TargetVerb::MakeSymlink, path)?;
        self.target.make_symlink(path, leads_to)
    }

    fn read_link(&self, path: &str) -> Result<Option<String>> {
        self.target.read_link(path)
    }

    fn remove_file(&self, path: &str) -> Result<bool> {
        self.check_path(TargetVerb::Remove, path)?;
        self.target.remove_file(path)
    }

    fn remove_directory(&self, path: &str, tree: RemovalMode) -> Result<bool> {
        self.check_path(TargetVerb::Remove, path)?;
        self.target.remove_directory(path, tree)
    }

    fn list_directory(&self, path: &str) -> Result<Vec<String>> {
        self.target.list_directory(path)
    }

    fn sync(&self) -> Result<()> {
        self.target.sync()
    }

    /// Allowed by the resource type: the caller does not choose the commands.
    fn machine_facts(&self, stop: &CancelToken) -> Result<MachineFacts> {
        self.target.machine_facts(stop)
    }

    /// Runs the program by its full path, as it was checked.
    fn run(&self, command: &CommandLine, stop: &CancelToken) -> Result<Output> {
        if let Some(directory) = &command.directory {
            self.check_destination(TargetVerb::Run, directory)?;
        }
        if self.policy.allows_all_commands() {
            return self.target.run(command, stop);
        }
        let program = command.program();
        let found = self.target.which(program, command.search_path.as_deref())?;
        let Some(found) = found else {
            return Err(TargetError::new(TargetVerb::Run, program, Cause::CommandNotFound));
        };
        let loads = |(name, _): &(String, String)| name.starts_with(LOADER_PREFIX);
        let arguments = command.arguments.get(1..).unwrap_or_default();
        if !self.policy.allows_command(&found, arguments) || command.environment.iter().any(loads) {
            let reason = format!(
                "the policy of the machine does not list this command of {found}, or its variables"
            );
            return Err(forbidden(TargetVerb::Run, program, reason));
        }
        let mut checked = command.clone();
        if let Some(program) = checked.arguments.first_mut() {
            *program = found;
        }
        self.target.run(&checked, stop)
    }

    fn request(&self, request: &Request, stop: &CancelToken) -> Result<Response> {
        self.target.request(request, stop)
    }

    fn user(&self, name: AccountName<'_>) -> Result<Option<User>> {
        self.target.user(name)
    }

    fn group(&self, name: AccountName<'_>) -> Result<Option<Group>> {
        self.target.group(name)
    }

    fn search_path(&self) -> String {
        self.target.search_path()
    }

    fn which(&self, command: &str, search_path: Option<&str>) -> Result<Option<String>> {
        self.target.which(command, search_path)
    }
}
