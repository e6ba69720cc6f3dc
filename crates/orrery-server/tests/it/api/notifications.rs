//! Notifications.

use orrery_model::Timestamp;
use orrery_store::NewNotification;
use serde_json::json;

use super::{World, ids, on_both, refused};

on_both!(notifications_are_read_and_cleared);

fn notifications_are_read_and_cleared(world: World) {
    let store = world.store();
    for (number, severity) in [(1_u8, "error"), (2, "info"), (3, "error")] {
        let new = NewNotification {
            uuid: orrery_model::Id::from_bytes([number; 16]),
            title: "a title",
            message: "a message",
            severity,
            uri: "",
            compile: None,
        };
        store.notifications().add(world.key(), &new, Timestamp(i64::from(number / 2))).unwrap();
    }
    let list = |query: &str| ids(&world.get(&format!("/notifications?{query}")).good());
    let id = |number: u8| uuid::Uuid::from_bytes([number; 16]).to_string();
    assert_eq!(list(""), [id(3), id(2), id(1)]);
    assert_eq!(list("severity=error"), [id(3), id(1)]);
    let page = world.get("/notifications?limit=1").good();
    let next = page["next"].as_str().unwrap();
    assert_eq!(list(&format!("limit=5&after={next}")), [id(2), id(1)]);
    let one = world.at(&format!("/notifications/{}", id(2)));
    let read = world.admin().patch(&one, &json!({"read": true})).good();
    assert_eq!((&read["read"], &read["cleared"]), (&json!(true), &json!(false)));
    assert_eq!(list("read=false"), [id(3), id(1)]);
    world.admin().patch(&one, &json!({"cleared": true})).good();
    assert_eq!((list("cleared=true"), list("read=true&cleared=false").len()), (vec![id(2)], 0));
    assert_eq!(world.admin().get(&one).good()["read"], true);
    refused(&world.get("/notifications?severity=loud"), 400, "bad-filter");
    refused(&world.get(&format!("/notifications/{}", id(9))), 404, "not-found");
    assert_eq!(world.get("/notifications?read=perhaps").status, 400);
}
