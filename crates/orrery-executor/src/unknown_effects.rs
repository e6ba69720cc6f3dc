//! Resources with an effect that may or may not have happened and must not be repeated.

use orrery_model::ResourceId;
use orrery_store::ResourceKey;
use rustc_hash::FxHashSet;

#[derive(Debug, Default)]
pub(crate) struct UnknownEffects {
    resources: FxHashSet<ResourceKey>,
    /// Of those, the ones not yet reported.
    unreported: Vec<ResourceId>,
}

impl UnknownEffects {
    /// Effects that were unknown before the engine started, and are reported.
    pub(crate) fn new(resources: FxHashSet<ResourceKey>) -> Self {
        UnknownEffects { resources, unreported: Vec::new() }
    }

    pub(crate) fn contains(&self, resource: ResourceKey) -> bool {
        self.resources.contains(&resource)
    }

    pub(crate) fn add(&mut self, resource: ResourceKey, id: ResourceId) {
        self.resources.insert(resource);
        self.unreported.push(id);
    }

    pub(crate) fn remove(&mut self, resource: ResourceKey) {
        self.resources.remove(&resource);
    }

    pub(crate) fn has_unreported(&self) -> bool {
        !self.unreported.is_empty()
    }

    /// Takes the resources with an effect that became unknown since the last call.
    pub(crate) fn take_unreported(&mut self) -> Vec<ResourceId> {
        std::mem::take(&mut self.unreported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{resource, resource_keys};

    #[test]
    fn an_unknown_effect_is_reported_once() {
        let keys = resource_keys(&["a", "b"]);
        let mut effects = UnknownEffects::new([keys[0]].into_iter().collect());
        assert!(effects.contains(keys[0]) && !effects.has_unreported());
        effects.add(keys[1], resource("b").id);
        assert_eq!(effects.take_unreported(), [resource("b").id]);
        assert!(effects.contains(keys[1]) && !effects.has_unreported());
        effects.remove(keys[1]);
        assert!(!effects.contains(keys[1]) && effects.contains(keys[0]));
    }
}
