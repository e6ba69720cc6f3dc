//! Paths that several resources of one machine would manage: each would undo what the others did.

use orrery_model::{Inventory, Placement, normalize_path};
use rustc_hash::FxHashMap;
use serde_json::Value as Json;

use super::assemble::{Assembly, LeftOut, place};
use super::problem::{Problem, Subject};

/// The machine of an agent: the deploying one is known by several names, any other by that of its agent.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Machine<'a> {
    Own,
    Of(&'a str),
}

impl Assembly<'_, '_> {
    /// Leaves out what collides. `inventory` says which agents are the deploying machine, beside what the model itself declares.
    pub(super) fn leave_out_collisions(&mut self, inventory: &Inventory) {
        let inventory = self.with_declared_addresses(inventory);
        let mut machines: FxHashMap<&str, Machine<'_>> = FxHashMap::default();
        let mut managed: FxHashMap<(Machine<'_>, String), Vec<u32>> = FxHashMap::default();
        for &node in &self.order {
            let (Some(resource), LeftOut::No) =
                (&self.resources[node as usize], self.left_out[node as usize])
            else {
                continue;
            };
            if !self.manages_path(node) {
                continue;
            }
            let agent = resource.id.agent();
            let machine = *machines.entry(agent).or_insert_with(|| match inventory.place(agent) {
                Placement::Local(_) => Machine::Own,
                _ => Machine::Of(agent),
            });
            managed.entry((machine, normalize_path(resource.id.value()))).or_default().push(node);
        }
        let mut collisions: Vec<(String, Vec<u32>)> = managed
            .into_iter()
            .filter(|(_, nodes)| nodes.len() > 1 && !nodes.iter().all(|&node| self.is_purged(node)))
            .map(|((_, path), nodes)| (path, nodes))
            .collect();
        collisions.sort_unstable();
        for (path, nodes) in collisions {
            let mut subjects: Vec<Subject> = nodes.iter().map(|&node| self.subject(node)).collect();
            subjects.sort_by(|one, other| place(one).cmp(&place(other)));
            let mut agents: Vec<&str> =
                subjects.iter().filter_map(|subject| Some(subject.id.as_ref()?.agent())).collect();
            agents.sort_unstable();
            agents.dedup();
            let reasons = match &*agents {
                [_] => Vec::new(),
                agents => agents.iter().map(|agent| inventory.place(agent).reason(agent)).collect(),
            };
            for node in nodes {
                self.left_out[node as usize] = LeftOut::Broken;
            }
            self.problems.push(Problem::PathCollision { path, subjects, reasons });
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
