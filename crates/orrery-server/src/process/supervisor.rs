//! The supervisor: schedules the runners of environments.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_base::thread::spawn_named;
use orrery_model::Timestamp;
use orrery_store::{ChangeSeq, EnvironmentKey, StoreError};

use crate::cluster::ClusterRuntime;
use crate::state::ServerState;

use super::connection_reports::ConnectionReports;
use super::lease_cell::LeaseRegistry;
use super::runner::{Next, Runner, STOP_POLL_INTERVAL, STOP_TIMEOUT};
use super::{Message, ProcessOptions};

/// Name of the role in heartbeats.
pub(super) const ROLE: &str = "process";
/// Poll interval of the change feed: wake-ups may be lost.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Page size of the change feed.
const CHANGES_MAX: usize = 5_000;
/// Maximum number of environments that run a step at the same time, each on a thread.
const CONCURRENT_STEPS_MAX: usize = 4;

/// Reasons to run a step of an environment.
#[derive(Clone, Copy, Debug, Default)]
struct WakeReason {
    /// The store may have changed.
    reload: bool,
    /// Its engine needs a tick, or a timer fired.
    tick: bool,
}

struct EnvironmentSlot {
    runner: Arc<Mutex<Runner>>,
    reason: WakeReason,
    /// A step runs on a thread.
    busy: bool,
    due: Option<Timestamp>,
}

pub(super) struct Supervisor {
    app: ServerState,
    options: Arc<ProcessOptions>,
    messages: Sender<Message>,
    slots: BTreeMap<EnvironmentKey, EnvironmentSlot>,
    /// Idle environments that need a step, in order of arrival.
    waiting: VecDeque<EnvironmentKey>,
    busy: usize,
    timers: BTreeSet<(Timestamp, EnvironmentKey)>,
    seen: ChangeSeq,
    /// The feed could not be read; all environments are reloaded afterwards.
    feed_lost: bool,
    leases: Arc<LeaseRegistry>,
    reports: Arc<ConnectionReports>,
    cluster_runtime: Arc<ClusterRuntime>,
}

impl Supervisor {
    pub(super) fn new(
        app: ServerState,
        options: ProcessOptions,
        messages: Sender<Message>,
        leases: Arc<LeaseRegistry>,
        reports: Arc<ConnectionReports>,
        cluster_runtime: Arc<ClusterRuntime>,
    ) -> Self {
        Supervisor {
            app,
            options: Arc::new(options),
            messages,
            slots: BTreeMap::new(),
            waiting: VecDeque::new(),
            busy: 0,
            timers: BTreeSet::new(),
            seen: ChangeSeq::default(),
            feed_lost: true,
            leases,
            reports,
            cluster_runtime,
        }
    }

    pub(super) fn run(mut self, inbox: &Receiver<Message>) {
        let mut polled = monotonic();
        self.poll();
        loop {
            let error = self.feed_lost.then_some("cannot read the change feed");
            self.app.heartbeats().record(ROLE, error);
            self.start_steps();
            let pause = self.pause(polled + POLL_INTERVAL);
            match inbox.recv_timeout(pause) {
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(message) => {
                    let mut woken = self.handle_message(message);
                    // Coalesces the pending messages.
                    while let Ok(message) = inbox.try_recv() {
                        if matches!(message, Message::Stop) {
                            return self.stop(inbox);
                        }
                        woken |= self.handle_message(message);
                    }
                    if woken {
                        self.poll();
                        polled = monotonic();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if polled.elapsed() >= POLL_INTERVAL {
                self.poll();
                polled = monotonic();
            }
            self.fire_timers();
        }
        self.stop(inbox);
    }

    /// Time until the next poll or timer.
    fn pause(&self, poll_at: Instant) -> Duration {
        let poll = poll_at.saturating_duration_since(monotonic());
        let due = self.timers.first().map(|(at, _)| at.since(self.app.now()));
        let next = due.map_or(poll, |due| due.min(poll));
        next.max(Duration::from_millis(1))
    }

    /// Handles a message; returns true for a wake-up.
    fn handle_message(&mut self, message: Message) -> bool {
        match message {
            Message::WakeUp => return true,
            Message::Attention(key) => self.schedule(key, WakeReason { reload: false, tick: true }),
            Message::StepFinished(key, next) => self.step_finished(key, next),
            Message::Stop => {}
        }
        false
    }

    fn schedule(&mut self, key: EnvironmentKey, reason: WakeReason) {
        let slot = self.slots.entry(key).or_insert_with(|| {
            let runner = Runner::new(
                self.app.clone(),
                Arc::clone(&self.options),
                self.messages.clone(),
                key,
                Arc::clone(&self.reports),
                Arc::clone(&self.cluster_runtime),
            );
            self.leases.add(key, runner.lease_cell());
            EnvironmentSlot {
                runner: Arc::new(Mutex::new(runner)),
                reason: WakeReason::default(),
                busy: false,
                due: None,
            }
        });
        let idle = !slot.busy && !slot.reason.reload && !slot.reason.tick;
        slot.reason.reload |= reason.reload;
        slot.reason.tick |= reason.tick;
        if idle {
            self.waiting.push_back(key);
        }
    }

    /// Starts pending steps, each on a thread, up to the maximum.
    fn start_steps(&mut self) {
        while self.busy < CONCURRENT_STEPS_MAX
            && let Some(key) = self.waiting.pop_front()
        {
            let Some(slot) = self.slots.get_mut(&key) else { continue };
            let reason = std::mem::take(&mut slot.reason);
            let (runner, messages) = (Arc::clone(&slot.runner), self.messages.clone());
            let step = move || {
                // Unlocks the runner before the message: its receiver may lock it at once.
                let next = runner.lock().ignore_poison().step(reason.reload);
                // Fails only if the supervisor has ended.
                let _ = messages.send(Message::StepFinished(key, next));
            };
            match spawn_named("environment", step) {
                Ok(_) => {
                    slot.busy = true;
                    self.busy += 1;
                }
                Err(error) => {
                    tracing::error!(%error, "no thread could be started for an environment");
                    slot.reason = reason;
                    self.waiting.push_back(key);
                    return;
                }
            }
        }
    }

    fn step_finished(&mut self, key: EnvironmentKey, next: Next) {
        self.busy -= 1;
        let Some(slot) = self.slots.get_mut(&key) else { return };
        slot.busy = false;
        if let Some(due) = slot.due.take() {
            self.timers.remove(&(due, key));
        }
        match next {
            Next::Gone => {
                self.slots.remove(&key);
                self.leases.remove(key);
                return;
            }
            Next::At(at) => {
                slot.due = Some(at);
                self.timers.insert((at, key));
            }
            Next::Nothing => {}
        }
        if slot.reason.reload || slot.reason.tick {
            self.waiting.push_back(key);
        }
    }

    fn fire_timers(&mut self) {
        let now = self.app.now();
        while let Some(&(at, key)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            if let Some(slot) = self.slots.get_mut(&key) {
                slot.due = None;
                // An environment without an engine may wait for a retry, a lease or the database:
                // reload it. A busy one gets a new timer after its step.
                let reload = !slot.busy && !slot.runner.lock().ignore_poison().has_engine();
                self.schedule(key, WakeReason { reload, tick: true });
            }
        }
    }

    /// Polls the change feed and reloads the changed environments.
    fn poll(&mut self) {
        match self.read_changes() {
            Ok(()) => self.feed_lost = false,
            Err(error) => {
                if !self.feed_lost {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "cannot read the change feed"
                    );
                }
                self.feed_lost = true;
            }
        }
    }

    fn read_changes(&mut self) -> Result<(), StoreError> {
        let store = self.app.store().clone();
        if self.feed_lost || store.changes().oldest()? > ChangeSeq(self.seen.0 + 1) {
            self.seen = store.changes().latest()?;
            for environment in store.environments().list(None)? {
                self.schedule(environment.key, WakeReason { reload: true, tick: false });
            }
            return Ok(());
        }
        loop {
            let changes = store.changes().list(self.seen, None, CHANGES_MAX)?;
            let Some(last) = changes.last() else { return Ok(()) };
            self.seen = last.seq;
            let more = changes.len() == CHANGES_MAX;
            let concerned = changes.iter().filter(|change| change.kind != "resources");
            let keys: BTreeSet<_> = concerned.filter_map(|change| change.environment).collect();
            for key in keys {
                self.schedule(key, WakeReason { reload: true, tick: false });
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Stops all engines and releases all leases.
    fn stop(mut self, inbox: &Receiver<Message>) {
        self.waiting.clear();
        self.app.heartbeats().remove(ROLE);
        while self.busy > 0 {
            match inbox.recv_timeout(Duration::from_secs(30)) {
                Ok(Message::StepFinished(key, next)) => self.step_finished(key, next),
                Ok(_) => {}
                Err(_) => {
                    tracing::warn!("a step of an environment did not end within 30 s; abandoned");
                    break;
                }
            }
        }
        // Cancels all before waiting for any: each may have slow handlers.
        let runners: Vec<Arc<Mutex<Runner>>> = self
            .slots
            .values()
            .filter(|slot| !slot.busy)
            .map(|slot| Arc::clone(&slot.runner))
            .collect();
        runners.iter().for_each(|runner| runner.lock().ignore_poison().cancel());
        let until = monotonic() + STOP_TIMEOUT;
        while monotonic() < until
            && runners.iter().any(|runner| runner.lock().ignore_poison().is_running())
        {
            std::thread::sleep(STOP_POLL_INTERVAL);
        }
        runners.iter().for_each(|runner| runner.lock().ignore_poison().stop_until(until));
    }
}

pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
