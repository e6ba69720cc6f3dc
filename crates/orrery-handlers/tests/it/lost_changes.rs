//! Connections that are lost before, during and after a change: a lost read is a machine that is not
//! reached, and a lost change is an effect that is unknown.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use orrery_handlers::run::{HandlerRun, Purpose, RunContext, RunOutcome};
use orrery_handlers::target::{LocalShell, Ownership, ShellTarget, Transport, TransportErrorKind};
use orrery_handlers::{
    CancelToken, Context, Crud, Handler, HandlerError, LocalSecrets, NoContents, Registry, Target,
    TargetCache,
};
use orrery_model::{
    AttributeDiff, Attributes, LogLevel, OutcomeStatus, Resource, Timestamp, VersionNumber,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::reason;

const UNKNOWN: &str = "the effect is unknown: the change may have been made";

struct Machine {
    directory: TempDir,
    transport: Arc<LocalShell>,
    target: ShellTarget,
}

impl Machine {
    /// A machine whose shell is probed already.
    fn new() -> Self {
        let transport = Arc::new(LocalShell::default());
        let target = ShellTarget::new(Arc::clone(&transport) as Arc<dyn Transport>);
        target.stat("/etc").unwrap();
        Machine { directory: TempDir::new().unwrap(), transport, target }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    /// Runs a handler as the executor does for a resource without dependents.
    fn deploy(&self, handler: &dyn Handler, id: &str, attributes: &str) -> RunOutcome {
        let attributes = Attributes::parse(attributes).unwrap();
        let resource = Resource::new(id.parse().unwrap(), attributes, Vec::new());
        let run = HandlerRun {
            purpose: Purpose::Deploy,
            resource: &resource,
            version: VersionNumber(1),
            epoch: None,
            deployed_before: false,
            changed_dependencies: &[],
            reason: &"a test",
            stop: &CancelToken::never(),
            before_change: None,
            effects: None,
        };
        let services = RunContext {
            cache: &TargetCache::new(),
            contents: &NoContents,
            secrets: &LocalSecrets,
            clock: &|| Timestamp(0),
            log_level: LogLevel::Debug,
            server: None,
        };
        run.run(handler, &self.target, &services)
    }

    fn native(&self, id: &str, attributes: &str) -> RunOutcome {
        let entity = id.split('[').next().unwrap();
        let registry = Registry::native();
        self.deploy(&**registry.handler(entity).unwrap(), id, attributes)
    }
}

#[test]
fn a_command_lost_while_it_runs_may_have_been_carried_out() {
    let machine = Machine::new();
    let (marker, id) = (machine.path("ran"), "exec::Run[a,command=./x]");
    for attributes in ["{}", r#"{"skip_on_fail":true}"#, r#"{"once":true}"#] {
        let id = id.replace("./x", &format!("/bin/sh -c 'touch {marker}; sleep 60'"));
        // The shell is probed on each new connection.
        machine.target.stat("/etc").unwrap();
        machine.transport.lose_next(Duration::from_millis(500));
        let ended = machine.native(&id, attributes);
        assert!(fs::exists(&marker).unwrap(), "{attributes}: it ran on the machine");
        let said = reason(&ended.outcome);
        assert_eq!(ended.outcome.status, OutcomeStatus::Failed, "{attributes}: {said}");
        assert!(said.contains(UNKNOWN) && ended.unclear, "{attributes}: {said}");
        fs::remove_file(&marker).unwrap();
    }
}

#[test]
fn a_file_lost_while_it_is_written_may_have_been_changed() {
    let machine = Machine::new();
    let path = machine.path("file");
    let id = format!("std::File[a,path={path}]");
    // The read before the change is answered.
    let handler = LosesChange { transport: Arc::clone(&machine.transport) };
    let ended = machine.deploy(&handler, &id, r#"{"lost":"write"}"#);
    assert_eq!(fs::read_to_string(&path).unwrap(), "one", "it was written");
    let said = reason(&ended.outcome);
    assert_eq!(ended.outcome.status, OutcomeStatus::Failed, "{said}");
    assert!(said.contains(UNKNOWN) && ended.unclear, "{said}");
}

#[test]
fn a_lost_read_is_a_machine_that_is_not_reached() {
    let machine = Machine::new();
    let path = machine.path("file");
    machine.transport.lose_next(Duration::ZERO);
    let ended = machine.native(&format!("std::File[a,path={path}]"), r#"{"content":"x"}"#);
    let said = reason(&ended.outcome);
    assert_eq!(ended.outcome.status, OutcomeStatus::Unavailable, "{said}");
    assert!(!said.contains("unknown") && !ended.unclear, "{said}");
    assert!(!fs::exists(&path).unwrap());
}

#[test]
fn a_change_that_was_not_started_is_a_machine_that_is_not_reached() {
    let machine = Machine::new();
    let marker = machine.path("ran");
    machine.transport.fail_next(TransportErrorKind::Unreachable);
    let id = format!("exec::Run[a,command=/bin/touch {marker}]");
    let ended = machine.native(&id, r#"{"once":true}"#);
    let said = reason(&ended.outcome);
    assert_eq!(ended.outcome.status, OutcomeStatus::Unavailable, "{said}");
    assert!(!said.contains("unknown") && !ended.unclear, "{said}");
    assert!(!fs::exists(&marker).unwrap());
    // Neither is one whose preparation was lost: the shell is probed on each new connection.
    machine.transport.lose_next(Duration::ZERO);
    let ended = machine.native(&id, r#"{"once":true}"#);
    let said = reason(&ended.outcome);
    assert_eq!(ended.outcome.status, OutcomeStatus::Unavailable, "{said}");
    assert!(!ended.unclear && !fs::exists(&marker).unwrap(), "{said}");
}

/// The first half of a change is made, and the machine is not reached for the second.
#[test]
fn a_change_that_is_cut_in_half_is_said() {
    let machine = Machine::new();
    let path = machine.path("file");
    let handler = LosesChange { transport: Arc::clone(&machine.transport) };
    let id = format!("std::File[a,path={path}]");
    let ended = machine.deploy(&handler, &id, r#"{"lost":"second write"}"#);
    assert_eq!(fs::read_to_string(&path).unwrap(), "one", "a part of the change was made");
    let said = reason(&ended.outcome);
    assert_eq!(ended.outcome.status, OutcomeStatus::Failed, "{said}");
    assert!(said.contains(UNKNOWN), "{said}");
    // A read within the change, before anything is changed, is a lost read.
    fs::remove_file(&path).unwrap();
    let ended = machine.deploy(&handler, &id, r#"{"lost":"look"}"#);
    assert!(!fs::exists(&path).unwrap());
    let said = reason(&ended.outcome);
    assert_eq!(ended.outcome.status, OutcomeStatus::Unavailable, "{said}");
    assert!(!said.contains("unknown"), "{said}");
}

/// Writes twice, and loses the connection at a place in between.
struct LosesChange {
    transport: Arc<LocalShell>,
}

impl Crud for LosesChange {
    type Desired = Value;
    type Current = ();

    fn is_purged(_: &Value) -> bool {
        false
    }

    fn read(&self, _: &Value, context: &mut Context<'_>) -> Result<Option<()>, HandlerError> {
        Ok(context.target().stat(context.id().value())?.map(|_| ()))
    }

    fn diff(
        &self,
        _: &Value,
        (): &(),
        _: &mut Context<'_>,
    ) -> Result<Vec<AttributeDiff>, HandlerError> {
        Ok(Vec::new())
    }

    fn create(&self, desired: &Value, context: &mut Context<'_>) -> Result<(), HandlerError> {
        let (target, path) = (context.target(), context.id().value());
        let lost = desired["lost"].as_str().unwrap();
        if lost == "look" {
            self.transport.lose_next(Duration::ZERO);
        }
        target.stat(path)?;
        if lost == "write" {
            self.transport.lose_next(Duration::from_secs(5));
        }
        target.write_file(path, b"one", Ownership::default())?;
        if lost == "second write" {
            self.transport.fail_next(TransportErrorKind::Unreachable);
        }
        target.write_file(path, b"two", Ownership::default())?;
        Ok(())
    }

    fn update(
        &self,
        _: &Value,
        (): &(),
        _: &[AttributeDiff],
        _: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        Ok(())
    }

    fn delete(&self, _: &Value, (): &(), _: &mut Context<'_>) -> Result<(), HandlerError> {
        Ok(())
    }
}
