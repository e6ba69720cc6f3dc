//! Random sequences of puts and deletions, compared with a model that stores every version
//! completely.

use std::collections::BTreeMap;

use orrery_model::{Resource, ResourceId, SetName, VersionNumber};
use orrery_store::{EnvironmentKey, NewVersion, PutScope, ResourceDiff, Store};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::conformance::Case;
use crate::support::{Backend, named, new_version, resource};

pub(crate) fn cases() -> Vec<Case> {
    vec![("versions_equal_those_of_a_naive_store", versions_equal_those_of_a_naive_store)]
}

type Whole = BTreeMap<ResourceId, Resource>;

/// Draft of a resource: its number, value, set, whether it sends events, and the earlier ones that
/// it requires.
#[derive(Clone, Debug)]
struct Draft {
    number: usize,
    value: u32,
    set: usize,
    send_event: bool,
    requires: Vec<usize>,
}

#[derive(Clone, Debug)]
enum Step {
    PutAll(Vec<Draft>),
    PutSets { sets: Vec<usize>, drafts: Vec<Draft> },
    Delete(usize),
    Keep(usize),
}

const SETS: [Option<&str>; 3] = [None, Some("a"), Some("b")];

fn set_name(set: usize) -> SetName {
    SETS[set].map(Into::into)
}

fn drafts() -> impl Strategy<Value = Vec<Draft>> {
    let draft = (
        0..10_usize,
        0..3_u32,
        0..3_usize,
        any::<bool>(),
        prop::collection::vec(0..10_usize, 0..3),
    )
        .prop_map(|(number, value, set, send_event, requires)| Draft {
            number,
            value,
            set,
            send_event,
            requires,
        });
    prop::collection::vec(draft, 0..10)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => drafts().prop_map(Step::PutAll),
        4 => (prop::collection::vec(1..3_usize, 0..3), drafts())
            .prop_map(|(sets, drafts)| Step::PutSets { sets, drafts }),
        3 => (0..12_usize).prop_map(Step::Delete),
        1 => (1..5_usize).prop_map(Step::Keep),
    ];
    prop::collection::vec(step, 1..14)
}

fn name_of(number: usize) -> ResourceId {
    named(&format!("{number}"))
}

/// Turns drafts into resources of a version: each once, requiring only existing earlier ones of the
/// same set or the shared one.
fn realize(drafts: &[Draft], others: &Whole) -> Vec<Resource> {
    let mut sets: BTreeMap<usize, usize> = BTreeMap::new();
    for draft in drafts {
        sets.entry(draft.number).or_insert(draft.set);
    }
    let set_of = |id: &ResourceId, number: usize| -> Option<SetName> {
        let given = sets.get(&number).map(|set| set_name(*set));
        given.or_else(|| others.get(id).map(|resource| resource.set.clone()))
    };
    let mut created: Whole = BTreeMap::new();
    for draft in drafts {
        let id = name_of(draft.number);
        let own = set_name(draft.set);
        let requires: Vec<ResourceId> = draft
            .requires
            .iter()
            .filter(|required| **required != draft.number)
            .map(|required| (name_of(*required), *required))
            .filter(|(id, number)| {
                set_of(id, *number).is_some_and(|set| set.is_none() || set == own)
            })
            .map(|(id, _)| id)
            .collect();
        let mut resource = resource(&id, draft.value, &requires.iter().collect::<Vec<_>>());
        resource.set = own;
        resource.flags.send_event = draft.send_event;
        created.entry(id).or_insert(resource);
    }
    created.into_values().collect()
}

/// The slow and obvious store.
#[derive(Default)]
struct Naive {
    /// In the order in which they were put.
    versions: Vec<(VersionNumber, Whole)>,
}

impl Naive {
    fn newest(&self) -> Whole {
        self.versions.last().map(|(_, whole)| whole.clone()).unwrap_or_default()
    }
}

fn apply(store: &Store, environment: EnvironmentKey, naive: &mut Naive, step: &Step) {
    match step {
        Step::PutAll(drafts) => {
            let resources = realize(drafts, &Whole::new());
            let new = NewVersion { released: false, ..new_version(&resources) };
            let number = store.versions().put(environment, &new).unwrap().number;
            let whole = resources.into_iter().map(|one| (one.id.clone(), one)).collect();
            naive.versions.push((number, whole));
        }
        Step::PutSets { sets, drafts } => {
            let current = naive.newest();
            let replaced: Vec<SetName> = sets.iter().map(|set| set_name(*set)).collect();
            // A put of sets does not affect resources of other sets: those neither move nor change
            // here.
            let drafts: Vec<Draft> = drafts
                .iter()
                .filter(|draft| {
                    let now = current.get(&name_of(draft.number)).map(|one| one.set.clone());
                    now.is_none_or(|set| set == set_name(draft.set))
                })
                .cloned()
                .collect();
            let staying: Whole = current
                .into_iter()
                .filter(|(_, resource)| !replaced.contains(&resource.set))
                .collect();
            let resources = realize(&drafts, &staying);
            let scope = PutScope::Sets(&replaced);
            let new = NewVersion { released: false, scope, ..new_version(&resources) };
            let stored = store.versions().put(environment, &new).unwrap();
            let mut whole = staying;
            whole.extend(resources.into_iter().map(|one| (one.id.clone(), one)));
            assert_eq!(stored.total, whole.len() as u64);
            naive.versions.push((stored.number, whole));
        }
        Step::Delete(index) => {
            if naive.versions.is_empty() {
                return;
            }
            let (number, _) = naive.versions.remove(index % naive.versions.len());
            store.versions().delete(environment, number).unwrap();
        }
        Step::Keep(keep) => {
            let deleted = store.versions().retain(environment, *keep).unwrap();
            let surplus = naive.versions.len().saturating_sub(*keep);
            let expected: Vec<_> =
                naive.versions.drain(..surplus).map(|(number, _)| number).collect();
            assert_eq!(deleted, expected);
        }
    }
}

fn naive_difference(before: &Whole, after: &Whole) -> Vec<(Option<Resource>, Option<Resource>)> {
    let mut ids: Vec<&ResourceId> = before.keys().chain(after.keys()).collect();
    ids.sort();
    ids.dedup();
    ids.into_iter()
        .map(|id| (before.get(id).cloned(), after.get(id).cloned()))
        .filter(|(before, after)| before != after)
        .collect()
}

fn compare(store: &Store, environment: EnvironmentKey, naive: &Naive) {
    let infos = store.versions().list(environment).unwrap();
    assert_eq!(infos.len(), naive.versions.len());
    for (number, whole) in &naive.versions {
        let loaded = store.versions().load(environment, *number).unwrap();
        let expected: Vec<&Resource> = whole.values().collect();
        assert_eq!(loaded.resources.iter().collect::<Vec<_>>(), expected, "version {number}");
        let info = infos.iter().find(|info| info.number == *number).unwrap();
        assert_eq!(info.total, whole.len() as u64);
    }
    for (from, before) in &naive.versions {
        for (to, after) in &naive.versions {
            let mut found = Vec::new();
            let see = &mut |difference: ResourceDiff| {
                for side in [&difference.before, &difference.after].into_iter().flatten() {
                    assert_eq!(side.id, difference.id);
                }
                found.push((difference.before, difference.after));
            };
            store.versions().diff(environment, *from, *to, see).unwrap();
            assert_eq!(found, naive_difference(before, after), "from {from} to {to}");
        }
    }
}

fn versions_equal_those_of_a_naive_store(backend: Backend) {
    // A new database takes longer than a new file.
    let cases = if matches!(backend, Backend::Postgres) { 15 } else { 60 };
    let mut runner =
        TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let property = |steps: Vec<Step>| {
        let store = backend.fresh();
        let environment = store.environments().ensure_default().unwrap();
        // A neighbour with the same names, which must not matter.
        let other = store.environments().create("p", "other").unwrap().key;
        let mut naive = Naive::default();
        let mut neighbour = Naive::default();
        for (round, step) in steps.iter().enumerate() {
            apply(&store, environment, &mut naive, step);
            if round % 3 == 0 {
                apply(&store, other, &mut neighbour, step);
            }
            compare(&store, environment, &naive);
        }
        compare(&store, other, &neighbour);
        Ok(())
    };
    if let Err(failure) = runner.run(&steps(), property) {
        panic!("{failure}");
    }
}
