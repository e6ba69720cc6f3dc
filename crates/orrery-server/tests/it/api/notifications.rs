//! Notifications.

use orrery_model::Timestamp;
use orrery_store::NewNotification;
use serde_json::json;

use super::{World, ids, on_both, refused};

on_both!(notifications_are_read_and_cleared, all_notifications_are_marked_up_to_a_time);

fn all_notifications_are_marked_up_to_a_time(world: World) {
    let store = world.store();
    for number in 1..=3_u8 {
        let new = NewNotification {
            uuid: orrery_model::Id::from_bytes([number; 16]),
            title: "a title",
            message: "",
            severity: "info",
            uri: "",
            compile: None,
        };
        let at = Timestamp(i64::from(number) * 1_000_000);
        store.notifications().add(world.key(), &new, at).unwrap();
    }
    let unread = || world.get("/unread-notifications").good()["unread"].clone();
    assert_eq!(unread(), 3);
    let all = world.at("/notifications");
    let until = json!({"until": "1970-01-01T00:00:02Z", "read": true});
    // The third one was not seen yet.
    assert_eq!(world.admin().patch(&all, &until).good(), json!({"unread": 1}));
    assert_eq!(ids(&world.get("/notifications?read=false").good()).len(), 1);
    let marked = world.admin().patch(&all, &json!({"cleared": true})).good();
    assert_eq!((marked, unread()), (json!({"unread": 0}), json!(0)));
    assert_eq!(ids(&world.get("/notifications?read=false&cleared=true").good()).len(), 1);
    refused(&world.admin().patch(&all, &json!({"seen": true})), 422, "invalid");
    let token = json!({"name": "reads", "role": "viewer"});
    let made = world.admin().post("/api/v1/tokens", &token).good();
    let viewer = world.served.with_token(made["secret"].as_str().unwrap());
    refused(&viewer.patch(&all, &json!({"read": true})), 403, "forbidden");
}

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
