//! Sessions: who gets one, and when it ends.

use orrery_agent::protocol::{FromAgent, Hello, RefusalCode, ToAgent};
use serde_json::json;
use uuid::Uuid;

use super::World;
use super::dialled::{Identity, Session};

/// Why a session was ended.
#[track_caller]
fn refusal(session: &mut Session) -> RefusalCode {
    match session.hear() {
        Some(ToAgent::Refuse(refusal)) => {
            assert_eq!(session.hear().map(|message| format!("{message:?}")), None);
            refusal.code
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_enrolled_agent_gets_a_session() {
    let world = World::new();
    let machine = world.enrolled(&["web1"]);
    let (session, number) = machine.open(&world.address);
    assert_eq!(number, 1);
    let listed = world.remote_agents();
    assert_eq!((&listed[0]["status"], &listed[0]["session"]), (&json!("connected"), &json!(1)));
    assert_eq!(listed[0]["program_version"], "test");
    let metrics = world.served.admin.get("/metrics").text;
    assert!(metrics.contains("orrery_agent_sessions 1"), "{metrics}");
    let health = world.served.nobody().get("/health").good();
    assert_eq!(health["checks"]["gateway"], "ok");
    drop(session);
    world.until("it is gone", |world| world.remote_agents()[0]["status"] == "disconnected");
    let metrics = world.served.admin.get("/metrics").text;
    assert!(metrics.contains("orrery_agent_sessions 0"), "{metrics}");
}

#[test]
fn without_a_certificate_there_is_no_session() {
    let world = World::new();
    let machine = world.enrolled(&["web1"]);
    assert_eq!(Identity::new().dial(&world.address).err(), Some(401));
    let other = World::new();
    other.enrolled(&["web1"]);
    // A certificate of another installation does not even agree on encryption.
    assert_eq!(machine.dial(&other.address).err(), Some(0));
    assert_eq!(other.remote_agents()[0]["session"], 0);
}

#[test]
fn a_session_begins_with_hello_in_the_right_protocol() {
    let world = World::new();
    let machine = world.enrolled(&["web1"]);
    let mut session = machine.dial(&world.address).unwrap();
    session.say(&FromAgent::Pong);
    assert_eq!(refusal(&mut session), RefusalCode::Unreadable);
    let mut session = machine.dial(&world.address).unwrap();
    let FromAgent::Hello(hello) = machine.hello() else { panic!("it is a hello") };
    session.say(&FromAgent::Hello(Hello { protocol: 99, ..hello.clone() }));
    assert_eq!(refusal(&mut session), RefusalCode::Protocol);
    let mut session = machine.dial(&world.address).unwrap();
    let program_version = "x".repeat(100_000);
    session.say(&FromAgent::Hello(Hello { program_version, ..hello.clone() }));
    assert_eq!(refusal(&mut session), RefusalCode::Unreadable, "it is much too long");
    assert_eq!(world.remote_agents()[0]["session"], 0);
    let mut session = machine.dial(&world.address).unwrap();
    let program_version = format!("\0v{}", "x".repeat(1000));
    session.say(&FromAgent::Hello(Hello { program_version, ..hello }));
    assert!(matches!(session.hear(), Some(ToAgent::Welcome(_))));
    let told = world.remote_agents()[0]["program_version"].as_str().unwrap().to_owned();
    assert!(told.starts_with("vx") && told.len() == 200, "{told}");
}

#[test]
fn a_revoked_agent_is_sent_away_at_once_and_for_good() {
    let world = World::new();
    let machine = world.enrolled(&["web1"]);
    let (mut session, _) = machine.open(&world.address);
    let path = world.path(&format!("/remote-agents/{}", machine.agent));
    assert_eq!(world.served.admin.delete(&path).status, 204);
    assert_eq!(refusal(&mut session), RefusalCode::Revoked);
    assert_eq!(machine.dial(&world.address).err(), Some(403));
    assert_eq!(world.remote_agents()[0]["status"], "revoked");
}

#[test]
fn the_newest_session_wins_and_people_learn_of_a_second_process() {
    let world = World::new();
    let mut machine = world.enrolled(&["web1"]);
    let (mut first, _) = machine.open(&world.address);
    let (mut second, number) = machine.open(&world.address);
    assert_eq!(number, 2);
    assert_eq!(refusal(&mut first), RefusalCode::Superseded);
    let told = || {
        let list = world.served.admin.get(&world.path("/notifications")).good();
        list["items"].as_array().unwrap().len()
    };
    assert_eq!(told(), 0, "the same process came again");
    machine.boot = Uuid::new_v4();
    let (_third, number) = machine.open(&world.address);
    assert_eq!(number, 3);
    assert_eq!(refusal(&mut second), RefusalCode::Superseded);
    assert_eq!(told(), 1);
    world.until("the newest stays", |world| world.remote_agents()[0]["status"] == "connected");
    assert_eq!(world.remote_agents()[0]["session"], 3);
}

#[test]
fn a_gateway_that_ends_sends_its_agents_elsewhere() {
    let mut world = World::new();
    let machine = world.enrolled(&["web1"]);
    let (mut session, _) = machine.open(&world.address);
    world.stop_gateway();
    assert_eq!(refusal(&mut session), RefusalCode::Unavailable);
    assert_eq!(world.remote_agents()[0]["status"], "disconnected");
    world.start_gateway();
    let (_session, number) = machine.open(&world.address);
    assert_eq!(number, 2);
}
