//! Server-sent events: live, resumed, reset.

use std::io::{BufRead, BufReader, Read};

use serde_json::{Value, json};

use super::{World, on_both};
use crate::support::Client;

on_both!(
    changes_arrive_as_they_happen,
    a_reconnecting_client_gets_missed_events,
    a_client_that_missed_too_much_gets_a_reset,
    events_end_with_the_server,
    events_end_with_the_credential,
);

/// A client of the event stream.
struct EventClient {
    lines: std::io::Lines<BufReader<Box<dyn Read + Send + Sync>>>,
}

#[derive(Debug)]
struct ReceivedEvent {
    id: i64,
    kind: String,
    data: Value,
}

impl EventClient {
    fn to(client: &Client, path: &str, last: Option<i64>) -> Self {
        let last = last.map(|last| last.to_string());
        let headers: Vec<(&str, &str)> =
            last.iter().map(|last| ("last-event-id", last.as_str())).collect();
        let answer = client.open(path, &headers);
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        assert!(!answer.headers().contains_key("content-encoding"));
        let reader: Box<dyn Read + Send + Sync> = Box::new(answer.into_body().into_reader());
        EventClient { lines: BufReader::new(reader).lines() }
    }

    /// Reads the next event; `None` at the end.
    fn next(&mut self) -> Option<ReceivedEvent> {
        let mut heard = ReceivedEvent { id: 0, kind: String::new(), data: Value::Null };
        loop {
            let line = self.lines.next()?.ok()?;
            if line.is_empty() && !heard.kind.is_empty() {
                return Some(heard);
            }
            if let Some(id) = line.strip_prefix("id: ") {
                heard.id = id.parse().unwrap();
            } else if let Some(kind) = line.strip_prefix("event: ") {
                kind.clone_into(&mut heard.kind);
            } else if let Some(data) = line.strip_prefix("data: ") {
                heard.data = serde_json::from_str(data).unwrap();
            }
        }
    }
}

fn changes_arrive_as_they_happen(world: World) {
    let other = json!({"project": world.project, "name": "other"});
    let other = world.admin().post("/api/v1/environments", &other).good();
    let other = other["id"].as_str().unwrap();
    let mut own = EventClient::to(world.admin(), &world.at("/events"), None);
    let mut all = EventClient::to(world.admin(), "/api/v1/events", None);
    let settings = format!("/api/v1/environments/{other}/settings/auto_deploy");
    world.admin().put(&settings, &json!({"value": false})).good();
    world.upload(&[("a", 1)]);
    let heard = own.next().unwrap();
    assert_eq!((heard.kind.as_str(), &heard.data["subject"]), ("version", &json!("1")));
    assert_eq!(heard.data["environment"], json!(world.id));
    let heard = all.next().unwrap();
    assert_eq!((heard.kind.as_str(), &heard.data["environment"]), ("setting", &json!(other)));
    assert_eq!(all.next().unwrap().kind, "version");
    // Changes of another process are found without a wake-up.
    let now = world.served.app.now();
    world.store().settings().change(world.key(), "auto_deploy", None, now).unwrap();
    assert_eq!(own.next().unwrap().kind, "setting");
}

fn a_reconnecting_client_gets_missed_events(world: World) {
    world.upload(&[("a", 1)]);
    let mut first = EventClient::to(world.admin(), &world.at("/events"), Some(0));
    let mut last = 0;
    loop {
        let heard = first.next().unwrap();
        assert!(heard.id > last);
        last = heard.id;
        if heard.kind == "version" {
            break;
        }
    }
    drop(first);
    for value in 2..700 {
        let value = json!({"value": value % 2 == 0});
        let value = Some(&value["value"]);
        let now = world.served.app.now();
        world.store().settings().change(world.key(), "auto_deploy", value, now).unwrap();
    }
    world.upload(&[("a", 2)]);
    let mut again = EventClient::to(world.admin(), &world.at("/events"), Some(last));
    let mut settings = 0;
    loop {
        let heard = again.next().unwrap();
        assert!(heard.id > last);
        last = heard.id;
        match heard.kind.as_str() {
            "setting" => settings += 1,
            "version" => break,
            other => panic!("{other}"),
        }
    }
    assert_eq!(settings, 698);
}

/// Numbers that rolled-back transactions took are missing from the feed, and nothing else is.
#[test]
fn rolled_back_changes_do_not_reset_a_client() {
    let world = World::postgres_after(|database| {
        let note = "BEGIN; SELECT note_changes('{0,0,0}', '{user,user,user}', '{a,b,c}', \
             '{1,1,1}'); ROLLBACK";
        database.connect().batch_execute(note).unwrap();
    });
    world.upload(&[("a", 1)]);
    let mut first = EventClient::to(world.admin(), &world.at("/events"), Some(0));
    let mut heard = first.next().unwrap();
    assert!(heard.id > 3, "{heard:?}");
    while heard.kind != "version" {
        assert_ne!(heard.kind, "reset");
        heard = first.next().unwrap();
    }
}

/// Changes that were deleted from the feed are reported, even if they are followed by a gap.
#[test]
fn trimmed_changes_reset_a_client() {
    let world = World::postgres();
    world.upload(&[("a", 1)]);
    let mut database = world.database.as_ref().unwrap().connect();
    database.batch_execute("SELECT setval('change_id_seq', 30000)").unwrap();
    database.batch_execute("DELETE FROM change WHERE id < 10000").unwrap();
    world.upload(&[("a", 2)]);
    let mut late = EventClient::to(world.admin(), &world.at("/events"), Some(2));
    assert_eq!(late.next().unwrap().kind, "reset");
    let mut recent = EventClient::to(world.admin(), &world.at("/events"), Some(20_000));
    assert_eq!(recent.next().unwrap().kind, "version");
}

fn a_client_that_missed_too_much_gets_a_reset(world: World) {
    let mut odd = EventClient::to(world.admin(), &world.at("/events"), Some(1_000_000_000));
    let heard = odd.next().unwrap();
    assert_eq!(heard.kind, "reset");
    world.upload(&[("a", 1)]);
    assert_eq!(odd.next().unwrap().kind, "version");
    let bad = world.admin().send("GET", &world.at("/events"), &[("last-event-id", "x")], None);
    assert_eq!(bad.status, 400);
}

fn events_end_with_the_server(mut world: World) {
    let mut own = EventClient::to(world.admin(), &world.at("/events"), None);
    world.upload(&[("a", 1)]);
    assert!(own.next().is_some());
    let begun = std::time::Instant::now();
    world.served.end();
    assert!(begun.elapsed() < std::time::Duration::from_secs(10));
    assert!(own.next().is_none());
}

/// No event after the revocation is delivered.
fn events_end_with_the_credential(world: World) {
    let token = json!({"name": "listener", "role": "viewer"});
    let made = world.admin().post("/api/v1/tokens", &token).good();
    let client = world.served.with_token(made["secret"].as_str().unwrap());
    let mut all = EventClient::to(&client, "/api/v1/events", None);
    let mut one = EventClient::to(&client, &world.at("/events"), None);
    world.post_empty("/halt").good();
    for listening in [&mut all, &mut one] {
        while listening.next().unwrap().kind != "environment" {}
    }
    let id = made["token"]["id"].as_str().unwrap();
    assert_eq!(world.admin().delete(&format!("/api/v1/tokens/{id}")).status, 204);
    world.put("/parameters/after", &json!({"value": "1"})).good();
    for listening in [&mut all, &mut one] {
        while let Some(heard) = listening.next() {
            assert_ne!(heard.kind, "parameter", "{heard:?}");
        }
    }
    assert_eq!(client.get("/api/v1/events").status, 401);
}
