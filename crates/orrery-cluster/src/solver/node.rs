//! Choice of the next kind of node: the most preferred one with which a complete layout still
//! exists.

use super::instance::{Atom, Machine, Mask, Partial, bits};
use super::limits::Interruption;
use super::search::{Search, State, excess};
use super::sets::{Volume, compatible, weight_bound};

/// The most preferred node found so far.
pub(super) struct Best {
    key: (usize, usize, usize, usize),
    pub(super) node: Partial,
    pub(super) domain: usize,
}

/// Constants of the choice of one node.
struct Step<'s> {
    state: &'s State,
    domain: usize,
    complete: bool,
    most_atoms: u64,
    /// Number of services of the node.
    weight: i64,
    /// Atoms with open demand, and the room that this node must provide for them.
    demanded: Mask,
    room: Volume,
}

impl Search<'_, '_> {
    /// The most preferred node that can be placed next. Without `complete`, only bounds are
    /// checked.
    pub(super) fn most_preferred(
        &self,
        state: &State,
        complete: bool,
    ) -> Result<Option<Best>, Interruption> {
        let mut best = None;
        let all: Mask = (0..self.instance.atoms.len())
            .filter(|&atom| self.instance.atoms[atom].hi > state.placed[atom])
            .fold(0, |mask, atom| mask | 1 << atom);
        // Taking more atoms than this would leave later nodes empty.
        let most_atoms = if self.instance.everywhere.is_empty() && complete {
            let spare = excess(&self.instance.ceiling, &state.placed);
            (spare + 1).saturating_sub(u64::from(state.left))
        } else {
            u64::MAX
        };
        let starts: Vec<(Partial, Mask)> = (0..self.instance.domains.len())
            .map(|domain| {
                let open = |atom: &usize| {
                    let slot = self.instance.slot(*atom, domain);
                    slot.is_none_or(|slot| state.caps[slot] > 0)
                };
                let candidates = bits(all).filter(open).fold(0, |mask, atom| mask | 1 << atom);
                let start = self.instance.start(domain);
                (start, compatible(self.instance, &start, candidates))
            })
            .collect();
        let (demanded, room) = self.demanded_room(state);
        let mut step = Step { state, domain: 0, complete, most_atoms, weight: 0, demanded, room };
        let bounds = starts.iter().map(|(start, open)| self.addable(&step, start, *open));
        // From the upper bound of the weight down to an existing one.
        step.weight = bounds.max().unwrap_or(0);
        while best.is_none() && step.weight >= 0 {
            for (domain, (start, candidates)) in starts.iter().enumerate() {
                step.domain = domain;
                self.choose(&step, start, *candidates, 0, &mut best)?;
            }
            step.weight -= 1;
        }
        Ok(best)
    }

    fn choose(
        &self,
        step: &Step<'_>,
        node: &Partial,
        candidates: Mask,
        weight: i64,
        best: &mut Option<Best>,
    ) -> Result<(), Interruption> {
        self.meter.step()?;
        if weight + self.addable(step, node, candidates) < step.weight
            || best.as_ref().is_some_and(|best| self.instance.machine_key(node) >= best.key)
        {
            return Ok(());
        }
        if candidates == 0 {
            let empty = node.atoms == 0 && self.instance.everywhere.is_empty();
            let accepted = !empty
                && (!step.complete
                    || self.completes(step.state, node.atoms, node.atoms, step.domain, 1)?);
            if accepted {
                *best = Some(Best {
                    key: self.instance.machine_key(node),
                    node: *node,
                    domain: step.domain,
                });
            }
            return Ok(());
        }
        // Names in ascending order, each taken before it is left out: equal weights are found in
        // the order of preference.
        let atom = candidates.trailing_zeros() as usize;
        let rest = candidates & !(1 << atom);
        let allowed = u64::from(node.atoms.count_ones()) < step.most_atoms;
        if allowed && let Some(next) = self.instance.extend(node, atom) {
            let left = compatible(self.instance, &next, rest);
            if self.may_complete(step, &next, left)? {
                let weight = weight + self.weights[atom];
                self.choose(step, &next, left, weight, best)?;
            }
        }
        if self.may_complete(step, node, rest)? {
            self.choose(step, node, rest, weight, best)?;
        }
        Ok(())
    }

    /// Upper bound of the number of services that candidates add.
    fn addable(&self, step: &Step<'_>, node: &Partial, candidates: Mask) -> i64 {
        let bound = weight_bound(self.instance, node, candidates, &self.weights);
        let spare = step.most_atoms.saturating_sub(u64::from(node.atoms.count_ones()));
        if spare >= u64::from(candidates.count_ones()) {
            return bound;
        }
        let mut heaviest: Vec<i64> = bits(candidates).map(|atom| self.weights[atom]).collect();
        heaviest.sort_unstable_by(|a, b| b.cmp(a));
        let spare = usize::try_from(spare).unwrap_or(usize::MAX);
        bound.min(heaviest.iter().take(spare).sum())
    }

    fn may_complete(
        &self,
        step: &Step<'_>,
        node: &Partial,
        candidates: Mask,
    ) -> Result<bool, Interruption> {
        if !step.complete || candidates == 0 {
            return Ok(true);
        }
        if !self.leaves_room(step, node, candidates) {
            return Ok(false);
        }
        let possible = node.atoms | candidates;
        self.completes(step.state, node.atoms, possible, step.domain, 1)
    }

    /// Atoms with open demand, and the room that the other nodes lack for them.
    fn demanded_room(&self, state: &State) -> (Mask, Volume) {
        let instance = self.instance;
        let mut counts: Vec<u32> = instance.atoms.iter().map(|atom| atom.lo).collect();
        for (count, placed) in counts.iter_mut().zip(&state.placed) {
            *count = (*count).max(*placed);
        }
        if !instance.capacity || !instance.raise(&mut counts) {
            return (0, Volume::default());
        }
        let open = |atom: usize| u128::from(counts[atom] - state.placed[atom]);
        let demanded = (0..counts.len())
            .filter(|&atom| open(atom) > 0)
            .fold(0, |mask: Mask, atom| mask | 1 << atom);
        let lacking = |size: fn(&Atom) -> u64, most: fn(&Machine) -> u64| {
            let largest = instance.machines.iter().map(most).max().unwrap_or(0);
            let others = u128::from(largest) * u128::from(state.left.saturating_sub(1));
            let needed = bits(demanded).map(|a| u128::from(size(&instance.atoms[a])) * open(a));
            u64::try_from(needed.sum::<u128>().saturating_sub(others)).unwrap_or(u64::MAX)
        };
        let room = Volume {
            cpu: lacking(|atom| atom.cpu, |machine| machine.cpu),
            memory: lacking(|atom| atom.memory, |machine| machine.memory),
        };
        (demanded, room)
    }

    /// True if the node can have the required number of services and still provide the room that
    /// other nodes lack for demanded atoms.
    fn leaves_room(&self, step: &Step<'_>, node: &Partial, candidates: Mask) -> bool {
        if !self.instance.capacity {
            return true;
        }
        let weight: i64 = bits(node.atoms).map(|atom| self.weights[atom]).sum();
        let heaviest = bits(candidates).map(|atom| self.weights[atom]).max().unwrap_or(1).max(1);
        let atoms = ((step.weight - weight).max(0) + heaviest - 1) / heaviest;
        let atoms = usize::try_from(atoms).unwrap_or(usize::MAX);
        let fits = |size: fn(&Atom) -> u64, most: fn(&Machine) -> u64, room: u64| {
            let of = |mask: Mask| bits(mask).map(|atom| size(&self.instance.atoms[atom]));
            let machines = bits(node.hardware).map(|machine| &self.instance.machines[machine]);
            let free = machines.map(most).max().unwrap_or(0) - of(node.atoms).sum::<u64>();
            let room = room.saturating_sub(of(node.atoms & step.demanded).sum());
            let mut demanded: Vec<u64> = of(candidates & step.demanded).collect();
            let mut others: Vec<u64> = of(candidates & !step.demanded).collect();
            demanded.sort_unstable();
            others.sort_unstable();
            // With some number of demanded atoms, and the smallest of the others.
            (0..=demanded.len()).any(|count| {
                let largest: u64 = demanded.iter().rev().take(count).sum();
                let smallest: u64 = demanded.iter().take(count).sum();
                let rest = atoms.saturating_sub(count);
                largest >= room
                    && rest <= others.len()
                    && smallest.max(room) + others.iter().take(rest).sum::<u64>() <= free
            })
        };
        fits(|atom| atom.cpu, |machine| machine.cpu, step.room.cpu)
            && fits(|atom| atom.memory, |machine| machine.memory, step.room.memory)
    }
}
