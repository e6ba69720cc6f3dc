//! Resizes an existing cluster. Retained nodes keep their machines and services.
//!
//! Growing continues the search behind the existing nodes, so that new nodes are the preferred
//! ones. Shrinking removes nodes with few services first and, among those, the newest; it moves
//! nothing.

use std::collections::BTreeMap;

use super::check::{Violation, check};
use super::instance::{Instance, TooLarge, bits};
use super::limits::{Interruption, Meter, SearchLimits};
use super::prepare::PreparedProblem;
use super::problem::{LayoutProblem, NodeGroup, NodeLayout, RuleKind, SolverMode};
use super::search::{Search, State};

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExistingNode {
    /// Increases with every created node, and is never reused.
    pub number: u64,
    pub layout: NodeLayout,
}

/// The difference between the old and the new layout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResizeResult {
    /// Numbers of the removed nodes, in ascending order.
    pub removed: Vec<u64>,
    /// New nodes, the most preferred first.
    pub added: Vec<NodeGroup>,
}

/// Resize errors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResizeError {
    /// The existing nodes break rules at any size.
    #[error("the existing nodes do not satisfy the rules: {}", .0.join("; "))]
    Broken(Vec<String>),
    #[error("no layout with {size} nodes keeps the {existing} existing nodes as they are")]
    NoGrowth {
        existing: u32,
        size: u32,
        /// Nearest feasible sizes, if there are any.
        nearest: (Option<u32>, Option<u32>),
    },
    #[error("cannot remove {} of the {existing} existing nodes without moving services", existing - size)]
    NoShrinking { existing: u32, size: u32, nearest: (Option<u32>, Option<u32>) },
    #[error(transparent)]
    Interrupted(#[from] Interruption),
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

impl ResizeError {
    /// Nearest feasible sizes, in words.
    pub fn advice(&self) -> Option<String> {
        let (ResizeError::NoGrowth { nearest, .. } | ResizeError::NoShrinking { nearest, .. }) =
            self
        else {
            return None;
        };
        match nearest {
            (Some(smaller), Some(larger)) => Some(format!("sizes {smaller} and {larger} fit")),
            (Some(size), None) | (None, Some(size)) => Some(format!("size {size} fits")),
            (None, None) => None,
        }
    }
}

/// Range of sizes that are tried for advice, on both sides.
const NEARBY: u32 = 32;

/// Changes the size of a cluster to that of the problem.
///
/// # Errors
/// No layout of that size retains the nodes, or a limit was reached.
pub fn resize(
    problem: &LayoutProblem,
    nodes: &[ExistingNode],
    limits: SearchLimits<'_>,
) -> Result<ResizeResult, ResizeError> {
    let groups = group(nodes);
    let existing = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    let broken = broken(problem, &groups, problem.size == existing);
    if !broken.is_empty() {
        return Err(ResizeError::Broken(broken));
    }
    let meter = Meter::new(limits);
    let size = problem.size;
    if size > existing {
        if let Some(added) = grow(problem, &groups, existing, size, &meter)? {
            return Ok(ResizeResult { removed: Vec::new(), added });
        }
        let fits = |size| Ok(grow(problem, &groups, existing, size, &meter)?.is_some());
        let nearest = nearest(problem, size, existing + 1..=u32::MAX, fits)?;
        return Err(ResizeError::NoGrowth { existing, size, nearest });
    }
    if size < existing {
        if let Some(removed) = shrink(problem, nodes, &groups, size, &meter)? {
            return Ok(ResizeResult { removed, added: Vec::new() });
        }
        let fits = |size| Ok(shrink(problem, nodes, &groups, size, &meter)?.is_some());
        let nearest = nearest(problem, size, 1..=existing - 1, fits)?;
        return Err(ResizeError::NoShrinking { existing, size, nearest });
    }
    Ok(ResizeResult::default())
}

/// Groups equal nodes, in the order of their layouts.
fn group(nodes: &[ExistingNode]) -> Vec<NodeGroup> {
    let mut counts: BTreeMap<&NodeLayout, u32> = BTreeMap::new();
    for node in nodes {
        *counts.entry(&node.layout).or_default() += 1;
    }
    let groups = counts.into_iter();
    groups.map(|(layout, count)| NodeGroup { layout: layout.clone(), count }).collect()
}

/// Rules that the nodes themselves break; with `all`, also those that more or fewer nodes could
/// satisfy.
fn broken(problem: &LayoutProblem, groups: &[NodeGroup], all: bool) -> Vec<String> {
    let mut problem = problem.clone();
    problem.size = groups.iter().map(|group| group.count).sum();
    let is_meant = |violation: &Violation| {
        let rule = violation.rule.and_then(|rule| problem.rules.get(rule));
        let counts = rule.is_some_and(|rule| {
            matches!(
                rule.kind,
                RuleKind::Requested { .. }
                    | RuleKind::Min { .. }
                    | RuleKind::Max { .. }
                    | RuleKind::Step { .. }
                    | RuleKind::Ratio { .. }
                    | RuleKind::AntiAffinity { .. }
            )
        });
        all || !counts
    };
    let violations = check(&problem, groups);
    violations.into_iter().filter(is_meant).map(|violation| violation.message).collect()
}

/// The nearest feasible sizes, below and above, among those that the template allows.
fn nearest(
    problem: &LayoutProblem,
    size: u32,
    among: std::ops::RangeInclusive<u32>,
    mut fits: impl FnMut(u32) -> Result<bool, ResizeError>,
) -> Result<(Option<u32>, Option<u32>), ResizeError> {
    let (least, most) = problem.size_range;
    let least = least.unwrap_or(1).max(*among.start());
    let most = most.unwrap_or(u32::MAX).min(*among.end());
    let (mut smaller, mut larger) = (None, None);
    for distance in 1..=NEARBY {
        let below = size.checked_sub(distance).filter(|size| *size >= least && *size <= most);
        if let Some(below) = below.filter(|_| smaller.is_none())
            && fits(below)?
        {
            smaller = Some(below);
        }
        let above = size.checked_add(distance).filter(|size| *size >= least && *size <= most);
        if let Some(above) = above.filter(|_| larger.is_none())
            && fits(above)?
        {
            larger = Some(above);
        }
    }
    Ok((smaller, larger))
}

/// The preferred new nodes, if the existing ones can be completed.
fn grow(
    problem: &LayoutProblem,
    groups: &[NodeGroup],
    existing: u32,
    size: u32,
    meter: &Meter<'_>,
) -> Result<Option<Vec<NodeGroup>>, ResizeError> {
    let active = vec![true; problem.rules.len()];
    let instance = PreparedProblem::new(problem).build(&active, size)?;
    let Some(state) = state_after(problem, &instance, groups, size - existing) else {
        return Ok(None);
    };
    let search = Search::new(&instance, meter).starting_from(state);
    let chosen = search.solve()?;
    Ok(chosen.map(|chosen| super::solution(problem, &instance, &chosen).groups))
}

/// The state of a search that has placed the existing nodes, unless they exceed a maximum.
fn state_after(
    problem: &LayoutProblem,
    instance: &Instance,
    groups: &[NodeGroup],
    left: u32,
) -> Option<State> {
    let mut placed = vec![0u32; instance.atoms.len()];
    let mut caps = instance.initial_caps();
    for NodeGroup { layout, count } in groups {
        let domain = domain_of(problem, instance, layout);
        for (atom, known) in instance.atoms.iter().enumerate() {
            let mut services = known.services.iter().map(|&index| &problem.services[index].name);
            if !services.any(|name| layout.services.contains(name)) {
                continue;
            }
            placed[atom] = placed[atom].checked_add(*count)?;
            if placed[atom] > known.hi {
                return None;
            }
            if known.spread.is_some() {
                let slot = instance.slot(atom, domain?)?;
                caps[slot] = caps[slot].checked_sub(*count)?;
            }
        }
    }
    Some(State { left, placed, caps })
}

/// The domain of a node's hardware.
fn domain_of(problem: &LayoutProblem, instance: &Instance, layout: &NodeLayout) -> Option<usize> {
    let used = problem.rules.iter().filter_map(|rule| match &rule.kind {
        RuleKind::AntiAffinity { label, .. } => Some(label),
        _ => None,
    });
    let used: Vec<&String> = used.collect();
    let own = problem.hardware.iter().find(|hardware| hardware.name == layout.hardware)?;
    let machine = instance.machines.iter().position(|machine| {
        let other = &problem.hardware[machine.index];
        used.iter().all(|label| other.labels.get(*label) == own.labels.get(*label))
    })?;
    (0..instance.domains.len()).find(|&domain| bits(instance.domains[domain]).any(|m| m == machine))
}

/// Numbers of nodes whose removal leaves a layout that satisfies all rules: those with the fewest
/// services first, and the newest among them.
fn shrink(
    problem: &LayoutProblem,
    nodes: &[ExistingNode],
    groups: &[NodeGroup],
    size: u32,
    meter: &Meter<'_>,
) -> Result<Option<Vec<u64>>, ResizeError> {
    let mut problem = problem.clone();
    problem.size = size;
    let existing: u32 = groups.iter().map(|group| group.count).sum();
    let removal = Removal { problem: &problem, groups, least: least_counts(&problem), meter };
    let target = existing - size;
    let mut fixed = vec![0u32; groups.len()];
    let Some(mut witness) = removal.complete(&fixed, target)? else { return Ok(None) };
    let mut order: Vec<(usize, &ExistingNode)> = nodes
        .iter()
        .filter_map(|node| {
            Some((groups.iter().position(|group| group.layout == node.layout)?, node))
        })
        .collect();
    order.sort_by_key(|(_, node)| (node.layout.services.len(), std::cmp::Reverse(node.number)));
    let mut is_closed = vec![false; groups.len()];
    let mut removed = Vec::new();
    for (group, node) in order {
        if removed.len() == target as usize {
            break;
        }
        if is_closed[group] {
            continue;
        }
        fixed[group] += 1;
        if witness[group] < fixed[group] {
            match removal.complete(&fixed, target)? {
                Some(found) => witness = found,
                None => {
                    // More removals elsewhere do not enable this one.
                    fixed[group] -= 1;
                    is_closed[group] = true;
                    continue;
                }
            }
        }
        removed.push(node.number);
    }
    removed.sort_unstable();
    Ok(Some(removed))
}

/// Minimum number of nodes of each service, as far as single rules determine it.
fn least_counts(problem: &LayoutProblem) -> BTreeMap<&str, u32> {
    let mut least: BTreeMap<&str, u32> = BTreeMap::new();
    for rule in &problem.rules {
        let (service, count) = match &rule.kind {
            RuleKind::Min { service, count } => (service, *count),
            RuleKind::Requested { service } if problem.mode == SolverMode::Strict => (service, 1),
            _ => continue,
        };
        let known = least.entry(service).or_default();
        *known = (*known).max(count);
    }
    least
}

/// Search for the number of nodes to remove from each group.
struct Removal<'a, 'm> {
    problem: &'a LayoutProblem,
    groups: &'a [NodeGroup],
    least: BTreeMap<&'a str, u32>,
    meter: &'a Meter<'m>,
}

impl Removal<'_, '_> {
    /// Removals of at least `fixed` from each group, and of `target` nodes in total, that leave a
    /// valid layout.
    fn complete(&self, fixed: &[u32], target: u32) -> Result<Option<Vec<u32>>, Interruption> {
        let done: u32 = fixed.iter().sum();
        let Some(left) = target.checked_sub(done) else { return Ok(None) };
        let mut removed = fixed.to_vec();
        Ok(self.descend(0, left, &mut removed)?.then_some(removed))
    }

    fn descend(&self, at: usize, left: u32, removed: &mut [u32]) -> Result<bool, Interruption> {
        self.meter.step()?;
        if at == self.groups.len() {
            return Ok(left == 0 && self.is_valid(removed));
        }
        let room: u32 = (at..self.groups.len())
            .map(|group| self.removable(group, removed))
            .fold(0, u32::saturating_add);
        if room < left {
            return Ok(false);
        }
        let before = removed[at];
        for more in (0..=self.removable(at, removed).min(left)).rev() {
            removed[at] = before + more;
            if self.descend(at + 1, left - more, removed)? {
                return Ok(true);
            }
        }
        removed[at] = before;
        Ok(false)
    }

    /// Number of nodes of a group that minima allow to remove.
    fn removable(&self, group: usize, removed: &[u32]) -> u32 {
        let NodeGroup { layout, count } = &self.groups[group];
        let mut room = count.saturating_sub(removed[group]);
        for service in &layout.services {
            let Some(least) = self.least.get(service.as_str()) else { continue };
            let with = self.groups.iter().zip(removed);
            let with = with.filter(|(group, _)| group.layout.services.contains(service));
            let rest: u32 = with.map(|(group, gone)| group.count.saturating_sub(*gone)).sum();
            room = room.min(rest.saturating_sub(*least));
        }
        room
    }

    fn is_valid(&self, removed: &[u32]) -> bool {
        let rest = self.groups.iter().zip(removed).map(|(group, gone)| NodeGroup {
            layout: group.layout.clone(),
            count: group.count.saturating_sub(*gone),
        });
        let rest: Vec<NodeGroup> = rest.filter(|group| group.count > 0).collect();
        check(self.problem, &rest).is_empty()
    }
}
