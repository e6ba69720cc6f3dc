//! Engine operations: leases, begun actions, results, states.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use orrery_model::{
    AttributeDiff, Blocked, Change, ChangeKind, Fact, LastRunStatus, LogLevel, LogLine,
    OutcomeStatus, ResourceState, Timestamp,
};
use orrery_store::{
    ActionKind, Lease, LeaseRequest, NewVersion, RenewalOutcome, ResultRecord, StartedAction,
    StateRecord, Store, StoreError,
};

use crate::support::{
    Backend, action, deployed, empty_result, holder, lease, named, new_version, put, simple,
};

super::list_cases![
    a_lease_has_one_holder_and_a_new_epoch,
    an_expired_lease_can_be_taken,
    leases_are_renewed_together_and_a_lost_one_is_reported,
    nothing_is_written_under_an_old_epoch,
    states_are_read_as_they_were_written,
    a_processed_version_comes_with_its_states,
    results_make_a_log,
    begun_actions_end_with_the_result,
    running_actions_are_recovered_once,
    old_actions_expire,
    facts_come_with_results_and_go_with_the_resource,
    facts_are_stored_without_an_action,
    threads_use_it_at_the_same_time,
];

fn a_lease_has_one_holder_and_a_new_epoch(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    assert_eq!(store.leases().holder(environment).unwrap(), None);
    let first = lease(&store, environment);
    assert_eq!(store.leases().holder(environment).unwrap(), Some(holder("test")));
    let request = LeaseRequest { holder: holder("two"), now: Timestamp(9), expires: None };
    let error = store.leases().acquire(environment, &request).unwrap_err();
    assert!(matches!(&error, StoreError::Leased { holder } if holder.command == "test"));
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    store.leases().release(&first).unwrap();
    assert_eq!(store.leases().holder(environment).unwrap(), None);
    let second = store.leases().acquire(environment, &request).unwrap();
    assert!(second.epoch() > first.epoch());
    assert_eq!(second.environment(), environment);
    let other = store.environments().create("project", "other").unwrap().key;
    lease(&store, other);
}

/// Real time passes here: some stores have a clock of their own.
fn an_expired_lease_can_be_taken(backend: Backend) {
    const LASTS: Duration = Duration::from_millis(600);
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let began = Instant::now();
    let now = || i64::try_from(began.elapsed().as_micros()).unwrap();
    let end = |now: i64| Timestamp(now + i64::try_from(LASTS.as_micros()).unwrap());
    let acquire = || {
        let now = now();
        let request =
            LeaseRequest { holder: holder("test"), now: Timestamp(now), expires: Some(end(now)) };
        store.leases().acquire(environment, &request)
    };
    let first = acquire().unwrap();
    assert!(matches!(acquire(), Err(StoreError::Leased { .. })));
    std::thread::sleep(LASTS / 2);
    assert_eq!(store.leases().renew(&[first], end(now())).unwrap(), RenewalOutcome::default());
    std::thread::sleep(LASTS * 3 / 4);
    assert!(matches!(acquire(), Err(StoreError::Leased { .. })), "it was renewed");
    std::thread::sleep(LASTS / 2);
    let second = acquire().unwrap();
    let renewal = store.leases().renew(&[first, second], end(now())).unwrap();
    assert_eq!(renewal, RenewalOutcome { lost: vec![first], busy: Vec::new() });
}

fn leases_are_renewed_together_and_a_lost_one_is_reported(backend: Backend) {
    const LASTS: i64 = 2_000_000;
    let store = backend.fresh();
    let request =
        LeaseRequest { holder: holder("test"), now: Timestamp(0), expires: Some(Timestamp(LASTS)) };
    let began = Instant::now();
    let leases: Vec<Lease> = (0..100)
        .map(|number| {
            let environment =
                store.environments().create("project", &format!("e{number}")).unwrap();
            store.leases().acquire(environment.key, &request).unwrap()
        })
        .collect();
    store.leases().release(&leases[17]).unwrap();
    store.leases().release(&leases[42]).unwrap();
    let taken = store.leases().acquire(leases[42].environment(), &request).unwrap();
    let now = Timestamp(LASTS - 1);
    // Real time, for stores that have a clock.
    std::thread::sleep(Duration::from_millis(1_000).saturating_sub(began.elapsed()));
    let renewal = store.leases().renew(&leases, Timestamp(now.0 + LASTS)).unwrap();
    assert_eq!(renewal, RenewalOutcome { lost: vec![leases[17], leases[42]], busy: Vec::new() });
    assert_eq!(
        store.leases().renew(&[taken], Timestamp(now.0 + LASTS)).unwrap(),
        RenewalOutcome::default()
    );
    assert_eq!(store.leases().renew(&[], now).unwrap(), RenewalOutcome::default());
    std::thread::sleep(Duration::from_millis(1_200));
    let later = LeaseRequest { now: Timestamp(LASTS + 1), ..request };
    for lease in [leases[0], leases[99], taken] {
        let stolen = store.leases().acquire(lease.environment(), &later);
        assert!(matches!(stolen, Err(StoreError::Leased { .. })), "{stolen:?}");
    }
}

fn nothing_is_written_under_an_old_epoch(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let resources = simple(&["a"]);
    let stored = put(&store, environment, &resources).unwrap();
    let stale = lease(&store, environment);
    store.leases().release(&stale).unwrap();
    let state = deployed(&resources[0], Timestamp(1));
    let attempts = |stale: &Lease| {
        let record = StateRecord { resource: stored.keys[0], state: &state };
        let result = ResultRecord { state: Some(&state), ..empty_result(stored.keys[0]) };
        let started = StartedAction {
            resource: stored.keys[0],
            kind: ActionKind::Deploy,
            version: stored.number,
            at: Timestamp(1),
        };
        let new = NewVersion { lease: Some(stale), ..new_version(&[]) };
        [
            store.engine().record_results(stale, &[result]).err(),
            store.engine().begin_actions(stale, &[started]).err(),
            store.engine().process_version(stale, stored.number, &[record]).err(),
            store.engine().recover_actions(stale).err(),
            store.engine().expire_actions(stale, Timestamp(9)).err(),
            store.versions().put(environment, &new).err(),
            store.leases().release(stale).err(),
        ]
    };
    let expect_refusals = || {
        for error in attempts(&stale) {
            assert!(matches!(error, Some(StoreError::StaleEpoch { .. })), "{error:?}");
        }
    };
    expect_refusals();
    let current = lease(&store, environment);
    expect_refusals();
    let mut states = 0;
    store.engine().read_states(environment, &mut |_| states += 1).unwrap();
    assert_eq!((states, store.engine().processed_version(environment).unwrap()), (0, None));
    assert_eq!(store.versions().list(environment).unwrap().len(), 1);
    assert!(attempts(&current).iter().all(Option::is_none));
}

fn states_are_read_as_they_were_written(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let lease = lease(&store, environment);
    let resources = simple(&["a", "b", "c", "d"]);
    let stored = put(&store, environment, &resources).unwrap();
    let hash = resources[0].hash;
    let mut states = vec![
        ResourceState::new(hash, false),
        ResourceState::new(hash, true),
        ResourceState {
            intent: None,
            undefined: false,
            blocked: Blocked::TemporarilyBlocked,
            deploying: false,
            last_run: LastRunStatus::Skipped,
            last_run_compliant: Some(false),
            last_outcome: Some(OutcomeStatus::SkippedForDependency),
            last_run_at: Some(Timestamp(-5)),
            last_deployed: Some(hash),
            last_success: Some(Timestamp(i64::MAX)),
            last_produced_events: Some(Timestamp(7)),
            attempts: u32::MAX,
            parked: true,
        },
    ];
    let write = |states: &[ResourceState]| {
        let results: Vec<ResultRecord<'_>> = stored
            .keys
            .iter()
            .zip(states)
            .map(|(key, state)| ResultRecord { state: Some(state), ..empty_result(*key) })
            .collect();
        store.engine().record_results(&lease, &results).unwrap();
    };
    let read = || {
        let mut found = BTreeMap::new();
        let see = &mut |row: orrery_store::StateRow<'_>| {
            found.insert((row.key, row.id.to_owned()), row.state.clone());
        };
        store.engine().read_states(environment, see).unwrap();
        found
    };
    let expected = |states: &[ResourceState]| -> BTreeMap<_, _> {
        let keys = stored.keys.iter().zip(resources.iter().map(|one| one.id.to_string()));
        keys.map(|(key, id)| (*key, id)).zip(states.iter().cloned()).collect()
    };
    write(&states);
    assert_eq!(read(), expected(&states));
    states.rotate_left(1);
    write(&states);
    assert_eq!(read(), expected(&states));
}

fn a_processed_version_comes_with_its_states(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let lease = lease(&store, environment);
    let resources = simple(&["a"]);
    let stored = put(&store, environment, &resources).unwrap();
    assert_eq!(store.engine().processed_version(environment).unwrap(), None);
    let state = ResourceState::new(resources[0].hash, true);
    let record = StateRecord { resource: stored.keys[0], state: &state };
    let missing = orrery_model::VersionNumber(stored.number.0 + 1);
    let error = store.engine().process_version(&lease, missing, &[record]).unwrap_err();
    assert!(matches!(error, StoreError::NoVersion(_)));
    store.engine().process_version(&lease, stored.number, &[record]).unwrap();
    assert_eq!(store.engine().processed_version(environment).unwrap(), Some(stored.number));
    let found = store.resources().find(environment, resources[0].id.as_str()).unwrap().unwrap();
    assert_eq!(found.state, state);
}

fn results_make_a_log(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let lease = lease(&store, environment);
    let stored = put(&store, environment, &simple(&["a", "b"])).unwrap();
    let values = serde_json::json!({"path": "/etc", "n": 3});
    let log = [LogLine {
        at: Timestamp(3),
        level: LogLevel::Warning,
        message: "it was \"other\"\nthan wanted".to_owned(),
        values: values.as_object().unwrap().clone(),
    }];
    let change = Change {
        kind: ChangeKind::Updated,
        attributes: vec![AttributeDiff {
            name: "mode".to_owned(),
            current: serde_json::json!(1),
            desired: serde_json::json!([null, "x"]),
        }],
    };
    let plain = Change::default();
    for at in 0..5 {
        let (change, log) = if at == 2 { (&change, &log[..]) } else { (&plain, &[][..]) };
        let results = stored.keys.iter().map(|key| ResultRecord {
            action: Some(action(stored.number, at * 10, change, log)),
            ..empty_result(*key)
        });
        store.engine().record_results(&lease, &results.collect::<Vec<_>>()).unwrap();
    }
    let name = named("a");
    let latest = store.actions().of_resource(environment, name.as_str(), None, 2).unwrap();
    let starts: Vec<i64> = latest.iter().map(|action| action.started.0).collect();
    assert_eq!(starts, [40, 30]);
    let rest =
        store.actions().of_resource(environment, name.as_str(), Some(latest[1].key), 99).unwrap();
    let starts: Vec<i64> = rest.iter().map(|action| action.started.0).collect();
    assert_eq!(starts, [20, 10, 0]);
    assert_eq!((&rest[0].change, &rest[0].log[..]), (&change, &log[..]));
    assert_eq!(rest[0].outcome, Some(OutcomeStatus::Deployed));
    assert_eq!((rest[0].kind, rest[0].version), (ActionKind::Deploy, stored.number));
    assert_eq!(rest[0].finished, Some(Timestamp(21)));
    assert_eq!((&rest[1].change, &rest[1].log[..]), (&plain, &[][..]));
    assert!(
        store.actions().of_resource(environment, "t::R[agent,name=z]", None, 9).unwrap().is_empty()
    );
}

fn started(store: &Store, lease: &orrery_store::Lease, stored: &orrery_store::PutOutcome) {
    let starts: Vec<StartedAction> = stored
        .keys
        .iter()
        .map(|key| StartedAction {
            resource: *key,
            kind: ActionKind::Deploy,
            version: stored.number,
            at: Timestamp(77),
        })
        .collect();
    store.engine().begin_actions(lease, &starts).unwrap();
}

fn begun_actions_end_with_the_result(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let lease = lease(&store, environment);
    let resources = simple(&["a", "b"]);
    let stored = put(&store, environment, &resources).unwrap();
    assert!(store.engine().running_actions(environment).unwrap().is_empty());
    started(&store, &lease, &stored);
    assert_eq!(store.engine().running_actions(environment).unwrap().len(), 2);
    let status = |name: &str| {
        let found = store.resources().find(environment, named(name).as_str()).unwrap();
        found.unwrap().status.as_str()
    };
    assert_eq!((status("a"), status("b")), ("deploying", "deploying"));
    // A new intent during a run is not a result.
    let state = ResourceState { deploying: true, ..ResourceState::new(resources[1].hash, false) };
    let record = ResultRecord { state: Some(&state), ..empty_result(stored.keys[0]) };
    store.engine().record_results(&lease, &[record]).unwrap();
    assert_eq!((status("a"), status("b")), ("deploying", "deploying"));
    let state = deployed(&resources[0], Timestamp(80));
    let result = ResultRecord { state: Some(&state), ..empty_result(stored.keys[0]) };
    store.engine().record_results(&lease, &[result]).unwrap();
    assert_eq!((status("a"), status("b")), ("deployed", "deploying"));
}

fn running_actions_are_recovered_once(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let first = lease(&store, environment);
    let stored = put(&store, environment, &simple(&["a", "b"])).unwrap();
    started(&store, &first, &stored);
    let change = Change::default();
    let dry = orrery_store::ActionRecord {
        kind: ActionKind::DryRun,
        ..action(stored.number, 78, &change, &[])
    };
    let result = ResultRecord { action: Some(dry), ..empty_result(stored.keys[0]) };
    store.engine().record_results(&first, &[result]).unwrap();
    store.leases().release(&first).unwrap();
    let second = lease(&store, environment);
    let interrupted = store.engine().recover_actions(&second).unwrap();
    assert_eq!(interrupted.len(), 1);
    assert_eq!((interrupted[0].resource, interrupted[0].at), (stored.keys[1], Timestamp(77)));
    assert!(store.engine().recover_actions(&second).unwrap().is_empty());
    let log = store.actions().of_resource(environment, named("b").as_str(), None, 9).unwrap();
    assert_eq!((log.len(), log[0].finished, log[0].outcome), (1, None, None));
    assert_eq!(log[0].started, Timestamp(77));
    let log = store.actions().of_resource(environment, named("a").as_str(), None, 9).unwrap();
    assert_eq!((log.len(), log[0].kind), (1, ActionKind::DryRun));
}

fn old_actions_expire(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let lease = lease(&store, environment);
    let stored = put(&store, environment, &simple(&["a"])).unwrap();
    let change = Change::default();
    let record = |at| {
        let action = Some(action(stored.number, at, &change, &[]));
        let result = ResultRecord { action, ..empty_result(stored.keys[0]) };
        store.engine().record_results(&lease, &[result]).unwrap();
    };
    (0..6).for_each(|at| record(at * 10));
    assert_eq!(store.engine().expire_actions(&lease, Timestamp(30)).unwrap(), 3);
    let starts = || -> Vec<i64> {
        let log = store.actions().of_resource(environment, named("a").as_str(), None, 99).unwrap();
        log.iter().map(|action| action.started.0).collect()
    };
    assert_eq!(starts(), [50, 40, 30]);
    assert_eq!(store.engine().expire_actions(&lease, Timestamp(30)).unwrap(), 0);
    assert_eq!(store.engine().expire_actions(&lease, Timestamp(1000)).unwrap(), 3);
    record(2000);
    assert_eq!(starts(), [2000]);
}

fn facts_come_with_results_and_go_with_the_resource(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let lease = lease(&store, environment);
    let unknown = orrery_store::UndefinedParameter {
        name: "ip".to_owned(),
        resource: Some(named("a")),
        source: "fact".to_owned(),
    };
    let resources = simple(&["a", "b"]);
    let unknowns = [unknown];
    let new = NewVersion { unknowns: &unknowns, ..new_version(&resources) };
    let stored = store.versions().put(environment, &new).unwrap();
    let change = Change::default();
    let report = |value: &str, change: &Change| {
        let facts = [Fact { name: "ip".to_owned(), value: value.to_owned(), expires: true }];
        let result = ResultRecord {
            action: Some(action(stored.number, 10, change, &[])),
            facts: &facts,
            ..empty_result(stored.keys[0])
        };
        let effect = store.engine().record_results(&lease, &[result]).unwrap();
        (effect.changed, effect.resolved)
    };
    assert_eq!(report("10.0.0.1", &change), (1, 1));
    assert!(store.versions().unknowns(environment, stored.number).unwrap()[0].1);
    assert_eq!(report("10.0.0.1", &change), (0, 0));
    assert_eq!(report("10.0.0.2", &change), (1, 0));
    let facts = store.parameters().facts(environment, named("a").as_str()).unwrap();
    assert_eq!(facts.len(), 1);
    assert_eq!((&*facts[0].value, facts[0].expires), ("10.0.0.2", true));
    assert_eq!((facts[0].resource.clone(), facts[0].updated), (Some(named("a")), Timestamp(11)));
    assert!(store.parameters().facts(environment, named("b").as_str()).unwrap().is_empty());
    assert!(store.parameters().all(environment).unwrap().is_empty());
    let purged = Change { kind: ChangeKind::Purged, attributes: Vec::new() };
    report("10.0.0.3", &purged);
    assert!(store.parameters().facts(environment, named("a").as_str()).unwrap().is_empty());
}

/// A run without a change has nothing for the log, and may have facts.
fn facts_are_stored_without_an_action(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let lease = lease(&store, environment);
    let unknowns = [orrery_store::UndefinedParameter {
        name: "ip".to_owned(),
        resource: Some(named("a")),
        source: "fact".to_owned(),
    }];
    let resources = simple(&["a"]);
    let new = NewVersion { unknowns: &unknowns, ..new_version(&resources) };
    let stored = store.versions().put(environment, &new).unwrap();
    let facts = [Fact { name: "ip".to_owned(), value: "10.0.0.1".to_owned(), expires: true }];
    let result = ResultRecord { facts: &facts, ..empty_result(stored.keys[0]) };
    let effect = store.engine().record_results(&lease, &[result]).unwrap();
    assert_eq!((effect.changed, effect.resolved), (1, 1));
    let kept = store.parameters().facts(environment, named("a").as_str()).unwrap();
    assert_eq!(&*kept[0].value, "10.0.0.1");
    let of_this_century = Timestamp(1_700_000_000_000_000)..Timestamp(4_000_000_000_000_000);
    assert!(of_this_century.contains(&kept[0].updated), "{:?}", kept[0].updated);
}

fn threads_use_it_at_the_same_time(backend: Backend) {
    const ROUNDS: i64 = 20;
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let lease = lease(&store, environment);
    let resources = simple(&["a", "b", "c", "d"]);
    let stored = put(&store, environment, &resources).unwrap();
    let (store, change): (&Store, _) = (&store, Change::default());
    let record = |writer: usize| {
        for round in 1..=ROUNDS {
            // Each thread has two resources, which always have the same time.
            let results: Vec<_> = (2 * writer..2 * writer + 2)
                .map(|index| (stored.keys[index], deployed(&resources[index], Timestamp(round))))
                .collect();
            let results: Vec<ResultRecord<'_>> = results
                .iter()
                .map(|(key, state)| ResultRecord {
                    state: Some(state),
                    action: Some(action(stored.number, round, &change, &[])),
                    ..empty_result(*key)
                })
                .collect();
            store.engine().record_results(&lease, &results).unwrap();
        }
    };
    let watch = || {
        for _ in 0..ROUNDS {
            let mut times = Vec::new();
            let see =
                &mut |row: orrery_store::StateRow<'_>| times.push((row.key, row.state.last_run_at));
            store.engine().read_states(environment, see).unwrap();
            let time = |index: usize| {
                let found = times.iter().find(|(key, _)| *key == stored.keys[index]);
                found.map(|(_, at)| *at)
            };
            assert_eq!((time(0), time(2)), (time(1), time(3)));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| record(0));
        scope.spawn(|| record(1));
        scope.spawn(watch);
        scope.spawn(watch);
    });
    for resource in &resources {
        let log =
            store.actions().of_resource(environment, resource.id.as_str(), None, 1000).unwrap();
        let starts: Vec<i64> = log.iter().map(|action| action.started.0).collect();
        assert_eq!(starts, (1..=ROUNDS).rev().collect::<Vec<_>>());
    }
}
