//! Cluster documents: revisions, validation, scopes, rights; and previews.

use serde_json::{Value, json};

use super::{World, on_both, refused};
use crate::support::{Answer, Client};

on_both!(
    documents_have_revisions_and_a_history,
    documents_are_applied_together_or_not_at_all,
    a_dry_run_returns_the_change_and_stores_nothing,
    a_change_based_on_an_older_revision_is_refused,
    problems_name_document_and_location,
    a_referenced_document_is_not_deleted,
    documents_of_a_project_are_for_it_alone,
    users_read_the_catalog_and_change_nothing,
    document_changes_reach_events_and_the_audit_log,
    clusters_are_previewed,
    contradicting_concurrent_changes_are_not_both_stored,
    a_repeated_request_is_carried_out_once,
);

const BASE: &str = "/api/v1/cluster-documents";

fn document(kind: &str, content: &Value) -> Value {
    json!({"kind": kind, "content": content})
}

/// One provider, two hardware types, an image, two services, and a template of them.
fn small_catalog() -> Value {
    let machine = |name: &str, field: &str, value: &str, cost: u32| json!({"name": name, "providermap": {"local": {field: value, "cost": cost}}});
    let service = |name: &str, requires: &[&str]| {
        json!({"name": name, "dependencies": {"runtime": {"requires": requires}},
               "provisioner": {"actions": {"start": {"type": "shell", "fields": {"script": "x"}}}}})
    };
    json!([
        document(
            "provider",
            &json!({"name": "local", "providertype": "proc", "provisioner": {"key": "k1"}})
        ),
        document("hardware", &machine("small", "flavor", "s1", 1)),
        document("hardware", &machine("large", "flavor", "s4", 4)),
        document("image", &machine("debian12", "image", "debian-12", 0)),
        document("service", &service("db", &[])),
        document("service", &service("app", &["db"])),
        document(
            "template",
            &json!({
                "name": "web",
                "defaults": {"services": ["app", "db"], "provider": "local", "imagetype": "debian12"},
                "constraints": {
                    "size": {"min": 2, "max": 20},
                    "layout": {"cantcoexist": [["app", "db"]]},
                    "services": {"db": {"hardwaretypes": ["large"], "quantities": {"min": 1, "max": 1}},
                                 "app": {"hardwaretypes": ["small"]}},
                },
            })
        ),
    ])
}

fn apply_at(client: &Client, base: &str, documents: &Value, dry_run: bool) -> Answer {
    let body = json!({"documents": documents, "dry_run": dry_run});
    client.post(&format!("{base}/apply"), &body)
}

fn imported(world: &World) {
    let applied = apply_at(world.admin(), BASE, &small_catalog(), false).good();
    assert_eq!(applied["documents"].as_array().unwrap().len(), 7, "{applied}");
}

fn names(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().unwrap().iter();
    let text = |one: &Value, field: &str| one[field].as_str().unwrap().to_owned();
    items.map(|one| format!("{}/{}", text(one, "kind"), text(one, "name"))).collect()
}

/// Creates a user with a role in a scope.
fn user_with_role(world: &World, name: &str, role: &str, place: &str) -> Client {
    let password = "correct horse battery staple";
    let new = json!({"name": name, "password": password});
    world.admin().post("/api/v1/users", &new).good();
    let assignment = json!({"user": name, "role": role});
    world.admin().post(&format!("{place}/role-assignments"), &assignment).good();
    world.served.login(name, password)
}

fn documents_have_revisions_and_a_history(world: World) {
    let admin = world.admin();
    let at = format!("{BASE}/provider/local");
    let first = json!({"name": "local", "providertype": "proc", "version": 7});
    let made = admin.put(&at, &first);
    assert_eq!((made.status, made.headers["etag"].to_str().unwrap()), (201, "\"1\""));
    assert_eq!(made.body["content"], json!({"name": "local", "providertype": "proc"}));
    assert_eq!(
        (&made.body["revision"], &made.body["changed_by"]),
        (&json!(1), &json!("user:admin"))
    );
    assert_eq!(admin.put(&at, &first).status, 200);
    assert_eq!(admin.get(&at).good()["revision"], 1, "the same content is no revision");
    let second = json!({"name": "local", "providertype": "proc", "label": "Here"});
    let changed = admin.send("PUT", &at, &[("if-match", "\"1\"")], Some(&second));
    assert_eq!((changed.status, &changed.body["revision"]), (200, &json!(2)));
    assert_eq!(admin.get(&format!("{at}?revision=1")).good()["content"].get("label"), None);
    assert_eq!(admin.delete(&at).status, 204);
    refused(&admin.get(&at), 404, "not-found");
    refused(&admin.delete(&at), 404, "not-found");
    let history = admin.get(&format!("{at}/history?limit=2")).good();
    let told: Vec<(i64, bool)> = history["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["revision"].as_i64().unwrap(), one["content"].is_object()))
        .collect();
    assert_eq!(told, [(3, false), (2, true)]);
    let next = history["next"].as_str().unwrap();
    let rest = admin.get(&format!("{at}/history?after={next}")).good();
    assert_eq!((&rest["items"][0]["revision"], &rest["next"]), (&json!(1), &Value::Null));
    refused(&admin.get(&format!("{BASE}/provider/never/history")), 404, "not-found");
    refused(&admin.get(&format!("{BASE}/cloud/local")), 422, "invalid");
    let other = json!({"name": "other", "providertype": "proc"});
    refused(&admin.put(&at, &other), 422, "invalid");
}

fn documents_are_applied_together_or_not_at_all(world: World) {
    let admin = world.admin();
    let mut documents = small_catalog();
    // The template names a missing service.
    documents.as_array_mut().unwrap().remove(4);
    let answer = apply_at(admin, BASE, &documents, false);
    refused(&answer, 422, "invalid-documents");
    assert_eq!(admin.get(BASE).good()["items"], json!([]), "nothing is stored");
    imported(&world);
    let all = [
        "hardware/large",
        "hardware/small",
        "image/debian12",
        "provider/local",
        "service/app",
        "service/db",
        "template/web",
    ];
    assert_eq!(names(&admin.get(BASE).good()), all);
    assert_eq!(names(&admin.get(&format!("{BASE}?kind=service")).good()), all[4..6]);
    let page = admin.get(&format!("{BASE}?limit=4")).good();
    assert_eq!(names(&page), all[..4]);
    let next = page["next"].as_str().unwrap();
    assert_eq!(names(&admin.get(&format!("{BASE}?limit=4&after={next}")).good()), all[4..]);
    refused(&admin.get(&format!("{BASE}?kind=cloud")), 422, "invalid");
    let again = apply_at(admin, BASE, &small_catalog(), false).good();
    let kinds = again["documents"].as_array().unwrap().iter();
    assert!(
        kinds.clone().all(|one| one["change"] == "unchanged" && one["revision"] == 1),
        "{again}"
    );
    // A valid document is not stored together with an invalid one.
    let pair = json!([
        document("service", &json!({"name": "cache"})),
        document(
            "service",
            &json!({"name": "db", "dependencies": {"runtime": {"requires": ["nowhere"]}}})
        ),
    ]);
    refused(&apply_at(admin, BASE, &pair, false), 422, "invalid-documents");
    refused(&admin.get(&format!("{BASE}/service/cache")), 404, "not-found");
}

fn a_dry_run_returns_the_change_and_stores_nothing(world: World) {
    imported(&world);
    let admin = world.admin();
    let documents = json!([
        document("hardware", &json!({"name": "small", "providermap": {"local": {"flavor": "s2"}}})),
        document("service", &json!({"name": "cache"})),
    ]);
    let told = apply_at(admin, BASE, &documents, true).good();
    assert_eq!(told["applied"], false);
    let changes = told["documents"].as_array().unwrap();
    assert_eq!((&changes[0]["change"], &changes[0]["revision"]), (&json!("updated"), &json!(1)));
    assert_eq!(changes[0]["before"]["providermap"]["local"]["flavor"], "s1");
    assert_eq!(changes[0]["after"]["providermap"]["local"]["flavor"], "s2");
    assert_eq!((&changes[1]["change"], &changes[1]["revision"]), (&json!("created"), &json!(0)));
    assert_eq!(names(&admin.get(BASE).good()).len(), 7);
    assert_eq!(admin.get(&format!("{BASE}/hardware/small")).good()["revision"], 1);
}

fn a_change_based_on_an_older_revision_is_refused(world: World) {
    imported(&world);
    let admin = world.admin();
    let at = format!("{BASE}/service/db");
    let put = |label: &str, revision: &str| {
        let body = json!({"name": "db", "label": label});
        admin.send("PUT", &at, &[("if-match", revision)], Some(&body))
    };
    assert_eq!(put("one", "\"1\"").status, 200);
    let late = put("two", "\"1\"");
    refused(&late, 412, "outdated");
    assert!(late.body["detail"].as_str().unwrap().contains("service db"), "{late:?}");
    let based = |revision: i64| {
        let db = json!({"kind": "service", "content": {"name": "db"}, "revision": revision});
        let new = json!({"kind": "service", "content": {"name": "new"}, "revision": 0});
        apply_at(admin, BASE, &json!([new, db]), false)
    };
    refused(&based(1), 412, "outdated");
    refused(&based(0), 412, "outdated");
    refused(&admin.get(&format!("{BASE}/service/new")), 404, "not-found");
    based(2).good();
    refused(&based(3), 412, "outdated");
    refused(&admin.send("DELETE", &at, &[("if-match", "\"1\"")], None), 412, "outdated");
}

fn problems_name_document_and_location(world: World) {
    imported(&world);
    let admin = world.admin();
    let body =
        "{\n  \"name\": \"app\",\n  \"dependencies\": {\"runtime\": {\"requires\": [\"dbx\"]}}\n}";
    let headers = [("content-type", "application/json")];
    let answer =
        admin.send_bytes("PUT", &format!("{BASE}/service/app"), &headers, body.as_bytes().to_vec());
    refused(&answer, 422, "invalid-documents");
    let problem = &answer.body["documents"][0];
    assert_eq!(
        (&problem["id"], &problem["severity"]),
        (&json!("document-not-found"), &json!("error"))
    );
    let place = &problem["place"];
    assert_eq!((&place["kind"], &place["name"]), (&json!("service"), &json!("app")));
    assert_eq!(place["path"], "/dependencies/runtime/requires/0");
    assert_eq!(
        (&place["line"], &place["column"], &place["index"]),
        (&json!(3), &json!(45), &json!(0))
    );
    assert_eq!(problem["help"], "did you mean `db`?");
    for (text, id) in [
        (r#"{"name": "app", "name": "app"}"#, "duplicate-field"),
        (r#"{"name": "app", "colour": "red"}"#, "unknown-field"),
        (r#"{"label": "app"}"#, "missing-field"),
        ("[]", "invalid-field"),
        (
            r#"{"name": "app", "dependencies": {"install": {"requires": ["app"]}}}"#,
            "dependency-cycle",
        ),
    ] {
        let at = format!("{BASE}/service/app");
        let answer = admin.send_bytes("PUT", &at, &headers, text.as_bytes().to_vec());
        refused(&answer, 422, "invalid-documents");
        assert_eq!(answer.body["documents"][0]["id"], id, "{answer:?}");
    }
    // Problems in other documents are reported there.
    let small = json!({"name": "db", "dependencies": {"runtime": {"requires": ["app"]}}});
    let answer = admin.put(&format!("{BASE}/service/db"), &small);
    refused(&answer, 422, "invalid-documents");
    let twice = json!([
        document("service", &json!({"name": "x"})),
        document("service", &json!({"name": "x"}))
    ]);
    let answer = apply_at(admin, BASE, &twice, false);
    refused(&answer, 422, "invalid-documents");
    assert_eq!(answer.body["documents"][0]["id"], "duplicate-document");
}

fn a_referenced_document_is_not_deleted(world: World) {
    imported(&world);
    let admin = world.admin();
    for (name, by) in [
        ("service/db", vec!["service app", "template web"]),
        ("hardware/large", vec!["template web"]),
        ("image/debian12", vec!["template web"]),
        (
            "provider/local",
            vec!["hardware large", "hardware small", "image debian12", "template web"],
        ),
    ] {
        let answer = admin.delete(&format!("{BASE}/{name}"));
        refused(&answer, 409, "in-use");
        let detail = answer.body["detail"].as_str().unwrap();
        for referrer in by {
            assert!(detail.contains(referrer), "{name}: {detail}");
        }
        assert!(!answer.body["documents"].as_array().unwrap().is_empty(), "{answer:?}");
        admin.get(&format!("{BASE}/{name}")).good();
    }
    // Deletion succeeds from the end of the chain.
    for name in [
        "template/web",
        "service/app",
        "service/db",
        "hardware/large",
        "hardware/small",
        "image/debian12",
        "provider/local",
    ] {
        assert_eq!(admin.delete(&format!("{BASE}/{name}")).status, 204, "{name}");
    }
}

fn documents_of_a_project_are_for_it_alone(world: World) {
    imported(&world);
    let admin = world.admin();
    let other = admin.post("/api/v1/projects", &json!({"name": "other"})).good();
    let own = format!("/api/v1/projects/{}/cluster-documents", world.project);
    let others = format!("/api/v1/projects/{}/cluster-documents", other["id"].as_str().unwrap());
    let cache = json!({"name": "cache", "dependencies": {"runtime": {"requires": ["db"]}}});
    let made = admin.put(&format!("{own}/service/cache"), &cache);
    assert_eq!((made.status, &made.body["project"]), (201, &json!(world.project)));
    assert_eq!(names(&admin.get(&own).good()).len(), 8);
    assert_eq!(names(&admin.get(&others).good()).len(), 7);
    assert_eq!(names(&admin.get(BASE).good()).len(), 7);
    for elsewhere in [BASE, &others] {
        refused(&admin.get(&format!("{elsewhere}/service/cache")), 404, "not-found");
        refused(&admin.get(&format!("{elsewhere}/service/cache/history")), 404, "not-found");
    }
    // A project sees the documents of the installation, can override them, and cannot delete them.
    assert_eq!(admin.get(&format!("{own}/service/db")).good().get("project"), None);
    refused(&admin.delete(&format!("{own}/service/db")), 404, "not-found");
    let db = json!({"name": "db", "label": "ours"});
    assert_eq!(admin.put(&format!("{own}/service/db"), &db).status, 201);
    assert_eq!(admin.get(&format!("{own}/service/db")).good()["content"]["label"], "ours");
    assert_eq!(admin.get(&format!("{BASE}/service/db")).good()["content"].get("label"), None);
    assert_eq!(names(&admin.get(&own).good()).len(), 8, "one of each name");
    assert_eq!(admin.delete(&format!("{own}/service/db")).status, 204);
    // The installation cannot delete a document that a project depends on.
    let extra = json!({"name": "queue"});
    admin.put(&format!("{BASE}/service/queue"), &extra).good();
    let relies = json!({"name": "worker", "dependencies": {"runtime": {"requires": ["queue"]}}});
    admin.put(&format!("{own}/service/worker"), &relies).good();
    let answer = admin.delete(&format!("{BASE}/service/queue"));
    refused(&answer, 409, "in-use");
    let detail = answer.body["detail"].as_str().unwrap();
    assert!(detail.contains("service worker") && detail.contains(&world.project), "{detail}");
    let tenant = json!({"name": "p", "maxNodes": 1000});
    refused(&admin.put(&format!("{own}/tenant/p"), &tenant), 422, "invalid");
    assert_eq!(admin.put(&format!("{BASE}/tenant/p"), &json!({"tenant": tenant})).status, 201);
    assert_eq!(admin.get(&format!("{BASE}/tenant/p")).good()["content"], tenant);
}

fn users_read_the_catalog_and_change_nothing(world: World) {
    imported(&world);
    let admin = world.admin();
    admin.put(&format!("{BASE}/tenant/p"), &json!({"name": "p", "maxNodes": 5})).good();
    let project = format!("/api/v1/projects/{}", world.project);
    let viewer = user_with_role(&world, "vera", "viewer", &project);
    let own = format!("{project}/cluster-documents");
    for base in [BASE, &own] {
        let seen = names(&viewer.get(base).good());
        assert_eq!(seen.len(), 7, "without the tenant: {seen:?}");
        refused(&viewer.get(&format!("{base}/tenant/p")), 404, "not-found");
        let provider = viewer.get(&format!("{base}/provider/local")).good();
        assert_eq!(provider["content"].get("provisioner"), None, "{provider}");
        refused(&viewer.put(&format!("{base}/service/x"), &json!({"name": "x"})), 403, "forbidden");
        refused(&viewer.delete(&format!("{base}/template/web")), 403, "forbidden");
        refused(&apply_at(&viewer, base, &json!([]), true), 403, "forbidden");
        let solved = viewer.post(&format!("{base}/solve"), &json!({"template": "web", "size": 3}));
        assert_eq!(solved.good()["status"], "solved");
    }
    let developer = user_with_role(&world, "dev", "developer", &project);
    refused(&developer.put(&format!("{own}/service/x"), &json!({"name": "x"})), 403, "forbidden");
    // An administrator of the project writes there only.
    let boss = user_with_role(&world, "boss", "admin", &project);
    assert_eq!(boss.put(&format!("{own}/service/x"), &json!({"name": "x"})).status, 201);
    refused(&boss.put(&format!("{BASE}/service/x"), &json!({"name": "x"})), 403, "forbidden");
    let provider = admin.get(&format!("{BASE}/provider/local")).good();
    assert_eq!(provider["content"]["provisioner"]["key"], "k1");
}

fn document_changes_reach_events_and_the_audit_log(world: World) {
    let before = world.store().changes().latest().unwrap();
    let admin = world.admin();
    admin.put(&format!("{BASE}/service/a"), &json!({"name": "a"})).good();
    let at = format!("/api/v1/projects/{}/cluster-documents/service/b", world.project);
    admin.put(&at, &json!({"name": "b"})).good();
    admin.delete(&format!("{BASE}/service/a"));
    let notes = world.store().changes().list(before, None, 10).unwrap();
    let told: Vec<(String, String)> =
        notes.into_iter().map(|note| (note.kind, note.subject)).collect();
    let note = |subject: String| ("cluster_document".to_owned(), subject);
    let of_project = format!("projects/{}/service/b", world.project);
    assert_eq!(
        told,
        [note("service/a".to_owned()), note(of_project), note("service/a".to_owned())]
    );
    let audit = admin.get("/api/v1/audit").good();
    let details: Vec<&str> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["detail"].as_str())
        .collect();
    for detail in
        ["service a: revision 1", "service b: revision 1", "service a deleted: revision 2"]
    {
        assert!(details.contains(&detail), "{detail}: {details:?}");
    }
}

fn clusters_are_previewed(world: World) {
    imported(&world);
    let admin = world.admin();
    let solve = |body: Value| admin.post(&format!("{BASE}/solve"), &body);
    let found = solve(json!({"template": "web", "size": 4})).good();
    assert_eq!((&found["status"], &found["size"]), (&json!("solved"), &json!(4)));
    let group = |count: u32, hardware: &str, service: &str| json!({"count": count, "hardwaretype": hardware, "imagetype": "debian12", "services": [service]});
    assert_eq!(found["layout"], json!([group(1, "large", "db"), group(3, "small", "app")]));
    assert_eq!(found["cost"], 7.0);
    assert_eq!(found["dependencies"]["app"], json!(["db"]));
    assert!(found["plan"]["stages"].as_array().unwrap().len() > 2, "{found}");
    let none =
        solve(json!({"template": "web", "size": 4, "settings": {"hardwaretype": "small"}})).good();
    assert_eq!(none["status"], "unsolvable", "{none}");
    assert!(
        none["conflict"][0]["path"].is_string() && none["conflict"][0].get("line").is_none(),
        "{none}"
    );
    let missing = solve(json!({"template": "wev", "size": 4}));
    refused(&missing, 404, "not-found");
    assert!(missing.body["detail"].as_str().unwrap().contains("did you mean web"), "{missing:?}");
    refused(&solve(json!({"template": "web", "size": 0})), 422, "unsuitable-request");
    refused(&solve(json!({"template": "web", "size": 4, "timeout": 0})), 422, "invalid");
    refused(
        &solve(json!({"template": "web", "size": 4, "settings": {"colour": "red"}})),
        422,
        "invalid",
    );
    let own = format!("/api/v1/projects/{}/cluster-documents", world.project);
    let small = json!({"name": "small", "providermap": {"local": {"flavor": "s1", "cost": 2}}});
    admin.put(&format!("{own}/hardware/small"), &small).good();
    let body = json!({"template": "web", "size": 4});
    assert_eq!(admin.post(&format!("{own}/solve"), &body).good()["cost"], 10.0);
    assert_eq!(solve(body).good()["cost"], 7.0);
}

/// Each is valid alone; both together are a cycle.
fn contradicting_concurrent_changes_are_not_both_stored(world: World) {
    let admin = world.admin();
    for name in ["a", "b"] {
        admin.put(&format!("{BASE}/service/{name}"), &json!({"name": name})).good();
    }
    for round in 0..5 {
        let put = |name: &'static str, other: &'static str| {
            let client = admin.clone();
            std::thread::spawn(move || {
                let body = json!({"name": name, "label": round.to_string(),
                                  "dependencies": {"runtime": {"requires": [other]}}});
                client.put(&format!("{BASE}/service/{name}"), &body).status
            })
        };
        let (one, other) = (put("a", "b"), put("b", "a"));
        let mut statuses = [one.join().unwrap(), other.join().unwrap()];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 422], "round {round}");
        for name in ["a", "b"] {
            admin.put(&format!("{BASE}/service/{name}"), &json!({"name": name})).good();
        }
    }
}

fn a_repeated_request_is_carried_out_once(world: World) {
    let admin = world.admin();
    let body = json!({"documents": [document("service", &json!({"name": "a"}))]});
    let key = [("idempotency-key", "once")];
    let first = admin.send("POST", &format!("{BASE}/apply"), &key, Some(&body));
    assert_eq!(first.body["documents"][0]["change"], "created", "{first:?}");
    let again = admin.send("POST", &format!("{BASE}/apply"), &key, Some(&body));
    assert_eq!(again.body, first.body);
    assert_eq!(again.headers["idempotent-replayed"], "true");
}
