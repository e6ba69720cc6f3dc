//! The engine: threads around the core.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use orrery_handlers::{Contents, Permit, Registry, Secrets};
use orrery_model::{LogLevel, OutcomeStatus};
use orrery_scheduler::{Event, Scheduler, Settings};
use orrery_store::{Lease, Store, StoreError};

use crate::asked::Ticket;
use crate::begun::BegunNotes;
use crate::core::Core;
use crate::job::{JobKind, Workshop, perform};
use crate::load::{Desired, Start};
use crate::long::LONG;
use crate::pool::{Pool, Threads};
use crate::progress::{Progress, Tally};
use crate::room::{Hiring, Room, SLOW, Workers};
use crate::targets::Targets;
use crate::writer::{self, WriterState};

/// When so much waits to be written, workers wait too.
const WRITES_MAX: usize = 100_000;
/// After so long without a job, a worker ends.
const STAY_FOR: Duration = Duration::from_secs(2);
/// Runs that take long are noted at most so often.
const OVERSEE_EVERY: Duration = Duration::from_millis(100);

/// What an engine needs from outside.
pub struct Setup {
    pub registry: Arc<Registry>,
    pub targets: Arc<dyn Targets>,
    pub contents: Arc<dyn Contents>,
    /// Where the values of references come from.
    pub secrets: Arc<dyn Secrets>,
    pub settings: Settings,
    /// How many handlers may run at once.
    pub workers: Workers,
    /// Lines of handlers below it are not kept.
    pub log_level: LogLevel,
    /// Where results are kept; `None` for dry runs, which leave nothing behind.
    pub keeper: Option<Keeper>,
    /// Who wants to hear of things, for engines that nobody waits for. Called from any thread, under no lock; it must
    /// not wait.
    pub listener: Option<Listener>,
}

pub type Listener = Arc<dyn Fn(Notice) + Send + Sync>;

/// What a listener hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// All is done that can be, a request has ended, the time of the next tick moved, or writing failed.
    Attention,
    /// Results were kept.
    Written,
    /// A handler was run to bring a resource to what is wanted.
    Ran { outcome: OutcomeStatus, took: Duration },
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup").field("workers", &self.workers).finish_non_exhaustive()
    }
}

/// A store, and the right to write to it.
#[derive(Clone)]
pub struct Keeper {
    pub store: Arc<dyn Store>,
    pub lease: Lease,
    /// How long this process may act under the lease, by its own clock: without it nothing is begun, and what runs is cancelled.
    pub permit: Permit,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").field("lease", &self.lease).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("results could not be kept")]
    Store(#[from] StoreError),
    #[error("no thread could be started")]
    Thread(#[source] std::io::Error),
}

/// What all threads share.
pub(crate) struct Shared {
    core: Mutex<Core>,
    pub(crate) workshop: Workshop,
    pool: Pool,
    /// There are jobs.
    work: Condvar,
    /// There is something to be written.
    pub(crate) written: Condvar,
    /// There is room for more of that.
    pub(crate) space: Condvar,
    /// Something happened that whoever watches wants to know.
    watch: Condvar,
    /// Something is held up for want of room, or the engine ends: nobody has to watch for long runs any more.
    oversight: Condvar,
    targets: Arc<dyn Targets>,
    listener: Option<Listener>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        // A panic below the lock is a defect of this crate; what is kept stays readable.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn notify(&self, notice: Notice) {
        if let Some(listener) = &self.listener {
            listener(notice);
        }
    }

    /// Sees to it that somebody writes. There is a thread for it only while there is something to do.
    fn wake_writer(self: &Arc<Self>, core: &mut Core) {
        if core.writer != WriterState::Absent {
            self.written.notify_one();
            return;
        }
        let Some(keeper) = self.workshop.keeper.clone() else { return };
        let (shared, targets) = (Arc::clone(self), Arc::clone(&self.targets));
        let thread = std::thread::Builder::new().name("writer".to_owned());
        match thread.spawn(move || writer::run(&shared, &keeper, &*targets)) {
            Ok(thread) => {
                core.writer = WriterState::Waits;
                *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
            }
            // The next result tries again.
            Err(error) => tracing::error!(%error, "no thread could be started to keep results"),
        }
    }

    pub(crate) fn wake_everybody(&self) {
        self.work.notify_all();
        self.written.notify_all();
        self.space.notify_all();
        self.watch.notify_all();
        self.oversight.notify_all();
    }

    /// Sees to it that room is made for what slow runs hold up, and that runs which take long are noted. There is a thread
    /// for it only while there is a reason, and one for all of it.
    fn oversee(self: &Arc<Self>, core: &mut Core) {
        let is_tight = core.is_tight();
        if core.overseen {
            if is_tight && !std::mem::replace(&mut core.alarmed, true) {
                self.oversight.notify_one();
            }
            return;
        }
        if !is_tight && (self.workshop.keeper.is_none() || !core.may_take_long()) {
            return;
        }
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name("overseer".to_owned());
        match thread.spawn(move || oversee(&shared)) {
            Ok(thread) => {
                core.overseen = true;
                self.pool.lock().add(thread);
            }
            // The next job tries again.
            Err(error) => tracing::warn!(%error, "nobody looks after slow runs"),
        }
    }
}

/// Looks now and then at what runs. It waits before it notes anything: most runs are over by then, and a note for each would
/// cost more than they do.
fn oversee(shared: &Arc<Shared>) {
    let mut core = shared.lock();
    let mut note_after = Some(LONG);
    while !core.closed {
        core.make_room();
        hire(shared, core.hiring());
        core.alarmed = core.is_tight();
        let note = note_after.map(|after| after.max(OVERSEE_EVERY));
        let look = core.alarmed.then_some(SLOW);
        let Some(pause) = [note, look].into_iter().flatten().min() else { break };
        let waited = shared.oversight.wait_timeout(core, pause);
        core = waited.unwrap_or_else(PoisonError::into_inner).0;
        note_after = core.note_long_runs();
        if !core.writes.is_empty() && !core.closed {
            shared.wake_writer(&mut core);
        }
    }
    core.overseen = false;
}

/// A running engine.
pub struct Engine {
    shared: Arc<Shared>,
}

impl Engine {
    /// Starts from what the store knows. Work begins after the first events were taken in, so that what they ask
    /// for and what is due anyway are one.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(setup: Setup, start: Start, first: Vec<Event>) -> Result<Self, EngineError> {
        let begun = Self::begin(setup, start, |engine| {
            first.into_iter().for_each(|event| engine.tell(event));
        });
        begun.map(|(engine, ())| engine)
    }

    /// The same, and what it is told first is answered for.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start_asked(
        setup: Setup,
        start: Start,
        asked: Vec<Event>,
    ) -> Result<(Self, Vec<Ticket>), EngineError> {
        Self::begin(setup, start, |engine| {
            asked.into_iter().map(|event| engine.ask(event)).collect()
        })
    }

    fn begin<T>(
        setup: Setup,
        start: Start,
        tell: impl FnOnce(&Self) -> T,
    ) -> Result<(Self, T), EngineError> {
        let Start { desired, mut recovery, former, states, unknown } = start;
        let engine = Engine::idle(setup, desired)?;
        engine.shared.lock().unknown = unknown;
        let stays_halted = std::mem::replace(&mut recovery.halted, true);
        engine.shared.lock().begin(recovery, &former, &states);
        let told = tell(&engine);
        if !stays_halted {
            engine.tell(Event::Resume);
        }
        Ok((engine, told))
    }

    /// An engine that knows what is wanted, but manages nothing: for dry runs.
    pub(crate) fn idle(setup: Setup, desired: Desired) -> Result<Self, EngineError> {
        let Setup {
            registry,
            targets,
            contents,
            secrets,
            mut settings,
            workers,
            log_level,
            keeper,
            listener,
        } = setup;
        let workers = match settings.running_max {
            Some(limit) => workers.at_most(usize::try_from(limit).unwrap_or(usize::MAX)),
            None => workers,
        };
        let room = Room::new(workers);
        settings.running_max = room.limit();
        let scheduler = Scheduler::new(settings);
        let permit = keeper.as_ref().map(|keeper| keeper.permit.clone());
        let core = Core::new(scheduler, desired, Arc::clone(&targets), room, permit);
        let shared = Arc::new(Shared {
            core: Mutex::new(core),
            workshop: Workshop {
                registry: RwLock::new(registry),
                contents,
                secrets,
                log_level,
                keeper,
                begun: BegunNotes::default(),
            },
            pool: Pool::default(),
            work: Condvar::new(),
            written: Condvar::new(),
            space: Condvar::new(),
            watch: Condvar::new(),
            oversight: Condvar::new(),
            targets,
            listener,
            writer: Mutex::default(),
        });
        Ok(Engine { shared })
    }

    /// Tells the engine something: a request, a pause, settings.
    pub fn tell(&self, event: Event) {
        self.shared.lock().take_in(event);
        self.set_to_work();
    }

    /// Looks at the scheduler.
    pub fn with_scheduler<T>(&self, look: impl FnOnce(&Scheduler) -> T) -> T {
        look(&self.shared.lock().scheduler)
    }

    /// Waits until all is done that can be, or for `limit`, and says how far it is. Time passes for the
    /// scheduler only while somebody waits here.
    pub fn wait(&self, limit: Duration) -> Progress {
        let until = std::time::Instant::now() + limit;
        let mut core = self.shared.lock();
        let progress = loop {
            core.tick_if_due();
            let left = until.saturating_duration_since(std::time::Instant::now());
            let progress_due = core.scheduler.is_idle() || core.failure.is_some() || left.is_zero();
            if progress_due {
                break core.look();
            }
            // Under the lock: whoever ends the last job now would wake nobody.
            hire(&self.shared, core.hiring());
            self.shared.oversee(&mut core);
            if !core.writes.is_empty() {
                self.shared.wake_writer(&mut core);
            }
            let due = core.wake_at.map(|at| at.since(crate::job::now()));
            let pause = due.map_or(left, |due| left.min(due)).max(Duration::from_millis(1));
            let waited = self.shared.watch.wait_timeout(core, pause);
            core = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(core);
        self.set_to_work();
        progress
    }

    /// Why writing failed, if it did: the engine then does nothing any more.
    pub fn has_failed(&self) -> bool {
        self.shared.lock().failure.is_some()
    }

    /// Whether the right to act ended: the engine then does nothing any more.
    pub fn is_unauthorized(&self) -> bool {
        self.shared.lock().is_unauthorized
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn with_core<T>(&self, work: impl FnOnce(&mut Core) -> T) -> T {
        work(&mut self.shared.lock())
    }

    /// Ends the engine after everything that it knows is written. Handlers that still run are not waited for.
    ///
    /// # Errors
    /// If something could not be kept.
    pub fn finish(mut self) -> Result<Tally, EngineError> {
        self.close();
        let mut core = self.shared.lock();
        match core.failure.take() {
            Some(error) => Err(error.into()),
            None => Ok(core.tally()),
        }
    }

    fn close(&mut self) {
        {
            let mut core = self.shared.lock();
            if !core.writes.is_empty() && core.failure.is_none() {
                self.shared.wake_writer(&mut core);
            }
            core.closed = true;
        }
        self.shared.wake_everybody();
        let writer = self.shared.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer
            && writer.join().is_err()
        {
            tracing::error!("the writer crashed");
        }
        self.shared.pool.wait_until_gone();
    }

    /// Wakes or makes workers for the jobs that wait.
    pub(crate) fn set_to_work(&self) {
        let mut core = self.shared.lock();
        if !core.writes.is_empty() {
            self.shared.wake_writer(&mut core);
        }
        self.shared.oversee(&mut core);
        let hiring = core.hiring();
        drop(core);
        hire(&self.shared, hiring);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}

/// Sees to it that there are workers for the jobs that wait, within bounds.
fn hire(shared: &Arc<Shared>, Hiring { jobs, limit }: Hiring) {
    if jobs == 0 {
        return;
    }
    let mut state = shared.pool.lock();
    for _ in 0..jobs.min(state.idle) {
        shared.work.notify_one();
    }
    let mut missing = jobs.saturating_sub(state.idle);
    while missing > 0 && state.workers < limit {
        let shared = Arc::clone(shared);
        let thread = std::thread::Builder::new().name("worker".to_owned());
        match thread.spawn(move || work(&shared)) {
            Ok(thread) => {
                state.workers += 1;
                state.add(thread);
            }
            Err(error) => {
                tracing::warn!(%error, "no further worker could be started");
                return;
            }
        }
        missing -= 1;
    }
}

/// The life of a worker.
fn work(shared: &Arc<Shared>) {
    let count = |change: fn(&mut Threads)| change(&mut shared.pool.lock());
    let mut core = shared.lock();
    loop {
        if core.closed {
            break;
        }
        let Some(job) = core.jobs.pop_front() else {
            count(|pool| pool.idle += 1);
            let waited = shared.work.wait_timeout(core, STAY_FOR);
            let (lock, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            core = lock;
            count(|pool| pool.idle -= 1);
            if timeout.timed_out() && core.jobs.is_empty() {
                break;
            }
            continue;
        };
        if core.permit.as_ref().is_some_and(Permit::is_over) {
            // What was recorded of finished runs may still be kept, as long as the store takes it.
            core.is_unauthorized = true;
            core.closed = true;
            // The job in hand, and those that nobody has yet, are not begun.
            core.underway.remove(&job.task);
            core.drop_jobs();
            if !core.writes.is_empty() {
                shared.wake_writer(&mut core);
            }
            drop(core);
            shared.wake_everybody();
            shared.notify(Notice::Attention);
            core = shared.lock();
            continue;
        }
        let place = core.place_of(&job);
        shared.oversee(&mut core);
        let hiring = core.hiring();
        drop(core);
        hire(shared, hiring);
        let began = Instant::now();
        count(|pool| pool.busy += 1);
        let (performed, effect) = perform(&job, &place, &shared.workshop);
        count(|pool| pool.busy -= 1);
        if job.kind == JobKind::Deploy && job.skip.is_none() {
            let outcome = performed.outcome.status;
            shared.notify(Notice::Ran { outcome, took: began.elapsed() });
        }
        core = shared.lock();
        core.job_ended(job, performed, effect);
        if core.must_wake_writer() {
            shared.wake_writer(&mut core);
        }
        if core.scheduler.is_idle() {
            shared.watch.notify_all();
        }
        let wants_attention = core.scheduler.is_idle()
            || core.wake_moved
            || !core.parked.is_empty()
            || !core.became_unknown.is_empty()
            || core.requests.has_answers(core.kept);
        if shared.listener.is_some() && wants_attention {
            core.wake_moved = false;
            drop(core);
            shared.notify(Notice::Attention);
            core = shared.lock();
        }
        while core.writes.len() > WRITES_MAX && !core.closed {
            core = shared.space.wait(core).unwrap_or_else(PoisonError::into_inner);
        }
    }
    // Under the lock: whoever has a job after this must find that there is one worker less.
    count(|pool| pool.workers -= 1);
    drop(core);
}
