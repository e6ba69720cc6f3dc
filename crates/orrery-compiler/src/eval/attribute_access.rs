//! Attribute access: `a.b` resolves to the cell of an attribute once `a` is known. It is by far the
//! most frequent step. If `a` is already known, it needs no unit, only an entry in the queue.

use orrery_syntax::Symbol;

use crate::error::Result;
use crate::ir::{ExprId, ExprKind, SlotCache};
use crate::value::Value;

use super::build_units::{Dest, VariableLocation};
use super::run_units::OPTIONAL;
use super::{Chain, Evaluator, Kind, Origin, ReadyStep, Unit, encode};

impl Evaluator<'_> {
    /// The cell of `a.b`, if `a` is a variable that already holds an instance with the attribute
    /// `b`.
    pub(super) fn resolved_attribute(
        &self,
        base: ExprId,
        name: Symbol,
        cache: &SlotCache,
        frame: u32,
    ) -> Option<u32> {
        let ExprKind::Var { var, cache: base_cache, .. } = &self.program.expr(base).kind else {
            return None;
        };
        let value = match self.locate_variable_cached(*var, base_cache, frame)? {
            VariableLocation::Cell(cell) => self.cell_value(cell)?,
            VariableLocation::Value(value) => value,
        };
        self.attribute_of(value, name, cache)
    }

    fn attribute_of(&self, value: Value, name: Symbol, cache: &SlotCache) -> Option<u32> {
        let Value::Instance(instance) = value else { return None };
        let instance = &self.instances[instance.index()];
        let (entity, slot) = cache.0.get();
        if entity == instance.entity.0 {
            return Some(instance.cells + slot);
        }
        if name == self.self_symbol {
            return None;
        }
        let slot = *self.program.entity(instance.entity).slot_of.get(&name)?;
        cache.0.set((instance.entity.0, slot));
        Some(instance.cells + slot)
    }

    pub(super) fn new_chain(&mut self, chain: Chain) -> u32 {
        if let Some(id) = self.free_chains.pop() {
            self.chains[id as usize] = chain;
            return id;
        }
        self.chains.push(chain);
        self.chains.len() as u32 - 1
    }

    /// Runs the step `a.b` of `a.b.c`: queues the rest if the value is set, waits otherwise.
    pub(super) fn run_chain(&mut self, id: u32, cell: u32) {
        let Chain { dest, expr, frame, sequence } = self.chains[id as usize];
        self.free_chains.push(id);
        if let ExprKind::Attr { name, cache, .. } = &self.program.expr(expr).kind
            && let Some(value) = self.cell_value(cell)
            && let Some(cell) = self.attribute_of(value, *name, cache)
        {
            self.run.push_back(ReadyStep::Read { dest, cell });
            return;
        }
        let unit = self.new_unit(Kind::Hop, frame, expr.0, 1);
        let this = self.unit_mut(unit);
        this.sequence = sequence;
        this.dest = dest.unit;
        this.dest_slot = dest.slot;
        this.origin = encode(Origin::Expr(expr));
        self.connect(Dest { unit, slot: 0 }, cell);
    }

    /// Drops a promise with a path that cannot be followed. False if the unit is not part of a
    /// promise.
    fn drop_promise(&mut self, unit: &Unit) -> bool {
        let mut path = Vec::new();
        let mut next = unit.dest;
        while self.units[next as usize].kind == Kind::Hop {
            path.push(next);
            next = self.units[next as usize].dest;
        }
        if self.units[next as usize].kind != Kind::Promise {
            return false;
        }
        path.push(next);
        path.into_iter().for_each(|id| self.free_unit(id));
        true
    }

    pub(super) fn run_hop(&mut self, unit: &Unit) -> Result<()> {
        let id = ExprId(unit.node);
        let ExprKind::Attr { base, name, cache } = &self.program.expr(id).kind else {
            return Ok(());
        };
        let value = match self.eval_in(*base, unit, 0) {
            Err(error) if error.class == OPTIONAL && self.drop_promise(unit) => return Ok(()),
            value => value.map_err(|e| self.blame_expr(e, id))?,
        };
        if self.is_self(value, *name) {
            self.deliver(Self::dest(unit), value);
            return Ok(());
        }
        let cell = match self.attribute_of(value, *name, cache) {
            Some(cell) => cell,
            None => self.attribute_cell(value, *base, *name).map_err(|e| self.blame_expr(e, id))?,
        };
        self.listen(cell, unit.collector, unit.origin).map_err(|e| {
            e.replace_statement(&self.renderer().expr(id), self.program.expr(id).loc)
        })?;
        self.connect(Self::dest(unit), cell);
        Ok(())
    }

    /// `a.self` is `a`.
    fn is_self(&self, value: Value, name: Symbol) -> bool {
        name == self.self_symbol && matches!(value, Value::Instance(_))
    }

    pub(super) fn attribute_cell(&self, value: Value, base: ExprId, name: Symbol) -> Result<u32> {
        match value {
            Value::Instance(instance) => {
                let slot = self.slot_named(instance, name)?;
                Ok(self.slot_cell(instance, slot))
            }
            Value::List(_) => {
                let text = format!(
                    "can not get attribute {}, {} is not an entity but a list",
                    self.text(name),
                    self.str(value)
                );
                self.fail("RuntimeException", text)
            }
            other => {
                let text = format!(
                    "can not get attribute {}, {} is not an entity but a {} with value '{}'",
                    self.text(name),
                    self.renderer().expr(base),
                    self.heap.class_name(other),
                    self.str(other)
                );
                self.fail("RuntimeException", text)
            }
        }
    }
}
