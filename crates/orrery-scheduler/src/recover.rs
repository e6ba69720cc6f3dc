//! Recovery: restores the scheduler from the stored state.

use orrery_model::{Blocked, Compliance, ResourceState, Timestamp};

use crate::command::{ChangedFields, Priority, SchedulerCommand};
use crate::event::Recovery;
use crate::queue::Cause;
use crate::scheduler::Scheduler;

impl Scheduler {
    pub(crate) fn recover(
        &mut self,
        recovery: Recovery,
        now: Timestamp,
        commands: &mut Vec<SchedulerCommand>,
    ) {
        for agent in &recovery.paused {
            let agent = self.intern_agent(agent);
            self.queues.agent_mut(agent).paused = true;
        }
        self.halted = recovery.halted;
        self.version = recovery.version;
        let states = self.restore(&recovery, commands);
        self.derive_recovered_state(&states, now);
        if recovery.newer.iter().any(|diff| Some(diff.version) > self.version) {
            self.apply_versions(recovery.newer, now, commands);
        } else {
            // Intents of an unfinished release keep its priority.
            let (new, tried) = self.partition_dirty();
            let urgent =
                if recovery.reset { Priority::IntervalDeploy } else { Priority::NewVersion };
            self.request_all(new, urgent, Cause::Restart, now);
            self.request_all(tried, Priority::IntervalDeploy, Cause::Restart, now);
        }
    }

    /// Adds the resources of the last processed version to the table. Returns their slots and
    /// stored states.
    fn restore<'a>(
        &mut self,
        recovery: &'a Recovery,
        commands: &mut Vec<SchedulerCommand>,
    ) -> Vec<(u32, &'a ResourceState)> {
        self.resources.reserve(recovery.resources.len());
        let mut states = Vec::with_capacity(recovery.resources.len());
        for recovered in &recovery.resources {
            let (slot, new) = self.resources.intern(&recovered.intent.id);
            if !new {
                continue;
            }
            let set = self.resources.intern_set(&recovered.set);
            self.enlist(slot, set);
            let record = &mut self.resources[slot];
            record.intent = recovered.intent.hash;
            record.flags = recovered.intent.flags;
            if recovery.reset {
                self.touch(slot, ChangedFields::ALL);
            } else {
                record.restore(&recovered.state);
                // The stored state may lag: the intent is of the version, the rest of the last run.
                if recovered.state.intent != Some(recovered.intent.hash)
                    || recovered.state.undefined != recovered.intent.flags.undefined
                {
                    self.touch(slot, ChangedFields::INTENT);
                }
            }
            states.push((slot, &recovered.state));
        }
        self.edges.reserve_slots(self.resources.slots());
        let (mut linked, mut dropped) = (Vec::new(), Vec::new());
        for recovered in recovery.resources.iter().filter(|one| !one.intent.requires.is_empty()) {
            if let Some(slot) = self.resources.find(recovered.intent.id.as_str()) {
                let requires = &recovered.intent.requires;
                self.change_requirements(slot, requires, &mut linked, &mut dropped, commands);
            }
        }
        self.break_cycles(&linked, &mut dropped, commands);
        states
    }

    /// Derives blocking, dirtiness and timers from the restored states.
    fn derive_recovered_state(&mut self, states: &[(u32, &ResourceState)], now: Timestamp) {
        let mut touched: Vec<u32> = states.iter().map(|(slot, _)| *slot).collect();
        self.propagate_undeployable(&mut touched);
        for (slot, state) in states {
            if state.deploying {
                // The handler was interrupted: its progress is unknown.
                self.touch(*slot, ChangedFields::DEPLOYING);
                self.clear_verdict(*slot);
            }
        }
        for (slot, state) in states {
            let slot = *slot;
            // A reset drops verdicts, and with them every reason to wait for recovery.
            let waits = state.blocked == Blocked::TemporarilyBlocked
                && self.resources[slot].blocked == Blocked::NotBlocked
                && self.resources[slot].compliance() == Compliance::NonCompliant
                && self.has_bad_requirement(slot);
            if waits {
                self.resources[slot].blocked = Blocked::TemporarilyBlocked;
            }
            self.refresh_dirty(slot);
            let record = &self.resources[slot];
            if record.blocked == Blocked::NotBlocked
                && record.compliance() == Compliance::Compliant
                && self.has_pending_event(slot)
            {
                self.set_dirty(slot, true);
            }
            let same = self.resources[slot].blocked == state.blocked;
            if same {
                self.resources[slot].changed = without_blocked(self.resources[slot].changed);
            } else {
                self.touch(slot, ChangedFields::BLOCKED);
            }
            let record = &self.resources[slot];
            // Dirty resources are requested next, and then have no timer.
            if !record.dirty || record.parked {
                self.arm(slot, now);
            }
        }
    }
}

/// Excludes `blocked` from the fields to persist: recomputed blocking that equals the stored one
/// needs no write.
fn without_blocked(parts: ChangedFields) -> ChangedFields {
    ChangedFields(parts.0 & !ChangedFields::BLOCKED.0)
}
