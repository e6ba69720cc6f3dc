//! Plugins that read the context of the compile: environment variables, the server, facts.
//!
//! A compile without a server uses the default settings.

use orrery_python::parse_int;

use super::args::{optional, plugin, required, text};
use super::{
    Failure, NativePlugin, ParamDefault, PluginContext, PluginResult, ServerEnvironmentInfo,
};
use crate::value::Value;

pub(super) const PLUGINS: &[NativePlugin] = &[
    plugin!("std::environment", [] => "string", environment),
    plugin!("std::environment_name", [] => "string", environment_name),
    plugin!("std::environment_server", [] => "string", environment_server),
    plugin!("std::get_env",
        [required("name", "string"), optional("default_value", "string?", ParamDefault::Null)] => "string", get_env),
    plugin!("std::get_env_int",
        [required("name", "string"), optional("default_value", "int?", ParamDefault::Null)] => "int", get_env_int,
        deprecated: Some("int(std::get_env(...))")),
    plugin!("std::getfact",
        [required("resource", "any"), required("fact_name", "string"),
         optional("default_value", "any", ParamDefault::Null)] => "any", getfact),
    plugin!("std::server_ca", [] => "string", server_ca),
    plugin!("std::server_port", [] => "int", server_port),
    plugin!("std::server_ssl", [] => "bool", server_ssl),
    plugin!("std::server_token",
        [optional("client_types", "string[]", ParamDefault::Strs(&["agent"]))] => "string", server_token),
    plugin!("std::timestamp", [optional("dummy", "any", ParamDefault::Null)] => "int", timestamp),
];

/// The variable, else the default, else an unknown with a warning.
fn get_env(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let name = text(ctx, args[0])?.to_owned();
    if let Some(value) = ctx.environment_variable(&name) {
        return Ok(ctx.heap_mut().str(&value));
    }
    Ok(missing_variable(ctx, &name, args[1]))
}

fn get_env_int(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let name = text(ctx, args[0])?.to_owned();
    if let Some(value) = ctx.environment_variable(&name) {
        let number = parse_int(&value)?;
        return Ok(ctx.heap_mut().int(number));
    }
    Ok(missing_variable(ctx, &name, args[1]))
}

fn missing_variable(ctx: &mut dyn PluginContext, name: &str, default: Value) -> Value {
    if !matches!(default, Value::Null) {
        return default;
    }
    ctx.warn(&format!(
        "Environment variable {name} doesn't exist, returning Unknown(source='{name}') instead"
    ));
    ctx.heap_mut().unknown(None)
}

fn environment(ctx: &mut dyn PluginContext, _: &[Value]) -> PluginResult {
    let id = server(ctx).ok_or_else(no_environment)?.environment;
    Ok(ctx.heap_mut().str(&id))
}

fn environment_name(ctx: &mut dyn PluginContext, _: &[Value]) -> PluginResult {
    let name = server(ctx).ok_or_else(no_environment)?.environment_name;
    Ok(ctx.heap_mut().str(&name))
}

fn no_environment() -> Failure {
    let message = "The environment of this model should be configured in config>environment";
    Failure::python("Exception", message)
}

fn server(ctx: &dyn PluginContext) -> Option<ServerEnvironmentInfo> {
    ctx.server().cloned()
}

fn environment_server(ctx: &mut dyn PluginContext, _: &[Value]) -> PluginResult {
    let host = server(ctx).map_or_else(|| "localhost".to_owned(), |server| server.host);
    Ok(ctx.heap_mut().str(&host))
}

fn server_port(ctx: &mut dyn PluginContext, _: &[Value]) -> PluginResult {
    Ok(Value::Int(ctx.server().map_or(8888, |server| server.port.into())))
}

fn server_ssl(ctx: &mut dyn PluginContext, _: &[Value]) -> PluginResult {
    Ok(Value::Bool(ctx.server().is_some_and(|server| server.tls)))
}

fn server_ca(ctx: &mut dyn PluginContext, _: &[Value]) -> PluginResult {
    let ca = server(ctx).map_or_else(String::new, |server| server.ca);
    Ok(ctx.heap_mut().str(&ca))
}

/// Always empty: a token would be visible in versions and logs to every reader.
fn server_token(ctx: &mut dyn PluginContext, _: &[Value]) -> PluginResult {
    Ok(ctx.heap_mut().str(""))
}

fn timestamp(ctx: &mut dyn PluginContext, _: &[Value]) -> PluginResult {
    Ok(Value::Int(ctx.now() as i64))
}

/// A fact of a resource: its value, or the default, or an unknown that represents it. Without a
/// deployment there is no environment to query.
fn getfact(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let Value::Instance(resource) = args[0] else {
        let class = match args[0] {
            Value::List(_) | Value::Dict(_) => ctx.heap().class_name(args[0]).to_owned(),
            other => super::args::class_seen(ctx, other),
        };
        let message = format!("'{class}' object has no attribute '_type'");
        return Err(Failure::python("AttributeError", message));
    };
    let id = match super::late_values::resource_id(ctx, args[0]) {
        // Module code may define what becomes a resource.
        Err(Failure::Python(error)) if error.kind == "Exception" => {
            return Err(Failure::NeedsOtherHost(Box::new(error.into())));
        }
        id => id?,
    };
    let name = text(ctx, args[1])?.to_owned();
    let Some(facts) = ctx.facts() else { return Err(no_environment()) };
    if let Some(value) = facts.fact(&id, &name) {
        return Ok(ctx.heap_mut().str(&value));
    }
    if !matches!(args[2], Value::Null) {
        return Ok(args[2]);
    }
    Ok(ctx.heap_mut().unknown(Some(resource)))
}
