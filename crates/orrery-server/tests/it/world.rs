//! Test support: a server with one project and one environment, on either database.

use orrery_model::{
    Change, ChangeKind, LastRunStatus, LogLine, OutcomeStatus, ResourceState, Timestamp,
    VersionNumber,
};
use orrery_server::{MasterKey, ServerSettings};
use orrery_store::{
    ActionKind, ActionRecord, EnvironmentKey, Holder, Lease, LeaseRequest, ResultRecord,
    StateRecord, Store,
};
use orrery_testing::{Postgres, TestDatabase};
use serde_json::{Value, json};

use crate::support::{Answer, Client, Served};

/// Runs each test case on both databases.
macro_rules! on_both {
    ($($case:ident),+ $(,)?) => {
        mod sqlite {
            $(#[test] fn $case() { super::$case(crate::world::World::sqlite()); })+
        }
        mod postgres {
            $(#[test] fn $case() { super::$case(crate::world::World::postgres()); })+
        }
    };
}
pub(crate) use on_both;

/// A server with one project and one environment.
pub(crate) struct World {
    pub(crate) served: Served,
    pub(crate) project: String,
    /// Id of the environment.
    pub(crate) id: String,
    pub(crate) database: Option<TestDatabase>,
    /// Directory of the master key.
    _keys: tempfile::TempDir,
}

impl World {
    pub(crate) fn sqlite() -> Self {
        Self::on(Store::in_memory().unwrap(), None)
    }

    pub(crate) fn postgres() -> Self {
        Self::postgres_after(|_| {})
    }

    /// As `postgres`, with a change of the database before the server starts.
    pub(crate) fn postgres_after(prepare: impl FnOnce(&TestDatabase)) -> Self {
        let database = Postgres::shared().database();
        let holder = Holder::this_process("test", Timestamp(1));
        let store = Store::connect(&database.url(), &holder).unwrap();
        prepare(&database);
        Self::on(store, Some(database))
    }

    fn on(store: Store, database: Option<TestDatabase>) -> Self {
        let keys = tempfile::tempdir().unwrap();
        let master_key = MasterKey::Generated(keys.path().join("secret.key"));
        let settings = ServerSettings { master_key, ..ServerSettings::default() };
        let served = Served::with(store, settings);
        let project = served.admin.post("/api/v1/projects", &json!({"name": "p"})).good();
        let project = project["id"].as_str().unwrap().to_owned();
        let repository = "https://git.example.org/model.git";
        let new = json!({"project": project, "name": "e", "repository": repository});
        let made = served.admin.post("/api/v1/environments", &new).good();
        let id = made["id"].as_str().unwrap().to_owned();
        // Most tests push versions.
        let allow = format!("/api/v1/environments/{id}/settings/allow_push");
        served.admin.put(&allow, &json!({"value": true})).good();
        World { served, project, id, database, _keys: keys }
    }

    pub(crate) fn admin(&self) -> &Client {
        &self.served.admin
    }

    /// Returns a path below that of the environment.
    pub(crate) fn at(&self, path: &str) -> String {
        format!("/api/v1/environments/{}{path}", self.id)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.admin().get(&self.at(path))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.admin().post(&self.at(path), body)
    }

    /// Sends a POST request without a body.
    pub(crate) fn post_empty(&self, path: &str) -> Answer {
        self.admin().send("POST", &self.at(path), &[], None)
    }

    pub(crate) fn put(&self, path: &str, body: &Value) -> Answer {
        self.admin().put(&self.at(path), body)
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.admin().delete(&self.at(path))
    }

    pub(crate) fn store(&self) -> &Store {
        self.served.app.store()
    }

    pub(crate) fn key(&self) -> EnvironmentKey {
        let id: uuid::Uuid = self.id.parse().unwrap();
        self.store().environments().get(id.into()).unwrap().key
    }

    /// Stores a full version of resources, each as `[name, value]`, and returns its number.
    pub(crate) fn upload(&self, resources: &[(&str, i64)]) -> u32 {
        let resources: Vec<Value> =
            resources.iter().map(|(name, value)| resource(name, *value)).collect();
        let stored = self.post("/versions", &json!({"resources": resources})).good();
        u32::try_from(stored["number"].as_u64().unwrap()).unwrap()
    }

    pub(crate) fn lease(&self) -> Lease {
        let holder = Holder::this_process("test", Timestamp(1));
        let now = self.served.app.now();
        let expires = Some(now + std::time::Duration::from_secs(600));
        let request = LeaseRequest { holder, now, expires };
        self.store().leases().acquire(self.key(), &request).unwrap()
    }

    /// Acts as an engine: processes a version, and records an outcome for each resource.
    pub(crate) fn deploy(&self, lease: &Lease, version: u32, outcomes: &[(&str, OutcomeStatus)]) {
        let store = self.store();
        let number = VersionNumber(version);
        let mut states = Vec::new();
        store
            .versions()
            .read(self.key(), number, &mut |row| {
                states.push((
                    row.id.to_owned(),
                    row.key,
                    ResourceState::new(row.hash, row.flags.undefined),
                ));
            })
            .unwrap();
        let given: Vec<StateRecord<'_>> =
            states.iter().map(|(_, key, state)| StateRecord { resource: *key, state }).collect();
        store.engine().process_version(lease, number, &given).unwrap();
        let now = self.served.app.now();
        for (name, outcome) in outcomes {
            let id = id_of(name);
            let (_, key, state) = states.iter().find(|(own, ..)| *own == id).unwrap();
            let state = ResourceState {
                last_run: LastRunStatus::from(*outcome),
                last_run_compliant: Some(*outcome == OutcomeStatus::Deployed),
                last_outcome: Some(*outcome),
                last_run_at: Some(now),
                last_deployed: state.intent,
                ..state.clone()
            };
            let change = Change { kind: ChangeKind::Updated, attributes: Vec::new() };
            let log: Vec<LogLine> = serde_json::from_value(json!([
                {"at": now.0, "level": "info", "message": format!("looking at {name}")},
                {"at": now.0, "level": "error", "message": format!("trouble with {name}"), "values": {"n": 1}},
            ]))
            .unwrap();
            let action = ActionRecord {
                wants_absence: false,
                kind: ActionKind::Deploy,
                version: number,
                started: now,
                finished: now,
                outcome: *outcome,
                change: &change,
                log: &log,
            };
            let record = ResultRecord {
                resource: *key,
                state: Some(&state),
                action: Some(action),
                facts: &[],
            };
            store.engine().record_results(lease, &[record]).unwrap();
        }
    }
}

/// Returns `t::R[agent,name=NAME]`; the agent can precede `NAME` with a slash.
pub(crate) fn id_of(name: &str) -> String {
    match name.split_once('/') {
        Some((agent, name)) => format!("t::R[{agent},name={name}]"),
        None => format!("t::R[agent,name={name}]"),
    }
}

pub(crate) fn resource(name: &str, value: i64) -> Value {
    json!({"id": id_of(name), "attributes": {"value": value}})
}

/// Returns the path of a resource below that of the environment.
pub(crate) fn path_of(name: &str) -> String {
    let id = id_of(name).replace('[', "%5B").replace(']', "%5D").replace(',', "%2C");
    format!("/resources/{}", id.replace('=', "%3D"))
}

/// Returns the ids, or names, of a page.
pub(crate) fn ids(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().unwrap().iter();
    items.map(|item| item["id"].as_str().or(item["name"].as_str()).unwrap().to_owned()).collect()
}

#[track_caller]
pub(crate) fn refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, answer.body["code"].as_str()), (status, Some(code)), "{answer:?}");
    assert_eq!(answer.headers["content-type"], "application/problem+json");
}
