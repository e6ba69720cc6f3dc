//! Operations: deploys, repairs, dry runs.

use std::time::{Duration, Instant};

use orrery_server::{ProcessOptions, ProcessRole};
use serde_json::{Value, json};

use super::{World, id_of, on_both, refused};

on_both!(
    deploys_are_requested_and_followed,
    a_deploy_filter_matches_the_list_filter,
    dry_runs_are_counted_once,
    an_operation_ends_with_its_resources,
    operations_in_a_halted_environment_are_refused,
    invalid_code_is_reported,
    actions_are_limited_to_state_and_rights,
    an_operation_returns_its_request_parameters,
    a_report_is_about_the_version_of_its_operation,
    an_operation_is_cancelled_with_what_it_waits_for,
    an_operation_is_cancelled_before_it_begins,
    operations_name_their_callers_and_are_listed_everywhere,
);

/// Timeout for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process role beside the API.
struct Engine {
    _role: ProcessRole,
    _data: tempfile::TempDir,
}

fn engine(world: &World) -> Engine {
    let data = tempfile::tempdir().unwrap();
    let options = ProcessOptions {
        data: data.path().to_owned(),
        workers: orrery_executor::WorkerLimits::starting_at(4),
        lease: world.database.is_some().then_some(Duration::from_secs(5)),
        host_memory: None,
        isolation: orrery_server::Isolation::Shared,
        own_machine: orrery_server::OwnMachineOptions::shared(),
    };
    Engine { _role: ProcessRole::start(world.served.app.clone(), options).unwrap(), _data: data }
}

/// Polls a path until a condition holds.
fn until(world: &World, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + PATIENCE;
    loop {
        let found = world.admin().get(path).good();
        if holds(&found) {
            return found;
        }
        assert!(Instant::now() < until, "{path} stays {found}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn scripted(agent: &str, name: &str, attributes: Value) -> Value {
    json!({"id": format!("std::testing::ScriptedResource[{agent},name={name}]"), "attributes": attributes})
}

/// Creates an operation; returns its path.
fn ask(world: &World, path: &str, body: &Value) -> String {
    let asked = world.post(path, body);
    assert_eq!(asked.status, 202, "{asked:?}");
    asked.headers["location"].to_str().unwrap().to_owned()
}

fn has_ended(operation: &Value) -> bool {
    operation["transitioning"] != "yes"
}

fn a_report_is_about_the_version_of_its_operation(world: World) {
    let _engine = engine(&world);
    let one = scripted("a", "one", json!({"outcome": "changed"}));
    let upload = json!({"resources": [one], "release": true, "verify": true});
    let stored = world.post("/versions", &upload).good();
    let operation =
        world.at(&format!("/operations/{}", stored["operation"]["id"].as_str().unwrap()));
    until(&world, &operation, has_ended);
    let report = || world.admin().get(&format!("{operation}/report")).good();
    let before = report();
    assert_eq!((&before["total"], &before["updated"]), (&json!(1), &json!(1)), "{before}");
    // A newer version is released before the report is read.
    let two = scripted("a", "two", json!({"outcome": "changed"}));
    let upload = json!({"resources": [one, two], "release": true, "verify": true});
    let stored = world.post("/versions", &upload).good();
    let other = world.at(&format!("/operations/{}", stored["operation"]["id"].as_str().unwrap()));
    until(&world, &other, has_ended);
    assert_eq!(report(), before);
    let results = world.admin().get(&format!("{operation}/results")).good();
    let items = results["items"].as_array().unwrap();
    assert!(items.iter().all(|one| one["resource"].as_str().unwrap().contains("one")), "{results}");
    let report = world.admin().get(&format!("{other}/report")).good();
    assert_eq!((&report["total"], &report["updated"]), (&json!(2), &json!(2)), "{report}");
}

fn an_operation_is_cancelled_with_what_it_waits_for(world: World) {
    let resources = json!([
        scripted("slow", "running", json!({"delay_ms": 600_000})),
        scripted("paused", "queued", json!({})),
        scripted("quick", "done", json!({"outcome": "changed"})),
    ]);
    world.post("/versions", &json!({"resources": resources, "release": true})).good();
    world.post_empty("/agents/slow/pause").good();
    world.post_empty("/agents/paused/pause").good();
    let _engine = engine(&world);
    let done = world.at("/resources/std::testing::ScriptedResource%5Bquick%2Cname%3Ddone%5D");
    until(&world, &done, |found| found["status"] == "deployed");
    world.post_empty("/agents/slow/unpause").good();
    let repair = ask(&world, "/repair", &json!({}));
    let running = until(&world, &repair, |found| found["progress"]["done"] == 1);
    assert_eq!(running["progress"]["by_outcome"]["deployed"], 1, "{running}");
    assert_eq!(running["progress"]["total"], 3, "{running}");
    let path = running["actions"]["cancel"].as_str().unwrap();
    let cancellation = world.admin().send("POST", path, &[], None);
    assert_eq!(cancellation.status, 202, "{cancellation:?}");
    let ended = until(&world, &repair, has_ended);
    assert_eq!(ended["transitioning"], "no", "{ended}");
    let outcome = &ended["outcome"];
    let counts = ["deployed", "cancelled", "withdrawn"].map(|name| outcome[name].as_u64());
    assert_eq!(counts, [Some(1), Some(1), Some(1)], "{ended}");
    assert!(ended["actions"].get("cancel").is_none(), "{ended}");
    let cancellation = cancellation.headers["location"].to_str().unwrap().to_owned();
    let cancellation = until(&world, &cancellation, has_ended);
    assert_eq!(cancellation["kind"], "cancel_operation", "{cancellation}");
    // There is nothing left to cancel.
    refused(&world.admin().send("POST", path, &[], None), 409, "conflict");
}

fn an_operation_is_cancelled_before_it_begins(world: World) {
    world.upload(&[("a", 1)]);
    let repair = ask(&world, "/repair", &json!({}));
    let shown = world.admin().get(&repair).good();
    let path = shown["actions"]["cancel"].as_str().unwrap();
    // A viewer is neither offered nor permitted to cancel it.
    let token = json!({"name": "reads", "role": "viewer"});
    let made = world.admin().post("/api/v1/tokens", &token).good();
    let viewer = world.served.with_token(made["secret"].as_str().unwrap());
    assert_eq!(viewer.get(&repair).good()["actions"], json!({}));
    refused(&viewer.send("POST", path, &[], None), 403, "forbidden");
    world.admin().send("POST", path, &[], None).good();
    let unknown = format!("/operations/{}/cancel", uuid::Uuid::new_v4());
    refused(&world.post_empty(&unknown), 404, "not-found");
    let _engine = engine(&world);
    let ended = until(&world, &repair, has_ended);
    assert_eq!(ended["transitioning_message"], "cancelled before it began", "{ended}");
    let open = || world.admin().get("/api/v1/operations?open=true").good();
    until(&world, "/api/v1/operations?open=true", |found| found["items"] == json!([]));
    assert_eq!(open()["next"], Value::Null);
}

fn operations_name_their_callers_and_are_listed_everywhere(world: World) {
    world.upload(&[("a", 1)]);
    let repair = ask(&world, "/repair", &json!({"agents": ["agent"]}));
    let shown = world.admin().get(&repair).good();
    assert_eq!(shown["actor"], "user:admin", "{shown}");
    assert_eq!(shown["request"], json!({"agents": ["agent"]}), "the caller is no parameter");
    let new = json!({"project": world.project, "name": "other"});
    let other = world.admin().post("/api/v1/environments", &new).good();
    let other = other["id"].as_str().unwrap();
    world.admin().post(&format!("/api/v1/environments/{other}/clear"), &json!({})).good();
    let listed = |client: &crate::support::Client, path: &str| {
        let found = client.get(path).good();
        let of = |one: &Value| {
            let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
            (text("environment"), text("kind"))
        };
        let items: Vec<_> = found["items"].as_array().unwrap().iter().map(of).collect();
        (items, found["next"].as_str().map(str::to_owned))
    };
    let both =
        vec![(other.to_owned(), "clear".to_owned()), (world.id.clone(), "repair".to_owned())];
    assert_eq!(listed(world.admin(), "/api/v1/operations"), (both.clone(), None));
    let (first, next) = listed(world.admin(), "/api/v1/operations?limit=1&open=true");
    assert_eq!(first, both[..1]);
    let rest = format!("/api/v1/operations?limit=1&after={}", next.unwrap());
    assert_eq!(listed(world.admin(), &rest).0, both[1..]);
    // A token of one environment sees only that one.
    let token = json!({"name": "one", "role": "viewer", "environment": world.id});
    let made = world.admin().post("/api/v1/tokens", &token).good();
    let limited = world.served.with_token(made["secret"].as_str().unwrap());
    assert_eq!(listed(&limited, "/api/v1/operations").0, both[1..]);
    // The state of the installation counts them.
    let state = world.admin().get("/api/v1/server").good();
    let engines = state["engines"].as_array().unwrap();
    assert_eq!(engines.len(), 2, "{state}");
    assert!(engines.iter().all(|one| one["open_operations"] == 1), "{state}");
    refused(&limited.get("/api/v1/server"), 403, "forbidden");
}

fn an_operation_ends_with_its_resources(world: World) {
    let resources = json!([
        scripted("slow", "s", json!({"delay_ms": 600_000})),
        scripted("b", "good", json!({})),
        scripted("b", "bad", json!({"outcome": "fail"})),
        scripted("c", "c", json!({})),
    ]);
    world.post("/versions", &json!({"resources": resources, "release": true})).good();
    let engine = engine(&world);
    let bad = world.at("/resources/std::testing::ScriptedResource%5Bb%2Cname%3Dbad%5D");
    until(&world, &bad, |found| found["status"] == "failed");

    // Another agent is busy for a long time.
    let repair = ask(&world, "/repair", &json!({"agents": ["b"]}));
    let done = until(&world, &repair, has_ended);
    assert_eq!(done["transitioning"], "no", "{done}");
    let outcome = &done["outcome"];
    assert_eq!((&outcome["matched"], &outcome["deployed"]), (&json!(2), &json!(1)), "{done}");
    assert_eq!(outcome["failed"], 1, "{done}");
    assert_eq!(done["transitioning_message"], "1 deployed, 1 failed");
    let deploy = ask(&world, "/deploy", &json!({"filter": {"agent": "c"}}));
    let done = until(&world, &deploy, has_ended);
    assert_eq!(
        (&done["outcome"]["matched"], &done["outcome"]["as_wanted"]),
        (&json!(1), &json!(1))
    );

    // An unknown id is not a success.
    let unknown = "std::testing::ScriptedResource[b,name=unheard-of]";
    let done = until(&world, &ask(&world, "/deploy", &json!({"ids": [unknown]})), has_ended);
    assert_eq!(done["transitioning"], "error", "{done}");
    assert!(done["transitioning_message"].as_str().unwrap().contains("unheard-of"), "{done}");

    // Dependents belong to it: a request for all of an agent waits for the resources that receive
    // its events.
    let id = |name: &str| format!("std::testing::ScriptedResource[d,name={name}]");
    let with_sender = |note: u32| {
        let mut all = resources.as_array().unwrap().clone();
        all.push(json!({"id": id("sender"), "attributes": {"note": note, "send_event": true}}));
        all.push(json!({"id": id("receiver"), "attributes": {}, "requires": [id("sender")]}));
        world.post("/versions", &json!({"resources": all, "release": true})).good();
    };
    with_sender(1);
    let receiver = world.at("/resources/std::testing::ScriptedResource%5Bd%2Cname%3Dreceiver%5D");
    until(&world, &receiver, |found| found["status"] == "deployed");
    world.post_empty("/agents/d/pause").good();
    with_sender(2);
    let deploy = ask(&world, "/deploy", &json!({"agents": ["d"]}));
    until(&world, &deploy, |found| found["transitioning_message"] == "waits for paused agents: d");
    world.post_empty("/agents/d/unpause").good();
    let done = until(&world, &deploy, has_ended);
    let outcome = &done["outcome"];
    assert_eq!((&outcome["deployed"], &outcome["followed"]), (&json!(2), &json!(1)), "{done}");

    // A waiting operation names the agents, and ends when they are done.
    world.post_empty("/agents/c/pause").good();
    let repair = ask(&world, "/repair", &json!({"agents": ["b", "c"]}));
    let waits = "waits for paused agents: c";
    let waiting = until(&world, &repair, |found| found["transitioning_message"] == waits);
    assert_eq!(waiting["transitioning"], "yes");
    world.post_empty("/agents/c/unpause").good();
    let done = until(&world, &repair, has_ended);
    assert_eq!((&done["outcome"]["matched"], &done["outcome"]["deployed"]), (&json!(3), &json!(2)));
    drop(engine);
}

fn operations_in_a_halted_environment_are_refused(world: World) {
    for path in ["/deploy", "/repair"] {
        let refusal = world.post_empty(path);
        refused(&refusal, 409, "conflict");
        assert!(refusal.text.contains("no version is released"), "{refusal:?}");
    }
    let version = world.upload(&[("a", 1)]);
    let asked = ask(&world, "/deploy", &json!({}));
    let halted = world.post_empty("/halt").good();
    assert!(halted["actions"].get("deploy").is_none(), "{halted}");
    let refusal = world.post_empty("/deploy");
    refused(&refusal, 409, "conflict");
    assert!(refusal.text.contains("halted"), "{refusal:?}");
    // The earlier operation shows the agents that it waits for.
    let waiting = world.admin().get(&asked).good();
    assert_eq!(waiting["transitioning_message"], "waiting: the environment is halted");
    let shown = world.get(&format!("/versions/{version}")).good();
    assert_eq!(shown["transitioning_message"], "waiting: the environment is halted");
    assert!(shown["actions"].get("dry-runs").is_none(), "{shown}");
}

fn names(shown: &Value) -> Vec<&str> {
    shown["actions"].as_object().unwrap().keys().map(String::as_str).collect()
}

fn actions_are_limited_to_state_and_rights(world: World) {
    // Without a released version, deploy is not offered.
    assert_eq!(names(&world.get("").good()), ["clear", "halt"]);
    world.put("/settings/auto_deploy", &json!({"value": false})).good();
    let number = world.upload(&[("a", 1)]);
    assert_eq!(names(&world.get("").good()), ["clear", "halt"]);
    assert_eq!(names(&world.get(&super::path_of("a")).good()), ["refresh-facts"]);
    world.post_empty(&format!("/versions/{number}/release")).good();
    assert_eq!(names(&world.get("").good()), ["clear", "deploy", "halt", "repair"]);
    let of_resource = ["deploy", "refresh-facts", "repair"];
    assert_eq!(names(&world.get(&super::path_of("a")).good()), of_resource);
    world.upload(&[("a", 2)]);
    let compile = world.post_empty("/compiles").good();
    let compile = format!("/compiles/{}", compile["id"].as_str().unwrap());
    let token = |grants: Value| {
        let mut new = json!({"name": grants.to_string()});
        new.as_object_mut().unwrap().extend(grants.as_object().unwrap().clone());
        let made = world.admin().post("/api/v1/tokens", &new).good();
        world.served.with_token(made["secret"].as_str().unwrap())
    };
    let paths = ["", "/versions/2", "/agents/agent", &*super::path_of("a"), &*compile];
    let seen = |grants: Value| {
        let client = token(grants);
        let all = paths.map(|path| client.get(&world.at(path)).good());
        let lists =
            ["/versions", "/agents", "/compiles"].map(|path| client.get(&world.at(path)).good());
        for (list, one) in lists.iter().zip([&all[1], &all[2], &all[4]]) {
            assert_eq!(list["items"][0]["actions"], one["actions"], "as in the list");
        }
        let list = client.get("/api/v1/environments").good();
        assert_eq!(list["items"][0]["actions"], all[0]["actions"]);
        all.map(|one| names(&one).join(" "))
    };
    assert_eq!(seen(json!({"role": "viewer"})), ["", "", "", "", ""]);
    let operator = [
        "deploy halt repair",
        "dry-runs release roll-back",
        "pause",
        "deploy refresh-facts repair",
        "",
    ];
    assert_eq!(seen(json!({"role": "operator"})), operator);
    let developer = [
        "deploy halt repair",
        "dry-runs release roll-back",
        "pause",
        "deploy refresh-facts repair",
        "cancel",
    ];
    assert_eq!(seen(json!({"role": "developer"})), developer);
    let reading = seen(json!({"role": "admin", "verbs": ["GET"]}));
    assert_eq!(reading, ["", "", "", "", ""], "a token that only reads");
}

fn an_operation_returns_its_request_parameters(world: World) {
    world.upload(&[("a", 1)]);
    let sent = json!({"filter": {"type": "t::R", "status": ["failed"]}, "agents": ["agent"]});
    let asked = ask(&world, "/deploy", &sent);
    let told = world.admin().get(&asked).good()["request"].clone();
    assert_eq!(told, sent);
    let again = ask(&world, "/deploy", &told);
    assert_eq!(world.admin().get(&again).good()["request"], sent);
    // A content type without a body is a plain deploy.
    let headers = [("content-type", "application/json")];
    for path in ["/deploy", "/repair"] {
        let answer = world.admin().send_bytes("POST", &world.at(path), &headers, Vec::new());
        assert_eq!(answer.status, 202, "{answer:?}");
    }
}

fn code_set() -> Value {
    json!({"modules": [], "handlers": ["t::R"], "program": "/nowhere", "path": [], "requirements": []})
}

/// Stores a file and returns its hash.
fn file(world: &World, content: &[u8]) -> String {
    let name = orrery_host::bundle::sha1_hex(content);
    let path = format!("/api/v1/files/{name}");
    let stored = world.admin().send_bytes("PUT", &path, &[], content.to_vec());
    assert!((200..300).contains(&stored.status), "{stored:?}");
    name
}

fn invalid_code_is_reported(world: World) {
    let version = |code: &str| json!({"resources": [super::resource("a", 1)], "code": code});
    let garbage = file(&world, b"garbage");
    refused(&world.post("/versions", &version(&garbage)), 400, "code-invalid");
    assert_eq!(world.get("/versions").good()["items"], json!([]));

    // Looks like code, but is invalid.
    let (hash, module) = ("00".repeat(32), file(&world, b"no module"));
    let outside = json!({"hash": hash, "set": code_set(), "files": {"../outside/a.py": module}});
    let code = file(&world, outside.to_string().as_bytes());
    let mut unreleased = version(&code);
    unreleased["release"] = json!(false);
    let number = world.post("/versions", &unreleased).good()["number"].clone();
    let engine = engine(&world);

    // A dry run of it ends with the reason.
    let run = world.post_empty(&format!("/versions/{number}/dry-runs")).good();
    let id = run["request"]["dry_run"].as_str().unwrap();
    let path = world.at(&format!("/versions/{number}/dry-runs/{id}"));
    let done = until(&world, &path, |found| found["transitioning"] == "no");
    assert_eq!((&done["todo"], &done["by_status"]), (&json!(0), &json!({"failed": 1})), "{done}");

    // After a release, the reason is shown as well.
    world.post_empty(&format!("/versions/{number}/release")).good();
    let stuck = until(&world, &world.at(""), |found| found["transitioning"] == "error");
    let reason = stuck["transitioning_message"].as_str().unwrap();
    assert!(
        reason.starts_with(&format!("cannot start the handlers of version {number}")),
        "{reason}"
    );
    let path = world.at(&format!("/versions/{number}"));
    until(&world, &path, |found| found["transitioning"] == "error");
    let notes = world.get("/notifications").good();
    assert_eq!(notes["items"][0]["severity"], "error", "{notes}");

    // The next version is processed.
    world.upload(&[("a", 1)]);
    until(&world, &world.at(""), |found| found["transitioning"] == "no");
    drop(engine);
}

fn deploys_are_requested_and_followed(world: World) {
    world.upload(&[("a", 1)]);
    let asked = world.post_empty("/deploy");
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

    let (records, now) = (world.store(), world.served.app.now());
    let open = records.requests().open(world.key()).unwrap();
    assert_eq!(open.len(), 2);
    records.requests().accept(open[0].key, now).unwrap();
    assert_eq!(world.admin().get(&path).good()["transitioning_message"], "under way");
    records
        .requests()
        .finish(&open[0], &orrery_store::RequestResult::Other(json!({"resources": 1})), now)
        .unwrap();
    let done = world.admin().get(&path).good();
    assert_eq!((&done["transitioning"], &done["outcome"]["resources"]), (&json!("no"), &json!(1)));
    records
        .requests()
        .finish(
            &open[1],
            &orrery_store::RequestResult::Failed { error: "no engine".to_owned() },
            now,
        )
        .unwrap();
    let list = world.get("/operations?limit=1").good();
    assert_eq!(list["items"][0]["transitioning"], "error");
    assert_eq!(list["items"][0]["transitioning_message"], "no engine");
    let next = list["next"].as_str().unwrap();
    let list = world.get(&format!("/operations?limit=1&after={next}")).good();
    assert_eq!((&list["items"][0]["kind"], &list["next"]), (&json!("deploy"), &Value::Null));
    refused(&world.get(&format!("/operations/{}", uuid::Uuid::new_v4())), 404, "not-found");
}

fn a_deploy_filter_matches_the_list_filter(world: World) {
    world.upload(&[("a", 1)]);
    let filter = json!({"filter": {"agent": "agent", "type": "t::R", "value": "a", "status": ["failed", "!skipped"], "set": "s"}});
    let asked = world.post("/deploy", &filter).good();
    assert_eq!(
        asked["request"]["filter"],
        json!({"agent": "agent", "type": "t::R", "value": "a", "status": ["failed"], "set": "s"})
    );
}

fn dry_runs_are_counted_once(world: World) {
    let version = world.upload(&[("a", 1), ("b", 1), ("c", 1)]);
    let path = format!("/versions/{version}/dry-runs");
    refused(&world.post_empty("/versions/9/dry-runs"), 404, "not-found");
    let asked = world.post_empty(&path);
    assert_eq!(asked.status, 202);
    let asked = asked.good();
    let id = asked["request"]["dry_run"].as_str().unwrap().to_owned();
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
    let request: uuid::Uuid = asked["id"].as_str().unwrap().parse().unwrap();
    let request = world.store().requests().get(request.into()).unwrap();
    let claim = world.store().requests().claim(&request, now).unwrap().unwrap();
    // Repeated concurrently: each result counts once.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let store = world.store();
                store.dry_runs().add_results(&claim, uuid.into(), &results, now).unwrap()
            });
        }
    });
    assert_eq!(world.get(&run).good()["todo"], 1);
    let last = [result(
        "c",
        "failed",
        json!([{"name": "handler", "current": "FAILED", "desired": "boom"}]),
    )];
    let store = world.store();
    store.dry_runs().add_results(&claim, uuid.into(), &last, now).unwrap();
    store
        .dry_runs()
        .finish(&claim, uuid.into(), &orrery_store::RequestResult::Done(None), now)
        .unwrap();
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
    let again = list["items"][0]["actions"]["repeat"].as_str().unwrap();
    let newer = world.admin().send("POST", again, &[], None).good()["request"]["dry_run"].clone();
    let first = world.get(&format!("{path}?limit=1")).good();
    assert_eq!(first["items"][0]["id"], newer);
    let after = first["next"].as_str().unwrap();
    let second = world.get(&format!("{path}?limit=1&after={after}")).good();
    assert_eq!((&second["items"][0]["id"], &second["next"]), (&json!(id), &Value::Null));
    let other = world.upload(&[("a", 2)]);
    refused(&world.get(&format!("/versions/{other}/dry-runs/{id}")), 404, "not-found");
}
