//! Environments and their settings.

use orrery_model::OutcomeStatus;
use serde_json::{Value, json};

use super::{World, ids, on_both, refused};

on_both!(
    environments_are_created_changed_and_listed,
    icons_and_texts_are_checked,
    a_protected_environment_stays,
    agents_keep_their_pause_over_a_halt,
    on_resume_flags_are_for_halts,
    settings_have_defaults_forms_and_protection,
    clearing_leaves_the_environment_and_its_settings,
    deleting_leaves_nothing,
);

fn environments_are_created_changed_and_listed(world: World) {
    let admin = world.admin();
    let path = world.at("");
    let found = admin.get(&path);
    assert_eq!(found.headers["etag"], "\"1\"");
    let found = found.good();
    assert_eq!((&found["name"], &found["halted"]), (&json!("e"), &json!(false)));
    assert_eq!(found["actions"]["halt"], format!("{path}/halt"));
    let change = json!({"description": "all of it", "repository": "https://git.example/x", "branch": "main"});
    let old = admin.send("PATCH", &path, &[("if-match", "\"1\"")], Some(&change)).good();
    assert_eq!(old["branch"], "main");
    let late = admin.send("PATCH", &path, &[("if-match", "\"1\"")], Some(&change));
    refused(&late, 412, "outdated");
    let late = admin.send("DELETE", &path, &[("if-match", "\"1\"")], None);
    refused(&late, 412, "outdated");

    let twin = json!({"project": world.project, "name": "e"});
    let there = admin.post("/api/v1/environments", &twin);
    refused(&there, 409, "exists");
    assert!(there.body["detail"].as_str().unwrap().contains("already an environment"), "{there:?}");
    let nowhere = json!({"project": uuid::Uuid::new_v4(), "name": "e"});
    refused(&admin.post("/api/v1/environments", &nowhere), 404, "not-found");
    for name in ["a", "b", "c"] {
        let new = json!({"project": world.project, "name": name});
        admin.post("/api/v1/environments", &new).good();
    }
    let mut seen = Vec::new();
    let mut next: Option<String> = None;
    loop {
        let after = next.map(|next| format!("&after={next}")).unwrap_or_default();
        let list = format!("/api/v1/environments?project={}&limit=3{after}", world.project);
        let page = admin.get(&list).good();
        let items = page["items"].as_array().unwrap();
        seen.extend(items.iter().map(|item| item["name"].as_str().unwrap().to_owned()));
        next = page["next"].as_str().map(str::to_owned);
        if next.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["a", "b", "c", "e"]);
}

fn icons_and_texts_are_checked(world: World) {
    let admin = world.admin();
    let path = world.at("");
    let icon = |icon: &str| admin.patch(&path, &json!({"icon": icon}));
    assert_eq!(icon("data:image/png;base64,iVBORw0KGgo=").status, 200);
    assert_eq!(icon("data:image/svg+xml;base64,PHN2Zy8+").status, 200);
    assert_eq!(icon("").status, 200);
    let large = format!("data:image/png;base64,{}", "A".repeat(64 * 1024));
    for bad in [
        "https://example.org/a.png",
        "data:image/gif;base64,R0lGODlh",
        "data:image/png;base64,???",
        "data:image/png,plain",
        &large,
    ] {
        refused(&icon(bad), 422, "invalid");
    }
    let long = "x".repeat(256);
    refused(&admin.patch(&path, &json!({"description": long})), 422, "invalid");
    refused(&admin.patch(&path, &json!({"name": ""})), 422, "invalid");
    refused(&admin.patch(&path, &json!({"branch": "--upload-pack=x"})), 422, "invalid");
    refused(&admin.patch(&path, &json!({"colour": "red"})), 422, "invalid");
}

fn a_protected_environment_stays(world: World) {
    let setting = "/settings/protected_environment";
    world.put(setting, &json!({"value": true})).good();
    assert_eq!(world.get("").good()["protected"], true);
    refused(&world.delete(""), 403, "protected");
    refused(&world.post_empty("/clear"), 403, "protected");
    world.delete(setting).good();
    let begun = world.delete("");
    assert_eq!(begun.status, 202, "{begun:?}");
    let operation = begun.headers["location"].to_str().unwrap().to_owned();
    assert_eq!(world.admin().get(&operation).good()["transitioning"], "yes");
    assert_eq!(world.get("").good()["transitioning"], "yes");
    refused(&world.post("/versions", &json!({"resources": []})), 409, "deleting");
    refused(&world.post_empty("/resume"), 409, "deleting");
}

fn agents_keep_their_pause_over_a_halt(world: World) {
    world.upload(&[("one/a", 1), ("two/b", 1)]);
    world.post_empty("/agents/one/pause").good();
    assert_eq!(world.post_empty("/halt").good()["halted"], true);
    assert_eq!(world.post_empty("/halt").good()["halted"], true, "twice is once");
    refused(&world.post_empty("/agents/two/unpause"), 409, "conflict");
    refused(&world.post_empty("/versions/1/dry-runs"), 409, "conflict");
    let agents = world.get("/agents").good();
    assert_eq!(ids(&agents), ["one", "two"]);
    assert!(agents["items"].as_array().unwrap().iter().all(|agent| agent["status"] == "paused"));
    assert_eq!(agents["items"][0]["unpause_on_resume"], false);
    assert_eq!(agents["items"][1]["unpause_on_resume"], true);
    world.post_empty("/resume").good();
    let agents = world.get("/agents").good();
    assert_eq!(agents["items"][0]["paused"], true, "it was paused before");
    assert_eq!(agents["items"][1]["paused"], false);
}

fn on_resume_flags_are_for_halts(world: World) {
    world.upload(&[("one/a", 1), ("two/b", 1)]);
    refused(&world.post_empty("/agents/one/unpause-on-resume"), 409, "conflict");
    world.post_empty("/halt").good();
    world.post_empty("/agents/one/keep-paused-on-resume").good();
    refused(&world.post_empty("/agents/three/unpause-on-resume"), 404, "not-found");
    world.post_empty("/resume").good();
    assert_eq!(world.get("/agents/one").good()["paused"], true);
    assert_eq!(world.get("/agents/two").good()["paused"], false);
    assert_eq!(world.post_empty("/all-agents/pause").status, 204);
    assert_eq!(world.get("/agents/two").good()["paused"], true);
    assert_eq!(world.post_empty("/all-agents/unpause").status, 204);
    assert_eq!(world.get("/agents/one").good()["status"], "down", "no engine runs here");
    assert_eq!(world.post_empty("/agents/one/explode").status, 400);
}

fn settings_have_defaults_forms_and_protection(world: World) {
    let all = world.get("/settings").good();
    assert!(all["items"].as_array().unwrap().len() >= 18, "{all}");
    let interval = "/settings/autostart_agent_deploy_interval";
    let found = world.get(interval).good();
    assert_eq!((&found["value"], &found["set"]), (&json!("600"), &json!(false)));
    assert_eq!(found["type"], "interval");
    let choice = world.get("/settings/commit_status").good();
    assert_eq!(choice["choices"], json!(["off", "github", "gitlab", "gitea"]));
    let number = world.get("/settings/park_after_attempts").good();
    assert_eq!((&number["minimum"], number.get("choices")), (&json!(0), None));
    let set = world.put(interval, &json!({"value": "*/5 * * * *"})).good();
    assert_eq!((&set["value"], &set["set"]), (&json!("*/5 * * * *"), &json!(true)));
    refused(&world.put(interval, &json!({"value": "soon"})), 422, "invalid");
    refused(&world.put("/settings/nothing", &json!({"value": 1})), 404, "not-found");
    refused(&world.put("/settings/auto_deploy", &json!({"value": "maybe"})), 422, "invalid");
    let reset = world.delete(interval).good();
    assert_eq!((&reset["value"], &reset["set"]), (&json!("600"), &json!(false)));

    let protect = |settings: Value| {
        world.post(
            "/settings/protect",
            &json!({"settings": settings, "protected_by": "project.yml"}),
        )
    };
    assert_eq!(protect(json!({"auto_deploy": false})).status, 204);
    let found = world.get("/settings/auto_deploy").good();
    assert_eq!(
        (&found["protected"], &found["protected_by"]),
        (&json!(true), &json!("project.yml"))
    );
    refused(&world.put("/settings/auto_deploy", &json!({"value": true})), 403, "protected");
    refused(&world.delete("/settings/auto_deploy"), 403, "protected");
    refused(&protect(json!({"auto_deploy": "maybe"})), 422, "invalid");
    assert_eq!(protect(json!({})).status, 204);
    assert_eq!(
        world.put("/settings/auto_deploy", &json!({"value": true})).good()["protected"],
        false
    );
}

/// Fills an environment with every kind of object.
fn fill(world: &World) {
    world.upload(&[("a", 1), ("b", 1)]);
    let version = world.upload(&[("a", 2), ("c", 1)]);
    let lease = world.lease();
    world.deploy(&lease, version, &[("a", OutcomeStatus::Deployed), ("c", OutcomeStatus::Failed)]);
    world.store().leases().release(&lease).unwrap();
    world.put("/parameters/p", &json!({"value": "1", "recompile": true})).good();
    let fact = format!("{}/facts/f", super::path_of("a"));
    world.put(&fact, &json!({"value": "1"})).good();
    world.put("/settings/auto_deploy", &json!({"value": false})).good();
    assert_eq!(world.post_empty(&format!("/versions/{version}/dry-runs")).status, 202);
    let found = json!({"resources": [{"id": "t::D[agent,name=x]", "attributes": {"a": 1}}]});
    assert_eq!(world.put("/discovered", &found).status, 204);
}

fn erase(world: &World) {
    let store = world.store();
    let mut steps = 0;
    while !store.environments().delete_contents(world.key(), world.served.app.now()).unwrap() {
        steps += 1;
        assert!(steps < 100, "it never ends");
    }
}

fn clearing_leaves_the_environment_and_its_settings(world: World) {
    fill(&world);
    let begun = world.post_empty("/clear");
    assert_eq!(begun.status, 202);
    erase(&world);
    for list in [
        "/versions",
        "/resources?status=!deploying",
        "/agents",
        "/parameters",
        "/facts",
        "/discovered",
    ] {
        assert_eq!(ids(&world.get(list).good()), Vec::<String>::new(), "{list}");
    }
    assert_eq!(world.get("/settings/auto_deploy").good()["value"], false);
    assert_eq!(world.store().check().unwrap(), Vec::<String>::new());
    assert_eq!(world.upload(&[("a", 1)]), 3, "numbers are not given twice");
}

fn deleting_leaves_nothing(world: World) {
    fill(&world);
    let other = json!({"project": world.project, "name": "other"});
    let other = world.admin().post("/api/v1/environments", &other).good();
    let other = format!("/api/v1/environments/{}", other["id"].as_str().unwrap());
    let upload = json!({"resources": [super::resource("a", 1)]});
    world.admin().post(&format!("{other}/versions"), &upload).good();
    assert_eq!(world.delete("").status, 202);
    erase(&world);
    let id: uuid::Uuid = world.id.parse().unwrap();
    world.store().environments().delete(id.into(), world.served.app.now()).unwrap();
    refused(&world.get(""), 404, "not-found");
    assert_eq!(world.store().check().unwrap(), Vec::<String>::new());
    let kept = world.admin().get(&format!("{other}/resources")).good();
    assert_eq!(kept["items"].as_array().unwrap().len(), 1);
    let project = format!("/api/v1/projects/{}", world.project);
    let kept = world.admin().delete(&project);
    refused(&kept, 409, "in-use");
    assert!(
        kept.body["detail"].as_str().unwrap().contains("in use by its environments: delete them"),
        "{kept:?}"
    );
}
