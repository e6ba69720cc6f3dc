//! Contents of files: visibility, and quotas of unreferenced uploads.

use orrery_model::Timestamp;
use orrery_server::{ContentLimits, ServerSettings};
use orrery_store::{Holder, Store};
use serde_json::{Value, json};

use crate::support::{Answer, Client, Served};

const PASSWORD: &str = "Staple-battery-2";

fn put(client: &Client, content: &[u8]) -> (String, Answer) {
    let name = orrery_host::bundle::sha1_hex(content);
    let answer = client.send_bytes("PUT", &format!("/api/v1/files/{name}"), &[], content.to_vec());
    (name, answer)
}

/// Creates a project with an environment and a developer.
fn tenant(served: &Served, name: &str) -> (Client, String) {
    let project = served.admin.post("/api/v1/projects", &json!({"name": name})).good();
    let new = json!({"name": name, "project": project["id"]});
    let environment = served.admin.post("/api/v1/environments", &new).good();
    let environment = format!("/api/v1/environments/{}", environment["id"].as_str().unwrap());
    let user = json!({"name": name, "password": PASSWORD});
    served.admin.post("/api/v1/users", &user).good();
    let role = json!({"user": name, "role": "developer"});
    served.admin.post(&format!("{environment}/role-assignments"), &role).good();
    (served.login(name, PASSWORD), environment)
}

fn version(hash: &str) -> Value {
    let attributes = json!({"path": "/tmp/x", "hash": hash});
    json!({"resources": [{"id": "t::R[a,name=a]", "attributes": attributes}], "release": false})
}

/// A tenant cannot find out whether another tenant has a content, by queries, reads or versions.
#[test]
fn contents_of_other_tenants_are_not_found_by_guessing() {
    let served = Served::start();
    let (alice, shop) = tenant(&served, "alice");
    let (mallory, lab) = tenant(&served, "mallory");
    let (secret, answer) = put(&alice, b"door_pin=4711");
    assert_eq!(answer.status, 204, "{answer:?}");
    let missing = |client: &Client, path: &str, field: &str| -> Value {
        client.post(path, &json!({field: [secret]})).good()[field].clone()
    };
    let guess = |client: &Client| {
        let own = missing(client, "/api/v1/files/missing", "hashes");
        assert_eq!(own, missing(client, "/api/v1/file", "files"), "both interfaces say the same");
        let paths = [format!("/api/v1/files/{secret}"), format!("/api/v1/file/{secret}")];
        let found: Vec<u16> = paths.iter().map(|path| client.get(path).status).collect();
        (own, found)
    };
    let (nothing, all) = (json!([]), json!([secret]));
    for in_use in [false, true] {
        if in_use {
            alice.post(&format!("{shop}/versions"), &version(&secret)).good();
        }
        assert_eq!(guess(&alice), (nothing.clone(), vec![200, 200]), "in use: {in_use}");
        assert_eq!(guess(&mallory), (all.clone(), vec![404, 404]), "in use: {in_use}");
        assert_eq!(guess(&served.admin).0 == nothing, in_use);
        for refers in [json!({"files": {"x": secret}}), json!({"code": secret})] {
            let mut guessed = version(&"0".repeat(40));
            guessed.as_object_mut().unwrap().extend(refers.as_object().unwrap().clone());
            let answer = mallory.post(&format!("{lab}/versions"), &guessed);
            let code = answer.body["code"].as_str().unwrap_or_default();
            assert!(code.ends_with("-missing"), "{answer:?}");
        }
        // Attributes are free text; a hash in them gives no access to the content.
        mallory.post(&format!("{lab}/versions"), &version(&secret)).good();
        assert_eq!(guess(&mallory), (all.clone(), vec![404, 404]), "in use: {in_use}");
    }
    // Uploading the content itself gives access.
    assert_eq!(put(&mallory, b"door_pin=4711").1.status, 204);
    assert_eq!(guess(&mallory), (nothing, vec![200, 200]));
}

/// Unreferenced uploads are limited per account and in total; a version that refers to them frees
/// the quota.
#[test]
fn uploads_that_nothing_uses_are_limited() {
    let contents = ContentLimits { account_max: 3000, all_max: 5000, ..ContentLimits::default() };
    let settings = ServerSettings { contents, ..ServerSettings::default() };
    let served = Served::with(Store::in_memory().unwrap(), settings);
    let (alice, shop) = tenant(&served, "alice");
    let (mallory, _) = tenant(&served, "mallory");
    let upload = |client: &Client, byte: u8| put(client, &[byte; 1000]);
    for byte in 1..=3 {
        assert_eq!(upload(&mallory, byte).1.status, 204);
    }
    let full = upload(&mallory, 4).1;
    assert_eq!((full.status, &full.body["code"]), (507, &json!("contents-quota")), "{full:?}");
    assert!(full.text.contains("24 hours"), "{full:?}");
    assert_eq!(upload(&mallory, 3).1.status, 204, "it is there already");
    // Other accounts have their own quota within the total.
    let (first, answer) = upload(&alice, 5);
    assert_eq!((answer.status, upload(&alice, 6).1.status), (204, 204));
    assert_eq!(upload(&alice, 7).1.status, 507);
    alice.post(&format!("{shop}/versions"), &version(&first)).good();
    assert_eq!(upload(&alice, 7).1.status, 204);
    // An account without a role may not upload.
    let new = json!({"name": "eve", "password": PASSWORD});
    served.admin.post("/api/v1/users", &new).good();
    assert_eq!(upload(&served.login("eve", PASSWORD), 9).1.status, 403);
}

/// A store that is readable but not writable is reported as not ready.
#[test]
fn a_store_that_cannot_be_written_to_is_not_healthy() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("server.db");
    let holder = Holder::this_process("test", Timestamp(0));
    drop(Store::open(&path, &holder).unwrap());
    let store = Store::open_read_only(&path).unwrap();
    let served = Served::without_accounts(store, ServerSettings::default());
    for path in ["/health", "/health/ready"] {
        let ill = served.anonymous().get(path);
        assert_eq!((ill.status, &ill.body["status"]), (503, &json!("not ready")), "{ill:?}");
        let reason = ill.body["checks"]["store"].as_str().unwrap();
        assert!(reason.contains("not writable"), "{reason}");
    }
    assert_eq!(served.anonymous().get("/health/live").status, 200);
}
