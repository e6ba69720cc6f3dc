//! Activity, runs and changes of resources.

use orrery_model::OutcomeStatus::{Deployed, Failed, Skipped};
use serde_json::{Value, json};

use super::{World, id_of, ids, on_both, refused};

on_both!(
    waits_are_counted_by_their_root_cause,
    a_halted_environment_waits_for_nothing_else,
    runs_are_filtered_newest_first,
    changes_have_the_present_states_of_changed_resources,
);

/// Four resources of two agents: `b` requires `a`, `d` requires `c`.
fn pairs(world: &World) -> u32 {
    let resources = json!([
        {"id": id_of("web/a"), "attributes": {}},
        {"id": id_of("web/b"), "attributes": {}, "requires": [id_of("web/a")]},
        {"id": id_of("db/c"), "attributes": {}},
        {"id": id_of("web/d"), "attributes": {}, "requires": [id_of("db/c")]},
    ]);
    let stored = world.post("/versions", &json!({"resources": resources})).good();
    u32::try_from(stored["number"].as_u64().unwrap()).unwrap()
}

fn waits(activity: &Value) -> Vec<(&str, u64)> {
    let waits = activity["waits"].as_array().unwrap().iter();
    waits.map(|wait| (wait["kind"].as_str().unwrap(), wait["count"].as_u64().unwrap())).collect()
}

fn waits_are_counted_by_their_root_cause(world: World) {
    let version = pairs(&world);
    let fresh = world.get("/activity").good();
    assert_eq!(
        (&fresh["ready"], &fresh["waiting"], &fresh["running"]),
        (&json!(2), &json!(2), &json!(0)),
        "{fresh}"
    );
    assert_eq!(waits(&fresh), [("running", 2)]);

    // A pause keeps its own resource and what depends on it.
    let lease = world.lease();
    world.deploy(&lease, version, &[("web/a", Failed), ("web/b", Skipped)]);
    world.post_empty("/agents/db/pause").good();
    let paused = super::until_current(&world, "/activity", |now| now["ready"] == 0);
    let mut reasons = waits(&paused);
    reasons.sort_unstable();
    assert_eq!(reasons, [("agent_paused", 2), ("waiting_on", 1)], "{paused}");
    let on = paused["waits"].as_array().unwrap().iter().find(|wait| wait["kind"] == "waiting_on");
    assert_eq!(on.unwrap()["resource"], id_of("web/a"));
    let db = paused["agents"].as_array().unwrap().iter().find(|queue| queue["agent"] == "db");
    assert_eq!(
        db.unwrap(),
        &json!({"agent": "db", "running": 0, "ready": 0, "waiting": 1, "paused": true})
    );
    // The failed one is retried at the time that its details tell; the skipped one may be earlier.
    let next = &world.get(&super::path_of("web/a")).good()["next_run_at"];
    let at = paused["timers"][0]["at"].as_str().unwrap();
    assert!(at <= next.as_str().unwrap(), "{paused}");
    assert_eq!(paused["timers_complete"], true);
}

fn a_halted_environment_waits_for_nothing_else(world: World) {
    pairs(&world);
    world.post_empty("/halt").good();
    let halted = super::until_current(&world, "/activity", |now| now["ready"] == 0);
    assert_eq!(waits(&halted), [("halted", 4)]);
    assert_eq!(halted["timers"], json!([]));
    let stranger = json!({"name": "sam", "password": "Correct-horse-3"});
    world.admin().post("/api/v1/users", &stranger).good();
    let stranger = world.served.login("sam", "Correct-horse-3");
    for path in ["/activity", "/runs", "/resource-changes"] {
        refused(&stranger.get(&world.at(path)), 403, "forbidden");
    }
}

fn runs_are_filtered_newest_first(world: World) {
    let version = pairs(&world);
    let lease = world.lease();
    world.deploy(&lease, version, &[("web/a", Failed), ("web/b", Skipped), ("db/c", Deployed)]);
    let runs = |query: &str| -> Vec<String> {
        let page = world.get(&format!("/runs{query}")).good();
        let items = page["items"].as_array().unwrap().iter();
        items.map(|run| run["resource"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(runs(""), [id_of("db/c"), id_of("web/b"), id_of("web/a")]);
    assert_eq!(runs("?outcome=failed"), [id_of("web/a")]);
    assert_eq!(runs("?agent=db"), [id_of("db/c")]);
    assert_eq!(runs("?changed=false"), [""; 0]);
    assert_eq!(runs("?since=2999-01-01T00:00:00Z"), [""; 0]);
    let page = world.get("/runs?limit=2").good();
    assert_eq!(page["items"][1]["message"], "trouble with web/b");
    let next = page["next"].as_str().unwrap();
    assert_eq!(runs(&format!("?limit=2&after={next}")), [id_of("web/a")]);
    refused(&world.get("/runs?outcome=broken"), 400, "bad-filter");
    refused(&world.get("/runs?since=yesterday"), 400, "bad-filter");
}

fn changes_have_the_present_states_of_changed_resources(world: World) {
    let version = pairs(&world);
    let changes = |since: i64| world.get(&format!("/resource-changes?since={since}")).good();
    let position = |answer: &Value| answer["position"].as_i64().unwrap();
    let begin = world.get("/resource-changes").good();
    assert_eq!((&begin["items"], &begin["reset"]), (&json!([]), &json!(false)));
    let lease = world.lease();
    world.deploy(&lease, version, &[("web/a", Failed)]);
    let found = changes(position(&begin));
    assert!(position(&found) > position(&begin));
    assert_eq!(found["reset"], false, "{found}");
    assert!(ids(&found).contains(&id_of("web/a")), "{found}");
    let failed = found["items"].as_array().unwrap().iter().find(|one| one["id"] == id_of("web/a"));
    assert_eq!(failed.unwrap()["status"], "failed");
    // Nothing since then.
    let none = changes(position(&found));
    assert_eq!((&none["items"], &none["reset"]), (&json!([]), &json!(false)));
    // A version may change any number of resources.
    pairs(&world);
    assert_eq!(changes(position(&found))["reset"], true);
}
