//! Builds units: registers the cells that a statement or expression waits for, in the order that
//! the language defines.

use crate::error::{CompileError, Result};
use crate::ir::{BlockId, ExprId, ExprKind, Promise, SlotCache, StmtId, StmtKind, Var};
use crate::value::{InstanceId, Value};

use super::{
    CellKind, Chain, Evaluator, FILE_FRAME, Frame, INSTANCE_FRAME, Kind, LITERAL, Literal, NONE,
    Origin, REPORTED, ReadyStep, Temp, Unit, encode,
};

/// Storage of a variable's value.
#[derive(Clone, Copy)]
pub(super) enum VariableLocation {
    Cell(u32),
    Value(Value),
}

/// The unit and temp that receive a result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dest {
    pub unit: u32,
    pub slot: u32,
}

/// Use of an emitted value: the unit that listens to its parts, and the attribute that it becomes.
#[derive(Clone, Copy)]
pub(super) struct Purpose {
    pub collector: u32,
    pub owner: Owner,
}

/// The instance and slot that an expression is assigned to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub instance: u32,
    pub slot: u32,
}

pub(super) const NO_OWNER: Owner = Owner { instance: NONE, slot: 0 };

pub(super) const PLAIN: Purpose = Purpose { collector: NONE, owner: NO_OWNER };

impl Evaluator<'_> {
    pub(super) fn new_unit(&mut self, kind: Kind, frame: u32, node: u32, temps: u32) -> u32 {
        let first = self.new_temps(temps);
        let unit = Unit {
            kind,
            flags: 0,
            waiting: 1,
            sequence: 0,
            frame,
            node,
            temps: first,
            temp_count: temps,
            dest: NONE,
            dest_slot: 0,
            a: 0,
            b: 0,
            origin: 0,
            set_by: 0,
            collector: NONE,
            owner: NO_OWNER,
        };
        if let Some(id) = self.free_units.pop() {
            self.units[id as usize] = unit;
            id
        } else {
            self.units.push(unit);
            self.units.len() as u32 - 1
        }
    }

    fn new_temps(&mut self, count: u32) -> u32 {
        if count == 0 {
            return NONE;
        }
        if let Some(first) = self.free_temps.get_mut(count as usize).and_then(Vec::pop) {
            self.temps[first as usize..(first + count) as usize].fill(Temp::Pending);
            return first;
        }
        let first = self.temps.len() as u32;
        self.temps.resize(self.temps.len() + count as usize, Temp::Pending);
        first
    }

    pub(super) fn unit_mut(&mut self, id: u32) -> &mut Unit {
        &mut self.units[id as usize]
    }

    /// Marks the registration of a unit's dependencies as complete.
    pub(super) fn finish_unit(&mut self, id: u32) {
        self.sequence += 1;
        self.units[id as usize].sequence = self.sequence;
        self.unit_ready(id);
    }

    pub(super) fn unit_ready(&mut self, id: u32) {
        let unit = &mut self.units[id as usize];
        debug_assert!(unit.waiting > 0, "a unit is woken by cells that it waits for");
        unit.waiting -= 1;
        if unit.waiting == 0 {
            self.run.push_back(ReadyStep::Unit(id));
        }
    }

    pub(super) fn free_unit(&mut self, id: u32) {
        let unit = &mut self.units[id as usize];
        unit.kind = Kind::Free;
        if let Some(free) = self.free_temps.get_mut(unit.temp_count as usize)
            && unit.temp_count > 0
        {
            free.push(unit.temps);
        }
        self.free_units.push(id);
    }

    /// Passes a result to the unit that reads it.
    pub(super) fn deliver(&mut self, dest: Dest, value: Value) {
        if dest.unit == NONE {
            return;
        }
        let at = self.units[dest.unit as usize].temps + dest.slot;
        self.temps[at as usize] = Temp::Value(value);
        self.unit_ready(dest.unit);
    }

    /// Connects a reader to a cell: delivers at once if the cell has a value.
    pub(super) fn connect(&mut self, dest: Dest, cell: u32) {
        let at = self.units[dest.unit as usize].temps + dest.slot;
        self.temps[at as usize] = Temp::Cell(cell);
        if self.is_ready(cell) {
            self.unit_ready(dest.unit);
        } else {
            self.add_waiter(cell, dest.unit);
        }
    }

    pub(super) fn emit_block(
        &mut self,
        block: BlockId,
        parent: u32,
        first: Option<(Value, u32)>,
    ) -> Result<()> {
        let program = self.program;
        let block = program.block(block);
        let mut frame = parent;
        if block.locals > 0 {
            let cells = self.cells.len() as u32;
            for _ in 0..block.locals {
                self.new_cell(CellKind::Plain);
            }
            frame = self.new_frame(parent, cells, block.names);
            if let Some((value, origin)) = first {
                self.set_plain(cells, value, origin)?;
            }
        }
        for &stmt in &block.stmts {
            self.emit_stmt(stmt, frame)?;
        }
        Ok(())
    }

    pub(super) fn new_frame(&mut self, parent: u32, cells: u32, names: u32) -> u32 {
        self.frames.push(Frame { parent, cells, names });
        self.frames.len() as u32 - 1
    }

    fn frame_up(&self, mut frame: u32, hops: u16) -> u32 {
        for _ in 0..hops {
            frame = self.frames[frame as usize].parent;
        }
        frame
    }

    /// The instance that a frame's code runs for.
    pub(super) fn frame_instance(&self, mut frame: u32) -> Option<InstanceId> {
        loop {
            if frame == FILE_FRAME {
                return None;
            }
            if frame & INSTANCE_FRAME != 0 {
                return Some(InstanceId(frame & !INSTANCE_FRAME));
            }
            frame = self.frames[frame as usize].parent;
        }
    }

    pub(super) fn locate_variable(&self, var: Var, frame: u32) -> Option<VariableLocation> {
        self.locate_variable_cached(var, &SlotCache::new(), frame)
    }

    /// `locate_variable` for code that runs for many instances, mostly of one entity.
    pub(super) fn locate_variable_cached(
        &self,
        var: Var,
        cache: &SlotCache,
        frame: u32,
    ) -> Option<VariableLocation> {
        match var {
            Var::Global(cell) => Some(VariableLocation::Cell(cell)),
            Var::Local { hops, slot } => {
                let frame = self.frame_up(frame, hops);
                Some(VariableLocation::Cell(self.frames[frame as usize].cells + u32::from(slot)))
            }
            Var::Instance { hops, name, fallback, .. } => {
                let frame = self.frame_up(frame, hops);
                let instance = &self.instances[(frame & !INSTANCE_FRAME) as usize];
                let (entity, slot) = cache.0.get();
                if entity == instance.entity.0 {
                    return Some(VariableLocation::Cell(instance.cells + slot));
                }
                match self.program.entity(instance.entity).slot_of.get(&name) {
                    Some(&slot) => {
                        cache.0.set((instance.entity.0, slot));
                        Some(VariableLocation::Cell(instance.cells + slot))
                    }
                    None => fallback.map(VariableLocation::Cell),
                }
            }
            Var::SelfInstance { hops } => {
                let frame = self.frame_up(frame, hops);
                Some(VariableLocation::Value(Value::Instance(InstanceId(frame & !INSTANCE_FRAME))))
            }
            Var::SelfValue | Var::Missing | Var::MissingNamespace => None,
        }
    }

    fn emit_stmt(&mut self, id: StmtId, frame: u32) -> Result<()> {
        let program = self.program;
        let stmt = program.stmt(id);
        let origin = encode(Origin::Stmt(id));
        let result = match &stmt.kind {
            StmtKind::Assign { target, name, value } => {
                if self.locate_variable(*target, frame).is_none() {
                    let short = self.text(*name).rsplit("::").next().unwrap_or_default();
                    let text = format!("variable {short} not found");
                    Err(CompileError::new("NotFoundException", text))
                } else {
                    self.emit_unit(Kind::Assign, frame, id.0, *value, origin)
                }
            }
            StmtKind::Expr(expr) => self.emit_unit(Kind::Discard, frame, id.0, *expr, origin),
            StmtKind::SetAttr { base, .. } => {
                self.emit_unit(Kind::ResolveTarget, frame, id.0, *base, origin)
            }
            StmtKind::If { condition, promises, .. } => {
                self.emit_guarded(Kind::If, frame, id, *condition, promises)
            }
            StmtKind::For { iterable, promises, .. } => {
                self.emit_guarded(Kind::For, frame, id, *iterable, promises)
            }
        };
        result.map_err(|e| self.blame(e, origin))
    }

    /// Builds a unit that evaluates one expression.
    fn emit_unit(
        &mut self,
        kind: Kind,
        frame: u32,
        node: u32,
        expr: ExprId,
        origin: u32,
    ) -> Result<()> {
        let unit = self.new_unit(kind, frame, node, self.program.expr(expr).temps);
        self.unit_mut(unit).origin = origin;
        self.emit_expr(expr, frame, unit, 0)?;
        self.wait_expr(expr, frame, unit);
        self.finish_unit(unit);
        Ok(())
    }

    fn emit_guarded(
        &mut self,
        kind: Kind,
        frame: u32,
        id: StmtId,
        expr: ExprId,
        promises: &[Promise],
    ) -> Result<()> {
        let unit = self.new_unit(kind, frame, id.0, self.root_temps(expr));
        self.unit_mut(unit).origin = encode(Origin::Stmt(id));
        if !promises.is_empty() {
            self.held.insert(unit, Vec::new());
        }
        for (position, promise) in promises.iter().enumerate() {
            let base = self.program.expr(promise.base);
            let hook = self.new_unit(Kind::Promise, frame, promise.base.0, base.temps);
            self.unit_mut(hook).a = unit;
            self.unit_mut(hook).b = promise.name.0;
            self.unit_mut(hook).dest_slot = position as u32;
            self.emit_expr(promise.base, frame, hook, 0)?;
            self.wait_expr(promise.base, frame, hook);
            self.finish_unit(hook);
        }
        if kind == Kind::For {
            self.emit_gradual(expr, frame, unit, 0, Purpose { collector: unit, owner: NO_OWNER })?;
        } else {
            self.emit_expr(expr, frame, unit, 0)?;
            self.wait_expr(expr, frame, unit);
        }
        self.finish_unit(unit);
        Ok(())
    }

    /// Number of temps of a unit that may read its expression gradually: a list literal counts as
    /// one.
    pub(super) fn root_temps(&self, expr: ExprId) -> u32 {
        let expr = self.program.expr(expr);
        match expr.kind {
            ExprKind::List(_) => expr.temps.max(1),
            _ => expr.temps,
        }
    }

    /// Starts the units that compute the parts of an expression. `slot` is the first temp of `unit`
    /// that belongs to it.
    pub(super) fn emit_expr(&mut self, id: ExprId, frame: u32, unit: u32, slot: u32) -> Result<()> {
        let program = self.program;
        let expr = program.expr(id);
        if !expr.emits {
            return Ok(());
        }
        match &expr.kind {
            ExprKind::Const(_) | ExprKind::Nothing => Ok(()),
            ExprKind::Regex(_) => {
                let error = CompileError::new("NotFoundException", "variable self not found");
                Err(self.blame_expr(error, id))
            }
            ExprKind::Var { var, name, cache, .. } => {
                if self.locate_variable_cached(*var, cache, frame).is_none() {
                    return Err(self.variable_not_found(*name, id, frame));
                }
                Ok(())
            }
            ExprKind::Not(inner) => {
                self.emit_expr(*inner, frame, unit, slot).map_err(|e| self.blame_expr(e, id))
            }
            ExprKind::Lookup { base, key } => {
                let at = program.expr(*base).loc;
                self.emit_expr(*base, frame, unit, slot)
                    .and_then(|()| {
                        self.emit_expr(*key, frame, unit, slot + program.expr(*base).temps)
                    })
                    .map_err(|e| e.or_in_statement(|| self.renderer().expr(id), at))
            }
            ExprKind::Binary { left, right, .. } => self
                .emit_expr(*left, frame, unit, slot)
                .and_then(|()| {
                    self.emit_expr(*right, frame, unit, slot + program.expr(*left).temps)
                })
                .map_err(|e| self.blame_expr(e, id)),
            ExprKind::List(items) => {
                let mut slot = slot;
                for &item in items {
                    self.emit_expr(item, frame, unit, slot).map_err(|e| self.blame_expr(e, id))?;
                    slot += program.expr(item).temps;
                }
                Ok(())
            }
            ExprKind::Dict(items) => {
                let mut slot = slot;
                for &(_, item) in items {
                    self.emit_expr(item, frame, unit, slot).map_err(|e| self.blame_expr(e, id))?;
                    slot += program.expr(item).temps;
                }
                Ok(())
            }
            ExprKind::Construct(_) => {
                let mut slot = slot;
                for &part in program.expr(id).kind.parts() {
                    self.emit_expr(part, frame, unit, slot)?;
                    slot += program.expr(part).temps;
                }
                Ok(())
            }
            ExprKind::Format(format) | ExprKind::FString(format) => {
                let mut slot = slot;
                for &(_, part) in &format.parts {
                    self.emit_expr(part, frame, unit, slot).map_err(|e| self.blame_expr(e, id))?;
                    slot += program.expr(part).temps;
                }
                Ok(())
            }
            _ => {
                self.units[unit as usize].waiting += 1;
                self.emit_temp(id, frame, Dest { unit, slot }, PLAIN)
            }
        }
    }

    /// Waits for the variables that an expression reads directly.
    pub(super) fn wait_expr(&mut self, id: ExprId, frame: u32, unit: u32) {
        let program = self.program;
        let expr = program.expr(id);
        if !expr.reads {
            return;
        }
        match &expr.kind {
            ExprKind::Var { var, cache, .. } => {
                if let Some(VariableLocation::Cell(cell)) =
                    self.locate_variable_cached(*var, cache, frame)
                    && !self.is_ready(cell)
                {
                    self.units[unit as usize].waiting += 1;
                    self.add_waiter(cell, unit);
                }
            }
            ExprKind::Not(inner) => self.wait_expr(*inner, frame, unit),
            ExprKind::Lookup { base, key } => {
                self.wait_expr(*base, frame, unit);
                self.wait_expr(*key, frame, unit);
            }
            ExprKind::Binary { left, right, .. } => {
                self.wait_expr(*left, frame, unit);
                self.wait_expr(*right, frame, unit);
            }
            ExprKind::List(items) => {
                items.iter().for_each(|&item| self.wait_expr(item, frame, unit));
            }
            ExprKind::Dict(items) => {
                items.iter().for_each(|&(_, item)| self.wait_expr(item, frame, unit));
            }
            ExprKind::Construct(_) => {
                for &part in program.expr(id).kind.parts() {
                    self.wait_expr(part, frame, unit);
                }
            }
            ExprKind::Format(format) | ExprKind::FString(format) => {
                format.parts.iter().for_each(|&(_, part)| self.wait_expr(part, frame, unit));
            }
            _ => {}
        }
    }

    /// Like `emit_expr` and `wait_expr`, but the collector receives parts as they arrive.
    pub(super) fn emit_gradual(
        &mut self,
        id: ExprId,
        frame: u32,
        unit: u32,
        slot: u32,
        purpose: Purpose,
    ) -> Result<()> {
        let program = self.program;
        match &program.expr(id).kind {
            ExprKind::Var { var, member, cache, .. } => {
                self.emit_expr(id, frame, unit, slot)?;
                if let Some(VariableLocation::Cell(cell)) =
                    self.locate_variable_cached(*var, cache, frame)
                    && purpose.collector != NONE
                {
                    let origin = encode(Origin::Expr(id));
                    let reported = match self.cell_value(cell) {
                        Some(value) if *member => {
                            self.unit_mut(purpose.collector).flags |= REPORTED;
                            self.report(purpose.collector, value, origin)
                        }
                        _ => self.listen(cell, purpose.collector, origin),
                    };
                    reported.map_err(|e| {
                        let by = self.last_collector(purpose.collector);
                        self.blame(e, self.units[by as usize].origin)
                    })?;
                }
                self.wait_expr(id, frame, unit);
                Ok(())
            }
            ExprKind::List(items) => {
                let this = self.unit_mut(unit);
                this.waiting += 1;
                this.flags |= LITERAL;
                self.emit_literal(items, frame, Dest { unit, slot }, purpose)
            }
            ExprKind::Attr { .. } | ExprKind::Conditional { .. } | ExprKind::Comprehension(_) => {
                self.units[unit as usize].waiting += 1;
                self.emit_temp(id, frame, Dest { unit, slot }, purpose)
            }
            _ => {
                self.emit_expr(id, frame, unit, slot)?;
                self.wait_expr(id, frame, unit);
                Ok(())
            }
        }
    }

    /// Subscribes a collector to the current and future values of a list relation.
    pub(super) fn listen(&mut self, cell: u32, collector: u32, origin: u32) -> Result<()> {
        if collector == NONE {
            return Ok(());
        }
        if self.cells[cell as usize].kind != CellKind::List {
            return Ok(());
        }
        self.unit_mut(collector).flags |= REPORTED;
        let mut next = 0;
        while let Some(&value) = self.delayed(cell).and_then(|d| d.values.get(next)) {
            self.receive(collector, value, origin)?;
            next += 1;
        }
        if self.is_ready(cell) {
            return Ok(());
        }
        // Through literals, branches and comprehension members, the same reader receives a future
        // value once, even if it names the relation several times.
        let end = self.pipe_end(collector);
        let listeners = self.delayed(cell).map(|d| d.listeners.as_slice()).unwrap_or_default();
        let heard = end != collector && listeners.iter().any(|&other| self.pipe_end(other) == end);
        let delayed = self.delayed_mut(cell);
        delayed.gradual += 1;
        if !heard {
            delayed.listeners.push(collector);
        }
        Ok(())
    }

    fn emit_literal(
        &mut self,
        items: &[ExprId],
        frame: u32,
        dest: Dest,
        purpose: Purpose,
    ) -> Result<()> {
        let literal = self.literals.len() as u32;
        self.literals.push(Literal {
            values: Vec::new(),
            pending: items.len() as u32,
            dest: dest.unit,
            dest_slot: dest.slot,
            collector: purpose.collector,
        });
        if purpose.collector != NONE {
            self.unit_mut(purpose.collector).flags |= REPORTED;
        }
        for &item in items {
            let unit = self.new_unit(Kind::Item, frame, item.0, self.root_temps(item));
            let origin = match purpose.collector {
                NONE => encode(Origin::Expr(item)),
                collector => self.units[collector as usize].origin,
            };
            let this = self.unit_mut(unit);
            this.a = literal;
            this.owner = purpose.owner;
            this.origin = origin;
            let purpose = Purpose { collector: unit, owner: purpose.owner };
            self.emit_gradual(item, frame, unit, 0, purpose)?;
            self.finish_unit(unit);
        }
        Ok(())
    }

    /// `x is defined`: answered at once if the variable has a value, otherwise it waits.
    fn emit_defined(&mut self, id: ExprId, var: Var, frame: u32, dest: Dest) -> Result<()> {
        match self.locate_variable(var, frame) {
            Some(VariableLocation::Cell(cell)) if self.is_ready(cell) => {
                let answer = self.defined_answer(cell);
                self.deliver(dest, answer);
                Ok(())
            }
            Some(VariableLocation::Cell(cell)) => self.watch_cell(id, frame, dest, cell),
            _ => {
                self.deliver(dest, Value::Bool(true));
                Ok(())
            }
        }
    }

    /// Starts the unit of an expression that needs its own step.
    pub(super) fn emit_temp(
        &mut self,
        id: ExprId,
        frame: u32,
        dest: Dest,
        purpose: Purpose,
    ) -> Result<()> {
        let program = self.program;
        let (kind, inner): (Kind, Option<ExprId>) = match &program.expr(id).kind {
            ExprKind::Attr { base, name, cache } => {
                if purpose.collector == NONE {
                    if let Some(cell) = self.resolved_attribute(*base, *name, cache, frame) {
                        self.sequence += 1;
                        self.run.push_back(ReadyStep::Read { dest, cell });
                        return Ok(());
                    }
                    if let ExprKind::Attr { base, name, cache } = &program.expr(*base).kind
                        && let Some(cell) = self.resolved_attribute(*base, *name, cache, frame)
                    {
                        // The hop to `a.b` counts as its own step, as does the one after it.
                        self.sequence += 2;
                        let sequence = self.sequence;
                        let chain = self.new_chain(Chain { dest, expr: id, frame, sequence });
                        self.run.push_back(ReadyStep::Chain { chain, cell });
                        return Ok(());
                    }
                }
                (Kind::Hop, Some(*base))
            }
            ExprKind::Lazy { left, .. } => (Kind::LazyLeft, Some(*left)),
            ExprKind::Conditional { condition, .. } => (Kind::Condition, Some(*condition)),
            ExprKind::Comprehension(comprehension) => (Kind::Iterate, Some(comprehension.iterable)),
            ExprKind::Defined { base, var, name } => {
                if base.is_none() && self.locate_variable(*var, frame).is_none() {
                    let text = format!("variable {} not found", self.text(*name));
                    return self.fail("NotFoundException", text);
                }
                if base.is_none() {
                    return self.emit_defined(id, *var, frame, dest);
                }
                (Kind::Defined, *base)
            }
            ExprKind::Call(_) => (Kind::Call, None),
            ExprKind::IndexLookup(_) => (Kind::IndexLookup, None),
            ExprKind::ShortIndexLookup(_) => (Kind::ShortIndexLookup, None),
            _ => return Ok(()),
        };
        let parts = program.expr(id).kind.parts();
        let temps = match inner {
            Some(inner) => self.root_temps(inner),
            None => parts.iter().map(|&part| program.expr(part).temps).sum(),
        };
        let unit = self.new_unit(kind, frame, id.0, temps);
        let this = self.unit_mut(unit);
        this.dest = dest.unit;
        this.dest_slot = dest.slot;
        this.collector = purpose.collector;
        this.owner = purpose.owner;
        this.origin = encode(Origin::Expr(id));
        if kind == Kind::Iterate && purpose.collector != NONE {
            self.unit_mut(purpose.collector).flags |= REPORTED;
        }
        if let Some(inner) = inner {
            if kind == Kind::Iterate && purpose.collector != NONE {
                self.begin_comprehension(unit);
                let purpose = Purpose { collector: unit, owner: NO_OWNER };
                self.emit_gradual(inner, frame, unit, 0, purpose)?;
            } else {
                self.emit_expr(inner, frame, unit, 0)?;
                self.wait_expr(inner, frame, unit);
            }
        } else {
            let mut slot = 0;
            for &part in parts {
                self.emit_expr(part, frame, unit, slot).map_err(|e| self.blame_expr(e, id))?;
                slot += program.expr(part).temps;
            }
            for &part in parts {
                self.wait_expr(part, frame, unit);
            }
        }
        self.finish_unit(unit);
        Ok(())
    }
}
