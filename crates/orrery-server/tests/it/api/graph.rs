//! The dependency graph: drawn parts, groups, neighbours, and that changes show.

use orrery_model::OutcomeStatus::{Deployed, Failed, Skipped};
use serde_json::{Value, json};

use super::{World, id_of, on_both, refused, until_current};

on_both!(
    a_graph_has_requirements_on_the_left_and_follows_changes,
    a_large_graph_shows_trouble_or_groups,
    a_graph_is_limited_to_the_neighbours_of_a_resource,
    a_graph_refuses_bad_input_and_foreign_callers,
);

fn upload(world: &World, resources: &[(&str, &[&str], Option<&str>)]) -> u32 {
    let resources: Vec<Value> = resources
        .iter()
        .map(|(name, requires, set)| {
            let requires: Vec<String> = requires.iter().map(|name| id_of(name)).collect();
            let mut one = json!({"id": id_of(name), "attributes": {}, "requires": requires});
            if let Some(set) = set {
                one["set"] = json!(set);
            }
            one
        })
        .collect();
    let stored = world.post("/versions", &json!({"resources": resources})).good();
    u32::try_from(stored["number"].as_u64().unwrap()).unwrap()
}

fn graph(world: &World, query: &str) -> Value {
    world.get(&format!("/graph{query}")).good()
}

fn node<'a>(graph: &'a Value, id: &str) -> &'a Value {
    let nodes = graph["nodes"].as_array().unwrap();
    nodes.iter().find(|node| node["id"] == id).unwrap_or_else(|| panic!("no {id} in {graph}"))
}

fn a_graph_has_requirements_on_the_left_and_follows_changes(world: World) {
    let version = upload(&world, &[("a", &[], None), ("b", &["a"], None), ("c", &["b"], None)]);
    let drawn = graph(&world, "");
    assert_eq!((&drawn["scope"], &drawn["group"]), (&json!("all"), &json!("none")));
    assert_eq!((&drawn["total"], &drawn["left_out"]["nodes"]), (&json!(3), &json!(0)));
    let x = |name: &str| node(&drawn, &id_of(name))["x"].as_i64().unwrap();
    assert!(x("a") < x("b") && x("b") < x("c"), "{drawn}");
    assert_eq!(node(&drawn, &id_of("b"))["value"], "b");
    assert_eq!(drawn["edges"].as_array().unwrap().len(), 2);

    let lease = world.lease();
    world.deploy(&lease, version, &[("a", Failed), ("b", Skipped), ("c", Skipped)]);
    let now = current(&world);
    let status = |name: &str| node(&now, &id_of(name))["status"].clone();
    assert_eq!((status("a"), status("c")), (json!("failed"), json!("skipped")));
    let failed = graph(&world, "?status=failed");
    assert_eq!((failed["nodes"].as_array().unwrap().len(), &failed["total"]), (1, &json!(1)));
    assert_eq!(node(&failed, &id_of("a"))["hidden_out"], 1);
}

fn a_large_graph_shows_trouble_or_groups(world: World) {
    let names: Vec<String> = (0..200).map(|number| format!("web/{number:03}")).collect();
    let mut resources: Vec<(&str, &[&str], Option<&str>)> =
        names.iter().map(|name| (&**name, &["db/base"][..], Some("hosts"))).collect();
    resources.push(("db/base", &[], None));
    let version = upload(&world, &resources);
    let sets = graph(&world, "");
    assert_eq!((&sets["scope"], &sets["group"]), (&json!("groups"), &json!("set")));
    let hosts = node(&sets, "hosts");
    assert_eq!((&hosts["count"], &hosts["by_status"]), (&json!(200), &json!({"available": 200})));
    assert_eq!(sets["edges"][0]["n"], 200);
    let agents = graph(&world, "?group=agent&open=web");
    assert_eq!(node(&agents, "web")["cells"].as_array().unwrap().len(), 200);

    let lease = world.lease();
    let mut outcomes: Vec<_> = names.iter().map(|name| (&**name, Deployed)).collect();
    outcomes[7].1 = Skipped;
    outcomes.push(("db/base", Failed));
    world.deploy(&lease, version, &outcomes);
    let trouble = current(&world);
    assert_eq!(trouble["scope"], "trouble");
    assert_eq!(trouble["nodes"].as_array().unwrap().len(), 2, "{trouble}");
    assert_eq!(trouble["left_out"], json!({"nodes": 199, "by_status": {"deployed": 199}}));
    assert_eq!(node(&trouble, &id_of("db/base"))["hidden_out"], 199);
}

/// Returns a graph that includes all changes: an answer may be older for a moment, and tells so.
fn current(world: &World) -> Value {
    let latest = world.store().changes().latest().unwrap().0;
    until_current(world, "/graph", |now| now["position"].as_i64().unwrap() >= latest)
}

fn a_graph_is_limited_to_the_neighbours_of_a_resource(world: World) {
    upload(
        &world,
        &[("a", &[], None), ("b", &["a"], None), ("c", &["b"], None), ("d", &["a"], None)],
    );
    let focus = |query: &str| {
        let id = id_of("b").replace('[', "%5B").replace(']', "%5D").replace('=', "%3D");
        let drawn = graph(&world, &format!("?focus={id}{query}"));
        let nodes = drawn["nodes"].as_array().unwrap().iter();
        let mut values: Vec<String> =
            nodes.map(|node| node["value"].as_str().unwrap().to_owned()).collect();
        values.sort_unstable();
        values.concat()
    };
    assert_eq!(focus(""), "abc");
    assert_eq!(focus("&direction=requires&depth=4"), "ab");
    assert_eq!(focus("&direction=provides"), "bc");
}

fn a_graph_refuses_bad_input_and_foreign_callers(world: World) {
    upload(&world, &[("a", &[], None)]);
    let bad = [
        "group=colour",
        "depth=5",
        "depth=0",
        "limit=501",
        "per_parent=26",
        "status=broken",
        "direction=up",
    ];
    for bad in bad {
        refused(&world.get(&format!("/graph?{bad}")), 400, "bad-filter");
    }
    refused(&world.get("/graph?colour=red"), 400, "unknown-parameter");
    refused(&world.get("/graph?focus=t%3A%3AR%5Bagent%2Cname%3Dz%5D"), 404, "not-found");
    let stranger = json!({"name": "sam", "password": "Correct-horse-3"});
    world.admin().post("/api/v1/users", &stranger).good();
    let stranger = world.served.login("sam", "Correct-horse-3");
    refused(&stranger.get(&world.at("/graph")), 403, "forbidden");
}
