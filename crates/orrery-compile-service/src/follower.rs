//! Follows branches: one thread finds the work that is due, worker threads poll branches and
//! deliver commit statuses.
//!
//! Due work is a row of the store, and the process that moves its due time forward does the work.
//! So one process polls a branch at a time, and a process that dies is replaced when the row is due
//! again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_base::thread::spawn_named;
use orrery_model::Timestamp;
use orrery_roles::settings::EnvironmentSettings;
use orrery_store::{
    BranchFailure, BranchState, ChangeSeq, CommitStatusRecord, CompileRequest, EnvironmentKey,
    EnvironmentRecord, NewCompileRecord, NewFollowedBranch, NewNotification, Store, StoreError,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::child::{ChildLimits, End};
use crate::context::CompileContext;
use crate::credentials::repository_url;
use crate::output_filter::CredentialMask;
use crate::recorder::later;
use crate::repository::{Head, Repository, RepositoryError};
use crate::{CompileOptions, commit_status, poll_schedule};

/// Number of worker threads.
const WORKERS: usize = 8;
/// Interval between checks for due work.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Retry delay after a store error.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Timeout of a repository.
const REPOSITORY_TIMEOUT: Duration = Duration::from_secs(30);
/// Duration of a claim; afterwards any process may repeat the work.
const CLAIM_DURATION: Duration = Duration::from_secs(120);
/// Page size of due rows.
const DUE_MAX: usize = 1_000;
/// Maximum length of a reported error.
const ERROR_TEXT_MAX: usize = 500;

/// Work of a worker thread.
enum FollowerTask {
    Poll { known: BranchState, environment: Box<EnvironmentRecord>, interval: Option<Duration> },
    Report(CommitStatusRecord),
}

/// The threads that follow branches.
#[derive(Debug)]
pub(crate) struct Follower {
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Follower {
    /// Starts the threads.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(
        app: &CompileContext,
        options: &Arc<CompileOptions>,
        stopping: &Arc<AtomicBool>,
    ) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel(WORKERS);
        let receiver = Arc::new(Mutex::new(receiver));
        let busy = Arc::new(AtomicUsize::new(0));
        let mut threads = Vec::with_capacity(WORKERS + 1);
        for _ in 0..WORKERS {
            let worker = Worker {
                app: app.clone(),
                options: Arc::clone(options),
                stopping: Arc::clone(stopping),
                busy: Arc::clone(&busy),
            };
            let receiver = Arc::clone(&receiver);
            threads.push(spawn_named("branch worker", move || worker.run(&receiver))?);
        }
        let watch = DueWatcher {
            app: app.clone(),
            stopping: Arc::clone(stopping),
            sender,
            busy,
            seen: None,
            targets: BTreeMap::new(),
        };
        threads.push(spawn_named("branches", move || watch.run())?);
        Ok(Follower { stopping: Arc::clone(stopping), threads })
    }

    /// Stops the threads.
    pub(crate) fn end(&mut self) {
        self.stopping.store(true, Ordering::Release);
        for thread in std::mem::take(&mut self.threads) {
            if thread.join().is_err() {
                tracing::error!("a thread that follows branches crashed");
            }
        }
    }
}

/// An environment with a followed branch.
struct Target {
    environment: EnvironmentRecord,
    interval: Option<Duration>,
    /// Neither halted nor being deleted, and server compiles are enabled.
    active: bool,
}

struct DueWatcher {
    app: CompileContext,
    stopping: Arc<AtomicBool>,
    sender: SyncSender<FollowerTask>,
    /// Number of unfinished work items.
    busy: Arc<AtomicUsize>,
    /// Position of the change feed at the latest read of environments.
    seen: Option<ChangeSeq>,
    targets: BTreeMap<EnvironmentKey, Target>,
}

impl DueWatcher {
    fn run(mut self) {
        while !self.stopping.load(Ordering::Acquire) {
            let pause = match self.dispatch_due() {
                Ok(()) => CHECK_INTERVAL,
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, "the branches of environments cannot be read");
                    self.seen = None;
                    RETRY_AFTER
                }
            };
            let until = monotonic() + pause;
            while monotonic() < until && !self.stopping.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    fn dispatch_due(&mut self) -> Result<(), StoreError> {
        let store = self.app.store().clone();
        let now = self.app.now();
        let latest = store.changes().latest()?;
        if self.seen != Some(latest) {
            self.read_environments(now)?;
            self.seen = Some(latest);
        }
        for known in store.branches().due(now, DUE_MAX)? {
            let Some(target) = self.targets.get(&known.environment) else { continue };
            if !target.active {
                continue;
            }
            if self.busy.load(Ordering::Acquire) >= WORKERS {
                return Ok(());
            }
            if store.branches().claim(&known, later(now, CLAIM_DURATION))? {
                let environment = Box::new(target.environment.clone());
                self.dispatch(FollowerTask::Poll { known, environment, interval: target.interval });
            }
        }
        for status in store.commit_statuses().due(now, DUE_MAX)? {
            if self.busy.load(Ordering::Acquire) >= WORKERS {
                return Ok(());
            }
            if store.commit_statuses().claim(&status, later(now, CLAIM_DURATION))? {
                self.dispatch(FollowerTask::Report(status));
            }
        }
        Ok(())
    }

    fn dispatch(&self, work: FollowerTask) {
        self.busy.fetch_add(1, Ordering::AcqRel);
        // The channel holds one item per worker; it is closed only when the process ends.
        if self.sender.send(work).is_err() {
            self.busy.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Reads the followed branches and updates their rows.
    fn read_environments(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let store = self.app.store().clone();
        let by_key = |name: &str| -> Result<BTreeMap<EnvironmentKey, Value>, StoreError> {
            Ok(store.settings().of_all_environments(name)?.into_iter().collect())
        };
        let names = ["repository_poll_interval", "server_compile"];
        let [intervals, compiles] = [by_key(names[0])?, by_key(names[1])?];
        let rows = store.branches().list()?.into_iter();
        let mut rows: BTreeMap<EnvironmentKey, BranchState> =
            rows.map(|row| (row.environment, row)).collect();
        let local = self.app.local_repositories;
        self.targets.clear();
        for environment in store.environments().list(None)? {
            let key = environment.key;
            let row = rows.remove(&key);
            if environment.repository.is_empty() {
                if row.is_some() {
                    store.branches().unfollow(key)?;
                }
                continue;
            }
            // The compile reports an invalid repository.
            let Ok(repository) =
                Repository::new(&environment.repository, &environment.branch, local)
            else {
                continue;
            };
            let set = [(names[0], &intervals), (names[1], &compiles)].into_iter();
            let set = set.filter_map(|(name, all)| Some((name.to_owned(), all.get(&key)?.clone())));
            let settings = EnvironmentSettings::from_map(&set.collect());
            let (interval, source) = (settings.poll_interval, repository.source());
            match row {
                Some(row) if row.source == source => {
                    let is_calm = row.failures == 0 && row.unfetched == 0;
                    if is_calm && poll_schedule::is_outdated(interval, row.due, now) {
                        let due = poll_schedule::first_poll(interval, key, now);
                        store.branches().claim(&row, due)?;
                    }
                }
                _ => {
                    let due = poll_schedule::first_poll(interval, key, now);
                    store.branches().follow(&NewFollowedBranch {
                        environment: key,
                        source,
                        due,
                    })?;
                }
            }
            let active = !environment.halted && !environment.deleting && settings.server_compile;
            self.targets.insert(key, Target { environment, interval, active });
        }
        for key in rows.into_keys() {
            store.branches().unfollow(key)?;
        }
        Ok(())
    }
}

struct Worker {
    app: CompileContext,
    options: Arc<CompileOptions>,
    stopping: Arc<AtomicBool>,
    busy: Arc<AtomicUsize>,
}

impl Worker {
    fn run(&self, receiver: &Mutex<Receiver<FollowerTask>>) {
        loop {
            let next = receiver.lock().ignore_poison().recv();
            let Ok(work) = next else { return };
            if !self.stopping.load(Ordering::Acquire) {
                let done = match &work {
                    FollowerTask::Poll { known, environment, interval } => {
                        self.poll_branch(known, environment, *interval)
                    }
                    FollowerTask::Report(status) => {
                        commit_status::deliver(&self.app, &self.options, status)
                    }
                };
                if let Err(error) = done {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "cannot record the state of a branch");
                }
            }
            self.busy.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Polls a branch and records the result.
    fn poll_branch(
        &self,
        known: &BranchState,
        environment: &EnvironmentRecord,
        interval: Option<Duration>,
    ) -> Result<(), StoreError> {
        let store = self.app.store();
        let head = self.head(environment);
        let now = self.app.now();
        if self.stopping.load(Ordering::Acquire) {
            // Due again when the claim expires.
            return Ok(());
        }
        let error = match head {
            Ok(head) => {
                let request = compile_request(&head);
                let new = NewCompileRecord { id: Uuid::new_v4().into(), request: &request };
                let due = poll_schedule::next_poll(interval, known.environment, now);
                if store.branches().record_head(known, &head.commit, &new, (now, due))? {
                    let environment = &*environment.name;
                    tracing::info!(environment, commit = head.commit, "compiling a new commit");
                    self.app.wake_up();
                }
                return Ok(());
            }
            Err(error) => error,
        };
        let failures = known.failures.saturating_add(1);
        tracing::warn!(environment = environment.name, failures, error, "a branch cannot be read");
        let uri = format!("/api/v1/environments/{}", environment.uuid);
        let message = format!("The branch that the environment follows cannot be read: {error}");
        let notice = NewNotification {
            uuid: Uuid::new_v4().into(),
            title: "Repository not readable",
            message: &message,
            severity: "error",
            uri: &uri,
            compile: None,
        };
        let due = poll_schedule::after_failures(interval, failures, known.environment, now);
        let notice = (failures == poll_schedule::NOTIFY_AFTER).then_some(notice);
        let failure = BranchFailure { error: &error, due, notice };
        store.branches().record_failure(known, &failure, now)?;
        self.app.wake_up();
        Ok(())
    }

    fn head(&self, environment: &EnvironmentRecord) -> Result<Head, String> {
        let branch = &environment.branch;
        let repository = &repository_url(&self.app, environment);
        let local = self.app.local_repositories;
        let wrong = |error: RepositoryError| error.to_string();
        let of = Repository::new(repository, branch, local).map_err(wrong)?;
        let limits = ChildLimits {
            until: monotonic() + REPOSITORY_TIMEOUT,
            memory_max: self.options.memory_max,
            nice: self.options.nice,
        };
        // Marks the child processes, so that leftovers are found.
        let mark = self.options.data.join("branches").join(Uuid::new_v4().to_string());
        let (mut answer, mut errors) = (Vec::new(), Vec::new());
        let command = of.list_head().envs(&self.options.variables).data(&self.options.data);
        let mut should_continue = || !self.stopping.load(Ordering::Acquire);
        let mut on_output = |error: bool, bytes: &[u8]| {
            let of = if error { &mut errors } else { &mut answer };
            of.extend_from_slice(bytes);
        };
        let end = command.run(&limits, &mark, &mut should_continue, &mut on_output);
        match end {
            Ok(End::Exit(0)) => {
                let found = of.parse_head(&String::from_utf8_lossy(&answer));
                let none = || match &*of.branch {
                    "" => "the repository is empty".to_owned(),
                    branch => format!("the repository has no branch {branch}"),
                };
                found.ok_or_else(none)
            }
            Ok(End::TimedOut) => {
                Err(format!("no answer within {} s", REPOSITORY_TIMEOUT.as_secs()))
            }
            Ok(End::Stopped) => Err("the server is stopping".to_owned()),
            Ok(End::Exit(code)) => {
                let text = String::from_utf8_lossy(&errors);
                let text = CredentialMask::for_url(repository).apply(&git_error(&text));
                Err(if text.is_empty() { format!("git ls-remote failed ({code})") } else { text })
            }
            Err(error) => Err(format!("git cannot be started: {error}")),
        }
    }
}

/// Extracts the cause from git's error output.
fn git_error(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    // Generic advice that follows every failure.
    let advice =
        ["Please make sure you have the correct access rights", "and the repository exists."];
    let lines: Vec<&str> = lines.filter(|line| !advice.contains(line)).collect();
    lines.join("; ").replace('\0', "").chars().take(ERROR_TEXT_MAX).collect()
}

/// Builds the compile request of a new commit.
fn compile_request(head: &Head) -> CompileRequest {
    let short: String = head.commit.chars().take(7).collect();
    let message = format!("new commit {short} on {}", head.branch);
    let mut request =
        CompileRequest { update: true, ..CompileRequest::with_reason("commit", &message) };
    request.metadata.insert("commit".to_owned(), json!(head.commit));
    request
}

/// Makes the branch of an environment due now.
///
/// # Errors
/// Store errors.
pub fn poll_now(
    store: &Store,
    environment: &EnvironmentRecord,
    local_repositories: bool,
    now: Timestamp,
) -> Result<(), StoreError> {
    let EnvironmentRecord { key, repository, branch, .. } = environment;
    let Ok(repository) = Repository::new(repository, branch, local_repositories) else {
        return Ok(());
    };
    store.branches().follow(&NewFollowedBranch {
        environment: *key,
        source: repository.source(),
        due: now,
    })?;
    store.branches().make_due(*key, now)
}
