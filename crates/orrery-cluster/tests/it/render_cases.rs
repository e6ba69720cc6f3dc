//! Rendered requirements against the recorded facts of the planner.

use std::collections::{BTreeMap, BTreeSet};

use orrery_cluster::document::Service;
use orrery_cluster::intent::{ClusterIntent, IntentNode};
use orrery_cluster::render::{RenderPolicy, RestartPolicy, render, settled, with_restarts};
use orrery_model::ResourceId;
use serde_json::{Map, Value, json};

use crate::planner_cases::{closure, edges_of_case, service, texts};
use crate::rendered_graph::RenderedGraph;
use crate::{cases, intents};

fn intent(case: &Value) -> ClusterIntent {
    let services = case["services"].as_array().into_iter().flatten().map(service);
    let services: BTreeMap<String, Service> =
        services.map(|service| (service.name().to_owned(), service)).collect();
    let mut intent = intents::empty(services);
    for (name, names) in case["nodes"].as_object().expect("nodes") {
        let number = 1000 + intent.nodes.len() as u64;
        let node = IntentNode {
            services: texts(names)
                .into_iter()
                .map(|s| (s.to_owned(), Default::default()))
                .collect(),
            ..intents::node(number)
        };
        intent.nodes.insert(name.clone(), node);
    }
    intent
}

/// The intents before and after an action.
fn intents_of(case: &Value) -> (Option<ClusterIntent>, ClusterIntent, RenderPolicy) {
    let full = intent(case);
    let nodes: BTreeSet<&str> = match &case["planned_nodes"] {
        Value::Null => full.nodes.keys().map(String::as_str).collect(),
        some => texts(some).into_iter().collect(),
    };
    let names: Vec<String> = match &case["planned_services"] {
        Value::Null => full.placed_services().into_iter().map(str::to_owned).collect(),
        some => texts(some).into_iter().map(str::to_owned).collect(),
    };
    let config: Map<String, Value> = [("topic".to_owned(), json!("new"))].into_iter().collect();
    let mut policy = RenderPolicy::default();
    let mut other = full.clone();
    let (old, new) = match case["action"].as_str().expect("an action") {
        "CLUSTER_CREATE" => {
            other.nodes.retain(|name, _| !nodes.contains(name.as_str()));
            (Some(other).filter(|other| !other.nodes.is_empty()), full)
        }
        "ADD_SERVICES" => {
            for node in other.nodes.iter_mut().filter(|(name, _)| nodes.contains(name.as_str())) {
                node.1.services.retain(|service, _| !names.contains(service));
            }
            (Some(other), full)
        }
        "CLUSTER_CONFIGURE" => (Some(full.clone()), full.reconfigure(config).expect("an intent")),
        "CLUSTER_CONFIGURE_WITH_RESTART" => {
            policy.restart = RestartPolicy::Together;
            let new = full.reconfigure(config).and_then(|new| new.restart(&names));
            (Some(full), new.expect("an intent"))
        }
        "STOP_SERVICES" => (Some(full.clone()), full.stop(&names).expect("an intent")),
        "START_SERVICES" => {
            let old = full.stop(&[]).expect("an intent");
            let new = old.start(&names).expect("an intent");
            (Some(old), new)
        }
        "RESTART_SERVICES" => (Some(full.clone()), full.restart(&names).expect("an intent")),
        "CLUSTER_DELETE" => (Some(full.clone()), full.delete()),
        other => panic!("the action {other} is not known"),
    };
    let new = with_restarts(old.as_ref(), &new, &policy.restart).expect("an intent");
    (old, new, policy)
}

fn check(case: &Value) -> Result<(), String> {
    if case["note"] == json!("cyclic dependency") {
        let error = render(None, &intent(case), &RenderPolicy::default()).err();
        let message = error.map(|error| error.to_string()).unwrap_or_default();
        return message.contains("wait for each other").then_some(()).ok_or(message);
    }
    let (old, new, policy) = intents_of(case);
    let rendered = render(old.as_ref(), &new, &policy).map_err(|error| error.to_string())?;
    let graph = RenderedGraph::new(&rendered);
    let before = old.as_ref().map(|old| RenderedGraph::new(&settled(old).expect("a version")));
    let changed = graph.changed(before.as_ref());
    let all: BTreeSet<ResourceId> = graph.resources.keys().cloned().collect();
    let expected = closure(&edges_of_case(&case["expected"]));
    let mut of_task: BTreeMap<&str, ResourceId> = BTreeMap::new();
    for task in expected.keys() {
        let parts: Vec<&str> = task.split(':').collect();
        let service = Some(parts[2]).filter(|service| !service.is_empty());
        let found = graph.of_action(parts[0], parts[1], service);
        of_task.insert(task, found.ok_or_else(|| format!("no resource performs {task}"))?);
    }
    // The engine sees requirements between resources that differ. Others order no less.
    for within in [&all, &changed] {
        let is_exact = within.len() == changed.len();
        let actual = graph.closure(within);
        for (task, id) in of_task.iter().filter(|(_, id)| within.contains(*id)) {
            for (other, other_id) in of_task.iter().filter(|(_, id)| within.contains(*id)) {
                let is_expected = expected[*task].contains(*other);
                let is_actual = actual[id].contains(other_id);
                if is_expected && !is_actual {
                    return Err(format!("{task} does not wait for {other}"));
                }
                if is_actual && !is_expected && is_exact {
                    return Err(format!("{task} waits for {other}"));
                }
            }
        }
    }
    Ok(())
}

#[test]
fn rendered_requirements_are_those_of_the_recorded_facts() {
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
