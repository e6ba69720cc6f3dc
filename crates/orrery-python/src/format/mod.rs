//! `str.format`: templates cut into parts, and `format(value, spec)` for scalars.

mod number;
mod spec;
mod template;

pub(crate) use number::{FloatKind, character, float_text, in_radix};
pub use template::{FormatField, FormatPart, parse_format};

use crate::float::repr_float;
use crate::{Int, PyError};
use spec::{Align, Spec};

/// A longer result is refused: only a mistaken width or precision asks for it.
pub(crate) const FORMATTED_CHARS_MAX: usize = 64 << 20;

/// A value to be formatted.
#[derive(Clone, Copy, Debug)]
pub enum FormatArg<'a> {
    Str(&'a str),
    Int(&'a Int),
    Float(f64),
    Bool(bool),
    None,
    /// Any other object: the name of its Python type and its `str()`.
    Other {
        type_name: &'a str,
        text: &'a str,
    },
}

impl FormatArg<'_> {
    /// The name of the value's Python type.
    pub fn type_name(&self) -> &str {
        match self {
            FormatArg::Str(_) => "str",
            FormatArg::Int(_) => "int",
            FormatArg::Float(_) => "float",
            FormatArg::Bool(_) => "bool",
            FormatArg::None => "NoneType",
            FormatArg::Other { type_name, .. } => type_name,
        }
    }

    /// Python's `str(value)`.
    pub fn to_py_str(&self) -> Result<String, PyError> {
        Ok(match self {
            FormatArg::Str(text) => text.to_string(),
            FormatArg::Int(value) => value.to_py_str()?,
            FormatArg::Float(value) => repr_float(*value),
            FormatArg::Bool(value) => if *value { "True" } else { "False" }.to_string(),
            FormatArg::None => "None".to_string(),
            FormatArg::Other { text, .. } => text.to_string(),
        })
    }
}

/// Python's `format(value, spec)`.
pub fn format_value(value: FormatArg<'_>, spec: &str) -> Result<String, PyError> {
    if spec.is_empty() {
        return value.to_py_str();
    }
    match value {
        FormatArg::Str(text) => format_str(text, spec),
        FormatArg::Int(value) => number::format_int(value, spec, "int"),
        FormatArg::Bool(value) => number::format_int(&Int::from(value), spec, "bool"),
        FormatArg::Float(value) => number::format_float(value, spec),
        FormatArg::None | FormatArg::Other { .. } => Err(PyError::type_error(format!(
            "unsupported format string passed to {}.__format__",
            value.type_name()
        ))),
    }
}

fn format_str(text: &str, spec: &str) -> Result<String, PyError> {
    let spec = Spec::parse(spec, "str", Some('s'), Align::Left)?;
    if spec.kind != Some('s') {
        return Err(spec.unknown_kind("str"));
    }
    if let Some(sign) = spec.sign {
        let what = if sign == ' ' { "Space" } else { "Sign" };
        return Err(PyError::value(format!("{what} not allowed in string format specifier")));
    }
    if spec.no_negative_zero {
        return Err(PyError::value(
            "Negative zero coercion (z) not allowed in string format specifier",
        ));
    }
    if spec.alternate {
        return Err(PyError::value("Alternate form (#) not allowed in string format specifier"));
    }
    if spec.align == Align::AfterSign {
        return Err(PyError::value("'=' alignment not allowed in string format specifier"));
    }
    let shown = match spec.precision.and_then(|limit| text.char_indices().nth(limit)) {
        Some((end, _)) => &text[..end],
        None => text,
    };
    spec.pad("", shown)
}
