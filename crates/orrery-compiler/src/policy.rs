//! The project's precedence rules: which relation is frozen before which other.

use rustc_hash::FxHashMap;

use crate::define::Builder;
use crate::error::{CompileError, Result};
use crate::program::{AttributeId, Definition};

impl Builder {
    /// Reads `relation_precedence_policy`: rules of the form `m::A.x before m::B.y`.
    pub(crate) fn apply_precedence_policy(&mut self) -> Result<()> {
        if self.policy.is_empty() {
            return Ok(());
        }
        let text = "[EXPERIMENTAL FEATURE] Using the relation precedence policy defined in the project.yml file to determine list freeze order.";
        self.warnings.push(("", text.into(), None));
        let mut rules: Vec<(AttributeId, AttributeId)> = Vec::new();
        for rule in std::mem::take(&mut self.policy) {
            let words: Vec<&str> = rule.split_whitespace().collect();
            let [first, "before", then] = words.as_slice() else {
                let text = format!(
                    "Invalid relation precedence rule `{rule}`: expected `<entity>.<relation> before <entity>.<relation>`"
                );
                return Err(CompileError::new("InvalidMetadata", text));
            };
            rules.push((self.policy_relation(first)?, self.policy_relation(then)?));
        }
        let order = topological(&rules).ok_or_else(|| {
            let text = "A cycle exists in the relation precedence policy";
            CompileError::new("CycleInRelationPrecedencePolicyError", text)
        })?;
        for (rank, relation) in order.into_iter().enumerate() {
            let held_back = rules.iter().any(|(first, _)| *first == relation);
            if let Some(end) = &mut self.program.attributes[relation.index()].relation {
                end.precedence = Some(rank as u32);
                end.held_back = held_back;
            }
        }
        Ok(())
    }

    fn policy_relation(&self, text: &str) -> Result<AttributeId> {
        let fail =
            |text: String| Err(CompileError::new("InvalidRelationPrecedenceRuleError", text));
        let Some((entity, relation)) = text.rsplit_once('.') else {
            return fail(format!("Invalid relation in precedence policy: `{text}`"));
        };
        let id = match self.program.find_definition(entity) {
            Some(Definition::Entity(id)) => id,
            Some(_) => {
                return fail(format!(
                    "A relation precedence rule was defined for non-entity type {entity}"
                ));
            }
            None => {
                return fail(format!(
                    "A relation precedence rule was defined for {entity}, but no such type was defined"
                ));
            }
        };
        let mut own = self.program.entity(id).own.iter().copied();
        let found = own.rfind(|&own| self.text(self.program.attribute(own).name) == relation);
        match found {
            Some(found) if self.program.attribute(found).relation.is_some() => Ok(found),
            Some(_) => fail(format!(
                "A relation precedence rule was defined for {entity}.{relation}, but attribute {relation} is not a relationship attribute."
            )),
            None => fail(format!(
                "A relation precedence rule was defined for {entity}.{relation}, but entity {entity} doesn't have an attribute {relation}."
            )),
        }
    }
}

/// The relations in an order that satisfies every rule; `None` if there is none.
fn topological(rules: &[(AttributeId, AttributeId)]) -> Option<Vec<AttributeId>> {
    let mut nodes: Vec<AttributeId> = Vec::new();
    let mut before: FxHashMap<AttributeId, usize> = FxHashMap::default();
    for &(first, then) in rules {
        for node in [first, then] {
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        *before.entry(then).or_default() += 1;
    }
    let mut order = Vec::new();
    while order.len() < nodes.len() {
        let free = |node: &&AttributeId| {
            !order.contains(*node) && before.get(*node).copied().unwrap_or(0) == 0
        };
        let next = *nodes.iter().find(free)?;
        order.push(next);
        for (_, then) in rules.iter().filter(|(first, _)| *first == next) {
            if let Some(count) = before.get_mut(then) {
                *count -= 1;
            }
        }
    }
    Some(order)
}
