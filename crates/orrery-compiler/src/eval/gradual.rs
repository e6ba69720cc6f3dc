//! Gradual values: loops, comprehensions, list literals and relations that receive values before
//! all are known.

use orrery_syntax::ast::Loc;

use crate::error::{CompileError, Result};
use crate::ir::{ExprId, ExprKind, StmtId, StmtKind};
use crate::value::{InstanceId, Value};

use super::build_units::{Dest, Purpose};
use super::{
    CellKind, ComprehensionState, DONE, Evaluator, Kind, NONE, Origin, REPORTED, Unit, encode,
};

impl Evaluator<'_> {
    /// Passes one value to a gradual unit.
    pub(super) fn receive(&mut self, id: u32, value: Value, origin: u32) -> Result<()> {
        let unit = self.units[id as usize];
        match unit.kind {
            Kind::For => {
                if value.is_unknown() {
                    return Ok(());
                }
                let StmtKind::For { body, .. } = &self.program.stmt(StmtId(unit.node)).kind else {
                    return Ok(());
                };
                self.emit_block(*body, unit.frame, Some((value, unit.origin)))
            }
            Kind::SetAttr => {
                let instance = InstanceId(unit.a);
                self.set_slot(instance, unit.b, value, origin, true)
                    .map_err(|e| self.blame(self.refused_by(e, instance, unit.b), unit.origin))
            }
            Kind::Item => match self.literals[unit.a as usize].collector {
                NONE => Ok(()),
                collector => self.receive(collector, value, origin),
            },
            Kind::Iterate => self.emit_element(id, value),
            Kind::Element | Kind::Branch => match unit.collector {
                NONE => Ok(()),
                collector => self.receive(collector, value, origin),
            },
            Kind::DefinedCell => {
                if value.is_unknown() {
                    return Ok(());
                }
                // The first value ends the blocking, even of a question that an earlier value
                // answered.
                if unit.flags & REPORTED == 0 && unit.a != NONE {
                    self.unit_mut(id).flags |= REPORTED;
                    self.delayed_mut(unit.a).gradual += 1;
                }
                if unit.flags & DONE == 0 {
                    self.unit_mut(id).flags |= DONE;
                    self.deliver(Self::dest(&unit), Value::Bool(true));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The collector that a collector forwards to.
    pub(super) fn next_collector(&self, collector: u32) -> u32 {
        let unit = &self.units[collector as usize];
        match unit.kind {
            Kind::Item => self.literals[unit.a as usize].collector,
            _ => unit.collector,
        }
    }

    /// The relation, loop or comprehension at the end of literals, branches and members.
    pub(super) fn pipe_end(&self, mut collector: u32) -> u32 {
        loop {
            let pipe = matches!(
                self.units[collector as usize].kind,
                Kind::Item | Kind::Element | Kind::Branch
            );
            match self.next_collector(collector) {
                next if pipe && next != NONE => collector = next,
                _ => return collector,
            }
        }
    }

    /// The final receiver: a relation or a loop.
    pub(super) fn last_collector(&self, mut collector: u32) -> u32 {
        loop {
            match self.next_collector(collector) {
                NONE => return collector,
                next => collector = next,
            }
        }
    }

    /// Creates the state of a comprehension; its `Collect` unit waits for the list and each
    /// element.
    pub(super) fn begin_comprehension(&mut self, iterate: u32) {
        let unit = self.units[iterate as usize];
        let collect = self.new_unit(Kind::Collect, unit.frame, unit.node, 0);
        let number = self.comprehensions.len() as u32;
        self.comprehensions.push(ComprehensionState { results: Vec::new(), collect });
        let this = self.unit_mut(collect);
        this.dest = unit.dest;
        this.dest_slot = unit.dest_slot;
        this.a = number;
        this.origin = unit.origin;
        self.unit_mut(iterate).b = number;
    }

    pub(super) fn run_iterate(&mut self, id: u32, unit: &Unit) -> Result<()> {
        let expr = ExprId(unit.node);
        let ExprKind::Comprehension(comprehension) = &self.program.expr(expr).kind else {
            return Ok(());
        };
        let value = self
            .eval_in(comprehension.iterable, unit, 0)
            .map_err(|e| self.replace_blame(e, expr))?;
        if unit.collector == NONE {
            self.begin_comprehension(id);
        }
        match value {
            Value::Unknown(_) => self.emit_element(id, value)?,
            Value::List(list) => {
                let Unit { flags, b: number, .. } = self.units[id as usize];
                let count = self.heap.items(list).len();
                let received = self.comprehensions[number as usize].results.len();
                if flags & REPORTED == 0 || received == 0 {
                    for at in 0..count {
                        let item = self.heap.items(list)[at];
                        self.emit_element(id, item)?;
                    }
                } else if received != count {
                    return Err(self.partly_reported(expr));
                }
            }
            other => {
                let text = format!(
                    "A list comprehension can only be applied to lists and relations, got {}",
                    self.heap.class_name(other)
                );
                return Err(self.blame_expr(CompileError::new("TypingException", text), expr));
            }
        }
        let number = self.units[id as usize].b;
        let collect = self.comprehensions[number as usize].collect;
        self.finish_unit(collect);
        self.free_unit(id);
        Ok(())
    }

    /// The error for unreported members: a condition was unknown, or a relation is named twice.
    fn partly_reported(&self, expr: ExprId) -> Box<CompileError> {
        let text = "Invalid compiler state, this likely indicates a bug in the compiler. Details: \
                    list comprehension helper received some but not all values gradually";
        let loc = Loc { column: false, ..self.program.expr(expr).loc };
        CompileError::new("InvalidCompilerState", text)
            .in_statement(self.renderer().expr(expr), loc)
            .help("assign the list to a variable first: a condition in it is unknown, or it names a relation twice")
    }

    pub(super) fn emit_element(&mut self, iterate: u32, value: Value) -> Result<()> {
        let unit = self.units[iterate as usize];
        let ExprKind::Comprehension(comprehension) = &self.program.expr(ExprId(unit.node)).kind
        else {
            return Ok(());
        };
        let number = unit.b as usize;
        let collect = self.comprehensions[number].collect;
        let position = self.comprehensions[number].results.len() as u32;
        self.comprehensions[number].results.push(value);
        let cell = self.new_cell(CellKind::Plain);
        self.set_plain(cell, value, unit.origin)?;
        let frame = self.new_frame(unit.frame, cell, comprehension.names);
        let element = match value {
            Value::Unknown(_) => comprehension.unknown,
            _ => comprehension.element,
        };
        let next = self.new_unit(Kind::Element, frame, element.0, self.root_temps(element));
        let this = self.unit_mut(next);
        this.a = number as u32;
        this.b = position;
        this.collector = unit.collector;
        this.origin = unit.origin;
        this.owner = unit.owner;
        self.units[collect as usize].waiting += 1;
        let emitted = if unit.collector == NONE {
            self.emit_expr(element, frame, next, 0).map(|()| self.wait_expr(element, frame, next))
        } else {
            let purpose = Purpose { collector: next, owner: unit.owner };
            self.emit_gradual(element, frame, next, 0, purpose)
        };
        emitted.map_err(|e| self.blame_expr(e, ExprId(unit.node)))?;
        self.finish_unit(next);
        Ok(())
    }

    pub(super) fn run_element(&mut self, id: u32, unit: &Unit) -> Result<()> {
        let element = ExprId(unit.node);
        let value = self.eval_in(element, unit, 0).map_err(|e| self.blame_expr(e, element))?;
        if unit.collector != NONE && self.units[id as usize].flags & REPORTED == 0 {
            let origin = encode(Origin::Expr(ExprId(unit.node)));
            let by = self.units[unit.collector as usize].origin;
            self.report(unit.collector, value, origin).map_err(|e| self.blame(e, by))?;
        }
        let comprehending = &mut self.comprehensions[unit.a as usize];
        comprehending.results[unit.b as usize] = value;
        let collect = comprehending.collect;
        self.unit_ready(collect);
        Ok(())
    }

    /// Passes a whole value, list or not, to a collector.
    pub(super) fn report(&mut self, collector: u32, value: Value, origin: u32) -> Result<()> {
        if let Value::List(list) = value {
            for at in 0..self.heap.items(list).len() {
                let item = self.heap.items(list)[at];
                self.receive(collector, item, origin)?;
            }
            return Ok(());
        }
        self.receive(collector, value, origin)
    }

    pub(super) fn run_collect(&mut self, unit: &Unit) {
        let results = std::mem::take(&mut self.comprehensions[unit.a as usize].results);
        let mut all = Vec::with_capacity(results.len());
        for value in results {
            match value {
                Value::List(list) => all.extend_from_slice(self.heap.items(list)),
                other => all.push(other),
            }
        }
        let list = self.heap.list(all);
        self.deliver(Self::dest(unit), list);
    }

    pub(super) fn run_item(&mut self, id: u32, unit: &Unit) -> Result<()> {
        let value =
            self.eval_in(ExprId(unit.node), unit, 0).map_err(|e| self.blame(e, unit.origin))?;
        if self.units[id as usize].flags & REPORTED == 0 {
            let origin = encode(Origin::Expr(ExprId(unit.node)));
            self.report(id, value, origin).map_err(|e| self.blame(e, unit.origin))?;
        }
        let literal = &mut self.literals[unit.a as usize];
        match value {
            Value::List(list) => literal.values.extend_from_slice(self.heap.items(list)),
            other => literal.values.push(other),
        }
        literal.pending -= 1;
        if literal.pending == 0 {
            let values = std::mem::take(&mut literal.values);
            let dest = Dest { unit: literal.dest, slot: literal.dest_slot };
            let list = self.heap.list(values);
            self.deliver(dest, list);
        }
        Ok(())
    }
}
