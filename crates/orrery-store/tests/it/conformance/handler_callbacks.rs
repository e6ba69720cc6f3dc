//! Values that handlers report while they run, and their expiry.

use orrery_model::{AttributeHash, ResourceState, Timestamp};
use orrery_store::{
    Holder, LeaseRequest, NewDiscovered, NewParameter, OnParameterChanged, ParameterSource,
    ResultRecord, StoreError,
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
    let environment = store.environments().ensure_default().unwrap();
    put(&store, environment, &simple(&["a"])).unwrap();
    let take = |time| {
        let holder = Holder::this_process("test", at(time));
        let expires = Some(at(time + 1));
        store
            .leases()
            .acquire(environment, &LeaseRequest { holder, now: at(time), expires })
            .unwrap()
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
    let effect =
        store.parameters().put_for_handler(&former, &new("1"), at(10), OnParameterChanged::Nothing);
    assert_eq!(effect.unwrap().effect.changed, 1);
    store.discovered().put_for_handler(&former, &found, at(10)).unwrap();
    take(20);
    let late =
        store.parameters().put_for_handler(&former, &new("2"), at(21), OnParameterChanged::Nothing);
    assert!(matches!(late, Err(StoreError::StaleEpoch { .. })), "{late:?}");
    let late = store.discovered().put_for_handler(&former, &found, at(21));
    assert!(matches!(late, Err(StoreError::StaleEpoch { .. })), "{late:?}");
    assert_eq!(store.parameters().get(environment, "ip", Some(&id)).unwrap().value, "1");
    assert_eq!(store.discovered().get(environment, &id).unwrap().discovered_at, at(10));
}

fn stale_facts_are_expired_facts_of_deployed_resources(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    put(&store, environment, &simple(&["a", "b", "c", "d"])).unwrap();
    let lease = lease(&store, environment);
    for (name, expires, time) in [("a", true, 5), ("b", false, 5), ("c", true, 50), ("d", true, 5)]
    {
        let id = named(name);
        let found = store.resources().find(environment, id.as_str()).unwrap().unwrap();
        let mut state = ResourceState::new(AttributeHash([1; 16]), false);
        if name == "d" {
            // It left the version that is deployed.
            state.intent = None;
        }
        let record = ResultRecord { state: Some(&state), ..empty_result(found.key) };
        store.engine().record_results(&lease, &[record]).unwrap();
        for fact in ["x", "y"] {
            let new = NewParameter {
                name: fact,
                value: "1",
                resource: Some(id.as_str()),
                source: ParameterSource::Fact,
                expires,
                metadata: None,
            };
            store
                .parameters()
                .put(environment, &new, at(time), OnParameterChanged::Nothing)
                .unwrap();
        }
    }
    let old = store.parameters().stale_facts(at(20)).unwrap();
    assert_eq!(old, [(environment, vec![named("a").to_string()])]);
    let uuid = store.environments().by_key(environment).unwrap().uuid;
    store.environments().set_halted(uuid, true, at(60)).unwrap();
    assert!(store.parameters().stale_facts(at(20)).unwrap().is_empty());
}

fn facts_go_with_the_last_version_and_parameters_stay(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let first = put(&store, environment, &simple(&["a", "b"])).unwrap().number;
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
        store.parameters().put(environment, &new, at(1), OnParameterChanged::Nothing).unwrap();
    }
    put(&store, environment, &simple(&["b"])).unwrap();
    assert_eq!(store.parameters().facts(environment, a.as_str()).unwrap().len(), 1);
    store.versions().delete(environment, first).unwrap();
    assert!(store.parameters().facts(environment, a.as_str()).unwrap().is_empty());
    // A resource that is added again later does not inherit old facts.
    put(&store, environment, &simple(&["a", "b"])).unwrap();
    assert!(store.parameters().facts(environment, a.as_str()).unwrap().is_empty());
    assert_eq!(store.parameters().facts(environment, b.as_str()).unwrap().len(), 1);
    assert_eq!(store.parameters().all(environment).unwrap().len(), 1);
}
