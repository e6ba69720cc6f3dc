//! Pairs dataclass entities with the classes that represent them in a host. A pair must agree in
//! every field, since values are converted in both directions.

use std::collections::BTreeMap;
use std::path::Path;

use crate::define::Builder;
use crate::error::{CompileError, Result};
use crate::host::{ClassProblem, Dataclass};
use crate::program::{Attribute, Definition, Entity, EntityId, Type, TypeId};

/// Root of the dataclass entities.
const ROOT: &str = "std::Dataclass";
/// Relations that every entity inherits.
const INHERITED: [&str; 2] = ["provides", "requires"];
/// The only implementation that a dataclass entity may have.
const NONE: &str = "std::none";

/// Modules involved in the pairing.
pub(crate) struct Pairing<'a> {
    pub(crate) classes: &'a [Dataclass],
    /// Modules with code that the host has loaded.
    pub(crate) loaded: &'a [String],
    /// Built-in modules: their entities need no class.
    pub(crate) builtin: &'a [String],
    /// Returns the display name of a file for messages.
    pub(crate) show: &'a dyn Fn(&Path) -> String,
}

impl Builder {
    /// Checks every dataclass entity against its class.
    pub(crate) fn check_dataclasses(&mut self, pairing: &Pairing<'_>) -> Result<()> {
        let Some(Definition::Entity(root)) = self.program.find_definition(ROOT) else {
            return Ok(());
        };
        let classes: BTreeMap<&str, &Dataclass> =
            pairing.classes.iter().map(|class| (class.entity.as_str(), class)).collect();
        for number in 0..self.program.entities.len() {
            let id = EntityId(number as u32);
            if id == root || !self.program.is_subtype(id, root) {
                continue;
            }
            let name = self.program.text(self.program.entity(id).name).to_owned();
            let module = name.split("::").next().unwrap_or(&name);
            match classes.get(name.as_str()) {
                Some(class) => self.check_class(id, &name, class, pairing.show)?,
                None if pairing.loaded.iter().chain(pairing.builtin).any(|one| one == module) => {}
                None => return Err(module_not_found(&python_module(&name))),
            }
        }
        Ok(())
    }

    fn check_class(
        &mut self,
        id: EntityId,
        name: &str,
        class: &Dataclass,
        show: &dyn Fn(&Path) -> String,
    ) -> Result<()> {
        let loc = self.program.entity(id).loc;
        let place = self.program.sources.location(loc);
        let mismatch = |text: String| {
            Err(CompileError::new("DataClassMismatchException", text).in_statement(name, loc))
        };
        let refused = |what: &str| {
            mismatch(format!(
                "The python object {} associated to  {name} defined at {place} is not {what}. Dataclasses must have a python counterpart that is a frozen dataclass.",
                python_name(name)
            ))
        };
        match &class.problem {
            None => {}
            Some(ClassProblem::NoModule(module)) => return Err(module_not_found(module)),
            Some(ClassProblem::NotDataclass) => return refused("a dataclass"),
            Some(ClassProblem::NotFrozen) => return refused("frozen"),
            Some(ClassProblem::BadAnnotation(text)) => {
                let mut error = CompileError::new("NameError", text);
                error.bare = true;
                return Err(error);
            }
        }
        let problems = self.mismatches(id, class)?;
        if !problems.is_empty() {
            let python = class
                .location
                .as_ref()
                .map_or_else(String::new, |place| format!("{}:{}", show(&place.file), place.line));
            let list: String = problems.iter().map(|problem| format!("    -{problem}\n")).collect();
            return mismatch(format!(
                "The dataclass {name} defined at {place} does not match the corresponding python dataclass at {python}. {} errors:\n{list}",
                problems.len()
            ));
        }
        self.check_shape(id, name)
    }

    /// Checks that a dataclass entity has no indexes or implementations of its own.
    fn check_shape(&self, id: EntityId, name: &str) -> Result<()> {
        let program = &self.program;
        let entity = program.entity(id);
        let place = program.sources.location(entity.loc);
        let refuse = |text: String| {
            Err(CompileError::new("DataClassException", text).in_statement(name, entity.loc))
        };
        if let Some(&index) = entity.indexes.first() {
            let index = program.sources.location(program.indexes[index as usize].loc);
            return refuse(format!(
                "The dataclass {name} defined at {place} has an indexes defined at {index}. Dataclasses can not have any indexes."
            ));
        }
        for &implement in &entity.implements {
            let implement = &program.implements[implement as usize];
            let is_none = |&number: &u32| {
                let implementation = &program.implementations[number as usize];
                let namespace = &program.namespaces[implementation.namespace.index()];
                let name = program.text(implementation.name);
                format!("{}::{name}", program.text(namespace.name)) == NONE
            };
            if !implement.implementations.iter().all(is_none) {
                let at = program.sources.location(implement.loc);
                return refuse(format!(
                    "The dataclass {name} defined at {place} has an implementation other than 'std::none', defined at {at}. Dataclasses can only have std::none as implemenation."
                ));
            }
        }
        Ok(())
    }

    fn mismatches(&mut self, id: EntityId, class: &Dataclass) -> Result<Vec<String>> {
        const SAME: &str = "All attributes of a dataclasses must be identical in both the python and inmanta domain";
        let namespace = self.program.entity(id).namespace;
        let mut attributes: Vec<(String, Option<TypeId>)> = Vec::new();
        let mut problems = Vec::new();
        for attribute in self.sorted_attributes(self.program.entity(id)) {
            let name = self.program.text(attribute.name).to_owned();
            if attribute.relation.is_none() {
                attributes.push((name, Some(attribute.ty)));
            } else if !INHERITED.contains(&name.as_str()) {
                attributes.push((name, None));
            }
        }
        let mut matched: Vec<&str> = Vec::new();
        for (name, ty) in &attributes {
            let Some(ty) = *ty else {
                let at = self.relation_location(id, name);
                problems.push(format!(
                    "a relation called {name} is defined at {at}. Dataclasses are not allowed to have relations"
                ));
                continue;
            };
            let Some((field, written)) = class.fields.iter().find(|(field, _)| field == name)
            else {
                problems.push(format!(
                    "The attribute {name} has no counterpart in the python domain. {SAME}."
                ));
                continue;
            };
            if !self.is_primitive(ty) {
                let shown = self.program.type_name(ty);
                problems.push(format!(
                    "The attribute {name} of type `{shown}` is not primitive. All attributes of a dataclasses have to be of a primitive type."
                ));
                continue;
            }
            matched.push(field);
            let agrees = match written {
                None => false,
                Some(text) => match self.annotation(text, namespace)?.0 {
                    None => true,
                    Some(python) => self.is_compatible_type(ty, python),
                },
            };
            if !agrees {
                problems.push(format!(
                    "The attribute {name} does not have the same type as the associated field in the python domain. {SAME}."
                ));
            }
        }
        for (field, _) in &class.fields {
            if !matched.contains(&field.as_str()) {
                problems
                    .push(format!("The field {field} doesn't exist in the inmanta domain. {SAME}"));
            }
        }
        Ok(problems)
    }

    fn sorted_attributes<'a>(&'a self, entity: &'a Entity) -> Vec<&'a Attribute> {
        let mut attributes: Vec<&Attribute> =
            entity.slots.iter().map(|&slot| self.program.attribute(slot)).collect();
        attributes.sort_by_key(|attribute| self.program.text(attribute.name));
        attributes
    }

    fn relation_location(&self, id: EntityId, name: &str) -> String {
        let slots = &self.program.entity(id).slots;
        let mut attributes = slots.iter().map(|&slot| self.program.attribute(slot));
        attributes
            .find(|attribute| self.program.text(attribute.name) == name)
            .map_or_else(String::new, |attribute| self.program.sources.location(attribute.loc))
    }

    /// True if a type consists of primitive types only.
    fn is_primitive(&self, ty: TypeId) -> bool {
        match self.program.ty(ty) {
            Type::Typedef(_) | Type::Entity(_) => false,
            Type::ListOf(inner) | Type::Nullable(inner) => self.is_primitive(*inner),
            _ => true,
        }
    }

    /// True if values of an attribute fit the annotation of its field.
    fn is_compatible_type(&self, model: TypeId, python: TypeId) -> bool {
        match (self.program.ty(model), self.program.ty(python)) {
            (_, Type::Any) => true,
            (Type::Nullable(model), Type::Nullable(python)) => {
                // The reference compiler does not look into a union that also allows null.
                !matches!(self.program.ty(*python), Type::Union(_))
                    && self.is_compatible_type(*model, *python)
            }
            (_, Type::Union(members)) => match self.late_bound_type(members) {
                Some(plain) => self.is_compatible_type(model, plain),
                None => false,
            },
            (_, Type::Typedef(typedef)) => {
                self.is_compatible_type(model, self.program.typedefs[*typedef as usize].base)
            }
            (Type::Dict, Type::DictOf(_) | Type::AnyDict)
            | (Type::List | Type::ListOf(_), Type::AnyList)
            | (Type::List, Type::ListOf(_))
            | (Type::Number, Type::Int | Type::Float) => true,
            (Type::ListOf(model), Type::ListOf(python)) => self.is_compatible_type(*model, *python),
            (model, python) => model == python,
        }
    }

    /// The value type of an annotation that also accepts references: `Reference[T] | T`.
    fn late_bound_type(&self, members: &[TypeId]) -> Option<TypeId> {
        let [first, second] = members else { return None };
        match (self.program.ty(*first), self.program.ty(*second)) {
            (Type::Reference(inner), _) if inner == second => Some(*second),
            (_, Type::Reference(inner)) if inner == first => Some(*first),
            _ => None,
        }
    }
}

fn module_not_found(module: &str) -> Box<CompileError> {
    let mut error = CompileError::new("ModuleNotFoundError", format!("No module named '{module}'"));
    error.bare = true;
    error
}

/// `inmanta_plugins.m.sub` of `m::sub::Name`.
fn python_module(entity: &str) -> String {
    let name = python_name(entity);
    name.rsplit_once('.').map_or(name.clone(), |(module, _)| module.to_owned())
}

/// `inmanta_plugins.m.sub.Name` of `m::sub::Name`.
fn python_name(entity: &str) -> String {
    format!("inmanta_plugins.{}", entity.replace("::", "."))
}
