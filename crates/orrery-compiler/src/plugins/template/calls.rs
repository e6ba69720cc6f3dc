//! Model plugins as filters.

use orrery_jinja::{Argument, ModelAccess};

use super::super::{Failure, NativePlugin, ParamDefault, ParamKind, PluginResult, native_plugins};
use super::model::TemplateModel;
use crate::value::{Dict, Value};

/// The plugin that a dotted filter name refers to.
pub(super) fn plugin_name(filter: &str) -> String {
    filter.replace('.', "::")
}

fn type_error<T>(message: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::python("TypeError", message))
}

impl TemplateModel<'_> {
    /// Calls a plugin as a filter. Its arguments are not type-checked, as in the reference
    /// compiler.
    pub(super) fn call_plugin(&mut self, filter: &str, args: Vec<Argument>) -> PluginResult {
        let plugin = plugin_name(filter);
        if let ("std::json_dumps", Some(Argument::Proxy(object))) = (plugin.as_str(), args.first())
        {
            // Python's JSON encoder does not support the proxies that templates see.
            let shown = self.proxy_text(*object);
            return type_error(format!("{shown} is not JSON serializable"));
        }
        let args = args.into_iter().map(|arg| self.value(arg)).collect::<Vec<_>>();
        let native = native_plugins().binary_search_by(|native| native.name.cmp(&plugin));
        match native {
            Ok(found) => {
                let native = &native_plugins()[found];
                let args = self.bind(native, args)?;
                (native.run)(self.ctx, &args)
            }
            Err(_) => self.ctx.call(&plugin, &args),
        }
    }

    /// Fills in the defaults of a plugin, with Python's error messages about the number of
    /// arguments.
    fn bind(&mut self, plugin: &NativePlugin, args: Vec<Value>) -> Result<Vec<Value>, Failure> {
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
}
