//! Effects that must not be repeated, and repeated batches after a commit with an unknown outcome.

use orrery_model::{Change, ResourceState, Timestamp};
use orrery_store::{
    ActionKind, EffectResolution, EffectVerdict, NewRequest, RequestKind, ResultBatch,
    ResultRecord, StartedAction, StateRecord, StoreError,
};

use crate::support::{Backend, action, empty_result, id_of, lease, named, put, simple};

super::list_cases![
    effects_are_unknown_until_resolved,
    effects_of_unmanaged_resources_are_deleted,
    repeated_batches_are_stored_once,
];

fn effects_are_unknown_until_resolved(backend: Backend) {
    let store = backend.fresh();
    let (records, environment) = (&store, store.environments().ensure_default().unwrap());
    let first = lease(&store, environment);
    let stored = put(&store, environment, &simple(&["a", "b", "c"])).unwrap();
    let started = |at: usize, time| StartedAction {
        resource: stored.keys[at],
        kind: ActionKind::Deploy,
        version: stored.number,
        at: Timestamp(time),
    };
    records.effects().begin(&first, &[started(0, 10), started(1, 20), started(2, 30)]).unwrap();
    assert!(records.effects().unknown(environment).unwrap().is_empty(), "they are under way");
    let choose = |name: &str| {
        let request = NewRequest { uuid: id_of(7), kind: &RequestKind::deploy_all() };
        let id = named(name);
        records.effects().resolve(
            environment,
            id.as_str(),
            EffectVerdict::Done,
            &request,
            Timestamp(1),
        )
    };
    assert!(matches!(choose("b"), Err(StoreError::NotFound { .. })));
    // One ended. A result of an earlier run says nothing about another one. The third is unknown.
    let ended = [(stored.keys[0], Timestamp(10)), (stored.keys[1], Timestamp(19))];
    let unknown = [stored.keys[2]];
    let recording = ResultBatch { ended: &ended, unknown: &unknown, ..ResultBatch::default() };
    store.engine().record_batch(&first, &recording).unwrap();
    let names = || -> Vec<String> {
        let found = records.effects().unknown(environment).unwrap();
        found.into_iter().map(|effect| effect.name).collect()
    };
    assert_eq!(names(), [named("c").as_str()]);
    // The next holder has no runs in progress.
    store.leases().release(&first).unwrap();
    let second = lease(&store, environment);
    let error = records.effects().begin(&first, &[started(0, 40)]).unwrap_err();
    assert!(matches!(error, StoreError::StaleEpoch { .. }), "{error:?}");
    assert_eq!(records.effects().recover(&second).unwrap(), [stored.keys[1], stored.keys[2]]);
    assert_eq!(names(), [named("b").as_str(), named("c").as_str()]);
    choose("b").unwrap();
    let choice = |at: usize| {
        records.effects().of_resource(stored.keys[at]).unwrap().and_then(|effect| effect.choice)
    };
    assert_eq!((choice(1), choice(2)), (Some(EffectVerdict::Done), None));
    let again = EffectVerdict::RunAgain;
    records.effects().resolve_under_lease(&second, named("c").as_str(), again).unwrap();
    assert_eq!(choice(2), Some(again));
    // An effect that is begun again is in progress.
    records.effects().begin(&second, &[started(2, 50)]).unwrap();
    assert_eq!((names(), choice(2)), (vec![named("b").to_string()], None));
    let ended = [(stored.keys[1], Timestamp(20)), (stored.keys[2], Timestamp(50))];
    store
        .engine()
        .record_batch(&second, &ResultBatch { ended: &ended, ..ResultBatch::default() })
        .unwrap();
    assert!(records.effects().recover(&second).unwrap().is_empty());
}

fn effects_of_unmanaged_resources_are_deleted(backend: Backend) {
    let store = backend.fresh();
    let (records, environment) = (&store, store.environments().ensure_default().unwrap());
    let lease = lease(&store, environment);
    let all = simple(&["a", "b", "c", "d"]);
    let stored = put(&store, environment, &all).unwrap();
    let started = |at: usize| StartedAction {
        resource: stored.keys[at],
        kind: ActionKind::Deploy,
        version: stored.number,
        at: Timestamp(10),
    };
    let begun = [started(0), started(1), started(2), started(3)];
    records.effects().begin(&lease, &begun).unwrap();
    // The engine has not processed the version without it.
    let state = ResourceState::new(all[3].hash, false);
    let kept = [StateRecord { resource: stored.keys[3], state: &state }];
    store.engine().process_version(&lease, stored.number, &kept).unwrap();
    records.effects().recover(&lease).unwrap();
    put(&store, environment, &simple(&["a"])).unwrap();
    let done = EffectVerdict::Done;
    let under =
        |name: &str| records.effects().resolve_under_lease(&lease, named(name).as_str(), done);
    assert_eq!(under("a").unwrap(), EffectResolution::Recorded);
    assert_eq!(under("d").unwrap(), EffectResolution::Recorded, "its engine still has it");
    assert_eq!(under("b").unwrap(), EffectResolution::Deleted);
    assert!(matches!(under("b"), Err(StoreError::NotFound { .. })));
    let request = NewRequest { uuid: id_of(7), kind: &RequestKind::deploy_all() };
    let name = named("c");
    let created = records
        .effects()
        .resolve(environment, name.as_str(), done, &request, Timestamp(20))
        .unwrap();
    assert_eq!(created.finished, Some(Timestamp(20)), "no engine has to act on it");
    let remaining = records.effects().unknown(environment).unwrap();
    let remaining: Vec<(&str, _)> =
        remaining.iter().map(|one| (one.name.as_str(), one.choice)).collect();
    assert_eq!(remaining, [(named("a").as_str(), Some(done)), (named("d").as_str(), Some(done))]);
}

fn repeated_batches_are_stored_once(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let lease = lease(&store, environment);
    let stored = put(&store, environment, &simple(&["a", "b"])).unwrap();
    let change = Change::default();
    let of = |at: usize, time| ResultRecord {
        action: Some(action(stored.number, time, &change, &[])),
        ..empty_result(stored.keys[at])
    };
    let first = [of(0, 10)];
    store
        .engine()
        .record_batch(&lease, &ResultBatch { results: &first, ..ResultBatch::default() })
        .unwrap();
    let both = [of(0, 10), of(0, 20), of(1, 10)];
    let again = ResultBatch { results: &both, is_retry: true, ..ResultBatch::default() };
    store.engine().record_batch(&lease, &again).unwrap();
    store.engine().record_batch(&lease, &again).unwrap();
    let starts = |name: &str| -> Vec<i64> {
        let log = store.actions().of_resource(environment, named(name).as_str(), None, 99).unwrap();
        log.iter().map(|action| action.started.0).collect()
    };
    assert_eq!((starts("a"), starts("b")), (vec![20, 10], vec![10]));
}
