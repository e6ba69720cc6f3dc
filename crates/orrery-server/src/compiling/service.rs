//! Which compile runs when: the loop of the service.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use orrery_model::Timestamp;
use orrery_scheduler::Cron;
use orrery_store::{ChangeSeq, ClaimedCompile, EnvironmentKey, StoreError};
use uuid::Uuid;

use super::follower::Follower;
use super::place::Place;
use super::recorder::{ALIVE_FOR, Interrupted, later};
use super::schedule::Schedule;
use super::{CompileOptions, backoff, requests, run};
use crate::app::App;
use crate::settings::EnvironmentSettings;

/// The store is read at least so often: nudges may be lost.
const POLL: Duration = Duration::from_secs(5);
/// And not more often than this.
const PAUSE: Duration = Duration::from_millis(30);
/// Environments and schedules are read not more often than this.
const ENVIRONMENTS_EVERY: Duration = Duration::from_secs(1);
/// After something went wrong in an environment.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(5);
const CLEAN_EVERY: Duration = Duration::from_secs(3600);
/// So long reports of compiles are kept.
const KEPT: Duration = Duration::from_secs(7 * 86_400);

enum Message {
    Nudge,
    /// A run has ended; false if it is to be done again.
    Ended(EnvironmentKey, bool),
    Stop,
}

/// The compile service, running.
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
    /// Starts it.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(app: App, options: CompileOptions) -> std::io::Result<Self> {
        let (messages, inbox) = mpsc::channel();
        let nudged = messages.clone();
        app.on_nudge(move || nudged.send(Message::Nudge).is_ok());
        let stopping = Arc::new(AtomicBool::new(false));
        let options = Arc::new(options);
        super::scratch::clean(&options.data);
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
        let thread =
            std::thread::Builder::new().name("compile service".to_owned()).spawn(move || {
                super::credentials::seal_old(&service.app);
                service.run(&inbox);
            })?;
        Ok(CompileService { messages, stopping, thread: Some(thread), follower })
    }

    /// Ends it. Compiles that run are stopped, and done again by whoever comes next.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // A service that is gone has nothing to end.
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
    app: App,
    options: Arc<CompileOptions>,
    messages: Sender<Message>,
    stopping: Arc<AtomicBool>,
    running: BTreeMap<EnvironmentKey, JoinHandle<()>>,
    /// Environments where something went wrong.
    not_before: BTreeMap<EnvironmentKey, Instant>,
    schedule: Schedule,
    /// How far the change feed was when environments and schedules were read, and when that was.
    seen: Option<(ChangeSeq, Instant)>,
    /// Environments that were not halted then.
    active: BTreeSet<EnvironmentKey>,
    cleaned: Option<Instant>,
}

impl Service {
    fn run(mut self, inbox: &Receiver<Message>) {
        while !self.stopping.load(Ordering::Acquire) {
            let wait = self.look().unwrap_or_else(|error| {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "the compile service cannot read the store");
                TRY_AGAIN_AFTER
            });
            match inbox.recv_timeout(wait.clamp(PAUSE, POLL)) {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            std::thread::sleep(PAUSE);
            while let Ok(message) = inbox.try_recv() {
                self.take(message);
            }
        }
        self.stopping.store(true, Ordering::Release);
        for (_, thread) in std::mem::take(&mut self.running) {
            let _ = thread.join();
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Nudge => {}
            Message::Stop => self.stopping.store(true, Ordering::Release),
            Message::Ended(environment, done) => {
                if let Some(thread) = self.running.remove(&environment)
                    && thread.join().is_err()
                {
                    tracing::error!(?environment, "a compile crashed");
                }
                if !done {
                    self.not_before.insert(environment, Instant::now() + TRY_AGAIN_AFTER);
                }
            }
        }
    }

    /// Starts what can start; answers how long nothing else is due.
    fn look(&mut self) -> Result<Duration, StoreError> {
        let now = self.app.now();
        if self.schedule.next().is_some_and(|at| at <= now) {
            // Whoever switched it off a moment ago was told so: what is due is due only if it still is.
            self.seen = None;
        }
        self.read_environments(now)?;
        self.fire(now)?;
        self.clean(now);
        let mut next = self.schedule.next().map_or(POLL, |at| until(now, at));
        next = next.min(ENVIRONMENTS_EVERY);
        self.not_before.retain(|_, at| *at > Instant::now());
        let mut waiting = self.app.store().records().waiting_compiles()?;
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
                next = next.min(at.saturating_duration_since(Instant::now()));
                continue;
            }
            if let Some(alive) = one.alive_until.filter(|alive| *alive > now) {
                // Somebody else's.
                next = next.min(until(now, alive));
                continue;
            }
            let pause = self.backoff(key)?;
            let wait = backoff::wait(pause, one.requested, one.last_completed, now);
            if !wait.is_zero() {
                next = next.min(wait);
                continue;
            }
            let alive_until = later(now, ALIVE_FOR);
            if let Some(claimed) =
                self.app.store().records().claim_compile(key, now, alive_until)?
            {
                self.start(claimed);
            }
        }
        Ok(next)
    }

    fn backoff(&self, environment: EnvironmentKey) -> Result<Duration, StoreError> {
        let settings = self.app.store().records().settings(environment)?;
        Ok(EnvironmentSettings::from_records(&settings).recompile_backoff)
    }

    fn start(&mut self, claimed: ClaimedCompile) {
        self.app.nudge();
        let environment = claimed.run.environment;
        let (app, options) = (self.app.clone(), Arc::clone(&self.options));
        let (messages, stopping) = (self.messages.clone(), Arc::clone(&self.stopping));
        let work = move || {
            let ended = Ended { messages, environment, done: false };
            work(&app, &options, &claimed, &stopping, ended);
        };
        let thread = std::thread::Builder::new().name("compile".to_owned()).spawn(work);
        match thread {
            Ok(thread) => {
                self.running.insert(environment, thread);
            }
            Err(error) => tracing::error!(%error, "a compile cannot be started"),
        }
    }

    /// Reads which environments there are and when they compile by themselves, if something changed.
    fn read_environments(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let store = Arc::clone(self.app.store());
        let latest = store.records().latest_change()?;
        if let Some((seen, at)) = self.seen
            && (seen == latest || at.elapsed() < ENVIRONMENTS_EVERY)
        {
            return Ok(());
        }
        self.seen = Some((latest, Instant::now()));
        let environments = store.records().list_environments(None)?;
        for environment in &environments {
            // At the start and when an environment resumes: did somebody else compile meanwhile?
            let runs = !environment.halted && !environment.deleting;
            if runs && !self.active.contains(&environment.key) {
                let place = Place::of(&self.options.data, &environment.uuid);
                requests::recover_checkout(&*store, environment, &place, now)?;
            }
        }
        let active = environments.iter().filter(|one| !one.halted && !one.deleting);
        self.active = active.map(|one| one.key).collect();
        let there: BTreeSet<EnvironmentKey> = environments.iter().map(|one| one.key).collect();
        let mut wanted = BTreeMap::new();
        for (key, value) in store.records().setting_everywhere("auto_full_compile")? {
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

    fn fire(&mut self, now: Timestamp) -> Result<(), StoreError> {
        for (environment, due) in self.schedule.due(now) {
            match requests::scheduled(&**self.app.store(), environment, due, now) {
                Ok(_) | Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes what environments that are no more have left on this machine.
    fn forget_places(&self) {
        let known = self.app.store().records().list_environments(None);
        let Ok(known) = known else { return };
        let known: BTreeSet<Uuid> = known.iter().map(|one| Uuid::from_bytes(one.uuid)).collect();
        for (uuid, path) in Place::all(&self.options.data) {
            if !known.contains(&uuid)
                && let Err(error) = std::fs::remove_dir_all(&path)
            {
                tracing::warn!(path = %path.display(), %error, "it cannot be removed");
            }
        }
    }

    fn clean(&mut self, now: Timestamp) {
        if self.cleaned.is_some_and(|at| at.elapsed() < CLEAN_EVERY) {
            return;
        }
        self.cleaned = Some(Instant::now());
        let kept = i64::try_from(KEPT.as_micros()).unwrap_or(i64::MAX);
        let before = Timestamp(now.0.saturating_sub(kept));
        self.forget_places();
        match self.app.store().records().forget_compiles(before) {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "old compiles are forgotten"),
            Err(error) => tracing::warn!(%error, "old compiles cannot be forgotten"),
        }
    }
}

fn until(now: Timestamp, at: Timestamp) -> Duration {
    Duration::from_micros(u64::try_from(at.0.saturating_sub(now.0)).unwrap_or(0))
}

/// Says that a run has ended, however it does.
struct Ended {
    messages: Sender<Message>,
    environment: EnvironmentKey,
    done: bool,
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.messages.send(Message::Ended(self.environment, self.done));
    }
}

fn work(
    app: &App,
    options: &CompileOptions,
    claimed: &ClaimedCompile,
    stopping: &AtomicBool,
    mut ended: Ended,
) {
    let compile = orrery_store::uuid_text(&claimed.run.id);
    let key = claimed.record.environment;
    let records = app.store().records();
    let environment =
        records.environment_of(key).map_or_else(|_| format!("{key:?}"), |record| record.name);
    let began = Instant::now();
    tracing::info!(compile, environment, "a compile starts");
    let outcome = match run::run(app, options, claimed, &|| stopping.load(Ordering::Acquire)) {
        Ok(()) => {
            ended.done = true;
            let kept = records.compile(key, &claimed.run.id).ok();
            let (success, version) = kept
                .map_or((None, None), |kept| (kept.success, kept.version.map(|number| number.0)));
            let outcome = match success {
                Some(true) => "success",
                Some(false) => "failed",
                None => "unknown",
            };
            let took_ms = began.elapsed().as_millis();
            tracing::info!(compile, environment, outcome, version, took_ms, "a compile has ended");
            outcome
        }
        Err(Interrupted::Lost) => {
            tracing::info!(compile, environment, "a compile was cancelled or taken over");
            ended.done = true;
            "cancelled"
        }
        Err(interrupted) => {
            let error = &interrupted as &dyn std::error::Error;
            match &interrupted {
                Interrupted::Stopping => {
                    tracing::info!(compile, environment, "a compile is given back");
                }
                _ => tracing::error!(compile, environment, error, "a compile was interrupted"),
            }
            let given = records.abandon_compile(&claimed.run, app.now());
            if let Err(error) = given {
                tracing::warn!(compile, %error, "a compile cannot be given back");
            }
            "interrupted"
        }
    };
    app.metrics().compiled(outcome, began.elapsed());
}
