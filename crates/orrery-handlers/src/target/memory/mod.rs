//! A machine in memory: files, and commands with scripted output. For tests, and for trying a model
//! without a machine.

mod nodes;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use nodes::Nodes;
pub use nodes::{Content, Node};
use orrery_base::lock::IgnorePoison;

use super::{
    AccountName, Algorithm, CancelCause, CancelToken, CommandLine, ContentDigest, ExpectedContent,
    FileComparison, FileKind, Group, Output, Ownership, RemovalMode, Request, Response, Result,
    Stat, Target, User, check_path,
};
use crate::error::{Cause, TargetError, TargetVerb};

type CommandScript = Arc<dyn Fn(&Invocation<'_>) -> Output + Send + Sync>;
type RequestScript = Arc<dyn Fn(&Request, &MemoryTarget) -> Response + Send + Sync>;

/// A machine in memory.
#[derive(Default)]
pub struct MemoryTarget {
    nodes: Mutex<Nodes>,
    scripts: Mutex<Scripts>,
}

#[derive(Default)]
struct Scripts {
    /// First words of a command, and its script. The latest match wins.
    commands: Vec<(Vec<String>, CommandScript)>,
    requests: Vec<(String, RequestScript)>,
    /// Commands and requests, in order.
    history: Vec<String>,
}

/// A command invocation, for its script.
pub struct Invocation<'a> {
    pub command: &'a CommandLine,
    /// The machine, for effects of commands.
    pub target: &'a MemoryTarget,
}

impl Invocation<'_> {
    /// The last argument: mostly the subject of the command.
    pub fn last(&self) -> &str {
        self.command.arguments.last().map_or("", String::as_str)
    }
}

impl fmt::Debug for MemoryTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTarget").field("nodes", &*self.nodes()).finish_non_exhaustive()
    }
}

impl MemoryTarget {
    /// Creates a machine with standard directories and the users root and jo.
    pub fn new() -> Self {
        let target = MemoryTarget::default();
        for directory in ["/etc", "/usr", "/usr/bin", "/var", "/tmp", "/srv", "/run"] {
            target.put(directory, Content::Directory, 0o755);
        }
        let passwd = "root:x:0:0:root:/root:/bin/bash\njo:x:1000:1000:Jo:/home/jo:/bin/sh\n";
        target.put("/etc/passwd", Content::File(passwd.into()), 0o644);
        let group = "root:x:0:\nadm:x:4:\njo:x:1000:\n";
        target.put("/etc/group", Content::File(group.into()), 0o644);
        target
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().ignore_poison()
    }

    fn scripts(&self) -> MutexGuard<'_, Scripts> {
        self.scripts.lock().ignore_poison()
    }

    /// Replaces a path by a node that root owns.
    pub fn put(&self, path: &str, content: Content, mode: u32) {
        self.nodes().insert(path, Node { content, mode, uid: 0, gid: 0 });
    }

    /// Sets the script of commands with these first words.
    pub fn on(
        &self,
        words: &str,
        answer: impl Fn(&Invocation<'_>) -> Output + Send + Sync + 'static,
    ) {
        let words = words.split_whitespace().map(str::to_owned).collect();
        self.scripts().commands.push((words, Arc::new(answer)));
    }

    /// Sets the script of requests of `METHOD URL`.
    pub fn on_request(
        &self,
        request: &str,
        answer: impl Fn(&Request, &MemoryTarget) -> Response + Send + Sync + 'static,
    ) {
        self.scripts().requests.push((request.to_owned(), Arc::new(answer)));
    }

    /// All commands and requests so far, as shell commands.
    pub fn history(&self) -> Vec<String> {
        self.scripts().history.clone()
    }

    /// All nodes of the file system, by path.
    pub fn snapshot(&self) -> BTreeMap<String, Node> {
        self.nodes().all().clone()
    }

    /// Finds the first matching line of an account file.
    fn find_account<T>(&self, path: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>> {
        let content = self.read_file(path, u64::MAX)?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&content).lines().find_map(parse))
    }
}

fn check_cancelled(operation: TargetVerb, subject: &str, stop: &CancelToken) -> Result<()> {
    let cause = match stop.reason() {
        None => return Ok(()),
        Some(CancelCause::Cancelled) => Cause::Cancelled,
        Some(CancelCause::DeadlinePassed) => Cause::TimedOut,
    };
    Err(TargetError::new(operation, subject, cause))
}

impl Target for MemoryTarget {
    fn stat(&self, path: &str) -> Result<Option<Stat>> {
        let path = check_path(TargetVerb::Stat, path)?;
        self.nodes().stat(path, false)
    }

    fn stat_following(&self, path: &str) -> Result<Option<Stat>> {
        let path = check_path(TargetVerb::Stat, path)?;
        self.nodes().stat(path, true)
    }

    fn read_file(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        let path = check_path(TargetVerb::Read, path)?;
        self.nodes().read(path, limit)
    }

    fn digest(&self, path: &str, algorithm: Algorithm) -> Result<Option<ContentDigest>> {
        Ok(self.read_file(path, u64::MAX)?.map(|content| algorithm.digest(&content)))
    }

    fn compare(&self, path: &str, expected: ExpectedContent<'_>) -> Result<Option<FileComparison>> {
        let Some(stat) = self.stat(path)? else {
            return Ok(None);
        };
        let same = stat.kind == FileKind::File
            && match (self.read_file(path, u64::MAX)?, expected) {
                (Some(content), ExpectedContent::Bytes(bytes)) => content == bytes,
                (Some(content), ExpectedContent::Digest(digest)) => {
                    digest.algorithm.digest(&content) == *digest
                }
                (None, _) => false,
            };
        Ok(Some(FileComparison { stat, same }))
    }

    fn write_file(&self, path: &str, content: &[u8], ownership: Ownership) -> Result<()> {
        let path = check_path(TargetVerb::Write, path)?;
        self.nodes().write(path, content, ownership)
    }

    fn set_attributes(&self, path: &str, ownership: Ownership) -> Result<()> {
        let path = check_path(TargetVerb::SetAttributes, path)?;
        self.nodes().set_attributes(path, ownership)
    }

    fn make_directory(&self, path: &str, ownership: Ownership) -> Result<()> {
        let path = check_path(TargetVerb::MakeDirectory, path)?;
        self.nodes().make_directory(path, ownership)
    }

    fn make_symlink(&self, path: &str, leads_to: &str) -> Result<()> {
        let path = check_path(TargetVerb::MakeSymlink, path)?;
        self.nodes().make_symlink(path, leads_to)
    }

    fn read_link(&self, path: &str) -> Result<Option<String>> {
        let path = check_path(TargetVerb::ReadLink, path)?;
        self.nodes().read_link(path)
    }

    fn remove_file(&self, path: &str) -> Result<bool> {
        let path = check_path(TargetVerb::Remove, path)?;
        self.nodes().remove_file(path)
    }

    fn remove_directory(&self, path: &str, tree: RemovalMode) -> Result<bool> {
        let path = check_path(TargetVerb::Remove, path)?;
        self.nodes().remove_directory(path, tree)
    }

    fn list_directory(&self, path: &str) -> Result<Vec<String>> {
        let path = check_path(TargetVerb::List, path)?;
        self.nodes().list(path)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn run(&self, command: &CommandLine, stop: &CancelToken) -> Result<Output> {
        let displayed = command.display();
        let stop = command.timeout.map_or_else(|| stop.clone(), |limit| stop.within(limit));
        check_cancelled(TargetVerb::Run, &displayed, &stop)?;
        let answer = {
            let mut scripts = self.scripts();
            let fits = |words: &[String]| command.arguments.starts_with(words);
            let found = scripts.commands.iter().rfind(|(words, _)| fits(words));
            let answer = found.map(|(_, answer)| Arc::clone(answer));
            scripts.history.push(displayed.clone());
            answer
        };
        // Without the lock, since a script may run commands itself.
        let answer = answer.ok_or_else(|| {
            TargetError::new(TargetVerb::Run, &*displayed, Cause::CommandNotFound)
        })?;
        let output = answer(&Invocation { command, target: self });
        check_cancelled(TargetVerb::Run, &displayed, &stop)?;
        Ok(output)
    }

    fn request(&self, request: &Request, stop: &CancelToken) -> Result<Response> {
        check_cancelled(TargetVerb::Request, &request.url, stop)?;
        let displayed = format!("{} {}", request.method, request.url);
        let answer = {
            let mut scripts = self.scripts();
            let found = scripts.requests.iter().rfind(|(fits, _)| *fits == displayed);
            let answer = found.map(|(_, answer)| Arc::clone(answer));
            scripts.history.push(displayed);
            answer
        };
        let refused = || {
            let error = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
            TargetError::new(TargetVerb::Request, &*request.url, Cause::Io(error))
        };
        Ok(answer.ok_or_else(refused)?(request, self))
    }

    fn user(&self, name: AccountName<'_>) -> Result<Option<User>> {
        self.find_account("/etc/passwd", |line| User::parse(line).filter(|user| user.is(name)))
    }

    fn group(&self, name: AccountName<'_>) -> Result<Option<Group>> {
        self.find_account("/etc/group", |line| Group::parse(line).filter(|group| group.is(name)))
    }

    fn search_path(&self) -> String {
        "/usr/bin".to_owned()
    }

    fn which(&self, command: &str, _search_path: Option<&str>) -> Result<Option<String>> {
        let known = |(words, _): &(Vec<String>, CommandScript)| {
            words.first().is_some_and(|program| program == command)
        };
        Ok(self.scripts().commands.iter().any(known).then(|| command.to_owned()))
    }
}
