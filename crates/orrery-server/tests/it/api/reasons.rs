//! Questions that span nouns: reasons, facets, search, health of environments.

use orrery_model::OutcomeStatus::{Deployed, Failed, Skipped};
use serde_json::{Value, json};

use super::{World, id_of, on_both, path_of, refused};
use crate::support::Client;

on_both!(
    a_skipped_resource_names_its_root_cause_and_source,
    pauses_halts_and_unknown_values_are_reasons,
    facets_count_each_property_without_its_own_condition,
    a_search_finds_what_the_caller_may_view,
    summaries_have_counts_versions_and_operations,
);

fn why(world: &World, name: &str) -> Value {
    world.get(&format!("{}/why", path_of(name))).good()
}

fn reasons(why: &Value) -> Vec<&str> {
    let reasons = why["reasons"].as_array().unwrap().iter();
    reasons.map(|reason| reason["kind"].as_str().unwrap()).collect()
}

/// Creates an account with one role in the environment of the world, and logs in.
fn account(world: &World, name: &str, role: &str) -> Client {
    let password = "Correct-horse-2";
    let new = json!({"name": name, "password": password});
    world.admin().post("/api/v1/users", &new).good();
    let grant = json!({"user": name, "role": role});
    world.post("/role-assignments", &grant).good();
    world.served.login(name, password)
}

/// `c` requires `b`, which requires `a`.
fn chain(world: &World) -> u32 {
    let at = |line: u32| json!({"file": "main.cf", "line": line, "column": 1});
    let resources = json!([
        {"id": id_of("web/a"), "attributes": {}, "source": at(12)},
        {"id": id_of("web/b"), "attributes": {}, "requires": [id_of("web/a")], "source": at(14)},
        {"id": id_of("db/c"), "attributes": {}, "requires": [id_of("web/b")], "source": at(16)},
    ]);
    let stored = world.post("/versions", &json!({"resources": resources})).good();
    u32::try_from(stored["number"].as_u64().unwrap()).unwrap()
}

fn a_skipped_resource_names_its_root_cause_and_source(world: World) {
    let version = chain(&world);
    let lease = world.lease();
    world.deploy(&lease, version, &[("web/a", Failed), ("web/b", Skipped), ("db/c", Skipped)]);
    let found = why(&world, "db/c");
    assert_eq!((&found["id"], &found["status"]), (&json!(id_of("db/c")), &json!("skipped")));
    assert_eq!(found["source"]["line"], 16);
    let chain = found["chain"].as_array().unwrap();
    assert_eq!(chain.len(), 2, "{found}");
    assert_eq!((&chain[0]["id"], &chain[0]["status"]), (&json!(id_of("web/b")), &json!("skipped")));
    assert_eq!((&chain[1]["id"], &chain[1]["status"]), (&json!(id_of("web/a")), &json!("failed")));
    assert_eq!((&chain[0]["message"], &chain[0]["source"]["line"]), (&Value::Null, &json!(14)));
    assert_eq!(
        (&chain[1]["message"], &chain[1]["source"]["line"]),
        (&json!("trouble with web/a"), &json!(12))
    );
    assert_eq!(found["further"], false);
    assert_eq!(reasons(&found), ["timer"]);
    // The same time as the details of the root cause tell.
    let next = &world.get(&path_of("web/a")).good()["next_run_at"];
    assert_eq!((&found["reasons"][0]["at"], &chain[1]["next_run_at"]), (next, next));
    let failed = why(&world, "web/a");
    assert_eq!((&failed["message"], &failed["chain"]), (&json!("trouble with web/a"), &json!([])));
    refused(&world.get(&format!("{}/why", path_of("z"))), 404, "not-found");
}

fn pauses_halts_and_unknown_values_are_reasons(world: World) {
    let version = chain(&world);
    let lease = world.lease();
    world.deploy(&lease, version, &[("web/a", Failed), ("web/b", Skipped), ("db/c", Deployed)]);
    assert_eq!(reasons(&why(&world, "db/c")), ["settled"]);
    world.post_empty("/agents/web/pause").good();
    let paused = why(&world, "web/b");
    assert_eq!(reasons(&paused), ["agent_paused", "timer"]);
    let reason = &paused["reasons"][0];
    assert_eq!(
        (&reason["agent"], &reason["actions"]["unpause"]),
        (&json!("web"), &json!(world.at("/agents/web/unpause")))
    );
    // Actions that the caller may not take are not offered.
    let viewer = account(&world, "vera", "viewer");
    let seen = viewer.get(&world.at(&format!("{}/why", path_of("web/b")))).good();
    assert_eq!(seen["reasons"][0]["actions"], json!({}));
    refused(&viewer.send("POST", &world.at("/agents/web/unpause"), &[], None), 403, "forbidden");
    world.post_empty("/agents/web/unpause").good();

    world.post_empty("/halt").good();
    assert_eq!(reasons(&why(&world, "web/b"))[0], "halted");
    world.post_empty("/resume").good();

    let resources = json!([{"id": id_of("u"), "attributes": {}, "undefined": true}]);
    let unknowns = json!([{"name": "address", "source": "fact", "resource": id_of("u")}]);
    let stored =
        world.post("/versions", &json!({"resources": resources, "unknowns": unknowns})).good();
    let number = u32::try_from(stored["number"].as_u64().unwrap()).unwrap();
    world.deploy(&lease, number, &[]);
    let found = why(&world, "u");
    assert_eq!(reasons(&found), ["undefined"]);
    assert!(found["reasons"][0]["text"].as_str().unwrap().contains("fact address of"), "{found}");
}

fn facets_count_each_property_without_its_own_condition(world: World) {
    let version = world.upload(&[("x/a", 1), ("x/b", 1), ("y/a", 1), ("y/c", 1)]);
    let lease = world.lease();
    let outcomes = [("x/a", Failed), ("x/b", Deployed), ("y/a", Failed), ("y/c", Deployed)];
    world.deploy(&lease, version, &outcomes);
    let facets = |query: &str| world.get(&format!("/resource-facets{query}")).good();
    let all = facets("");
    assert_eq!((&all["total"], &all["status"]), (&json!(4), &json!({"deployed": 2, "failed": 2})));
    assert_eq!(all["type"], json!([{"value": "t::R", "count": 4}]));
    assert_eq!(all["agent"], json!([{"value": "x", "count": 2}, {"value": "y", "count": 2}]));
    let failed = facets("?status=failed&agent=x");
    assert_eq!(failed["total"], 1);
    assert_eq!(failed["status"], json!({"deployed": 1, "failed": 1}), "of agent x");
    assert_eq!(failed["agent"], json!([{"value": "x", "count": 1}, {"value": "y", "count": 1}]));
    assert_eq!(facets("?value=c")["total"], 1);
    let short = facets("?limit=1");
    assert_eq!(
        (short["agent"].as_array().unwrap().len(), &short["left_out"]),
        (1, &json!({"agent": 1}))
    );
    refused(&world.get("/resource-facets?status=broken"), 400, "bad-filter");
    refused(&world.get("/resource-facets?colour=red"), 400, "unknown-parameter");
}

fn a_search_finds_what_the_caller_may_view(world: World) {
    world.upload(&[("web1/shop.conf", 1), ("web2/other", 1)]);
    let search =
        |client: &Client, query: &str| client.get(&format!("/api/v1/search?{query}")).good();
    let found = search(world.admin(), "q=SHOP");
    let hit = &found["items"][0];
    assert_eq!((&hit["kind"], &hit["id"]), (&json!("resource"), &json!(id_of("web1/shop.conf"))));
    assert_eq!((&hit["environment_name"], &hit["status"]), (&json!("p/e"), &json!("available")));
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
    let agents = search(world.admin(), "q=web");
    let kinds: Vec<&Value> =
        agents["items"].as_array().unwrap().iter().map(|hit| &hit["kind"]).collect();
    assert_eq!(kinds, ["agent", "agent"]);
    assert_eq!(search(world.admin(), "q=v1&kinds=version")["items"][0]["id"], "1");
    assert_eq!(search(world.admin(), "q=web&limit=1")["items"].as_array().unwrap().len(), 1);
    let stranger = json!({"name": "sam", "password": "Correct-horse-3"});
    world.admin().post("/api/v1/users", &stranger).good();
    let stranger = world.served.login("sam", "Correct-horse-3");
    assert_eq!(search(&stranger, "q=shop")["items"], json!([]));
    for bad in ["q=", "q=a&kinds=house", "q=a&limit=0"] {
        refused(&world.admin().get(&format!("/api/v1/search?{bad}")), 400, "bad-filter");
    }
}

fn summaries_have_counts_versions_and_operations(world: World) {
    let version = world.upload(&[("a", 1), ("b", 1)]);
    let lease = world.lease();
    world.deploy(&lease, version, &[("a", Failed), ("b", Deployed)]);
    world.upload(&[("a", 2), ("b", 1)]);
    let list = |client: &Client| client.get("/api/v1/environment-summaries").good();
    let found = list(world.admin());
    let one = &found["items"][0];
    assert_eq!((&one["environment"]["name"], &one["total"]), (&json!("e"), &json!(2)));
    assert_eq!((&one["active_version"], &one["newest_version"]), (&json!(1), &json!(2)));
    assert_eq!(one["operation"], Value::Null);
    let begun = world.post("/repair", &json!({})).good();
    assert_eq!(list(world.admin())["items"][0]["operation"]["id"], begun["id"]);
    let stranger = json!({"name": "sam", "password": "Correct-horse-3"});
    world.admin().post("/api/v1/users", &stranger).good();
    assert_eq!(list(&world.served.login("sam", "Correct-horse-3"))["items"], json!([]));
}
