//! Constructors: index lookup first, then a new or existing instance, then the assignments of all
//! other arguments and the entity's implementations.

use orrery_syntax::Symbol;
use smallvec::SmallVec;

use crate::error::{CompileError, Result};
use crate::ir::{Construct, ExprId, ExprKind};
use crate::lower::expr::missing_index_attributes;
use crate::program::EntityId;
use crate::value::{InstanceId, Value};

use super::build_units::{NO_OWNER, Owner, VariableLocation};
use super::index::Matches;
use super::{CellKind, Evaluator, INSTANCE_FRAME, Instance, Kind, NONE, Origin, Unit, encode};

/// Index attributes of an instance: slots and values.
type IndexValues = SmallVec<[(u32, Value); 4]>;

impl Evaluator<'_> {
    /// Runs a constructor as part of its enclosing expression.
    pub(super) fn construct(
        &mut self,
        id: ExprId,
        construct: &Construct,
        frame: u32,
        mut temps: u32,
        owner: Owner,
    ) -> Result<Value> {
        let program = self.program;
        let mut direct = IndexValues::new();
        for &(slot, expr) in &construct.direct {
            direct.push((slot, self.eval(expr, frame, temps, NO_OWNER)?));
            temps = temps.wrapping_add(program.expr(expr).temps);
        }
        let mut extra: Vec<(u32, Value)> = Vec::new();
        for &expr in &construct.spread {
            let value = self.eval(expr, frame, temps, NO_OWNER)?;
            let entries = self.spread_entries(expr, value)?;
            self.add_spread(id, construct, entries, &mut extra)?;
            temps = temps.wrapping_add(program.expr(expr).temps);
        }
        let entity = construct.entity;
        self.fill_index(id, construct, owner, &mut direct, &mut extra)?;
        let matches =
            if direct.is_empty() { Matches::new() } else { self.index_matches(entity, &direct) };
        let instance = match matches.first() {
            None => self.create(id, entity, &direct, frame)?,
            Some(&found) => {
                self.reuse(id, entity, found, &matches, &direct)?;
                found
            }
        };
        self.assign_rest(id, construct, instance, &extra, frame)?;
        // Also for an existing instance: conditions are evaluated again, and completed
        // implementations do not run again.
        self.emit_implements(instance, entity)?;
        Ok(Value::Instance(instance))
    }

    fn add_spread(
        &self,
        id: ExprId,
        construct: &Construct,
        entries: Vec<(String, Value)>,
        extra: &mut Vec<(u32, Value)>,
    ) -> Result<()> {
        let entity = self.program.entity(construct.entity);
        let at = |error: Box<CompileError>| self.blame_expr(error, id);
        for (name, value) in entries {
            let known = self.program.interner.get(&name);
            let Some(&slot) = known.and_then(|symbol| entity.slot_of.get(&symbol)) else {
                let text = format!("no attribute {name} on type {}", self.text(entity.name));
                return Err(at(CompileError::new("TypingException", text)));
            };
            let twice =
                construct.written.contains(&slot) || extra.iter().any(|(other, _)| *other == slot);
            if twice {
                let text = format!(
                    "The attribute {name} is set twice in the constructor call of {}.",
                    self.text(construct.class)
                );
                return Err(at(CompileError::new("RuntimeException", text)));
            }
            extra.push((slot, value));
        }
        Ok(())
    }

    /// Collects all index attributes: arguments, `**` values, and the owner for a missing one.
    fn fill_index(
        &self,
        id: ExprId,
        construct: &Construct,
        owner: Owner,
        direct: &mut IndexValues,
        extra: &mut Vec<(u32, Value)>,
    ) -> Result<()> {
        let program = self.program;
        let entity = program.entity(construct.entity);
        if entity.indexes.is_empty() {
            return Ok(());
        }
        let mut missing: Vec<u32> = Vec::new();
        for &(slot, _) in entity.index_slots.iter().flatten() {
            if let Some(at) = extra.iter().position(|(other, _)| *other == slot) {
                let (_, value) = extra.remove(at);
                direct.retain(|(other, _)| *other != slot);
                direct.push((slot, value));
            } else if !direct.iter().any(|(other, _)| *other == slot) && !missing.contains(&slot) {
                missing.push(slot);
            }
        }
        if let [slot] = missing.as_slice()
            && owner.instance != NONE
            && self.owner_fills(construct.entity, *slot, owner)
        {
            direct.push((*slot, Value::Instance(InstanceId(owner.instance))));
            return Ok(());
        }
        if missing.is_empty() {
            return Ok(());
        }
        let missing: Vec<Symbol> =
            missing.iter().map(|&slot| program.slot(construct.entity, slot).name).collect();
        let error = missing_index_attributes(program, construct.entity, &missing);
        Err(self.blame_expr(error, id))
    }

    /// True if a relation of the new instance is the inverse of the assigned relation.
    fn owner_fills(&self, entity: EntityId, slot: u32, owner: Owner) -> bool {
        let program = self.program;
        let assigned = self.slot_attribute(InstanceId(owner.instance), owner.slot);
        let inverse = assigned.relation.and_then(|end| end.inverse);
        inverse == Some(program.entity(entity).slots[slot as usize])
    }

    fn create(
        &mut self,
        id: ExprId,
        entity: EntityId,
        direct: &[(u32, Value)],
        frame: u32,
    ) -> Result<InstanceId> {
        if let Some(&(slot, value)) = direct.iter().find(|(_, value)| self.is_late_bound(*value)) {
            let text = format!(
                "Invalid value `{}` in index for attribute {}: references can not be used in indexes.",
                self.repr(value),
                self.text(self.program.slot(entity, slot).name)
            );
            return self.fail("TypingException", text);
        }
        let creator = self.frame_instance(frame);
        let depth = creator.map_or(0, |creator| self.instances[creator.index()].depth + 1);
        let instance = InstanceId(self.instances.len() as u32);
        if instance.0 >= self.limits.instances || depth > self.limits.creation_depth {
            return Err(self.instance_limit_error(id, creator, depth));
        }
        let cells = self.new_instance_cells(entity);
        self.instances.push(Instance {
            entity,
            cells,
            constructor: id,
            implemented: 0,
            depth,
            creator: creator.map_or(NONE, |creator| creator.0),
        });
        self.queue_new_cells(instance);
        let origin = encode(Origin::Expr(id));
        for &(slot, value) in direct {
            self.set_slot(instance, slot, value, origin, true)
                .map_err(|e| self.instance_refused(e, instance, slot))?;
        }
        if !direct.is_empty() {
            self.register(instance, direct, id)?;
        }
        Ok(instance)
    }

    /// Creates an instance of a dataclass entity with all its attributes.
    pub(super) fn construct_data(
        &mut self,
        id: ExprId,
        entity: EntityId,
        attributes: &[(u32, Value)],
        frame: u32,
    ) -> Result<InstanceId> {
        let instance = self.create(id, entity, &[], frame)?;
        let origin = encode(Origin::Expr(id));
        for &(slot, value) in attributes {
            self.set_slot(instance, slot, value, origin, true)
                .map_err(|e| self.could_not_set(e, instance, slot, origin))?;
        }
        self.emit_implements(instance, entity)?;
        Ok(instance)
    }

    fn reuse(
        &mut self,
        id: ExprId,
        entity: EntityId,
        found: InstanceId,
        matches: &[InstanceId],
        direct: &[(u32, Value)],
    ) -> Result<()> {
        for &other in matches {
            if self.instances[other.index()].entity != entity {
                let text = "Type found in index is not an exact match".to_owned();
                let error = self.duplicate_instances(text, id, other);
                return Err(error.explained(self.types_in_index(id, entity, other)));
            }
        }
        if matches.iter().any(|&other| other != found) {
            let text = "Inconsistent indexes detected!\n".to_owned();
            let error = CompileError::new("IndexCollisionException", text);
            return Err(self.blame_expr(error, id));
        }
        self.extra_constructors.entry(found).or_default().push(id);
        let origin = encode(Origin::Expr(id));
        for &(slot, value) in direct {
            self.set_slot(found, slot, value, origin, true)
                .map_err(|e| self.instance_refused(e, found, slot))?;
        }
        Ok(())
    }

    fn assign_rest(
        &mut self,
        id: ExprId,
        construct: &Construct,
        instance: InstanceId,
        extra: &[(u32, Value)],
        frame: u32,
    ) -> Result<()> {
        let origin = encode(Origin::Expr(id));
        let mut at = 0;
        while at < construct.indirect.len() {
            let (slot, value, _) = construct.indirect[at];
            at += 1;
            if extra.iter().any(|(other, _)| *other == slot) {
                continue;
            }
            if extra.is_empty() && self.sets_at_once(instance, slot, value, frame) {
                // Consecutive assignments that wait for nothing: one unit runs them all, in the
                // same order.
                let first = at - 1;
                while let Some(&(slot, value, _)) = construct.indirect.get(at)
                    && self.sets_at_once(instance, slot, value, frame)
                {
                    at += 1;
                }
                let unit = self.new_unit(Kind::SetReady, frame, id.0, 0);
                let this = self.unit_mut(unit);
                this.a = instance.0;
                this.b = first as u32;
                this.dest_slot = at as u32;
                this.origin = origin;
                self.finish_unit(unit);
                continue;
            }
            self.start_set(instance, slot, value, frame, origin)?;
        }
        for &(slot, value) in extra {
            self.set_slot(instance, slot, value, origin, true)
                .map_err(|e| self.instance_refused(e, instance, slot))?;
        }
        Ok(())
    }

    /// True if an argument can be evaluated and assigned without waiting.
    fn sets_at_once(&self, instance: InstanceId, slot: u32, value: ExprId, frame: u32) -> bool {
        let cell = self.slot_cell(instance, slot);
        self.cells[cell as usize].kind == CellKind::Plain && self.is_available(value, frame)
    }

    pub(super) fn is_available(&self, id: ExprId, frame: u32) -> bool {
        let expr = self.program.expr(id);
        if expr.temps > 0 {
            return false;
        }
        match &expr.kind {
            ExprKind::Const(_) => true,
            ExprKind::Var { var, cache, .. } => {
                match self.locate_variable_cached(*var, cache, frame) {
                    Some(VariableLocation::Cell(cell)) => self.is_ready(cell),
                    Some(VariableLocation::Value(_)) => true,
                    None => false,
                }
            }
            ExprKind::Format(format) | ExprKind::FString(format) => {
                format.parts.iter().all(|&(_, part)| self.is_available(part, frame))
            }
            ExprKind::Binary { left, right, .. } => {
                self.is_available(*left, frame) && self.is_available(*right, frame)
            }
            ExprKind::List(items) => items.iter().all(|&item| self.is_available(item, frame)),
            _ => false,
        }
    }

    /// Runs consecutive assignments that waited for nothing.
    pub(super) fn run_set_ready(&mut self, unit: &Unit) -> Result<()> {
        let program = self.program;
        let ExprKind::Construct(construct) = &program.expr(ExprId(unit.node)).kind else {
            return Ok(());
        };
        let instance = InstanceId(unit.a);
        for at in unit.b..unit.dest_slot {
            let (slot, value, _) = construct.indirect[at as usize];
            let set_by = encode(Origin::Expr(value));
            let owner = Owner { instance: instance.0, slot };
            self.eval(value, unit.frame, NONE, owner)
                .and_then(|value| self.set_slot(instance, slot, value, set_by, true))
                .map_err(|e| self.could_not_set(e, instance, slot, unit.origin))?;
        }
        Ok(())
    }

    fn emit_implements(&mut self, instance: InstanceId, entity: EntityId) -> Result<()> {
        let program = self.program;
        let frame = INSTANCE_FRAME | instance.0;
        for &number in &program.entity(entity).implements {
            let implement = &program.implements[number as usize];
            if implement.when.is_none() && self.does_nothing(implement) {
                // An empty body has no effect except that the instance counts as implemented.
                for &implementation in &implement.implementations {
                    self.mark_implemented(instance, implementation);
                }
                continue;
            }
            let temps = implement.when.map_or(0, |when| program.expr(when).temps);
            let unit = self.new_unit(Kind::Implement, frame, number, temps);
            self.unit_mut(unit).a = instance.0;
            if let Some(when) = implement.when {
                self.emit_expr(when, frame, unit, 0).map_err(|e| {
                    let shown = format!(
                        "<inmanta.ast.entity.Implement object at 0x{}>",
                        crate::render::address(number)
                    );
                    e.or_in_statement(|| shown, implement.loc)
                })?;
                self.wait_expr(when, frame, unit);
            }
            self.finish_unit(unit);
        }
        Ok(())
    }

    fn does_nothing(&self, implement: &crate::ir::Implement) -> bool {
        implement.implementations.iter().all(|&number| {
            let body = self.program.implementations[number as usize].body;
            self.program.block(body).stmts.is_empty()
        })
    }

    /// Marks an implementation as run for an instance; false if it already was.
    pub(super) fn mark_implemented(&mut self, instance: InstanceId, number: u32) -> bool {
        let entity = self.instances[instance.index()].entity;
        let all = &self.program.entity(entity).implementations;
        let position = all.iter().position(|&other| other == number);
        match position {
            Some(position) if position < 63 => {
                let bits = &mut self.instances[instance.index()].implemented;
                let new = *bits & (1 << position) == 0;
                *bits |= 1 << position;
                new
            }
            _ => {
                self.instances[instance.index()].implemented |= 1 << 63;
                self.implemented_more.insert((instance, number))
            }
        }
    }
}
