//! Blocking by undefined requirements, and detection of requirement cycles.
//!
//! *Undeployable* is a pure function: undefined, or any direct requirement is undeployable. Each
//! resource counts its undeployable requirements, so the cost of a change depends on its extent. On
//! an acyclic graph the counters have one fixed point, independent of the order.

use orrery_model::{Blocked, ResourceId};
use rustc_hash::FxHashMap;

use crate::command::{ChangedFields, SchedulerCommand, SchedulerWarning};
use crate::scheduler::Scheduler;

impl Scheduler {
    /// Propagates `undeployable` from the touched resources to their dependents. Appends each
    /// reached resource to `touched`.
    pub(crate) fn propagate_undeployable(&mut self, touched: &mut Vec<u32>) {
        let mut at = 0;
        while let Some(slot) = touched.get(at).copied() {
            at += 1;
            let record = &mut self.resources[slot];
            let undeployable = record.flags.undefined || record.undeployable_requirements > 0;
            if !record.present || record.undeployable == undeployable {
                continue;
            }
            record.undeployable = undeployable;
            let mut edge = self.edges.first_dependent(slot);
            while let Some((dependent, next)) = self.edges.dependent_at(edge) {
                edge = next;
                let count = &mut self.resources[dependent].undeployable_requirements;
                *count = if undeployable { *count + 1 } else { *count - 1 };
                touched.push(dependent);
            }
        }
        // Only a net difference has consequences.
        for slot in touched {
            self.update_blocked(*slot);
        }
    }

    fn update_blocked(&mut self, slot: u32) {
        let record = &self.resources[slot];
        if !record.present || record.undeployable == (record.blocked == Blocked::Blocked) {
            return;
        }
        if record.undeployable {
            self.resources[slot].blocked = Blocked::Blocked;
            self.set_dirty(slot, false);
            self.remove_task(slot);
            self.remove_fact_task(slot);
            self.disarm(slot);
        } else {
            self.resources[slot].blocked = Blocked::NotBlocked;
            self.refresh_dirty(slot);
        }
        self.touch(slot, ChangedFields::BLOCKED);
    }

    /// Removes the edge that closes a cycle, since resources in a cycle would wait forever. The
    /// export rejects such models. A resource that lost an edge is appended to `touched`.
    pub(crate) fn break_cycles(
        &mut self,
        linked: &[u32],
        touched: &mut Vec<u32>,
        commands: &mut Vec<SchedulerCommand>,
    ) {
        let mut visits: FxHashMap<u32, Visit> = FxHashMap::default();
        for start in linked {
            if !visits.contains_key(start) {
                self.search_cycles(*start, &mut visits, touched, commands);
            }
        }
    }

    fn search_cycles(
        &mut self,
        start: u32,
        visits: &mut FxHashMap<u32, Visit>,
        touched: &mut Vec<u32>,
        commands: &mut Vec<SchedulerCommand>,
    ) {
        let mut path = vec![(start, self.requirements_below(start))];
        visits.insert(start, Visit::Open);
        while let Some((slot, left)) = path.last_mut() {
            let slot = *slot;
            let Some((requirement, edge)) = left.pop() else {
                visits.insert(slot, Visit::Done);
                path.pop();
                continue;
            };
            match visits.get(&requirement) {
                Some(Visit::Done) => {}
                Some(Visit::Open) => {
                    self.drop_edge(edge);
                    touched.push(slot);
                    let circle =
                        path.iter().map(|(slot, _)| *slot).skip_while(|slot| *slot != requirement);
                    let circle = circle.chain([requirement]);
                    let names: Vec<ResourceId> =
                        circle.filter_map(|slot| self.resources.id(slot).cloned()).collect();
                    commands.push(SchedulerCommand::Warn(SchedulerWarning::Cycle(names)));
                }
                None => {
                    visits.insert(requirement, Visit::Open);
                    path.push((requirement, self.requirements_below(requirement)));
                }
            }
        }
    }

    /// Returns requirements that can be part of a cycle: those with requirements of their own.
    fn requirements_below(&self, slot: u32) -> Vec<(u32, u32)> {
        let edges = self.edges.requirement_edges(slot);
        edges.filter(|(requirement, _)| self.edges.has_requirements(*requirement)).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visit {
    /// On the current path from the start.
    Open,
    Done,
}
