//! Every route with every kind of insufficient credential. The cases come from the table of routes,
//! so that a new route is tested automatically.

use std::collections::{BTreeMap, BTreeSet};

use orrery_inmanta_api::is_inmanta_path;
use orrery_model::{AccountId, Duration, EnvironmentId, ProjectId, SecretText, Timestamp};
use orrery_server::{RouteAccess, ServerSettings, document};
use orrery_store::{
    NewAccount, NewEnvironmentRecord, RoleScope, SessionRecord, Store, TokenRecord,
};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::all_routes;
use crate::support::{Client, Served};

const PROJECT: ProjectId = ProjectId::from_bytes([1; 16]);
const ENVIRONMENT: EnvironmentId = EnvironmentId::from_bytes([2; 16]);
const FOREIGN_PROJECT: ProjectId = ProjectId::from_bytes([3; 16]);
const FOREIGN_ENVIRONMENT: EnvironmentId = EnvironmentId::from_bytes([4; 16]);

const ROLES: [&str; 4] = ["viewer", "operator", "developer", "admin"];

/// Accounts with known credentials, written directly into the store.
struct Fixtures {
    store: Store,
    now: Timestamp,
    made: u8,
}

impl Fixtures {
    fn account(&mut self, roles: &[(RoleScope, &str)]) -> AccountId {
        self.made += 1;
        let (uuid, name) =
            (AccountId::from_bytes([100 + self.made; 16]), format!("user{}", self.made));
        let new = NewAccount { uuid, name: &name, password: Some("-"), issuer: None, admin: false };
        self.store.accounts().create(&new, self.now).unwrap();
        for (scope, role) in roles {
            self.store.accounts().assign_role(uuid, *scope, role, self.now).unwrap();
        }
        uuid
    }

    fn session(&mut self, account: AccountId, expires: Timestamp) -> String {
        let secret = format!("ors_{}", self.made);
        let created = Timestamp(0);
        let session = SessionRecord { account, created, expires };
        self.store.accounts().create_session(&hash(&secret), &session, None).unwrap();
        secret
    }

    /// Creates a session of an account with exactly these roles.
    fn with_roles(&mut self, roles: &[(RoleScope, &str)]) -> SecretText {
        let account = self.account(roles);
        SecretText::new(self.session(account, self.now + Duration::from_secs(3600)))
    }

    fn token(&mut self, scope: RoleScope, change: impl FnOnce(&mut TokenRecord)) -> SecretText {
        let account = self.account(&[(RoleScope::Everywhere, "admin")]);
        let mut token = TokenRecord {
            uuid: account.uuid().into(),
            name: "t".to_owned(),
            account,
            scope,
            grants: json!({"role": "admin"}),
            created: self.now,
            expires: None,
            revoked: None,
            last_used: None,
        };
        change(&mut token);
        let secret = format!("orr_{}", self.made);
        self.store.tokens().create(&hash(&secret), &token).unwrap();
        if token.revoked.is_some() {
            self.store.tokens().revoke(token.uuid, self.now).unwrap();
        }
        SecretText::new(secret)
    }
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

fn prepare() -> (Served, Fixtures) {
    let store = Store::in_memory().unwrap();
    let served = Served::with(store.clone(), ServerSettings::default());
    let now = served.app.now();
    for (project, environment) in [(PROJECT, ENVIRONMENT), (FOREIGN_PROJECT, FOREIGN_ENVIRONMENT)] {
        let name = format!("p{}", project.into_bytes()[0]);
        store.projects().create(project, &name, "", now).unwrap();
        let new = NewEnvironmentRecord {
            uuid: environment,
            project,
            name: "e",
            description: "",
            icon: "",
            repository: "",
            branch: "",
        };
        store.environments().add(&new, now).unwrap();
    }
    (served, Fixtures { store, now, made: 0 })
}

/// Fills a path with existing ids, and any text elsewhere.
fn filled(path: &str) -> String {
    let part = |part: &str| match part {
        "{project}" => PROJECT.to_string(),
        "{environment}" | "{tid}" | "{env}" => ENVIRONMENT.to_string(),
        "{version}" | "{number}" => "1".to_owned(),
        other if other.starts_with('{') => Uuid::from_bytes([9; 16]).to_string(),
        other => other.to_owned(),
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

fn call(client: &Client, route: &RouteAccess) -> u16 {
    let body = json!({});
    let body = (!matches!(route.method, "GET" | "HEAD" | "DELETE")).then_some(&body);
    let environment = ENVIRONMENT.to_string();
    let headers: &[(&str, &str)] = match route.place {
        "header" => &[("x-inmanta-tid", &environment)],
        _ => &[],
    };
    client.send(route.method, &filled(route.path), headers, body).status
}

#[test]
fn no_route_admits_an_unauthenticated_caller() {
    let (served, mut prepared) = prepare();
    let ended = prepared.account(&[(RoleScope::Everywhere, "admin")]);
    let ended = prepared.session(ended, prepared.now - Duration::from_secs(1));
    let disabled = prepared.account(&[(RoleScope::Everywhere, "admin")]);
    let of_disabled = prepared.session(disabled, prepared.now + Duration::from_secs(3600));
    let store = &prepared.store;
    store.accounts().update(disabled, None, None, Some(true), prepared.now).unwrap();
    let past = prepared.now - Duration::from_secs(1);
    let expired = prepared.token(RoleScope::Everywhere, |token| token.expires = Some(past));
    let revoked = prepared.token(RoleScope::Everywhere, |token| token.revoked = Some(past));
    let unsigned = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiIsImV4cCI6OTk5OTk5OTk5OX0.";
    let shown: [(&str, Option<&str>); 10] = [
        ("nothing", None),
        ("garbage", Some("garbage")),
        ("empty", Some("")),
        ("unknown session", Some("ors_unknown")),
        ("unknown token", Some("orr_unknown")),
        ("unsigned", Some(unsigned)),
        ("ended session", Some(&ended)),
        ("session of a disabled account", Some(&of_disabled)),
        ("expired token", Some(expired.expose())),
        ("revoked token", Some(revoked.expose())),
    ];
    for route in all_routes().filter(|route| route.place != "everybody") {
        for (what, secret) in shown {
            let client = secret.map_or(served.anonymous(), |secret| served.with_token(secret));
            let status = call(&client, &route);
            assert_eq!(status, 401, "{} {} with {what}", route.method, route.path);
        }
    }
}

#[test]
fn no_route_admits_too_weak_a_role_or_another_scope() {
    let (served, mut prepared) = prepare();
    let here = |place: &str| match place {
        "server" => RoleScope::Everywhere,
        "project" => RoleScope::Project(PROJECT),
        _ => RoleScope::Environment(ENVIRONMENT),
    };
    // An id alone is not a scope: an environment may have the id of a project.
    let elsewhere = |place: &str| match place {
        "server" => vec![RoleScope::Project(PROJECT), RoleScope::Environment(ENVIRONMENT)],
        "project" => vec![
            RoleScope::Project(FOREIGN_PROJECT),
            RoleScope::Environment(ENVIRONMENT),
            RoleScope::Environment(PROJECT.uuid().into()),
        ],
        _ => vec![
            RoleScope::Project(FOREIGN_PROJECT),
            RoleScope::Environment(FOREIGN_ENVIRONMENT),
            RoleScope::Project(ENVIRONMENT.uuid().into()),
        ],
    };
    for place in ["server", "project", "environment", "header"] {
        let mut credentials = Vec::new();
        for (rank, role) in ROLES.into_iter().enumerate() {
            let secret = prepared.with_roles(&[(here(place), role)]);
            credentials.push((format!("{role} there"), Some(rank), secret));
            let secret = prepared.token(here(place), |token| token.grants = json!({"role": role}));
            credentials.push((format!("token of {role} there"), Some(rank), secret));
        }
        credentials.push(("no role".to_owned(), None, prepared.with_roles(&[])));
        let strange = prepared.with_roles(&[(here(place), "emperor")]);
        credentials.push(("a role that does not exist".to_owned(), None, strange));
        for scope in elsewhere(place) {
            let secret = prepared.with_roles(&[(scope, "admin")]);
            credentials.push((format!("admin of {scope:?}"), None, secret));
            let secret = prepared.token(scope, |_| ());
            credentials.push((format!("token for {scope:?}"), None, secret));
        }
        let other_verb = |token: &mut TokenRecord| {
            token.grants = json!({"role": "admin", "verbs": ["TRACE"]});
        };
        credentials.push((
            "token for another verb".to_owned(),
            None,
            prepared.token(RoleScope::Everywhere, other_verb),
        ));
        for route in all_routes().filter(|route| route.place == place) {
            let needed = ROLES.iter().position(|role| Some(*role) == route.role).unwrap();
            for (what, rank, secret) in &credentials {
                if rank.is_some_and(|rank| rank >= needed) {
                    continue;
                }
                let status = call(&served.with_token(secret.expose()), &route);
                assert_eq!(status, 403, "{} {} as {what}", route.method, route.path);
            }
        }
    }
}

#[test]
fn sufficient_rights_are_admitted() {
    let (served, mut prepared) = prepare();
    let mut known: BTreeMap<(&str, &str), SecretText> = BTreeMap::new();
    for route in
        all_routes().filter(|route| route.method == "GET" && !route.path.contains("events"))
    {
        let scope = match route.place {
            "project" => RoleScope::Project(PROJECT),
            "environment" | "header" => RoleScope::Environment(ENVIRONMENT),
            _ => RoleScope::Everywhere,
        };
        let role = route.role.unwrap_or("viewer");
        let secret = known
            .entry((route.place, role))
            .or_insert_with(|| prepared.with_roles(&[(scope, role)]));
        let status = call(&served.with_token(secret.expose()), &route);
        let (method, path) = (route.method, route.path);
        assert!(!matches!(status, 401 | 403 | 500..), "{method} {path}: {status}");
    }
}

#[test]
fn the_table_and_the_document_have_the_same_routes() {
    let document = document();
    let mut described = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            described.insert((method.to_uppercase(), path.clone()));
        }
    }
    let listed: BTreeSet<(String, String)> =
        all_routes().map(|route| (route.method.to_owned(), route.path.to_owned())).collect();
    let missing: Vec<_> = described.difference(&listed).collect();
    assert!(missing.is_empty(), "described, but not in the table: {missing:?}");
    // Not part of the API: its documentation.
    let own = ["/api/v1/openapi.json", "/api/v1/docs"];
    let more: Vec<_> = listed
        .difference(&described)
        .filter(|(_, path)| path.starts_with("/api/v1") && !own.contains(&path.as_str()))
        .filter(|(_, path)| !is_inmanta_path(path))
        .collect();
    assert!(more.is_empty(), "in the table, but not described: {more:?}");
}
