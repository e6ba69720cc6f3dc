//! What only the code of modules can say about resources: fields that it computes, and requirements that it
//! adds. It runs in a host; everything that it is not needed for is done without it.

use std::sync::Arc;

use orrery_model::ResourceType;
use orrery_syntax::ast::Loc;
use rustc_hash::FxHashMap;

use crate::host::{Slot, View};
use crate::program::{EntityId, Program};
use crate::report::Model;
use crate::source::Sources;
use crate::value::{Heap, InstanceId, UnknownId, Value};

use super::plan::{FieldValue, Plan};

/// How many resources the code is asked about at once.
const BATCH: usize = 256;

/// A class in the code of a module that says how instances become resources.
#[derive(Clone, Debug)]
pub struct ResourceClass {
    /// What the code knows it by.
    pub number: u32,
    pub declaration: ResourceType,
    /// The module whose code has it, which need not be that of the entity.
    pub module: String,
    /// The fields that only the code can compute.
    pub computed: Vec<String>,
    /// Why no instance can be exported by it.
    pub problem: Option<String>,
}

/// The code of modules, as far as the export needs it.
pub trait Code {
    fn classes(&self) -> &[ResourceClass];

    /// Computes fields. There is one answer for each item, in their order.
    ///
    /// # Errors
    /// If nothing more is to be had from the code.
    fn serialize(&mut self, view: &dyn View, items: &[Item<'_>]) -> Result<Vec<Answer>, CodeError>;

    /// Whether there is code that adds requirements.
    fn adds_requirements(&self) -> bool;

    /// Lets the code add requirements. The answer has, for each resource that changed, its position and
    /// all that it requires now, as ids.
    ///
    /// # Errors
    /// If the code fails.
    fn require(
        &mut self,
        view: &dyn View,
        resources: &[Required<'_>],
    ) -> Result<Vec<(usize, Vec<String>)>, CodeError>;
}

/// Something that the code has to compute.
#[derive(Debug)]
pub struct Item<'i> {
    pub class: u32,
    pub instance: InstanceId,
    pub fields: Vec<&'i str>,
    /// It has to give the identifying text too.
    pub id: bool,
}

/// What the code made of an item.
#[derive(Clone, Debug)]
pub enum Answer {
    Fields(Box<Computed>),
    /// The code does not want it exported.
    Ignored,
    /// Its id is not known yet.
    Unidentified,
    Failed(CodeError),
}

/// Values that the code computed, as canonical JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Computed {
    pub fields: Vec<(String, String)>,
    /// Fields whose values are not known; of those that the code made itself nothing more is known.
    pub unknown: Vec<(String, Option<UnknownId>)>,
    pub id: Option<String>,
    pub references: Option<String>,
    pub mutators: Option<String>,
}

/// A resource as the code that adds requirements sees it.
#[derive(Debug)]
pub struct Required<'r> {
    /// `None` for what is written in Rust.
    pub class: Option<u32>,
    pub instance: InstanceId,
    pub id: &'r str,
    /// A canonical JSON object.
    pub attributes: &'r str,
    /// Positions in the same list.
    pub requires: Vec<u32>,
}

/// Why the code of a module could not do its part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct CodeError {
    /// Python's name of the class; empty for what the host itself has to say.
    pub class: String,
    pub message: String,
    /// The field that it was about.
    pub field: Option<String>,
    /// It speaks for itself: the class of the error tells nothing more.
    pub explicit: bool,
}

impl CodeError {
    fn text(&self) -> String {
        match self.class.as_str() {
            "" => self.message.clone(),
            _ if self.explicit => self.message.clone(),
            class => format!("{class}: {}", self.message),
        }
    }
}

/// The end of a compile: every cell has what it will ever have.
pub struct Frozen<'m> {
    pub model: &'m Model,
    pub sources: &'m Sources,
}

impl View for Frozen<'_> {
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

    fn slot(&self, instance: InstanceId, slot: u32) -> Slot {
        self.model.graph.slot_value(instance, slot).map_or(Slot::Empty, Slot::Value)
    }

    fn global(&self, cell: u32) -> Slot {
        self.model.graph.cell_value(cell).map_or(Slot::Empty, Slot::Value)
    }

    fn constructed_at(&self, instance: InstanceId) -> Loc {
        self.model.graph.constructed_at(&self.model.program, instance)
    }

    fn described(&self, instance: InstanceId) -> String {
        let place = self.sources.line_place(self.constructed_at(instance));
        format!("{} (instantiated at {place})", self.model.entity_name(instance))
    }
}

/// Answers of the code, by instance and plan.
pub(super) type Answers = FxHashMap<(InstanceId, u32), Answer>;

/// What the code has to compute for an instance, if anything.
pub(super) fn item<'p>(
    model: &Model,
    instance: InstanceId,
    plan: &'p Plan<'_>,
) -> Option<Item<'p>> {
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
    (id || !fields.is_empty()).then_some(Item { class, instance, fields, id })
}

/// Whether there is something in a value that only its host can write.
fn is_carried(model: &Model, value: Value) -> bool {
    let heap = &model.graph.heap;
    match value {
        Value::Other(_) => true,
        Value::List(list) => heap.items(list).iter().any(|&item| is_carried(model, item)),
        Value::Dict(dict) => heap.entries(dict).values().any(|&item| is_carried(model, item)),
        _ => false,
    }
}

/// Asks the code about all items; what it cannot answer has failed.
pub(super) fn ask(
    code: &mut dyn Code,
    view: &dyn View,
    items: &[(u32, Item<'_>)],
) -> Result<Answers, CodeError> {
    let mut answers = Answers::default();
    let mut batch: Vec<Item<'_>> = Vec::with_capacity(BATCH);
    for chunk in items.chunks(BATCH) {
        batch.clear();
        batch.extend(chunk.iter().map(|(_, item)| Item {
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

impl Computed {
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(of, _)| of == name).map(|(_, text)| text.as_str())
    }

    pub(super) fn unknown_of(&self, name: &str) -> Option<Option<UnknownId>> {
        self.unknown.iter().find(|(of, _)| of == name).map(|&(_, unknown)| unknown)
    }

    /// What the code collected from all fields.
    pub(super) fn collected(&self, name: &Arc<str>) -> Option<&str> {
        match &**name {
            "references" => self.references.as_deref(),
            "mutators" => self.mutators.as_deref(),
            _ => None,
        }
    }
}
