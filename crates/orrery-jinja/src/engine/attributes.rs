//! `value.name` as Jinja does it: the object's attributes, then its items.

use std::rc::Rc;

use super::render::{RenderResult, Renderer};
use super::value::{Method, Val};
use crate::error::UndefinedName;
use crate::model::ModelAccess;
use crate::objects::{AttributeValue, InstanceId, Object};

/// Supported methods of Python strings.
const TEXT_METHODS: [&str; 38] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdigit",
    "islower",
    "isspace",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
    "zfill",
];
/// Unsupported ones.
const REFUSED_TEXT_METHODS: [&str; 9] = [
    "encode",
    "format_map",
    "isdecimal",
    "isidentifier",
    "isnumeric",
    "isprintable",
    "istitle",
    "maketrans",
    "translate",
];
const LIST_METHODS: [&str; 11] = [
    "append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse",
    "sort",
];
const DICT_METHODS: [&str; 10] =
    ["clear", "copy", "get", "items", "keys", "pop", "popitem", "setdefault", "update", "values"];
const NUMBER_ATTRIBUTES: [&str; 14] = [
    "real",
    "imag",
    "numerator",
    "denominator",
    "conjugate",
    "bit_length",
    "bit_count",
    "to_bytes",
    "from_bytes",
    "as_integer_ratio",
    "is_integer",
    "hex",
    "fromhex",
    "from_number",
];

impl<M: ModelAccess> Renderer<'_, M> {
    /// `value.name`.
    pub(super) fn attribute(&mut self, value: &Val, name: &Rc<str>) -> RenderResult<Val> {
        self.require_defined(value)?;
        if let Some(found) = self.python_attribute(value, name)? {
            return Ok(found);
        }
        if let Some(found) = self.plain_item(value, &Val::Str(name.clone()))? {
            return Ok(found);
        }
        self.missing(value, name)
    }

    /// The same for `value[name]`, after its item has been tried.
    pub(super) fn attribute_alone(&mut self, value: &Val, name: &Rc<str>) -> RenderResult<Val> {
        match self.python_attribute(value, name)? {
            Some(found) => Ok(found),
            None => self.missing(value, name),
        }
    }

    fn missing(&self, value: &Val, name: &str) -> RenderResult<Val> {
        if let Val::Bare(Object::Instance(_)) = value {
            return Err(
                self.unsupported(&format!("the attribute `{name}` of an instance in `items()`"))
            );
        }
        Ok(Val::undefined(format!("'{}' has no attribute '{name}'", value.description())))
    }

    /// The result of `getattr` alone.
    pub(super) fn python_attribute(
        &mut self,
        value: &Val,
        name: &Rc<str>,
    ) -> RenderResult<Option<Val>> {
        if name.starts_with("__") {
            return Err(self.unsupported(&format!("the attribute `{name}`")));
        }
        if let Val::Model(Object::Instance(id)) = value {
            if let "_type" | "_get_instance" = &**name {
                return Err(self.unsupported(&format!("the attribute `{name}`")));
            }
            return self.instance_attribute(*id, name).map(Some);
        }
        let method =
            || Some(Val::Method(Rc::new(Method { object: value.clone(), name: name.clone() })));
        match known_attribute(value, name) {
            Attribute::Method => return Ok(method()),
            Attribute::Refused => {
                let class = value.class();
                return Err(self.unsupported(&format!("the attribute `{name}` of a {class}")));
            }
            Attribute::Other => {}
        }
        let name: &str = name;
        match value {
            Val::Loop(state) => self.loop_attribute(state, value, name),
            Val::Namespace(entries) => Ok(entries.borrow().get(name).cloned()),
            Val::Macro(found) => Ok(match name {
                "name" => Some(Val::Str(found.name.clone())),
                "arguments" => {
                    let params = found.definition.params.iter().cloned().map(Val::Str);
                    Some(Val::tuple(params.collect()))
                }
                "catch_kwargs" => Some(Val::Bool(found.definition.uses_kwargs)),
                "catch_varargs" => Some(Val::Bool(found.definition.uses_varargs)),
                "caller" => Some(Val::Bool(found.definition.uses_caller)),
                _ => None,
            }),
            Val::Cycler(cycler) => Ok(match name {
                "current" => cycler.items.get(cycler.position.get()).cloned(),
                "next" | "reset" => method(),
                _ => None,
            }),
            Val::Blocks => {
                let is_block = self.blocks.contains_key(name);
                Ok(is_block.then(|| Val::Block(name.into(), 0)))
            }
            Val::Block(block, level) if name == "super" => {
                Ok(Some(self.super_block(block, *level)))
            }
            Val::Module(module) => Ok(module.exports.get(name).cloned()),
            Val::Group(pair) => Ok(match name {
                "grouper" => Some(pair.0.clone()),
                "list" => Some(pair.1.clone()),
                _ => None,
            }),
            _ => Ok(None),
        }
    }

    /// An attribute of an instance. A missing or empty one is an error only when it is
    /// dereferenced.
    fn instance_attribute(&mut self, id: InstanceId, name: &str) -> RenderResult<Val> {
        match self.model.attribute(id, name)? {
            AttributeValue::Found(item) => {
                let value = Val::from_item(item);
                self.known_value(value)
            }
            AttributeValue::Undeclared => {
                let message = format!("variable {name} not set on {}", self.model.describe(id));
                Ok(Val::missing(message, UndefinedName { name: name.into(), of: Some(id) }))
            }
            AttributeValue::Empty => {
                let instance = self.model.describe(id);
                Ok(Val::lenient(format!("variable {name} not set on {instance}")))
            }
        }
    }

    fn loop_attribute(
        &self,
        state: &Rc<super::value::Loop>,
        value: &Val,
        name: &str,
    ) -> RenderResult<Option<Val>> {
        let (index, len) = (state.index.get(), state.items.len());
        let neighbour = |at: Option<usize>, problem: &str| {
            at.and_then(|at| state.items.get(at))
                .cloned()
                .unwrap_or_else(|| Val::undefined(problem))
        };
        Ok(Some(match name {
            "index" => Val::int(index + 1),
            "index0" => Val::int(index),
            "revindex" => Val::int(len - index),
            "revindex0" => Val::int(len - index - 1),
            "first" => Val::Bool(index == 0),
            "last" => Val::Bool(index + 1 == len),
            "length" => Val::int(len),
            "depth" => Val::int(state.depth + 1),
            "depth0" => Val::int(state.depth),
            "previtem" => neighbour(index.checked_sub(1), "there is no previous item"),
            "nextitem" => neighbour(index.checked_add(1), "there is no next item"),
            "cycle" | "changed" => {
                Val::Method(Rc::new(Method { object: value.clone(), name: name.into() }))
            }
            _ => return Ok(None),
        }))
    }
}

/// Kind of attribute of a Python built-in type.
enum Attribute {
    Method,
    Refused,
    Other,
}

fn known_attribute(value: &Val, name: &str) -> Attribute {
    let (methods, refused): (&[&str], &[&str]) = match value {
        Val::Str(_) => (&TEXT_METHODS, &REFUSED_TEXT_METHODS),
        Val::Markup(_) => (&[], &TEXT_METHODS),
        Val::Int(_) | Val::Bool(_) | Val::Float(_) => (&[], &NUMBER_ATTRIBUTES),
        Val::List(_) => (&LIST_METHODS, &[]),
        Val::Tuple(_) => (&["count", "index"], &[]),
        Val::Range(..) => (&[], &["start", "stop", "step", "count", "index"]),
        Val::Dict(_) => (&DICT_METHODS, &["fromkeys"]),
        Val::Model(Object::List(_)) | Val::Bare(Object::List(_)) => {
            (&["count", "index", "copy"], &LIST_METHODS)
        }
        Val::Model(Object::Dict(_)) | Val::Bare(Object::Dict(_)) => {
            (&["get", "items", "keys", "values", "copy"], &DICT_METHODS)
        }
        Val::Joiner(_) => (&[], &["sep", "used"]),
        _ => (&[], &[]),
    };
    if methods.contains(&name) {
        Attribute::Method
    } else if refused.contains(&name) {
        Attribute::Refused
    } else {
        Attribute::Other
    }
}
