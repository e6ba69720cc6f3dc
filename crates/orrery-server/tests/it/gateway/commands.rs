//! Commands from an engine to a remote agent and back, with failures on the way.

use std::time::{Duration, Instant};

use orrery_agent::protocol::{
    Command, CommandKind, CommandResult, FromAgent, RejectionCode, ToAgent, WireOutcome,
};
use orrery_model::{Change, ChangeKind, Fact, OutcomeStatus};
use orrery_server::{ProcessOptions, ProcessRole, ServerState};
use orrery_store::{GatewayHeartbeat, NewAgentSession};
use serde_json::{Value, json};

use super::World;
use super::test_client::{Identity, Session};

const FILE: &str = "std::testing::NullResource[web1,name=a]";

/// A world with a process role.
pub(super) struct EngineWorld {
    role: Option<ProcessRole>,
    pub(super) world: World,
    _data: tempfile::TempDir,
}

impl EngineWorld {
    pub(super) fn new() -> Self {
        Self::within(World::new())
    }

    pub(super) fn within(world: World) -> Self {
        let app = world.served.app.clone();
        Self::with(world, app)
    }

    /// Runs the process role in another process than the gateway.
    fn in_another_process() -> Self {
        let world = World::new();
        let app = ServerState::new(world.served.app.store().clone(), world.settings.clone());
        Self::with(world, app)
    }

    fn with(world: World, app: ServerState) -> Self {
        let data = tempfile::tempdir().unwrap();
        let options = ProcessOptions {
            data: data.path().to_owned(),
            workers: orrery_executor::WorkerLimits::starting_at(4),
            lease: world.database.is_some().then_some(Duration::from_secs(10)),
            host_memory: None,
            isolation: orrery_server::Isolation::Shared,
            own_machine: orrery_server::OwnMachineOptions::shared(),
        };
        let role = {
            let _runtime = world.runtime.enter();
            ProcessRole::start(app, options).unwrap()
        };
        EngineWorld { role: Some(role), world, _data: data }
    }

    /// Stores and releases a version with one resource of the agent `web1`.
    fn put(&self, value: &str) {
        self.put_resource(FILE, &json!({"name": "a", "value": value, "agentname": "web1"}));
    }

    pub(super) fn put_resource(&self, id: &str, attributes: &Value) {
        let resource = json!({"id": id, "attributes": attributes, "requires": []});
        let body = json!({"resources": [resource]});
        self.world.served.admin.post(&self.world.path("/versions"), &body).good();
    }

    fn resource(&self) -> Value {
        let path = self.world.path(&format!("/resources/{}", encoded(FILE)));
        self.world.served.admin.get(&path).body
    }

    fn until_status(&self, status: &str) {
        self.world.until(status, |_| self.resource()["status"] == status);
    }

    /// Returns the log of the resource.
    fn last_log(&self) -> String {
        let path = self.world.path(&format!("/resources/{}/logs", encoded(FILE)));
        self.world.served.admin.get(&path).text
    }
}

impl Drop for EngineWorld {
    fn drop(&mut self) {
        if let Some(role) = self.role.take() {
            role.stop();
        }
    }
}

fn encoded(id: &str) -> String {
    id.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

pub(super) fn answer(command: &Command, status: OutcomeStatus) -> FromAgent {
    let change = Change { kind: ChangeKind::Updated, ..Change::default() };
    let outcome = WireOutcome { status, change, facts: Vec::new(), log: Vec::new() };
    let id = command.id;
    FromAgent::Result(Box::new(CommandResult {
        id,
        outcome,
        announced: true,
        repeated: false,
        unclear: false,
    }))
}

pub(super) fn connected(working: &EngineWorld) -> (Identity, Session) {
    let machine = working.world.enrolled(&["web1"]);
    let (session, _) = machine.open(&working.world.address);
    (machine, session)
}

#[test]
fn a_command_has_all_that_is_needed_and_its_answer_counts() {
    let working = EngineWorld::new();
    let (_machine, mut session) = connected(&working);
    working.put("1");
    let command = session.command();
    assert_eq!(command.what, CommandKind::Deploy);
    assert_eq!(command.resource.id.as_str(), FILE);
    assert!(command.epoch.is_some_and(|epoch| epoch > 0), "{command:?}");
    assert!(working.world.environment.ends_with(&command.environment.to_string()));
    session.send(&FromAgent::Accepted { id: command.id });
    session.send(&answer(&command, OutcomeStatus::Deployed));
    working.until_status("deployed");
    // A second result of the same command is dropped.
    session.send(&answer(&command, OutcomeStatus::Failed));
    working.put("2");
    let second = session.command();
    assert!(second.seq > command.seq && second.id != command.id);
    assert!(second.deployed_before);
    session.send(&answer(&second, OutcomeStatus::Failed));
    working.until_status("failed");
    let metrics = working.world.served.admin.get("/metrics").text;
    assert!(metrics.contains(r#"orrery_agent_calls_total{result="answered"} 2"#), "{metrics}");
}

#[test]
fn a_disconnected_agent_is_unavailable_at_once_and_deployed_when_it_connects() {
    let working = EngineWorld::new();
    let machine = working.world.enrolled(&["web1"]);
    let began = Instant::now();
    working.put("1");
    working.until_status("unavailable");
    assert!(began.elapsed() < Duration::from_secs(20), "it fails without waiting");
    let log = working.last_log();
    assert!(log.contains("the remote agent web1 is not connected"), "{log}");
    let agent = || working.world.served.admin.get(&working.world.path("/agents/web1")).good();
    assert_eq!(
        (&agent()["status"], &agent()["remote_agent"]),
        (&json!("down"), &json!(machine.agent))
    );
    let (mut session, _) = machine.open(&working.world.address);
    let command = session.command();
    assert_eq!(agent()["status"], "up");
    session.send(&answer(&command, OutcomeStatus::Deployed));
    working.until_status("deployed");
}

#[test]
fn a_session_that_breaks_gets_the_same_command_again() {
    let working = EngineWorld::new();
    let (machine, mut session) = connected(&working);
    working.put("1");
    let first = session.command();
    session.send(&FromAgent::Accepted { id: first.id });
    drop(session);
    let (mut session, _) = machine.open(&working.world.address);
    let again = session.command();
    assert_eq!((again.id, again.seq), (first.id, first.seq));
    session.send(&answer(&again, OutcomeStatus::Deployed));
    working.until_status("deployed");
}

#[test]
fn a_busy_agent_gets_the_command_again() {
    let working = EngineWorld::new();
    let (_machine, mut session) = connected(&working);
    working.put("1");
    let first = session.command();
    session.send(&FromAgent::Busy { id: first.id });
    let again = session.command();
    assert_eq!(again.id, first.id);
    session.send(&answer(&again, OutcomeStatus::Deployed));
    working.until_status("deployed");
}

#[test]
fn a_rejected_command_fails_with_its_reason() {
    let working = EngineWorld::new();
    let (_machine, mut session) = connected(&working);
    working.put("1");
    let command = session.command();
    session.send(&FromAgent::Rejected {
        id: command.id,
        code: RejectionCode::Fenced,
        reason: "older".to_owned(),
    });
    working.until_status("failed");
    let log = working.last_log();
    assert!(log.contains("another server holds the lease"), "{log}");
}

#[test]
fn an_agent_cannot_answer_for_another() {
    let working = EngineWorld::new();
    let (_machine, mut session) = connected(&working);
    let other = working.world.enrolled(&["web2"]);
    let (mut second, _) = other.open(&working.world.address);
    working.put("1");
    let command = session.command();
    second.send(&answer(&command, OutcomeStatus::Failed));
    // The gateway reads this message after the previous one.
    second.send(&FromAgent::Pong);
    std::thread::sleep(Duration::from_millis(200));
    assert_ne!(working.resource()["status"], "failed");
    session.send(&answer(&command, OutcomeStatus::Deployed));
    working.until_status("deployed");
}

#[test]
fn a_halt_cancels_what_runs() {
    let working = EngineWorld::new();
    let (_machine, mut session) = connected(&working);
    working.put("1");
    let command = session.command();
    working.world.served.admin.post(&working.world.path("/halt"), &json!({})).good();
    match session.receive() {
        Some(ToAgent::Cancel { id }) => assert_eq!(id, command.id),
        other => panic!("{other:?}"),
    }
    session.send(&answer(&command, OutcomeStatus::Skipped));
    working.world.served.admin.post(&working.world.path("/resume"), &json!({})).good();
    let again = session.command();
    assert_ne!(again.id, command.id, "it is another run");
    session.send(&answer(&again, OutcomeStatus::Deployed));
    working.until_status("deployed");
}

#[test]
fn a_revoked_agents_resources_wait_for_another_machine() {
    let working = EngineWorld::new();
    let (machine, mut session) = connected(&working);
    working.put("1");
    let command = session.command();
    session.send(&answer(&command, OutcomeStatus::Deployed));
    working.until_status("deployed");
    let path = working.world.path(&format!("/remote-agents/{}", machine.agent));
    assert_eq!(working.world.served.admin.delete(&path).status, 204);
    working.put("2");
    working.until_status("unavailable");
    let log = working.last_log();
    assert!(log.contains("was revoked"), "{log}");
    // The next machine has no state of the former one.
    let (_machine, mut session) = connected(&working);
    let command = session.command();
    session.send(&answer(&command, OutcomeStatus::Deployed));
    working.until_status("deployed");
}

#[test]
fn a_released_agent_is_not_the_servers_own_machine() {
    let working = EngineWorld::new();
    let machine = working.world.enrolled(&["web1"]);
    working.put("1");
    working.until_status("unavailable");
    let path = working.world.path(&format!("/remote-agents/{}?release=true", machine.agent));
    assert_eq!(working.world.served.admin.delete(&path).status, 204);
    // A resource that needs no machine is deployed.
    working.until_status("deployed");
    let directory = tempfile::tempdir().unwrap();
    let marker = directory.path().join("marker");
    let line = format!("touch {}", marker.display());
    working.put_resource(&format!("exec::Run[web1,command={line}]"), &json!({"command": line}));
    let path = working.world.path("/resources");
    working.world.until("it has no machine", |world| {
        let listed = world.served.admin.get(&path).good();
        let items = listed["items"].as_array().unwrap();
        items.iter().any(|one| one["status"] == "unavailable")
    });
    assert!(!marker.exists(), "it ran on the server");
}

#[test]
fn a_dry_run_asks_the_remote_agent_too() {
    let working = EngineWorld::new();
    let (_machine, mut session) = connected(&working);
    working.put("1");
    let command = session.command();
    session.send(&answer(&command, OutcomeStatus::Deployed));
    working.until_status("deployed");
    let path = working.world.path("/versions/1/dry-runs");
    working.world.served.admin.post(&path, &json!({})).good();
    let asked = session.command();
    assert_eq!((asked.what, asked.epoch), (CommandKind::DryRun, None));
    session.send(&answer(&asked, OutcomeStatus::Deployed));
    let created = working.world.served.admin.get(&path).good();
    let changes = format!("{path}/{}/changes", created["items"][0]["id"].as_str().unwrap());
    working.world.until("the dry run tells", |world| {
        let listed = world.served.admin.get(&changes).good();
        listed["items"].as_array().unwrap().iter().any(|one| one["status"] == "modified")
    });
}

#[test]
fn another_process_reaches_the_agent_through_its_gateway() {
    let working = EngineWorld::in_another_process();
    let (_machine, mut session) = connected(&working);
    working.put("1");
    let first = session.command();
    session.send(&FromAgent::Busy { id: first.id });
    let command = session.command();
    assert_eq!(command.id, first.id);
    session.send(&FromAgent::Accepted { id: command.id });
    session.send(&answer(&command, OutcomeStatus::Deployed));
    working.until_status("deployed");
    working.put("2");
    let second = session.command();
    assert!(second.seq > first.seq);
    session.send(&answer(&second, OutcomeStatus::Failed));
    working.until_status("failed");
}

#[test]
fn another_process_learns_that_an_agent_is_away_and_that_it_is_back() {
    let working = EngineWorld::in_another_process();
    let machine = working.world.enrolled(&["web1"]);
    working.put("1");
    working.until_status("unavailable");
    let (mut session, _) = machine.open(&working.world.address);
    let first = session.command();
    drop(session);
    let (mut session, _) = machine.open(&working.world.address);
    let again = session.command();
    assert_eq!(again.id, first.id);
    session.send(&answer(&again, OutcomeStatus::Deployed));
    working.until_status("deployed");
}

#[test]
fn a_command_survives_the_end_of_a_gateway() {
    let mut working = EngineWorld::in_another_process();
    let (machine, mut session) = connected(&working);
    working.put("1");
    let first = session.command();
    working.world.stop_gateway();
    working.world.start_gateway();
    let (mut session, _) = machine.open(&working.world.address);
    let again = session.command();
    assert_eq!(again.id, first.id, "it is the same command, through another gateway");
    session.send(&answer(&again, OutcomeStatus::Deployed));
    working.until_status("deployed");
}

#[test]
fn an_agent_cannot_act_as_a_server() {
    let world = World::new();
    let machine = world.enrolled(&["web1"]);
    assert_eq!(machine.dial_path(&world.address, "/peer/v1").err(), Some(401));
    assert_eq!(Identity::new().dial_path(&world.address, "/peer/v1").err(), Some(401));
}

#[test]
fn a_server_that_was_killed_and_started_again_does_not_dial_itself() {
    let working = EngineWorld::new();
    let machine = working.world.enrolled(&["web1"]);
    // The state that a killed gateway leaves: a session in the store, at an address that is now
    // this gateway's.
    let store = working.world.served.app.store();
    let now = working.world.served.app.now();
    let address = &*working.world.address;
    let former = GatewayHeartbeat {
        uuid: orrery_model::Id::from_bytes([7; 16]),
        address,
        peer_address: address,
        latencies: None,
    };
    store.gateways().record_heartbeat(&former, Duration::from_secs(3600)).unwrap();
    let facts = json!({});
    let session = NewAgentSession {
        gateway: orrery_model::Id::from_bytes([7; 16]),
        boot: orrery_model::Id::from_bytes([7; 16]),
        version: "test",
        facts: &facts,
        offered: &[],
    };
    store.remote_agents().open_session(machine.agent.into(), &session, now).unwrap();
    working.put("1");
    std::thread::sleep(Duration::from_millis(600));
    let (mut session, _) = machine.open(&working.world.address);
    let command = session.command();
    session.send(&answer(&command, OutcomeStatus::Deployed));
    working.until_status("deployed");
}

#[test]
fn a_change_that_triggers_reloads_is_recorded_before_it_is_made() {
    for working in [EngineWorld::new(), EngineWorld::in_another_process()] {
        let (_machine, mut session) = connected(&working);
        let put = |value: &str| {
            let resource = |name: &str, value: &str, requires: &[&str]| {
                let attributes = json!({
                    "name": name, "value": value, "agentname": "web1", "send_event": true,
                    "receive_events": true,
                });
                let id = format!("std::testing::NullResource[web1,name={name}]");
                json!({"id": id, "attributes": attributes, "requires": requires})
            };
            let resources = [resource("a", value, &[]), resource("b", "1", &[FILE])];
            let path = working.world.path("/versions");
            working.world.served.admin.post(&path, &json!({"resources": resources})).good();
        };
        put("1");
        for is_reloaded_for in [true, false] {
            let command = session.command();
            assert_eq!(command.wants_announcement, is_reloaded_for, "{command:?}");
            session.send(&answer(&command, OutcomeStatus::Deployed));
        }
        working.until_status("deployed");
        put("2");
        let first = session.command();
        assert_eq!(first.resource.id.as_str(), FILE);
        assert!(first.wants_announcement, "{first:?}");
        session.send(&FromAgent::Announce { id: first.id });
        match session.receive() {
            Some(ToAgent::Announced { id }) => assert_eq!(id, first.id),
            other => panic!("{other:?}"),
        }
        let store = working.world.served.app.store();
        let environment = store.environments().list(None).unwrap().pop().unwrap();
        assert!(
            !store.engine().running_actions(environment.key).unwrap().is_empty(),
            "it is noted"
        );
        session.send(&answer(&first, OutcomeStatus::Deployed));
        let second = session.command();
        assert_eq!(second.changed_dependencies, std::slice::from_ref(&first.resource.id));
        session.send(&answer(&second, OutcomeStatus::Deployed));
        working.until_status("deployed");
    }
}

#[test]
fn unstorable_results_do_not_stop_an_environment() {
    let working = EngineWorld::within(World::on_postgres());
    let (_machine, mut session) = connected(&working);
    working.put("1");
    let command = session.command();
    let FromAgent::Result(mut result) = answer(&command, OutcomeStatus::Deployed) else {
        panic!("it is a result")
    };
    let fact = |name: &str, value: &str| Fact {
        name: name.to_owned(),
        value: value.to_owned(),
        expires: true,
    };
    result.outcome.facts = vec![fact("a\0", "\0"), fact(&"n".repeat(10_000), "")];
    session.send(&FromAgent::Result(result));
    working.until_status("deployed");
    let log = working.last_log();
    assert!(log.contains("dropped 1 of 2 facts"), "{log}");
    let store = working.world.served.app.store();
    let environment = store.environments().list(None).unwrap().pop().unwrap();
    let facts = store.parameters().facts(environment.key, FILE).unwrap();
    assert_eq!((facts.len(), &*facts[0].name, &*facts[0].value), (1, "a\u{fffd}", "\u{fffd}"));
}

#[test]
fn a_session_that_exists_only_in_the_store_does_not_block_a_run() {
    let working = EngineWorld::in_another_process();
    let (machine, mut session) = connected(&working);
    working.put("1");
    session.command();
    drop(session);
    let world = &working.world;
    world.until("it is gone", |world| world.remote_agents()[0]["status"] == "disconnected");
    let store = world.served.app.store();
    let gateway = store.gateways().list(Duration::from_secs(3600)).unwrap().remove(0).uuid;
    let facts = json!({});
    let new = NewAgentSession {
        gateway,
        boot: orrery_model::Id::from_bytes([7; 16]),
        version: "test",
        facts: &facts,
        offered: &[],
    };
    let now = world.served.app.now();
    store.remote_agents().open_session(machine.agent.into(), &new, now).unwrap().unwrap();
    // Takes longer than the reconnect timeout, and much less than the timeout of a run.
    working.until_status("failed");
    let log = working.last_log();
    assert!(log.contains("the connection was lost during the run"), "{log}");
}

#[test]
fn a_run_of_a_revoked_agent_ends_soon_with_an_unknown_effect() {
    let working = EngineWorld::new();
    let (machine, mut session) = connected(&working);
    working.put("1");
    session.command();
    let began = Instant::now();
    let path = working.world.path(&format!("/remote-agents/{}", machine.agent));
    assert_eq!(working.world.served.admin.delete(&path).status, 204);
    working.world.until("the log has the unknown effect", |_| {
        working.last_log().contains("the effect is unknown")
    });
    assert!(began.elapsed() < Duration::from_secs(20), "it does not wait for the revoked agent");
}

#[test]
fn a_revoked_agent_that_does_not_read_is_unregistered_at_once() {
    let working = EngineWorld::new();
    let (machine, session) = connected(&working);
    let world = &working.world;
    // More than the socket buffers hold, so that the gateway blocks while sending.
    working.put(&"x".repeat(12 * 1024 * 1024));
    let list = || world.served.admin.get(&world.path("/resources")).good();
    world.until("the run begins", |_| list()["items"][0]["transitioning"] == "yes");
    let path = world.path(&format!("/remote-agents/{}", machine.agent));
    assert_eq!(world.served.admin.delete(&path).status, 204);
    let began = Instant::now();
    let sessions = || world.served.admin.get("/metrics").text;
    world.until("it has no session", |_| sessions().contains("orrery_agent_sessions 0"));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    drop(session);
}
