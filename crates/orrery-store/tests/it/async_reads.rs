//! Reads of a shared database that do not block a thread: results, lost connections, limits.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use orrery_model::Timestamp;
use orrery_store::{EnvironmentKey, ResourceKey, ResultRecord, Store, StoreError};
use orrery_testing::TestDatabase;

use crate::support::{
    deployed, empty_result, holder, lease, named, postgres_database, put, resource, simple,
};

pub(crate) fn cases() -> Vec<(&'static str, fn())> {
    vec![
        ("async_reads_equal_blocking_ones", async_reads_equal_blocking_ones),
        ("a_file_has_no_async_reads", a_file_has_no_async_reads),
        ("async_reads_replace_lost_connections", async_reads_replace_lost_connections),
        ("a_connection_lost_during_an_async_read", a_connection_lost_during_an_async_read),
        ("an_abandoned_async_read_frees_its_connection", an_abandoned_async_read),
        ("async_reads_leave_connections_to_others", async_reads_leave_connections_to_others),
        ("async_reads_replace_idle_connections", async_reads_replace_idle_connections),
        ("an_unreadable_row_is_an_error_of_its_type", an_unreadable_row),
    ]
}

/// Runs a future on a runtime of its own.
fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Runs blocking work on another thread: the thread of a runtime must not use a blocking client.
fn aside<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join().unwrap())
}

struct Filled {
    // Closed before the database is dropped.
    store: Store,
    environment: EnvironmentKey,
    keys: Vec<ResourceKey>,
    database: TestDatabase,
}

/// A store with the resources `a` and `b`.
fn filled(connections: usize) -> Filled {
    let database = postgres_database();
    let store =
        Store::connect_with_pool_size(&database.url(), &holder("async"), connections).unwrap();
    let environment = store.environments().ensure_default().unwrap();
    let keys = put(&store, environment, &simple(&["a", "b"])).unwrap().keys;
    Filled { store, environment, keys, database }
}

impl Filled {
    /// Number of resources that an asynchronous read of `a` finds; `None` if it is not possible.
    async fn read(&self) -> Result<Option<usize>, StoreError> {
        let name = named("a");
        let found =
            self.store.resources().details_async(&[(self.environment, name.as_str())]).await?;
        Ok(found.map(|found| found.iter().flatten().count()))
    }

    fn open_connections(&self) -> usize {
        self.store.connections().unwrap().open
    }
}

fn async_reads_equal_blocking_ones() {
    let database = postgres_database();
    let store = Store::connect(&database.url(), &holder("async")).unwrap();
    let environment = store.environments().ensure_default().unwrap();
    let ids: Vec<_> = (0..150).map(|number| named(&format!("{number:03}"))).collect();
    let wants = |number: usize| {
        let requires: Vec<_> = ids[number.saturating_sub(number % 4)..number].iter().collect();
        resource(&ids[number], u32::try_from(number).unwrap(), &requires)
    };
    let all: Vec<_> = (0..ids.len()).map(wants).collect();
    let stored = put(&store, environment, &all).unwrap();
    let state = deployed(&all[7], Timestamp(5));
    let results = [ResultRecord { state: Some(&state), ..empty_result(stored.keys[7]) }];
    store.engine().record_results(&lease(&store, environment), &results).unwrap();
    // The last ones are not managed any more.
    put(&store, environment, &all[..140]).unwrap();
    for count in [0, 1, 2, 3, 64, 65, 150] {
        let mut names: Vec<_> = ids[..count].iter().map(|id| (environment, id.as_str())).collect();
        names.push((environment, "t::R[agent,name=no]"));
        let keys = &stored.keys[..count];
        let (details, statuses) = run(async {
            let resources = store.resources();
            (resources.details_async(&names).await, resources.statuses_async(keys).await)
        });
        let blocking = store.resources().details(&names).unwrap();
        assert_eq!(format!("{:?}", details.unwrap().unwrap()), format!("{blocking:?}"));
        assert_eq!(statuses.unwrap().unwrap(), store.resources().statuses(keys).unwrap());
    }
}

fn a_file_has_no_async_reads() {
    let store = Store::in_memory().unwrap();
    let environment = store.environments().ensure_default().unwrap();
    put(&store, environment, &simple(&["a"])).unwrap();
    let name = named("a");
    let found =
        run(async { store.resources().details_async(&[(environment, name.as_str())]).await });
    assert!(found.unwrap().is_none());
}

fn async_reads_replace_lost_connections() {
    let filled = filled(10);
    run(async {
        for _ in 0..3 {
            assert_eq!(filled.read().await.unwrap(), Some(1));
            aside(|| filled.database.cut_connections());
        }
    });
    // The runtime of a connection may end before the store does.
    for _ in 0..3 {
        assert_eq!(run(filled.read()).unwrap(), Some(1));
    }
}

/// Waits until so many sessions of the database wait for a lock.
fn wait_for_blocked(database: &TestDatabase, count: i64) {
    let mut client = database.connect();
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
         AND wait_event_type = 'Lock'";
    while client.query_one(sql, &[]).unwrap().get::<_, i64>(0) < count {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn a_connection_lost_during_an_async_read() {
    let filled = filled(10);
    let mut other = filled.database.connect();
    other.batch_execute("BEGIN; LOCK TABLE resource").unwrap();
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for_blocked(&filled.database, 1);
            let end = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity \
                 WHERE datname = current_database() AND wait_event_type = 'Lock'";
            filled.database.connect().batch_execute(end).unwrap();
        });
        run(filled.read()).unwrap_err()
    });
    assert!(matches!(error, StoreError::ConnectionLost { .. }), "{error:?}");
    other.batch_execute("COMMIT").unwrap();
    assert_eq!(run(filled.read()).unwrap(), Some(1));
}

fn an_abandoned_async_read() {
    let filled = filled(4);
    assert_eq!(run(filled.read()).unwrap(), Some(1));
    let open = filled.open_connections();
    for _ in 0..3 {
        let mut other = filled.database.connect();
        other.batch_execute("BEGIN; LOCK TABLE resource").unwrap();
        run(async {
            let read = tokio::time::timeout(Duration::from_millis(50), filled.read());
            assert!(read.await.is_err(), "it did not wait for the lock");
            assert!(filled.open_connections() < open, "its connection is still counted");
            aside(|| other.batch_execute("COMMIT").unwrap());
            assert_eq!(filled.read().await.unwrap(), Some(1));
        });
    }
}

fn async_reads_leave_connections_to_others() {
    assert_eq!(run(filled(3).read()).unwrap(), None, "the pool is too small");
    let filled = Arc::new(filled(4));
    let mut other = filled.database.connect();
    other.batch_execute("BEGIN; LOCK TABLE resource").unwrap();
    run(async {
        let first = Arc::clone(&filled);
        let first = tokio::spawn(async move { first.read().await });
        while filled.open_connections() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(filled.read().await.unwrap(), None, "one of four is the maximum");
        aside(|| other.batch_execute("COMMIT").unwrap());
        assert_eq!(first.await.unwrap().unwrap(), Some(1));
    });
    let status = filled.store.connections().unwrap();
    assert_eq!((status.open, status.idle, status.max), (2, 2, 4));
    assert_eq!(filled.store.resources().statuses(&filled.keys).unwrap().len(), 2);
}

/// Blocking work may have opened all connections before the first asynchronous read.
fn async_reads_replace_idle_connections() {
    let filled = filled(4);
    let mut other = filled.database.connect();
    other.batch_execute("BEGIN; LOCK TABLE resource").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| filled.store.resources().statuses(&filled.keys).unwrap());
        }
        wait_for_blocked(&filled.database, 4);
        assert_eq!(run(filled.read()).unwrap(), None, "all connections are in use");
        other.batch_execute("COMMIT").unwrap();
    });
    assert_eq!(filled.open_connections(), 4);
    assert_eq!(run(filled.read()).unwrap(), Some(1));
    assert_eq!(filled.open_connections(), 4);
}

fn an_unreadable_row() {
    let filled = filled(4);
    let damage = "UPDATE revision SET hash = '\\x00' WHERE id = \
         (SELECT head FROM resource WHERE name LIKE '%=a]')";
    filled.database.connect().batch_execute(damage).unwrap();
    run(async {
        let error = filled.read().await.unwrap_err();
        assert!(matches!(error, StoreError::Unreadable(_)), "{error:?}");
        let name = named("b");
        let names = [(filled.environment, name.as_str())];
        let found = filled.store.resources().details_async(&names).await.unwrap().unwrap();
        assert!(found[0].is_some());
    });
}
