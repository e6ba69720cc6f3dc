//! Test harness: a host, a handler over it, and resources.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub(crate) use orrery_handler_host::HostLimits;
use orrery_handler_host::{
    FileContents, HandlerCallbacks, HandlerHosts, HostedHandler, NoParameters,
};
use orrery_handlers::run::{HandlerRun, Purpose, RunContext};
use orrery_handlers::{
    CancelToken, Context, Handler, LocalSecrets, MemoryTarget, Mode, NoContents, TargetCache,
};
use orrery_host::handshake::{HostRole, Init};
use orrery_host::process::HostCommand;
use orrery_model::{Attributes, LogLevel, Outcome, Resource, ResourceId, Timestamp, VersionNumber};
use serde_json::{Value, json};

/// Hosts and the directory of a test.
pub(crate) struct World {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) hosts: Arc<HandlerHosts>,
    pub(crate) handler: HostedHandler,
}

/// Short limits for tests.
pub(crate) fn limits() -> HostLimits {
    HostLimits {
        operations_max: 256,
        processes_max: 1,
        start_time_max: Duration::from_secs(30),
        cancel_time_max: Duration::from_millis(300),
        drain_time_max: Duration::from_millis(300),
        ping_interval: Duration::from_millis(100),
        silence_max: Duration::from_secs(20),
        idle_time_max: Duration::from_secs(60),
        shutdown_time_max: Duration::from_secs(2),
        backoff_max: Duration::from_millis(300),
        memory_max: Some(512 << 20),
    }
}

pub(crate) fn init(dir: &Path) -> Init {
    Init {
        role: HostRole::Handlers,
        project: dir.to_owned(),
        environment: Some("6f0e8a4a-0000-4000-8000-000000000001".to_owned()),
        data: dir.join("data"),
        files: dir.join("files"),
        fetch: false,
        tests: false,
        path: Vec::new(),
        config: serde_json::Map::new(),
        modules: Vec::new(),
    }
}

/// A host that is a script of an interpreter on the search path.
pub(crate) fn script(interpreter: &str, file: PathBuf) -> HostCommand {
    HostCommand {
        name: "test".to_owned(),
        program: interpreter.into(),
        arguments: vec![file.into()],
        ..HostCommand::default()
    }
}

impl World {
    pub(crate) fn new(limits: HostLimits) -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/misbehaving_host.py");
        World::with(script("python3", file), limits, |_| {})
    }

    pub(crate) fn with(
        command: HostCommand,
        limits: HostLimits,
        change: impl FnOnce(&mut Init),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut init = init(dir.path());
        change(&mut init);
        let services = HandlerCallbacks {
            files: FileContents::complete(init.files.clone()),
            environment: init.environment.clone(),
            parameters: Arc::new(NoParameters),
        };
        let hosts = Arc::new(HandlerHosts::new(command, init, services, limits));
        let handler = HostedHandler::new(Arc::clone(&hosts));
        World { dir, hosts, handler }
    }

    /// Deploys a resource with a handler that misbehaves in this mode.
    pub(crate) fn deploy(&self, agent: &str, mode: &str) -> Outcome {
        self.deploy_with(agent, json!({ "mode": mode }))
    }

    pub(crate) fn deploy_with(&self, agent: &str, attributes: Value) -> Outcome {
        self.run(&format!("m::R[{agent},name=x]"), attributes, Mode::Deploy, &CancelToken::never())
    }

    pub(crate) fn run(
        &self,
        id: &str,
        attributes: Value,
        mode: Mode,
        stop: &CancelToken,
    ) -> Outcome {
        with_context(id, mode, stop, |context| {
            let attributes = Attributes::from_object(attributes.as_object().unwrap().clone());
            self.handler.run(&attributes, context)
        })
    }

    /// Deploys several concurrently, each on an agent of its own; all begin before any continues.
    pub(crate) fn deploy_together(&self, modes: &[&str]) -> Vec<Outcome> {
        let place = self.dir.path().join("together");
        std::fs::create_dir_all(&place).unwrap();
        let marker = self.dir.path().join("marker");
        std::thread::scope(|scope| {
            let start = |(at, mode): (usize, &&str)| {
                let together = json!([place, modes.len()]);
                let attributes = json!({ "mode": mode, "together": together, "marker": marker });
                scope.spawn(move || self.deploy_with(&format!("agent{at}"), attributes))
            };
            let threads: Vec<_> = modes.iter().enumerate().map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }
}

/// Creates a context as the executor does.
pub(crate) fn with_context<T>(
    id: &str,
    mode: Mode,
    stop: &CancelToken,
    work: impl FnOnce(&mut Context<'_>) -> T,
) -> T {
    let id: ResourceId = id.parse().unwrap();
    let required: ResourceId = "m::R[other,name=before]".parse().unwrap();
    let (target, cache) = (MemoryTarget::new(), TargetCache::new());
    let services = RunContext {
        cache: &cache,
        contents: &NoContents,
        secrets: &LocalSecrets,
        clock: &now,
        log_level: LogLevel::Debug,
        server: None,
    };
    let mut resource = Resource::new(id, Attributes::parse("{}").unwrap(), vec![required]);
    resource.flags.report_only = mode == Mode::ReportOnly;
    let run = HandlerRun {
        purpose: if mode == Mode::DryRun { Purpose::DryRun } else { Purpose::Deploy },
        resource: &resource,
        version: VersionNumber(3),
        epoch: None,
        deployed_before: false,
        changed_dependencies: &resource.requires,
        reason: &"a test wants it",
        stop,
        before_change: None,
        effects: None,
    };
    work(&mut Context::new(&run, &target, &services))
}

#[expect(clippy::disallowed_methods, reason = "log lines of tests have a time, too")]
fn now() -> Timestamp {
    Timestamp::from_system(SystemTime::now())
}

/// Returns all messages of a log, one per line.
pub(crate) fn messages(outcome: &Outcome) -> String {
    outcome.log.iter().map(|line| format!("{} {}\n", line.level.as_str(), line.message)).collect()
}

/// Returns the process id in an outcome.
pub(crate) fn pid_of(outcome: &Outcome) -> u32 {
    let fact = outcome.facts.iter().find(|fact| fact.name == "pid").expect("it ended well");
    fact.value.parse().unwrap()
}
