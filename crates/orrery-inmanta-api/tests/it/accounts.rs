//! Accounts: the first one, logins, roles, tokens.

use orrery_server::{BootstrapState, ServerSettings, prepare_first_account};
use orrery_store::Store;
use serde_json::{Value, json};

use crate::support::{ADMIN_PASSWORD, Client, Served, blocking};

const PASSWORD: &str = "Staple-battery-2";

/// Creates a user and logs in.
fn user(served: &Served, name: &str) -> (Client, String) {
    let new = json!({"name": name, "password": PASSWORD});
    let made = served.admin.post("/api/v1/users", &new).good();
    (served.login(name, PASSWORD), made["id"].as_str().unwrap().to_owned())
}

fn project(served: &Served, name: &str) -> String {
    let made = served.admin.post("/api/v1/projects", &json!({"name": name})).good();
    made["id"].as_str().unwrap().to_owned()
}

fn give(served: &Served, place: &str, user: &str, role: &str) {
    let path = format!("/api/v1{place}/role-assignments");
    served.admin.post(&path, &json!({"user": user, "role": role})).good();
}

fn names(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

#[test]
fn the_bootstrap_link_works_once() {
    let store = Store::in_memory().unwrap();
    let served = Served::without_accounts(store, ServerSettings::default());
    let start = || blocking(prepare_first_account(&served.app, None)).unwrap();
    let BootstrapState::BootstrapToken(old) = start() else { panic!() };
    let BootstrapState::BootstrapToken(ticket) = start() else { panic!() };
    let nobody = served.anonymous();
    let set_up = |token: &str, password: &str| {
        let setup = json!({"token": token, "name": "ada", "password": password});
        nobody.post("/api/v1/setup", &setup)
    };
    let replaced = set_up(old.expose(), PASSWORD);
    assert_eq!(replaced.status, 401, "a newer start replaced it");
    assert!(replaced.text.contains("restart the server"), "{}", replaced.text);
    assert_eq!(set_up("oru_wrong", PASSWORD).body["detail"], replaced.body["detail"]);
    let store = served.app.store().clone();
    let kept = store.meta().get("setup ticket").unwrap().unwrap();
    let (hash, _) = kept.split_once(' ').unwrap();
    store.meta().put("setup ticket", &format!("{hash} 1")).unwrap();
    let expired = set_up(ticket.expose(), PASSWORD);
    assert_eq!(expired.status, 401);
    assert!(expired.text.contains("has expired"), "{}", expired.text);
    assert_eq!(set_up("oru_wrong", PASSWORD).body["detail"], replaced.body["detail"]);
    store.meta().put("setup ticket", &kept).unwrap();
    assert_eq!(set_up(ticket.expose(), "weak").status, 422, "and it is not used up by that");
    let made = set_up(ticket.expose(), PASSWORD).good();
    assert_eq!((&made["name"], &made["admin"]), (&json!("ada"), &json!(true)));
    let used = set_up(ticket.expose(), PASSWORD);
    assert_eq!(used.status, 401);
    assert!(used.text.contains("was used already"), "{}", used.text);
    // A stranger does not learn that there is an account now.
    assert_eq!(set_up(old.expose(), PASSWORD).body["detail"], replaced.body["detail"]);
    assert!(matches!(start(), BootstrapState::HasAccounts));
    let ada = served.login("ada", PASSWORD);
    assert_eq!(ada.get("/api/v1/me").good()["name"], "user:ada");
}

#[test]
fn wrong_names_and_wrong_passwords_look_the_same() {
    let served = Served::start();
    let login = |name: &str| {
        let login = json!({"name": name, "password": "Wrong-password-1"});
        served.anonymous().post("/api/v1/login", &login)
    };
    let (known, unknown) = (login("admin"), login("nobody"));
    assert_eq!(known.status, 401);
    assert_eq!((known.status, known.text), (unknown.status, unknown.text));
}

#[test]
fn guessing_is_slowed_down() {
    let served = Served::start();
    let login = |password: &str| {
        let login = json!({"name": "admin", "password": password});
        served.anonymous().post("/api/v1/login", &login)
    };
    let tries: Vec<u16> = (0..8).map(|_| login("Wrong-password-1").status).collect();
    assert_eq!(tries[..5], [401; 5]);
    assert_eq!(tries.last(), Some(&429));
    let refused = login(ADMIN_PASSWORD);
    assert_eq!(refused.status, 429, "even the right one has to wait");
    let wait: u64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=300).contains(&wait), "{refused:?}");
    let told = format!("try again in {wait} second");
    assert!(refused.body["detail"].as_str().unwrap().contains(&told), "{refused:?}");
}

/// Failed attempts with random names from an address lock out no other account there.
#[test]
fn failed_logins_of_others_lock_no_account_out() {
    let served = Served::start();
    let login = |name: &str, password: &str| {
        let login = json!({"name": name, "password": password});
        served.anonymous().post("/api/v1/login", &login).status
    };
    for n in 0..60 {
        login(&format!("made-up-{n}"), "Wrong-password-1");
    }
    let (known, _) = user(&served, "ada");
    drop(known);
    for n in 0..10 {
        login(&format!("another-{n}"), "Wrong-password-1");
        assert_eq!(login("admin", ADMIN_PASSWORD), 200);
        assert_eq!(login("ada", PASSWORD), 200);
    }
    // Further guesses have to wait.
    let guesses: Vec<u16> = (0..10).map(|_| login("made-up-1", "Wrong-password-2")).collect();
    assert!(guesses.contains(&429), "{guesses:?}");
}

/// A token neither sees nor revokes tokens with more groups, more methods or a later expiry.
#[test]
fn a_token_reaches_no_stronger_token() {
    let served = Served::start();
    let make = |new: Value| {
        let made = served.admin.post("/api/v1/tokens", &new).good();
        let path = format!("/api/v1/tokens/{}", made["token"]["id"].as_str().unwrap());
        (served.with_token(made["secret"].as_str().unwrap()), path)
    };
    let own = json!({"role": "admin", "groups": ["tokens"], "verbs": ["GET", "DELETE"], "days": 2});
    let with = |name: &str, field: &str, value: Value| {
        let mut new = own.clone();
        new["name"] = json!(name);
        new[field] = value;
        make(new)
    };
    let (weak, _) = with("weak", "days", json!(2));
    let wider = [
        with("groups", "groups", json!(["tokens", "users"])).1,
        with("all-groups", "groups", Value::Null).1,
        with("verbs", "verbs", json!(["GET", "DELETE", "POST"])).1,
        with("all-verbs", "verbs", Value::Null).1,
        with("longer", "days", json!(3)).1,
        with("for-ever", "days", json!(0)).1,
    ];
    let (_, shorter) = with("shorter", "days", json!(1));
    let narrower =
        json!({"name": "narrower", "role": "viewer", "groups": [], "verbs": ["GET"], "days": 1});
    let (_, narrower) = make(narrower);
    assert_eq!(names(&weak.get("/api/v1/tokens").good()), ["narrower", "shorter", "weak"]);
    for path in &wider {
        assert_eq!(weak.delete(path).status, 404, "{path}");
    }
    for path in [narrower, shorter] {
        assert_eq!(weak.delete(&path).status, 204, "{path}");
    }
}

/// A token creates nothing that outlives or exceeds it, and neither sees nor revokes stronger
/// tokens.
#[test]
fn a_token_reaches_nothing_beyond_itself() {
    let served = Served::start();
    let mine = project(&served, "mine");
    let make = |new: Value| {
        let made = served.admin.post("/api/v1/tokens", &new).good();
        let path = format!("/api/v1/tokens/{}", made["token"]["id"].as_str().unwrap());
        (served.with_token(made["secret"].as_str().unwrap()), path)
    };
    let (production, its_path) = make(json!({"name": "production", "role": "admin"}));
    let (_, other_path) = make(json!({"name": "other", "role": "operator", "project": mine}));
    let (weak, _) = make(json!({"name": "weak", "role": "viewer", "project": mine}));
    assert_eq!(names(&weak.get("/api/v1/tokens").good()), ["weak"]);
    for path in [&its_path, &other_path] {
        assert_eq!(weak.delete(path).status, 404, "{path}");
    }
    assert_eq!(production.get("/api/v1/me").status, 200, "it is not revoked");
    // Even the strongest token creates no accounts and no roles: they would outlive its revocation.
    let (ada, id) = user(&served, "ada");
    let limited = json!({"name": "users", "role": "admin", "groups": ["users"], "days": 1});
    for token in [&production, &make(limited).0] {
        let new = json!({"name": "eve", "password": PASSWORD, "admin": true});
        assert_eq!(token.post("/api/v1/users", &new).status, 403);
        let path = format!("/api/v1/users/{id}");
        assert_eq!(token.patch(&path, &json!({"admin": true})).status, 403);
    }
    let role = json!({"user": "ada", "role": "admin"});
    for place in ["", &format!("/projects/{mine}")] {
        let path = format!("/api/v1{place}/role-assignments");
        assert_eq!(production.post(&path, &role).status, 403, "{path}");
    }
    let classic = json!({"username": "eve", "password": PASSWORD});
    assert_eq!(production.post("/api/v2/user", &classic).status, 403);
    let admin = json!({"username": "ada", "is_admin": true});
    assert_eq!(production.patch("/api/v2/is_admin", &admin).status, 403);
    assert_eq!(ada.get("/api/v1/users").status, 403);
    // It may remove rights.
    let path = format!("/api/v1/users/{id}");
    assert_eq!(production.patch(&path, &json!({"disabled": true})).status, 200);
    let odd = json!({"name": "two\nlines", "role": "viewer"});
    assert_eq!(served.admin.post("/api/v1/tokens", &odd).status, 422);
}

#[test]
fn sessions_are_renewed_and_ended() {
    let served = Served::start();
    let (ada, _) = user(&served, "ada");
    assert_eq!(ada.get("/api/v1/me").good()["roles"], json!([]));
    give(&served, "", "ada", "viewer");
    let renewed = ada.post("/api/v1/renew", &Value::Null).good();
    assert_eq!(renewed["user"]["roles"], json!([{"role": "viewer"}]));
    assert_eq!(ada.get("/api/v1/me").status, 401, "the old one is replaced");
    let ada = served.with_token(renewed["token"].as_str().unwrap());
    assert_eq!(ada.post("/api/v1/logout", &Value::Null).status, 204);
    assert_eq!(ada.get("/api/v1/me").status, 401);
}

#[test]
fn session_cookies_resist_cross_site_requests() {
    let served = Served::start();
    let login = json!({"name": "admin", "password": ADMIN_PASSWORD, "cookie": true});
    let answer = served.anonymous().post("/api/v1/login", &login);
    assert_eq!(answer.body.get("token"), None);
    let set = answer.headers["set-cookie"].to_str().unwrap();
    for part in ["orrery=ors_", "; HttpOnly", "; SameSite=Strict", "; Path=/"] {
        assert!(set.contains(part), "{set}");
    }
    let cookie = set.split(';').next().unwrap();
    let call = |method: &str, more: &[(&str, &str)]| {
        let headers = [&[("cookie", cookie)], more].concat();
        let path = if method == "GET" { "/api/v1/me" } else { "/api/v1/projects" };
        let new = json!({"name": format!("p{}", more.len())});
        served.anonymous().send(method, path, &headers, (method != "GET").then_some(&new)).status
    };
    assert_eq!(call("GET", &[]), 200);
    assert_eq!(call("POST", &[]), 403);
    assert_eq!(call("POST", &[("sec-fetch-site", "cross-site")]), 403);
    assert_eq!(call("POST", &[("sec-fetch-site", "same-origin")]), 201);
    assert_eq!(call("POST", &[("x-orrery-client", "console"), ("x-more", "1")]), 201);
}

#[test]
fn roles_apply_in_their_scope_and_end_at_once() {
    let served = Served::start();
    let (mine, other) = (project(&served, "mine"), project(&served, "other"));
    let (ada, ada_id) = user(&served, "ada");
    let rename = |project: &str| {
        let path = format!("/api/v1/projects/{project}");
        ada.patch(&path, &json!({"description": "changed"})).status
    };
    assert_eq!(ada.get("/api/v1/projects").good()["items"], json!([]));
    assert_eq!(rename(&mine), 403);
    give(&served, &format!("/projects/{mine}"), "ada", "developer");
    assert_eq!(names(&ada.get("/api/v1/projects").good()), ["mine"]);
    assert_eq!(rename(&mine), 403);
    give(&served, &format!("/projects/{mine}"), "ada", "admin");
    assert_eq!(rename(&mine), 200);
    assert_eq!(rename(&other), 403);
    // An administrator of a project assigns roles in it only.
    user(&served, "bob");
    let assign = |place: &str| {
        let path = format!("/api/v1{place}/role-assignments");
        ada.post(&path, &json!({"user": "bob", "role": "viewer"})).status
    };
    assert_eq!(assign(&format!("/projects/{mine}")), 201);
    assert_eq!(assign(&format!("/projects/{other}")), 403);
    assert_eq!(assign(""), 403);
    let path = format!("/api/v1/projects/{mine}/role-assignments/{ada_id}/admin");
    assert_eq!(served.admin.delete(&path).status, 204);
    assert_eq!(rename(&mine), 403, "from the next request on");
}

#[test]
fn a_token_can_do_no_more_than_it_says_nor_than_its_owner() {
    let served = Served::start();
    let (mine, other) = (project(&served, "mine"), project(&served, "other"));
    let make = |new: Value| {
        let made = served.admin.post("/api/v1/tokens", &new).good();
        (served.with_token(made["secret"].as_str().unwrap()), made["token"]["id"].clone())
    };
    let describe = |client: &Client, project: &str| {
        let path = format!("/api/v1/projects/{project}");
        client.patch(&path, &json!({"description": "x"})).status
    };
    let (ci, id) = make(json!({"name": "ci", "role": "admin", "project": mine}));
    assert_eq!(describe(&ci, &mine), 200);
    assert_eq!(describe(&ci, &other), 403);
    assert_eq!(names(&ci.get("/api/v1/projects").good()), ["mine"]);
    assert_eq!(ci.get("/api/v1/users").status, 403);
    let new = json!({"name": "more", "role": "admin"});
    assert_eq!(ci.post("/api/v1/tokens", &new).status, 403, "a token makes no tokens");
    assert_eq!(ci.post("/api/v1/renew", &Value::Null).status, 409);

    let (weak, _) = make(json!({"name": "weak", "role": "viewer"}));
    assert_eq!(weak.get(&format!("/api/v1/projects/{mine}")).status, 200);
    assert_eq!(describe(&weak, &mine), 403);
    let (reader, _) = make(json!({"name": "reader", "role": "admin", "verbs": ["GET"]}));
    assert_eq!(describe(&reader, &mine), 403);
    let (users, _) = make(json!({"name": "users", "role": "admin", "groups": ["users"]}));
    assert_eq!(users.get("/api/v1/users").status, 200);
    assert_eq!(users.get("/api/v1/projects").status, 403);

    let path = format!("/api/v1/tokens/{}", id.as_str().unwrap());
    assert_eq!(served.admin.delete(&path).status, 204);
    assert_eq!(describe(&ci, &mine), 401, "revoked at once");

    let listed = served.admin.get("/api/v1/tokens").good();
    assert_eq!(names(&listed), ["users", "reader", "weak", "ci"]);
    assert!(!listed.to_string().contains("orr_"), "secrets are told once");
    // A caller without rights gains none by creating a token.
    let (ada, _) = user(&served, "ada");
    let made = ada.post("/api/v1/tokens", &json!({"name": "t", "role": "admin"})).good();
    let hers = served.with_token(made["secret"].as_str().unwrap());
    assert_eq!(describe(&hers, &mine), 403);
    assert_eq!(ada.delete(&path).status, 404, "others' tokens are not hers");
}

#[test]
fn a_revocation_applies_on_all_servers() {
    let store: Store = Store::in_memory().unwrap();
    let one = Served::with(store.clone(), ServerSettings::default());
    let made = one.admin.post("/api/v1/tokens", &json!({"name": "ci", "role": "admin"})).good();
    let secret = made["secret"].as_str().unwrap();
    let path = format!("/api/v1/tokens/{}", made["token"]["id"].as_str().unwrap());
    let other = Served::without_accounts(store, ServerSettings::default());
    let (here, there) = (one.with_token(secret), other.with_token(secret));
    let new = |name: &str| json!({"name": name});
    for _ in 0..3 {
        assert_eq!(here.get("/api/v1/projects").status, 200);
        assert_eq!(there.get("/api/v1/projects").status, 200);
    }
    assert_eq!(one.admin.delete(&path).status, 204);
    assert_eq!(here.get("/api/v1/projects").status, 401, "at once where it was revoked");
    assert_eq!(there.post("/api/v1/projects", &new("p")).status, 401, "and for changes everywhere");
    let began = std::time::Instant::now();
    while there.get("/api/v1/projects").status != 401 {
        assert!(began.elapsed().as_secs() < 10, "reads go on elsewhere");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn password_changes_need_the_current_password() {
    let served = Served::start();
    let (ada, id) = user(&served, "ada");
    let elsewhere = served.login("ada", PASSWORD);
    let path = format!("/api/v1/users/{id}/password");
    let another = "Another-password-3";
    assert_eq!(ada.put(&path, &json!({"password": another})).status, 422);
    let wrong = json!({"password": another, "current": "Not-the-current-1"});
    assert_eq!(ada.put(&path, &wrong).status, 422);
    let right = json!({"password": another, "current": PASSWORD});
    assert_eq!(ada.put(&path, &right).status, 204);
    assert_eq!(ada.get("/api/v1/me").status, 200, "this session goes on");
    assert_eq!(elsewhere.get("/api/v1/me").status, 401, "the others end");
    served.login("ada", another);
    // Only an administrator can change it without the current password.
    let (bob, _) = user(&served, "bob");
    assert_eq!(bob.put(&path, &json!({"password": PASSWORD})).status, 403);
    assert_eq!(served.admin.put(&path, &json!({"password": PASSWORD})).status, 204);
    served.login("ada", PASSWORD);
}

#[test]
fn a_disabled_user_is_logged_out_and_the_last_administrator_stays() {
    let served = Served::start();
    let (ada, id) = user(&served, "ada");
    let made = ada.post("/api/v1/tokens", &json!({"name": "t", "role": "viewer"})).good();
    let token = served.with_token(made["secret"].as_str().unwrap());
    assert_eq!(token.get("/api/v1/me").status, 200);
    let path = format!("/api/v1/users/{id}");
    served.admin.patch(&path, &json!({"disabled": true})).good();
    assert_eq!(ada.get("/api/v1/me").status, 401);
    assert_eq!(token.get("/api/v1/me").status, 401);
    let login = json!({"name": "ada", "password": PASSWORD});
    assert_eq!(served.anonymous().post("/api/v1/login", &login).status, 401);

    let me = served.admin.get("/api/v1/me").good();
    let own = format!("/api/v1/users/{}", me["id"].as_str().unwrap());
    for change in [json!({"disabled": true}), json!({"admin": false})] {
        assert_eq!(served.admin.patch(&own, &change).status, 409);
    }
    assert_eq!(served.admin.delete(&own).status, 409);
    served.admin.patch(&path, &json!({"admin": true, "disabled": false})).good();
    assert_eq!(served.admin.delete(&own).status, 204);
    assert_eq!(served.admin.get("/api/v1/me").status, 401);
}
