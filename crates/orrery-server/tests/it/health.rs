//! What a server says of itself while it cannot work.

use std::sync::Arc;

use orrery_model::Timestamp;
use orrery_server::AppSettings;
use orrery_store::{Holder, PostgresStore};
use orrery_testing::Postgres;

use crate::support::Served;

/// Whoever looks after the server learns that it lives, and what is wrong with it.
#[test]
fn a_database_that_is_gone_is_told() {
    let database = Postgres::shared().database();
    let holder = Holder::this_process("test", Timestamp(1));
    let store = Arc::new(PostgresStore::open(&database.url(), &holder).unwrap());
    let served = Served::with(store, AppSettings::default());
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
