//! Search for sets of atoms that may share a node.

use super::instance::{Instance, Mask, Partial, bits};
use super::limits::{Interruption, Meter};

/// Upper bound of the weight that candidates can add to a node.
///
/// Candidates are partitioned into cliques of conflicting atoms, of which a node has at most one
/// each. With capacities, the fractional knapsack of each resource is a bound, too.
pub(crate) fn weight_bound(
    instance: &Instance,
    node: &Partial,
    candidates: Mask,
    weights: &[i64],
) -> i64 {
    let mut rest = candidates;
    let mut bound = 0;
    while rest != 0 {
        let first = rest.trailing_zeros() as usize;
        rest &= !(1 << first);
        let mut heaviest = weights[first];
        let mut common = instance.atoms[first].conflicts & rest;
        while common != 0 {
            let next = common.trailing_zeros() as usize;
            rest &= !(1 << next);
            heaviest = heaviest.max(weights[next]);
            common &= instance.atoms[next].conflicts & rest;
        }
        bound += heaviest.max(0);
    }
    if instance.capacity && candidates != 0 {
        let machines = || bits(node.hardware).map(|m| &instance.machines[m]);
        let cpu = machines().map(|m| m.cpu).max().unwrap_or(0);
        let memory = machines().map(|m| m.memory).max().unwrap_or(0);
        let needs = |atom: usize| instance.atoms[atom].cpu;
        bound = bound.min(knapsack_bound(candidates, weights, cpu - node.cpu, needs));
        let needs = |atom: usize| instance.atoms[atom].memory;
        let free = memory - node.memory;
        bound = bound.min(knapsack_bound(candidates, weights, free, needs));
    }
    bound
}

/// Weight of the best fractional choice that fits, rounded down, as weights are integers.
fn knapsack_bound(
    candidates: Mask,
    weights: &[i64],
    free: u64,
    needs: impl Fn(usize) -> u64,
) -> i64 {
    let mut items: Vec<(u64, i64)> = bits(candidates)
        .map(|atom| (needs(atom), weights[atom]))
        .filter(|(_, weight)| *weight > 0)
        .collect();
    // By weight for each unit, best first: a/b > c/d as a*d > c*b.
    items.sort_by(|a, b| {
        (i128::from(b.1) * i128::from(a.0)).cmp(&(i128::from(a.1) * i128::from(b.0)))
    });
    let mut free = free;
    let mut bound = 0;
    for (need, weight) in items {
        if need <= free {
            free -= need;
            bound += weight;
        } else {
            let part = i128::from(weight) * i128::from(free) / i128::from(need);
            return bound + i64::try_from(part).unwrap_or(weight).min(weight);
        }
    }
    bound
}

/// Candidates that can be added to the node.
pub(crate) fn compatible(instance: &Instance, node: &Partial, candidates: Mask) -> Mask {
    bits(candidates)
        .filter(|&atom| instance.extend(node, atom).is_some())
        .fold(0, |mask, atom| mask | 1 << atom)
}

/// Heaviest set of candidates that may share a node of the domain; atoms without weight are left
/// out. Only sets heavier than the floor are searched for: without one, the answer is the floor and
/// no atoms.
pub(crate) fn heaviest_set(
    instance: &Instance,
    domain: usize,
    candidates: Mask,
    weights: &[i64],
    floor: i64,
    meter: &Meter<'_>,
) -> Result<(i64, Mask), Interruption> {
    let start = instance.start(domain);
    let candidates = compatible(instance, &start, with_weight(candidates, weights));
    let mut best = (floor, 0);
    grow(instance, &start, candidates, 0, weights, &mut best, meter)?;
    Ok(best)
}

/// A heavy set of candidates, chosen greedily by weight per room.
pub(crate) fn heavy_set(
    instance: &Instance,
    domain: usize,
    candidates: Mask,
    weights: &[i64],
) -> (i64, Mask) {
    let mut node = instance.start(domain);
    let mut open = compatible(instance, &node, with_weight(candidates, weights));
    let mut weight = 0;
    while open != 0 {
        let atom = densest(instance, open, weights);
        open &= !(1 << atom);
        if let Some(next) = instance.extend(&node, atom) {
            node = next;
            weight += weights[atom];
        }
    }
    (weight, node.atoms)
}

fn with_weight(candidates: Mask, weights: &[i64]) -> Mask {
    bits(candidates).filter(|&atom| weights[atom] > 0).fold(0, |mask, atom| mask | 1 << atom)
}

/// The candidate with the most weight per room.
fn densest(instance: &Instance, candidates: Mask, weights: &[i64]) -> usize {
    let density = |atom: &usize| {
        let bulk = i64::try_from(instance.atoms[*atom].bulk).unwrap_or(i64::MAX);
        (weights[*atom].saturating_mul(1 << 10) / bulk, std::cmp::Reverse(*atom))
    };
    bits(candidates).max_by_key(density).unwrap_or(0)
}

fn grow(
    instance: &Instance,
    node: &Partial,
    candidates: Mask,
    weight: i64,
    weights: &[i64],
    best: &mut (i64, Mask),
    meter: &Meter<'_>,
) -> Result<(), Interruption> {
    meter.step()?;
    if weight > best.0 {
        *best = (weight, node.atoms);
    }
    if candidates == 0 || weight + weight_bound(instance, node, candidates, weights) <= best.0 {
        return Ok(());
    }
    let atom = densest(instance, candidates, weights);
    let rest = candidates & !(1 << atom);
    if let Some(next) = instance.extend(node, atom) {
        let left = compatible(instance, &next, rest);
        let weight = weight + weights[atom];
        grow(instance, &next, left, weight, weights, best, meter)?;
    }
    grow(instance, node, rest, weight, weights, best, meter)
}

/// Room of a node that must be used.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Volume {
    pub(crate) cpu: u64,
    pub(crate) memory: u64,
}

/// Maximal sets of candidates that contain the atom and use at least the given room.
pub(crate) fn maximal_sets(
    instance: &Instance,
    domain: usize,
    atom: usize,
    candidates: Mask,
    least: Volume,
    meter: &Meter<'_>,
) -> Result<Vec<Mask>, Interruption> {
    let mut found = Vec::new();
    let Some(node) = instance.extend(&instance.start(domain), atom) else {
        return Ok(found);
    };
    let candidates = compatible(instance, &node, candidates & !(1 << atom));
    expand(instance, &node, candidates, 0, least, &mut found, meter)?;
    Ok(found)
}

/// True if the node can still use the room.
fn can_take(instance: &Instance, node: &Partial, candidates: Mask, least: Volume) -> bool {
    if !instance.capacity || (node.cpu >= least.cpu && node.memory >= least.memory) {
        return true;
    }
    let atoms = || bits(candidates).map(|atom| &instance.atoms[atom]);
    let cpu = atoms().fold(node.cpu, |sum, atom| sum.saturating_add(atom.cpu));
    let memory = atoms().fold(node.memory, |sum, atom| sum.saturating_add(atom.memory));
    cpu >= least.cpu && memory >= least.memory
}

/// Adds every maximal extension of the node; candidates left out on purpose must not fit in the
/// end.
fn expand(
    instance: &Instance,
    node: &Partial,
    candidates: Mask,
    excluded: Mask,
    least: Volume,
    found: &mut Vec<Mask>,
    meter: &Meter<'_>,
) -> Result<(), Interruption> {
    meter.step()?;
    if !can_take(instance, node, candidates, least) {
        return Ok(());
    }
    if candidates == 0 {
        if excluded == 0 {
            found.push(node.atoms);
        }
        return Ok(());
    }
    let atom = candidates.trailing_zeros() as usize;
    let rest = candidates & !(1 << atom);
    if let Some(next) = instance.extend(node, atom) {
        let left = compatible(instance, &next, rest);
        let out = compatible(instance, &next, excluded);
        expand(instance, &next, left, out, least, found, meter)?;
    }
    // Without an atom that excludes nothing else, the set would not be maximal.
    let hinders = instance.capacity
        || instance.atoms[atom].conflicts & rest != 0
        || instance.wide.iter().any(|rule| rule >> atom & 1 == 1 && rule & rest != 0)
        || bits(rest).any(|other| {
            let (a, b) = (&instance.atoms[atom], &instance.atoms[other]);
            a.hardware != b.hardware || a.images != b.images
        });
    if hinders {
        let excluded = excluded | 1 << atom;
        expand(instance, node, rest, excluded, least, found, meter)?;
    }
    Ok(())
}
