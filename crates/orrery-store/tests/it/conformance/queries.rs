//! Queries: lists, pages, counts.

use orrery_model::{
    Change, ChangeKind, OutcomeStatus, Pattern, Resource, ResourceState, Status, Timestamp,
};
use orrery_store::{
    ActionKey, ActionRecord, EnvironmentKey, ResourceQuery, ResultRecord, RunTimes, Store,
    StoreError, resource_keys,
};

use crate::support::{
    Backend, Fresh, action, deployed, empty_result, id, lease, named, put, resource, simple,
};

super::list_cases![
    lists_are_filtered,
    pages_walk_over_everything,
    statuses_are_derived_from_states,
    orphans_are_shown_on_request,
    one_resource_is_found_by_its_id,
    the_desired_state_of_a_resource_is_read,
    run_times_are_summed_by_outcome,
];

const IDS: [&str; 7] = [
    "a::B::C[one,name=x]",
    "a::B[one,name=x]",
    "a::B[one,name=y/1]",
    "a::B[one-b,name=x]",
    "a::B[two,name=y/2]",
    "c::D[one,name=y/3]",
    "c::D[two,name=z,name=w]",
];

fn stocked(backend: Backend) -> (Fresh, EnvironmentKey) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let mut resources: Vec<Resource> = IDS.iter().map(|text| resource(&id(text), 1, &[])).collect();
    resources.sort_by(|a, b| a.id.cmp(&b.id));
    put(&store, environment, &resources).unwrap();
    (store, environment)
}

fn listed(store: &Store, environment: EnvironmentKey, filter: &ResourceQuery) -> Vec<String> {
    let page = store.resources().list(environment, filter, None, 100).unwrap();
    assert_eq!(page.next, None);
    page.lines.iter().map(|found| found.summary.id.to_string()).collect()
}

fn lists_are_filtered(backend: Backend) {
    let (store, environment) = stocked(backend);
    let texts = [None, Some("one"), Some("two"), Some("none")];
    let entities = [None, Some("a::B"), Some("c::D"), Some("a")];
    let values = [None, Some("y/*"), Some("x"), Some("*name*")];
    let mut found_any = 0;
    for agent in texts {
        for entity in entities {
            for value in values {
                let filter = ResourceQuery {
                    agent: agent.map(str::to_owned),
                    entity: entity.map(str::to_owned),
                    value: value.map(Pattern::new),
                    ..ResourceQuery::default()
                };
                let mut expected: Vec<String> = IDS
                    .iter()
                    .map(|text| id(text))
                    .filter(|id| agent.is_none_or(|agent| id.agent() == agent))
                    .filter(|id| entity.is_none_or(|entity| id.entity() == entity))
                    .filter(|id| match value {
                        None => true,
                        Some("y/*") => id.value().starts_with("y/"),
                        Some("x") => id.value() == "x",
                        Some(_) => id.value().contains("name"),
                    })
                    .map(|id| id.to_string())
                    .collect();
                expected.sort();
                found_any += usize::from(!expected.is_empty());
                assert_eq!(listed(&store, environment, &filter), expected, "{filter:?}");
            }
        }
    }
    assert!(found_any > 15);
}

fn pages_walk_over_everything(backend: Backend) {
    let (store, environment) = stocked(backend);
    for agent in [None, Some("one".to_owned())] {
        let filter = ResourceQuery { agent, ..ResourceQuery::default() };
        let all = listed(&store, environment, &filter);
        for limit in 1..9 {
            let (mut walked, mut after) = (Vec::new(), None);
            loop {
                let page =
                    store.resources().list(environment, &filter, after.as_deref(), limit).unwrap();
                assert!(page.lines.len() <= limit);
                walked.extend(page.lines.iter().map(|found| found.summary.id.to_string()));
                after = page.next;
                if after.is_none() {
                    break;
                }
                assert_eq!(after.as_ref(), walked.last());
            }
            assert_eq!(walked, all, "limit {limit}");
        }
    }
}

fn run_times_are_summed_by_outcome(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let lease = lease(&store, environment);
    let stored = put(&store, environment, &simple(&["a", "b", "c"])).unwrap();
    let changed = Change { kind: ChangeKind::Updated, attributes: Vec::new() };
    let run = |at: i64, outcome, change| {
        let own = action(stored.number, at, change, &[]);
        ActionRecord { started: Timestamp(at - 5), finished: Timestamp(at), outcome, ..own }
    };
    let (deployed, failed) = (OutcomeStatus::Deployed, OutcomeStatus::Failed);
    let none = Change::default();
    let actions = [run(10, deployed, &changed), run(11, deployed, &none), run(12, failed, &none)];
    let results: Vec<ResultRecord<'_>> = std::iter::zip(&stored.keys, actions)
        .map(|(key, action)| ResultRecord { action: Some(action), ..empty_result(*key) })
        .collect();
    store.engine().record_results(&lease, &results).unwrap();
    let newest = store.actions().newest().unwrap();
    let sums = |after: i64, from: i64, until: i64| {
        let found = store.actions().run_times(ActionKey(after), Timestamp(from), Timestamp(until));
        let sum = |one: &RunTimes| (one.outcome, one.count, one.took, one.changed);
        found.unwrap().iter().map(sum).collect::<Vec<_>>()
    };
    assert_eq!(sums(0, 0, 13), [(deployed, 2, 10, 1), (failed, 1, 5, 0)]);
    assert_eq!(sums(0, 11, 12), [(deployed, 1, 5, 0)], "the end is exclusive");
    assert_eq!(sums(newest.0, 0, 13), []);
}

fn statuses_are_derived_from_states(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let lease = lease(&store, environment);
    let mut resources = simple(&["a", "b", "c"]);
    resources[2].flags.undefined = true;
    let stored = put(&store, environment, &resources).unwrap();
    let state = deployed(&resources[1], Timestamp(1));
    let result = ResultRecord { state: Some(&state), ..empty_result(stored.keys[1]) };
    store.engine().record_results(&lease, &[result]).unwrap();
    let counts = store.resources().count_statuses(environment).unwrap();
    let expected = [(Status::Deployed, 1), (Status::Available, 1), (Status::Undefined, 1)];
    assert_eq!(counts, expected.into_iter().collect());
    for (status, name) in
        [(Status::Deployed, "b"), (Status::Available, "a"), (Status::Undefined, "c")]
    {
        let filter = ResourceQuery { statuses: vec![status], ..ResourceQuery::default() };
        assert_eq!(listed(&store, environment, &filter), [named(name).to_string()]);
    }
    let filter = ResourceQuery {
        statuses: vec![Status::Deployed, Status::Available],
        ..ResourceQuery::default()
    };
    assert_eq!(listed(&store, environment, &filter).len(), 2);
}

fn orphans_are_shown_on_request(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let lease = lease(&store, environment);
    let resources = simple(&["a", "b"]);
    let stored = put(&store, environment, &resources).unwrap();
    put(&store, environment, &resources[..1]).unwrap();
    let orphan = ResourceState { intent: None, ..deployed(&resources[1], Timestamp(1)) };
    let result = ResultRecord { state: Some(&orphan), ..empty_result(stored.keys[1]) };
    store.engine().record_results(&lease, &[result]).unwrap();
    let all = listed(&store, environment, &ResourceQuery::default());
    assert_eq!(all, [named("a").to_string()]);
    let filter = ResourceQuery { statuses: vec![Status::Orphaned], ..ResourceQuery::default() };
    assert_eq!(listed(&store, environment, &filter), [named("b").to_string()]);
    assert_eq!(store.resources().count_statuses(environment).unwrap()[&Status::Orphaned], 1);
}

fn one_resource_is_found_by_its_id(backend: Backend) {
    let (store, environment) = stocked(backend);
    let found = store.resources().find(environment, IDS[1]).unwrap().unwrap();
    assert_eq!((found.id.as_str(), found.status), (IDS[1], Status::Available));
    assert!(store.resources().find(environment, "a::B[one,name=").unwrap().is_none());
    assert!(store.resources().find(environment, "a::B[one,name=x]x").unwrap().is_none());
    let keys = resource_keys(&store, environment, [&id(IDS[1])]).unwrap();
    assert_eq!(keys[&id(IDS[1])], found.key);
    let missing = resource_keys(&store, environment, [&id("a::B[no,name=x]")]).unwrap_err();
    assert!(matches!(missing, StoreError::NoResource(_)));
}

fn the_desired_state_of_a_resource_is_read(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let mut first = vec![resource(&named("a"), 1, &[]), resource(&named("b"), 1, &[&named("a")])];
    put(&store, environment, &first).unwrap();
    first[0] = resource(&named("a"), 2, &[]);
    put(&store, environment, &first).unwrap();
    put(&store, environment, &first[..1]).unwrap();
    // Also for a removed resource, as long as a version has it.
    for wanted in &first {
        let found = store.resources().read(environment, wanted.id.as_str()).unwrap();
        assert_eq!(found.as_ref(), Some(wanted));
    }
    assert_eq!(store.resources().read(environment, named("c").as_str()).unwrap(), None);
}
