//! Engines of environments: failed starts, and the selection of requests.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use orrery_model::{Attributes, Pattern, Resource, ResourceId, Status};
use orrery_server::{ProcessOptions, ProcessRole, ServerSettings, ServerState};
use orrery_store::{
    ActionKind, EnvironmentKey, Holder, LeaseRequest, NewRequest, NewVersion, PutScope,
    RequestKind, ResourceQuery, Store, UndefinedParameter,
};
use serde_json::{Value, json};

/// Timeout of a condition, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct World {
    app: ServerState,
    key: EnvironmentKey,
    _role: ProcessRole,
    _data: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let store: Store = Store::in_memory().unwrap();
        let key = store.environments().ensure_default().unwrap();
        let data = tempfile::tempdir().unwrap();
        let options = ProcessOptions {
            data: data.path().to_owned(),
            workers: orrery_executor::WorkerLimits::starting_at(4),
            lease: None,
            host_memory: None,
            isolation: orrery_server::Isolation::Shared,
            own_machine: orrery_server::OwnMachineOptions::shared(),
        };
        let app = ServerState::new(store, ServerSettings::default());
        let role = ProcessRole::start(app.clone(), options).unwrap();
        World { app, key, _role: role, _data: data }
    }

    fn store(&self) -> &Store {
        self.app.store()
    }

    fn put(&self, resources: &[Resource], info: &Value) {
        self.put_with(resources, info, &[]);
    }

    fn put_with(&self, resources: &[Resource], info: &Value, unknowns: &[UndefinedParameter]) {
        let version = NewVersion {
            number: None,
            base: None,
            made_at: self.app.now(),
            info,
            scope: PutScope::All,
            resources,
            unknowns,
            released: true,
            only_if_changed: false,
            lease: None,
            project: None,
        };
        self.store().versions().put(self.key, &version).unwrap();
        self.app.wake_up();
    }

    fn status(&self, resource: &Resource) -> Option<Status> {
        let found = self.store().resources().find(self.key, resource.id.as_str()).unwrap();
        found.map(|found| found.status)
    }

    fn runs(&self, resource: &Resource) -> usize {
        self.store().actions().of_resource(self.key, resource.id.as_str(), None, 50).unwrap().len()
    }

    fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < until, "this never came: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn repair(&self, payload: &Value) {
        let uuid = uuid::Uuid::new_v4().into();
        let kind = &RequestKind::from_stored("repair", payload.clone());
        let store = self.store();
        store.requests().add(self.key, &NewRequest { uuid, kind }, self.app.now()).unwrap();
        self.app.wake_up();
        self.until("the repair is done", |world| {
            world.store().requests().get(uuid).unwrap().finished.is_some()
        });
    }
}

fn scripted(agent: &str, name: &str, attributes: &str) -> Resource {
    let id = ResourceId::new("std::testing::ScriptedResource", agent, "name", name).unwrap();
    Resource::new(id, Attributes::parse(attributes).unwrap(), Vec::new())
}

/// A failed start releases the lease, so that another process can try. The next version is applied
/// normally.
#[test]
fn an_engine_that_cannot_start_releases_the_lease_and_starts_later() {
    let world = World::new();
    let (a, b) = (scripted("x", "a", "{}"), scripted("y", "b", "{}"));
    // A code set that does not exist.
    world
        .put(&[a.clone(), b.clone()], &json!({"code": "0123456789012345678901234567890123456789"}));
    let mut own = 0;
    world.until("a failed start released the lease", |world| {
        let now = world.app.now();
        let request =
            LeaseRequest { holder: Holder::this_process("test", now), now, expires: None };
        let Ok(lease) = world.store().leases().acquire(world.key, &request) else { return false };
        world.store().leases().release(&lease).unwrap();
        own += 1;
        // Every lease has its own epoch.
        lease.epoch() > own
    });
    assert_eq!(world.runs(&a), 0);
    let changed = scripted("y", "b", r#"{"note":1}"#);
    world.put(&[a.clone(), changed.clone()], &Value::Null);
    world.until("all is deployed", |world| {
        [&a, &changed].into_iter().all(|one| world.status(one) == Some(Status::Deployed))
    });
    assert_eq!((world.runs(&a), world.runs(&changed)), (1, 1));
}

/// Also for a filter that matches nothing or only compliant resources.
#[test]
fn a_filter_selects_the_same_resources_as_the_list() {
    let world = World::new();
    let all = [
        scripted("x", "a", r#"{"note":1}"#),
        scripted("x", "b", r#"{"outcome":"fail"}"#),
        scripted("y", "c", r#"{"note":1}"#),
        scripted("y", "d", r#"{"outcome":"fail"}"#),
    ];
    world.put(&all, &Value::Null);
    world.until("all have run", |world| all.iter().all(|one| world.runs(one) == 1));
    let failed = vec![Status::Failed];
    let cases = [
        (
            json!({"agent": "x"}),
            ResourceQuery { agent: Some("x".to_owned()), ..Default::default() },
        ),
        (
            json!({"value": "c"}),
            ResourceQuery { value: Some(Pattern::new("c")), ..Default::default() },
        ),
        (
            json!({"agent": "y", "statuses": ["failed"]}),
            ResourceQuery { agent: Some("y".to_owned()), statuses: failed, ..Default::default() },
        ),
        (
            json!({"agent": "z"}),
            ResourceQuery { agent: Some("z".to_owned()), ..Default::default() },
        ),
    ];
    for (filter, query) in cases {
        let listed = world.store().resources().list(world.key, &query, None, 10).unwrap();
        let listed: BTreeSet<ResourceId> =
            listed.lines.into_iter().map(|line| line.summary.id).collect();
        let ran = |one: &Resource| {
            world
                .store()
                .resources()
                .find(world.key, one.id.as_str())
                .unwrap()
                .unwrap()
                .state
                .last_run_at
        };
        let before = all.each_ref().map(ran);
        world.repair(&json!({"filter": filter}));
        let again = all.iter().zip(before).filter(|(one, before)| ran(one) != *before);
        let again: BTreeSet<ResourceId> = again.map(|(one, _)| one.id.clone()).collect();
        assert_eq!(again, listed, "{filter}");
    }
}

/// Requested once after the deploy, and not again for each version with the same unknowns.
#[test]
fn frequent_versions_do_not_repeat_fact_requests() {
    let world = World::new();
    let silent = scripted("x", "a", r#"{"note":1}"#);
    let unknown = |name: &str| UndefinedParameter {
        name: name.to_owned(),
        resource: Some(silent.id.clone()),
        source: "fact".to_owned(),
    };
    let asked = || {
        let all =
            world.store().actions().of_resource(world.key, silent.id.as_str(), None, 50).unwrap();
        all.iter().filter(|action| action.kind == ActionKind::GetFacts).count()
    };
    for number in 0..4 {
        let other = scripted("y", "b", &format!(r#"{{"note":{number}}}"#));
        world.put_with(&[silent.clone(), other.clone()], &Value::Null, &[unknown("size")]);
        world.until("the version is deployed", |world| world.runs(&other) == number + 1);
        world.until("it was asked", |_| asked() > 0);
    }
    let other = scripted("y", "b", r#"{"note":9}"#);
    let unknowns = [unknown("size"), unknown("colour")];
    world.put_with(&[silent.clone(), other], &Value::Null, &unknowns);
    world.until("it was asked for what is new", |_| asked() > 1);
    assert_eq!(asked(), 2);
}
