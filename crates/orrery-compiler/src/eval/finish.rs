//! End of a run: freezes open cells where possible, reports everything else as errors.

use crate::error::{CompileError, Result};
use crate::ir::{ExprId, StmtId, StmtKind};
use crate::value::{InstanceId, Value};

use super::incomplete::{MissingPart, MissingParts};
use super::{CellKind, Evaluator, Kind, Unit};

impl Evaluator<'_> {
    pub(super) fn finish(&mut self) -> Result<()> {
        let mut errors: Vec<CompileError> = Vec::new();
        self.unmatched_lookups(&mut errors);
        for &number in &self.unknown_annotations {
            let relation = self.program.annotations[number as usize].relation;
            let relation = self.program.attribute(relation);
            let entity = self.text(self.program.entity(relation.entity).name);
            let shown = format!("{entity}.{}", self.text(relation.name));
            let text = "Relation annotation can not be Unknown";
            let error = CompileError::new("TypingException", text);
            errors.push(*error.in_statement(shown, relation.loc));
        }
        let mut lacks: MissingParts = vec![None; errors.len()];
        for number in 0..self.instances.len() {
            self.check_instance(InstanceId(number as u32), &mut errors, &mut lacks);
        }
        if !errors.is_empty() {
            self.explain_missing_parts(&mut errors, &lacks);
            return self.combine_errors(errors).map_or(Ok(()), Err);
        }
        self.check_pending()?;
        self.check_rules()
    }

    fn unmatched_lookups(&self, errors: &mut Vec<CompileError>) {
        let mut pending: Vec<_> = self.indexes.pending.values().flatten().collect();
        pending.sort_by_key(|lookup| (lookup.entity, self.units[lookup.dest as usize].sequence));
        for lookup in pending {
            let text = format!(
                "No match in index on type {} with key {}",
                self.text(self.program.entity(lookup.entity).name),
                self.key_text(
                    lookup.entity,
                    &self.program.entity(lookup.entity).index_slots[lookup.index as usize],
                    &lookup.values
                )
            );
            errors
                .push(*self.blame_expr(CompileError::new("NotFoundException", text), lookup.expr));
        }
    }

    fn check_instance(
        &mut self,
        instance: InstanceId,
        errors: &mut Vec<CompileError>,
        lacks: &mut MissingParts,
    ) {
        let program = self.program;
        let (entity, first, implemented, constructor) = {
            let instance = &self.instances[instance.index()];
            (instance.entity, instance.cells, instance.implemented, instance.constructor)
        };
        if implemented == 0 {
            let text = format!(
                "Unable to select implementation for entity {}",
                self.text(program.entity(entity).short)
            );
            let last = self.extra_constructors.get(&instance).and_then(|all| all.last().copied());
            let loc = program.expr(last.unwrap_or(constructor)).loc;
            let error = CompileError::new("RuntimeException", text)
                .in_statement(self.str(Value::Instance(instance)), line(loc));
            errors.push(*error);
            lacks.push(Some((instance, MissingPart::Implementation)));
        }
        for (slot, &attribute) in program.entity(entity).slots.iter().enumerate() {
            let cell = first + slot as u32;
            if self.is_ready(cell) {
                continue;
            }
            let attribute = program.attribute(attribute);
            let count = self.delayed_count(cell);
            if let Some(end) = attribute.relation
                && self.cells[cell as usize].kind != CellKind::Plain
                && count >= end.low
                && self.delayed(cell).is_none_or(|d| d.promises == 0)
            {
                self.freeze(cell);
                continue;
            }
            let place = program.sources.location(attribute.loc);
            let name = self.text(attribute.name);
            let object = self.str(Value::Instance(instance));
            let text = match attribute.relation {
                Some(end) if self.cells[cell as usize].kind == CellKind::List => format!(
                    "The object {object} is not complete: attribute {name} ({place}) requires {} values but only {count} are set",
                    end.low
                ),
                _ => format!(
                    "The object {object} is not complete: attribute {name} ({place}) is not set"
                ),
            };
            let mut error = CompileError::new("UnsetException", text);
            error.loc = Some(line(program.expr(constructor).loc));
            error.hide_location = true;
            errors.push(*error.related(attribute.loc, "declared here"));
            lacks.push(Some((instance, MissingPart::Slot(slot as u32))));
        }
    }

    fn delayed_count(&self, cell: u32) -> u32 {
        if self.cells[cell as usize].kind == CellKind::Plain {
            return 0;
        }
        self.delayed(cell).map_or(0, |d| d.values.len() as u32)
    }

    /// Combines errors: one is returned as is, several are listed by importance and location.
    fn combine_errors(&self, mut errors: Vec<CompileError>) -> Option<Box<CompileError>> {
        let mut files: Vec<orrery_syntax::ast::FileId> = Vec::new();
        for error in &errors {
            if let Some(loc) = error.loc
                && !files.contains(&loc.file)
            {
                files.push(loc.file);
            }
        }
        errors.sort_by_key(|error| {
            let place = error.loc.filter(|_| !error.hide_location).map(|loc| {
                let file = files.iter().position(|&file| file == loc.file);
                (file, self.program.sources.line_col(loc).0)
            });
            (error.importance, place)
        });
        CompileError::combine(errors)
    }

    /// Reports units with dependencies that never arrived.
    fn check_pending(&self) -> Result<()> {
        let mut pending: Vec<&Unit> =
            self.units.iter().filter(|unit| unit.kind != Kind::Free && unit.waiting > 0).collect();
        if pending.is_empty() {
            return Ok(());
        }
        pending.sort_by_key(|unit| unit.sequence);
        let shown: Vec<String> = pending.iter().map(|unit| self.unit_text(unit)).collect();
        let text = format!("not all statements executed: [{}]", shown.join(", "));
        let mut error = CompileError::new("RuntimeException", text);
        let named = pending.iter().find(|unit| unit.kind != Kind::Promise).unwrap_or(&pending[0]);
        let expr = self.unit_expr(named);
        error = match expr {
            Some(expr) => self.blame_expr(error, expr),
            None => self.blame(error, named.origin),
        };
        Err(error.help(self.wait_chain(&pending)))
    }

    /// The expression that a unit evaluates.
    fn unit_expr(&self, unit: &Unit) -> Option<ExprId> {
        match unit.kind {
            Kind::Assign => match &self.program.stmt(StmtId(unit.node)).kind {
                StmtKind::Assign { value, .. } => Some(*value),
                _ => None,
            },
            Kind::Discard => match &self.program.stmt(StmtId(unit.node)).kind {
                StmtKind::Expr(expr) => Some(*expr),
                _ => None,
            },
            Kind::ResolveTarget | Kind::If | Kind::For | Kind::Implement => None,
            Kind::Annotation => Some(self.program.annotations[unit.node as usize].value),
            _ => Some(ExprId(unit.node)),
        }
    }

    fn unit_text(&self, unit: &Unit) -> String {
        match self.unit_expr(unit) {
            Some(expr) => self.renderer().expr(expr),
            None if unit.kind == Kind::Implement => "implement".into(),
            None => self.renderer().stmt(StmtId(unit.node)),
        }
    }

    /// A short chain of waiting units and their dependencies.
    fn wait_chain(&self, pending: &[&Unit]) -> String {
        let shown: Vec<String> = pending
            .iter()
            .filter(|unit| matches!(unit.kind, Kind::Assign | Kind::SetAttr | Kind::Call))
            .take(5)
            .map(|unit| self.unit_text(unit))
            .collect();
        format!(
            "each of these waits for a value that only the others could give: {}",
            shown.join(" → ")
        )
    }
}

fn line(loc: orrery_syntax::ast::Loc) -> orrery_syntax::ast::Loc {
    orrery_syntax::ast::Loc { column: false, ..loc }
}
