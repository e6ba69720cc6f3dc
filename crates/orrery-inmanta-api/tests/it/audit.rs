//! The audit log: contents, redaction, and detection of tampering.

use std::time::{Duration, Instant};

use orrery_server::ServerSettings;
use orrery_store::{Holder, Store};
use serde_json::{Value, json};

use crate::support::{ADMIN_PASSWORD, Served};
use crate::world::World;

/// Longer than a response takes.
const SLOW: Duration = Duration::from_millis(1_500);

fn entries(served: &Served, query: &str) -> Vec<Value> {
    let page = served.admin.get(&format!("/api/v1/audit{query}")).good();
    page["items"].as_array().unwrap().clone()
}

/// Reads all entries, waiting for one about a refusal: refused requests do not wait for theirs.
fn entries_with_refusal(served: &Served, actor: &str) -> Vec<Value> {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let all = entries(served, "?limit=1000");
        if all.iter().any(|entry| entry["actor"] == actor && entry["status"] == 403) {
            return all;
        }
        assert!(Instant::now() < until, "the refusal is not noted: {all:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn verify(served: &Served, check: &Value) -> Value {
    served.admin.post("/api/v1/audit/verify", check).good()
}

#[test]
fn changes_are_audited_without_secrets() {
    let served = Served::start();
    let secret = "Very-secret-pass-9";
    served.admin.post("/api/v1/users", &json!({"name": "ada", "password": secret})).good();
    served.admin.post("/api/v1/projects", &json!({"name": "shop"})).good();
    assert_eq!(served.anonymous().post("/api/v1/projects", &json!({"name": "x"})).status, 401);
    let ada = served.login("ada", secret);
    assert_eq!(ada.post("/api/v1/projects", &json!({"name": "x"})).status, 403);
    let wrong = json!({"name": secret, "password": "Wrong-password-1"});
    assert_eq!(served.anonymous().post("/api/v1/login", &wrong).status, 401);

    let all = entries(&served, "");
    let told: Vec<(&str, &str, i64)> = all
        .iter()
        .rev()
        .map(|entry| {
            let text = |name: &str| entry[name].as_str().unwrap();
            (text("actor"), text("action"), entry["status"].as_i64().unwrap())
        })
        .collect();
    let expected = [
        ("user:admin", "POST /api/v1/login", 200),
        ("user:admin", "POST /api/v1/users", 201),
        ("user:admin", "POST /api/v1/projects", 201),
        ("anonymous", "POST /api/v1/projects", 401),
        ("user:ada", "POST /api/v1/login", 200),
        ("user:ada", "POST /api/v1/projects", 403),
        ("anonymous", "POST /api/v1/login", 401),
    ];
    assert_eq!(told, expected);
    assert!(all.iter().all(|entry| entry["address"] == "127.0.0.1"), "{all:?}");
    // Not even text typed into the wrong field.
    let text = Value::from(all).to_string();
    for hidden in [secret, ADMIN_PASSWORD, "ors_", "argon2"] {
        assert!(!text.contains(hidden), "{text}");
    }

    let hers = entries(&served, "?actor=user:ada");
    assert_eq!(hers.len(), 2);
    let first = served.admin.get("/api/v1/audit?limit=3").good();
    assert_eq!(first["items"].as_array().unwrap().len(), 3);
    let rest = format!("?after={}", first["next"].as_str().unwrap());
    assert_eq!(entries(&served, &rest).len(), expected.len() - 3);
}

#[test]
fn many_refusals_do_not_flood_the_log() {
    let served = Served::start();
    for _ in 0..200 {
        assert_eq!(served.anonymous().post("/api/v1/logout", &Value::Null).status, 401);
    }
    let refused = entries(&served, "?actor=anonymous&limit=1000");
    // Twenty for each second of the test.
    assert!((20..200).contains(&refused.len()), "{}", refused.len());
}

/// Anonymous requests fill the log slowly; it counts the omitted ones and keeps other refusals.
#[test]
fn anonymous_requests_do_not_fill_the_audit_log() {
    let mut served = Served::start();
    let bodies = [json!({"name": 1}), json!({"name": "eve", "password": "x"}), json!([])];
    for n in 0..600 {
        for path in ["/api/v1/login", "/api/v1/setup", "/api/v2/login"] {
            let answer = served.anonymous().post(path, &bodies[n % 3]);
            assert!(answer.status >= 400, "{answer:?}");
        }
    }
    let ada = json!({"name": "ada", "password": "Staple-battery-2"});
    served.admin.post("/api/v1/users", &ada).good();
    let ada = served.login("ada", "Staple-battery-2");
    assert_eq!(ada.post("/api/v1/users", &json!({"name": "eve"})).status, 403);
    let all = entries_with_refusal(&served, "user:ada");
    assert!(all.len() < 60, "{} entries", all.len());
    // The count is written at the end.
    let store = served.app.store().clone();
    served.end();
    let all = store.audit().list(&orrery_store::AuditFilter::default(), None, 1_000).unwrap();
    let counts = all.iter().filter_map(|record| {
        record.entry.detail.split_once(" refused requests")?.0.parse::<u64>().ok()
    });
    let left_out: u64 = counts.sum();
    assert!(left_out > 1500, "{left_out}");
}

/// Failed requests of an authenticated caller are rate-limited, and do not displace forbidden ones.
#[test]
fn failed_requests_do_not_fill_the_audit_log() {
    let mut served = Served::start();
    let missing = "/api/v1/projects/00000000-0000-0000-0000-000000000000";
    for n in 0..1_000 {
        let answer = match n % 2 {
            0 => served.admin.delete(missing),
            _ => served.admin.post("/api/v1/projects", &json!({"name": ""})),
        };
        assert!(matches!(answer.status, 404 | 422), "{answer:?}");
    }
    let ada = json!({"name": "ada", "password": "Staple-battery-2"});
    served.admin.post("/api/v1/users", &ada).good();
    let ada = served.login("ada", "Staple-battery-2");
    assert_eq!(ada.post("/api/v1/users", &json!({"name": "eve"})).status, 403);
    let all = entries_with_refusal(&served, "user:ada");
    // 200, and one more for each second of the test.
    assert!((200..500).contains(&all.len()), "{} entries", all.len());
    let store = served.app.store().clone();
    served.end();
    // Each was written or counted.
    let all = store.audit().list(&orrery_store::AuditFilter::default(), None, 1_000).unwrap();
    let failed = all.iter().filter(|record| matches!(record.entry.status, 404 | 422)).count();
    let counts = all.iter().filter_map(|record| {
        record.entry.detail.split_once(" failed requests")?.0.parse::<usize>().ok()
    });
    assert_eq!(failed + counts.sum::<usize>(), 1_000);
}

#[test]
fn tampering_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("server.db");
    let open = || {
        let holder = Holder::this_process("test", orrery_model::Timestamp(0));
        Store::open(&path, &holder).unwrap()
    };
    let served = Served::with(open(), ServerSettings::default());
    for name in ["a", "b", "c", "d"] {
        served.admin.post("/api/v1/projects", &json!({"name": name})).good();
    }
    let before = verify(&served, &json!({}));
    assert_eq!((&before["good"], &before["entries"]), (&json!(true), &json!(5)));
    let noted = json!({"id": before["entries"], "hash": before["head"]});
    assert_eq!(verify(&served, &noted)["good"], json!(true));
    drop(served);

    let tamper = |sql: &str| {
        let connection = rusqlite::Connection::open(&path).unwrap();
        assert_eq!(connection.execute(sql, []).unwrap(), 1, "{sql}");
    };
    let judged = |check: &Value| {
        let served = Served::with(open(), ServerSettings::default());
        let verdict = verify(&served, check);
        (verdict["good"].as_bool().unwrap(), verdict["broken_at"].as_i64())
    };
    assert_eq!(judged(&noted), (true, None), "a restart continues the chain");
    tamper("UPDATE audit SET actor = 'user:eve' WHERE id = 3");
    assert_eq!(judged(&json!({})), (false, Some(3)));
    tamper("UPDATE audit SET actor = 'user:admin' WHERE id = 3");
    assert_eq!(judged(&json!({})), (true, None));
    tamper("DELETE FROM audit WHERE id = 2");
    assert_eq!(judged(&json!({})), (false, Some(2)));
}

#[test]
fn truncation_is_detected_with_a_recorded_head() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("server.db");
    let open = || {
        let holder = Holder::this_process("test", orrery_model::Timestamp(0));
        Store::open(&path, &holder).unwrap()
    };
    let served = Served::with(open(), ServerSettings::default());
    served.admin.post("/api/v1/projects", &json!({"name": "a"})).good();
    let noted = verify(&served, &json!({}));
    let noted = json!({"id": noted["entries"], "hash": noted["head"]});
    drop(served);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute("DELETE FROM audit WHERE id >= 2", []).unwrap();
    drop(connection);
    let served = Served::with(open(), ServerSettings::default());
    served.admin.post("/api/v1/projects", &json!({"name": "b"})).good();
    let verdict = verify(&served, &noted);
    assert_eq!((&verdict["good"], &verdict["broken_at"]), (&json!(false), &json!(2)));
}

/// A world with a released version.
fn released() -> World {
    let world = World::postgres();
    world.post("/versions", &json!({"resources": [], "release": true})).good();
    world
}

/// Requests without an effect are not audited, regardless of their method.
#[test]
fn a_placement_query_is_not_audited() {
    let world = released();
    let before = entries(&world.served, "").len();
    let question = json!({"agents": ["web1"], "local_agents": [], "addresses": {}});
    world.post("/placements", &question).good();
    assert_eq!(entries(&world.served, "").len(), before);
}

/// A change is answered after its entry is on disk, not before.
#[test]
fn nothing_is_acknowledged_before_it_is_audited() {
    let world = released();
    let mut database = world.database.as_ref().unwrap().connect();
    // Blocks appends, like a slow disk.
    database.batch_execute("BEGIN; LOCK TABLE audit IN EXCLUSIVE MODE").unwrap();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let asking: Vec<_> =
            (0..8).map(|_| scope.spawn(|| world.post_empty("/deploy").status)).collect();
        while asking.iter().all(|one| !one.is_finished()) && began.elapsed() < SLOW {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(asking.iter().all(|one| !one.is_finished()), "something was answered too early");
        let count = "SELECT count(*) FROM audit WHERE action LIKE '%/deploy'";
        assert_eq!(database.query_one(count, &[]).unwrap().get::<_, i64>(0), 0);
        database.batch_execute("COMMIT").unwrap();
        for one in asking {
            assert_eq!(one.join().unwrap(), 202);
        }
        assert_eq!(database.query_one(count, &[]).unwrap().get::<_, i64>(0), 8);
    });
}

/// No success is reported while the log cannot be written; the entry follows later.
#[test]
fn a_change_without_an_audit_entry_is_not_a_success() {
    let world = released();
    let mut database = world.database.as_ref().unwrap().connect();
    database.batch_execute("BEGIN; LOCK TABLE audit IN EXCLUSIVE MODE").unwrap();
    let answer = world.post_empty("/deploy");
    assert_eq!((answer.status, &answer.body["code"]), (500, &json!("not-written-down")));
    assert!(answer.text.contains("executed, but"), "{answer:?}");
    database.batch_execute("COMMIT").unwrap();
    let count = "SELECT count(*) FROM audit WHERE action LIKE '%/deploy' AND status = 202";
    let until = Instant::now() + Duration::from_secs(30);
    while database.query_one(count, &[]).unwrap().get::<_, i64>(0) == 0 {
        assert!(Instant::now() < until, "the entry never came");
        std::thread::sleep(Duration::from_millis(20));
    }
}
