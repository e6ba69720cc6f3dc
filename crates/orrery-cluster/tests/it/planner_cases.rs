//! The planner against the recorded facts: closure of the edges, and stages.

use std::collections::{BTreeMap, BTreeSet};

use orrery_cluster::document::Service;
use orrery_cluster::planner::{
    ClusterState, Plan, PlanError, PlanPolicy, ServiceDefinitions, operations, plan,
};
use serde_json::{Value, json};

use crate::cases;

pub(crate) fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

pub(crate) fn service(case: &Value) -> Service {
    let actions = texts(&case["actions"]).into_iter();
    let actions = actions.map(|name| (name.to_owned(), json!({"type": "shell"})));
    let document = json!({
        "name": case["name"],
        "dependencies": {
            "provides": case["provides"], "conflicts": case["conflicts"],
            "install": case["install"], "runtime": case["runtime"],
        },
        "provisioner": {"actions": actions.collect::<serde_json::Map<_, _>>()},
    });
    serde_json::from_value(document).expect("a service")
}

/// The states before and after an action.
fn states(
    case: &Value,
    services: &ServiceDefinitions<'_>,
) -> Result<(ClusterState, ClusterState), PlanError> {
    let mut full = ClusterState::default();
    for (node, names) in case["nodes"].as_object().expect("nodes") {
        full.add_node(node, texts(names));
    }
    let full = full.established();
    let nodes: BTreeSet<&str> = match &case["planned_nodes"] {
        Value::Null => full.nodes.keys().map(String::as_str).collect(),
        some => texts(some).into_iter().collect(),
    };
    let names: BTreeSet<&str> = match &case["planned_services"] {
        Value::Null => full.services(),
        some => texts(some).into_iter().collect(),
    };
    let mut other = full.clone();
    Ok(match case["action"].as_str().expect("an action") {
        "CLUSTER_CREATE" => {
            other.nodes.retain(|name, _| !nodes.contains(name.as_str()));
            (other, full)
        }
        "ADD_SERVICES" => {
            for (name, node) in &mut other.nodes {
                if nodes.contains(name.as_str()) {
                    node.services.retain(|service, _| !names.contains(service.as_str()));
                    node.latches.clear();
                }
            }
            (other.established(), full)
        }
        "CLUSTER_CONFIGURE" => {
            let new = operations::configure(&full, |_, _| "new".to_owned());
            (full, new)
        }
        "CLUSTER_CONFIGURE_WITH_RESTART" => {
            let new = operations::configure(&full, |_, _| "new".to_owned());
            let new = operations::restart(services, &new, &names)?;
            (full, new)
        }
        "STOP_SERVICES" => {
            let new = operations::stop(services, &full, &names)?;
            (full, new)
        }
        "START_SERVICES" => {
            let all = full.services();
            let old = operations::stop(services, &full, &all)?;
            let new = operations::start(services, &old, &names)?;
            (old, new)
        }
        "RESTART_SERVICES" => {
            let new = operations::restart(services, &full, &names)?;
            (full, new)
        }
        "CLUSTER_DELETE" => (full, ClusterState::default()),
        other => panic!("the action {other} is not known"),
    })
}

pub(crate) type Edges = BTreeMap<String, BTreeSet<String>>;

/// The transitive predecessors of each step.
pub(crate) fn closure(direct: &Edges) -> Edges {
    let mut all = direct.clone();
    loop {
        let mut next = all.clone();
        for before in next.values_mut() {
            let more: Vec<String> =
                before.iter().filter_map(|step| all.get(step)).flatten().cloned().collect();
            before.extend(more);
        }
        if next == all {
            return all;
        }
        all = next;
    }
}

fn edges_of(plan: &Plan) -> Edges {
    let mut edges = Edges::new();
    for (id, step) in plan.steps.iter().enumerate() {
        let before = plan.requirements(id).into_iter().map(|id| plan.steps[id].to_string());
        let before: BTreeSet<String> = before.collect();
        let known = edges.insert(step.to_string(), before);
        assert!(known.is_none(), "{step} is planned twice");
    }
    edges
}

pub(crate) fn edges_of_case(expected: &Value) -> Edges {
    let mut edges = Edges::new();
    for stage in expected["stages_before_one_task_per_node_split"].as_array().expect("stages") {
        for task in stage_of_case(stage) {
            edges.entry(task).or_default();
        }
    }
    for edge in expected["edges"].as_array().expect("edges") {
        let ends = texts(edge);
        edges.entry(ends[1].to_owned()).or_default().insert(ends[0].to_owned());
    }
    edges
}

fn stage_of_case(stage: &Value) -> BTreeSet<String> {
    let task = |task: &Value| {
        let text = |key: &str| task[key].as_str().unwrap_or_default().to_owned();
        format!("{}:{}:{}", text("node"), text("action"), text("service"))
    };
    stage.as_array().into_iter().flatten().map(task).collect()
}

fn check(case: &Value) -> Result<(), String> {
    let definitions: Vec<Service> =
        case["services"].as_array().into_iter().flatten().map(service).collect();
    let services = ServiceDefinitions::new(&definitions);
    let policy = PlanPolicy { is_staged: true, is_compatible: true, ..PlanPolicy::default() };
    let planned =
        states(case, &services).and_then(|(old, new)| plan(&services, &old, &new, &policy));
    if case["note"] == json!("cyclic dependency") {
        // A deliberate difference: cycles are errors.
        return match planned {
            Err(PlanError::DependencyCycle(_)) => Ok(()),
            other => Err(format!("expected a cycle, not {other:?}")),
        };
    }
    let plan = planned.map_err(|error| error.to_string())?;
    let (actual, expected) =
        (closure(&edges_of(&plan)), closure(&edges_of_case(&case["expected"])));
    if actual != expected {
        return Err(format!("edges: {actual:#?}\nexpected: {expected:#?}"));
    }
    let name = |id: &usize| plan.steps[*id].to_string();
    let stages: Vec<BTreeSet<String>> =
        plan.stages().iter().map(|stage| stage.iter().map(name).collect()).collect();
    let expected: Vec<BTreeSet<String>> = case["expected"]["stages_before_one_task_per_node_split"]
        .as_array()
        .into_iter()
        .flatten()
        .map(stage_of_case)
        .collect();
    if stages != expected {
        return Err(format!("stages: {stages:#?}\nexpected: {expected:#?}"));
    }
    let split: Vec<Vec<usize>> = plan.split_stages();
    for stage in &split {
        let nodes: BTreeSet<&str> = stage.iter().map(|id| plan.steps[*id].node.as_str()).collect();
        if nodes.len() != stage.len() {
            return Err("a node has two steps in one stage".to_owned());
        }
    }
    if split.iter().map(Vec::len).sum::<usize>() != plan.steps.len() {
        return Err("a step is lost between stages".to_owned());
    }
    Ok(())
}

#[test]
fn the_recorded_facts_hold() {
    let file = cases::read("ORRERY_PLANNER_CASES", "planner_cases.json");
    let (mut wrong, mut count) = (Vec::new(), 0);
    for case in file["cases"].as_array().expect("a list of cases") {
        count += 1;
        if let Err(error) = check(case) {
            wrong.push(format!("{}: {error}", case["id"]));
        }
    }
    assert!(count > 0, "no cases");
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}
