//! Plugins on texts, conditions and output.

use md5::{Digest, Md5};
use orrery_python::{str_capitalize, str_lower, str_split, str_upper};

use super::args::{ANY, clamped, class_seen, optional, plugin, python_len, required, text, truth};
use super::{Failure, NativePlugin, ParamDefault, PluginContext, PluginResult};
use crate::value::{TEXT_BYTES_MAX, Value};

pub(super) const PLUGINS: &[NativePlugin] = &[
    plugin!("std::assert",
        [required("expression", "bool"), optional("message", "string", ParamDefault::Str(""))] => "any", assert),
    plugin!("std::capitalize", [required("string", "string")] => "string", capitalize),
    plugin!("std::equals",
        [required("arg1", "any"), required("arg2", "any"), optional("desc", "string", ParamDefault::Null)] => "any",
        equals, deprecated: Some("the `==` binary operator")),
    plugin!("std::hostname", [required("fqdn", "string")] => "string", hostname),
    plugin!("std::inlineif", [required("conditional", "bool"), required("a", "any"), required("b", "any")] => "any",
        inlineif),
    plugin!("std::invert", [required("value", "bool")] => "bool", invert,
        deprecated: Some("the `not` unary operator")),
    plugin!("std::length", [required("value", "string")] => "int", length),
    plugin!("std::limit", [required("string", "string"), required("length", "int")] => "string", limit),
    plugin!("std::lower", [required("string", "string")] => "string", lower),
    plugin!("std::print", [required("message", ANY)] => "any", print),
    plugin!("std::replace",
        [required("string", "string"), required("old", "string"), required("new", "string")] => "string", replace),
    plugin!("std::split", [required("string_list", "string"), required("delim", "string")] => "list", split),
    plugin!("std::unique_file",
        [required("prefix", "string"), required("seed", "string"), required("suffix", "string"),
         optional("length", "int", ParamDefault::Int(20))] => "string", unique_file),
    plugin!("std::upper", [required("string", "string")] => "string", upper),
];

fn print(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let line = ctx.proxy_str(args[0]);
    ctx.print(&line);
    Ok(Value::Null)
}

fn assert(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    if truth(ctx, args[0]) {
        return Ok(Value::Null);
    }
    let message = format!("Assertion error: {}", text(ctx, args[1])?);
    Err(Failure::python("AssertionError", message))
}

fn equals(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    if ctx.heap().equal(args[0], args[1]) {
        return Ok(Value::Null);
    }
    let mut message = format!("{} != {}", ctx.proxy_str(args[0]), ctx.proxy_str(args[1]));
    if let Value::Str(_) = args[2] {
        message.push_str(": ");
        message.push_str(text(ctx, args[2])?);
    }
    Err(Failure::python("AssertionError", message))
}

fn inlineif(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    Ok(if truth(ctx, args[0]) { args[1] } else { args[2] })
}

fn invert(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    Ok(Value::Bool(!truth(ctx, args[0])))
}

fn map_text(
    ctx: &mut dyn PluginContext,
    value: Value,
    map: impl Fn(&str) -> String,
) -> PluginResult {
    let result = map(text(ctx, value)?);
    Ok(ctx.heap_mut().str(&result))
}

/// The text of a method call; templates may pass another type.
fn with_method<'c>(
    ctx: &'c dyn PluginContext,
    value: Value,
    method: &str,
) -> Result<&'c str, Failure> {
    match value {
        Value::Str(id) => Ok(ctx.heap().text(id)),
        other => {
            let class = class_seen(ctx, other);
            let message = format!("'{class}' object has no attribute '{method}'");
            Err(Failure::python("AttributeError", message))
        }
    }
}

fn upper(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    with_method(ctx, args[0], "upper")?;
    map_text(ctx, args[0], str_upper)
}

fn lower(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    with_method(ctx, args[0], "lower")?;
    map_text(ctx, args[0], str_lower)
}

fn capitalize(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    with_method(ctx, args[0], "capitalize")?;
    map_text(ctx, args[0], str_capitalize)
}

fn hostname(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    map_text(ctx, args[0], |fqdn| fqdn.split('.').next().unwrap_or_default().to_owned())
}

fn length(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    Ok(Value::Int(python_len(ctx, args[0])? as i64))
}

/// `text[:length]`: a negative length leaves out that many characters at the end.
fn limit(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let (whole, length) = (text(ctx, args[0])?, clamped(ctx, args[1])?);
    let kept = if length >= 0 {
        usize::try_from(length).unwrap_or(usize::MAX)
    } else {
        let dropped = usize::try_from(length.unsigned_abs()).unwrap_or(usize::MAX);
        whole.chars().count().saturating_sub(dropped)
    };
    map_text(ctx, args[0], |whole| whole.chars().take(kept).collect())
}

fn replace(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let whole = with_method(ctx, args[0], "replace")?;
    let (old, new) = (text(ctx, args[1])?, text(ctx, args[2])?);
    if new.len() > old.len() {
        let more = whole.matches(old).count().saturating_mul(new.len() - old.len());
        if whole.len().saturating_add(more) > TEXT_BYTES_MAX {
            return Err(Failure::python("MemoryError", "text would be longer than 1 GiB"));
        }
    }
    let result = whole.replace(old, new);
    Ok(ctx.heap_mut().str(&result))
}

fn split(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let whole = with_method(ctx, args[0], "split")?.to_owned();
    let delimiter = text(ctx, args[1])?.to_owned();
    let heap = ctx.heap_mut();
    let parts = str_split(&whole, &delimiter)?.into_iter().map(|part| heap.str(part)).collect();
    Ok(heap.list(parts))
}

/// A file name that depends only on the seed. The length is accepted and ignored.
fn unique_file(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let digest = Md5::digest(text(ctx, args[1])?);
    let mut name = text(ctx, args[0])?.to_owned();
    for byte in digest {
        name.push_str(&format!("{byte:02x}"));
    }
    name.push_str(text(ctx, args[2])?);
    Ok(ctx.heap_mut().str(&name))
}
