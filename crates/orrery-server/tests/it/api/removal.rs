//! Project binding of environments, and versions with removals.

use orrery_model::{
    Change, ChangeKind, LastRunStatus, OutcomeStatus, ResourceState, Timestamp, VersionNumber,
};
use orrery_store::{ActionKind, ActionRecord, ResultRecord, StateRecord, resource_keys};
use serde_json::{Value, json};

use super::{World, on_both, refused};

on_both!(
    an_environment_is_bound_to_one_project,
    unmanaged_resources_are_reported_and_pruned,
    a_protected_environment_is_not_pruned_empty,
    adopted_resources_are_not_pruned,
);

fn upload(project: Option<&str>, more: &Value) -> Value {
    let mut upload = json!({"resources": [file("/a", &[])]});
    if let Some(project) = project {
        upload["project"] = json!(project);
    }
    if let (Some(upload), Some(more)) = (upload.as_object_mut(), more.as_object()) {
        upload.extend(more.clone());
    }
    upload
}

fn id(path: &str) -> String {
    format!("std::File[localhost,path={path}]")
}

fn file(path: &str, requires: &[&str]) -> Value {
    let requires: Vec<String> = requires.iter().map(|path| id(path)).collect();
    let attributes = json!({"content": path, "purged": false});
    json!({"id": id(path), "attributes": attributes, "requires": requires})
}

fn an_environment_is_bound_to_one_project(world: World) {
    let post = |project, more: Value| world.post("/versions", &upload(project, &more));
    let bound = || world.get("").good()["model_project"].clone();
    assert_eq!(bound(), "");
    post(Some("notes"), json!({"binding": "check"})).good();
    assert_eq!(bound(), "", "a check does not bind");
    post(Some("notes"), json!({})).good();
    assert_eq!(bound(), "notes");
    let count = || world.get("/versions").good()["items"].as_array().unwrap().len();
    let before = count();
    for more in [json!({}), json!({"binding": "check"}), json!({"only_if_changed": true})] {
        let answer = post(Some("fleet"), more);
        refused(&answer, 409, "other-project");
        let told = answer.body["detail"].as_str().unwrap();
        for word in ["\"notes\"", "\"fleet\"", "--rebind"] {
            assert!(told.contains(word), "{told}");
        }
    }
    refused(&post(Some(""), json!({})), 422, "invalid");
    refused(&post(None, json!({"binding": "rebind"})), 422, "invalid");
    assert_eq!(count(), before, "nothing is stored");
    // Clients without a project are accepted, and do not change the binding.
    post(None, json!({})).good();
    let taken = post(Some("fleet"), json!({"binding": "rebind"})).good();
    assert_eq!(taken["rebound_from"], "notes");
    assert_eq!(bound(), "fleet");
    let audit = world.admin().get("/api/v1/audit").good().to_string();
    assert!(audit.contains("rebound from the project"), "{audit}");
    refused(&post(Some("notes"), json!({})), 409, "other-project");
    // A roll-back to a version of another project rebinds the environment to it.
    let first = u32::try_from(before).unwrap();
    world.post_empty(&format!("/versions/{first}/roll-back")).good();
    assert_eq!(bound(), "notes");
    let patch = |project: &str| {
        let path = world.at("");
        world.admin().patch(&path, &json!({"model_project": project})).good()
    };
    assert_eq!(patch("diary")["model_project"], "diary");
    refused(&post(Some("notes"), json!({})), 409, "other-project");
    patch("");
    post(Some("notes"), json!({})).good();
    post(None, json!({"binding": "unbind"})).good();
    assert_eq!(bound(), "");
}

/// Acts as an engine: processes a version, and records each resource as created or purged.
fn deploy(world: &World, version: &Value) {
    deploy_as(world, version, ChangeKind::Created);
}

/// Like `deploy`, with this change for each resource.
fn deploy_as(world: &World, version: &Value, kind: ChangeKind) {
    let number = VersionNumber(u32::try_from(version["number"].as_u64().unwrap()).unwrap());
    let (store, key) = (world.store(), world.key());
    let lease = world.lease();
    let mut states = Vec::new();
    let loaded = store.versions().load(key, number).unwrap();
    let keys = resource_keys(store, key, loaded.resources.iter().map(|one| &one.id)).unwrap();
    for resource in &loaded.resources {
        let state = ResourceState {
            last_run: LastRunStatus::Successful,
            last_run_compliant: Some(true),
            last_outcome: Some(OutcomeStatus::Deployed),
            last_run_at: Some(Timestamp(7)),
            last_deployed: Some(resource.hash),
            last_success: Some(Timestamp(7)),
            ..ResourceState::new(resource.hash, false)
        };
        states.push((keys[&resource.id], state));
    }
    let records: Vec<StateRecord<'_>> =
        states.iter().map(|(key, state)| StateRecord { resource: *key, state }).collect();
    store.engine().process_version(&lease, number, &records).unwrap();
    for resource in &loaded.resources {
        let wants_absence = orrery_model::wants_absence(&resource.attributes);
        let kind = if wants_absence { ChangeKind::Purged } else { kind };
        let change = Change { kind, attributes: Vec::new() };
        let action = ActionRecord {
            kind: ActionKind::Deploy,
            version: number,
            started: Timestamp(7),
            finished: Timestamp(7),
            outcome: OutcomeStatus::Deployed,
            change: &change,
            wants_absence,
            log: &[],
        };
        let resource = keys[&resource.id];
        let result = ResultRecord { resource, state: None, action: Some(action), facts: &[] };
        store.engine().record_results(&lease, &[result]).unwrap();
    }
    store.leases().release(&lease).unwrap();
}

fn adopted_resources_are_not_pruned(world: World) {
    let both = json!({"resources": [file("/a", &[]), file("/b", &[])]});
    deploy_as(&world, &world.post("/versions", &both).good(), ChangeKind::NoChange);
    let fewer = json!({"resources": [file("/a", &[])]});
    let stored = world.post("/versions", &fewer).good();
    let unmanaged = &stored["unmanaged"];
    assert_eq!((&unmanaged["total"], &unmanaged["removable"]), (&json!(1), &json!(0)));
    let prune = |include: bool| {
        let mut prune = fewer.clone();
        prune["prune"] = json!(true);
        prune["include_adopted"] = json!(include);
        prune["release"] = json!(false);
        world.post("/versions", &prune).good()["removal"].clone()
    };
    let removal = prune(false);
    assert_eq!(removal["removed"], json!([]));
    let kept = &removal["kept"][0];
    assert_eq!((&kept["id"], &kept["adopted"]), (&json!(id("/b")), &json!(true)), "{removal}");
    assert_eq!(kept["reason"], "it existed before its first recorded deploy");
    assert_eq!(prune(true), json!({"removed": [id("/b")], "kept": []}));
}

fn unmanaged_resources_are_reported_and_pruned(world: World) {
    let all = json!([
        file("/a", &[]), file("/d", &[]), file("/d/x", &["/d"]),
        {"id": "exec::Run[localhost,command=make]", "attributes": {"command": "make", "purged": false}},
    ]);
    deploy(&world, &world.post("/versions", &json!({"resources": all})).good());
    let fewer = json!({"resources": [file("/a", &[])]});
    let stored = world.post("/versions", &fewer).good();
    assert_eq!(
        (&stored["unmanaged"]["total"], &stored["unmanaged"]["removable"]),
        (&json!(3), &json!(2))
    );
    assert_eq!(stored["unmanaged"]["ids"].as_array().unwrap().len(), 3);
    deploy(&world, &stored);

    let partial = json!({"resources": [], "scope": "partial", "prune": true});
    refused(&world.post("/versions", &partial), 400, "prune-in-partial");
    let mut prune = fewer.clone();
    prune["prune"] = json!(true);
    prune["release"] = json!(false);
    let candidate = world.post("/versions", &prune).good();
    assert_eq!(candidate["removal"]["removed"], json!([id("/d/x"), id("/d")]), "dependents first");
    assert_eq!(candidate["removal"]["kept"][0]["reason"], "its type cannot be purged");
    assert_eq!(candidate["total"], 3);
    let number = candidate["number"].as_u64().unwrap();
    let found = world.get(&format!("/versions/{number}/resources")).good();
    let directory = found["items"].as_array().unwrap().iter().find(|one| one["id"] == id("/d"));
    let directory = directory.unwrap();
    assert_eq!(directory["attributes"]["purged"], true);
    assert_eq!(directory["attributes"]["content"], "/d", "what else is known of it stays");
    assert_eq!(directory["requires"], json!([id("/d/x")]));
    world.post_empty(&format!("/versions/{number}/release")).good();
    deploy(&world, &candidate);
    let after = world.post("/versions", &fewer).good();
    assert_eq!(after["total"], 1);
    assert_eq!(after["unmanaged"]["removable"], 0, "nothing is left that could be removed");
    let again = world.post("/versions", &prune).good();
    assert_eq!(again["removal"]["removed"], json!([]));
}

fn a_protected_environment_is_not_pruned_empty(world: World) {
    deploy(&world, &world.post("/versions", &upload(None, &json!({}))).good());
    world.put("/settings/protected_environment", &json!({"value": true})).good();
    let destroy = json!({"resources": [], "prune": true, "release": false});
    refused(&world.post("/versions", &destroy), 403, "protected");
    // Replacing all resources makes no difference, nor does `include_adopted`.
    let replaced = json!({"resources": [file("/other", &[])], "prune": true, "release": false});
    refused(&world.post("/versions", &replaced), 403, "protected");
    let adopted = upload(None, &json!({"prune": true, "include_adopted": true, "release": false}));
    refused(&world.post("/versions", &adopted), 403, "protected");
    world.put("/settings/protected_environment", &json!({"value": false})).good();
    let stored = world.post("/versions", &destroy).good();
    assert_eq!(stored["removal"]["removed"], json!([id("/a")]));
}
