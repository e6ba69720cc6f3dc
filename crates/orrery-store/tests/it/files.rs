//! The file of a store: created, opened again, refused; and two processes on one file.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use orrery_model::{Timestamp, VersionNumber};
use orrery_store::{
    EnvironmentKey, Holder, NewVersion, PutScope, ResultRecord, Store, StoreError, current_writer,
};
use tempfile::TempDir;

use crate::support::{
    deployed, empty_result, holder, lease, named, new_version, put, resource, simple, start,
};

pub(crate) fn cases() -> Vec<(&'static str, fn())> {
    vec![
        ("a_new_file_is_for_its_owner_only", a_new_file_is_for_its_owner_only),
        ("everything_is_there_when_it_is_opened_again", everything_is_there_when_opened_again),
        ("a_missing_file_cannot_be_read", a_missing_file_cannot_be_read),
        ("a_foreign_file_is_left_alone", a_foreign_file_is_left_alone),
        ("a_newer_file_is_left_alone", a_newer_file_is_left_alone),
        ("an_older_file_keeps_its_versions", an_older_file_keeps_its_versions),
        ("an_interrupted_creation_is_finished", an_interrupted_creation_is_finished),
        ("the_log_of_a_lost_file_is_kept", the_log_of_a_lost_file_is_kept),
        (
            "damage_is_reported_and_the_file_is_unchanged",
            damage_is_reported_and_the_file_is_unchanged,
        ),
        ("an_unusable_path_is_named", an_unusable_path_is_named),
        ("a_small_change_is_a_small_write", a_small_change_is_a_small_write),
        ("readers_cannot_write", readers_cannot_write),
        ("readers_see_one_state_while_a_writer_works", readers_see_one_state),
        ("a_second_process_learns_who_holds_the_store", a_second_process_learns_the_holder),
    ]
}

fn temporary_path() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data/deploy/store.db");
    (directory, path)
}

fn open(path: &Path) -> (Store, EnvironmentKey) {
    let store = Store::open(path, &holder("test")).unwrap();
    let environment = store.environments().ensure_default().unwrap();
    (store, environment)
}

fn a_new_file_is_for_its_owner_only() {
    let (_directory, path) = temporary_path();
    let _opened = open(&path);
    for entry in fs::read_dir(path.parent().unwrap()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{:?}", entry.path());
    }
}

fn everything_is_there_when_opened_again() {
    let (_directory, path) = temporary_path();
    let resources = simple(&["a", "b"]);
    let state = deployed(&resources[0], Timestamp(9));
    let (stored, epoch) = {
        let (store, environment) = open(&path);
        let lease = lease(&store, environment);
        let stored = put(&store, environment, &resources).unwrap();
        let result = ResultRecord { state: Some(&state), ..empty_result(stored.keys[0]) };
        store.engine().record_results(&lease, &[result]).unwrap();
        store.engine().process_version(&lease, stored.number, &[]).unwrap();
        (stored, lease.epoch())
    };
    let (store, environment) = open(&path);
    assert_eq!(store.versions().load(environment, stored.number).unwrap().resources, resources);
    assert_eq!(store.engine().processed_version(environment).unwrap(), Some(stored.number));
    let found = store.resources().find(environment, named("a").as_str()).unwrap().unwrap();
    assert_eq!((found.key, found.state), (stored.keys[0], state));
    // The former process never released its lease, but it has ended.
    assert!(lease(&store, environment).epoch() > epoch);
}

fn a_missing_file_cannot_be_read() {
    let (_directory, path) = temporary_path();
    let error = Store::open_read_only(&path).unwrap_err();
    assert!(matches!(error, StoreError::Missing { .. }), "{error}");
    assert!(!path.exists());
}

/// Refused for writing and for reading, and not a byte of it changes.
fn assert_refused(path: &Path, is_expected: fn(&StoreError) -> bool, words: &[&str]) {
    let before = fs::read(path).unwrap();
    for opened in [Store::open(path, &holder("test")), Store::open_read_only(path)] {
        let error = opened.err().unwrap();
        assert!(is_expected(&error), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(path.to_str().unwrap()), "{text}");
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
    assert_eq!(fs::read(path).unwrap(), before);
}

fn a_foreign_file_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let is_foreign = |error: &StoreError| matches!(error, StoreError::Foreign { .. });
    let text = directory.path().join("notes.txt");
    fs::write(&text, "Dear diary,\nthis is no database.\n").unwrap();
    assert_refused(&text, is_foreign, &["not a store of this program"]);
    let database = directory.path().join("other.db");
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection.execute_batch("CREATE TABLE photo (id INTEGER PRIMARY KEY)").unwrap();
    drop(connection);
    assert_refused(&database, is_foreign, &["not a store of this program"]);
}

fn a_newer_file_is_left_alone() {
    let (_directory, path) = temporary_path();
    drop(open(&path));
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.pragma_update(None, "user_version", 1000).unwrap();
    drop(connection);
    let is_newer = |error: &StoreError| matches!(error, StoreError::Newer { found: 1000, .. });
    assert_refused(&path, is_newer, &["newer program", "schema 1000"]);
}

/// Two versions in schema 5: the second changed `a` of the first; `b` is in a set.
fn an_older_file_keeps_its_versions() {
    let (_directory, path) = temporary_path();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    for migration in [
        include_str!("../../src/migrations/0001_initial.sql"),
        include_str!("../../src/migrations/0002_server_records.sql"),
        include_str!("../../src/migrations/0003_idempotency_acted.sql"),
        include_str!("../../src/migrations/0004_parameter_metadata.sql"),
        include_str!("../../src/migrations/0005_remote_agents.sql"),
        include_str!("older/schema_5.sql"),
    ] {
        connection.execute_batch(migration).unwrap();
    }
    drop(connection);

    let (store, environment) = open(&path);
    let values = |number| -> Vec<(String, String, Option<String>)> {
        let version = store.versions().load(environment, VersionNumber(number)).unwrap();
        let read = |resource: &orrery_model::Resource| {
            let set = resource.set.as_deref().map(str::to_owned);
            (resource.id.value().to_owned(), resource.attributes.as_str().to_owned(), set)
        };
        version.resources.iter().map(read).collect()
    };
    let line = |name: &str, value: &str, set: Option<&str>| {
        (name.to_owned(), value.to_owned(), set.map(str::to_owned))
    };
    let b = line("b", r#"{"v":1}"#, Some("s"));
    assert_eq!(values(1), [line("a", r#"{"v":1}"#, None), b.clone()]);
    assert_eq!(values(2), [line("a", r#"{"v":2}"#, None), b]);
    let set: [orrery_model::SetName; 1] = [Some("s".into())];
    let emptied = NewVersion { scope: PutScope::Sets(&set), ..new_version(&[]) };
    assert_eq!(store.versions().put(environment, &emptied).unwrap().removed, 1);
    assert_eq!(values(3), [line("a", r#"{"v":2}"#, None)]);
    assert_eq!(store.check().unwrap(), [""; 0]);
}

fn an_interrupted_creation_is_finished() {
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().join("empty.db");
    fs::write(&empty, "").unwrap();
    assert!(matches!(Store::open_read_only(&empty), Err(StoreError::Missing { .. })));
    drop(open(&empty));
    let bare = directory.path().join("bare.db");
    let connection = rusqlite::Connection::open(&bare).unwrap();
    connection.pragma_update(None, "journal_mode", "wal").unwrap();
    connection.execute_batch("VACUUM").unwrap();
    drop(connection);
    drop(open(&bare));
}

fn the_log_of_a_lost_file_is_kept() {
    let (_directory, path) = temporary_path();
    let log = path.with_extension("db-wal");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&log, "rest").unwrap();
    for lost in [false, true] {
        if lost {
            fs::write(&path, "").unwrap();
        }
        let error = Store::open(&path, &holder("test")).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
        assert!(error.to_string().contains(log.to_str().unwrap()), "{error}");
        assert_eq!(fs::read(&log).unwrap(), b"rest");
    }
    fs::remove_file(&log).unwrap();
    drop(open(&path));
}

fn damage_is_reported_and_the_file_is_unchanged() {
    let (_directory, path) = temporary_path();
    let names: Vec<String> = (0..3000).map(|number| format!("{number:05}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let resources = simple(&names);
    let number = {
        let (store, environment) = open(&path);
        put(&store, environment, &resources).unwrap().number
    };
    let whole = fs::read(&path).unwrap();

    // Every page but the first is noise: opening works, reading does not.
    let mut damaged = whole.clone();
    damaged[4096..].fill(0xa5);
    fs::write(&path, &damaged).unwrap();
    let assert_damaged = |error: StoreError| {
        let text = error.to_string();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
        assert!(text.contains(path.to_str().unwrap()), "{text}");
        assert!(text.contains("restore it from a backup"), "{text}");
    };
    let opened = Store::open_read_only(&path).and_then(|store| {
        let environment = store.environments().ensure_default()?;
        store.versions().load(environment, number)
    });
    assert_damaged(opened.err().unwrap());
    assert_damaged(
        Store::open(&path, &holder("test"))
            .and_then(|store| store.environments().ensure_default())
            .unwrap_err(),
    );
    assert_eq!(fs::read(&path).unwrap(), damaged);

    // Truncated in the middle.
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let opened = Store::open_read_only(&path).and_then(|store| {
        let environment = store.environments().ensure_default()?;
        store.versions().load(environment, number)
    });
    assert_damaged(opened.err().unwrap());

    // One page in the middle: found by the check, if not before.
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2 / 4096 * 4096;
    damaged[middle..middle + 4096].fill(0);
    fs::write(&path, &damaged).unwrap();
    let problems = Store::open_read_only(&path).and_then(|store| store.check());
    assert!(!problems.unwrap().is_empty());
    fs::write(&path, &whole).unwrap();
    let (store, environment) = open(&path);
    assert_eq!(store.versions().load(environment, number).unwrap().resources, resources);
}

fn an_unusable_path_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let path = file.join("store.db");
    let error = Store::open(&path, &holder("test")).unwrap_err();
    assert!(matches!(&error, StoreError::Io { path, .. } if *path == file), "{error:?}");
    let error = Store::open(directory.path(), &holder("test")).unwrap_err();
    assert!(matches!(&error, StoreError::Io { path, .. } if path == directory.path()), "{error:?}");
}

fn a_small_change_is_a_small_write() {
    let (_directory, path) = temporary_path();
    let names: Vec<String> = (0..20_000).map(|number| format!("{number:05}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut resources = simple(&names);
    let (store, environment) = open(&path);
    put(&store, environment, &resources).unwrap();
    drop(store);
    // The write-ahead log is empty when a store is opened, and grows with writes.
    let (store, environment) = open(&path);
    let log = path.with_extension("db-wal");
    let written = || fs::metadata(&log).map_or(0, |log| log.len());
    let before = written();
    resources[10_000] = resource(&resources[10_000].id.clone(), 2, &[]);
    let stored = put(&store, environment, &resources).unwrap();
    assert_eq!((stored.added, stored.changed, stored.total), (0, 1, 20_000));
    let grown = written() - before;
    assert!(grown > 0 && grown < 100 * 1024, "{grown} bytes");
}

fn readers_cannot_write() {
    let (_directory, path) = temporary_path();
    drop(open(&path));
    let store = Store::open_read_only(&path).unwrap();
    let environment = store.environments().ensure_default().unwrap();
    let error = put(&store, environment, &[]).unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
    // A reader does not lock out a writer.
    drop(open(&path));
}

fn readers_see_one_state() {
    let (_directory, path) = temporary_path();
    let (store, environment) = open(&path);
    let first = put(&store, environment, &simple(&["a", "b", "c"])).unwrap();
    let mut seen = Vec::new();
    let reader = Store::open_read_only(&path).unwrap();
    let see = &mut |row: orrery_store::ResourceRow<'_>| {
        // The writer continues during the visit.
        put(&store, environment, &simple(&["d"])).unwrap();
        seen.push(row.id.to_owned());
    };
    reader.versions().read(environment, first.number, see).unwrap();
    assert_eq!(seen.len(), 3);
    assert_eq!(reader.versions().list(environment).unwrap().len(), 4);
}

/// The other process: holds the store until its input ends.
pub(crate) fn hold(path: &Path) {
    let holder = Holder::this_process("orrery deploy", Timestamp(60_000_000));
    let store = Store::open(path, &holder).unwrap();
    println!("ready");
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).unwrap();
    drop(store);
}

fn a_second_process_learns_the_holder() {
    let (_directory, path) = temporary_path();
    drop(open(&path));
    assert_eq!(current_writer(&path).unwrap(), None);
    let mut other = start("hold", &path);
    let mut line = String::new();
    BufReader::new(other.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");

    let error = Store::open(&path, &holder("second")).unwrap_err();
    let text = error.to_string();
    let StoreError::Busy { holder: Some(found), .. } = error else { panic!("{error:?}") };
    assert_eq!((found.pid, &*found.command), (other.id(), "orrery deploy"));
    for word in ["`orrery deploy`", &format!("process {}", other.id()), "1970-01-01T00:01:00"] {
        assert!(text.contains(word), "{text}");
    }
    assert_eq!(current_writer(&path).unwrap(), Some(found));
    // Reading is possible meanwhile.
    let reader = Store::open_read_only(&path).unwrap();
    reader.environments().ensure_default().unwrap();

    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(current_writer(&path).unwrap(), None);
    drop(open(&path));

    let mut other = start("hold", &path);
    let mut line = String::new();
    BufReader::new(other.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut input = other.stdin.take().unwrap();
    input.write_all(b"end").unwrap();
    drop(input);
    assert!(other.wait().unwrap().success());
    drop(open(&path));
}
