//! Linear relaxation of packing: columns are generated as they are needed.
//!
//! Floating-point numbers only guide the search. Bounds that prune it are recomputed in integers
//! from rounded prices, so an inexact solution can make a bound weak, never wrong.

use std::collections::BTreeSet;

use super::instance::{Instance, Mask, bits};
use super::limits::{Interruption, Meter};
use super::sets::{heaviest_set, heavy_set};

/// Nodes of one kind: their domain, their atoms and the number that the relaxation uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub(crate) domain: usize,
    pub(crate) atoms: Mask,
    pub(crate) amount: f64,
}

/// Rounded prices that prove a bound for any demands.
#[derive(Debug, Clone)]
pub(crate) struct Proof {
    /// Value of one unit of each atom, and penalty for one unit of each slot.
    values: Vec<i64>,
    fines: Vec<i64>,
    /// Upper bound of the value of a node.
    weight: i64,
}

impl Proof {
    /// Minimum number of nodes for the demands of the given atoms.
    pub(crate) fn bound(
        &self,
        instance: &Instance,
        atoms: Mask,
        demand: &[u32],
        caps: &[u32],
    ) -> u32 {
        let mut worth: i128 = 0;
        for atom in bits(atoms) {
            worth += i128::from(self.values[atom]) * i128::from(demand[atom]);
            if let Some(spread) = instance.atoms[atom].spread {
                let slots: BTreeSet<usize> =
                    instance.spreads[spread].slots.iter().flatten().copied().collect();
                for slot in slots {
                    worth -= i128::from(self.fines[slot]) * i128::from(caps[slot]);
                }
            }
        }
        let weight = i128::from(self.weight);
        u32::try_from((worth.max(0) + weight - 1) / weight).unwrap_or(u32::MAX)
    }
}

/// Result of the relaxation.
pub(crate) struct Relaxation {
    /// Lower bound on the number of nodes of a packing.
    pub(crate) bound: u32,
    /// Proof of the bound.
    pub(crate) proof: Option<Proof>,
    pub(crate) columns: Vec<Column>,
}

/// Rounded prices are multiples of one over this.
const SCALE: f64 = 1_073_741_824.0;
const EPSILON: f64 = 1e-7;
/// Rounded value of a node above which it improves the solution. A node costs `SCALE`.
const BETTER: i64 = 1_073_741_824 + 64;
/// Rounded value of a node above which the search for a better one ends.
const CLEARLY_BETTER: i64 = 1_084_479_242;
/// Iterations after which the best bound so far is good enough.
const MAX_ITERATIONS: usize = 600;

#[derive(Clone, Copy)]
enum Variable {
    /// Uncovered demand.
    Missing,
    /// Excess coverage or unused capacity of a row.
    Slack,
    Nodes(usize, Mask),
}

/// Minimizes the number of nodes that cover the demands of the atoms in `support`. Stops when more
/// than `nodes` are proved to be needed.
pub(crate) fn relax(
    instance: &Instance,
    support: Mask,
    demand: &[u32],
    caps: &[u32],
    nodes: u32,
    meter: &Meter<'_>,
) -> Result<Relaxation, Interruption> {
    let atoms: Vec<usize> = bits(support).collect();
    let slots: Vec<usize> = used_slots(instance, &atoms);
    let mut tableau = Tableau::new(&atoms, &slots, demand, caps);
    let (mut bound, mut proof) = (0, None);
    for _ in 0..MAX_ITERATIONS {
        meter.step()?;
        let prices = tableau.prices();
        if let Some(row) = tableau.entering_slack(&prices) {
            tableau.enter_slack(row);
            continue;
        }
        let priced = price(instance, &atoms, &slots, &prices, meter)?;
        if let Some(found) = priced.proof {
            let proved = found.bound(instance, support, demand, caps);
            if proved > bound {
                (bound, proof) = (proved, Some(found));
            }
        }
        if !priced.improves || bound > nodes {
            break;
        }
        tableau.enter_nodes(instance, priced.domain, priced.atoms);
    }
    Ok(Relaxation { bound, proof, columns: tableau.columns() })
}

fn used_slots(instance: &Instance, atoms: &[usize]) -> Vec<usize> {
    let mut slots: Vec<usize> = atoms
        .iter()
        .flat_map(|&atom| {
            (0..instance.domains.len()).filter_map(move |domain| instance.slot(atom, domain))
        })
        .collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}

struct PricedNode {
    domain: usize,
    atoms: Mask,
    improves: bool,
    proof: Option<Proof>,
}

/// Finds the most valuable node at the given prices, and the bound that the prices prove.
fn price(
    instance: &Instance,
    atoms: &[usize],
    slots: &[usize],
    prices: &[f64],
    meter: &Meter<'_>,
) -> Result<PricedNode, Interruption> {
    #[allow(clippy::cast_possible_truncation)]
    let rounded: Vec<i64> = prices.iter().map(|p| (p * SCALE).round() as i64).collect();
    let mut proof = Proof {
        values: vec![0; instance.atoms.len()],
        fines: vec![0; instance.slots],
        weight: BETTER,
    };
    for (&atom, price) in atoms.iter().zip(&rounded) {
        proof.values[atom] = (*price).max(0);
    }
    for (&slot, price) in slots.iter().zip(&rounded[atoms.len()..]) {
        proof.fines[slot] = (-price).max(0);
    }
    let support = atoms.iter().fold(0, |mask: Mask, &atom| mask | 1 << atom);
    let weights_in = |domain: usize| {
        let mut weights = vec![0; instance.atoms.len()];
        for &atom in atoms {
            let fine = instance.slot(atom, domain).map_or(0, |slot| proof.fines[slot]);
            weights[atom] = proof.values[atom] - fine;
        }
        weights
    };
    // While prices are inaccurate, any node that improves the solution is sufficient.
    let heavy = (0..instance.domains.len()).map(|domain| {
        let (weight, set) = heavy_set(instance, domain, support, &weights_in(domain));
        (weight, domain, set)
    });
    if let Some((weight, domain, atoms)) = heavy.max_by_key(|(weight, _, _)| *weight)
        && weight > CLEARLY_BETTER
    {
        return Ok(PricedNode { domain, atoms, improves: true, proof: None });
    }
    let mut best = (BETTER, 0, 0);
    for domain in 0..instance.domains.len() {
        let weights = weights_in(domain);
        let (weight, set) = heaviest_set(instance, domain, support, &weights, best.0, meter)?;
        if weight > best.0 {
            best = (weight, domain, set);
        }
    }
    proof.weight = best.0;
    Ok(PricedNode { domain: best.1, atoms: best.2, improves: best.2 != 0, proof: Some(proof) })
}

/// Revised simplex method with a dense inverse of the basis.
struct Tableau<'a> {
    atoms: &'a [usize],
    slots: &'a [usize],
    inverse: Vec<Vec<f64>>,
    amounts: Vec<f64>,
    basis: Vec<Variable>,
    missing_cost: f64,
}

impl<'a> Tableau<'a> {
    fn new(atoms: &'a [usize], slots: &'a [usize], demand: &[u32], caps: &[u32]) -> Self {
        let rows = atoms.len() + slots.len();
        let mut inverse = vec![vec![0.0; rows]; rows];
        for (row, line) in inverse.iter_mut().enumerate() {
            line[row] = 1.0;
        }
        let demands = atoms.iter().map(|&atom| f64::from(demand[atom]));
        let amounts: Vec<f64> =
            demands.chain(slots.iter().map(|&slot| f64::from(caps[slot]))).collect();
        let basis = (0..rows)
            .map(|row| if row < atoms.len() { Variable::Missing } else { Variable::Slack })
            .collect();
        let total: f64 = amounts[..atoms.len()].iter().sum();
        Self { atoms, slots, inverse, amounts, basis, missing_cost: 10.0 * (total + 10.0) }
    }

    fn cost(&self, variable: Variable) -> f64 {
        match variable {
            Variable::Missing => self.missing_cost,
            Variable::Slack => 0.0,
            Variable::Nodes(..) => 1.0,
        }
    }

    /// Price of one unit of each row.
    fn prices(&self) -> Vec<f64> {
        let mut prices = vec![0.0; self.basis.len()];
        for (line, &variable) in self.inverse.iter().zip(&self.basis) {
            let cost = self.cost(variable);
            if cost != 0.0 {
                for (price, entry) in prices.iter_mut().zip(line) {
                    *price += cost * entry;
                }
            }
        }
        prices
    }

    /// Row with a surplus (for a demand) or slack (for a capacity) that improves the solution.
    fn entering_slack(&self, prices: &[f64]) -> Option<usize> {
        (0..prices.len()).find(|&row| {
            if row < self.atoms.len() { prices[row] < -EPSILON } else { prices[row] > EPSILON }
        })
    }

    fn enter_slack(&mut self, row: usize) {
        let sign = if row < self.atoms.len() { -1.0 } else { 1.0 };
        let column: Vec<f64> = self.inverse.iter().map(|line| sign * line[row]).collect();
        self.pivot(&column, Variable::Slack);
    }

    fn enter_nodes(&mut self, instance: &Instance, domain: usize, set: Mask) {
        let mut rows = Vec::new();
        for atom in bits(set) {
            rows.extend(self.atoms.binary_search(&atom));
            if let Some(slot) = instance.slot(atom, domain) {
                let place = self.slots.binary_search(&slot);
                rows.extend(place.map(|place| self.atoms.len() + place));
            }
        }
        let column: Vec<f64> =
            self.inverse.iter().map(|line| rows.iter().map(|&row| line[row]).sum()).collect();
        self.pivot(&column, Variable::Nodes(domain, set));
    }

    fn pivot(&mut self, column: &[f64], variable: Variable) {
        let mut leaving: Option<(usize, f64)> = None;
        for (row, &entry) in column.iter().enumerate() {
            if entry > EPSILON {
                let ratio = self.amounts[row] / entry;
                if leaving.is_none_or(|(_, best)| ratio < best - 1e-12) {
                    leaving = Some((row, ratio));
                }
            }
        }
        let Some((row, ratio)) = leaving else { return };
        let line: Vec<f64> = self.inverse[row].iter().map(|v| v / column[row]).collect();
        for (other, &factor) in column.iter().enumerate() {
            if other != row && factor != 0.0 {
                for (entry, value) in self.inverse[other].iter_mut().zip(&line) {
                    *entry -= factor * value;
                }
                self.amounts[other] = (self.amounts[other] - factor * ratio).max(0.0);
            }
        }
        self.inverse[row] = line;
        self.amounts[row] = ratio;
        self.basis[row] = variable;
    }

    fn columns(&self) -> Vec<Column> {
        self.basis
            .iter()
            .zip(&self.amounts)
            .filter_map(|(variable, &amount)| match *variable {
                Variable::Nodes(domain, atoms) => Some(Column { domain, atoms, amount }),
                _ => None,
            })
            .collect()
    }
}
