//! The model as templates see it: handles of the engine are indexes of the heap.

use std::cell::RefCell;
use std::rc::Rc;

use hashbrown::HashMap;
use orrery_jinja::{
    Argument, AttributeValue, DictId, FailureId, InstanceId, ListId, ModelAccess, ModelItem,
    NOT_FOUND, Object, OtherId, Template, TemplateError, TemplateSource, UnknownId, check, parse,
};
use orrery_python::{Int, PyError};

use super::super::files::{exception, resolve};
use super::super::{Failure, PathKind, PluginContext};
use super::{calls, errors};
use crate::project::TemplateMode;
use crate::value::{self, Dict, Heap, Value};

/// The model behind one call of `std::template`.
pub(super) struct TemplateModel<'c> {
    pub(super) ctx: &'c mut dyn PluginContext,
    /// The passed variables; without any, names are looked up at the call.
    given: Option<value::DictId>,
    /// Failures that the engine refers to by number.
    failures: RefCell<Vec<Failure>>,
}

impl<'c> TemplateModel<'c> {
    pub(super) fn new(ctx: &'c mut dyn PluginContext, given: Option<value::DictId>) -> Self {
        TemplateModel { ctx, given, failures: RefCell::default() }
    }

    /// Reads and parses a template; a template is parsed only once.
    pub(super) fn load(&mut self, path: &str) -> Result<Rc<Template>, Failure> {
        thread_local! {
            static PARSED: RefCell<HashMap<String, Rc<Template>>> = RefCell::default();
        }
        let not_found = || Failure::python(NOT_FOUND, path);
        let file = match resolve(self.ctx, path, "templates") {
            Ok(file) => file,
            Err(failure) if path.starts_with("./") => return Err(failure),
            Err(_) => return Err(not_found()),
        };
        if self.ctx.file_kind(&file) != PathKind::File {
            return Err(not_found());
        }
        let source = self.ctx.read_text(&file).map_err(exception)?;
        let known = PARSED.with_borrow(|parsed| {
            let template = parsed.get(&file)?;
            (template.source().text == source).then(|| template.clone())
        });
        if let Some(template) = known {
            self.check(&template)?;
            return Ok(template);
        }
        let source = Rc::new(TemplateSource { path: file.clone(), text: source });
        let parsed = parse(&source);
        let template = Rc::new(parsed.map_err(|error| self.to_failure(error))?);
        self.check(&template)?;
        PARSED.with_borrow_mut(|parsed| parsed.insert(file, template.clone()));
        Ok(template)
    }

    fn check(&self, template: &Template) -> Result<(), Failure> {
        check(template, self).map_err(|error| self.to_failure(error))
    }

    /// Stores a failure for the engine. Python's exceptions stay visible to it.
    fn to_error(&self, failure: Failure) -> TemplateError {
        match failure {
            Failure::Python(error) => TemplateError::Python(error),
            failure => {
                let mut failures = self.failures.borrow_mut();
                let id = FailureId(failures.len() as u32);
                failures.push(failure);
                TemplateError::Model(id)
            }
        }
    }

    /// The failure behind an error of the engine.
    fn to_failure(&self, error: TemplateError) -> Failure {
        match error {
            TemplateError::Python(error) => Failure::Python(error),
            TemplateError::Undefined(message) => Failure::Runtime(message),
            TemplateError::Unsupported { .. } => {
                Failure::NeedsOtherHost(Box::new(Failure::Plugin(error.to_string())))
            }
            TemplateError::Syntax(error, source) => errors::syntax(*error, &source),
            TemplateError::Model(id) => {
                let mut failures = self.failures.borrow_mut();
                debug_assert!((id.0 as usize) < failures.len(), "a failure of another render");
                failures.swap_remove(id.0 as usize)
            }
        }
    }

    /// The failure that ended the render.
    pub(super) fn into_failure(self, error: TemplateError) -> Failure {
        self.to_failure(error)
    }

    /// Converts an argument of the engine to a value of the model.
    pub(super) fn value(&mut self, argument: Argument) -> Value {
        match argument {
            Argument::None => Value::Null,
            Argument::Bool(bool) => Value::Bool(bool),
            Argument::Int(int) => self.ctx.heap_mut().int(int),
            Argument::Float(float) => Value::Float(float),
            Argument::Str(text) => self.ctx.heap_mut().str(&text),
            Argument::List(items) => self.list(items),
            Argument::Dict(entries) => self.dict(entries),
            Argument::Proxy(object) | Argument::Bare(object) => value_of(object),
        }
    }

    fn list(&mut self, items: Vec<Argument>) -> Value {
        let items = items.into_iter().map(|item| self.value(item)).collect();
        self.ctx.heap_mut().list(items)
    }

    fn dict(&mut self, entries: Vec<(Rc<str>, Argument)>) -> Value {
        let mut dict = Dict::default();
        for (name, item) in entries {
            let item = self.value(item);
            dict.insert(self.ctx.heap_mut().intern(&name), item);
        }
        self.ctx.heap_mut().dict(dict)
    }
}

impl ModelAccess for TemplateModel<'_> {
    fn variable(&mut self, name: &str) -> Result<Option<ModelItem<'_>>, TemplateError> {
        let found = match self.given {
            Some(given) => entry(self.ctx.heap(), given, name),
            None => match self.ctx.variable(name) {
                Ok(found) => found,
                Err(Failure::Optional { .. }) => None,
                Err(failure) => return Err(self.to_error(failure)),
            },
        };
        Ok(found.map(|found| item_of(self.ctx.heap(), found)))
    }

    fn attribute(
        &mut self,
        instance: InstanceId,
        name: &str,
    ) -> Result<AttributeValue<'_>, TemplateError> {
        match self.ctx.attribute(value::InstanceId(instance.0), name) {
            Ok(Some(value)) => Ok(AttributeValue::Found(item_of(self.ctx.heap(), value))),
            Ok(None) if self.ctx.template_mode() == TemplateMode::Strict => {
                Ok(AttributeValue::Undeclared)
            }
            Ok(None) | Err(Failure::Optional { .. }) => Ok(AttributeValue::Empty),
            Err(failure) => Err(self.to_error(failure)),
        }
    }

    fn describe(&self, instance: InstanceId) -> String {
        self.ctx.describe(value::InstanceId(instance.0))
    }

    fn unknown(&self, unknown: UnknownId) -> TemplateError {
        self.to_error(Failure::Unknown(value_of(Object::Unknown(unknown))))
    }

    fn items(&self, list: ListId) -> impl ExactSizeIterator<Item = ModelItem<'_>> {
        let heap = self.ctx.heap();
        heap.items(value::ListId(list.0)).iter().map(|&item| item_of(heap, item))
    }

    fn item(&self, list: ListId, index: usize) -> Option<ModelItem<'_>> {
        let heap = self.ctx.heap();
        heap.items(value::ListId(list.0)).get(index).map(|&item| item_of(heap, item))
    }

    fn slice(&mut self, list: ListId, positions: impl Iterator<Item = usize>) -> ListId {
        let items = self.ctx.heap().items(value::ListId(list.0));
        let sliced = positions.map(|at| items[at]).collect();
        match self.ctx.heap_mut().list(sliced) {
            Value::List(id) => ListId(id.0),
            _ => list,
        }
    }

    fn entries(&self, dict: DictId) -> impl ExactSizeIterator<Item = (&str, ModelItem<'_>)> {
        let heap = self.ctx.heap();
        let entries = heap.entries(value::DictId(dict.0)).iter();
        entries.map(|(&key, &item)| (heap.text(key), item_of(heap, item)))
    }

    fn entry(&self, dict: DictId, key: &str) -> Option<ModelItem<'_>> {
        let heap = self.ctx.heap();
        entry(heap, value::DictId(dict.0), key).map(|found| item_of(heap, found))
    }

    fn is_true(&self, object: Object) -> bool {
        self.ctx.heap().truthy(value_of(object))
    }

    fn are_equal(&self, left: Object, right: Object) -> bool {
        self.ctx.heap().equal(value_of(left), value_of(right))
    }

    fn proxy_text(&self, object: Object) -> String {
        self.ctx.proxy_str(value_of(object))
    }

    fn repr(&self, object: Object) -> String {
        self.ctx.repr(value_of(object))
    }

    fn entry_reprs(&self, dict: DictId) -> Vec<(String, String)> {
        let entries = self.ctx.heap().entries(value::DictId(dict.0)).iter();
        entries.map(|(&key, &item)| (self.ctx.repr(Value::Str(key)), self.ctx.repr(item))).collect()
    }

    fn is_too_long(&self, text: &str) -> bool {
        self.ctx.heap().is_too_long(text)
    }

    fn has_filter(&self, name: &str) -> bool {
        self.ctx.has_plugin(&calls::plugin_name(name))
    }

    fn call_filter(
        &mut self,
        name: &str,
        args: Vec<Argument>,
    ) -> Result<ModelItem<'_>, TemplateError> {
        match self.call_plugin(name, args) {
            Ok(result) => Ok(item_of(self.ctx.heap(), result)),
            Err(failure) => Err(self.to_error(failure)),
        }
    }

    fn format(
        &mut self,
        text: &str,
        positional: Vec<Argument>,
        named: Vec<(Rc<str>, Argument)>,
    ) -> Result<String, TemplateError> {
        let (positional, named) = (self.list(positional), self.dict(named));
        let args = [self.ctx.heap_mut().str(text), positional, named];
        // `std::format` sees the same model values as templates.
        match super::super::format::format(self.ctx, &args) {
            Ok(Value::Str(id)) => Ok(self.ctx.heap().text(id).to_owned()),
            Ok(_) => Err(TemplateError::Python(PyError::new("TypeError", "format gave no text"))),
            Err(failure) => Err(self.to_error(failure)),
        }
    }

    fn template(&mut self, path: &str) -> Result<Rc<Template>, TemplateError> {
        self.load(path).map_err(|failure| self.to_error(failure))
    }
}

fn entry(heap: &Heap, dict: value::DictId, key: &str) -> Option<Value> {
    heap.find_text(key).and_then(|key| heap.entries(dict).get(&key).copied())
}

fn item_of(heap: &Heap, value: Value) -> ModelItem<'_> {
    match value {
        Value::Null => ModelItem::Object(Object::Null),
        Value::Bool(bool) => ModelItem::Bool(bool),
        Value::Int(int) => ModelItem::Int(Int::Small(int)),
        Value::Big(id) => ModelItem::Int(heap.big(id).clone()),
        Value::Float(float) => ModelItem::Float(float),
        Value::Str(id) => ModelItem::Str(heap.text(id)),
        Value::List(id) => ModelItem::Object(Object::List(ListId(id.0))),
        Value::Dict(id) => ModelItem::Object(Object::Dict(DictId(id.0))),
        Value::Instance(id) => ModelItem::Object(Object::Instance(InstanceId(id.0))),
        Value::Unknown(id) => ModelItem::Object(Object::Unknown(UnknownId(id.0))),
        Value::Other(id) => ModelItem::Object(Object::Other(OtherId(id.0))),
    }
}

fn value_of(object: Object) -> Value {
    match object {
        Object::Null => Value::Null,
        Object::List(id) => Value::List(value::ListId(id.0)),
        Object::Dict(id) => Value::Dict(value::DictId(id.0)),
        Object::Instance(id) => Value::Instance(value::InstanceId(id.0)),
        Object::Unknown(id) => Value::Unknown(value::UnknownId(id.0)),
        Object::Other(id) => Value::Other(value::OtherId(id.0)),
    }
}
