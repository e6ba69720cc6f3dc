//! Compiles: requests and results.

use orrery_model::{Timestamp, VersionNumber};
use orrery_store::{ClaimedCompile, CompileFailure};
use serde_json::{Value, json};

use super::{World, on_both, refused};

on_both!(
    a_compile_is_requested_and_queued,
    invalid_compile_requests_are_refused,
    a_compile_shows_its_progress_and_result,
    a_compile_can_be_cancelled,
    compiles_come_in_pages,
    environments_without_compiles_refuse_requests,
    without_a_repository_nothing_is_compiled,
    repositories_are_checked_and_shown_without_passwords,
);

fn claim(world: &World) -> ClaimedCompile {
    let now = world.served.app.now();
    let until = Timestamp(now.0 + 60_000_000);
    world.store().compiles().claim(world.key(), now, until).unwrap().unwrap()
}

fn a_compile_is_requested_and_queued(world: World) {
    let answer = world.post("/compiles", &json!({"update": true, "message": "because"}));
    assert_eq!(answer.status, 202, "{answer:?}");
    let location = answer.headers["location"].to_str().unwrap().to_owned();
    let asked = answer.good();
    assert!(location.ends_with(asked["id"].as_str().unwrap()), "{location}");
    assert_eq!((&asked["state"], &asked["transitioning"]), (&json!("queued"), &json!("yes")));
    assert_eq!(asked["metadata"], json!({"type": "api", "message": "because"}));
    assert_eq!((&asked["export"], &asked["update"]), (&json!(true), &json!(true)));
    assert_eq!(world.admin().get(&location).good()["id"], asked["id"]);
    // Without a body, and repeated.
    let second = world.post_empty("/compiles").good();
    let id = second["id"].clone();
    world.post("/compiles", &json!({ "id": id })).good();
    let queue = world.get("/compiles/queue").good();
    let ids: Vec<&Value> =
        queue["items"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!(ids, [&asked["id"], &id]);
    world.post_empty("/halt").good();
    let shown = world.admin().get(&location).good();
    let message = shown["transitioning_message"].as_str().unwrap();
    assert!(message.contains("resumes"), "{message}");
}

fn invalid_compile_requests_are_refused(world: World) {
    for body in [
        json!({"environment_variables": {"a b": "c"}}),
        json!({"environment_variables": {"": "c"}}),
        json!({"environment_variables": {"A": "1"}, "mergeable_environment_variables": {"A": "2"}}),
        json!({"removed_sets": ["x"]}),
        json!({"unheard_of": 1}),
    ] {
        refused(&world.post("/compiles", &body), 422, "invalid");
    }
    refused(&world.get("/compiles/00000000-0000-0000-0000-000000000000"), 404, "not-found");
    refused(&world.get("/compiles?limit=0"), 400, "bad-request");
    refused(&world.get("/compiles?after=x"), 400, "bad-request");
    assert!(world.get("/compiles/queue").good()["items"].as_array().unwrap().is_empty());
}

fn a_compile_shows_its_progress_and_result(world: World) {
    let asked =
        world.post("/compiles", &json!({"mergeable_environment_variables": {"A": "1"}})).good();
    let merged =
        world.post("/compiles", &json!({"mergeable_environment_variables": {"A": "2"}})).good();
    let at = |id: &Value| format!("/compiles/{}", id.as_str().unwrap());
    let claimed = claim(&world);
    let (records, now) = (world.store(), world.served.app.now());
    records.compiles().begin_stage(&claimed.run, 0, "Init", "mkdir", now).unwrap();
    records.compiles().add_output(&claimed.run, 0, &[(false, "one".to_owned())], now).unwrap();
    let shown = world.get(&at(&asked["id"])).good();
    assert_eq!((&shown["state"], &shown["stages"][0]["name"]), (&json!("running"), &json!("Init")));
    assert_eq!(shown["output"][0]["text"], "one");
    let next = shown["next"].as_i64().unwrap();
    records.compiles().add_output(&claimed.run, 0, &[(true, "two".to_owned())], now).unwrap();
    records.compiles().end_stage(&claimed.run, 0, 1, now).unwrap();
    // A merged request shows the same.
    let shown = world.get(&format!("{}?after={next}", at(&merged["id"]))).good();
    assert_eq!(shown["substitute"], asked["id"]);
    assert_eq!(shown["output"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&shown["output"][0]["text"], &shown["output"][0]["stream"]),
        (&json!("two"), &json!("err"))
    );
    assert_eq!(shown["stages"][0]["returncode"], 1);
    assert_eq!(shown["used_environment_variables"], json!({"A": "***"}), "values are not told");
    let error = json!({"category": "runtime_error", "type": "X", "message": "wrong", "source": "x = 2",
        "location": {"uri": "main.cf", "range": {"start": {"line": 1, "character": 0}, "end": {"line": 1, "character": 2}}}});
    let failure = CompileFailure { data: json!({"errors": [error]}), notice: None };
    records.compiles().complete(&claimed.run, &Err(failure), now).unwrap();
    let shown = world.get(&at(&asked["id"])).good();
    assert_eq!((&shown["state"], &shown["transitioning"]), (&json!("failed"), &json!("error")));
    assert_eq!(shown["errors"][0]["location"]["range"]["start"]["line"], 1);
    assert_eq!((&shown["transitioning_message"], &shown["actions"]), (&json!("wrong"), &json!({})));
}

fn a_compile_can_be_cancelled(world: World) {
    let asked = world.post_empty("/compiles").good();
    let path = asked["actions"]["cancel"].as_str().unwrap();
    let cancelled = world.admin().send("POST", path, &[], None).good();
    assert_eq!(cancelled["state"], "cancelled");
    refused(&world.admin().send("POST", path, &[], None), 409, "conflict");
    assert!(cancelled["transitioning_message"].as_str().unwrap().contains("admin"), "{cancelled}");
    assert!(world.get("/compiles/queue").good()["items"].as_array().unwrap().is_empty());
    // An ended compile is not changed.
    let other = world.post_empty("/compiles").good();
    let claimed = claim(&world);
    let now = world.served.app.now();
    let outcome = Ok((Some(VersionNumber(3)), None));
    world.store().compiles().complete(&claimed.run, &outcome, now).unwrap();
    let path = format!("/compiles/{}/cancel", other["id"].as_str().unwrap());
    refused(&world.post_empty(&path), 409, "conflict");
    let shown = world.get(path.trim_end_matches("/cancel")).good();
    assert_eq!((&shown["state"], &shown["version"]), (&json!("succeeded"), &json!(3)));
}

fn compiles_come_in_pages(world: World) {
    for number in 0..5 {
        world
            .post("/compiles", &json!({"environment_variables": {format!("N{number}"): "secret"}}))
            .good();
    }
    let mut seen = Vec::new();
    let mut path = "/compiles?limit=2".to_owned();
    loop {
        let page = world.get(&path).good();
        for one in page["items"].as_array().unwrap() {
            let names = one["environment_variables"].as_object().unwrap();
            assert!(names.values().all(|value| value == "***"), "{names:?}");
            seen.push(names.keys().next().unwrap()[1..].to_owned());
        }
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/compiles?limit=2&after={next}");
    }
    assert_eq!(seen, ["4", "3", "2", "1", "0"]);
    claim(&world);
    let count = |query: &str| {
        world.get(&format!("/compiles?{query}")).good()["items"].as_array().unwrap().len()
    };
    assert_eq!((count("started=true"), count("started=false"), count("completed=true")), (1, 4, 0));
}

fn environments_without_compiles_refuse_requests(world: World) {
    world.put("/settings/server_compile", &json!({"value": false})).good();
    refused(&world.post_empty("/compiles"), 409, "conflict");
    let set = world.put("/parameters/x", &json!({"value": "1", "recompile": true})).good();
    assert_eq!(set["compile"], Value::Null);
    world.put("/settings/server_compile", &json!({"value": true})).good();
    world.post_empty("/compiles").good();
}

fn without_a_repository_nothing_is_compiled(world: World) {
    let none = json!({"repository": ""});
    world.admin().send("PATCH", &world.at(""), &[], Some(&none)).good();
    refused(&world.post_empty("/compiles"), 409, "no-repository");
    assert_eq!(world.get("/compiles").good()["items"], json!([]));
}

fn repositories_are_checked_and_shown_without_passwords(world: World) {
    let set = |body: &Value| world.admin().send("PATCH", &world.at(""), &[], Some(body));
    for url in ["ext::sh -c id", "/srv/model.git", "file:///srv/x", "-x", "ftp://h/x"] {
        refused(&set(&json!({ "repository": url })), 422, "invalid");
    }
    refused(&set(&json!({"branch": "--upload-pack=id"})), 422, "invalid");
    let secret = "https://ada:s3cret@git.example.org/model.git";
    let shown = set(&json!({ "repository": secret })).good();
    assert_eq!(shown["repository"], "https://ada:***@git.example.org/model.git");
    // Sending back the redacted URL changes nothing.
    set(&json!({"repository": shown["repository"], "branch": "main"})).good();
    let id: uuid::Uuid = world.id.parse().unwrap();
    let kept = world.store().environments().get(id.into()).unwrap();
    let hidden = "https://ada:***@git.example.org/model.git";
    assert_eq!((&*kept.repository, &*kept.branch), (hidden, "main"));
    world.store().secrets().get(Some(kept.key), "orrery/repository").unwrap();
    assert!(!world.get("").text.contains("s3cret"));
}
