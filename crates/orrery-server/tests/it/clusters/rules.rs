//! Rules: one operation at a time, quotas, rights, leases, and what belongs to a cluster.

use std::sync::Barrier;

use serde_json::json;

use super::Site;
use crate::support::Client;
use crate::world::{World, on_both, refused};

on_both![
    one_operation_is_open_at_a_time,
    quotas_hold_under_concurrent_requests,
    clusters_of_other_projects_are_invisible,
    leases_follow_the_template,
    environments_of_clusters_are_changed_by_operations_only,
    bad_requests_name_the_field,
    a_failed_creation_is_incomplete_and_can_be_resumed,
];

fn one_operation_is_open_at_a_time(world: World) {
    let mut site = Site::new(world);
    site.stop();
    let id = site.request("web", 2);
    let second = site.operate(&id, &json!({"kind": "resize", "size": 3}));
    refused(&second, 409, "operation-open");
    let detail = second.body["detail"].as_str().unwrap();
    assert!(detail.contains("operation 1 (create)"), "{detail}");
    assert_eq!(site.show(&id)["size"], 2);
    site.start();
    let revision = site.wait_for(&id, "active")["revision"].as_i64().unwrap();
    let path = format!("/api/v1/clusters/{id}/operations");
    let body = json!({"kind": "resize", "size": 3});
    let stale = [("if-match", &*format!("\"{}\"", revision + 1))];
    let stale = site.admin().send("POST", &path, &stale, Some(&body));
    refused(&stale, 412, "outdated");
    let current = [("if-match", &*format!("\"{revision}\""))];
    let accepted = site.admin().send("POST", &path, &current, Some(&body));
    assert_eq!(accepted.status, 202, "{accepted:?}");
    site.wait_for(&id, "active");
    assert_eq!(site.machines().len(), 3);
    let listed = site.admin().get(&path).good();
    let numbers: Vec<_> = listed["items"].as_array().unwrap().iter().collect();
    assert_eq!((numbers.len(), &numbers[0]["number"]), (2, &json!(2)), "newest first");
}

fn quotas_hold_under_concurrent_requests(world: World) {
    let mut site = Site::new(world);
    site.stop();
    let tenant =
        json!({"kind": "tenant", "content": {"name": "p", "maxClusters": 3, "maxNodes": 5}});
    let documents = json!({"documents": [tenant]});
    site.admin().post("/api/v1/cluster-documents/apply", &documents).good();
    let (site, ready) = (&site, &Barrier::new(5));
    let statuses: Vec<(u16, String)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..5)
            .map(|number| {
                scope.spawn(move || {
                    ready.wait();
                    let new = json!({"name": format!("c{number}"), "template": "shop", "size": 2});
                    let answer = site.admin().post(&site.clusters(), &new);
                    (answer.status, answer.text)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let accepted = statuses.iter().filter(|(status, _)| *status == 202).count();
    let over = |(status, text): &&(u16, String)| *status == 409 && text.contains("quota-exceeded");
    // The nodes of clusters that do not exist yet count.
    assert_eq!((accepted, statuses.iter().filter(over).count()), (2, 3), "{statuses:?}");
    let listed = site.admin().get(&site.clusters()).good();
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
}

/// An account with a role in a project.
fn account(site: &Site, name: &str, project: &str, role: &str) -> Client {
    let password = "Correct-horse-2";
    let new = json!({"name": name, "password": password});
    site.admin().post("/api/v1/users", &new).good();
    let path = format!("/api/v1/projects/{project}/role-assignments");
    site.admin().post(&path, &json!({"user": name, "role": role})).good();
    site.world.served.login(name, password)
}

fn clusters_of_other_projects_are_invisible(world: World) {
    let mut site = Site::new(world);
    site.stop();
    let id = site.request("web", 2);
    let other = site.admin().post("/api/v1/projects", &json!({"name": "other"})).good();
    let other = other["id"].as_str().unwrap().to_owned();
    let stranger = account(&site, "eve", &other, "admin");
    let cluster = format!("/api/v1/clusters/{id}");
    let reads = ["", "/operations", "/operations/1", "/nodes", "/layout", "/connection"];
    for path in reads {
        assert_eq!(stranger.get(&format!("{cluster}{path}")).status, 403, "{path}");
    }
    let resize = json!({"kind": "resize", "size": 3});
    assert_eq!(stranger.post(&format!("{cluster}/operations"), &resize).status, 403);
    assert_eq!(stranger.patch(&cluster, &json!({"description": "mine"})).status, 403);
    assert_eq!(stranger.delete(&cluster).status, 403);
    assert_eq!(stranger.get(&site.clusters()).status, 403);
    let missing = stranger.get("/api/v1/clusters/nosuch1");
    assert_eq!(missing.status, 403, "as if it existed");
    assert_eq!(site.admin().get("/api/v1/clusters/nosuch1").status, 404);

    let project = site.world.project.clone();
    let viewer = account(&site, "vic", &project, "viewer");
    let operator = account(&site, "olga", &project, "operator");
    let developer = account(&site, "dora", &project, "developer");
    for path in reads {
        assert_eq!(viewer.get(&format!("{cluster}{path}")).status, 200, "{path}");
    }
    assert_eq!(viewer.post(&format!("{cluster}/operations"), &resize).status, 403);
    assert_eq!(operator.post(&format!("{cluster}/operations/1/pause"), &json!(null)).status, 200);
    let new = json!({"name": "two", "template": "shop", "size": 2});
    assert_eq!(operator.post(&site.clusters(), &new).status, 403);
    assert_eq!(operator.delete(&cluster).status, 403);
    let deletion = json!({"kind": "delete"});
    assert_eq!(operator.post(&format!("{cluster}/operations"), &deletion).status, 403);
    assert_eq!(developer.post(&site.clusters(), &new).status, 202);
}

fn leases_follow_the_template(world: World) {
    let site = Site::new(world);
    let lease = json!({"initial": "1h", "max": "3h", "step": "1h"});
    let template = json!({
        "name": "leased",
        "defaults": {"provider": "local", "services": ["cache"], "hardwaretype": "small"},
        "administration": {"leaseduration": lease},
    });
    let documents = json!({"documents": [{"kind": "template", "content": template}]});
    site.admin().post("/api/v1/cluster-documents/apply", &documents).good();
    let new = |seconds: u64| json!({"name": "web", "template": "leased", "size": 1, "lease_seconds": seconds});
    refused(&site.admin().post(&site.clusters(), &new(3_601)), 422, "invalid");
    refused(&site.admin().post(&site.clusters(), &new(0)), 422, "invalid");
    let created = site.admin().post(&site.clusters(), &new(1_800)).good();
    let id = created["cluster"]["id"].as_str().unwrap().to_owned();
    assert!(created["cluster"]["expires"].is_string());
    site.wait_for(&id, "active");
    let path = format!("/api/v1/clusters/{id}");
    let renewed = site.admin().patch(&path, &json!({"lease_seconds": 3_600})).good();
    assert_ne!(renewed["expires"], created["cluster"]["expires"]);
    refused(&site.admin().patch(&path, &json!({"lease_seconds": 9_000})), 422, "invalid");
    refused(&site.admin().patch(&path, &json!({"lease_seconds": 0})), 422, "invalid");
    let both = json!({"lease_seconds": 1, "expires": "2026-11-16T09:30:00Z"});
    refused(&site.admin().patch(&path, &both), 422, "invalid");
    let shorter = site.admin().patch(&path, &json!({"lease_seconds": 60})).good();
    assert!(shorter["expires"].as_str() < renewed["expires"].as_str());
}

fn environments_of_clusters_are_changed_by_operations_only(world: World) {
    let site = Site::new(world);
    let id = site.create("web", 2);
    let environment = site.show(&id)["environment"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/environments/{environment}");
    let upload = json!({"resources": []});
    for answer in [
        site.admin().post(&format!("{path}/versions"), &upload),
        site.admin().delete(&path),
        site.admin().send("POST", &format!("{path}/clear"), &[], None),
        site.admin().send("POST", &format!("{path}/halt"), &[], None),
        site.admin().patch(&path, &json!({"name": "other"})),
        site.admin().post(&format!("{path}/versions/1/roll-back"), &json!({})),
    ] {
        refused(&answer, 409, "belongs-to-cluster");
    }
    let agents = site.admin().get(&format!("{path}/agents")).good();
    let placements: Vec<_> = agents["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|agent| agent["placement"]["kind"].clone())
        .collect();
    assert!(placements.iter().all(|kind| kind == "provisioned"), "{agents:#}");
    let listed = site.admin().get("/api/v1/environments").good();
    let names = listed["items"].as_array().unwrap().iter().map(|one| one["name"].clone());
    assert!(names.into_iter().any(|name| name == "web"));
    // What reads environments reads clusters.
    let operations = site.admin().post(&format!("{path}/repair"), &json!({}));
    assert_eq!(operations.status, 202, "{operations:?}");
}

fn bad_requests_name_the_field(world: World) {
    let site = Site::new(world);
    let id = site.create("web", 2);
    let field = |answer: crate::support::Answer| {
        refused(&answer, 422, "invalid");
        answer.body["fields"][0]["name"].as_str().unwrap().to_owned()
    };
    let operate = |request| site.operate(&id, &request);
    assert_eq!(field(operate(json!({"kind": "stop", "size": 3}))), "size");
    assert_eq!(field(operate(json!({"kind": "resize"}))), "size");
    assert_eq!(field(operate(json!({"kind": "resize", "size": 0}))), "size");
    assert_eq!(field(operate(json!({"kind": "create"}))), "kind");
    assert_eq!(field(operate(json!({"kind": "add-services", "services": []}))), "services");
    let limit = json!({"kind": "restart", "max_unavailable": 2});
    assert_eq!(field(operate(limit)), "max_unavailable");
    let bad = |new| field(site.admin().post(&site.clusters(), &new));
    assert_eq!(bad(json!({"name": "Bad Name", "template": "shop", "size": 2})), "name");
    assert_eq!(bad(json!({"name": "a", "template": "shop", "size": 0})), "size");
    let unknown = json!({"name": "a", "template": "nosuch", "size": 2});
    refused(&site.admin().post(&site.clusters(), &unknown), 422, "unsuitable-request");
    let taken = json!({"name": "web", "template": "shop", "size": 2});
    refused(&site.admin().post(&site.clusters(), &taken), 409, "exists");
    let impossible = json!({"name": "b", "template": "shop", "size": 1});
    let answer = site.admin().post(&site.clusters(), &impossible);
    refused(&answer, 422, "unsuitable-request");
    assert!(answer.body["detail"].as_str().unwrap().contains("no layout"), "{answer:?}");
}

fn a_failed_creation_is_incomplete_and_can_be_resumed(world: World) {
    let site = Site::new(world);
    // Every action fails.
    let journals = site.journals.path();
    let fields = json!({"directory": journals, "failure_rate": 1});
    let provider = json!({"name": "local", "providertype": "sim", "provisioner": fields});
    let apply = |provider: &serde_json::Value| {
        let documents = json!({"documents": [{"kind": "provider", "content": provider}]});
        site.admin().post("/api/v1/cluster-documents/apply", &documents).good();
    };
    apply(&provider);
    let id = site.request("web", 2);
    let failed = site.wait_for(&id, "incomplete");
    assert!(failed["message"].as_str().unwrap().contains("failed"), "{failed:#}");
    let operation = site.admin().get(&format!("/api/v1/clusters/{id}/operations/1")).good();
    assert_eq!(operation["state"], "failed", "{operation:#}");
    let failures = operation["progress"]["failures"].as_array().unwrap();
    assert!(!failures.is_empty() && failures[0]["action"] == "create", "{operation:#}");
    let resume = format!("/api/v1/clusters/{id}/operations/1/resume");
    let resumed = site.admin().send("POST", &resume, &[], None).good();
    assert_eq!(resumed["state"], "running");
    site.wait_for(&id, "incomplete");
    let deleted = site.admin().delete(&format!("/api/v1/clusters/{id}"));
    assert_eq!(deleted.status, 202, "{deleted:?}");
}
