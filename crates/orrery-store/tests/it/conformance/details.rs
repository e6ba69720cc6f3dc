//! Details of resources: one and many at once, their history and their relations.

use orrery_model::{Status, VersionNumber};
use orrery_store::{ResourceFilter, StoreError};

use crate::support::{Backend, named, put, resource};

super::list_cases![
    details_of_many_come_in_their_order,
    resources_tell_their_history,
    what_requires_a_resource_is_found,
];

fn details_of_many_come_in_their_order(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    let environment = store.default_environment().unwrap();
    let ids: Vec<_> = (0..150).map(|number| named(&format!("{number:03}"))).collect();
    let wants = |number: usize| resource(&ids[number], u32::try_from(number).unwrap(), &[]);
    let all: Vec<_> = (0..ids.len()).map(wants).collect();
    put(&*store, environment, &all).unwrap();
    // The last ones are not wanted any more, and never were deployed.
    put(&*store, environment, &all[..140]).unwrap();
    for count in [0, 1, 2, 3, 5, 64, 65, 150] {
        // Backwards, one of them twice, and with one that there never was in the middle.
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
        let found = records.resource_details(&names).unwrap();
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

fn what_requires_a_resource_is_found(backend: Backend) {
    let store = backend.fresh();
    let (records, environment) = (store.records(), store.default_environment().unwrap());
    // So many that the numbers of some are parts of those of others, and each with the three before it.
    let ids: Vec<_> = (0..400).map(|number| named(&format!("{number:03}"))).collect();
    let requiring = |number: usize, count: usize| {
        let before: Vec<_> = ids[number.saturating_sub(count)..number].iter().collect();
        resource(&ids[number], 1, &before)
    };
    let all: Vec<_> = (0..ids.len()).map(|number| requiring(number, 3)).collect();
    put(&*store, environment, &all).unwrap();
    let found = |number: usize, limit| {
        let keys = records.dependents(environment, ids[number].as_str(), limit).unwrap();
        let mut found: Vec<String> =
            records.statuses_of(&keys).unwrap().into_values().map(|(id, _)| id).collect();
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
    // What is not wanted any more, and what requires less now, does not count.
    let fewer: Vec<_> = (0..200).map(|number| requiring(number, 1)).collect();
    put(&*store, environment, &fewer).unwrap();
    assert_eq!(found(7, 10), names(8..9));
    assert_eq!(found(199, 10), [""; 0]);
    let unknown = records.dependents(environment, "t::R[agent,name=no]", 10);
    assert!(matches!(unknown, Err(StoreError::NoResource(_))));
}

fn resources_tell_their_history(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    let environment = store.default_environment().unwrap();
    let (a, b) = (named("a"), named("b"));
    let first = [resource(&a, 1, &[]), resource(&b, 1, &[&a])];
    let stored = put(&*store, environment, &first).unwrap();
    put(&*store, environment, &[resource(&a, 2, &[]), first[1].clone()]).unwrap();
    assert_eq!(records.newest_version(environment).unwrap(), Some(VersionNumber(2)));
    let history = records.resource_history(environment, a.as_str()).unwrap();
    let versions: Vec<u32> = history.iter().map(|entry| entry.version.0).collect();
    assert_eq!(versions.len(), 2, "{versions:?}");
    let dependents = records.dependents(environment, a.as_str(), 10).unwrap();
    let statuses = records.statuses_of(&dependents).unwrap();
    assert_eq!(statuses[&stored.keys[1]], (b.to_string(), Status::Available));
    let details =
        records.resource_details(&[(environment, b.as_str())]).unwrap().remove(0).unwrap();
    assert_eq!(details.line.summary.id, b);
    assert_eq!(details.requires, [stored.keys[0]]);
    assert_eq!(details.attributes, first[1].attributes);
    let standings = records.standings(environment, &[b.as_str(), "t::R[agent,name=no]"]).unwrap();
    assert_eq!(standings.len(), 2);
    assert_eq!(standings[0].as_ref().unwrap().requires, [a.to_string()]);
    assert!(standings[1].is_none());
    let filter = ResourceFilter::default();
    let (old, next) =
        records.version_resources(environment, stored.number, &filter, None, 1).unwrap();
    assert_eq!((&*old[0].id, next.is_some()), (a.as_str(), true));
    assert!(old[0].attributes.contains('1'), "{}", old[0].attributes);
    let line = records.resource_line(environment, a.as_str()).unwrap();
    assert_eq!(line.summary.status, Status::Available);
    let counts = records.count_resources(environment).unwrap();
    assert_eq!(counts.iter().map(|count| count.count).sum::<u64>(), 2);
}
