//! Plugins that create late-bound values (`Reference` in the language), which only the agent
//! resolves.
//!
//! A late-bound value is carried as `Value::Other`. Its class defines the type that it resolves to,
//! and its text contains a number derived from its arguments, so that equal late-bound values
//! compare as equal.

use std::hash::{BuildHasher, BuildHasherDefault};

use rustc_hash::FxHasher;

use super::args::{ANY, attribute, plugin, require_known, required, text};
use super::files::exception;
use super::{Failure, NativePlugin, PluginContext, PluginResult, ResourceIdentity};
use crate::late_values::{LateValue, LateValueArgument};
use crate::value::{Other, Value};

pub(super) const PLUGINS: &[NativePlugin] = &[
    plugin!("std::create_environment_reference", [required("name", "Reference[string] | string")]
        => "Reference[string]", create_environment_reference),
    plugin!("std::create_fact_reference", [required("resource", "std::Resource"), required("fact_name", "string")]
        => "Reference[string]", create_fact_reference),
    plugin!("std::create_int_reference", [required("value", ANY)] => "Reference[int]", create_int_reference),
    plugin!("std::create_secret_reference", [required("name", "string")] => "Reference[string]", create_secret_reference),
    plugin!("std::create_file_reference", [required("path", "string")] => "Reference[string]", create_file_reference),
    plugin!("std::create_command_reference", [required("command", "string[]")]
        => "Reference[string]", create_command_reference),
];

/// The type that a late-bound value resolves to, `None` for other values.
fn referenced_type(class: &str) -> Option<&'static str> {
    match class {
        "inmanta_plugins.std.IntReference" => Some("int"),
        "inmanta_plugins.std.EnvironmentReference"
        | "inmanta_plugins.std.FactReference"
        | "inmanta_plugins.std.SecretReference"
        | "inmanta_plugins.std.FileReference"
        | "inmanta_plugins.std.CommandReference" => Some("string"),
        _ => None,
    }
}

fn late_bound(
    ctx: &mut dyn PluginContext,
    class: &str,
    arguments: &str,
    late_value: Option<LateValue>,
) -> Value {
    let number = BuildHasherDefault::<FxHasher>::default().hash_one(arguments) & 0xffff_ffff_fff0;
    let repr = format!("<{class} object at 0x7f{number:012x}>");
    carried_value(ctx, class.to_owned(), repr, late_value)
}

fn carried_value(
    ctx: &mut dyn PluginContext,
    class: String,
    repr: String,
    late_value: Option<LateValue>,
) -> Value {
    let reference = referenced_type(&class).map(Box::from);
    let late_value = late_value.map(Box::new);
    ctx.heap_mut().other(Other { class, repr, reference, owned: None, late_value })
}

/// A late-bound value with one argument, which may be late-bound itself. Values that only module
/// code can resolve cannot be serialized here.
fn with_argument(
    ctx: &mut dyn PluginContext,
    kind: &str,
    name: &str,
    value: Value,
) -> Option<LateValue> {
    let heap = ctx.heap();
    let argument = match value {
        Value::Str(text) => LateValueArgument::Literal(heap.text(text).into()),
        Value::Int(int) => LateValueArgument::Literal(int.into()),
        Value::Bool(truth) => LateValueArgument::Literal(truth.into()),
        Value::Other(_) => LateValueArgument::Reference(heap.late_value(value)?),
        _ => return None,
    };
    Some(LateValue::new(kind, &[(name, argument)]))
}

fn create_int_reference(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let arguments = ctx.repr(args[0]);
    let late_value = with_argument(ctx, "std::IntReference", "value", args[0]);
    Ok(late_bound(ctx, "inmanta_plugins.std.IntReference", &arguments, late_value))
}

fn create_environment_reference(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let arguments = ctx.repr(args[0]);
    let late_value = with_argument(ctx, "std::Environment", "name", args[0]);
    Ok(late_bound(ctx, "inmanta_plugins.std.EnvironmentReference", &arguments, late_value))
}

fn create_secret_reference(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let arguments = ctx.repr(args[0]);
    let late_value = with_argument(ctx, "std::Secret", "name", args[0]);
    Ok(late_bound(ctx, "inmanta_plugins.std.SecretReference", &arguments, late_value))
}

fn create_file_reference(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let arguments = ctx.repr(args[0]);
    let late_value = with_argument(ctx, "std::SecretFile", "path", args[0]);
    Ok(late_bound(ctx, "inmanta_plugins.std.FileReference", &arguments, late_value))
}

fn create_command_reference(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let arguments = ctx.repr(args[0]);
    let Value::List(list) = args[0] else {
        return Err(exception("The command is not a list of texts.".to_owned()));
    };
    let items = ctx.heap().items(list).to_vec();
    let words: Result<Vec<String>, _> =
        items.into_iter().map(|item| text(ctx, item).map(str::to_owned)).collect();
    let words = words?;
    if words.is_empty() {
        return Err(exception("The command is empty.".to_owned()));
    }
    let command = LateValueArgument::Structure(words.into());
    let late_value = LateValue::new("std::SecretCommand", &[("command", command)]);
    Ok(late_bound(ctx, "inmanta_plugins.std.CommandReference", &arguments, Some(late_value)))
}

fn create_fact_reference(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let id = resource_id(ctx, args[0])?;
    let fact = text(ctx, args[1])?;
    let repr = format!("FactReference[resource_id={id},fact_name={fact}]");
    Ok(carried_value(ctx, "inmanta_plugins.std.FactReference".to_owned(), repr, None))
}

/// `type[agent,attribute=value]` of an exported instance.
pub(super) fn resource_id(ctx: &mut dyn PluginContext, resource: Value) -> Result<String, Failure> {
    let identity = match resource {
        Value::Instance(instance) => ctx.identity(instance),
        _ => None,
    };
    let Some(ResourceIdentity { entity, agent: way, attribute: id_attribute, computed, .. }) =
        identity
    else {
        return Err(exception("Facts can only be retreived from resources.".to_owned()));
    };
    if computed {
        let message = format!("The id of a {entity} is known to its own code only.");
        return Err(exception(message));
    }
    let mut agent = resource;
    for name in way.split('.') {
        agent = attribute(ctx, agent, name)?;
    }
    let value = require_known(attribute(ctx, resource, &id_attribute)?)?;
    let (agent, value) = (ctx.proxy_str(agent), ctx.proxy_str(value));
    if value.contains(']') {
        let shown = orrery_python::repr_str(&value);
        let message = format!("Invalid attribute value {shown}: cannot contain ']'.");
        return Err(Failure::python("ValueError", message));
    }
    Ok(format!("{entity}[{agent},{id_attribute}={value}]"))
}
