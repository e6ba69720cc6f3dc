//! Compiles: one queue per environment, one run at a time, and recovery of runs without a result.

use orrery_model::{Timestamp, VersionNumber};
use orrery_store::{
    ClaimedCompile, CompileFailure, CompileFilter, CompileRequest, EnvironmentKey, FailureNotice,
    NewCompileRecord, NotificationFilter, Store, StoreError,
};
use serde_json::json;

use crate::support::{Backend, id_of};

super::list_cases![
    compiles_are_served_in_order_and_one_at_a_time,
    requests_that_ask_for_the_same_share_a_run,
    a_run_without_a_result_is_repeated,
    an_older_run_cannot_write,
    stages_and_output_are_stored_in_order,
    a_halted_environment_starts_nothing,
    a_cancelled_run_requeues_merged_requests,
    old_compiles_expire_except_in_halted_environments,
    compiles_are_listed_in_pages,
    a_failure_is_notified_once,
];

fn ask(store: &Store, environment: EnvironmentKey, id: u8, at: i64, request: &CompileRequest) {
    let new = NewCompileRecord { id: id_of(id), request };
    store.compiles().add(environment, &new, Timestamp(at)).unwrap();
}

fn claim(store: &Store, environment: EnvironmentKey, at: i64) -> Option<ClaimedCompile> {
    store.compiles().claim(environment, Timestamp(at), Timestamp(at + 100)).unwrap()
}

fn end(store: &Store, claimed: &ClaimedCompile, version: Option<u32>, at: i64) {
    let outcome = Ok((version.map(VersionNumber), None));
    store.compiles().complete(&claimed.run, &outcome, Timestamp(at)).unwrap();
}

fn with_variable(value: &str) -> CompileRequest {
    let variables = [("WHAT".to_owned(), value.to_owned())].into();
    CompileRequest { variables, ..CompileRequest::default() }
}

fn compiles_are_served_in_order_and_one_at_a_time(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let other = store.environments().create("p", "e").unwrap().key;
    assert!(claim(&store, environment, 1).is_none());
    // Later ones have smaller ids.
    for (id, at) in [(9, 10), (8, 11), (7, 12)] {
        ask(&store, environment, id, at, &with_variable(&id.to_string()));
        ask(&store, environment, id, at + 1, &CompileRequest::default());
    }
    ask(&store, other, 1, 20, &CompileRequest::default());
    let queue = store.compiles().queue(environment).unwrap();
    assert_eq!(queue.iter().map(|one| one.id.into_bytes()[0]).collect::<Vec<_>>(), [9, 8, 7]);
    let waiting = store.compiles().waiting().unwrap();
    assert_eq!(waiting.len(), 2);
    let first = claim(&store, environment, 30).unwrap();
    assert_eq!((first.record.id, first.record.started), (id_of(9), Some(Timestamp(30))));
    assert!(claim(&store, environment, 31).is_none());
    assert!(claim(&store, other, 31).is_some());
    end(&store, &first, Some(4), 40);
    let done = store.compiles().get(environment, id_of(9)).unwrap();
    assert_eq!((done.success, done.version), (Some(true), Some(VersionNumber(4))));
    assert!(done.handled);
    assert_eq!(claim(&store, environment, 41).unwrap().record.id, id_of(8));
    let of = |one: &orrery_store::CompileQueueState| one.environment == environment;
    let waiting = store.compiles().waiting().unwrap().into_iter().find(of).unwrap();
    assert_eq!(waiting.last_completed, Some(Timestamp(40)));
    assert_eq!(waiting.requested, Timestamp(12));
}

fn requests_that_ask_for_the_same_share_a_run(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let update = CompileRequest { update: true, ..CompileRequest::default() };
    ask(&store, environment, 1, 10, &CompileRequest::default());
    ask(&store, environment, 2, 11, &with_variable("else"));
    ask(&store, environment, 3, 12, &update);
    let claimed = claim(&store, environment, 20).unwrap();
    assert!(claimed.record.used.as_ref().unwrap().update && !claimed.record.request.update);
    let merged = store.compiles().get(environment, id_of(3)).unwrap();
    assert_eq!((merged.substitute, merged.serving_compile()), (Some(id_of(1)), id_of(1)));
    // A request during the run waits for the next.
    ask(&store, environment, 4, 21, &update);
    end(&store, &claimed, Some(7), 30);
    for id in [1, 3] {
        let done = store.compiles().get(environment, id_of(id)).unwrap();
        assert_eq!((done.success, done.version), (Some(true), Some(VersionNumber(7))));
    }
    assert_eq!(store.compiles().last(environment).unwrap().unwrap().id, id_of(1));
    assert_eq!(claim(&store, environment, 31).unwrap().record.id, id_of(2));
}

fn a_run_without_a_result_is_repeated(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    ask(&store, environment, 1, 10, &CompileRequest::default());
    ask(&store, environment, 2, 11, &CompileRequest::default());
    let first = claim(&store, environment, 20).unwrap();
    store.compiles().begin_stage(&first.run, 0, "Init", "", Timestamp(21)).unwrap();
    store.compiles().renew(&first.run, Timestamp(150)).unwrap();
    assert!(claim(&store, environment, 149).is_none());
    let again = claim(&store, environment, 150).unwrap();
    assert_eq!((again.record.id, again.record.epoch), (id_of(1), first.record.epoch + 1));
    assert!(store.compiles().stages(id_of(1)).unwrap().is_empty());
    store.compiles().abandon(&again.run, Timestamp(160)).unwrap();
    let third = claim(&store, environment, 161).unwrap();
    // No request joins a run that may have stored its version.
    store.compiles().reserve_version(&third.run, VersionNumber(5)).unwrap();
    ask(&store, environment, 3, 165, &CompileRequest::default());
    let fourth = claim(&store, environment, 900).unwrap();
    assert_eq!(fourth.record.reserved, Some(VersionNumber(5)));
    end(&store, &fourth, Some(5), 910);
    let version = |id: u8| store.compiles().get(environment, id_of(id)).unwrap().version;
    assert_eq!([1, 2, 3].map(version), [Some(VersionNumber(5)), Some(VersionNumber(5)), None]);
}

fn an_older_run_cannot_write(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    ask(&store, environment, 1, 10, &CompileRequest::default());
    let old = claim(&store, environment, 20).unwrap();
    let new = claim(&store, environment, 500).unwrap();
    let refused = [
        store.compiles().begin_stage(&old.run, 0, "Init", "", Timestamp(501)),
        store.compiles().add_output(&old.run, 0, &[(false, "x".to_owned())], Timestamp(501)),
        store.compiles().end_stage(&old.run, 0, 0, Timestamp(501)),
        store.compiles().renew(&old.run, Timestamp(900)),
        store.compiles().reserve_version(&old.run, VersionNumber(3)),
        store.compiles().complete(&old.run, &Ok((None, None)), Timestamp(501)),
    ];
    for answer in refused {
        assert!(matches!(answer, Err(StoreError::StaleEpoch { .. })), "{answer:?}");
    }
    end(&store, &new, None, 502);
}

fn stages_and_output_are_stored_in_order(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    ask(&store, environment, 1, 10, &CompileRequest::default());
    let run = claim(&store, environment, 20).unwrap().run;
    store.compiles().begin_stage(&run, 0, "Init", "mkdir", Timestamp(21)).unwrap();
    let pieces = [(false, "eins".to_owned()), (true, "zwei ☃".to_owned())];
    store.compiles().add_output(&run, 0, &pieces, Timestamp(22)).unwrap();
    store.compiles().end_stage(&run, 0, 0, Timestamp(23)).unwrap();
    store.compiles().begin_stage(&run, 1, "Recompiling", "orrery", Timestamp(24)).unwrap();
    store.compiles().add_output(&run, 1, &[(false, "drei\0".to_owned())], Timestamp(25)).unwrap();
    let stages = store.compiles().stages(run.id).unwrap();
    assert_eq!(
        stages.iter().map(|stage| &*stage.name).collect::<Vec<_>>(),
        ["Init", "Recompiling"]
    );
    assert_eq!((stages[0].returncode, stages[1].completed), (Some(0), None));
    let all = store.compiles().output(run.id, 0, 10).unwrap();
    let seen: Vec<_> = all.iter().map(|one| (one.position, one.error, &*one.text)).collect();
    assert_eq!(seen, [(0, false, "eins"), (0, true, "zwei ☃"), (1, false, "drei\u{fffd}")]);
    assert_eq!(store.compiles().output(run.id, all[1].id, 10).unwrap(), all[2..]);
}

fn a_halted_environment_starts_nothing(backend: Backend) {
    let store = backend.fresh();
    let created = store.environments().create("p", "e").unwrap();
    store.environments().set_halted(created.uuid, true, Timestamp(5)).unwrap();
    ask(&store, created.key, 1, 10, &CompileRequest::default());
    assert!(store.compiles().waiting().unwrap().is_empty());
    assert!(claim(&store, created.key, 20).is_none());
    assert_eq!(store.compiles().queue(created.key).unwrap().len(), 1);
    store.environments().set_halted(created.uuid, false, Timestamp(30)).unwrap();
    assert!(claim(&store, created.key, 31).is_some());
}

fn a_cancelled_run_requeues_merged_requests(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    for id in [1, 2] {
        ask(&store, environment, id, 10, &CompileRequest::default());
    }
    let claimed = claim(&store, environment, 20).unwrap();
    let cancelled = store.compiles().cancel(environment, id_of(1), "ada", Timestamp(25)).unwrap();
    assert_eq!(cancelled.success, Some(false));
    assert!(cancelled.data.unwrap().to_string().contains("ada"));
    let refused = store.compiles().renew(&claimed.run, Timestamp(900));
    assert!(matches!(refused, Err(StoreError::StaleEpoch { .. })), "{refused:?}");
    assert_eq!(claim(&store, environment, 26).unwrap().record.id, id_of(2));
    let other = store.environments().create("p", "e").unwrap().key;
    let elsewhere = store.compiles().cancel(other, id_of(2), "ada", Timestamp(27));
    assert!(matches!(elsewhere, Err(StoreError::NotFound { .. })), "{elsewhere:?}");
}

fn old_compiles_expire_except_in_halted_environments(backend: Backend) {
    let store = backend.fresh();
    let (one, other) = ("one", "other");
    let created = [one, other].map(|name| store.environments().create("p", name).unwrap());
    for (number, environment) in created.iter().enumerate() {
        let id = u8::try_from(number).unwrap();
        ask(&store, environment.key, id, 10, &CompileRequest::default());
        let claimed = claim(&store, environment.key, 20).unwrap();
        store.compiles().begin_stage(&claimed.run, 0, "Init", "", Timestamp(21)).unwrap();
        end(&store, &claimed, None, 30);
        ask(&store, environment.key, id + 10, 40, &CompileRequest::default());
    }
    store.environments().set_halted(created[1].uuid, true, Timestamp(50)).unwrap();
    assert_eq!(store.compiles().expire(Timestamp(30)).unwrap(), 0);
    assert_eq!(store.compiles().expire(Timestamp(31)).unwrap(), 1);
    assert!(store.compiles().stages(id_of(0)).unwrap().is_empty());
    assert_eq!(store.compiles().stages(id_of(1)).unwrap().len(), 1);
    // Waiting compiles are not affected.
    for environment in &created {
        assert_eq!(store.compiles().queue(environment.key).unwrap().len(), 1);
    }
}

fn compiles_are_listed_in_pages(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    for id in 1..=5 {
        ask(&store, environment, id, 10 + i64::from(id / 2), &with_variable(&id.to_string()));
    }
    let claimed = claim(&store, environment, 20).unwrap();
    end(&store, &claimed, None, 30);
    let mut seen = Vec::new();
    let mut before = None;
    loop {
        let page = store.compiles().list(environment, CompileFilter::default(), before, 2).unwrap();
        let Some(last) = page.last() else { break };
        before = Some((last.requested, last.id));
        seen.extend(page.iter().map(|one| one.id.into_bytes()[0]));
    }
    assert_eq!(seen, [5, 4, 3, 2, 1]);
    let count = |filter| store.compiles().list(environment, filter, None, 10).unwrap().len();
    let all = CompileFilter::default();
    assert_eq!(count(CompileFilter { completed: Some(true), ..all }), 1);
    assert_eq!(count(CompileFilter { started: Some(false), ..all }), 4);
    assert_eq!(count(CompileFilter { success: Some(false), ..all }), 0);
}

fn a_failure_is_notified_once(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    ask(&store, environment, 1, 10, &CompileRequest::default());
    let claimed = claim(&store, environment, 20).unwrap();
    let notice = FailureNotice {
        uuid: id_of(9),
        title: "Compilation failed".to_owned(),
        message: "An exporting compile has failed".to_owned(),
        uri: "/api/v1/x".to_owned(),
    };
    let failure = CompileFailure { data: json!({"errors": [1]}), notice: Some(notice) };
    let outcome = Err(failure);
    store.compiles().complete(&claimed.run, &outcome, Timestamp(30)).unwrap();
    assert!(store.compiles().complete(&claimed.run, &outcome, Timestamp(31)).is_err());
    let done = store.compiles().get(environment, id_of(1)).unwrap();
    assert_eq!((done.success, done.data), (Some(false), Some(json!({"errors": [1]}))));
    let notifications =
        store.notifications().list(environment, &NotificationFilter::default(), None, 10).unwrap();
    assert_eq!(
        (notifications.len(), &*notifications[0].severity, notifications[0].compile),
        (1, "error", Some(id_of(1)))
    );
}
