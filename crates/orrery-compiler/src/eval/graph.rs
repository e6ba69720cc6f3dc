//! Result of a run: instances, the values of their cells, and the origins of requirements.

use std::collections::BTreeMap;

use orrery_syntax::ast::Loc;
use rustc_hash::FxHashMap;

use crate::program::{AttributeId, Definition, Program};
use crate::value::{Heap, InstanceId, Value};

use super::{Cell, Evaluator, Instance, Origin, decode};

/// Origin of `to` in `from.requires`. The export names it in requirement cycles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requirement {
    from: InstanceId,
    to: InstanceId,
    /// Encoded `Origin`.
    origin: u32,
}

/// All instances and the values of all cells.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) heap: Heap,
    pub(super) cells: Vec<Cell>,
    pub(crate) instances: Vec<Instance>,
    pub(crate) requires: Option<AttributeId>,
    pub(super) requirements: Vec<Requirement>,
    /// Machines whose facts the model reads, with the location of the first call.
    pub(crate) machines: BTreeMap<String, Loc>,
}

impl Graph {
    /// The value of a cell, if set; `None` also for an empty optional relation.
    pub(crate) fn cell_value(&self, cell: u32) -> Option<Value> {
        self.cells[cell as usize].value()
    }

    /// The value of an instance's attribute or relation, by its slot.
    pub(crate) fn slot_value(&self, instance: InstanceId, slot: u32) -> Option<Value> {
        self.cell_value(self.instances[instance.index()].cells + slot)
    }

    /// Location of an instance's constructor.
    pub(crate) fn constructed_at(&self, program: &Program, instance: InstanceId) -> Loc {
        program.expr(self.instances[instance.index()].constructor).loc
    }

    /// Location at which each requirement was set.
    pub(crate) fn requirement_locations(
        &self,
        program: &Program,
    ) -> FxHashMap<(InstanceId, InstanceId), Loc> {
        let place = |made: &Requirement| {
            let loc = match decode(made.origin) {
                Origin::Stmt(id) => program.stmt(id).loc,
                Origin::Expr(id) => program.expr(id).loc,
            };
            ((made.from, made.to), loc)
        };
        self.requirements.iter().map(place).collect()
    }
}

/// The `requires` relation of `std::Entity`.
pub(super) fn requires_of(program: &Program) -> Option<AttributeId> {
    let Some(Definition::Entity(root)) = program.find_definition("std::Entity") else {
        return None;
    };
    let name = program.interner.get("requires")?;
    let root = program.entity(root);
    root.slot_of.get(&name).map(|&slot| root.slots[slot as usize])
}

impl Evaluator<'_> {
    /// Records the origin of a requirement.
    pub(super) fn record_requirement(
        &mut self,
        from: InstanceId,
        slot: u32,
        value: Value,
        origin: u32,
    ) {
        let Value::Instance(to) = value else { return };
        let instance = &self.instances[from.index()];
        if self.requires == Some(self.program.entity(instance.entity).slots[slot as usize]) {
            self.requirements.push(Requirement { from, to, origin });
        }
    }
}
