//! Which resources the handlers at hand can remove.

use std::collections::BTreeSet;

use orrery_model::{Handles, Inventory, PathIndex, Placement, Remnant, ResourceId, purged};

use crate::registry::Registry;

/// The handlers of this program, and those of other code by their entities.
#[derive(Debug)]
pub struct Abilities {
    native: Registry,
    hosted: BTreeSet<String>,
    inventory: Inventory,
}

impl Abilities {
    pub fn new(hosted: impl IntoIterator<Item = String>) -> Self {
        let inventory = Inventory::default();
        Abilities { native: Registry::native(), hosted: hosted.into_iter().collect(), inventory }
    }

    /// The same with what is known of agents, some of which may be one machine.
    #[must_use]
    pub fn with_inventory(self, inventory: Inventory) -> Self {
        Abilities { inventory, ..self }
    }
}

impl Handles for Abilities {
    fn handles(&self, entity: &str) -> bool {
        self.native.handler(entity).is_some() || self.hosted.contains(entity)
    }

    fn removes(&self, entity: &str) -> bool {
        entity != crate::exec::ENTITY
    }

    /// What only tells the engine something is never found in place.
    fn can_preexist(&self, entity: &str) -> bool {
        !matches!(
            entity,
            "std::AgentConfig" | "std::testing::NullResource" | "std::testing::ScriptedResource"
        )
    }

    fn is_one_machine(&self, agent: &str, other: &str) -> bool {
        let is_local = |name| matches!(self.inventory.place(name), Placement::Local(_));
        agent == other || is_local(agent) && is_local(other)
    }
}

/// Resources that nothing manages any more, as far as people have to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unmanaged {
    pub ids: Vec<ResourceId>,
    /// How many of them a removal can purge.
    pub removable: usize,
}

impl Unmanaged {
    /// What cannot be removed is told of once, when it ceases to be managed: nothing has to be done about it. What the model still has
    /// under another id, of an agent that `handlers` knows to be the same machine, is managed.
    pub fn new(remnants: &[Remnant], wanted: &PathIndex<'_>, handlers: &dyn Handles) -> Self {
        let mut unmanaged = Unmanaged::default();
        for Remnant { resource, was_managed, is_adopted, .. } in remnants {
            let id = &resource.id;
            if wanted.has(id, |agent, other| handlers.is_one_machine(agent, other)) {
                continue;
            }
            let can_go = purged(&resource.attributes).is_some()
                && handlers.removes(id.entity())
                && !(*is_adopted && handlers.can_preexist(id.entity()));
            unmanaged.removable += usize::from(can_go);
            if can_go || *was_managed {
                unmanaged.ids.push(id.clone());
            }
        }
        unmanaged
    }
}
