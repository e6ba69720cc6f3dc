//! Reads arguments and list items like Python code behind a proxy, with Python's error messages.
//!
//! Arguments arrive validated against their declared types, so a mismatch here is only possible for
//! parameters of type `any`; it still ends as an error, never as a panic.

use orrery_python::Int;

use super::{Failure, Param, ParamDefault, ParamKind, PluginContext};
use crate::value::Value;

pub(super) const fn required(name: &'static str, ty: &'static str) -> Param {
    Param { name, ty, default: ParamDefault::Required, kind: ParamKind::Normal }
}

pub(super) const fn optional(name: &'static str, ty: &'static str, default: ParamDefault) -> Param {
    Param { name, ty, default, kind: ParamKind::Normal }
}

pub(super) const fn rest(name: &'static str, ty: &'static str) -> Param {
    Param { name, ty, default: ParamDefault::Required, kind: ParamKind::VarPositional }
}

pub(super) const fn keywords(name: &'static str, ty: &'static str) -> Param {
    Param { name, ty, default: ParamDefault::Required, kind: ParamKind::VarKeyword }
}

/// Declared type of "any value, references included".
pub(super) const ANY: &str = "Reference[any] | any";
/// Declared type of a list of these.
pub(super) const ANY_LIST: &str = "(Reference[any] | any)[]";

/// One entry of a table of plugins.
macro_rules! plugin {
    ($name:literal, [$($param:expr),* $(,)?] => $returns:expr, $run:expr $(, $field:ident: $value:expr)*) => {
        $crate::plugins::NativePlugin {
            name: $name,
            params: &[$($param),*],
            returns: $returns,
            run: $run,
            $($field: $value,)*
            ..$crate::plugins::NativePlugin::BASE
        }
    };
}
pub(super) use plugin;

/// The class that Python code sees for an argument: lists, dicts and instances are proxies.
pub(super) fn class_seen(ctx: &dyn PluginContext, value: Value) -> String {
    match value {
        Value::Null => "NoneType".to_owned(),
        Value::List(_) => "SequenceProxy".to_owned(),
        Value::Dict(_) => "DictProxy".to_owned(),
        Value::Instance(_) => "DynamicProxy".to_owned(),
        Value::Other(id) => {
            let class = &ctx.heap().get_other(id).class;
            class.rsplit('.').next().unwrap_or(class).to_owned()
        }
        _ => ctx.heap().class_name(value).to_owned(),
    }
}

fn expected(ctx: &dyn PluginContext, what: &str, value: Value) -> Failure {
    Failure::python("TypeError", format!("expected {what}, not '{}'", class_seen(ctx, value)))
}

pub(super) fn text(ctx: &dyn PluginContext, value: Value) -> Result<&str, Failure> {
    match value {
        Value::Str(id) => Ok(ctx.heap().text(id)),
        other => Err(expected(ctx, "str", other)),
    }
}

pub(super) fn truth(ctx: &dyn PluginContext, value: Value) -> bool {
    ctx.heap().truthy(value)
}

pub(super) fn items(ctx: &dyn PluginContext, value: Value) -> Result<&[Value], Failure> {
    match value {
        Value::List(id) => Ok(ctx.heap().items(id)),
        other => Err(expected(ctx, "list", other)),
    }
}

/// Python's `len()`. Models pass only valid arguments; templates may pass anything.
pub(super) fn python_len(ctx: &dyn PluginContext, value: Value) -> Result<usize, Failure> {
    match value {
        Value::Str(id) => Ok(ctx.heap().text(id).chars().count()),
        Value::List(id) => Ok(ctx.heap().items(id).len()),
        Value::Dict(id) => Ok(ctx.heap().entries(id).len()),
        other => {
            let message = format!("object of type '{}' has no len()", class_seen(ctx, other));
            Err(Failure::python("TypeError", message))
        }
    }
}

/// An integer argument; booleans count as integers.
pub(super) fn integer(ctx: &dyn PluginContext, value: Value) -> Result<Int, Failure> {
    match value {
        Value::Int(i) => Ok(Int::Small(i)),
        Value::Bool(b) => Ok(Int::Small(i64::from(b))),
        Value::Big(id) => Ok(ctx.heap().big(id).clone()),
        other => Err(expected(ctx, "int", other)),
    }
}

/// An integer argument; values beyond `i64` are clamped, as in Python's slices.
pub(super) fn clamped(ctx: &dyn PluginContext, value: Value) -> Result<i64, Failure> {
    let int = integer(ctx, value)?;
    let end = if int.is_negative() { i64::MIN } else { i64::MAX };
    Ok(int.to_i64().unwrap_or(end))
}

/// `sequence[index]`: negative indexes count from the end.
pub(super) fn position(
    ctx: &dyn PluginContext,
    index: Value,
    len: usize,
    sequence: &str,
) -> Result<usize, Failure> {
    let Int::Small(index) = integer(ctx, index)? else {
        return Err(Failure::python("IndexError", "cannot fit 'int' into an index-sized integer"));
    };
    let from_start = if index < 0 { index.checked_add_unsigned(len as u64) } else { Some(index) };
    from_start
        .and_then(|i| usize::try_from(i).ok())
        .filter(|&i| i < len)
        .ok_or_else(|| Failure::python("IndexError", format!("{sequence} index out of range")))
}

/// A value that Python code reads: an unknown ends the call.
pub(super) fn require_known(value: Value) -> Result<Value, Failure> {
    if value.is_unknown() { Err(Failure::Unknown(value)) } else { Ok(value) }
}

/// `getattr(value, name)` of the Python object for a value.
pub(super) fn attribute(
    ctx: &mut dyn PluginContext,
    value: Value,
    name: &str,
) -> Result<Value, Failure> {
    let message = match value {
        Value::Instance(instance) => match ctx.attribute(instance, name)? {
            Some(found) => return require_known(found),
            None => format!("(None, '{name}')"),
        },
        Value::List(_) => "'list' object has no attribute 'get_attribute'".to_owned(),
        Value::Dict(_) => "'dict' object has no attribute 'get_attribute'".to_owned(),
        other => format!("'{}' object has no attribute '{name}'", class_seen(ctx, other)),
    };
    Err(Failure::python("AttributeError", message))
}
