//! `std::format`: Python's `str.format` over model values.

use orrery_python::{FormatArg, FormatField, ascii_of_repr, format_value, parse_format, repr_str};

use super::args::{
    attribute, class_seen, keywords, plugin, position, require_known, required, rest, text,
};
use super::{Failure, NativePlugin, PluginContext, PluginResult};
use crate::value::Value;

pub(super) const PLUGINS: &[NativePlugin] = &[plugin!("std::format",
    [required("__string", "string"), rest("args", "any"), keywords("kwargs", "any")] => "string", format)];

/// Maximum nesting: a field specification may contain fields, but no deeper.
const NESTING_MAX: usize = 2;

struct Formatter<'a> {
    ctx: &'a mut dyn PluginContext,
    positional: Value,
    named: Value,
    numbering: Numbering,
}

/// `{}` is numbered automatically, `{0}` explicitly; a template must not mix them.
enum Numbering {
    Undecided,
    Automatic(usize),
    Manual,
}

pub(super) fn format(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let template = text(ctx, args[0])?.to_owned();
    let mut formatter =
        Formatter { ctx, positional: args[1], named: args[2], numbering: Numbering::Undecided };
    let result = formatter.format(&template, NESTING_MAX)?;
    Ok(ctx.heap_mut().str(&result))
}

impl Formatter<'_> {
    fn format(&mut self, template: &str, depth: usize) -> Result<String, Failure> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(Failure::python("ValueError", "Max string recursion exceeded"));
        };
        let mut out = String::new();
        for part in parse_format(template)? {
            out.push_str(&part.literal);
            if let Some(field) = part.field {
                let value = self.value(&field)?;
                let spec = if field.spec.contains(['{', '}']) {
                    self.format(&field.spec, depth)?
                } else {
                    field.spec
                };
                out.push_str(&self.format_field(value, field.conversion, &spec)?);
            }
        }
        Ok(out)
    }

    fn format_field(
        &self,
        value: Value,
        conversion: Option<char>,
        spec: &str,
    ) -> Result<String, Failure> {
        let shown = self.ctx.proxy_str(value);
        let repr = || match value {
            Value::Str(_) => repr_str(&shown),
            _ => shown.clone(),
        };
        let converted = match conversion {
            Some('r') => Some(repr()),
            Some('a') => Some(ascii_of_repr(&repr())),
            Some('s') => Some(shown.clone()),
            Some(other) => {
                let message = format!("Unknown conversion specifier {other}");
                return Err(Failure::python("ValueError", message));
            }
            None => None,
        };
        let class = class_seen(self.ctx, value);
        let int = match value {
            Value::Int(_) | Value::Big(_) => Some(super::args::integer(self.ctx, value)?),
            _ => None,
        };
        let arg = match (&converted, value, &int) {
            (Some(converted), _, _) => FormatArg::Str(converted),
            (None, _, Some(int)) => FormatArg::Int(int),
            (None, Value::Str(_), _) => FormatArg::Str(&shown),
            (None, Value::Float(float), _) => FormatArg::Float(float),
            (None, Value::Bool(bool), _) => FormatArg::Bool(bool),
            (None, Value::Null, _) => FormatArg::None,
            _ => FormatArg::Other { type_name: &class, text: &shown },
        };
        Ok(format_value(arg, spec)?)
    }

    /// Resolves a field: an argument, then attributes and items of it.
    fn value(&mut self, field: &FormatField) -> PluginResult {
        let name = field.name.as_str();
        let first = name.find(['.', '[']).unwrap_or(name.len());
        let (argument, mut path) = name.split_at(first);
        let mut value = self.argument(argument)?;
        while !path.is_empty() {
            if let Some(rest) = path.strip_prefix('.') {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                let (attribute_name, rest) = rest.split_at(end);
                if attribute_name.is_empty() {
                    return Err(empty_attribute());
                }
                value = attribute(self.ctx, value, attribute_name)?;
                path = rest;
            } else if let Some(rest) = path.strip_prefix('[') {
                let Some((index, rest)) = rest.split_once(']') else {
                    return Err(Failure::python("ValueError", "Missing ']' in format string"));
                };
                if index.is_empty() {
                    return Err(empty_attribute());
                }
                value = self.item(value, index)?;
                path = rest;
            } else {
                let message = "Only '.' or '[' may follow ']' in format field specifier";
                return Err(Failure::python("ValueError", message));
            }
        }
        Ok(value)
    }

    fn argument(&mut self, name: &str) -> PluginResult {
        let index = if name.is_empty() {
            let next = match self.numbering {
                Numbering::Undecided => 0,
                Numbering::Automatic(next) => next,
                Numbering::Manual => {
                    let message = "cannot switch from manual field specification to automatic field numbering";
                    return Err(Failure::python("ValueError", message));
                }
            };
            self.numbering = Numbering::Automatic(next + 1);
            next
        } else if name.bytes().all(|byte| byte.is_ascii_digit()) {
            if let Numbering::Automatic(_) = self.numbering {
                let message =
                    "cannot switch from automatic field numbering to manual field specification";
                return Err(Failure::python("ValueError", message));
            }
            self.numbering = Numbering::Manual;
            name.parse().map_err(|_| {
                Failure::python("ValueError", "Too many decimal digits in format string")
            })?
        } else {
            return self.keyword(name);
        };
        let found = match self.positional {
            Value::List(id) => self.ctx.heap().items(id).get(index).copied(),
            _ => None,
        };
        require_known(found.ok_or_else(|| {
            let message =
                format!("Replacement index {index} out of range for positional args tuple");
            Failure::python("IndexError", message)
        })?)
    }

    fn keyword(&self, name: &str) -> PluginResult {
        let heap = self.ctx.heap();
        let found = match (self.named, heap.find_text(name)) {
            (Value::Dict(id), Some(key)) => heap.entries(id).get(&key).copied(),
            _ => None,
        };
        require_known(found.ok_or_else(|| Failure::python("KeyError", repr_str(name)))?)
    }

    fn item(&mut self, value: Value, index: &str) -> PluginResult {
        let number = index.bytes().all(|byte| byte.is_ascii_digit()).then(|| index.parse::<i64>());
        match (value, number) {
            (Value::List(id), Some(Ok(number))) => {
                let len = self.ctx.heap().items(id).len();
                let found = position(self.ctx, Value::Int(number), len, "list")?;
                require_known(self.ctx.heap().items(id)[found])
            }
            (Value::Str(id), Some(Ok(number))) => {
                let chars: Vec<char> = self.ctx.heap().text(id).chars().collect();
                let found = position(self.ctx, Value::Int(number), chars.len(), "string")?;
                Ok(self.ctx.heap_mut().str(chars[found].encode_utf8(&mut [0; 4])))
            }
            (Value::Dict(id), None) => {
                let heap = self.ctx.heap();
                let found = heap.find_text(index).and_then(|key| heap.entries(id).get(&key));
                require_known(*found.ok_or_else(|| Failure::python("KeyError", repr_str(index)))?)
            }
            (Value::Dict(_), Some(_)) => {
                Err(Failure::python("KeyError", index.trim_start_matches('0')))
            }
            // List proxies interpret a text as an attribute name.
            (Value::List(_), _) => attribute(self.ctx, value, index),
            (Value::Str(_), _) => {
                let message = "string indices must be integers, not 'str'";
                Err(Failure::python("TypeError", message))
            }
            (other, _) => {
                let class = class_seen(self.ctx, other);
                let message = format!("'{class}' object is not subscriptable");
                Err(Failure::python("TypeError", message))
            }
        }
    }
}

fn empty_attribute() -> Failure {
    Failure::python("ValueError", "Empty attribute in format string")
}
