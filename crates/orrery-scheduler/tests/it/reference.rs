//! The scheduler once more: slow, obvious, written from the description and not from the code. It keeps sets
//! and looks at everything after each step.

use std::collections::{BTreeMap, BTreeSet};

use orrery_model::{
    AttributeHash, Blocked, Compliance, Duration, HandlerRun, OutcomeStatus, ResourceFlags,
    ResourceState, Timestamp, VersionNumber,
};
use orrery_scheduler::{
    CancelReason, Filter, Interval, Priority, Reason, Settings, TaskResult, TimerKind,
};

use crate::world::{Model, id};

/// A resource as the reference sees it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) state: ResourceState,
    pub(crate) flags: ResourceFlags,
    pub(crate) requires: BTreeSet<String>,
    pub(crate) agent: String,
    pub(crate) dirty: bool,
    waits_for_bad: bool,
    /// Tells a resource from an earlier one of the same name.
    incarnation: u64,
    /// For timers of what never ran.
    idle_since: Timestamp,
}

/// Why a task exists, with the incarnation of whoever is named.
#[derive(Clone, Debug, PartialEq)]
enum Cause {
    Plain(Reason),
    Event(String, u64),
    Recovered(String, u64),
    RequirementScheduled(String, u64),
}

#[derive(Clone, Debug)]
struct Task {
    priority: Priority,
    number: u64,
    cause: Cause,
}

#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) name: String,
    pub(crate) priority: Priority,
    intent: AttributeHash,
    started_at: Timestamp,
    due: Option<Timestamp>,
    cancelled: Option<CancelReason>,
    /// Still works on what is wanted.
    pub(crate) latest: bool,
    /// Its resource is gone, or another one.
    pub(crate) detached: bool,
}

pub(crate) struct Reference {
    pub(crate) settings: Settings,
    pub(crate) known: BTreeMap<String, Known>,
    tasks: BTreeMap<String, Task>,
    /// By agent: there can be no second one.
    pub(crate) running: BTreeMap<String, Running>,
    pub(crate) paused: BTreeSet<String>,
    pub(crate) halted: bool,
    next_number: u64,
    next_incarnation: u64,
    now: Timestamp,
}

/// The order in which requests of one event are numbered: that of the indexes.
pub(crate) type Order<'a> = &'a dyn Fn(&str) -> u32;

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

    // What follows from what is known, worked out anew each time.

    fn is_blocked(&self, name: &str) -> bool {
        let known = &self.known[name];
        known.flags.undefined || known.requires.iter().any(|required| self.is_blocked(required))
    }

    fn is_bad(&self, name: &str) -> bool {
        self.known[name].state.last_run_compliant == Some(false)
    }

    fn has_bad_requirement(&self, name: &str) -> bool {
        self.known[name].requires.iter().any(|required| self.is_bad(required))
    }

    fn run_of(&self, name: &str) -> Option<&Running> {
        self.running.values().find(|run| run.name == name && !run.detached)
    }

    fn is_scheduled(&self, name: &str) -> bool {
        self.tasks.contains_key(name) || self.run_of(name).is_some_and(|run| run.latest)
    }

    fn dependents(&self, name: &str, order: Order) -> Vec<String> {
        let requires = |known: &Known| known.requires.contains(name);
        let mut names: Vec<String> = self
            .known
            .iter()
            .filter(|(_, known)| requires(known))
            .map(|(name, _)| name.clone())
            .collect();
        names.sort_by_key(|name| order(name));
        names
    }

    fn needs_deploy(&self, name: &str) -> bool {
        let state = &self.known[name].state;
        match state.compliance() {
            Some(Compliance::HasUpdate) => true,
            Some(Compliance::NonCompliant) => state.last_run != HandlerRun::Successful,
            _ => false,
        }
    }

    /// What the task of a resource waits for; `None` without a task.
    pub(crate) fn waiting_on(&self, name: &str) -> Option<BTreeSet<String>> {
        self.tasks.get(name)?;
        let requires = self.known[name].requires.iter();
        Some(requires.filter(|required| self.is_scheduled(required)).cloned().collect())
    }

    /// The ready tasks of an agent in their order.
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

    fn reason(&self, cause: &Cause) -> Reason {
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

    /// The state as it is kept, with the blocked axis worked out.
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

    fn request_all(
        &mut self,
        mut names: Vec<String>,
        priority: Priority,
        reason: &Reason,
        order: Order,
    ) {
        names.sort_by_key(|name| order(name));
        for name in names {
            self.request(&name, priority, Cause::Plain(reason.clone()), false);
        }
    }

    fn request(&mut self, name: &str, priority: Priority, cause: Cause, again: bool) {
        if self.is_blocked(name) {
            return;
        }
        let runs_latest = self.run_of(name).is_some_and(|run| run.latest);
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
        if !runs_latest || again {
            self.add(name, priority, cause);
        }
    }

    fn add(&mut self, name: &str, priority: Priority, cause: Cause) {
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

    /// Starts what can start. Gives agent and resource of each.
    pub(crate) fn dispatch(&mut self) -> BTreeMap<String, String> {
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
        let wanted = |name: &String| {
            let agents = filter.agents.as_ref();
            let ids = filter.ids.as_ref();
            agents.is_none_or(|agents| agents.iter().any(|one| **one == *self.known[name].agent))
                && ids.is_none_or(|ids| ids.contains(&id(name)))
        };
        self.known.keys().filter(|name| wanted(name)).cloned().collect()
    }

    pub(crate) fn deploy(&mut self, filter: &Filter, order: Order) {
        let mut names = self.matching(filter);
        names.retain(|name| {
            let known = &self.known[name];
            known.dirty || (known.waits_for_bad && filter.ids.is_some())
        });
        self.unpark(&names);
        self.request_all(names, Priority::UserDeploy, &Reason::UserDeploy, order);
    }

    pub(crate) fn repair(&mut self, filter: &Filter, order: Order) {
        let mut names = self.matching(filter);
        names.retain(|name| !self.is_blocked(name));
        for name in &names {
            let known = self.known.get_mut(name).unwrap();
            known.dirty = !known.waits_for_bad;
        }
        self.unpark(&names);
        self.request_all(names, Priority::UserRepair, &Reason::UserRepair, order);
    }

    fn unpark(&mut self, names: &[String]) {
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
        self.settings = settings;
        if same {
            return;
        }
        for known in self.known.values_mut() {
            known.idle_since = self.now;
        }
    }

    // Time.

    pub(crate) fn tick(&mut self, order: Order, agent_order: Order) {
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
        due.sort_by(|one, other| (one.0, one.1).cmp(&(other.0, other.1)));
        for (_, _, name, kind) in due {
            let attempts = self.known[&name].state.attempts;
            let (priority, reason) = match kind {
                TimerKind::Retry => (Priority::IntervalDeploy, Reason::Retry { attempts }),
                TimerKind::Repair => (Priority::IntervalRepair, Reason::RepairInterval),
            };
            self.request(&name, priority, Cause::Plain(reason), false);
        }
    }

    // Results.

    pub(crate) fn finish(&mut self, agent: &str, result: TaskResult, order: Order) {
        let run = self.running.remove(agent).unwrap();
        if run.detached {
            return;
        }
        let name = run.name.clone();
        let was_bad = self.is_bad(&name);
        let stale = {
            let known = &self.known[&name];
            known.state.intent != Some(run.intent) || known.flags.undefined
        };
        let verdict = match result {
            TaskResult::Finished(status) => Some(status),
            TaskResult::Cancelled if run.cancelled == Some(CancelReason::Deadline) => {
                Some(OutcomeStatus::Failed)
            }
            TaskResult::Cancelled => None,
        };
        match verdict {
            Some(status) => self.take_verdict(&run, status, stale),
            None => {
                let known = self.known.get_mut(&name).unwrap();
                known.state.last_run_at = Some(self.now);
                self.forget_verdict(&name);
                if self.halted || run.cancelled == Some(CancelReason::Halt) {
                    self.request(&name, run.priority, Cause::Plain(Reason::Interrupted), false);
                }
            }
        }
        let incarnation = self.known[&name].incarnation;
        if was_bad && !self.is_bad(&name) {
            for dependent in self.dependents(&name, order) {
                if self.known[&dependent].waits_for_bad && !self.has_bad_requirement(&dependent) {
                    let known = self.known.get_mut(&dependent).unwrap();
                    (known.waits_for_bad, known.dirty) = (false, true);
                    let cause = Cause::Recovered(name.clone(), incarnation);
                    self.request(&dependent, run.priority, cause, false);
                }
            }
        }
        if verdict.is_some() && !stale && self.known[&name].flags.send_event {
            for dependent in self.dependents(&name, order) {
                let known = &self.known[&dependent];
                if known.flags.receive_events && !known.waits_for_bad {
                    let cause = Cause::Event(name.clone(), incarnation);
                    self.request(&dependent, run.priority, cause, true);
                }
            }
        }
    }

    fn take_verdict(&mut self, run: &Running, status: OutcomeStatus, stale: bool) {
        let good = status == OutcomeStatus::Deployed;
        let known = self.known.get_mut(&run.name).unwrap();
        let state = &mut known.state;
        state.last_run = HandlerRun::from(status);
        state.last_run_compliant = Some(good);
        state.last_outcome = Some(status);
        state.last_run_at = Some(self.now);
        state.last_deployed = Some(run.intent);
        if stale {
            return;
        }
        match state.last_run {
            HandlerRun::Failed => {
                state.attempts += 1;
                if self.settings.retry.attempts_max.is_some_and(|limit| state.attempts >= limit) {
                    state.parked = true;
                }
            }
            HandlerRun::Successful => (state.attempts, state.parked) = (0, false),
            HandlerRun::Skipped | HandlerRun::New => {}
        }
        if good {
            state.last_success = Some(run.started_at);
        }
        if known.flags.send_event {
            state.last_produced_events = Some(self.now);
        }
        if self.is_blocked(&run.name) {
            return;
        }
        let waits =
            status == OutcomeStatus::SkippedForDependency && self.has_bad_requirement(&run.name);
        let dirty = !waits && self.needs_deploy(&run.name);
        let known = self.known.get_mut(&run.name).unwrap();
        (known.waits_for_bad, known.dirty) = (waits, dirty);
    }

    fn forget_verdict(&mut self, name: &str) {
        let known = self.known.get_mut(name).unwrap();
        known.state.last_deployed = None;
        known.state.last_run_compliant = None;
        known.state.last_outcome = None;
        known.waits_for_bad = false;
        let dirty = !self.is_blocked(name) && self.needs_deploy(name);
        self.known.get_mut(name).unwrap().dirty = dirty;
    }

    // Versions and restarts.

    /// Versions, oldest first, of which the last is wanted.
    pub(crate) fn versions(&mut self, versions: &[(u32, Vec<Model>)], order: Order) {
        let Some((number, last)) = versions.last() else {
            return;
        };
        let was_blocked: BTreeSet<String> =
            self.known.keys().filter(|name| self.is_blocked(name)).cloned().collect();
        let names = |models: &[Model]| -> BTreeSet<String> {
            models.iter().map(|model| model.name.clone()).collect()
        };
        let mut kept: BTreeSet<String> = self.known.keys().cloned().collect();
        for (_, models) in versions {
            kept = kept.intersection(&names(models)).cloned().collect();
        }
        for name in self.known.keys().cloned().collect::<Vec<_>>() {
            if !kept.contains(&name) {
                self.tasks.remove(&name);
                self.known.remove(&name);
                for run in self.running.values_mut().filter(|run| run.name == name) {
                    run.detached = true;
                }
            }
        }
        let mut changed = BTreeSet::new();
        for model in last {
            if self.take_model(model) {
                changed.insert(model.name.clone());
            }
        }
        for name in self.known.keys().cloned().collect::<Vec<_>>() {
            if self.is_blocked(&name) {
                self.tasks.remove(&name);
                let known = self.known.get_mut(&name).unwrap();
                (known.dirty, known.waits_for_bad) = (false, false);
            } else if was_blocked.contains(&name) || changed.contains(&name) {
                let dirty = self.needs_deploy(&name);
                self.known.get_mut(&name).unwrap().dirty = dirty;
            } else if self.known[&name].waits_for_bad && !self.has_bad_requirement(&name) {
                let known = self.known.get_mut(&name).unwrap();
                (known.dirty, known.waits_for_bad) = (true, false);
            }
        }
        let reason = Reason::NewVersion(VersionNumber(*number));
        self.request_all(self.dirty_names(), Priority::NewVersion, &reason, order);
    }

    /// Dirty and not parked.
    fn dirty_names(&self) -> Vec<String> {
        let wanted = |known: &Known| known.dirty && !known.state.parked;
        self.known.iter().filter(|(_, known)| wanted(known)).map(|(name, _)| name.clone()).collect()
    }

    /// Says whether what is wanted is new.
    fn take_model(&mut self, model: &Model) -> bool {
        let intent = model.intent();
        let requires: BTreeSet<String> = model.requires.iter().cloned().collect();
        let Some(known) = self.known.get_mut(&model.name) else {
            self.next_incarnation += 1;
            let known = Known {
                state: ResourceState::new(intent.hash, intent.flags.undefined),
                flags: intent.flags,
                requires,
                agent: intent.id.agent().to_owned(),
                dirty: false,
                waits_for_bad: false,
                incarnation: self.next_incarnation,
                idle_since: self.now,
            };
            self.known.insert(model.name.clone(), known);
            return true;
        };
        known.requires = requires;
        let same = known.state.intent == Some(intent.hash)
            && known.state.undefined == intent.flags.undefined;
        known.flags = intent.flags;
        if same {
            return false;
        }
        let state = &mut known.state;
        (state.intent, state.undefined) = (Some(intent.hash), intent.flags.undefined);
        (state.attempts, state.parked) = (0, false);
        if state.last_deployed == state.intent {
            state.last_deployed = None;
        }
        known.waits_for_bad = false;
        for run in self.running.values_mut().filter(|run| run.name == model.name && !run.detached) {
            run.latest = false;
        }
        true
    }

    pub(crate) fn restart(&mut self, reset: bool, newer: &[(u32, Vec<Model>)], order: Order) {
        let cut_off: Vec<String> =
            self.running.values().filter(|run| !run.detached).map(|run| run.name.clone()).collect();
        self.running.clear();
        self.tasks.clear();
        for name in cut_off {
            // The wait is judged below, by what is known after the cut.
            let waits = self.known[&name].waits_for_bad;
            self.forget_verdict(&name);
            self.known.get_mut(&name).unwrap().waits_for_bad = waits;
        }
        for name in self.known.keys().cloned().collect::<Vec<_>>() {
            if reset {
                let known = self.known.get_mut(&name).unwrap();
                let intent = known.state.intent.unwrap();
                known.state = ResourceState::new(intent, known.flags.undefined);
            }
        }
        for name in self.known.keys().cloned().collect::<Vec<_>>() {
            let compliance = self.known[&name].state.compliance();
            let blocked = self.is_blocked(&name);
            let waits = self.known[&name].waits_for_bad
                && !blocked
                && compliance == Some(Compliance::NonCompliant)
                && self.has_bad_requirement(&name);
            let unheard =
                compliance == Some(Compliance::Compliant) && self.has_unheard_event(&name);
            let dirty = !blocked && !waits && (self.needs_deploy(&name) || unheard);
            let now = self.now;
            let known = self.known.get_mut(&name).unwrap();
            (known.waits_for_bad, known.dirty, known.idle_since) = (waits, dirty, now);
        }
        if newer.is_empty() {
            self.request_all(self.dirty_names(), Priority::IntervalDeploy, &Reason::Restart, order);
        } else {
            self.versions(newer, order);
        }
    }

    fn has_unheard_event(&self, name: &str) -> bool {
        let known = &self.known[name];
        known.flags.receive_events
            && known.requires.iter().any(|required| {
                let sender = &self.known[required];
                sender.flags.send_event
                    && sender.state.last_produced_events > known.state.last_success
            })
    }
}

impl Running {
    fn cancel(&mut self, reason: CancelReason, now: Timestamp, grace: Duration) {
        if self.cancelled.is_none() {
            self.cancelled = Some(reason);
            self.due = Some(now + grace);
        }
    }
}
