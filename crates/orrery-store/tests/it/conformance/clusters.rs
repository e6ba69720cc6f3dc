//! Clusters: a change is stored with its version or not at all, one operation at a time, quotas.

use std::sync::Barrier;

use orrery_model::{ProjectId, Resource, Timestamp, VersionNumber};
use orrery_store::{
    ChangeSeq, ClusterFilter, ClusterOperationPhase, ClusterPhase, ClusterQuota,
    ClusterRecordChange, ClusterUsage, ClusterWrite, LeaseEnd, NewClusterOperation,
    NewClusterRecord, NewIntent, NewVersion, OperationEnd, PluginResourceName, PutOutcome, Store,
    StoreError,
};
use serde_json::{Value, json};

use crate::support::{Backend, id_of, new_version, simple};

super::list_cases![
    a_cluster_is_created_with_its_environment_and_version,
    one_operation_is_open_at_a_time,
    an_operation_is_paused_and_resumed_with_its_environment,
    a_transition_is_followed_once,
    a_failed_operation_is_resumed,
    a_change_on_an_old_intent_is_refused,
    a_terminated_cluster_frees_its_name_and_quota,
    concurrent_creations_do_not_exceed_the_quota,
    leases_and_reminders_are_recorded,
    health_changes_only_without_an_operation,
    plugin_resources_are_staged_and_synced,
];

const SHOP: u8 = 1;

fn at(time: i64) -> Timestamp {
    Timestamp(time)
}

fn with_project(backend: Backend) -> crate::support::Fresh {
    let store = backend.fresh();
    store.projects().create(id_of(SHOP), "shop", "", at(1)).unwrap();
    store
}

const fn intent(content: &[u8], size: u32) -> NewIntent<'_> {
    NewIntent { content, template: "web", template_revision: 3, size, services: &[] }
}

/// Request and plan of operations.
static REQUEST: Value = Value::Null;

const fn operation<'a>(kind: &'a str, intent: NewIntent<'a>) -> NewClusterOperation<'a> {
    NewClusterOperation {
        kind,
        author: "user:ada",
        request: &REQUEST,
        plan: &REQUEST,
        intent,
        is_transition: false,
        quota: ClusterQuota { clusters_max: None, nodes_max: None },
    }
}

fn version(resources: &[Resource], time: i64) -> NewVersion<'_> {
    NewVersion { made_at: at(time), ..new_version(resources) }
}

fn create_with(
    store: &Store,
    (id, number): (&str, u8),
    size: u32,
    quota: ClusterQuota,
) -> Result<PutOutcome, StoreError> {
    let settings = [("park_after_attempts", json!(5))];
    let cluster = NewClusterRecord {
        id,
        project: id_of(SHOP),
        environment: id_of(number),
        name: id,
        description: "a shop",
        owner: "ada",
        provider: "sim",
        expires: None,
        settings: &settings,
    };
    let operation = NewClusterOperation { quota, ..operation("create", intent(b"first", size)) };
    let write = ClusterWrite::Create { cluster: &cluster, operation: &operation };
    store.clusters().put_version(&write, &version(&simple(&["a", "b"]), 5))
}

fn create(store: &Store, id: &str, number: u8) -> PutOutcome {
    create_with(store, (id, number), 2, ClusterQuota::default()).unwrap()
}

fn begin(store: &Store, id: &str, base: i64, kind: &str) -> Result<PutOutcome, StoreError> {
    let operation =
        NewClusterOperation { is_transition: true, ..operation(kind, intent(b"second", 3)) };
    let write = ClusterWrite::Begin {
        cluster: id,
        expected: None,
        base,
        operation: &operation,
        ends: None,
    };
    store.clusters().put_version(&write, &version(&simple(&["a", "c"]), 7))
}

fn end(state: ClusterOperationPhase, status: ClusterPhase) -> OperationEnd<'static> {
    OperationEnd { state, status, message: "as it is", progress: None, halt: false }
}

fn finish(store: &Store, id: &str, number: i64) {
    let done = end(ClusterOperationPhase::Done, ClusterPhase::Active);
    store.cluster_operations().end(id, number, &done, at(9)).unwrap();
}

fn a_cluster_is_created_with_its_environment_and_version(backend: Backend) {
    let store = with_project(backend);
    let before = store.changes().latest().unwrap();
    let put = create(&store, "c1", 7);
    let cluster = store.clusters().get("c1").unwrap();
    assert_eq!((cluster.status, cluster.size, cluster.intent), (ClusterPhase::Pending, 2, 1));
    assert_eq!((cluster.settled_intent, cluster.revision), (0, 1));
    assert_eq!((&*cluster.template, cluster.template_revision), ("web", 3));
    let environment = store.environments().by_key(cluster.environment).unwrap();
    assert_eq!((&*environment.name, environment.cluster.as_deref()), ("c1", Some("c1")));
    assert_eq!(environment.uuid, cluster.environment_id);
    let settings = store.settings().values(cluster.environment).unwrap();
    assert_eq!(settings["park_after_attempts"], json!(5));
    let open = store.cluster_operations().open(cluster.key).unwrap().unwrap();
    assert_eq!((open.number, &*open.kind, open.version), (1, "create", put.number));
    assert_eq!((open.intent, open.base), (1, 0));
    assert_eq!(store.clusters().intent(cluster.key, 1).unwrap().content, b"first");
    let versions = store.versions().list(cluster.environment).unwrap();
    assert_eq!(versions.len(), 1);
    assert!(versions[0].released);
    let notes = store.changes().list(ChangeSeq(before.0), Some(cluster.environment), 10).unwrap();
    let mut kinds: Vec<&str> = notes.iter().map(|note| &*note.kind).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["cluster", "environment", "version"]);
    assert_eq!(store.clusters().of_environment(cluster.environment).unwrap(), Some(cluster));
    // The name is taken, as a cluster and as an environment: nothing is stored.
    let again = create_with(&store, ("c1", 8), 2, ClusterQuota::default());
    assert!(matches!(again, Err(StoreError::Exists { kind: "cluster", .. })), "{again:?}");
    assert_eq!(store.environments().list(None).unwrap().len(), 1);
}

fn one_operation_is_open_at_a_time(backend: Backend) {
    let store = with_project(backend);
    create(&store, "c1", 7);
    let refused = begin(&store, "c1", 1, "resize");
    match refused {
        Err(StoreError::OperationOpen { number: 1, kind, .. }) => assert_eq!(kind, "create"),
        other => panic!("{other:?}"),
    }
    let cluster = store.clusters().get("c1").unwrap();
    assert_eq!((cluster.intent, cluster.size), (1, 2), "nothing is stored");
    assert_eq!(store.versions().list(cluster.environment).unwrap().len(), 1);
    finish(&store, "c1", 1);
    let put = begin(&store, "c1", 1, "resize").unwrap();
    let cluster = store.clusters().get("c1").unwrap();
    assert_eq!((cluster.status, cluster.size, cluster.intent), (ClusterPhase::Pending, 3, 2));
    assert_eq!(cluster.settled_intent, 1);
    let open = store.cluster_operations().open(cluster.key).unwrap().unwrap();
    assert_eq!((open.number, open.version, open.base), (2, put.number, 1));
    // Another one takes its place, as an abort that reverts does.
    let operation = operation("revert", intent(b"first", 2));
    let ends = (2, end(ClusterOperationPhase::Aborted, ClusterPhase::Inconsistent));
    let write = ClusterWrite::Begin {
        cluster: "c1",
        expected: Some(cluster.revision),
        base: 2,
        operation: &operation,
        ends: Some(ends),
    };
    store.clusters().put_version(&write, &version(&simple(&["a", "b"]), 8)).unwrap();
    let all = store.cluster_operations().list(cluster.key, None, 10).unwrap();
    let states: Vec<_> = all.iter().map(|one| (one.number, one.state)).collect();
    assert_eq!(
        states,
        [
            (3, ClusterOperationPhase::Running),
            (2, ClusterOperationPhase::Aborted),
            (1, ClusterOperationPhase::Done)
        ]
    );
    assert_eq!(store.cluster_operations().list(cluster.key, Some(3), 1).unwrap()[0].number, 2);
}

fn an_operation_is_paused_and_resumed_with_its_environment(backend: Backend) {
    let store = with_project(backend);
    create(&store, "c1", 7);
    let cluster = store.clusters().get("c1").unwrap();
    let is_halted = || store.environments().by_key(cluster.environment).unwrap().halted;
    for _ in 0..2 {
        let paused = store.cluster_operations().pause("c1", 1, at(6)).unwrap();
        assert_eq!((paused.state, is_halted()), (ClusterOperationPhase::Paused, true));
    }
    for _ in 0..2 {
        let resumed = store.cluster_operations().resume("c1", 1, at(6)).unwrap();
        assert_eq!((resumed.state, is_halted()), (ClusterOperationPhase::Running, false));
    }
    assert_eq!(store.requests().open(cluster.environment).unwrap().len(), 1, "a deploy");
    finish(&store, "c1", 1);
    let late = store.cluster_operations().pause("c1", 1, at(9));
    assert!(matches!(late, Err(StoreError::Conflict(_))), "{late:?}");
    let late = store.cluster_operations().resume("c1", 1, at(9));
    assert!(matches!(late, Err(StoreError::Conflict(_))), "{late:?}");
}

fn a_transition_is_followed_once(backend: Backend) {
    let store = with_project(backend);
    create(&store, "c1", 7);
    finish(&store, "c1", 1);
    let transition = begin(&store, "c1", 1, "resize").unwrap();
    let settle = |version: VersionNumber| {
        let write = ClusterWrite::Settle { cluster: "c1", operation: 2, version };
        store.clusters().put_version(&write, &self::version(&simple(&["a"]), 8))
    };
    let other = settle(VersionNumber(99));
    assert!(matches!(other, Err(StoreError::Conflict(_))), "{other:?}");
    let settled = settle(transition.number).unwrap();
    let again = settle(transition.number);
    assert!(matches!(again, Err(StoreError::Conflict(_))), "{again:?}");
    let cluster = store.clusters().get("c1").unwrap();
    let open = store.cluster_operations().open(cluster.key).unwrap().unwrap();
    assert_eq!((open.version, open.is_transition), (settled.number, false));
    assert_eq!(store.versions().list(cluster.environment).unwrap().len(), 3);
    // The intent of the open operation changes, such as for a machine that is replaced.
    let amend = ClusterWrite::Amend {
        cluster: "c1",
        operation: 2,
        base: cluster.intent,
        intent: intent(b"third", 3),
        author: "system",
    };
    let put = store.clusters().put_version(&amend, &version(&simple(&["a", "d"]), 9)).unwrap();
    let open = store.cluster_operations().open(cluster.key).unwrap().unwrap();
    assert_eq!((open.version, open.intent, open.base), (put.number, 3, 1));
    assert!(open.is_transition);
}

fn a_failed_operation_is_resumed(backend: Backend) {
    let store = with_project(backend);
    create(&store, "c1", 7);
    let progress = json!({"total": 2});
    let failed = OperationEnd {
        state: ClusterOperationPhase::Failed,
        status: ClusterPhase::Incomplete,
        message: "2 of 2 resources failed",
        progress: Some(&progress),
        halt: true,
    };
    let ended = store.cluster_operations().end("c1", 1, &failed, at(8)).unwrap();
    assert_eq!((ended.ended, ended.progress), (Some(at(8)), Some(progress.clone())));
    let twice = store.cluster_operations().end("c1", 1, &failed, at(8));
    assert!(matches!(twice, Err(StoreError::Conflict(_))), "{twice:?}");
    let cluster = store.clusters().get("c1").unwrap();
    assert_eq!((cluster.status, cluster.settled_intent), (ClusterPhase::Incomplete, 0));
    assert_eq!(cluster.message, "2 of 2 resources failed");
    assert!(store.environments().by_key(cluster.environment).unwrap().halted);
    let resumed = store.cluster_operations().resume("c1", 1, at(9)).unwrap();
    assert_eq!((resumed.state, resumed.ended), (ClusterOperationPhase::Running, None));
    let cluster = store.clusters().get("c1").unwrap();
    assert_eq!((cluster.status, &*cluster.message), (ClusterPhase::Pending, ""));
    assert!(!store.environments().by_key(cluster.environment).unwrap().halted);
}

fn a_change_on_an_old_intent_is_refused(backend: Backend) {
    let store = with_project(backend);
    create(&store, "c1", 7);
    finish(&store, "c1", 1);
    let revision = store.clusters().get("c1").unwrap().revision;
    let old = begin(&store, "c1", 0, "resize");
    assert!(matches!(old, Err(StoreError::Outdated { kind: "intent", .. })), "{old:?}");
    let operation = operation("resize", intent(b"second", 3));
    let write = |expected| ClusterWrite::Begin {
        cluster: "c1",
        expected,
        base: 1,
        operation: &operation,
        ends: None,
    };
    let resources = simple(&["a"]);
    let put = |expected| store.clusters().put_version(&write(expected), &version(&resources, 8));
    let stale = put(Some(revision + 1));
    assert!(matches!(stale, Err(StoreError::Outdated { kind: "cluster", .. })), "{stale:?}");
    put(Some(revision)).unwrap();
}

fn a_terminated_cluster_frees_its_name_and_quota(backend: Backend) {
    let store = with_project(backend);
    create(&store, "c1", 7);
    let shop: ProjectId = id_of(SHOP);
    assert_eq!(store.clusters().usage(shop).unwrap(), ClusterUsage { clusters: 1, nodes: 2 });
    let done = end(ClusterOperationPhase::Done, ClusterPhase::Terminated);
    store.cluster_operations().end("c1", 1, &done, at(8)).unwrap();
    let cluster = store.clusters().get("c1").unwrap();
    assert_eq!((cluster.status, cluster.terminated), (ClusterPhase::Terminated, Some(at(8))));
    let environment = store.environments().by_key(cluster.environment).unwrap();
    assert!(environment.deleting, "its environment is deleted");
    assert_eq!(store.requests().open(cluster.environment).unwrap()[0].kind.name(), "delete");
    assert_eq!(store.clusters().usage(shop).unwrap(), ClusterUsage::default());
    let refused = begin(&store, "c1", 1, "resize");
    assert!(matches!(refused, Err(StoreError::Conflict(_))), "{refused:?}");
    while !store.environments().delete_contents(cluster.environment, at(9)).unwrap() {}
    store.environments().delete(environment.uuid, at(9)).unwrap();
    assert_eq!(store.clusters().get("c1").unwrap(), cluster, "the record stays");
    let names = |terminated| -> usize {
        let filter = ClusterFilter { project: Some(shop), terminated, after: None };
        store.clusters().list(&filter, 10).unwrap().len()
    };
    assert_eq!((names(false), names(true)), (0, 1));
    store.projects().delete(shop, None, at(10)).unwrap();
    let gone = store.clusters().get("c1");
    assert!(matches!(gone, Err(StoreError::NotFound { .. })), "{gone:?}");
}

fn concurrent_creations_do_not_exceed_the_quota(backend: Backend) {
    const CREATIONS: u8 = 6;
    let store = with_project(backend);
    let quota = ClusterQuota { clusters_max: Some(4), nodes_max: Some(5) };
    let ready = Barrier::new(usize::from(CREATIONS));
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CREATIONS)
            .map(|number| {
                let (store, ready) = (&store, &ready);
                scope.spawn(move || {
                    ready.wait();
                    create_with(store, (&format!("c{number}"), 10 + number), 2, quota)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let created = results.iter().filter(|result| result.is_ok()).count();
    let refused = |result: &&Result<PutOutcome, StoreError>| {
        matches!(result, Err(StoreError::QuotaExceeded { what: "nodes", limit: 5, used: 4 }))
    };
    assert_eq!((created, results.iter().filter(refused).count()), (2, 4), "{results:?}");
    assert_eq!(store.environments().list(None).unwrap().len(), 2);
    let many =
        create_with(&store, ("many", 30), 1, ClusterQuota { clusters_max: Some(2), ..quota });
    assert!(
        matches!(many, Err(StoreError::QuotaExceeded { what: "clusters", limit: 2, used: 2 })),
        "{many:?}"
    );
}

fn leases_and_reminders_are_recorded(backend: Backend) {
    let store = with_project(backend);
    create(&store, "c1", 7);
    assert!(store.clusters().with_lease_before(at(1_000)).unwrap().is_empty());
    let change =
        ClusterRecordChange { description: Some("longer"), expires: Some(LeaseEnd::At(at(500))) };
    let changed = store.clusters().update("c1", Some(1), &change, at(6)).unwrap();
    assert_eq!((changed.expires, changed.revision), (Some(at(500)), 2));
    let stale = store.clusters().update("c1", Some(1), &change, at(6));
    assert!(matches!(stale, Err(StoreError::Outdated { .. })), "{stale:?}");
    let expired = store.clusters().with_lease_before(at(501)).unwrap();
    assert_eq!(expired, std::slice::from_ref(&changed));
    assert!(store.clusters().with_lease_before(at(500)).unwrap().is_empty());
    assert!(store.clusters().record_reminder(changed.key, at(500)).unwrap());
    assert!(!store.clusters().record_reminder(changed.key, at(500)).unwrap(), "once");
    assert!(store.clusters().record_reminder(changed.key, at(600)).unwrap(), "another end");
    let forever =
        ClusterRecordChange { expires: Some(LeaseEnd::Never), ..ClusterRecordChange::default() };
    let changed = store.clusters().update("c1", None, &forever, at(6)).unwrap();
    assert_eq!((changed.expires, &*changed.description), (None, "longer"));
}

fn health_changes_only_without_an_operation(backend: Backend) {
    let store = with_project(backend);
    create(&store, "c1", 7);
    let set = |status, message: &str| {
        let cluster = store.clusters().get("c1").unwrap();
        store.clusters().set_health(&cluster, status, message, at(9)).unwrap();
        store.clusters().get("c1").unwrap().status
    };
    assert_eq!(set(ClusterPhase::Degraded, "drift"), ClusterPhase::Pending);
    finish(&store, "c1", 1);
    assert_eq!(set(ClusterPhase::Degraded, "drift"), ClusterPhase::Degraded);
    let before = store.changes().latest().unwrap();
    assert_eq!(set(ClusterPhase::Degraded, "drift"), ClusterPhase::Degraded);
    assert_eq!(store.changes().latest().unwrap(), before, "nothing changed");
    assert_eq!(set(ClusterPhase::Active, ""), ClusterPhase::Active);
}

fn plugin_resources_are_staged_and_synced(backend: Backend) {
    let store = with_project(backend);
    let shop: ProjectId = id_of(SHOP);
    let name =
        PluginResourceName { project: shop, plugin: "shell", kind: "scripts", name: "app.sh" };
    let put = |digest: &str, content: &[u8]| {
        store.plugin_resources().put(name, (digest, content), "user:ada", at(5)).unwrap()
    };
    let one = put("d1", b"one");
    assert_eq!((one.version, one.is_staged, one.is_live, one.size), (1, true, false, 3));
    assert_eq!(put("d1", b"one"), one, "the same content is no version");
    let two = put("d2", b"two!");
    let flags = || -> Vec<(i64, bool, bool)> {
        let all = store.plugin_resources().list(shop).unwrap();
        all.into_iter().map(|one| (one.version, one.is_staged, one.is_live)).collect()
    };
    assert_eq!(flags(), [(1, false, false), (2, true, false)]);
    let live = store.plugin_resources().sync(shop, at(6)).unwrap();
    assert_eq!(live.iter().map(|one| &*one.digest).collect::<Vec<_>>(), ["d2"]);
    store.plugin_resources().stage(name, 1, true, at(6)).unwrap();
    assert_eq!(flags(), [(1, true, false), (2, false, true)]);
    let used = store.plugin_resources().delete(name, two.version, at(7));
    assert!(matches!(used, Err(StoreError::Conflict(_))), "{used:?}");
    store.plugin_resources().sync(shop, at(7)).unwrap();
    store.plugin_resources().delete(name, 2, at(8)).unwrap();
    assert_eq!(store.plugin_resources().content(shop, "d2").unwrap(), None);
    assert_eq!(store.plugin_resources().content(shop, "d1").unwrap().as_deref(), Some(&b"one"[..]));
    assert_eq!(store.plugin_resources().content(id_of(9), "d1").unwrap(), None, "not its own");
    store.plugin_resources().stage(name, 1, false, at(9)).unwrap();
    assert_eq!(flags(), [(1, false, true)]);
    assert!(store.plugin_resources().sync(shop, at(10)).unwrap().is_empty());
    let missing = store.plugin_resources().stage(name, 9, true, at(9));
    assert!(matches!(missing, Err(StoreError::NotFound { .. })), "{missing:?}");
}
