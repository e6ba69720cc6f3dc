//! What a plugin may ask: the machine's side of `plugins::Context`.

use orrery_syntax::Symbol;
use orrery_syntax::ast::Loc;

use crate::host::{HostContext, Slot, View};
use crate::ir::{ExprId, ExprKind, Var};
use crate::plugins::{
    CellId, Context, DeclaredBy, Facts, Failure, FileKind, Identity, Outcome, ServerSide,
};
use crate::program::{Definition, EntityId, Program, Type};
use crate::project::TemplateMode;
use crate::render::Instances;
use crate::source::Sources;
use crate::value::{Heap, InstanceId, Value};

use super::emit::Place;
use super::{EMPTY, FILE_FRAME, INSTANCE_FRAME, Machine, READY};

pub(super) struct CallContext<'m, 'p> {
    pub machine: &'m mut Machine<'p>,
    pub frame: u32,
    pub expr: ExprId,
}

impl CallContext<'_, '_> {
    fn read(&self, cell: u32) -> Result<Value, Failure> {
        if !self.machine.is_ready(cell) {
            return Err(Failure::Unset(vec![CellId(cell)]));
        }
        if self.machine.cells[cell as usize].flags & EMPTY != 0
            && let Some((instance, slot)) = self.machine.owner_of(cell)
        {
            let attribute = self.machine.slot_attribute(instance, slot);
            let entity = self.machine.program.entity(attribute.entity);
            let relation =
                format!("{}.{}", self.machine.text(entity.name), self.machine.text(attribute.name));
            return Err(Failure::Optional { relation, instance, placed: false });
        }
        match self.machine.cells[cell as usize].value {
            unknown @ Value::Unknown(_) => Err(Failure::Unknown(unknown)),
            value => Ok(value),
        }
    }

    fn slot_of_cell(&self, cell: u32) -> Slot {
        match self.machine.cells[cell as usize] {
            of if of.flags & EMPTY != 0 => Slot::Empty,
            of if of.flags & READY != 0 => Slot::Value(of.value),
            _ => Slot::Pending(CellId(cell)),
        }
    }

    fn namespace(&self) -> crate::program::NamespaceId {
        match &self.machine.program.expr(self.expr).kind {
            ExprKind::Call(call) => call.namespace,
            _ => crate::program::NamespaceId(0),
        }
    }

    /// The cell of a variable by name: the frames' names are gone, but instances and files have theirs.
    fn find_variable(&self, symbol: Symbol) -> Option<Place> {
        let machine = &*self.machine;
        let mut frame = self.frame;
        while frame != FILE_FRAME {
            if frame & INSTANCE_FRAME != 0 {
                let instance = InstanceId(frame & !INSTANCE_FRAME);
                if machine.text(symbol) == "self" {
                    return Some(Place::Value(Value::Instance(instance)));
                }
                let entity = machine.program.entity(machine.instances[instance.index()].entity);
                if let Some(&slot) = entity.slot_of.get(&symbol) {
                    return Some(Place::Cell(machine.slot_cell(instance, slot)));
                }
                break;
            }
            let names = &machine.program.frame_names;
            let at = machine.frames[frame as usize];
            if let Some(names) = names.get(at.names as usize)
                && let Some(slot) = names.iter().position(|&name| name == symbol)
            {
                return Some(Place::Cell(at.cells + slot as u32));
            }
            frame = at.parent;
        }
        let namespace = &machine.program.namespaces[self.namespace().index()];
        let cell = namespace.variables.get(&symbol).copied();
        cell.and_then(|cell| machine.place(Var::Global(cell), FILE_FRAME))
    }
}

impl Context for CallContext<'_, '_> {
    fn heap(&self) -> &Heap {
        &self.machine.heap
    }

    fn heap_mut(&mut self) -> &mut Heap {
        &mut self.machine.heap
    }

    fn attribute(&mut self, instance: InstanceId, name: &str) -> Result<Option<Value>, Failure> {
        let Some(symbol) = self.machine.program.interner.get(name) else { return Ok(None) };
        let entity = self.machine.instances[instance.index()].entity;
        let Some(&slot) = self.machine.program.entity(entity).slot_of.get(&symbol) else {
            return Ok(None);
        };
        let cell = self.machine.slot_cell(instance, slot);
        self.read(cell).map(Some)
    }

    fn entity_name(&self, instance: InstanceId) -> String {
        let entity = self.machine.instances[instance.index()].entity;
        self.machine.text(self.machine.program.entity(entity).name).to_owned()
    }

    fn is_of_type(&mut self, value: Value, type_name: &str) -> Result<bool, Failure> {
        let program = self.machine.program;
        let definition = program.find_definition(type_name);
        let ty = match (Type::primitive(type_name), definition) {
            (Some(primitive), _) => primitive,
            (None, Some(Definition::Entity(entity))) => {
                let Value::Instance(instance) = value else { return Ok(false) };
                let actual = self.machine.instances[instance.index()].entity;
                return Ok(program.is_subtype(actual, entity));
            }
            (None, Some(Definition::Typedef(typedef))) => Type::Typedef(typedef),
            _ => {
                let message = format!("could not find type {type_name} in namespace std");
                return Err(Failure::Plugin(message));
            }
        };
        match program.type_of.get(&ty) {
            Some(&ty) => Ok(self.machine.validate(ty, value).is_ok()),
            None => Ok(false),
        }
    }

    fn describe(&self, instance: InstanceId) -> String {
        self.machine.str(Value::Instance(instance))
    }

    fn repr(&self, value: Value) -> String {
        self.machine.repr(value)
    }

    fn proxy_str(&self, value: Value) -> String {
        match value {
            Value::List(_) | Value::Dict(_) | Value::Instance(_) => {
                format!("@{}", self.machine.repr(value))
            }
            Value::Null => "None".into(),
            Value::Other(id) if self.machine.heap.get_other(id).is_behind_proxy() => {
                format!("@{}", self.machine.repr(value))
            }
            other => self.machine.str(other),
        }
    }

    fn print(&mut self, text: &str) {
        self.write_output(text);
        self.write_output("\n");
    }

    fn warn(&mut self, text: &str) {
        let loc = self.machine.program.expr(self.expr).loc;
        self.machine.warnings.push(("", text.to_owned(), Some(loc)));
    }

    fn variable(&mut self, name: &str) -> Result<Option<Value>, Failure> {
        let Some(symbol) = self.machine.program.interner.get(name) else { return Ok(None) };
        match self.find_variable(symbol) {
            None => Ok(None),
            Some(Place::Value(value)) => Ok(Some(value)),
            Some(Place::Cell(cell)) => self.read(cell).map(Some),
        }
    }

    fn variable_names(&self) -> Vec<String> {
        let namespace = self.namespace();
        let file = self.machine.program.namespaces[namespace.index()].file;
        let names = self.machine.visible_names(self.frame, file);
        names.into_iter().map(|symbol| self.machine.text(symbol).to_owned()).collect()
    }

    fn attribute_names(&self, instance: InstanceId) -> Vec<String> {
        let entity = self.machine.instances[instance.index()].entity;
        let slots = self.machine.program.entity(entity).slots.iter();
        let names = slots.map(|&slot| self.machine.program.attribute(slot).name);
        names.map(|name| self.machine.text(name).to_owned()).collect()
    }

    fn template_mode(&self) -> TemplateMode {
        self.machine.world.template_mode()
    }

    fn show_path(&self, path: &str) -> String {
        self.machine.world.show_path(path)
    }

    fn call(&mut self, plugin: &str, args: &[Value]) -> Outcome {
        self.machine.call_by_name(plugin, args, self.frame, self.expr)
    }

    fn has_plugin(&self, plugin: &str) -> bool {
        matches!(self.machine.program.find_definition(plugin), Some(Definition::Plugin(_)))
    }

    fn caller_namespace(&self) -> String {
        let namespace = &self.machine.program.namespaces[self.namespace().index()];
        self.machine.text(namespace.name).to_owned()
    }

    fn module_dir(&self, module: &str) -> Option<String> {
        self.machine.world.module_dir(module)
    }

    fn project_dir(&self) -> String {
        self.machine.world.project_dir()
    }

    fn read_text(&self, path: &str) -> Result<String, String> {
        self.machine.world.read_text(path)
    }

    fn file_kind(&self, path: &str) -> FileKind {
        self.machine.world.file_kind(path)
    }

    fn list_dir(&self, path: &str) -> Result<Vec<String>, String> {
        self.machine.world.list_dir(path)
    }

    fn write_text(&mut self, path: &str, text: &str) -> Result<(), String> {
        self.machine.world.write_text(path, text)
    }

    fn environment_variable(&self, name: &str) -> Option<String> {
        self.machine.world.environment_variable(name)
    }

    fn facts(&self) -> Option<&dyn Facts> {
        self.machine.world.facts()
    }

    fn server(&self) -> Option<&ServerSide> {
        self.machine.world.server()
    }

    fn identity(&self, instance: InstanceId) -> Option<Identity> {
        let program = self.machine.program;
        let entity = self.machine.instances[instance.index()].entity;
        let declared = |of: EntityId| {
            let name = program.text(program.entity(of).name);
            self.machine.world.identity(name)
        };
        let by = |of: EntityId, who: DeclaredBy| declared(of).is_some_and(|of| of.declared == who);
        let is_replaced = |of: EntityId| {
            by(of, DeclaredBy::Program)
                && program.entity(of).ancestors.iter().any(|&one| by(one, DeclaredBy::CodeInstead))
        };
        let found = program.nearest(entity, |of| declared(of).is_some() && !is_replaced(of));
        found.first().and_then(|&of| declared(of)).cloned()
    }

    fn now(&self) -> f64 {
        self.machine.world.now()
    }

    fn random_bytes(&mut self, count: usize) -> Vec<u8> {
        self.machine.world.random_bytes(count)
    }
}

impl View for CallContext<'_, '_> {
    fn program(&self) -> &Program {
        self.machine.program
    }

    fn sources(&self) -> &Sources {
        &self.machine.program.sources
    }

    fn values(&self) -> &Heap {
        &self.machine.heap
    }

    fn instance_count(&self) -> usize {
        self.machine.instances.len()
    }

    fn entity_of(&self, instance: InstanceId) -> EntityId {
        self.machine.instances[instance.index()].entity
    }

    fn slot(&self, instance: InstanceId, slot: u32) -> Slot {
        self.slot_of_cell(self.machine.slot_cell(instance, slot))
    }

    fn global(&self, cell: u32) -> Slot {
        self.slot_of_cell(cell)
    }

    fn constructed_at(&self, instance: InstanceId) -> Loc {
        let constructor = self.machine.instances[instance.index()].constructor;
        self.machine.program.expr(constructor).loc
    }

    fn described(&self, instance: InstanceId) -> String {
        self.machine.described(instance)
    }
}

impl HostContext for CallContext<'_, '_> {
    fn called_at(&self) -> Loc {
        self.machine.program.expr(self.expr).loc
    }

    fn write_output(&mut self, text: &str) {
        // A part of a text is worse than none; the run ends after this call.
        if !self.machine.heap.is_too_large() {
            self.machine.output.push_str(text);
        }
    }

    fn variable_slot(&self, name: &str) -> Option<Slot> {
        let symbol = self.machine.program.interner.get(name)?;
        Some(match self.find_variable(symbol)? {
            Place::Value(value) => Slot::Value(value),
            Place::Cell(cell) => self.slot_of_cell(cell),
        })
    }

    fn variable_owner(&self, name: &str) -> Option<(InstanceId, u32)> {
        let symbol = self.machine.program.interner.get(name)?;
        match self.find_variable(symbol)? {
            Place::Value(_) => None,
            Place::Cell(cell) => self.machine.owner_of(cell),
        }
    }

    fn construct(
        &mut self,
        entity: EntityId,
        attributes: &[(u32, Value)],
    ) -> Result<InstanceId, Failure> {
        let made = self.machine.construct_data(self.expr, entity, attributes, self.frame);
        made.map_err(|error| Failure::Runtime(error.text.clone()))
    }
}
