//! Project bindings of environments, and unmanaged resources.

use orrery_model::{
    Attributes, Change, ChangeKind, DeployedResource, OutcomeStatus, Resource, ResourceState,
    Status, Timestamp, VersionNumber,
};
use orrery_store::{
    ActionRecord, EnvironmentChange, EnvironmentKey, Lease, NewVersion, ProjectBinding, PutScope,
    RemovalScope, RemovalStage, ResourceQuery, ResultRecord, StateRecord, Store, StoreError,
    resource_keys,
};

use crate::support::{Backend, action, deployed, empty_result, lease, named, new_version, put};

super::list_cases![
    the_first_project_binds_an_environment,
    a_binding_ends_with_what_it_was_for,
    unmanaged_resources_are_listed_until_removed,
    an_interrupted_removal_is_found_again,
    resources_not_created_by_a_deploy_are_adopted,
    removed_resources_are_not_listed,
    removal_stages_are_reported,
];

fn the_first_project_binds_an_environment(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let bound = || store.environments().by_key(environment).unwrap().model_project;
    let revision = store.environments().by_key(environment).unwrap().revision;
    let resources = file("/a", false, &[]);
    let resources = std::slice::from_ref(&resources);
    let with = |project| {
        let new =
            NewVersion { project: Some(project), only_if_changed: true, ..new_version(resources) };
        store.versions().put(environment, &new)
    };
    let refused = |project, declared: &str, by: &str| {
        let before = store.versions().list(environment).unwrap().len();
        match with(project).unwrap_err() {
            StoreError::OtherProject { bound, declared: actual } => {
                assert_eq!((bound.as_str(), actual.as_str()), (by, declared));
            }
            error => panic!("{error:?}"),
        }
        assert_eq!(store.versions().list(environment).unwrap().len(), before, "nothing is stored");
    };
    with(ProjectBinding::Check("notes")).unwrap();
    assert_eq!(bound(), "");
    with(ProjectBinding::Bind("notes")).unwrap();
    assert_eq!(bound(), "notes");
    with(ProjectBinding::Bind("notes")).unwrap();
    with(ProjectBinding::Check("notes")).unwrap();
    refused(ProjectBinding::Bind("fleet"), "fleet", "notes");
    refused(ProjectBinding::Check("fleet"), "fleet", "notes");
    refused(ProjectBinding::Bind(""), "", "notes");
    assert_eq!(bound(), "notes");
    // Clients without projects continue to work.
    put(&store, environment, resources).unwrap();
    assert_eq!(bound(), "notes");
    with(ProjectBinding::Rebind("fleet")).unwrap();
    assert_eq!(bound(), "fleet");
    refused(ProjectBinding::Bind("notes"), "notes", "fleet");
    with(ProjectBinding::Unbind).unwrap();
    assert_eq!(bound(), "");
    let after = store.environments().by_key(environment).unwrap().revision;
    assert_eq!(after, revision, "people did not change the environment");
    // Other environments are not affected.
    let other = store.environments().create("p", "other").unwrap();
    let new = NewVersion { project: Some(ProjectBinding::Bind("a")), ..new_version(resources) };
    store.versions().put(other.key, &new).unwrap();
    assert_eq!(bound(), "");
}

fn a_binding_ends_with_what_it_was_for(backend: Backend) {
    let store = backend.fresh();
    let created = store.environments().create("p", "e").unwrap();
    let bound = || store.environments().get(created.uuid).unwrap().model_project;
    let bind = || {
        let new = NewVersion { project: Some(ProjectBinding::Bind("a")), ..new_version(&[]) };
        store.versions().put(created.key, &new).unwrap();
        assert_eq!(bound(), "a");
    };
    let change = |change: EnvironmentChange<'_>| {
        store.environments().update(created.uuid, None, &change, Timestamp(1)).unwrap();
    };
    bind();
    change(EnvironmentChange { description: Some("d"), ..EnvironmentChange::default() });
    assert_eq!(bound(), "a");
    change(EnvironmentChange { repository: Some("https://x"), ..EnvironmentChange::default() });
    assert_eq!(bound(), "");
    bind();
    change(EnvironmentChange { repository: Some("https://x"), ..EnvironmentChange::default() });
    assert_eq!(bound(), "a", "it is the same repository");
    change(EnvironmentChange { model_project: Some("b"), ..EnvironmentChange::default() });
    assert_eq!(bound(), "b");
    change(EnvironmentChange { model_project: Some(""), ..EnvironmentChange::default() });
    bind();
    while !store.environments().delete_contents(created.key, Timestamp(2)).unwrap() {}
    assert_eq!(bound(), "");
}

fn file(path: &str, purged: bool, requires: &[&str]) -> Resource {
    let attributes = Attributes::parse(&format!(r#"{{"mode":1,"purged":{purged}}}"#)).unwrap();
    Resource::new(named(path), attributes, requires.iter().map(|path| named(path)).collect())
}

/// An engine that processes versions and records outcomes of runs.
struct Engine<'a> {
    store: &'a Store,
    environment: EnvironmentKey,
    lease: Lease,
}

impl Engine<'_> {
    fn put(&self, resources: &[Resource]) -> VersionNumber {
        put(self.store, self.environment, resources).unwrap().number
    }

    fn put_state(&self, version: VersionNumber, resource: &Resource, state: &ResourceState) {
        let keys = resource_keys(self.store, self.environment, [&resource.id]);
        // An unmanaged resource has a key as well.
        let key = keys.unwrap()[&resource.id];
        let records = [StateRecord { resource: key, state }];
        self.store.engine().process_version(&self.lease, version, &records).unwrap();
    }

    fn run(&self, version: VersionNumber, resource: &Resource, outcome: OutcomeStatus) {
        let is_good = outcome == OutcomeStatus::Deployed;
        let state = ResourceState {
            last_outcome: Some(outcome),
            last_success: is_good.then_some(Timestamp(7)),
            ..deployed(resource, Timestamp(7))
        };
        self.put_state(version, resource, &state);
    }

    fn found(&self, scope: RemovalScope) -> Vec<DeployedResource> {
        self.store.resources().unmanaged(self.environment, scope).unwrap()
    }

    fn names(&self, scope: RemovalScope) -> Vec<String> {
        self.found(scope).iter().map(|one| one.resource.id.value().to_owned()).collect()
    }
}

fn engine(store: &Store) -> Engine<'_> {
    let environment = store.environments().ensure_default().unwrap();
    Engine { store, environment, lease: lease(store, environment) }
}

fn unmanaged_resources_are_listed_until_removed(backend: Backend) {
    use OutcomeStatus::{Deployed, Failed, SkippedForDependency, Unavailable};
    let store = backend.fresh();
    let engine = engine(&store);
    let mut in_set = file("/set", false, &["/d"]);
    in_set.set = Some("s".into());
    let all = [
        file("/d", false, &[]),
        file("/d/a", false, &["/d"]),
        file("/failed", false, &[]),
        file("/kept", false, &[]),
        in_set,
        file("/skipped", false, &[]),
        file("/unavailable", false, &[]),
    ];
    let first = engine.put(&all);
    assert_eq!(engine.names(RemovalScope::All), [""; 0], "nothing has run");
    let outcomes =
        [Deployed, Deployed, Failed, Deployed, Deployed, SkippedForDependency, Unavailable];
    for (resource, outcome) in all.iter().zip(outcomes) {
        engine.run(first, resource, outcome);
    }
    assert_eq!(engine.names(RemovalScope::Unmanaged), [""; 0]);
    // A resource that failed and was never deployed needs no removal.
    let deployed = ["/d/a", "/d", "/kept", "/set"];
    assert_eq!(engine.names(RemovalScope::All), deployed);

    let second = engine.put(&all[3..4]);
    assert_eq!(engine.names(RemovalScope::Unmanaged), ["/d/a", "/d", "/set"]);
    let found = engine.found(RemovalScope::All);
    assert_eq!(
        found.iter().map(|one| one.is_managed).collect::<Vec<_>>(),
        [false, false, true, false]
    );
    let expected = DeployedResource {
        resource: all[1].clone(),
        is_removal: false,
        is_managed: false,
        was_managed: true,
        is_adopted: true,
    };
    assert_eq!(found[0], expected);
    assert_eq!(found[3].resource, all[4]);
    // An engine that processes the version deletes its state.
    let without_intent = ResourceState { intent: None, ..ResourceState::new(all[1].hash, false) };
    engine.put_state(second, &all[1], &without_intent);
    let expected = DeployedResource { was_managed: false, ..expected };
    assert_eq!(engine.found(RemovalScope::Unmanaged)[0], expected);
    // A candidate without it changes nothing, whether it stays or not.
    let gone = [file("/d/a", true, &[]), all[3].clone()];
    let candidate = NewVersion { released: false, ..new_version(&gone) };
    let candidate = store.versions().put(engine.environment, &candidate).unwrap().number;
    assert_eq!(engine.names(RemovalScope::All), deployed);
    store.versions().delete(engine.environment, candidate).unwrap();
    assert_eq!(engine.found(RemovalScope::All)[0], expected);

    let third = engine.put(&gone);
    engine.run(third, &gone[0], Failed);
    assert_eq!(engine.names(RemovalScope::All), deployed);
    engine.run(third, &gone[0], Deployed);
    assert_eq!(engine.names(RemovalScope::All), ["/d", "/kept", "/set"]);
    engine.put(&all[3..4]);
    assert_eq!(engine.names(RemovalScope::Unmanaged), ["/d", "/set"]);
    // A later version has it again.
    let again = engine.put(&all[1..4].iter().map(alone).collect::<Vec<_>>());
    engine.run(again, &all[1], Deployed);
    assert_eq!(engine.names(RemovalScope::Unmanaged), ["/d", "/set"]);
    assert!(engine.names(RemovalScope::All).contains(&"/d/a".to_owned()));
    assert!(second < again);
}

fn alone(resource: &Resource) -> Resource {
    Resource { requires: Vec::new(), ..resource.clone() }
}

fn an_interrupted_removal_is_found_again(backend: Backend) {
    let store = backend.fresh();
    let engine = engine(&store);
    let all = [file("/d", false, &[]), file("/d/a", false, &["/d"])];
    let first = engine.put(&all);
    for resource in &all {
        engine.run(first, resource, OutcomeStatus::Deployed);
    }
    engine.put(&[]);
    // The version that removes has reversed requirements, and its resources are new to the engine.
    let removal = [file("/d", true, &["/d/a"]), file("/d/a", true, &[])];
    let third = engine.put(&removal);
    for resource in &removal {
        engine.put_state(third, resource, &ResourceState::new(resource.hash, false));
    }
    let found = engine.found(RemovalScope::All);
    assert_eq!(found.len(), 2, "none was removed yet");
    assert!(found.iter().all(|one| !one.is_removal && one.is_managed));
    assert_eq!(found[0].resource, all[1], "the requirements are those of the model");
    engine.run(third, &removal[1], OutcomeStatus::Deployed);
    assert_eq!(engine.names(RemovalScope::All), ["/d"]);
    // In an environment without older versions, only the removal is stored.
    for old in [1, 2] {
        store.versions().delete(engine.environment, VersionNumber(old)).unwrap();
    }
    engine.run(third, &removal[0], OutcomeStatus::Failed);
    let found = engine.found(RemovalScope::All);
    assert_eq!(found.len(), 1);
    assert!(found[0].is_removal);
    let empty = NewVersion { scope: PutScope::All, ..new_version(&[]) };
    store.versions().put(engine.environment, &empty).unwrap();
    assert_eq!(engine.names(RemovalScope::Unmanaged), ["/d"]);
}

impl Engine<'_> {
    /// Records a successful run with its change.
    fn change(&self, version: VersionNumber, resource: &Resource, kind: ChangeKind) {
        self.end(version, resource, kind, OutcomeStatus::Deployed);
    }

    /// Records a failed run with the change that it made before.
    fn fail(&self, version: VersionNumber, resource: &Resource, kind: ChangeKind) {
        self.end(version, resource, kind, OutcomeStatus::Failed);
    }

    fn end(
        &self,
        version: VersionNumber,
        resource: &Resource,
        kind: ChangeKind,
        outcome: OutcomeStatus,
    ) {
        let key =
            resource_keys(self.store, self.environment, [&resource.id]).unwrap()[&resource.id];
        let state = deployed(resource, Timestamp(7));
        let change = Change { kind, attributes: Vec::new() };
        let wants_absence = orrery_model::wants_absence(&resource.attributes);
        let action = ActionRecord { wants_absence, outcome, ..action(version, 7, &change, &[]) };
        let results = [
            ResultRecord { state: Some(&state), ..empty_result(key) },
            ResultRecord { action: Some(action), ..empty_result(key) },
        ];
        self.store.engine().record_results(&self.lease, &results).unwrap();
    }

    fn adopted(&self) -> Vec<String> {
        let found = self.found(RemovalScope::All);
        let adopted = found.iter().filter(|one| one.is_adopted);
        adopted.map(|one| one.resource.id.value().to_owned()).collect()
    }
}

fn resources_not_created_by_a_deploy_are_adopted(backend: Backend) {
    let store = backend.fresh();
    let engine = engine(&store);
    let all = ["/created", "/found", "/updated"].map(|path| file(path, false, &[]));
    let version = engine.put(&all);
    engine.change(version, &all[0], ChangeKind::Created);
    engine.change(version, &all[1], ChangeKind::NoChange);
    engine.change(version, &all[2], ChangeKind::Updated);
    assert_eq!(engine.adopted(), ["/found", "/updated"]);
    // Later runs find the resource that the first one created; neither they nor a restarted engine
    // make it foreign.
    engine.change(version, &all[0], ChangeKind::NoChange);
    engine.change(version, &all[0], ChangeKind::Updated);
    engine.put_state(version, &all[0], &ResourceState::new(all[0].hash, false));
    engine.change(version, &all[0], ChangeKind::NoChange);
    store.engine().expire_actions(&engine.lease, Timestamp(i64::MAX)).unwrap();
    assert_eq!(engine.adopted(), ["/found", "/updated"]);
    // A resource that was lost and created again is no longer adopted.
    engine.change(version, &all[1], ChangeKind::Created);
    assert_eq!(engine.adopted(), ["/updated"]);
    // A run that created something before it failed created it; another failed run determines
    // nothing.
    for (resource, kind) in [(&all[2], ChangeKind::NoChange), (&all[0], ChangeKind::Updated)] {
        engine.fail(version, resource, kind);
    }
    assert_eq!(engine.adopted(), ["/updated"]);
    engine.fail(version, &all[2], ChangeKind::Created);
    engine.change(version, &all[2], ChangeKind::NoChange);
    assert!(engine.adopted().is_empty());
    // A resource that is removed and created again by others is adopted.
    let absent = file("/created", true, &[]);
    let version = engine.put(std::slice::from_ref(&absent));
    engine.change(version, &absent, ChangeKind::Purged);
    let version = engine.put(&all[..1]);
    engine.change(version, &all[0], ChangeKind::NoChange);
    assert_eq!(engine.adopted(), ["/created"]);
}

fn removed_resources_are_not_listed(backend: Backend) {
    let store = backend.fresh();
    let engine = engine(&store);
    let all = ["/purged", "/gone", "/left"].map(|path| file(path, false, &[]));
    let version = engine.put(&all);
    all.iter().for_each(|one| engine.change(version, one, ChangeKind::Created));
    let removal = [file("/purged", true, &[]), file("/gone", true, &[]), all[2].clone()];
    let version = engine.put(&removal);
    engine.change(version, &removal[0], ChangeKind::Purged);
    // It was removed by others before.
    engine.change(version, &removal[1], ChangeKind::NoChange);
    let version = engine.put(&[]);
    for resource in &removal {
        let state = ResourceState { intent: None, ..deployed(resource, Timestamp(7)) };
        engine.put_state(version, resource, &state);
    }
    let counts = store.resources().count_statuses(engine.environment).unwrap();
    assert_eq!(counts, [(Status::Orphaned, 1)].into());
    let statuses = vec![Status::Orphaned];
    let query = ResourceQuery { statuses, ..ResourceQuery::default() };
    let listed = store.resources().list(engine.environment, &query, None, 10).unwrap();
    let values: Vec<&str> = listed.lines.iter().map(|line| line.summary.id.value()).collect();
    assert_eq!(values, ["/left"]);
    // Listed on request.
    let query = ResourceQuery { removed: true, ..query };
    let listed = store.resources().list(engine.environment, &query, None, 10).unwrap();
    let stages: Vec<_> =
        listed.lines.iter().map(|line| (line.summary.id.value(), line.removal)).collect();
    let done = Some(RemovalStage::Done);
    assert_eq!(stages, [("/gone", done), ("/left", None), ("/purged", done)]);
    let all_ids = [("", "\u{10ffff}")];
    let count = store.resources().count_listed(engine.environment, &all_ids, true).unwrap();
    assert_eq!(count, 1);
    // Its history can still be read.
    let gone = store.resources().find(engine.environment, removal[0].id.as_str()).unwrap();
    assert_eq!(gone.map(|one| one.status), Some(Status::Orphaned));
}

/// Resources of a removing version report their stage as soon as it is released.
fn removal_stages_are_reported(backend: Backend) {
    let store = backend.fresh();
    let engine = engine(&store);
    let all = ["/a", "/b", "/c"].map(|path| file(path, false, &[]));
    // A resource that the model itself declares absent is deployed, not removed.
    let absent = file("/absent", true, &[]);
    let version = engine.put(&[&all[..], std::slice::from_ref(&absent)].concat());
    all.iter().for_each(|one| engine.change(version, one, ChangeKind::Created));
    engine.change(version, &absent, ChangeKind::NoChange);
    let leaving = |path: &str| {
        let mut resource = file(path, true, &[]);
        resource.flags.removal = true;
        resource
    };
    let removal = [all[0].clone(), absent.clone(), leaving("/b"), leaving("/c")];
    let info = serde_json::json!({"removes": 2});
    let new = NewVersion { info: &info, released: false, ..new_version(&removal) };
    let stages = || {
        let query = ResourceQuery { statuses: Status::ALL.to_vec(), ..ResourceQuery::default() };
        let listed = store.resources().list(engine.environment, &query, None, 10).unwrap();
        let stages: Vec<_> = listed.lines.iter().map(|line| line.removal).collect();
        for line in listed.lines {
            let id = line.summary.id.as_str();
            let same = store.resources().line(engine.environment, id).unwrap();
            assert_eq!(same.removal, line.removal);
            let details = store.resources().details(&[(engine.environment, id)]).unwrap();
            assert_eq!(details[0].as_ref().unwrap().line.removal, line.removal);
        }
        stages
    };
    let counts = || {
        let counts = store.resources().count(engine.environment).unwrap();
        let of = |status| counts.iter().filter(move |one| one.status == status);
        let sum = |status| of(status).fold((0, 0), |(a, b), one| (a + one.count, b + one.removals));
        (sum(Status::Deployed), sum(Status::Failed), sum(Status::Available))
    };
    let candidate = store.versions().put(engine.environment, &new).unwrap().number;
    assert_eq!(stages(), [None; 4], "it is not released");
    store.versions().delete(engine.environment, candidate).unwrap();
    let version = store
        .versions()
        .put(engine.environment, &NewVersion { released: true, ..new })
        .unwrap()
        .number;
    let (pending, done) = (Some(RemovalStage::Pending), Some(RemovalStage::Done));
    assert_eq!(stages(), [None, None, pending, pending]);
    assert_eq!(counts(), ((2, 0), (0, 0), (2, 2)));
    engine.run(version, &removal[0], OutcomeStatus::Deployed);
    engine.run(version, &absent, OutcomeStatus::Deployed);
    engine.change(version, &removal[2], ChangeKind::Purged);
    let failed = ResourceState {
        last_outcome: Some(OutcomeStatus::Failed),
        last_run_compliant: Some(false),
        last_deployed: Some(removal[3].hash),
        ..deployed(&removal[3], Timestamp(7))
    };
    engine.put_state(version, &removal[3], &failed);
    assert_eq!(stages(), [None, None, done, pending]);
    assert_eq!(counts(), ((3, 1), (1, 1), (0, 0)));
}
