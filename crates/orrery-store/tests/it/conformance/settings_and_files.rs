//! Environments, settings, agents, parameters, files.

use std::collections::BTreeSet;

use orrery_model::{Attributes, Resource, Timestamp};
use orrery_store::{
    ContentHash, ContentHolder, ContentView, NewVersion, ParameterSource, StoreError,
};

use crate::support::{Backend, id, id_of, new_version, put, resource};

super::list_cases![
    environments_have_names,
    settings_are_stored_and_reset,
    agents_come_with_resources_and_stay_paused,
    parameters_have_one_value,
    contents_are_stored_by_hash,
    a_whole_store_has_no_problems,
    contents_that_nothing_refers_to_are_collected,
    contents_are_visible_to_their_claimants,
];

fn environments_have_names(backend: Backend) {
    let store = backend.fresh();
    let default = store.environments().ensure_default().unwrap();
    assert_eq!(store.environments().ensure_default().unwrap(), default);
    let created = store.environments().create("shop", "live").unwrap();
    store.environments().create("shop", "test").unwrap();
    let error = store.environments().create("shop", "live").unwrap_err();
    assert!(matches!(error, StoreError::EnvironmentExists { .. }), "{error}");
    let all = store.environments().list(None).unwrap();
    let names: Vec<(&str, &str)> = all.iter().map(|one| (&*one.project_name, &*one.name)).collect();
    assert_eq!(names, [("default", "default"), ("shop", "live"), ("shop", "test")]);
    assert_eq!((all[1].key, all[1].uuid), (created.key, created.uuid));
    assert_ne!(all[1].uuid, all[2].uuid);
}

fn settings_are_stored_and_reset(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let other = store.environments().create("p", "e").unwrap().key;
    let (first, second) = (serde_json::json!("600"), serde_json::json!({"a": [true, null]}));
    store.settings().change(environment, "interval", Some(&first), Timestamp(1)).unwrap();
    store.settings().change(environment, "interval", Some(&second), Timestamp(1)).unwrap();
    store.settings().change(environment, "gone", Some(&first), Timestamp(1)).unwrap();
    store.settings().change(environment, "gone", None, Timestamp(1)).unwrap();
    let settings = store.settings().values(environment).unwrap();
    assert_eq!(settings.into_iter().collect::<Vec<_>>(), [("interval".to_owned(), second)]);
    assert!(store.settings().values(other).unwrap().is_empty());
}

fn agents_come_with_resources_and_stay_paused(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    store.agents().set_paused(environment, Some("early"), true).unwrap();
    let resources = [
        resource(&id("t::R[early,name=a]"), 1, &[]),
        resource(&id("t::R[late,name=a]"), 1, &[]),
        resource(&id("t::R[late,name=b]"), 1, &[]),
    ];
    put(&store, environment, &resources).unwrap();
    let agents = || -> Vec<(String, bool)> {
        let agents = store.agents().states(environment).unwrap();
        agents.into_iter().map(|agent| (agent.name, agent.paused)).collect()
    };
    assert_eq!(agents(), [("early".to_owned(), true), ("late".to_owned(), false)]);
    store.agents().set_paused(environment, None, true).unwrap();
    assert!(agents().iter().all(|(_, paused)| *paused));
    store.agents().set_paused(environment, Some("late"), false).unwrap();
    assert_eq!(agents(), [("early".to_owned(), true), ("late".to_owned(), false)]);
}

fn parameters_have_one_value(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let set = |value, at| {
        let user = ParameterSource::User;
        store.parameters().set(environment, "size", value, user, Timestamp(at)).unwrap().changed
    };
    assert_eq!((set("1", 1), set("1", 2), set("2", 3)), (1, 0, 1));
    let all = store.parameters().all(environment).unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!((&*all[0].name, &*all[0].value, all[0].updated), ("size", "2", Timestamp(3)));
    assert_eq!((all[0].source, all[0].expires), (ParameterSource::User, false));
}

fn contents_are_stored_by_hash(backend: Backend) {
    let store = backend.fresh();
    let hashes = [1, 2, 3].map(|byte| ContentHash([byte; 20]));
    assert_eq!(store.contents().missing(&hashes).unwrap(), hashes);
    let large = vec![7; 100_000];
    store.contents().put(&[(hashes[0], b"\0text"), (hashes[2], &large)]).unwrap();
    store.contents().put(&[(hashes[0], b"\0text")]).unwrap();
    assert_eq!(store.contents().missing(&hashes).unwrap(), [hashes[1]]);
    assert_eq!(store.contents().get(&hashes[0]).unwrap().as_deref(), Some(&b"\0text"[..]));
    assert_eq!(store.contents().get(&hashes[2]).unwrap(), Some(large));
    assert_eq!(store.contents().get(&hashes[1]).unwrap(), None);
    // Two contents with one SHA-1: the second is refused, the first stays.
    let refused =
        store.contents().put(&[(hashes[1], b"new"), (hashes[0], b"\0other")]).unwrap_err();
    assert!(matches!(refused, StoreError::ContentCollision(_)), "{refused}");
    assert!(refused.to_string().contains(&hashes[0].to_hex()), "{refused}");
    assert_eq!(store.contents().get(&hashes[0]).unwrap().as_deref(), Some(&b"\0text"[..]));
    assert_eq!(store.contents().missing(&hashes).unwrap(), [hashes[1]]);
}

fn a_whole_store_has_no_problems(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    put(&store, environment, &[resource(&id("t::R[a,name=a]"), 1, &[])]).unwrap();
    assert!(store.check().unwrap().is_empty());
}

const HOUR: i64 = 3_600_000_000;

fn hash(byte: u8) -> ContentHash {
    ContentHash([byte; 20])
}

/// A content stays as long as a version mentions it in attributes, as code or as a file of its
/// code; so does one that was uploaded or requested recently.
fn contents_that_nothing_refers_to_are_collected(backend: Backend) {
    let store = backend.fresh();
    let (records, environment) = (&store, store.environments().ensure_default().unwrap());
    let ada = ContentHolder::Account(id_of(1));
    let claim = |numbers: &[u8], at: i64| {
        let hashes: BTreeSet<ContentHash> = numbers.iter().map(|byte| hash(*byte)).collect();
        records.contents().claim(ada, &hashes, Timestamp(at)).unwrap();
    };
    let there = || -> Vec<u8> {
        let all: Vec<ContentHash> = (1..=9).map(hash).collect();
        let missing = store.contents().missing(&all).unwrap();
        (1..=9).filter(|byte| !missing.contains(&hash(*byte))).collect()
    };
    // 1 in an attribute, 2 code, 3 a file of the code, 4 by another id, 5 and 6 nowhere, 7 and 8
    // from before claims, 9 touched.
    let bundle = format!(r#"{{"files": {{"a.py": "{}"}}}}"#, hash(3).to_hex());
    for byte in [1, 3, 4, 5, 6, 7, 8, 9] {
        store.contents().put(&[(hash(byte), &[byte; 100])]).unwrap();
    }
    store.contents().put(&[(hash(2), bundle.as_bytes())]).unwrap();
    claim(&[1, 2, 3, 4, 5, 9], HOUR);
    claim(&[6], 20 * HOUR);
    let text = format!(r#"{{"hash": "{}", "other": "x{}"}}"#, hash(1).to_hex(), hash(7).to_hex());
    let attributes = Attributes::parse(&text).unwrap();
    let resources = [Resource::new(id("t::R[a,name=a]"), attributes, Vec::new())];
    let info = serde_json::json!({"code": hash(2).to_hex(), "files": {"x": hash(4).to_hex()}});
    let first = NewVersion { info: &info, ..new_version(&resources) };
    let first = store.versions().put(environment, &first).unwrap().number;
    records.contents().touch(&BTreeSet::from([hash(9)]), Timestamp(12 * HOUR)).unwrap();
    let unused = records.contents().unused(id_of(1)).unwrap();
    assert_eq!((unused.of_account, unused.of_all), (600 + bundle.len() as u64, unused.of_account));

    let collect =
        |before: i64| records.contents().collect(Timestamp(before), Timestamp(before + 24 * HOUR));
    let collected = collect(10 * HOUR).unwrap();
    assert_eq!((collected.deleted, collected.bytes), (1, 100), "{collected:?}");
    assert_eq!(there(), [1, 2, 3, 4, 6, 7, 8, 9]);
    // A content that the environment uses is not an upload any more; an unused one ages from the
    // first collection on.
    assert_eq!(records.contents().unused(id_of(1)).unwrap().of_account, 200);
    assert_eq!(collect(33 * HOUR).unwrap().deleted, 2);
    assert_eq!(there(), [1, 2, 3, 4, 7, 8]);
    assert_eq!(collect(60 * HOUR).unwrap().deleted, 1);
    assert_eq!(there(), [1, 2, 3, 4, 7]);
    // Contents that only the version referred to are deleted with it.
    put(&store, environment, &[resource(&id("t::R[a,name=a]"), 1, &[])]).unwrap();
    store.versions().delete(environment, first).unwrap();
    assert_eq!(collect(90 * HOUR).unwrap().deleted, 5);
    assert_eq!(there(), [] as [u8; 0]);
}

fn contents_are_visible_to_their_claimants(backend: Backend) {
    let store = backend.fresh();
    let here = store.environments().ensure_default().unwrap();
    let there = store.environments().create("p", "e").unwrap().key;
    let all: Vec<ContentHash> = (1..=4).map(hash).collect();
    for one in &all {
        store.contents().put(&[(*one, &one.0)]).unwrap();
    }
    let one = |byte: u8| BTreeSet::from([hash(byte)]);
    store.contents().claim(ContentHolder::Account(id_of(1)), &one(1), Timestamp(1)).unwrap();
    store.contents().claim(ContentHolder::Account(id_of(2)), &one(1), Timestamp(1)).unwrap();
    store.contents().claim(ContentHolder::Account(id_of(2)), &one(2), Timestamp(1)).unwrap();
    store.contents().record_use(there, Some(id_of(1)), &one(1), Timestamp(2)).unwrap();
    store.contents().record_use(here, None, &one(3), Timestamp(2)).unwrap();
    let known = |account: u8, environments: Option<&[orrery_store::EnvironmentKey]>| -> Vec<u8> {
        let environments = environments.map(|keys| keys.iter().copied().collect());
        let view = ContentView { account: Some(id_of(account)), environments };
        let known = store.contents().visible(&view, &all).unwrap();
        known.into_iter().map(|hash| hash.0[0]).collect()
    };
    assert_eq!(known(1, Some(&[])), [] as [u8; 0], "it is a matter of the environment now");
    assert_eq!(known(2, Some(&[])), [1, 2], "other holders keep their claims");
    assert_eq!(known(1, Some(&[there])), [1]);
    assert_eq!(known(1, Some(&[here])), [3]);
    assert_eq!(known(1, None), [1, 3]);
    let foreign = |account: u8, environments: &[orrery_store::EnvironmentKey]| -> Vec<u8> {
        let environments = Some(environments.iter().copied().collect());
        let view = ContentView { account: Some(id_of(account)), environments };
        let foreign = store.contents().foreign(&view, &all).unwrap();
        foreign.into_iter().map(|hash| hash.0[0]).collect()
    };
    assert_eq!(foreign(1, &[]), [1, 2, 3], "nothing is known of the fourth");
    assert_eq!(foreign(2, &[]), [3]);
    assert_eq!(foreign(2, &[here]), [] as [u8; 0]);
    let content =
        |environment, byte: u8| store.contents().of_environment(environment, &hash(byte)).unwrap();
    assert_eq!(content(there, 1), Some(hash(1).0.to_vec()));
    assert_eq!(content(here, 1), None, "another environment uses it");
    assert_eq!(content(here, 2), None, "an account has uploaded it, for nothing yet");
    assert_eq!(content(here, 4), Some(hash(4).0.to_vec()), "from before claims were kept");
    assert_eq!(content(here, 5), None);
}
