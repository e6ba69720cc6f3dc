//! Commands for tests, and a runner whose answers are read one by one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery_agent::journal::{Bounds, Journal};
use orrery_agent::protocol::{Answer, Command, FromAgent, What, WireResource};
use orrery_agent::running::{Limits, Runner, Setup};
use orrery_handlers::{Durability, LocalTarget, Registry};
use orrery_model::{LogLevel, ResourceFlags, ResourceId, VersionNumber};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, error::TryRecvError, unbounded_channel};
use tokio::time::timeout;
use uuid::Uuid;

pub(crate) const ENVIRONMENT: Uuid = Uuid::from_u128(77);
pub(crate) const NAME: &str = "web1";

/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A command that deploys something, under the epoch 1.
pub(crate) fn command(entity: &str, attribute: &str, value: &str, attributes: &Value) -> Command {
    Command {
        id: Uuid::new_v4(),
        environment: ENVIRONMENT,
        epoch: Some(1),
        seq: 1,
        what: What::Deploy,
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

/// One whose answer has so many facts of half a MiB.
pub(crate) fn telling(facts: usize) -> Command {
    let facts = (0..facts).map(|at| (format!("f{at:02}"), json!("x".repeat(512 * 1024))));
    let facts: serde_json::Map<_, _> = facts.collect();
    let what = What::Facts;
    let attributes = json!({"facts": facts});
    let told = command("std::testing::ScriptedResource", "name", "telling", &attributes);
    Command { what, ..told }
}

pub(crate) fn file(path: &Path, attributes: &Value) -> Command {
    command("std::File", "path", path.to_str().unwrap(), attributes)
}

/// Runs a command line every time it is deployed.
pub(crate) fn shell(line: &str) -> Command {
    command("exec::Run", "command", &format!("sh -c '{line}'"), &json!({}))
}

/// Holds commands up in the middle until a test lets them go on.
pub(crate) struct Gate {
    directory: PathBuf,
}

impl Gate {
    /// The directory is its own.
    pub(crate) fn new(directory: PathBuf) -> Self {
        std::fs::create_dir(&directory).unwrap();
        Gate { directory }
    }

    /// Notes that it began, waits at the gate, and notes its end. Commands of one name are for one resource.
    pub(crate) fn command(&self, name: &str) -> Command {
        let directory = self.directory.display();
        // A test that ends takes the directory along: nothing waits there for ever.
        let closed = format!("test -d {directory} -a ! -e {directory}/open");
        let wait = format!("while {closed}; do sleep 0.02; done");
        let log = format!("{directory}/log");
        shell(&format!("echo {name} begins >> {log}; {wait}; echo {name} ends >> {log}"))
    }

    pub(crate) fn open(&self) {
        std::fs::write(self.directory.join("open"), "").unwrap();
    }

    /// What was noted so far, in its order.
    pub(crate) fn noted(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until so many commands have begun.
    pub(crate) fn wait_for(&self, begun: usize) {
        let until = Instant::now() + PATIENCE;
        let count = || self.noted().iter().filter(|line| line.ends_with("begins")).count();
        while count() < begun {
            assert!(Instant::now() < until, "only these: {:?}", self.noted());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A runner, and what it says.
pub(crate) struct Bench {
    pub(crate) runner: Runner,
    said: UnboundedReceiver<FromAgent>,
    clock: tokio::runtime::Runtime,
}

impl Bench {
    pub(crate) fn new(journal: &Path) -> Self {
        Bench::with_limits(journal, Limits::default())
    }

    pub(crate) fn with_limits(journal: &Path, limits: Limits) -> Self {
        let runner = Runner::start(Setup {
            environment: ENVIRONMENT,
            names: vec![NAME.to_owned()],
            registry: Registry::native(),
            target: Arc::new(LocalTarget::new(Durability::None)),
            journal: Journal::open(journal, Bounds::default()).unwrap(),
            limits,
        });
        let runner = runner.unwrap();
        let (outbox, said) = unbounded_channel();
        runner.attach(outbox);
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        Bench { runner, said, clock }
    }

    /// As if the session broke and another began.
    pub(crate) fn reconnect(&mut self) {
        self.runner.detach();
        let (outbox, said) = unbounded_channel();
        self.runner.attach(outbox);
        self.said = said;
    }

    pub(crate) fn tell(&self, command: &Command) {
        self.runner.command(command.clone());
    }

    /// What it says next.
    pub(crate) fn hear(&mut self) -> FromAgent {
        let said = &mut self.said;
        let heard = self.clock.block_on(async { timeout(PATIENCE, said.recv()).await });
        heard.expect("something is said").expect("the runner is there")
    }

    pub(crate) fn is_silent(&mut self) -> bool {
        matches!(self.said.try_recv(), Err(TryRecvError::Empty))
    }

    /// The next result, after anything else.
    pub(crate) fn result(&mut self) -> Answer {
        loop {
            match self.hear() {
                FromAgent::Result(answer) => return *answer,
                FromAgent::Accepted { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    pub(crate) fn run(&mut self, command: &Command) -> Answer {
        self.tell(command);
        let answer = self.result();
        assert_eq!(answer.id, command.id);
        answer
    }
}
