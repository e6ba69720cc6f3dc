//! What is asked of engines: deploys, repairs, dry runs.

use serde_json::{Value, json};

use super::{World, id_of, on_both, refused};

on_both!(
    deploys_are_asked_for_and_followed,
    a_filter_means_what_a_list_shows,
    dry_runs_are_counted_once
);

fn deploys_are_asked_for_and_followed(world: World) {
    world.upload(&[("a", 1)]);
    let asked = world.act("/deploy");
    assert_eq!(asked.status, 202);
    let path = asked.headers["location"].to_str().unwrap().to_owned();
    let asked = asked.good();
    assert_eq!((&asked["kind"], &asked["transitioning"]), (&json!("deploy"), &json!("yes")));
    let body = json!({"agents": ["agent"], "ids": [id_of("a")]});
    let repair = world.post("/repair", &body).good();
    assert_eq!(repair["request"], body);
    refused(&world.post("/deploy", &json!({"ids": ["nonsense"]})), 422, "invalid");
    refused(&world.post("/deploy", &json!({"filter": {"status": ["odd"]}})), 422, "invalid");
    refused(&world.post("/deploy", &json!({"everything": true})), 422, "invalid");

    let (records, now) = (world.store().records(), world.served.app.now());
    let open = records.open_requests(world.key()).unwrap();
    assert_eq!(open.len(), 2);
    records.take_request(open[0].key, now).unwrap();
    assert_eq!(world.admin().get(&path).good()["transitioning_message"], "under way");
    records.finish_request(&open[0], &json!({"resources": 1}), now).unwrap();
    let done = world.admin().get(&path).good();
    assert_eq!((&done["transitioning"], &done["outcome"]["resources"]), (&json!("no"), &json!(1)));
    records.finish_request(&open[1], &json!({"error": "no engine"}), now).unwrap();
    let list = world.get("/operations?limit=1").good();
    assert_eq!(list["items"][0]["transitioning"], "error");
    assert_eq!(list["items"][0]["transitioning_message"], "no engine");
    let next = list["next"].as_str().unwrap();
    let list = world.get(&format!("/operations?limit=1&after={next}")).good();
    assert_eq!((&list["items"][0]["kind"], &list["next"]), (&json!("deploy"), &Value::Null));
    refused(&world.get(&format!("/operations/{}", uuid::Uuid::new_v4())), 404, "not-found");
}

fn a_filter_means_what_a_list_shows(world: World) {
    let filter = json!({"filter": {"agent": "agent", "type": "t::R", "value": "a", "status": ["failed", "!skipped"], "set": "s"}});
    let asked = world.post("/deploy", &filter).good();
    assert_eq!(
        asked["request"]["filter"],
        json!({"agent": "agent", "entity": "t::R", "value": "a", "statuses": ["failed"], "set": "s"})
    );
}

fn dry_runs_are_counted_once(world: World) {
    let version = world.upload(&[("a", 1), ("b", 1), ("c", 1)]);
    let path = format!("/versions/{version}/dry-runs");
    refused(&world.act("/versions/9/dry-runs"), 404, "not-found");
    let asked = world.act(&path);
    assert_eq!(asked.status, 202);
    let id = asked.good()["request"]["dry_run"].as_str().unwrap().to_owned();
    let run = format!("{path}/{id}");
    let begun = world.get(&run).good();
    assert_eq!(
        (&begun["total"], &begun["todo"], &begun["transitioning"]),
        (&json!(3), &json!(3), &json!("yes"))
    );
    let uuid: uuid::Uuid = id.parse().unwrap();
    let result = |name: &str, status: &str, changes: Value| orrery_store::DryRunResult {
        resource: id_of(name),
        status: status.to_owned(),
        changes,
    };
    let results = [
        result("a", "modified", json!({"value": {"current": 0, "desired": 1}})),
        result("b", "unmodified", json!([])),
    ];
    let now = world.served.app.now();
    // The same again, from many at once: each counts once.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                world.store().records().add_dry_run_results(uuid.as_bytes(), &results, now).unwrap()
            });
        }
    });
    assert_eq!(world.get(&run).good()["todo"], 1);
    let last = [result(
        "c",
        "failed",
        json!([{"name": "handler", "current": "FAILED", "desired": "boom"}]),
    )];
    world.store().records().add_dry_run_results(uuid.as_bytes(), &last, now).unwrap();
    world.store().records().finish_dry_run(uuid.as_bytes(), now).unwrap();
    let done = world.get(&run).good();
    assert_eq!((&done["todo"], &done["transitioning"]), (&json!(0), &json!("no")));
    assert_eq!(done["by_status"], json!({"failed": 1, "modified": 1, "unmodified": 1}));
    let changes = world.get(&format!("{run}/changes")).good();
    assert_eq!(
        changes["items"][0]["changes"],
        json!([{"name": "value", "current": 0, "desired": 1}])
    );
    assert_eq!(changes["items"][2]["changes"][0]["desired"], "boom");
    let some = world.get(&format!("{run}/changes?status=modified")).good();
    assert_eq!(some["items"].as_array().unwrap().len(), 1);
    refused(&world.get(&format!("{run}/changes?status=odd")), 400, "bad-filter");
    let list = world.get(&path).good();
    assert_eq!(list["items"][0]["id"], json!(id));
    let other = world.upload(&[("a", 2)]);
    refused(&world.get(&format!("/versions/{other}/dry-runs/{id}")), 404, "not-found");
}
