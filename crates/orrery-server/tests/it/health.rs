//! What a server says of itself while it cannot work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery_model::Timestamp;
use orrery_server::{AppSettings, ProcessOptions, ProcessRole};
use orrery_store::{Holder, PostgresStore};
use orrery_testing::{Database, Postgres};

use crate::support::Served;

fn served_by(database: &Database) -> Served {
    let holder = Holder::this_process("test", Timestamp(1));
    let store = Arc::new(PostgresStore::open(&database.url(), &holder).unwrap());
    Served::with(store, AppSettings::default())
}

/// Whoever looks after the server learns that it lives, and what is wrong with it.
#[test]
fn a_database_that_is_gone_is_told() {
    let database = Postgres::shared().database();
    let served = served_by(&database);
    let well = served.nobody().get("/health").good();
    assert_eq!((&well["status"], &well["checks"]["store"]), (&"ready".into(), &"ok".into()));
    drop(database);
    for path in ["/health", "/health/ready"] {
        let ill = served.nobody().get(path);
        assert_eq!((ill.status, ill.body["status"].as_str()), (503, Some("not ready")), "{ill:?}");
        let reason = ill.body["checks"]["store"].as_str().unwrap();
        assert!(reason.len() > 10, "{reason}");
    }
    assert_eq!(served.nobody().get("/health/live").good()["status"], "live");
}

/// Whoever asks is not kept waiting as long as the database keeps everybody else.
#[test]
fn a_database_that_hangs_is_told() {
    let database = Postgres::shared().database();
    let served = served_by(&database);
    served.nobody().get("/health").good();
    let mut other = database.connect();
    other.batch_execute("BEGIN; ALTER SEQUENCE change_id_seq RENAME TO held").unwrap();
    let ill = served.nobody().get("/health");
    other.batch_execute("ROLLBACK").unwrap();
    assert_eq!((ill.status, ill.body["status"].as_str()), (503, Some("not ready")), "{ill:?}");
    let reason = ill.body["checks"]["store"].as_str().unwrap();
    assert!(reason.contains("does not answer"), "{reason}");
}

/// It is no process without the role, and not ready either.
#[test]
fn a_process_role_that_has_just_begun_is_told() {
    let database = Postgres::shared().database();
    let served = served_by(&database);
    let data = tempfile::tempdir().unwrap();
    let mut other = database.connect();
    // What it reads first does not come.
    other.batch_execute("BEGIN; ALTER SEQUENCE change_id_seq RENAME TO held").unwrap();
    let lease = Some(Duration::from_secs(10));
    let options = ProcessOptions {
        data: data.path().to_owned(),
        workers: orrery_executor::Workers::growing_from(1),
        lease,
        host_memory: None,
        isolation: orrery_server::Isolation::Shared,
        own_machine: orrery_server::OwnMachineOptions::shared(),
    };
    let role = ProcessRole::start(served.app.clone(), options).unwrap();
    let early = served.nobody().get("/health");
    other.batch_execute("ROLLBACK").unwrap();
    let reason = early.body["checks"]["process"].as_str().unwrap();
    assert!(early.status == 503 && reason == "it is starting", "{early:?}");
    let until = Instant::now() + Duration::from_secs(60);
    while served.nobody().get("/health").body["checks"]["process"] != "ok" {
        assert!(Instant::now() < until, "it never went on");
        std::thread::sleep(Duration::from_millis(20));
    }
    role.stop();
}
