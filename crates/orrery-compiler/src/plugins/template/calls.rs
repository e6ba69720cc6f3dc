//! Model plugins as filters.

use super::super::{NativePlugin, ParamDefault, ParamKind, native_plugins};
use super::check::plugin_name;
use super::evaluate::CallArgs;
use super::operators::type_error;
use super::render::{RenderResult, Renderer};
use super::value::Val;
use crate::value::{Dict, Value};

impl Renderer<'_> {
    /// Calls a plugin as a filter. Its arguments are not type-checked, as in the reference
    /// compiler.
    pub(super) fn call_plugin(
        &mut self,
        filter: &str,
        value: Val,
        given: CallArgs,
    ) -> RenderResult<Val> {
        let plugin = plugin_name(filter);
        if let Some((name, _)) = given.named.first() {
            return type_error(format!(
                "_get_template_engine.<locals>.curywrapper.<locals>.safewrapper() got an unexpected \
                 keyword argument '{name}'"
            ));
        }
        if let ("std::json_dumps", Val::Model(model)) = (plugin.as_str(), &value) {
            // Python's JSON encoder does not support the proxies that templates see.
            let shown = self.ctx.proxy_str(*model);
            return type_error(format!("{shown} is not JSON serializable"));
        }
        let mut args = vec![self.model_value(&value)?];
        for value in &given.positional {
            args.push(self.model_value(value)?);
        }
        let native = native_plugins().binary_search_by(|native| native.name.cmp(&plugin));
        let result = match native {
            Ok(found) => {
                let native = &native_plugins()[found];
                let args = self.bind(native, args)?;
                (native.run)(&mut *self.ctx, &args)?
            }
            Err(_) => self.ctx.call(&plugin, &args)?,
        };
        self.template_value(result)
    }

    /// Fills in the defaults of a plugin, with Python's error messages about the number of
    /// arguments.
    fn bind(&mut self, plugin: &NativePlugin, args: Vec<Value>) -> RenderResult<Vec<Value>> {
        let function = plugin.name.rsplit("::").next().unwrap_or(plugin.name);
        let given = args.len();
        let mut args = args.into_iter();
        let mut bound = Vec::new();
        let mut missing = Vec::new();
        for param in plugin.params {
            let heap = self.ctx.heap_mut();
            bound.push(match (param.kind, param.default) {
                (ParamKind::VarPositional, _) => heap.list(args.by_ref().collect()),
                (ParamKind::VarKeyword, _) => heap.dict(Dict::default()),
                (_, default) => match (args.next(), default) {
                    (Some(value), _) => value,
                    (None, ParamDefault::Null) => Value::Null,
                    (None, ParamDefault::Bool(bool)) => Value::Bool(bool),
                    (None, ParamDefault::Int(int)) => Value::Int(int),
                    (None, ParamDefault::Str(text)) => heap.str(text),
                    (None, ParamDefault::Strs(texts)) => {
                        let texts = texts.iter().map(|text| heap.str(text)).collect();
                        heap.list(texts)
                    }
                    (None, ParamDefault::Required) => {
                        missing.push(format!("'{}'", param.name));
                        Value::Null
                    }
                },
            });
        }
        if args.next().is_some() {
            let most = plugin.params.len();
            let least = plugin
                .params
                .iter()
                .filter(|param| matches!(param.default, ParamDefault::Required))
                .count();
            let expected = match (least == most, most) {
                (true, 1) => "1 positional argument".to_owned(),
                (true, most) => format!("{most} positional arguments"),
                (false, most) => format!("from {least} to {most} positional arguments"),
            };
            return type_error(format!("{function}() takes {expected} but {given} were given"));
        }
        match missing.as_slice() {
            [] => Ok(bound),
            [only] => {
                type_error(format!("{function}() missing 1 required positional argument: {only}"))
            }
            [first @ .., last] => {
                let count = missing.len();
                let comma = if first.len() > 1 { "," } else { "" };
                type_error(format!(
                    "{function}() missing {count} required positional arguments: {}{comma} and {last}",
                    first.join(", ")
                ))
            }
        }
    }

    /// Converts a value to a model value, for plugins.
    pub(super) fn model_value(&mut self, value: &Val) -> RenderResult<Value> {
        self.require_defined(value)?;
        Ok(match value {
            Val::None => Value::Null,
            Val::Bool(bool) => Value::Bool(*bool),
            Val::Int(int) => self.ctx.heap_mut().int(int.clone()),
            Val::Float(float) => Value::Float(*float),
            Val::Str(text) | Val::Markup(text) => self.ctx.heap_mut().str(text),
            Val::Model(model) | Val::Bare(model) => *model,
            Val::List(_) | Val::Tuple(_) | Val::Range(..) | Val::OwnView(..) | Val::View(..) => {
                let items = self.iterate(value)?;
                let items = items
                    .iter()
                    .map(|item| self.model_value(item))
                    .collect::<RenderResult<Vec<_>>>()?;
                self.ctx.heap_mut().list(items)
            }
            Val::Dict(entries) => {
                let mut dict = Dict::default();
                for (key, item) in &*entries.borrow() {
                    let Some(name) = key.value.as_text() else {
                        return Err(self.unsupported("a dict whose keys are no texts for a plugin"));
                    };
                    let item = self.model_value(item)?;
                    dict.insert(self.ctx.heap_mut().intern(name), item);
                }
                self.ctx.heap_mut().dict(dict)
            }
            other => {
                let class = other.class();
                return Err(self.unsupported(&format!("a {class} as the argument of a plugin")));
            }
        })
    }
}
