//! Commands for tests, and a runner with inspectable messages.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery_agent::journal::{Journal, JournalLimits};
use orrery_agent::protocol::{Command, CommandKind, CommandResult, FromAgent, WireResource};
use orrery_agent::runner::{CommandScope, Limits, Runner, RunnerSetup};
use orrery_agent::{CodeRunner, Policy};
use orrery_handlers::drift::FileWatch;
use orrery_handlers::{Durability, LocalTarget, Registry};
use orrery_model::{LogLevel, ResourceFlags, ResourceId, VersionNumber};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, error::TryRecvError, unbounded_channel};
use tokio::time::timeout;
use uuid::Uuid;

pub(crate) const ENVIRONMENT: Uuid = Uuid::from_u128(77);
pub(crate) const NAME: &str = "web1";

/// Timeout of all waits.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A deploy command of epoch 1.
pub(crate) fn command(entity: &str, attribute: &str, value: &str, attributes: &Value) -> Command {
    Command {
        id: Uuid::new_v4(),
        environment: ENVIRONMENT,
        epoch: Some(1),
        seq: 1,
        what: CommandKind::Deploy,
        resource: WireResource {
            id: ResourceId::new(entity, NAME, attribute, value).unwrap(),
            attributes: attributes.to_string(),
            version: VersionNumber(1),
            requires: Vec::new(),
            flags: ResourceFlags::default(),
        },
        deployed_before: false,
        changed_dependencies: Vec::new(),
        reason: "a test".to_owned(),
        contents: [].into(),
        secrets: [].into(),
        code: None,
        unknown_effect: false,
        wants_announcement: false,
        deadline_ms: Some(60_000),
        log_level: LogLevel::Debug,
    }
}

/// A resource that does nothing, for a while.
pub(crate) fn pause(name: &str, delay_ms: u64) -> Command {
    let attributes = json!({"delay_ms": delay_ms});
    command("std::testing::ScriptedResource", "name", name, &attributes)
}

/// A resource with this many facts of half a MiB.
pub(crate) fn with_facts(facts: usize) -> Command {
    let facts = (0..facts).map(|at| (format!("f{at:02}"), json!("x".repeat(512 * 1024))));
    let facts: serde_json::Map<_, _> = facts.collect();
    let what = CommandKind::Facts;
    let attributes = json!({"facts": facts});
    let told = command("std::testing::ScriptedResource", "name", "telling", &attributes);
    Command { what, ..told }
}

pub(crate) fn file(path: &Path, attributes: &Value) -> Command {
    command("std::File", "path", path.to_str().unwrap(), attributes)
}

/// Runs a command line at every deploy.
pub(crate) fn shell(line: &str) -> Command {
    command("exec::Run", "command", &format!("sh -c '{line}'"), &json!({}))
}

/// Blocks commands in the middle until a test releases them.
pub(crate) struct Gate {
    directory: PathBuf,
}

impl Gate {
    /// The directory must be its own.
    pub(crate) fn new(directory: PathBuf) -> Self {
        std::fs::create_dir(&directory).unwrap();
        Gate { directory }
    }

    /// Records its start, waits at the gate, and records its end. Commands of one name have one
    /// resource.
    pub(crate) fn command(&self, name: &str) -> Command {
        let directory = self.directory.display();
        // The end of a test removes the directory, so nothing waits forever.
        let closed = format!("test -d {directory} -a ! -e {directory}/open");
        let wait = format!("while {closed}; do sleep 0.02; done");
        let log = format!("{directory}/log");
        shell(&format!("echo {name} begins >> {log}; {wait}; echo {name} ends >> {log}"))
    }

    pub(crate) fn open(&self) {
        std::fs::write(self.directory.join("open"), "").unwrap();
    }

    /// Records so far, in order.
    pub(crate) fn records(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until this many commands have started.
    pub(crate) fn wait_for(&self, begun: usize) {
        let until = Instant::now() + TIMEOUT;
        let count = || self.records().iter().filter(|line| line.ends_with("begins")).count();
        while count() < begun {
            assert!(Instant::now() < until, "only these: {:?}", self.records());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A runner and its messages.
pub(crate) struct Harness {
    pub(crate) runner: Runner,
    said: UnboundedReceiver<FromAgent>,
    clock: tokio::runtime::Runtime,
}

impl Harness {
    pub(crate) fn new(journal: &Path) -> Self {
        Harness::with_limits(journal, Limits::default())
    }

    pub(crate) fn with_limits(journal: &Path, limits: Limits) -> Self {
        Harness::with_policy(journal, limits, None)
    }

    pub(crate) fn with_policy(journal: &Path, limits: Limits, policy: Option<Policy>) -> Self {
        Harness::with(journal, limits, policy, None)
    }

    /// With a runner of the code that commands name.
    pub(crate) fn with_code(
        journal: &Path,
        policy: Option<Policy>,
        code_runner: Option<Arc<dyn CodeRunner>>,
    ) -> Self {
        Harness::with(journal, Limits::default(), policy, code_runner)
    }

    fn with(
        journal: &Path,
        limits: Limits,
        policy: Option<Policy>,
        code_runner: Option<Arc<dyn CodeRunner>>,
    ) -> Self {
        let watch = Arc::new(FileWatch::default());
        let runner = Runner::start(RunnerSetup {
            scope: CommandScope::Agents { environment: ENVIRONMENT, names: vec![NAME.to_owned()] },
            registry: Registry::native(),
            target: Arc::new(
                LocalTarget::new(Durability::None).with_watch(Arc::clone(&watch) as _),
            ),
            watch: Some(watch),
            policy: policy.map(Arc::new),
            journal: Some(Journal::open(journal, JournalLimits::default()).unwrap()),
            limits,
            code_runner,
        });
        let runner = runner.unwrap();
        let (outbox, said) = unbounded_channel();
        runner.attach(outbox);
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        Harness { runner, said, clock }
    }

    /// Simulates a lost session and a new one.
    pub(crate) fn reconnect(&mut self) {
        self.runner.detach();
        let (outbox, said) = unbounded_channel();
        self.runner.attach(outbox);
        self.said = said;
    }

    pub(crate) fn send(&self, command: &Command) {
        self.runner.command(command.clone());
    }

    /// Next message.
    pub(crate) fn receive(&mut self) -> FromAgent {
        let said = &mut self.said;
        let heard = self.clock.block_on(async { timeout(TIMEOUT, said.recv()).await });
        heard.expect("something is said").expect("the runner is there")
    }

    pub(crate) fn is_silent(&mut self) -> bool {
        matches!(self.said.try_recv(), Err(TryRecvError::Empty))
    }

    /// Next result; skips other messages.
    pub(crate) fn result(&mut self) -> CommandResult {
        loop {
            match self.receive() {
                FromAgent::Result(answer) => return *answer,
                FromAgent::Accepted { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    pub(crate) fn run(&mut self, command: &Command) -> CommandResult {
        self.send(command);
        let answer = self.result();
        assert_eq!(answer.id, command.id);
        answer
    }
}
