//! Records of a server: projects, environments, requests, and the change feed.

use orrery_model::Timestamp;
use orrery_store::{
    ChangeSeq, EnvironmentChange, EnvironmentKey, NewEnvironmentRecord, ParameterSource, Records,
    ResultRecord, Store, StoreError,
};

use crate::support::{Backend, deployed, empty_result, lease, put, simple};

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

const fn id(number: u8) -> [u8; 16] {
    [number; 16]
}

fn at(time: i64) -> Timestamp {
    Timestamp(time)
}

fn environment<'a>(number: u8, project: &'a [u8; 16], name: &'a str) -> NewEnvironmentRecord<'a> {
    NewEnvironmentRecord {
        uuid: id(number),
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
    let records = store.records();
    let created = records.create_project(id(1), "shop", "sells", at(5)).unwrap();
    assert_eq!((&*created.name, &*created.description, created.created), ("shop", "sells", at(5)));
    for taken in [(id(1), "other"), (id(2), "shop")] {
        let error = records.create_project(taken.0, taken.1, "", at(5)).unwrap_err();
        assert!(matches!(error, StoreError::Exists { kind: "project", .. }), "{error}");
    }
    records.create_project(id(2), "Zoo", "", at(6)).unwrap();
    let names: Vec<String> =
        records.projects().unwrap().into_iter().map(|project| project.name).collect();
    assert_eq!(names, ["Zoo", "shop"], "in the order of bytes");

    let update = |expected, name| records.update_project(&id(1), expected, name, None, at(7));
    let changed = update(Some(created.revision), Some("store")).unwrap();
    assert_eq!((&*changed.name, &*changed.description), ("store", "sells"));
    assert!(changed.revision > created.revision);
    let error = update(Some(created.revision), Some("late")).unwrap_err();
    assert!(matches!(error, StoreError::Outdated { .. }), "{error}");
    assert!(matches!(update(None, Some("Zoo")), Err(StoreError::Exists { .. })));
    assert_eq!(update(None, Some("store")).unwrap().name, "store");
    assert!(matches!(records.project(&id(9)), Err(StoreError::NotFound { .. })));
}

fn a_project_with_environments_stays(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    records.create_project(id(1), "shop", "", at(1)).unwrap();
    records.add_environment(&environment(2, &id(1), "live"), at(1)).unwrap();
    let error = records.delete_project(&id(1), None, at(2)).unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    let created = records.create_project(id(3), "empty", "", at(1)).unwrap();
    let changed = records.update_project(&id(3), None, None, Some("x"), at(2)).unwrap();
    let error = records.delete_project(&id(3), Some(created.revision), at(2)).unwrap_err();
    assert!(matches!(error, StoreError::Outdated { .. }), "{error}");
    assert_eq!(records.delete_project(&id(3), Some(changed.revision), at(2)).unwrap(), changed);
    assert!(matches!(records.project(&id(3)), Err(StoreError::NotFound { .. })));
}

fn environments_are_changed_and_moved(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    records.create_project(id(1), "a", "", at(1)).unwrap();
    records.create_project(id(2), "b", "", at(1)).unwrap();
    let created = records.add_environment(&environment(3, &id(1), "live"), at(4)).unwrap();
    assert_eq!((created.project, &*created.project_name, created.created), (id(1), "a", at(4)));
    assert!(!created.halted && !created.deleting);
    let error = records.add_environment(&environment(4, &id(1), "live"), at(4)).unwrap_err();
    assert!(matches!(error, StoreError::Exists { .. }), "{error}");
    records.add_environment(&environment(4, &id(2), "live"), at(4)).unwrap();
    let missing = id(9);
    let nowhere = environment(5, &missing, "live");
    assert!(matches!(records.add_environment(&nowhere, at(4)), Err(StoreError::NotFound { .. })));

    let change = EnvironmentChange { project: Some(&id(2)), ..EnvironmentChange::default() };
    let error = records.update_environment(&id(3), None, &change, at(5)).unwrap_err();
    assert!(matches!(error, StoreError::Exists { .. }), "{error}");
    let change = EnvironmentChange { name: Some("moved"), branch: Some("main"), ..change };
    let changed =
        records.update_environment(&id(3), Some(created.revision), &change, at(5)).unwrap();
    assert_eq!((changed.project, &*changed.name, &*changed.branch), (id(2), "moved", "main"));
    assert_eq!(changed.key, created.key);
    let late = records.update_environment(&id(3), Some(created.revision), &change, at(6));
    assert!(matches!(late, Err(StoreError::Outdated { .. })));
    assert_eq!(records.environment_by_key(created.key).unwrap(), changed);
}

fn paused(store: &dyn Store, environment: EnvironmentKey) -> Vec<(String, bool)> {
    let agents = store.agents(environment).unwrap();
    agents.into_iter().map(|agent| (agent.name, agent.paused)).collect()
}

fn a_halt_restores_paused_agents(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    records.create_project(id(1), "p", "", at(1)).unwrap();
    let key = records.add_environment(&environment(2, &id(1), "e"), at(1)).unwrap().key;
    store.set_paused(key, Some("idle"), true).unwrap();
    store.set_paused(key, Some("busy"), false).unwrap();
    let before = paused(&*store, key);
    for _ in 0..2 {
        assert!(records.set_halted(&id(2), true, at(2)).unwrap().halted);
        assert!(paused(&*store, key).iter().all(|(_, paused)| *paused));
    }
    for _ in 0..2 {
        assert!(!records.set_halted(&id(2), false, at(3)).unwrap().halted);
        assert_eq!(paused(&*store, key), before);
    }
}

fn a_deletion_that_began_cannot_resume(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    records.create_project(id(1), "p", "", at(1)).unwrap();
    records.add_environment(&environment(2, &id(1), "e"), at(1)).unwrap();
    let going = records.begin_deletion(&id(2), at(2)).unwrap();
    assert!(going.deleting && going.halted);
    let error = records.set_halted(&id(2), false, at(3)).unwrap_err();
    assert!(matches!(error, StoreError::Deleting(name) if name == "e"));
}

fn requests_are_open_until_they_end(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    let environment = store.default_environment().unwrap();
    let other = store.create_environment("p", "other").unwrap().key;
    let payload = serde_json::json!({"agents": ["a"]});
    let first = records.add_request(environment, id(1), "deploy", &payload, at(1)).unwrap();
    let second = records.add_request(environment, id(2), "repair", &payload, at(2)).unwrap();
    assert!(second.key > first.key);
    assert_eq!(records.environments_with_requests().unwrap(), [environment]);
    assert!(records.open_requests(other).unwrap().is_empty());
    records.accept_request(first.key, at(3)).unwrap();
    records.accept_request(first.key, at(4)).unwrap();
    let open = records.open_requests(environment).unwrap();
    assert_eq!(open.iter().map(|one| one.taken).collect::<Vec<_>>(), [Some(at(3)), None]);
    assert_eq!((&open[0].payload, &*open[1].kind), (&payload, "repair"));
    records.finish_request(&open[0], &serde_json::json!({"done": true}), at(5)).unwrap();
    records.finish_request(&open[0], &serde_json::json!({"done": false}), at(6)).unwrap();
    let ended = records.request(&id(1)).unwrap();
    assert_eq!(
        (ended.finished, ended.outcome),
        (Some(at(5)), Some(serde_json::json!({"done": true})))
    );
    assert_eq!(records.open_requests(environment).unwrap(), [second]);
    assert!(matches!(records.request(&id(9)), Err(StoreError::NotFound { .. })));
}

/// Kinds and subjects of the changes since a sequence number.
fn change_subjects(records: &Records<'_>, since: ChangeSeq) -> Vec<(String, String)> {
    let changes = records.changes(since, None, 100).unwrap();
    changes.into_iter().map(|change| (change.kind, change.subject)).collect()
}

fn every_change_is_in_the_feed_once(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    let environment = store.default_environment().unwrap();
    let lease = lease(&*store, environment);
    let mut since = records.latest_change().unwrap();
    let mut expect = |kind: &str, subject: &str| {
        let found = change_subjects(&records, since);
        assert_eq!(found, [(kind.to_owned(), subject.to_owned())]);
        since = records.latest_change().unwrap();
    };
    let names: Vec<String> = (0..150).map(|number| format!("{number:03}")).collect();
    let resources = simple(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let first = put(&*store, environment, &resources).unwrap();
    expect("version", "1");
    let unreleased =
        orrery_store::NewVersion { released: false, ..crate::support::new_version(&resources) };
    store.put_version(environment, &unreleased).unwrap();
    expect("version", "2");
    store.release_version(environment, orrery_model::VersionNumber(2), Timestamp(9)).unwrap();
    expect("version", "2");
    store.delete_version(environment, first.number).unwrap();
    expect("version", "1");

    let state = deployed(&resources[0], at(9));
    let record = |count: usize| {
        let results: Vec<ResultRecord<'_>> = first.keys[..count]
            .iter()
            .map(|key| ResultRecord { state: Some(&state), ..empty_result(*key) })
            .collect();
        store.record_results(&lease, &results).unwrap();
    };
    record(3);
    let keys: Vec<String> = {
        let all = records.changes(ChangeSeq(0), Some(environment), 100).unwrap();
        all.last().unwrap().subject.split(',').map(str::to_owned).collect()
    };
    assert_eq!(keys.len(), 3);
    expect("resources", &keys.join(","));
    record(150);
    expect("resources", "*");
    store.process_version(&lease, orrery_model::VersionNumber(2), &[]).unwrap();
    expect("resources", "");

    store.set_paused(environment, Some("agent"), true).unwrap();
    expect("agent", "agent");
    store.set_paused(environment, None, false).unwrap();
    expect("agent", "*");
    store.set_setting(environment, "name", Some(&serde_json::json!(1))).unwrap();
    expect("setting", "name");
    store.set_parameter(environment, "size", "1", ParameterSource::User, at(3)).unwrap();
    expect("parameter", "size");
}

fn the_feed_continues_where_a_reader_stopped(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    let environment = store.default_environment().unwrap();
    let other = store.create_environment("p", "other").unwrap().key;
    let begin = records.latest_change().unwrap();
    for number in 0..5 {
        let environment = if number % 2 == 0 { environment } else { other };
        store.set_setting(environment, &number.to_string(), None).unwrap();
    }
    let mut seen = Vec::new();
    let mut after = begin;
    loop {
        let page = records.changes(after, None, 2).unwrap();
        let Some(last) = page.last() else { break };
        after = last.seq;
        seen.extend(page.into_iter().map(|change| change.subject));
    }
    assert_eq!(seen, ["0", "1", "2", "3", "4"]);
    assert_eq!(records.latest_change().unwrap(), after);
    assert!(records.oldest_change().unwrap() <= after);
    let of_other = records.changes(begin, Some(other), 10).unwrap();
    assert_eq!(of_other.len(), 2);
    assert!(
        of_other.iter().all(|change| change.environment == Some(other) && change.at > at(1_000))
    );
}

fn rolled_back_changes_are_not_in_the_feed(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    let environment = store.default_environment().unwrap();
    let begin = records.latest_change().unwrap();
    let missing = orrery_model::VersionNumber(7);
    store.release_version(environment, missing, Timestamp(9)).unwrap_err();
    store.delete_version(environment, missing).unwrap_err();
    records.delete_project(&id(9), None, at(1)).unwrap_err();
    assert!(change_subjects(&records, begin).is_empty());
}

/// A reader with an old sequence number or environment key must not mistake a new object for the
/// old one.
fn numbers_of_deleted_rows_are_not_reused(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    records.create_project(id(1), "p", "", at(1)).unwrap();
    let first = records.add_environment(&environment(2, &id(1), "first"), at(1)).unwrap();
    let request = |key, number| {
        records.add_request(key, id(number), "deploy", &serde_json::json!({}), at(1)).unwrap()
    };
    let before = request(first.key, 11);
    let seen = records.latest_change().unwrap();
    while !records.delete_environment_contents(first.key, at(2)).unwrap() {}
    records.delete_environment(&id(2), at(2)).unwrap();

    let second = records.add_environment(&environment(3, &id(1), "second"), at(3)).unwrap();
    assert_ne!(second.key, first.key);
    let after = request(second.key, 12);
    assert_ne!(after.key, before.key);
    let news = records.changes(seen, Some(second.key), 10).unwrap();
    let kinds: Vec<&str> = news.iter().map(|change| &*change.kind).collect();
    assert_eq!(kinds, ["environment", "request"]);
}
