//! The project that an environment is bound to, and what of its resources may still exist.

use orrery_model::{
    Attributes, OutcomeStatus, Remnant, Resource, ResourceState, Timestamp, VersionNumber,
};
use orrery_store::{
    EnvironmentChange, EnvironmentKey, Lease, NewVersion, ProjectBinding, RemnantScope, Scope,
    StateRecord, Store, StoreError, keys_of,
};

use crate::support::{Backend, deployed, lease, named, new_version, put};

super::list_cases![
    the_first_project_binds_an_environment,
    a_binding_ends_with_what_it_was_for,
    what_was_deployed_is_found_until_it_is_gone,
    a_removal_that_was_begun_is_found_again,
];

fn the_first_project_binds_an_environment(backend: Backend) {
    let store = backend.fresh();
    let environment = store.default_environment().unwrap();
    let bound = || store.records().environment_of(environment).unwrap().model_project;
    let revision = store.records().environment_of(environment).unwrap().revision;
    let resources = file("/a", false, &[]);
    let resources = std::slice::from_ref(&resources);
    let with = |project| {
        let new =
            NewVersion { project: Some(project), only_if_changed: true, ..new_version(resources) };
        store.put_version(environment, &new)
    };
    let refused = |project, declared: &str, by: &str| {
        let before = store.versions(environment).unwrap().len();
        match with(project).unwrap_err() {
            StoreError::OtherProject { bound, declared: told } => {
                assert_eq!((bound.as_str(), told.as_str()), (by, declared));
            }
            error => panic!("{error:?}"),
        }
        assert_eq!(store.versions(environment).unwrap().len(), before, "nothing is stored");
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
    // Clients that do not know of projects go on.
    put(&*store, environment, resources).unwrap();
    assert_eq!(bound(), "notes");
    with(ProjectBinding::Rebind("fleet")).unwrap();
    assert_eq!(bound(), "fleet");
    refused(ProjectBinding::Bind("notes"), "notes", "fleet");
    with(ProjectBinding::Unbind).unwrap();
    assert_eq!(bound(), "");
    let after = store.records().environment_of(environment).unwrap().revision;
    assert_eq!(after, revision, "people did not change the environment");
    // Other environments are not concerned.
    let other = store.create_environment("p", "other").unwrap();
    let new = NewVersion { project: Some(ProjectBinding::Bind("a")), ..new_version(resources) };
    store.put_version(other.key, &new).unwrap();
    assert_eq!(bound(), "");
}

fn a_binding_ends_with_what_it_was_for(backend: Backend) {
    let store = backend.fresh();
    let made = store.create_environment("p", "e").unwrap();
    let records = store.records();
    let bound = || records.environment(&made.uuid).unwrap().model_project;
    let bind = || {
        let new = NewVersion { project: Some(ProjectBinding::Bind("a")), ..new_version(&[]) };
        store.put_version(made.key, &new).unwrap();
        assert_eq!(bound(), "a");
    };
    let change = |change: EnvironmentChange<'_>| {
        records.update_environment(&made.uuid, None, &change, Timestamp(1)).unwrap();
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
    while !records.erase_contents(made.key, Timestamp(2)).unwrap() {}
    assert_eq!(bound(), "");
}

fn file(path: &str, purged: bool, requires: &[&str]) -> Resource {
    let attributes = Attributes::parse(&format!(r#"{{"mode":1,"purged":{purged}}}"#)).unwrap();
    Resource::new(named(path), attributes, requires.iter().map(|path| named(path)).collect())
}

/// An engine that takes in versions and writes down how runs ended.
struct Engine<'a> {
    store: &'a dyn Store,
    environment: EnvironmentKey,
    lease: Lease,
}

impl Engine<'_> {
    fn put(&self, resources: &[Resource]) -> VersionNumber {
        put(self.store, self.environment, resources).unwrap().number
    }

    fn keep(&self, version: VersionNumber, resource: &Resource, state: &ResourceState) {
        let keys = keys_of(self.store, self.environment, [&resource.id]);
        // One that no version wants has a key as well.
        let key = keys.unwrap()[&resource.id];
        let records = [StateRecord { resource: key, state }];
        self.store.process_version(&self.lease, version, &records).unwrap();
    }

    fn run(&self, version: VersionNumber, resource: &Resource, outcome: OutcomeStatus) {
        let is_good = outcome == OutcomeStatus::Deployed;
        let state = ResourceState {
            last_outcome: Some(outcome),
            last_success: is_good.then_some(Timestamp(7)),
            ..deployed(resource, Timestamp(7))
        };
        self.keep(version, resource, &state);
    }

    fn found(&self, scope: RemnantScope) -> Vec<Remnant> {
        self.store.records().remnants(self.environment, scope).unwrap()
    }

    fn names(&self, scope: RemnantScope) -> Vec<String> {
        self.found(scope).iter().map(|one| one.resource.id.value().to_owned()).collect()
    }
}

fn engine(store: &dyn Store) -> Engine<'_> {
    let environment = store.default_environment().unwrap();
    Engine { store, environment, lease: lease(store, environment) }
}

fn what_was_deployed_is_found_until_it_is_gone(backend: Backend) {
    use OutcomeStatus::{Deployed, Failed, SkippedForDependency, Unavailable};
    let store = backend.fresh();
    let engine = engine(&*store);
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
    assert_eq!(engine.names(RemnantScope::All), [""; 0], "nothing has run");
    let outcomes =
        [Deployed, Deployed, Failed, Deployed, Deployed, SkippedForDependency, Unavailable];
    for (resource, outcome) in all.iter().zip(outcomes) {
        engine.run(first, resource, outcome);
    }
    assert_eq!(engine.names(RemnantScope::Unmanaged), [""; 0]);
    let deployed = ["/d/a", "/d", "/failed", "/kept", "/set"];
    assert_eq!(engine.names(RemnantScope::All), deployed);

    let second = engine.put(&all[3..4]);
    assert_eq!(engine.names(RemnantScope::Unmanaged), ["/d/a", "/d", "/failed", "/set"]);
    let found = engine.found(RemnantScope::All);
    assert_eq!(
        found.iter().map(|one| one.is_managed).collect::<Vec<_>>(),
        [false, false, false, true, false]
    );
    let expected = Remnant {
        resource: all[1].clone(),
        is_removal: false,
        is_managed: false,
        was_managed: true,
    };
    assert_eq!(found[0], expected);
    assert_eq!(found[4].resource, all[4]);
    // An engine that takes the version in knows nothing of it any more.
    let forgotten = ResourceState { intent: None, ..ResourceState::new(all[1].hash, false) };
    engine.keep(second, &all[1], &forgotten);
    let expected = Remnant { was_managed: false, ..expected };
    assert_eq!(engine.found(RemnantScope::Unmanaged)[0], expected);
    // A candidate that takes it away changes nothing, whether it stays or not.
    let gone = [file("/d/a", true, &[]), all[3].clone()];
    let candidate = NewVersion { released: false, ..new_version(&gone) };
    let candidate = store.put_version(engine.environment, &candidate).unwrap().number;
    assert_eq!(engine.names(RemnantScope::All), deployed);
    store.delete_version(engine.environment, candidate).unwrap();
    assert_eq!(engine.found(RemnantScope::All)[0], expected);

    let third = engine.put(&gone);
    engine.run(third, &gone[0], Failed);
    assert_eq!(engine.names(RemnantScope::All), deployed);
    engine.run(third, &gone[0], Deployed);
    assert_eq!(engine.names(RemnantScope::All), ["/d", "/failed", "/kept", "/set"]);
    engine.put(&all[3..4]);
    assert_eq!(engine.names(RemnantScope::Unmanaged), ["/d", "/failed", "/set"]);
    // Whoever wants it again has it again.
    let again = engine.put(&all[1..4].iter().map(alone).collect::<Vec<_>>());
    engine.run(again, &all[1], Deployed);
    assert_eq!(engine.names(RemnantScope::Unmanaged), ["/d", "/set"]);
    assert!(engine.names(RemnantScope::All).contains(&"/d/a".to_owned()));
    assert!(second < again);
}

fn alone(resource: &Resource) -> Resource {
    Resource { requires: Vec::new(), ..resource.clone() }
}

fn a_removal_that_was_begun_is_found_again(backend: Backend) {
    let store = backend.fresh();
    let engine = engine(&*store);
    let all = [file("/d", false, &[]), file("/d/a", false, &["/d"])];
    let first = engine.put(&all);
    for resource in &all {
        engine.run(first, resource, OutcomeStatus::Deployed);
    }
    engine.put(&[]);
    // The version that removes has the requirements the other way round, and its resources are new to the engine.
    let removal = [file("/d", true, &["/d/a"]), file("/d/a", true, &[])];
    let third = engine.put(&removal);
    for resource in &removal {
        engine.keep(third, resource, &ResourceState::new(resource.hash, false));
    }
    let found = engine.found(RemnantScope::All);
    assert_eq!(found.len(), 2, "none was removed yet");
    assert!(found.iter().all(|one| !one.is_removal && one.is_managed));
    assert_eq!(found[0].resource, all[1], "the requirements are those of the model");
    engine.run(third, &removal[1], OutcomeStatus::Deployed);
    assert_eq!(engine.names(RemnantScope::All), ["/d"]);
    // Of an environment that keeps no older version, the removal is all that is known.
    for old in [1, 2] {
        store.delete_version(engine.environment, VersionNumber(old)).unwrap();
    }
    engine.run(third, &removal[0], OutcomeStatus::Failed);
    let found = engine.found(RemnantScope::All);
    assert_eq!(found.len(), 1);
    assert!(found[0].is_removal);
    let empty = NewVersion { scope: Scope::All, ..new_version(&[]) };
    store.put_version(engine.environment, &empty).unwrap();
    assert_eq!(engine.names(RemnantScope::Unmanaged), ["/d"]);
}
