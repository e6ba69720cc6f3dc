//! JWT of an identity provider, with a real one on loopback.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::routing::get;
use jsonwebtoken::jwk::{Jwk, JwkSet};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use orrery_model::SecretText;
use orrery_server::{AuthSettings, IssuerSettings, RoleMapping, ServerSettings};
use orrery_store::Store;
use serde_json::{Value, json};

use crate::support::Served;

/// An identity provider with one key.
struct Issuer {
    url: String,
    key: EncodingKey,
    public: Vec<u8>,
    asked: Arc<AtomicUsize>,
}

fn start_issuer() -> Issuer {
    let pair = rcgen::KeyPair::generate().unwrap();
    let key = EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).unwrap();
    let mut jwk = Jwk::from_encoding_key(&key, Algorithm::ES256).unwrap();
    jwk.common.key_id = Some("one".to_owned());
    let listener = std::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let set = serde_json::to_value(JwkSet { keys: vec![jwk] }).unwrap();
    let document = json!({"issuer": url, "jwks_uri": format!("{url}/keys")});
    // Ends with the process of the test.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let keys = get(async move || {
                counted.fetch_add(1, Ordering::Relaxed);
                axum::Json(set)
            });
            let described = get(async move || axum::Json(document));
            let router = axum::Router::new()
                .route("/keys", keys)
                .route("/.well-known/openid-configuration", described);
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
    });
    Issuer { url, key, public: pair.public_key_pem().into_bytes(), asked }
}

fn settings(issuer: &str) -> IssuerSettings {
    let mapping = |value: &str, role: &str| RoleMapping {
        claim: "realm.groups".to_owned(),
        value: value.to_owned(),
        role: role.to_owned(),
        project: None,
        environment: None,
    };
    IssuerSettings {
        name: "corp".to_owned(),
        issuer: issuer.to_owned(),
        audience: "orrery".to_owned(),
        jwks_uri: None,
        shared_key: None,
        algorithms: vec!["ES256".to_owned()],
        username_claim: "sub".to_owned(),
        roles: vec![mapping("admins", "admin"), mapping("all", "viewer")],
    }
}

fn serve(issuer: IssuerSettings) -> Served {
    issuer.check().unwrap();
    let auth = AuthSettings { issuers: vec![issuer], ..AuthSettings::default() };
    let settings = ServerSettings { auth, ..ServerSettings::default() };
    Served::with(Store::in_memory().unwrap(), settings)
}

fn seconds(from_now: i64) -> i64 {
    #[expect(clippy::disallowed_methods, reason = "tokens are checked with the system's clock")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    i64::try_from(now).unwrap() + from_now
}

fn claims(issuer: &str) -> Value {
    json!({
        "iss": issuer, "aud": "orrery", "sub": "ada", "exp": seconds(300),
        "realm": {"groups": ["all", "admins"]},
    })
}

fn with(mut claims: Value, name: &str, value: Value) -> Value {
    claims[name] = value;
    claims
}

fn signed(key: &EncodingKey, algorithm: Algorithm, kid: Option<&str>, claims: &Value) -> String {
    let header = Header { kid: kid.map(str::to_owned), ..Header::new(algorithm) };
    encode(&header, claims, key).unwrap()
}

#[test]
fn jwt_claims_grant_roles() {
    let issuer = start_issuer();
    let served = serve(settings(&issuer.url));
    let es256 = |claims: &Value| signed(&issuer.key, Algorithm::ES256, Some("one"), claims);
    let good = claims(&issuer.url);
    let ada = served.with_token(&es256(&good));
    let me = ada.get("/api/v1/me").good();
    assert_eq!(me["name"], "issuer:corp/ada");
    assert_eq!(me["roles"], json!([{"role": "admin"}, {"role": "viewer"}]));
    ada.post("/api/v1/projects", &json!({"name": "p"})).good();
    assert_eq!(ada.post("/api/v1/renew", &Value::Null).status, 409, "not a session of ours");
    let weak = with(good.clone(), "realm", json!({"groups": "all"}));
    let weak = served.with_token(&es256(&weak));
    assert_eq!(weak.get("/api/v1/projects").status, 200);
    assert_eq!(weak.post("/api/v1/projects", &json!({"name": "q"})).status, 403);
    assert_eq!(issuer.asked.load(Ordering::Relaxed), 1, "keys are kept");

    let slightly_late = with(good.clone(), "exp", json!(seconds(-30)));
    assert_eq!(served.with_token(&es256(&slightly_late)).get("/api/v1/me").status, 200);
    let mut no_end = good.clone();
    no_end.as_object_mut().unwrap().remove("exp");
    let refused = [
        ("expired", es256(&with(good.clone(), "exp", json!(seconds(-120))))),
        ("not yet", es256(&with(good.clone(), "nbf", json!(seconds(120))))),
        ("without an end", es256(&no_end)),
        ("for another audience", es256(&with(good.clone(), "aud", json!("other")))),
        ("of another issuer", es256(&with(good.clone(), "iss", json!("https://evil.test")))),
        ("without a name", es256(&with(good.clone(), "sub", json!(7)))),
        ("an unknown key", signed(&issuer.key, Algorithm::ES256, Some("two"), &good)),
        ("signed with the public key as a secret", {
            let key = EncodingKey::from_secret(&issuer.public);
            signed(&key, Algorithm::HS256, Some("one"), &good)
        }),
        ("signed by another key", {
            let pair = rcgen::KeyPair::generate().unwrap();
            let key = EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).unwrap();
            signed(&key, Algorithm::ES256, Some("one"), &good)
        }),
    ];
    for (what, token) in refused {
        assert_eq!(served.with_token(&token).get("/api/v1/me").status, 401, "{what}");
    }
    assert_eq!(
        issuer.asked.load(Ordering::Relaxed),
        1,
        "anonymous clients cannot trigger another fetch"
    );
}

#[test]
fn a_jwt_account_adds_roles_and_can_be_disabled() {
    let issuer = start_issuer();
    let served = serve(IssuerSettings { roles: Vec::new(), ..settings(&issuer.url) });
    let token = signed(&issuer.key, Algorithm::ES256, Some("one"), &claims(&issuer.url));
    let ada = served.with_token(&token);
    assert_eq!(ada.get("/api/v1/me").good()["roles"], json!([]));
    let made = served.admin.post("/api/v1/users", &json!({"name": "ada", "issuer": "corp"}));
    let id = made.good()["id"].as_str().unwrap().to_owned();
    let role = json!({"user": "ada", "role": "operator"});
    served.admin.post("/api/v1/role-assignments", &role).good();
    assert_eq!(ada.get("/api/v1/me").good()["roles"], json!([{"role": "operator"}]));
    let login = json!({"name": "ada", "password": "-"});
    assert_eq!(served.anonymous().post("/api/v1/login", &login).status, 401);
    served.admin.patch(&format!("/api/v1/users/{id}"), &json!({"disabled": true})).good();
    assert_eq!(ada.get("/api/v1/me").status, 401);
    // A local account of the same name is another user.
    let admin = with(claims(&issuer.url), "sub", json!("admin"));
    let token = signed(&issuer.key, Algorithm::ES256, Some("one"), &admin);
    assert_eq!(served.with_token(&token).get("/api/v1/me").good()["roles"], json!([]));
}

#[test]
fn a_shared_key_is_for_one_algorithm_only() {
    let secret = "0123456789abcdef0123456789abcdef";
    let shared_key = Some(SecretText::new(secret));
    let served = serve(IssuerSettings { shared_key, ..settings("https://corp.test") });
    let key = EncodingKey::from_secret(secret.as_bytes());
    let status = |algorithm| {
        let token = signed(&key, algorithm, None, &claims("https://corp.test"));
        served.with_token(&token).get("/api/v1/me").status
    };
    assert_eq!(status(Algorithm::HS256), 200);
    assert_eq!(status(Algorithm::HS512), 401);
}

#[test]
fn unsafe_issuer_settings_are_refused() {
    let good = settings("https://corp.test");
    good.check().unwrap();
    let refused = [
        IssuerSettings { algorithms: vec!["HS256".to_owned()], ..good.clone() },
        IssuerSettings { algorithms: vec!["none".to_owned()], ..good.clone() },
        IssuerSettings { jwks_uri: Some("http://corp.test/keys".to_owned()), ..good.clone() },
        IssuerSettings { issuer: "http://127.0.0.1.evil.test".to_owned(), ..good.clone() },
        IssuerSettings { shared_key: Some(SecretText::new("short")), ..good.clone() },
        IssuerSettings { name: "a/b".to_owned(), ..good.clone() },
    ];
    for settings in refused {
        assert!(settings.check().is_err(), "{settings:?}");
    }
    let down = serve(settings("http://127.0.0.1:1"));
    let token = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJodHRwOi8vMTI3LjAuMC4xOjEifQ.AAAA";
    assert_eq!(down.with_token(token).get("/api/v1/me").status, 503);
}
