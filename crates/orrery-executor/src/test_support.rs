//! Keys and runs for unit tests.

use std::sync::Arc;

use orrery_handlers::CancelToken;
use orrery_model::{Attributes, Resource, ResourceId, Timestamp, VersionNumber};
use orrery_scheduler::{Event, Reason, Recovery, ResourceIndex, Scheduler, Settings, TaskNumber};
use orrery_store::{NewVersion, PutScope, ResourceKey, Store};

use crate::pending_run::{PendingRun, RunKind};
use crate::recovery::{DesiredState, full_diff};

pub(crate) fn resource(name: &str) -> Resource {
    let id = ResourceId::new("m::R", "a", "name", name).unwrap();
    Resource::new(id, Attributes::parse("{}").unwrap(), Vec::new())
}

/// A halted scheduler that manages resources with these names, of the agent `a`.
pub(crate) fn scheduler(names: &[&str]) -> Scheduler {
    let resources: Vec<Resource> = names.iter().map(|name| resource(name)).collect();
    let desired = DesiredState { version: VersionNumber(1), resources, keys: Vec::new() };
    let recovery = Recovery {
        version: None,
        resources: Vec::new(),
        paused: Vec::new(),
        halted: true,
        reset: false,
        newer: vec![full_diff(&desired)],
    };
    let mut scheduler = Scheduler::new(Settings::default());
    scheduler.handle(Event::Recover(Box::new(recovery)), Timestamp(1), &mut Vec::new());
    scheduler
}

/// Different indexes of a scheduler.
pub(crate) fn indexes(count: usize) -> Vec<ResourceIndex> {
    let names: Vec<String> = (0..count).map(|number| format!("r{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let scheduler = scheduler(&names);
    let index = |name: &&str| scheduler.index_of(resource(name).id.as_str()).unwrap();
    names.iter().map(index).collect()
}

/// Keys of resources with these names, which must be sorted.
pub(crate) fn resource_keys(names: &[&str]) -> Vec<ResourceKey> {
    let store = Store::in_memory().unwrap();
    let environment = store.environments().ensure_default().unwrap();
    let resources: Vec<Resource> = names.iter().map(|name| resource(name)).collect();
    let version = NewVersion {
        number: None,
        base: None,
        made_at: Timestamp(0),
        info: &serde_json::Value::Null,
        scope: PutScope::All,
        resources: &resources,
        unknowns: &[],
        project: None,
        released: true,
        only_if_changed: false,
        lease: None,
    };
    store.versions().put(environment, &version).unwrap().keys
}

/// Key of one resource.
pub(crate) fn resource_key() -> ResourceKey {
    resource_keys(&["one"])[0]
}

pub(crate) fn pending_run(task: u64) -> PendingRun {
    PendingRun {
        task: TaskNumber(task),
        kind: RunKind::Deploy,
        resource: resource("one"),
        key: None,
        agent: scheduler(&["one"]).agent_of("a").unwrap(),
        stop: CancelToken::never(),
        started: Timestamp(0),
        version: VersionNumber(1),
        reason: Reason::UserVerify,
        skip: None,
        deployed_before: false,
        was_compliant: false,
        looks_for_drift: None,
        changed_dependencies: Vec::new(),
        change_record: None,
        has_unknown_effect: false,
        effect_started: Arc::default(),
    }
}
