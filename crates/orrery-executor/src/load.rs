//! From the store to the scheduler: what is wanted, what it was before, and how far the work had come.

use orrery_model::{Resource, ResourceState, SetName, VersionNumber};
use orrery_scheduler::{Intent, Recovered, Recovery, Scope, SetContent, SetDiff, VersionDiff};
use orrery_store::{EnvironmentKey, ResourceKey, Store, StoreError};
use rustc_hash::{FxHashMap, FxHashSet};

/// A version that is stored, with all its resources.
#[derive(Clone, Debug)]
pub struct Desired {
    pub version: VersionNumber,
    /// In the order of their ids.
    pub resources: Vec<Resource>,
    /// Keys in the store, in the same order.
    pub keys: Vec<ResourceKey>,
}

/// What an engine starts from.
#[derive(Debug)]
pub struct Start {
    pub desired: Desired,
    pub recovery: Recovery,
    /// Resources that an earlier version had and this one has not.
    pub former: Vec<(Resource, ResourceKey)>,
    /// Resources whose state is in the store.
    pub(crate) states: FxHashMap<ResourceKey, ResourceState>,
    /// Resources of whose effect nobody knows whether it happened.
    pub(crate) unknown: FxHashSet<ResourceKey>,
}

/// How all resources were when they were last looked at.
#[derive(Clone, Debug)]
pub struct KnownStates(FxHashMap<ResourceKey, ResourceState>);

impl KnownStates {
    /// Reads them. To be called after [`crate::note_interrupted`].
    ///
    /// # Errors
    /// Those of the store.
    pub fn read(store: &dyn Store, environment: EnvironmentKey) -> Result<Self, StoreError> {
        let mut states = FxHashMap::default();
        store.read_states(environment, &mut |row| {
            states.insert(row.key, row.state.clone());
        })?;
        Ok(KnownStates(states))
    }

    pub fn get(&self, resource: ResourceKey) -> Option<&ResourceState> {
        self.0.get(&resource)
    }
}

/// Works out what has to happen to get from what was last processed to `desired`.
///
/// # Errors
/// Those of the store.
pub fn recovery(
    store: &dyn Store,
    environment: EnvironmentKey,
    desired: Desired,
) -> Result<Start, StoreError> {
    let states = KnownStates::read(store, environment)?;
    recovery_with(store, environment, desired, states)
}

/// As [`recovery`], for whoever has read the states before.
///
/// # Errors
/// Those of the store.
pub fn recovery_with(
    store: &dyn Store,
    environment: EnvironmentKey,
    desired: Desired,
    states: KnownStates,
) -> Result<Start, StoreError> {
    let KnownStates(states) = states;
    let paused = store.agents(environment)?.into_iter().filter(|agent| agent.paused);
    let paused = paused.map(|agent| agent.name.into()).collect();
    let processed = store.processed_version(environment)?;
    let mut differences = Vec::new();
    let base = match processed {
        Some(processed) if processed != desired.version => {
            let read =
                store.diff_versions(environment, processed, desired.version, &mut |difference| {
                    differences.push(difference);
                });
            match read {
                Ok(()) => Some(processed),
                // What was processed was cleaned away since: everything is read anew.
                Err(StoreError::NoVersion(_)) => None,
                Err(error) => return Err(error),
            }
        }
        other => other,
    };
    let recovered = |resource: &Resource, key: ResourceKey| Recovered {
        intent: Intent::from(resource),
        set: resource.set.clone(),
        state: states
            .get(&key)
            .cloned()
            .unwrap_or_else(|| ResourceState::new(resource.hash, resource.flags.undefined)),
    };
    let mut former = Vec::new();
    let (resources, newer) = match base {
        None => (Vec::new(), vec![whole(&desired)]),
        Some(base) => {
            let mut diff = Changes::default();
            let mut resources = Vec::with_capacity(desired.resources.len());
            let mut changed = FxHashMap::default();
            for difference in differences {
                changed.insert(difference.key, ());
                if let Some(before) = &difference.before {
                    resources.push(recovered(before, difference.key));
                }
                diff.add(difference.before.as_ref(), difference.after.as_ref());
                if difference.after.is_none()
                    && let Some(before) = difference.before
                {
                    former.push((before, difference.key));
                }
            }
            for (resource, &key) in desired.resources.iter().zip(&desired.keys) {
                if !changed.contains_key(&key) {
                    resources.push(recovered(resource, key));
                }
            }
            let newer = if base == desired.version {
                Vec::new()
            } else {
                vec![diff.finish(desired.version)]
            };
            (resources, newer)
        }
    };
    let recovery =
        Recovery { version: base, resources, paused, halted: false, reset: false, newer };
    let unknown = store.records().unknown_effects(environment)?;
    let unknown = unknown.into_iter().map(|effect| effect.resource).collect();
    Ok(Start { desired, recovery, former, states, unknown })
}

/// The version as the first one that is ever seen.
fn whole(desired: &Desired) -> VersionDiff {
    let mut sets: FxHashMap<SetName, Vec<Intent>> = FxHashMap::default();
    let mut order = Vec::new();
    for resource in &desired.resources {
        let intents = sets.entry(resource.set.clone()).or_insert_with(|| {
            order.push(resource.set.clone());
            Vec::new()
        });
        intents.push(Intent::from(resource));
    }
    let sets = order
        .into_iter()
        .map(|set| {
            let content = SetContent::Whole(sets.remove(&set).unwrap_or_default());
            SetDiff { set, content }
        })
        .collect();
    VersionDiff { version: desired.version, scope: Scope::Everything, sets }
}

/// Differences by set.
#[derive(Default)]
pub(crate) struct Changes {
    sets: FxHashMap<SetName, (Vec<Intent>, Vec<orrery_model::ResourceId>)>,
    order: Vec<SetName>,
}

impl Changes {
    fn set(&mut self, name: &SetName) -> &mut (Vec<Intent>, Vec<orrery_model::ResourceId>) {
        if !self.sets.contains_key(name) {
            self.order.push(name.clone());
        }
        self.sets.entry(name.clone()).or_default()
    }

    pub(crate) fn add(&mut self, before: Option<&Resource>, after: Option<&Resource>) {
        if let Some(before) = before
            && after.is_none_or(|after| after.set != before.set)
        {
            self.set(&before.set).1.push(before.id.clone());
        }
        if let Some(after) = after {
            self.set(&after.set).0.push(Intent::from(after));
        }
    }

    pub(crate) fn finish(mut self, version: VersionNumber) -> VersionDiff {
        let sets = std::mem::take(&mut self.order)
            .into_iter()
            .map(|set| {
                let (resources, removed) = self.sets.remove(&set).unwrap_or_default();
                SetDiff { set, content: SetContent::Changes { resources, removed } }
            })
            .collect();
        VersionDiff { version, scope: Scope::ChangedSets, sets }
    }
}
