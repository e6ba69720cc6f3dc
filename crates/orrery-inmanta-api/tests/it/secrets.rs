//! Secrets in the API: written, listed by name, deleted; never read.

use orrery_model::{EnvironmentId, ProjectId};
use orrery_server::{MasterKey, ServerSettings};
use orrery_store::{NewEnvironmentRecord, Store};
use serde_json::json;

use crate::support::Served;

const ENVIRONMENT: EnvironmentId = EnvironmentId::from_bytes([2; 16]);
const PROJECT: ProjectId = ProjectId::from_bytes([1; 16]);

#[test]
fn secrets_are_written_and_never_read() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::in_memory().unwrap();
    let master_key = MasterKey::Generated(directory.path().join("secret.key"));
    let settings = ServerSettings { master_key, ..ServerSettings::default() };
    let served = Served::with(store.clone(), settings);
    let now = served.app.now();
    store.projects().create(PROJECT, "p", "", now).unwrap();
    let new = NewEnvironmentRecord {
        uuid: ENVIRONMENT,
        project: PROJECT,
        name: "e",
        description: "",
        icon: "",
        repository: "",
        branch: "",
    };
    let environment = store.environments().add(&new, now).unwrap();
    let base = format!("/api/v1/environments/{ENVIRONMENT}/secrets");
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
    // An error must not echo the value.
    let refused = admin.put(&format!("{base}/db"), &json!({"value": [value]}));
    assert_eq!(refused.status, 422);
    assert!(!refused.text.contains(value), "{}", refused.text);
    let opened = served.app.vault().open(environment.key, "db").unwrap();
    assert_eq!(opened.expose(), value);
    // `If-Match` is checked.
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
fn without_a_key_nothing_is_stored() {
    let served = Served::start();
    let refused = served.admin.put("/api/v1/secrets/smtp", &json!({"value": "x"}));
    assert_eq!(refused.status, 503);
    assert!(refused.text.contains("--secret-key-file"), "{}", refused.text);
}

/// Passwords in repository URLs appear neither in the database nor in responses, and stay when a
/// masked URL is sent back.
#[test]
fn passwords_of_repositories_are_sealed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("server.db");
    let holder = orrery_store::Holder::this_process("test", orrery_model::Timestamp(0));
    let store = Store::open(&path, &holder).unwrap();
    let master_key = MasterKey::Generated(directory.path().join("secret.key"));
    let settings = ServerSettings { master_key, ..ServerSettings::default() };
    let served = Served::with(store.clone(), settings);
    let project = served.admin.post("/api/v1/projects", &json!({"name": "p"})).good();
    let url = "https://ada:hunter2-git-pass@git.example.com/x.git";
    let new = json!({"name": "e", "project": project["id"], "repository": url, "branch": "main"});
    let created = served.admin.post("/api/v1/environments", &new).good();
    let shown = "https://ada:***@git.example.com/x.git";
    assert_eq!(created["repository"], shown);
    let at = format!("/api/v1/environments/{}", created["id"].as_str().unwrap());
    let id: uuid::Uuid = created["id"].as_str().unwrap().parse().unwrap();
    let sealed = || {
        let key = store.environments().get(id.into()).unwrap().key;
        store.secrets().get(Some(key), "orrery/repository").ok().map(|secret| secret.updated)
    };
    let first = sealed().unwrap();
    let set = |repository: &str| {
        served.admin.patch(&at, &json!({"repository": repository})).good()["repository"].clone()
    };
    assert_eq!((set(shown), sealed()), (json!(shown), Some(first)), "it is sent back as shown");
    let moved = "https://ada:***@git.example.com/y.git";
    assert_eq!((set(moved), sealed()), (json!(moved), Some(first)), "another path of the host");
    // Another host does not get the password.
    set("https://ada:***@other.example.com/y.git");
    assert_eq!(sealed(), None);
    let classic = json!({"name": "e", "repository": url, "branch": "main"});
    let path_of = format!("/api/v2/environment/{id}");
    served.admin.post(&path_of, &classic).good();
    assert!(sealed().is_some());
    let listed = served.admin.get("/api/v1/environments").text;
    let secrets = served.admin.get(&format!("{at}/secrets")).text;
    let log = served.admin.get("/api/v1/audit").text;
    drop(served);
    for text in [listed, secrets.clone(), log] {
        assert!(!text.contains("hunter2-git-pass"), "{text}");
    }
    assert!(!secrets.contains("orrery/repository"), "{secrets}");
    for name in ["server.db", "server.db-wal"] {
        let bytes = std::fs::read(directory.path().join(name)).unwrap_or_default();
        assert!(memchr::memmem::find(&bytes, b"hunter2-git-pass").is_none(), "{name}");
    }
}
