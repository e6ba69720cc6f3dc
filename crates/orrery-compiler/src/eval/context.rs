//! The machine's implementation of `plugins::PluginContext`.

use orrery_syntax::Symbol;
use orrery_syntax::ast::Loc;

use crate::host::{HostContext, InstanceView, SlotState};
use crate::ir::{ExprId, ExprKind, Var};
use crate::plugins::{
    CellId, DeclaredBy, Facts, Failure, PathKind, PluginContext, PluginResult, ResourceIdentity,
    ServerEnvironmentInfo,
};
use crate::program::{Definition, EntityId, Program, Type};
use crate::project::TemplateMode;
use crate::render::Instances;
use crate::source::Sources;
use crate::value::{Heap, InstanceId, Value};

use super::build_units::VariableLocation;
use super::{EMPTY, Evaluator, FILE_FRAME, INSTANCE_FRAME, READY};

pub(super) struct CallContext<'m, 'p> {
    pub evaluator: &'m mut Evaluator<'p>,
    pub frame: u32,
    pub expr: ExprId,
}

impl CallContext<'_, '_> {
    fn read(&self, cell: u32) -> Result<Value, Failure> {
        if !self.evaluator.is_ready(cell) {
            return Err(Failure::Unset(vec![CellId(cell)]));
        }
        if self.evaluator.cells[cell as usize].flags & EMPTY != 0
            && let Some((instance, slot)) = self.evaluator.owner_of(cell)
        {
            let attribute = self.evaluator.slot_attribute(instance, slot);
            let entity = self.evaluator.program.entity(attribute.entity);
            let relation = format!(
                "{}.{}",
                self.evaluator.text(entity.name),
                self.evaluator.text(attribute.name)
            );
            return Err(Failure::Optional { relation, instance, placed: false });
        }
        match self.evaluator.cells[cell as usize].value {
            unknown @ Value::Unknown(_) => Err(Failure::Unknown(unknown)),
            value => Ok(value),
        }
    }

    fn slot_of_cell(&self, cell: u32) -> SlotState {
        match self.evaluator.cells[cell as usize] {
            of if of.flags & EMPTY != 0 => SlotState::Empty,
            of if of.flags & READY != 0 => SlotState::Value(of.value),
            _ => SlotState::Pending(CellId(cell)),
        }
    }

    fn namespace(&self) -> crate::program::NamespaceId {
        match &self.evaluator.program.expr(self.expr).kind {
            ExprKind::Call(call) => call.namespace,
            _ => crate::program::NamespaceId(0),
        }
    }

    /// The cell of a variable by name. Frames have lost their names, but instances and files have
    /// theirs.
    fn find_variable(&self, symbol: Symbol) -> Option<VariableLocation> {
        let evaluator = &*self.evaluator;
        let mut frame = self.frame;
        while frame != FILE_FRAME {
            if frame & INSTANCE_FRAME != 0 {
                let instance = InstanceId(frame & !INSTANCE_FRAME);
                if evaluator.text(symbol) == "self" {
                    return Some(VariableLocation::Value(Value::Instance(instance)));
                }
                let entity = evaluator.program.entity(evaluator.instances[instance.index()].entity);
                if let Some(&slot) = entity.slot_of.get(&symbol) {
                    return Some(VariableLocation::Cell(evaluator.slot_cell(instance, slot)));
                }
                break;
            }
            let names = &evaluator.program.frame_names;
            let at = evaluator.frames[frame as usize];
            if let Some(names) = names.get(at.names as usize)
                && let Some(slot) = names.iter().position(|&name| name == symbol)
            {
                return Some(VariableLocation::Cell(at.cells + slot as u32));
            }
            frame = at.parent;
        }
        let namespace = &evaluator.program.namespaces[self.namespace().index()];
        let cell = namespace.variables.get(&symbol).copied();
        cell.and_then(|cell| evaluator.locate_variable(Var::Global(cell), FILE_FRAME))
    }
}

impl PluginContext for CallContext<'_, '_> {
    fn heap(&self) -> &Heap {
        &self.evaluator.heap
    }

    fn heap_mut(&mut self) -> &mut Heap {
        &mut self.evaluator.heap
    }

    fn attribute(&mut self, instance: InstanceId, name: &str) -> Result<Option<Value>, Failure> {
        let Some(symbol) = self.evaluator.program.interner.get(name) else { return Ok(None) };
        let entity = self.evaluator.instances[instance.index()].entity;
        let Some(&slot) = self.evaluator.program.entity(entity).slot_of.get(&symbol) else {
            return Ok(None);
        };
        let cell = self.evaluator.slot_cell(instance, slot);
        self.read(cell).map(Some)
    }

    fn entity_name(&self, instance: InstanceId) -> String {
        let entity = self.evaluator.instances[instance.index()].entity;
        self.evaluator.text(self.evaluator.program.entity(entity).name).to_owned()
    }

    fn is_of_type(&mut self, value: Value, type_name: &str) -> Result<bool, Failure> {
        let program = self.evaluator.program;
        let definition = program.find_definition(type_name);
        let ty = match (Type::primitive(type_name), definition) {
            (Some(primitive), _) => primitive,
            (None, Some(Definition::Entity(entity))) => {
                let Value::Instance(instance) = value else { return Ok(false) };
                let actual = self.evaluator.instances[instance.index()].entity;
                return Ok(program.is_subtype(actual, entity));
            }
            (None, Some(Definition::Typedef(typedef))) => Type::Typedef(typedef),
            _ => {
                let message = format!("could not find type {type_name} in namespace std");
                return Err(Failure::Plugin(message));
            }
        };
        match program.type_of.get(&ty) {
            Some(&ty) => Ok(self.evaluator.validate(ty, value).is_ok()),
            None => Ok(false),
        }
    }

    fn describe(&self, instance: InstanceId) -> String {
        self.evaluator.str(Value::Instance(instance))
    }

    fn repr(&self, value: Value) -> String {
        self.evaluator.repr(value)
    }

    fn proxy_str(&self, value: Value) -> String {
        match value {
            Value::List(_) | Value::Dict(_) | Value::Instance(_) => {
                format!("@{}", self.evaluator.repr(value))
            }
            Value::Null => "None".into(),
            Value::Other(id) if self.evaluator.heap.get_other(id).is_behind_proxy() => {
                format!("@{}", self.evaluator.repr(value))
            }
            other => self.evaluator.str(other),
        }
    }

    fn print(&mut self, text: &str) {
        self.write_output(text);
        self.write_output("\n");
    }

    fn warn(&mut self, text: &str) {
        let loc = self.evaluator.program.expr(self.expr).loc;
        self.evaluator.warnings.push(("", text.to_owned(), Some(loc)));
    }

    fn variable(&mut self, name: &str) -> Result<Option<Value>, Failure> {
        let Some(symbol) = self.evaluator.program.interner.get(name) else { return Ok(None) };
        match self.find_variable(symbol) {
            None => Ok(None),
            Some(VariableLocation::Value(value)) => Ok(Some(value)),
            Some(VariableLocation::Cell(cell)) => self.read(cell).map(Some),
        }
    }

    fn variable_names(&self) -> Vec<String> {
        let namespace = self.namespace();
        let file = self.evaluator.program.namespaces[namespace.index()].file;
        let names = self.evaluator.visible_names(self.frame, file);
        names.into_iter().map(|symbol| self.evaluator.text(symbol).to_owned()).collect()
    }

    fn attribute_names(&self, instance: InstanceId) -> Vec<String> {
        let entity = self.evaluator.instances[instance.index()].entity;
        let slots = self.evaluator.program.entity(entity).slots.iter();
        let names = slots.map(|&slot| self.evaluator.program.attribute(slot).name);
        names.map(|name| self.evaluator.text(name).to_owned()).collect()
    }

    fn template_mode(&self) -> TemplateMode {
        self.evaluator.system.template_mode()
    }

    fn show_path(&self, path: &str) -> String {
        self.evaluator.system.show_path(path)
    }

    fn call(&mut self, plugin: &str, args: &[Value]) -> PluginResult {
        self.evaluator.call_by_name(plugin, args, self.frame, self.expr)
    }

    fn has_plugin(&self, plugin: &str) -> bool {
        matches!(self.evaluator.program.find_definition(plugin), Some(Definition::Plugin(_)))
    }

    fn caller_namespace(&self) -> String {
        let namespace = &self.evaluator.program.namespaces[self.namespace().index()];
        self.evaluator.text(namespace.name).to_owned()
    }

    fn module_dir(&self, module: &str) -> Option<String> {
        self.evaluator.system.module_dir(module)
    }

    fn project_dir(&self) -> String {
        self.evaluator.system.project_dir()
    }

    fn read_text(&self, path: &str) -> Result<String, String> {
        self.evaluator.system.read_text(path)
    }

    fn file_kind(&self, path: &str) -> PathKind {
        self.evaluator.system.file_kind(path)
    }

    fn list_dir(&self, path: &str) -> Result<Vec<String>, String> {
        self.evaluator.system.list_dir(path)
    }

    fn write_text(&mut self, path: &str, text: &str) -> Result<(), String> {
        self.evaluator.system.write_text(path, text)
    }

    fn environment_variable(&self, name: &str) -> Option<String> {
        self.evaluator.system.environment_variable(name)
    }

    fn facts(&self) -> Option<&dyn Facts> {
        self.evaluator.system.facts()
    }

    fn request_machine_facts(&mut self, machine: &str) {
        let loc = self.evaluator.program.expr(self.expr).loc;
        self.evaluator.machines.entry(machine.to_owned()).or_insert(loc);
    }

    fn server(&self) -> Option<&ServerEnvironmentInfo> {
        self.evaluator.system.server()
    }

    fn identity(&self, instance: InstanceId) -> Option<ResourceIdentity> {
        let program = self.evaluator.program;
        let entity = self.evaluator.instances[instance.index()].entity;
        let declared = |of: EntityId| {
            let name = program.text(program.entity(of).name);
            self.evaluator.system.identity(name)
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
        self.evaluator.system.now()
    }

    fn random_bytes(&mut self, count: usize) -> Vec<u8> {
        self.evaluator.system.random_bytes(count)
    }
}

impl InstanceView for CallContext<'_, '_> {
    fn program(&self) -> &Program {
        self.evaluator.program
    }

    fn sources(&self) -> &Sources {
        &self.evaluator.program.sources
    }

    fn values(&self) -> &Heap {
        &self.evaluator.heap
    }

    fn instance_count(&self) -> usize {
        self.evaluator.instances.len()
    }

    fn entity_of(&self, instance: InstanceId) -> EntityId {
        self.evaluator.instances[instance.index()].entity
    }

    fn slot(&self, instance: InstanceId, slot: u32) -> SlotState {
        self.slot_of_cell(self.evaluator.slot_cell(instance, slot))
    }

    fn global(&self, cell: u32) -> SlotState {
        self.slot_of_cell(cell)
    }

    fn constructed_at(&self, instance: InstanceId) -> Loc {
        let constructor = self.evaluator.instances[instance.index()].constructor;
        self.evaluator.program.expr(constructor).loc
    }

    fn description(&self, instance: InstanceId) -> String {
        self.evaluator.description(instance)
    }
}

impl HostContext for CallContext<'_, '_> {
    fn called_at(&self) -> Loc {
        self.evaluator.program.expr(self.expr).loc
    }

    fn write_output(&mut self, text: &str) {
        // A truncated text would be misleading; the run ends after this call.
        if !self.evaluator.heap.is_too_large() {
            self.evaluator.output.push_str(text);
        }
    }

    fn variable_slot(&self, name: &str) -> Option<SlotState> {
        let symbol = self.evaluator.program.interner.get(name)?;
        Some(match self.find_variable(symbol)? {
            VariableLocation::Value(value) => SlotState::Value(value),
            VariableLocation::Cell(cell) => self.slot_of_cell(cell),
        })
    }

    fn variable_owner(&self, name: &str) -> Option<(InstanceId, u32)> {
        let symbol = self.evaluator.program.interner.get(name)?;
        match self.find_variable(symbol)? {
            VariableLocation::Value(_) => None,
            VariableLocation::Cell(cell) => self.evaluator.owner_of(cell),
        }
    }

    fn construct(
        &mut self,
        entity: EntityId,
        attributes: &[(u32, Value)],
    ) -> Result<InstanceId, Failure> {
        let made = self.evaluator.construct_data(self.expr, entity, attributes, self.frame);
        made.map_err(|error| Failure::Runtime(error.text.clone()))
    }
}
