//! The supervisor: who needs attention, and when.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use orrery_model::Timestamp;
use orrery_store::{ChangeSeq, EnvironmentKey, StoreError};

use crate::app::App;

use super::held::HeldLeases;
use super::runner::{LOOK_EVERY, Next, Runner, STOP_WITHIN};
use super::{Message, ProcessOptions};

/// How the signs of life of the process role are called.
pub(super) const PULSE: &str = "process";
/// How often the change feed is read without a nudge: nudges may be lost.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// Changes that are read at once.
const CHANGES_MAX: usize = 5_000;
/// Environments that are attended to at once.
const POOL: usize = 4;

/// What an environment needs.
#[derive(Clone, Copy, Debug, Default)]
struct Need {
    /// Something about it may have changed in the store.
    look: bool,
    /// Its engine wants attention, or something is due.
    tick: bool,
}

struct Place {
    runner: Arc<Mutex<Runner>>,
    need: Need,
    /// Somebody of the pool is at it.
    busy: bool,
    due: Option<Timestamp>,
}

pub(super) struct Supervisor {
    app: App,
    options: Arc<ProcessOptions>,
    messages: Sender<Message>,
    places: BTreeMap<EnvironmentKey, Place>,
    /// Those that need something and are not busy, in the order in which they came to need it.
    waiting: VecDeque<EnvironmentKey>,
    busy: usize,
    timers: BTreeSet<(Timestamp, EnvironmentKey)>,
    seen: ChangeSeq,
    /// The feed could not be read; everything is looked at once it can be.
    lost: bool,
    held: Arc<HeldLeases>,
}

impl Supervisor {
    pub(super) fn new(
        app: App,
        options: ProcessOptions,
        messages: Sender<Message>,
        held: Arc<HeldLeases>,
    ) -> Self {
        Supervisor {
            app,
            options: Arc::new(options),
            messages,
            places: BTreeMap::new(),
            waiting: VecDeque::new(),
            busy: 0,
            timers: BTreeSet::new(),
            seen: ChangeSeq::default(),
            lost: true,
            held,
        }
    }

    pub(super) fn run(mut self, inbox: &Receiver<Message>) {
        let mut polled = Instant::now();
        self.poll();
        loop {
            let trouble = self.lost.then_some("it cannot read from the database what has changed");
            self.app.pulse().beat(PULSE, trouble);
            self.put_to_work();
            let pause = self.pause(polled + POLL_EVERY);
            match inbox.recv_timeout(pause) {
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(message) => {
                    let mut nudged = self.take(message);
                    // All that has gathered is one reason to look.
                    while let Ok(message) = inbox.try_recv() {
                        if matches!(message, Message::Stop) {
                            return self.stop(inbox);
                        }
                        nudged |= self.take(message);
                    }
                    if nudged {
                        self.poll();
                        polled = Instant::now();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if polled.elapsed() >= POLL_EVERY {
                self.poll();
                polled = Instant::now();
            }
            self.fire_timers();
        }
        self.stop(inbox);
    }

    /// How long there is nothing to do.
    fn pause(&self, poll_at: Instant) -> Duration {
        let poll = poll_at.saturating_duration_since(Instant::now());
        let due = self.timers.first().map(|(at, _)| at.since(self.app.now()));
        let next = due.map_or(poll, |due| due.min(poll));
        next.max(Duration::from_millis(1))
    }

    /// Takes a message in; whether it says that the store is worth reading.
    fn take(&mut self, message: Message) -> bool {
        match message {
            Message::Nudge => return true,
            Message::Attention(key) => self.need(key, Need { look: false, tick: true }),
            Message::Attended(key, next) => self.attended(key, next),
            Message::Stop => {}
        }
        false
    }

    fn need(&mut self, key: EnvironmentKey, need: Need) {
        let place = self.places.entry(key).or_insert_with(|| {
            let runner = Runner::new(
                self.app.clone(),
                Arc::clone(&self.options),
                self.messages.clone(),
                key,
            );
            self.held.add(key, runner.held());
            Place {
                runner: Arc::new(Mutex::new(runner)),
                need: Need::default(),
                busy: false,
                due: None,
            }
        });
        let idle = !place.busy && !place.need.look && !place.need.tick;
        place.need.look |= need.look;
        place.need.tick |= need.tick;
        if idle {
            self.waiting.push_back(key);
        }
    }

    /// Gives environments that need something to the pool.
    fn put_to_work(&mut self) {
        while self.busy < POOL
            && let Some(key) = self.waiting.pop_front()
        {
            let Some(place) = self.places.get_mut(&key) else { continue };
            let need = std::mem::take(&mut place.need);
            let (runner, messages) = (Arc::clone(&place.runner), self.messages.clone());
            let attend = move || {
                // Let go of before the answer: who gets it may want the runner at once.
                let next = own(&runner).attend(need.look);
                // A supervisor that is gone needs no answer.
                let _ = messages.send(Message::Attended(key, next));
            };
            let thread = std::thread::Builder::new().name("attend".to_owned());
            match thread.spawn(attend) {
                Ok(_) => {
                    place.busy = true;
                    self.busy += 1;
                }
                Err(error) => {
                    tracing::error!(%error, "no thread could be started for an environment");
                    place.need = need;
                    self.waiting.push_back(key);
                    return;
                }
            }
        }
    }

    fn attended(&mut self, key: EnvironmentKey, next: Next) {
        self.busy -= 1;
        let Some(place) = self.places.get_mut(&key) else { return };
        place.busy = false;
        if let Some(due) = place.due.take() {
            self.timers.remove(&(due, key));
        }
        match next {
            Next::Gone => {
                self.places.remove(&key);
                self.held.remove(key);
                return;
            }
            Next::At(at) => {
                place.due = Some(at);
                self.timers.insert((at, key));
            }
            Next::Nothing => {}
        }
        if place.need.look || place.need.tick {
            self.waiting.push_back(key);
        }
    }

    fn fire_timers(&mut self) {
        let now = self.app.now();
        while let Some(&(at, key)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            if let Some(place) = self.places.get_mut(&key) {
                place.due = None;
                // Whoever is not at work may be waiting for its turn, a lease or a database: it looks again. One that is being
                // attended to gets its next time after that.
                let look = !place.busy && !own(&place.runner).is_at_work();
                self.need(key, Need { look, tick: true });
            }
        }
    }

    /// Reads the change feed: whose environment changed is looked at.
    fn poll(&mut self) {
        match self.read_changes() {
            Ok(()) => self.lost = false,
            Err(error) => {
                if !self.lost {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "changes cannot be read"
                    );
                }
                self.lost = true;
            }
        }
    }

    fn read_changes(&mut self) -> Result<(), StoreError> {
        let store = Arc::clone(self.app.store());
        let records = store.records();
        if self.lost || records.oldest_change()? > ChangeSeq(self.seen.0 + 1) {
            self.seen = records.latest_change()?;
            for environment in records.list_environments(None)? {
                self.need(environment.key, Need { look: true, tick: false });
            }
            return Ok(());
        }
        loop {
            let changes = records.changes(self.seen, None, CHANGES_MAX)?;
            let Some(last) = changes.last() else { return Ok(()) };
            self.seen = last.seq;
            let more = changes.len() == CHANGES_MAX;
            let concerned = changes.iter().filter(|change| change.kind != "resources");
            let keys: BTreeSet<_> = concerned.filter_map(|change| change.environment).collect();
            for key in keys {
                self.need(key, Need { look: true, tick: false });
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Gives everything back.
    fn stop(mut self, inbox: &Receiver<Message>) {
        self.waiting.clear();
        self.app.pulse().end(PULSE);
        while self.busy > 0 {
            match inbox.recv_timeout(Duration::from_secs(30)) {
                Ok(Message::Attended(key, next)) => self.attended(key, next),
                Ok(_) => {}
                Err(_) => {
                    tracing::warn!("an environment is still being worked on; it is left behind");
                    break;
                }
            }
        }
        // All are cancelled before any is waited for: each may have handlers that take their time.
        let runners: Vec<Arc<Mutex<Runner>>> = self
            .places
            .values()
            .filter(|place| !place.busy)
            .map(|place| Arc::clone(&place.runner))
            .collect();
        runners.iter().for_each(|runner| own(runner).cancel());
        let until = Instant::now() + STOP_WITHIN;
        while Instant::now() < until && runners.iter().any(|runner| own(runner).is_running()) {
            std::thread::sleep(LOOK_EVERY);
        }
        runners.iter().for_each(|runner| own(runner).stop_until(until));
    }
}

fn own(runner: &Mutex<Runner>) -> MutexGuard<'_, Runner> {
    runner.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
