//! Commands: from an engine to an agent and back, whatever happens on the way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery_agent::protocol::{
    Answer, Command, FromAgent, RejectionCode, ToAgent, What, WireOutcome,
};
use orrery_model::{Change, ChangeKind, Fact, OutcomeStatus};
use orrery_server::{App, ProcessOptions, ProcessRole};
use orrery_store::{LiveGateway, NewAgentSession};
use serde_json::{Value, json};

use super::World;
use super::dialled::{Identity, Session};

const FILE: &str = "std::testing::NullResource[web1,name=a]";

/// A world with engines.
pub(super) struct Working {
    role: Option<ProcessRole>,
    pub(super) world: World,
    _data: tempfile::TempDir,
}

impl Working {
    pub(super) fn new() -> Self {
        Self::within(World::new())
    }

    pub(super) fn within(world: World) -> Self {
        let app = world.served.app.clone();
        Self::with(world, app)
    }

    /// Engines in another process than the gateway.
    fn apart() -> Self {
        let world = World::new();
        let app = App::new(Arc::clone(world.served.app.store()), world.settings.clone());
        Self::with(world, app)
    }

    fn with(world: World, app: App) -> Self {
        let data = tempfile::tempdir().unwrap();
        let options = ProcessOptions {
            data: data.path().to_owned(),
            workers: orrery_executor::Workers::growing_from(4),
            lease: world.database.is_some().then_some(Duration::from_secs(10)),
            host_memory: None,
            isolation: orrery_server::Isolation::Shared,
            own_machine: orrery_server::OwnMachineOptions::shared(),
        };
        let role = {
            let _runtime = world.runtime.enter();
            ProcessRole::start(app, options).unwrap()
        };
        Working { role: Some(role), world, _data: data }
    }

    /// Puts and releases a version with one resource of the agent `web1`.
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

    /// The newest text of the resource's log.
    fn last_log(&self) -> String {
        let path = self.world.path(&format!("/resources/{}/logs", encoded(FILE)));
        self.world.served.admin.get(&path).text
    }
}

impl Drop for Working {
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
    FromAgent::Result(Box::new(Answer {
        id,
        outcome,
        announced: true,
        repeated: false,
        unclear: false,
    }))
}

pub(super) fn connected(working: &Working) -> (Identity, Session) {
    let machine = working.world.enrolled(&["web1"]);
    let (session, _) = machine.open(&working.world.address);
    (machine, session)
}

#[test]
fn a_command_has_all_that_is_needed_and_its_answer_counts() {
    let working = Working::new();
    let (_machine, mut session) = connected(&working);
    working.put("1");
    let command = session.command();
    assert_eq!(command.what, What::Deploy);
    assert_eq!(command.resource.id.as_str(), FILE);
    assert!(command.epoch.is_some_and(|epoch| epoch > 0), "{command:?}");
    assert!(working.world.environment.ends_with(&command.environment.to_string()));
    session.say(&FromAgent::Accepted { id: command.id });
    session.say(&answer(&command, OutcomeStatus::Deployed));
    working.until_status("deployed");
    // A second answer to the same command is nobody's.
    session.say(&answer(&command, OutcomeStatus::Failed));
    working.put("2");
    let second = session.command();
    assert!(second.seq > command.seq && second.id != command.id);
    assert!(second.deployed_before);
    session.say(&answer(&second, OutcomeStatus::Failed));
    working.until_status("failed");
    let metrics = working.world.served.admin.get("/metrics").text;
    assert!(metrics.contains(r#"orrery_agent_calls_total{result="answered"} 2"#), "{metrics}");
}

#[test]
fn who_is_not_connected_is_unavailable_at_once_and_deployed_when_it_comes() {
    let working = Working::new();
    let machine = working.world.enrolled(&["web1"]);
    let began = Instant::now();
    working.put("1");
    working.until_status("unavailable");
    assert!(began.elapsed() < Duration::from_secs(20), "it does not wait for anybody");
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
    session.say(&answer(&command, OutcomeStatus::Deployed));
    working.until_status("deployed");
}

#[test]
fn a_session_that_breaks_gets_the_same_command_again() {
    let working = Working::new();
    let (machine, mut session) = connected(&working);
    working.put("1");
    let first = session.command();
    session.say(&FromAgent::Accepted { id: first.id });
    drop(session);
    let (mut session, _) = machine.open(&working.world.address);
    let again = session.command();
    assert_eq!((again.id, again.seq), (first.id, first.seq));
    session.say(&answer(&again, OutcomeStatus::Deployed));
    working.until_status("deployed");
}

#[test]
fn an_agent_that_has_no_room_is_asked_again() {
    let working = Working::new();
    let (_machine, mut session) = connected(&working);
    working.put("1");
    let first = session.command();
    session.say(&FromAgent::Busy { id: first.id });
    let again = session.command();
    assert_eq!(again.id, first.id);
    session.say(&answer(&again, OutcomeStatus::Deployed));
    working.until_status("deployed");
}

#[test]
fn a_rejected_command_fails_with_its_reason() {
    let working = Working::new();
    let (_machine, mut session) = connected(&working);
    working.put("1");
    let command = session.command();
    session.say(&FromAgent::Rejected {
        id: command.id,
        code: RejectionCode::Fenced,
        reason: "older".to_owned(),
    });
    working.until_status("failed");
    let log = working.last_log();
    assert!(log.contains("another server acts for the environment"), "{log}");
}

#[test]
fn an_agent_cannot_answer_for_another() {
    let working = Working::new();
    let (_machine, mut session) = connected(&working);
    let other = working.world.enrolled(&["web2"]);
    let (mut second, _) = other.open(&working.world.address);
    working.put("1");
    let command = session.command();
    second.say(&answer(&command, OutcomeStatus::Failed));
    // What it says next is read after that.
    second.say(&FromAgent::Pong);
    std::thread::sleep(Duration::from_millis(200));
    assert_ne!(working.resource()["status"], "failed");
    session.say(&answer(&command, OutcomeStatus::Deployed));
    working.until_status("deployed");
}

#[test]
fn a_halt_cancels_what_runs() {
    let working = Working::new();
    let (_machine, mut session) = connected(&working);
    working.put("1");
    let command = session.command();
    working.world.served.admin.post(&working.world.path("/halt"), &json!({})).good();
    match session.hear() {
        Some(ToAgent::Cancel { id }) => assert_eq!(id, command.id),
        other => panic!("{other:?}"),
    }
    session.say(&answer(&command, OutcomeStatus::Skipped));
    working.world.served.admin.post(&working.world.path("/resume"), &json!({})).good();
    let again = session.command();
    assert_ne!(again.id, command.id, "it is another run");
    session.say(&answer(&again, OutcomeStatus::Deployed));
    working.until_status("deployed");
}

#[test]
fn a_revoked_agents_resources_wait_for_another_machine() {
    let working = Working::new();
    let (machine, mut session) = connected(&working);
    working.put("1");
    let command = session.command();
    session.say(&answer(&command, OutcomeStatus::Deployed));
    working.until_status("deployed");
    let path = working.world.path(&format!("/remote-agents/{}", machine.agent));
    assert_eq!(working.world.served.admin.delete(&path).status, 204);
    working.put("2");
    working.until_status("unavailable");
    let log = working.last_log();
    assert!(log.contains("was revoked"), "{log}");
    // The one that comes next has nothing of what the former one had.
    let (_machine, mut session) = connected(&working);
    let command = session.command();
    session.say(&answer(&command, OutcomeStatus::Deployed));
    working.until_status("deployed");
}

#[test]
fn a_released_agent_is_not_the_servers_own_machine() {
    let working = Working::new();
    let machine = working.world.enrolled(&["web1"]);
    working.put("1");
    working.until_status("unavailable");
    let path = working.world.path(&format!("/remote-agents/{}?release=true", machine.agent));
    assert_eq!(working.world.served.admin.delete(&path).status, 204);
    // What needs no machine waits for none.
    working.until_status("deployed");
    let place = tempfile::tempdir().unwrap();
    let marker = place.path().join("marker");
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
    let working = Working::new();
    let (_machine, mut session) = connected(&working);
    working.put("1");
    let command = session.command();
    session.say(&answer(&command, OutcomeStatus::Deployed));
    working.until_status("deployed");
    let path = working.world.path("/versions/1/dry-runs");
    working.world.served.admin.post(&path, &json!({})).good();
    let asked = session.command();
    assert_eq!((asked.what, asked.epoch), (What::DryRun, None));
    session.say(&answer(&asked, OutcomeStatus::Deployed));
    let made = working.world.served.admin.get(&path).good();
    let changes = format!("{path}/{}/changes", made["items"][0]["id"].as_str().unwrap());
    working.world.until("the dry run tells", |world| {
        let told = world.served.admin.get(&changes).good();
        told["items"].as_array().unwrap().iter().any(|one| one["status"] == "modified")
    });
}

#[test]
fn another_process_reaches_the_agent_through_its_gateway() {
    let working = Working::apart();
    let (_machine, mut session) = connected(&working);
    working.put("1");
    let first = session.command();
    session.say(&FromAgent::Busy { id: first.id });
    let command = session.command();
    assert_eq!(command.id, first.id);
    session.say(&FromAgent::Accepted { id: command.id });
    session.say(&answer(&command, OutcomeStatus::Deployed));
    working.until_status("deployed");
    working.put("2");
    let second = session.command();
    assert!(second.seq > first.seq);
    session.say(&answer(&second, OutcomeStatus::Failed));
    working.until_status("failed");
}

#[test]
fn another_process_learns_that_an_agent_is_away_and_that_it_is_back() {
    let working = Working::apart();
    let machine = working.world.enrolled(&["web1"]);
    working.put("1");
    working.until_status("unavailable");
    let (mut session, _) = machine.open(&working.world.address);
    let first = session.command();
    drop(session);
    let (mut session, _) = machine.open(&working.world.address);
    let again = session.command();
    assert_eq!(again.id, first.id);
    session.say(&answer(&again, OutcomeStatus::Deployed));
    working.until_status("deployed");
}

#[test]
fn a_command_survives_the_end_of_a_gateway() {
    let mut working = Working::apart();
    let (machine, mut session) = connected(&working);
    working.put("1");
    let first = session.command();
    working.world.stop_gateway();
    working.world.start_gateway();
    let (mut session, _) = machine.open(&working.world.address);
    let again = session.command();
    assert_eq!(again.id, first.id, "it is the same command, through another gateway");
    session.say(&answer(&again, OutcomeStatus::Deployed));
    working.until_status("deployed");
}

#[test]
fn an_agent_is_no_server() {
    let world = World::new();
    let machine = world.enrolled(&["web1"]);
    assert_eq!(machine.dial_path(&world.address, "/peer/v1").err(), Some(401));
    assert_eq!(Identity::new().dial_path(&world.address, "/peer/v1").err(), Some(401));
}

#[test]
fn a_server_that_was_killed_and_started_again_does_not_dial_itself() {
    let working = Working::new();
    let machine = working.world.enrolled(&["web1"]);
    // As a killed gateway leaves it: the store still counts a session, at an address that is this gateway's by now.
    let records = working.world.served.app.store().records();
    let now = working.world.served.app.now();
    let address = &*working.world.address;
    let former = LiveGateway { uuid: [7; 16], address, peer_address: address };
    records.gateway_is_alive(&former, Duration::from_secs(3600)).unwrap();
    let facts = json!({});
    let session =
        NewAgentSession { gateway: [7; 16], boot: [7; 16], version: "test", facts: &facts };
    records.open_agent_session(machine.agent.as_bytes(), &session, now).unwrap();
    working.put("1");
    std::thread::sleep(Duration::from_millis(600));
    let (mut session, _) = machine.open(&working.world.address);
    let command = session.command();
    session.say(&answer(&command, OutcomeStatus::Deployed));
    working.until_status("deployed");
}

#[test]
fn a_change_that_somebody_reloads_for_is_noted_before_it_is_made() {
    for working in [Working::new(), Working::apart()] {
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
            session.say(&answer(&command, OutcomeStatus::Deployed));
        }
        working.until_status("deployed");
        put("2");
        let first = session.command();
        assert_eq!(first.resource.id.as_str(), FILE);
        assert!(first.wants_announcement, "{first:?}");
        session.say(&FromAgent::Announce { id: first.id });
        match session.hear() {
            Some(ToAgent::Announced { id }) => assert_eq!(id, first.id),
            other => panic!("{other:?}"),
        }
        let store = working.world.served.app.store();
        let environment = store.environments().unwrap().pop().unwrap();
        assert!(!store.running(environment.key).unwrap().is_empty(), "it is noted");
        session.say(&answer(&first, OutcomeStatus::Deployed));
        let second = session.command();
        assert_eq!(second.changed_dependencies, std::slice::from_ref(&first.resource.id));
        session.say(&answer(&second, OutcomeStatus::Deployed));
        working.until_status("deployed");
    }
}

#[test]
fn what_no_database_takes_does_not_stop_an_environment() {
    let working = Working::within(World::on_postgres());
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
    session.say(&FromAgent::Result(result));
    working.until_status("deployed");
    let log = working.last_log();
    assert!(log.contains("1 of 2 facts are left out"), "{log}");
    let store = working.world.served.app.store();
    let environment = store.environments().unwrap().pop().unwrap();
    let facts = store.facts(environment.key, FILE).unwrap();
    assert_eq!((facts.len(), &*facts[0].name, &*facts[0].value), (1, "a\u{fffd}", "\u{fffd}"));
}

#[test]
fn a_session_that_only_the_store_knows_does_not_hold_a_run_for_ever() {
    let working = Working::apart();
    let (machine, mut session) = connected(&working);
    working.put("1");
    session.command();
    drop(session);
    let world = &working.world;
    world.until("it is gone", |world| world.remote_agents()[0]["status"] == "disconnected");
    let records = world.served.app.store().records();
    let gateway = records.gateways(Duration::from_secs(3600)).unwrap().remove(0).uuid;
    let facts = json!({});
    let new = NewAgentSession { gateway, boot: [7; 16], version: "test", facts: &facts };
    let now = world.served.app.now();
    records.open_agent_session(machine.agent.as_bytes(), &new, now).unwrap().unwrap();
    // Longer than an agent may be away, and much shorter than a run may take.
    working.until_status("failed");
    let log = working.last_log();
    assert!(log.contains("the connection was lost in the middle of the run"), "{log}");
}

#[test]
fn a_run_whose_agent_is_revoked_ends_soon_and_says_that_nobody_knows() {
    let working = Working::new();
    let (machine, mut session) = connected(&working);
    working.put("1");
    session.command();
    let began = Instant::now();
    let path = working.world.path(&format!("/remote-agents/{}", machine.agent));
    assert_eq!(working.world.served.admin.delete(&path).status, 204);
    working
        .world
        .until("the log says so", |_| working.last_log().contains("it may have been done"));
    assert!(began.elapsed() < Duration::from_secs(20), "it does not wait for who never comes");
}

#[test]
fn a_revoked_agent_that_does_not_read_counts_no_more_at_once() {
    let working = Working::new();
    let (machine, session) = connected(&working);
    let world = &working.world;
    // More than fits into what systems keep for both sides of a connection: the gateway is in the middle of it.
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
