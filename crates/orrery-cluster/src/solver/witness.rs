//! Cache of packings, used for similar questions.

use std::cell::RefCell;
use std::collections::VecDeque;

use super::instance::{Mask, bits};

/// Sets of atoms on nodes, and how many nodes have them.
pub(crate) type Plan = Vec<(Mask, u32)>;

/// Maximum number of cached packings.
const MAX_PLANS: usize = 24;

/// Recent packings, newest first.
#[derive(Default)]
pub(crate) struct Witnesses(RefCell<VecDeque<Plan>>);

impl Witnesses {
    pub(crate) fn cache(&self, plan: Plan) {
        let mut plans = self.0.borrow_mut();
        plans.push_front(plan);
        plans.truncate(MAX_PLANS);
    }

    /// True if a cached packing holds the demands of the given atoms on so few nodes, after
    /// unneeded nodes are removed.
    pub(crate) fn cover(&self, atoms: Mask, demand: &[u32], nodes: u32) -> bool {
        self.0.borrow().iter().any(|plan| covers(plan, atoms, demand, nodes))
    }
}

fn covers(plan: &Plan, atoms: Mask, demand: &[u32], nodes: u32) -> bool {
    let mut surplus: Vec<i64> = demand.iter().map(|count| -i64::from(*count)).collect();
    let mut total = 0;
    for &(set, count) in plan {
        for atom in bits(set & atoms) {
            surplus[atom] += i64::from(count);
        }
        if set & atoms != 0 {
            total += i64::from(count);
        }
    }
    if bits(atoms).any(|atom| surplus[atom] < 0) {
        return false;
    }
    let mut columns: Vec<(Mask, u32)> = plan
        .iter()
        .map(|(set, count)| (set & atoms, *count))
        .filter(|(set, _)| *set != 0)
        .collect();
    columns.sort_by_key(|(set, _)| (set.count_ones(), *set));
    for (set, count) in columns {
        if total <= i64::from(nodes) {
            break;
        }
        let spare = bits(set).map(|atom| surplus[atom]).min().unwrap_or(0);
        let spare = spare.min(i64::from(count)).min(total - i64::from(nodes));
        for atom in bits(set) {
            surplus[atom] -= spare;
        }
        total -= spare;
    }
    total <= i64::from(nodes)
}

/// Combines packings of independent atoms on the same nodes.
pub(crate) fn unite(a: &Plan, b: &Plan) -> Plan {
    let mut united = Plan::new();
    let (mut left, mut right) = (a.iter().copied(), b.iter().copied());
    let (mut first, mut second) = (left.next(), right.next());
    loop {
        match (first, second) {
            (None, None) => return united,
            (Some(column), None) => {
                united.push(column);
                first = left.next();
            }
            (None, Some(column)) => {
                united.push(column);
                second = right.next();
            }
            (Some((a, m)), Some((b, n))) => {
                let count = m.min(n);
                united.push((a | b, count));
                first = if m > count { Some((a, m - count)) } else { left.next() };
                second = if n > count { Some((b, n - count)) } else { right.next() };
            }
        }
    }
}
