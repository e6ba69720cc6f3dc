//! Environments, settings, agents, parameters, files.

use orrery_model::Timestamp;
use orrery_store::{ContentHash, ParameterSource, StoreError};

use crate::support::{Backend, id, put, resource};

super::list_cases![
    environments_have_names,
    settings_are_kept_and_reset,
    agents_come_with_resources_and_stay_paused,
    parameters_have_one_value,
    contents_are_kept_by_hash,
    a_whole_store_has_no_problems,
];

fn environments_have_names(backend: Backend) {
    let store = backend.fresh();
    let default = store.default_environment().unwrap();
    assert_eq!(store.default_environment().unwrap(), default);
    let made = store.create_environment("shop", "live").unwrap();
    store.create_environment("shop", "test").unwrap();
    let error = store.create_environment("shop", "live").unwrap_err();
    assert!(matches!(error, StoreError::EnvironmentExists { .. }), "{error}");
    let all = store.environments().unwrap();
    let names: Vec<(&str, &str)> = all.iter().map(|one| (&*one.project, &*one.name)).collect();
    assert_eq!(names, [("default", "default"), ("shop", "live"), ("shop", "test")]);
    assert_eq!(all[1], made);
    assert_ne!(all[1].uuid, all[2].uuid);
}

fn settings_are_kept_and_reset(backend: Backend) {
    let store = backend.fresh();
    let environment = store.default_environment().unwrap();
    let other = store.create_environment("p", "e").unwrap().key;
    let (first, second) = (serde_json::json!("600"), serde_json::json!({"a": [true, null]}));
    store.set_setting(environment, "interval", Some(&first)).unwrap();
    store.set_setting(environment, "interval", Some(&second)).unwrap();
    store.set_setting(environment, "gone", Some(&first)).unwrap();
    store.set_setting(environment, "gone", None).unwrap();
    let settings = store.settings(environment).unwrap();
    assert_eq!(settings.into_iter().collect::<Vec<_>>(), [("interval".to_owned(), second)]);
    assert!(store.settings(other).unwrap().is_empty());
}

fn agents_come_with_resources_and_stay_paused(backend: Backend) {
    let store = backend.fresh();
    let environment = store.default_environment().unwrap();
    store.set_paused(environment, Some("early"), true).unwrap();
    let resources = [
        resource(&id("t::R[early,name=a]"), 1, &[]),
        resource(&id("t::R[late,name=a]"), 1, &[]),
        resource(&id("t::R[late,name=b]"), 1, &[]),
    ];
    put(&*store, environment, &resources).unwrap();
    let agents = || -> Vec<(String, bool)> {
        let agents = store.agents(environment).unwrap();
        agents.into_iter().map(|agent| (agent.name, agent.paused)).collect()
    };
    assert_eq!(agents(), [("early".to_owned(), true), ("late".to_owned(), false)]);
    store.set_paused(environment, None, true).unwrap();
    assert!(agents().iter().all(|(_, paused)| *paused));
    store.set_paused(environment, Some("late"), false).unwrap();
    assert_eq!(agents(), [("early".to_owned(), true), ("late".to_owned(), false)]);
}

fn parameters_have_one_value(backend: Backend) {
    let store = backend.fresh();
    let environment = store.default_environment().unwrap();
    let set = |value, at| {
        let user = ParameterSource::User;
        store.set_parameter(environment, "size", value, user, Timestamp(at)).unwrap().changed
    };
    assert_eq!((set("1", 1), set("1", 2), set("2", 3)), (1, 0, 1));
    let all = store.parameters(environment).unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!((&*all[0].name, &*all[0].value, all[0].updated), ("size", "2", Timestamp(3)));
    assert_eq!((all[0].source, all[0].expires), (ParameterSource::User, false));
}

fn contents_are_kept_by_hash(backend: Backend) {
    let store = backend.fresh();
    let hashes = [1, 2, 3].map(|byte| ContentHash([byte; 20]));
    assert_eq!(store.missing_files(&hashes).unwrap(), hashes);
    let large = vec![7; 100_000];
    store.put_files(&[(hashes[0], b"\0text"), (hashes[2], &large)]).unwrap();
    store.put_files(&[(hashes[0], b"\0text")]).unwrap();
    assert_eq!(store.missing_files(&hashes).unwrap(), [hashes[1]]);
    assert_eq!(store.file(&hashes[0]).unwrap().as_deref(), Some(&b"\0text"[..]));
    assert_eq!(store.file(&hashes[2]).unwrap(), Some(large));
    assert_eq!(store.file(&hashes[1]).unwrap(), None);
}

fn a_whole_store_has_no_problems(backend: Backend) {
    let store = backend.fresh();
    let environment = store.default_environment().unwrap();
    put(&*store, environment, &[resource(&id("t::R[a,name=a]"), 1, &[])]).unwrap();
    assert!(store.check().unwrap().is_empty());
}
