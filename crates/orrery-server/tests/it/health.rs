//! Health endpoints of a server that cannot work.

use std::time::{Duration, Instant};

use orrery_model::Timestamp;
use orrery_server::{ProcessOptions, ProcessRole, ServerSettings};
use orrery_store::{Holder, Store};
use orrery_testing::{Postgres, TestDatabase};

use crate::support::Served;

fn served_by(database: &TestDatabase) -> Served {
    let holder = Holder::this_process("test", Timestamp(1));
    let store = Store::connect(&database.url(), &holder).unwrap();
    Served::with(store, ServerSettings::default())
}

/// `/health` reports the failure; `/health/live` stays up.
#[test]
fn a_lost_database_is_reported() {
    let database = Postgres::shared().database();
    let served = served_by(&database);
    let well = served.anonymous().get("/health").good();
    assert_eq!((&well["status"], &well["checks"]["store"]), (&"ready".into(), &"ok".into()));
    drop(database);
    for path in ["/health", "/health/ready"] {
        let ill = served.anonymous().get(path);
        assert_eq!((ill.status, ill.body["status"].as_str()), (503, Some("not ready")), "{ill:?}");
        let reason = ill.body["checks"]["store"].as_str().unwrap();
        assert!(reason.len() > 10, "{reason}");
    }
    assert_eq!(served.anonymous().get("/health/live").good()["status"], "live");
}

/// The health check does not wait as long as other requests do.
#[test]
fn a_hanging_database_is_reported() {
    let database = Postgres::shared().database();
    let served = served_by(&database);
    served.anonymous().get("/health").good();
    let mut other = database.connect();
    other.batch_execute("BEGIN; ALTER SEQUENCE change_id_seq RENAME TO held").unwrap();
    let ill = served.anonymous().get("/health");
    other.batch_execute("ROLLBACK").unwrap();
    assert_eq!((ill.status, ill.body["status"].as_str()), (503, Some("not ready")), "{ill:?}");
    let reason = ill.body["checks"]["store"].as_str().unwrap();
    assert!(reason.contains("does not answer"), "{reason}");
}

/// The role is listed, and not ready yet.
#[test]
fn a_starting_process_role_is_reported() {
    let database = Postgres::shared().database();
    let served = served_by(&database);
    let data = tempfile::tempdir().unwrap();
    let mut other = database.connect();
    // Blocks its first query.
    other.batch_execute("BEGIN; ALTER SEQUENCE change_id_seq RENAME TO held").unwrap();
    let lease = Some(Duration::from_secs(10));
    let options = ProcessOptions {
        data: data.path().to_owned(),
        workers: orrery_executor::WorkerLimits::starting_at(1),
        lease,
        host_memory: None,
        isolation: orrery_server::Isolation::Shared,
        own_machine: orrery_server::OwnMachineOptions::shared(),
    };
    let role = ProcessRole::start(served.app.clone(), options).unwrap();
    let early = served.anonymous().get("/health");
    other.batch_execute("ROLLBACK").unwrap();
    let reason = early.body["checks"]["process"].as_str().unwrap();
    assert!(early.status == 503 && reason == "starting", "{early:?}");
    let until = Instant::now() + Duration::from_secs(60);
    while served.anonymous().get("/health").body["checks"]["process"] != "ok" {
        assert!(Instant::now() < until, "it never went on");
        std::thread::sleep(Duration::from_millis(20));
    }
    let tasks = served.anonymous().get("/health").body["maintenance"].clone();
    let named = [
        "cluster-leases",
        "content-collection",
        "fact-refresh",
        "metric-samples",
        "retention",
        "server-retention",
    ];
    assert_eq!(tasks.as_object().unwrap().keys().collect::<Vec<_>>(), named);
    assert_eq!(tasks["metric-samples"]["period_seconds"], 60);
    assert!(tasks["retention"]["result"].is_string(), "{tasks}");
    role.stop();
}
