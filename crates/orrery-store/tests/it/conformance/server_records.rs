//! Records of a server: dry runs, notifications, measurements, discovered resources, idempotent
//! requests, facts, protected settings; and the deletion of an environment with all of them.

use std::sync::Arc;
use std::time::Duration;

use orrery_model::{Change, CompileId, Timestamp, VersionNumber};
use orrery_store::{
    DryRunResult, EnvironmentKey, IdempotentRequest, KeyState, MetricRecord, NewDiscovered,
    NewEnvironmentRecord, NewNotification, NewParameter, NotificationFilter, OnParameterChanged,
    ParameterFilter, ParameterSource, RequestResult, ResultRecord, Store, StoreError,
    StoredResponse, with_idempotency,
};

use crate::support::{Backend, action, deployed, empty_result, id_of, lease, named, put, simple};

super::list_cases![
    dry_runs_count_down,
    dry_runs_are_fenced,
    notifications_are_read_and_cleared,
    measurements_are_summed_up,
    turns_are_claimed_once,
    discoveries_know_what_is_managed,
    repeated_requests_get_one_response,
    requests_with_an_effect_are_never_executed_again,
    metadata_of_parameters_stays_until_it_is_replaced,
    parameters_and_facts_are_listed,
    facts_are_requested_at_most_once_per_pause,
    protected_settings_stay,
    agents_are_paused_unless_halted,
    an_environment_goes_with_all_that_is_in_it,
];

const COMPILE: CompileId = id_of(7);

fn at(time: i64) -> Timestamp {
    Timestamp(time)
}

fn result(name: &str, status: &str) -> DryRunResult {
    let changes = serde_json::json!([{"name": "value"}]);
    DryRunResult { resource: named(name).to_string(), status: status.to_owned(), changes }
}

fn dry_runs_count_down(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let version = put(&store, environment, &simple(&["a", "b", "c"])).unwrap().number;
    let missing =
        store.dry_runs().create(environment, (id_of(9), id_of(8)), VersionNumber(99), at(1));
    assert!(matches!(missing, Err(StoreError::NoVersion(_))));
    let (run, request) =
        store.dry_runs().create(environment, (id_of(1), id_of(2)), version, at(1)).unwrap();
    assert_eq!((run.total, run.todo, request.uuid), (3, 3, id_of(2)));
    let some = [result("a", "updated"), result("b", "unmodified")];
    let claim = store.requests().claim(&request, at(2)).unwrap().unwrap();
    assert_eq!(store.dry_runs().add_results(&claim, id_of(1), &some, at(2)).unwrap().todo, 1);
    assert_eq!(store.dry_runs().add_results(&claim, id_of(1), &some[..1], at(2)).unwrap().todo, 1);
    store.dry_runs().add_results(&claim, id_of(1), &[result("c", "updated")], at(3)).unwrap();
    let done = RequestResult::Done(None);
    let ended = store.dry_runs().finish(&claim, id_of(1), &done, at(4)).unwrap();
    let request = store.requests().get(id_of(2)).unwrap();
    assert_eq!((request.finished, request.result), (Some(at(4)), Some(done)));
    assert_eq!((ended.todo, ended.finished), (0, Some(at(4))));
    let counts = store.dry_runs().counts(id_of(1)).unwrap();
    assert_eq!(counts, [("unmodified".to_owned(), 1), ("updated".to_owned(), 2)]);
    let updated = store.dry_runs().results(id_of(1), Some("updated"), "", 10).unwrap();
    assert_eq!(updated, [result("a", "updated"), result("c", "updated")]);
    let rest = store.dry_runs().results(id_of(1), None, named("a").as_str(), 1).unwrap();
    assert_eq!(rest, [result("b", "unmodified")]);
    assert_eq!(
        store.dry_runs().list(environment, version, 10).unwrap(),
        std::slice::from_ref(&ended)
    );
    assert_eq!(store.dry_runs().get(environment, id_of(1)).unwrap(), ended);
    assert_eq!(store.dry_runs().expire(environment).unwrap(), 0, "its version is there");
}

/// Writes of a former holder of a dry run, and of an environment, are refused.
fn dry_runs_are_fenced(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let version = put(&store, environment, &simple(&["a", "b"])).unwrap().number;
    let (_, request) =
        store.dry_runs().create(environment, (id_of(1), id_of(2)), version, at(1)).unwrap();
    let first = store.requests().claim(&request, at(2)).unwrap().unwrap();
    assert_eq!(store.requests().claim(&request, at(2)).unwrap(), None, "it is taken");
    let taken = store.requests().get(id_of(2)).unwrap();
    let second = store.requests().claim(&taken, at(2)).unwrap().unwrap();
    let results = [result("a", "updated")];
    let done = RequestResult::Done(None);
    let stale = |refused: orrery_store::Result<_>| {
        assert!(matches!(refused, Err(StoreError::StaleEpoch { .. })), "{refused:?}");
    };
    stale(store.dry_runs().add_results(&first, id_of(1), &results, at(3)));
    stale(store.dry_runs().finish(&first, id_of(1), &done, at(3)));
    let run = store.dry_runs().get(environment, id_of(1)).unwrap();
    assert_eq!((run.todo, run.finished), (2, None));
    let old = lease(&store, environment);
    store.leases().release(&old).unwrap();
    let new = lease(&store, environment);
    stale(store.under_lease(&old).dry_runs().add_results(&second, id_of(1), &results, at(4)));
    stale(store.under_lease(&old).dry_runs().finish(&second, id_of(1), &done, at(4)));
    let under = store.under_lease(&new);
    assert_eq!(under.dry_runs().add_results(&second, id_of(1), &results, at(5)).unwrap().todo, 1);
    under.dry_runs().finish(&second, id_of(1), &done, at(6)).unwrap();
    stale(store.dry_runs().add_results(&second, id_of(1), &results, at(7)));
}

fn notifications_are_read_and_cleared(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    for (number, severity) in [(1, "error"), (2, "message"), (3, "error")] {
        let new = NewNotification {
            uuid: id_of(number),
            title: "A title",
            message: "A message",
            severity,
            uri: "/api",
            compile: (number == 1).then_some(COMPILE),
        };
        store.notifications().add(environment, &new, at(number.into())).unwrap();
    }
    let list = |filter: NotificationFilter<'_>, after| -> Vec<u8> {
        let found = store.notifications().list(environment, &filter, after, 10).unwrap();
        found.into_iter().map(|one| one.uuid.into_bytes()[0]).collect()
    };
    assert_eq!(list(NotificationFilter::default(), None), [3, 2, 1], "newest first");
    assert_eq!(list(NotificationFilter::default(), Some((at(3), id_of(3)))), [2, 1]);
    let errors = NotificationFilter { severity: Some("error"), ..NotificationFilter::default() };
    assert_eq!(list(errors, None), [3, 1]);
    let changed =
        store.notifications().update(environment, id_of(1), Some(true), None, at(5)).unwrap();
    assert_eq!((changed.read, changed.cleared, changed.compile), (true, false, Some(id_of(7))));
    let unread = NotificationFilter { read: Some(false), ..NotificationFilter::default() };
    assert_eq!(list(unread, None), [3, 2]);
    let missing = store.notifications().update(environment, id_of(9), None, Some(true), at(5));
    assert!(matches!(missing, Err(StoreError::NotFound { .. })));
    assert_eq!(store.notifications().expire(environment, at(2)).unwrap(), 1);
    assert!(matches!(
        store.notifications().get(environment, id_of(1)),
        Err(StoreError::NotFound { .. })
    ));
}

fn measurements_are_summed_up(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let metric = |category: &str, time, value| MetricRecord {
        name: "m".to_owned(),
        category: category.to_owned(),
        at: at(time),
        count: 1,
        value,
    };
    let all = [metric("a", 1, 10), metric("b", 1, 20), metric("a", 2, 30)];
    store.metrics().add(environment, &all).unwrap();
    store.metrics().add(environment, &[metric("a", 2, 31)]).unwrap();
    let found = store.metrics().list(environment, "m", at(1), at(3)).unwrap();
    assert_eq!(found.iter().map(|one| one.value).sum::<i64>(), 10 + 20 + 31);
    assert_eq!(store.metrics().list(environment, "other", at(0), at(9)).unwrap(), []);
    assert_eq!(store.metrics().compile_times(environment, at(0), at(9)).unwrap(), (0, 0, 0));
    assert_eq!(store.metrics().expire(environment, at(2)).unwrap(), 2);
    assert_eq!(store.actions().expire_logs(environment, at(2)).unwrap(), 0);
    assert_eq!(store.requests().expire(environment, at(2)).unwrap(), 0);
}

fn turns_are_claimed_once(backend: Backend) {
    let store = backend.fresh();
    let take = |time| store.meta().claim_turn("cleaning", at(time)).unwrap();
    assert_eq!([take(10), take(10), take(9), take(11)], [true, false, false, true]);
}

fn discoveries_know_what_is_managed(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    put(&store, environment, &simple(&["a"])).unwrap();
    let attributes = serde_json::json!({"size": 1});
    let (a, b) = (named("a"), named("b"));
    let found = [a.as_str(), b.as_str()].map(|name| NewDiscovered {
        name,
        attributes: &attributes,
        discovery_resource: "t::Discovery[agent,name=d]",
    });
    store.discovered().put(environment, &found, at(1)).unwrap();
    store.discovered().put(environment, &found[..1], at(2)).unwrap();
    let list = |managed, after: &str| -> Vec<(String, bool)> {
        let found = store.discovered().list(environment, managed, after, 10).unwrap();
        found.into_iter().map(|one| (one.name, one.managed)).collect()
    };
    assert_eq!(list(None, ""), [(a.to_string(), true), (b.to_string(), false)]);
    assert_eq!(list(Some(false), ""), [(b.to_string(), false)]);
    assert_eq!(list(None, a.as_str()).len(), 1);
    let one = store.discovered().get(environment, a.as_str()).unwrap();
    assert_eq!((one.attributes, one.discovered_at), (attributes, at(2)));
    store.discovered().delete(environment, a.as_str(), at(3)).unwrap();
    let gone = store.discovered().get(environment, a.as_str());
    assert!(matches!(gone, Err(StoreError::NotFound { .. })));
}

fn repeated_requests_get_one_response(backend: Backend) {
    let store = backend.fresh();
    let begin = |request: &[u8], now| {
        let attempt = IdempotentRequest::new("me", "key", at(now));
        (store.idempotency().begin(&attempt, request, at(now - 100)).unwrap(), attempt)
    };
    let (first, attempt) = begin(b"one", 1000);
    assert_eq!(first, KeyState::First);
    assert_eq!(begin(b"one", 1001).0, KeyState::InProgress);
    assert_eq!(begin(b"two", 1002).0, KeyState::Other);
    let answer = StoredResponse { status: 201, headers: "{}".to_owned(), body: b"\0body".to_vec() };
    store.idempotency().finish(&attempt, Some(&answer)).unwrap();
    assert_eq!(begin(b"one", 1003).0, KeyState::Answered(answer));
    store.idempotency().finish(&attempt, None).unwrap();
    let (again, second) = begin(b"two", 1004);
    assert_eq!(again, KeyState::First);
    // Its response is lost, and it had no effect.
    let (again, third) = begin(b"two", 1105);
    assert_eq!(again, KeyState::First);
    store.idempotency().finish(&second, None).unwrap();
    assert_eq!(begin(b"two", 1106).0, KeyState::InProgress, "only the holder of the key frees it");
    store.idempotency().finish(&third, None).unwrap();
    assert_eq!(begin(b"two", 1107).0, KeyState::First);
    assert_eq!(store.idempotency().expire(at(2000)).unwrap(), 1);
}

fn requests_with_an_effect_are_never_executed_again(backend: Backend) {
    let store = backend.fresh();
    let store = &*store;
    let environment = store.environments().ensure_default().unwrap();
    let begin = |key: &str, now| {
        let attempt = Arc::new(IdempotentRequest::new("me", key, at(now)));
        let known = store.idempotency().begin(&attempt, b"request", at(now - 100)).unwrap();
        (known, attempt)
    };
    let pause =
        |name: &'static str| move || store.agents().set_paused(environment, Some(name), true);
    let project = |id: u8| move || store.projects().create(id_of(id), "name", "", at(1)).map(drop);
    // Both ways to change something, each followed by a kill before there is a response.
    let effects: [(&str, &dyn Fn() -> orrery_store::Result<()>); 2] =
        [("pause", &pause("x")), ("project", &project(1))];
    for (key, effect) in effects {
        let (first, attempt) = begin(key, 1000);
        assert_eq!(first, KeyState::First);
        with_idempotency(Some(attempt), effect).unwrap();
        assert_eq!(begin(key, 1001).0, KeyState::InProgress, "{key}");
        assert_eq!(begin(key, 5000).0, KeyState::Acted(at(1000)), "{key}");
    }
    // A failed request has no effect.
    let (_, refused) = begin("refused", 1000);
    with_idempotency(Some(refused), project(2)).unwrap_err();
    assert_eq!(begin("refused", 5000).0, KeyState::First);
    // A response that is not stored, after an effect: no client waits for it.
    let (_, failed) = begin("failed", 1000);
    with_idempotency(Some(Arc::clone(&failed)), pause("y")).unwrap();
    with_idempotency(Some(Arc::clone(&failed)), pause("z")).unwrap();
    store.idempotency().finish(&failed, None).unwrap();
    assert_eq!(begin("failed", 1001).0, KeyState::Acted(at(1000)));
    // A process that was declared dead too early cannot act any more.
    let (_, slow) = begin("slow", 1000);
    assert_eq!(begin("slow", 5000).0, KeyState::First);
    let late = with_idempotency(Some(slow), pause("late"));
    assert!(matches!(late, Err(StoreError::Conflict(_))), "{late:?}");
    let is_late = |agent: &orrery_store::AgentState| agent.name == "late";
    assert!(!store.agents().states(environment).unwrap().iter().any(is_late));
    // Other requests on the same thread are not affected.
    pause("others")().unwrap();
    assert_eq!(begin("slow", 5001).0, KeyState::InProgress);
}

fn set(store: &Store, environment: EnvironmentKey, name: &str, resource: Option<&str>) {
    let new = NewParameter {
        metadata: None,
        name,
        value: "1",
        resource,
        source: if resource.is_some() { ParameterSource::Fact } else { ParameterSource::User },
        expires: resource.is_some(),
    };
    store.parameters().put(environment, &new, at(5), OnParameterChanged::Nothing).unwrap();
}

fn metadata_of_parameters_stays_until_it_is_replaced(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    put(&store, environment, &simple(&["a"])).unwrap();
    let a = named("a").to_string();
    let about = serde_json::json!({"owner": "ada", "rooms": [1, {"x": null}]});
    let about = about.as_object().unwrap();
    let of = |name: &str, resource: Option<&str>| {
        store.parameters().get(environment, name, resource).unwrap().metadata
    };
    for (name, resource) in [("size", None), ("ip", Some(&*a))] {
        let new = NewParameter {
            name,
            value: "1",
            resource,
            source: ParameterSource::User,
            expires: false,
            metadata: Some(about),
        };
        store.parameters().put(environment, &new, at(5), OnParameterChanged::Nothing).unwrap();
        assert_eq!(&of(name, resource), about);
        // A write without metadata leaves it unchanged.
        set(&store, environment, name, resource);
        assert_eq!(&of(name, resource), about);
    }
    let listed = store.parameters().list(environment, &ParameterFilter::default(), "", 9).unwrap();
    assert_eq!(&listed[0].metadata, about);
    let listed = store.parameters().list_facts(
        environment,
        &ParameterFilter::default(),
        &(0, String::new()),
        9,
    );
    assert_eq!(&listed.unwrap()[0].1.metadata, about);
    // Values of the engine have no metadata.
    store.parameters().set(environment, "size", "2", ParameterSource::User, at(6)).unwrap();
    assert!(of("size", None).is_empty());
}

fn parameters_and_facts_are_listed(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    put(&store, environment, &simple(&["a", "b"])).unwrap();
    let (a, b) = (named("a").to_string(), named("b").to_string());
    for (name, resource) in
        [("x", None), ("y", None), ("ip", Some(&a)), ("mac", Some(&a)), ("ip", Some(&b))]
    {
        set(&store, environment, name, resource.map(String::as_str));
    }
    let all = ParameterFilter::default();
    let names = |filter: &ParameterFilter<'_>, after: &str| -> Vec<String> {
        let found = store.parameters().list(environment, filter, after, 10).unwrap();
        found.into_iter().map(|one| one.name).collect()
    };
    assert_eq!(names(&all, ""), ["x", "y"]);
    assert_eq!(names(&all, "x"), ["y"]);
    let facts = |filter: &ParameterFilter<'_>| {
        let mut seen = Vec::new();
        let mut after = (0, String::new());
        loop {
            let page = store.parameters().list_facts(environment, filter, &after, 2).unwrap();
            let Some((cursor, _)) = page.last() else { return seen };
            after = cursor.clone();
            seen.extend(page.into_iter().map(|(_, fact)| {
                (fact.resource.map(|id| id.value().to_owned()).unwrap_or_default(), fact.name)
            }));
        }
    };
    let found = facts(&all);
    assert_eq!(found.len(), 3, "{found:?}");
    let ips = ParameterFilter { name: Some("ip"), ..ParameterFilter::default() };
    assert_eq!(facts(&ips).len(), 2);
    let of_a = ParameterFilter { resource: Some(&a), ..ParameterFilter::default() };
    assert_eq!(facts(&of_a).len(), 2);
    assert_eq!(store.parameters().get(environment, "mac", Some(&a)).unwrap().value, "1");
    store
        .parameters()
        .delete(environment, "mac", Some(&a), at(6), OnParameterChanged::Nothing)
        .unwrap();
    let gone =
        store.parameters().delete(environment, "mac", Some(&a), at(6), OnParameterChanged::Nothing);
    assert!(matches!(gone, Err(StoreError::NotFound { .. })));
    let nothing = store.parameters().get(environment, "x", Some("t::R[agent,name=none]"));
    assert!(nothing.is_err());
}

fn facts_are_requested_at_most_once_per_pause(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    put(&store, environment, &simple(&["a"])).unwrap();
    let ask = |time| {
        let pause = Duration::from_secs(60);
        store.parameters().request_facts(environment, named("a").as_str(), pause, at(time)).unwrap()
    };
    assert_eq!([ask(1_000_000), ask(2_000_000), ask(90_000_000)], [true, false, true]);
    assert_eq!(store.requests().open(environment).unwrap().len(), 2);
}

fn protected_settings_stay(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let (one, two) = (serde_json::json!(1), serde_json::json!(2));
    store.settings().change(environment, "free", Some(&one), at(1)).unwrap();
    let protected = [("kept", one.clone())];
    store.settings().protect(environment, &protected, "project.yml", at(2)).unwrap();
    let error = store.settings().change(environment, "kept", Some(&two), at(3)).unwrap_err();
    assert!(matches!(error, StoreError::Protected { .. }), "{error}");
    let names = || -> Vec<(String, bool)> {
        let all = store.settings().list(environment).unwrap();
        all.into_iter().map(|one| (one.name, one.protected_by.is_some())).collect()
    };
    assert_eq!(names(), [("free".to_owned(), false), ("kept".to_owned(), true)]);
    store.settings().protect(environment, &[], "project.yml", at(4)).unwrap();
    store.settings().change(environment, "kept", None, at(5)).unwrap();
    assert_eq!(names(), [("free".to_owned(), false)]);
}

fn agents_are_paused_unless_halted(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    put(&store, environment, &simple(&["a"])).unwrap();
    let uuid = store.environments().by_key(environment).unwrap().uuid;
    store.agents().pause(environment, Some("agent"), true, at(1)).unwrap();
    assert!(store.agents().get(environment, "agent").unwrap().paused);
    let missing = store.agents().pause(environment, Some("nobody"), true, at(1));
    assert!(matches!(missing, Err(StoreError::NotFound { .. })));
    let early = store.agents().set_on_resume(environment, None, true, at(2));
    assert!(matches!(early, Err(StoreError::Conflict(_))));
    store.environments().set_halted(uuid, true, at(3)).unwrap();
    let halted = store.agents().pause(environment, None, false, at(4));
    assert!(matches!(halted, Err(StoreError::Conflict(_))));
    store.agents().set_on_resume(environment, Some("agent"), true, at(5)).unwrap();
    store.environments().set_halted(uuid, false, at(6)).unwrap();
    let agents = store.agents().list(environment, "", 10).unwrap();
    assert_eq!(agents.len(), 1);
    assert!(!agents[0].paused);
}

fn an_environment_goes_with_all_that_is_in_it(backend: Backend) {
    let store = backend.fresh();
    store.projects().create(id_of(1), "p", "", at(1)).unwrap();
    let new = NewEnvironmentRecord {
        uuid: id_of(2),
        project: id_of(1),
        name: "e",
        description: "",
        icon: "",
        repository: "",
        branch: "",
    };
    let environment = store.environments().add(&new, at(1)).unwrap().key;
    let stays = store.environments().ensure_default().unwrap();
    let resources = simple(&["a", "b"]);
    put(&store, stays, &resources).unwrap();
    let version = put(&store, environment, &resources).unwrap();
    let lease = lease(&store, environment);
    let state = deployed(&resources[0], at(3));
    let change = Change::default();
    let result = ResultRecord {
        state: Some(&state),
        action: Some(action(version.number, 3, &change, &[])),
        ..empty_result(version.keys[0])
    };
    store.engine().record_results(&lease, &[result]).unwrap();
    store.engine().process_version(&lease, version.number, &[]).unwrap();
    store.leases().release(&lease).unwrap();
    set(&store, environment, "x", None);
    set(&store, environment, "ip", Some(named("a").as_str()));
    store.settings().change(environment, "s", Some(&serde_json::json!(1)), Timestamp(1)).unwrap();
    let (_, request) =
        store.dry_runs().create(environment, (id_of(3), id_of(4)), version.number, at(4)).unwrap();
    let claim = store.requests().claim(&request, at(4)).unwrap().unwrap();
    store.dry_runs().add_results(&claim, id_of(3), &[self::result("a", "updated")], at(4)).unwrap();
    store.environments().begin_deletion(id_of(2), at(5)).unwrap();
    let mut rounds = 0;
    while !store.environments().delete_contents(environment, at(6)).unwrap() {
        rounds += 1;
        assert!(rounds < 100);
    }
    assert!(store.versions().list(environment).unwrap().is_empty());
    assert!(store.parameters().all(environment).unwrap().is_empty());
    store.environments().delete(id_of(2), at(7)).unwrap();
    assert!(matches!(store.environments().get(id_of(2)), Err(StoreError::NotFound { .. })));
    store.projects().delete(id_of(1), None, at(8)).unwrap();
    assert_eq!(store.versions().list(stays).unwrap().len(), 1);
    assert_eq!(store.check().unwrap(), [""; 0]);
    let names: Vec<String> = store
        .environments()
        .list(None)
        .unwrap()
        .into_iter()
        .map(|environment| environment.name)
        .collect();
    assert_eq!(names, ["default"]);
}
