//! The main loop: runs ready units; if there are none, freezes one delayed cell and continues. The
//! choice and time of the frozen cell decide the outcome of some models, so the order is exact.

use std::collections::VecDeque;

use crate::error::Result;
use crate::ir::{ExprId, ExprKind, StmtId, StmtKind};

use super::build_units::VariableLocation;
use super::{
    CellKind, Evaluator, FILE_FRAME, IN_ZERO, Kind, NONE, Origin, QUEUED, READY, ReadyStep, Temp,
    Unit, encode,
};

/// Number of units prefetched.
const BATCH: usize = 16;

/// Cells that may be complete: first those without a precedence rule, in FIFO order, then the
/// others by the order of the rules.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    plain: VecDeque<u32>,
    ranked: Vec<VecDeque<u32>>,
}

impl WaitQueue {
    pub(super) fn push(&mut self, cell: u32, rank: Option<u32>) {
        match rank {
            None => self.plain.push_back(cell),
            Some(rank) => {
                let rank = rank as usize;
                if self.ranked.len() <= rank {
                    self.ranked.resize_with(rank + 1, VecDeque::new);
                }
                self.ranked[rank].push_back(cell);
            }
        }
    }

    fn pop(&mut self) -> Option<u32> {
        self.plain.pop_front().or_else(|| self.ranked.iter_mut().find_map(VecDeque::pop_front))
    }

    fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.ranked.iter().all(VecDeque::is_empty)
    }
}

impl Evaluator<'_> {
    /// Evaluates the whole program.
    pub fn run(&mut self) -> Result<()> {
        self.emit_annotations()?;
        for &(_, block) in &self.program.toplevel {
            self.emit_block(block, FILE_FRAME, None)?;
        }
        loop {
            if self.run.is_empty() && self.wait.is_empty() && self.zero.is_empty() {
                break;
            }
            self.iterations += 1;
            while !self.run.is_empty() {
                if self.run.len() >= BATCH {
                    self.fetch_ahead();
                }
                for _ in 0..BATCH {
                    match self.run.pop_front() {
                        Some(ReadyStep::Read { dest, cell }) => self.connect(dest, cell),
                        Some(ReadyStep::Chain { chain, cell }) => self.run_chain(chain, cell),
                        Some(ReadyStep::Unit(unit)) => {
                            let Unit { origin, frame, .. } = self.units[unit as usize];
                            self.run_unit(unit)?;
                            if self.limits_exceeded() {
                                return Err(self.memory_limit_error(origin, frame));
                            }
                        }
                        None => break,
                    }
                }
            }
            if !self.freeze_waiting() && !self.freeze_woken() && !self.break_cycle() {
                while let Some(cell) = self.zero.pop() {
                    if cell == NONE {
                        continue;
                    }
                    self.cells[cell as usize].flags &= !IN_ZERO;
                    self.freeze(cell);
                }
                self.zero_woken.clear();
            }
        }
        self.finish()
    }

    /// Prefetches the data of the next units. In a large model nearly all of it has left the caches
    /// since it was written; these loads do not depend on each other, so the processor waits for
    /// them side by side instead of one by one.
    fn fetch_ahead(&self) {
        let mut temps = [0u32; BATCH];
        let mut cells = [0u32; BATCH];
        for (at, ready) in self.run.iter().take(BATCH).enumerate() {
            let unit = match *ready {
                ReadyStep::Unit(unit) => unit,
                ReadyStep::Read { dest, cell } => {
                    cells[at] = cell;
                    dest.unit
                }
                ReadyStep::Chain { cell, .. } => {
                    cells[at] = cell;
                    continue;
                }
            };
            temps[at] = self.units[unit as usize].temps;
        }
        for (cell, &temp) in cells.iter_mut().zip(&temps) {
            if let Some(Temp::Cell(found)) = self.temps.get(temp as usize) {
                *cell = *found;
            }
        }
        let seen = cells.iter().fold(0, |seen, &cell| seen ^ self.cells[cell as usize].flags);
        std::hint::black_box(seen);
    }

    /// Emits the annotations of relations. They are evaluated like any expression; their values are
    /// only checked.
    fn emit_annotations(&mut self) -> Result<()> {
        let program = self.program;
        for (number, annotation) in program.annotations.iter().enumerate() {
            let temps = program.expr(annotation.value).temps;
            let unit = self.new_unit(Kind::Annotation, FILE_FRAME, number as u32, temps);
            self.unit_mut(unit).origin = encode(Origin::Expr(annotation.value));
            self.emit_expr(annotation.value, FILE_FRAME, unit, 0).map_err(|e| {
                e.or_in_statement(|| annotation.statement.to_string(), annotation.loc)
            })?;
            self.wait_expr(annotation.value, FILE_FRAME, unit);
            self.finish_unit(unit);
        }
        Ok(())
    }

    /// Number of units blocked by the cell.
    fn blocked(&self, cell: u32) -> i64 {
        let held_back = self.has_policy && self.relation_of(cell).is_some_and(|end| end.held_back);
        let waiting =
            self.delayed(cell).map_or(0, |d| d.waiters.len() as i64 - i64::from(d.gradual));
        waiting + i64::from(held_back)
    }

    fn promises(&self, cell: u32) -> u32 {
        self.delayed(cell).map_or(0, |d| d.promises)
    }

    pub(super) fn rank(&self, cell: u32) -> Option<u32> {
        if !self.has_policy {
            return None;
        }
        self.relation_of(cell).and_then(|end| end.precedence)
    }

    fn is_frozen(&self, cell: u32) -> bool {
        self.cells[cell as usize].flags & READY != 0
    }

    /// Freezes the first cell that has waiters and no promises.
    fn freeze_waiting(&mut self) -> bool {
        while let Some(cell) = self.wait.pop() {
            if self.is_frozen(cell) {
                continue;
            }
            if self.blocked(cell) <= 0 {
                self.add_to_zero(cell);
            } else if self.promises(cell) > 0 {
                self.cells[cell as usize].flags &= !QUEUED;
            } else {
                self.freeze(cell);
                return true;
            }
        }
        false
    }

    fn add_to_zero(&mut self, cell: u32) {
        let position = self.zero.len() as u32;
        self.zero.push(cell);
        self.cells[cell as usize].flags |= IN_ZERO;
        // Delayed cells store their waiters elsewhere, so this field is free for the position.
        self.cells[cell as usize].tail = position;
    }

    /// The same for cells that had no waiters when they were first examined.
    fn freeze_woken(&mut self) -> bool {
        let mut woken = std::mem::take(&mut self.zero_woken);
        woken.retain(|&cell| self.cells[cell as usize].flags & IN_ZERO != 0);
        woken.sort_unstable_by_key(|&cell| self.cells[cell as usize].tail);
        woken.dedup();
        for cell in woken {
            if self.is_frozen(cell) {
                continue;
            }
            if self.blocked(cell) > 0 {
                let at = self.cells[cell as usize].tail as usize;
                self.zero[at] = NONE;
                self.cells[cell as usize].flags &= !IN_ZERO;
                let rank = self.rank(cell);
                self.wait.push(cell, rank);
            } else {
                self.zero_woken.push(cell);
            }
        }
        while self.zero.last() == Some(&NONE) {
            self.zero.pop();
        }
        while let Some(cell) = self.wait.pop() {
            if self.promises(cell) > 0 {
                self.cells[cell as usize].flags &= !QUEUED;
            } else {
                self.freeze(cell);
                return true;
            }
        }
        false
    }

    /// Breaks a deadlock: of the cells that pending units need although more values are promised,
    /// freezes the first one of the oldest unit.
    fn break_cycle(&mut self) -> bool {
        let mut best: Option<(Option<u32>, u32, u32)> = None;
        let mut candidates: Vec<u32> = Vec::new();
        for cell in 0..self.cells.len() as u32 {
            let content = &self.cells[cell as usize];
            if content.kind == CellKind::Plain || content.flags & READY != 0 || content.head == NONE
            {
                continue;
            }
            if self.promises(cell) == 0 || self.blocked(cell) <= 0 {
                continue;
            }
            let waiters = self.delayed(cell).map(|d| d.waiters.as_slice()).unwrap_or_default();
            let oldest = waiters.iter().map(|&id| (self.units[id as usize].sequence, id)).min();
            let Some((sequence, id)) = oldest else { continue };
            let candidate = (self.rank(cell), sequence, id);
            if best.is_none_or(|best| candidate < best) {
                candidates.clear();
                best = Some(candidate);
            }
            if best == Some(candidate) {
                candidates.push(cell);
            }
        }
        let Some((_, _, oldest)) = best else { return false };
        let needs = self.needs(&self.units[oldest as usize]);
        let position = |cell: &u32| needs.iter().position(|need| need == cell);
        let first = candidates.into_iter().min_by_key(|cell| position(cell).unwrap_or(usize::MAX));
        first.inspect(|&cell| self.freeze(cell)).is_some()
    }

    /// The cells that a unit reads, in the order of its expression.
    fn needs(&self, unit: &Unit) -> Vec<u32> {
        let program = self.program;
        let node = ExprId(unit.node);
        let stmt = || &program.stmt(StmtId(unit.node)).kind;
        let root = match unit.kind {
            Kind::Assign | Kind::Discard | Kind::ResolveTarget | Kind::If | Kind::For => {
                match stmt() {
                    StmtKind::Assign { value, .. } => *value,
                    StmtKind::Expr(expr) => *expr,
                    StmtKind::SetAttr { base, .. } => *base,
                    StmtKind::If { condition, .. } => *condition,
                    StmtKind::For { iterable, .. } => *iterable,
                }
            }
            Kind::Call | Kind::IndexLookup | Kind::ShortIndexLookup => {
                let mut needs = Vec::new();
                let mut slot = 0;
                for &part in program.expr(node).kind.parts() {
                    self.reads(part, unit, slot, &mut needs);
                    slot += program.expr(part).temps;
                }
                return needs;
            }
            Kind::LazyLeft | Kind::LazyRight => match &program.expr(node).kind {
                ExprKind::Lazy { left, right, .. } if unit.kind == Kind::LazyLeft => *left,
                ExprKind::Lazy { right, .. } => *right,
                _ => node,
            },
            Kind::Condition => match &program.expr(node).kind {
                ExprKind::Conditional { condition, .. } => *condition,
                _ => node,
            },
            Kind::Implement => match program.implements[unit.node as usize].when {
                Some(when) => when,
                None => return Vec::new(),
            },
            Kind::Annotation => program.annotations[unit.node as usize].value,
            Kind::SetAttr | Kind::Branch | Kind::Element | Kind::Item | Kind::Promise => node,
            // The others wait for one cell at most.
            _ => return Vec::new(),
        };
        let mut needs = Vec::new();
        self.reads(root, unit, 0, &mut needs);
        needs
    }

    fn reads(&self, id: ExprId, unit: &Unit, mut slot: u32, needs: &mut Vec<u32>) {
        let program = self.program;
        let parts: Vec<ExprId> = match &program.expr(id).kind {
            ExprKind::Var { var, .. } => {
                if let Some(VariableLocation::Cell(cell)) = self.locate_variable(*var, unit.frame) {
                    needs.push(cell);
                }
                return;
            }
            ExprKind::Not(inner) => vec![*inner],
            ExprKind::Lookup { base, key } => vec![*base, *key],
            ExprKind::Binary { left, right, .. } => vec![*left, *right],
            ExprKind::List(items) => items.to_vec(),
            ExprKind::Dict(items) => items.iter().map(|(_, item)| *item).collect(),
            ExprKind::Format(format) | ExprKind::FString(format) => {
                format.parts.iter().map(|(_, part)| *part).collect()
            }
            kind @ ExprKind::Construct(_) => kind.parts().to_vec(),
            kind if kind.is_temp() => {
                let temp = self.temps.get((unit.temps + slot) as usize);
                needs.extend(temp.and_then(|temp| match temp {
                    Temp::Cell(cell) => Some(*cell),
                    _ => None,
                }));
                return;
            }
            _ => return,
        };
        for part in parts {
            self.reads(part, unit, slot, needs);
            slot += program.expr(part).temps;
        }
    }
}
