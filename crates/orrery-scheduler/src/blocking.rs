//! What cannot be deployed because it, or something that it requires, is undefined; and circles of requirements.
//!
//! *Undeployable* is a pure function: undefined, or any direct requirement is undeployable. Each resource counts its
//! undeployable requirements, so a change costs what it changes. On a graph without circles the counters
//! have one fixed point, whatever the order.

use orrery_model::{Blocked, ResourceId};
use rustc_hash::FxHashMap;

use crate::command::{Command, Parts, Warning};
use crate::scheduler::Scheduler;

impl Scheduler {
    /// Brings everything that depends on the touched resources up to date. Whoever was reached is added to them.
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
        // Only what is different in the end has consequences.
        for slot in touched {
            self.settle_blocked(*slot);
        }
    }

    fn settle_blocked(&mut self, slot: u32) {
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
        self.touch(slot, Parts::BLOCKED);
    }

    /// Resources that wait for each other would wait for ever. The export refuses such models; should one
    /// come through, the edge that closes the circle is left out.
    /// Whoever lost an edge by that is touched.
    pub(crate) fn break_cycles(
        &mut self,
        linked: &[u32],
        touched: &mut Vec<u32>,
        commands: &mut Vec<Command>,
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
        commands: &mut Vec<Command>,
    ) {
        let mut path = vec![(start, self.requirements_below(start))];
        visits.insert(start, Visit::Open);
        while let Some((slot, left)) = path.last_mut() {
            let slot = *slot;
            let Some(requirement) = left.pop() else {
                visits.insert(slot, Visit::Done);
                path.pop();
                continue;
            };
            match visits.get(&requirement) {
                Some(Visit::Done) => {}
                Some(Visit::Open) => {
                    self.drop_edge(slot, requirement);
                    touched.push(slot);
                    let circle =
                        path.iter().map(|(slot, _)| *slot).skip_while(|slot| *slot != requirement);
                    let circle = circle.chain([requirement]);
                    let names: Vec<ResourceId> =
                        circle.filter_map(|slot| self.resources.id(slot).cloned()).collect();
                    commands.push(Command::Warn(Warning::Cycle(names)));
                }
                None => {
                    visits.insert(requirement, Visit::Open);
                    path.push((requirement, self.requirements_below(requirement)));
                }
            }
        }
    }

    /// Requirements that could lead into a circle: those that nothing is below cannot.
    fn requirements_below(&self, slot: u32) -> Vec<u32> {
        self.edges.requirements(slot).filter(|slot| self.edges.has_requirements(*slot)).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visit {
    /// On the path from the start to here.
    Open,
    Done,
}
