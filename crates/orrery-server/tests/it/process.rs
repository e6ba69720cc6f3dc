//! The process role, driven through the store alone.

mod contents;
mod order;

use std::time::{Duration, Instant};

use orrery_model::{
    Attributes, DryRunId, EnvironmentId, ProjectId, RequestId, Resource, ResourceId, Status,
    Timestamp, VersionNumber,
};
use orrery_server::{ProcessOptions, ProcessRole, ServerSettings, ServerState};
use orrery_store::{
    EnvironmentKey, EnvironmentRecord, Holder, LeaseRequest, NewEnvironmentRecord, NewRequest,
    NewVersion, PutScope, RequestKind, Store,
};
use orrery_testing::{Postgres, TestDatabase};
use serde_json::{Value, json};

/// Timeout of a condition, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
const STOPS: u32 = 64;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Sqlite,
    Postgres,
}

struct World {
    app: ServerState,
    role: Option<ProcessRole>,
    _data: tempfile::TempDir,
    database: Option<TestDatabase>,
    options: ProcessOptions,
}

impl World {
    fn new(kind: Kind) -> Self {
        let database = (kind == Kind::Postgres).then(|| Postgres::shared().database());
        let store: Store = match &database {
            None => Store::in_memory().unwrap(),
            Some(database) => open(database),
        };
        let data = tempfile::tempdir().unwrap();
        let options = ProcessOptions {
            data: data.path().to_owned(),
            workers: orrery_executor::WorkerLimits::starting_at(4),
            lease: (kind == Kind::Postgres).then_some(Duration::from_secs(2)),
            host_memory: None,
            isolation: orrery_server::Isolation::Shared,
            own_machine: orrery_server::OwnMachineOptions::shared(),
        };
        let app = ServerState::new(store, ServerSettings::default());
        World { app, role: None, _data: data, database, options }
    }

    /// Creates another process on the same database.
    fn beside(&self) -> World {
        let data = tempfile::tempdir().unwrap();
        let options = ProcessOptions { data: data.path().to_owned(), ..self.options.clone() };
        let store = open(self.database.as_ref().unwrap());
        let app = ServerState::new(store, ServerSettings::default());
        World { app, role: None, _data: data, database: None, options }
    }

    fn start(&mut self) {
        self.role = Some(ProcessRole::start(self.app.clone(), self.options.clone()).unwrap());
    }

    fn stop(&mut self) {
        self.role = None;
    }

    fn environment(&self, name: &str) -> EnvironmentRecord {
        let store = self.app.store();
        let project = ProjectId::from_bytes([7; 16]);
        let _ = store.projects().create(project, "project", "", Timestamp(1));
        let mut uuid = [0; 16];
        uuid[..name.len()].copy_from_slice(name.as_bytes());
        let new = NewEnvironmentRecord {
            uuid: EnvironmentId::from_bytes(uuid),
            project,
            name,
            description: "",
            icon: "",
            repository: "",
            branch: "",
        };
        store.environments().add(&new, Timestamp(1)).unwrap()
    }

    fn put(&self, environment: EnvironmentKey, resources: &[Resource]) {
        self.store(environment, resources, true);
        self.app.wake_up();
    }

    /// Stores a version and requests, along with its release, that all resources are verified.
    fn put_and_verify(&self, environment: EnvironmentKey, resources: &[Resource]) -> RequestId {
        let number = self.store(environment, resources, false);
        let uuid = uuid::Uuid::new_v4().into();
        let kind = &RequestKind::from_stored("deploy", json!({"verify": true}));
        let request = NewRequest { uuid, kind };
        let store = self.app.store();
        store
            .versions()
            .release_with_request(environment, number, &request, self.app.now())
            .unwrap();
        self.app.wake_up();
        uuid
    }

    fn store(
        &self,
        environment: EnvironmentKey,
        resources: &[Resource],
        released: bool,
    ) -> VersionNumber {
        let version = NewVersion {
            number: None,
            base: None,
            made_at: self.app.now(),
            // All agents are this machine.
            info: &json!({"local_agents": ["*"]}),
            scope: PutScope::All,
            resources,
            unknowns: &[],
            released,
            only_if_changed: false,
            lease: None,
            project: None,
        };
        self.app.store().versions().put(environment, &version).unwrap().number
    }

    fn is_finished(&self, request: RequestId) -> bool {
        self.app.store().requests().get(request).unwrap().finished.is_some()
    }

    fn request(&self, environment: EnvironmentKey, kind: &str, payload: &Value) -> RequestId {
        let uuid = uuid::Uuid::new_v4().into();
        let kind = &RequestKind::from_stored(kind, payload.clone());
        let store = self.app.store();
        store.requests().add(environment, &NewRequest { uuid, kind }, self.app.now()).unwrap();
        self.app.wake_up();
        uuid
    }

    fn status(&self, environment: EnvironmentKey, resource: &Resource) -> Option<Status> {
        let store = self.app.store();
        let found = store.resources().find(environment, resource.id.as_str()).unwrap();
        found.map(|found| found.status)
    }

    fn runs(&self, environment: EnvironmentKey, resource: &Resource) -> usize {
        self.app
            .store()
            .actions()
            .of_resource(environment, resource.id.as_str(), None, 50)
            .unwrap()
            .len()
    }

    fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < until, "this never came: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn until_deployed(&self, environment: EnvironmentKey, resources: &[Resource]) {
        self.until("deployed", |world| {
            resources.iter().all(|one| world.status(environment, one) == Some(Status::Deployed))
        });
    }
}

fn open(database: &TestDatabase) -> Store {
    let holder = Holder::this_process("test", Timestamp(1));
    Store::connect(&database.url(), &holder).unwrap()
}

fn scripted(agent: &str, name: &str, attributes: &str) -> Resource {
    let id = ResourceId::new("std::testing::ScriptedResource", agent, "name", name).unwrap();
    Resource::new(id, Attributes::parse(attributes).unwrap(), Vec::new())
}

/// A shell command that runs at each deploy.
fn command(agent: &str, script: &str, note: u32) -> Resource {
    let line = format!("sh -c '{script}'");
    let id = ResourceId::new("exec::Run", agent, "command", &line).unwrap();
    let attributes = json!({
        "command": line, "creates": "", "cwd": "", "environment": {"NOTE": note.to_string()},
        "onlyif": "", "path": "", "reload": "", "reload_only": false, "returns": [0],
        "timeout": 300, "unless": "", "skip_on_fail": false,
    });
    Resource::new(id, Attributes::parse(&attributes.to_string()).unwrap(), Vec::new())
}

fn a_verifying_deploy_of_a_new_version_runs_each_resource_once(kind: Kind) {
    let mut world = World::new(kind);
    let key = world.environment("one").key;
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let echo =
        |agent: &str, note| command(agent, &format!("echo {agent} >> {}", log.display()), note);
    let count = |agent: &str| {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.lines().filter(|line| *line == agent).count()
    };
    // First before the engine starts, then while it is idle. Commands that end at once are the ones
    // that would run twice.
    for round in 0..10 {
        let resources = [echo("same", 0), echo("changed", round), echo("also", round)];
        let asked = world.put_and_verify(key, &resources);
        if round == 0 {
            world.start();
        }
        world.until("all was looked at", |world| world.is_finished(asked));
        let runs = usize::try_from(round).unwrap() + 1;
        for agent in ["same", "changed", "also"] {
            assert_eq!(count(agent), runs, "{agent} in round {round}");
        }
    }
}

fn a_stop_ends_running_handlers(kind: Kind) {
    let mut world = World::new(kind);
    let key = world.environment("one").key;
    let directory = tempfile::tempdir().unwrap();
    let pids = ["x", "y"].map(|name| directory.path().join(name));
    let slow: Vec<Resource> = ["x", "y"]
        .into_iter()
        .zip(&pids)
        .map(|(agent, pid)| {
            command(agent, &format!("echo $$ > {}; exec sleep 300", pid.display()), 0)
        })
        .collect();
    world.put(key, &slow);
    world.start();
    let read = |path: &std::path::Path| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.strip_suffix('\n').map(str::to_owned)
    };
    world.until("both run", |_| pids.iter().all(|path| read(path).is_some()));
    world.stop();
    for path in &pids {
        let own = format!("/proc/{}/cmdline", read(path).unwrap());
        let still = std::fs::read_to_string(own).unwrap_or_default();
        assert!(!still.contains("sleep"), "{still:?} goes on");
    }
    // Their outcomes are stored.
    for one in &slow {
        assert_eq!(world.runs(key, one), 1);
        assert_eq!(world.status(key, one), Some(Status::Available));
    }
}

fn a_long_run_is_shown(kind: Kind) {
    let mut world = World::new(kind);
    let key = world.environment("one").key;
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go");
    // A failed test removes the directory, so the loop ends in any case.
    let here = directory.path().display();
    let wait = format!("while [ -d {here} -a ! -e {} ]; do sleep 0.05; done", go.display());
    let (long, short) = (command("x", &wait, 0), scripted("y", "short", "{}"));
    world.put(key, &[long.clone(), short.clone()]);
    world.start();
    world.until("it is shown", |world| world.status(key, &long) == Some(Status::Deploying));
    assert_eq!(world.status(key, &short), Some(Status::Deployed));
    // Other writes to the resource do not hide the status.
    let changed = command("x", &wait, 1);
    let other = scripted("z", "other", "{}");
    world.put(key, &[changed.clone(), short, other.clone()]);
    world.until_deployed(key, std::slice::from_ref(&other));
    assert_eq!(world.status(key, &changed), Some(Status::Deploying));
    std::fs::write(&go, "").unwrap();
    world.until_deployed(key, std::slice::from_ref(&changed));
}

fn a_release_is_deployed_and_newer_versions_follow(kind: Kind) {
    let mut world = World::new(kind);
    let key = world.environment("one").key;
    world.start();
    let (a, b) = (scripted("x", "a", "{}"), scripted("y", "b", "{}"));
    world.put(key, &[a.clone(), b.clone()]);
    world.until_deployed(key, &[a.clone(), b.clone()]);
    let changed = scripted("y", "b", r#"{"note":1}"#);
    let added = scripted("z", "c", "{}");
    world.put(key, &[a.clone(), changed.clone(), added.clone()]);
    world.until("the second version", |world| world.runs(key, &changed) == 2);
    world.until_deployed(key, &[a.clone(), changed, added]);
    assert_eq!(world.runs(key, &a), 1);
}

fn a_restart_resumes_and_runs_nothing_twice(kind: Kind) {
    let mut world = World::new(kind);
    let key = world.environment("one").key;
    let a = scripted("x", "a", "{}");
    world.put(key, std::slice::from_ref(&a));
    world.start();
    world.until_deployed(key, std::slice::from_ref(&a));
    world.stop();
    let b = scripted("x", "b", "{}");
    world.put(key, &[a.clone(), b.clone()]);
    assert_eq!(world.runs(key, &b), 0);
    world.start();
    world.until_deployed(key, &[a.clone(), b]);
    assert_eq!(world.runs(key, &a), 1);
}

/// At whatever moment a process is stopped, another one can continue at once.
fn a_stop_releases_the_lease_at_any_moment(kind: Kind) {
    let mut world = World::new(kind);
    let key = world.environment("one").key;
    world.put(key, &[scripted("x", "a", "{}")]);
    let holder = |world: &World| world.app.store().leases().holder(key).unwrap();
    for round in 0..STOPS {
        world.start();
        let until = Instant::now() + PATIENCE;
        while holder(&world).is_none() {
            assert!(Instant::now() < until, "the lease was not acquired in round {round}");
            std::thread::yield_now();
        }
        // At different moments after the acquisition.
        std::thread::sleep(Duration::from_micros(u64::from(round % 16) * 250));
        world.stop();
        assert_eq!(holder(&world), None, "round {round}");
    }
}

fn a_request_is_done_once_and_completed(kind: Kind) {
    let mut world = World::new(kind);
    let key = world.environment("one").key;
    let bad = scripted("x", "bad", r#"{"outcome":"fail"}"#);
    let good = scripted("y", "good", r#"{"note":1}"#);
    world.put(key, &[bad.clone(), good.clone()]);
    world.start();
    world.until("the failure", |world| world.status(key, &bad) == Some(Status::Failed));
    let finished = |world: &World, uuid: RequestId| {
        world.app.store().requests().get(uuid).unwrap().finished.is_some()
    };
    let deploy = world.request(key, "deploy", &json!({}));
    world.until("the deploy", |world| finished(world, deploy));
    assert_eq!(world.runs(key, &bad), 2);
    assert_eq!(world.runs(key, &good), 1);
    let some = world.request(key, "deploy", &json!({"agents": ["y"]}));
    world.until("the deploy of an agent", |world| finished(world, some));
    assert_eq!(world.runs(key, &bad), 2);
    let odd = world.request(key, "dance", &json!({}));
    world.until("the refusal", |world| finished(world, odd));
    let outcome = world.app.store().requests().get(odd).unwrap().outcome_json().unwrap();
    assert!(outcome["error"].as_str().unwrap().contains("dance"), "{outcome}");
}

fn a_paused_agent_keeps_its_tasks_and_resumes_later(kind: Kind) {
    let mut world = World::new(kind);
    let key = world.environment("one").key;
    world.start();
    let store = world.app.store().clone();
    let first = scripted("x", "a", "{}");
    world.put(key, std::slice::from_ref(&first));
    world.until_deployed(key, std::slice::from_ref(&first));
    store.agents().set_paused(key, Some("x"), true).unwrap();
    world.app.wake_up();
    let (changed, other) = (scripted("x", "a", r#"{"note":1}"#), scripted("y", "b", "{}"));
    world.put(key, &[changed.clone(), other.clone()]);
    world.until_deployed(key, std::slice::from_ref(&other));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(world.runs(key, &changed), 1);
    // A pause survives a restart.
    world.stop();
    world.start();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(world.runs(key, &changed), 1);
    store.agents().set_paused(key, Some("x"), false).unwrap();
    world.app.wake_up();
    world.until("the paused work", |world| world.runs(key, &changed) == 2);
}

fn a_halt_stops_everything_and_a_resume_continues(kind: Kind) {
    let mut world = World::new(kind);
    let environment = world.environment("one");
    let key = environment.key;
    world.start();
    let slow: Vec<Resource> =
        (0..20).map(|at| scripted("x", &format!("s{at:02}"), r#"{"delay_ms":100}"#)).collect();
    world.put(key, &slow);
    world.until("a beginning", |world| world.status(key, &slow[0]) == Some(Status::Deployed));
    let store = world.app.store();
    store.environments().set_halted(environment.uuid, true, world.app.now()).unwrap();
    world.app.wake_up();
    let count = |world: &World| {
        let statuses = world.app.store().resources().count_statuses(key).unwrap();
        statuses.get(&Status::Deployed).copied().unwrap_or(0)
    };
    world.until("the lease is given back", |world| {
        world.app.store().leases().holder(key).unwrap().is_none()
    });
    let done = count(&world);
    assert!(done < 20);
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(count(&world), done);
    store.environments().set_halted(environment.uuid, false, world.app.now()).unwrap();
    world.app.wake_up();
    world.until_deployed(key, &slow);
    assert!(slow.iter().all(|one| world.runs(key, one) <= 2));
}

fn a_dry_run_reports_changes_and_makes_none(kind: Kind) {
    let mut world = World::new(kind);
    let key = world.environment("one").key;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("motd").display().to_string();
    let id = ResourceId::new("std::File", "localhost", "path", &path).unwrap();
    let attributes = json!({
        "content": "hello\n", "mode": 644, "owner": null, "group": null, "purged": false,
        "prefix_content": [], "suffix_content": [], "content_seperator": "\n",
    });
    let file = Resource::new(id, Attributes::parse(&attributes.to_string()).unwrap(), Vec::new());
    let unknown = ResourceId::new("no::Handler", "x", "name", "bad").unwrap();
    let bad = Resource::new(unknown, Attributes::parse("{}").unwrap(), Vec::new());
    let resting = scripted("y", "resting", "{}");
    let version = NewVersion {
        number: None,
        base: None,
        made_at: world.app.now(),
        info: &Value::Null,
        scope: PutScope::All,
        resources: &[file.clone(), bad.clone(), resting.clone()],
        unknowns: &[],
        released: false,
        only_if_changed: false,
        lease: None,
        project: None,
    };
    let store = world.app.store().clone();
    let number = store.versions().put(key, &version).unwrap().number;
    world.start();
    let (run, request) = (DryRunId::from_bytes([1; 16]), RequestId::from_bytes([2; 16]));
    let now = world.app.now();
    store.dry_runs().create(key, (run, request), number, now).unwrap();
    world.app.wake_up();
    world.until("the answer", |world| {
        world.app.store().requests().get(request).unwrap().finished.is_some()
    });
    let found = store.dry_runs().get(key, run).unwrap();
    assert_eq!((found.total, found.todo), (3, 0));
    assert!(found.finished.is_some());
    let counts = store.dry_runs().counts(run).unwrap();
    let expected = [("added", 1), ("failed", 1), ("unmodified", 1)];
    assert_eq!(counts, expected.map(|(name, count)| (name.to_owned(), count)));
    assert!(!std::path::Path::new(&path).exists());
}

fn deleting_an_environment_deletes_all_its_data(kind: Kind) {
    let mut world = World::new(kind);
    let environment = world.environment("one");
    let resource = scripted("x", "a", "{}");
    world.put(environment.key, std::slice::from_ref(&resource));
    world.start();
    world.until_deployed(environment.key, std::slice::from_ref(&resource));
    let store = world.app.store().clone();
    store.environments().begin_deletion(environment.uuid, world.app.now()).unwrap();
    world.app.wake_up();
    world.until("the end", |_| store.environments().get(environment.uuid).is_err());
    assert!(store.versions().list(environment.key).unwrap().is_empty());
    assert!(store.check().unwrap().is_empty());
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn a_thousand_environments_at_rest_have_no_threads() {
    let mut world = World::new(Kind::Sqlite);
    let before = threads();
    let keys: Vec<EnvironmentKey> = (0..1_000)
        .map(|at| {
            let key = world.environment(&format!("environment{at}")).key;
            world.put(key, &[scripted("x", "a", "{}")]);
            key
        })
        .collect();
    world.start();
    let resource = scripted("x", "a", "{}");
    let until = Instant::now() + PATIENCE;
    while !keys.iter().all(|key| world.status(*key, &resource) == Some(Status::Deployed)) {
        assert!(Instant::now() < until, "some are never deployed");
        std::thread::sleep(Duration::from_millis(100));
    }
    // Other tests run in parallel.
    world.until("threads to end", |_| threads() < before + 60);
    let changed = scripted("x", "a", r#"{"note":1}"#);
    world.put(keys[500], std::slice::from_ref(&changed));
    world.until("a change in one of them", |world| world.runs(keys[500], &changed) == 2);
}

/// Two processes on one database: the holder of the lease works, and the other one takes over.
#[test]
fn one_process_works_and_another_takes_over() {
    let mut first = World::new(Kind::Postgres);
    let key = first.environment("one").key;
    let a = scripted("x", "a", "{}");
    first.put(key, std::slice::from_ref(&a));
    first.start();
    first.until_deployed(key, std::slice::from_ref(&a));
    let mut second = first.beside();
    second.start();
    let b = scripted("x", "b", "{}");
    second.put(key, &[a.clone(), b.clone()]);
    second.until_deployed(key, std::slice::from_ref(&b));
    assert_eq!(first.runs(key, &a), 1);
    first.stop();
    let c = scripted("x", "c", "{}");
    second.put(key, &[a.clone(), b.clone(), c.clone()]);
    second.until_deployed(key, std::slice::from_ref(&c));
    assert_eq!((second.runs(key, &a), second.runs(key, &b), second.runs(key, &c)), (1, 1, 1));
}

/// An idle engine writes nothing that could be refused; it must notice the loss all the same.
#[test]
fn an_idle_engine_notices_a_lost_lease() {
    let mut world = World::new(Kind::Postgres);
    let [lost, kept] = ["lost", "kept"].map(|name| world.environment(name).key);
    let a = scripted("x", "a", "{}");
    world.put(lost, std::slice::from_ref(&a));
    world.put(kept, std::slice::from_ref(&a));
    world.start();
    for key in [lost, kept] {
        world.until_deployed(key, std::slice::from_ref(&a));
    }
    let store = world.app.store().clone();
    let holder = |key| store.leases().holder(key).unwrap().unwrap();
    let before = holder(kept).since;
    let mut client = world.database.as_ref().unwrap().connect();
    let thief = LeaseRequest {
        holder: Holder::this_process("thief", Timestamp(1)),
        now: Timestamp(0),
        expires: Some(Timestamp(60_000_000)),
    };
    // Simulates failed renewals.
    let stolen = loop {
        let expire = "UPDATE lease SET expires = 0 WHERE environment = \
             (SELECT id FROM environment WHERE name = 'lost')";
        client.batch_execute(expire).unwrap();
        if let Ok(stolen) = store.leases().acquire(lost, &thief) {
            break stolen;
        }
    };
    assert_eq!(holder(lost).command, "thief");
    // It does not take the lease back by force, and retries until the lease is free.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(holder(lost).command, "thief");
    store.leases().release(&stolen).unwrap();
    world.until("the lease again", |_| {
        store.leases().holder(lost).unwrap().is_some_and(|holder| holder.command == "orrery server")
    });
    assert_eq!(holder(kept).since, before, "the other one was never given up");
    assert_eq!((world.runs(lost, &a), world.runs(kept, &a)), (1, 1));
}

/// Deletion requires the lease: another process may have running handlers.
#[test]
fn only_the_lease_holder_deletes_an_environment() {
    let mut world = World::new(Kind::Postgres);
    let environment = world.environment("gone");
    let key = environment.key;
    world.put(key, &[scripted("x", "a", "{}")]);
    let store = world.app.store().clone();
    let other = LeaseRequest {
        holder: Holder::this_process("other", Timestamp(1)),
        now: Timestamp(0),
        expires: Some(Timestamp(600_000_000)),
    };
    let held = store.leases().acquire(key, &other).unwrap();
    store.environments().begin_deletion(environment.uuid, world.app.now()).unwrap();
    world.start();
    // The deploy of another environment shows that the supervisor has polled this one, more than
    // once.
    for name in ["one", "two"] {
        let next = world.environment(name).key;
        let a = scripted("x", "a", "{}");
        world.put(next, std::slice::from_ref(&a));
        world.until_deployed(next, std::slice::from_ref(&a));
        std::thread::sleep(Duration::from_secs(2));
    }
    assert_eq!(
        store.versions().list(key).unwrap().len(),
        1,
        "it was erased while another process held the lease"
    );
    store.leases().release(&held).unwrap();
    world.until("the environment is gone", |_| store.environments().by_key(key).is_err());
}

macro_rules! on {
    ($module:ident, $kind:expr) => {
        mod $module {
            use super::Kind;

            #[test]
            fn a_release_is_deployed_and_newer_versions_follow() {
                super::a_release_is_deployed_and_newer_versions_follow($kind);
            }

            #[test]
            fn a_restart_resumes_and_runs_nothing_twice() {
                super::a_restart_resumes_and_runs_nothing_twice($kind);
            }

            #[test]
            fn a_stop_releases_the_lease_at_any_moment() {
                super::a_stop_releases_the_lease_at_any_moment($kind);
            }

            #[test]
            fn a_request_is_done_once_and_completed() {
                super::a_request_is_done_once_and_completed($kind);
            }

            #[test]
            fn a_paused_agent_keeps_its_tasks_and_resumes_later() {
                super::a_paused_agent_keeps_its_tasks_and_resumes_later($kind);
            }

            #[test]
            fn a_halt_stops_everything_and_a_resume_continues() {
                super::a_halt_stops_everything_and_a_resume_continues($kind);
            }

            #[test]
            fn a_dry_run_reports_changes_and_makes_none() {
                super::a_dry_run_reports_changes_and_makes_none($kind);
            }

            #[test]
            fn deleting_an_environment_deletes_all_its_data() {
                super::deleting_an_environment_deletes_all_its_data($kind);
            }

            #[test]
            fn a_verifying_deploy_of_a_new_version_runs_each_resource_once() {
                super::a_verifying_deploy_of_a_new_version_runs_each_resource_once($kind);
            }

            #[test]
            fn a_stop_ends_running_handlers() {
                super::a_stop_ends_running_handlers($kind);
            }

            #[test]
            fn a_long_run_is_shown() {
                super::a_long_run_is_shown($kind);
            }
        }
    };
}

on!(sqlite, Kind::Sqlite);
on!(postgres, Kind::Postgres);
