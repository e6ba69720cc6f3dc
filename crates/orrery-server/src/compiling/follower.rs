//! Following branches: one thread finds out what is due, a few others look at branches and report states of commits.
//!
//! What is due is a row of the store, and the process that moves its time forward does the work; so one process looks at a branch
//! at a time, and a process that dies is replaced when the time has come again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use orrery_model::Timestamp;
use orrery_store::{
    ChangeSeq, CommitStatusRecord, CompileRequest, EnvironmentKey, EnvironmentRecord, Followed,
    FollowedBranch, FollowedFailure, NewCompile, NewNotification, StoreError,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::child::{End, Limits};
use super::credentials::address_of;
use super::recorder::later;
use super::repository::{Head, Repository, RepositoryError};
use super::text::Mask;
use super::{CompileOptions, commit_status, polling};
use crate::app::App;
use crate::settings::EnvironmentSettings;

/// So many branches are looked at, and commits reported, at the same time.
const WORKERS: usize = 8;
/// How often is looked for what is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After a store that did not answer.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// A repository that does not answer for so long is not reachable.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Work that is not heard of for so long is done again, by whichever process comes first.
const CLAIMED_FOR: Duration = Duration::from_secs(120);
/// So many rows are read at once.
const DUE_MAX: usize = 1_000;
/// So much of an error is told.
const TOLD_MAX: usize = 500;

/// Something to do.
enum Work {
    Look { known: Followed, environment: Box<EnvironmentRecord>, interval: Option<Duration> },
    Report(CommitStatusRecord),
}

/// The threads that follow branches.
#[derive(Debug)]
pub(super) struct Follower {
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Follower {
    /// Starts them.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start(
        app: &App,
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
            let named = std::thread::Builder::new().name("branch worker".to_owned());
            threads.push(named.spawn(move || worker.run(&receiver))?);
        }
        let watch = Watch {
            app: app.clone(),
            stopping: Arc::clone(stopping),
            sender,
            busy,
            seen: None,
            targets: BTreeMap::new(),
        };
        let named = std::thread::Builder::new().name("branches".to_owned());
        threads.push(named.spawn(move || watch.run())?);
        Ok(Follower { stopping: Arc::clone(stopping), threads })
    }

    /// Ends them.
    pub(super) fn end(&mut self) {
        self.stopping.store(true, Ordering::Release);
        for thread in std::mem::take(&mut self.threads) {
            if thread.join().is_err() {
                tracing::error!("a thread that follows branches crashed");
            }
        }
    }
}

/// An environment whose branch may be looked at.
struct Target {
    environment: EnvironmentRecord,
    interval: Option<Duration>,
    /// Neither halted nor on its way out, and the server may compile.
    active: bool,
}

struct Watch {
    app: App,
    stopping: Arc<AtomicBool>,
    sender: SyncSender<Work>,
    /// How much is handed to workers and not done.
    busy: Arc<AtomicUsize>,
    /// How far the change feed was when environments were read.
    seen: Option<ChangeSeq>,
    targets: BTreeMap<EnvironmentKey, Target>,
}

impl Watch {
    fn run(mut self) {
        while !self.stopping.load(Ordering::Acquire) {
            let pause = match self.look() {
                Ok(()) => LOOK_EVERY,
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, "the branches of environments cannot be read");
                    self.seen = None;
                    TRY_AGAIN_AFTER
                }
            };
            let until = Instant::now() + pause;
            while Instant::now() < until && !self.stopping.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    fn look(&mut self) -> Result<(), StoreError> {
        let store = Arc::clone(self.app.store());
        let now = self.app.now();
        let latest = store.records().latest_change()?;
        if self.seen != Some(latest) {
            self.read_environments(now)?;
            self.seen = Some(latest);
        }
        for known in store.records().due_followed(now, DUE_MAX)? {
            let Some(target) = self.targets.get(&known.environment) else { continue };
            if !target.active {
                continue;
            }
            if self.busy.load(Ordering::Acquire) >= WORKERS {
                return Ok(());
            }
            if store.records().claim_followed(&known, later(now, CLAIMED_FOR))? {
                let environment = Box::new(target.environment.clone());
                self.hand_out(Work::Look { known, environment, interval: target.interval });
            }
        }
        for status in store.records().due_commit_statuses(now, DUE_MAX)? {
            if self.busy.load(Ordering::Acquire) >= WORKERS {
                return Ok(());
            }
            if store.records().claim_commit_status(&status, later(now, CLAIMED_FOR))? {
                self.hand_out(Work::Report(status));
            }
        }
        Ok(())
    }

    fn hand_out(&self, work: Work) {
        self.busy.fetch_add(1, Ordering::AcqRel);
        // There is room for as many as there are workers; without workers, the process ends.
        if self.sender.send(work).is_err() {
            self.busy.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Reads which branches are to be followed, and brings the rows in line with that.
    fn read_environments(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let store = Arc::clone(self.app.store());
        let records = store.records();
        let by_key = |name: &str| -> Result<BTreeMap<EnvironmentKey, Value>, StoreError> {
            Ok(records.setting_everywhere(name)?.into_iter().collect())
        };
        let names = ["repository_poll_interval", "server_compile"];
        let [intervals, compiles] = [by_key(names[0])?, by_key(names[1])?];
        let rows = records.all_followed()?.into_iter();
        let mut rows: BTreeMap<EnvironmentKey, Followed> =
            rows.map(|row| (row.environment, row)).collect();
        let local = self.app.settings().local_repositories;
        self.targets.clear();
        for environment in records.list_environments(None)? {
            let key = environment.key;
            let row = rows.remove(&key);
            if environment.repository.is_empty() {
                if row.is_some() {
                    records.unfollow(key)?;
                }
                continue;
            }
            // One that may not be used is told by the compile.
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
                    if is_calm && polling::is_outdated(interval, row.due, now) {
                        let due = polling::first(interval, key, now);
                        records.claim_followed(&row, due)?;
                    }
                }
                _ => {
                    let due = polling::first(interval, key, now);
                    records.follow(&FollowedBranch { environment: key, source, due })?;
                }
            }
            let active = !environment.halted && !environment.deleting && settings.server_compile;
            self.targets.insert(key, Target { environment, interval, active });
        }
        for key in rows.into_keys() {
            records.unfollow(key)?;
        }
        Ok(())
    }
}

struct Worker {
    app: App,
    options: Arc<CompileOptions>,
    stopping: Arc<AtomicBool>,
    busy: Arc<AtomicUsize>,
}

impl Worker {
    fn run(&self, receiver: &Mutex<Receiver<Work>>) {
        loop {
            let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(work) = next else { return };
            if !self.stopping.load(Ordering::Acquire) {
                let done = match &work {
                    Work::Look { known, environment, interval } => {
                        self.look(known, environment, *interval)
                    }
                    Work::Report(status) => {
                        commit_status::deliver(&self.app, &self.options, status)
                    }
                };
                if let Err(error) = done {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "what is known of a branch cannot be written down");
                }
            }
            self.busy.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Looks where a branch stands, and writes down what came of it.
    fn look(
        &self,
        known: &Followed,
        environment: &EnvironmentRecord,
        interval: Option<Duration>,
    ) -> Result<(), StoreError> {
        let records = self.app.store().records();
        let head = self.head(environment);
        let now = self.app.now();
        if self.stopping.load(Ordering::Acquire) {
            // It is due again when the claim ends, at the latest.
            return Ok(());
        }
        let error = match head {
            Ok(head) => {
                let request = request_for(&head);
                let new = NewCompile { id: Uuid::new_v4().into_bytes(), request: &request };
                let due = polling::next(interval, known.environment, now);
                if records.found_commit(known, &head.commit, &new, (now, due))? {
                    let environment = &*environment.name;
                    tracing::info!(environment, commit = head.commit, "a new commit is compiled");
                    self.app.nudge();
                }
                return Ok(());
            }
            Err(error) => error,
        };
        let failures = known.failures.saturating_add(1);
        tracing::warn!(environment = environment.name, failures, error, "a branch cannot be read");
        let uri = format!("/api/v1/environments/{}", Uuid::from_bytes(environment.uuid));
        let message = format!("The branch that the environment follows cannot be read: {error}");
        let notice = NewNotification {
            uuid: Uuid::new_v4().into_bytes(),
            title: "Repository not readable",
            message: &message,
            severity: "error",
            uri: &uri,
            compile: None,
        };
        let due = polling::after_failures(interval, failures, known.environment, now);
        let notice = (failures == polling::TOLD_AFTER).then_some(notice);
        let failure = FollowedFailure { error: &error, due, notice };
        records.lost_branch(known, &failure, now)?;
        self.app.nudge();
        Ok(())
    }

    fn head(&self, environment: &EnvironmentRecord) -> Result<Head, String> {
        let branch = &environment.branch;
        let repository = &address_of(&self.app, environment);
        let local = self.app.settings().local_repositories;
        let wrong = |error: RepositoryError| error.to_string();
        let of = Repository::new(repository, branch, local).map_err(wrong)?;
        let limits = Limits {
            until: Instant::now() + ANSWER_WITHIN,
            memory_max: self.options.memory_max,
            nice: self.options.nice,
        };
        // A name for what is started here, of which nothing may be left.
        let mark = self.options.data.join("branches").join(Uuid::new_v4().to_string());
        let (mut answer, mut complaint) = (Vec::new(), Vec::new());
        let command = of.list_head().envs(&self.options.variables).data(&self.options.data);
        let mut go_on = || !self.stopping.load(Ordering::Acquire);
        let mut said = |error: bool, bytes: &[u8]| {
            let of = if error { &mut complaint } else { &mut answer };
            of.extend_from_slice(bytes);
        };
        let end = command.run(&limits, &mark, &mut go_on, &mut said);
        match end {
            Ok(End::Exit(0)) => {
                let found = of.head_in(&String::from_utf8_lossy(&answer));
                let none = || match &*of.branch {
                    "" => "the repository is empty".to_owned(),
                    branch => format!("the repository has no branch {branch}"),
                };
                found.ok_or_else(none)
            }
            Ok(End::TimedOut) => Err(format!("no answer within {} s", ANSWER_WITHIN.as_secs())),
            Ok(End::Stopped) => Err("the server is stopping".to_owned()),
            Ok(End::Exit(code)) => {
                let text = String::from_utf8_lossy(&complaint);
                let text = Mask::for_url(repository).apply(&told(&text));
                Err(if text.is_empty() { format!("git ls-remote failed ({code})") } else { text })
            }
            Err(error) => Err(format!("git cannot be started: {error}")),
        }
    }
}

/// What of a complaint of git tells the cause.
fn told(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    // Advice on rights and existence is the same whatever happened.
    let advice =
        ["Please make sure you have the correct access rights", "and the repository exists."];
    let lines: Vec<&str> = lines.filter(|line| !advice.contains(line)).collect();
    lines.join("; ").replace('\0', "").chars().take(TOLD_MAX).collect()
}

/// The compile that a new commit asks for.
fn request_for(head: &Head) -> CompileRequest {
    let short: String = head.commit.chars().take(7).collect();
    let message = format!("new commit {short} on {}", head.branch);
    let mut request =
        CompileRequest { update: true, ..CompileRequest::because("commit", &message) };
    request.metadata.insert("commit".to_owned(), json!(head.commit));
    request
}

/// Makes sure that the branch of an environment is looked at now, whenever it would be due otherwise.
///
/// # Errors
/// Those of the store.
pub(crate) fn look_now(
    app: &App,
    environment: &EnvironmentRecord,
    now: Timestamp,
) -> Result<(), StoreError> {
    let local = app.settings().local_repositories;
    let EnvironmentRecord { key, repository, branch, .. } = environment;
    let Ok(repository) = Repository::new(repository, branch, local) else { return Ok(()) };
    let records = app.store().records();
    records.follow(&FollowedBranch { environment: *key, source: repository.source(), due: now })?;
    records.hasten_followed(*key, now)
}
