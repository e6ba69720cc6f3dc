//! Path collisions: several resources of one machine would manage the same path and undo each
//! other's changes.

use orrery_model::{Inventory, PathCollision, path_collisions};
use serde_json::Value as Json;

use super::assemble::{Assembly, ExclusionReason, sort_location};
use super::problem::{ExportProblem, Subject};

impl Assembly<'_, '_> {
    /// Leaves out colliding resources. `inventory` determines which agents are the deploying
    /// machine, in addition to the model's own declarations.
    pub(super) fn leave_out_collisions(&mut self, inventory: &Inventory) {
        let inventory = self.with_declared_addresses(inventory);
        let mut managed = Vec::new();
        for &node in &self.order {
            if let (Some(resource), ExclusionReason::NotExcluded) =
                (&self.resources[node as usize], self.left_out[node as usize])
                && self.manages_path(node)
            {
                managed.push((node, &resource.id));
            }
        }
        for PathCollision { path, resources: nodes } in path_collisions(managed, &inventory) {
            if nodes.iter().all(|&node| self.is_purged(node)) {
                continue;
            }
            let mut subjects: Vec<Subject> = nodes.iter().map(|&node| self.subject(node)).collect();
            subjects.sort_by(|one, other| sort_location(one).cmp(&sort_location(other)));
            let agents = subjects.iter().filter_map(|subject| Some(subject.id.as_ref()?.agent()));
            let reasons = PathCollision::<u32>::reasons(agents, &inventory);
            for node in nodes {
                self.left_out[node as usize] = ExclusionReason::Broken;
            }
            self.problems.push(ExportProblem::PathCollision { path, subjects, reasons });
        }
    }

    /// Adds the addresses that the model declares.
    fn with_declared_addresses(&self, inventory: &Inventory) -> Inventory {
        let mut inventory = inventory.clone();
        for resource in self.resources.iter().flatten() {
            if resource.id.entity() == "std::AgentConfig"
                && let Some(Json::String(uri)) = resource.attributes.to_object().get("uri")
            {
                inventory.addresses.insert(resource.id.value().to_owned(), uri.clone());
            }
        }
        inventory
    }

    fn is_purged(&self, node: u32) -> bool {
        let resource = self.resources[node as usize].as_ref();
        resource.is_some_and(|resource| {
            resource.attributes.to_object().get("purged") == Some(&Json::Bool(true))
        })
    }
}
