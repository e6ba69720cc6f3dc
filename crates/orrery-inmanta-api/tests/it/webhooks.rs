//! Environments that follow a repository: pushed versions, and webhooks.

use orrery_server::{MasterKey, ServerSettings};
use orrery_store::Store;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::{Answer, Client, Served, gzip};
use crate::world::{World, on_both, refused};

on_both!(an_environment_with_a_repository_refuses_pushed_versions);

fn resource() -> Value {
    json!({"id": "std::testing::NullResource[one,name=a]", "attributes": {"name": "a"}})
}

fn with_role(world: &World, name: &str, role: &str) -> Client {
    let password = "Correct-horse-2";
    let new = json!({"name": name, "password": password});
    world.admin().post("/api/v1/users", &new).good();
    let given = json!({"user": name, "role": role});
    world.post("/role-assignments", &given).good();
    world.served.login(name, password)
}

fn an_environment_with_a_repository_refuses_pushed_versions(world: World) {
    let developer = with_role(&world, "dev", "developer");
    let versions = world.at("/versions");
    let upload = json!({"resources": [resource()]});
    developer.post(&versions, &upload).good();
    world.delete("/settings/allow_push").good();
    let told = |answer: &Answer| {
        refused(answer, 409, "follows-repository");
        let detail = answer.body["detail"].as_str().unwrap();
        assert!(detail.contains("allow_push"), "{detail}");
        assert!(detail.contains("https://git.example.org/model.git"), "{detail}");
    };
    told(&developer.post(&versions, &upload));
    told(&world.admin().post(&versions, &upload));
    told(&developer.send("POST", &world.at("/versions/reserve"), &[], None));
    // The same through the Inmanta-compatible API.
    let header = [("X-Inmanta-tid", &*world.id)];
    let version = json!({"version": 2, "resources": [], "module_version_info": {}});
    let partial = json!({"resources": [], "resource_sets": {}, "module_version_info": {}});
    for (method, path, body) in [
        ("POST", "/api/v2/reserve_version", json!({})),
        ("PUT", "/api/v1/version", version),
        ("PUT", "/api/v2/version/partial", partial),
    ] {
        let answer = developer.send(method, path, &header, Some(&body));
        assert_eq!(answer.status, 409, "{path}: {answer:?}");
        assert!(answer.text.contains("allow_push"), "{answer:?}");
    }
    // Developers cannot allow it themselves by any route.
    let allow = json!({"value": true});
    let setting = world.at("/settings/allow_push");
    refused(&developer.put(&setting, &allow), 403, "forbidden");
    refused(&developer.delete(&setting), 403, "forbidden");
    let protect = json!({"settings": {"allow_push": true}, "protected_by": "project.yml"});
    refused(&developer.post(&world.at("/settings/protect"), &protect), 403, "forbidden");
    let classic = "/api/v2/environment_settings/allow_push";
    let answer = developer.send("POST", classic, &header, Some(&allow));
    assert_eq!(answer.status, 403, "{answer:?}");
    told(&developer.post(&versions, &upload));
    // Nor can they remove the protection of the environment.
    let protected = world.at("/settings/protected_environment");
    world.admin().put(&protected, &allow).good();
    refused(&developer.put(&protected, &json!({"value": false})), 403, "forbidden");
    refused(&developer.delete(&protected), 403, "forbidden");
    let classic = "/api/v2/environment_settings/protected_environment";
    let answer = developer.send("DELETE", classic, &header, None);
    assert_eq!(answer.status, 403, "{answer:?}");
    assert_eq!(world.get("").good()["protected"], true);
    world.admin().put(&setting, &allow).good();
    developer.post(&versions, &upload).good();
    // Without a repository, pushes are allowed.
    world.delete("/settings/allow_push").good();
    world.admin().patch(&world.at(""), &json!({"repository": ""})).good();
    developer.post(&versions, &upload).good();
}

/// HMAC-SHA256, for keys no longer than a block.
fn signed(secret: &str, body: &[u8]) -> String {
    let mut block = [0; 64];
    block[..secret.len()].copy_from_slice(secret.as_bytes());
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(body);
    let outer = Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c));
    let digest = outer.chain_update(inner.finalize()).finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A server with an environment that follows the branch `main`, and webhook requests to it.
struct WebhookWorld {
    served: Served,
    store: Store,
    environment: String,
    _directory: tempfile::TempDir,
}

impl WebhookWorld {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::in_memory().unwrap();
        let master_key = MasterKey::Generated(directory.path().join("secret.key"));
        let settings = ServerSettings { master_key, ..ServerSettings::default() };
        let served = Served::with(store.clone(), settings);
        let project = served.admin.post("/api/v1/projects", &json!({"name": "p"})).good();
        let new = json!({
            "project": project["id"], "name": "e", "repository": "https://git.example.org/m.git",
            "branch": "main",
        });
        let made = served.admin.post("/api/v1/environments", &new).good();
        let environment = made["id"].as_str().unwrap().to_owned();
        WebhookWorld { served, store, environment, _directory: directory }
    }

    fn at(&self, path: &str) -> String {
        format!("/api/v1/environments/{}{path}", self.environment)
    }

    fn secret(&self) -> String {
        let answer = self.served.admin.send("POST", &self.at("/webhook"), &[], None);
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.body["secret"].as_str().unwrap().to_owned()
    }

    fn deliver(&self, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let path = format!("/api/v1/webhooks/{}", self.environment);
        self.served.anonymous().send_bytes("POST", &path, headers, body.to_vec())
    }

    /// True if a read of the branch is due; marks it as done.
    fn is_due(&self) -> bool {
        let store = &self.store;
        let due = store.branches().due(self.served.app.now(), 9).unwrap();
        for one in &due {
            assert!(store.branches().claim(one, orrery_model::Timestamp(i64::MAX)).unwrap());
        }
        !due.is_empty()
    }
}

const PUSH: &[u8] =
    br#"{"ref":"refs/heads/main","after":"1111111111111111111111111111111111111111"}"#;

#[test]
fn a_webhook_of_each_forge_triggers_a_read_of_the_branch() {
    let hooked = WebhookWorld::start();
    let secret = hooked.secret();
    let signature = signed(&secret, PUSH);
    let github = format!("sha256={signature}");
    for headers in [
        [("x-github-event", "push"), ("x-hub-signature-256", &*github)],
        [("x-gitea-event", "push"), ("x-gitea-signature", &*signature)],
        [("x-forgejo-event", "push"), ("x-forgejo-signature", &*signature)],
        [("x-gitlab-event", "Push Hook"), ("x-gitlab-token", &*secret)],
    ] {
        // A repeated request is harmless.
        for _ in 0..2 {
            let answer = hooked.deliver(&headers, PUSH);
            assert_eq!(answer.status, 202, "{headers:?} {answer:?}");
        }
        assert!(hooked.is_due(), "{headers:?}");
        assert!(!hooked.is_due());
    }
    // Other events have no effect.
    let tell = |event: &str, body: &[u8]| {
        let signature = signed(&secret, body);
        hooked.deliver(&[("x-gitea-event", event), ("x-gitea-signature", &signature)], body)
    };
    assert_eq!(tell("ping", b"{}").good()["result"], "pong");
    assert_eq!(tell("issues", b"{}").good()["result"], "ignored");
    let other = br#"{"ref":"refs/heads/dev","after":"11"}"#;
    let gone = br#"{"ref":"refs/heads/main","after":"0000000000000000000000000000000000000000"}"#;
    let tag = br#"{"ref":"refs/tags/main","after":"11"}"#;
    let reasons = ["is not what", "was deleted", "is not what"];
    for (body, reason) in [&other[..], &gone[..], &tag[..]].into_iter().zip(reasons) {
        let answer = tell("push", body);
        assert_eq!((answer.status, &answer.body["result"]), (200, &json!("ignored")), "{answer:?}");
        assert!(answer.body["detail"].as_str().unwrap().contains(reason), "{answer:?}");
    }
    assert_eq!(tell("push", b"{").status, 400);
    let without_commit = tell("push", br#"{"ref":"refs/heads/main"}"#);
    refused(&without_commit, 400, "bad-request");
    assert!(without_commit.text.contains("`after`"), "{without_commit:?}");
    // Invalid compression is neither a push nor too large.
    let packed = [("content-encoding", "gzip"), ("x-gitlab-event", "Push Hook")];
    let headers = [packed[0], packed[1], ("x-gitlab-token", &*secret)];
    refused(&hooked.deliver(&headers, b"no gzip"), 400, "bad-request");
    assert!(!hooked.is_due());
    // The secret is not returned again.
    let listed = hooked.served.admin.get(&hooked.at("/secrets")).good();
    assert_eq!(listed["items"], json!([]));
    let hidden = hooked.at("/secrets/orrery%2Fwebhook");
    refused(&hooked.served.admin.delete(&hidden), 404, "not-found");
    let audit = hooked.served.admin.get("/api/v1/audit?limit=1000").good().to_string();
    assert!(audit.contains("webhook") && !audit.contains(&secret), "{audit}");
}

#[test]
fn a_repeated_request_for_a_secret_leaves_the_first_one_in_force() {
    let hooked = WebhookWorld::start();
    let path = hooked.at("/webhook");
    let key = [("idempotency-key", "once")];
    let first = hooked.served.admin.send("POST", &path, &key, None);
    assert_eq!(first.status, 201, "{first:?}");
    let again = hooked.served.admin.send("POST", &path, &key, None);
    refused(&again, 409, "already-carried-out");
    let secret = first.body["secret"].as_str().unwrap();
    let headers = [("x-gitlab-event", "Push Hook"), ("x-gitlab-token", secret)];
    assert_eq!(hooked.deliver(&headers, PUSH).status, 202, "the first secret counts");
}

#[test]
fn webhooks_without_the_secret_reveal_nothing_and_have_no_effect() {
    let hooked = WebhookWorld::start();
    let good = |secret: &str| format!("sha256={}", signed(secret, PUSH));
    let push = |signature: &str| {
        hooked.deliver(&[("x-github-event", "push"), ("x-hub-signature-256", signature)], PUSH)
    };
    let before = push(&good("anything"));
    refused(&before, 401, "unauthenticated");
    let state = hooked.served.admin.get(&hooked.at("/webhook")).good();
    assert_eq!((&state["enabled"], &state["secret"]), (&json!(false), &Value::Null));
    let secret = hooked.secret();
    // A wrong signature, a missing one, and a missing environment are indistinguishable.
    let wrong = push(&good("anything"));
    assert_eq!((wrong.status, &wrong.body), (before.status, &before.body));
    let none = hooked.deliver(&[("x-github-event", "push")], PUSH);
    assert_eq!((none.status, &none.body), (before.status, &before.body));
    for path in ["00000000-0000-0000-0000-000000000000", "nonsense"] {
        let path = format!("/api/v1/webhooks/{path}");
        let signature = good(&secret);
        let headers = [("x-github-event", "push"), ("x-hub-signature-256", &*signature)];
        let answer = hooked.served.anonymous().send_bytes("POST", &path, &headers, PUSH.to_vec());
        assert_eq!((answer.status, &answer.body), (before.status, &before.body), "{path}");
    }
    // Compressed, since a client that is refused while sending may miss the response.
    let large = gzip(&vec![b' '; 2 << 20]);
    let packed = [("x-gitlab-token", &*secret), ("content-encoding", "gzip")];
    let large = hooked.deliver(&packed, &large);
    refused(&large, 413, "too-large");
    assert!(!hooked.is_due());
    assert_eq!(push(&good(&secret)).status, 202);
    assert!(hooked.is_due());
    // A new secret replaces the old one, and without one everything is refused.
    let other = hooked.secret();
    refused(&push(&good(&secret)), 401, "unauthenticated");
    assert_eq!(push(&good(&other)).status, 202);
    hooked.served.admin.delete(&hooked.at("/webhook")).good();
    refused(&push(&good(&other)), 401, "unauthenticated");
}
