//! Pairs the entities that are only data with the classes that stand for them in a host. A pair has to
//! agree in everything, since values go back and forth between the two.

use std::collections::BTreeMap;

use crate::define::Builder;
use crate::error::{CompileError, Result};
use crate::host::Dataclass;
use crate::program::{Definition, EntityId, Type, TypeId};

/// What descends from this entity is only data.
const ROOT: &str = "std::Dataclass";
/// What a pair has besides its fields.
const INHERITED: [&str; 2] = ["provides", "requires"];

impl Builder {
    /// Checks the entities of the modules whose code was loaded.
    pub(crate) fn dataclasses(&mut self, classes: &[Dataclass], modules: &[String]) -> Result<()> {
        let Some(Definition::Entity(root)) = self.program.find_definition(ROOT) else {
            return Ok(());
        };
        let classes: BTreeMap<&str, &Dataclass> =
            classes.iter().map(|class| (class.entity.as_str(), class)).collect();
        for number in 0..self.program.entities.len() {
            let id = EntityId(number as u32);
            let entity = self.program.entity(id);
            let name = self.program.text(entity.name).to_owned();
            let module = name.split("::").next().unwrap_or(&name);
            let concerned = id != root
                && self.program.is_subtype(id, root)
                && modules.iter().any(|loaded| loaded == module);
            if !concerned {
                continue;
            }
            let problems = match classes.get(name.as_str()) {
                None => vec![format!("there is no class {} for it", python_name(&name))],
                Some(class) => match &class.problem {
                    Some(problem) => vec![problem.clone()],
                    None => self.mismatches(id, class),
                },
            };
            if !problems.is_empty() {
                let mut text = format!("The dataclass {name} does not match its Python class:");
                for problem in problems {
                    text.push_str("\n  - ");
                    text.push_str(&problem);
                }
                let loc = self.program.entity(id).loc;
                return Err(CompileError::new("DataClassMismatchException", text).at(loc));
            }
        }
        Ok(())
    }

    fn mismatches(&self, id: EntityId, class: &Dataclass) -> Vec<String> {
        let program = &self.program;
        let entity = program.entity(id);
        let mut problems = Vec::new();
        if !entity.indexes.is_empty() {
            problems.push("it has an index".to_owned());
        }
        let empty = |&number: &u32| {
            let body = program.implementations[number as usize].body;
            program.blocks.get(body.0 as usize).is_none_or(|body| body.stmts.is_empty())
        };
        if !entity.implementations.iter().all(empty) {
            problems.push("it has an implementation other than std::none".to_owned());
        }
        let mut known: Vec<&str> = Vec::new();
        for &slot in &entity.slots {
            let attribute = program.attribute(slot);
            let name = program.text(attribute.name);
            if attribute.relation.is_some() {
                if !INHERITED.contains(&name) {
                    problems.push(format!("{name} is a relation"));
                }
                continue;
            }
            known.push(name);
            match class.fields.iter().find(|(field, _)| field == name) {
                None => problems.push(format!("the class has no field {name}")),
                Some((_, None)) => {
                    problems.push(format!("the type of the field {name} is none of a model"));
                }
                Some((_, Some(ty))) => {
                    let wanted = self.plain_type(attribute.ty);
                    if *ty != wanted {
                        problems.push(format!(
                            "{name} is a {wanted} in the model and a {ty} in the class"
                        ));
                    }
                }
            }
        }
        for (field, _) in &class.fields {
            if !known.contains(&field.as_str()) {
                problems.push(format!("the entity has no attribute {field}"));
            }
        }
        problems
    }

    /// A type by the words that a class can have for it: a typedef is what it is based on.
    fn plain_type(&self, ty: TypeId) -> String {
        match self.program.ty(ty) {
            Type::Typedef(typedef) => {
                self.plain_type(self.program.typedefs[*typedef as usize].base)
            }
            Type::ListOf(inner) => format!("{}[]", self.plain_type(*inner)),
            Type::Nullable(inner) => format!("{}?", self.plain_type(*inner)),
            _ => self.program.type_name(ty),
        }
    }
}

/// `inmanta_plugins.m.sub.Name` of `m::sub::Name`.
fn python_name(entity: &str) -> String {
    format!("inmanta_plugins.{}", entity.replace("::", "."))
}
