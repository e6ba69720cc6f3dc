//! `std::validate_type`: validates a value against a named type of pydantic or of Python's standard
//! library. The refinement types of `std` call it for every assignment, so accepting a value
//! allocates nothing.

mod decimal;
mod email;
mod numbers;
mod texts;
mod urls;

use super::address;
use super::args::{optional, plugin, required, text};
use super::{Failure, NativePlugin, ParamDefault, PluginContext, PluginResult};
use crate::value::Value;

pub(super) const PLUGINS: &[NativePlugin] = &[
    plugin!("std::is_base64_encoded", [required("s", "string")] => "bool", is_base64_encoded),
    plugin!("std::validate_type",
        [required("fq_type_name", "string"), required("value", "any"),
         optional("validation_parameters", "dict[string, any]", ParamDefault::Null)] => "bool", validate_type),
];

fn validate_type(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let name = text(ctx, args[0])?;
    let parameters = match args[2] {
        Value::Dict(id) if !ctx.heap().entries(id).is_empty() => Some(id),
        _ => None,
    };
    let Some((module, class)) = name.split_once('.') else {
        return Ok(Value::Bool(false));
    };
    if !matches!(module, "pydantic" | "datetime" | "ipaddress" | "uuid") {
        return Ok(Value::Bool(false));
    }
    let value = args[1];
    if let "constr" | "conint" | "confloat" | "condecimal" = class
        && module == "pydantic"
    {
        let accepted = match class {
            "constr" => texts::constr(ctx, value, parameters)?,
            "conint" => numbers::conint(ctx, value, parameters)?,
            "confloat" => numbers::confloat(ctx, value, parameters)?,
            _ => numbers::condecimal(ctx, value, parameters)?,
        };
        return Ok(Value::Bool(accepted));
    }
    if parameters.is_some() {
        return Ok(Value::Bool(false));
    }
    let accepted = if let Value::Str(id) = value {
        accepts_text(name, ctx.heap().text(id))
    } else {
        accepts_other(ctx, name, value)
    };
    accepted.map(Value::Bool).ok_or_else(|| unsupported(module, class))
}

/// The failure for an unsupported name: most do not exist in Python either.
fn unsupported(module: &str, class: &str) -> Failure {
    Failure::python("AttributeError", format!("module '{module}' has no attribute '{class}'"))
}

/// True if a text is acceptable; `None` if there is no such type.
fn accepts_text(name: &str, text: &str) -> Option<bool> {
    Some(match name {
        "ipaddress.IPv4Address" => address::v4_address(text).is_some(),
        "ipaddress.IPv4Interface" => address::v4_interface(text).is_some(),
        "ipaddress.IPv4Network" => address::v4_network(text).is_some(),
        "ipaddress.IPv6Address" => address::v6_address(text).is_some(),
        "ipaddress.IPv6Interface" => address::v6_interface(text).is_some(),
        "ipaddress.IPv6Network" => address::v6_network(text).is_some(),
        "pydantic.IPvAnyAddress" => address::any_address(text).is_some(),
        "pydantic.IPvAnyInterface" => address::any_interface(text).is_some(),
        "pydantic.IPvAnyNetwork" => address::any_network(text).is_some(),
        "datetime.date" => texts::is_date(text),
        "datetime.time" => texts::is_time(text),
        "datetime.datetime" => texts::is_datetime(text),
        "datetime.timedelta" => texts::is_timedelta(text),
        "uuid.UUID" => texts::is_uuid(text),
        "pydantic.EmailStr" => email::is_address(text),
        "pydantic.NameEmail" => email::is_name_and_address(text),
        "pydantic.AnyUrl" => urls::is_url(text),
        "pydantic.AnyHttpUrl" => urls::is_any_http_url(text),
        "pydantic.HttpUrl" => urls::is_http_url(text),
        "pydantic.StrictStr" => true,
        _ => return numbers::accepts_text(name, text),
    })
}

/// The same for values other than texts.
fn accepts_other(ctx: &dyn PluginContext, name: &str, value: Value) -> Option<bool> {
    if let Some(accepted) = numbers::accepts_number(ctx, name, value) {
        return Some(accepted);
    }
    accepts_text(name, "").map(|_| false)
}

/// Strict base64: the alphabet only, padded to whole groups.
fn is_base64_encoded(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let bytes = text(ctx, args[0])?.as_bytes();
    let padding = bytes.iter().rev().take(2).take_while(|&&byte| byte == b'=').count();
    let digits = &bytes[..bytes.len() - padding];
    let alphabet = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    Ok(Value::Bool(bytes.len() % 4 == 0 && digits.iter().all(alphabet)))
}
