//! Sessions: admission and end.

use std::io::Write as _;
use std::time::{Duration, Instant};

use orrery_agent::protocol::{FromAgent, Hello, RefusalCode, ToAgent};
use orrery_model::OfferedType;
use orrery_store::GatewayHeartbeat;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;
use uuid::Uuid;

use super::World;
use super::test_client::{Identity, Session};

/// Returns the code with which a session was ended.
#[track_caller]
fn refusal(session: &mut Session) -> RefusalCode {
    match session.receive() {
        Some(ToAgent::Refuse(refusal)) => {
            assert_eq!(session.receive().map(|message| format!("{message:?}")), None);
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
    let health = world.served.anonymous().get("/health").good();
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
    // With a certificate of another installation, even the TLS handshake fails.
    assert_eq!(machine.dial(&other.address).err(), Some(0));
    assert_eq!(other.remote_agents()[0]["session"], 0);
}

#[test]
fn a_session_begins_with_hello_in_the_right_protocol() {
    let world = World::new();
    let machine = world.enrolled(&["web1"]);
    let mut session = machine.dial(&world.address).unwrap();
    session.send(&FromAgent::Pong);
    assert_eq!(refusal(&mut session), RefusalCode::Unreadable);
    let mut session = machine.dial(&world.address).unwrap();
    let FromAgent::Hello(hello) = machine.hello() else { panic!("it is a hello") };
    session.send(&FromAgent::Hello(Hello { protocol: 99, ..hello.clone() }));
    assert_eq!(refusal(&mut session), RefusalCode::Protocol);
    let mut session = machine.dial(&world.address).unwrap();
    let program_version = "x".repeat(100_000);
    session.send(&FromAgent::Hello(Hello { program_version, ..hello.clone() }));
    assert_eq!(refusal(&mut session), RefusalCode::Unreadable, "it is much too long");
    let mut session = machine.dial(&world.address).unwrap();
    let mut offered = OfferedType {
        entity: "notes::Note".to_owned(),
        agent: "host.name".to_owned(),
        id_attribute: "title".to_owned(),
        attributes: [("title".to_owned(), "text".to_owned())].into(),
    };
    session.send(&FromAgent::Hello(Hello { types: vec![offered.clone()], ..hello.clone() }));
    assert_eq!(refusal(&mut session), RefusalCode::Unreadable, "there is no type \"text\"");
    assert_eq!(world.remote_agents()[0]["session"], 0);
    offered.attributes.insert("title".to_owned(), "string".to_owned());
    let mut session = machine.dial(&world.address).unwrap();
    let native = OfferedType { entity: "std::File".to_owned(), ..offered.clone() };
    session.send(&FromAgent::Hello(Hello { types: vec![native], ..hello.clone() }));
    assert_eq!(refusal(&mut session), RefusalCode::Unreadable, "its handler is built in");
    assert_eq!(world.remote_agents()[0]["session"], 0);
    let hello = Hello { types: vec![offered.clone()], ..hello };
    let mut session = machine.dial(&world.address).unwrap();
    let program_version = format!("\0v{}", "x".repeat(1000));
    session.send(&FromAgent::Hello(Hello { program_version, ..hello }));
    assert!(matches!(session.receive(), Some(ToAgent::Welcome(_))));
    let version = world.remote_agents()[0]["program_version"].as_str().unwrap().to_owned();
    assert!(version.starts_with("vx") && version.len() == 200, "{version}");
    assert_eq!(world.remote_agents()[0]["types"], json!([offered]));
}

/// Sends a message that no agent sends.
fn send_malformed(session: &mut Session, message: &Malformed) {
    let sent = match message {
        Malformed::Text(text) => session.socket.send(Message::text(*text)),
        Malformed::Binary => session.socket.send(Message::binary(vec![0; 16])),
        Malformed::Raw(bytes) => session.socket.get_mut().write_all(bytes).map_err(Into::into),
    };
    sent.unwrap();
    let _ = session.socket.get_mut().flush();
}

enum Malformed {
    Text(&'static str),
    Binary,
    /// Bytes instead of a frame.
    Raw(Vec<u8>),
}

#[test]
fn malformed_and_oversized_frames_end_only_their_session() {
    let world = World::new();
    let (other, offender) = (world.enrolled(&["web2"]), world.enrolled(&["web1"]));
    let (mut quiet, _) = other.open(&world.address);
    let masked = |length: u64| [&[0x81, 0xff][..], &length.to_be_bytes(), &[0; 4]].concat();
    for (name, message) in [
        ("no JSON", Malformed::Text("{\"result\":")),
        ("an unknown message", Malformed::Text("{\"shutdown\":{}}")),
        ("a wrong type", Malformed::Text("{\"accepted\":{\"id\":7}}")),
        ("a binary message", Malformed::Binary),
        ("a reserved opcode", Malformed::Raw(vec![0x83, 0x80, 0, 0, 0, 0])),
        ("an unmasked frame", Malformed::Raw(vec![0x81, 0x02, b'"', b'"'])),
        ("a frame beyond the limit", Malformed::Raw(masked(1 << 30))),
        ("a frame of all memory", Malformed::Raw(masked(u64::MAX >> 1))),
    ] {
        let (mut session, _) = offender.open(&world.address);
        let began = Instant::now();
        send_malformed(&mut session, &message);
        // A refusal may precede the end.
        while session.receive().is_some() {}
        assert!(began.elapsed() < Duration::from_secs(8), "{name}: {:?}", began.elapsed());
        world.until(name, |world| {
            let listed = world.remote_agents();
            listed
                .iter()
                .any(|one| one["names"] == json!(["web1"]) && one["status"] == "disconnected")
        });
    }
    quiet.send(&FromAgent::Pong);
    assert_eq!(sessions_here(&world).as_deref(), Some("1"));
    let listed = world.remote_agents();
    let web2 = listed.iter().find(|one| one["names"] == json!(["web2"])).unwrap();
    assert_eq!((&web2["status"], &web2["session"]), (&json!("connected"), &json!(1)));
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
fn the_newest_session_wins_and_a_second_process_is_reported() {
    let world = World::new();
    let mut machine = world.enrolled(&["web1"]);
    let (mut first, _) = machine.open(&world.address);
    let (mut second, number) = machine.open(&world.address);
    assert_eq!(number, 2);
    assert_eq!(refusal(&mut first), RefusalCode::Superseded);
    let notification_count = || {
        let list = world.served.admin.get(&world.path("/notifications")).good();
        list["items"].as_array().unwrap().len()
    };
    assert_eq!(notification_count(), 0, "the same process came again");
    machine.boot = Uuid::new_v4();
    let (_third, number) = machine.open(&world.address);
    assert_eq!(number, 3);
    assert_eq!(refusal(&mut second), RefusalCode::Superseded);
    assert_eq!(notification_count(), 1);
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

fn sessions_here(world: &World) -> Option<String> {
    let metrics = world.served.admin.get("/metrics").text;
    let line = metrics.lines().find_map(|line| line.strip_prefix("orrery_agent_sessions "));
    line.map(str::to_owned)
}

#[test]
fn the_end_of_a_session_is_recorded_once_the_database_is_writable() {
    let world = World::on_postgres();
    let machine = world.enrolled(&["web1"]);
    let (session, _) = machine.open(&world.address);
    let mut database = world.database.as_ref().unwrap().connect();
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'not now'; END $$; CREATE TRIGGER refuse BEFORE UPDATE ON remote_agent \
         FOR EACH ROW EXECUTE FUNCTION refuse();";
    database.batch_execute(refuse).unwrap();
    drop(session);
    world.until("the session ends", |world| sessions_here(world).as_deref() == Some("0"));
    // Long enough for a refused attempt, and short enough for a retry.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(world.remote_agents()[0]["status"], "connected", "the end could not be recorded");
    database.batch_execute("DROP TRIGGER refuse ON remote_agent").unwrap();
    world.until("it is noted", |world| world.remote_agents()[0]["status"] == "disconnected");
}

/// Machines have different clocks. Only the database's clock decides which gateways are alive.
#[test]
fn liveness_uses_the_clock_of_the_database() {
    const HOUR: i64 = 3_600_000_000;
    for ahead in [HOUR, -HOUR] {
        let world = World::on_postgres_after(&format!(
            "CREATE OR REPLACE FUNCTION clock() RETURNS bigint LANGUAGE sql VOLATILE AS \
             $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + {ahead} $$"
        ));
        let machine = world.enrolled(&["web1"]);
        let (_session, _) = machine.open(&world.address);
        let within = Duration::from_secs(30);
        let store = world.served.app.store();
        let alive = store.gateways().list(within).unwrap();
        assert_eq!(alive.len(), 1, "{ahead}: {alive:?}");
        let difference = alive[0].seen.0 - world.served.app.now().0 - ahead;
        assert!(difference.abs() < HOUR / 2, "{ahead}: {difference}");
        assert_eq!(
            store.gateways().of_agent(machine.agent.into(), within).unwrap(),
            alive.first().cloned()
        );
        assert_eq!(world.remote_agents()[0]["status"], "connected", "{ahead}");
        // The heartbeat of another gateway must not expire this one.
        let gateway = GatewayHeartbeat {
            uuid: orrery_model::Id::from_bytes([9; 16]),
            address: "b:1",
            peer_address: "b:1",
            latencies: None,
        };
        assert_eq!(store.gateways().record_heartbeat(&gateway, within).unwrap(), 0, "{ahead}");
        assert_eq!(world.remote_agents()[0]["status"], "connected", "{ahead}");
    }
}
