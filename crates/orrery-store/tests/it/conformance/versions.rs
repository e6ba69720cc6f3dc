//! Versions: stored, shared, compared, deleted.

use std::collections::BTreeMap;

use orrery_model::{Resource, ResourceFlags, Source, Timestamp, VersionNumber};
use orrery_store::{NewVersion, PutScope, StoreError, UndefinedParameter};

use crate::support::{Backend, deployed, id, lease, named, new_version, put, resource, simple};

super::list_cases![
    a_version_is_read_as_it_was_put,
    the_order_of_the_given_resources_does_not_matter,
    an_empty_version_is_a_version,
    equal_resources_are_counted_as_unchanged,
    nothing_is_stored_for_an_equal_version_on_request,
    every_part_of_a_resource_makes_a_difference,
    a_moved_source_is_no_difference,
    old_versions_stay_as_they_were,
    versions_put_out_of_order_are_read_right,
    numbers_are_reserved_once,
    impossible_versions_are_refused_and_leave_nothing,
    a_put_of_some_sets_leaves_the_others,
    a_put_of_the_shared_set_leaves_the_others,
    releases_go_forward_only,
    versions_in_use_are_not_deleted,
    deleting_the_newest_brings_the_one_before_back,
    resources_without_a_version_are_deleted,
    retention_deletes_the_oldest_versions,
    environments_share_nothing,
    unknowns_belong_to_their_version,
];

/// One of each kind of resource.
fn variety() -> Vec<Resource> {
    let base = named("base");
    let mut resources = vec![resource(&base, 1, &[])];
    let mut flagged = resource(&named("flagged"), 2, &[&base]);
    flagged.flags = ResourceFlags {
        undefined: true,
        send_event: true,
        receive_events: false,
        report_only: true,
        removal: true,
    };
    resources.push(flagged);
    let mut placed = resource(&id("t::S[other,name=a],[b=c]"), 3, &[&base, &named("flagged")]);
    placed.source = Some(Source { file: "main.cf".into(), line: 12, column: 3 });
    placed.set = Some("set".into());
    resources.push(placed);
    resources.sort_by(|a, b| a.id.cmp(&b.id));
    resources
}

fn a_version_is_read_as_it_was_put(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let resources = variety();
    let info = serde_json::json!({"command": "test", "n": [1, 2]});
    let new = NewVersion { info: &info, ..new_version(&resources) };
    let stored = store.versions().put(environment, &new).unwrap();
    assert_eq!((stored.created, stored.added, stored.total), (true, 3, 3));
    let version = store.versions().load(environment, stored.number).unwrap();
    assert_eq!(version.resources, resources);
    assert_eq!((version.made_at, version.info), (Timestamp(5), info.clone()));

    let mut keys = Vec::new();
    let listed = store
        .versions()
        .read(environment, stored.number, &mut |row| keys.push((row.key, row.id.to_owned())))
        .unwrap();
    assert_eq!((listed.total, listed.released, &listed.info), (3, true, &info));
    let expected: Vec<_> = stored
        .keys
        .iter()
        .zip(&resources)
        .map(|(key, resource)| (*key, resource.id.to_string()))
        .collect();
    assert_eq!(keys, expected);
}

fn the_order_of_the_given_resources_does_not_matter(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let mut resources = variety();
    let sorted = put(&store, environment, &resources).unwrap();
    resources.reverse();
    let reversed = put(&store, environment, &resources).unwrap();
    assert_eq!((reversed.added, reversed.changed, reversed.removed), (0, 0, 0));
    assert_eq!(reversed.keys, sorted.keys.iter().rev().copied().collect::<Vec<_>>());
}

fn an_empty_version_is_a_version(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    put(&store, environment, &simple(&["a", "b"])).unwrap();
    let empty = put(&store, environment, &[]).unwrap();
    assert_eq!((empty.total, empty.removed), (0, 2));
    assert!(store.versions().load(environment, empty.number).unwrap().resources.is_empty());
}

fn equal_resources_are_counted_as_unchanged(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let first = put(&store, environment, &simple(&["a", "b", "c"])).unwrap();
    let mut resources = simple(&["a", "c", "d"]);
    resources[1] = resource(&named("c"), 2, &[]);
    let second = put(&store, environment, &resources).unwrap();
    assert_eq!((second.added, second.changed, second.removed, second.total), (1, 1, 1, 3));
    assert_eq!((second.keys[0], second.keys[1]), (first.keys[0], first.keys[2]));
    let info = store.versions().list(environment).unwrap().pop().unwrap();
    assert_eq!((info.added, info.changed, info.removed, info.total), (1, 1, 1, 3));
}

fn nothing_is_stored_for_an_equal_version_on_request(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let resources = simple(&["a", "b"]);
    let ask = NewVersion { only_if_changed: true, ..new_version(&resources) };
    let first = store.versions().put(environment, &ask).unwrap();
    assert!(first.created);
    let second = store.versions().put(environment, &ask).unwrap();
    assert_eq!((second.created, second.number, second.total), (false, first.number, 2));
    assert_eq!(second.keys, first.keys);
    let fewer = NewVersion { resources: &resources[..1], ..ask };
    assert!(store.versions().put(environment, &fewer).unwrap().created);
    assert_eq!(store.versions().list(environment).unwrap().len(), 2);
}

fn every_part_of_a_resource_makes_a_difference(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let changes: [fn(&mut Resource); 6] = [
        |one| *one = resource(&one.id, 7, &[]),
        |one| one.requires = vec![named("a")],
        |one| one.flags.send_event = true,
        |one| one.flags.receive_events = false,
        |one| one.set = Some("some".into()),
        |one| one.set = Some("".into()),
    ];
    for change in changes {
        let before = simple(&["a", "b"]);
        let first = put(&store, environment, &before).unwrap();
        let mut after = before.clone();
        change(&mut after[1]);
        let second = put(&store, environment, &after).unwrap();
        assert_eq!((second.added, second.changed, second.removed), (0, 1, 0));
        let mut found = Vec::new();
        let see = &mut |difference| found.push(difference);
        store.versions().diff(environment, first.number, second.number, see).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].before.as_ref(), Some(&before[1]));
        assert_eq!(found[0].after.as_ref(), Some(&after[1]));
        assert_eq!(store.versions().load(environment, second.number).unwrap().resources, after);
    }
}

fn a_moved_source_is_no_difference(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let mut resources = simple(&["a", "b"]);
    let source = |line| Some(Source { file: "main.cf".into(), line, column: 1 });
    resources[0].source = source(1);
    let first = put(&store, environment, &resources).unwrap();
    resources[0].source = source(2);
    resources[1].source = Some(Source { file: "other.cf".into(), line: 9, column: 4 });
    let ask = NewVersion { only_if_changed: true, ..new_version(&resources) };
    let second = store.versions().put(environment, &ask).unwrap();
    assert!(!second.created);
    // The source location is the current one.
    let loaded = store.versions().load(environment, first.number).unwrap();
    assert_eq!(loaded.resources, resources);
    resources[1].source = None;
    let third = put(&store, environment, &resources).unwrap();
    assert_eq!(third.changed, 0);
    let loaded = store.versions().load(environment, third.number).unwrap();
    assert_eq!(loaded.resources, resources);
}

fn old_versions_stay_as_they_were(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let mut history: BTreeMap<VersionNumber, Vec<Resource>> = BTreeMap::new();
    for step in 0..6 {
        let mut resources = simple(&["a", "b", "c", "d"]);
        resources.remove(step % 4);
        resources[0] = resource(&resources[0].id.clone(), u32::try_from(step / 2).unwrap(), &[]);
        let number = put(&store, environment, &resources).unwrap().number;
        history.insert(number, resources);
    }
    for (number, resources) in &history {
        let loaded = store.versions().load(environment, *number).unwrap();
        assert_eq!(&loaded.resources, resources, "version {number}");
    }
}

fn versions_put_out_of_order_are_read_right(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let early = store.versions().reserve(environment).unwrap();
    let late = store.versions().reserve(environment).unwrap();
    let (of_late, of_early) = (simple(&["a", "b"]), simple(&["b", "c"]));
    let numbered = |number, resources| NewVersion {
        number: Some(number),
        released: false,
        ..new_version(resources)
    };
    store.versions().put(environment, &numbered(late, &of_late)).unwrap();
    store.versions().put(environment, &numbered(early, &of_early)).unwrap();
    assert_eq!(store.versions().load(environment, late).unwrap().resources, of_late);
    assert_eq!(store.versions().load(environment, early).unwrap().resources, of_early);
    let mut names = Vec::new();
    let see = &mut |difference: orrery_store::ResourceDiff| {
        names.push((difference.id.value().to_owned(), difference.after.is_some()));
    };
    store.versions().diff(environment, early, late, see).unwrap();
    assert_eq!(names, [("a".to_owned(), true), ("c".to_owned(), false)]);
}

fn numbers_are_reserved_once(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let first = store.versions().reserve(environment).unwrap();
    let second = put(&store, environment, &[]).unwrap().number;
    assert_eq!((first, second), (VersionNumber(1), VersionNumber(2)));
    let with = |number| NewVersion { number: Some(VersionNumber(number)), ..new_version(&[]) };
    let refused = |number| store.versions().put(environment, &with(number)).unwrap_err();
    assert!(matches!(refused(0), StoreError::VersionNotReserved(_)));
    assert!(matches!(refused(3), StoreError::VersionNotReserved(_)));
    assert!(matches!(refused(2), StoreError::VersionExists(_)));
    assert_eq!(store.versions().put(environment, &with(1)).unwrap().number, first);
}

fn impossible_versions_are_refused_and_leave_nothing(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let twice = simple(&["a", "a"]);
    let error = put(&store, environment, &twice).unwrap_err();
    assert!(matches!(&error, StoreError::DuplicateResource(id) if id.contains("name=a")));
    let dangling = [resource(&named("a"), 1, &[&named("missing")])];
    let error = put(&store, environment, &dangling).unwrap_err().to_string();
    assert_eq!(
        error,
        "t::R[agent,name=a] requires t::R[agent,name=missing], which is not in the version"
    );
    assert!(store.versions().list(environment).unwrap().is_empty());
    assert!(store.resources().find(environment, named("a").as_str()).unwrap().is_none());
    assert!(store.agents().states(environment).unwrap().is_empty());
    assert_eq!(put(&store, environment, &[]).unwrap().number, VersionNumber(1));
    let missing = VersionNumber(9);
    assert!(matches!(
        store.versions().load(environment, missing),
        Err(StoreError::NoVersion(number)) if number == missing
    ));
}

fn in_set(name: &str, value: u32, set: Option<&str>, requires: &[&str]) -> Resource {
    let requires: Vec<_> = requires.iter().map(|name| named(name)).collect();
    let mut created = resource(&named(name), value, &requires.iter().collect::<Vec<_>>());
    created.set = set.map(Into::into);
    created
}

fn a_put_of_some_sets_leaves_the_others(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let all = [
        in_set("a1", 1, Some("a"), &["s"]),
        in_set("a2", 1, Some("a"), &[]),
        in_set("b1", 1, Some("b"), &["s"]),
        in_set("s", 1, None, &[]),
    ];
    put(&store, environment, &all).unwrap();
    let given = [
        in_set("a1", 2, Some("a"), &["s", "s2"]),
        in_set("a3", 1, Some("a"), &["a1"]),
        in_set("s2", 1, None, &[]),
    ];
    let sets = [Some("a".into()), Some("never seen".into())];
    let scope = PutScope::Sets(&sets);
    let partial = NewVersion { scope, only_if_changed: true, ..new_version(&given) };
    let stored = store.versions().put(environment, &partial).unwrap();
    assert_eq!((stored.added, stored.changed, stored.removed, stored.total), (2, 1, 1, 5));
    let mut expected =
        [given[0].clone(), given[1].clone(), all[2].clone(), all[3].clone(), given[2].clone()];
    expected.sort_by(|a, b| a.id.cmp(&b.id));
    let loaded = store.versions().load(environment, stored.number).unwrap();
    assert_eq!(loaded.resources, expected);
    assert!(!store.versions().put(environment, &partial).unwrap().created);

    let dangling = [in_set("a1", 2, Some("a"), &["a3"])];
    let partial = NewVersion { resources: &dangling, ..partial };
    let error = store.versions().put(environment, &partial).unwrap_err();
    assert!(matches!(error, StoreError::DanglingRequires { .. }), "{error}");

    let partial = NewVersion { resources: &[], ..partial };
    let stored = store.versions().put(environment, &partial).unwrap();
    assert_eq!((stored.removed, stored.total), (2, 3));
}

fn a_put_of_the_shared_set_leaves_the_others(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let all =
        [in_set("a1", 1, Some("a"), &[]), in_set("s1", 1, None, &[]), in_set("s2", 1, None, &[])];
    put(&store, environment, &all).unwrap();
    let given = [in_set("s2", 2, None, &[])];
    let sets = [None];
    let partial = NewVersion { scope: PutScope::Sets(&sets), ..new_version(&given) };
    let stored = store.versions().put(environment, &partial).unwrap();
    assert_eq!((stored.added, stored.changed, stored.removed, stored.total), (0, 1, 1, 2));
    let loaded = store.versions().load(environment, stored.number).unwrap();
    assert_eq!(loaded.resources, [all[0].clone(), given[0].clone()]);
}

fn releases_go_forward_only(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let candidate = NewVersion { released: false, ..new_version(&[]) };
    let numbers: Vec<VersionNumber> =
        (0..3).map(|_| store.versions().put(environment, &candidate).unwrap().number).collect();
    let at = Timestamp(2_000_000);
    store.versions().release(environment, numbers[1], at).unwrap();
    let again =
        store.versions().release(environment, numbers[1], Timestamp(3_000_000)).unwrap_err();
    assert!(matches!(again, StoreError::AlreadyReleased(_)));
    let older = store.versions().release(environment, numbers[0], at).unwrap_err();
    assert!(matches!(older, StoreError::Superseded { .. }));
    store.versions().release(environment, numbers[2], Timestamp(4_000_000)).unwrap();
    let at_once = NewVersion { made_at: Timestamp(5_000_000), ..new_version(&[]) };
    store.versions().put(environment, &at_once).unwrap();
    let versions = store.versions().list(environment).unwrap();
    let released: Vec<bool> = versions.iter().map(|version| version.released).collect();
    assert_eq!(released, [false, true, true, true]);
    let times: Vec<Option<i64>> =
        versions.iter().map(|version| version.released_at.map(|at| at.0)).collect();
    assert_eq!(times, [None, Some(2_000_000), Some(4_000_000), Some(5_000_000)]);
}

fn versions_in_use_are_not_deleted(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let lease = lease(&store, environment);
    let processed = put(&store, environment, &simple(&["a"])).unwrap().number;
    let middle = put(&store, environment, &simple(&["b"])).unwrap().number;
    let released = put(&store, environment, &simple(&["c"])).unwrap().number;
    store.engine().process_version(&lease, processed, &[]).unwrap();
    for number in [processed, released] {
        let error = store.versions().delete(environment, number).unwrap_err();
        assert!(matches!(error, StoreError::VersionInUse(_)), "{error}");
    }
    store.versions().delete(environment, middle).unwrap();
    assert!(matches!(store.versions().delete(environment, middle), Err(StoreError::NoVersion(_))));
    assert_eq!(store.versions().retain(environment, 0).unwrap(), []);
}

fn deleting_the_newest_brings_the_one_before_back(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let before = variety();
    let first = put(&store, environment, &before).unwrap();
    let mut after = before.clone();
    after.remove(2);
    after[0] = resource(&after[0].id.clone(), 9, &[]);
    after.push(resource(&named("new"), 1, &[]));
    let candidate = NewVersion { released: false, ..new_version(&after) };
    let second = store.versions().put(environment, &candidate).unwrap();
    store.versions().delete(environment, second.number).unwrap();
    assert_eq!(store.versions().load(environment, first.number).unwrap().resources, before);
    assert!(store.resources().find(environment, named("new").as_str()).unwrap().is_none());
    // It is deleted completely: the first is the newest again.
    let ask = NewVersion { only_if_changed: true, ..new_version(&before) };
    let again = store.versions().put(environment, &ask).unwrap();
    assert_eq!((again.created, again.number), (false, first.number));
    assert_eq!(put(&store, environment, &after).unwrap().number, VersionNumber(3));
}

fn resources_without_a_version_are_deleted(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let lease = lease(&store, environment);
    let resources = [resource(&id("t::Old[gone,name=a]"), 1, &[])];
    let first = put(&store, environment, &resources).unwrap();
    let state = deployed(&resources[0], Timestamp(1));
    let result = orrery_store::ResultRecord {
        state: Some(&state),
        ..crate::support::empty_result(first.keys[0])
    };
    store.engine().record_results(&lease, &[result]).unwrap();
    put(&store, environment, &simple(&["b"])).unwrap();
    assert!(store.resources().find(environment, resources[0].id.as_str()).unwrap().is_some());
    store.versions().delete(environment, first.number).unwrap();
    assert!(store.resources().find(environment, resources[0].id.as_str()).unwrap().is_none());
    let agents = store.agents().states(environment).unwrap();
    assert_eq!(agents.iter().map(|agent| &*agent.name).collect::<Vec<_>>(), ["agent"]);
    let again = put(&store, environment, &resources).unwrap();
    assert_ne!(again.keys, first.keys);
}

fn retention_deletes_the_oldest_versions(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let mut history = Vec::new();
    for value in 0..5 {
        let resources = [resource(&named("a"), value, &[]), resource(&named("b"), value / 2, &[])];
        history.push((put(&store, environment, &resources).unwrap().number, resources));
    }
    let deleted = store.versions().retain(environment, 2).unwrap();
    assert_eq!(deleted, [VersionNumber(1), VersionNumber(2), VersionNumber(3)]);
    for (number, resources) in &history[3..] {
        let loaded = store.versions().load(environment, *number).unwrap();
        assert_eq!(loaded.resources, resources);
    }
}

fn environments_share_nothing(backend: Backend) {
    let store = backend.fresh();
    let one = store.environments().create("project", "one").unwrap().key;
    let two = store.environments().create("project", "two").unwrap().key;
    let mut numbers = Vec::new();
    for value in 0..3 {
        numbers.push(put(&store, one, &[resource(&named("a"), value, &[])]).unwrap().number);
        put(&store, two, &[resource(&named("a"), 100 + value, &[])]).unwrap();
    }
    store.versions().delete(two, numbers[1]).unwrap();
    store.versions().delete(one, numbers[0]).unwrap();
    let value = |environment, number: VersionNumber| {
        let version = store.versions().load(environment, number).unwrap();
        version.resources[0].attributes.as_str().to_owned()
    };
    assert_eq!(value(one, numbers[1]), r#"{"value":1}"#);
    assert_eq!(value(one, numbers[2]), r#"{"value":2}"#);
    assert_eq!(value(two, numbers[0]), r#"{"value":100}"#);
    assert_eq!(value(two, numbers[2]), r#"{"value":102}"#);
    let mut found = 0;
    store.versions().diff(two, numbers[0], numbers[2], &mut |_| found += 1).unwrap();
    assert_eq!(found, 1);
}

fn unknowns_belong_to_their_version(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let unknowns = [
        UndefinedParameter { name: "b".to_owned(), resource: None, source: "user".to_owned() },
        UndefinedParameter {
            name: "ip".to_owned(),
            resource: Some(named("a")),
            source: "fact".to_owned(),
        },
    ];
    let resources = simple(&["a"]);
    let new = NewVersion { unknowns: &unknowns, ..new_version(&resources) };
    let first = store.versions().put(environment, &new).unwrap().number;
    let second = put(&store, environment, &resources).unwrap().number;
    let expected = unknowns.map(|unknown| (unknown, false));
    assert_eq!(store.versions().unknowns(environment, first).unwrap(), expected);
    assert!(store.versions().unknowns(environment, second).unwrap().is_empty());
    store.versions().delete(environment, first).unwrap();
    assert!(store.versions().unknowns(environment, first).unwrap().is_empty());
}
