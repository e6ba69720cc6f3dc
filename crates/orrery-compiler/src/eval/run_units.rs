//! Runs units with complete dependencies.

use orrery_syntax::ast::Loc;

use crate::error::{CompileError, Result};
use crate::ir::{ExprId, ExprKind, StmtId, StmtKind};
use crate::value::{InstanceId, Value};

use super::build_units::{Dest, Owner, Purpose, VariableLocation};
use super::{
    CellKind, DONE, Evaluator, INSTANCE_FRAME, Kind, MISSED, NONE, Origin, REPORTED, Unit, encode,
};

/// Error class of reading an empty optional relation.
pub(super) const OPTIONAL: &str = "OptionalValueException";

impl Evaluator<'_> {
    pub(super) fn run_unit(&mut self, id: u32) -> Result<()> {
        let unit = self.units[id as usize];
        match unit.kind {
            Kind::Assign => self.run_assign(&unit)?,
            Kind::Discard => {
                let StmtKind::Expr(expr) = self.program.stmt(StmtId(unit.node)).kind else {
                    return Ok(());
                };
                self.eval_in(expr, &unit, 0).map_err(|e| self.blame(e, unit.origin))?;
            }
            Kind::ResolveTarget => {
                self.run_resolve_target(&unit).map_err(|e| {
                    let (shown, loc) =
                        (self.origin_text(unit.origin), self.origin_loc(unit.origin));
                    e.replace_statement(&shown, loc)
                })?;
            }
            Kind::SetAttr => self.run_set_attr(id, &unit)?,
            Kind::SetReady => self.run_set_ready(&unit)?,
            Kind::If => self.run_if(id, &unit)?,
            Kind::For => self.run_for(id, &unit)?,
            Kind::Promise => self.run_promise(&unit)?,
            Kind::Hop => self.run_hop(&unit)?,
            Kind::Call => return self.run_call(id, &unit),
            Kind::IndexLookup => self.run_index_lookup(&unit)?,
            Kind::ShortIndexLookup => self.run_short_index_lookup(&unit)?,
            Kind::LazyLeft => self.run_lazy_left(&unit)?,
            Kind::LazyRight => self.run_lazy_right(&unit)?,
            Kind::Condition => self.run_condition(&unit)?,
            Kind::Branch => {
                let value = self
                    .eval_in(ExprId(unit.node), &unit, 0)
                    .map_err(|e| self.in_resumer(e, &unit))?;
                if unit.collector != NONE {
                    self.unit_mut(unit.collector).flags |= REPORTED;
                    if unit.flags & REPORTED == 0 {
                        let origin = encode(Origin::Expr(ExprId(unit.node)));
                        self.report(unit.collector, value, origin)
                            .map_err(|e| self.in_resumer(e, &unit))?;
                    }
                }
                self.deliver(Dest { unit: unit.dest, slot: unit.dest_slot }, value);
            }
            Kind::Defined => self.run_defined(&unit)?,
            Kind::DefinedCell => self.run_defined_cell(&unit),
            Kind::Iterate => return self.run_iterate(id, &unit),
            Kind::Element => self.run_element(id, &unit)?,
            Kind::Collect => self.run_collect(&unit),
            Kind::Item => self.run_item(id, &unit)?,
            Kind::Implement => self.run_implement(&unit)?,
            Kind::Annotation => {
                let value = self.program.annotations[unit.node as usize].value;
                if self.eval_in(value, &unit, 0)?.is_unknown() {
                    self.unknown_annotations.push(unit.node);
                }
            }
            Kind::Free => {}
        }
        self.free_unit(id);
        Ok(())
    }

    pub(super) fn dest(unit: &Unit) -> Dest {
        Dest { unit: unit.dest, slot: unit.dest_slot }
    }

    fn run_assign(&mut self, unit: &Unit) -> Result<()> {
        let StmtKind::Assign { target, value, .. } = &self.program.stmt(StmtId(unit.node)).kind
        else {
            return Ok(());
        };
        let set_by = encode(Origin::Expr(*value));
        let result = self.eval_in(*value, unit, 0).and_then(|value| {
            match self.locate_variable(*target, unit.frame) {
                Some(VariableLocation::Cell(cell)) => self.set_plain(cell, value, set_by),
                _ => Ok(()),
            }
        });
        result.map_err(|e| self.blame(e, unit.origin))
    }

    fn run_resolve_target(&mut self, unit: &Unit) -> Result<()> {
        let StmtKind::SetAttr { base, name, append, value } =
            &self.program.stmt(StmtId(unit.node)).kind
        else {
            return Ok(());
        };
        let target = self.eval_in(*base, unit, 0)?;
        let Value::Instance(instance) = target else {
            let class = match target {
                Value::Null => "inmanta.execute.util.NoneValue",
                Value::Unknown(_) => "inmanta.execute.util.Unknown",
                other => self.heap.class_name(other),
            };
            let text = format!(
                "The object at {} is not an Entity but a <class '{class}'> with value {}",
                self.renderer().expr(*base),
                self.str(target)
            );
            return self.fail("TypingException", text);
        };
        let slot = self.slot_named(instance, *name)?;
        if *append {
            let multi = self.cells[self.slot_cell(instance, slot) as usize].kind == CellKind::List;
            if !multi {
                let text = "Can not use += on relations with multiplicity 1";
                return self.fail("TypingException", text);
            }
        }
        self.start_set(instance, slot, *value, unit.frame, unit.origin)
    }

    /// The slot of an attribute, or an error if the entity lacks it.
    pub(super) fn slot_named(
        &self,
        instance: InstanceId,
        name: orrery_syntax::Symbol,
    ) -> Result<u32> {
        let entity = self.program.entity(self.instances[instance.index()].entity);
        match entity.slot_of.get(&name) {
            Some(&slot) => Ok(slot),
            None => {
                let text = format!(
                    "could not find attribute with name: {} in type {}",
                    self.text(name),
                    self.text(entity.name)
                );
                self.fail("NotFoundException", text)
            }
        }
    }

    /// Schedules the assignment of an expression to an attribute.
    pub(super) fn start_set(
        &mut self,
        instance: InstanceId,
        slot: u32,
        value: ExprId,
        frame: u32,
        origin: u32,
    ) -> Result<()> {
        let unit = self.new_unit(Kind::SetAttr, frame, value.0, self.root_temps(value));
        let this = self.unit_mut(unit);
        this.a = instance.0;
        this.b = slot;
        this.origin = origin;
        this.set_by = encode(Origin::Expr(value));
        let owner = Owner { instance: instance.0, slot };
        this.owner = owner;
        let cell = self.slot_cell(instance, slot);
        match self.cells[cell as usize].kind {
            CellKind::List => {
                let purpose = Purpose { collector: unit, owner };
                self.promise(cell);
                self.emit_gradual(value, frame, unit, 0, purpose)?;
            }
            kind => {
                if kind == CellKind::Optional {
                    self.promise(cell);
                }
                self.emit_expr(value, frame, unit, 0)?;
                self.wait_expr(value, frame, unit);
            }
        }
        self.finish_unit(unit);
        Ok(())
    }

    fn run_set_attr(&mut self, id: u32, unit: &Unit) -> Result<()> {
        let instance = InstanceId(unit.a);
        let value = self
            .eval_in(ExprId(unit.node), unit, 0)
            .map_err(|e| self.could_not_set(e, instance, unit.b, unit.origin))?;
        let complete = self.units[id as usize].flags & (REPORTED | MISSED) == REPORTED;
        if !complete || !matches!(value, Value::List(_)) {
            self.set_slot(instance, unit.b, value, unit.set_by, true)
                .map_err(|e| self.could_not_set(e, instance, unit.b, unit.origin))?;
        }
        let cell = self.slot_cell(instance, unit.b);
        if self.cells[cell as usize].kind != CellKind::Plain {
            self.fulfil(cell);
        }
        Ok(())
    }

    fn release(&mut self, unit: u32) {
        if let Some(mut cells) = self.held.remove(&unit) {
            // In the order of the promises, independent of their acquisition.
            cells.sort_unstable();
            for (_, cell) in cells {
                self.fulfil(cell);
            }
        }
    }

    fn run_if(&mut self, id: u32, unit: &Unit) -> Result<()> {
        let StmtKind::If { condition, then, otherwise, promises } =
            &self.program.stmt(StmtId(unit.node)).kind
        else {
            return Ok(());
        };
        let value = self.eval_in(*condition, unit, 0).map_err(|e| self.blame(e, unit.origin))?;
        match value {
            Value::Unknown(_) => {}
            Value::Bool(true) => self.emit_block(*then, unit.frame, None)?,
            Value::Bool(false) => self.emit_block(*otherwise, unit.frame, None)?,
            other => {
                let text = format!(
                    "Invalid value `{}`: the condition for an if statement can only be a boolean expression",
                    self.str(other)
                );
                let class = self.class_of_misuse(other);
                return Err(self.blame(CompileError::new(class, text), unit.origin));
            }
        }
        if !promises.is_empty() {
            self.release(id);
        }
        Ok(())
    }

    fn run_for(&mut self, id: u32, unit: &Unit) -> Result<()> {
        let StmtKind::For { iterable, promises, .. } = &self.program.stmt(StmtId(unit.node)).kind
        else {
            return Ok(());
        };
        let value = self.eval_in(*iterable, unit, 0).map_err(|e| self.blame(e, unit.origin))?;
        match value {
            Value::Unknown(_) => {}
            Value::List(list) => {
                if self.units[id as usize].flags & REPORTED == 0 {
                    for at in 0..self.heap.items(list).len() {
                        let item = self.heap.items(list)[at];
                        self.receive(id, item, unit.origin)?;
                    }
                }
            }
            other => {
                let shown = self.str(other);
                let hint = match self.program.expr(*iterable).kind {
                    ExprKind::Var { .. } | ExprKind::Attr { .. } => {
                        format!("'{}' resolves to '{shown}'.", self.renderer().expr(*iterable))
                    }
                    _ => format!("'{shown}' is not a list."),
                };
                let text =
                    format!("A for loop can only be applied to lists and relations. Hint: {hint}");
                let error = CompileError::new("TypingException", text);
                return Err(self.blame(error, unit.origin));
            }
        }
        if !promises.is_empty() {
            self.release(id);
        }
        Ok(())
    }

    fn run_promise(&mut self, unit: &Unit) -> Result<()> {
        let base = ExprId(unit.node);
        let name = orrery_syntax::Symbol(unit.b);
        let found = match self.eval_in(base, unit, 0) {
            Ok(value) => self.attribute_cell(value, base, name),
            // Nothing can be added to a missing value.
            Err(error) if error.class == OPTIONAL => return Ok(()),
            Err(error) => Err(error),
        };
        let cell = found.map_err(|e| {
            let shown = format!("{}.{}", self.renderer().expr(base), self.text(name));
            e.or_in_statement(|| shown, Loc { column: false, ..self.program.expr(base).loc })
        })?;
        if self.cells[cell as usize].kind == CellKind::Plain || self.is_ready(cell) {
            return Ok(());
        }
        if let Some(held) = self.held.get_mut(&unit.a) {
            held.push((unit.dest_slot, cell));
            self.promise(cell);
        }
        Ok(())
    }

    fn run_lazy_left(&mut self, unit: &Unit) -> Result<()> {
        let id = ExprId(unit.node);
        let ExprKind::Lazy { or, left, right, .. } = &self.program.expr(id).kind else {
            return Ok(());
        };
        let value = self.eval_in(*left, unit, 0).map_err(|e| self.replace_blame(e, id))?;
        match value {
            Value::Unknown(_) => self.deliver(Self::dest(unit), value),
            Value::Bool(b) if b == *or => self.deliver(Self::dest(unit), value),
            Value::Bool(_) => {
                let next = self.new_unit(
                    Kind::LazyRight,
                    unit.frame,
                    unit.node,
                    self.program.expr(*right).temps,
                );
                let this = self.unit_mut(next);
                this.dest = unit.dest;
                this.dest_slot = unit.dest_slot;
                this.origin = unit.origin;
                self.emit_expr(*right, unit.frame, next, 0).map_err(|e| self.blame_expr(e, id))?;
                self.wait_expr(*right, unit.frame, next);
                self.finish_unit(next);
            }
            other => {
                let word = if *or { "or" } else { "and" };
                let text = format!(
                    "Invalid left hand value `{}`: `{word}` expects a boolean",
                    self.str(other)
                );
                return Err(self.blame_expr(CompileError::new("RuntimeException", text), id));
            }
        }
        Ok(())
    }

    fn run_lazy_right(&mut self, unit: &Unit) -> Result<()> {
        let id = ExprId(unit.node);
        let ExprKind::Lazy { right, .. } = &self.program.expr(id).kind else { return Ok(()) };
        let value = self.eval_in(*right, unit, 0).map_err(|e| self.blame_expr(e, id))?;
        if !matches!(value, Value::Bool(_) | Value::Unknown(_)) {
            let text = format!("Invalid value '{}', expected bool", self.str(value));
            return Err(self.blame_expr(CompileError::new("RuntimeException", text), id));
        }
        self.deliver(Self::dest(unit), value);
        Ok(())
    }

    fn run_condition(&mut self, unit: &Unit) -> Result<()> {
        let id = ExprId(unit.node);
        let ExprKind::Conditional { condition, then, otherwise, .. } = &self.program.expr(id).kind
        else {
            return Ok(());
        };
        let value = self.eval_in(*condition, unit, 0).map_err(|e| self.blame_expr(e, id))?;
        let branch = match value {
            Value::Unknown(_) => {
                self.mark_missed(unit.collector);
                let unknown = self.derived_unknown();
                self.deliver(Self::dest(unit), unknown);
                return Ok(());
            }
            Value::Bool(true) => *then,
            Value::Bool(false) => *otherwise,
            other => {
                let text = format!(
                    "Invalid value `{}`: the condition for a conditional expression must be a boolean expression",
                    self.str(other)
                );
                return Err(self.blame_expr(CompileError::new("RuntimeException", text), id));
            }
        };
        let next = self.new_unit(Kind::Branch, unit.frame, branch.0, self.root_temps(branch));
        let this = self.unit_mut(next);
        this.dest = unit.dest;
        this.dest_slot = unit.dest_slot;
        this.origin = unit.origin;
        this.owner = unit.owner;
        this.collector = unit.collector;
        let purpose = Purpose { collector: next, owner: unit.owner };
        if unit.collector == NONE {
            self.emit_expr(branch, unit.frame, next, 0)?;
            self.wait_expr(branch, unit.frame, next);
        } else {
            self.emit_gradual(branch, unit.frame, next, 0, purpose)?;
        }
        self.finish_unit(next);
        Ok(())
    }

    /// Marks a collector's value as incompletely reported: the relation gets the rest with the
    /// whole value.
    fn mark_missed(&mut self, collector: u32) {
        if collector == NONE {
            return;
        }
        self.unit_mut(collector).flags |= REPORTED;
        let mut next = collector;
        while next != NONE {
            self.unit_mut(next).flags |= MISSED;
            next = self.next_collector(next);
        }
    }

    /// Names the step of a conditional expression as the reference compiler does.
    fn in_resumer(&self, error: Box<CompileError>, unit: &Unit) -> Box<CompileError> {
        let shown = format!(
            "<inmanta.ast.statements.generator.ConditionalExpressionResumer object at 0x{}>",
            crate::render::address(unit.sequence)
        );
        error.replace_statement(&shown, self.origin_loc(unit.origin))
    }

    fn run_defined(&mut self, unit: &Unit) -> Result<()> {
        let id = ExprId(unit.node);
        let ExprKind::Defined { base, name, .. } = &self.program.expr(id).kind else {
            return Ok(());
        };
        let cell = match base {
            None => return Ok(()),
            Some(base) => {
                let at = |this: &Self, error: Box<CompileError>| {
                    let shown = format!("{}.{}", this.renderer().expr(*base), this.text(*name));
                    let loc = Loc { column: false, ..this.program.expr(id).loc };
                    error.or_in_statement(|| shown, loc)
                };
                let value = self.eval_in(*base, unit, 0).map_err(|e| at(self, e))?;
                self.attribute_cell(value, *base, *name).map_err(|e| at(self, e))?
            }
        };
        if self.is_ready(cell) {
            let answer = self.defined_answer(cell);
            self.deliver(Self::dest(unit), answer);
            return Ok(());
        }
        self.watch_cell(id, unit.frame, Self::dest(unit), cell)
    }

    /// Answers `is defined` as soon as possible.
    pub(super) fn watch_cell(
        &mut self,
        id: ExprId,
        frame: u32,
        dest: Dest,
        cell: u32,
    ) -> Result<()> {
        let next = self.new_unit(Kind::DefinedCell, frame, id.0, 0);
        let this = self.unit_mut(next);
        this.dest = dest.unit;
        this.dest_slot = dest.slot;
        this.b = cell;
        this.a = NONE;
        this.origin = encode(Origin::Expr(id));
        if !self.is_ready(cell) {
            if self.cells[cell as usize].kind == CellKind::List {
                let mut at = 0;
                while let Some(&value) = self.delayed(cell).and_then(|d| d.values.get(at)) {
                    self.receive(next, value, encode(Origin::Expr(id)))?;
                    at += 1;
                }
                // The question blocks the list until another value arrives.
                self.unit_mut(next).a = cell;
                self.delayed_mut(cell).listeners.push(next);
            }
            self.units[next as usize].waiting += 1;
            self.add_waiter(cell, next);
        }
        self.finish_unit(next);
        Ok(())
    }

    pub(super) fn defined_answer(&mut self, cell: u32) -> Value {
        let Some(value) = self.cell_value(cell) else { return Value::Bool(false) };
        match value {
            Value::Null => Value::Bool(false),
            Value::Unknown(_) => self.derived_unknown(),
            Value::List(list) => {
                let items = self.heap.items(list);
                match items.iter().any(|item| !item.is_unknown()) {
                    false if !items.is_empty() => self.derived_unknown(),
                    any => Value::Bool(any),
                }
            }
            _ => Value::Bool(true),
        }
    }

    fn run_defined_cell(&mut self, unit: &Unit) {
        if unit.flags & DONE == 0 {
            let answer = self.defined_answer(unit.b);
            self.deliver(Self::dest(unit), answer);
        }
    }

    fn run_implement(&mut self, unit: &Unit) -> Result<()> {
        let implement = &self.program.implements[unit.node as usize];
        let instance = InstanceId(unit.a);
        if let Some(when) = implement.when {
            let loc = implement.loc;
            let value = self.eval_in(when, unit, 0);
            match value.map_err(|e| self.blame_expr(e, when))? {
                Value::Bool(true) => {}
                Value::Bool(false) | Value::Unknown(_) => return Ok(()),
                other => {
                    let text = format!(
                        "Invalid value `{}`: the condition for a conditional implementation can only be a boolean expression",
                        self.str(other)
                    );
                    let error = CompileError::new("RuntimeException", text);
                    return Err(error.in_statement(self.implement_text(unit.node), loc));
                }
            }
        }
        for position in 0..implement.implementations.len() {
            let number = implement.implementations[position];
            if !self.mark_implemented(instance, number) {
                continue;
            }
            let body = self.program.implementations[number as usize].body;
            self.emit_block(body, INSTANCE_FRAME | instance.0, None)?;
        }
        Ok(())
    }

    fn implement_text(&self, number: u32) -> String {
        let implement = &self.program.implements[number as usize];
        let names: Vec<&str> = implement
            .implementations
            .iter()
            .map(|&i| self.text(self.program.implementations[i as usize].name))
            .collect();
        let mut out = format!(
            "implement {} using {}",
            self.text(self.program.entity(implement.entity).name),
            names.join(", ")
        );
        if let Some(when) = implement.when {
            out.push_str(&format!(" when {}", self.renderer().expr(when)));
        }
        out
    }
}
