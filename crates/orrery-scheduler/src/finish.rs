//! What a result means: for the resource itself, for those that depend on it, and for its next run.

use orrery_model::{AttributeHash, Blocked, HandlerRun, OutcomeStatus, Timestamp};

use crate::command::{CancelReason, Command, Parts, TaskNumber, Warning};
use crate::event::TaskResult;
use crate::queue::{Cause, Kind};
use crate::run::Run;
use crate::schedule::Again;
use crate::scheduler::Scheduler;

impl Scheduler {
    pub(crate) fn task_finished(
        &mut self,
        task: TaskNumber,
        result: TaskResult,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        match self.runs.find(task) {
            Some(at) => self.finish(at, result, now, commands),
            None => commands.push(Command::Ignored { task }),
        }
    }

    pub(crate) fn finish(
        &mut self,
        at: u32,
        result: TaskResult,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        let Some(run) = self.end_run(at) else {
            return;
        };
        match run.kind {
            Kind::Deploy { slot } => {
                let record = &self.resources[slot];
                // A run for a resource that is gone, or was made anew since, says nothing about this one.
                if record.present && record.generation == run.generation {
                    self.deploy_finished(slot, &run, result, now, commands);
                }
            }
            Kind::FactRefresh { .. } => {}
            Kind::DryRun { run, .. } => self.dry_run_answered(run, commands),
        }
    }

    fn deploy_finished(
        &mut self,
        slot: u32,
        run: &Run,
        result: TaskResult,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        let record = &mut self.resources[slot];
        record.running = false;
        let was_bad = record.is_known_bad();
        let was_latest = std::mem::take(&mut record.running_latest);
        self.touch(slot, Parts::DEPLOYING | Parts::RUN);
        // Before anything is asked of the dependents: their counters must not name a run that has ended.
        if was_latest && !self.resources[slot].is_scheduled() {
            self.became_unscheduled(slot);
        }
        let record = &self.resources[slot];
        let stale = record.intent != run.intent || record.flags.undefined;
        let verdict = match result {
            TaskResult::Finished(status) => Some(status),
            // Who does not end in time has failed.
            TaskResult::Cancelled if run.cancelled == Some(CancelReason::Deadline) => {
                Some(OutcomeStatus::Failed)
            }
            TaskResult::Cancelled => None,
            TaskResult::Parked => Some(OutcomeStatus::Failed),
        };
        match verdict {
            Some(status) => self.take_verdict(slot, run, status, stale, now, commands),
            None => self.take_interruption(slot, run, now),
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

    /// The handler said how it is now.
    fn take_verdict(
        &mut self,
        slot: u32,
        run: &Run,
        status: OutcomeStatus,
        stale: bool,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        let good = status == OutcomeStatus::Deployed;
        self.set_compliant(slot, Some(good));
        let record = &mut self.resources[slot];
        record.last_run = HandlerRun::from(status);
        record.last_outcome = Some(status);
        record.last_run_at = Some(now).into();
        record.last_deployed = Some(run.intent);
        if stale {
            // The newer intent is queued already, if it can be deployed at all.
            return;
        }
        let mut parked = None;
        match record.last_run {
            HandlerRun::Successful => {
                record.attempts = 0;
                record.parked = false;
            }
            HandlerRun::Failed => {
                record.attempts = record.attempts.saturating_add(1);
                let limit = self.settings.retry.attempts_max;
                let enough = limit.is_some_and(|limit| record.attempts >= limit);
                if enough && !std::mem::replace(&mut record.parked, true) {
                    parked = Some(record.attempts);
                }
            }
            // Not being ready is no failed attempt.
            HandlerRun::Skipped | HandlerRun::New => {}
        }
        if good {
            record.last_success = Some(run.started_at).into();
        }
        if record.flags.send_event {
            record.last_produced_events = Some(now).into();
        }
        let before = record.blocked;
        if let (Some(attempts), Some(id)) = (parked, self.resources.id(slot).cloned()) {
            commands.push(Command::Parked { id, attempts });
        }
        if before == Blocked::Blocked {
            return;
        }
        let waits_for_bad =
            status == OutcomeStatus::SkippedForDependency && self.has_bad_requirement(slot);
        let after = if waits_for_bad { Blocked::TemporarilyBlocked } else { Blocked::NotBlocked };
        if before != after {
            self.resources[slot].blocked = after;
            self.touch(slot, Parts::BLOCKED);
        }
        if good && before == Blocked::TemporarilyBlocked {
            self.warn_of_success(slot, commands);
        }
        self.refresh_dirty(slot);
    }

    /// Nobody knows how it is now: it is as if the intent had never been tried.
    fn take_interruption(&mut self, slot: u32, run: &Run, now: Timestamp) {
        self.resources[slot].last_run_at = Some(now).into();
        self.forget_verdict(slot);
        if self.halted || run.cancelled == Some(CancelReason::Halt) {
            self.request(slot, run.priority, Cause::Interrupted, Again::IfStale, now);
        }
    }

    pub(crate) fn forget_verdict(&mut self, slot: u32) {
        self.set_compliant(slot, None);
        let record = &mut self.resources[slot];
        record.last_deployed = None;
        record.last_outcome = None;
        if record.blocked == Blocked::TemporarilyBlocked {
            record.blocked = Blocked::NotBlocked;
            self.touch(slot, Parts::BLOCKED);
        }
        self.touch(slot, Parts::RUN);
        self.refresh_dirty(slot);
    }

    fn warn_of_success(&mut self, slot: u32, commands: &mut Vec<Command>) {
        let bad = self.edges.requirements(slot).filter(|slot| self.resources[*slot].is_known_bad());
        let mut bad: Vec<_> = bad.filter_map(|slot| self.resources.id(slot).cloned()).collect();
        bad.sort_unstable();
        if let Some(id) = self.resources.id(slot).cloned() {
            commands.push(Command::Warn(Warning::UnexpectedSuccess { id, bad }));
        }
    }

    pub(crate) fn has_bad_requirement(&self, slot: u32) -> bool {
        self.resources[slot].bad_requirements > 0
    }

    /// Who waited for this one to get better, and for no other, is tried again.
    fn recover_dependents(&mut self, slot: u32, run: &Run, now: Timestamp) {
        let cause = Cause::Recovered(self.mention(slot));
        for dependent in self.sorted_dependents(slot) {
            if self.unblock_if_nothing_bad(dependent) {
                self.request(dependent, run.priority, cause, Again::IfStale, now);
            }
        }
    }

    /// Ends the wait for bad requirements if there are none; says whether it did.
    pub(crate) fn unblock_if_nothing_bad(&mut self, slot: u32) -> bool {
        let waits = self.resources[slot].blocked == Blocked::TemporarilyBlocked;
        if !waits || self.has_bad_requirement(slot) {
            return false;
        }
        self.resources[slot].blocked = Blocked::NotBlocked;
        self.touch(slot, Parts::BLOCKED);
        self.set_dirty(slot, true);
        true
    }

    fn send_events(&mut self, slot: u32, run: &Run, now: Timestamp) {
        let cause = Cause::Event(self.mention(slot));
        for dependent in self.sorted_dependents(slot) {
            let record = &self.resources[dependent];
            if record.blocked == Blocked::NotBlocked && record.flags.receive_events {
                self.request(dependent, run.priority, cause, Again::Always, now);
            }
        }
    }

    /// In the order of slots, which is that of requests; the list of edges has another.
    fn sorted_dependents(&self, slot: u32) -> Vec<u32> {
        let mut dependents: Vec<u32> = self.edges.dependents(slot).collect();
        dependents.sort_unstable();
        dependents
    }

    /// Whether a resource that is as wanted has yet to hear of something that it requires.
    pub(crate) fn has_outstanding_event(&self, slot: u32) -> bool {
        let record = &self.resources[slot];
        record.flags.receive_events
            && self.edges.requirements(slot).any(|requirement| {
                let sender = &self.resources[requirement];
                sender.flags.send_event
                    && sender.last_produced_events.get() > record.last_success.get()
            })
    }

    /// What a new intent does to what is known of a resource.
    pub(crate) fn take_intent(&mut self, slot: u32, hash: AttributeHash) {
        let record = &mut self.resources[slot];
        record.intent = hash;
        record.attempts = 0;
        record.parked = false;
        // Back to what was deployed before: something else may have been tried in between.
        if record.last_deployed == Some(hash) {
            record.last_deployed = None;
        }
        self.touch(slot, Parts::INTENT | Parts::RUN);
    }
}
