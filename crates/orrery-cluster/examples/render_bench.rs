//! Measures rendering: `cargo run --release -p orrery-cluster --example render_bench [NODES]`.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a measurement runs in real time and prints its result"
)]

use std::time::Instant;

use orrery_cluster::intent::ClusterIntent;
use orrery_cluster::render::{RenderPolicy, render, with_restarts};
use serde_json::{Value, json};

/// A cluster with five services on each node, in a chain of dependencies.
fn cluster(nodes: u64) -> ClusterIntent {
    let names = ["base", "store", "cache", "app", "proxy"];
    let services = names.iter().enumerate().map(|(at, name)| {
        let before: Vec<&str> = names[..at].iter().rev().take(1).copied().collect();
        let actions = ["install", "configure", "initialize", "start", "stop", "remove"];
        let action = |action: &str| (action.to_owned(), json!({"type": "sim"}));
        let service = json!({
            "name": name,
            "dependencies": {"install": {"requires": before}, "runtime": {"requires": before}},
            "provisioner": {"actions": actions.map(action).into_iter().collect::<serde_json::Map<_, _>>()},
        });
        ((*name).to_owned(), service)
    });
    let services: serde_json::Map<String, Value> = services.collect();
    let own: serde_json::Map<String, Value> = names
        .iter()
        .map(|name| ((*name).to_owned(), json!({"running": true, "generation": 0, "epoch": 0})))
        .collect();
    let nodes = (1000..1000 + nodes).map(|number| {
        let node = json!({
            "number": number, "incarnation": 1, "hostname": format!("web71-{number}.local"),
            "hardwaretype": "small", "imagetype": "debian", "flavor": "s", "image": "d",
            "ssh_user": "root", "services": own,
        });
        (format!("web-{number}"), node)
    });
    let intent = json!({
        "cluster": "71", "name": "web", "owner": "ada", "template": {"name": "web"},
        "template_revision": 1, "provider": {"name": "sim", "providertype": "sim"},
        "services": services, "dns_suffix": "local", "next_number": 100_000,
        "config": {"proxy": {"upstream": "%ip.service.app%", "own": "%host.self%"}},
        "nodes": nodes.collect::<serde_json::Map<_, _>>(),
    });
    serde_json::from_value(intent).expect("an intent")
}

fn main() {
    let nodes = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(10_000);
    let intent = cluster(nodes);
    let policy = RenderPolicy::default();
    let measure = |what: &str, old: Option<&ClusterIntent>, new: &ClusterIntent| {
        let start = Instant::now();
        let rendering = render(old, new, &policy).expect("a version");
        let time = start.elapsed();
        let resources: usize = rendering.sets.values().map(Vec::len).sum();
        let edges = rendering.sets.values().flatten().map(|resource| resource.requires.len());
        println!("{what}: {resources} resources, {} requirements, {time:?}", edges.sum::<usize>());
    };
    measure("create", None, &intent);
    let restarted = intent.restart(&[]).expect("an intent");
    let start = Instant::now();
    let restarted = with_restarts(Some(&intent), &restarted, &policy.restart).expect("an intent");
    println!("restarts: {:?}", start.elapsed());
    measure("restart", Some(&intent), &restarted);
    measure("delete", Some(&intent), &intent.delete());
}
