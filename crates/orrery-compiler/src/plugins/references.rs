//! Plugins that make references: values that only the agent resolves.
//!
//! A reference is carried as `Value::Other`. Its class says what it resolves to, and its text holds a
//! number made from its arguments, so that references to the same thing are equal.

use std::hash::{BuildHasher, BuildHasherDefault};

use rustc_hash::FxHasher;

use super::args::{ANY, attribute, known, plugin, required, text};
use super::files::exception;
use super::{Context, Failure, Identity, NativePlugin, Outcome};
use crate::reference::{Argument, WrittenReference};
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

/// The type of what a reference resolves to, `None` if the value is no reference.
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

fn reference(
    ctx: &mut dyn Context,
    class: &str,
    arguments: &str,
    written: Option<WrittenReference>,
) -> Value {
    let number = BuildHasherDefault::<FxHasher>::default().hash_one(arguments) & 0xffff_ffff_fff0;
    let repr = format!("<{class} object at 0x7f{number:012x}>");
    carried(ctx, class.to_owned(), repr, written)
}

fn carried(
    ctx: &mut dyn Context,
    class: String,
    repr: String,
    written: Option<WrittenReference>,
) -> Value {
    let reference = referenced_type(&class).map(Box::from);
    let written = written.map(Box::new);
    ctx.heap_mut().other(Other { class, repr, reference, owned: None, written })
}

/// A reference with one argument, which may be a reference itself. What only code can resolve cannot be written down here.
fn with_argument(
    ctx: &mut dyn Context,
    kind: &str,
    name: &str,
    value: Value,
) -> Option<WrittenReference> {
    let heap = ctx.heap();
    let argument = match value {
        Value::Str(text) => Argument::Literal(heap.text(text).into()),
        Value::Int(int) => Argument::Literal(int.into()),
        Value::Bool(truth) => Argument::Literal(truth.into()),
        Value::Other(_) => Argument::Reference(heap.written(value)?),
        _ => return None,
    };
    Some(WrittenReference::new(kind, &[(name, argument)]))
}

fn create_int_reference(ctx: &mut dyn Context, args: &[Value]) -> Outcome {
    let arguments = ctx.repr(args[0]);
    let written = with_argument(ctx, "std::IntReference", "value", args[0]);
    Ok(reference(ctx, "inmanta_plugins.std.IntReference", &arguments, written))
}

fn create_environment_reference(ctx: &mut dyn Context, args: &[Value]) -> Outcome {
    let arguments = ctx.repr(args[0]);
    let written = with_argument(ctx, "std::Environment", "name", args[0]);
    Ok(reference(ctx, "inmanta_plugins.std.EnvironmentReference", &arguments, written))
}

fn create_secret_reference(ctx: &mut dyn Context, args: &[Value]) -> Outcome {
    let arguments = ctx.repr(args[0]);
    let written = with_argument(ctx, "std::Secret", "name", args[0]);
    Ok(reference(ctx, "inmanta_plugins.std.SecretReference", &arguments, written))
}

fn create_file_reference(ctx: &mut dyn Context, args: &[Value]) -> Outcome {
    let arguments = ctx.repr(args[0]);
    let written = with_argument(ctx, "std::SecretFile", "path", args[0]);
    Ok(reference(ctx, "inmanta_plugins.std.FileReference", &arguments, written))
}

fn create_command_reference(ctx: &mut dyn Context, args: &[Value]) -> Outcome {
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
    let command = Argument::Structure(words.into());
    let written = WrittenReference::new("std::SecretCommand", &[("command", command)]);
    Ok(reference(ctx, "inmanta_plugins.std.CommandReference", &arguments, Some(written)))
}

fn create_fact_reference(ctx: &mut dyn Context, args: &[Value]) -> Outcome {
    let id = resource_id(ctx, args[0])?;
    let fact = text(ctx, args[1])?;
    let repr = format!("FactReference[resource_id={id},fact_name={fact}]");
    Ok(carried(ctx, "inmanta_plugins.std.FactReference".to_owned(), repr, None))
}

/// `type[agent,attribute=value]` of an instance that is exported.
pub(super) fn resource_id(ctx: &mut dyn Context, resource: Value) -> Result<String, Failure> {
    let identity = match resource {
        Value::Instance(instance) => ctx.identity(instance),
        _ => None,
    };
    let Some(Identity { entity, agent: way, attribute: id_attribute, computed, .. }) = identity
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
    let value = known(attribute(ctx, resource, &id_attribute)?)?;
    let (agent, value) = (ctx.proxy_str(agent), ctx.proxy_str(value));
    if value.contains(']') {
        let shown = orrery_python::repr_str(&value);
        let message = format!("Invalid attribute value {shown}: cannot contain ']'.");
        return Err(Failure::python("ValueError", message));
    }
    Ok(format!("{entity}[{agent},{id_attribute}={value}]"))
}
