//! Verifies layouts against rules, independently of the solver's code.

use std::collections::{BTreeMap, BTreeSet};

use super::problem::{LayoutProblem, NodeGroup, NodeLayout, RuleKind, SolverMode};

/// A rule that a layout breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Index into the problem's rules; `None` for general requirements.
    pub rule: Option<usize>,
    pub message: String,
}

/// Lists the violations of a layout. Only services that are on the cluster count.
pub fn check(problem: &LayoutProblem, groups: &[NodeGroup]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let present: BTreeSet<&str> = problem.services.iter().map(|s| s.name.as_str()).collect();
    let mut general = |message: String| violations.push(Violation { rule: None, message });
    let size: u64 = groups.iter().map(|group| u64::from(group.count)).sum();
    if size != u64::from(problem.size) {
        general(format!("{size} nodes instead of {}", problem.size));
    }
    for NodeGroup { layout, .. } in groups {
        if layout.services.is_empty() {
            general("a node without services".to_owned());
        }
        for service in &layout.services {
            if !present.contains(service.as_str()) {
                general(format!("{service} was not requested"));
            }
        }
        if !problem.hardware.iter().any(|hardware| hardware.name == layout.hardware) {
            general(format!("hardware {} is not available", layout.hardware));
        }
        if !problem.images.contains(&layout.image) {
            general(format!("image {} is not available", layout.image));
        }
    }
    for service in unconstrained(problem) {
        if groups.iter().any(|group| !group.layout.services.contains(service)) {
            general(format!("{service} is not on every node"));
        }
    }
    violations.extend(capacity_violation(problem, groups));
    for (index, rule) in problem.rules.iter().enumerate() {
        if !satisfied(problem, &rule.kind, groups, &present) {
            let message = format!("{} is violated", rule.kind);
            violations.push(Violation { rule: Some(index), message });
        }
    }
    violations
}

/// Services that no rule names: they run on every node.
pub fn unconstrained(problem: &LayoutProblem) -> Vec<&str> {
    let named: BTreeSet<&str> = problem
        .rules
        .iter()
        .filter(|rule| !matches!(rule.kind, RuleKind::Requested { .. }))
        .flat_map(|rule| rule.kind.services())
        .collect();
    let services = problem.services.iter().map(|service| service.name.as_str());
    services.filter(|name| !named.contains(name)).collect()
}

/// True if services may share a node according to the rules about coexistence.
pub fn is_valid_service_set(problem: &LayoutProblem, services: &BTreeSet<String>) -> bool {
    let present: BTreeSet<&str> = problem.services.iter().map(|s| s.name.as_str()).collect();
    problem.rules.iter().all(|rule| coexists(&rule.kind, services, &present))
}

fn coexists(rule: &RuleKind, services: &BTreeSet<String>, present: &BTreeSet<&str>) -> bool {
    match rule {
        RuleKind::MustCoexist { services: rule } => {
            let mut rule = rule.iter().filter(|name| present.contains(name.as_str())).peekable();
            let Some(first) = rule.peek().copied() else { return true };
            let expected = services.contains(first);
            rule.all(|name| services.contains(name) == expected)
        }
        RuleKind::CannotCoexist { services: rule } => rule.is_empty() || !rule.is_subset(services),
        RuleKind::Port { services: rule, .. } => rule.intersection(services).count() < 2,
        _ => true,
    }
}

/// True if the services of a node may run on its hardware and image type.
pub fn is_valid_node(problem: &LayoutProblem, node: &NodeLayout) -> bool {
    problem.rules.iter().all(|rule| runs_on(problem, &rule.kind, node))
}

fn runs_on(problem: &LayoutProblem, rule: &RuleKind, node: &NodeLayout) -> bool {
    match rule {
        RuleKind::HardwareTypes { service, types } => {
            !node.services.contains(service) || types.contains(&node.hardware)
        }
        RuleKind::ImageTypes { service, types } => {
            !node.services.contains(service) || types.contains(&node.image)
        }
        RuleKind::AntiAffinity { service, label, .. } => {
            !node.services.contains(service) || label_of(problem, node, label).is_some()
        }
        _ => true,
    }
}

fn label_of<'p>(problem: &'p LayoutProblem, node: &NodeLayout, label: &str) -> Option<&'p str> {
    let hardware = problem.hardware.iter().find(|hardware| hardware.name == node.hardware)?;
    hardware.labels.get(label).map(String::as_str)
}

fn capacity_violation(problem: &LayoutProblem, groups: &[NodeGroup]) -> Option<Violation> {
    for NodeGroup { layout, .. } in groups {
        let hardware = problem.hardware.iter().find(|h| h.name == layout.hardware)?;
        let (mut cpus, mut memories, mut last) = (0u64, 0u64, None);
        for (index, rule) in problem.rules.iter().enumerate() {
            if let RuleKind::Capacity { service, cpu, memory } = &rule.kind
                && layout.services.contains(service)
            {
                cpus = cpus.saturating_add(*cpu);
                memories = memories.saturating_add(*memory);
                last = Some(index);
            }
        }
        if hardware.cpu.is_some_and(|cpu| cpu < cpus)
            || hardware.memory.is_some_and(|memory| memory < memories)
        {
            let message = format!("hardware {} is too small for its services", hardware.name);
            return Some(Violation { rule: last, message });
        }
    }
    None
}

fn satisfied(
    problem: &LayoutProblem,
    rule: &RuleKind,
    groups: &[NodeGroup],
    present: &BTreeSet<&str>,
) -> bool {
    let count = |service: &str| -> u64 {
        let with = groups.iter().filter(|group| group.layout.services.contains(service));
        with.map(|group| u64::from(group.count)).sum()
    };
    let on_cluster = |service: &str| present.contains(service);
    match rule {
        RuleKind::Requested { service } => {
            problem.mode == SolverMode::Compatible || !on_cluster(service) || count(service) >= 1
        }
        RuleKind::Min { service, count: min } => {
            !on_cluster(service) || count(service) >= u64::from(*min)
        }
        RuleKind::Max { service, count: max } => count(service) <= u64::from(*max),
        RuleKind::Step { service, step } => {
            *step == 0 || count(service).is_multiple_of(u64::from(*step))
        }
        RuleKind::Ratio { service, of, per } => {
            *per == 0 || !on_cluster(service) || count(service) * u64::from(*per) >= count(of)
        }
        RuleKind::MustCoexist { .. } | RuleKind::CannotCoexist { .. } | RuleKind::Port { .. } => {
            groups.iter().all(|group| coexists(rule, &group.layout.services, present))
        }
        RuleKind::HardwareTypes { .. } | RuleKind::ImageTypes { .. } => {
            groups.iter().all(|group| runs_on(problem, rule, &group.layout))
        }
        RuleKind::AntiAffinity { service, label, max } => {
            let mut by_value: BTreeMap<&str, u64> = BTreeMap::new();
            for group in groups.iter().filter(|g| g.layout.services.contains(service)) {
                let Some(value) = label_of(problem, &group.layout, label) else { return false };
                *by_value.entry(value).or_default() += u64::from(group.count);
            }
            by_value.values().all(|count| *count <= u64::from(*max))
        }
        RuleKind::Capacity { .. } | RuleKind::Placed { .. } => true,
    }
}
