//! Reference model of the scheduler: slow, obvious, written from the description and not from the
//! code. It holds plain sets and scans everything after each step.

use std::collections::{BTreeMap, BTreeSet};

use orrery_model::{
    AttributeHash, Blocked, Compliance, Duration, LastRunStatus, ResourceFlags, ResourceState,
    Timestamp,
};
use orrery_scheduler::{
    CancelReason, Filter, Interval, Priority, Reason, Settings, TaskResult, TimerKind,
};

use crate::world::id;

/// A resource of the reference model.
#[derive(Clone, Debug)]
pub(crate) struct ModelResource {
    pub(crate) state: ResourceState,
    pub(crate) flags: ResourceFlags,
    pub(crate) requires: BTreeSet<String>,
    pub(crate) agent: String,
    pub(crate) dirty: bool,
    pub(crate) waits_for_bad: bool,
    /// Distinguishes a resource from an earlier one of the same name.
    pub(crate) incarnation: u64,
    /// Start of the timers of a resource that never ran.
    pub(crate) idle_since: Timestamp,
}

/// Reason that a task exists, with the incarnation of the named resource.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cause {
    Plain(Reason),
    Event(String, u64),
    Recovered(String, u64),
    RequirementScheduled(String, u64),
}

#[derive(Clone, Debug)]
pub(crate) struct Task {
    priority: Priority,
    number: u64,
    cause: Cause,
}

#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) name: String,
    pub(crate) priority: Priority,
    pub(crate) intent: AttributeHash,
    pub(crate) started_at: Timestamp,
    pub(crate) due: Option<Timestamp>,
    pub(crate) cancelled: Option<CancelReason>,
    /// True while it runs the latest intent.
    pub(crate) latest: bool,
    /// True if its resource was removed or recreated.
    pub(crate) detached: bool,
}

pub(crate) struct Reference {
    pub(crate) settings: Settings,
    pub(crate) known: BTreeMap<String, ModelResource>,
    pub(crate) tasks: BTreeMap<String, Task>,
    /// At most one run for each agent.
    pub(crate) running: BTreeMap<String, Running>,
    pub(crate) paused: BTreeSet<String>,
    pub(crate) halted: bool,
    next_number: u64,
    pub(crate) next_incarnation: u64,
    pub(crate) now: Timestamp,
}

/// Order in which requests of one event are numbered: by index.
pub(crate) type RequestOrder<'a> = &'a dyn Fn(&str) -> u32;

impl Reference {
    pub(crate) fn new(settings: Settings) -> Self {
        Reference {
            settings,
            known: BTreeMap::new(),
            tasks: BTreeMap::new(),
            running: BTreeMap::new(),
            paused: BTreeSet::new(),
            halted: false,
            next_number: 0,
            next_incarnation: 0,
            now: Timestamp(0),
        }
    }

    pub(crate) fn at(&mut self, now: Timestamp) {
        self.now = now;
    }

    // Derived state, recomputed each time.

    pub(crate) fn is_blocked(&self, name: &str) -> bool {
        let known = &self.known[name];
        known.flags.undefined || known.requires.iter().any(|required| self.is_blocked(required))
    }

    pub(crate) fn is_bad(&self, name: &str) -> bool {
        self.known[name].state.last_run_compliant == Some(false)
    }

    pub(crate) fn has_bad_requirement(&self, name: &str) -> bool {
        self.known[name].requires.iter().any(|required| self.is_bad(required))
    }

    pub(crate) fn run_of(&self, name: &str) -> Option<&Running> {
        self.running.values().find(|run| run.name == name && !run.detached)
    }

    pub(crate) fn is_scheduled(&self, name: &str) -> bool {
        self.tasks.contains_key(name) || self.run_of(name).is_some_and(|run| run.latest)
    }

    pub(crate) fn dependents(&self, name: &str, order: RequestOrder) -> Vec<String> {
        let requires = |known: &ModelResource| known.requires.contains(name);
        let mut names: Vec<String> = self
            .known
            .iter()
            .filter(|(_, known)| requires(known))
            .map(|(name, _)| name.clone())
            .collect();
        names.sort_by_key(|name| order(name));
        names
    }

    pub(crate) fn needs_deploy(&self, name: &str) -> bool {
        let state = &self.known[name].state;
        match state.compliance() {
            Some(Compliance::HasUpdate) => true,
            Some(Compliance::NonCompliant) => state.last_run != LastRunStatus::Successful,
            _ => false,
        }
    }

    /// Returns the requirements that the resource's task waits for; `None` without a task.
    pub(crate) fn waiting_on(&self, name: &str) -> Option<BTreeSet<String>> {
        self.tasks.get(name)?;
        let requires = self.known[name].requires.iter();
        Some(requires.filter(|required| self.is_scheduled(required)).cloned().collect())
    }

    /// Returns the ready tasks of an agent in execution order.
    pub(crate) fn queue(&self, agent: &str) -> Vec<(String, Priority, Reason)> {
        let mut ready: Vec<(&String, &Task)> = self
            .tasks
            .iter()
            .filter(|(name, _)| self.known[*name].agent == agent)
            .filter(|(name, _)| self.waiting_on(name).is_some_and(|others| others.is_empty()))
            .collect();
        ready.sort_by_key(|(_, task)| (task.priority, task.number));
        ready
            .into_iter()
            .map(|(name, task)| (name.clone(), task.priority, self.reason(&task.cause)))
            .collect()
    }

    pub(crate) fn reason(&self, cause: &Cause) -> Reason {
        let named = |name: &str, incarnation: u64| {
            let known = self.known.get(name)?;
            (known.incarnation == incarnation).then(|| id(name))
        };
        match cause {
            Cause::Plain(reason) => reason.clone(),
            Cause::Event(name, number) => Reason::Event { from: named(name, *number) },
            Cause::Recovered(name, number) => {
                Reason::Recovered { requirement: named(name, *number) }
            }
            Cause::RequirementScheduled(name, number) => {
                Reason::RequirementScheduled { requirement: named(name, *number) }
            }
        }
    }

    pub(crate) fn timer(&self, name: &str) -> Option<(Timestamp, TimerKind)> {
        let known = &self.known[name];
        let busy = self.tasks.contains_key(name) || self.run_of(name).is_some();
        if busy || known.state.parked || self.is_blocked(name) {
            return None;
        }
        let base = known.state.last_run_at.unwrap_or(known.idle_since);
        let settled = known.waits_for_bad
            || (known.state.compliance() == Some(Compliance::Compliant) && !known.dirty);
        let mut choices = Vec::new();
        if let Interval::Every(interval) = self.settings.deploy_interval
            && !settled
        {
            let delay = self.settings.retry.delay_after(known.state.attempts, interval, 0, 0);
            choices.push((base + delay, TimerKind::Retry));
        }
        if let Interval::Every(interval) = self.settings.repair_interval {
            choices.push((base + interval, TimerKind::Repair));
        }
        choices.into_iter().min_by_key(|(at, _)| *at)
    }

    /// Returns the stored state with the derived `blocked` axis.
    pub(crate) fn state(&self, name: &str) -> ResourceState {
        let known = &self.known[name];
        let blocked = if self.is_blocked(name) {
            Blocked::Blocked
        } else if known.waits_for_bad {
            Blocked::TemporarilyBlocked
        } else {
            Blocked::NotBlocked
        };
        let deploying = self.run_of(name).is_some();
        ResourceState { blocked, deploying, ..known.state.clone() }
    }

    // Requests.

    pub(crate) fn request_all(
        &mut self,
        mut names: Vec<String>,
        priority: Priority,
        reason: &Reason,
        order: RequestOrder,
    ) {
        names.sort_by_key(|name| order(name));
        for name in names {
            self.request(&name, priority, Cause::Plain(reason.clone()), false);
        }
    }

    pub(crate) fn request(&mut self, name: &str, priority: Priority, cause: Cause, rerun: bool) {
        if self.is_blocked(name) {
            return;
        }
        let runs_latest = self.run_of(name).is_some_and(|run| run.latest);
        let cancelled =
            self.run_of(name).is_some_and(|run| run.cancelled == Some(CancelReason::User));
        if runs_latest {
            let run = self.running.values_mut().find(|run| run.name == name && !run.detached);
            let run = run.unwrap();
            run.priority = run.priority.min(priority);
        }
        if let Some(task) = self.tasks.get_mut(name) {
            if priority < task.priority {
                self.next_number += 1;
                *task = Task { priority, number: self.next_number, cause };
            }
            return;
        }
        if !runs_latest || rerun || cancelled {
            self.add(name, priority, cause);
        }
    }

    pub(crate) fn add(&mut self, name: &str, priority: Priority, cause: Cause) {
        let newly = !self.is_scheduled(name);
        self.next_number += 1;
        self.tasks.insert(name.to_owned(), Task { priority, number: self.next_number, cause });
        if !newly {
            return;
        }
        let incarnation = self.known[name].incarnation;
        let overtaken: Vec<(String, Priority)> = self
            .running
            .values()
            .filter(|run| run.latest && !run.detached && !self.tasks.contains_key(&run.name))
            .filter(|run| {
                self.known[&run.name].requires.contains(name) && !self.is_blocked(&run.name)
            })
            .map(|run| (run.name.clone(), run.priority))
            .collect();
        for (dependent, priority) in overtaken {
            let cause = Cause::RequirementScheduled(name.to_owned(), incarnation);
            self.add(&dependent, priority, cause);
        }
    }

    /// Raises requirements to the priority of waiting tasks, transitively.
    fn lift(&mut self) {
        loop {
            let waits = self.tasks.iter().flat_map(|(name, task)| {
                let requires = self.known[name].requires.iter();
                requires.map(|required| (required.clone(), task.priority))
            });
            let late = |(required, priority): &(String, Priority)| {
                self.tasks.get(required).is_some_and(|task| task.priority > *priority)
            };
            let Some((required, priority)) = waits.into_iter().find(late) else {
                return;
            };
            self.tasks.get_mut(&required).unwrap().priority = priority;
        }
    }

    /// Starts all startable tasks. Returns agent and resource of each.
    pub(crate) fn dispatch(&mut self) -> BTreeMap<String, String> {
        self.lift();
        let agents: BTreeSet<String> =
            self.known.values().map(|known| known.agent.clone()).collect();
        let mut started = BTreeMap::new();
        for agent in agents {
            if self.halted || self.paused.contains(&agent) || self.running.contains_key(&agent) {
                continue;
            }
            let Some((name, priority, _)) = self.queue(&agent).into_iter().next() else {
                continue;
            };
            started.insert(agent, (name, priority));
        }
        for (agent, (name, priority)) in &started {
            self.tasks.remove(name);
            let run = Running {
                name: name.clone(),
                priority: *priority,
                intent: self.known[name].state.intent.unwrap(),
                started_at: self.now,
                due: self.settings.task_time_max.map(|time| self.now + time),
                cancelled: None,
                latest: true,
                detached: false,
            };
            self.running.insert(agent.clone(), run);
        }
        started.into_iter().map(|(agent, (name, _))| (agent, name)).collect()
    }

    pub(crate) fn matching(&self, filter: &Filter) -> Vec<String> {
        let desired_states = |name: &String| {
            let agents = filter.agents.as_ref();
            let ids = filter.ids.as_ref();
            agents.is_none_or(|agents| agents.iter().any(|one| **one == *self.known[name].agent))
                && ids.is_none_or(|ids| ids.contains(&id(name)))
        };
        self.known.keys().filter(|name| desired_states(name)).cloned().collect()
    }

    pub(crate) fn deploy(&mut self, filter: &Filter, order: RequestOrder) {
        let mut names = self.matching(filter);
        names.retain(|name| {
            let known = &self.known[name];
            known.dirty || (known.waits_for_bad && filter.ids.is_some())
        });
        self.unpark(&names);
        self.request_all(names, Priority::UserDeployDirty, &Reason::UserDeployDirty, order);
    }

    /// With `since`: resources deployed since then are done.
    pub(crate) fn repair(
        &mut self,
        filter: &Filter,
        since: Option<Timestamp>,
        order: RequestOrder,
    ) {
        let mut names = self.matching(filter);
        names.retain(|name| !self.is_blocked(name));
        if let Some(since) = since {
            let done = |known: &ModelResource| {
                !known.dirty && known.state.last_success.is_some_and(|last| last >= since)
            };
            names.retain(|name| !done(&self.known[name]));
        }
        self.unpark(&names);
        self.request_all(names, Priority::UserVerify, &Reason::UserVerify, order);
    }

    pub(crate) fn unpark(&mut self, names: &[String]) {
        for name in names {
            let state = &mut self.known.get_mut(name).unwrap().state;
            if state.parked {
                (state.parked, state.attempts) = (false, 0);
            }
        }
    }

    pub(crate) fn cancel(&mut self, filter: &Filter) {
        let grace = self.settings.cancel_time_max;
        for name in self.matching(filter) {
            if self.tasks.remove(&name).is_some() {
                self.known.get_mut(&name).unwrap().idle_since = self.now;
            }
            for run in self.running.values_mut().filter(|run| run.name == name && !run.detached) {
                run.cancel(CancelReason::User, self.now, grace);
            }
        }
    }

    pub(crate) fn halt(&mut self) {
        self.halted = true;
        for run in self.running.values_mut() {
            run.cancel(CancelReason::Halt, self.now, self.settings.cancel_time_max);
        }
    }

    pub(crate) fn change_settings(&mut self, settings: Settings) {
        let same = settings == self.settings;
        let limit = settings.retry.attempts_max;
        if let Some(limit) = limit.filter(|_| limit != self.settings.retry.attempts_max) {
            let is_busy = |name: &String| {
                self.tasks.contains_key(name) || self.running.values().any(|run| run.name == *name)
            };
            let idle: BTreeSet<String> =
                self.known.keys().filter(|name| !is_busy(name)).cloned().collect();
            for (_, known) in self.known.iter_mut().filter(|(name, _)| idle.contains(*name)) {
                let state = &mut known.state;
                state.parked |= state.last_run == LastRunStatus::Failed && state.attempts >= limit;
            }
        }
        self.settings = settings;
        if same {
            return;
        }
        for known in self.known.values_mut() {
            known.idle_since = self.now;
        }
    }

    // Time.

    pub(crate) fn tick(&mut self, order: RequestOrder, agent_order: RequestOrder) {
        let mut overdue: Vec<(Timestamp, u32, String)> = self
            .running
            .iter()
            .filter_map(|(agent, run)| Some((run.due?, agent_order(agent), agent.clone())))
            .filter(|(due, _, _)| *due <= self.now)
            .collect();
        overdue.sort();
        for (_, _, agent) in overdue {
            let run = self.running.get_mut(&agent).unwrap();
            if run.cancelled.is_none() {
                run.cancel(CancelReason::Deadline, self.now, self.settings.cancel_time_max);
            } else {
                self.finish(&agent, TaskResult::Cancelled, order);
            }
        }
        if self.halted {
            return;
        }
        let mut due: Vec<(Timestamp, u32, String, TimerKind)> = self
            .known
            .keys()
            .filter_map(|name| {
                let (at, kind) = self.timer(name)?;
                (at <= self.now).then(|| (at, order(name), name.clone(), kind))
            })
            .collect();
        due.sort_by_key(|(at, index, _, _)| (*at, *index));
        for (_, _, name, kind) in due {
            let attempts = self.known[&name].state.attempts;
            let (priority, reason) = match kind {
                TimerKind::Retry => (Priority::IntervalDeploy, Reason::Retry { attempts }),
                TimerKind::Repair => (Priority::IntervalRepair, Reason::RepairInterval),
            };
            self.request(&name, priority, Cause::Plain(reason), false);
        }
    }
}

impl Running {
    pub(crate) fn cancel(&mut self, reason: CancelReason, now: Timestamp, grace: Duration) {
        if self.cancelled.is_none() {
            self.cancelled = Some(reason);
            self.due = Some(now + grace);
        }
    }
}
