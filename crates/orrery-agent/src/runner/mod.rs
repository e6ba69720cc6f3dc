//! Executes commands: admits or rejects them, runs handlers on a bounded number of threads, and
//! persists results before it sends them.
//!
//! ```text
//! session ──command──► admission ──► queue ──► workers ──► results ──► journal, then session
//! ```

mod admission;
mod calls;
mod results;
mod workers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_base::thread::spawn_named;
use orrery_handlers::drift::FileWatch;
use orrery_handlers::run::RunOutcome;
use orrery_handlers::{CancelToken, Registry, Target, TargetCache, WorkerPool};
use orrery_model::{Resource, ResourceId};
use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

use self::calls::PendingCall;
use crate::code_runner::CodeRunner;
use crate::journal::Journal;
use crate::policy::Policy;
use crate::policy_target::PolicyTarget;
use crate::protocol::{CallReply, Command, Drift, FromAgent};

/// Limits of an agent.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum of concurrent handlers.
    pub running_max: usize,
    /// Maximum of queued commands.
    pub queued_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { running_max: 64, queued_max: 256 }
    }
}

/// Commands that a runner accepts.
#[derive(Clone, Debug)]
pub enum CommandScope {
    /// Those of one environment for these agent names.
    Agents { environment: Uuid, names: Vec<String> },
    /// All: the sender started this process for itself.
    All,
}

/// Configuration of a runner.
pub struct RunnerSetup {
    pub scope: CommandScope,
    pub registry: Registry,
    pub target: Arc<dyn Target>,
    /// Watch of the target's files, to report drift.
    pub watch: Option<Arc<FileWatch>>,
    /// Limits what commands may do; `None` allows everything.
    pub policy: Option<Arc<Policy>>,
    /// Record of commands for senders that repeat them; `None` if they do not.
    pub journal: Option<Journal>,
    pub limits: Limits,
    /// Runner of Python handlers; `None` to run native ones only.
    pub code_runner: Option<Arc<dyn CodeRunner>>,
}

impl fmt::Debug for RunnerSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunnerSetup").field("scope", &self.scope).finish_non_exhaustive()
    }
}

/// An admitted command.
#[derive(Debug)]
struct QueuedCommand {
    command: Command,
    resource: Resource,
    stop: CancelToken,
    /// Started before, in a process that ended.
    repeated: bool,
}

impl QueuedCommand {
    fn id(&self) -> Uuid {
        self.command.id
    }
}

#[derive(Default)]
struct State {
    /// Queued commands, in order of arrival.
    queue: VecDeque<Arc<QueuedCommand>>,
    /// Commands that are queued, running, or about to be reported.
    active_commands: BTreeMap<Uuid, Arc<QueuedCommand>>,
    /// Resources with a running handler; no other command may start on them.
    busy_resources: BTreeSet<ResourceId>,
    /// Commands that wait for the record of their change; true once recorded.
    announcing: BTreeMap<Uuid, bool>,
    /// Calls that wait for a reply, by command and number.
    calls: BTreeMap<(Uuid, u64), PendingCall>,
    last_call: u64,
    ended: Vec<(Arc<QueuedCommand>, RunOutcome)>,
    closed: bool,
}

struct Shared {
    scope: CommandScope,
    registry: Registry,
    target: Arc<dyn Target>,
    policy: Option<Arc<Policy>>,
    watch: Option<Arc<FileWatch>>,
    limits: Limits,
    code_runner: Option<Arc<dyn CodeRunner>>,
    /// Serializes admission across sessions.
    admission: Mutex<()>,
    state: Mutex<State>,
    journal: Option<Mutex<Journal>>,
    pool: WorkerPool,
    /// Cached data about the machine, and the time of its creation.
    target_cache: Mutex<(Instant, Arc<TargetCache>)>,
    /// Channel for results while a session exists.
    outbox: Mutex<Option<UnboundedSender<FromAgent>>>,
    /// Starts of changes were recorded, or calls were answered.
    change_recorded: Condvar,
    /// A result is available, or was sent.
    ended: Condvar,
}

impl Shared {
    /// Sends a message. Without a session it is dropped: the gateway asks again.
    fn send(&self, message: FromAgent) {
        if let Some(outbox) = &*self.outbox.lock().ignore_poison() {
            // A session that just ended counts as none.
            let _ = outbox.send(message);
        }
    }

    /// Cancels commands. Queued ones end at once.
    fn cancel(&self, selects: impl Fn(&QueuedCommand) -> bool) {
        {
            let mut state = self.state.lock().ignore_poison();
            let State { queue, active_commands, ended, .. } = &mut *state;
            active_commands
                .values()
                .filter(|queued| selects(queued))
                .for_each(|queued| queued.stop.cancel());
            queue.retain(|queued| {
                let selected = selects(queued);
                if selected {
                    ended.push((Arc::clone(queued), results::cancelled_outcome()));
                }
                !selected
            });
        }
        self.change_recorded.notify_all();
        self.ended.notify_all();
    }
}

/// Sends a report of drift; returns true if there is a session.
fn send_drift(shared: &Weak<Shared>, resources: &[ResourceId]) -> bool {
    let Some(shared) = shared.upgrade() else { return false };
    let outbox = shared.outbox.lock().ignore_poison();
    let drift = Drift { resources: resources.to_vec(), unwatched: false };
    outbox.as_ref().is_some_and(|outbox| outbox.send(FromAgent::Drift(drift)).is_ok())
}

/// Executes commands until it is closed.
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
    pub fn start(setup: RunnerSetup) -> io::Result<Self> {
        let RunnerSetup { scope, registry, target, watch, policy, journal, limits, code_runner } =
            setup;
        let target = match &policy {
            Some(policy) => Arc::new(PolicyTarget::new(target, Arc::clone(policy))),
            None => target,
        };
        let shared = Arc::new(Shared {
            scope,
            registry,
            target,
            policy,
            watch,
            limits,
            code_runner,
            admission: Mutex::default(),
            state: Mutex::default(),
            journal: journal.map(Mutex::new),
            pool: WorkerPool::new(workers::IDLE_TIMEOUT),
            target_cache: Mutex::new((monotonic(), Arc::default())),
            outbox: Mutex::default(),
            change_recorded: Condvar::new(),
            ended: Condvar::new(),
        });
        let results = Arc::clone(&shared);
        spawn_named("results", move || results.result_loop())?;
        Ok(Runner(shared))
    }

    /// Sends results to this channel from now on. Results that ended without a session are not sent
    /// again.
    pub fn attach(&self, outbox: UnboundedSender<FromAgent>) {
        *self.0.outbox.lock().ignore_poison() = Some(outbox);
    }

    pub fn detach(&self) {
        *self.0.outbox.lock().ignore_poison() = None;
    }

    /// Reports drift from now on: the server of this session wants to know of it.
    pub fn report_drift(&self) {
        let Some(watch) = &self.0.watch else { return };
        let shared = Arc::downgrade(&self.0);
        watch.set_sink(Some(Box::new(move |resources| send_drift(&shared, resources))));
        if watch.is_empty() {
            self.0.send(FromAgent::Drift(Drift { unwatched: true, ..Drift::default() }));
        }
    }

    /// Admits or rejects a command. Blocks on disk writes only.
    pub fn command(&self, command: Command) {
        self.0.admit(command);
    }

    /// Cancels a command.
    pub fn cancel(&self, id: Uuid) {
        self.0.cancel(|queued| queued.id() == id);
    }

    /// Handles the server's confirmation that the start of a change is recorded.
    pub fn announced(&self, id: Uuid) {
        if let Some(noted) = self.0.state.lock().ignore_poison().announcing.get_mut(&id) {
            *noted = true;
        }
        self.0.change_recorded.notify_all();
    }

    /// Handles the server's reply to a call. One that nothing waits for is dropped.
    pub fn reply(&self, reply: CallReply) {
        self.0.receive_reply(reply);
    }

    /// Commands that are queued or running.
    pub fn active_commands(&self) -> Vec<Uuid> {
        self.0.state.lock().ignore_poison().active_commands.keys().copied().collect()
    }

    /// Stops admission.
    pub fn close(&self) {
        self.0.state.lock().ignore_poison().closed = true;
        self.0.pool.wake_all();
        self.0.ended.notify_all();
    }

    pub fn cancel_all(&self) {
        self.0.cancel(|_| true);
    }

    /// Waits until all admitted commands are reported; returns true if they are.
    pub fn wait(&self, limit: Duration) -> bool {
        let state = self.0.state.lock().ignore_poison();
        let waited = self
            .0
            .ended
            .wait_timeout_while(state, limit, |state| !state.active_commands.is_empty());
        let (state, _) = waited.ignore_poison();
        state.active_commands.is_empty()
    }
}
