//! Which tasks exist, and which of them must wait.
//!
//! A resource is *scheduled* while it has a task that waits or is ready, or runs its latest intent. The deploy
//! task of a resource counts the direct requirements that are scheduled, and is ready when there are
//! none. So all that matters are the moments at which a resource begins or ceases to be scheduled, and
//! the edges that come and go.

use orrery_model::{Blocked, Compliance, HandlerRun, Timestamp};

use crate::command::{CancelReason, Priority};
use crate::edges::NONE;
use crate::queue::{Cause, Kind, Place, Task};
use crate::scheduler::Scheduler;

/// Whether a request may run a resource once more that already runs its latest intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// Events: what the running handler has read may be out of date.
    Always,
    /// Everything else: the running handler does what is asked for, unless somebody has cancelled it.
    IfStale,
}

impl Scheduler {
    /// Asks for a deploy of these resources, in the order of their slots.
    pub(crate) fn request_all(
        &mut self,
        mut slots: Vec<u32>,
        priority: Priority,
        cause: Cause,
        now: Timestamp,
    ) {
        slots.sort_unstable();
        for slot in slots {
            self.request(slot, priority, cause, Again::IfStale, now);
        }
    }

    /// Asks for a deploy of one resource. A stronger request replaces a weaker one; a weaker or equal one
    /// changes nothing.
    pub(crate) fn request(
        &mut self,
        slot: u32,
        priority: Priority,
        cause: Cause,
        again: Again,
        now: Timestamp,
    ) {
        let record = &self.resources[slot];
        if record.undeployable {
            return;
        }
        if record.running_latest {
            self.raise_running(slot, priority);
        }
        let record = &self.resources[slot];
        if record.task != NONE {
            self.raise_queued(record.task, priority, cause, now);
        } else if !record.running_latest || again == Again::Always || self.is_called_off(slot) {
            self.add_task(slot, priority, cause, now);
        }
    }

    /// Whether somebody has cancelled the run of this resource, which has not ended yet.
    fn is_called_off(&self, slot: u32) -> bool {
        let run = self.runs.get(self.queues.agent(self.resources[slot].agent).run);
        run.is_some_and(|run| run.cancelled == Some(CancelReason::User))
    }

    /// A raise is a new request: it goes to the end of its new class, with the new reason.
    fn raise_queued(&mut self, task: u32, priority: Priority, cause: Cause, now: Timestamp) {
        if self.queues[task].priority <= priority {
            return;
        }
        let ready = self.queues[task].place != Place::Waiting;
        self.queues.defer(task);
        let number = self.take_request_number();
        let entry = &mut self.queues[task];
        (entry.priority, entry.cause, entry.number) = (priority, cause, number);
        entry.requested_at = now;
        let kind = entry.kind;
        if ready {
            self.make_ready(task);
        } else if let Kind::Deploy { slot } = kind {
            self.lifting.push(slot);
        }
    }

    /// The events of a running task inherit its priority.
    fn raise_running(&mut self, slot: u32, priority: Priority) {
        let run = self.queues.agent(self.resources[slot].agent).run;
        if let Some(run) = self.runs.get_mut(run) {
            run.priority = run.priority.min(priority);
        }
    }

    pub(crate) fn take_request_number(&mut self) -> u64 {
        self.next_request += 1;
        self.next_request
    }

    pub(crate) fn make_ready(&mut self, task: u32) {
        self.queues.make_ready(task);
        self.wake(self.queues[task].agent);
    }

    fn add_task(&mut self, slot: u32, priority: Priority, cause: Cause, now: Timestamp) {
        let number = self.take_request_number();
        let agent = self.resources[slot].agent;
        let mut waiting_on = 0;
        let mut is_held_up = false;
        for requirement in self.edges.requirements(slot) {
            let required = &self.resources[requirement];
            if required.is_scheduled() {
                waiting_on += 1;
                is_held_up |= self.is_less_urgent(required.task, priority);
            }
        }
        if is_held_up {
            self.lifting.push(slot);
        }
        let mut task = Task::new(Kind::Deploy { slot }, cause, priority, agent, number, now);
        task.waiting_on = waiting_on;
        let task = self.queues.insert(task);
        self.disarm(slot);
        let was_scheduled = self.resources[slot].is_scheduled();
        self.resources[slot].task = task;
        if waiting_on == 0 {
            self.make_ready(task);
        }
        if was_scheduled {
            self.note_urgent_dependents(slot, priority);
        } else {
            self.became_scheduled(slot, now);
        }
    }

    /// Whether this is a task, and would be taken after one of the given priority.
    fn is_less_urgent(&self, task: u32, than: Priority) -> bool {
        task != NONE && self.queues[task].priority > than
    }

    /// Dependents that wait for this one already, and more urgently than it was asked for.
    fn note_urgent_dependents(&mut self, slot: u32, priority: Priority) {
        let mut at = self.edges.first_dependent(slot);
        while let Some((dependent, next)) = self.edges.dependent_at(at) {
            at = next;
            let task = self.resources[dependent].task;
            if task != NONE && self.queues[task].priority < priority {
                self.lifting.push(dependent);
            }
        }
    }

    /// What an urgent task waits for becomes as urgent as it: a release would otherwise wait for the rest of a
    /// repair in which something that it requires has its turn late. Who is lifted keeps its reason and its
    /// number, and so comes before what was asked for later.
    pub(crate) fn lift_requirements(&mut self) {
        let mut lifting = std::mem::take(&mut self.lifting);
        while let Some(slot) = lifting.pop() {
            let task = self.resources[slot].task;
            if task == NONE || self.queues[task].waiting_on == 0 {
                continue;
            }
            let priority = self.queues[task].priority;
            let first = lifting.len();
            lifting.extend(self.edges.requirements(slot).filter(|requirement| {
                self.is_less_urgent(self.resources[*requirement].task, priority)
            }));
            for requirement in &lifting[first..] {
                let task = self.resources[*requirement].task;
                let ready = self.queues[task].place != Place::Waiting;
                self.queues.defer(task);
                self.queues[task].priority = priority;
                if ready {
                    self.make_ready(task);
                }
            }
        }
        self.lifting = lifting;
    }

    /// Dependents that have not begun wait for it; one that has begun runs once more afterwards.
    fn became_scheduled(&mut self, slot: u32, now: Timestamp) {
        let priority = self.queues[self.resources[slot].task].priority;
        let mut at = self.edges.first_dependent(slot);
        while let Some((dependent, next)) = self.edges.dependent_at(at) {
            at = next;
            let record = &self.resources[dependent];
            if record.task != NONE {
                let task = record.task;
                self.wait_for_one_more(task);
                if self.queues[task].priority < priority {
                    self.lifting.push(dependent);
                }
            } else if record.running_latest && !record.undeployable {
                let run = self.runs.get(self.queues.agent(record.agent).run);
                let priority = run.map_or(Priority::IntervalRepair, |run| run.priority);
                let cause = Cause::RequirementScheduled(self.mention(slot));
                self.add_task(dependent, priority, cause, now);
            }
        }
    }

    pub(crate) fn became_unscheduled(&mut self, slot: u32) {
        let mut at = self.edges.first_dependent(slot);
        while let Some((dependent, next)) = self.edges.dependent_at(at) {
            at = next;
            let task = self.resources[dependent].task;
            if task != NONE {
                self.wait_for_one_less(task);
            }
        }
    }

    fn wait_for_one_more(&mut self, task: u32) {
        self.queues.defer(task);
        let agent = self.queues[task].agent;
        self.queues[task].waiting_on += 1;
        self.wake(agent);
    }

    fn wait_for_one_less(&mut self, task: u32) {
        let entry = &mut self.queues[task];
        entry.waiting_on -= 1;
        if entry.waiting_on == 0 {
            self.make_ready(task);
        }
    }

    /// Takes back the task of a resource that has not begun.
    pub(crate) fn remove_task(&mut self, slot: u32) {
        let task = std::mem::replace(&mut self.resources[slot].task, NONE);
        if task == NONE {
            return;
        }
        let removed = self.queues.remove(task);
        self.wake(removed.agent);
        if !self.resources[slot].is_scheduled() {
            self.became_unscheduled(slot);
        }
    }

    /// The run of this resource no longer counts as work on its latest intent.
    pub(crate) fn outdate_run(&mut self, slot: u32) {
        let record = &mut self.resources[slot];
        if std::mem::take(&mut record.running_latest) && !record.is_scheduled() {
            self.became_unscheduled(slot);
        }
    }

    pub(crate) fn add_edge(&mut self, dependent: u32, requirement: u32) {
        self.edges.link(dependent, requirement);
        let required = &self.resources[requirement];
        let (undeployable, bad) = (required.undeployable, required.is_known_bad());
        let scheduled = required.is_scheduled();
        let record = &mut self.resources[dependent];
        record.undeployable_requirements += u32::from(undeployable);
        record.bad_requirements += u32::from(bad);
        let (task, required) = (record.task, self.resources[requirement].task);
        if scheduled && task != NONE {
            self.wait_for_one_more(task);
            if self.is_less_urgent(required, self.queues[task].priority) {
                self.lifting.push(dependent);
            }
        }
    }

    pub(crate) fn drop_edge(&mut self, edge: u32) {
        let (dependent, requirement) = self.edges.unlink(edge);
        let required = &self.resources[requirement];
        let (undeployable, bad) = (required.undeployable, required.is_known_bad());
        let scheduled = required.is_scheduled();
        let record = &mut self.resources[dependent];
        record.undeployable_requirements -= u32::from(undeployable);
        record.bad_requirements -= u32::from(bad);
        if scheduled && record.task != NONE {
            let task = record.task;
            self.wait_for_one_less(task);
        }
    }

    /// How the last run left it; dependents count who is bad.
    pub(crate) fn set_compliant(&mut self, slot: u32, compliant: Option<bool>) {
        let record = &mut self.resources[slot];
        let was_bad = record.is_known_bad();
        record.last_run_compliant = compliant;
        let is_bad = record.is_known_bad();
        if was_bad == is_bad {
            return;
        }
        let mut at = self.edges.first_dependent(slot);
        while let Some((dependent, next)) = self.edges.dependent_at(at) {
            at = next;
            let count = &mut self.resources[dependent].bad_requirements;
            *count = if is_bad { *count + 1 } else { *count - 1 };
        }
    }

    /// Whether a deploy would touch it, by what is known of it.
    pub(crate) fn refresh_dirty(&mut self, slot: u32) {
        let record = &self.resources[slot];
        let dirty = record.blocked == Blocked::NotBlocked && record.needs_deploy();
        self.set_dirty(slot, dirty);
    }

    pub(crate) fn set_dirty(&mut self, slot: u32, dirty: bool) {
        let record = &mut self.resources[slot];
        record.dirty = dirty;
        let reported = record.blocked == Blocked::NotBlocked
            && record.last_run == HandlerRun::Successful
            && record.compliance() == Compliance::NonCompliant;
        let unsettled = dirty || reported;
        let at = record.unsettled_at;
        if unsettled && at == NONE {
            record.unsettled_at =
                u32::try_from(self.unsettled.len()).expect("invariant: fewer slots than u32 holds");
            self.unsettled.push(slot);
        } else if !unsettled && at != NONE {
            record.unsettled_at = NONE;
            self.unsettled.swap_remove(at as usize);
            if let Some(moved) = self.unsettled.get(at as usize) {
                self.resources[*moved].unsettled_at = at;
            }
        }
    }

    /// The dirty resources that are not parked: those whose intent was not tried yet, and the others.
    pub(crate) fn dirty_by_novelty(&self) -> (Vec<u32>, Vec<u32>) {
        let resources = &self.resources;
        let is_new = |slot: &u32| resources[*slot].compliance() == Compliance::HasUpdate;
        let is_due = |slot: &u32| resources[*slot].dirty && !resources[*slot].parked;
        self.unsettled.iter().copied().filter(is_due).partition(is_new)
    }

    /// The dirty resources, parked ones among them.
    pub(crate) fn dirty(&self) -> Vec<u32> {
        self.unsettled.iter().copied().filter(|slot| self.resources[*slot].dirty).collect()
    }
}
