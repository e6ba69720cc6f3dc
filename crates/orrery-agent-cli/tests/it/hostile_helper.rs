//! Machines whose helper is not ours: it floods, or sends malformed and oversized messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery_agent::helper::{RemoteMachine, connect};
use orrery_agent::protocol::{FromAgent, Hello, Machine, PROTOCOL};
use orrery_handlers::CancelToken;
use orrery_handlers::run::Remote;
use orrery_handlers::target::{
    ExecLimits, LocalShell, Output, RemoteProcess, Transport, TransportError,
};
use orrery_model::OutcomeStatus;
use uuid::Uuid;

use crate::helper::{binaries, deploy, reason};

const SOON: Duration = Duration::from_secs(30);

/// Starts another program than the one that it is asked for.
struct HostileMachine {
    shell: LocalShell,
    program: String,
}

impl Transport for HostileMachine {
    fn exec(
        &self,
        command: &str,
        input: &[u8],
        limits: &ExecLimits,
        stop: &CancelToken,
    ) -> Result<Output, TransportError> {
        self.shell.exec(command, input, limits, stop)
    }

    fn start(&self, _: &str, stop: &CancelToken) -> Result<RemoteProcess, TransportError> {
        self.shell.start(&self.program, stop)
    }

    fn upload(
        &self,
        path: &str,
        content: &[u8],
        mode: u32,
        stop: &CancelToken,
    ) -> Result<(), TransportError> {
        self.shell.upload(path, content, mode, stop)
    }

    fn destination(&self) -> &str {
        self.shell.destination()
    }

    fn generation(&self) -> u64 {
        self.shell.generation()
    }
}

fn machine(program: String) -> RemoteMachine {
    let transport = Arc::new(HostileMachine { shell: LocalShell::default(), program });
    connect(transport, &binaries(), None, &CancelToken::never()).unwrap()
}

/// A helper that greets, reads a command, and then does this.
fn helper_that(does: &str) -> Arc<dyn Remote> {
    let hello = FromAgent::Hello(Hello {
        protocol: PROTOCOL,
        program_version: "1".to_owned(),
        boot: Uuid::new_v4(),
        running: Vec::new(),
        machine: Machine::default(),
        types: Vec::new(),
        python: false,
    });
    let hello = serde_json::to_string(&hello).unwrap();
    match machine(format!("echo '{hello}'; read -r command; {does}")) {
        RemoteMachine::Helper(remote) => remote,
        RemoteMachine::Shell { .. } => panic!("no helper"),
    }
}

/// Resident memory of this process in MiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

#[test]
fn malformed_and_oversized_messages_end_the_helper_and_the_effect_is_unknown() {
    for (name, does) in [
        ("no JSON", "echo nonsense; sleep 60"),
        ("another message", r#"echo '{"result":{"id":"x"}}'; sleep 60"#),
        ("bytes", r"printf '\377\376\000\n'; sleep 60"),
        ("a line without end", "exec tr '\\0' x < /dev/zero"),
    ] {
        let remote = helper_that(does);
        let (before, began) = (memory(), Instant::now());
        let outcome = deploy(&*remote, "std::File[a,path=/nonexistent/f]", r#"{"content":"x"}"#);
        assert_eq!(outcome.outcome.status, OutcomeStatus::Failed, "{name}");
        assert!(outcome.unclear, "{name}: {}", reason(&outcome.outcome));
        assert!(began.elapsed() < SOON, "{name}: {:?}", began.elapsed());
        let grown = memory().saturating_sub(before);
        // The longest message, and the growth of its buffer.
        assert!(grown < 200, "{name}: {grown} MiB");
    }
}

#[test]
fn a_flood_instead_of_a_greeting_is_no_helper() {
    let began = Instant::now();
    let found = machine("exec yes welcome".to_owned());
    assert!(matches!(found, RemoteMachine::Shell { .. }), "it is used by its shell");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}
