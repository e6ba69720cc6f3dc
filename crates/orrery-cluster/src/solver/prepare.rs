//! Builds instances from problems: names become indices once, rules become bounds and masks.

use std::collections::{BTreeMap, BTreeSet};

use super::instance::{
    Atom, Image, Instance, MASK_BITS, Machine, Mask, Ratio, Spread, TooLarge, bits,
};
use super::problem::{LayoutProblem, RuleKind, SolverMode};

/// A problem with names replaced by indices, from which instances with fewer rules are built
/// quickly.
pub(crate) struct PreparedProblem<'p> {
    problem: &'p LayoutProblem,
    /// Indices of the services of each rule that are on the cluster, and true if all of them are.
    rules: Vec<(Vec<usize>, bool)>,
    constrained: BTreeSet<usize>,
}

impl<'p> PreparedProblem<'p> {
    pub(crate) fn new(problem: &'p LayoutProblem) -> Self {
        let index: BTreeMap<&str, usize> = problem
            .services
            .iter()
            .enumerate()
            .map(|(i, service)| (service.name.as_str(), i))
            .collect();
        let mut constrained = BTreeSet::new();
        let mut rules = Vec::with_capacity(problem.rules.len());
        for rule in &problem.rules {
            let names = rule.kind.services();
            let found: Vec<usize> =
                names.iter().filter_map(|name| index.get(name).copied()).collect();
            if !matches!(rule.kind, RuleKind::Requested { .. }) {
                constrained.extend(&found);
            }
            let complete = found.len() == names.len();
            rules.push((found, complete));
        }
        Self { problem, rules, constrained }
    }

    /// Builds the program from the active rules. Inactive rules still prevent the services they
    /// name from being placed on every node, so that fewer rules never have fewer solutions.
    pub(crate) fn build(&self, active: &[bool], size: u32) -> Result<Instance, TooLarge> {
        let problem = self.problem;
        let services = 0..problem.services.len();
        let everywhere = services.filter(|i| !self.constrained.contains(i)).collect();
        let groups = self.group_services(active);
        if groups.len() > MASK_BITS {
            return Err(TooLarge);
        }
        let mut atom_of = vec![0; problem.services.len()];
        for (atom, services) in groups.iter().enumerate() {
            for &service in services {
                atom_of[service] = atom;
            }
        }
        let mut builder = Builder::new(problem, groups, size);
        let rules = problem.rules.iter().zip(&self.rules).zip(active);
        for ((rule, (services, complete)), _) in rules.filter(|(_, active)| **active) {
            // A service that only its request names runs on every node anyway.
            if services.iter().all(|service| self.constrained.contains(service)) {
                let atoms: Vec<usize> = services.iter().map(|&service| atom_of[service]).collect();
                builder.apply(&rule.kind, &atoms, *complete);
            }
        }
        builder.finish(everywhere)
    }

    /// Unites constrained services that must coexist; groups and members ordered by name.
    fn group_services(&self, active: &[bool]) -> Vec<Vec<usize>> {
        let problem = self.problem;
        let mut leader: Vec<usize> = (0..problem.services.len()).collect();
        for ((rule, (members, _)), active) in problem.rules.iter().zip(&self.rules).zip(active) {
            if *active && matches!(rule.kind, RuleKind::MustCoexist { .. }) {
                for pair in members.windows(2) {
                    let (a, b) = (find(&mut leader, pair[0]), find(&mut leader, pair[1]));
                    leader[a] = b;
                }
            }
        }
        let mut by_leader: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &service in &self.constrained {
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
}

/// Representative of a service's group.
fn find(leader: &mut [usize], mut service: usize) -> usize {
    while leader[service] != service {
        leader[service] = leader[leader[service]];
        service = leader[service];
    }
    service
}

/// Collects the effects of rules on atoms.
struct Builder<'p> {
    problem: &'p LayoutProblem,
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
    fn new(problem: &'p LayoutProblem, groups: Vec<Vec<usize>>, size: u32) -> Self {
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
                bulk: 1,
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

    /// Adds a rule about the given atoms; without `complete`, it names further services that are
    /// not on the cluster.
    fn apply(&mut self, rule: &RuleKind, atoms: &[usize], complete: bool) {
        let Some(&atom) = atoms.first() else { return };
        let target = &mut self.atoms[atom];
        match rule {
            RuleKind::Requested { .. } => {
                if self.problem.mode == SolverMode::Strict {
                    target.lo = target.lo.max(1);
                }
            }
            RuleKind::Min { count, .. } => target.lo = target.lo.max(*count),
            RuleKind::Max { count, .. } => target.hi = target.hi.min(*count),
            RuleKind::Step { step, .. } => {
                if *step > 0 {
                    target.step = lcm(target.step, *step);
                }
            }
            RuleKind::Ratio { per, .. } => {
                if let [atom, of] = *atoms
                    && atom != of
                    && *per > 0
                {
                    self.ratios.push(Ratio { atom, of, per: *per });
                }
            }
            RuleKind::MustCoexist { .. } | RuleKind::Placed { .. } => {}
            RuleKind::CannotCoexist { .. } => {
                if complete {
                    self.forbid(atoms.iter().fold(0, |mask, atom| mask | 1 << atom));
                }
            }
            RuleKind::Port { .. } => {
                for (i, a) in atoms.iter().enumerate() {
                    for b in &atoms[i + 1..] {
                        self.forbid(1 << a | 1 << b);
                    }
                }
            }
            RuleKind::HardwareTypes { types, .. } => {
                let names = self.problem.hardware.iter().map(|h| h.name.as_str());
                restrict(&mut self.hardware[atom], names, types);
            }
            RuleKind::ImageTypes { types, .. } => {
                let names = self.problem.images.iter().map(String::as_str);
                restrict(&mut self.images[atom], names, types);
            }
            RuleKind::Capacity { cpu, memory, .. } => {
                target.cpu = target.cpu.saturating_add(*cpu);
                target.memory = target.memory.saturating_add(*memory);
            }
            RuleKind::AntiAffinity { label, max, .. } => {
                let limit = self.labels[atom].entry(label.clone()).or_insert(*max);
                *limit = (*limit).min(*max);
                let labelled = self.problem.hardware.iter().enumerate();
                let labelled = labelled.filter(|(_, hardware)| hardware.labels.contains_key(label));
                intersect(&mut self.hardware[atom], labelled.map(|(i, _)| i).collect());
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
        let largest = |size: fn(&Machine) -> u64| {
            machines.iter().map(size).filter(|size| *size < u64::MAX).max().unwrap_or(u64::MAX)
        };
        let (cpu, memory) = (largest(|machine| machine.cpu), largest(|machine| machine.memory));
        for atom in &mut self.atoms {
            let share = |part: u64, whole: u64| {
                u64::try_from(u128::from(part) * 1000 / u128::from(whole.max(1))).unwrap_or(1000)
            };
            atom.bulk = 1 + share(atom.cpu, cpu).max(share(atom.memory, memory));
        }
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

    /// Hardware in order of preference, without types that an equal, preferred one replaces.
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

    /// Images in order of preference, without types that an equal, preferred one replaces.
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
            // One label for each atom: requests with more are refused.
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

fn restrict<'n>(
    current: &mut Option<BTreeSet<usize>>,
    names: impl Iterator<Item = &'n str>,
    types: &BTreeSet<String>,
) {
    let allowed = names.enumerate().filter(|(_, name)| types.contains(*name)).map(|(i, _)| i);
    intersect(current, allowed.collect());
}

fn intersect(current: &mut Option<BTreeSet<usize>>, allowed: BTreeSet<usize>) {
    *current = Some(match current.take() {
        Some(before) => before.intersection(&allowed).copied().collect(),
        None => allowed,
    });
}

/// Rank in a preference list; unlisted names come last.
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
