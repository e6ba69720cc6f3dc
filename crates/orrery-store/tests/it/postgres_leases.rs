//! Leases in a database that several processes share: exclusive, renewed together, and always
//! expiring.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use orrery_model::Timestamp;
use orrery_store::{LeaseRequest, Store, StoreError};
use orrery_testing::TestDatabase;

use crate::support::{holder, lease, postgres_database};

pub(crate) fn cases() -> Vec<(&'static str, fn())> {
    vec![
        ("a_lease_is_given_once", a_lease_is_given_once),
        ("leases_are_renewed_around_a_busy_one", leases_are_renewed_around_a_busy_one),
        ("every_lease_expires", every_lease_expires),
        ("lease_renewals_do_not_wait_for_other_work", lease_renewals_do_not_wait_for_other_work),
    ]
}

fn open(database: &TestDatabase) -> Store {
    Store::connect(&database.url(), &holder("test")).unwrap()
}

/// Leases are renewed although all connections for other work are in use.
fn lease_renewals_do_not_wait_for_other_work() {
    let database = postgres_database();
    let store = Store::connect_with_pool_size(&database.url(), &holder("test"), 1).unwrap();
    let environment = store.environments().ensure_default().unwrap();
    let held = lease(&store, environment);
    let mut blocker = database.connect();
    blocker.batch_execute("BEGIN; LOCK TABLE environment IN ACCESS EXCLUSIVE MODE").unwrap();
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| store.environments().list(None));
        std::thread::sleep(Duration::from_millis(200));
        let began = Instant::now();
        let renewal = store.leases().renew(&[held], Timestamp(0)).unwrap();
        assert_eq!((renewal.lost, renewal.busy), (Vec::new(), Vec::new()));
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        blocker.batch_execute("COMMIT").unwrap();
        busy.join().unwrap().unwrap();
    });
}

fn a_lease_is_given_once() {
    let database = postgres_database();
    let store = open(&database);
    let environment = store.environments().ensure_default().unwrap();
    let winners = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (other, winners) = (open(&database), &winners);
            scope.spawn(move || {
                let request = LeaseRequest {
                    holder: holder("engine"),
                    now: Timestamp(0),
                    expires: Some(Timestamp(60_000_000)),
                };
                match other.leases().acquire(environment, &request) {
                    Ok(_) => winners.fetch_add(1, Ordering::Relaxed),
                    Err(StoreError::Leased { .. }) => 0,
                    Err(error) => panic!("{error:?}"),
                };
            });
        }
    });
    assert_eq!(winners.into_inner(), 1);
}

/// A long transaction under one lease does not delay the renewal of others, and that lease is not
/// lost.
fn leases_are_renewed_around_a_busy_one() {
    let database = postgres_database();
    let store = open(&database);
    let leases = ["a", "b"].map(|name| {
        let environment = store.environments().create("project", name).unwrap().key;
        lease(&store, environment)
    });
    let mut long = database.connect();
    let hold = format!(
        "BEGIN; SELECT 1 FROM lease WHERE epoch = {} AND environment IN \
         (SELECT id FROM environment WHERE name = 'a') FOR SHARE",
        leases[0].epoch()
    );
    long.batch_execute(&hold).unwrap();
    let ends = |client: &mut postgres::Client| -> Vec<i64> {
        let rows = client.query("SELECT expires FROM lease ORDER BY environment", &[]).unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    };
    let mut client = database.connect();
    let before = ends(&mut client);
    let renewal = store.leases().renew(&leases, Timestamp(0)).unwrap();
    assert_eq!((renewal.lost, renewal.busy), (Vec::new(), vec![leases[0]]));
    let after = ends(&mut client);
    assert!(after[0] == before[0] && after[1] > before[1], "{before:?} {after:?}");
    // A short transaction is waited for.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            long.batch_execute("COMMIT").unwrap();
        });
        let renewal = store.leases().renew(&leases, Timestamp(0)).unwrap();
        assert_eq!((renewal.lost, renewal.busy), (Vec::new(), Vec::new()));
    });
    assert!(ends(&mut client)[0] > before[0]);
}

/// The end of a process on another machine cannot be detected.
fn every_lease_expires() {
    let database = postgres_database();
    let store = open(&database);
    let environment = store.environments().ensure_default().unwrap();
    // Its holder did not request a duration, and has ended.
    lease(&store, environment);
    let request = LeaseRequest { holder: holder("two"), now: Timestamp(0), expires: None };
    assert!(matches!(
        store.leases().acquire(environment, &request),
        Err(StoreError::Leased { .. })
    ));
    let pass = "UPDATE lease SET expires = expires - 60000000";
    database.connect().batch_execute(pass).unwrap();
    store.leases().acquire(environment, &request).unwrap();
}
