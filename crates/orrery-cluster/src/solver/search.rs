//! Search for the lexicographically greatest layout.
//!
//! Layouts are never enumerated. Nodes are chosen one kind after the other: the most preferred kind with
//! which a complete layout still exists, as often as possible. That is the lexicographically greatest
//! count vector, because a rest that could use a more preferred kind would have given that kind a higher
//! count. For the same reason, the number of nodes of a kind is found by bisection.

use super::instance::{Instance, Mask, Partial, bits};
use super::limits::{Interrupted, Meter};
use super::packing::Packer;
use super::sets::{compatible, weight_bound};

/// Nodes placed so far and what is left.
#[derive(Debug, Clone)]
struct State {
    left: u32,
    placed: Vec<u32>,
    caps: Vec<u32>,
}

/// Equal nodes of a solution.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chosen {
    pub(crate) node: Partial,
    pub(crate) count: u32,
}

/// Search for one instance.
pub(crate) struct Search<'i, 'm> {
    instance: &'i Instance,
    packer: Packer<'i, 'm>,
    meter: &'m Meter<'m>,
    /// Numbers of services of the atoms.
    weights: Vec<i64>,
}

/// Nodes beyond those needed, at most, that are considered when atoms share nodes to make steps fit.
const OVERLAP: usize = 64;

/// The most preferred node found so far.
struct Best {
    key: (usize, usize, usize, usize),
    node: Partial,
    domain: usize,
}

impl<'i, 'm> Search<'i, 'm> {
    pub(crate) fn new(instance: &'i Instance, meter: &'m Meter<'m>) -> Self {
        let weights = instance.atoms.iter();
        let weights =
            weights.map(|atom| i64::try_from(atom.services.len()).unwrap_or(i64::MAX)).collect();
        Self { instance, packer: Packer::new(instance, meter), meter, weights }
    }

    fn initial(&self) -> State {
        State {
            left: self.instance.size,
            placed: vec![0; self.instance.atoms.len()],
            caps: self.instance.initial_caps(),
        }
    }

    /// Whether any layout satisfies all rules.
    pub(crate) fn feasible(&self) -> Result<bool, Interrupted> {
        if self.instance.machines.is_empty() || self.instance.images.is_empty() {
            return Ok(false);
        }
        self.completes(&self.initial(), 0, 0, 0, 0)
    }

    /// Bounds of the sizes that can have a layout: what is outside of them cannot.
    pub(crate) fn size_range(&self) -> Result<Option<(u32, u32)>, Interrupted> {
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
    pub(crate) fn solve(&self) -> Result<Option<Vec<Chosen>>, Interrupted> {
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
            self.place(&mut state, &best, fits);
            chosen.push(Chosen { node: best.node, count: fits });
        }
        Ok(Some(chosen))
    }

    /// Whether the greedy start of the original search reaches the size: it gives every kind of node as
    /// many nodes as maxima allow and never looks ahead.
    pub(crate) fn greedy_start_reaches_size(&self) -> Result<bool, Interrupted> {
        let mut state = self.initial();
        while state.left > 0 {
            let Some(best) = self.most_preferred(&state, false)? else {
                return Ok(false);
            };
            let count = self.most(&state, &best);
            self.place(&mut state, &best, count);
        }
        Ok(true)
    }

    /// Nodes of a kind that bounds alone allow.
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

    fn place(&self, state: &mut State, best: &Best, count: u32) {
        state.left -= count;
        for atom in bits(best.node.atoms) {
            state.placed[atom] += count;
            if let Some(slot) = self.instance.slot(atom, best.domain) {
                state.caps[slot] -= count;
            }
        }
    }

    /// Whether a layout exists in which `count` of the nodes left have the atoms `taken`. With `possible`
    /// beyond `taken` it is a relaxation: one node may have any of those, conflicts or not.
    fn completes(
        &self,
        state: &State,
        taken: Mask,
        possible: Mask,
        domain: usize,
        count: u32,
    ) -> Result<bool, Interrupted> {
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

    /// Whether counts within the bounds put an atom on each of the nodes left. Counts that do can be
    /// spread over the nodes, as atoms may always be taken apart.
    fn fill(
        &self,
        low: Vec<u32>,
        high: Vec<u32>,
        placed: &[u32],
        caps: &[u32],
        left: u32,
    ) -> Result<bool, Interrupted> {
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

    /// Whether an atom's count can be raised by one without a change of others.
    fn is_free(&self, atom: usize) -> bool {
        self.instance.atoms[atom].step == 1
            && self.instance.ratios.iter().all(|ratio| ratio.of != atom)
    }

    /// Decides most cases in which only steps restrict counts: the sums that they reach are computed.
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
        let mut sums = vec![false; missing + overlap + 1];
        sums[0] = true;
        for (atom, known) in atoms.iter().enumerate() {
            // How many steps of this atom a sum has taken.
            let steps = ((high[atom] - low[atom]) / known.step) as usize;
            let step = known.step as usize;
            let mut used = vec![0; sums.len()];
            for sum in step..sums.len() {
                if !sums[sum] && sums[sum - step] && used[sum - step] < steps {
                    sums[sum] = true;
                    used[sum] = used[sum - step] + 1;
                }
            }
        }
        if sums[missing] {
            return Some(true);
        }
        let usable: Vec<usize> = (0..low.len()).filter(|&a| high[a] > placed[a]).collect();
        let mut pairs = false;
        for (i, &a) in usable.iter().enumerate() {
            for &b in &usable[i + 1..] {
                if atoms[a].conflicts >> b & 1 == 1 || !self.can_share(a, b) {
                    continue;
                }
                pairs = true;
                // Two atoms that share some nodes make room for a sum that is larger by as many.
                let shared = (low[a] - placed[a]).min(low[b] - placed[b]) as usize;
                let spread = atoms[a].spread.is_some() || atoms[b].spread.is_some();
                if !spread && (1..=shared.min(overlap)).any(|extra| sums[missing + extra]) {
                    return Some(true);
                }
            }
        }
        (!pairs).then_some(false)
    }

    fn can_share(&self, a: usize, b: usize) -> bool {
        (0..self.instance.domains.len()).any(|domain| {
            let node = self.instance.extend(&self.instance.start(domain), a);
            node.and_then(|node| self.instance.extend(&node, b)).is_some()
        })
    }

    /// The most preferred node that can be placed next. Without `complete`, bounds alone decide.
    fn most_preferred(&self, state: &State, complete: bool) -> Result<Option<Best>, Interrupted> {
        let mut best = None;
        let all: Mask = (0..self.instance.atoms.len())
            .filter(|&atom| self.instance.atoms[atom].hi > state.placed[atom])
            .fold(0, |mask, atom| mask | 1 << atom);
        // Taking more atoms than this leaves later nodes empty.
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
        let mut step = Step { state, domain: 0, complete, most_atoms, weight: 0 };
        let bounds = starts.iter().map(|(start, open)| self.addable(&step, start, *open));
        // From the highest weight that is imaginable down to one that exists.
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
    ) -> Result<(), Interrupted> {
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
        // Names in ascending order, each taken before it is left out: equal weights are met in the
        // order of preference.
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

    /// Upper bound of the services that candidates add.
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
    ) -> Result<bool, Interrupted> {
        if !step.complete || candidates == 0 {
            return Ok(true);
        }
        let possible = node.atoms | candidates;
        self.completes(step.state, node.atoms, possible, step.domain, 1)
    }
}

/// What is fixed while one node is chosen.
struct Step<'s> {
    state: &'s State,
    domain: usize,
    complete: bool,
    most_atoms: u64,
    /// Number of services that the node has.
    weight: i64,
}

/// Sum of what counts exceed others by.
fn excess(counts: &[u32], placed: &[u32]) -> u64 {
    counts.iter().zip(placed).map(|(count, placed)| u64::from(count.saturating_sub(*placed))).sum()
}
