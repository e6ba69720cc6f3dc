//! Values of built-in resources that their handlers would refuse, detected while the location is
//! known.

use orrery_model::FieldRule;
use orrery_syntax::Explanation;

use crate::error::{CompileError, Result};
use crate::program::EntityId;
use crate::value::{InstanceId, Value};

use super::Evaluator;

impl Evaluator<'_> {
    /// Checks all fields with a rule, in all instances.
    pub(super) fn check_rules(&self) -> Result<()> {
        let rules: Vec<Vec<(u32, FieldRule)>> =
            (0..self.program.entities.len()).map(|at| self.rules_of(EntityId(at as u32))).collect();
        for (number, instance) in self.instances.iter().enumerate() {
            for &(slot, rule) in &rules[instance.entity.index()] {
                self.check_rule(InstanceId(number as u32), slot, rule)?;
            }
        }
        Ok(())
    }

    /// Slots of an entity that have a rule, own or inherited.
    fn rules_of(&self, entity: EntityId) -> Vec<(u32, FieldRule)> {
        let definition = self.program.entity(entity);
        let family = definition.ancestors.iter().chain([&entity]);
        let mut found = Vec::new();
        for &of in family {
            let name = self.text(self.program.entity(of).name);
            for (field, rule) in self.system.field_rules(name) {
                let symbol = self.program.interner.get(field);
                if let Some(&slot) = symbol.and_then(|symbol| definition.slot_of.get(&symbol)) {
                    found.push((slot, rule));
                }
            }
        }
        found
    }

    fn check_rule(&self, instance: InstanceId, slot: u32, rule: FieldRule) -> Result<()> {
        let cell = self.slot_cell(instance, slot);
        let Some(value @ Value::Int(number)) = self.cell_value(cell) else { return Ok(()) };
        if rule.accepts(number) {
            return Ok(());
        }
        let name = self.text(self.slot_attribute(instance, slot).name);
        let entity = self.entity_text(self.instances[instance.index()].entity);
        let quoted = self.quoted(value);
        let text = format!("Invalid value {quoted} for `{name}`: {}", rule.description());
        let origin = self.cells[cell as usize].origin;
        let place = self.argument_location(origin, slot).unwrap_or_else(|| self.origin_loc(origin));
        let explanation = Explanation::new(format!("invalid value for `{name}`: {quoted}"))
            .at(place, format!("`{name}` of `{entity}`"))
            .help(rule.description());
        let error = CompileError::new("RuntimeException", text).explained(explanation);
        Err(self.blame(error, origin))
    }
}
