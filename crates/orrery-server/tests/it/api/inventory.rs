//! Inventories: stored with versions, resolved, and decisive for placements.

use serde_json::{Value, json};

use super::{World, on_both, refused};

on_both!(
    an_inventory_is_stored_as_a_version,
    a_bad_inventory_is_refused_with_its_paths,
    the_strongest_source_places_an_agent,
    versions_refer_to_uploaded_inventories,
);

fn document() -> Value {
    json!({
        "defaults": {"user": "deploy"},
        "groups": {"web": {"hosts": ["web1", "web[2..3]"], "port": 2222}},
        "hosts": {"web1": {"address": "192.0.2.11"}},
    })
}

fn placement(world: &World, agent: &str) -> Value {
    let question = json!({"agents": [agent], "inventory": inventory_hash(world)});
    world.post("/placements", &question).good()["placements"][agent].clone()
}

fn inventory_hash(world: &World) -> Value {
    let version = world.get("/inventory").good()["version"].clone();
    world.get(&format!("/versions/{version}")).good()["info"]["inventory"].clone()
}

fn an_inventory_is_stored_as_a_version(world: World) {
    let before = world.get("/inventory").good();
    assert_eq!((&before["version"], &before["hosts"]), (&Value::Null, &json!(0)));
    world.upload(&[("a", 1)]);
    let stored = world.put("/inventory", &document()).good();
    assert_eq!((&stored["version"], &stored["hosts"]), (&json!(2), &json!(3)));
    assert_eq!(stored["document"], document());
    assert_eq!(world.get("/inventory").good(), stored);
    assert_eq!(world.get("/versions/2").good()["total"], 1, "the resources are the same");
    let again = world.put("/inventory", &document()).good();
    assert_eq!(again["version"], 2, "nothing changed");
    let hosts = world.get("/inventory/hosts?limit=2").good();
    let items = hosts["items"].as_array().unwrap();
    let names: Vec<&str> = items.iter().filter_map(|host| host["name"].as_str()).collect();
    assert_eq!(names, ["web1", "web2"]);
    assert_eq!(items[0]["address"], "ssh://deploy@192.0.2.11:2222");
    assert_eq!(items[0]["groups"], json!(["web"]));
    assert_eq!(items[0]["values"]["port"], json!({"value": "2222", "source": "group web"}));
    assert_eq!(items[0]["placement"]["kind"], "ssh");
    let next = hosts["next"].as_str().unwrap();
    let rest = world.get(&format!("/inventory/hosts?limit=2&after={next}")).good();
    assert_eq!(rest["items"][0]["name"], "web3");
    let part = json!({"scope": "partial", "resources": []});
    world.post("/versions", &part).good();
    assert_eq!(world.get("/inventory").good()["hosts"], 3, "a partial version keeps it");
    world.upload(&[("a", 2)]);
    assert_eq!(world.get("/inventory").good()["hosts"], 0, "a full version replaces it");
    world.post_empty("/versions/2/roll-back").good();
    assert_eq!(world.get("/inventory").good()["hosts"], 3, "it is rolled back with its version");
}

fn a_bad_inventory_is_refused_with_its_paths(world: World) {
    world.upload(&[("a", 1)]);
    for (document, field, reason) in [
        (json!({"hosts": {"a": {"usr": "x"}}}), "hosts.a.usr", "did you mean user?"),
        (json!({"groups": {"g": {"hosts": ["a[2..1]"]}}}), "groups.g.hosts[0]", "no range"),
    ] {
        let answer = world.put("/inventory", &document);
        refused(&answer, 422, "invalid");
        let fields = answer.body["fields"].to_string();
        assert!(fields.contains(field) && fields.contains(reason), "{fields}");
    }
    assert_eq!(world.put("/inventory", &json!({"host": {}})).status, 422);
    assert_eq!(world.get("/inventory").good()["version"], 1, "nothing is stored");
}

fn the_strongest_source_places_an_agent(world: World) {
    world.put("/inventory", &document()).good();
    let by_file = placement(&world, "web1");
    assert_eq!(by_file["kind"], "ssh");
    assert_eq!(by_file["address"], "ssh://deploy@192.0.2.11:2222");
    assert!(by_file["reason"].as_str().unwrap().starts_with("the inventory gives web1"));
    let placements = json!({"web*": "none:", "web1": "local:", "x": "ssh://root@{agent}"});
    world.put("/settings/agent_placements", &json!({ "value": placements })).good();
    assert_eq!(placement(&world, "web1")["kind"], "local");
    assert_eq!(placement(&world, "web2")["kind"], "none");
    assert_eq!(placement(&world, "x")["address"], "ssh://root@x");
    assert_eq!(placement(&world, "y")["kind"], "unknown");
    let wrong = json!({"value": {"a": "ftp://x"}});
    refused(&world.put("/settings/agent_placements", &wrong), 422, "invalid");
}

fn versions_refer_to_uploaded_inventories(world: World) {
    let upload = |hash: &str| world.post("/versions", &json!({"resources": [], "inventory": hash}));
    refused(&upload(&"0".repeat(40)), 400, "inventory-missing");
    refused(&upload("x"), 422, "invalid");
}
