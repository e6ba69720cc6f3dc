//! Applies the net change of one or more versions in one step.

use orrery_model::{Blocked, ResourceId, Timestamp};

use crate::command::{ChangedFields, Priority, SchedulerCommand, SchedulerWarning};
use crate::edges::NONE;
use crate::event::{Scope, VersionDiff};
use crate::queue::Cause;
use crate::scheduler::Scheduler;
use crate::versions::NetChange;

impl Scheduler {
    pub(crate) fn apply_versions(
        &mut self,
        diffs: Vec<VersionDiff>,
        now: Timestamp,
        commands: &mut Vec<SchedulerCommand>,
    ) {
        // A repeated message must not undo a newer version.
        let processed = self.version;
        let newer: Vec<VersionDiff> = diffs
            .into_iter()
            .filter(|diff| processed.is_none_or(|processed| diff.version > processed))
            .collect();
        let Some(version) = newer.last().map(|diff| diff.version) else {
            return;
        };
        let everything = newer.iter().any(|diff| diff.scope == Scope::Everything);
        let fold = self.fold(newer);
        self.version = Some(version);
        self.apply_changes(fold.changes, now, commands);
        // New intents come before intents that were tried and failed.
        let (new, tried) = self.partition_dirty();
        self.request_all(new, Priority::NewVersion, Cause::NewVersion(version), now);
        self.request_all(tried, Priority::NewVersion, Cause::NewVersion(version), now);
        if everything {
            commands.push(SchedulerCommand::OrphanOthers);
        }
        commands.push(SchedulerCommand::Processed(version));
    }

    fn apply_changes(
        &mut self,
        mut changes: Vec<NetChange>,
        now: Timestamp,
        commands: &mut Vec<SchedulerCommand>,
    ) {
        self.edges.reserve_slots(self.resources.slots());
        // Resources with changed requirements, or with requirements that lost their history.
        let mut recheck = Vec::new();
        for change in &changes {
            if !change.present || change.recreated {
                self.retire(change, &mut recheck);
            }
        }
        let mut touched = Vec::with_capacity(changes.len());
        for change in &changes {
            if change.present && self.apply_intent(change) {
                touched.push(change.slot);
            }
        }
        let mut linked = Vec::new();
        for change in &mut changes {
            if change.present {
                let requires = std::mem::take(&mut change.requires);
                let slot = change.slot;
                self.change_requirements(slot, &requires, &mut linked, &mut recheck, commands);
            }
        }
        self.break_cycles(&linked, &mut touched, commands);
        touched.extend(&linked);
        touched.extend(&recheck);
        self.propagate_undeployable(&mut touched);
        for slot in recheck {
            self.unblock_if_nothing_bad(slot);
        }
        for slot in touched {
            let record = &self.resources[slot];
            // Dirty resources are requested below, and then have no timer.
            if record.present && (!record.dirty || record.parked) {
                self.arm(slot, now);
            }
        }
        for change in changes {
            if !change.present {
                self.free_resource(&change, commands);
            }
        }
    }

    /// Detaches a removed or recreated resource: removes its tasks, timers and edges, and marks its
    /// run as outdated.
    fn retire(&mut self, change: &NetChange, recheck: &mut Vec<u32>) {
        let slot = change.slot;
        if !self.resources[slot].present {
            return;
        }
        self.remove_task(slot);
        self.remove_fact_task(slot);
        self.mark_run_outdated(slot);
        self.disarm(slot);
        recheck.extend(self.edges.dependents(slot));
        if change.present {
            self.set_dirty(slot, false);
            self.set_compliant(slot, None);
            self.resources[slot].reset();
            return;
        }
        while self.edges.first_requirement(slot) != NONE {
            self.drop_edge(self.edges.first_requirement(slot));
        }
        while self.edges.first_dependent(slot) != NONE {
            self.drop_edge(self.edges.first_dependent(slot));
        }
        self.resources[slot].blocked = Blocked::Blocked;
        self.set_dirty(slot, false);
        self.resources[slot].present = false;
    }

    /// Applies a new intent. Returns true if the intent or the undefined flag changed.
    fn apply_intent(&mut self, change: &NetChange) -> bool {
        let slot = change.slot;
        if self.resources[slot].present {
            if self.resources[slot].set != change.set {
                self.resources.leave_set(slot);
                self.resources.join_set(slot, change.set);
            }
            let record = &mut self.resources[slot];
            let same = record.intent == change.hash
                && record.flags.undefined == change.flags.undefined
                && !change.recreated;
            if same {
                record.flags = change.flags;
                return false;
            }
        } else {
            self.enlist(slot, change.set);
        }
        self.resources[slot].flags = change.flags;
        self.mark_run_outdated(slot);
        self.set_intent(slot, change.hash);
        self.touch(slot, ChangedFields::ALL);
        if self.resources[slot].blocked == Blocked::TemporarilyBlocked {
            self.resources[slot].blocked = Blocked::NotBlocked;
        }
        self.refresh_dirty(slot);
        true
    }

    /// Replaces the requirements. They are compared with the managed graph only, not with
    /// intermediate versions.
    pub(crate) fn change_requirements(
        &mut self,
        slot: u32,
        requires: &[ResourceId],
        linked: &mut Vec<u32>,
        recheck: &mut Vec<u32>,
        commands: &mut Vec<SchedulerCommand>,
    ) {
        if requires.is_empty() && !self.edges.has_requirements(slot) {
            return;
        }
        let mut required = Vec::with_capacity(requires.len());
        for requirement in requires {
            match self.resources.find(requirement.as_str()) {
                Some(found) if self.resources[found].present && found != slot => {
                    required.push(found);
                }
                Some(found) if found == slot => {
                    let circle = vec![requirement.clone(), requirement.clone()];
                    commands.push(SchedulerCommand::Warn(SchedulerWarning::Cycle(circle)));
                }
                _ => {
                    if let Some(id) = self.resources.id(slot).cloned() {
                        let requirement = requirement.clone();
                        let unknown = SchedulerWarning::UnknownRequirement { id, requirement };
                        commands.push(SchedulerCommand::Warn(unknown));
                    }
                }
            }
        }
        required.sort_unstable();
        required.dedup();
        let mut current: Vec<(u32, u32)> = self.edges.requirement_edges(slot).collect();
        current.sort_unstable();
        let mut dropped = false;
        for (requirement, edge) in &current {
            if required.binary_search(requirement).is_err() {
                self.drop_edge(*edge);
                dropped = true;
            }
        }
        let mut added = false;
        for requirement in required {
            if current.binary_search_by_key(&requirement, |(current, _)| *current).is_err() {
                self.add_edge(slot, requirement);
                added = true;
            }
        }
        if added {
            linked.push(slot);
        }
        if dropped {
            recheck.push(slot);
        }
    }

    /// Frees the slot of a resource that is no longer managed.
    fn free_resource(&mut self, change: &NetChange, commands: &mut Vec<SchedulerCommand>) {
        if let Some(id) = self.delist(change.slot) {
            commands.push(SchedulerCommand::Orphan { id, last_version: change.last_version });
        }
    }
}
