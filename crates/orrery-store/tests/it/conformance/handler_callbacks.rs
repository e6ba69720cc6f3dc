//! Values that handlers report while they run, and their expiry.

use orrery_model::{AttributeHash, ResourceState, Timestamp};
use orrery_store::{
    Holder, LeaseRequest, NewDiscovered, NewParameter, ParameterSource, ResultRecord, StoreError,
};

use crate::support::{Backend, empty_result, lease, named, put, simple};

super::list_cases![
    handler_writes_need_the_lease,
    stale_facts_are_expired_facts_of_deployed_resources,
    facts_go_with_the_last_version_and_parameters_stay,
];

fn at(time: i64) -> Timestamp {
    Timestamp(time)
}

/// A process that lost an environment cannot overwrite newer values of another one.
fn handler_writes_need_the_lease(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    let environment = store.default_environment().unwrap();
    put(&*store, environment, &simple(&["a"])).unwrap();
    let take = |time| {
        let holder = Holder::this_process("test", at(time));
        let expires = Some(at(time + 1));
        store.acquire_lease(environment, &LeaseRequest { holder, now: at(time), expires }).unwrap()
    };
    let id = named("a").to_string();
    let new = |value| NewParameter {
        name: "ip",
        value,
        resource: Some(&id),
        source: ParameterSource::Fact,
        expires: true,
        metadata: None,
    };
    let attributes = serde_json::json!({"size": 1});
    let found = [NewDiscovered { name: &id, attributes: &attributes, discovery_resource: &id }];
    let former = take(10);
    let effect = records.put_handler_parameter(&former, &new("1"), at(10), &|_, _| Ok(()));
    assert_eq!(effect.unwrap().changed, 1);
    records.put_handler_discovered(&former, &found, at(10)).unwrap();
    let latter = take(20);
    let late = records.put_handler_parameter(&former, &new("2"), at(21), &|_, _| Ok(()));
    assert!(matches!(late, Err(StoreError::StaleEpoch { .. })), "{late:?}");
    let late = records.put_handler_discovered(&former, &found, at(21));
    assert!(matches!(late, Err(StoreError::StaleEpoch { .. })), "{late:?}");
    assert_eq!(records.parameter(environment, "ip", Some(&id)).unwrap().value, "1");
    assert_eq!(records.discovered_resource(environment, &id).unwrap().discovered_at, at(10));
    // The consequences of a value are committed with it or not at all.
    let refused =
        |_: &mut dyn orrery_store::sql::Sql, _| Err(StoreError::NoResource("x".to_owned()));
    assert!(records.put_handler_parameter(&latter, &new("3"), at(22), &refused).is_err());
    assert_eq!(records.parameter(environment, "ip", Some(&id)).unwrap().value, "1");
}

fn stale_facts_are_expired_facts_of_deployed_resources(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    let environment = store.default_environment().unwrap();
    put(&*store, environment, &simple(&["a", "b", "c", "d"])).unwrap();
    let lease = lease(&*store, environment);
    for (name, expires, time) in [("a", true, 5), ("b", false, 5), ("c", true, 50), ("d", true, 5)]
    {
        let id = named(name);
        let found = store.find_resource(environment, id.as_str()).unwrap().unwrap();
        let mut state = ResourceState::new(AttributeHash([1; 16]), false);
        if name == "d" {
            // It left the version that is deployed.
            state.intent = None;
        }
        let record = ResultRecord { state: Some(&state), ..empty_result(found.key) };
        store.record_results(&lease, &[record]).unwrap();
        for fact in ["x", "y"] {
            let new = NewParameter {
                name: fact,
                value: "1",
                resource: Some(id.as_str()),
                source: ParameterSource::Fact,
                expires,
                metadata: None,
            };
            records.put_parameter(environment, &new, at(time), &|_, _| Ok(())).unwrap();
        }
    }
    let old = records.stale_facts(at(20)).unwrap();
    assert_eq!(old, [(environment, vec![named("a").to_string()])]);
    let uuid = records.environment_by_key(environment).unwrap().uuid;
    records.set_halted(&uuid, true, at(60)).unwrap();
    assert!(records.stale_facts(at(20)).unwrap().is_empty());
}

fn facts_go_with_the_last_version_and_parameters_stay(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    let environment = store.default_environment().unwrap();
    let first = put(&*store, environment, &simple(&["a", "b"])).unwrap().number;
    let (a, b) = (named("a"), named("b"));
    for resource in [Some(a.as_str()), Some(b.as_str()), None] {
        let new = NewParameter {
            name: "size",
            value: "1",
            resource,
            source: ParameterSource::Fact,
            expires: resource.is_some(),
            metadata: None,
        };
        records.put_parameter(environment, &new, at(1), &|_, _| Ok(())).unwrap();
    }
    put(&*store, environment, &simple(&["b"])).unwrap();
    assert_eq!(store.facts(environment, a.as_str()).unwrap().len(), 1);
    store.delete_version(environment, first).unwrap();
    assert!(store.facts(environment, a.as_str()).unwrap().is_empty());
    // A resource that is added again later does not inherit old facts.
    put(&*store, environment, &simple(&["a", "b"])).unwrap();
    assert!(store.facts(environment, a.as_str()).unwrap().is_empty());
    assert_eq!(store.facts(environment, b.as_str()).unwrap().len(), 1);
    assert_eq!(store.parameters(environment).unwrap().len(), 1);
}
