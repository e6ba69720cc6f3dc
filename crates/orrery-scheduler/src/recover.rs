//! The start: what an earlier life left in the store becomes the state of this one.

use orrery_model::{Blocked, Compliance, ResourceState, Timestamp};

use crate::command::{Command, Parts, Priority};
use crate::event::Recovery;
use crate::queue::Cause;
use crate::scheduler::Scheduler;

impl Scheduler {
    pub(crate) fn recover(
        &mut self,
        recovery: Recovery,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        for agent in &recovery.paused {
            let agent = self.intern_agent(agent);
            self.queues.agent_mut(agent).paused = true;
        }
        self.halted = recovery.halted;
        self.version = recovery.version;
        let states = self.restore(&recovery, commands);
        self.settle_recovered(&states, now);
        if recovery.newer.iter().any(|diff| Some(diff.version) > self.version) {
            self.new_versions(recovery.newer, now, commands);
        } else {
            // What a release left to be done is as urgent as it was.
            let (new, tried) = self.dirty_by_novelty();
            let urgent =
                if recovery.reset { Priority::IntervalDeploy } else { Priority::NewVersion };
            self.request_all(new, urgent, Cause::Restart, now);
            self.request_all(tried, Priority::IntervalDeploy, Cause::Restart, now);
        }
    }

    /// Puts the resources of the last processed version into the table; gives their slots and stored states.
    fn restore<'a>(
        &mut self,
        recovery: &'a Recovery,
        commands: &mut Vec<Command>,
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
                self.touch(slot, Parts::ALL);
            } else {
                record.restore(&recovered.state);
                // The store may lag behind what is wanted: that is of the version, this of the last run.
                if recovered.state.intent != Some(recovered.intent.hash)
                    || recovered.state.undefined != recovered.intent.flags.undefined
                {
                    self.touch(slot, Parts::INTENT);
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

    /// Works out what the states mean together: who is blocked, who is dirty, when timers fire.
    fn settle_recovered(&mut self, states: &[(u32, &ResourceState)], now: Timestamp) {
        let mut touched: Vec<u32> = states.iter().map(|(slot, _)| *slot).collect();
        self.propagate_undeployable(&mut touched);
        for (slot, state) in states {
            if state.deploying {
                // Its handler was cut off: nobody knows how far it came.
                self.touch(*slot, Parts::DEPLOYING);
                self.forget_verdict(*slot);
            }
        }
        for (slot, state) in states {
            let slot = *slot;
            // A reset forgets verdicts, and with them every reason to wait for somebody.
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
                && self.has_outstanding_event(slot)
            {
                self.set_dirty(slot, true);
            }
            let same = self.resources[slot].blocked == state.blocked;
            if same {
                self.resources[slot].changed = without_blocked(self.resources[slot].changed);
            } else {
                self.touch(slot, Parts::BLOCKED);
            }
            let record = &self.resources[slot];
            // Dirty ones are asked for next, and have no timer then.
            if !record.dirty || record.parked {
                self.arm(slot, now);
            }
        }
    }
}

/// The blocking was worked out anew; what came out as it is stored needs no write.
fn without_blocked(parts: Parts) -> Parts {
    Parts(parts.0 & !Parts::BLOCKED.0)
}
