//! Test harness: a store in memory, scripted resources, and an engine to wait for.

use std::sync::Arc;
use std::time::Duration;

use orrery_executor::{
    DesiredState, Engine, EngineSetup, FinishedRun, LocalTargets, PlanEntry, Progress, StoreHandle,
    Tally, TargetResolver, WorkerLimits, plan, record_interrupted, recover,
};
use orrery_handlers::{
    Contents, Durability, LocalSecrets, LocalTarget, NoContents, Permit, Registry, Secrets,
};
use orrery_model::{
    Attributes, DriftPolicies, LogLevel, Resource, ResourceId, Status, Timestamp, VersionNumber,
};
use orrery_scheduler::{Event, Filter, Interval, Settings};
use orrery_store::{
    Action, ActionKind, EnvironmentKey, Holder, Lease, LeaseRequest, NewVersion, PutScope,
    StartedAction, Store,
};

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) environment: EnvironmentKey,
    pub(crate) settings: Settings,
    pub(crate) registry: Registry,
    pub(crate) targets: Arc<dyn TargetResolver>,
    pub(crate) contents: Arc<dyn Contents>,
    pub(crate) secrets: Arc<dyn Secrets>,
    pub(crate) workers: WorkerLimits,
    pub(crate) drift_policies: DriftPolicies,
}

/// Result of a deploy.
pub(crate) struct DeployResult {
    pub(crate) tally: Tally,
    pub(crate) finished: Vec<FinishedRun>,
}

#[expect(clippy::disallowed_methods, reason = "the engine under test reads the clock, too")]
pub(crate) fn now() -> Timestamp {
    Timestamp::from_system(std::time::SystemTime::now())
}

impl World {
    pub(crate) fn new() -> Self {
        let store = Store::in_memory().unwrap();
        let environment = store.environments().ensure_default().unwrap();
        let settings = Settings {
            deploy_interval: Interval::Off,
            repair_interval: Interval::Off,
            cancel_time_max: Duration::from_millis(500),
            ..Settings::default()
        };
        World {
            store,
            environment,
            settings,
            registry: Registry::native(),
            targets: Arc::new(LocalTargets::new(
                LocalTarget::new(Durability::None),
                orrery_model::Inventory::all_local(),
            )),
            contents: Arc::new(NoContents),
            secrets: Arc::new(LocalSecrets),
            workers: WorkerLimits::starting_at(8),
            drift_policies: DriftPolicies::default(),
        }
    }

    pub(crate) fn setup(&self, store_handle: Option<StoreHandle>) -> EngineSetup {
        EngineSetup {
            registry: Arc::new(self.registry.clone()),
            targets: Arc::clone(&self.targets),
            contents: Arc::clone(&self.contents),
            secrets: Arc::clone(&self.secrets),
            settings: self.settings.clone(),
            drift_policies: self.drift_policies.clone(),
            workers: self.workers,
            log_level: LogLevel::Debug,
            store_handle,
            listener: None,
        }
    }

    pub(crate) fn deploy(&self, resources: &[Resource]) -> DeployResult {
        self.deploy_until(resources, |_, _| {})
    }

    pub(crate) fn lease(&self) -> Lease {
        let holder = Holder::this_process("test", now());
        let request = LeaseRequest { holder, now: now(), expires: None };
        self.store.leases().acquire(self.environment, &request).unwrap()
    }

    /// Stores a released version, like another process.
    pub(crate) fn put(&self, resources: &[Resource]) -> DesiredState {
        let mut resources = resources.to_vec();
        resources.sort_by(|one, other| one.id.cmp(&other.id));
        let version = NewVersion {
            number: None,
            base: None,
            made_at: now(),
            info: &serde_json::Value::Null,
            scope: PutScope::All,
            resources: &resources,
            unknowns: &[],
            project: None,
            released: true,
            only_if_changed: false,
            lease: None,
        };
        let put = self.store.versions().put(self.environment, &version).unwrap();
        DesiredState { version: put.number, resources, keys: put.keys }
    }

    pub(crate) fn deploy_until(
        &self,
        resources: &[Resource],
        mut look: impl FnMut(&Engine, &Progress),
    ) -> DeployResult {
        let holder = Holder::this_process("test", now());
        let request = LeaseRequest { holder, now: now(), expires: None };
        let lease = self.store.leases().acquire(self.environment, &request).unwrap();
        let mut resources = resources.to_vec();
        resources.sort_by(|one, other| one.id.cmp(&other.id));
        let put = self
            .store
            .versions()
            .put(
                self.environment,
                &NewVersion {
                    number: None,
                    made_at: now(),
                    info: &serde_json::Value::Null,
                    scope: PutScope::All,
                    resources: &resources,
                    base: None,
                    unknowns: &[],
                    project: None,
                    released: true,
                    only_if_changed: true,
                    lease: Some(&lease),
                },
            )
            .unwrap();
        let desired = DesiredState { version: put.number, resources, keys: put.keys };
        record_interrupted(&self.store, &lease, now()).unwrap();
        let start = recover(&self.store, self.environment, desired).unwrap();
        let store_handle =
            StoreHandle { store: self.store.clone(), lease, permit: Permit::unlimited() };
        let first = vec![Event::Verify(Filter::all())];
        let engine = Engine::start(self.setup(Some(store_handle)), start, first).unwrap();
        let mut finished = Vec::new();
        loop {
            let progress = engine.wait(Duration::from_millis(10));
            finished.extend(progress.finished.iter().cloned());
            look(&engine, &progress);
            if progress.idle {
                break;
            }
        }
        engine.with_scheduler(|scheduler| scheduler.check_invariants()).unwrap();
        let tally = engine.finish().unwrap();
        self.store.leases().release(&lease).unwrap();
        DeployResult { tally, finished }
    }

    /// Kind of change of each resource, sorted by id, and its number of attributes.
    pub(crate) fn plan(&self, resources: &[Resource]) -> Vec<(String, usize)> {
        let mut resources = resources.to_vec();
        resources.sort_by(|one, other| one.id.cmp(&other.id));
        let states = vec![None; resources.len()];
        let desired = DesiredState { version: VersionNumber(0), resources, keys: Vec::new() };
        let answers = plan(self.setup(None), desired, states, &mut |_| true).unwrap();
        answers
            .into_iter()
            .map(|answer| match answer {
                PlanEntry::Evaluated(outcome) => {
                    (outcome.change.kind.as_str().to_owned(), outcome.change.attributes.len())
                }
                other => panic!("{other:?}"),
            })
            .collect()
    }

    /// Simulates a process killed during a change of a resource.
    pub(crate) fn interrupt(&self, resource: &Resource) {
        let holder = Holder::this_process("test", now());
        let request = LeaseRequest { holder, now: now(), expires: None };
        let lease = self.store.leases().acquire(self.environment, &request).unwrap();
        let version = self.store.versions().list(self.environment).unwrap().pop().unwrap().number;
        let found = self.store.resources().find(self.environment, resource.id.as_str()).unwrap();
        let resource = found.unwrap().key;
        let started = StartedAction { resource, kind: ActionKind::Deploy, version, at: now() };
        self.store.engine().begin_actions(&lease, &[started]).unwrap();
        self.store.leases().release(&lease).unwrap();
    }

    pub(crate) fn status(&self, name: &str) -> Status {
        let found = self.store.resources().find(self.environment, id(name).as_str()).unwrap();
        found.unwrap().status
    }

    pub(crate) fn actions(&self, name: &str) -> Vec<Action> {
        self.store.actions().of_resource(self.environment, id(name).as_str(), None, 10).unwrap()
    }
}

const SCRIPTED: &str = "std::testing::ScriptedResource";

pub(crate) fn id(name: &str) -> ResourceId {
    ResourceId::new(SCRIPTED, "here", "name", name).unwrap()
}

pub(crate) fn resource(entity: &str, name: &str, attributes: &str, requires: &[&str]) -> Resource {
    let id = ResourceId::new(entity, "here", "name", name).unwrap();
    let requires = requires.iter().map(|name| self::id(name)).collect();
    Resource::new(id, Attributes::parse(attributes).unwrap(), requires)
}

pub(crate) fn scripted(name: &str, attributes: &str, requires: &[&str]) -> Resource {
    resource(SCRIPTED, name, attributes, requires)
}

pub(crate) fn on_agent(agent: &str, name: &str, attributes: &str) -> Resource {
    let id = ResourceId::new(SCRIPTED, agent, "name", name).unwrap();
    Resource::new(id, Attributes::parse(attributes).unwrap(), Vec::new())
}

pub(crate) fn file(path: &str, content: &str) -> Resource {
    let id = ResourceId::new("std::File", "here", "path", path).unwrap();
    let attributes = serde_json::json!({
        "content": content, "mode": 644, "owner": null, "group": null, "purged": false,
        "prefix_content": [], "suffix_content": [], "content_seperator": "\n",
    });
    Resource::new(id, Attributes::parse(&attributes.to_string()).unwrap(), Vec::new())
}

pub(crate) fn command(text: &str, attributes: &str, requires: &[&Resource]) -> Resource {
    let id = ResourceId::new("exec::Run", "here", "command", text).unwrap();
    let requires = requires.iter().map(|resource| resource.id.clone()).collect();
    Resource::new(id, Attributes::parse(attributes).unwrap(), requires)
}
