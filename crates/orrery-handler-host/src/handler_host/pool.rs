//! Process pool of a code set: assigns agents to processes, starts and restarts them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_handlers::{CancelToken, Context};
use orrery_model::LogLevel;
use serde::Deserialize;
use serde_json::Value;

use orrery_host::handshake::{HandshakeError, HostRole, HostSession, Init, ModuleProblem};
use orrery_host::process::HostCommand;

use super::HostLimits;
use super::callbacks::HandlerCallbacks;
use super::host::{BeginError, Host, HostLoss};
use super::operation::{OperationEnd, wait_for_operation};

/// Backoff after the first death of a process; doubles with each further one.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Maximum number of restarts of an operation after other operations broke its process.
const RETRIES_MAX: usize = 3;
/// Maximum number of processes for isolated operations.
const ISOLATED_MAX: usize = 8;
/// Poll interval for cancellation.
const POLL: Duration = Duration::from_millis(50);

/// Manifest of a handler host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct HandlerManifest {
    /// Entities with handlers.
    #[serde(default)]
    pub handlers: Vec<String>,
    #[serde(default)]
    pub problems: Vec<ModuleProblem>,
    /// True if the host needs the deployed version.
    #[serde(default)]
    pub versions: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    #[error(transparent)]
    HostSession(#[from] HandshakeError),
    #[error("no thread could be started for a host")]
    Thread(#[source] std::io::Error),
}

/// Hosts of one code set.
#[derive(Debug)]
pub struct HandlerHosts {
    command: HostCommand,
    init: Init,
    limits: HostLimits,
    services: HandlerCallbacks,
    slots: Vec<Mutex<ProcessSlot>>,
    /// Slot of each agent: fixed, since the host holds connections for the agent.
    agents: Mutex<HashMap<Box<str>, usize>>,
    /// Running operations of each process, by slot.
    busy: Vec<Semaphore>,
    /// Operations in processes of their own.
    isolated: Semaphore,
    closed: AtomicBool,
}

/// Counting semaphore.
#[derive(Debug, Default)]
struct Semaphore {
    taken: Mutex<usize>,
    ended: Condvar,
}

/// Slot for one process.
#[derive(Debug, Default)]
struct ProcessSlot {
    host: Option<StartedHost>,
    /// Deaths since the last success.
    deaths: u32,
    not_before: Option<Instant>,
    /// Last start error, until the next attempt.
    failure: Option<Arc<HostsError>>,
}

/// A started process with its manifest.
type StartedHost = (Arc<Host>, Arc<HandlerManifest>);

/// Result of an operation.
#[derive(Debug)]
pub(super) enum OperationResult {
    Ended(OperationEnd),
    /// No host is available; the reason.
    Unavailable(String),
    TooLong,
    Stopped,
}

impl HandlerHosts {
    /// Creates a pool; processes start when needed.
    pub fn new(
        mut command: HostCommand,
        mut init: Init,
        services: HandlerCallbacks,
        limits: HostLimits,
    ) -> Self {
        command.memory_max = limits.memory_max;
        init.role = HostRole::Handlers;
        HandlerHosts {
            command,
            init,
            services,
            slots: (0..limits.processes_max.max(1)).map(|_| Mutex::default()).collect(),
            agents: Mutex::default(),
            busy: (0..limits.processes_max.max(1)).map(|_| Semaphore::default()).collect(),
            isolated: Semaphore::default(),
            closed: AtomicBool::new(false),
            limits,
        }
    }

    /// Announces a newer version: handlers close caches of older ones, also for agents without
    /// work.
    pub fn begin_version(&self, version: u32) {
        for slot in &self.slots {
            let started = slot.lock().ignore_poison().host.clone();
            if let Some((host, manifest)) = started
                && manifest.versions
                && host.is_usable()
            {
                host.begin_version(version);
            }
        }
    }

    /// Ids of the running processes, for inspection.
    pub fn process_ids(&self) -> Vec<u32> {
        let pid = |slot: &Mutex<ProcessSlot>| {
            slot.lock().ignore_poison().host.as_ref().map(|(host, _)| host.pid())
        };
        self.slots.iter().filter_map(pid).collect()
    }

    /// Ends all processes after their operations, within a time limit.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let take = |slot: &Mutex<ProcessSlot>| {
            slot.lock().ignore_poison().host.take().map(|(host, _)| host)
        };
        let hosts: Vec<Arc<Host>> = self.slots.iter().filter_map(take).collect();
        hosts.iter().for_each(|host| host.begin_shutdown());
        let until = monotonic() + self.limits.shutdown_time_max;
        hosts.iter().for_each(|host| host.wait_for_end(until));
    }

    fn start(&self, name: &str) -> Result<StartedHost, HostsError> {
        let until = monotonic() + self.limits.start_time_max;
        let mut command = self.command.clone();
        command.name = format!("{} {name}", command.name);
        let left = || until.saturating_duration_since(monotonic());
        let mut session = HostSession::open(&command, left())?;
        let sent = session.writer.send(&self.init);
        sent.map_err(|error| {
            HandshakeError::Lost(orrery_host::handshake::LostHost::from_error(
                &session.process,
                &error,
            ))
        })?;
        let manifest: HandlerManifest = session.expect("loaded", left())?;
        for ModuleProblem { module, problems } in &manifest.problems {
            let problems = problems.join("; ");
            tracing::warn!(module, problems, "the code of a module could not be loaded");
        }
        tracing::debug!(host = command.name, pid = session.process.pid(), "a host was started");
        let host = Host::new(session, self.limits).map_err(HostsError::Thread)?;
        Ok((host, Arc::new(manifest)))
    }

    fn slot_of(&self, agent: &str) -> usize {
        let mut agents = self.agents.lock().ignore_poison();
        if let Some(slot) = agents.get(agent) {
            return *slot;
        }
        let slot = agents.len() % self.slots.len();
        agents.insert(agent.into(), slot);
        slot
    }

    /// Returns the process of a slot, started if missing. `None` if cancelled meanwhile.
    fn host_at(
        &self,
        at: usize,
        stop: &CancelToken,
    ) -> Option<Result<StartedHost, Arc<HostsError>>> {
        loop {
            let mut slot = self.slots[at].lock().ignore_poison();
            if let Some((host, manifest)) = &slot.host
                && host.is_usable()
            {
                return Some(Ok((Arc::clone(host), Arc::clone(manifest))));
            }
            if self.closed.load(Ordering::Acquire) {
                return None;
            }
            let now = monotonic();
            let pause = slot.not_before.map(|at| at.saturating_duration_since(now));
            if let Some(pause) = pause.filter(|pause| !pause.is_zero()) {
                if let Some(failure) = &slot.failure {
                    return Some(Err(Arc::clone(failure)));
                }
                drop(slot);
                if stop.sleep(pause).is_some() {
                    return None;
                }
                continue;
            }
            match self.start(&format!("{}", at + 1)) {
                Ok((host, manifest)) => {
                    slot.failure = None;
                    slot.host = Some((Arc::clone(&host), Arc::clone(&manifest)));
                    return Some(Ok((host, manifest)));
                }
                Err(error) => {
                    let error = Arc::new(error);
                    self.record_death(&mut slot);
                    slot.failure = Some(Arc::clone(&error));
                    return Some(Err(error));
                }
            }
        }
    }

    fn record_death(&self, slot: &mut ProcessSlot) {
        let pause = BACKOFF_MIN.saturating_mul(1 << slot.deaths.min(16));
        slot.deaths = slot.deaths.saturating_add(1);
        slot.not_before = Some(monotonic() + pause.min(self.limits.backoff_max));
        slot.host = None;
    }

    /// Records the loss of a process once, for any number of operations in it.
    fn record_loss(&self, at: usize, lost: &Arc<Host>) {
        let mut slot = self.slots[at].lock().ignore_poison();
        if slot.host.as_ref().is_some_and(|(host, _)| Arc::ptr_eq(host, lost)) {
            self.record_death(&mut slot);
        }
    }

    fn record_success(&self, at: usize) {
        let mut slot = self.slots[at].lock().ignore_poison();
        slot.deaths = 0;
        slot.not_before = None;
    }

    /// Runs an operation in its agent's process, and isolated if that process was lost while
    /// shared.
    pub(super) fn run_operation(
        &self,
        operation: &str,
        context: &mut Context<'_>,
    ) -> OperationResult {
        let id = context.id();
        let at = self.slot_of(id.agent());
        let limit = self.limits.operations_at_once();
        let Some(_slot) = self.busy[at].acquire(limit, context.cancel_token()) else {
            return OperationResult::Stopped;
        };
        for _ in 0..RETRIES_MAX {
            let (host, manifest) = match self.host_at(at, context.cancel_token()) {
                None => return OperationResult::Stopped,
                Some(Err(error)) => return OperationResult::Unavailable(error.to_string()),
                Some(Ok(found)) => found,
            };
            if let Some(reason) = manifest.missing_handler_reason(id.entity()) {
                return OperationResult::Unavailable(reason);
            }
            if context.cancel_token().reason().is_some() {
                return OperationResult::Stopped;
            }
            let handle = match host.begin(id.agent(), operation) {
                Ok(handle) => handle,
                Err(BeginError::Closing) => continue,
                Err(BeginError::TooLong) => return OperationResult::TooLong,
            };
            let end = wait_for_operation(&host, &handle, context, &self.services, &self.limits);
            let OperationEnd::Lost(loss) = &end else {
                self.record_success(at);
                return OperationResult::Ended(end);
            };
            self.record_loss(at, &host);
            // The effect of the lost process is unknown, and must not be repeated.
            if context.has_begun_effect() {
                return OperationResult::Ended(end);
            }
            if loss.blamed.is_some() {
                self.log_loss(context, loss, "another operation broke it; this one is restarted");
                continue;
            }
            if loss.in_flight <= 1 {
                return OperationResult::Ended(end);
            }
            self.log_loss(
                context,
                loss,
                "several operations ran in it; each is restarted in a process of its own",
            );
            break;
        }
        self.run_isolated(operation, context)
    }

    fn log_loss(&self, context: &mut Context<'_>, loss: &HostLoss, what: &str) {
        let message = format!("its process was lost: {}; {what}", loss.lost.reason);
        context.log(LogLevel::Info, message, [("operations", Value::from(loss.in_flight))]);
        context.mark_repeated();
    }

    /// Runs an operation in a process of its own.
    fn run_isolated(&self, operation: &str, context: &mut Context<'_>) -> OperationResult {
        let Some(_slot) = self.isolated.acquire(ISOLATED_MAX, context.cancel_token()) else {
            return OperationResult::Stopped;
        };
        let (host, _) = match self.start("alone") {
            Ok(found) => found,
            Err(error) => return OperationResult::Unavailable(error.to_string()),
        };
        if context.cancel_token().reason().is_some() {
            return OperationResult::Stopped;
        }
        let handle = match host.begin(context.id().agent(), operation) {
            Ok(handle) => handle,
            Err(BeginError::TooLong) => return OperationResult::TooLong,
            Err(BeginError::Closing) => {
                return OperationResult::Unavailable("its process ended at once".to_owned());
            }
        };
        let end = wait_for_operation(&host, &handle, context, &self.services, &self.limits);
        host.begin_shutdown();
        host.wait_for_end(monotonic() + self.limits.shutdown_time_max);
        OperationResult::Ended(end)
    }
}

impl Drop for HandlerHosts {
    fn drop(&mut self) {
        self.close();
    }
}

impl Semaphore {
    /// Waits for a permit below `limit`; `None` if cancelled meanwhile.
    fn acquire(&self, limit: usize, stop: &CancelToken) -> Option<SemaphorePermit<'_>> {
        let mut taken = self.taken.lock().ignore_poison();
        while *taken >= limit {
            if stop.reason().is_some() {
                return None;
            }
            let waited = self.ended.wait_timeout(taken, POLL);
            taken = waited.ignore_poison().0;
        }
        *taken += 1;
        Some(SemaphorePermit(self))
    }
}

/// A permit, released on drop.
struct SemaphorePermit<'a>(&'a Semaphore);

impl Drop for SemaphorePermit<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock().ignore_poison() -= 1;
        self.0.ended.notify_one();
    }
}

impl HandlerManifest {
    /// Returns the reason that an entity has no handler, if it has none.
    fn missing_handler_reason(&self, entity: &str) -> Option<String> {
        if self.handlers.iter().any(|one| one == entity) {
            return None;
        }
        let module = entity.split("::").next().unwrap_or(entity);
        let problem = self.problems.iter().find(|problem| problem.module == module);
        Some(match problem {
            Some(problem) => format!(
                "there is no handler for {entity}, since the code of the module {module} could not be loaded: {}",
                problem.problems.join("; ")
            ),
            None => format!("the code of the module {module} has no handler for {entity}"),
        })
    }
}
