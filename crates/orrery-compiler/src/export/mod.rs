//! The export: instances of a compiled model become the resources of a version.
//!
//! Declarations say which entities are resources and what identifies them. A resource that is broken is
//! left out, with everything that requires it, and each has a problem that says why; the rest is
//! exported. The same model gives the same resources, problems and notes, in the same order.
//!
//! Start from `export`. `plan` reads declarations, `draft` makes one resource of one instance, `assemble`,
//! `sets` and `edges` bring them together. Tests are in `tests/export`.

mod assemble;
mod code;
mod draft;
mod edges;
mod json;
mod note;
mod order;
mod paths;
mod plan;
mod problem;
mod sets;

use std::collections::BTreeSet;
use std::sync::Arc;

use orrery_model::{Inventory, Resource, ResourceId, ResourceType};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::report::Model;
use crate::source::Sources;

pub use code::{Answer, Code, CodeError, Computed, Frozen, Item, Required, ResourceClass};
pub use note::Note;
pub use problem::{AgentNotFound, Edge, Problem, Site, Subject, Unserializable};

use crate::value::{InstanceId, Value};
use assemble::Assembly;
use code::Answers;
use edges::Edges;

/// What an export came to.
#[derive(Debug, Default)]
pub struct Exported {
    /// Sorted by id. What they require is among them.
    pub resources: Vec<Resource>,
    /// The attributes whose values are not known, sorted by resource and name.
    pub unknowns: Vec<Unknown>,
    /// Why resources were left out, in the order of the sources; those that only require one that was
    /// left out come last.
    pub problems: Vec<Problem>,
    pub notes: Vec<Note>,
    /// How many instances the model knows without managing them.
    pub unmanaged: usize,
}

impl Exported {
    /// Number of resources that problems keep out. One that several problems name counts once.
    pub fn left_out(&self) -> usize {
        let mut named = FxHashSet::default();
        let mut unnamed = 0;
        for subject in self.problems.iter().flat_map(Problem::resources) {
            match &subject.id {
                Some(id) => drop(named.insert(id)),
                None => unnamed += 1,
            }
        }
        named.len() + unnamed
    }

    /// Resources that the model has and the version lacks.
    pub fn left_out_resources(&self) -> LeftOutResources {
        let mut found = LeftOutResources::default();
        for subject in self.problems.iter().flat_map(Problem::resources) {
            match &subject.id {
                Some(id) => drop(found.ids.insert(id.clone())),
                None => found.unidentified.push(subject.entity.clone()),
            }
        }
        for note in &self.notes {
            if let Note::Unidentified { entity, .. } = note {
                found.unidentified.push(entity.clone());
            }
        }
        found
    }
}

/// Resources that the model has and the version lacks: nothing says that they are no longer wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOutResources {
    pub ids: BTreeSet<ResourceId>,
    /// Entities of those whose ids are not known.
    pub unidentified: Vec<Arc<str>>,
}

impl LeftOutResources {
    pub fn len(&self) -> usize {
        self.ids.len() + self.unidentified.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a resource may be one of them.
    pub fn may_have(&self, id: &ResourceId) -> bool {
        self.ids.contains(id) || self.unidentified.iter().any(|entity| &**entity == id.entity())
    }
}

/// An attribute of a resource whose value is not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    pub resource: ResourceId,
    pub attribute: Arc<str>,
    /// The resource whose fact it waits for, if it is one.
    pub fact_of: Option<ResourceId>,
}

/// Makes resources of all instances that a declaration is for. `sources` are those of the compile, `inventory` tells which agents
/// are one machine.
pub fn export<'d>(
    model: &Model,
    sources: &Sources,
    declarations: impl IntoIterator<Item = &'d ResourceType>,
    inventory: &Inventory,
) -> Exported {
    let mut assembly = Assembly::new(model, sources, declarations, &[]);
    assembly.draft_all(Answers::default());
    assembly.assign_sets();
    assembly.leave_out_collisions(inventory);
    assembly.connect();
    assembly.complete()
}

/// The same with the code of modules, whose classes go before declarations for the same entities.
///
/// # Errors
/// If the code ends, or the part of it that adds requirements fails. What it cannot do for single resources is
/// among the problems.
pub fn export_with<'d>(
    model: &Model,
    sources: &Sources,
    declarations: impl IntoIterator<Item = &'d ResourceType>,
    inventory: &Inventory,
    code: &mut dyn Code,
) -> Result<Exported, CodeError> {
    let classes = code.classes().to_vec();
    let view = Frozen { model, sources };
    let declarations: Vec<&ResourceType> = declarations.into_iter().collect();
    let mut assembly = Assembly::new(model, sources, declarations, &classes);
    let answers = assembly.ask(code, &view)?;
    assembly.draft_all(answers);
    assembly.assign_sets();
    assembly.leave_out_collisions(inventory);
    assembly.connect();
    if code.adds_requirements() {
        assembly.add_requirements(code, &view)?;
    }
    Ok(assembly.complete())
}

/// Whether instances require each other in a circle, whatever becomes of them in an export. Much cheaper than that: only
/// if there is one, an export has to tell whether resources are on it.
pub fn has_requirement_circle(model: &Model) -> bool {
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
    !edges.circles().is_empty()
}
