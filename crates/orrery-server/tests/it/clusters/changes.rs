//! Operations, and their effects on machines.

use std::collections::BTreeSet;

use orrery_provisioner::sim_journal::SimEvent;
use serde_json::json;

use super::Site;
use crate::world::{World, on_both};

on_both![
    a_cluster_is_created_grown_shrunk_and_deleted,
    services_are_added_stopped_started_and_removed,
    a_rolling_reconfiguration_restarts_one_instance_at_a_time,
    a_node_is_replaced,
    an_operation_is_aborted_and_reverted,
    a_paused_operation_does_nothing,
    another_process_continues_an_operation,
    plans_are_what_is_done,
    a_lost_machine_is_made_again,
];

fn a_cluster_is_created_grown_shrunk_and_deleted(world: World) {
    let site = Site::new(world);
    let id = site.create("web", 3);
    let three = site.machines();
    assert_eq!(three.len(), 3);
    assert!(three.iter().all(|name| name.starts_with(&format!("orr-{id}-"))), "{three:?}");
    assert_eq!((site.running("app").len(), site.running("db").len()), (2, 1));
    let nodes = site.admin().get(&format!("/api/v1/clusters/{id}/nodes")).good();
    let nodes = nodes["items"].as_array().unwrap().clone();
    assert_eq!(nodes.len(), 3);
    assert!(nodes.iter().all(|node| node["done"] == node["total"]), "{nodes:#?}");
    assert!(nodes[0]["facts"]["ip.access_v4"].is_string(), "{nodes:#?}");

    site.carry_out(&id, &json!({"kind": "resize", "size": 5}));
    let five = site.machines();
    assert_eq!((five.len(), site.running("app").len()), (5, 4));
    assert!(three.is_subset(&five), "existing machines stay");

    site.carry_out(&id, &json!({"kind": "resize", "size": 4}));
    let four = site.machines();
    assert!(four.len() == 4 && four.is_subset(&five), "{four:?}");
    assert_eq!(site.running("app").len(), 3);
    let gone: Vec<&String> = five.difference(&four).collect();
    expect_ended_by_their_actions(&site, &gone);

    let deletion = site.admin().delete(&format!("/api/v1/clusters/{id}"));
    assert_eq!(deletion.status, 202, "{deletion:?}");
    let gone = site.wait_for(&id, "terminated");
    assert!(gone["terminated"].is_string());
    assert_eq!(site.machines(), BTreeSet::new(), "nothing is left behind");
    expect_ended_by_their_actions(&site, &five.iter().collect::<Vec<_>>());
    let listed = site.admin().get(&site.clusters()).good();
    assert_eq!(listed["items"], json!([]));
    let all = site.admin().get(&format!("{}?terminated=true", site.clusters())).good();
    assert_eq!(all["items"][0]["id"], json!(id), "the record stays");
    // The name is free again, when the environment is gone.
    let environment = format!("/api/v1/environments/{}", gone["environment"].as_str().unwrap());
    let end = std::time::Instant::now() + super::PATIENCE;
    while site.admin().get(&environment).status != 404 {
        assert!(std::time::Instant::now() < end, "the environment stays");
        std::thread::sleep(std::time::Duration::from_millis(30));
    }
    site.create("web", 2);
    assert_eq!(site.machines().len(), 2);
}

/// Asserts that the services of deleted machines were stopped and removed by their actions.
fn expect_ended_by_their_actions(site: &Site, machines: &[&String]) {
    for service in ["app", "db"] {
        for (machine, actions) in site.actions(service) {
            if machines.contains(&&machine) && !actions.is_empty() {
                let last = &actions[actions.len().saturating_sub(2)..];
                assert_eq!(last, ["stop", "remove"], "{service} on {machine}: {actions:?}");
            }
        }
    }
}

fn services_are_added_stopped_started_and_removed(world: World) {
    let site = Site::new(world);
    let id = site.create("web", 2);
    site.carry_out(&id, &json!({"kind": "add-services", "services": ["cache"]}));
    assert!(!site.running("cache").is_empty());
    // Dependents of the database stop with it.
    site.carry_out(&id, &json!({"kind": "stop", "services": ["db"]}));
    assert!(site.running("db").is_empty() && site.running("app").is_empty());
    assert!(!site.running("cache").is_empty());
    site.carry_out(&id, &json!({"kind": "start", "services": ["app"]}));
    assert_eq!((site.running("app").len(), site.running("db").len()), (1, 1));
    let initialized = site.actions("db").into_values().flatten();
    assert_eq!(initialized.filter(|action| action == "initialize").count(), 1, "once");
    let refused = site.operate(&id, &json!({"kind": "remove-services", "services": ["db"]}));
    assert_eq!(refused.status, 422, "app requires it: {refused:?}");
    site.carry_out(&id, &json!({"kind": "remove-services", "services": ["cache"]}));
    assert!(site.running("cache").is_empty());
    let removed = site.actions("cache").into_values().flatten();
    assert!(removed.into_iter().any(|action| action == "remove"));
    assert_eq!(site.show(&id)["services"], json!(["app", "db"]));
}

fn a_rolling_reconfiguration_restarts_one_instance_at_a_time(world: World) {
    let site = Site::new(world);
    // Slow enough for restarts to overlap, if nothing prevents it.
    site.set_provider(&json!({"latency_ms": 60}));
    let id = site.create("web", 4);
    let before = site.actions("app");
    let request =
        json!({"kind": "reconfigure", "config": {"app": {"port": "81"}}, "restart": "rolling"});
    site.carry_out(&id, &request);
    assert_eq!(site.running("app").len(), 3);
    let mut instances = 0;
    for (machine, actions) in site.actions("app") {
        let new = &actions[before[&machine].len()..];
        if !actions.is_empty() {
            instances += 1;
            assert_eq!(new, ["stop", "configure", "start"], "{machine}");
        }
    }
    assert_eq!(instances, 3);
    // The journals have times in the order of tasks: at no time were two instances down.
    let mut events: Vec<(u64, bool)> = Vec::new();
    for entries in site.entries().into_values() {
        for entry in entries {
            if let SimEvent::Act { service, action: Some(action), .. } = &entry.event
                && service.as_deref() == Some("app")
            {
                let number = entry.task.rsplit('-').next().unwrap();
                let number = u64::from_str_radix(number, 16).unwrap();
                match action.as_str() {
                    "stop" => events.push((number, false)),
                    "start" => events.push((number, true)),
                    _ => {}
                }
            }
        }
    }
    events.sort_unstable();
    let mut down = 0;
    // The first starts are those of the creation.
    for (_, is_start) in events.into_iter().skip(3) {
        down += if is_start { -1 } else { 1 };
        assert!((0..=1).contains(&down), "{down} instances down");
    }
}

fn a_node_is_replaced(world: World) {
    let site = Site::new(world);
    let id = site.create("web", 2);
    let nodes = site.admin().get(&format!("/api/v1/clusters/{id}/nodes")).good();
    let node = &nodes["items"][0];
    let name = node["name"].as_str().unwrap();
    assert_eq!(node["machine"], json!(format!("orr-{id}-{}-1", node["number"])));
    site.carry_out(&id, &json!({"kind": "replace", "node": name}));
    let machines = site.machines();
    assert_eq!(machines.len(), 2);
    assert!(machines.contains(&format!("orr-{id}-{}-2", node["number"])), "{machines:?}");
    let unknown = site.operate(&id, &json!({"kind": "replace", "node": "web-9"}));
    assert_eq!(unknown.status, 422, "{unknown:?}");
}

fn an_operation_is_aborted_and_reverted(world: World) {
    let mut site = Site::new(world);
    let id = site.create("web", 2);
    let before = site.machines();
    site.stop();
    let begun = site.operate(&id, &json!({"kind": "resize", "size": 4}));
    assert_eq!(begun.status, 202, "{begun:?}");
    let abort = format!("/api/v1/clusters/{id}/operations/2/abort");
    let aborted = site.admin().post(&abort, &json!({"policy": "revert"}));
    assert_eq!(aborted.status, 202, "{aborted:?}");
    assert_eq!(aborted.body["operation"]["kind"], "revert");
    site.start();
    site.wait_for(&id, "active");
    assert_eq!(site.machines(), before);
    assert_eq!(site.show(&id)["size"], 2);
    // Held, the environment does nothing until the next operation.
    site.stop();
    site.operate(&id, &json!({"kind": "resize", "size": 3})).good();
    let abort = format!("/api/v1/clusters/{id}/operations/4/abort");
    let held = site.admin().post(&abort, &json!({"policy": "hold"})).good();
    assert_eq!(held["cluster"]["status"], "inconsistent", "{held:#}");
    site.start();
    site.carry_out(&id, &json!({"kind": "resize", "size": 2}));
    assert_eq!(site.machines(), before);
}

fn a_paused_operation_does_nothing(world: World) {
    let mut site = Site::new(world);
    site.stop();
    let id = site.request("web", 2);
    let operation = format!("/api/v1/clusters/{id}/operations/1");
    let paused = site.admin().send("POST", &format!("{operation}/pause"), &[], None).good();
    assert_eq!(paused["state"], "paused");
    site.start();
    // Another cluster is created meanwhile.
    let other = site.create("other", 2);
    assert!(site.machines().iter().all(|name| name.contains(&other)));
    let resumed = site.admin().send("POST", &format!("{operation}/resume"), &[], None).good();
    assert_eq!(resumed["state"], "running");
    site.wait_for(&id, "active");
    assert_eq!(site.machines().len(), 4);
}

fn another_process_continues_an_operation(world: World) {
    let mut site = Site::new(world);
    let id = site.request("web", 6);
    for _ in 0..4 {
        std::thread::sleep(std::time::Duration::from_millis(40));
        site.stop();
        site.start();
    }
    site.wait_for(&id, "active");
    assert_eq!((site.machines().len(), site.running("app").len()), (6, 5));
    let initialized = site.actions("db").into_values().flatten();
    assert_eq!(initialized.filter(|action| action == "initialize").count(), 1, "once");
}

fn a_lost_machine_is_made_again(world: World) {
    let site = Site::new(world);
    let id = site.create("web", 3);
    let before = site.machines();
    let lost = site.running("app").pop_first().unwrap();
    site.lose_machine(&lost);
    assert_eq!(site.machines().len(), 2);
    let environment = site.show(&id)["environment"].as_str().unwrap().to_owned();
    let repair = format!("/api/v1/environments/{environment}/repair");
    site.admin().post(&repair, &json!({})).good();
    let end = std::time::Instant::now() + super::PATIENCE;
    while site.running("app").len() < 2 {
        assert!(std::time::Instant::now() < end, "{:#}", site.show(&id));
        std::thread::sleep(std::time::Duration::from_millis(30));
    }
    assert_eq!(site.machines(), before);
    site.wait_for(&id, "active");
}

fn plans_are_what_is_done(world: World) {
    let site = Site::new(world);
    let new = json!({"name": "web", "template": "shop", "size": 2, "plan_only": true});
    let planned = site.admin().post(&site.clusters(), &new);
    assert_eq!(planned.status, 200, "{planned:?}");
    assert_eq!(planned.body["plan"]["added"].as_array().unwrap().len(), 2, "{planned:?}");
    assert!(planned.body["cluster"].is_null() && site.machines().is_empty());
    let id = site.create("web", 2);
    let before = site.entries();
    let request = |plan_only: bool| json!({"kind": "resize", "size": 3, "plan_only": plan_only});
    let planned = site.operate(&id, &request(true)).good();
    assert_eq!((site.show(&id)["size"].clone(), site.entries()), (json!(2), before.clone()));
    let plan = &planned["plan"];
    let added: Vec<&str> =
        plan["added"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!((added.len(), &plan["removed"]), (1, &json!([])));
    let mut actions: Vec<String> = Vec::new();
    for step in
        plan["stages"].as_array().unwrap().iter().flat_map(|stage| stage.as_array().unwrap())
    {
        if step["node"] == added[0]
            && let Some(service) = step["service"].as_str()
        {
            actions.push(format!("{service} {}", step["action"].as_str().unwrap().to_lowercase()));
        }
    }
    site.carry_out(&id, &request(false));
    let mut done: Vec<String> = Vec::new();
    for (machine, entries) in site.entries() {
        if before.contains_key(&machine) {
            continue;
        }
        for entry in entries {
            if let SimEvent::Act { service: Some(service), action: Some(action), .. } = entry.event
            {
                done.push(format!("{service} {}", action.as_str()));
            }
        }
    }
    assert_eq!(done, actions, "{plan:#}");
}
