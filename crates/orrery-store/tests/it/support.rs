//! Shared test support: stores to test, resources to store, and shorthands.

use std::ffi::OsStr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use orrery_model::{
    Attributes, Change, Id, LastRunStatus, LogLine, OutcomeStatus, Resource, ResourceId,
    ResourceState, Timestamp, VersionNumber,
};
use orrery_store::{
    ActionKind, ActionRecord, EnvironmentKey, Holder, Lease, LeaseRequest, NewVersion, PutOutcome,
    PutScope, Result, ResultRecord, Store,
};
use orrery_testing::{Postgres, TestDatabase};
use tempfile::TempDir;

/// First argument of this binary when it is started in a role instead of running tests.
pub(crate) const ROLE: &str = "--role";

/// An id of any kind.
pub(crate) const fn id_of<K>(number: u8) -> Id<K> {
    Id::from_bytes([number; 16])
}

/// A kind of store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Backend {
    SqliteFile,
    SqliteMemory,
    Postgres,
}

impl Backend {
    pub(crate) const ALL: [Backend; 3] =
        [Backend::SqliteFile, Backend::SqliteMemory, Backend::Postgres];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Backend::SqliteFile => "sqlite_file",
            Backend::SqliteMemory => "sqlite_memory",
            Backend::Postgres => "postgres",
        }
    }

    /// An empty store.
    pub(crate) fn fresh(self) -> Fresh {
        match self {
            Backend::SqliteFile => {
                let directory = tempfile::tempdir().unwrap();
                let path = directory.path().join("store.db");
                let store = Store::open(path, &holder("test")).unwrap();
                Fresh { store, _backing: Backing::Directory(directory) }
            }
            Backend::SqliteMemory => {
                Fresh { store: Store::in_memory().unwrap(), _backing: Backing::Memory }
            }
            Backend::Postgres => {
                let database = postgres_database();
                let store = Store::connect(&database.url(), &holder("test")).unwrap();
                Fresh { store, _backing: Backing::Database(database) }
            }
        }
    }
}

/// A PostgreSQL database with the schema and nothing else.
pub(crate) fn postgres_database() -> TestDatabase {
    static EMPTY: OnceLock<TestDatabase> = OnceLock::new();
    let empty = EMPTY.get_or_init(|| {
        let database = Postgres::shared().database();
        Store::connect(&database.url(), &holder("test")).unwrap();
        database
    });
    Postgres::shared().copy_of(empty)
}

pub(crate) struct Fresh {
    store: Store,
    /// Declared after the store, which uses it.
    _backing: Backing,
}

enum Backing {
    Memory,
    Directory(#[expect(dead_code, reason = "it goes with the value")] TempDir),
    Database(#[expect(dead_code, reason = "it goes with the value")] TestDatabase),
}

impl Deref for Fresh {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

pub(crate) fn holder(command: &str) -> Holder {
    Holder::this_process(command, Timestamp(1_000_000))
}

pub(crate) fn lease(store: &Store, environment: EnvironmentKey) -> Lease {
    let request = LeaseRequest { holder: holder("test"), now: Timestamp(0), expires: None };
    store.leases().acquire(environment, &request).unwrap()
}

pub(crate) fn id(text: &str) -> ResourceId {
    text.parse().unwrap()
}

/// `t::R[agent,name=NAME]`
pub(crate) fn named(name: &str) -> ResourceId {
    ResourceId::new("t::R", "agent", "name", name).unwrap()
}

/// A resource with one attribute of the given value.
pub(crate) fn resource(id: &ResourceId, value: u32, requires: &[&ResourceId]) -> Resource {
    let attributes = Attributes::parse(&format!(r#"{{"value":{value}}}"#)).unwrap();
    Resource::new(id.clone(), attributes, requires.iter().map(|id| (*id).clone()).collect())
}

pub(crate) fn simple(names: &[&str]) -> Vec<Resource> {
    let mut resources: Vec<Resource> =
        names.iter().map(|name| resource(&named(name), 1, &[])).collect();
    resources.sort_by(|a, b| a.id.cmp(&b.id));
    resources
}

/// A released version of all resources, with the next number.
pub(crate) fn new_version(resources: &[Resource]) -> NewVersion<'_> {
    NewVersion {
        number: None,
        made_at: Timestamp(5),
        info: &serde_json::Value::Null,
        scope: PutScope::All,
        resources,
        base: None,
        unknowns: &[],
        released: true,
        only_if_changed: false,
        lease: None,
        project: None,
    }
}

pub(crate) fn put(
    store: &Store,
    environment: EnvironmentKey,
    resources: &[Resource],
) -> Result<PutOutcome> {
    store.versions().put(environment, &new_version(resources))
}

pub(crate) fn deployed(resource: &Resource, at: Timestamp) -> ResourceState {
    ResourceState {
        last_run: LastRunStatus::Successful,
        last_run_compliant: Some(true),
        last_outcome: Some(OutcomeStatus::Deployed),
        last_run_at: Some(at),
        last_deployed: Some(resource.hash),
        last_success: Some(at),
        ..ResourceState::new(resource.hash, false)
    }
}

pub(crate) fn action<'a>(
    version: VersionNumber,
    at: i64,
    change: &'a Change,
    log: &'a [LogLine],
) -> ActionRecord<'a> {
    ActionRecord {
        kind: ActionKind::Deploy,
        version,
        started: Timestamp(at),
        finished: Timestamp(at + 1),
        outcome: OutcomeStatus::Deployed,
        change,
        wants_absence: false,
        log,
    }
}

pub(crate) fn empty_result(key: orrery_store::ResourceKey) -> ResultRecord<'static> {
    ResultRecord { resource: key, state: None, action: None, facts: &[] }
}

/// Starts this binary in a role on a store.
pub(crate) fn start(role: &str, path: &Path) -> Child {
    start_with(role, path, &[])
}

/// As `start`, with environment variables.
pub(crate) fn start_with(role: &str, path: &Path, environment: &[(&str, &OsStr)]) -> Child {
    let program: PathBuf = std::env::current_exe().unwrap();
    Command::new(program)
        .args([ROLE, role])
        .arg(path)
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}
