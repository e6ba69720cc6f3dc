//! Builds the scheduler's start state from the store: desired state, last processed version,
//! states.

use orrery_model::{Resource, ResourceState, SetName, VersionNumber};
use orrery_scheduler::{
    Intent, RecoveredResource, Recovery, Scope, SetContent, SetDiff, VersionDiff,
};
use orrery_store::{EnvironmentKey, ResourceKey, Store, StoreError};
use rustc_hash::{FxHashMap, FxHashSet};

/// A stored version with all its resources.
#[derive(Clone, Debug)]
pub struct DesiredState {
    pub version: VersionNumber,
    /// Sorted by id.
    pub resources: Vec<Resource>,
    /// Store keys, in the same order.
    pub keys: Vec<ResourceKey>,
}

/// Start state of an engine.
#[derive(Debug)]
pub struct StartState {
    pub desired: DesiredState,
    pub recovery: Recovery,
    /// Resources of an earlier version that this one lacks.
    pub former: Vec<(Resource, ResourceKey)>,
    /// States of resources that have one in the store.
    pub(crate) states: FxHashMap<ResourceKey, ResourceState>,
    /// Resources with an unknown effect.
    pub(crate) unknown: FxHashSet<ResourceKey>,
}

/// Last known states of all resources.
#[derive(Clone, Debug)]
pub struct StoredStates(FxHashMap<ResourceKey, ResourceState>);

impl StoredStates {
    /// Reads the states. Call it after [`crate::record_interrupted`].
    ///
    /// # Errors
    /// Those of the store.
    pub fn read(store: &Store, environment: EnvironmentKey) -> Result<Self, StoreError> {
        let mut states = FxHashMap::default();
        store.engine().read_states(environment, &mut |row| {
            states.insert(row.key, row.state.clone());
        })?;
        Ok(StoredStates(states))
    }

    pub fn get(&self, resource: ResourceKey) -> Option<&ResourceState> {
        self.0.get(&resource)
    }
}

/// Computes the transition from the last processed version to `desired`.
///
/// # Errors
/// Those of the store.
pub fn recover(
    store: &Store,
    environment: EnvironmentKey,
    desired: DesiredState,
) -> Result<StartState, StoreError> {
    let states = StoredStates::read(store, environment)?;
    recover_with(store, environment, desired, states)
}

/// Like [`recover`], with states that were already read.
///
/// # Errors
/// Those of the store.
pub fn recover_with(
    store: &Store,
    environment: EnvironmentKey,
    desired: DesiredState,
    states: StoredStates,
) -> Result<StartState, StoreError> {
    let StoredStates(states) = states;
    let paused = store.agents().states(environment)?.into_iter().filter(|agent| agent.paused);
    let paused = paused.map(|agent| agent.name.into()).collect();
    let processed = store.engine().processed_version(environment)?;
    let mut differences = Vec::new();
    let base = match processed {
        Some(processed) if processed != desired.version => {
            let read =
                store.versions().diff(environment, processed, desired.version, &mut |difference| {
                    differences.push(difference);
                });
            match read {
                Ok(()) => Some(processed),
                // The processed version was deleted since: everything is read anew.
                Err(StoreError::NoVersion(_)) => None,
                Err(error) => return Err(error),
            }
        }
        other => other,
    };
    let recovered = |resource: &Resource, key: ResourceKey| RecoveredResource {
        intent: Intent::from(resource),
        set: resource.set.clone(),
        state: states
            .get(&key)
            .cloned()
            .unwrap_or_else(|| ResourceState::new(resource.hash, resource.flags.undefined)),
    };
    let mut former = Vec::new();
    let (resources, newer) = match base {
        None => (Vec::new(), vec![full_diff(&desired)]),
        Some(base) => {
            let mut diff = DiffBuilder::default();
            let mut resources = Vec::with_capacity(desired.resources.len());
            let mut changed = FxHashSet::default();
            for difference in differences {
                changed.insert(difference.key);
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
                if !changed.contains(&key) {
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
    let unknown = store.effects().unknown(environment)?;
    let unknown = unknown.into_iter().map(|effect| effect.resource).collect();
    Ok(StartState { desired, recovery, former, states, unknown })
}

/// Difference of a first version: all of it.
pub(crate) fn full_diff(desired: &DesiredState) -> VersionDiff {
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

/// Builds a difference, grouped by resource set.
#[derive(Default)]
pub(crate) struct DiffBuilder {
    sets: FxHashMap<SetName, (Vec<Intent>, Vec<orrery_model::ResourceId>)>,
    order: Vec<SetName>,
}

impl DiffBuilder {
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
