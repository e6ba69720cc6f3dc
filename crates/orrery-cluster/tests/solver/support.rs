//! Builders of problems, documents and comparisons.

use std::collections::{BTreeMap, BTreeSet};

use orrery_cluster::document::{Catalog, DocumentKind};
use orrery_cluster::solver::{
    ClusterService, Hardware, Infeasible, LayoutProblem, NodeGroup, NodeLayout, Rule, RuleKind,
    RuleLocation, SearchLimits, Solution, SolveError, SolverMode, check, solve_problem,
};
use serde_json::{Value, json};

pub(crate) fn names(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

pub(crate) fn strings(value: &Value) -> Vec<String> {
    let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// A problem with one hardware and one image type.
pub(crate) fn problem(services: &[&str], size: u32, rules: Vec<RuleKind>) -> LayoutProblem {
    LayoutProblem {
        size,
        services: services.iter().map(|name| ClusterService::new(*name)).collect(),
        hardware: vec![Hardware::new("h")],
        images: vec!["i".to_owned()],
        rules: rules
            .into_iter()
            .enumerate()
            .map(|(at, kind)| Rule::new(kind, RuleLocation::new("template t", format!("/{at}"))))
            .collect(),
        ..LayoutProblem::default()
    }
}

pub(crate) fn min(service: &str, count: u32) -> RuleKind {
    RuleKind::Min { service: service.to_owned(), count }
}

pub(crate) fn max(service: &str, count: u32) -> RuleKind {
    RuleKind::Max { service: service.to_owned(), count }
}

pub(crate) fn cannot(services: &[&str]) -> RuleKind {
    RuleKind::CannotCoexist { services: names(services) }
}

pub(crate) fn must(services: &[&str]) -> RuleKind {
    RuleKind::MustCoexist { services: names(services) }
}

pub(crate) fn requested(service: &str) -> RuleKind {
    RuleKind::Requested { service: service.to_owned() }
}

pub(crate) fn ratio(service: &str, of: &str, per: u32) -> RuleKind {
    RuleKind::Ratio { service: service.to_owned(), of: of.to_owned(), per }
}

pub(crate) fn step(service: &str, step: u32) -> RuleKind {
    RuleKind::Step { service: service.to_owned(), step }
}

/// Solves and verifies.
pub(crate) fn solved(problem: &LayoutProblem) -> Solution {
    let solution =
        solve_problem(problem, SearchLimits::default()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(check(problem, &solution.groups), [], "{solution:?}");
    solution
}

pub(crate) fn refused(problem: &LayoutProblem) -> Infeasible {
    match solve_problem(problem, SearchLimits::default()) {
        Err(SolveError::Infeasible(infeasible)) => *infeasible,
        other => panic!("expected an explanation, got {other:?}"),
    }
}

/// `a+b x2, c x1`
pub(crate) fn layout_text(solution: &Solution) -> String {
    let group = |group: &NodeGroup| {
        let services: Vec<&str> = group.layout.services.iter().map(String::as_str).collect();
        format!("{} x{}", services.join("+"), group.count)
    };
    solution.groups.iter().map(group).collect::<Vec<_>>().join(", ")
}

/// A node layout of a fact.
pub(crate) fn layout(value: &Value) -> NodeLayout {
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    NodeLayout {
        hardware: text("hardwaretype"),
        image: text("imagetype"),
        services: strings(&value["services"]).into_iter().collect(),
    }
}

pub(crate) fn groups(value: &Value) -> Vec<NodeGroup> {
    let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
    let count = |value: &Value| u32::try_from(value["count"].as_u64().unwrap_or(0)).unwrap_or(0);
    list.iter().map(|value| NodeGroup { layout: layout(value), count: count(value) }).collect()
}

/// Layouts as bags.
pub(crate) fn bag(groups: &[NodeGroup]) -> BTreeMap<NodeLayout, u32> {
    let mut bag = BTreeMap::new();
    for group in groups {
        *bag.entry(group.layout.clone()).or_insert(0) += group.count;
    }
    bag
}

/// A template document from the constraints of a fact.
pub(crate) fn template(name: &str, services: &[String], fact: &Value) -> Value {
    let constraints = &fact["constraints"];
    let mut of_services = serde_json::Map::new();
    for (service, limits) in constraints["services"].as_object().into_iter().flatten() {
        let mut quantities = serde_json::Map::new();
        for key in ["min", "max"] {
            if let Some(number) = limits[key].as_u64() {
                quantities.insert(key.to_owned(), number.into());
            }
        }
        let mut entry = json!({ "quantities": quantities });
        for key in ["hardwaretypes", "imagetypes"] {
            if limits[key].is_array() {
                entry[key] = limits[key].clone();
            }
        }
        of_services.insert(service.clone(), entry);
    }
    let list = |key: &str| match &constraints[key] {
        Value::Null => json!([]),
        list => list.clone(),
    };
    json!({
        "name": name,
        "defaults": { "services": services, "provider": "p" },
        "constraints": {
            "layout": { "mustcoexist": list("mustcoexist"), "cantcoexist": list("cantcoexist") },
            "services": of_services,
        },
    })
}

/// A catalog with plain documents of the given names.
pub(crate) fn catalog(hardware: &[String], images: &[String], services: &[String]) -> Catalog {
    let mut catalog = Catalog::default();
    let provider = json!({ "name": "p", "providertype": "sim" });
    add(&mut catalog, DocumentKind::Provider, &provider);
    for name in hardware {
        let document = json!({ "name": name, "providermap": { "p": { "flavor": name } } });
        add(&mut catalog, DocumentKind::HardwareType, &document);
    }
    for name in images {
        let document = json!({ "name": name, "providermap": { "p": { "image": name } } });
        add(&mut catalog, DocumentKind::ImageType, &document);
    }
    for name in services {
        add(&mut catalog, DocumentKind::Service, &json!({ "name": name }));
    }
    catalog
}

pub(crate) fn add(catalog: &mut Catalog, kind: DocumentKind, document: &Value) {
    let name = document["name"].as_str().unwrap_or_default();
    catalog.add(kind, &format!("{}/{name}.json", kind.directory()), document.to_string());
}

pub(crate) fn compatible(mut problem: LayoutProblem) -> LayoutProblem {
    problem.mode = SolverMode::Compatible;
    problem
}
