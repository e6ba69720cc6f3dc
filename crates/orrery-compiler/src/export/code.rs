//! Module code in the export: computes fields and adds requirements. It runs in a host and is used
//! only where it is needed.

use std::sync::Arc;

use orrery_model::ResourceType;
use orrery_syntax::ast::Loc;
use rustc_hash::FxHashMap;

use crate::host::{InstanceView, SlotState};
use crate::program::{EntityId, Program};
use crate::report::Model;
use crate::source::Sources;
use crate::value::{Heap, InstanceId, UnknownId, Value};

use super::plan::{FieldValue, Plan};

/// Number of resources per request to the code.
const BATCH: usize = 256;

/// A class in module code that defines how instances become resources.
#[derive(Clone, Debug)]
pub struct ResourceClass {
    /// Number of the class in the code.
    pub number: u32,
    pub declaration: ResourceType,
    /// The module that contains the class; may differ from the entity's module.
    pub module: String,
    /// Fields that only the code can compute.
    pub computed: Vec<String>,
    /// Reason why no instance can be exported by it.
    pub problem: Option<String>,
}

/// Module code, as far as the export needs it.
pub trait ResourceCode {
    fn classes(&self) -> &[ResourceClass];

    /// Computes fields. Returns one outcome for each request, in order.
    ///
    /// # Errors
    /// If the code is no longer available.
    fn serialize(
        &mut self,
        view: &dyn InstanceView,
        items: &[ComputeRequest<'_>],
    ) -> Result<Vec<ComputeOutcome>, ModuleCodeError>;

    /// True if some code adds requirements.
    fn adds_requirements(&self) -> bool;

    /// Lets the code add requirements. Returns, for each changed resource, its position and all its
    /// requirements as ids.
    ///
    /// # Errors
    /// If the code fails.
    fn require(
        &mut self,
        view: &dyn InstanceView,
        resources: &[RequirementView<'_>],
    ) -> Result<Vec<(usize, Vec<String>)>, ModuleCodeError>;
}

/// A resource that the code has to compute.
#[derive(Debug)]
pub struct ComputeRequest<'i> {
    pub class: u32,
    pub instance: InstanceId,
    pub fields: Vec<&'i str>,
    /// True if the code also computes the identifying text.
    pub id: bool,
}

/// The code's result for one request.
#[derive(Clone, Debug)]
pub enum ComputeOutcome {
    Fields(Box<ComputedFields>),
    /// The code excludes it from the export.
    Ignored,
    /// The id is unknown.
    Unidentified,
    Failed(ModuleCodeError),
}

/// Values computed by the code, as canonical JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComputedFields {
    pub fields: Vec<(String, String)>,
    /// Fields with unknown values; `None` for unknowns that the code created itself.
    pub unknown: Vec<(String, Option<UnknownId>)>,
    pub id: Option<String>,
    pub references: Option<String>,
    pub mutators: Option<String>,
}

/// A resource, as passed to code that adds requirements.
#[derive(Debug)]
pub struct RequirementView<'r> {
    /// `None` for resources implemented in Rust.
    pub class: Option<u32>,
    pub instance: InstanceId,
    pub id: &'r str,
    /// A canonical JSON object.
    pub attributes: &'r str,
    /// Positions in the same list.
    pub requires: Vec<u32>,
}

/// Failure of module code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct ModuleCodeError {
    /// Python's class name; empty for errors of the host itself.
    pub class: String,
    pub message: String,
    /// The affected field.
    pub field: Option<String>,
    /// True if the message is sufficient without the class of the error.
    pub explicit: bool,
}

impl ModuleCodeError {
    fn text(&self) -> String {
        match self.class.as_str() {
            "" => self.message.clone(),
            _ if self.explicit => self.message.clone(),
            class => format!("{class}: {}", self.message),
        }
    }
}

/// View of a finished compile: all cells have their final values.
pub struct FinalView<'m> {
    pub model: &'m Model,
    pub sources: &'m Sources,
}

impl InstanceView for FinalView<'_> {
    fn program(&self) -> &Program {
        &self.model.program
    }

    fn sources(&self) -> &Sources {
        self.sources
    }

    fn values(&self) -> &Heap {
        &self.model.graph.heap
    }

    fn instance_count(&self) -> usize {
        self.model.graph.instances.len()
    }

    fn entity_of(&self, instance: InstanceId) -> EntityId {
        self.model.graph.instances[instance.index()].entity
    }

    fn slot(&self, instance: InstanceId, slot: u32) -> SlotState {
        self.model.graph.slot_value(instance, slot).map_or(SlotState::Empty, SlotState::Value)
    }

    fn global(&self, cell: u32) -> SlotState {
        self.model.graph.cell_value(cell).map_or(SlotState::Empty, SlotState::Value)
    }

    fn constructed_at(&self, instance: InstanceId) -> Loc {
        self.model.graph.constructed_at(&self.model.program, instance)
    }

    fn description(&self, instance: InstanceId) -> String {
        let place = self.sources.line_location(self.constructed_at(instance));
        format!("{} (instantiated at {place})", self.model.entity_name(instance))
    }
}

/// Outcomes of the code, by instance and plan.
pub(super) type ComputeOutcomes = FxHashMap<(InstanceId, u32), ComputeOutcome>;

/// The request for an instance, if the code has to compute anything.
pub(super) fn item<'p>(
    model: &Model,
    instance: InstanceId,
    plan: &'p Plan<'_>,
) -> Option<ComputeRequest<'p>> {
    let class = plan.class?;
    let value = |slot| model.graph.slot_value(instance, slot);
    if let Some(Value::Bool(false)) = plan.managed.and_then(value) {
        return None;
    }
    let mut fields: Vec<&str> = Vec::new();
    for field in &plan.fields {
        let computed = match &field.value {
            FieldValue::Computed => true,
            FieldValue::Slot(slot) => value(*slot).is_none_or(|value| is_carried(model, value)),
            FieldValue::Flag(..) | FieldValue::Part(..) | FieldValue::Collected => false,
        };
        if computed {
            fields.push(&field.name);
        }
    }
    let carried = plan.id.and_then(value).is_some_and(|value| is_carried(model, value));
    let id = plan.id_is_computed || carried;
    (id || !fields.is_empty()).then_some(ComputeRequest { class, instance, fields, id })
}

/// True if a value contains something that only its host can serialize.
fn is_carried(model: &Model, value: Value) -> bool {
    let heap = &model.graph.heap;
    match value {
        Value::Other(_) => true,
        Value::List(list) => heap.items(list).iter().any(|&item| is_carried(model, item)),
        Value::Dict(dict) => heap.entries(dict).values().any(|&item| is_carried(model, item)),
        _ => false,
    }
}

/// Sends all requests to the code; those without an outcome have failed.
pub(super) fn compute_fields(
    code: &mut dyn ResourceCode,
    view: &dyn InstanceView,
    items: &[(u32, ComputeRequest<'_>)],
) -> Result<ComputeOutcomes, ModuleCodeError> {
    let mut answers = ComputeOutcomes::default();
    let mut batch: Vec<ComputeRequest<'_>> = Vec::with_capacity(BATCH);
    for chunk in items.chunks(BATCH) {
        batch.clear();
        batch.extend(chunk.iter().map(|(_, item)| ComputeRequest {
            class: item.class,
            instance: item.instance,
            fields: item.fields.clone(),
            id: item.id,
        }));
        let found = code.serialize(view, &batch)?;
        for ((plan, item), answer) in chunk.iter().zip(found) {
            answers.insert((item.instance, *plan), answer);
        }
    }
    Ok(answers)
}

impl ComputedFields {
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(of, _)| of == name).map(|(_, text)| text.as_str())
    }

    #[expect(clippy::option_option, reason = "an unknown value may have no id")]
    pub(super) fn unknown_of(&self, name: &str) -> Option<Option<UnknownId>> {
        self.unknown.iter().find(|(of, _)| of == name).map(|&(_, unknown)| unknown)
    }

    /// Values that the code collected from all fields.
    pub(super) fn collected(&self, name: &Arc<str>) -> Option<&str> {
        match &**name {
            "references" => self.references.as_deref(),
            "mutators" => self.mutators.as_deref(),
            _ => None,
        }
    }
}
