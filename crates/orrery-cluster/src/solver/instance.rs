//! A problem as integers: atoms with bounds, conflicts and machine types as bit masks.
//!
//! Services that must coexist form one *atom*; everything that counts nodes counts atoms. Services
//! that no rule names run on every node and take no part in the search.

use std::collections::{BTreeMap, BTreeSet};

use super::problem::{Mode, Problem, RuleKind};

/// A set of atoms, hardware types or image types.
pub(crate) type Mask = u128;

/// Atoms, distinct hardware types and distinct image types, at most.
pub(crate) const MASK_BITS: usize = 128;

/// Bits of a mask, lowest first.
pub(crate) fn bits(mut mask: Mask) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let bit = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            bit
        })
    })
}

/// A mask with the given number of low bits.
fn low_bits(count: usize) -> Mask {
    if count >= MASK_BITS { Mask::MAX } else { (1 << count) - 1 }
}

/// Services that are placed together.
#[derive(Debug, Clone)]
pub(crate) struct Atom {
    /// Indices into the problem's services.
    pub(crate) services: Vec<usize>,
    /// Fewest and most nodes.
    pub(crate) lo: u32,
    pub(crate) hi: u32,
    /// The number of nodes is a multiple of this.
    pub(crate) step: u32,
    /// Atoms that never share a node with this one.
    pub(crate) conflicts: Mask,
    pub(crate) hardware: Mask,
    pub(crate) images: Mask,
    pub(crate) cpu: u64,
    pub(crate) memory: u64,
    /// Anti-affinity: index into `Instance::spreads`.
    pub(crate) spread: Option<usize>,
}

/// `count(atom) >= ceil(count(of) / per)`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ratio {
    pub(crate) atom: usize,
    pub(crate) of: usize,
    pub(crate) per: u32,
}

/// A hardware type that differs from all others in what it can carry.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    /// Index into the problem's hardware.
    pub(crate) index: usize,
    pub(crate) cpu: u64,
    pub(crate) memory: u64,
    /// Rank in the preference list, and order among equals.
    pub(crate) rank: usize,
    pub(crate) tie: usize,
}

/// An image type that differs from all others in what it can carry.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    pub(crate) index: usize,
    pub(crate) rank: usize,
    pub(crate) tie: usize,
}

/// Limit of an atom for each value of a label.
#[derive(Debug, Clone)]
pub(crate) struct Spread {
    pub(crate) max: u32,
    /// First slot of this atom's values in a vector of residual capacities.
    pub(crate) first: usize,
    /// Slot of the value that a domain has; none where the label is absent.
    pub(crate) slots: Vec<Option<usize>>,
}

/// The integer program that the search works on.
#[derive(Debug, Clone)]
pub(crate) struct Instance {
    pub(crate) size: u32,
    /// In ascending order of their first names.
    pub(crate) atoms: Vec<Atom>,
    pub(crate) ratios: Vec<Ratio>,
    /// Sets of three or more atoms of which no node has all.
    pub(crate) wide: Vec<Mask>,
    /// In order of preference.
    pub(crate) machines: Vec<Machine>,
    /// In order of preference.
    pub(crate) images: Vec<Image>,
    /// Hardware of each combination of label values that a rule speaks of; one if none does.
    pub(crate) domains: Vec<Mask>,
    pub(crate) spreads: Vec<Spread>,
    /// Number of slots of all spreads together.
    pub(crate) slots: usize,
    /// Services on every node.
    pub(crate) everywhere: Vec<usize>,
    /// Whether any atom occupies processors or memory.
    pub(crate) capacity: bool,
    /// Upper bounds after propagation of ratios and steps.
    pub(crate) ceiling: Vec<u32>,
}

/// More constrained services or distinct machine types than a search can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {MASK_BITS} constrained services or distinct machine types")]
pub struct TooLarge;

/// A set of atoms on one node, with the machine types that can still carry it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Partial {
    pub(crate) atoms: Mask,
    pub(crate) hardware: Mask,
    pub(crate) images: Mask,
    pub(crate) cpu: u64,
    pub(crate) memory: u64,
}

impl Instance {
    /// Builds the program from the rules that are active. Rules that are not still keep the services
    /// they name from being placed on every node, so that fewer rules never have fewer solutions.
    pub(crate) fn build(problem: &Problem, active: &[bool], size: u32) -> Result<Self, TooLarge> {
        let index: BTreeMap<&str, usize> = problem
            .services
            .iter()
            .enumerate()
            .map(|(i, service)| (service.name.as_str(), i))
            .collect();
        let constrained: BTreeSet<usize> = problem
            .rules
            .iter()
            .filter(|rule| !matches!(rule.kind, RuleKind::Requested { .. }))
            .flat_map(|rule| rule.kind.services())
            .filter_map(|name| index.get(name).copied())
            .collect();
        let everywhere = (0..problem.services.len()).filter(|i| !constrained.contains(i)).collect();
        let rules: Vec<&RuleKind> = problem
            .rules
            .iter()
            .zip(active)
            .filter(|(_, active)| **active)
            .map(|(rule, _)| &rule.kind)
            .collect();
        let groups = group_services(problem, &constrained, &index, &rules);
        if groups.len() > MASK_BITS {
            return Err(TooLarge);
        }
        let mut atom_of = vec![usize::MAX; problem.services.len()];
        for (atom, services) in groups.iter().enumerate() {
            for &service in services {
                atom_of[service] = atom;
            }
        }
        let find = |name: &str| index.get(name).map(|&i| atom_of[i]).filter(|&a| a != usize::MAX);
        let mut builder = Builder::new(problem, groups, size);
        for rule in rules {
            builder.apply(rule, &find);
        }
        builder.finish(everywhere)
    }

    /// The empty node in a domain.
    pub(crate) fn start(&self, domain: usize) -> Partial {
        Partial {
            atoms: 0,
            hardware: self.domains[domain],
            images: low_bits(self.images.len()),
            cpu: 0,
            memory: 0,
        }
    }

    /// Adds an atom to a node, unless a rule forbids it or no machine type can carry it.
    pub(crate) fn extend(&self, node: &Partial, atom: usize) -> Option<Partial> {
        let added = &self.atoms[atom];
        let atoms = node.atoms | 1 << atom;
        if added.hi == 0 || added.conflicts & node.atoms != 0 {
            return None;
        }
        if self.wide.iter().any(|rule| rule >> atom & 1 == 1 && rule & atoms == *rule) {
            return None;
        }
        let images = node.images & added.images;
        let mut hardware = node.hardware & added.hardware;
        let (cpu, memory) =
            (node.cpu.saturating_add(added.cpu), node.memory.saturating_add(added.memory));
        if self.capacity {
            for machine in bits(hardware) {
                if self.machines[machine].cpu < cpu || self.machines[machine].memory < memory {
                    hardware &= !(1 << machine);
                }
            }
        }
        (hardware != 0 && images != 0).then_some(Partial { atoms, hardware, images, cpu, memory })
    }

    /// Order of two nodes with equally many services, smaller first: preference of the machine types.
    pub(crate) fn machine_key(&self, node: &Partial) -> (usize, usize, usize, usize) {
        let machine = &self.machines[node.hardware.trailing_zeros() as usize];
        let image = &self.images[node.images.trailing_zeros() as usize];
        (machine.rank, image.rank, machine.tie, image.tie)
    }

    /// Slot of residual capacity that an atom on a node of the domain uses, if it is spread.
    pub(crate) fn slot(&self, atom: usize, domain: usize) -> Option<usize> {
        self.spreads[self.atoms[atom].spread?].slots[domain]
    }

    /// Residual capacities at the start.
    pub(crate) fn initial_caps(&self) -> Vec<u32> {
        let mut caps = vec![0; self.slots];
        for spread in &self.spreads {
            for slot in spread.slots.iter().flatten() {
                caps[*slot] = spread.max;
            }
        }
        caps
    }

    /// Raises counts to the least ones that satisfy ratios and steps.
    pub(crate) fn raise(&self, counts: &mut [u32]) -> bool {
        loop {
            let mut changed = false;
            for (count, atom) in counts.iter_mut().zip(&self.atoms) {
                let rounded = count.div_ceil(atom.step).saturating_mul(atom.step);
                changed |= rounded != *count;
                *count = rounded;
            }
            for ratio in &self.ratios {
                let needed = counts[ratio.of].div_ceil(ratio.per);
                if counts[ratio.atom] < needed {
                    counts[ratio.atom] = needed;
                    changed = true;
                }
            }
            if counts.iter().zip(&self.ceiling).any(|(c, max)| c > max) {
                return false;
            }
            if !changed {
                return true;
            }
        }
    }

    /// Lowers counts to the greatest ones that satisfy ratios and steps.
    pub(crate) fn lower(&self, counts: &mut [u32]) {
        loop {
            let mut changed = false;
            for (count, atom) in counts.iter_mut().zip(&self.atoms) {
                let rounded = *count / atom.step * atom.step;
                changed |= rounded != *count;
                *count = rounded;
            }
            for ratio in &self.ratios {
                let most = counts[ratio.atom].saturating_mul(ratio.per);
                if counts[ratio.of] > most {
                    counts[ratio.of] = most;
                    changed = true;
                }
            }
            if !changed {
                return;
            }
        }
    }

    /// Whether counts of different atoms depend on each other, or are not free to change by one.
    pub(crate) fn coupled(&self) -> bool {
        !self.ratios.is_empty() || self.atoms.iter().any(|atom| atom.step > 1)
    }
}

/// Unites constrained services that must coexist; groups and members in order of their names.
fn group_services(
    problem: &Problem,
    constrained: &BTreeSet<usize>,
    index: &BTreeMap<&str, usize>,
    rules: &[&RuleKind],
) -> Vec<Vec<usize>> {
    let mut leader: Vec<usize> = (0..problem.services.len()).collect();
    fn find(leader: &mut [usize], mut i: usize) -> usize {
        while leader[i] != i {
            leader[i] = leader[leader[i]];
            i = leader[i];
        }
        i
    }
    for rule in rules {
        if let RuleKind::MustCoexist { services } = rule {
            let members: Vec<usize> =
                services.iter().filter_map(|name| index.get(name.as_str()).copied()).collect();
            for pair in members.windows(2) {
                let (a, b) = (find(&mut leader, pair[0]), find(&mut leader, pair[1]));
                leader[a] = b;
            }
        }
    }
    let mut by_leader: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &service in constrained {
        let root = find(&mut leader, service);
        by_leader.entry(root).or_default().push(service);
    }
    let name = |i: usize| problem.services[i].name.as_str();
    let mut groups: Vec<Vec<usize>> = by_leader.into_values().collect();
    for group in &mut groups {
        group.sort_by_key(|&i| name(i));
    }
    groups.sort_by_key(|group| name(group[0]));
    groups
}

/// Collects the effects of rules on atoms.
struct Builder<'p> {
    problem: &'p Problem,
    size: u32,
    atoms: Vec<Atom>,
    /// Hardware and image types that each atom is restricted to, by index into the problem.
    hardware: Vec<Option<BTreeSet<usize>>>,
    images: Vec<Option<BTreeSet<usize>>>,
    ratios: Vec<Ratio>,
    wide: Vec<Mask>,
    /// Label and limit of atoms with anti-affinity.
    labels: Vec<BTreeMap<String, u32>>,
}

impl<'p> Builder<'p> {
    fn new(problem: &'p Problem, groups: Vec<Vec<usize>>, size: u32) -> Self {
        let count = groups.len();
        let atoms = groups
            .into_iter()
            .map(|services| Atom {
                services,
                lo: 0,
                hi: size,
                step: 1,
                conflicts: 0,
                hardware: 0,
                images: 0,
                cpu: 0,
                memory: 0,
                spread: None,
            })
            .collect();
        Self {
            problem,
            size,
            atoms,
            hardware: vec![None; count],
            images: vec![None; count],
            ratios: Vec::new(),
            wide: Vec::new(),
            labels: vec![BTreeMap::new(); count],
        }
    }

    fn apply(&mut self, rule: &RuleKind, find: &dyn Fn(&str) -> Option<usize>) {
        match rule {
            RuleKind::Requested { service } => {
                if let Some(atom) = find(service)
                    && self.problem.mode == Mode::Strict
                {
                    self.atoms[atom].lo = self.atoms[atom].lo.max(1);
                }
            }
            RuleKind::Min { service, count } => {
                if let Some(atom) = find(service) {
                    self.atoms[atom].lo = self.atoms[atom].lo.max(*count);
                }
            }
            RuleKind::Max { service, count } => {
                if let Some(atom) = find(service) {
                    self.atoms[atom].hi = self.atoms[atom].hi.min(*count);
                }
            }
            RuleKind::Step { service, step } => {
                if let Some(atom) = find(service)
                    && *step > 0
                {
                    let atom = &mut self.atoms[atom];
                    atom.step = lcm(atom.step, *step);
                }
            }
            RuleKind::Ratio { service, of, per } => {
                if let (Some(atom), Some(of)) = (find(service), find(of))
                    && atom != of
                    && *per > 0
                {
                    self.ratios.push(Ratio { atom, of, per: *per });
                }
            }
            RuleKind::MustCoexist { .. } | RuleKind::Placed { .. } => {}
            RuleKind::CannotCoexist { services } => {
                let found: Option<Mask> = services
                    .iter()
                    .map(|name| find(name).map(|atom| 1 << atom))
                    .try_fold(0, |mask, bit: Option<Mask>| Some(mask | bit?));
                if let Some(mask) = found {
                    self.forbid(mask);
                }
            }
            RuleKind::Port { services, .. } => {
                let atoms: Vec<usize> = services.iter().filter_map(|name| find(name)).collect();
                for (i, a) in atoms.iter().enumerate() {
                    for b in &atoms[i + 1..] {
                        self.forbid(1 << a | 1 << b);
                    }
                }
            }
            RuleKind::HardwareTypes { service, types } => {
                if let Some(atom) = find(service) {
                    let names = self.problem.hardware.iter().map(|h| h.name.as_str());
                    restrict(&mut self.hardware[atom], names, types);
                }
            }
            RuleKind::ImageTypes { service, types } => {
                if let Some(atom) = find(service) {
                    let names = self.problem.images.iter().map(String::as_str);
                    restrict(&mut self.images[atom], names, types);
                }
            }
            RuleKind::Capacity { service, cpu, memory } => {
                if let Some(atom) = find(service) {
                    let atom = &mut self.atoms[atom];
                    atom.cpu = atom.cpu.saturating_add(*cpu);
                    atom.memory = atom.memory.saturating_add(*memory);
                }
            }
            RuleKind::AntiAffinity { service, label, max } => {
                if let Some(atom) = find(service) {
                    let limit = self.labels[atom].entry(label.clone()).or_insert(*max);
                    *limit = (*limit).min(*max);
                    let names = self.problem.hardware.iter();
                    let labelled: BTreeSet<String> = names
                        .filter(|h| h.labels.contains_key(label))
                        .map(|h| h.name.clone())
                        .collect();
                    let names = self.problem.hardware.iter().map(|h| h.name.as_str());
                    restrict(&mut self.hardware[atom], names, &labelled);
                }
            }
        }
    }

    /// Forbids the atoms to be on one node together.
    fn forbid(&mut self, mask: Mask) {
        match mask.count_ones() {
            0 => {}
            1 => self.atoms[mask.trailing_zeros() as usize].hi = 0,
            2 => {
                let pair: Vec<usize> = bits(mask).collect();
                self.atoms[pair[0]].conflicts |= 1 << pair[1];
                self.atoms[pair[1]].conflicts |= 1 << pair[0];
            }
            _ => self.wide.push(mask),
        }
    }

    fn finish(mut self, everywhere: Vec<usize>) -> Result<Instance, TooLarge> {
        let used: BTreeSet<&String> = self.labels.iter().flat_map(BTreeMap::keys).collect();
        let used: Vec<String> = used.into_iter().cloned().collect();
        let (machines, domains, values) = self.machines(&used)?;
        let images = self.images()?;
        let (spreads, slots) = self.spreads(&used, &domains, &values);
        let capacity = self.atoms.iter().any(|atom| atom.cpu > 0 || atom.memory > 0);
        let mut instance = Instance {
            size: self.size,
            atoms: self.atoms,
            ratios: self.ratios,
            wide: self.wide,
            machines,
            images,
            domains,
            spreads,
            slots,
            everywhere,
            capacity,
            ceiling: Vec::new(),
        };
        instance.bound_by_machines();
        let mut ceiling: Vec<u32> = instance.atoms.iter().map(|atom| atom.hi).collect();
        instance.lower(&mut ceiling);
        instance.ceiling = ceiling;
        Ok(instance)
    }

    /// Hardware in order of preference, without types that an equal and preferred one replaces.
    #[allow(clippy::type_complexity)]
    fn machines(
        &mut self,
        labels: &[String],
    ) -> Result<(Vec<Machine>, Vec<Mask>, Vec<Vec<Option<String>>>), TooLarge> {
        let problem = self.problem;
        let cost = |i: usize| {
            let cost = problem.hardware[i].cost.unwrap_or(u64::MAX);
            if problem.prefer_cost { cost } else { 0 }
        };
        let name = |i: usize| problem.hardware[i].name.as_str();
        let mut by_tie: Vec<usize> = (0..problem.hardware.len()).collect();
        by_tie.sort_by_key(|&i| (cost(i), name(i)));
        let tie = positions(&by_tie);
        let rank = |i: usize| rank_of(&problem.hardware_preference, name(i));
        let mut order = by_tie;
        order.sort_by_key(|&i| rank(i));
        let mut seen = BTreeSet::new();
        let mut machines = Vec::new();
        let mut values: Vec<Vec<Option<String>>> = Vec::new();
        let mut domains: Vec<Mask> = Vec::new();
        for index in order {
            let hardware = &problem.hardware[index];
            let allowing: Vec<bool> = self
                .hardware
                .iter()
                .map(|types| types.as_ref().is_none_or(|types| types.contains(&index)))
                .collect();
            let value: Vec<Option<String>> =
                labels.iter().map(|label| hardware.labels.get(label).cloned()).collect();
            if !seen.insert((allowing.clone(), hardware.cpu, hardware.memory, value.clone())) {
                continue;
            }
            if machines.len() == MASK_BITS {
                return Err(TooLarge);
            }
            let bit: Mask = 1 << machines.len();
            match values.iter().position(|known| *known == value) {
                Some(domain) => domains[domain] |= bit,
                None => {
                    values.push(value);
                    domains.push(bit);
                }
            }
            for (atom, allowed) in self.atoms.iter_mut().zip(allowing) {
                if allowed {
                    atom.hardware |= bit;
                }
            }
            machines.push(Machine {
                index,
                cpu: hardware.cpu.unwrap_or(u64::MAX),
                memory: hardware.memory.unwrap_or(u64::MAX),
                rank: rank(index),
                tie: tie[index],
            });
        }
        Ok((machines, domains, values))
    }

    /// Images in order of preference, without types that an equal and preferred one replaces.
    fn images(&mut self) -> Result<Vec<Image>, TooLarge> {
        let problem = self.problem;
        let mut order: Vec<usize> = (0..problem.images.len()).collect();
        order.sort_by_key(|&i| problem.images[i].as_str());
        let tie = positions(&order);
        let rank = |i: usize| rank_of(&problem.image_preference, &problem.images[i]);
        order.sort_by_key(|&i| rank(i));
        let mut seen = BTreeSet::new();
        let mut images = Vec::new();
        for index in order {
            let allowing: Vec<bool> = self
                .images
                .iter()
                .map(|types| types.as_ref().is_none_or(|types| types.contains(&index)))
                .collect();
            if !seen.insert(allowing.clone()) {
                continue;
            }
            if images.len() == MASK_BITS {
                return Err(TooLarge);
            }
            for (atom, allowed) in self.atoms.iter_mut().zip(allowing) {
                if allowed {
                    atom.images |= 1 << images.len();
                }
            }
            images.push(Image { index, rank: rank(index), tie: tie[index] });
        }
        Ok(images)
    }

    fn spreads(
        &mut self,
        labels: &[String],
        domains: &[Mask],
        values: &[Vec<Option<String>>],
    ) -> (Vec<Spread>, usize) {
        let mut spreads = Vec::new();
        let mut slots = 0;
        for (atom, limits) in self.atoms.iter_mut().zip(&self.labels) {
            // One label for each atom: `Problem::validate` refuses more.
            let Some((label, &max)) = limits.first_key_value() else {
                continue;
            };
            let column = labels.iter().position(|known| known == label).unwrap_or(0);
            let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
            let slot_of: Vec<Option<usize>> = (0..domains.len())
                .map(|domain| {
                    let value = values[domain][column].as_deref()?;
                    let next = slots + numbers.len();
                    Some(*numbers.entry(value).or_insert(next))
                })
                .collect();
            atom.spread = Some(spreads.len());
            spreads.push(Spread { max, first: slots, slots: slot_of });
            slots += numbers.len();
        }
        (spreads, slots)
    }
}

impl Instance {
    /// Lowers the bounds of atoms that no machine type, or too few label values, can carry.
    fn bound_by_machines(&mut self) {
        for atom in 0..self.atoms.len() {
            let usable: Vec<usize> = (0..self.domains.len())
                .filter(|&domain| self.extend(&self.start(domain), atom).is_some())
                .collect();
            let mut most = if usable.is_empty() { 0 } else { u32::MAX };
            if let Some(spread) = self.atoms[atom].spread {
                let spread = &self.spreads[spread];
                let slots: BTreeSet<usize> =
                    usable.iter().filter_map(|&domain| spread.slots[domain]).collect();
                let count = u32::try_from(slots.len()).unwrap_or(u32::MAX);
                most = most.min(spread.max.saturating_mul(count));
            }
            let hi = &mut self.atoms[atom].hi;
            *hi = (*hi).min(most);
        }
    }
}

fn restrict<'n>(
    current: &mut Option<BTreeSet<usize>>,
    names: impl Iterator<Item = &'n str>,
    types: &BTreeSet<String>,
) {
    let allowed: BTreeSet<usize> =
        names.enumerate().filter(|(_, name)| types.contains(*name)).map(|(i, _)| i).collect();
    *current = Some(match current.take() {
        Some(before) => before.intersection(&allowed).copied().collect(),
        None => allowed,
    });
}

/// Rank in a preference list; what is not listed comes last.
pub(crate) fn rank_of(preference: &[String], name: &str) -> usize {
    preference.iter().position(|preferred| preferred == name).unwrap_or(preference.len())
}

/// Inverse of a permutation.
fn positions(order: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; order.len()];
    for (position, &index) in order.iter().enumerate() {
        inverse[index] = position;
    }
    inverse
}

fn lcm(a: u32, b: u32) -> u32 {
    fn gcd(a: u32, b: u32) -> u32 {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    (a / gcd(a, b)).saturating_mul(b)
}
