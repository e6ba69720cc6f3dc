//! Behaviour common to all requests.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{World, on_both, refused, resource};

on_both!(
    repeated_requests_are_executed_once,
    secrets_are_created_and_returned_once,
    if_match_is_checked_or_refused,
    one_key_is_for_one_request_of_one_caller,
    odd_texts_are_refused_cleanly,
    unknown_values_name_their_field_and_the_known_ones,
);

fn if_match_is_checked_or_refused(world: World) {
    let send = |method: &str, path: &str, etag: &str, body: Option<&Value>| {
        world.admin().send(method, path, &[("if-match", etag)], body)
    };
    let tag = |answer: &crate::support::Answer| {
        answer.headers.get("etag").unwrap().to_str().unwrap().to_owned()
    };
    let cases = [
        (world.at("/settings/auto_deploy"), json!({"value": false})),
        (world.at("/parameters/p"), json!({"value": "1"})),
    ];
    for (path, body) in &cases {
        refused(&send("PUT", path, "\"999\"", Some(body)), 412, "outdated");
        let made = send("PUT", path, "\"0\"", Some(body));
        made.clone().good();
        refused(&send("PUT", path, "\"0\"", Some(body)), 412, "outdated");
        refused(&send("DELETE", path, "\"999\"", None), 412, "outdated");
        let current = tag(&made);
        assert_eq!(tag(&world.admin().get(path)), current, "{path}");
        send("PUT", path, &current, Some(body)).good();
        let current = tag(&send("PUT", path, "*", Some(body)));
        send("DELETE", path, &current, None).good();
    }
    let other = world.admin().post("/api/v1/projects", &json!({"name": "other"})).good();
    let path = format!("/api/v1/projects/{}", other["id"].as_str().unwrap());
    refused(&send("DELETE", &path, "\"999\"", None), 412, "outdated");
    let current = tag(&world.admin().get(&path));
    assert_eq!(send("DELETE", &path, &current, None).status, 204);
    let user = json!({"name": "bob", "password": "correct horse battery staple 2"});
    let user = world.admin().post("/api/v1/users", &user).good();
    let path = format!("/api/v1/users/{}", user["id"].as_str().unwrap());
    let before = tag(&world.admin().get(&path));
    let current = tag(&send("PATCH", &path, &before, Some(&json!({"admin": true}))));
    refused(&send("DELETE", &path, &before, None), 412, "outdated");
    assert_eq!(world.admin().get(&path).status, 200);
    assert_eq!(send("DELETE", &path, &current, None).status, 204);
    // Objects without a revision refuse `If-Match`.
    world.upload(&[("a", 1)]);
    refused(&send("POST", &world.at("/halt"), "\"1\"", None), 412, "outdated");
    refused(&send("DELETE", &world.at("/versions/1"), "\"1\"", None), 412, "outdated");
    let document = world.admin().get("/api/v1/openapi.json").good();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let has_header = operation["parameters"].to_string().contains("If-Match");
            let has_status = operation["responses"].get("412").is_some();
            assert_eq!(has_header, has_status, "{method} {path}");
        }
    }
}

fn unknown_values_name_their_field_and_the_known_ones(world: World) {
    let documents = json!({"documents": [{"kind": "moon", "content": {}}]});
    let cases = [
        (
            "POST",
            "/api/v1/tokens".to_owned(),
            json!({"name": "a", "role": "boss"}),
            "role",
            "viewer",
        ),
        (
            "POST",
            "/api/v1/tokens".to_owned(),
            json!({"name": "a", "role": "viewer", "verbs": ["GET", "get"]}),
            "verbs[1]",
            "PATCH",
        ),
        (
            "POST",
            world.at("/deploy"),
            json!({"filter": {"status": ["!failed", "broken"]}}),
            "filter.status[1]",
            "skipped",
        ),
        (
            "PUT",
            world.at("/parameters/p"),
            json!({"value": "1", "source": "x"}),
            "source",
            "plugin",
        ),
        (
            "POST",
            "/api/v1/cluster-documents/apply".to_owned(),
            documents,
            "documents[0].kind",
            "template",
        ),
    ];
    for (method, path, body, field, known) in cases {
        let answer = world.admin().send(method, &path, &[], Some(&body));
        refused(&answer, 422, "invalid");
        let problem = &answer.body["fields"][0];
        assert_eq!(problem["name"], field, "{}", answer.text);
        assert!(problem["reason"].as_str().unwrap().contains(known), "{}", answer.text);
    }
}

fn secrets_are_created_and_returned_once(world: World) {
    let key = [("idempotency-key", "k")];
    let make = |body: &Value| world.admin().send("POST", "/api/v1/tokens", &key, Some(body));
    let token = json!({"name": "ci", "role": "viewer"});
    let secret = make(&token).good()["secret"].as_str().unwrap().to_owned();
    let again = make(&token);
    refused(&again, 409, "already-carried-out");
    assert!(!again.text.contains(&secret));
    refused(&make(&json!({"name": "other", "role": "viewer"})), 422, "key-reused");
    let listed = world.admin().get("/api/v1/tokens").good();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
    // The document describes it, also for routes without keys.
    let document = world.admin().get("/api/v1/openapi.json").good();
    let has_key = |path: &str| {
        let parameters = &document["paths"][path]["post"]["parameters"];
        parameters.to_string().contains("Idempotency-Key")
    };
    assert!(has_key("/api/v1/tokens") && !has_key("/api/v1/login"));
}

fn repeated_requests_are_executed_once(world: World) {
    let path = world.at("/versions");
    let body = json!({"resources": [resource("a", 1)]});
    let key = [("idempotency-key", "k-1")];
    let first = world.admin().send("POST", &path, &key, Some(&body));
    let again = world.admin().send("POST", &path, &key, Some(&body));
    assert_eq!((first.status, again.status), (201, 201));
    assert_eq!(first.text, again.text);
    assert_eq!(first.headers["location"], again.headers["location"]);
    assert_eq!(again.headers["idempotent-replayed"], "true");
    assert_eq!(world.get("/versions").good()["items"].as_array().unwrap().len(), 1);
    // Refusals are replayed too.
    let bad = json!({"resources": [resource("a", 1), resource("a", 1)]});
    let key = [("idempotency-key", "k-2")];
    let first = world.admin().send("POST", &path, &key, Some(&bad));
    refused(&first, 400, "duplicate-resource");
    refused(&world.admin().send("POST", &path, &key, Some(&bad)), 400, "duplicate-resource");
    // Concurrent requests: one is executed, the others get a conflict or its response.
    let key = [("idempotency-key", "k-3")];
    let body = json!({"resources": [resource("a", 2)]});
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let send = || world.admin().send("POST", &path, &key, Some(&body)).status;
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(send)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(statuses.iter().all(|status| [201, 409].contains(status)), "{statuses:?}");
    assert_eq!(world.get("/versions").good()["items"].as_array().unwrap().len(), 2);
}

/// The process ends after the effect, before the response is stored.
#[test]
fn a_request_with_an_effect_is_never_repeated() {
    let world = World::postgres();
    let mut database = world.database.as_ref().unwrap().connect();
    let mut run = |sql: &str| database.batch_execute(sql).unwrap();
    run("CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'as if killed'; END $$; \
         CREATE TRIGGER kill BEFORE UPDATE ON idempotency FOR EACH ROW \
         WHEN (NEW.status IS NOT NULL) EXECUTE FUNCTION fail()");
    let body = json!({"resources": [resource("a", 1)]});
    let send = |path: &str, body: &Value| {
        world.admin().send("POST", &world.at(path), &[("idempotency-key", path)], Some(body))
    };
    let count = || world.get("/versions").good()["items"].as_array().unwrap().len();
    // One by a method of the store, one by records; and a refused one without effect.
    let bad = "/versions/9/release";
    let requests = [("/versions", body), ("/deploy", json!({}))];
    for (path, body) in &requests {
        assert!(send(path, body).status < 300);
    }
    refused(&send(bad, &json!({})), 404, "not-found");
    run("DROP TRIGGER kill ON idempotency");
    for (path, body) in &requests {
        refused(&send(path, body), 409, "request-under-way");
    }
    run("UPDATE idempotency SET at = at - 180000000");
    let asked = || world.store().requests().open(world.key()).unwrap().len();
    for (path, body) in &requests {
        for _ in 0..2 {
            let answer = send(path, body);
            refused(&answer, 409, "already-carried-out");
            assert!(answer.text.contains("not repeated"), "{answer:?}");
        }
    }
    assert_eq!((count(), asked()), (1, 1));
    refused(&send(bad, &json!({})), 404, "not-found");
}

fn one_key_is_for_one_request_of_one_caller(world: World) {
    let path = world.at("/versions");
    let key = [("idempotency-key", "k")];
    let send = |value: i64| {
        let body = json!({"resources": [resource("a", value)]});
        world.admin().send("POST", &path, &key, Some(&body))
    };
    assert_eq!(send(1).status, 201);
    refused(&send(2), 422, "key-reused");
    let other = world.at("/versions/reserve");
    refused(&world.admin().send("POST", &other, &key, None), 422, "key-reused");
    let token =
        world.admin().post("/api/v1/tokens", &json!({"name": "other", "role": "developer"})).good();
    let another = world.served.with_token(token["secret"].as_str().unwrap());
    assert_eq!(another.send("POST", &other, &key, None).status, 201, "its own key");
    let long = "x".repeat(256);
    let answer = world.admin().send("POST", &other, &[("idempotency-key", &long)], None);
    refused(&answer, 400, "bad-request");
}

fn odd_texts_are_refused_cleanly(world: World) {
    let admin = world.admin();
    for text in [
        "\u{0}",
        "a\u{0}",
        "\u{fffe}",
        "\u{1f600}\u{200d}",
        "\u{202e}abc",
        "'; DROP TABLE project; --",
    ] {
        let made = admin.post("/api/v1/projects", &json!({"name": text}));
        let expected = if text.contains('\u{0}') { 422 } else { 201 };
        assert_eq!(made.status, expected, "{text:?}: {made:?}");
    }
    let send = |body: &str| {
        let headers = [("content-type", "application/json")];
        admin.send_bytes("POST", "/api/v1/projects", &headers, body.as_bytes().to_vec())
    };
    refused(&send(r#"{"name": "\ud800"}"#), 400, "bad-request");
    refused(&send(r#"{"name": 1e999}"#), 400, "bad-request");
    refused(&send("{"), 400, "bad-request");
    refused(&send(&format!("{}{}", "[".repeat(10_000), "]".repeat(10_000))), 422, "invalid");
    let plain = admin.send_bytes(
        "POST",
        "/api/v1/projects",
        &[("content-type", "text/plain")],
        b"{}".to_vec(),
    );
    refused(&plain, 415, "unsupported-media-type");
    refused(&world.get("/parameters/a%00b"), 400, "bad-request");
    assert_eq!(world.get("/parameters/%ff%fe").status, 400);
    assert_eq!(world.get("/versions/99999999999").status, 400);
    refused(&world.get("/versions/4294967295"), 404, "not-found");
    refused(&world.get("/versions/4294967295/compare/4294967295"), 404, "not-found");
    refused(&world.post_empty("/versions/4294967295/release"), 404, "not-found");
    refused(&world.post_empty("/versions/4294967295/dry-runs"), 404, "not-found");
    refused(&world.post_empty("/versions/4294967295/roll-back"), 404, "not-found");
    refused(&world.delete("/versions/4294967295"), 404, "not-found");
    let odd = json!({"resources": [{"id": "t::R[a,b=c]", "attributes": {"x": 1e308, "y": u64::MAX, "\u{1f600}": null}}]});
    assert_eq!(world.post("/versions", &odd).status, 201);
    let found = world.get("/resources/t::R%5Ba,b%3Dc%5D").good();
    assert_eq!(found["attributes"]["y"], json!(u64::MAX));
}

#[test]
fn responses_have_ids_and_are_compressed_on_request() {
    let world = World::sqlite();
    let path = world.at("/settings");
    let answer = world.admin().send("GET", &path, &[("x-request-id", "mine-1")], None);
    assert_eq!(answer.headers["x-request-id"], "mine-1");
    let answer = world.admin().get("/api/v1/nothing");
    refused(&answer, 404, "not-found");
    assert!(!answer.headers["x-request-id"].is_empty());
    refused(&world.admin().send("PATCH", &path, &[], Some(&json!({}))), 405, "method-not-allowed");
    let packed = world.admin().open(&path, &[("accept-encoding", "gzip")]);
    assert_eq!(packed.headers()["content-encoding"], "gzip");
    for path in ["/api/v1/docs", "/setup"] {
        let page = world.admin().get(path);
        assert!(page.text.starts_with("<!doctype html>"), "{path}");
        let elsewhere = page.text.contains("http://") || page.text.contains("https://");
        assert!(!elsewhere, "all of {path} is here");
        let rules = page.headers["content-security-policy"].to_str().unwrap();
        assert!(rules.contains("default-src 'none'") && rules.contains("frame-ancestors 'none'"));
        assert!(rules.contains("script-src 'sha256-") && rules.contains("style-src 'sha256-"));
        assert_eq!(page.headers["referrer-policy"], "no-referrer");
    }
}

/// Every operation documents its parameters and responses.
#[test]
fn the_openapi_document_is_complete() {
    let document = orrery_server::document();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let responses = operation["responses"].as_object().unwrap();
            assert!(!responses.contains_key("default"), "{method} {path}");
            assert!(responses.keys().any(|status| status.starts_with('2')), "{method} {path}");
            for (status, response) in responses {
                assert!(response["description"].is_string(), "{method} {path} {status}");
            }
            let named: BTreeSet<&str> = path
                .split('/')
                .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
                .collect();
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let given: BTreeSet<&str> = parameters
                .iter()
                .filter(|parameter| parameter["in"] == "path")
                .map(|parameter| parameter["name"].as_str().unwrap())
                .collect();
            assert_eq!(named, given, "{method} {path}");
        }
    }
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let text = document.to_string();
    for part in text.split("#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name} is nowhere");
    }
}

/// Generated clients name their functions after operation ids.
#[test]
fn operation_ids_are_unique() {
    let document = orrery_server::document();
    let mut seen = std::collections::BTreeMap::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap().to_owned();
            let is_name = id.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            assert!(is_name, "{id} of {method} {path} is no name");
            let other = seen.insert(id.clone(), format!("{method} {path}"));
            assert_eq!(other, None, "{id} is {method} {path} as well");
        }
    }
}

/// Times and values of closed sets are described as such.
#[test]
fn times_and_closed_sets_are_described() {
    let document = orrery_server::document();
    let schemas = &document["components"]["schemas"];
    let operation = &schemas["Operation"]["properties"];
    assert_eq!(
        (&operation["created"]["type"], &operation["created"]["format"]),
        (&json!("string"), &json!("date-time"))
    );
    assert_eq!(
        (&operation["taken"]["type"], &operation["taken"]["format"]),
        (&json!(["string", "null"]), &json!("date-time"))
    );
    assert_eq!(schemas["RoleName"]["enum"], json!(["viewer", "operator", "developer", "admin"]));
    assert!(schemas.get("Time").is_none());
}

/// The document in the repository matches the code. `ORRERY_UPDATE=1` writes it.
#[test]
fn the_committed_openapi_document_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/openapi.json");
    let mut now = serde_json::to_string_pretty(&orrery_server::document()).unwrap();
    now.push('\n');
    if std::env::var_os("ORRERY_UPDATE").is_some() {
        std::fs::write(path, &now).unwrap();
    }
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(kept, orrery_server::document(), "run this test with ORRERY_UPDATE=1");
}

#[test]
fn operations_have_names_of_their_own() {
    let document = orrery_server::document();
    let paths = document["paths"].as_object().unwrap().values();
    let operations = paths.flat_map(|path| path.as_object().unwrap().values());
    let mut names: Vec<&str> =
        operations.filter_map(|operation| operation["operationId"].as_str()).collect();
    names.sort_unstable();
    let repeated: Vec<&[&str]> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert_eq!(repeated, Vec::<&[&str]>::new(), "clients are generated from these names");
}
