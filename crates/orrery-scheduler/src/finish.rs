//! Processing of task results: for the resource, its dependents and its next run.

use orrery_model::{AttributeHash, Blocked, LastRunStatus, OutcomeStatus, Timestamp};

use crate::command::{CancelReason, ChangedFields, SchedulerCommand, SchedulerWarning, TaskNumber};
use crate::event::TaskResult;
use crate::queue::{Cause, Kind};
use crate::run::Run;
use crate::schedule::RerunPolicy;
use crate::scheduler::Scheduler;

impl Scheduler {
    pub(crate) fn finish_task(
        &mut self,
        task: TaskNumber,
        result: TaskResult,
        now: Timestamp,
        commands: &mut Vec<SchedulerCommand>,
    ) {
        match self.runs.find(task) {
            Some(at) => self.finish(at, result, now, commands),
            None => commands.push(SchedulerCommand::Ignored { task }),
        }
    }

    pub(crate) fn finish(
        &mut self,
        at: u32,
        result: TaskResult,
        now: Timestamp,
        commands: &mut Vec<SchedulerCommand>,
    ) {
        let Some(run) = self.end_run(at) else {
            return;
        };
        match run.kind {
            Kind::Deploy { slot } => {
                let record = &self.resources[slot];
                // The run of a removed or recreated resource does not affect the current one.
                if record.present && record.generation == run.generation {
                    self.finish_deploy(slot, &run, result, now, commands);
                }
            }
            Kind::FactRefresh { .. } => {}
            Kind::DryRun { run, .. } => self.finish_dry_run_task(run, commands),
        }
    }

    fn finish_deploy(
        &mut self,
        slot: u32,
        run: &Run,
        result: TaskResult,
        now: Timestamp,
        commands: &mut Vec<SchedulerCommand>,
    ) {
        let record = &mut self.resources[slot];
        record.running = false;
        let was_bad = record.is_known_bad();
        let was_latest = std::mem::take(&mut record.running_latest);
        self.touch(slot, ChangedFields::DEPLOYING | ChangedFields::RUN);
        // Before the dependents are requested: their counters must not include a run that has
        // ended.
        if was_latest && !self.resources[slot].is_scheduled() {
            self.on_unscheduled(slot);
        }
        let record = &self.resources[slot];
        let stale = record.intent != run.intent || record.flags.undefined;
        let verdict = match result {
            TaskResult::Finished(status) => Some(status),
            // A run past its deadline counts as failed.
            TaskResult::Cancelled if run.cancelled == Some(CancelReason::Deadline) => {
                Some(OutcomeStatus::Failed)
            }
            TaskResult::Cancelled => None,
            TaskResult::Parked => Some(OutcomeStatus::Failed),
        };
        match verdict {
            Some(status) => self.apply_verdict(slot, run, status, stale, now, commands),
            None => self.apply_interruption(slot, run, now),
        }
        if result == TaskResult::Parked && !stale {
            self.resources[slot].parked = true;
        }
        if was_bad && !self.resources[slot].is_known_bad() {
            self.recover_dependents(slot, run, now);
        }
        if verdict.is_some() && !stale && self.resources[slot].flags.send_event {
            self.send_events(slot, run, now);
        }
        self.arm(slot, now);
    }

    /// Applies the handler's verdict.
    fn apply_verdict(
        &mut self,
        slot: u32,
        run: &Run,
        status: OutcomeStatus,
        stale: bool,
        now: Timestamp,
        commands: &mut Vec<SchedulerCommand>,
    ) {
        let good = status == OutcomeStatus::Deployed;
        self.set_compliant(slot, Some(good));
        let record = &mut self.resources[slot];
        record.last_run = LastRunStatus::from(status);
        record.last_outcome = Some(status);
        record.last_run_at = Some(now).into();
        record.last_deployed = Some(run.intent);
        if stale {
            // The newer intent is queued already, unless it is undeployable.
            return;
        }
        let mut parked = None;
        match record.last_run {
            LastRunStatus::Successful => {
                record.attempts = 0;
                record.parked = false;
            }
            LastRunStatus::Failed => {
                record.attempts = record.attempts.saturating_add(1);
                let limit = self.settings.retry.attempts_max;
                let enough = limit.is_some_and(|limit| record.attempts >= limit);
                if enough && !std::mem::replace(&mut record.parked, true) {
                    parked = Some(record.attempts);
                }
            }
            // A skip is not a failed attempt.
            LastRunStatus::Skipped | LastRunStatus::New => {}
        }
        if good {
            record.last_success = Some(run.started_at).into();
        }
        if record.flags.send_event {
            record.last_produced_events = Some(now).into();
        }
        let before = record.blocked;
        if let (Some(attempts), Some(id)) = (parked, self.resources.id(slot).cloned()) {
            commands.push(SchedulerCommand::Parked { id, attempts });
        }
        if before == Blocked::Blocked {
            return;
        }
        let waits_for_bad =
            status == OutcomeStatus::SkippedForDependency && self.has_bad_requirement(slot);
        let after = if waits_for_bad { Blocked::TemporarilyBlocked } else { Blocked::NotBlocked };
        if before != after {
            self.resources[slot].blocked = after;
            self.touch(slot, ChangedFields::BLOCKED);
        }
        if good && before == Blocked::TemporarilyBlocked {
            self.warn_unexpected_success(slot, commands);
        }
        self.refresh_dirty(slot);
    }

    /// Treats the intent as never tried: an interrupted run leaves the actual state unknown.
    fn apply_interruption(&mut self, slot: u32, run: &Run, now: Timestamp) {
        self.resources[slot].last_run_at = Some(now).into();
        self.clear_verdict(slot);
        if self.halted || run.cancelled == Some(CancelReason::Halt) {
            self.request(slot, run.priority, Cause::Interrupted, RerunPolicy::IfStale, now);
        }
    }

    pub(crate) fn clear_verdict(&mut self, slot: u32) {
        self.set_compliant(slot, None);
        let record = &mut self.resources[slot];
        record.last_deployed = None;
        record.last_outcome = None;
        if record.blocked == Blocked::TemporarilyBlocked {
            record.blocked = Blocked::NotBlocked;
            self.touch(slot, ChangedFields::BLOCKED);
        }
        self.touch(slot, ChangedFields::RUN);
        self.refresh_dirty(slot);
    }

    fn warn_unexpected_success(&mut self, slot: u32, commands: &mut Vec<SchedulerCommand>) {
        let bad = self.edges.requirements(slot).filter(|slot| self.resources[*slot].is_known_bad());
        let mut bad: Vec<_> = bad.filter_map(|slot| self.resources.id(slot).cloned()).collect();
        bad.sort_unstable();
        if let Some(id) = self.resources.id(slot).cloned() {
            commands.push(SchedulerCommand::Warn(SchedulerWarning::UnexpectedSuccess { id, bad }));
        }
    }

    pub(crate) fn has_bad_requirement(&self, slot: u32) -> bool {
        self.resources[slot].bad_requirements > 0
    }

    /// Requests dependents that waited only for this resource to recover.
    fn recover_dependents(&mut self, slot: u32, run: &Run, now: Timestamp) {
        let cause = Cause::Recovered(self.resource_ref(slot));
        for dependent in self.sorted_dependents(slot) {
            if self.unblock_if_nothing_bad(dependent) {
                self.request(dependent, run.priority, cause, RerunPolicy::IfStale, now);
            }
        }
    }

    /// Unblocks a temporarily blocked resource without bad requirements. Returns true if it did.
    pub(crate) fn unblock_if_nothing_bad(&mut self, slot: u32) -> bool {
        let waits = self.resources[slot].blocked == Blocked::TemporarilyBlocked;
        if !waits || self.has_bad_requirement(slot) {
            return false;
        }
        self.resources[slot].blocked = Blocked::NotBlocked;
        self.touch(slot, ChangedFields::BLOCKED);
        self.set_dirty(slot, true);
        true
    }

    fn send_events(&mut self, slot: u32, run: &Run, now: Timestamp) {
        let cause = Cause::Event(self.resource_ref(slot));
        for dependent in self.sorted_dependents(slot) {
            let record = &self.resources[dependent];
            if record.blocked == Blocked::NotBlocked && record.flags.receive_events {
                self.request(dependent, run.priority, cause, RerunPolicy::Always, now);
            }
        }
    }

    /// Returns the dependents by slot, the order of requests; the edge list has another order.
    fn sorted_dependents(&self, slot: u32) -> Vec<u32> {
        let mut dependents: Vec<u32> = self.edges.dependents(slot).collect();
        dependents.sort_unstable();
        dependents
    }

    /// True if a compliant resource has an unprocessed event of a requirement.
    pub(crate) fn has_pending_event(&self, slot: u32) -> bool {
        let record = &self.resources[slot];
        record.flags.receive_events
            && self.edges.requirements(slot).any(|requirement| {
                let sender = &self.resources[requirement];
                sender.flags.send_event
                    && sender.last_produced_events.get() > record.last_success.get()
            })
    }

    /// Sets a new intent and adjusts the recorded verdict to it.
    pub(crate) fn set_intent(&mut self, slot: u32, hash: AttributeHash) {
        let record = &mut self.resources[slot];
        record.intent = hash;
        record.attempts = 0;
        record.parked = false;
        // Reverted to the last deployed intent: a different one may have been tried in between.
        if record.last_deployed == Some(hash) {
            record.last_deployed = None;
        }
        self.touch(slot, ChangedFields::INTENT | ChangedFields::RUN);
    }
}
