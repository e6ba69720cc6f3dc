//! Differences between versions, read from the store for a running engine.

use orrery_model::VersionNumber;
use orrery_scheduler::VersionDiff;
use orrery_store::{EnvironmentKey, ResourceDiff, ResourceKey, Store, StoreError};
use rustc_hash::FxHashMap;

use crate::recovery::DiffBuilder;

/// Changes of newer versions, read before the engine is locked.
#[derive(Debug)]
pub struct Update {
    pub(crate) version: VersionNumber,
    /// Net difference by resource, sorted by id.
    pub(crate) differences: Vec<ResourceDiff>,
    /// The differences version by version.
    pub(crate) diffs: Vec<VersionDiff>,
}

impl Update {
    /// Reads how the versions `steps`, oldest first, differ from `from` and from each other.
    ///
    /// # Errors
    /// Those of the store; `NoVersion` if one of them is gone: then an engine has to start anew.
    pub fn read(
        store: &Store,
        environment: EnvironmentKey,
        from: VersionNumber,
        steps: &[VersionNumber],
    ) -> Result<Self, StoreError> {
        let mut diffs = Vec::with_capacity(steps.len());
        let mut last: FxHashMap<ResourceKey, ResourceDiff> = FxHashMap::default();
        let mut base = from;
        for &step in steps {
            let mut changes = DiffBuilder::default();
            store.versions().diff(environment, base, step, &mut |difference| {
                changes.add(difference.before.as_ref(), difference.after.as_ref());
                let before = last.remove(&difference.key).map(|earlier| earlier.before);
                let before = before.unwrap_or_else(|| difference.before.clone());
                last.insert(difference.key, ResourceDiff { before, ..difference });
            })?;
            diffs.push(changes.finish(step));
            base = step;
        }
        let mut differences: Vec<ResourceDiff> = last.into_values().collect();
        differences.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        Ok(Update { version: base, differences, diffs })
    }

    pub fn version(&self) -> VersionNumber {
        self.version
    }

    /// Number of changed resources.
    pub fn len(&self) -> usize {
        self.differences.len()
    }

    pub fn is_empty(&self) -> bool {
        self.differences.is_empty()
    }

    /// Each changed resource: its former and its new desired state.
    pub fn changed_resources(
        &self,
    ) -> impl Iterator<Item = (Option<&orrery_model::Resource>, Option<&orrery_model::Resource>)>
    {
        self.differences.iter().map(|one| (one.before.as_ref(), one.after.as_ref()))
    }
}
