//! Enumerates node layouts in order of preference. The search does not use it; it serves small
//! problems.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;

use super::check::{is_valid_node, is_valid_service_set, unconstrained};
use super::prepare::rank_of;
use super::problem::{LayoutProblem, NodeLayout, RuleKind};

/// Maximum number of constrained services for the enumeration of all subsets.
const MAX_SERVICES: usize = 20;

/// All sets of services that a node can run; `None` if there are too many services to enumerate
/// subsets.
pub fn service_sets(problem: &LayoutProblem) -> Option<Vec<BTreeSet<String>>> {
    let everywhere: BTreeSet<String> =
        unconstrained(problem).into_iter().map(str::to_owned).collect();
    let services = problem.services.iter().map(|service| &service.name);
    let rest: Vec<&String> = services.filter(|name| !everywhere.contains(*name)).collect();
    if rest.len() > MAX_SERVICES {
        return None;
    }
    let mut sets = Vec::new();
    for subset in 1u32..1 << rest.len() {
        let chosen = rest.iter().enumerate().filter(|(i, _)| subset >> i & 1 == 1);
        let mut set: BTreeSet<String> = chosen.map(|(_, name)| (*name).clone()).collect();
        if is_valid_service_set(problem, &set) {
            set.extend(everywhere.iter().cloned());
            sets.push(set);
        }
    }
    if !everywhere.is_empty() {
        sets.push(everywhere);
    }
    Some(sets)
}

/// All combinations of hardware, image and services of a node, most preferred first; `None` if
/// there are too many services.
pub fn node_layouts(problem: &LayoutProblem) -> Option<Vec<NodeLayout>> {
    let mut layouts = Vec::new();
    for services in service_sets(problem)? {
        let (mut cpus, mut memories) = (0u64, 0u64);
        for rule in &problem.rules {
            if let RuleKind::Capacity { service, cpu, memory } = &rule.kind
                && services.contains(service)
            {
                cpus = cpus.saturating_add(*cpu);
                memories = memories.saturating_add(*memory);
            }
        }
        for hardware in &problem.hardware {
            if hardware.cpu.is_some_and(|cpu| cpu < cpus)
                || hardware.memory.is_some_and(|memory| memory < memories)
            {
                continue;
            }
            for image in &problem.images {
                let layout = NodeLayout {
                    hardware: hardware.name.clone(),
                    image: image.clone(),
                    services: services.clone(),
                };
                if is_valid_node(problem, &layout) {
                    layouts.push(layout);
                }
            }
        }
    }
    order_layouts(problem, &mut layouts);
    Some(layouts)
}

/// Sorts node layouts, most preferred first.
pub fn order_layouts(problem: &LayoutProblem, layouts: &mut [NodeLayout]) {
    layouts.sort_by(|a, b| compare(problem, a, b));
}

fn compare(problem: &LayoutProblem, a: &NodeLayout, b: &NodeLayout) -> Ordering {
    let key = |layout: &NodeLayout| {
        let known = problem.hardware.iter().find(|hardware| hardware.name == layout.hardware);
        let cost = known.and_then(|hardware| hardware.cost).unwrap_or(u64::MAX);
        (
            Reverse(layout.services.len()),
            rank_of(&problem.hardware_preference, &layout.hardware),
            rank_of(&problem.image_preference, &layout.image),
            if problem.prefer_cost { cost } else { 0 },
        )
    };
    key(a)
        .cmp(&key(b))
        .then_with(|| a.hardware.cmp(&b.hardware))
        .then_with(|| a.image.cmp(&b.image))
        .then_with(|| a.services.cmp(&b.services))
}

/// Retains the most preferred layout of each set of services, for each combination of the label
/// values by which services are spread. The layouts have to be in order.
pub fn narrow(problem: &LayoutProblem, layouts: Vec<NodeLayout>) -> Vec<NodeLayout> {
    let labels: BTreeSet<&String> = problem
        .rules
        .iter()
        .filter_map(|rule| match &rule.kind {
            RuleKind::AntiAffinity { service, label, .. }
                if problem.services.iter().any(|known| known.name == *service) =>
            {
                Some(label)
            }
            _ => None,
        })
        .collect();
    let mut seen = BTreeSet::new();
    let is_first = |layout: &NodeLayout| {
        let known = problem.hardware.iter().find(|hardware| hardware.name == layout.hardware);
        let values: Vec<Option<String>> = labels
            .iter()
            .map(|label| known.and_then(|hardware| hardware.labels.get(*label).cloned()))
            .collect();
        seen.insert((layout.services.clone(), values))
    };
    let mut is_first = is_first;
    layouts.into_iter().filter(|layout| is_first(layout)).collect()
}
