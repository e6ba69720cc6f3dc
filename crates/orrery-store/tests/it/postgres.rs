//! Failure modes of a shared database: opening, lost connections, locks, and reads during writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use orrery_model::Timestamp;
use orrery_store::{ChangeSeq, ResultRecord, Store, StoreError};
use orrery_testing::{Postgres, TestDatabase, TlsFiles};

use crate::support::{
    deployed, empty_result, holder, lease, named, postgres_database, put, resource, simple,
    start_with,
};

pub(crate) fn cases() -> Vec<(&'static str, fn())> {
    vec![
        ("everything_is_there_for_a_second_process", everything_is_there_for_a_second_process),
        ("the_schema_is_created_once", the_schema_is_created_once),
        ("a_foreign_database_is_left_alone", a_foreign_database_is_left_alone),
        ("a_newer_database_is_left_alone", a_newer_database_is_left_alone),
        ("a_database_in_another_encoding_is_refused", another_encoding_is_refused),
        ("a_wrong_address_is_explained", a_wrong_address_is_explained),
        ("lost_connections_are_replaced", lost_connections_are_replaced),
        ("connections_are_bounded", connections_are_bounded),
        ("unstorable_values_are_refused", unstorable_values_are_refused),
        ("encryption_checks_certificates", encryption_checks_certificates),
        ("a_stale_owner_cannot_commit", a_stale_owner_cannot_commit),
        ("puts_at_the_same_time_follow_each_other", puts_at_the_same_time),
        ("the_feed_waits_for_the_first_writer", the_feed_waits_for_the_first_writer),
        ("the_feed_misses_nothing_while_many_write", the_feed_misses_nothing),
    ]
}

fn open(database: &TestDatabase) -> Store {
    Store::connect(&database.url(), &holder("test")).unwrap()
}

fn everything_is_there_for_a_second_process() {
    let database = Postgres::shared().database();
    let first = open(&database);
    let environment = first.environments().ensure_default().unwrap();
    let resources = simple(&["a", "b"]);
    let stored = put(&first, environment, &resources).unwrap();
    let second = open(&database);
    assert_eq!(second.environments().ensure_default().unwrap(), environment);
    let loaded = second.versions().load(environment, stored.number).unwrap();
    assert_eq!(loaded.resources, resources);
    let name = second.database_name().unwrap();
    assert!(name.contains(database.name()), "{name}");
}

fn the_schema_is_created_once() {
    let database = Arc::new(Postgres::shared().database());
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let database = Arc::clone(&database);
            std::thread::spawn(move || open(&database).environments().ensure_default().unwrap())
        })
        .collect();
    let keys: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

/// Refused, and nothing in it changes.
fn assert_refused(database: &TestDatabase, is_expected: fn(&StoreError) -> bool, words: &[&str]) {
    let tables = || -> i64 {
        let count = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace";
        database.connect().query_one(count, &[]).unwrap().get(0)
    };
    let before = tables();
    let error = Store::connect(&database.url(), &holder("test")).unwrap_err();
    assert!(is_expected(&error), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(database.name()), "{text}");
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    assert_eq!(tables(), before);
}

fn a_foreign_database_is_left_alone() {
    let database = Postgres::shared().database();
    database.connect().batch_execute("CREATE TABLE photo (id bigint)").unwrap();
    let is_foreign = |error: &StoreError| matches!(error, StoreError::ForeignDatabase { .. });
    assert_refused(&database, is_foreign, &["another program", "CREATE DATABASE"]);
}

fn a_newer_database_is_left_alone() {
    let database = postgres_database();
    database.connect().batch_execute("UPDATE orrery_schema SET number = 1000").unwrap();
    let is_newer =
        |error: &StoreError| matches!(error, StoreError::NewerDatabase { found: 1000, .. });
    assert_refused(&database, is_newer, &["newer program", "schema 1000"]);
}

fn another_encoding_is_refused() {
    let database = Postgres::shared().database();
    let latin = format!("{}_latin", database.name());
    database.server().run(&format!(
        "CREATE DATABASE {latin} ENCODING 'LATIN1' LOCALE 'C' LOCALE_PROVIDER libc TEMPLATE template0"
    ));
    let url = database.url().replace(database.name(), &latin);
    let error = Store::connect(&url, &holder("test")).unwrap_err();
    assert!(matches!(error, StoreError::UnfitDatabase { .. }), "{error:?}");
    assert!(error.to_string().contains("LATIN1"), "{error}");
    database.server().run(&format!("DROP DATABASE {latin}"));
}

fn a_wrong_address_is_explained() {
    let open = |url: &str| {
        let error = Store::connect(url, &holder("test")).unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(!text.contains("hunter2"), "{text}");
        (error.to_string(), error)
    };
    for url in ["sqlite:///x", "postgres://u:hunter2@", "postgres://u@h/x?sslmode=maybe"] {
        let (text, error) = open(url);
        assert!(matches!(error, StoreError::BadUrl { .. }), "{url}: {error:?}");
        assert!(text.contains("postgres://user:password@host:port/name"), "{text}");
    }
    let (text, _) = open("postgres://u@h/x?connect_timeout=1&sslmode=maybe");
    assert!(text.contains("maybe") && text.contains("verify-full"), "{text}");
    // A port that was free a moment ago has no listener.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (text, error) = open(&format!("postgres://u:hunter2@127.0.0.1:{port}/x"));
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    assert!(text.contains(&format!("127.0.0.1:{port}")) && text.contains("check that"), "{text}");
    let server = Postgres::shared();
    let (text, error) =
        open(&format!("postgres://postgres:hunter2@localhost:{}/nowhere", server.port()));
    assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
    assert!(text.contains("nowhere") && text.contains("does not exist"), "{text}");
}

fn lost_connections_are_replaced() {
    let database = postgres_database();
    let store = open(&database);
    let environment = store.environments().ensure_default().unwrap();
    for _ in 0..3 {
        database.cut_connections();
        put(&store, environment, &simple(&["a"])).unwrap();
        database.cut_connections();
        assert_eq!(store.environments().list(None).unwrap().len(), 1);
    }
}

fn connections_are_bounded() {
    let database = postgres_database();
    let store = Store::connect_with_pool_size(&database.url(), &holder("bounded"), 2).unwrap();
    let environment = store.environments().ensure_default().unwrap();
    let most = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (store, most, database) = (&store, &most, &database);
            scope.spawn(move || {
                for round in 0..5 {
                    let name = format!("setting {number}");
                    let value = serde_json::json!(round);
                    store.settings().change(environment, &name, Some(&value), Timestamp(1)).unwrap();
                }
                let count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                     AND application_name LIKE 'bounded%'";
                let open: i64 = database.connect().query_one(count, &[]).unwrap().get(0);
                most.fetch_max(usize::try_from(open).unwrap(), Ordering::Relaxed);
            });
        }
    });
    assert_eq!(store.settings().values(environment).unwrap().len(), 8);
    let most = most.into_inner();
    assert!((1..=2).contains(&most), "{most}");
}

fn unstorable_values_are_refused() {
    let database = postgres_database();
    let store = open(&database);
    let environment = store.environments().ensure_default().unwrap();
    let error = store.agents().set_paused(environment, Some("nul\0"), true).unwrap_err();
    assert!(matches!(error, StoreError::Unstorable { .. }), "{error:?}");
    assert!(store.agents().states(environment).unwrap().is_empty());
}

/// The other process, which has trusted certificates: prints the result.
pub(crate) fn connect(url: &str) {
    match Store::connect(url, &holder("test")) {
        Ok(store) => println!("{:?}", store.environments().ensure_default().is_ok()),
        Err(error) => println!("{error}"),
    }
}

fn encryption_checks_certificates() {
    let database = postgres_database();
    let directory = tempfile::tempdir().unwrap();
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = parameters.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::new(parameters, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()])
        .unwrap()
        .signed_by(&key, &issuer)
        .unwrap();
    let (certificate, key) = (certificate.pem(), key.serialize_pem());
    database.server().encrypt(TlsFiles { certificate: &certificate, key: &key });
    let trusted = directory.path().join("authority.pem");
    std::fs::write(&trusted, authority.pem()).unwrap();
    let strange = directory.path().join("none.pem");
    std::fs::write(&strange, certificate).unwrap();

    let url = |host: &str, mode: &str| format!("{}?sslmode={mode}", database.tcp_url(host));
    let connect = |url: &str, trusted: &std::path::Path| -> String {
        let child = start_with("connect", url.as_ref(), &[("SSL_CERT_FILE", trusted.as_ref())]);
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    // The server needs a moment to read its new configuration.
    let began = Instant::now();
    let mut answer = String::new();
    while answer != "true\n" && began.elapsed() < Duration::from_secs(20) {
        answer = connect(&url("localhost", "require"), &trusted);
    }
    assert_eq!(answer, "true\n");
    for mode in ["prefer", "verify-ca", "verify-full"] {
        assert_eq!(connect(&url("localhost", mode), &trusted), "true\n", "{mode}");
    }
    assert_eq!(connect(&url("localhost", "disable"), &strange), "true\n");
    for refused in [
        connect(&url("localhost", "require"), &strange),
        connect(&url("localhost", "prefer"), &strange),
        // A different name than that of the certificate.
        connect(&url("127.0.0.1", "require"), &trusted),
        connect(&url("127.0.0.1", "verify-ca"), &trusted),
        connect(&url("127.0.0.1", "verify-full"), &trusted),
        connect(&url("localhost", "verify-ca"), &strange),
    ] {
        assert!(refused.contains("certificate") && refused.contains("SSL_CERT_FILE"), "{refused}");
    }
}

fn a_stale_owner_cannot_commit() {
    let database = postgres_database();
    let store = open(&database);
    let environment = store.environments().ensure_default().unwrap();
    let resources = simple(&["a"]);
    let stored = put(&store, environment, &resources).unwrap();
    let stale = lease(&store, environment);
    let state = deployed(&resources[0], Timestamp(1));
    // Another process takes the lease over and has not committed yet.
    let mut thief = database.connect();
    thief.batch_execute("BEGIN; UPDATE lease SET epoch = epoch + 1").unwrap();
    std::thread::scope(|scope| {
        let late = scope.spawn(|| {
            let result = ResultRecord { state: Some(&state), ..empty_result(stored.keys[0]) };
            store.engine().record_results(&stale, &[result])
        });
        std::thread::sleep(Duration::from_millis(200));
        assert!(!late.is_finished(), "it did not wait for the outcome");
        thief.batch_execute("COMMIT").unwrap();
        let error = late.join().unwrap().unwrap_err();
        assert!(matches!(error, StoreError::StaleEpoch { held: 1, current: 2 }), "{error:?}");
    });
    let found = store.resources().find(environment, named("a").as_str()).unwrap().unwrap();
    assert_eq!(found.state.last_run_at, None);
}

fn puts_at_the_same_time() {
    let database = postgres_database();
    let store = open(&database);
    let environment = store.environments().ensure_default().unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4_u32 {
            let other = open(&database);
            scope.spawn(move || {
                for round in 0..8 {
                    // All have the same names, and two of them a value of their own.
                    let mut resources = simple(&["a", "b", "c", "d"]);
                    let own = format!("of {writer}");
                    resources.push(resource(&named(&own), round, &[]));
                    resources[0] = resource(&resources[0].id.clone(), 100 * writer + round, &[]);
                    let stored = put(&other, environment, &resources).unwrap();
                    let loaded = other.versions().load(environment, stored.number).unwrap();
                    assert_eq!(loaded.resources, resources);
                    other.versions().retain(environment, 3).unwrap();
                }
            });
        }
    });
    assert_eq!(store.check().unwrap(), [""; 0]);
    let versions = store.versions().list(environment).unwrap();
    assert_eq!(versions.last().unwrap().number.0, 32);
    assert_eq!(versions.len(), 3);
}

fn subjects(store: &Store, after: ChangeSeq) -> Vec<String> {
    let changes = store.changes().list(after, None, 100).unwrap();
    changes.into_iter().map(|change| change.subject).collect()
}

fn the_feed_waits_for_the_first_writer() {
    let database = postgres_database();
    let store = open(&database);
    let environment = store.environments().ensure_default().unwrap();
    for end in ["COMMIT", "ROLLBACK"] {
        let begin = store.changes().latest().unwrap();
        let mut slow = database.connect();
        slow.batch_execute(
            "BEGIN; SELECT note_changes(ARRAY[0], ARRAY['x'], ARRAY['slow'], ARRAY[1])",
        )
        .unwrap();
        // The transaction that began later commits first.
        store.agents().set_paused(environment, Some("fast"), true).unwrap();
        assert_eq!(subjects(&store, begin), [""; 0], "something before it may still come");
        assert_eq!(store.changes().latest().unwrap(), begin);
        slow.batch_execute(end).unwrap();
        let expected: &[&str] = if end == "COMMIT" { &["slow", "fast"] } else { &["fast"] };
        assert_eq!(subjects(&store, begin), expected);
    }
}

fn the_feed_misses_nothing() {
    const WRITERS: usize = 4;
    const CHANGES: usize = 40;
    let database = postgres_database();
    let store = open(&database);
    let environment = store.environments().ensure_default().unwrap();
    let begin = store.changes().latest().unwrap();
    let (mut seen, mut after) = (Vec::new(), begin);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let other = open(&database);
            scope.spawn(move || {
                for change in 0..CHANGES {
                    let name = format!("{writer}.{change}");
                    other
                        .settings()
                        .change(environment, &name, Some(&serde_json::json!(1)), Timestamp(1))
                        .unwrap();
                }
            });
        }
        let began = Instant::now();
        while seen.len() < WRITERS * CHANGES && began.elapsed() < Duration::from_secs(60) {
            for change in store.changes().list(after, Some(environment), 7).unwrap() {
                assert!(change.seq > after);
                after = change.seq;
                seen.push(change.subject);
            }
        }
    });
    assert_eq!(seen.len(), WRITERS * CHANGES, "a change was missed");
}
