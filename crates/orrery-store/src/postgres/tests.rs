//! Transactions of a shared database: lost connections, snapshots, conflicts and locks.

use std::time::Duration;

use orrery_model::{Attributes, Resource, Timestamp};
use orrery_testing::{Postgres, TestDatabase};

use super::PostgresStore;
use crate::backend::{Backend as _, PutTarget};
use crate::records::put_then;
use crate::sql::{Database as _, values};
use crate::{
    EnvironmentKey, Holder, LeaseRequest, NewParameter, NewVersion, ParameterSource, PutOutcome,
    PutScope, Store, StoreError,
};

fn open(database: &TestDatabase) -> PostgresStore {
    PostgresStore::open(&database.url(), &holder()).unwrap()
}

fn default_environment(database: &TestDatabase) -> EnvironmentKey {
    let store = Store::connect(&database.url(), &holder()).unwrap();
    store.environments().ensure_default().unwrap()
}

fn holder() -> Holder {
    Holder::this_process("test", Timestamp(1_000_000))
}

#[test]
fn a_connection_lost_in_the_middle_is_an_error() {
    let database = Postgres::shared().database();
    let store = open(&database);
    let error = store
        .write_transaction(&mut |sql| {
            sql.run("INSERT INTO meta (name, value) VALUES ('a', 'b')", &[])?;
            database.cut_connections();
            sql.run("INSERT INTO meta (name, value) VALUES ('c', 'd')", &[]).map(drop)
        })
        .unwrap_err();
    assert!(matches!(error, StoreError::ConnectionLost { .. }), "{error:?}");
    assert!(error.to_string().contains("was lost"), "{error}");
    let mut rows = 0;
    store
        .read_transaction(&mut |sql| {
            sql.visit("SELECT 1 FROM meta", &[], &mut |_| {
                rows += 1;
                Ok(())
            })
        })
        .unwrap();
    assert_eq!(rows, 0);
}

#[test]
fn a_read_sees_one_snapshot() {
    let database = Postgres::shared().database();
    let store = open(&database);
    let mut writer = database.connect();
    let mut next = 0;
    // The first read does not know that there is a second statement; later ones do.
    for _ in 0..3 {
        let mut counts = Vec::new();
        store
            .read_transaction(&mut |sql| {
                counts.clear();
                for statement in ["SELECT count(*) FROM meta", "SELECT count(name) FROM meta"] {
                    sql.visit(statement, &[], &mut |row| {
                        counts.push(row.integer(0)?);
                        Ok(())
                    })?;
                    next += 1;
                    let insert = format!("INSERT INTO meta (name, value) VALUES ('{next}', '')");
                    writer.batch_execute(&insert).unwrap();
                }
                Ok(())
            })
            .unwrap();
        assert_eq!(counts.len(), 2);
        assert_eq!(counts[0], counts[1], "a write happened in between");
    }
}

/// Adds one to a number in a text.
fn increment(store: &PostgresStore, claim: Option<&str>) -> crate::Result<()> {
    store.write_transaction(&mut |sql| {
        if let Some(name) = claim {
            sql.lock_name(name)?;
        }
        let mut found = 0_i64;
        sql.visit("SELECT value FROM meta WHERE name = ?1", values!["count"], &mut |row| {
            found = row.text(0)?.unwrap_or_default().parse().unwrap_or_default();
            Ok(())
        })?;
        let next = (found + 1).to_string();
        let update = "UPDATE meta SET value = ?2 WHERE name = ?1";
        sql.run(update, values!["count", &next]).map(drop)
    })
}

fn increment_in_threads(claim: Option<&str>) {
    let database = Postgres::shared().database();
    let store = open(&database);
    let insert = "INSERT INTO meta (name, value) VALUES ('count', '0')";
    store.write_transaction(&mut |sql| sql.run(insert, &[]).map(drop)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let other = open(&database);
            scope.spawn(move || {
                for _ in 0..10 {
                    // A conflict may be retried.
                    while let Err(error) = increment(&other, claim) {
                        assert!(matches!(error, StoreError::Contended { .. }), "{error:?}");
                    }
                }
            });
        }
    });
    let count: String = database.connect().query_one("SELECT value FROM meta", &[]).unwrap().get(0);
    assert_eq!(count, "40");
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = \
         (SELECT oid FROM pg_database WHERE datname = current_database())";
    let remaining: i64 = database.connect().query_one(locks, &[]).unwrap().get(0);
    assert_eq!(remaining, 0, "locks were left behind");
}

#[test]
fn records_changed_at_once_lose_nothing() {
    increment_in_threads(None);
}

#[test]
fn a_lock_on_a_name_is_exclusive() {
    increment_in_threads(Some("the count"));
}

/// The database ends the transaction under the lease before the lease expires.
#[test]
fn a_holder_frozen_in_a_transaction_loses_its_lease() {
    const LASTS: Duration = Duration::from_secs(3);
    let database = Postgres::shared().database();
    let (frozen, other) = (open(&database), open(&database));
    let environment = default_environment(&database);
    let request = || LeaseRequest {
        holder: holder(),
        now: Timestamp(0),
        expires: Some(Timestamp(3_000_000)),
    };
    let lease = frozen.acquire_lease(environment, &request()).unwrap();
    let began = orrery_base::clock::monotonic();
    std::thread::scope(|scope| {
        let written = scope.spawn(|| {
            let new = NewParameter {
                name: "p",
                value: "v",
                resource: None,
                source: ParameterSource::User,
                expires: false,
                metadata: None,
            };
            let now = Timestamp(1);
            frozen.write_transaction(&mut |sql| {
                sql.check_lease(&lease)?;
                put_then(sql, environment, &new, None, now, &mut |_, _| {
                    std::thread::sleep(LASTS * 5);
                    Ok(())
                })
                .map(drop)
            })
        });
        std::thread::sleep(LASTS / 10);
        while let Err(error) = other.acquire_lease(environment, &request()) {
            assert!(matches!(error, StoreError::Leased { .. }), "{error:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
        let took = began.elapsed();
        assert!(took < LASTS * 2, "it took {took:?} to take the environment over");
        assert!(written.join().unwrap().is_err(), "what the frozen one wrote is kept");
    });
}

/// The consequences of a value are committed with it or not at all.
fn assert_atomic_consequence(store: &Store) {
    let environment = store.environments().ensure_default().unwrap();
    let new = NewParameter {
        name: "p",
        value: "v",
        resource: None,
        source: ParameterSource::User,
        expires: false,
        metadata: None,
    };
    let refused = store.access().backend.write_transaction(&mut |sql| {
        put_then(sql, environment, &new, None, Timestamp(1), &mut |_, _| {
            Err(StoreError::NoResource("x".to_owned()))
        })
        .map(drop)
    });
    assert!(matches!(refused, Err(StoreError::NoResource(_))), "{refused:?}");
    assert!(store.parameters().all(environment).unwrap().is_empty());
}

#[test]
fn the_consequence_of_a_value_is_committed_with_it() {
    assert_atomic_consequence(&Store::in_memory().unwrap());
    let database = Postgres::shared().database();
    assert_atomic_consequence(&Store::connect(&database.url(), &holder()).unwrap());
}

fn put(store: &PostgresStore, environment: EnvironmentKey, value: u32) -> PutOutcome {
    try_put(store, environment, value).unwrap()
}

/// Puts ten resources, which are enough for a second connection and several parts.
fn try_put(
    store: &PostgresStore,
    environment: EnvironmentKey,
    value: u32,
) -> crate::Result<PutOutcome> {
    let resources: Vec<Resource> = (0..10)
        .map(|number| {
            let id = format!("t::R[a,name={number}]").parse().unwrap();
            let attributes = Attributes::parse(&format!(r#"{{"value":{value}}}"#)).unwrap();
            Resource::new(id, attributes, Vec::new())
        })
        .collect();
    let version = NewVersion {
        number: None,
        made_at: Timestamp(1),
        info: &serde_json::Value::Null,
        scope: PutScope::All,
        resources: &resources,
        base: None,
        unknowns: &[],
        released: false,
        only_if_changed: false,
        lease: None,
        project: None,
    };
    store.put_version(PutTarget::Environment(environment), &version)
}

fn count(client: &mut postgres::Client, table: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {table}");
    client.query_one(&sql, &[]).unwrap().get(0)
}

/// Lets insertions into a table fail under a condition on the row, which is `new`.
fn fail_insertions(client: &mut postgres::Client, table: &str, condition: &str) {
    client
        .batch_execute(&format!(
            "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS \
                 $$ BEGIN RAISE EXCEPTION 'not this one'; END $$; \
             CREATE TRIGGER fail BEFORE INSERT ON {table} FOR EACH ROW WHEN ({condition}) \
                 EXECUTE FUNCTION fail()"
        ))
        .unwrap();
}

/// The second connection of a put commits first; the process may end before the other one does.
#[test]
fn revisions_of_a_put_that_failed_are_deleted_by_the_next_one() {
    let database = Postgres::shared().database();
    let store = open(&database);
    let environment = default_environment(&database);
    put(&store, environment, 1);
    let mut other = database.connect();
    assert_eq!(count(&mut other, "unclaimed"), 0);
    other
        .batch_execute(
            "INSERT INTO revision (id, environment, resource, since, resource_set, flags, hash, \
                 attributes) SELECT 1000 + id, environment, resource, 99, 0, 0, hash, attributes \
                 FROM revision; \
             INSERT INTO ended (environment, until, revision, resource) \
                 SELECT environment, 99, head, id FROM resource; \
             INSERT INTO unclaimed (environment, step, first_revision, end_revision) \
                 SELECT environment, 99, min(id), max(id) + 1 FROM revision WHERE since = 99 \
                 GROUP BY environment",
        )
        .unwrap();
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
    assert_eq!(put(&store, environment, 2).changed, 10);
    assert_eq!(count(&mut other, "unclaimed"), 0);
    assert_eq!(count(&mut other, "revision"), 20);
    assert_eq!(count(&mut other, "ended"), 10);
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
}

#[test]
fn a_put_that_fails_deletes_the_revisions_that_it_copied() {
    // The first table is written beside the revisions, the second one after them.
    for table in ["resource", "version"] {
        let database = Postgres::shared().database();
        let store = open(&database);
        let environment = default_environment(&database);
        let mut other = database.connect();
        fail_insertions(&mut other, table, "true");
        assert!(try_put(&store, environment, 1).is_err(), "{table}");
        assert_eq!(count(&mut other, "revision"), 0, "{table}");
        assert_eq!(count(&mut other, "unclaimed"), 0, "{table}");
        other.batch_execute("DROP FUNCTION fail CASCADE").unwrap();
        put(&store, environment, 1);
        fail_insertions(&mut other, "version", "true");
        assert!(try_put(&store, environment, 2).is_err(), "{table}");
        assert_eq!(count(&mut other, "revision"), 10, "{table}");
        assert_eq!(count(&mut other, "ended"), 0, "{table}");
        assert_eq!(store.check().unwrap(), Vec::<String>::new(), "{table}");
    }
}

/// The first connection copies them again.
#[test]
fn a_put_outlives_a_failure_of_its_second_connection() {
    let database = Postgres::shared().database();
    let store = open(&database);
    let environment = default_environment(&database);
    let mut other = database.connect();
    // The second connection does not sync its commits. It fails after the first part.
    let condition = "new.id > 6 AND current_setting('synchronous_commit') = 'off'";
    fail_insertions(&mut other, "revision", condition);
    assert_eq!(put(&store, environment, 1).added, 10);
    assert_eq!(count(&mut other, "revision"), 10);
    assert_eq!(count(&mut other, "unclaimed"), 0);
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
}

/// The database writes its log while the rest is copied, instead of all of it with one commit.
#[test]
fn the_second_connection_commits_revisions_part_by_part() {
    let database = Postgres::shared().database();
    let store = open(&database);
    let environment = default_environment(&database);
    let mut other = database.connect();
    put(&store, environment, 1);
    assert_eq!(count(&mut other, "(SELECT DISTINCT xmin::text FROM revision) AS parts"), 3);
    put(&store, environment, 2);
    assert_eq!(count(&mut other, "(SELECT DISTINCT xmin::text FROM revision) AS parts"), 6);
    assert_eq!(count(&mut other, "(SELECT DISTINCT xmin::text FROM ended) AS parts"), 3);
}

#[test]
fn a_put_needs_no_second_connection() {
    let database = Postgres::shared().database();
    let store = PostgresStore::open_with_pool_size(&database.url(), &holder(), 1).unwrap();
    let environment = default_environment(&database);
    assert_eq!(put(&store, environment, 1).added, 10);
    assert_eq!(put(&store, environment, 2).changed, 10);
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
}
