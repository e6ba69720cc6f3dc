//! Secrets through the API: written, listed by name, deleted; never read.

use std::sync::Arc;

use orrery_server::{AppSettings, MasterKey};
use orrery_store::{NewEnvironment, SqliteStore, Store as _};
use serde_json::json;

use crate::support::Served;

const ENVIRONMENT: [u8; 16] = [2; 16];

#[test]
fn secrets_are_written_and_never_read() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let master_key = MasterKey::Made(directory.path().join("secret.key"));
    let settings = AppSettings { master_key, ..AppSettings::default() };
    let served = Served::with(Arc::clone(&store) as _, settings);
    let now = served.app.now();
    store.records().create_project([1; 16], "p", "", now).unwrap();
    let new = NewEnvironment {
        uuid: ENVIRONMENT,
        project: &[1; 16],
        name: "e",
        description: "",
        icon: "",
        repository: "",
        branch: "",
    };
    let environment = store.records().add_environment(&new, now).unwrap();
    let base = format!("/api/v1/environments/{}/secrets", orrery_store::uuid_text(&ENVIRONMENT));
    let value = "canary-3f9a7c";
    let admin = &served.admin;
    assert_eq!(admin.put(&format!("{base}/db"), &json!({"value": value})).status, 204);
    assert_eq!(admin.put("/api/v1/secrets/smtp", &json!({"value": value})).status, 204);
    let listed = admin.get(&base);
    assert_eq!(listed.body["items"][0]["name"], "db");
    assert!(!listed.text.contains(value));
    assert_eq!(admin.get(&format!("{base}/db")).status, 405);
    for (name, body) in [("a%20b", json!({"value": "x"})), ("a", json!({"value": ""}))] {
        assert_eq!(admin.put(&format!("{base}/{name}"), &body).status, 422, "{name}");
    }
    // An error must not repeat what was sent.
    let refused = admin.put(&format!("{base}/db"), &json!({"value": [value]}));
    assert_eq!(refused.status, 422);
    assert!(!refused.text.contains(value), "{}", refused.text);
    let opened = served.app.vault().open(environment.key, "db").unwrap();
    assert_eq!(opened.expose(), value);
    // What a change is based on counts.
    let (path, body) = (format!("{base}/db"), json!({"value": value}));
    let revision = admin.get(&base).body["items"][0]["revision"].to_string();
    let put = |etag: &str| admin.send("PUT", &path, &[("if-match", etag)], Some(&body));
    assert_eq!(put("\"0\"").status, 412);
    let changed = put(&format!("\"{revision}\""));
    assert_eq!(changed.status, 204);
    assert_eq!(put(&format!("\"{revision}\"")).status, 412);
    let current = changed.headers["etag"].to_str().unwrap().to_owned();
    let delete = |etag: &str| admin.send("DELETE", &path, &[("if-match", etag)], None);
    assert_eq!(delete("\"999\"").status, 412);
    assert_eq!(put(&current).status, 204);
    assert_eq!(admin.delete(&format!("{base}/db")).status, 204);
    assert_eq!(admin.delete(&format!("{base}/db")).status, 404);
    let audit = admin.get("/api/v1/audit").text;
    assert!(audit.contains("/secrets/{name}") && !audit.contains(value), "{audit}");
}

#[test]
fn without_a_key_nothing_is_kept() {
    let served = Served::start();
    let refused = served.admin.put("/api/v1/secrets/smtp", &json!({"value": "x"}));
    assert_eq!(refused.status, 503);
    assert!(refused.text.contains("--secret-key-file"), "{}", refused.text);
}
