//! Creation of tasks, and their waits for requirements.
//!
//! A resource is *scheduled* while it has a task that waits or is ready, or runs its latest intent.
//! The deploy task of a resource counts the direct requirements that are scheduled, and is ready
//! when there are none. The counters change only when a resource becomes or ceases to be scheduled,
//! and when edges change.

use orrery_model::{Blocked, Compliance, LastRunStatus, Timestamp};

use crate::command::{CancelReason, Priority};
use crate::edges::NONE;
use crate::queue::{Cause, Kind, Task, TaskState};
use crate::scheduler::Scheduler;

/// Policy for a request of a resource that already runs its latest intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RerunPolicy {
    /// Events: the running handler may have read outdated state.
    Always,
    /// All other requests: the running handler already does the requested work, unless a user has
    /// cancelled it.
    IfStale,
}

impl Scheduler {
    /// Requests a deploy of these resources, in the order of their slots.
    pub(crate) fn request_all(
        &mut self,
        mut slots: Vec<u32>,
        priority: Priority,
        cause: Cause,
        now: Timestamp,
    ) {
        slots.sort_unstable();
        for slot in slots {
            self.request(slot, priority, cause, RerunPolicy::IfStale, now);
        }
    }

    /// Requests a deploy of one resource. A more urgent request replaces a pending one; any other
    /// changes nothing.
    pub(crate) fn request(
        &mut self,
        slot: u32,
        priority: Priority,
        cause: Cause,
        rerun: RerunPolicy,
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
        } else if !record.running_latest || rerun == RerunPolicy::Always || self.is_cancelled(slot)
        {
            self.add_task(slot, priority, cause, now);
        }
    }

    /// True if a user has cancelled the resource's unfinished run.
    fn is_cancelled(&self, slot: u32) -> bool {
        let run = self.runs.get(self.queues.agent(self.resources[slot].agent).run);
        run.is_some_and(|run| run.cancelled == Some(CancelReason::User))
    }

    /// Raises a pending task. A raise is a new request: the task goes to the end of its new
    /// priority, with the new reason.
    fn raise_queued(&mut self, task: u32, priority: Priority, cause: Cause, now: Timestamp) {
        if self.queues[task].priority <= priority {
            return;
        }
        let ready = self.queues[task].state != TaskState::Waiting;
        self.queues.defer(task);
        let number = self.next_request_number();
        let entry = &mut self.queues[task];
        (entry.priority, entry.cause, entry.number) = (priority, cause, number);
        entry.requested_at = now;
        let kind = entry.kind;
        if ready {
            self.make_ready(task);
        } else if let Kind::Deploy { slot } = kind {
            self.inheriting.push(slot);
        }
    }

    /// Raises a running task: its events inherit its priority.
    fn raise_running(&mut self, slot: u32, priority: Priority) {
        let run = self.queues.agent(self.resources[slot].agent).run;
        if let Some(run) = self.runs.get_mut(run) {
            run.priority = run.priority.min(priority);
        }
    }

    pub(crate) fn next_request_number(&mut self) -> u64 {
        self.next_request += 1;
        self.next_request
    }

    pub(crate) fn make_ready(&mut self, task: u32) {
        self.queues.make_ready(task);
        self.wake(self.queues[task].agent);
    }

    fn add_task(&mut self, slot: u32, priority: Priority, cause: Cause, now: Timestamp) {
        let number = self.next_request_number();
        let agent = self.resources[slot].agent;
        let mut waiting_on = 0;
        let mut is_limited = false;
        for requirement in self.edges.requirements(slot) {
            let required = &self.resources[requirement];
            if required.is_scheduled() {
                waiting_on += 1;
                is_limited |= self.is_less_urgent(required.task, priority);
            }
        }
        if is_limited {
            self.inheriting.push(slot);
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
            self.queue_priority_inheritance(slot, priority);
        } else {
            self.on_scheduled(slot, now);
        }
    }

    /// True if this is a task of lower priority than the given one.
    fn is_less_urgent(&self, task: u32, than: Priority) -> bool {
        task != NONE && self.queues[task].priority > than
    }

    /// Queues priority inheritance from dependents that already wait, with a higher priority.
    fn queue_priority_inheritance(&mut self, slot: u32, priority: Priority) {
        let mut at = self.edges.first_dependent(slot);
        while let Some((dependent, next)) = self.edges.dependent_at(at) {
            at = next;
            let task = self.resources[dependent].task;
            if task != NONE && self.queues[task].priority < priority {
                self.inheriting.push(dependent);
            }
        }
    }

    /// Raises requirements to the priority of the tasks that wait for them. Without it, a release
    /// would wait for the rest of a repair that holds one of its requirements. A raised task keeps
    /// its reason and number, so it precedes later requests.
    pub(crate) fn inherit_priorities(&mut self) {
        let mut inheriting = std::mem::take(&mut self.inheriting);
        while let Some(slot) = inheriting.pop() {
            let task = self.resources[slot].task;
            if task == NONE || self.queues[task].waiting_on == 0 {
                continue;
            }
            let priority = self.queues[task].priority;
            let first = inheriting.len();
            inheriting.extend(self.edges.requirements(slot).filter(|requirement| {
                self.is_less_urgent(self.resources[*requirement].task, priority)
            }));
            for requirement in &inheriting[first..] {
                let task = self.resources[*requirement].task;
                let ready = self.queues[task].state != TaskState::Waiting;
                self.queues.defer(task);
                self.queues[task].priority = priority;
                if ready {
                    self.make_ready(task);
                }
            }
        }
        self.inheriting = inheriting;
    }

    /// Makes pending dependents wait for the resource; a running dependent runs once more
    /// afterwards.
    fn on_scheduled(&mut self, slot: u32, now: Timestamp) {
        let priority = self.queues[self.resources[slot].task].priority;
        let mut at = self.edges.first_dependent(slot);
        while let Some((dependent, next)) = self.edges.dependent_at(at) {
            at = next;
            let record = &self.resources[dependent];
            if record.task != NONE {
                let task = record.task;
                self.increment_waiting(task);
                if self.queues[task].priority < priority {
                    self.inheriting.push(dependent);
                }
            } else if record.running_latest && !record.undeployable {
                let run = self.runs.get(self.queues.agent(record.agent).run);
                let priority = run.map_or(Priority::IntervalRepair, |run| run.priority);
                let cause = Cause::RequirementScheduled(self.resource_ref(slot));
                self.add_task(dependent, priority, cause, now);
            }
        }
    }

    pub(crate) fn on_unscheduled(&mut self, slot: u32) {
        let mut at = self.edges.first_dependent(slot);
        while let Some((dependent, next)) = self.edges.dependent_at(at) {
            at = next;
            let task = self.resources[dependent].task;
            if task != NONE {
                self.decrement_waiting(task);
            }
        }
    }

    fn increment_waiting(&mut self, task: u32) {
        self.queues.defer(task);
        let agent = self.queues[task].agent;
        self.queues[task].waiting_on += 1;
        self.wake(agent);
    }

    fn decrement_waiting(&mut self, task: u32) {
        let entry = &mut self.queues[task];
        entry.waiting_on -= 1;
        if entry.waiting_on == 0 {
            self.make_ready(task);
        }
    }

    /// Removes the pending task of a resource.
    pub(crate) fn remove_task(&mut self, slot: u32) {
        let task = std::mem::replace(&mut self.resources[slot].task, NONE);
        if task == NONE {
            return;
        }
        let removed = self.queues.remove(task);
        self.wake(removed.agent);
        if !self.resources[slot].is_scheduled() {
            self.on_unscheduled(slot);
        }
    }

    /// Marks the resource's run as not of its latest intent.
    pub(crate) fn mark_run_outdated(&mut self, slot: u32) {
        let record = &mut self.resources[slot];
        if std::mem::take(&mut record.running_latest) && !record.is_scheduled() {
            self.on_unscheduled(slot);
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
            self.increment_waiting(task);
            if self.is_less_urgent(required, self.queues[task].priority) {
                self.inheriting.push(dependent);
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
            self.decrement_waiting(task);
        }
    }

    /// Records the result of the last run; dependents count bad requirements.
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

    /// Recomputes the dirty flag.
    pub(crate) fn refresh_dirty(&mut self, slot: u32) {
        let record = &self.resources[slot];
        let dirty = record.blocked == Blocked::NotBlocked && record.needs_deploy();
        self.set_dirty(slot, dirty);
    }

    pub(crate) fn set_dirty(&mut self, slot: u32, dirty: bool) {
        let record = &mut self.resources[slot];
        record.dirty = dirty;
        let reported = record.blocked == Blocked::NotBlocked
            && record.last_run == LastRunStatus::Successful
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

    /// Returns the unparked dirty resources: those with an untried intent, and the others.
    pub(crate) fn partition_dirty(&self) -> (Vec<u32>, Vec<u32>) {
        let resources = &self.resources;
        let is_new = |slot: &u32| resources[*slot].compliance() == Compliance::HasUpdate;
        let is_due = |slot: &u32| resources[*slot].dirty && !resources[*slot].parked;
        self.unsettled.iter().copied().filter(is_due).partition(is_new)
    }

    /// Returns all dirty resources, including parked ones.
    pub(crate) fn dirty(&self) -> Vec<u32> {
        self.unsettled.iter().copied().filter(|slot| self.resources[*slot].dirty).collect()
    }
}
