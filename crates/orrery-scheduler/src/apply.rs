//! A consolidated change of versions takes effect, all at once.

use orrery_model::{Blocked, ResourceId, Timestamp};

use crate::command::{Command, Parts, Priority, Warning};
use crate::edges::NONE;
use crate::event::{Scope, VersionDiff};
use crate::queue::Cause;
use crate::scheduler::Scheduler;
use crate::versions::Folded;

impl Scheduler {
    pub(crate) fn new_versions(
        &mut self,
        diffs: Vec<VersionDiff>,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        // A repeated message must not undo anything.
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
        self.apply(fold.changes, now, commands);
        // What is wanted anew comes before what was tried and failed.
        let (new, tried) = self.dirty_by_novelty();
        self.request_all(new, Priority::NewVersion, Cause::NewVersion(version), now);
        self.request_all(tried, Priority::NewVersion, Cause::NewVersion(version), now);
        if everything {
            commands.push(Command::OrphanOthers);
        }
        commands.push(Command::Processed(version));
    }

    fn apply(&mut self, mut changes: Vec<Folded>, now: Timestamp, commands: &mut Vec<Command>) {
        self.edges.reserve_slots(self.resources.slots());
        // Resources whose requirements changed, or whose requirements' past was forgotten.
        let mut recheck = Vec::new();
        for change in &changes {
            if !change.present || change.recreated {
                self.retire(change, &mut recheck);
            }
        }
        let mut touched = Vec::with_capacity(changes.len());
        for change in &changes {
            if change.present && self.take_change(change) {
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
            // Dirty ones are asked for below, and have no timer then.
            if record.present && (!record.dirty || record.parked) {
                self.arm(slot, now);
            }
        }
        for change in changes {
            if !change.present {
                self.forget(&change, commands);
            }
        }
    }

    /// A resource is gone, or what was known of it is: its tasks, timers and edges go, and a run for it
    /// counts for nobody any more.
    fn retire(&mut self, change: &Folded, recheck: &mut Vec<u32>) {
        let slot = change.slot;
        if !self.resources[slot].present {
            return;
        }
        self.remove_task(slot);
        self.remove_fact_task(slot);
        self.outdate_run(slot);
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

    /// Takes over what is wanted now. Says whether anything about the resource itself is new.
    fn take_change(&mut self, change: &Folded) -> bool {
        let slot = change.slot;
        if !self.resources[slot].present {
            self.enlist(slot, change.set);
        } else {
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
        }
        self.resources[slot].flags = change.flags;
        self.outdate_run(slot);
        self.take_intent(slot, change.hash);
        self.touch(slot, Parts::ALL);
        if self.resources[slot].blocked == Blocked::TemporarilyBlocked {
            self.resources[slot].blocked = Blocked::NotBlocked;
        }
        self.refresh_dirty(slot);
        true
    }

    /// Requirements are compared with the managed graph only: what versions in between said does not matter.
    pub(crate) fn change_requirements(
        &mut self,
        slot: u32,
        requires: &[ResourceId],
        linked: &mut Vec<u32>,
        recheck: &mut Vec<u32>,
        commands: &mut Vec<Command>,
    ) {
        if requires.is_empty() && !self.edges.has_requirements(slot) {
            return;
        }
        let mut wanted = Vec::with_capacity(requires.len());
        for requirement in requires {
            match self.resources.find(requirement.as_str()) {
                Some(found) if self.resources[found].present && found != slot => wanted.push(found),
                Some(found) if found == slot => {
                    let circle = vec![requirement.clone(), requirement.clone()];
                    commands.push(Command::Warn(Warning::Cycle(circle)));
                }
                _ => {
                    if let Some(id) = self.resources.id(slot).cloned() {
                        let requirement = requirement.clone();
                        let unknown = Warning::UnknownRequirement { id, requirement };
                        commands.push(Command::Warn(unknown));
                    }
                }
            }
        }
        wanted.sort_unstable();
        wanted.dedup();
        let mut known: Vec<(u32, u32)> = self.edges.requirement_edges(slot).collect();
        known.sort_unstable();
        let mut dropped = false;
        for (requirement, edge) in &known {
            if wanted.binary_search(requirement).is_err() {
                self.drop_edge(*edge);
                dropped = true;
            }
        }
        let mut added = false;
        for requirement in wanted {
            if known.binary_search_by_key(&requirement, |(known, _)| *known).is_err() {
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

    /// Frees the slot of a resource that is no longer wanted.
    fn forget(&mut self, change: &Folded, commands: &mut Vec<Command>) {
        if let Some(id) = self.delist(change.slot) {
            commands.push(Command::Orphan { id, last_version: change.last_version });
        }
    }
}
