//! Dependency cycles between services.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::catalog::Catalog;
use super::problem::{CatalogProblem, ProblemKind, ProblemSeverity};
use super::service::{Phase, Service};

/// The dependencies of each service: the other service, the location of its name, and true if the
/// name is unambiguous. A name that several services provide refers to those that are on the
/// cluster.
type Edges<'c> = BTreeMap<&'c str, Vec<Edge<'c>>>;

#[derive(Clone)]
struct Edge<'c> {
    target: &'c str,
    path: String,
    is_certain: bool,
}

/// Services that wait for each other: an error if they always do, a warning if that depends on
/// which of several providers of a name is on the cluster.
pub(super) fn find(catalog: &Catalog) -> Vec<CatalogProblem> {
    let mut problems = Vec::new();
    for (phase, verb) in [("install", "installed"), ("runtime", "started")] {
        let edges = edges_of(catalog, phase);
        let mut certain = edges.clone();
        certain.values_mut().for_each(|edges| edges.retain(|edge| edge.is_certain));
        let mut reported: BTreeSet<Vec<&str>> = BTreeSet::new();
        for (edges, severity) in
            [(&certain, ProblemSeverity::Error), (&edges, ProblemSeverity::Warning)]
        {
            for start in edges.keys() {
                let Some(cycle) = find_cycle(start, edges) else { continue };
                let mut members: Vec<&str> = cycle.iter().map(|(name, _)| *name).collect();
                members.sort_unstable();
                if are_exclusive(catalog, &members) || !reported.insert(members) {
                    continue;
                }
                problems.extend(report(catalog, &cycle, verb, severity));
            }
        }
    }
    problems
}

fn edges_of<'c>(catalog: &'c Catalog, phase: &str) -> Edges<'c> {
    let of = |service: &'c Service| -> &'c Phase {
        let dependencies = &service.dependencies;
        if phase == "install" { &dependencies.install } else { &dependencies.runtime }
    };
    let mut edges = Edges::new();
    for (name, service) in &catalog.services {
        let names = of(&service.body);
        for (field, names) in [("requires", &names.requires), ("uses", &names.uses)] {
            for (at, dependency) in names.iter().enumerate() {
                let path = format!("/dependencies/{phase}/{field}/{at}");
                let targets = catalog.providers_of(dependency);
                let is_certain = targets.len() == 1;
                // A name that the service provides itself is satisfied. A dependency on its own
                // name is a cycle.
                let is_itself = field == "requires" && dependency == name && is_certain;
                let is_edge = |target: &&str| target != name || is_itself;
                for target in targets.into_iter().filter(is_edge) {
                    let edge = Edge { target, path: path.clone(), is_certain };
                    edges.entry(name).or_default().push(edge);
                }
            }
        }
    }
    edges
}

/// True if two of the services cannot be on the same cluster.
fn are_exclusive(catalog: &Catalog, names: &[&str]) -> bool {
    names.iter().any(|name| {
        let service = catalog.services.get(*name);
        let conflicts = service.map(|service| &service.body.dependencies.conflicts);
        conflicts.is_some_and(|list| list.iter().any(|other| names.contains(&other.as_str())))
    })
}

fn report(
    catalog: &Catalog,
    cycle: &[(&str, &str)],
    verb: &str,
    severity: ProblemSeverity,
) -> Option<CatalogProblem> {
    let mut names: Vec<&str> = cycle.iter().map(|(name, _)| *name).collect();
    names.push(names[0]);
    let cycle_text = names.join(" → ");
    let message = match severity {
        ProblemSeverity::Error if cycle.len() == 1 => {
            format!("a service waits for itself to be {verb}: {cycle_text}")
        }
        ProblemSeverity::Error => {
            format!("services wait for each other to be {verb}: {cycle_text}")
        }
        ProblemSeverity::Warning => {
            format!("on one cluster, services would wait for each other to be {verb}: {cycle_text}")
        }
    };
    let mut locations = Vec::new();
    for (at, (name, path)) in cycle.iter().enumerate() {
        let document = catalog.services.get(*name)?;
        locations.push((document.location(path), format!("{name} waits for {}", names[at + 1])));
    }
    let mut locations = locations.into_iter();
    let (location, label) = locations.next()?;
    let mut problem =
        CatalogProblem::error(ProblemKind::DependencyCycle, location, message).label(label);
    problem.severity = severity;
    problem.related = locations.collect();
    problem.help = Some("remove the dependency that is not needed".to_owned());
    Some(problem)
}

/// A shortest cycle through a service: each member with the path of the dependency to the next.
/// Only cycles whose alphabetically first member is the start are found, so that each is found
/// once.
fn find_cycle<'e>(start: &'e str, edges: &'e Edges<'_>) -> Option<Vec<(&'e str, &'e str)>> {
    let mut from: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(name) = queue.pop_front() {
        for Edge { target, path, .. } in edges.get(name).into_iter().flatten() {
            if *target == start {
                let mut cycle = vec![(name, path.as_str())];
                let mut at = name;
                while at != start {
                    let (previous, path) = from[at];
                    cycle.push((previous, path));
                    at = previous;
                }
                cycle.reverse();
                return Some(cycle);
            }
            if *target > start && !from.contains_key(target) {
                from.insert(target, (name, path));
                queue.push_back(target);
            }
        }
    }
    None
}
