//! Notifications, discovered resources, files, metrics.

use orrery_model::Timestamp;
use orrery_store::{MetricRecord, NewNotification};
use serde_json::{Value, json};

use super::{World, id_of, ids, on_both, refused};

on_both!(
    notifications_are_read_and_cleared,
    discovered_resources_know_what_is_managed,
    files_are_what_their_names_say,
    measurements_come_in_spans,
);

fn notifications_are_read_and_cleared(world: World) {
    let records = world.store().records();
    for (number, severity) in [(1_u8, "error"), (2, "info"), (3, "error")] {
        let new = NewNotification {
            uuid: [number; 16],
            title: "a title",
            message: "a message",
            severity,
            uri: "",
            compile: None,
        };
        records.add_notification(world.key(), &new, Timestamp(i64::from(number / 2))).unwrap();
    }
    let list = |query: &str| ids(&world.get(&format!("/notifications?{query}")).good());
    let id = |number: u8| uuid::Uuid::from_bytes([number; 16]).to_string();
    assert_eq!(list(""), [id(3), id(2), id(1)]);
    assert_eq!(list("severity=error"), [id(3), id(1)]);
    let page = world.get("/notifications?limit=1").good();
    let next = page["next"].as_str().unwrap();
    assert_eq!(list(&format!("limit=5&after={next}")), [id(2), id(1)]);
    let one = world.at(&format!("/notifications/{}", id(2)));
    let read = world.admin().patch(&one, &json!({"read": true})).good();
    assert_eq!((&read["read"], &read["cleared"]), (&json!(true), &json!(false)));
    assert_eq!(list("read=false"), [id(3), id(1)]);
    world.admin().patch(&one, &json!({"cleared": true})).good();
    assert_eq!((list("cleared=true"), list("read=true&cleared=false").len()), (vec![id(2)], 0));
    assert_eq!(world.admin().get(&one).good()["read"], true);
    refused(&world.get("/notifications?severity=loud"), 400, "bad-filter");
    refused(&world.get(&format!("/notifications/{}", id(9))), 404, "not-found");
    assert_eq!(world.get("/notifications?read=perhaps").status, 400);
}

fn discovered_resources_know_what_is_managed(world: World) {
    world.upload(&[("a", 1)]);
    let found = |names: &[&str]| {
        let resources: Vec<Value> = names
            .iter()
            .map(|name| json!({"id": id_of(name), "attributes": {"n": name}, "discovery_resource": id_of("a")}))
            .collect();
        world.put("/discovered", &json!({"resources": resources}))
    };
    assert_eq!(found(&["a", "b", "c"]).status, 204);
    assert_eq!(found(&["c"]).status, 204, "again");
    let list = |query: &str| ids(&world.get(&format!("/discovered?{query}")).good());
    assert_eq!(list(""), [id_of("a"), id_of("b"), id_of("c")]);
    assert_eq!(list("managed=true"), [id_of("a")]);
    assert_eq!(list("managed=false&limit=1"), [id_of("b")]);
    let other = json!([{"id": "t::Other[x,name=Bee]", "attributes": {}}]);
    assert_eq!(world.put("/discovered", &json!({"resources": other})).status, 204);
    assert_eq!(list("type=t::Other"), ["t::Other[x,name=Bee]"]);
    assert_eq!(list("type=t::R&limit=3"), [id_of("a"), id_of("b"), id_of("c")]);
    assert_eq!(list("type=t"), Vec::<String>::new(), "all of a type's name");
    assert_eq!(list("agent=x"), ["t::Other[x,name=Bee]"]);
    assert_eq!(list("value=b"), ["t::Other[x,name=Bee]".to_owned(), id_of("b")]);
    assert_eq!(list("value=b&agent=agent&managed=false"), [id_of("b")]);
    let page = world.get("/discovered?type=t::R&limit=2").good();
    let next = page["next"].as_str().unwrap();
    assert_eq!(list(&format!("type=t::R&limit=2&after={next}")), [id_of("c")]);
    refused(&world.get("/discovered?color=red"), 400, "unknown-parameter");
    let path = super::path_of("a").replace("/resources/", "/discovered/");
    let one = world.get(&path).good();
    assert_eq!(one["managed"], world.at(&super::path_of("a")).replace("::", "%3A%3A"));
    assert_eq!(one["discovery_resource"], id_of("a"));
    assert_eq!(world.delete(&path).status, 204);
    refused(&world.get(&path), 404, "not-found");
    refused(
        &world.put("/discovered", &json!({"resources": [{"id": "x", "attributes": {}}]})),
        422,
        "invalid",
    );
}

fn files_are_what_their_names_say(world: World) {
    let admin = world.admin();
    // SHA-1 of "hello".
    let name = "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d";
    let path = format!("/api/v1/files/{name}");
    refused(&admin.get(&path), 404, "not-found");
    let put = |content: &[u8]| {
        admin.send_bytes(
            "PUT",
            &path,
            &[("content-type", "application/octet-stream")],
            content.to_vec(),
        )
    };
    refused(&put(b"other"), 400, "content-differs");
    assert_eq!(put(b"hello").status, 204);
    assert_eq!(put(b"hello").status, 204);
    let got = admin.get(&path);
    assert_eq!((got.status, got.text.as_str()), (200, "hello"));
    let head = admin.send("HEAD", &path, &[], None);
    assert_eq!((head.status, head.headers["content-length"].to_str().unwrap()), (200, "5"));
    let other = "0".repeat(40);
    let missing = admin.post("/api/v1/files/missing", &json!({"hashes": [name, other]})).good();
    assert_eq!(missing["hashes"], json!([other]));
    refused(&admin.post("/api/v1/files/missing", &json!({"hashes": ["x"]})), 422, "invalid");
    refused(
        &admin.get("/api/v1/files/+af4c61ddcc5e8a2dabede0f3b482cd9aea9434d"),
        400,
        "bad-request",
    );
}

fn measurements_come_in_spans(world: World) {
    const MINUTE: i64 = 60_000_000;
    let start = 1_700_000_000_000_000_i64.div_euclid(60 * MINUTE) * 60 * MINUTE;
    let metric = |minute: i64, category: &str, count: i64, value: i64, name: &str| MetricRecord {
        name: name.to_owned(),
        category: category.to_owned(),
        at: Timestamp(start + minute * MINUTE),
        count,
        value,
    };
    let given = [
        metric(0, "deployed", 1, 2_000, "resource.resource_count"),
        metric(15, "deployed", 1, 4_000, "resource.resource_count"),
        metric(15, "failed", 1, 1_000, "resource.resource_count"),
        metric(40, "", 2, 6_000, "orchestrator.compile_time"),
    ];
    world.store().records().add_metrics(world.key(), &given).unwrap();
    let (from, to) = (Timestamp(start), Timestamp(start + 60 * MINUTE));
    let found = world.get(&format!("/metrics?start={from}&end={to}&spans=2")).good();
    assert_eq!(found["timestamps"].as_array().unwrap().len(), 2);
    let series = |name: &str| {
        let all = found["metrics"].as_array().unwrap();
        all.iter().find(|series| series["name"] == name).unwrap()["values"].clone()
    };
    // What did not change was not measured again, and is what it was.
    assert_eq!(
        series("resource.resource_count"),
        json!({"deployed": [3.0, 4.0], "failed": [1.0, 1.0]})
    );
    assert_eq!(series("orchestrator.compile_time"), json!({"": [null, 3.0]}));
    assert_eq!(series("orchestrator.compile_rate"), json!({"": [0.0, 4.0]}));
    let (far, end) = (Timestamp(start + 120 * MINUTE), Timestamp(start + 180 * MINUTE));
    let far = world.get(&format!("/metrics?start={far}&end={end}&spans=1")).good();
    let counts = &far["metrics"].as_array().unwrap()[0];
    assert_eq!(counts["values"], json!({}), "nobody looked after it: {counts}");
    let some = world
        .get(&format!("/metrics?start={from}&end={to}&round=true&metrics=resource.agent_count"))
        .good();
    assert_eq!(some["timestamps"], json!([to.to_string()]));
    refused(&world.get("/metrics?metrics=odd"), 400, "bad-filter");
    refused(&world.get("/metrics?spans=0"), 400, "bad-filter");
    refused(&world.get(&format!("/metrics?start={to}&end={from}")), 400, "bad-filter");
    assert_eq!(world.get("/metrics").status, 200);
}
