//! Resources: lists, filters, details, history, logs.

use orrery_model::OutcomeStatus;
use serde_json::{Value, json};

use super::{World, id_of, ids, on_both, path_of, refused};

on_both!(
    pages_walk_all_resources_both_ways,
    resources_are_listed_by_agent,
    bad_filters_are_refused_with_a_reason,
    filters_find_what_they_say,
    filters_by_state_find_the_same_as_their_counts,
    each_resource_is_listed_once_and_orphans_on_request,
    rare_statuses_are_found_among_many,
    details_have_axes_and_relations,
    concurrent_requests_get_their_own_results,
    history_joins_versions_without_a_change,
    logs_are_filtered_and_paged,
);

/// A resource of which the store cannot read a column.
fn damage(world: &World, name: &str) {
    let sql = "UPDATE revision SET hash = '\\x00' WHERE id = \
         (SELECT head FROM resource WHERE name = $1)";
    let mut database = world.database.as_ref().unwrap().connect();
    assert_eq!(database.execute(sql, &[&id_of(name)]).unwrap(), 1);
}

#[test]
fn an_unreadable_resource_does_not_fail_others() {
    let world = World::postgres();
    world.upload(&[("bad", 1), ("good", 1), ("fine", 1)]);
    damage(&world, "bad");
    std::thread::scope(|scope| {
        for name in ["bad", "good", "fine", "bad", "good", "fine"] {
            let world = &world;
            scope.spawn(move || {
                for _ in 0..30 {
                    let found = world.get(&path_of(name));
                    let expected = if name == "bad" { 500 } else { 200 };
                    assert_eq!(found.status, expected, "{name}: {found:?}");
                }
            });
        }
    });
}

#[test]
fn reads_survive_a_restart_of_the_database() {
    let world = World::postgres();
    world.upload(&[("a", 1)]);
    for _ in 0..3 {
        assert_eq!(world.get(&path_of("a")).good()["id"], id_of("a"));
        world.database.as_ref().unwrap().cut_connections();
    }
}

fn walk(world: &World, query: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut after = String::new();
    loop {
        let page = world.get(&format!("/resources?{query}{after}")).good();
        found.extend(ids(&page));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return found,
        }
    }
}

fn pages_walk_all_resources_both_ways(world: World) {
    let names: Vec<String> = (0..25).map(|n| format!("agent{}/r{n:02}", n % 3)).collect();
    let given: Vec<(&str, i64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    world.upload(&given);
    let mut all: Vec<String> = names.iter().map(|name| id_of(name)).collect();
    all.sort_unstable();
    for limit in [1, 4, 24, 25, 26, 1000] {
        assert_eq!(walk(&world, &format!("limit={limit}")), all, "{limit}");
        let mut back = walk(&world, &format!("limit={limit}&sort=-id"));
        back.reverse();
        assert_eq!(back, all, "{limit}");
    }
    let of_one: Vec<String> = all.iter().filter(|id| id.contains("[agent1,")).cloned().collect();
    assert_eq!(walk(&world, "limit=2&agent=agent1"), of_one);
    let mut back = walk(&world, "limit=2&agent=agent1&sort=-id");
    back.reverse();
    assert_eq!(back, of_one);
    let nothing = world.get("/resources?agent=nobody").good();
    assert_eq!(nothing, json!({"items": []}));
}

fn resources_are_listed_by_agent(world: World) {
    let resources: Vec<Value> = (0..24)
        .map(|n| {
            let id = format!("{}[agent{},name=r{n:02}]", ["t::A", "t::R"][n % 2], n % 5);
            json!({"id": id, "attributes": {"value": n}})
        })
        .collect();
    world.post("/versions", &json!({"resources": resources})).good();
    let agent_of = |id: &String| id.split(['[', ',']).nth(1).unwrap().to_owned();
    let mut all: Vec<String> =
        resources.iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect();
    all.sort_unstable_by_key(|id| (agent_of(id), id.clone()));
    for limit in [1, 4, 5, 23, 24, 25] {
        assert_eq!(walk(&world, &format!("limit={limit}&sort=agent")), all, "{limit}");
        let mut back = walk(&world, &format!("limit={limit}&sort=-agent"));
        back.reverse();
        assert_eq!(back, all, "{limit}");
    }
    all.retain(|id| id.starts_with("t::A"));
    assert_eq!(walk(&world, "limit=3&sort=agent&type=t::A"), all);
    all.retain(|id| id.contains("[agent2,"));
    assert_eq!(walk(&world, "limit=1&sort=agent&type=t::A&agent=agent2"), all);
    assert_eq!(walk(&world, "limit=5&sort=type"), walk(&world, "limit=7&sort=id"));
}

fn bad_filters_are_refused_with_a_reason(world: World) {
    for (query, code) in [
        ("status=broken", "bad-filter"),
        ("status=failed,!failed", "bad-filter"),
        ("sort=colour", "bad-sort"),
        ("sort=status", "bad-sort"),
        ("limit=0", "bad-request"),
        ("limit=1001", "bad-request"),
        ("limit=99999999999999999999", "bad-request"),
        ("after=nonsense", "bad-request"),
        ("colour=red", "unknown-parameter"),
        ("agent=a&agent=b", "bad-request"),
        ("value=%00", "bad-request"),
        ("compliance=perfect", "bad-filter"),
        ("last_outcome=broken", "bad-filter"),
        ("from=t&sort=agent", "bad-filter"),
    ] {
        let answer = world.get(&format!("/resources?{query}"));
        refused(&answer, 400, code);
        assert!(!answer.body["detail"].as_str().unwrap().is_empty());
    }
}

fn filters_find_what_they_say(world: World) {
    let resources = json!([
        {"id": "std::File[web1,path=/etc/motd]", "attributes": {}},
        {"id": "std::File[web1,path=/etc/hosts]", "attributes": {}, "set": "one"},
        {"id": "std::File[web2,path=/srv/Motd.d]", "attributes": {}, "set": "one"},
        {"id": "std::Package[web1,name=motd]", "attributes": {}, "set": "two"},
    ]);
    world.post("/versions", &json!({"resources": resources})).good();
    let count = |query: &str| walk(&world, query).len();
    assert_eq!(count("type=std::File"), 3);
    assert_eq!(count("agent=web1"), 3);
    assert_eq!(count("agent=web1&type=std::File"), 2);
    assert_eq!(count("agent=web1,web2&type=std::File"), 3);
    assert_eq!(count("agent=web2,web1"), 4);
    assert_eq!(count("agent=web2&type=std::File,std::Package"), 1);
    assert_eq!(count("agent=web1,web2&sort=agent"), 4);
    assert_eq!(walk(&world, "agent=web2,web1&limit=1"), walk(&world, "agent=web1,web2"));
    assert_eq!(walk(&world, "from=std::File[web1,path=/etc/m").len(), 3);
    assert_eq!(walk(&world, "from=std::P"), ["std::Package[web1,name=motd]"]);
    assert_eq!(count("from=std::Q"), 0);
    assert_eq!(count("value=MOTD"), 3);
    assert_eq!(count("value=/etc/*"), 2);
    assert_eq!(count("value=*motd"), 2);
    assert_eq!(count("set=one"), 2);
    assert_eq!(count("set=one&agent=web2"), 1);
    assert_eq!(count("set=three"), 0);
    assert_eq!(walk(&world, "set=one&limit=1"), walk(&world, "set=one"));
    let shown = world.get("/resources?set=two").good();
    assert_eq!(
        (&shown["items"][0]["set"], &shown["items"][0]["status"]),
        (&json!("two"), &json!("available"))
    );
}

fn filters_by_state_find_the_same_as_their_counts(world: World) {
    let version = world.upload(&[("bad", 1), ("good", 1), ("new", 1), ("x/other", 1)]);
    let lease = world.lease();
    let outcomes = [
        ("bad", OutcomeStatus::Failed),
        ("good", OutcomeStatus::Deployed),
        ("x/other", OutcomeStatus::Unavailable),
    ];
    world.deploy(&lease, version, &outcomes);
    for (query, expected) in [
        ("compliance=compliant", vec!["good"]),
        ("compliance=has_update", vec!["new"]),
        ("compliance=non_compliant", vec!["bad", "x/other"]),
        ("compliance=compliant,has_update", vec!["good", "new"]),
        ("last_outcome=failed,unavailable", vec!["bad", "x/other"]),
        ("last_outcome=failed,unavailable&agent=x", vec!["x/other"]),
        ("last_outcome=deployed&compliance=non_compliant", vec![]),
        ("parked=true", vec![]),
        ("parked=false&last_outcome=failed", vec!["bad"]),
        ("blocked=true", vec![]),
        ("blocked=false&status=available", vec!["new"]),
    ] {
        let expected: Vec<String> = expected.into_iter().map(id_of).collect();
        assert_eq!(walk(&world, query), expected, "{query}");
        let facets = world.get(&format!("/resource-facets?{query}")).good();
        assert_eq!(facets["total"], expected.len(), "{query}: {facets}");
    }
}

fn each_resource_is_listed_once_and_orphans_on_request(world: World) {
    let first = world.upload(&[("a", 1), ("b", 1)]);
    let lease = world.lease();
    world.deploy(&lease, first, &[("a", OutcomeStatus::Deployed), ("b", OutcomeStatus::Deployed)]);
    let second = world.upload(&[("a", 2)]);
    world.deploy(&lease, second, &[]);
    // Orphaned: the engine marks it.
    let store = world.store();
    let mut orphan = None;
    store
        .engine()
        .read_states(world.key(), &mut |row| {
            if row.id == id_of("b") {
                orphan = Some((
                    row.key,
                    orrery_model::ResourceState { intent: None, ..row.state.clone() },
                ));
            }
        })
        .unwrap();
    let (key, state) = orphan.unwrap();
    let record = orrery_store::StateRecord { resource: key, state: &state };
    store.engine().process_version(&lease, orrery_model::VersionNumber(second), &[record]).unwrap();

    assert_eq!(walk(&world, "limit=10"), [id_of("a")]);
    assert_eq!(walk(&world, "status=orphaned"), [id_of("b")]);
    assert_eq!(walk(&world, "status=available,orphaned"), [id_of("a"), id_of("b")]);
    assert_eq!(walk(&world, "status=!available"), [id_of("b")]);
    let counts = world.get("/resource-counts").good();
    assert_eq!(counts["by_status"], json!({"available": 1, "orphaned": 1}));
    assert_eq!(counts["total"], 1);
}

fn rare_statuses_are_found_among_many(world: World) {
    let names: Vec<String> = (0..300).map(|n| format!("r{n:03}")).collect();
    let given: Vec<(&str, i64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let version = world.upload(&given);
    let lease = world.lease();
    let outcomes = [
        ("r010", OutcomeStatus::Failed),
        ("r111", OutcomeStatus::Skipped),
        ("r222", OutcomeStatus::Failed),
        ("r299", OutcomeStatus::Deployed),
    ];
    world.deploy(&lease, version, &outcomes);
    assert_eq!(walk(&world, "status=failed&limit=1"), [id_of("r010"), id_of("r222")]);
    assert_eq!(
        walk(&world, "status=failed,skipped&sort=-id&limit=2"),
        [id_of("r222"), id_of("r111"), id_of("r010")]
    );
    assert_eq!(walk(&world, "status=failed&value=22"), [id_of("r222")]);
    assert_eq!(walk(&world, "status=deployed"), [id_of("r299")]);
    assert_eq!(walk(&world, "status=available&limit=1000").len(), 296);
    assert_eq!(walk(&world, "status=deploying"), Vec::<String>::new());
    let agent = world.get("/agents/agent").good();
    assert_eq!((&agent["resources"], &agent["by_status"]["failed"]), (&json!(300), &json!(2)));
    assert_eq!(agent["status"], "up", "an engine holds the lease");
}

fn details_have_axes_and_relations(world: World) {
    let resources = json!([
        {"id": id_of("a"), "attributes": {"value": 1}, "requires": [id_of("b")],
         "source": {"file": "main.cf", "line": 7, "column": 2}},
        {"id": id_of("b"), "attributes": {}},
        {"id": id_of("c"), "attributes": {}, "requires": [id_of("b")]},
    ]);
    world.post("/versions", &json!({"resources": resources})).good();
    let lease = world.lease();
    world.deploy(&lease, 1, &[("a", OutcomeStatus::Failed), ("b", OutcomeStatus::Deployed)]);
    let found = world.get(&path_of("a")).good();
    assert_eq!((&found["status"], &found["transitioning"]), (&json!("failed"), &json!("error")));
    assert_eq!(found["transitioning_message"], "trouble with a");
    assert_eq!(found["attributes"], json!({"value": 1}));
    assert_eq!(found["requires"], json!([{"id": id_of("b"), "status": "deployed"}]));
    assert_eq!(found["state"]["compliance"], "non_compliant");
    assert_eq!(found["state"]["last_handler_run"], "failed");
    assert_eq!(found["state"]["blocked"], "not_blocked");
    assert_eq!(found["source"], json!({"file": "main.cf", "line": 7, "column": 2}));
    assert_eq!(found["actions"]["deploy"], world.at("/deploy"));
    let provides = world.get(&format!("{}/provides", path_of("b"))).good();
    assert_eq!(
        provides["items"],
        json!([{"id": id_of("a"), "status": "failed"}, {"id": id_of("c"), "status": "available"}])
    );
    let page = |rest: &str| world.get(&format!("{}/provides?limit=1{rest}", path_of("b"))).good();
    let first = page("");
    assert_eq!(first["items"], json!([{"id": id_of("a"), "status": "failed"}]));
    let second = page(&format!("&after={}", first["next"].as_str().unwrap()));
    assert_eq!(second["items"], json!([{"id": id_of("c"), "status": "available"}]));
    assert_eq!(second["next"], Value::Null);
    refused(&world.get(&path_of("z")), 404, "not-found");
    refused(&world.get(&format!("{}/provides", path_of("z"))), 404, "not-found");
    refused(&world.get(&format!("{}/history", path_of("z"))), 404, "not-found");
    refused(&world.get(&format!("{}/logs", path_of("z"))), 404, "not-found");
}

fn concurrent_requests_get_their_own_results(world: World) {
    let name = |number: usize| format!("r{number:02}");
    let resource = |number: usize| {
        let requires: Vec<String> = (0..number % 4).map(|one| id_of(&name(one))).collect();
        json!({"id": id_of(&name(number + 4)), "attributes": {"value": number}, "requires": requires})
    };
    let mut resources: Vec<Value> =
        (0..4).map(|one| json!({"id": id_of(&name(one)), "attributes": {}})).collect();
    resources.extend((0..40).map(resource));
    world.post("/versions", &json!({"resources": resources})).good();
    world.deploy(&world.lease(), 1, &[(&name(9), OutcomeStatus::Failed)]);
    let ask = |from: usize| {
        for number in (from..40).chain(0..from) {
            let found = world.get(&path_of(&name(number + 4))).good();
            assert_eq!(found["id"], id_of(&name(number + 4)));
            assert_eq!(found["attributes"], json!({"value": number}));
            let requires: Vec<String> = (0..number % 4).map(|one| id_of(&name(one))).collect();
            let told = found["requires"].as_array().unwrap().iter();
            assert_eq!(told.map(|one| one["id"].as_str().unwrap()).collect::<Vec<_>>(), requires);
            let trouble = if number == 5 { "trouble with r09" } else { "" };
            assert_eq!(found["transitioning_message"], trouble);
            refused(&world.get(&path_of("none")), 404, "not-found");
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || ask(thread * 5));
        }
    });
}

fn history_joins_versions_without_a_change(world: World) {
    for (a, b) in [(1, 1), (1, 2), (2, 3), (2, 4), (1, 5)] {
        world.upload(&[("a", a), ("b", b)]);
    }
    // Only the requirements change, not the attributes.
    let resources = json!([
        {"id": id_of("a"), "attributes": {"value": 1}, "requires": [id_of("b")]},
        {"id": id_of("b"), "attributes": {"value": 5}},
    ]);
    world.post("/versions", &json!({"resources": resources})).good();
    let path = format!("{}/history", path_of("a"));
    let versions = |page: &Value| -> Vec<u64> {
        page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|each| each["version"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(versions(&world.get(&path).good()), [5, 3, 1]);
    let page = world.get(&format!("{path}?limit=2")).good();
    let next = page["next"].as_str().unwrap();
    let rest = world.get(&format!("{path}?limit=2&after={next}")).good();
    assert_eq!((versions(&rest), &rest["next"]), (vec![1], &Value::Null));
    assert_eq!(rest["items"][0]["attributes"]["value"], 1);
    // A gap: the version in between is deleted.
    assert_eq!(world.delete("/versions/3").status, 204);
    assert_eq!(world.delete("/versions/4").status, 204);
    assert_eq!(versions(&world.get(&path).good()), [1], "the same before and after the gap");
}

fn logs_are_filtered_and_paged(world: World) {
    let version = world.upload(&[("a", 1)]);
    let lease = world.lease();
    for _ in 0..3 {
        world.deploy(&lease, version, &[("a", OutcomeStatus::Failed)]);
    }
    let path = format!("{}/logs", path_of("a"));
    let lines = |query: &str| {
        world.get(&format!("{path}?{query}")).good()["items"].as_array().unwrap().len()
    };
    assert_eq!(lines(""), 6);
    assert_eq!(lines("min_level=error"), 3);
    assert_eq!(lines("min_level=critical"), 0);
    assert_eq!(lines("action=deploy"), 6);
    assert_eq!(lines("action=get_facts"), 0);
    assert_eq!(lines("message=looking"), 3);
    assert_eq!(lines("since=2020-01-01T00:00:00Z"), 6);
    assert_eq!(lines("until=2020-01-01T00:00:00Z"), 0);
    refused(&world.get(&format!("{path}?min_level=loud")), 400, "bad-filter");
    refused(&world.get(&format!("{path}?since=yesterday")), 400, "bad-filter");
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let page = world.get(&format!("{path}?limit=2{after}")).good();
        for line in page["items"].as_array().unwrap() {
            seen.push((
                line["action_id"].as_i64().unwrap(),
                line["level"].as_str().unwrap().to_owned(),
            ));
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen.len(), 6);
    assert!(seen.windows(2).all(|pair| pair[0].0 >= pair[1].0), "{seen:?}");
    let actions = world.get(&format!("{}/actions?limit=2", path_of("a"))).good();
    assert_eq!(
        (&actions["items"][0]["outcome"], &actions["items"][0]["change"]),
        (&json!("failed"), &json!("updated"))
    );
    assert!(actions["next"].is_string());
}
