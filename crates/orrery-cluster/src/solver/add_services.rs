//! Adds services to an existing layout. Nodes and their services stay unchanged.

use std::collections::{BTreeMap, BTreeSet};

use super::check::{Violation, check, is_valid_node, is_valid_service_set};
use super::counts::DescendingCounts;
use super::limits::{Interruption, Meter, SearchLimits};
use super::preference::order_layouts;
use super::problem::{ClusterService, LayoutProblem, NodeGroup, NodeLayout, RuleKind};

/// Reasons why services cannot be added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// The nodes of the cluster have no room for the services.
    #[error("the existing nodes cannot take {}", .0.join(", "))]
    NoPlacement(Vec<String>),
    #[error(transparent)]
    Interrupted(#[from] Interruption),
}

/// Places further services on the nodes of a cluster, each on as many nodes as its rules allow, and
/// on those with many services first.
///
/// The problem defines the rules, and the hardware and image types of the nodes; its services and
/// size are those of the nodes.
///
/// # Errors
/// No placement satisfies the rules, or a limit was reached.
pub fn add_services(
    problem: &LayoutProblem,
    groups: &[NodeGroup],
    add: &BTreeSet<String>,
    limits: SearchLimits<'_>,
) -> Result<Vec<NodeGroup>, AddError> {
    let present: BTreeSet<String> =
        groups.iter().flat_map(|group| group.layout.services.iter().cloned()).collect();
    let mut problem = problem.clone();
    problem.size = groups.iter().map(|group| group.count).sum();
    // Only the added services are requested, and each of them gets at least one node below.
    problem.rules.retain(|rule| !matches!(rule.kind, RuleKind::Requested { .. }));
    let mut order: Vec<&String> = add.iter().filter(|name| !present.contains(*name)).collect();
    order.sort_by_key(|name| {
        let (min, max) = bounds(&problem, name);
        (!is_constrained(&problem, name), max, std::cmp::Reverse(min), *name)
    });
    let adding = Addition { problem, order, meter: Meter::new(limits) };
    let start: Vec<NodeGroup> = adding.merge(groups.to_vec());
    match adding.place_services(0, &start, &present)? {
        Some(groups) => Ok(groups),
        None => Err(AddError::NoPlacement(add.iter().cloned().collect())),
    }
}

/// Minimum and maximum number of nodes of a service.
fn bounds(problem: &LayoutProblem, service: &str) -> (u32, u32) {
    let mut bounds = (0, u32::MAX);
    for rule in &problem.rules {
        match &rule.kind {
            RuleKind::Min { service: name, count } if name == service => {
                bounds.0 = bounds.0.max(*count);
            }
            RuleKind::Max { service: name, count } if name == service => {
                bounds.1 = bounds.1.min(*count);
            }
            _ => {}
        }
    }
    bounds
}

fn is_constrained(problem: &LayoutProblem, service: &str) -> bool {
    problem.rules.iter().any(|rule| rule.kind.services().contains(&service))
}

struct Addition<'a, 'm> {
    problem: LayoutProblem,
    order: Vec<&'a String>,
    meter: Meter<'m>,
}

impl Addition<'_, '_> {
    /// Places the services from `index` on; once all are placed, the groups are the answer.
    fn place_services(
        &self,
        index: usize,
        groups: &[NodeGroup],
        present: &BTreeSet<String>,
    ) -> Result<Option<Vec<NodeGroup>>, Interruption> {
        let Some(service) = self.order.get(index).copied() else {
            return Ok(Some(groups.to_vec()));
        };
        let mut present = present.clone();
        present.insert(service.clone());
        let problem = self.problem_with(&present);
        let max: Vec<u32> = groups
            .iter()
            .map(|group| {
                let layout = with(&group.layout, service);
                let valid = is_valid_service_set(&problem, &layout.services)
                    && is_valid_node(&problem, &layout);
                if valid { group.count } else { 0 }
            })
            .collect();
        let (least, most) = bounds(&problem, service);
        let total = max.iter().fold(0u32, |sum, count| sum.saturating_add(*count));
        for count in (least.max(1)..=most.min(total)).rev() {
            // Never an error: there are slots and items.
            let Ok(distributions) = DescendingCounts::new(max.len(), count, Some(&max)) else {
                continue;
            };
            for counts in distributions {
                self.meter.step()?;
                let next = self.merge(split(groups, &counts, service));
                if !is_acceptable(&problem, &next) {
                    continue;
                }
                if let Some(found) = self.place_services(index + 1, &next, &present)? {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    fn problem_with(&self, present: &BTreeSet<String>) -> LayoutProblem {
        let mut problem = self.problem.clone();
        problem.services = present.iter().map(|name| ClusterService::new(name.clone())).collect();
        problem
    }

    /// Merges equal layouts, in order of preference.
    fn merge(&self, groups: Vec<NodeGroup>) -> Vec<NodeGroup> {
        let mut counts: BTreeMap<NodeLayout, u32> = BTreeMap::new();
        for group in groups {
            *counts.entry(group.layout).or_default() += group.count;
        }
        let mut layouts: Vec<NodeLayout> = counts.keys().cloned().collect();
        order_layouts(&self.problem, &mut layouts);
        layouts
            .into_iter()
            .map(|layout| {
                let count = counts[&layout];
                NodeGroup { layout, count }
            })
            .collect()
    }
}

fn with(layout: &NodeLayout, service: &str) -> NodeLayout {
    let mut layout = layout.clone();
    layout.services.insert(service.to_owned());
    layout
}

/// Adds the service to some nodes of each group.
fn split(groups: &[NodeGroup], counts: &[u32], service: &str) -> Vec<NodeGroup> {
    let mut split = Vec::new();
    for (group, &count) in groups.iter().zip(counts) {
        if count > 0 {
            split.push(NodeGroup { layout: with(&group.layout, service), count });
        }
        if count < group.count {
            split.push(NodeGroup { layout: group.layout.clone(), count: group.count - count });
        }
    }
    split
}

/// True if the rules hold for the present services. Services that no rule names were placed on
/// every node when the cluster was created; additions need not be.
fn is_acceptable(problem: &LayoutProblem, groups: &[NodeGroup]) -> bool {
    let breaks = |violation: &Violation| violation.rule.is_some();
    !check(problem, groups).iter().any(breaks)
}
