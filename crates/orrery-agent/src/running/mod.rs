//! Carries commands out: takes them in or says why not, runs handlers on a bounded number of threads, and keeps what they came to before it is told.
//!
//! ```text
//! session ──command──► intake ──► queue ──► workers ──► answering ──► journal, then session
//! ```

mod answering;
mod intake;
mod work;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use orrery_executor::Performed;
use orrery_handlers::{Registry, Session, Stop, Target};
use orrery_model::{Resource, ResourceId};
use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

use crate::journal::Journal;
use crate::protocol::{Command, FromAgent};

/// How much an agent takes on.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// So many handlers run at once.
    pub running_max: usize,
    /// So many commands wait beside them.
    pub queued_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { running_max: 64, queued_max: 256 }
    }
}

/// Whose commands are carried out, and with what.
pub struct Setup {
    pub environment: Uuid,
    /// The agent names that are served.
    pub names: Vec<String>,
    pub registry: Registry,
    pub target: Arc<dyn Target>,
    pub journal: Journal,
    pub limits: Limits,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("environment", &self.environment).finish_non_exhaustive()
    }
}

/// A command that was taken in.
#[derive(Debug)]
struct Item {
    command: Command,
    resource: Resource,
    stop: Stop,
    /// It had begun before, in a process that ended.
    repeated: bool,
}

impl Item {
    fn id(&self) -> Uuid {
        self.command.id
    }
}

#[derive(Default)]
struct State {
    /// Those that wait, in the order of their coming.
    queue: VecDeque<Arc<Item>>,
    /// Those that wait, run, or are about to be answered.
    underway: BTreeMap<Uuid, Arc<Item>>,
    /// What handlers run for: nothing else may begin there.
    occupied: BTreeSet<ResourceId>,
    /// Those that wait for their change to be noted, and whether it is.
    announcing: BTreeMap<Uuid, bool>,
    ended: Vec<(Arc<Item>, Performed)>,
    workers: usize,
    idle: usize,
    closed: bool,
}

struct Shared {
    environment: Uuid,
    names: Vec<String>,
    registry: Registry,
    target: Arc<dyn Target>,
    limits: Limits,
    /// One command after the other is taken in, whatever session it comes from.
    intake: Mutex<()>,
    state: Mutex<State>,
    journal: Mutex<Journal>,
    /// What was learned about the machine, and since when.
    learned: Mutex<(Instant, Arc<Session>)>,
    /// Where answers go while there is a session.
    outbox: Mutex<Option<UnboundedSender<FromAgent>>>,
    /// There are commands, or a resource is free again.
    work: Condvar,
    /// Changes were noted.
    noted: Condvar,
    /// There is something to answer, or there was.
    ended: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic below a lock is a defect of this crate; what is kept stays readable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Without a session nothing is told: the gateway asks again.
    fn say(&self, message: FromAgent) {
        if let Some(outbox) = &*lock(&self.outbox) {
            // A session that has just ended is no session.
            let _ = outbox.send(message);
        }
    }

    /// Asks commands to end. Those that still wait are answered at once.
    fn cancel(&self, is_meant: impl Fn(&Item) -> bool) {
        {
            let mut state = lock(&self.state);
            let State { queue, underway, ended, .. } = &mut *state;
            underway.values().filter(|item| is_meant(item)).for_each(|item| item.stop.cancel());
            queue.retain(|item| {
                let meant = is_meant(item);
                if meant {
                    ended.push((Arc::clone(item), answering::never_begun()));
                }
                !meant
            });
        }
        self.noted.notify_all();
        self.ended.notify_all();
    }
}

/// Carries commands out until it is closed.
#[derive(Clone)]
pub struct Runner(Arc<Shared>);

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Runner")
    }
}

impl Runner {
    /// # Errors
    /// If no thread can be started.
    pub fn start(setup: Setup) -> io::Result<Self> {
        let Setup { environment, names, registry, target, journal, limits } = setup;
        let shared = Arc::new(Shared {
            environment,
            names,
            registry,
            target,
            limits,
            intake: Mutex::default(),
            state: Mutex::default(),
            journal: Mutex::new(journal),
            learned: Mutex::new((Instant::now(), Arc::default())),
            outbox: Mutex::default(),
            work: Condvar::new(),
            noted: Condvar::new(),
            ended: Condvar::new(),
        });
        let answering = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("answering".to_owned());
        thread.spawn(move || answering.answer())?;
        Ok(Runner(shared))
    }

    /// From now on answers go there. What ended without a session is not told again by itself.
    pub fn attach(&self, outbox: UnboundedSender<FromAgent>) {
        *lock(&self.0.outbox) = Some(outbox);
    }

    pub fn detach(&self) {
        *lock(&self.0.outbox) = None;
    }

    /// Takes a command in, or says why not. It waits for the disk, and for nothing else.
    pub fn command(&self, command: Command) {
        self.0.take(command);
    }

    /// Asks a command to end.
    pub fn cancel(&self, id: Uuid) {
        self.0.cancel(|item| item.id() == id);
    }

    /// The change that a command is about to make is noted.
    pub fn announced(&self, id: Uuid) {
        if let Some(noted) = lock(&self.0.state).announcing.get_mut(&id) {
            *noted = true;
        }
        self.0.noted.notify_all();
    }

    /// Commands that wait or run.
    pub fn underway(&self) -> Vec<Uuid> {
        lock(&self.0.state).underway.keys().copied().collect()
    }

    /// Takes nothing new in.
    pub fn close(&self) {
        lock(&self.0.state).closed = true;
        self.0.work.notify_all();
        self.0.ended.notify_all();
    }

    pub fn cancel_all(&self) {
        self.0.cancel(|_| true);
    }

    /// Waits until everything that was taken in is answered; whether it is.
    pub fn wait(&self, limit: Duration) -> bool {
        let state = lock(&self.0.state);
        let waited =
            self.0.ended.wait_timeout_while(state, limit, |state| !state.underway.is_empty());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.underway.is_empty()
    }
}
