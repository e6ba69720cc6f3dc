//! The processes that serve a set of code: which agent has which, when they are started, and what is done after
//! one of them died.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use orrery_handlers::{Context, Stop};
use orrery_model::LogLevel;
use serde::Deserialize;
use serde_json::Value;

use crate::process::HostCommand;
use crate::session::{Init, ModuleProblem, Role, Session, SessionError};

use super::Limits;
use super::host::{Host, Loss, NotBegun};
use super::operation::{End, follow};
use super::services::Services;

/// The pause after the first death of a process; it doubles with each further one.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// How often an operation is begun anew because others broke their process.
const INNOCENT_TRIES_MAX: usize = 3;
/// Processes for single operations at the same time.
const ALONE_MAX: usize = 8;
/// How often it is looked whether somebody has cancelled.
const POLL: Duration = Duration::from_millis(50);

/// What a host for handlers says about its modules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Manifest {
    /// The entities that it has handlers for.
    #[serde(default)]
    pub handlers: Vec<String>,
    #[serde(default)]
    pub problems: Vec<ModuleProblem>,
    /// It wants to be told which version is deployed.
    #[serde(default)]
    pub versions: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("no thread could be started for a host")]
    Thread(#[source] std::io::Error),
}

/// The hosts of one set of code.
#[derive(Debug)]
pub struct HandlerHosts {
    command: HostCommand,
    init: Init,
    limits: Limits,
    services: Services,
    places: Vec<Mutex<Place>>,
    /// Which place an agent has: always the same, since the host keeps connections for it.
    agents: Mutex<HashMap<Box<str>, usize>>,
    /// How many operations each process has, by place.
    busy: Vec<Slots>,
    /// How many operations run in a process of their own.
    alone: Slots,
    closed: AtomicBool,
}

/// How many operations run that share a limit.
#[derive(Debug, Default)]
struct Slots {
    taken: Mutex<usize>,
    ended: Condvar,
}

/// Room for one process.
#[derive(Debug, Default)]
struct Place {
    host: Option<Started>,
    /// Deaths since something last went well.
    deaths: u32,
    not_before: Option<Instant>,
    /// Why it could not be started, until it is tried again.
    failure: Option<Arc<HostsError>>,
}

/// A process that was started, and what it said about its modules.
type Started = (Arc<Host>, Arc<Manifest>);

/// What came of an operation.
#[derive(Debug)]
pub(super) enum Performed {
    Ended(End),
    /// There is no host that could do it, and why.
    Unavailable(String),
    TooLong,
    Stopped,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HandlerHosts {
    /// Nothing is started before it is needed.
    pub fn new(
        mut command: HostCommand,
        mut init: Init,
        services: Services,
        limits: Limits,
    ) -> Self {
        command.memory_max = limits.memory_max;
        init.role = Role::Handlers;
        HandlerHosts {
            command,
            init,
            services,
            places: (0..limits.processes_max.max(1)).map(|_| Mutex::default()).collect(),
            agents: Mutex::default(),
            busy: (0..limits.processes_max.max(1)).map(|_| Slots::default()).collect(),
            alone: Slots::default(),
            closed: AtomicBool::new(false),
            limits,
        }
    }

    /// A newer version is deployed from now on: what handlers keep for older ones is closed, also for agents that it has nothing to do
    /// for.
    pub fn begin_version(&self, version: u32) {
        for place in &self.places {
            let started = lock(place).host.clone();
            if let Some((host, manifest)) = started
                && manifest.versions
                && host.is_usable()
            {
                host.begin_version(version);
            }
        }
    }

    /// Processes that run now, for whoever wants to look at them.
    pub fn process_ids(&self) -> Vec<u32> {
        let pid = |place: &Mutex<Place>| lock(place).host.as_ref().map(|(host, _)| host.pid());
        self.places.iter().filter_map(pid).collect()
    }

    /// Ends all processes when they have done what they do, and does not wait for ever.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let take = |place: &Mutex<Place>| lock(place).host.take().map(|(host, _)| host);
        let hosts: Vec<Arc<Host>> = self.places.iter().filter_map(take).collect();
        hosts.iter().for_each(|host| host.begin_shutdown());
        let until = Instant::now() + self.limits.shutdown_time_max;
        hosts.iter().for_each(|host| host.wait_for_end(until));
    }

    fn start(&self, name: &str) -> Result<Started, HostsError> {
        let until = Instant::now() + self.limits.start_time_max;
        let mut command = self.command.clone();
        command.name = format!("{} {name}", command.name);
        let left = || until.saturating_duration_since(Instant::now());
        let mut session = Session::open(&command, left())?;
        let sent = session.writer.send(&self.init);
        sent.map_err(|error| {
            SessionError::Lost(crate::session::Lost::after(&session.process, &error))
        })?;
        let manifest: Manifest = session.expect("loaded", left())?;
        for ModuleProblem { module, problems } in &manifest.problems {
            let problems = problems.join("; ");
            tracing::warn!(module, problems, "the code of a module could not be loaded");
        }
        tracing::debug!(host = command.name, pid = session.process.pid(), "a host was started");
        let host = Host::new(session, self.limits).map_err(HostsError::Thread)?;
        Ok((host, Arc::new(manifest)))
    }

    fn place_of(&self, agent: &str) -> usize {
        let mut agents = lock(&self.agents);
        if let Some(place) = agents.get(agent) {
            return *place;
        }
        let place = agents.len() % self.places.len();
        agents.insert(agent.into(), place);
        place
    }

    /// The process of a place; starts it if there is none. `None` if it was stopped meanwhile.
    fn host_at(&self, at: usize, stop: &Stop) -> Option<Result<Started, Arc<HostsError>>> {
        loop {
            let mut place = lock(&self.places[at]);
            if let Some((host, manifest)) = &place.host
                && host.is_usable()
            {
                return Some(Ok((Arc::clone(host), Arc::clone(manifest))));
            }
            if self.closed.load(Ordering::Acquire) {
                return None;
            }
            let now = Instant::now();
            let pause = place.not_before.map(|at| at.saturating_duration_since(now));
            if let Some(pause) = pause.filter(|pause| !pause.is_zero()) {
                if let Some(failure) = &place.failure {
                    return Some(Err(Arc::clone(failure)));
                }
                drop(place);
                if stop.sleep(pause).is_some() {
                    return None;
                }
                continue;
            }
            match self.start(&format!("{}", at + 1)) {
                Ok((host, manifest)) => {
                    place.failure = None;
                    place.host = Some((Arc::clone(&host), Arc::clone(&manifest)));
                    return Some(Ok((host, manifest)));
                }
                Err(error) => {
                    let error = Arc::new(error);
                    self.note_death(&mut place);
                    place.failure = Some(Arc::clone(&error));
                    return Some(Err(error));
                }
            }
        }
    }

    fn note_death(&self, place: &mut Place) {
        let pause = BACKOFF_MIN.saturating_mul(1 << place.deaths.min(16));
        place.deaths = place.deaths.saturating_add(1);
        place.not_before = Some(Instant::now() + pause.min(self.limits.backoff_max));
        place.host = None;
    }

    /// A process was lost; it counts once, however many were in it.
    fn note_loss(&self, at: usize, lost: &Arc<Host>) {
        let mut place = lock(&self.places[at]);
        if place.host.as_ref().is_some_and(|(host, _)| Arc::ptr_eq(host, lost)) {
            self.note_death(&mut place);
        }
    }

    fn note_success(&self, at: usize) {
        let mut place = lock(&self.places[at]);
        place.deaths = 0;
        place.not_before = None;
    }

    /// Does an operation: in the process of its agent, and if that was lost while others used it too, alone.
    pub(super) fn perform(&self, operation: &str, context: &mut Context<'_>) -> Performed {
        let id = context.id();
        let at = self.place_of(id.agent());
        let limit = self.limits.operations_at_once();
        let Some(_slot) = self.busy[at].take(limit, context.stop()) else {
            return Performed::Stopped;
        };
        for _ in 0..INNOCENT_TRIES_MAX {
            let (host, manifest) = match self.host_at(at, context.stop()) {
                None => return Performed::Stopped,
                Some(Err(error)) => return Performed::Unavailable(error.to_string()),
                Some(Ok(found)) => found,
            };
            if let Some(reason) = manifest.lacks(id.entity()) {
                return Performed::Unavailable(reason);
            }
            if context.stop().reason().is_some() {
                return Performed::Stopped;
            }
            let ticket = match host.begin(id.agent(), operation) {
                Ok(ticket) => ticket,
                Err(NotBegun::Closing) => continue,
                Err(NotBegun::TooLong) => return Performed::TooLong,
            };
            let end = follow(&host, &ticket, context, &self.services, &self.limits);
            let End::Lost(loss) = &end else {
                self.note_success(at);
                return Performed::Ended(end);
            };
            self.note_loss(at, &host);
            // What the lost process did is not known, and must not be done twice.
            if context.has_begun_effect() {
                return Performed::Ended(end);
            }
            if loss.blamed.is_some() {
                self.log_loss(context, loss, "another operation broke it; this one is begun anew");
                continue;
            }
            if loss.in_flight <= 1 {
                return Performed::Ended(end);
            }
            self.log_loss(context, loss, "several operations ran in it; each is begun anew, alone");
            break;
        }
        self.perform_alone(operation, context)
    }

    fn log_loss(&self, context: &mut Context<'_>, loss: &Loss, what: &str) {
        let message = format!("its process was lost: {}; {what}", loss.lost.reason);
        context.log(LogLevel::Info, message, [("operations", Value::from(loss.in_flight))]);
        context.note_repetition();
    }

    /// Does an operation in a process of its own.
    fn perform_alone(&self, operation: &str, context: &mut Context<'_>) -> Performed {
        let Some(_slot) = self.alone.take(ALONE_MAX, context.stop()) else {
            return Performed::Stopped;
        };
        let (host, _) = match self.start("alone") {
            Ok(found) => found,
            Err(error) => return Performed::Unavailable(error.to_string()),
        };
        if context.stop().reason().is_some() {
            return Performed::Stopped;
        }
        let ticket = match host.begin(context.id().agent(), operation) {
            Ok(ticket) => ticket,
            Err(NotBegun::TooLong) => return Performed::TooLong,
            Err(NotBegun::Closing) => {
                return Performed::Unavailable("its process ended at once".to_owned());
            }
        };
        let end = follow(&host, &ticket, context, &self.services, &self.limits);
        host.begin_shutdown();
        host.wait_for_end(Instant::now() + self.limits.shutdown_time_max);
        Performed::Ended(end)
    }
}

impl Drop for HandlerHosts {
    fn drop(&mut self) {
        self.close();
    }
}

impl Slots {
    /// Waits until there are fewer than `limit`; `None` if it was stopped meanwhile.
    fn take(&self, limit: usize, stop: &Stop) -> Option<Slot<'_>> {
        let mut taken = lock(&self.taken);
        while *taken >= limit {
            if stop.reason().is_some() {
                return None;
            }
            let waited = self.ended.wait_timeout(taken, POLL);
            taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *taken += 1;
        Some(Slot(self))
    }
}

/// One of them, until it is dropped.
struct Slot<'a>(&'a Slots);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *lock(&self.0.taken) -= 1;
        self.0.ended.notify_one();
    }
}

impl Manifest {
    /// Why there is no handler for an entity, if there is none.
    fn lacks(&self, entity: &str) -> Option<String> {
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
