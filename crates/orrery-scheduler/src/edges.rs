//! Requirement edges in both directions, in one arena.
//!
//! Every edge is in two lists: the requirements of its dependent and the dependents of its
//! requirement. Both are doubly linked, so that removing one of a hundred thousand neighbours takes
//! constant time.

/// Sentinel for no slot, edge, task or agent.
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Edge {
    dependent: u32,
    requirement: u32,
    previous_requirement: u32,
    /// Next in the list of the dependent's requirements; next free edge, if this one is free.
    next_requirement: u32,
    previous_dependent: u32,
    next_dependent: u32,
}

/// Heads of the two lists of a resource.
#[derive(Clone, Copy, Debug)]
struct Heads {
    requirements: u32,
    dependents: u32,
}

#[derive(Debug)]
pub(crate) struct Edges {
    heads: Vec<Heads>,
    arena: Vec<Edge>,
    first_free: u32,
}

impl Edges {
    pub(crate) fn new() -> Self {
        Edges { heads: Vec::new(), arena: Vec::new(), first_free: NONE }
    }

    /// Grows the table to this number of slots.
    pub(crate) fn reserve_slots(&mut self, slots: usize) {
        if self.heads.len() < slots {
            self.heads.resize(slots, Heads { requirements: NONE, dependents: NONE });
        }
    }

    pub(crate) fn link(&mut self, dependent: u32, requirement: u32) {
        let next_requirement = self.heads[dependent as usize].requirements;
        let next_dependent = self.heads[requirement as usize].dependents;
        let edge = Edge {
            dependent,
            requirement,
            previous_requirement: NONE,
            next_requirement,
            previous_dependent: NONE,
            next_dependent,
        };
        let at = match self.first_free {
            NONE => {
                self.arena.push(edge);
                u32::try_from(self.arena.len() - 1).expect("invariant: fewer edges than u32 holds")
            }
            free => {
                self.first_free = self.arena[free as usize].next_requirement;
                self.arena[free as usize] = edge;
                free
            }
        };
        if next_requirement != NONE {
            self.arena[next_requirement as usize].previous_requirement = at;
        }
        if next_dependent != NONE {
            self.arena[next_dependent as usize].previous_dependent = at;
        }
        self.heads[dependent as usize].requirements = at;
        self.heads[requirement as usize].dependents = at;
    }

    /// Removes an edge. Returns its dependent and its requirement.
    pub(crate) fn unlink(&mut self, at: u32) -> (u32, u32) {
        let edge = self.arena[at as usize];
        if edge.previous_requirement == NONE {
            self.heads[edge.dependent as usize].requirements = edge.next_requirement;
        } else {
            self.arena[edge.previous_requirement as usize].next_requirement = edge.next_requirement;
        }
        if edge.next_requirement != NONE {
            self.arena[edge.next_requirement as usize].previous_requirement =
                edge.previous_requirement;
        }
        if edge.previous_dependent == NONE {
            self.heads[edge.requirement as usize].dependents = edge.next_dependent;
        } else {
            self.arena[edge.previous_dependent as usize].next_dependent = edge.next_dependent;
        }
        if edge.next_dependent != NONE {
            self.arena[edge.next_dependent as usize].previous_dependent = edge.previous_dependent;
        }
        self.arena[at as usize].next_requirement = self.first_free;
        self.first_free = at;
        (edge.dependent, edge.requirement)
    }

    /// The requirements of a resource, each with its edge.
    pub(crate) fn requirement_edges(&self, slot: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let mut at = self.heads[slot as usize].requirements;
        std::iter::from_fn(move || {
            let edge = self.arena.get(at as usize)?;
            let found = (edge.requirement, at);
            at = edge.next_requirement;
            Some(found)
        })
    }

    pub(crate) fn requirements(&self, slot: u32) -> impl Iterator<Item = u32> + '_ {
        self.requirement_edges(slot).map(|(requirement, _)| requirement)
    }

    pub(crate) fn dependents(&self, slot: u32) -> impl Iterator<Item = u32> + '_ {
        let mut at = self.first_dependent(slot);
        std::iter::from_fn(move || {
            let (dependent, next) = self.dependent_at(at)?;
            at = next;
            Some(dependent)
        })
    }

    /// Returns the edge to the first dependent, for loops that change other state but no edges.
    pub(crate) fn first_dependent(&self, slot: u32) -> u32 {
        self.heads[slot as usize].dependents
    }

    /// Returns the dependent of an edge, and the next edge of the list.
    pub(crate) fn dependent_at(&self, at: u32) -> Option<(u32, u32)> {
        self.arena.get(at as usize).map(|edge| (edge.dependent, edge.next_dependent))
    }

    /// Returns the edge to the first requirement, or `NONE`.
    pub(crate) fn first_requirement(&self, slot: u32) -> u32 {
        self.heads[slot as usize].requirements
    }

    pub(crate) fn has_requirements(&self, slot: u32) -> bool {
        self.heads[slot as usize].requirements != NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(slots: impl Iterator<Item = u32>) -> Vec<u32> {
        let mut slots: Vec<u32> = slots.collect();
        slots.sort_unstable();
        slots
    }

    #[test]
    fn both_directions_agree_whatever_is_taken_away() {
        let mut edges = Edges::new();
        edges.reserve_slots(6);
        let mut expected: Vec<(u32, u32)> = Vec::new();
        for dependent in 1..6 {
            for requirement in 0..dependent {
                edges.link(dependent, requirement);
                expected.push((dependent, requirement));
            }
        }
        for gone in [(5, 0), (3, 2), (1, 0), (5, 4), (4, 0), (5, 2)] {
            let edge = edges.requirement_edges(gone.0).find(|edge| edge.0 == gone.1).unwrap().1;
            assert_eq!(edges.unlink(edge), gone);
            expected.retain(|edge| *edge != gone);
            for slot in 0..6 {
                let requirements = expected.iter().filter(|edge| edge.0 == slot).map(|edge| edge.1);
                assert_eq!(sorted(edges.requirements(slot)), sorted(requirements));
                let dependents = expected.iter().filter(|edge| edge.1 == slot).map(|edge| edge.0);
                assert_eq!(sorted(edges.dependents(slot)), sorted(dependents));
            }
        }
        let before = edges.arena.len();
        edges.link(1, 0);
        assert_eq!(edges.arena.len(), before, "room of dropped edges is used again");
    }
}
