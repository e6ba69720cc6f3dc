//! Resource sets: assigns the name of each `std::ResourceSet` to its members.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::report::Model;
use crate::value::{InstanceId, Value};

use super::ExportWarning;
use super::assemble::{Assembly, ExclusionReason};
use super::plan::entity_of;
use super::problem::ExportProblem;

/// The instances of `std::ResourceSet`.
fn resource_sets(model: &Model) -> Vec<InstanceId> {
    let program = &model.program;
    let Some(set) = entity_of(program, "std::ResourceSet") else { return Vec::new() };
    let is_set = |number: usize| {
        let entity = model.graph.instances[number].entity;
        entity == set
            || (!program.entity(set).children.is_empty() && program.is_subtype(entity, set))
    };
    let numbers = (0..model.graph.instances.len()).filter(|&number| is_set(number));
    numbers.map(|number| InstanceId(number as u32)).collect()
}

/// The value of an attribute or relation by its name.
fn value_of(model: &Model, instance: InstanceId, name: &str) -> Option<Value> {
    let entity = model.program.entity(model.graph.instances[instance.index()].entity);
    let slot = entity.slot_of.get(&model.program.interner.get(name)?)?;
    model.graph.slot_value(instance, *slot)
}

impl Assembly<'_, '_> {
    pub(super) fn assign_sets(&mut self) {
        let model = self.drafter.model;
        let mut several: BTreeMap<u32, Vec<Arc<str>>> = BTreeMap::new();
        for set in resource_sets(model) {
            let Some(Value::Str(name)) = value_of(model, set, "name") else {
                let source = self.drafter.location(set).source;
                self.warnings.push(ExportWarning::UnknownSet { source });
                continue;
            };
            let name: Arc<str> = model.text(name).into();
            let Some(Value::List(members)) = value_of(model, set, "resources") else { continue };
            for &member in model.graph.heap.items(members) {
                let Value::Instance(member) = member else { continue };
                if self.nodes_of(member).is_empty() {
                    let entity = model.entity_name(member).into();
                    let source = self.drafter.location(member).source;
                    self.warnings.push(ExportWarning::SetMemberAbsent {
                        set: name.clone(),
                        entity,
                        source,
                    });
                }
                for node in self.nodes_of(member) {
                    let Some(resource) = &mut self.resources[node as usize] else { continue };
                    if let Some(other) = resource.set.replace(name.clone()) {
                        several.entry(node).or_insert_with(|| vec![other]).push(name.clone());
                    }
                }
            }
        }
        for (node, mut sets) in several {
            sets.sort_unstable();
            let resource = self.subject(node);
            self.left_out[node as usize] = ExclusionReason::Broken;
            self.problems.push(ExportProblem::SeveralSets { resource, sets });
        }
    }
}
