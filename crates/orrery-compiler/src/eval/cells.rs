//! Cells: setting, waiting, relations with their inverses, freezing.

use orrery_syntax::ast::Loc;

use crate::define;
use crate::error::{CompileError, Result};
use crate::program::{Attribute, AttributeId, Entity, EntityId, Program};
use crate::value::{InstanceId, Value};

use super::{Cell, CellKind, Delayed, EMPTY, Evaluator, IN_ZERO, NONE, QUEUED, READY, Waiter};

/// Lists longer than this maintain a set of their members.
const SET_FROM: usize = 16;

fn member_key(value: Value) -> Option<u64> {
    match value {
        Value::Instance(id) => Some(u64::from(id.0)),
        Value::Unknown(id) => Some(1 << 32 | u64::from(id.0)),
        _ => None,
    }
}

impl Cell {
    fn new(kind: CellKind) -> Self {
        Cell { value: Value::Null, head: NONE, tail: NONE, origin: 0, kind, flags: 0 }
    }
}

/// Initial cells of a new instance of each entity; cells that may be complete from the start are
/// marked as queued.
pub(super) fn fresh_cells(program: &Program) -> Vec<Box<[Cell]>> {
    let cell = |&slot: &AttributeId| {
        Cell::new(match &program.attribute(slot).relation {
            Some(end) if end.is_optional() => CellKind::Optional,
            Some(end) if !end.is_single() => CellKind::List,
            _ => CellKind::Plain,
        })
    };
    let fresh = |entity: &Entity| {
        let mut cells: Box<[Cell]> = entity.slots.iter().map(cell).collect();
        entity.open_slots.iter().for_each(|&slot| cells[slot as usize].flags |= QUEUED);
        cells
    };
    program.entities.iter().map(fresh).collect()
}

impl Evaluator<'_> {
    pub(super) fn new_cell(&mut self, kind: CellKind) -> u32 {
        let id = self.cells.len() as u32;
        self.cells.push(Cell::new(kind));
        id
    }

    pub(super) fn is_ready(&self, cell: u32) -> bool {
        self.cells[cell as usize].flags & READY != 0
    }

    /// Registers a unit as waiter of a cell without a value.
    pub(super) fn add_waiter(&mut self, cell: u32, unit: u32) {
        debug_assert!(!self.is_ready(cell));
        if self.cells[cell as usize].kind == CellKind::Plain {
            let waiter = Waiter { unit, next: NONE };
            let id = if self.free_waiters == NONE {
                self.waiters.push(waiter);
                self.waiters.len() as u32 - 1
            } else {
                let id = self.free_waiters;
                self.free_waiters = self.waiters[id as usize].next;
                self.waiters[id as usize] = waiter;
                id
            };
            let cell = &mut self.cells[cell as usize];
            if cell.head == NONE {
                cell.head = id;
            } else {
                self.waiters[cell.tail as usize].next = id;
            }
            cell.tail = id;
            return;
        }
        self.delayed_mut(cell).waiters.push(unit);
        self.wake_zero_cell(cell);
    }

    /// Wakes a cell of the zero list that has a new waiter.
    fn wake_zero_cell(&mut self, cell: u32) {
        if self.cells[cell as usize].flags & IN_ZERO != 0 {
            self.zero_woken.push(cell);
        }
    }

    pub(super) fn delayed_mut(&mut self, cell: u32) -> &mut Delayed {
        let head = self.cells[cell as usize].head;
        let at = if head == NONE {
            let at = self.delayed.len() as u32;
            self.delayed.push(Delayed::default());
            self.cells[cell as usize].head = at;
            at
        } else {
            head
        };
        &mut self.delayed[at as usize]
    }

    pub(super) fn delayed(&self, cell: u32) -> Option<&Delayed> {
        let head = self.cells[cell as usize].head;
        (head != NONE).then(|| &self.delayed[head as usize])
    }

    /// Sets the value of a plain cell.
    pub(super) fn set_plain(&mut self, cell: u32, value: Value, origin: u32) -> Result<()> {
        let at = cell as usize;
        if self.cells[at].flags & READY != 0 {
            let old = self.cells[at].value;
            if self.heap.equal(old, value) {
                return Ok(());
            }
            return Err(self.set_twice(cell, value, origin));
        }
        let cell = &mut self.cells[at];
        debug_assert_eq!(cell.kind, CellKind::Plain);
        cell.value = value;
        cell.origin = origin;
        cell.flags |= READY;
        let mut waiter = std::mem::replace(&mut cell.head, NONE);
        cell.tail = NONE;
        while waiter != NONE {
            let Waiter { unit, next } = self.waiters[waiter as usize];
            self.waiters[waiter as usize].next = self.free_waiters;
            self.free_waiters = waiter;
            self.unit_ready(unit);
            waiter = next;
        }
        Ok(())
    }

    fn set_twice(&self, cell: u32, new: Value, origin: u32) -> Box<CompileError> {
        let Cell { value: old, origin: old_origin, .. } = self.cells[cell as usize];
        let (old_loc, loc) = (self.origin_loc(old_origin), self.origin_loc(origin));
        let sources = &self.program.sources;
        let text = format!(
            "value set twice:\n\told value: {}\n\t\tset at {}\n\tnew value: {}\n\t\tset at {}\n",
            self.str(old),
            sources.location(old_loc),
            self.str(new),
            sources.location(loc)
        );
        let mut error = CompileError::new("DoubleSetException", text);
        self.explain_set_twice(&mut error, (old, old_loc), (new, origin), cell);
        error.related(old_loc, "first set here")
    }

    /// The cell of a slot.
    pub(super) fn slot_cell(&self, instance: InstanceId, slot: u32) -> u32 {
        self.instances[instance.index()].cells + slot
    }

    pub(super) fn slot_attribute(&self, instance: InstanceId, slot: u32) -> &Attribute {
        self.program.slot(self.instances[instance.index()].entity, slot)
    }

    /// Sets an attribute or relation: checks the type, sets the inverse too.
    pub(super) fn set_slot(
        &mut self,
        instance: InstanceId,
        slot: u32,
        value: Value,
        origin: u32,
        both: bool,
    ) -> Result<()> {
        let cell = self.slot_cell(instance, slot);
        match self.cells[cell as usize].kind {
            CellKind::Plain => self.set_single(instance, slot, cell, value, origin, both),
            CellKind::Optional => self.set_optional(instance, slot, cell, value, origin, both),
            CellKind::List => self.set_list(instance, slot, cell, value, origin, both),
        }
    }

    fn set_single(
        &mut self,
        instance: InstanceId,
        slot: u32,
        cell: u32,
        value: Value,
        origin: u32,
        both: bool,
    ) -> Result<()> {
        let attribute = self.slot_attribute(instance, slot);
        let (ty, inverse) = (attribute.ty, attribute.relation.as_ref().and_then(|end| end.inverse));
        if self.is_ready(cell) {
            // A second value is compared before it is checked.
            return self.set_plain(cell, value, origin);
        }
        self.validate(ty, value)?;
        if self.text(self.slot_attribute(instance, slot).name) == "self" {
            return Err(self.self_set_twice(instance, value, origin));
        }
        if both && inverse.is_some() && value.is_unknown() {
            return Err(CompileError::from_python(orrery_python::PyError {
                kind: "AssertionError",
                message: String::new(),
            }));
        }
        let first = !self.is_ready(cell);
        self.set_plain(cell, value, origin)?;
        if let (true, true, Some(inverse)) = (both, first, inverse) {
            self.set_inverse(inverse, value, instance, origin)?;
        }
        Ok(())
    }

    /// `self` is the instance's own name for itself: an attribute of that name is already set.
    fn self_set_twice(&self, instance: InstanceId, value: Value, origin: u32) -> Box<CompileError> {
        let text = format!(
            "value set twice:\n\told value: {}\n\t\tset at None\n\tnew value: {}\n\t\tset at {}\n",
            self.str(Value::Instance(instance)),
            self.str(value),
            self.program.sources.location(self.origin_loc(origin))
        );
        CompileError::new("DoubleSetException", text).help("give the attribute another name")
    }

    fn set_inverse(
        &mut self,
        inverse: crate::program::AttributeId,
        value: Value,
        instance: InstanceId,
        origin: u32,
    ) -> Result<()> {
        let Value::Instance(other) = value else {
            let message = "'Unknown' object has no attribute 'set_attribute'";
            return Err(CompileError::from_python(orrery_python::PyError {
                kind: "AttributeError",
                message: message.into(),
            }));
        };
        let name = self.program.attribute(inverse).name;
        let entity = self.instances[other.index()].entity;
        let slot = self.program.entity(entity).slot_of[&name];
        self.set_slot(other, slot, Value::Instance(instance), origin, false)
            .map_err(|e| self.instance_refused(e, other, slot))
    }

    /// "Could not set attribute …", attributed to the instance.
    pub(super) fn instance_refused(
        &self,
        cause: Box<CompileError>,
        instance: InstanceId,
        slot: u32,
    ) -> Box<CompileError> {
        if cause.bare {
            return cause;
        }
        let constructor = self.last_constructor(instance);
        let loc = Loc { column: false, ..self.program.expr(constructor).loc };
        let object = self.str(Value::Instance(instance));
        let origin = super::encode(super::Origin::Expr(constructor));
        self.refused(instance, slot, &cause, Some(origin))
            .in_statement(object, loc)
            .caused_by(cause)
    }

    /// The last constructor that created or matched an instance.
    pub(super) fn last_constructor(&self, instance: InstanceId) -> crate::ir::ExprId {
        let constructors = self.extra_constructors.get(&instance);
        let last = constructors.and_then(|all| all.last().copied());
        last.unwrap_or(self.instances[instance.index()].constructor)
    }

    /// The same without naming a statement: the current step does that.
    pub(super) fn refused_by(
        &self,
        cause: Box<CompileError>,
        instance: InstanceId,
        slot: u32,
    ) -> Box<CompileError> {
        if cause.bare || cause.class == "AttributeException" {
            return cause;
        }
        self.refused(instance, slot, &cause, None).caused_by(cause)
    }

    fn refused(
        &self,
        instance: InstanceId,
        slot: u32,
        cause: &CompileError,
        origin: Option<u32>,
    ) -> Box<CompileError> {
        let text = format!(
            "Could not set attribute `{}` on instance `{}`",
            self.text(self.slot_attribute(instance, slot).name),
            self.str(Value::Instance(instance))
        );
        let mut error = CompileError::new("AttributeException", text);
        error.importance = cause.importance + 1;
        error.help.clone_from(&cause.help);
        error.related.clone_from(&cause.related);
        self.explain_refusal(&mut error, cause, instance, slot, origin);
        error
    }

    /// "Could not set attribute … on instance …" around a cause.
    pub(super) fn could_not_set(
        &self,
        cause: Box<CompileError>,
        instance: InstanceId,
        slot: u32,
        origin: u32,
    ) -> Box<CompileError> {
        if cause.bare {
            return cause;
        }
        if cause.class == "AttributeException" {
            return self.blame(cause, origin);
        }
        let error = self.refused(instance, slot, &cause, Some(origin)).caused_by(cause);
        self.blame(error, origin)
    }

    fn set_optional(
        &mut self,
        instance: InstanceId,
        slot: u32,
        cell: u32,
        value: Value,
        origin: u32,
        both: bool,
    ) -> Result<()> {
        let attribute = self.slot_attribute(instance, slot);
        let (ty, inverse) = (attribute.ty, attribute.relation.as_ref().and_then(|end| end.inverse));
        let at = cell as usize;
        let null = matches!(value, Value::Null);
        if self.cells[at].flags & READY != 0 {
            let old = self.cells[at].value;
            let empty = self.cells[at].flags & EMPTY != 0;
            if (empty && null) || (!empty && self.heap.equal(old, value)) {
                // The last assignment counts as the origin of the value.
                self.cells[at].origin = origin;
                return Ok(());
            }
            if empty {
                return Err(self.modified_after_freeze(instance, slot, origin));
            }
            return Err(self.set_twice(cell, value, origin));
        }
        if null {
            self.cells[at].flags |= EMPTY;
            self.cells[at].origin = origin;
            self.freeze(cell);
            return Ok(());
        }
        self.validate(ty, value)?;
        if let (true, Some(inverse), false) = (both, inverse, value.is_unknown()) {
            self.set_inverse(inverse, value, instance, origin)?;
        }
        self.cells[at].value = value;
        self.cells[at].origin = origin;
        self.freeze_with(cell);
        Ok(())
    }

    fn set_list(
        &mut self,
        instance: InstanceId,
        slot: u32,
        cell: u32,
        value: Value,
        origin: u32,
        both: bool,
    ) -> Result<()> {
        match value {
            Value::List(list) => {
                let count = self.heap.items(list).len();
                for at in 0..count {
                    let item = self.heap.items(list)[at];
                    self.set_list(instance, slot, cell, item, origin, both)?;
                }
                return Ok(());
            }
            Value::Null => return self.set_list_null(instance, slot, cell),
            _ => {}
        }
        let attribute = self.slot_attribute(instance, slot);
        let ty = attribute.ty;
        let Some(end) = attribute.relation else { return Ok(()) };
        if self.contains(cell, value) {
            return Ok(());
        }
        if self.is_ready(cell) {
            let count = self.delayed(cell).map_or(0, |d| d.values.len());
            if end.high.is_some_and(|high| count >= high as usize) {
                return Err(self.over_arity(instance, slot, origin));
            }
            return Err(self.modified_after_freeze(instance, slot, origin));
        }
        self.validate(ty, value)?;
        self.record_requirement(instance, slot, value, origin);
        let delayed = self.delayed_mut(cell);
        delayed.values.push(value);
        let count = delayed.values.len();
        if count == SET_FROM {
            delayed.members = delayed.values.iter().filter_map(|&v| member_key(v)).collect();
        } else if count > SET_FROM {
            delayed.members.extend(member_key(value));
        }
        debug_assert!(delayed.members.len() <= count, "more members than values");
        // Listeners added during the loop received this value when they subscribed.
        for at in 0..self.delayed_mut(cell).listeners.len() {
            let Some(&listener) = self.delayed_mut(cell).listeners.get(at) else { break };
            let by = self.units[listener as usize].origin;
            self.receive(listener, value, origin).map_err(|e| self.blame(e, by))?;
        }
        if let (true, Some(inverse)) = (both, end.inverse) {
            self.set_inverse(inverse, value, instance, origin)?;
        }
        if let Some(high) = end.high {
            if count > high as usize {
                let values = self.delayed_mut(cell).values.to_vec();
                let content = self.heap.list(values);
                let text = format!(
                    "List over full: max nr of items is {high}, content is {}",
                    self.repr(content)
                );
                return self.fail("RuntimeException", text);
            }
            if count == high as usize {
                self.freeze(cell);
            }
        }
        self.queue_if_completable(cell, end.low);
        Ok(())
    }

    fn set_list_null(&mut self, instance: InstanceId, slot: u32, cell: u32) -> Result<()> {
        let values = self.delayed(cell).map(|d| d.values.to_vec()).unwrap_or_default();
        if !values.is_empty() {
            let shown: Vec<String> = values.iter().map(|&value| self.str(value)).collect();
            let text = format!(
                "Trying to set relation attribute `{}` of instance `{}` to null but it has values `{}` assigned already",
                self.text(self.slot_attribute(instance, slot).name),
                self.str(Value::Instance(instance)),
                shown.join(", ")
            );
            return self.fail("RuntimeException", text);
        }
        self.freeze(cell);
        Ok(())
    }

    fn contains(&self, cell: u32, value: Value) -> bool {
        let Some(delayed) = self.delayed(cell) else { return false };
        if delayed.values.len() >= SET_FROM
            && let Some(key) = member_key(value)
        {
            return delayed.members.contains(&key);
        }
        delayed.values.iter().any(|&other| self.heap.equal(other, value))
    }

    fn over_arity(&self, instance: InstanceId, slot: u32, origin: u32) -> Box<CompileError> {
        let text = format!(
            "Exceeded relation arity on attribute '{}' of instance '{}'",
            self.text(self.slot_attribute(instance, slot).name),
            self.str(Value::Instance(instance))
        );
        let mut error = CompileError::new("RuntimeException", text).at(self.origin_loc(origin));
        self.explain_arity(&mut error, (instance, slot), origin);
        error
    }

    fn modified_after_freeze(
        &self,
        instance: InstanceId,
        slot: u32,
        origin: u32,
    ) -> Box<CompileError> {
        let error = CompileError::new("ModifiedAfterFreezeException", "List modified after freeze");
        let mut error = error.at(self.origin_loc(origin));
        self.explain_freeze(&mut error, (instance, slot), origin);
        error
    }

    /// Puts a delayed cell into the wait queue if it may be complete.
    pub(super) fn queue_if_completable(&mut self, cell: u32, low: u32) {
        let at = cell as usize;
        if self.cells[at].flags & (READY | QUEUED) != 0 {
            return;
        }
        let (promises, count) = self.delayed(cell).map_or((0, 0), |d| (d.promises, d.values.len()));
        if promises == 0 && count >= low as usize {
            self.cells[at].flags |= QUEUED;
            let rank = self.rank(cell);
            self.wait.push(cell, rank);
        }
    }

    pub(super) fn promise(&mut self, cell: u32) {
        self.delayed_mut(cell).promises += 1;
    }

    pub(super) fn fulfil(&mut self, cell: u32) {
        let delayed = self.delayed_mut(cell);
        debug_assert!(delayed.promises > 0, "a promise is fulfilled once");
        delayed.promises -= 1;
        if delayed.promises > 0 || self.cells[cell as usize].flags & (READY | QUEUED) != 0 {
            return;
        }
        let low = self.relation_of(cell).map_or(0, |end| end.low);
        self.queue_if_completable(cell, low);
    }

    /// The relation of an instance's cell.
    pub(super) fn relation_of(&self, cell: u32) -> Option<crate::program::RelationEnd> {
        let (instance, slot) = self.owner_of(cell)?;
        self.slot_attribute(instance, slot).relation
    }

    /// The instance and slot of a cell; cell numbers increase with instance numbers.
    pub(super) fn owner_of(&self, cell: u32) -> Option<(InstanceId, u32)> {
        let after = self.instances.partition_point(|instance| instance.cells <= cell);
        let id = InstanceId(after.checked_sub(1)? as u32);
        let instance = &self.instances[id.index()];
        let slot = cell - instance.cells;
        let count = self.program.entity(instance.entity).slots.len() as u32;
        (slot < count).then_some((id, slot))
    }

    /// Freezes a delayed cell: it gets no further values.
    pub(super) fn freeze(&mut self, cell: u32) {
        let at = cell as usize;
        if self.cells[at].flags & READY != 0 {
            return;
        }
        if self.cells[at].kind == CellKind::List {
            let head = self.cells[at].head;
            let list = match head {
                NONE => self.empty_list,
                head => self.heap.list_of(&self.delayed[head as usize].values),
            };
            self.cells[at].value = Value::List(list);
        } else {
            self.cells[at].flags |= EMPTY;
        }
        self.freeze_with(cell);
    }

    fn freeze_with(&mut self, cell: u32) {
        debug_assert!(!self.is_ready(cell), "a cell is frozen once");
        debug_assert_ne!(self.cells[cell as usize].kind, CellKind::Plain);
        self.cells[cell as usize].flags |= READY;
        if self.cells[cell as usize].head == NONE {
            return;
        }
        let waiters = std::mem::take(&mut self.delayed_mut(cell).waiters);
        for unit in waiters {
            self.unit_ready(unit);
        }
        debug_assert!(self.delayed(cell).is_none_or(|delayed| delayed.waiters.is_empty()));
    }

    /// Creates the cells of a new instance; those without a minimum may be complete at once.
    pub(super) fn new_instance_cells(&mut self, entity: EntityId) -> u32 {
        let first = self.cells.len() as u32;
        self.cells.extend_from_slice(&self.fresh[entity.index()]);
        first
    }

    pub(super) fn queue_new_cells(&mut self, instance: InstanceId) {
        let program = self.program;
        let first = self.instances[instance.index()].cells;
        let entity = self.instances[instance.index()].entity;
        for &slot in &program.entity(entity).open_slots {
            let cell = first + slot;
            let rank = self.rank(cell);
            self.wait.push(cell, rank);
        }
    }

    /// "Optional variable accessed that has no value"
    pub(super) fn optional_error(&self, cell: u32) -> Box<CompileError> {
        let text = match self.owner_of(cell) {
            Some((instance, slot)) => {
                let attribute = self.slot_attribute(instance, slot);
                let entity = self.program.entity(attribute.entity);
                format!(
                    "Optional variable accessed that has no value (attribute `{}.{}` of `{}`)",
                    self.text(entity.name),
                    self.text(attribute.name),
                    self.str(Value::Instance(instance))
                )
            }
            None => "Optional variable accessed that has no value".into(),
        };
        let mut error = CompileError::new("OptionalValueException", text);
        if let Some((instance, slot)) = self.owner_of(cell) {
            self.explain_optional(&mut error, instance, slot);
        }
        error
    }

    /// "Duplicate key in index" and the like name both constructors.
    pub(super) fn duplicate_instances(
        &self,
        text: String,
        new: crate::ir::ExprId,
        old: InstanceId,
    ) -> Box<CompileError> {
        let old = self.last_constructor(old);
        let line = |id| orrery_syntax::ast::Loc { column: false, ..self.program.expr(id).loc };
        define::duplicate(text, line(new), line(old))
    }
}
