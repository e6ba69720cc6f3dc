//! The export: instances of a compiled model become the resources of a version.
//!
//! Declarations define which entities are resources and what identifies them. A broken resource and
//! all its dependents are left out, each with a problem that gives the reason; the rest is
//! exported. The same model gives the same resources, problems and warnings, in the same order.
//!
//! Start from `export`. `plan` reads declarations, `draft` creates one resource from one instance,
//! `assemble`, `sets` and `edges` combine them. Tests are in `tests/export`.

mod assemble;
mod code;
mod draft;
mod edges;
mod json;
mod model_types;
mod paths;
mod plan;
mod problem;
mod sets;
mod sort_by_id;
mod warning;

use std::collections::BTreeSet;
use std::sync::Arc;

use orrery_model::{Inventory, Resource, ResourceId, ResourceType};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::report::Model;
use crate::source::Sources;

pub use code::{
    ComputeOutcome, ComputeRequest, ComputedFields, FinalView, ModuleCodeError, RequirementView,
    ResourceClass, ResourceCode,
};
pub use problem::{AgentNotFound, Edge, ExportProblem, ModelLocation, Subject, Unserializable};
pub use warning::ExportWarning;

use crate::value::{InstanceId, Value};
use assemble::Assembly;
use code::ComputeOutcomes;
use edges::Edges;
use model_types::{ModelType, model_types};

/// Result of an export.
#[derive(Debug, Default)]
pub struct ExportResult {
    /// Sorted by id. Their requirements are among them.
    pub resources: Vec<Resource>,
    /// Attributes with unknown values, sorted by resource and name.
    pub unknowns: Vec<UnknownAttribute>,
    /// Reasons for left-out resources, in source order; dependents of left-out resources come last.
    pub problems: Vec<ExportProblem>,
    pub warnings: Vec<ExportWarning>,
    /// Number of instances that the model does not manage.
    pub unmanaged: usize,
}

impl ExportResult {
    /// Number of left-out resources. One that several problems name counts once.
    pub fn left_out(&self) -> usize {
        let mut named = FxHashSet::default();
        let mut unnamed = 0;
        for subject in self.problems.iter().flat_map(ExportProblem::resources) {
            match &subject.id {
                Some(id) => drop(named.insert(id)),
                None => unnamed += 1,
            }
        }
        named.len() + unnamed
    }

    /// Adds resources that the model does not have itself.
    fn add_missing(&mut self, resources: Vec<Resource>) {
        let known = self.resources.len();
        for resource in resources {
            let same = self.resources[..known].binary_search_by(|one| one.id.cmp(&resource.id));
            if same.is_err() {
                self.resources.push(resource);
            }
        }
        self.resources.sort_by(|one, other| one.id.cmp(&other.id));
    }

    /// Resources of the model that the version lacks.
    pub fn left_out_resources(&self) -> ExcludedResources {
        let mut found = ExcludedResources::default();
        for subject in self.problems.iter().flat_map(ExportProblem::resources) {
            match &subject.id {
                Some(id) => drop(found.ids.insert(id.clone())),
                None => found.unidentified.push(subject.entity.clone()),
            }
        }
        for warning in &self.warnings {
            if let ExportWarning::Unidentified { entity, .. } = warning {
                found.unidentified.push(entity.clone());
            }
        }
        found
    }
}

/// Resources of the model that the version lacks. They must not be treated as removed from the
/// model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExcludedResources {
    pub ids: BTreeSet<ResourceId>,
    /// Entities of resources with unknown ids.
    pub unidentified: Vec<Arc<str>>,
}

impl ExcludedResources {
    pub fn len(&self) -> usize {
        self.ids.len() + self.unidentified.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if a resource may be among them.
    pub fn may_have(&self, id: &ResourceId) -> bool {
        self.ids.contains(id) || self.unidentified.iter().any(|entity| &**entity == id.entity())
    }
}

/// An attribute of a resource with an unknown value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownAttribute {
    pub resource: ResourceId,
    pub attribute: Arc<str>,
    /// The resource with the missing fact, if it is a fact.
    pub fact_of: Option<ResourceId>,
}

/// Creates resources from all instances of declared entities. `sources` are those of the compile;
/// `inventory` determines which agents share a machine.
pub fn export<'d>(
    model: &Model,
    sources: &Sources,
    declarations: impl IntoIterator<Item = &'d ResourceType>,
    inventory: &Inventory,
) -> ExportResult {
    let own = model_types(model);
    let mut assembly = Assembly::new(model, sources, with_native(&own, declarations), &[]);
    assembly.warn_of_unknown_types(&own);
    assembly.draft_all(ComputeOutcomes::default());
    assembly.assign_sets();
    assembly.leave_out_collisions(inventory);
    assembly.connect();
    assembly.complete()
}

/// Adds the native declarations, which take precedence, to those of the model.
fn with_native<'o, 'd: 'o>(
    own: &'o [ModelType],
    native: impl IntoIterator<Item = &'d ResourceType>,
) -> Vec<&'o ResourceType> {
    let native = native.into_iter().map(|native| -> &'o ResourceType { native });
    own.iter().map(|own| &own.declaration).chain(native).collect()
}

/// The same with module code. Its classes take precedence over declarations for the same
/// entities.
///
/// # Errors
/// If the code terminates, or its part that adds requirements fails. Failures for single resources
/// are among the problems.
pub fn export_with<'d>(
    model: &Model,
    sources: &Sources,
    declarations: impl IntoIterator<Item = &'d ResourceType>,
    inventory: &Inventory,
    code: &mut dyn ResourceCode,
) -> Result<ExportResult, ModuleCodeError> {
    let classes = code.classes().to_vec();
    let view = FinalView { model, sources };
    let own = model_types(model);
    let mut assembly = Assembly::new(model, sources, with_native(&own, declarations), &classes);
    assembly.warn_of_unknown_types(&own);
    let answers = assembly.compute_fields(code, &view)?;
    assembly.draft_all(answers);
    assembly.assign_sets();
    assembly.leave_out_collisions(inventory);
    assembly.connect();
    if code.adds_requirements() {
        assembly.add_requirements(code, &view)?;
    }
    Ok(assembly.complete())
}

/// True if instances require each other in a cycle, exported or not. Much cheaper than an export,
/// which is needed only to determine whether resources are on the cycle.
pub fn has_requirement_cycle(model: &Model) -> bool {
    let graph = &model.graph;
    let Some(requires) = graph.requires else { return false };
    let mut slots: FxHashMap<_, Option<u32>> = FxHashMap::default();
    let mut edges = Edges::with_capacity(graph.instances.len());
    for (number, of) in graph.instances.iter().enumerate() {
        let slot = *slots.entry(of.entity).or_insert_with(|| {
            let slots = &model.program.entity(of.entity).slots;
            slots.iter().position(|&slot| slot == requires).map(|slot| slot as u32)
        });
        let value = slot.and_then(|slot| graph.slot_value(InstanceId(number as u32), slot));
        if let Some(Value::List(list)) = value {
            for &member in graph.heap.items(list) {
                if let Value::Instance(member) = member {
                    edges.push(member.0);
                }
            }
        }
        edges.end_node();
    }
    !edges.cycles().is_empty()
}
