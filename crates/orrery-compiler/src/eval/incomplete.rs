//! Explanations of instances that are incomplete at the end: one error per instance, and none for
//! instances that only wait for another one.

use orrery_syntax::Explanation;
use orrery_syntax::ast::Loc;
use rustc_hash::FxHashSet;

use crate::error::CompileError;
use crate::program::EntityId;
use crate::value::InstanceId;

use super::{CellKind, Evaluator, Kind};

/// Missing part of an instance at the end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissingPart {
    /// No implementation was selected.
    Implementation,
    /// The attribute or relation in this slot has too few values.
    Slot(u32),
}

/// One entry per error of a list, in its order.
pub(super) type MissingParts = Vec<Option<(InstanceId, MissingPart)>>;

impl Evaluator<'_> {
    /// Explains errors about instances and marks those that follow from others.
    pub(super) fn explain_missing_parts(&self, errors: &mut [CompileError], lacks: &MissingParts) {
        let waiting = self.assigned_later();
        let is_waiting = |lack: &Option<(InstanceId, MissingPart)>| match lack {
            Some((instance, MissingPart::Slot(slot))) => waiting.contains(&(*instance, *slot)),
            _ => false,
        };
        // If all of them wait, the first ones are as good as any.
        let all_wait = lacks.iter().all(is_waiting);
        let mut told: FxHashSet<InstanceId> = FxHashSet::default();
        let mut unimplemented: FxHashSet<EntityId> = FxHashSet::default();
        for (error, lack) in errors.iter_mut().zip(lacks) {
            let Some((instance, what)) = *lack else { continue };
            if is_waiting(lack) && !all_wait {
                error.consequence = true;
                continue;
            }
            let first = match what {
                MissingPart::Implementation => {
                    unimplemented.insert(self.instances[instance.index()].entity)
                }
                MissingPart::Slot(_) => told.insert(instance),
            };
            if !first {
                error.consequence = true;
                continue;
            }
            error.explanation = Some(Box::new(match what {
                MissingPart::Implementation => self.no_implementation(instance),
                MissingPart::Slot(_) => {
                    let slots: Vec<u32> = lacks
                        .iter()
                        .filter(|lack| all_wait || !is_waiting(lack))
                        .filter_map(|lack| match lack {
                            Some((of, MissingPart::Slot(slot))) if *of == instance => Some(*slot),
                            _ => None,
                        })
                        .collect();
                    self.not_complete(instance, &slots)
                }
            }));
        }
    }

    /// Attributes that a waiting statement would set.
    fn assigned_later(&self) -> FxHashSet<(InstanceId, u32)> {
        let pending = self.units.iter().filter(|unit| unit.waiting > 0);
        let pending = pending.filter(|unit| unit.kind == Kind::SetAttr);
        pending.map(|unit| (InstanceId(unit.a), unit.b)).collect()
    }

    fn not_complete(&self, instance: InstanceId, slots: &[u32]) -> Explanation {
        let entity = self.instances[instance.index()].entity;
        let name = self.entity_text(entity);
        let names: Vec<String> = slots
            .iter()
            .map(|&slot| format!("`{}`", self.text(self.program.slot(entity, slot).name)))
            .collect();
        let constructor = self.instances[instance.index()].constructor;
        let class = self.constructor_name(self.program.expr(constructor).loc);
        let mut headline = format!("`{name}` is not complete: {} not set", join_with_verb(&names));
        if let [slot] = slots {
            let attribute = self.program.slot(entity, *slot);
            let cell = self.slot_cell(instance, *slot);
            if let Some(end) = attribute.relation
                && self.cells[cell as usize].kind == CellKind::List
            {
                let count = self.delayed(cell).map_or(0, |delayed| delayed.values.len());
                headline = format!(
                    "`{name}` is not complete: {} needs at least {} {}, but has {count}",
                    names[0],
                    end.low,
                    if end.low == 1 { "instance" } else { "instances" },
                );
            }
        }
        let label = format!("{} missing here", if names.len() == 1 { "it is" } else { "they are" });
        let mut explanation = Explanation::new(headline).at(class, label);
        let kind = |slot: u32| {
            let attribute = self.program.slot(entity, slot);
            match attribute.relation {
                Some(end) => self.entity_text(end.target).to_owned(),
                None => self.type_text(attribute.ty),
            }
        };
        if let [slot] = slots {
            let attribute = self.program.slot(entity, *slot);
            let label = match attribute.relation {
                Some(_) => format!("needs an instance of `{}`", kind(*slot)),
                None => "declared here, without a default".to_owned(),
            };
            explanation.related.push((attribute.loc, label));
        } else {
            let kinds =
                names.iter().zip(slots).map(|(name, slot)| format!("{name}: {}", kind(*slot)));
            let kinds: Vec<String> = kinds.collect();
            explanation.notes.push(format!("none of them has a default: {}", kinds.join(", ")));
        }
        let examples: Vec<String> = slots
            .iter()
            .map(|&slot| format!("{}=…", self.text(self.program.slot(entity, slot).name)))
            .collect();
        explanation.help(format!("add `{}` to the constructor", examples.join(", ")))
    }

    /// The class name in a constructor; only this part is underlined.
    pub(super) fn constructor_name(&self, loc: Loc) -> Loc {
        let text = &self.program.sources.file(loc.file).text;
        let written = text.get(loc.start as usize..loc.end as usize).unwrap_or_default();
        match written.find('(') {
            Some(length) if length > 0 => Loc { end: loc.start + length as u32, ..loc },
            _ => loc,
        }
    }

    fn no_implementation(&self, instance: InstanceId) -> Explanation {
        let entity = self.instances[instance.index()].entity;
        let definition = self.program.entity(entity);
        let name = self.entity_text(entity);
        let constructor = self.program.expr(self.last_constructor(instance)).loc;
        let class = self.constructor_name(constructor);
        if definition.implements.is_empty() {
            let short = self.text(definition.short);
            return Explanation::new(format!("`{name}` has no implementation"))
                .at(class, "an instance is made here")
                .related(definition.loc, format!("no `implement {short} using …` for this entity"))
                .help(format!(
                    "if there is nothing to do for it, add this line below the entity:\n\
                     implement {short} using std::none"
                ));
        }
        let mut explanation =
            Explanation::new(format!("no implementation of `{name}` applies to this instance"))
                .at(class, "an instance is made here");
        for &number in definition.implements.iter().take(3) {
            let implement = &self.program.implements[number as usize];
            let label = match implement.when {
                Some(_) => "this condition does not hold",
                None => "this does not apply",
            };
            explanation.related.push((implement.loc, label.to_owned()));
        }
        let short = self.text(definition.short);
        explanation.help(format!(
            "add one for all other cases, such as `implement {short} using std::none`"
        ))
    }
}

/// `a is`, `a and b are`, `a, b and c are`
fn join_with_verb(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => format!("{one} is"),
        [most @ .., last] => format!("{} and {last} are", most.join(", ")),
    }
}
