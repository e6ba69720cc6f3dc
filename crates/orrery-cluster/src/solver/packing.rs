//! Decides whether a number of nodes can hold the demanded counts of all atoms.
//!
//! Atoms that may share a node may also run apart, so the answer depends on the demands alone: it
//! is weighted colouring of the conflicts. Independent atoms are decided separately. Cliques and
//! greedy packing settle nearly all cases, the linear relaxation most of the rest, and a search
//! with a cache all of them.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, VecDeque};

use super::instance::{Atom, Instance, Mask, bits};
use super::limits::{Interruption, Meter};
use super::sets::{Volume, compatible, maximal_sets};
use super::simplex::{Proof, relax};
use super::witness::{Plan, Witnesses, unite};

/// Packing decisions for one instance, with a cache.
pub(crate) struct Packer<'i, 'm> {
    instance: &'i Instance,
    meter: &'m Meter<'m>,
    /// For demands and capacities: lower and upper bound on the number of nodes of a packing.
    known: RefCell<HashMap<Vec<u32>, (u32, u32)>>,
    /// Newest first.
    proofs: RefCell<VecDeque<Proof>>,
    witnesses: Witnesses,
}

/// Result of a packing decision, with the packing if it is known.
enum Fit {
    No,
    Yes(Option<Plan>),
}

impl Fit {
    /// Adds nodes that were taken before.
    fn with(self, taken: Plan) -> Self {
        match self {
            Self::Yes(Some(mut plan)) => {
                plan.extend(taken);
                Self::Yes(Some(plan))
            }
            other => other,
        }
    }
}

/// Room that packings leave empty.
#[derive(Debug, Clone, Copy)]
struct Waste {
    /// True if there is so little that it guides the search better than the relaxation does.
    tight: bool,
    /// Room that every node must use: with less, the others could not compensate.
    least: Volume,
}

/// Maximum number of nested decisions; each takes at least one node away.
const MAX_DEPTH: usize = 1500;
/// Maximum number of cached proofs of bounds.
const MAX_PROOFS: usize = 64;
/// Maximum number of cached decisions.
const MAX_KNOWN: usize = 200_000;

impl<'i, 'm> Packer<'i, 'm> {
    pub(crate) fn new(instance: &'i Instance, meter: &'m Meter<'m>) -> Self {
        Self {
            instance,
            meter,
            known: RefCell::new(HashMap::new()),
            proofs: RefCell::default(),
            witnesses: Witnesses::default(),
        }
    }

    /// Decides whether `nodes` nodes can hold the demands within the capacities for label values.
    pub(crate) fn fits(
        &self,
        demand: &[u32],
        caps: &[u32],
        nodes: u32,
    ) -> Result<bool, Interruption> {
        Ok(matches!(self.fits_all(demand, caps, nodes, 0)?, Fit::Yes(_)))
    }

    fn fits_all(
        &self,
        demand: &[u32],
        caps: &[u32],
        nodes: u32,
        depth: usize,
    ) -> Result<Fit, Interruption> {
        self.meter.step()?;
        if depth > MAX_DEPTH {
            return Err(Interruption::Depth);
        }
        let mut support: Mask = 0;
        for (atom, &count) in demand.iter().enumerate() {
            if count > nodes {
                return Ok(Fit::No);
            }
            if count > 0 {
                support |= 1 << atom;
            }
        }
        let mut plan = Some(Plan::new());
        while support != 0 {
            let component = self.component(support);
            support &= !component;
            let Fit::Yes(part) = self.fits_component(component, demand, caps, nodes, depth)? else {
                return Ok(Fit::No);
            };
            plan = plan.zip(part).map(|(plan, part)| unite(&plan, &part));
        }
        Ok(Fit::Yes(plan))
    }

    /// Atoms of the support that interact with its first one, directly or indirectly.
    fn component(&self, support: Mask) -> Mask {
        let atoms = &self.instance.atoms;
        let machines = self.machine_group(support);
        let images = self.image_group(support);
        let mut component = support & support.wrapping_neg();
        let mut open = component;
        while open != 0 {
            let atom = open.trailing_zeros() as usize;
            open &= !(1 << atom);
            let mut near = atoms[atom].conflicts;
            for rule in &self.instance.wide {
                if rule >> atom & 1 == 1 && rule & support == *rule {
                    near |= rule;
                }
            }
            for group in [machines, images] {
                if group >> atom & 1 == 1 {
                    near |= group;
                }
            }
            let new = near & support & !component;
            component |= new;
            open |= new;
        }
        component
    }

    /// Atoms that compete for hardware, its capacity or its labels.
    fn machine_group(&self, support: Mask) -> Mask {
        let all = self.instance.domains.iter().fold(0, |all, mask| all | mask);
        let mut group = 0;
        let mut masks = BTreeSet::new();
        let mut coupled = false;
        for atom in bits(support) {
            let known = &self.instance.atoms[atom];
            let special = known.spread.is_some() || known.cpu > 0 || known.memory > 0;
            if special || known.hardware != all {
                group |= 1 << atom;
                masks.insert(known.hardware);
                coupled |= special;
            }
        }
        if coupled || masks.len() > 1 { group } else { 0 }
    }

    fn image_group(&self, support: Mask) -> Mask {
        let mut group = 0;
        let mut masks = BTreeSet::new();
        for atom in bits(support) {
            let images = self.instance.atoms[atom].images;
            if images.count_ones() as usize != self.instance.images.len() {
                group |= 1 << atom;
                masks.insert(images);
            }
        }
        if masks.len() > 1 { group } else { 0 }
    }

    #[expect(clippy::manual_is_power_of_two, reason = "the mask is a set, not a number")]
    fn fits_component(
        &self,
        component: Mask,
        demand: &[u32],
        caps: &[u32],
        nodes: u32,
        depth: usize,
    ) -> Result<Fit, Interruption> {
        let first = component.trailing_zeros() as usize;
        if component.count_ones() == 1 && self.instance.atoms[first].spread.is_none() {
            let fits = demand[first] <= nodes;
            return Ok(if fits {
                Fit::Yes(Some(vec![(component, demand[first])]))
            } else {
                Fit::No
            });
        }
        let key = self.key(component, demand, caps);
        let (mut least, mut most) = self.known.borrow().get(&key).copied().unwrap_or((0, u32::MAX));
        if nodes < least || nodes >= most {
            return Ok(if nodes >= most { Fit::Yes(None) } else { Fit::No });
        }
        least = least.max(self.clique_bound(component, demand));
        least = least.max(self.volume_bound(component, demand));
        if nodes >= least {
            least = least.max(self.proved_bound(component, demand, caps, nodes));
        }
        let answer = if nodes < least {
            Fit::No
        } else if let Some(packed) = self.pack_greedily(component, demand, caps, nodes) {
            most = most.min(packed.0);
            Fit::Yes(Some(packed.1))
        } else if let Some(packed) = self.pack_by_size(component, demand, caps, nodes) {
            most = most.min(packed.0);
            Fit::Yes(Some(packed.1))
        } else if !self.is_spread(component) && self.witnesses.cover(component, demand, nodes) {
            most = most.min(nodes);
            Fit::Yes(None)
        } else {
            let mut demand_here = vec![0; demand.len()];
            for atom in bits(component) {
                demand_here[atom] = demand[atom];
            }
            let waste = self.waste(component, demand, nodes);
            let mut decided = Fit::No;
            if !waste.tight {
                let relaxed =
                    relax(self.instance, component, &demand_here, caps, nodes, self.meter)?;
                least = least.max(relaxed.bound);
                self.cache(relaxed.proof);
                if nodes >= least {
                    decided = self.dive(&relaxed.columns, &demand_here, caps, nodes, depth)?;
                }
            }
            if nodes >= least && matches!(decided, Fit::No) {
                decided = self.branch(component, &demand_here, caps, nodes, waste, depth)?;
            }
            match &decided {
                Fit::No => least = least.max(nodes + 1),
                Fit::Yes(plan) => {
                    most = most.min(nodes);
                    if let Some(plan) = plan
                        && !self.is_spread(component)
                    {
                        self.witnesses.cache(plan.clone());
                    }
                }
            }
            decided
        };
        let mut known = self.known.borrow_mut();
        if known.len() < MAX_KNOWN {
            known.insert(key, (least, most));
        }
        Ok(answer)
    }

    fn is_spread(&self, component: Mask) -> bool {
        bits(component).any(|atom| self.instance.atoms[atom].spread.is_some())
    }

    /// The best bound that cached proofs give, or the first decisive one.
    fn proved_bound(&self, component: Mask, demand: &[u32], caps: &[u32], nodes: u32) -> u32 {
        let mut best = 0;
        for proof in self.proofs.borrow().iter() {
            best = best.max(proof.bound(self.instance, component, demand, caps));
            if best > nodes {
                break;
            }
        }
        best
    }

    /// Caches a proof: later demands are similar.
    fn cache(&self, proof: Option<Proof>) {
        if let Some(proof) = proof {
            let mut proofs = self.proofs.borrow_mut();
            proofs.push_front(proof);
            proofs.truncate(MAX_PROOFS);
        }
    }

    fn key(&self, component: Mask, demand: &[u32], caps: &[u32]) -> Vec<u32> {
        let mut key: Vec<u32> = Vec::with_capacity(component.count_ones() as usize * 2);
        for atom in bits(component) {
            key.push(u32::try_from(atom).unwrap_or(u32::MAX));
            key.push(demand[atom]);
            if let Some(spread) = self.instance.atoms[atom].spread {
                let spread = &self.instance.spreads[spread];
                let last = spread.slots.iter().flatten().max();
                key.extend(last.map_or(&[][..], |last| &caps[spread.first..=*last]));
            }
        }
        key
    }

    /// Demand of the heaviest clique found by a greedy search.
    fn clique_bound(&self, component: Mask, demand: &[u32]) -> u32 {
        let mut best = 0;
        for start in bits(component) {
            let mut sum = demand[start];
            let mut common = self.instance.atoms[start].conflicts & component;
            while let Some(next) = bits(common).max_by_key(|&atom| demand[atom]) {
                sum = sum.saturating_add(demand[next]);
                common &= self.instance.atoms[next].conflicts;
            }
            best = best.max(sum);
        }
        best
    }

    /// Total room that packings leave empty.
    fn waste(&self, component: Mask, demand: &[u32], nodes: u32) -> Waste {
        let machines = &self.instance.machines;
        let of = |size: fn(&Atom) -> u64, largest: u64| {
            let taken = bits(component).map(|atom| {
                u128::from(size(&self.instance.atoms[atom])) * u128::from(demand[atom])
            });
            let room = u128::from(largest) * u128::from(nodes);
            let waste = room.saturating_sub(taken.sum::<u128>());
            (largest, u64::try_from(waste).unwrap_or(u64::MAX), waste * 8 < room)
        };
        let cpu = machines.iter().map(|machine| machine.cpu).max().unwrap_or(0);
        let memory = machines.iter().map(|machine| machine.memory).max().unwrap_or(0);
        let (cpu, memory) = (of(|atom| atom.cpu, cpu), of(|atom| atom.memory, memory));
        Waste {
            tight: self.instance.capacity && (cpu.2 || memory.2),
            least: Volume {
                cpu: cpu.0.saturating_sub(cpu.1),
                memory: memory.0.saturating_sub(memory.1),
            },
        }
    }

    /// Number of nodes needed for the processors and the memory of all demands.
    fn volume_bound(&self, component: Mask, demand: &[u32]) -> u32 {
        if !self.instance.capacity {
            return 0;
        }
        let machines = &self.instance.machines;
        let needed = |size: fn(&Atom) -> u64, largest: u64| {
            let sizes = bits(component).map(|atom| {
                u128::from(size(&self.instance.atoms[atom])) * u128::from(demand[atom])
            });
            let nodes = sizes.sum::<u128>().div_ceil(u128::from(largest.max(1)));
            u32::try_from(nodes).unwrap_or(u32::MAX)
        };
        let cpu = machines.iter().map(|machine| machine.cpu).max().unwrap_or(0);
        let memory = machines.iter().map(|machine| machine.memory).max().unwrap_or(0);
        needed(|atom| atom.cpu, cpu).max(needed(|atom| atom.memory, memory))
    }

    /// Packs the largest demands first. Returns the number of nodes used and the packing, if it was
    /// sufficient.
    fn pack_greedily(
        &self,
        component: Mask,
        demand: &[u32],
        caps: &[u32],
        nodes: u32,
    ) -> Option<(u32, Plan)> {
        let mut demand = demand.to_vec();
        let mut caps = caps.to_vec();
        let mut left = nodes;
        let mut plan = Plan::new();
        let mut support = component;
        let mut order: Vec<usize> = bits(component).collect();
        while support != 0 {
            order.sort_by_key(|&atom| std::cmp::Reverse(demand[atom]));
            let (domain, set) = self.greedy_set(&order, support, &demand, &caps)?;
            let outside = bits(support & !set).map(|atom| demand[atom]).max();
            let mut count = left.checked_sub(outside.unwrap_or(0))?;
            for atom in bits(set) {
                count = count.min(demand[atom]);
                if let Some(slot) = self.instance.slot(atom, domain) {
                    count = count.min(caps[slot]);
                }
            }
            if count == 0 {
                return None;
            }
            left = left.checked_sub(count)?;
            plan.push((set, count));
            self.subtract(domain, set, count, &mut demand, &mut caps);
            for atom in bits(set) {
                if demand[atom] == 0 {
                    support &= !(1 << atom);
                }
            }
        }
        Some((nodes - left, plan))
    }

    /// Packs the largest atoms first, each node as full as possible. Returns the number of nodes
    /// used and the packing, if it was sufficient.
    fn pack_by_size(
        &self,
        component: Mask,
        demand: &[u32],
        caps: &[u32],
        nodes: u32,
    ) -> Option<(u32, Plan)> {
        if !self.instance.capacity {
            return None;
        }
        let (mut demand, mut caps, mut left) = (demand.to_vec(), caps.to_vec(), nodes);
        let mut plan = Plan::new();
        let mut order: Vec<usize> = bits(component).collect();
        order.sort_by_key(|&atom| std::cmp::Reverse(self.instance.atoms[atom].bulk));
        while !order.is_empty() {
            let support = order.iter().fold(0, |mask: Mask, atom| mask | 1 << atom);
            let (domain, set) = self.greedy_set(&order, support, &demand, &caps)?;
            let mut count = u32::MAX;
            for atom in bits(set) {
                count = count.min(demand[atom]);
                if let Some(slot) = self.instance.slot(atom, domain) {
                    count = count.min(caps[slot]);
                }
            }
            left = left.checked_sub(count)?;
            plan.push((set, count));
            self.subtract(domain, set, count, &mut demand, &mut caps);
            order.retain(|&atom| demand[atom] > 0);
        }
        Some((nodes - left, plan))
    }

    /// A maximal set around the first atom in order, in the domain where it covers the most demand.
    fn greedy_set(
        &self,
        order: &[usize],
        support: Mask,
        demand: &[u32],
        caps: &[u32],
    ) -> Option<(usize, Mask)> {
        let anchor = order[0];
        let mut best: Option<(u64, usize, Mask)> = None;
        for domain in 0..self.instance.domains.len() {
            let open =
                |atom: usize| self.instance.slot(atom, domain).is_none_or(|slot| caps[slot] > 0);
            if !open(anchor) {
                continue;
            }
            let start = self.instance.start(domain);
            let Some(mut node) = self.instance.extend(&start, anchor) else {
                continue;
            };
            let mut met = 0;
            for &atom in order {
                if support >> atom & 1 == 1
                    && open(atom)
                    && node.atoms >> atom & 1 == 0
                    && let Some(next) = self.instance.extend(&node, atom)
                {
                    node = next;
                    met += u64::from(demand[atom]);
                }
            }
            if best.is_none_or(|(most, _, _)| met > most) {
                best = Some((met, domain, node.atoms));
            }
        }
        best.map(|(_, domain, set)| (domain, set))
    }

    /// Subtracts nodes from demands and capacities, as far as there is demand.
    fn subtract(&self, domain: usize, set: Mask, count: u32, demand: &mut [u32], caps: &mut [u32]) {
        for atom in bits(set) {
            let mut met = count.min(demand[atom]);
            if let Some(slot) = self.instance.slot(atom, domain) {
                met = met.min(caps[slot]);
                caps[slot] -= met;
            }
            demand[atom] -= met;
        }
    }

    /// Uses the integer part of the relaxation and decides the small rest.
    fn dive(
        &self,
        columns: &[super::simplex::Column],
        demand: &[u32],
        caps: &[u32],
        nodes: u32,
        depth: usize,
    ) -> Result<Fit, Interruption> {
        let (mut demand, mut caps, mut left) = (demand.to_vec(), caps.to_vec(), nodes);
        let mut taken = Plan::new();
        for column in columns {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let count = (column.amount + 1e-6).floor() as u32;
            if count > left {
                return Ok(Fit::No);
            }
            left -= count;
            taken.push((column.atoms, count));
            self.subtract(column.domain, column.atoms, count, &mut demand, &mut caps);
        }
        if left == nodes {
            return Ok(Fit::No);
        }
        let rest = self.fits_all(&demand, &caps, left, depth + 1)?;
        Ok(rest.with(taken))
    }

    /// Tries all kinds of nodes for the atom with the largest demand. One of them is in every
    /// packing.
    fn branch(
        &self,
        component: Mask,
        demand: &[u32],
        caps: &[u32],
        nodes: u32,
        waste: Waste,
        depth: usize,
    ) -> Result<Fit, Interruption> {
        let priority = |atom: &usize| {
            let bulk = self.instance.atoms[*atom].bulk;
            if waste.tight { (bulk, demand[*atom]) } else { (0, demand[*atom]) }
        };
        let Some(anchor) = bits(component).max_by_key(priority) else {
            return Ok(Fit::Yes(Some(Plan::new())));
        };
        let mut choices: Vec<(u64, usize, Mask)> = Vec::new();
        let mut seen = BTreeSet::new();
        for domain in 0..self.instance.domains.len() {
            let open =
                |atom: &usize| self.instance.slot(*atom, domain).is_none_or(|slot| caps[slot] > 0);
            let candidates = bits(component).filter(open).fold(0, |mask, atom| mask | 1 << atom);
            let candidates = compatible(self.instance, &self.instance.start(domain), candidates);
            if candidates >> anchor & 1 == 0 {
                continue;
            }
            for set in
                maximal_sets(self.instance, domain, anchor, candidates, waste.least, self.meter)?
            {
                let spread = bits(set).any(|atom| self.instance.slot(atom, domain).is_some());
                if spread || seen.insert(set) {
                    let met = bits(set).map(|atom| u64::from(demand[atom])).sum();
                    choices.push((met, domain, set));
                }
            }
        }
        choices.sort_by_key(|&(met, domain, set)| (std::cmp::Reverse(met), domain, set));
        for (_, domain, set) in choices {
            let mut count = nodes;
            for atom in bits(set) {
                count = count.min(demand[atom]);
                if let Some(slot) = self.instance.slot(atom, domain) {
                    count = count.min(caps[slot]);
                }
            }
            while count > 0 {
                let (mut demand, mut caps) = (demand.to_vec(), caps.to_vec());
                self.subtract(domain, set, count, &mut demand, &mut caps);
                let rest = self.fits_all(&demand, &caps, nodes - count, depth + 1)?;
                if matches!(rest, Fit::Yes(_)) {
                    return Ok(rest.with(vec![(set, count)]));
                }
                count /= 2;
            }
        }
        Ok(Fit::No)
    }
}
