//! kill -9 during writes: everything acknowledged is stored, and the rest is complete or absent.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use orrery_model::{Change, Resource, Timestamp};
use orrery_store::{
    ActionKind, EnvironmentKey, Lease, LeaseRequest, ResultRecord, StartedAction, Store,
};
use orrery_testing::TestDatabase;

use crate::support::{
    action, deployed, empty_result, holder, named, postgres_database, put, resource, simple, start,
};

pub(crate) fn cases() -> Vec<(&'static str, fn())> {
    vec![
        ("nothing_acknowledged_is_lost_by_a_kill", || {
            let directory = tempfile::tempdir().unwrap();
            nothing_acknowledged_is_lost(&StoreLocation::File(directory.path().join("store.db")));
        }),
        ("nothing_acknowledged_is_lost_by_a_kill_with_postgresql", || {
            nothing_acknowledged_is_lost(&StoreLocation::Database(postgres_database()));
        }),
        (
            "a_kill_during_creation_leaves_a_usable_path",
            a_kill_during_creation_leaves_the_path_usable,
        ),
    ]
}

const KILLS: u64 = 20;
const RESOURCES: usize = 60;

/// Location of a store that is written to until the writer is killed.
enum StoreLocation {
    File(PathBuf),
    Database(TestDatabase),
}

impl StoreLocation {
    fn name(&self) -> PathBuf {
        match self {
            StoreLocation::File(path) => path.clone(),
            StoreLocation::Database(database) => database.url().into(),
        }
    }

    /// Microseconds after its first acknowledgement within which the writer is killed: enough for
    /// some batches.
    fn window(&self) -> u64 {
        match self {
            StoreLocation::File(_) => 60_000,
            StoreLocation::Database(_) => 250_000,
        }
    }

    /// A store for a reader.
    fn open_reader(&self) -> Store {
        match self {
            StoreLocation::File(path) => Store::open_read_only(path).unwrap(),
            StoreLocation::Database(_) => open(&self.name()),
        }
    }

    /// Waits until the last statements of the killed process are processed: a server handles them
    /// after the client has ended.
    fn wait_until_settled(&self) {
        let StoreLocation::Database(database) = self else { return };
        let mut client = database.connect();
        let others = "SELECT count(*) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()";
        while client.query_one(others, &[]).unwrap().get::<_, i64>(0) > 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn open(location: &Path) -> Store {
    match location.to_str() {
        Some(url) if url.starts_with("postgres://") => {
            Store::connect(url, &holder("crash")).unwrap()
        }
        _ => Store::open(location, &holder("crash")).unwrap(),
    }
}

/// A short lease, so that no test waits long for it to expire.
fn short_lease(store: &Store, environment: EnvironmentKey) -> Lease {
    let (now, expires) = (Timestamp(0), Some(Timestamp(1)));
    let request = LeaseRequest { holder: holder("crash"), now, expires };
    store.leases().acquire(environment, &request).unwrap()
}

fn resources(generation: u32) -> Vec<Resource> {
    let names: Vec<String> = (0..RESOURCES).map(|number| format!("{number:03}")).collect();
    let mut resources = simple(&names.iter().map(String::as_str).collect::<Vec<_>>());
    // A resource that changes with every version.
    resources[0] = resource(&named("000"), generation, &[]);
    resources
}

/// The newest version, and the time of all states: the number of the last batch.
fn progress(store: &Store, environment: EnvironmentKey) -> (u32, i64) {
    let versions = store.versions().list(environment).unwrap();
    let version = versions.last().map_or(0, |version| version.number.0);
    let mut times: Vec<i64> = Vec::new();
    let see = &mut |row: orrery_store::StateRow<'_>| {
        times.push(row.state.last_run_at.map_or(0, |at| at.0));
    };
    store.engine().read_states(environment, see).unwrap();
    times.dedup();
    assert!(times.len() <= 1, "a batch was stored in part: {times:?}");
    (version, times.first().copied().unwrap_or(0))
}

/// The child: puts a version and records batches for ever, and prints each acknowledgement.
pub(crate) fn write_until_killed(location: &str) {
    let store = open(location.as_ref());
    let store = &store;
    let environment = store.environments().ensure_default().unwrap();
    let lease = short_lease(store, environment);
    let (mut version, mut batch) = progress(store, environment);
    let change = Change::default();
    let mut say = std::io::stdout();
    loop {
        version += 1;
        let wanted = resources(version);
        let stored = put(store, environment, &wanted).unwrap();
        store.engine().process_version(&lease, stored.number, &[]).unwrap();
        writeln!(say, "version {}", stored.number).unwrap();
        for _ in 0..5 {
            batch += 1;
            let at = Timestamp(batch);
            let starts: Vec<StartedAction> = stored
                .keys
                .iter()
                .map(|key| StartedAction {
                    resource: *key,
                    kind: ActionKind::Deploy,
                    version: stored.number,
                    at,
                })
                .collect();
            store.engine().begin_actions(&lease, &starts).unwrap();
            writeln!(say, "begun {batch}").unwrap();
            let states: Vec<_> = wanted.iter().map(|resource| deployed(resource, at)).collect();
            let results: Vec<ResultRecord<'_>> = stored
                .keys
                .iter()
                .zip(&states)
                .map(|(key, state)| ResultRecord {
                    state: Some(state),
                    action: Some(action(stored.number, batch, &change, &[])),
                    ..empty_result(*key)
                })
                .collect();
            store.engine().record_results(&lease, &results).unwrap();
            writeln!(say, "results {batch}").unwrap();
            say.flush().unwrap();
        }
    }
}

/// Acknowledgements that a child printed before it was killed.
#[derive(Debug, Default)]
struct Acknowledged {
    version: u32,
    begun: i64,
    results: i64,
}

fn run_and_kill(path: &Path, after: Duration) -> Acknowledged {
    let mut child = start("write", path);
    let mut output = BufReader::new(child.stdout.take().unwrap());
    // The clock starts with the first acknowledgement, so that every round writes something.
    let mut first = String::new();
    output.read_line(&mut first).unwrap();
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut acknowledged = Acknowledged::default();
    for line in std::iter::once(Ok(first)).chain(output.lines()) {
        let line = line.unwrap();
        // The last line may be truncated; then the one before it counts.
        let Some((what, number)) = line.trim_end().split_once(' ') else { continue };
        let number: i64 = number.parse().unwrap();
        match what {
            "version" => acknowledged.version = u32::try_from(number).unwrap(),
            "begun" => acknowledged.begun = number,
            "results" => acknowledged.results = number,
            other => panic!("{other}"),
        }
    }
    acknowledged
}

fn nothing_acknowledged_is_lost(location: &StoreLocation) {
    let (mut last_batch, mut interrupted_rounds) = (0, 0);
    // A generator of our own, with a fixed seed: the moments differ, the rounds repeat.
    let mut random = 0x9e37_79b9_u64;
    for round in 0..KILLS {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let after = Duration::from_micros((random >> 33) % location.window());
        let acknowledged = run_and_kill(&location.name(), after);
        location.wait_until_settled();
        // A reader may come before the next engine starts.
        let seen = (round % 2 == 0).then(|| {
            let reader = location.open_reader();
            progress(&reader, reader.environments().ensure_default().unwrap())
        });
        let store = open(&location.name());
        let store = &store;
        let environment = store.environments().ensure_default().unwrap();
        assert_eq!(store.check().unwrap(), [""; 0], "round {round}");
        let (version, batch) = progress(store, environment);
        assert!(seen.is_none_or(|seen| seen == (version, batch)), "{seen:?}");
        assert!(
            version >= acknowledged.version && version <= acknowledged.version + 1,
            "{version} {acknowledged:?}"
        );
        assert!(
            batch >= acknowledged.results && batch <= acknowledged.results.max(last_batch) + 1,
            "{batch} {acknowledged:?}"
        );
        let number = orrery_model::VersionNumber(version);
        let loaded = store.versions().load(environment, number).unwrap();
        assert_eq!(loaded.resources, resources(version));
        interrupted_rounds += u32::from(check_marks(store, environment, &acknowledged, batch));
        last_batch = batch;
    }
    assert!(last_batch > 0);
    eprintln!(
        "{last_batch} batches, {interrupted_rounds} of {KILLS} kills between start and result"
    );
}

fn a_kill_during_creation_leaves_the_path_usable() {
    // Visible stages of a creation, in this order. The third replaces the second, which may be too
    // short to be seen.
    let signs: [&[&str]; 4] = [&[".lock"], &[".new", ""], &[""], &["-wal"]];
    for sign in signs {
        for later in [0, 1, 3, 9] {
            kill_during_creation(|child, path| {
                await_any(child, path, sign);
                std::thread::sleep(Duration::from_millis(later));
            });
        }
    }
    // Before anything is visible.
    for later in 0..4 {
        kill_during_creation(|_, _| std::thread::sleep(Duration::from_millis(later)));
    }
    let mut acknowledged = String::new();
    kill_during_creation(|child, path| {
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut acknowledged).unwrap();
        assert!(path.exists());
    });
    assert_eq!(acknowledged, "version 1\n");
}

/// Waits until one of the files exists whose names begin with that of the store.
fn await_any(child: &mut Child, path: &Path, suffixes: &[&str]) {
    let until = Instant::now() + Duration::from_secs(60);
    let is_there = |suffix: &&str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        Path::new(&name).exists()
    };
    while !suffixes.iter().any(is_there) {
        assert!(Instant::now() < until, "none of {suffixes:?} ever came");
        assert_eq!(child.try_wait().unwrap(), None, "the child ended by itself");
        std::thread::yield_now();
    }
}

fn kill_during_creation(moment: impl FnOnce(&mut Child, &Path)) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let mut child = start("write", &path);
    moment(&mut child, &path);
    child.kill().unwrap();
    child.wait().unwrap();
    let store = Store::open(&path, &holder("checker")).unwrap();
    let environment = store.environments().ensure_default().unwrap();
    let next = store.versions().list(environment).unwrap().len() + 1;
    let number = put(&store, environment, &resources(0)).unwrap().number;
    assert_eq!(usize::try_from(number.0).unwrap(), next);
    assert_eq!(store.check().unwrap(), [""; 0]);
}

/// The next engine finds all begun actions without a result. Returns true if there were any.
fn check_marks(
    store: &Store,
    environment: EnvironmentKey,
    acknowledged: &Acknowledged,
    batch: i64,
) -> bool {
    let lease = short_lease(store, environment);
    let interrupted = store.engine().recover_actions(&lease).unwrap();
    if acknowledged.begun > batch {
        assert_eq!(interrupted.len(), RESOURCES);
    }
    for started in &interrupted {
        assert!(started.at.0 > batch, "{started:?} has its result in batch {batch}");
    }
    let log = store.actions().of_resource(environment, named("001").as_str(), None, 1000).unwrap();
    let results: Vec<i64> = log
        .iter()
        .filter(|action| action.finished.is_some())
        .map(|action| action.started.0)
        .collect();
    let expected: Vec<i64> = (1..=batch).rev().take(results.len()).collect();
    assert_eq!(results, expected);
    store.leases().release(&lease).unwrap();
    !interrupted.is_empty()
}
