//! Tasks on workers: both sides of the protocol, without a network between them.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use orrery_agent::CodeRunner as _;
use orrery_agent::calls::FETCH_CODE;
use orrery_agent::protocol::CodeReference;
use orrery_handlers::run::{
    HandlerRun, Purpose, Remote, RemoteCommand, RemoteError, RunContext, RunOutcome,
};
use orrery_handlers::{
    HandlerError, LocalSecrets, NoContents, OutwardTarget, PortableCode, ServerCalls, ServerReply,
    TargetCache,
};
use orrery_model::{OutcomeStatus, Timestamp};
use orrery_provisioner::automator::ShellAutomator;
use orrery_provisioner::dispatch::LocalDispatcher;
use orrery_provisioner::plugin::PluginResources;
use orrery_provisioner::plugins::Plugins;
use orrery_provisioner::provider::ProcessProvider;
use orrery_provisioner::runner::PluginRunner;
use orrery_provisioner::slots::Slots;
use orrery_provisioner::worker::{TaskRunner, WorkerDirectory, WorkerDispatcher, WorkerSite};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::harness::{MemoryResources, TestService, World, log, read};

const SCRIPT: &str = "#!/bin/sh\necho \"$1\" >>\"$HOME/actions\"\n";

/// A worker that is called directly.
struct DirectWorker {
    runner: TaskRunner,
    /// Digests that it fetched.
    fetched: Mutex<Vec<String>>,
    /// The connection breaks after the next run.
    loses_answer: AtomicBool,
}

struct Calls<'a> {
    worker: &'a DirectWorker,
    code: &'a dyn PortableCode,
}

/// Answers as `orrery_agent::calls` does, in parts of a few bytes.
impl ServerCalls for Calls<'_> {
    fn call(
        &self,
        method: &str,
        arguments: Map<String, Value>,
    ) -> Result<ServerReply, HandlerError> {
        assert_eq!(method, FETCH_CODE);
        let digest = arguments["digests"][0].as_str().unwrap();
        let offset = arguments["offset"].as_u64().unwrap();
        if offset == 0 {
            self.worker.fetched.lock().unwrap().push(digest.to_owned());
        }
        let Some(part) = self.code.read(digest, offset, 16)? else {
            return Ok(ServerReply { status: 404, result: json!({"message": "no such content"}) });
        };
        let content = BASE64.encode(part.content);
        let result = json!({"parts": [{"digest": digest, "size": part.size, "content": content}]});
        Ok(ServerReply { status: 200, result })
    }
}

impl Remote for DirectWorker {
    fn run(&self, command: &RemoteCommand<'_>) -> Result<RunOutcome, RemoteError> {
        let code = command.code.as_ref().unwrap();
        let reference =
            CodeReference { manifest: code.digest.clone(), environment: "e".to_owned() };
        let handler = self.runner.handler(&reference, command.run.version);
        let calls = Calls { worker: self, code: code.portable };
        let cache = TargetCache::new();
        let context = RunContext {
            cache: &cache,
            contents: &NoContents,
            secrets: &LocalSecrets,
            clock: &|| Timestamp(0),
            log_level: command.log_level,
            server: Some(&calls),
        };
        let outward = OutwardTarget::new(None, "none".to_owned(), String::new());
        let run = HandlerRun { purpose: Purpose::Deploy, ..command.run };
        let ended = run.run(&*handler, &outward, &context);
        if self.loses_answer.swap(false, Ordering::AcqRel) {
            return Err(RemoteError::Unknown { reason: "the connection was lost".to_owned() });
        }
        Ok(ended)
    }
}

#[derive(Default)]
struct TestWorkers(Mutex<Vec<WorkerSite>>);

impl WorkerDirectory for TestWorkers {
    fn connected(&self) -> Vec<WorkerSite> {
        self.0.lock().unwrap().clone()
    }

    fn exist(&self) -> bool {
        true
    }

    fn environment(&self) -> &'static str {
        "environment"
    }
}

struct Scene {
    directory: TempDir,
    world: World,
    workers: Arc<TestWorkers>,
    worker: Arc<DirectWorker>,
    service: TestService,
}

fn plugins(directory: &Path) -> Plugins {
    let mut plugins = Plugins::default();
    plugins.add_provider(Arc::new(ProcessProvider::new(directory)));
    plugins.add_automator(Arc::new(ShellAutomator::new()));
    plugins
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let nodes = directory.path().join("nodes");
        let of_slot = {
            let nodes = nodes.clone();
            move |_: &Path, contents: Arc<dyn PluginResources>| {
                PluginRunner::new(Arc::new(plugins(&nodes)), contents)
            }
        };
        let worker = Arc::new(DirectWorker {
            runner: TaskRunner::new(2, directory.path().join("worker"), Arc::new(of_slot)),
            fetched: Mutex::default(),
            loses_answer: AtomicBool::default(),
        });
        let workers = Arc::new(TestWorkers::default());
        let resources = Arc::new(MemoryResources::default());
        // Tasks that ran here would be seen: this process has no plug-ins for them.
        let here = PluginRunner::new(Arc::default(), Arc::clone(&resources) as _);
        let local = LocalDispatcher::new(Arc::new(here), Slots::new(1));
        let dispatcher =
            WorkerDispatcher::new(Arc::clone(&workers) as _, Arc::clone(&resources) as _, local);
        let mut world = World::with_dispatcher(
            Arc::new(plugins(&nodes)),
            Arc::new(dispatcher),
            resources,
            "process",
            json!({}),
        );
        world.upload_script("app.sh", SCRIPT);
        let service = TestService::of_script("app", "app.sh", &["install", "initialize"]);
        world.add_node("web-1000", 1000, &[&service]);
        Scene { directory, world, workers, worker, service }
    }

    fn connect(&self) {
        let remote: Arc<dyn Remote> = Arc::clone(&self.worker) as _;
        let site = WorkerSite { name: "w1".to_owned(), slots: 2, remote };
        self.workers.0.lock().unwrap().push(site);
    }

    fn actions(&self) -> String {
        let machine = "nodes/machines/orr-c1-1000-1/home/actions";
        read(&self.directory.path().join(machine))
    }
}

#[test]
fn a_worker_carries_out_tasks_and_fetches_each_content_once() {
    let scene = Scene::new();
    scene.connect();
    scene.world.deploy_machine("web-1000");
    scene.world.deploy("cluster::Installed", "web-1000", &scene.service);
    scene.world.deploy("cluster::Initialized", "web-1000", &scene.service);
    assert_eq!(scene.actions(), "install\ninitialize\n");
    let digests: Vec<String> = scene.world.plugin_resources.values().cloned().collect();
    assert_eq!(*scene.worker.fetched.lock().unwrap(), digests);
}

#[test]
fn without_a_connected_worker_tasks_wait_with_the_reason() {
    let scene = Scene::new();
    let attributes = scene.world.machine_attributes("web-1000");
    let run = || {
        scene.world.run(Purpose::Deploy, "cluster::Machine", "web-1000", "web-1000", &attributes)
    };
    let outcome = run();
    assert_ne!(outcome.outcome.status, OutcomeStatus::Deployed);
    assert!(!outcome.unclear);
    assert!(log(&outcome).contains("no worker is connected"), "{}", log(&outcome));
    scene.connect();
    assert_eq!(run().outcome.status, OutcomeStatus::Deployed);
}

#[test]
fn a_lost_answer_leaves_an_initialization_unknown_and_never_repeats_it() {
    let mut scene = Scene::new();
    scene.connect();
    scene.world.deploy_machine("web-1000");
    scene.world.deploy("cluster::Installed", "web-1000", &scene.service);
    // The first task of a run reads the state, the second one initializes.
    let entity = "cluster::Initialized";
    let worker = Arc::clone(&scene.worker);
    scene.world.effects_begun.replace(0);
    let lost = {
        // Lost while the node has no record yet: the read is asked for again by the next run.
        worker.loses_answer.store(true, Ordering::Release);
        scene.world.run_service(Purpose::Deploy, entity, "web-1000", &scene.service)
    };
    assert_ne!(lost.outcome.status, OutcomeStatus::Deployed);
    assert_eq!(scene.actions(), "install\n");
    scene.world.deploy(entity, "web-1000", &scene.service);
    assert_eq!(scene.actions(), "install\ninitialize\n");
    // The server believes that its end is unknown; the node knows better.
    scene.world.has_unknown_effect = true;
    scene.world.deploy(entity, "web-1000", &scene.service);
    assert_eq!(scene.actions(), "install\ninitialize\n");
}
