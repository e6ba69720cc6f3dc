//! Leases in a database that several processes share: exclusive, renewed together, and always
//! expiring.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use orrery_model::Timestamp;
use orrery_store::{LeaseRequest, NewParameter, ParameterSource, PostgresStore, Store, StoreError};
use orrery_testing::TestDatabase;

use crate::support::{holder, lease, postgres_database};

pub(crate) fn cases() -> Vec<(&'static str, fn())> {
    vec![
        ("a_lease_is_given_once", a_lease_is_given_once),
        ("leases_are_renewed_around_a_busy_one", leases_are_renewed_around_a_busy_one),
        ("every_lease_expires", every_lease_expires),
        (
            "a_holder_frozen_in_a_transaction_loses_its_lease",
            a_holder_frozen_in_a_transaction_loses_its_lease,
        ),
        ("lease_renewals_do_not_wait_for_other_work", lease_renewals_do_not_wait_for_other_work),
    ]
}

fn open(database: &TestDatabase) -> PostgresStore {
    PostgresStore::open(&database.url(), &holder("test")).unwrap()
}

/// The database ends the transaction under the lease before the lease expires.
fn a_holder_frozen_in_a_transaction_loses_its_lease() {
    const LASTS: Duration = Duration::from_secs(3);
    let database = postgres_database();
    let (frozen, other) = (open(&database), open(&database));
    let environment = frozen.default_environment().unwrap();
    let request = || LeaseRequest {
        holder: holder("engine"),
        now: Timestamp(0),
        expires: Some(Timestamp(3_000_000)),
    };
    let lease = frozen.acquire_lease(environment, &request()).unwrap();
    let began = Instant::now();
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
            frozen.records().put_handler_parameter(&lease, &new, Timestamp(1), &|_, _| {
                std::thread::sleep(LASTS * 5);
                Ok(())
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

/// Leases are renewed although all connections for other work are in use.
fn lease_renewals_do_not_wait_for_other_work() {
    let database = postgres_database();
    let store = PostgresStore::open_with_pool_size(&database.url(), &holder("test"), 1).unwrap();
    let environment = store.default_environment().unwrap();
    let held = lease(&store, environment);
    let mut blocker = database.connect();
    blocker.batch_execute("BEGIN; LOCK TABLE environment IN ACCESS EXCLUSIVE MODE").unwrap();
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| store.environments());
        std::thread::sleep(Duration::from_millis(200));
        let began = Instant::now();
        let renewal = store.renew_leases(&[held], Timestamp(0)).unwrap();
        assert_eq!((renewal.lost, renewal.busy), (Vec::new(), Vec::new()));
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        blocker.batch_execute("COMMIT").unwrap();
        busy.join().unwrap().unwrap();
    });
}

fn a_lease_is_given_once() {
    let database = postgres_database();
    let store = open(&database);
    let environment = store.default_environment().unwrap();
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
                match other.acquire_lease(environment, &request) {
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
        let environment = store.create_environment("project", name).unwrap().key;
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
    let renewal = store.renew_leases(&leases, Timestamp(0)).unwrap();
    assert_eq!((renewal.lost, renewal.busy), (Vec::new(), vec![leases[0]]));
    let after = ends(&mut client);
    assert!(after[0] == before[0] && after[1] > before[1], "{before:?} {after:?}");
    // A short transaction is waited for.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            long.batch_execute("COMMIT").unwrap();
        });
        let renewal = store.renew_leases(&leases, Timestamp(0)).unwrap();
        assert_eq!((renewal.lost, renewal.busy), (Vec::new(), Vec::new()));
    });
    assert!(ends(&mut client)[0] > before[0]);
}

/// The end of a process on another machine cannot be detected.
fn every_lease_expires() {
    let database = postgres_database();
    let store = open(&database);
    let environment = store.default_environment().unwrap();
    // Its holder did not request a duration, and has ended.
    lease(&store, environment);
    let request = LeaseRequest { holder: holder("two"), now: Timestamp(0), expires: None };
    assert!(matches!(store.acquire_lease(environment, &request), Err(StoreError::Leased { .. })));
    let pass = "UPDATE lease SET expires = expires - 60000000";
    database.connect().batch_execute(pass).unwrap();
    store.acquire_lease(environment, &request).unwrap();
}
