//! Invitations, joining, renewing.

use orrery_agent::token::{Fingerprint, JoinToken};
use orrery_model::Timestamp;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::json;
use uuid::Uuid;

use super::World;
use super::test_client::Identity;

#[test]
fn a_machine_joins_once_with_a_token() {
    let world = World::new();
    let token = world.invite(&["web1", "web2"]);
    let mut machine = Identity::new();
    let joined = machine.join(&world.address, &token);
    assert_eq!(joined.names, ["web1", "web2"]);
    assert_eq!(joined.valid_seconds, 90 * 24 * 3600);
    assert!(world.environment.ends_with(&joined.environment.to_string()));
    let ca = CertificateDer::from_pem_slice(joined.ca.as_bytes()).unwrap();
    let parsed = JoinToken::parse(&token).unwrap();
    assert_eq!(
        parsed.fingerprint(),
        &Fingerprint::from_der(&ca),
        "the token has the fingerprint of the authority"
    );

    let again = machine.join(&world.address, &token);
    assert_eq!(again.agent, joined.agent, "the same key is the same agent");
    let (status, refusal) = Identity::new().try_join(&world.address, &token, None);
    assert_eq!((status, &refusal["code"]), (401, &json!("token")), "{refusal}");
    let listed = world.remote_agents();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["names"], json!(["web1", "web2"]));
    assert_eq!((&listed[0]["status"], &listed[0]["session"]), (&json!("disconnected"), &json!(0)));
    assert_eq!(listed[0]["machine"]["host_name"], "web1");
    assert_eq!(listed[0]["transitioning"], "yes", "it is still to come");
    let one = world.path(&format!("/remote-agents/{}", joined.agent));
    assert_eq!(listed[0]["actions"], json!({"revoke": format!("{one}/revoke")}));
    let serving = |name: &str| {
        let found = world.served.admin.get(&world.path(&format!("/remote-agents?name={name}")));
        found.good()["items"].clone()
    };
    assert_eq!((serving("web2"), serving("web3")), (json!([listed[0]]), json!([])));
    assert_eq!(world.served.admin.get(&one).good(), listed[0]);
    let other = world.path(&format!("/remote-agents/{}", Uuid::nil()));
    assert_eq!(world.served.admin.get(&other).status, 404);
}

#[test]
fn bad_tokens_and_requests_are_refused() {
    let world = World::new();
    let token = world.invite(&["web1"]);
    let machine = Identity::new();
    let (status, refusal) = machine.try_join(&world.address, "orrj_nothing.00", None);
    assert_eq!((status, &refusal["code"]), (401, &json!("token")), "{refusal}");
    let (status, refusal) = machine.try_join(&world.address, &token, Some(&["db1"]));
    assert_eq!((status, &refusal["code"]), (409, &json!("token")), "{refusal}");
    let body = json!({"token": token, "csr": "nothing", "machine": {}});
    let (status, refusal) = machine.post(&world.address, "/agent/v1/join", &body);
    assert_eq!((status, &refusal["code"]), (400, &json!("unreadable")), "{refusal}");
    let (status, _) = machine.post(&world.address, "/agent/v1/join", &json!([]));
    assert_eq!(status, 400);
    let (status, _) = machine.post(&world.address, "/api/v1/login", &json!({}));
    assert_eq!(status, 404, "a gateway has nothing but the agents' routes");
    assert!(world.remote_agents().is_empty());

    let invite = |body| {
        let path = world.path("/remote-agents/invitations");
        world.served.admin.post(&path, &body).status
    };
    assert_eq!(invite(json!({"names": []})), 422);
    assert_eq!(invite(json!({"names": ["a,b"]})), 422);
    assert_eq!(invite(json!({"names": ["a"], "expires_in": 0})), 422);
    assert_eq!(invite(json!({"names": ["a"], "expires_in": 700_000})), 422);
    world.enrolled(&["web9"]);
    assert_eq!(invite(json!({"names": ["web9"]})), 409);
}

/// Only a token with the right to enrol invites machines. Its invitations expire with it, and end
/// when it is revoked.
#[test]
fn invitations_of_a_token_end_with_it() {
    let world = World::new();
    let make = |groups: serde_json::Value| {
        let new = json!({"name": "ci", "role": "developer", "groups": groups, "days": 1});
        let created = world.served.admin.post("/api/v1/tokens", &new).good();
        let path = format!("/api/v1/tokens/{}", created["token"]["id"].as_str().unwrap());
        let ends = created["token"]["expires"].as_str().unwrap().to_owned();
        (world.served.with_token(created["secret"].as_str().unwrap()), path, ends)
    };
    let invite = |client: &crate::support::Client, name: &str| {
        let body = json!({"names": [name], "expires_in": 7 * 86_400});
        client.post(&world.path("/remote-agents/invitations"), &body)
    };
    let refused = invite(&make(json!(null)).0, "web1");
    assert_eq!(refused.status, 403, "{refused:?}");
    assert!(refused.text.contains("remote-agents"), "{refused:?}");
    let webhook = make(json!(["webhook"])).0.post(&world.path("/webhook"), &json!(null));
    assert_eq!(webhook.status, 403, "{webhook:?}");
    let (ci, path, ends) = make(json!(["remote-agents"]));
    let [first, second] = ["web1", "web2"].map(|name| {
        let created = invite(&ci, name).good();
        assert_eq!(created["expires"], ends.as_str());
        created["token"].as_str().unwrap().to_owned()
    });
    let mut machine = Identity::new();
    machine.join(&world.address, &first);
    world.served.admin.delete(&path).good();
    let (status, refusal) = Identity::new().try_join(&world.address, &second, None);
    assert_eq!((status, &refusal["code"]), (401, &json!("token")), "{refusal}");
    assert_eq!(world.remote_agents().len(), 1);
}

#[test]
fn open_invitations_are_listed_and_withdrawn() {
    let world = World::new();
    let admin = &world.served.admin;
    let path = world.path("/remote-agents/invitations");
    let invite = |name: &str| {
        let created = admin.post(&path, &json!({"names": [name]})).good();
        created["token"].as_str().unwrap().to_owned()
    };
    let (used, withdrawn) = (invite("web1"), invite("web2"));
    let listed = || admin.get(&path).good()["items"].as_array().unwrap().clone();
    assert_eq!(listed().len(), 2);
    Identity::new().join(&world.address, &used);
    let open = listed();
    assert_eq!(open.len(), 1, "a used one is not open");
    assert_eq!(open[0]["names"], json!(["web2"]));
    assert!(open[0].get("token").is_none(), "tokens are shown once: {open:?}");
    let one = format!("{path}/{}", open[0]["id"].as_str().unwrap());
    let token = json!({"name": "operates", "role": "operator"});
    let made = admin.post("/api/v1/tokens", &token).good();
    let operator = world.served.with_token(made["secret"].as_str().unwrap());
    assert_eq!(operator.delete(&one).status, 403);
    assert_eq!(admin.delete(&one).status, 204);
    assert_eq!(admin.delete(&one).status, 404);
    assert!(listed().is_empty());
    let (status, refusal) = Identity::new().try_join(&world.address, &withdrawn, None);
    assert_eq!((status, &refusal["code"]), (401, &json!("token")), "{refusal}");
    assert_eq!(world.remote_agents().len(), 1);
}

#[test]
fn invitations_require_a_gateway() {
    let mut world = World::new();
    world.stop_gateway();
    let path = world.path("/remote-agents/invitations");
    let answer = world.served.admin.post(&path, &json!({"names": ["web1"]}));
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.body["detail"].as_str().unwrap().contains("--role gateway"), "{answer:?}");
}

#[test]
fn certificates_are_renewed_for_enrolled_agents() {
    let world = World::new();
    let machine = world.enrolled(&["web1"]);
    let (status, answer) =
        machine.post(&world.address, "/agent/v1/renew", &json!({"csr": machine.csr()}));
    assert_eq!(status, 200, "{answer}");
    let mut renewed = machine;
    renewed.certificate = Some(answer["certificate"].as_str().unwrap().to_owned());
    drop(renewed.open(&world.address));
    let other = Identity::new();
    let body = json!({"csr": other.csr()});
    assert_eq!(other.post(&world.address, "/agent/v1/renew", &body).0, 401);
    let (status, refusal) = renewed.post(&world.address, "/agent/v1/renew", &body);
    assert_eq!(status, 400, "another key: {refusal}");
    let revoke = world.path(&format!("/remote-agents/{}", renewed.agent));
    assert_eq!(world.served.admin.delete(&revoke).status, 204);
    let body = json!({"csr": renewed.csr()});
    let (status, refusal) = renewed.post(&world.address, "/agent/v1/renew", &body);
    assert_eq!((status, &refusal["code"]), (403, &json!("revoked")), "{refusal}");
}

#[test]
fn a_revoked_agent_is_refused_even_after_its_record_is_deleted() {
    let world = World::new();
    let machine = world.enrolled(&["web1"]);
    let refused = || {
        let body = json!({"csr": machine.csr()});
        let (status, refusal) = machine.post(&world.address, "/agent/v1/renew", &body);
        assert_eq!((status, &refusal["code"]), (403, &json!("revoked")), "{refusal}");
        assert_eq!(machine.dial(&world.address).err(), Some(403));
    };
    let one = world.path(&format!("/remote-agents/{}", machine.agent));
    let revoke = |how: &str| {
        let path = format!("{one}/revoke{how}");
        world.served.admin.send("POST", &path, &[], None).good()
    };
    let revoked = revoke("");
    assert_eq!((&revoked["status"], &revoked["transitioning"]), (&json!("revoked"), &json!("no")));
    assert_eq!(revoked["actions"]["revoke"], format!("{one}/revoke"), "its agents wait");
    refused();
    assert_eq!(revoke("?release=true")["actions"], json!({}));
    let store = world.served.app.store();
    let environment = store.remote_agents().get(machine.agent.into()).unwrap().environment;
    assert_eq!(store.remote_agents().delete_revoked(environment, Timestamp(i64::MAX)).unwrap(), 1);
    assert_eq!(world.served.admin.get(&one).status, 404);
    refused();
}

#[test]
fn joining_is_in_the_audit_log() {
    let world = World::new();
    let machine = world.enrolled(&["web1"]);
    let audit = world.served.admin.get("/api/v1/audit?limit=1000").good();
    let entries = audit["items"].as_array().unwrap();
    let joined = entries.iter().find(|entry| entry["action"] == "POST /agent/v1/join").unwrap();
    assert_eq!(joined["actor"], format!("agent:{}", machine.agent));
    assert_eq!((&joined["subject"], &joined["status"]), (&json!("web1"), &json!(200)));
    let invited = "POST /api/v1/environments/{environment}/remote-agents/invitations";
    assert!(entries.iter().any(|entry| entry["action"] == invited), "{entries:?}");
}

#[test]
fn unauthenticated_requests_do_not_fill_the_audit_log() {
    let world = World::new();
    world.invite(&["web1"]);
    let secret = "orrj_secret".repeat(5_000);
    let body = json!([secret]);
    let joins = || {
        let audit = world.served.admin.get("/api/v1/audit?limit=1000").good();
        let entries = audit["items"].as_array().unwrap().clone();
        entries.into_iter().filter(|entry| entry["action"] == "POST /agent/v1/join")
    };
    world.until("some refusals are only counted", |world| {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..8 {
                        let (status, _) =
                            Identity::new().post(&world.address, "/agent/v1/join", &body);
                        assert_eq!(status, 400);
                    }
                });
            }
        });
        joins().any(|entry| entry["detail"].as_str().unwrap().contains("were omitted"))
    });
    for entry in joins() {
        let detail = entry["detail"].as_str().unwrap();
        assert!(detail.len() <= 512 && !detail.contains("orrj_"), "{detail}");
    }
    let (_, refusal) = Identity::new().post(&world.address, "/agent/v1/join", &body);
    assert!(refusal["reason"].as_str().unwrap().contains("at line 1, column"), "{refusal}");
}

#[test]
fn an_invitation_says_what_happens_to_names_with_a_place() {
    let world = World::new();
    let invite = |names: &[&str]| {
        let path = world.path("/remote-agents/invitations");
        world.served.admin.post(&path, &json!({"names": names})).good()
    };
    assert_eq!(invite(&["web1"]).get("notes"), None);
    let placements = json!({"value": {"web*": "ssh://root@192.0.2.1"}});
    world.served.admin.put(&world.path("/settings/agent_placements"), &placements).good();
    let notes = invite(&["db1", "internal", "web1"])["notes"].clone();
    assert_eq!(notes.as_array().map(Vec::len), Some(2), "{notes}");
    let said = |at: usize| notes[at].as_str().unwrap();
    assert!(said(0).contains("A remote agent is stronger"), "{notes}");
    let remedy = "remove the address from the environment's setting agent_placements, under web*";
    assert!(said(1).contains(remedy), "{notes}");
}
