//! Clusters of simulated machines: nothing is lost or doubled, whatever fails.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use orrery_handlers::CancelToken;
use orrery_handlers::run::Purpose;
use orrery_model::{ChangeKind, OutcomeStatus};
use orrery_provisioner::dispatch::{DispatchError, Dispatcher, LocalDispatcher};
use orrery_provisioner::journal_check::JournalCheck;
use orrery_provisioner::machine_name::MachineName;
use orrery_provisioner::node_state::{InitializationState, ServiceRecord};
use orrery_provisioner::plugins::Plugins;
use orrery_provisioner::provider::SimProvider;
use orrery_provisioner::runner::PluginRunner;
use orrery_provisioner::sim_journal::SimJournals;
use orrery_provisioner::slots::Slots;
use orrery_provisioner::task::{Task, TaskAction, TaskReport, TaskStatus, Work};
use serde_json::json;
use tempfile::TempDir;

use crate::harness::{MemoryResources, SERVICE_ENTITIES, TestService, World, log, machine_task};

const ACTIONS: [&str; 6] = ["install", "configure", "initialize", "start", "stop", "remove"];

fn plugins(directory: &TempDir) -> Plugins {
    let mut plugins = Plugins::default();
    plugins.add_provider(Arc::new(SimProvider::new(directory.path())));
    plugins
}

fn database() -> TestService {
    TestService::of_script("db", "db.sh", &ACTIONS)
}

fn machine(incarnation: u32) -> MachineName {
    MachineName::new("c1", 1000, incarnation).unwrap()
}

fn running(service: &TestService) -> ServiceRecord {
    ServiceRecord {
        installed: Some(service.digest.clone()),
        configured: Some(service.digest.clone()),
        initializations: [("key-1".to_owned(), InitializationState::Done)].into(),
        running: Some(service.generation),
        ..ServiceRecord::default()
    }
}

fn check(directory: &TempDir, expected: &[(MachineName, ServiceRecord)]) {
    let mut check = JournalCheck::run(&SimJournals::new(directory.path())).unwrap();
    let of = |(name, state): &(MachineName, ServiceRecord)| {
        (name.clone(), BTreeMap::from([("db".to_owned(), state.clone())]))
    };
    check.expect(&expected.iter().map(of).collect());
    let problems: Vec<String> = check.problems.iter().map(ToString::to_string).collect();
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn a_cluster_is_deployed_changed_restarted_and_purged() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::new(plugins(&directory), "sim", json!({}));
    let mut service = database();
    world.add_node("web-1000", 1000, &[&service]);
    use ChangeKind::{Created, NoChange, Purged, Updated};
    assert_eq!(world.deploy_machine("web-1000"), [Created, Created, Created]);
    assert_eq!(world.facts("web-1000").bind_address(), Some("10.0.0.0"));
    let first = world.deploy_service("web-1000", &service);
    assert_eq!(first, [Created, NoChange, Created, Created, Created]);
    check(&directory, &[(machine(1), running(&service))]);

    // A second deploy finds everything done.
    assert_eq!(world.deploy_machine("web-1000"), [NoChange; 3]);
    assert_eq!(world.deploy_service("web-1000", &service), [NoChange; 5]);

    // A new generation is stopped before it is configured, and not initialized again.
    service.generation = 2;
    service.digest = "d2".to_owned();
    let changed = world.deploy_service("web-1000", &service);
    assert_eq!(changed, [Updated, Updated, Updated, NoChange, Created]);
    check(&directory, &[(machine(1), running(&service))]);

    service.running = false;
    assert_eq!(world.deploy("cluster::Running", "web-1000", &service), Updated);
    assert_eq!(world.deploy("cluster::Running", "web-1000", &service), NoChange);

    assert_eq!(world.purge("cluster::Running", "web-1000", Some(&service)), NoChange);
    assert_eq!(world.purge("cluster::Installed", "web-1000", Some(&service)), Purged);
    assert_eq!(world.purge("cluster::Machine", "web-1000", None), Purged);
    assert_eq!(world.purge("cluster::Machine", "web-1000", None), NoChange);
    // Its services are gone with the machine.
    assert_eq!(world.purge("cluster::Installed", "web-1000", Some(&service)), NoChange);
    check(&directory, &[]);
}

/// A task that is repeated after a lost answer has no second effect.
#[test]
fn machines_are_created_and_deleted_once_however_often_a_task_is_repeated() {
    let directory = tempfile::tempdir().unwrap();
    let resources = Arc::new(MemoryResources::default());
    let runner = PluginRunner::new(Arc::new(plugins(&directory)), resources);
    let effects = || {
        let check = JournalCheck::run(&SimJournals::new(directory.path())).unwrap();
        assert!(check.problems.is_empty(), "{:#?}", check.problems);
        check.effects
    };
    let run = |work: Work| {
        let task = machine_task("sim", json!({}), 1000, work);
        let report = runner.run(&task, &CancelToken::never());
        assert_eq!(report.status, TaskStatus::Succeeded, "{}", report.message);
    };
    run(Work::Create);
    run(Work::Create);
    assert_eq!(effects(), 1);
    let delete = Work::Delete { machine: machine(1).to_string() };
    run(delete.clone());
    run(delete);
    assert_eq!(effects(), 2);
    // A machine of another node is none of this task's business.
    let task =
        machine_task("sim", json!({}), 1001, Work::Delete { machine: machine(1).to_string() });
    let refused = runner.run(&task, &CancelToken::never());
    assert!(refused.message.contains("is not a machine of the node"), "{}", refused.message);
}

#[test]
fn a_replaced_machine_is_initialized_again_and_its_predecessor_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new(plugins(&directory), "sim", json!({}));
    let service = database();
    world.add_node("web-1000", 1000, &[&service]);
    world.deploy_machine("web-1000");
    world.deploy_service("web-1000", &service);
    world.incarnation = 2;
    // Facts of the earlier incarnation are not used.
    let early = world.run_service(Purpose::Deploy, "cluster::Installed", "web-1000", &service);
    assert_eq!(early.outcome.status, OutcomeStatus::Skipped, "{}", log(&early));
    let changes = world.deploy_machine("web-1000");
    assert_eq!(changes, [ChangeKind::Updated, ChangeKind::Created, ChangeKind::Created]);
    world.deploy_service("web-1000", &service);
    check(&directory, &[(machine(2), running(&service))]);
}

#[test]
fn a_dry_run_says_what_would_run_and_does_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::new(plugins(&directory), "sim", json!({}));
    let service = database();
    world.add_node("web-1000", 1000, &[&service]);
    let attributes = world.machine_attributes("web-1000");
    for entity in ["cluster::Machine", "cluster::Reachable", "cluster::Toolchain"] {
        let outcome = world.run(Purpose::DryRun, entity, "web-1000", "web-1000", &attributes);
        assert_eq!(outcome.outcome.change.kind, ChangeKind::Created, "{entity}: {}", log(&outcome));
    }
    for entity in ["cluster::Installed", "cluster::Configured", "cluster::Initialized"] {
        let outcome = world.run_service(Purpose::DryRun, entity, "web-1000", &service);
        assert_eq!(outcome.outcome.change.kind, ChangeKind::Created, "{entity}: {}", log(&outcome));
        assert!(log(&outcome).contains("would run"), "{}", log(&outcome));
    }
    let outcome = world.run_service(Purpose::DryRun, "cluster::Running", "web-1000", &service);
    assert!(log(&outcome).contains("would run start: shell db.sh start"), "{}", log(&outcome));
    assert!(SimJournals::new(directory.path()).machines().unwrap().is_empty());
}

/// Every action fails now and then; repeated runs converge, and each effect happens once.
#[test]
fn injected_failures_are_retried_without_doubled_effects() {
    let directory = tempfile::tempdir().unwrap();
    let fields = json!({"failure_rate": 0.4, "seed": 7});
    let world = World::new(plugins(&directory), "sim", fields);
    let service = database();
    let nodes: Vec<(String, u64)> =
        (1000..1020).map(|number| (format!("web-{number}"), number)).collect();
    for (node, number) in &nodes {
        world.add_node(node, *number, &[&service]);
        for entity in ["cluster::Machine", "cluster::Reachable", "cluster::Toolchain"] {
            let attributes = world.machine_attributes(node);
            retry(|| world.run(Purpose::Deploy, entity, node, node, &attributes));
        }
        for entity in SERVICE_ENTITIES {
            retry(|| world.run_service(Purpose::Deploy, entity, node, &service));
        }
    }
    let names = nodes.iter().map(|(_, number)| MachineName::new("c1", *number, 1).unwrap());
    let expected: Vec<_> = names.map(|name| (name, running(&service))).collect();
    check(&directory, &expected);
    let found = JournalCheck::run(&SimJournals::new(directory.path())).unwrap();
    assert!(found.failures > 20, "only {} failures were injected", found.failures);
}

fn retry(mut run: impl FnMut() -> orrery_handlers::run::RunOutcome) {
    for _ in 0..40 {
        let outcome = run();
        if outcome.outcome.status == OutcomeStatus::Deployed {
            return;
        }
        assert!(log(&outcome).contains("simulated failure"), "{}", log(&outcome));
    }
    panic!("it did not converge");
}

/// Loses the report of one action after it was carried out.
struct LossyDispatcher {
    inner: LocalDispatcher,
    action: TaskAction,
    lost: AtomicU32,
}

impl Dispatcher for LossyDispatcher {
    fn run(&self, task: Task, stop: &CancelToken) -> Result<TaskReport, DispatchError> {
        let is_lost = match &task.work {
            Work::Act(work) => work.call.as_ref().is_some_and(|call| call.action == self.action),
            _ => false,
        };
        let report = self.inner.run(task, stop)?;
        if is_lost && self.lost.fetch_add(1, Ordering::Relaxed) == 0 {
            return Err(DispatchError::Unknown("the worker is gone".to_owned()));
        }
        Ok(report)
    }
}

fn lossy_world(directory: &TempDir, action: TaskAction) -> World {
    let plugins = Arc::new(plugins(directory));
    let resources = Arc::new(MemoryResources::default());
    let runner = PluginRunner::new(Arc::clone(&plugins), Arc::clone(&resources) as _);
    let inner = LocalDispatcher::new(Arc::new(runner), Slots::new(2));
    let dispatcher = LossyDispatcher { inner, action, lost: AtomicU32::new(0) };
    World::with_dispatcher(plugins, Arc::new(dispatcher), resources, "sim", json!({}))
}

#[test]
fn a_lost_answer_is_found_out_by_the_next_run() {
    let directory = tempfile::tempdir().unwrap();
    let world = lossy_world(&directory, TaskAction::Start);
    let service = database();
    world.add_node("web-1000", 1000, &[&service]);
    world.deploy_machine("web-1000");
    for entity in &SERVICE_ENTITIES[..4] {
        world.deploy(entity, "web-1000", &service);
    }
    let lost = world.run_service(Purpose::Deploy, "cluster::Running", "web-1000", &service);
    assert_eq!(lost.outcome.status, OutcomeStatus::Failed, "{}", log(&lost));
    assert_eq!(world.deploy("cluster::Running", "web-1000", &service), ChangeKind::NoChange);
    check(&directory, &[(machine(1), running(&service))]);
}

#[test]
fn a_lost_initialization_is_unknown_until_the_node_tells() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = lossy_world(&directory, TaskAction::Initialize);
    let service = database();
    world.add_node("web-1000", 1000, &[&service]);
    world.deploy_machine("web-1000");
    for entity in &SERVICE_ENTITIES[..3] {
        world.deploy(entity, "web-1000", &service);
    }
    let lost = world.run_service(Purpose::Deploy, "cluster::Initialized", "web-1000", &service);
    assert_eq!(lost.outcome.status, OutcomeStatus::Failed);
    assert!(lost.unclear, "{}", log(&lost));
    assert_eq!(*world.effects_begun.borrow(), 1);
    world.has_unknown_effect = true;
    assert_eq!(world.deploy("cluster::Initialized", "web-1000", &service), ChangeKind::NoChange);
    assert_eq!(*world.effects_begun.borrow(), 1, "it was begun twice");
    world.deploy("cluster::Running", "web-1000", &service);
    check(&directory, &[(machine(1), running(&service))]);
}
