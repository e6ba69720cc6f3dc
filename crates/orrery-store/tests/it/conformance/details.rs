//! Details of resources: one and many at once, their history and their relations.

use orrery_model::{Resource, Source, Status, Timestamp, VersionNumber};
use orrery_store::{
    EnvironmentKey, NewVersion, ResourceFilter, ResourceQuery, StateRecord, StoreError,
};

use crate::support::{Backend, deployed, lease, named, new_version, put, resource};

super::list_cases![
    details_of_many_come_in_their_order,
    details_name_files_and_sets,
    resources_tell_their_history,
    dependents_are_found,
    a_pending_release_is_not_reported_as_deployed,
    dependents_come_in_pages,
];

fn details_of_many_come_in_their_order(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let ids: Vec<_> = (0..150).map(|number| named(&format!("{number:03}"))).collect();
    let wants = |number: usize| resource(&ids[number], u32::try_from(number).unwrap(), &[]);
    let all: Vec<_> = (0..ids.len()).map(wants).collect();
    put(&store, environment, &all).unwrap();
    // The last ones are not managed any more, and never were deployed.
    put(&store, environment, &all[..140]).unwrap();
    for count in [0, 1, 2, 3, 5, 64, 65, 150] {
        // Backwards, one of them twice, and with one that never existed in the middle.
        let mut asked: Vec<_> = (0..count).rev().map(Some).collect();
        if count > 2 {
            asked.insert(1, Some(2));
            asked.insert(count / 2, None);
        }
        let names: Vec<_> = asked
            .iter()
            .map(|number| {
                (environment, number.map_or("t::R[agent,name=no]", |at| ids[at].as_str()))
            })
            .collect();
        let found = store.resources().details(&names).unwrap();
        assert_eq!(found.len(), asked.len());
        for (asked, found) in asked.iter().zip(&found) {
            let Some(number) = asked.filter(|number| *number < 140) else {
                assert!(found.is_none(), "{asked:?}");
                continue;
            };
            let found = found.as_ref().unwrap();
            assert_eq!(found.line.summary.id, ids[number]);
            assert_eq!(found.attributes, all[number].attributes);
            assert_eq!(found.line.summary.status, Status::Available, "{number}");
        }
    }
}

/// Resources of one environment are read by another statement than those of several, and names come
/// from a cache after the first read.
fn details_name_files_and_sets(backend: Backend) {
    let store = backend.fresh();
    let environments = ["one", "two"].map(|name| store.environments().create("p", name).unwrap());
    let ids = ["a", "b", "gone"].map(named);
    let (mut asked, mut expected) = (Vec::new(), Vec::new());
    for environment in &environments {
        let resources = ids.each_ref().map(|id| {
            let mut resource = resource(id, 1, &[]);
            if *id != ids[0] {
                resource.set = Some(format!("set of {}", environment.name).into());
                let file = format!("{}.cf", environment.name).into();
                resource.source = Some(Source { file, line: 3, column: 7 });
            }
            resource
        });
        let key = environment.key;
        let stored = put(&store, key, &resources).unwrap();
        let states = resources.each_ref().map(|wanted| deployed(wanted, Timestamp(7)));
        let states = stored.keys.iter().copied().zip(&states);
        let states: Vec<_> =
            states.map(|(resource, state)| StateRecord { resource, state }).collect();
        let lease = lease(&store, key);
        store.engine().process_version(&lease, stored.number, &states).unwrap();
        put(&store, key, &resources[..2]).unwrap();
        for resource in &resources {
            asked.push((key, resource.id.as_str().to_owned()));
            // An orphan is in no set.
            let set = resource.set.as_deref().filter(|_| resource.id != ids[2]);
            let file = resource.source.as_ref().map(|source| source.to_string());
            expected.push((set.map(str::to_owned), file));
        }
    }
    let read = |asked: &[(EnvironmentKey, String)]| -> Vec<_> {
        let names: Vec<_> = asked.iter().map(|(key, name)| (*key, name.as_str())).collect();
        let found = store.resources().details(&names).unwrap();
        found
            .into_iter()
            .map(|found| {
                let line = found.unwrap().line;
                (line.set, line.summary.source.map(|source| source.to_string()))
            })
            .collect()
    };
    for _ in 0..2 {
        assert_eq!(read(&asked), expected, "of both environments");
        assert_eq!(read(&asked[..3]), expected[..3], "of the first");
        assert_eq!(read(&asked[3..]), expected[3..], "of the second");
        for ((key, name), (_, source)) in asked.iter().zip(&expected) {
            let line = store.resources().line(*key, name).unwrap();
            assert_eq!(line.summary.source.map(|source| source.to_string()), *source);
        }
    }
}

fn dependents_are_found(backend: Backend) {
    let store = backend.fresh();
    let (records, environment) = (&store, store.environments().ensure_default().unwrap());
    // So many that the numbers of some are parts of those of others, and each with the three before
    // it.
    let ids: Vec<_> = (0..400).map(|number| named(&format!("{number:03}"))).collect();
    let requiring = |number: usize, count: usize| {
        let before: Vec<_> = ids[number.saturating_sub(count)..number].iter().collect();
        resource(&ids[number], 1, &before)
    };
    let all: Vec<_> = (0..ids.len()).map(|number| requiring(number, 3)).collect();
    put(&store, environment, &all).unwrap();
    let found = |number: usize, limit| {
        let keys =
            records.resources().dependents(environment, ids[number].as_str(), limit).unwrap();
        let mut found: Vec<String> =
            records.resources().statuses(&keys).unwrap().into_values().map(|(id, _)| id).collect();
        found.sort_unstable();
        found
    };
    let names = |range: std::ops::Range<usize>| -> Vec<String> {
        ids[range].iter().map(ToString::to_string).collect()
    };
    for number in 0..ids.len() {
        let end = (number + 4).min(ids.len());
        assert_eq!(found(number, 10), names(number + 1..end), "{number}");
    }
    assert_eq!(found(7, 2), names(8..10), "the first of them");
    // Removed resources, and dropped requirements, do not count.
    let fewer: Vec<_> = (0..200).map(|number| requiring(number, 1)).collect();
    put(&store, environment, &fewer).unwrap();
    assert_eq!(found(7, 10), names(8..9));
    assert_eq!(found(199, 10), [""; 0]);
    let unknown = records.resources().dependents(environment, "t::R[agent,name=no]", 10);
    assert!(matches!(unknown, Err(StoreError::NoResource(_))));
}

fn dependents_come_in_pages(backend: Backend) {
    let store = backend.fresh();
    let (records, environment) = (&store, store.environments().ensure_default().unwrap());
    // Every other one requires the first, whose number is the end of those of some that the others
    // require.
    let ids: Vec<_> = (0..1_200).map(|number| named(&format!("{number:04}"))).collect();
    let wants = |number: usize| {
        let requires = if number.is_multiple_of(2) { &ids[..1] } else { &ids[number - 1..number] };
        let requires: Vec<_> = requires.iter().filter(|id| **id != ids[number]).collect();
        resource(&ids[number], 1, &requires)
    };
    let all: Vec<_> = (0..ids.len()).map(wants).collect();
    put(&store, environment, &all).unwrap();
    let wanted: Vec<String> = std::iter::once(1)
        .chain((2..ids.len()).step_by(2))
        .map(|number| ids[number].to_string())
        .collect();
    for limit in [1, 7, 300, 1_000] {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let page = records
                .resources()
                .dependents_after(environment, ids[0].as_str(), &after, limit)
                .unwrap();
            assert!(page.len() <= limit, "{} of {limit}", page.len());
            let is_last = page.len() < limit;
            found.extend(page.into_iter().map(|(_, id)| id));
            if is_last {
                break;
            }
            after = found.last().unwrap().clone();
        }
        assert!(found == wanted, "{limit}: {} of {}", found.len(), wanted.len());
    }
    let none = records
        .resources()
        .dependents_after(environment, ids[0].as_str(), wanted.last().unwrap(), 10)
        .unwrap();
    assert_eq!(none, [], "nothing follows the last");
}

fn resources_tell_their_history(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let (a, b) = (named("a"), named("b"));
    let first = [resource(&a, 1, &[]), resource(&b, 1, &[&a])];
    let stored = put(&store, environment, &first).unwrap();
    put(&store, environment, &[resource(&a, 2, &[]), first[1].clone()]).unwrap();
    assert_eq!(store.versions().newest(environment).unwrap(), Some(VersionNumber(2)));
    let history = store.resources().history(environment, a.as_str()).unwrap();
    let versions: Vec<u32> = history.iter().map(|entry| entry.version.0).collect();
    assert_eq!(versions.len(), 2, "{versions:?}");
    let dependents = store.resources().dependents(environment, a.as_str(), 10).unwrap();
    let statuses = store.resources().statuses(&dependents).unwrap();
    assert_eq!(statuses[&stored.keys[1]], (b.to_string(), Status::Available));
    let details =
        store.resources().details(&[(environment, b.as_str())]).unwrap().remove(0).unwrap();
    assert_eq!(details.line.summary.id, b);
    assert_eq!(details.requires, [stored.keys[0]]);
    assert_eq!(details.attributes, first[1].attributes);
    let standings = store
        .versions()
        .newest_revisions(environment, &[b.as_str(), "t::R[agent,name=no]"])
        .unwrap();
    assert_eq!(standings.len(), 2);
    assert_eq!(standings[0].as_ref().unwrap().requires, [a.to_string()]);
    assert!(standings[1].is_none());
    let filter = ResourceFilter::default();
    let (old, next) =
        store.versions().resources(environment, stored.number, &filter, None, 1).unwrap();
    assert_eq!((&*old[0].id, next.is_some()), (a.as_str(), true));
    assert!(old[0].attributes.contains('1'), "{}", old[0].attributes);
    let line = store.resources().line(environment, a.as_str()).unwrap();
    assert_eq!(line.summary.status, Status::Available);
    let counts = store.resources().count(environment).unwrap();
    assert_eq!(counts.iter().map(|count| count.count).sum::<u64>(), 2);
}

fn a_pending_release_is_not_reported_as_deployed(backend: Backend) {
    let store = backend.fresh();
    let (records, environment) = (&store, store.environments().ensure_default().unwrap());
    let ids = ["changed", "gone", "same", "vague"].map(named);
    let first: Vec<Resource> = ids.iter().map(|id| resource(id, 1, &[])).collect();
    let stored = put(&store, environment, &first).unwrap();
    let states: Vec<_> = first.iter().map(|one| deployed(one, Timestamp(7))).collect();
    let records_of = |(resource, state)| StateRecord { resource, state };
    let states: Vec<_> = stored.keys.iter().copied().zip(&states).map(records_of).collect();
    let lease = lease(&store, environment);
    store.engine().process_version(&lease, stored.number, &states).unwrap();

    // Through every query.
    let is_now = |expected: [Status; 4]| {
        let every = ResourceQuery { statuses: Status::ALL.to_vec(), ..ResourceQuery::default() };
        let listed = records.resources().list(environment, &every, None, 10).unwrap();
        let listed: Vec<Status> = listed.lines.iter().map(|line| line.summary.status).collect();
        assert_eq!(listed, expected, "listed");
        let asked: Vec<_> = ids.iter().map(|id| (environment, id.as_str())).collect();
        let details = records.resources().details(&asked).unwrap();
        let statuses = records.resources().statuses(&stored.keys).unwrap();
        for (at, id) in ids.iter().enumerate() {
            let line = records.resources().line(environment, id.as_str()).unwrap();
            assert_eq!(line.summary.status, expected[at], "{id}");
            let found = store.resources().find(environment, id.as_str()).unwrap().unwrap();
            assert_eq!(found.status, expected[at], "{id} on the machine itself");
            let details = details[at].as_ref().unwrap();
            assert_eq!(details.line.summary.status, expected[at], "details of {id}");
            assert_eq!(statuses[&stored.keys[at]].1, expected[at], "one of many: {id}");
        }
        let counted = store.resources().count_statuses(environment).unwrap();
        let mut counts = std::collections::BTreeMap::new();
        expected.iter().for_each(|status| *counts.entry(*status).or_insert(0) += 1);
        assert_eq!(counted, counts, "counted");
        let orphans = counts.get(&Status::Orphaned).copied().unwrap_or(0);
        let everything = [("", "u")];
        let count =
            |orphans| records.resources().count_listed(environment, &everything, orphans).unwrap();
        assert_eq!((count(false), count(true)), (4 - orphans, 4));
    };
    is_now([Status::Deployed; 4]);

    let mut vague = resource(&ids[3], 1, &[]);
    vague.flags.undefined = true;
    let next = [resource(&ids[0], 2, &[]), first[2].clone(), vague];
    let candidate = NewVersion { released: false, ..new_version(&next) };
    let candidate = store.versions().put(environment, &candidate).unwrap();
    is_now([Status::Deployed; 4]);
    store.versions().release(environment, candidate.number, Timestamp(8)).unwrap();
    let ahead = [Status::Available, Status::Orphaned, Status::Deployed, Status::Undefined];
    is_now(ahead);

    // The engine's state counts as soon as it has processed the version, even if it differs.
    store.engine().process_version(&lease, candidate.number, &[]).unwrap();
    is_now([Status::Deployed; 4]);
}
