//! Records of a server: projects, environments, requests, and the change feed.

use orrery_model::{ProjectId, Timestamp};
use orrery_store::{
    ChangeSeq, EnvironmentChange, EnvironmentKey, NewEnvironmentRecord, NewRequest,
    ParameterSource, RequestKind, RequestResult, ResultRecord, Store, StoreError,
};

use crate::support::{Backend, deployed, empty_result, id_of, lease, put, simple};

super::list_cases![
    projects_have_names_and_revisions,
    a_project_with_environments_stays,
    environments_are_changed_and_moved,
    a_halt_restores_paused_agents,
    a_deletion_that_began_cannot_resume,
    requests_are_open_until_they_end,
    every_change_is_in_the_feed_once,
    the_feed_continues_where_a_reader_stopped,
    rolled_back_changes_are_not_in_the_feed,
    numbers_of_deleted_rows_are_not_reused,
];

fn at(time: i64) -> Timestamp {
    Timestamp(time)
}

fn environment(number: u8, project: ProjectId, name: &str) -> NewEnvironmentRecord<'_> {
    NewEnvironmentRecord {
        uuid: id_of(number),
        project,
        name,
        description: "",
        icon: "",
        repository: "",
        branch: "",
    }
}

fn projects_have_names_and_revisions(backend: Backend) {
    let store = backend.fresh();
    let created = store.projects().create(id_of(1), "shop", "sells", at(5)).unwrap();
    assert_eq!((&*created.name, &*created.description, created.created), ("shop", "sells", at(5)));
    for taken in [(id_of(1), "other"), (id_of(2), "shop")] {
        let error = store.projects().create(taken.0, taken.1, "", at(5)).unwrap_err();
        assert!(matches!(error, StoreError::Exists { kind: "project", .. }), "{error}");
    }
    store.projects().create(id_of(2), "Zoo", "", at(6)).unwrap();
    let names: Vec<String> =
        store.projects().list().unwrap().into_iter().map(|project| project.name).collect();
    assert_eq!(names, ["Zoo", "shop"], "in the order of bytes");

    let update = |expected, name| store.projects().update(id_of(1), expected, name, None, at(7));
    let changed = update(Some(created.revision), Some("store")).unwrap();
    assert_eq!((&*changed.name, &*changed.description), ("store", "sells"));
    assert!(changed.revision > created.revision);
    let error = update(Some(created.revision), Some("late")).unwrap_err();
    assert!(matches!(error, StoreError::Outdated { .. }), "{error}");
    assert!(matches!(update(None, Some("Zoo")), Err(StoreError::Exists { .. })));
    assert_eq!(update(None, Some("store")).unwrap().name, "store");
    assert!(matches!(store.projects().get(id_of(9)), Err(StoreError::NotFound { .. })));
}

fn a_project_with_environments_stays(backend: Backend) {
    let store = backend.fresh();
    store.projects().create(id_of(1), "shop", "", at(1)).unwrap();
    store.environments().add(&environment(2, id_of(1), "live"), at(1)).unwrap();
    let error = store.projects().delete(id_of(1), None, at(2)).unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    let created = store.projects().create(id_of(3), "empty", "", at(1)).unwrap();
    let changed = store.projects().update(id_of(3), None, None, Some("x"), at(2)).unwrap();
    let error = store.projects().delete(id_of(3), Some(created.revision), at(2)).unwrap_err();
    assert!(matches!(error, StoreError::Outdated { .. }), "{error}");
    assert_eq!(store.projects().delete(id_of(3), Some(changed.revision), at(2)).unwrap(), changed);
    assert!(matches!(store.projects().get(id_of(3)), Err(StoreError::NotFound { .. })));
}

fn environments_are_changed_and_moved(backend: Backend) {
    let store = backend.fresh();
    store.projects().create(id_of(1), "a", "", at(1)).unwrap();
    store.projects().create(id_of(2), "b", "", at(1)).unwrap();
    let created = store.environments().add(&environment(3, id_of(1), "live"), at(4)).unwrap();
    assert_eq!((created.project, &*created.project_name, created.created), (id_of(1), "a", at(4)));
    assert!(!created.halted && !created.deleting);
    let error = store.environments().add(&environment(4, id_of(1), "live"), at(4)).unwrap_err();
    assert!(matches!(error, StoreError::Exists { .. }), "{error}");
    store.environments().add(&environment(4, id_of(2), "live"), at(4)).unwrap();
    let missing = id_of(9);
    let nowhere = environment(5, missing, "live");
    assert!(matches!(store.environments().add(&nowhere, at(4)), Err(StoreError::NotFound { .. })));

    let change = EnvironmentChange { project: Some(id_of(2)), ..EnvironmentChange::default() };
    let error = store.environments().update(id_of(3), None, &change, at(5)).unwrap_err();
    assert!(matches!(error, StoreError::Exists { .. }), "{error}");
    let change = EnvironmentChange { name: Some("moved"), branch: Some("main"), ..change };
    let changed =
        store.environments().update(id_of(3), Some(created.revision), &change, at(5)).unwrap();
    assert_eq!((changed.project, &*changed.name, &*changed.branch), (id_of(2), "moved", "main"));
    assert_eq!(changed.key, created.key);
    let late = store.environments().update(id_of(3), Some(created.revision), &change, at(6));
    assert!(matches!(late, Err(StoreError::Outdated { .. })));
    assert_eq!(store.environments().by_key(created.key).unwrap(), changed);
}

fn paused(store: &Store, environment: EnvironmentKey) -> Vec<(String, bool)> {
    let agents = store.agents().states(environment).unwrap();
    agents.into_iter().map(|agent| (agent.name, agent.paused)).collect()
}

fn a_halt_restores_paused_agents(backend: Backend) {
    let store = backend.fresh();
    store.projects().create(id_of(1), "p", "", at(1)).unwrap();
    let key = store.environments().add(&environment(2, id_of(1), "e"), at(1)).unwrap().key;
    store.agents().set_paused(key, Some("idle"), true).unwrap();
    store.agents().set_paused(key, Some("busy"), false).unwrap();
    let before = paused(&store, key);
    for _ in 0..2 {
        assert!(store.environments().set_halted(id_of(2), true, at(2)).unwrap().halted);
        assert!(paused(&store, key).iter().all(|(_, paused)| *paused));
    }
    for _ in 0..2 {
        assert!(!store.environments().set_halted(id_of(2), false, at(3)).unwrap().halted);
        assert_eq!(paused(&store, key), before);
    }
}

fn a_deletion_that_began_cannot_resume(backend: Backend) {
    let store = backend.fresh();
    store.projects().create(id_of(1), "p", "", at(1)).unwrap();
    store.environments().add(&environment(2, id_of(1), "e"), at(1)).unwrap();
    let going = store.environments().begin_deletion(id_of(2), at(2)).unwrap();
    assert!(going.deleting && going.halted);
    let error = store.environments().set_halted(id_of(2), false, at(3)).unwrap_err();
    assert!(matches!(error, StoreError::Deleting(name) if name == "e"));
}

fn requests_are_open_until_they_end(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let other = store.environments().create("p", "other").unwrap().key;
    let payload = serde_json::json!({"agents": ["a"]});
    let add = |number, kind, time| {
        let kind = &RequestKind::from_stored(kind, payload.clone());
        let request = NewRequest { uuid: id_of(number), kind };
        store.requests().add(environment, &request, at(time)).unwrap()
    };
    let (first, second) = (add(1, "deploy", 1), add(2, "repair", 2));
    assert!(second.key > first.key);
    assert_eq!(store.requests().environments().unwrap(), [environment]);
    assert!(store.requests().open(other).unwrap().is_empty());
    store.requests().accept(first.key, at(3)).unwrap();
    store.requests().accept(first.key, at(4)).unwrap();
    let open = store.requests().open(environment).unwrap();
    assert_eq!(open.iter().map(|one| one.taken).collect::<Vec<_>>(), [Some(at(3)), None]);
    assert_eq!((open[0].kind.payload(), open[1].kind.name()), (payload.clone(), "repair"));
    store.requests().finish(&open[0], &RequestResult::Done(None), at(5)).unwrap();
    store
        .requests()
        .finish(&open[0], &RequestResult::Other(serde_json::json!({"done": false})), at(6))
        .unwrap();
    let ended = store.requests().get(id_of(1)).unwrap();
    assert_eq!(
        (ended.finished, ended.outcome_json()),
        (Some(at(5)), Some(serde_json::json!({"done": true})))
    );
    assert_eq!(store.requests().open(environment).unwrap(), [second]);
    assert!(matches!(store.requests().get(id_of(9)), Err(StoreError::NotFound { .. })));
}

/// Kinds and subjects of the changes since a sequence number.
fn change_subjects(store: &Store, since: ChangeSeq) -> Vec<(String, String)> {
    let changes = store.changes().list(since, None, 100).unwrap();
    changes.into_iter().map(|change| (change.kind, change.subject)).collect()
}

fn every_change_is_in_the_feed_once(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let lease = lease(&store, environment);
    let mut since = store.changes().latest().unwrap();
    let mut expect = |kind: &str, subject: &str| {
        let found = change_subjects(&store, since);
        assert_eq!(found, [(kind.to_owned(), subject.to_owned())]);
        since = store.changes().latest().unwrap();
    };
    let names: Vec<String> = (0..150).map(|number| format!("{number:03}")).collect();
    let resources = simple(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let first = put(&store, environment, &resources).unwrap();
    expect("version", "1");
    let unreleased =
        orrery_store::NewVersion { released: false, ..crate::support::new_version(&resources) };
    store.versions().put(environment, &unreleased).unwrap();
    expect("version", "2");
    store.versions().release(environment, orrery_model::VersionNumber(2), Timestamp(9)).unwrap();
    expect("version", "2");
    store.versions().delete(environment, first.number).unwrap();
    expect("version", "1");

    let state = deployed(&resources[0], at(9));
    let record = |count: usize| {
        let results: Vec<ResultRecord<'_>> = first.keys[..count]
            .iter()
            .map(|key| ResultRecord { state: Some(&state), ..empty_result(*key) })
            .collect();
        store.engine().record_results(&lease, &results).unwrap();
    };
    record(3);
    let keys: Vec<String> = {
        let all = store.changes().list(ChangeSeq(0), Some(environment), 100).unwrap();
        all.last().unwrap().subject.split(',').map(str::to_owned).collect()
    };
    assert_eq!(keys.len(), 3);
    expect("resources", &keys.join(","));
    record(150);
    expect("resources", "*");
    store.engine().process_version(&lease, orrery_model::VersionNumber(2), &[]).unwrap();
    expect("resources", "");

    store.agents().set_paused(environment, Some("agent"), true).unwrap();
    expect("agent", "agent");
    store.agents().set_paused(environment, None, false).unwrap();
    expect("agent", "*");
    store
        .settings()
        .change(environment, "name", Some(&serde_json::json!(1)), Timestamp(1))
        .unwrap();
    expect("setting", "name");
    store.parameters().set(environment, "size", "1", ParameterSource::User, at(3)).unwrap();
    expect("parameter", "size");
}

fn the_feed_continues_where_a_reader_stopped(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let other = store.environments().create("p", "other").unwrap().key;
    let begin = store.changes().latest().unwrap();
    for number in 0..5 {
        let environment = if number % 2 == 0 { environment } else { other };
        store.agents().set_paused(environment, Some(&number.to_string()), true).unwrap();
    }
    let mut seen = Vec::new();
    let mut after = begin;
    loop {
        let page = store.changes().list(after, None, 2).unwrap();
        let Some(last) = page.last() else { break };
        after = last.seq;
        seen.extend(page.into_iter().map(|change| change.subject));
    }
    assert_eq!(seen, ["0", "1", "2", "3", "4"]);
    assert_eq!(store.changes().latest().unwrap(), after);
    assert!(store.changes().oldest().unwrap() <= after);
    let of_other = store.changes().list(begin, Some(other), 10).unwrap();
    assert_eq!(of_other.len(), 2);
    assert!(
        of_other.iter().all(|change| change.environment == Some(other) && change.at > at(1_000))
    );
}

fn rolled_back_changes_are_not_in_the_feed(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let begin = store.changes().latest().unwrap();
    let missing = orrery_model::VersionNumber(7);
    store.versions().release(environment, missing, Timestamp(9)).unwrap_err();
    store.versions().delete(environment, missing).unwrap_err();
    store.projects().delete(id_of(9), None, at(1)).unwrap_err();
    assert!(change_subjects(&store, begin).is_empty());
}

/// A reader with an old sequence number or environment key must not mistake a new object for the
/// old one.
fn numbers_of_deleted_rows_are_not_reused(backend: Backend) {
    let store = backend.fresh();
    store.projects().create(id_of(1), "p", "", at(1)).unwrap();
    let first = store.environments().add(&environment(2, id_of(1), "first"), at(1)).unwrap();
    let request = |key, number| {
        let request = NewRequest { uuid: id_of(number), kind: &RequestKind::deploy_all() };
        store.requests().add(key, &request, at(1)).unwrap()
    };
    let before = request(first.key, 11);
    let seen = store.changes().latest().unwrap();
    while !store.environments().delete_contents(first.key, at(2)).unwrap() {}
    store.environments().delete(id_of(2), at(2)).unwrap();

    let second = store.environments().add(&environment(3, id_of(1), "second"), at(3)).unwrap();
    assert_ne!(second.key, first.key);
    let after = request(second.key, 12);
    assert_ne!(after.key, before.key);
    let news = store.changes().list(seen, Some(second.key), 10).unwrap();
    let kinds: Vec<&str> = news.iter().map(|change| &*change.kind).collect();
    assert_eq!(kinds, ["environment", "request"]);
}
