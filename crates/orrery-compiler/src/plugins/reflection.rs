//! Plugins that inspect instances and types.

use super::args::{ANY, attribute, class_seen, optional, plugin, require_known, required, text};
use super::{Failure, NativePlugin, ParamDefault, PluginContext, PluginResult};
use crate::value::Value;

pub(super) const PLUGINS: &[NativePlugin] = &[
    plugin!("std::attr", [required("obj", "any"), required("attr", "string")] => ANY, attr),
    plugin!("std::familyof", [required("member", "std::OS"), required("family", "string")] => "bool", familyof),
    plugin!("std::getattr",
        [required("entity", "std::Entity"), required("attribute_name", "string"),
         optional("default_value", ANY, ParamDefault::Null), optional("no_unknown", "bool", ParamDefault::Bool(true))] => ANY,
        get_attribute, allow_unknown: true),
    plugin!("std::is_instance", [required("obj", "any"), required("cls", "string")] => "bool", is_instance),
    plugin!("std::is_unknown", [required("value", ANY)] => "bool", is_unknown, allow_unknown: true),
    plugin!("std::isset", [required("value", "any")] => "bool", isset),
    plugin!("std::objid", [required("value", "any")] => "string", objid),
    plugin!("std::type", [required("obj", "any")] => "any", type_of),
];

fn attr(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let name = text(ctx, args[1])?.to_owned();
    attribute(ctx, args[0], &name)
}

/// An attribute or a default. An unknown instance has no attributes; an unknown value is the
/// result.
fn get_attribute(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let Value::Str(name) = args[1] else {
        let class = class_seen(ctx, args[1]);
        let message = format!("attribute name must be string, not '{class}'");
        return Err(Failure::python("TypeError", message));
    };
    let name = ctx.heap().text(name).to_owned();
    let Value::Instance(instance) = args[0] else {
        return Ok(args[2]);
    };
    match ctx.attribute(instance, &name) {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Ok(args[2]),
        Err(Failure::Unknown(unknown)) => Ok(unknown),
        Err(failure) => Err(failure),
    }
}

fn is_unknown(_: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    Ok(Value::Bool(args[0].is_unknown()))
}

fn isset(_: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    Ok(Value::Bool(!matches!(args[0], Value::Null)))
}

/// Every definition with a full name counts as a type; primitive types have none.
fn is_instance(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let name = text(ctx, args[1])?.to_owned();
    let answer = if name.contains("::") { ctx.is_of_type(args[0], &name).ok() } else { None };
    match (answer, args[0]) {
        (None, _) => {
            let message = "'str' object has no attribute 'get_location'";
            Err(Failure::python("AttributeError", message))
        }
        (Some(answer), Value::Instance(_) | Value::List(_) | Value::Dict(_)) => {
            Ok(Value::Bool(answer))
        }
        (Some(_), other) => Err(no_instance(ctx, other)),
    }
}

fn no_instance(ctx: &dyn PluginContext, value: Value) -> Failure {
    let class = class_seen(ctx, value);
    let message = format!("'{class}' object has no attribute '_get_instance'");
    Failure::python("AttributeError", message)
}

/// Describes an instance, list or dict for debugging.
fn objid(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let class = match args[0] {
        Value::Instance(_) => "inmanta.execute.runtime.Instance",
        Value::List(_) => "list",
        Value::Dict(_) => "dict",
        other => return Err(no_instance(ctx, other)),
    };
    let number = match args[0] {
        Value::Instance(id) => id.0,
        Value::List(id) => id.0,
        Value::Dict(id) => id.0,
        _ => 0,
    };
    let description = format!("({}, '{number}', <class '{class}'>)", ctx.repr(args[0]));
    Ok(ctx.heap_mut().str(&description))
}

/// Reads the type of the attribute `value`. No value of the language has one, so this always fails;
/// it exists because models may name it.
fn type_of(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let value = attribute(ctx, args[0], "value")?;
    let found = attribute(ctx, value, "type")?;
    let class = class_seen(ctx, found);
    Err(Failure::python("TypeError", format!("'{class}' object is not callable")))
}

/// True if an operating system or one of its families has that name. A family without a family
/// matches only itself.
fn familyof(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let wanted = text(ctx, args[1])?.to_owned();
    let mut member = args[0];
    if is_named(ctx, member, &wanted)? {
        return Ok(Value::Bool(true));
    }
    loop {
        let Value::Instance(instance) = member else {
            return Ok(Value::Bool(false));
        };
        let family = match ctx.attribute(instance, "family") {
            Ok(family) => require_known(family.unwrap_or(Value::Null))?,
            Err(Failure::Optional { .. }) => return Ok(Value::Bool(false)),
            Err(failure) => return Err(failure),
        };
        if let Value::Null = family {
            return Ok(Value::Bool(false));
        }
        if is_named(ctx, member, &wanted)? {
            return Ok(Value::Bool(true));
        }
        member = family;
    }
}

fn is_named(ctx: &mut dyn PluginContext, member: Value, wanted: &str) -> Result<bool, Failure> {
    let name = attribute(ctx, member, "name")?;
    Ok(matches!(name, Value::Str(id) if ctx.heap().text(id) == wanted))
}
