//! Managed resources beside the scheduler: desired states, store keys, times of changes.

use orrery_model::{Resource, Timestamp, VersionNumber};
use orrery_scheduler::ResourceIndex;
use orrery_store::ResourceKey;

use crate::recovery::DesiredState;

/// Data of a managed resource beside the scheduler's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResourceEntry {
    /// Position among the desired resources; `None` for one that is being removed.
    pub(crate) position: Option<u32>,
    pub(crate) key: Option<ResourceKey>,
    /// True if the store has a state of it.
    pub(crate) stored: bool,
    /// Time of the last run that changed it.
    pub(crate) changed_at: Option<Timestamp>,
}

const NO_ENTRY: ResourceEntry =
    ResourceEntry { position: None, key: None, stored: false, changed_at: None };

#[derive(Debug)]
pub(crate) struct ResourceTable {
    desired: DesiredState,
    /// Unused positions among the desired resources.
    free_positions: Vec<u32>,
    /// By index of the scheduler.
    entries: Vec<ResourceEntry>,
}

impl ResourceTable {
    /// Desired resources, of which none is managed yet.
    pub(crate) fn new(desired: DesiredState) -> Self {
        ResourceTable { desired, free_positions: Vec::new(), entries: Vec::new() }
    }

    pub(crate) fn version(&self) -> VersionNumber {
        self.desired.version
    }

    pub(crate) fn set_version(&mut self, version: VersionNumber) {
        self.desired.version = version;
    }

    /// The desired resources. After an update, those at unused positions are outdated.
    pub(crate) fn resources(&self) -> &[Resource] {
        &self.desired.resources
    }

    /// The desired resources, to replace some for a dry run.
    pub(crate) fn resources_mut(&mut self) -> &mut [Resource] {
        &mut self.desired.resources
    }

    pub(crate) fn desired(&self, position: u32) -> (&Resource, Option<ResourceKey>) {
        let at = position as usize;
        (&self.desired.resources[at], self.desired.keys.get(at).copied())
    }

    pub(crate) fn entry(&self, index: ResourceIndex) -> ResourceEntry {
        self.entries.get(index.as_usize()).copied().unwrap_or(NO_ENTRY)
    }

    fn entry_mut(&mut self, index: ResourceIndex) -> &mut ResourceEntry {
        let at = index.as_usize();
        if self.entries.len() <= at {
            self.entries.resize(at + 1, NO_ENTRY);
        }
        &mut self.entries[at]
    }

    /// Manages the desired resource at a position.
    pub(crate) fn manage(&mut self, index: ResourceIndex, entry: ResourceEntry) {
        debug_assert!(
            entry.position.is_some_and(|at| (at as usize) < self.desired.resources.len()),
            "a managed resource is desired"
        );
        *self.entry_mut(index) = entry;
    }

    /// Replaces or adds the desired state of a managed resource. `is_new` if the last version did
    /// not have it: then nothing of an earlier life counts.
    pub(crate) fn put(
        &mut self,
        index: ResourceIndex,
        resource: Resource,
        key: ResourceKey,
        is_new: bool,
    ) {
        let former = self.entry(index);
        let own = former.position.filter(|_| !is_new);
        let position = match own.or_else(|| self.free_positions.pop()) {
            Some(position) => {
                self.desired.resources[position as usize] = resource;
                self.desired.keys[position as usize] = key;
                position
            }
            None => {
                let position = u32::try_from(self.desired.resources.len()).unwrap_or(u32::MAX);
                self.desired.resources.push(resource);
                self.desired.keys.push(key);
                position
            }
        };
        // The store may have a state of an earlier life of a new resource: it is overwritten.
        let changed_at = former.changed_at.filter(|_| !is_new);
        let position = Some(position);
        self.manage(index, ResourceEntry { position, key: Some(key), stored: true, changed_at });
    }

    /// Forgets a resource that leaves the desired state. Its position is used again.
    pub(crate) fn remove(&mut self, index: ResourceIndex) {
        let position = self.entry(index).position;
        self.free_positions.extend(position);
        debug_assert!(
            self.free_positions.len() <= self.desired.resources.len(),
            "a position is freed once"
        );
        *self.entry_mut(index) = NO_ENTRY;
    }

    pub(crate) fn mark_stored(&mut self, index: ResourceIndex) {
        self.entry_mut(index).stored = true;
    }

    pub(crate) fn mark_changed(&mut self, index: ResourceIndex, at: Timestamp) {
        self.entry_mut(index).changed_at = Some(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{indexes, resource, resource_keys};

    fn table(names: &[&str]) -> ResourceTable {
        let resources = names.iter().map(|name| resource(name)).collect();
        let keys = resource_keys(names);
        ResourceTable::new(DesiredState { version: VersionNumber(1), resources, keys })
    }

    #[test]
    fn positions_of_removed_resources_are_used_again() {
        let (indexes, keys) = (indexes(4), resource_keys(&["a", "b", "c"]));
        let mut table = table(&["a", "b"]);
        for (position, &index) in (0u32..).zip(&indexes[..2]) {
            let key = Some(keys[position as usize]);
            let position = Some(position);
            table.manage(index, ResourceEntry { position, key, stored: true, changed_at: None });
        }
        table.mark_changed(indexes[0], Timestamp(5));
        table.remove(indexes[0]);
        assert_eq!(table.entry(indexes[0]), NO_ENTRY);
        table.put(indexes[2], resource("c"), keys[2], true);
        assert_eq!(table.resources().len(), 2);
        assert_eq!(table.desired(0), (&resource("c"), Some(keys[2])));
        assert_eq!(table.entry(indexes[2]).position, Some(0));
        // Without a free position, the table grows.
        table.put(indexes[3], resource("a"), keys[0], true);
        assert_eq!(table.entry(indexes[3]).position, Some(2));
    }

    #[test]
    fn a_new_life_of_a_resource_forgets_its_changes() {
        let (index, key) = (indexes(1)[0], resource_keys(&["a"])[0]);
        let mut table = table(&[]);
        table.put(index, resource("a"), key, true);
        table.mark_changed(index, Timestamp(5));
        table.put(index, resource("a"), key, false);
        assert_eq!(table.entry(index).changed_at, Some(Timestamp(5)));
        let position = table.entry(index).position;
        table.remove(index);
        table.put(index, resource("a"), key, true);
        assert_eq!(table.entry(index).changed_at, None);
        assert_eq!(table.entry(index).position, position);
    }
}
