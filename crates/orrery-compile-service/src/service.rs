//! Main loop of the compile service: decides which compile runs when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::thread::spawn_named;
use orrery_model::Timestamp;
use orrery_roles::settings::EnvironmentSettings;
use orrery_scheduler::Cron;
use orrery_store::{ChangeSeq, ClaimedCompile, EnvironmentKey, StoreError};
use uuid::Uuid;

use crate::context::CompileContext;
use crate::follower::Follower;
use crate::recorder::{HEARTBEAT_TIMEOUT, RunInterruption, later};
use crate::schedule::Schedule;
use crate::workdir::Workdir;
use crate::{CompileOptions, backoff, run, triggers};

/// Poll interval of the store: wake-ups may be lost.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Minimum interval between polls.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(30);
/// Minimum interval between reads of environments and schedules.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);
/// Retry delay after an error in an environment.
const RETRY_AFTER: Duration = Duration::from_secs(5);
const RETENTION_INTERVAL: Duration = Duration::from_secs(3600);
/// Retention of compile reports.
const REPORT_RETENTION: Duration = Duration::from_secs(7 * 86_400);

enum Message {
    WakeUp,
    /// A run has ended; false if it must be repeated.
    Ended(EnvironmentKey, bool),
    Stop,
}

/// The running compile service.
#[derive(Debug)]
pub struct CompileService {
    messages: Sender<Message>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    follower: Follower,
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Message")
    }
}

impl CompileService {
    /// Starts the service.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(app: CompileContext, options: CompileOptions) -> std::io::Result<Self> {
        let (messages, inbox) = mpsc::channel();
        let wake_ups = messages.clone();
        app.on_wake_up(move || wake_ups.send(Message::WakeUp).is_ok());
        let stopping = Arc::new(AtomicBool::new(false));
        let options = Arc::new(options);
        crate::private_files::clean(&options.data);
        let follower = Follower::start(&app, &options, &stopping)?;
        let service = Service {
            app,
            options,
            messages: messages.clone(),
            stopping: Arc::clone(&stopping),
            running: BTreeMap::new(),
            not_before: BTreeMap::new(),
            schedule: Schedule::default(),
            seen: None,
            active: BTreeSet::new(),
            cleaned: None,
        };
        let thread = spawn_named("compile service", move || {
            crate::credentials::seal_plaintext(&service.app);
            service.run(&inbox);
        })?;
        Ok(CompileService { messages, stopping, thread: Some(thread), follower })
    }

    /// Stops the service. Running compiles are interrupted, and repeated by the next process.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // Fails only if the service has ended.
        let _ = self.messages.send(Message::Stop);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the compile service crashed");
        }
        self.follower.end();
    }
}

impl Drop for CompileService {
    fn drop(&mut self) {
        self.end();
    }
}

struct Service {
    app: CompileContext,
    options: Arc<CompileOptions>,
    messages: Sender<Message>,
    stopping: Arc<AtomicBool>,
    running: BTreeMap<EnvironmentKey, JoinHandle<()>>,
    /// Environments with a recent error, and their retry times.
    not_before: BTreeMap<EnvironmentKey, Instant>,
    schedule: Schedule,
    /// Position of the change feed at the latest read of environments and schedules, and its time.
    seen: Option<(ChangeSeq, Instant)>,
    /// Environments that were active then.
    active: BTreeSet<EnvironmentKey>,
    cleaned: Option<Instant>,
}

impl Service {
    fn run(mut self, inbox: &Receiver<Message>) {
        while !self.stopping.load(Ordering::Acquire) {
            let wait = self.start_due().unwrap_or_else(|error| {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "the compile service cannot read the store");
                RETRY_AFTER
            });
            match inbox.recv_timeout(wait.clamp(POLL_INTERVAL_MIN, POLL_INTERVAL)) {
                Ok(message) => self.handle_message(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            std::thread::sleep(POLL_INTERVAL_MIN);
            while let Ok(message) = inbox.try_recv() {
                self.handle_message(message);
            }
        }
        self.stopping.store(true, Ordering::Release);
        for (_, thread) in std::mem::take(&mut self.running) {
            let _ = thread.join();
        }
    }

    fn handle_message(&mut self, message: Message) {
        match message {
            Message::WakeUp => {}
            Message::Stop => self.stopping.store(true, Ordering::Release),
            Message::Ended(environment, done) => {
                if let Some(thread) = self.running.remove(&environment)
                    && thread.join().is_err()
                {
                    tracing::error!(?environment, "a compile crashed");
                }
                if !done {
                    self.not_before.insert(environment, monotonic() + RETRY_AFTER);
                }
            }
        }
    }

    /// Starts compiles that are due; returns the time until the next check.
    fn start_due(&mut self) -> Result<Duration, StoreError> {
        let now = self.app.now();
        if self.schedule.next().is_some_and(|at| at <= now) {
            // Reload the schedules first: a setting may have just disabled this one.
            self.seen = None;
        }
        self.read_environments(now)?;
        self.request_scheduled(now)?;
        self.apply_retention(now);
        let mut next = self.schedule.next().map_or(POLL_INTERVAL, |at| until(now, at));
        next = next.min(RELOAD_INTERVAL);
        self.not_before.retain(|_, at| *at > monotonic());
        let mut waiting = self.app.store().compiles().waiting()?;
        waiting.sort_unstable_by_key(|one| one.requested);
        for one in waiting {
            let key = one.environment;
            if self.running.contains_key(&key) {
                continue;
            }
            if self.running.len() >= self.options.parallel.max(1) {
                break;
            }
            if let Some(at) = self.not_before.get(&key) {
                next = next.min(at.saturating_duration_since(monotonic()));
                continue;
            }
            if let Some(alive) = one.alive_until.filter(|alive| *alive > now) {
                // Claimed by another process.
                next = next.min(until(now, alive));
                continue;
            }
            let pause = self.backoff(key)?;
            let wait = backoff::wait(pause, one.requested, one.last_completed, now);
            if !wait.is_zero() {
                next = next.min(wait);
                continue;
            }
            let alive_until = later(now, HEARTBEAT_TIMEOUT);
            if let Some(claimed) = self.app.store().compiles().claim(key, now, alive_until)? {
                self.start(claimed);
            }
        }
        Ok(next)
    }

    fn backoff(&self, environment: EnvironmentKey) -> Result<Duration, StoreError> {
        let settings = self.app.store().settings().list(environment)?;
        Ok(EnvironmentSettings::from_records(&settings).recompile_backoff)
    }

    fn start(&mut self, claimed: ClaimedCompile) {
        self.app.wake_up();
        let environment = claimed.run.environment;
        let (app, options) = (self.app.clone(), Arc::clone(&self.options));
        let (messages, stopping) = (self.messages.clone(), Arc::clone(&self.stopping));
        let run_claimed = move || {
            let ended = EndGuard { messages, environment, done: false };
            run_claimed(&app, &options, &claimed, &stopping, ended);
        };
        let thread = spawn_named("compile", run_claimed);
        match thread {
            Ok(thread) => {
                self.running.insert(environment, thread);
            }
            Err(error) => tracing::error!(%error, "a compile cannot be started"),
        }
    }

    /// Reads environments and their compile schedules, if something changed.
    fn read_environments(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let store = self.app.store().clone();
        let latest = store.changes().latest()?;
        if let Some((seen, at)) = self.seen
            && (seen == latest || at.elapsed() < RELOAD_INTERVAL)
        {
            return Ok(());
        }
        self.seen = Some((latest, monotonic()));
        let environments = store.environments().list(None)?;
        for environment in &environments {
            // At start-up and after a resume, another process may have compiled in the meantime.
            let runs = !environment.halted && !environment.deleting;
            if runs && !self.active.contains(&environment.key) {
                let workdir = Workdir::for_environment(&self.options.data, environment.uuid);
                triggers::recover_checkout(&store, environment, &workdir, now)?;
            }
        }
        let active = environments.iter().filter(|one| !one.halted && !one.deleting);
        self.active = active.map(|one| one.key).collect();
        let there: BTreeSet<EnvironmentKey> = environments.iter().map(|one| one.key).collect();
        let mut wanted = BTreeMap::new();
        for (key, value) in store.settings().of_all_environments("auto_full_compile")? {
            let text = value.as_str().unwrap_or_default();
            if text.is_empty() || !there.contains(&key) {
                continue;
            }
            match text.parse::<Cron>() {
                Ok(cron) => {
                    wanted.insert(key, cron);
                }
                Err(error) => tracing::warn!(%error, "auto_full_compile is ignored"),
            }
        }
        self.schedule.update(wanted, now);
        Ok(())
    }

    fn request_scheduled(&mut self, now: Timestamp) -> Result<(), StoreError> {
        for (environment, due) in self.schedule.due(now) {
            match triggers::request_scheduled(self.app.store(), environment, due, now) {
                Ok(_) | Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes the working directories of deleted environments.
    fn remove_stale_workdirs(&self) {
        let known = self.app.store().environments().list(None);
        let Ok(known) = known else { return };
        let known: BTreeSet<Uuid> = known.iter().map(|one| one.uuid.uuid()).collect();
        for (uuid, path) in Workdir::list(&self.options.data) {
            if !known.contains(&uuid)
                && let Err(error) = std::fs::remove_dir_all(&path)
            {
                tracing::warn!(path = %path.display(), %error, "cannot remove the working directory of a deleted environment");
            }
        }
    }

    fn apply_retention(&mut self, now: Timestamp) {
        if self.cleaned.is_some_and(|at| at.elapsed() < RETENTION_INTERVAL) {
            return;
        }
        self.cleaned = Some(monotonic());
        let kept = i64::try_from(REPORT_RETENTION.as_micros()).unwrap_or(i64::MAX);
        let before = Timestamp(now.0.saturating_sub(kept));
        self.remove_stale_workdirs();
        match self.app.store().compiles().expire(before) {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "old compiles deleted"),
            Err(error) => tracing::warn!(%error, "cannot delete old compiles"),
        }
    }
}

fn until(now: Timestamp, at: Timestamp) -> Duration {
    Duration::from_micros(u64::try_from(at.0.saturating_sub(now.0)).unwrap_or(0))
}

/// Reports the end of a run when dropped, even after a panic.
struct EndGuard {
    messages: Sender<Message>,
    environment: EnvironmentKey,
    done: bool,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        let _ = self.messages.send(Message::Ended(self.environment, self.done));
    }
}

fn run_claimed(
    app: &CompileContext,
    options: &CompileOptions,
    claimed: &ClaimedCompile,
    stopping: &AtomicBool,
    mut ended: EndGuard,
) {
    let compile = claimed.run.id.to_string();
    let key = claimed.record.environment;
    let store = app.store();
    let environment =
        store.environments().by_key(key).map_or_else(|_| format!("{key:?}"), |record| record.name);
    let began = monotonic();
    tracing::info!(compile, environment, "compile started");
    let outcome = match run::run(app, options, claimed, &|| stopping.load(Ordering::Acquire)) {
        Ok(()) => {
            ended.done = true;
            let kept = store.compiles().get(key, claimed.run.id).ok();
            let (success, version) = kept
                .map_or((None, None), |kept| (kept.success, kept.version.map(|number| number.0)));
            let outcome = match success {
                Some(true) => "success",
                Some(false) => "failed",
                None => "unknown",
            };
            let took_ms = began.elapsed().as_millis();
            tracing::info!(compile, environment, outcome, version, took_ms, "compile ended");
            outcome
        }
        Err(RunInterruption::Lost) => {
            tracing::info!(compile, environment, "a compile was cancelled or taken over");
            ended.done = true;
            "cancelled"
        }
        Err(interrupted) => {
            let error = &interrupted as &dyn std::error::Error;
            match &interrupted {
                RunInterruption::Stopping => {
                    tracing::info!(compile, environment, "compile released");
                }
                _ => tracing::error!(compile, environment, error, "a compile was interrupted"),
            }
            let given = store.compiles().abandon(&claimed.run, app.now());
            if let Err(error) = given {
                tracing::warn!(compile, %error, "cannot release a compile");
            }
            "interrupted"
        }
    };
    app.metrics.record_compile(outcome, began.elapsed());
}
