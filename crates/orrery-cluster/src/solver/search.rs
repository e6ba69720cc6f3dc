//! Search for the lexicographically greatest layout.
//!
//! Layouts are never enumerated. Nodes are chosen one kind after the other: the most preferred kind
//! with which a complete layout still exists, as often as possible. That is the lexicographically
//! greatest count vector, because a rest that could use a more preferred kind would have given that
//! kind a higher count. For the same reason, the number of nodes of a kind is found by bisection.

use std::collections::BTreeMap;

use super::instance::{Instance, Mask, Partial, bits};
use super::limits::{Interruption, Meter};
use super::node::Best;
use super::packing::Packer;

/// Placed nodes and the remaining demand.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) left: u32,
    pub(super) placed: Vec<u32>,
    pub(super) caps: Vec<u32>,
}

/// Equal nodes of a solution.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChosenNodes {
    pub(crate) node: Partial,
    pub(crate) count: u32,
}

/// Search for one instance.
pub(crate) struct Search<'i, 'm> {
    pub(super) instance: &'i Instance,
    packer: Packer<'i, 'm>,
    pub(super) meter: &'m Meter<'m>,
    /// Numbers of services of the atoms.
    pub(super) weights: Vec<i64>,
    /// Nodes that are placed before the search begins.
    start: Option<State>,
}

/// Maximum number of nodes, beyond those needed, that are considered when atoms share nodes to make
/// steps fit.
const OVERLAP: usize = 64;
/// Maximum number of pairs of atoms that are tried to share nodes.
const MAX_PAIRS: usize = 16;

impl<'i, 'm> Search<'i, 'm> {
    pub(crate) fn new(instance: &'i Instance, meter: &'m Meter<'m>) -> Self {
        let weights = instance.atoms.iter();
        let weights =
            weights.map(|atom| i64::try_from(atom.services.len()).unwrap_or(i64::MAX)).collect();
        let packer = Packer::new(instance, meter);
        Self { instance, packer, meter, weights, start: None }
    }

    /// The same search behind existing nodes.
    pub(crate) fn starting_from(mut self, state: State) -> Self {
        self.start = Some(state);
        self
    }

    fn initial(&self) -> State {
        if let Some(start) = &self.start {
            return start.clone();
        }
        State {
            left: self.instance.size,
            placed: vec![0; self.instance.atoms.len()],
            caps: self.instance.initial_caps(),
        }
    }

    /// True if any layout satisfies all rules.
    pub(crate) fn feasible(&self) -> Result<bool, Interruption> {
        if self.instance.machines.is_empty() || self.instance.images.is_empty() {
            return Ok(false);
        }
        self.completes(&self.initial(), 0, 0, 0, 0)
    }

    /// Bounds of the feasible sizes: sizes outside of them have no layout.
    pub(crate) fn size_range(&self) -> Result<Option<(u32, u32)>, Interruption> {
        let state = self.initial();
        let mut counts: Vec<u32> = self.instance.atoms.iter().map(|atom| atom.lo).collect();
        if self.instance.machines.is_empty()
            || self.instance.images.is_empty()
            || !self.instance.raise(&mut counts)
            || !self.packer.fits(&counts, &state.caps, self.instance.size)?
        {
            return Ok(None);
        }
        let (mut fails, mut fits) = (0, self.instance.size);
        while fits - fails > 1 {
            let middle = fails + (fits - fails) / 2;
            if self.packer.fits(&counts, &state.caps, middle)? {
                fits = middle;
            } else {
                fails = middle;
            }
        }
        let most = if self.instance.everywhere.is_empty() {
            let most = excess(&self.instance.ceiling, &state.placed);
            u32::try_from(most).unwrap_or(u32::MAX).min(self.instance.size)
        } else {
            self.instance.size
        };
        Ok(Some((fits, most)))
    }

    /// The lexicographically greatest layout, if there is one.
    pub(crate) fn solve(&self) -> Result<Option<Vec<ChosenNodes>>, Interruption> {
        if !self.feasible()? {
            return Ok(None);
        }
        let mut state = self.initial();
        let mut chosen = Vec::new();
        while state.left > 0 {
            let Some(best) = self.most_preferred(&state, true)? else {
                return Ok(None);
            };
            let (mut fits, mut fails) = (1, self.most(&state, &best) + 1);
            while fits + 1 < fails {
                let middle = fits + (fails - fits) / 2;
                let atoms = best.node.atoms;
                if self.completes(&state, atoms, atoms, best.domain, middle)? {
                    fits = middle;
                } else {
                    fails = middle;
                }
            }
            self.place_nodes(&mut state, &best, fits);
            chosen.push(ChosenNodes { node: best.node, count: fits });
        }
        Ok(Some(chosen))
    }

    /// True if the greedy start of the original search reaches the size: it gives every kind of
    /// node as many nodes as maxima allow and never looks ahead.
    pub(crate) fn greedy_start_reaches_size(&self) -> Result<bool, Interruption> {
        let mut state = self.initial();
        while state.left > 0 {
            let Some(best) = self.most_preferred(&state, false)? else {
                return Ok(false);
            };
            let count = self.most(&state, &best);
            self.place_nodes(&mut state, &best, count);
        }
        Ok(true)
    }

    /// Maximum number of nodes of a kind according to the bounds alone.
    fn most(&self, state: &State, best: &Best) -> u32 {
        let mut most = state.left;
        for atom in bits(best.node.atoms) {
            most = most.min(self.instance.atoms[atom].hi - state.placed[atom]);
            if let Some(slot) = self.instance.slot(atom, best.domain) {
                most = most.min(state.caps[slot]);
            }
        }
        most
    }

    fn place_nodes(&self, state: &mut State, best: &Best, count: u32) {
        state.left -= count;
        for atom in bits(best.node.atoms) {
            state.placed[atom] += count;
            if let Some(slot) = self.instance.slot(atom, best.domain) {
                state.caps[slot] -= count;
            }
        }
    }

    /// True if a layout exists in which `count` of the remaining nodes have the atoms `taken`. With
    /// `possible` beyond `taken` it is a relaxation: one node may have any of those, conflicts or
    /// not.
    pub(super) fn completes(
        &self,
        state: &State,
        taken: Mask,
        possible: Mask,
        domain: usize,
        count: u32,
    ) -> Result<bool, Interruption> {
        let mut placed = state.placed.clone();
        let mut caps = state.caps.clone();
        for atom in bits(taken) {
            placed[atom] += count;
            if let Some(slot) = self.instance.slot(atom, domain) {
                if caps[slot] < count {
                    return Ok(false);
                }
                caps[slot] -= count;
            }
        }
        let left = state.left - count.max(u32::from(possible != taken));
        let mut counts: Vec<u32> = self.instance.atoms.iter().map(|atom| atom.lo).collect();
        for (count, placed) in counts.iter_mut().zip(&placed) {
            *count = (*count).max(*placed);
        }
        if !self.instance.raise(&mut counts) {
            return Ok(false);
        }
        let demand: Vec<u32> = counts
            .iter()
            .zip(&placed)
            .enumerate()
            .map(|(atom, (count, placed))| {
                let free = u32::from((possible & !taken) >> atom & 1 == 1);
                (count - placed).saturating_sub(free)
            })
            .collect();
        if !self.packer.fits(&demand, &caps, left)? {
            return Ok(false);
        }
        if !self.instance.everywhere.is_empty() {
            return Ok(true);
        }
        // Without services that run everywhere, every node needs an atom.
        let mut top: Vec<u32> = self
            .instance
            .ceiling
            .iter()
            .zip(&placed)
            .map(|(c, p)| (*c).min(p.saturating_add(left)))
            .collect();
        if possible != taken || !self.instance.coupled() {
            return Ok(excess(&top, &placed) >= u64::from(left));
        }
        self.instance.lower(&mut top);
        self.fill(counts, top, &placed, &caps, left)
    }

    /// True if counts within the bounds put an atom on each of the remaining nodes. Such counts can
    /// be spread over the nodes, as atoms may always be separated.
    fn fill(
        &self,
        low: Vec<u32>,
        high: Vec<u32>,
        placed: &[u32],
        caps: &[u32],
        left: u32,
    ) -> Result<bool, Interruption> {
        self.meter.step()?;
        let sum = excess(&low, placed);
        if sum >= u64::from(left) {
            return Ok(true);
        }
        if low.iter().zip(&high).any(|(l, h)| l > h) || excess(&high, placed) < u64::from(left) {
            return Ok(false);
        }
        let missing = u64::from(left) - sum;
        let free = (0..low.len()).filter(|&atom| self.is_free(atom));
        if free.map(|atom| u64::from(high[atom] - low[atom])).sum::<u64>() >= missing {
            return Ok(true);
        }
        if let Some(decided) = self.fill_by_steps(&low, &high, placed, missing) {
            return Ok(decided);
        }
        let widest = (0..low.len()).max_by_key(|&a| (high[a] - low[a], std::cmp::Reverse(a)));
        let Some(atom) = widest.filter(|&atom| high[atom] > low[atom]) else {
            return Ok(false);
        };
        let middle = low[atom] + (high[atom] - low[atom]) / 2;
        let mut raised = low.clone();
        raised[atom] = middle + 1;
        if self.instance.raise(&mut raised) {
            let demand: Vec<u32> = raised.iter().zip(placed).map(|(c, p)| c - p).collect();
            if self.packer.fits(&demand, caps, left)?
                && self.fill(raised, high.clone(), placed, caps, left)?
            {
                return Ok(true);
            }
        }
        let mut lowered = high;
        lowered[atom] = middle;
        self.instance.lower(&mut lowered);
        self.fill(low, lowered, placed, caps, left)
    }

    /// True if an atom's count can be raised by one without changing others.
    fn is_free(&self, atom: usize) -> bool {
        self.instance.atoms[atom].step == 1
            && self.instance.ratios.iter().all(|ratio| ratio.of != atom)
    }

    /// Decides most cases in which only steps restrict counts: computes the reachable sums.
    fn fill_by_steps(
        &self,
        low: &[u32],
        high: &[u32],
        placed: &[u32],
        missing: u64,
    ) -> Option<bool> {
        if !self.instance.ratios.is_empty() {
            return None;
        }
        let atoms = &self.instance.atoms;
        let missing = usize::try_from(missing).ok()?;
        let overlap = atoms.iter().map(|atom| atom.step as usize).max()?.min(OVERLAP);
        let sums = self.reachable_sums(low, high, missing + overlap);
        if sums[missing] {
            return Some(true);
        }
        let usable: Vec<usize> = (0..low.len()).filter(|&a| high[a] > placed[a]).collect();
        let mut pairs = 0;
        for (i, &a) in usable.iter().enumerate() {
            for &b in &usable[i + 1..] {
                if atoms[a].conflicts >> b & 1 == 1 || !self.can_share(a, b) {
                    continue;
                }
                pairs += 1;
                let spread = atoms[a].spread.is_some() || atoms[b].spread.is_some();
                if spread || pairs > MAX_PAIRS {
                    continue;
                }
                // Two atoms that share some nodes allow a sum that is larger by as many.
                let shared = (low[a] - placed[a]).min(low[b] - placed[b]) as usize;
                if (1..=shared.min(overlap)).any(|extra| sums[missing + extra])
                    || self.pair_fills([a, b], low, high, placed, missing)
                {
                    return Some(true);
                }
            }
        }
        (pairs == 0).then_some(false)
    }

    /// True if raising two atoms to their next steps, so that they can share nodes, makes counts
    /// fit.
    fn pair_fills(
        &self,
        pair: [usize; 2],
        low: &[u32],
        high: &[u32],
        placed: &[u32],
        missing: usize,
    ) -> bool {
        let mut raised = low.to_vec();
        for atom in pair {
            let step = self.instance.atoms[atom].step;
            raised[atom] = low[atom].max((placed[atom] + 1).div_ceil(step) * step);
            if raised[atom] > high[atom] {
                return false;
            }
        }
        let used = usize::try_from(excess(&raised, low)).unwrap_or(usize::MAX);
        let shared = pair.map(|atom| raised[atom] - placed[atom]);
        let shared = (shared[0].min(shared[1]) as usize).min(OVERLAP);
        let Some(rest) = (missing + shared).checked_sub(used) else { return false };
        let sums = self.reachable_sums(&raised, high, rest);
        (0..=shared.min(rest)).any(|extra| sums[rest - extra])
    }

    /// Sums up to a limit by which whole steps of all atoms can raise the counts.
    fn reachable_sums(&self, low: &[u32], high: &[u32], limit: usize) -> Vec<bool> {
        let mut sums = vec![false; limit + 1];
        sums[0] = true;
        // Atoms with the same step are one with more of them.
        let mut steps: BTreeMap<usize, usize> = BTreeMap::new();
        for (atom, known) in self.instance.atoms.iter().enumerate() {
            *steps.entry(known.step as usize).or_default() +=
                ((high[atom] - low[atom]) / known.step) as usize;
        }
        for (step, most) in steps {
            // Number of these steps in a sum.
            let mut used = vec![0; sums.len()];
            for sum in step..sums.len() {
                if !sums[sum] && sums[sum - step] && used[sum - step] < most {
                    sums[sum] = true;
                    used[sum] = used[sum - step] + 1;
                }
            }
        }
        sums
    }

    fn can_share(&self, a: usize, b: usize) -> bool {
        (0..self.instance.domains.len()).any(|domain| {
            let node = self.instance.extend(&self.instance.start(domain), a);
            node.and_then(|node| self.instance.extend(&node, b)).is_some()
        })
    }
}

/// Total by which counts exceed others.
pub(super) fn excess(counts: &[u32], placed: &[u32]) -> u64 {
    counts.iter().zip(placed).map(|(count, placed)| u64::from(count.saturating_sub(*placed))).sum()
}
