//! Parameters, facts and resolved unknowns.

use serde_json::{Value, json};

use super::{World, id_of, on_both, path_of, refused};

on_both!(
    parameters_trigger_compiles,
    facts_belong_to_resources,
    a_missing_fact_is_refreshed_once_a_minute,
    a_resolved_unknown_triggers_a_compile,
);

fn compiles(world: &World) -> usize {
    let filter = orrery_store::CompileFilter::default();
    world.store().compiles().list(world.key(), filter, None, 100).unwrap().len()
}

/// Sets the repository; compiles need one.
fn model_from(world: &World, repository: &str) {
    world.admin().patch(&world.at(""), &json!({"repository": repository})).good();
}

fn parameters_trigger_compiles(world: World) {
    model_from(&world, "");
    let pushed =
        world.put("/parameters/colour", &json!({"value": "green", "recompile": true})).good();
    assert_eq!((&pushed["changed"], compiles(&world)), (&json!(true), 0), "there is no model here");
    model_from(&world, "https://git.example/model");
    let set = |body: Value| world.put("/parameters/colour", &body).good();
    let first = set(json!({"value": "red"}));
    assert_eq!(
        (&first["changed"], &first["compile"], &first["source"]),
        (&json!(true), &Value::Null, &json!("user"))
    );
    assert_eq!(
        set(json!({"value": "red", "recompile": true}))["compile"],
        Value::Null,
        "the same value"
    );
    assert_eq!(compiles(&world), 0);
    assert!(set(json!({"value": "blue", "recompile": true}))["compile"].is_string());
    assert_eq!(compiles(&world), 1);
    let new = world
        .put("/parameters/size", &json!({"value": "1", "recompile": true, "source": "plugin"}))
        .good();
    assert!(new["compile"].is_string());
    refused(
        &world.put("/parameters/x", &json!({"value": "1", "expires": true})),
        400,
        "parameter-expires",
    );
    refused(&world.put("/parameters/x", &json!({"value": "1", "source": "wind"})), 422, "invalid");
    refused(&world.put("/parameters/x", &json!({"value": "a\u{0}b"})), 422, "invalid");
    let list = world.get("/parameters?limit=1").good();
    assert_eq!(list["items"][0]["name"], "colour");
    let next = list["next"].as_str().unwrap();
    let list = world.get(&format!("/parameters?limit=1&after={next}")).good();
    assert_eq!((&list["items"][0]["name"], &list["next"]), (&json!("size"), &Value::Null));
    assert_eq!(world.get("/parameters/colour").good()["value"], "blue");
    assert_eq!(world.delete("/parameters/colour").status, 204);
    assert_eq!(compiles(&world), 3, "what is gone is compiled without");
    refused(&world.get("/parameters/colour"), 404, "not-found");
    refused(&world.delete("/parameters/colour"), 404, "not-found");
}

fn facts_belong_to_resources(world: World) {
    world.upload(&[("a", 1), ("b", 1)]);
    let fact = |name: &str, fact: &str| format!("{}/facts/{fact}", path_of(name));
    let set = world.put(&fact("a", "ip"), &json!({"value": "10.0.0.1"})).good();
    assert_eq!(
        (&set["expires"], &set["source"], &set["expired"]),
        (&json!(true), &json!("fact"), &json!(false))
    );
    world.put(&fact("b", "ip"), &json!({"value": "10.0.0.2", "expires": false})).good();
    world.put(&fact("b", "mac"), &json!({"value": "x"})).good();
    assert_eq!(world.get(&fact("b", "ip")).good()["resource"], id_of("b"));
    let count = |query: &str| {
        world.get(&format!("/facts?{query}")).good()["items"].as_array().unwrap().len()
    };
    assert_eq!((count(""), count("name=ip"), count("expires=false")), (3, 2, 1));
    let of = format!(
        "resource={}",
        id_of("b").replace('=', "%3D").replace('[', "%5B").replace(']', "%5D")
    );
    assert_eq!((count(&of), count("resource=t::R%5Ba,b%3Dc%5D")), (2, 0));
    let page = world.get("/facts?limit=2").good();
    let next = page["next"].as_str().unwrap();
    assert_eq!(
        world.get(&format!("/facts?limit=2&after={next}")).good()["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert!(world.get("/parameters").good()["items"].as_array().unwrap().is_empty());
    refused(&world.put(&fact("z", "ip"), &json!({"value": "1"})), 404, "not-found");
    assert_eq!(world.delete(&fact("a", "ip")).status, 204);
    refused(&world.delete(&fact("a", "ip")), 404, "not-found");
}

fn a_missing_fact_is_refreshed_once_a_minute(world: World) {
    world.upload(&[("a", 1), ("b", 1)]);
    let ask = |name: &str| world.get(&format!("{}/facts/ip", path_of(name)));
    for _ in 0..3 {
        refused(&ask("a"), 404, "fact-requested");
    }
    refused(&ask("z"), 404, "not-found");
    let open = world.store().requests().open(world.key()).unwrap();
    assert_eq!(open.len(), 1);
    let asked = (open[0].kind.name(), open[0].kind.payload());
    assert_eq!(asked, ("facts", json!({"ids": [id_of("a")]})));
    refused(&ask("b"), 404, "fact-requested");
    assert_eq!(world.store().requests().open(world.key()).unwrap().len(), 2);
    let refresh = world.post_empty(&format!("{}/refresh-facts", path_of("b")));
    assert_eq!(refresh.status, 204);
    assert_eq!(world.store().requests().open(world.key()).unwrap().len(), 2);
    let (records, pause) = (world.store(), std::time::Duration::from_secs(60));
    let later = world.served.app.now() + pause;
    assert!(records.parameters().request_facts(world.key(), &id_of("a"), pause, later).unwrap());
    assert!(!records.parameters().request_facts(world.key(), &id_of("a"), pause, later).unwrap());
}

fn a_resolved_unknown_triggers_a_compile(world: World) {
    let upload = json!({
        "resources": [{"id": id_of("a"), "attributes": {}, "undefined": true}],
        "unknowns": [
            {"name": "ip", "resource": id_of("a"), "source": "fact"},
            {"name": "size", "source": "user"},
        ],
    });
    world.post("/versions", &upload).good();
    let known = world.put("/parameters/size", &json!({"value": "3"})).good();
    assert_eq!((&known["resolved"], compiles(&world)), (&json!(1), 1));
    let known = world.put(&format!("{}/facts/ip", path_of("a")), &json!({"value": "x"})).good();
    assert_eq!((&known["resolved"], compiles(&world)), (&json!(1), 2));
    let again = world.put("/parameters/size", &json!({"value": "4"})).good();
    assert_eq!((&again["resolved"], compiles(&world)), (&json!(0), 2));
    let unknowns = world.get("/versions/1/unknowns").good();
    assert!(unknowns["items"].as_array().unwrap().iter().all(|each| each["resolved"] == true));
}
