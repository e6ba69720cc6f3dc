//! Jinja's built-in filters. Those over sequences are in `sequence_filters`.

use std::cell::RefCell;
use std::rc::Rc;

use indexmap::IndexMap;
use orrery_python::{
    Int, Number, is_space, parse_float, parse_int, str_capitalize, str_lower, str_upper,
};

use super::evaluate::{CallArgs, no_such_name};
use super::operators::{number, type_error};
use super::render::{RenderResult, Renderer};
use super::str_methods::{center, escape, file_size, indent, split_lines, title, truncate, wrap};
use super::tests::to_integer;
use super::value::{Key, Val};
use crate::error::TemplateError;
use crate::model::ModelAccess;

/// Names of Jinja's filters that this engine has.
pub const FILTERS: [&str; 50] = [
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "filesizeformat",
    "first",
    "float",
    "forceescape",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "urlencode",
    "wordcount",
    "wordwrap",
    "xmlattr",
];

/// Filters that only Python supports: random choice, large tables, or its own pretty-printer.
pub(super) const REFUSED_FILTERS: [&str; 4] = ["pprint", "random", "striptags", "urlize"];

impl<M: ModelAccess> Renderer<'_, M> {
    pub(super) fn filter(&mut self, name: &str, value: Val, given: CallArgs) -> RenderResult<Val> {
        if name.contains('.') {
            if !self.model.has_filter(name) {
                return Err(no_such_name("filter", name));
            }
            return self.call_plugin(name, value, given);
        }
        if REFUSED_FILTERS.contains(&name) {
            return Err(self.unsupported(&format!("the filter `{name}`")));
        }
        if FILTERS.binary_search(&name).is_err() {
            return Err(no_such_name("filter", name));
        }
        if let Some(result) = self.item_filter(name, &value, &given)? {
            return Ok(result);
        }
        self.plain_filter(name, &value, given)
    }

    pub(super) fn invalid_arguments(&self, name: &str) -> TemplateError {
        self.unsupported(&format!("these arguments of the filter `{name}`"))
    }

    /// Binds the arguments of a filter by name.
    pub(super) fn bound<const N: usize>(
        &self,
        name: &str,
        given: CallArgs,
        params: [&str; N],
    ) -> RenderResult<[Option<Val>; N]> {
        given.bound(params).ok_or_else(|| self.invalid_arguments(name))
    }

    pub(super) fn flag(&self, value: Option<Val>) -> RenderResult<bool> {
        value.map_or(Ok(false), |value| self.truth(&value))
    }

    fn plain_filter(&mut self, name: &str, value: &Val, given: CallArgs) -> RenderResult<Val> {
        match name {
            "abs" => {
                self.bound(name, given, [])?;
                self.absolute(value)
            }
            "attr" => {
                let [attribute] = self.bound(name, given, ["name"])?;
                let attribute = attribute.ok_or_else(|| self.invalid_arguments(name))?;
                let attribute = self.text(&attribute)?;
                self.require_defined(value)?;
                self.attribute_alone(value, &attribute)
            }
            "default" | "d" => {
                let [default, boolean] = self.bound(name, given, ["default_value", "boolean"])?;
                let boolean = self.flag(boolean)?;
                let is_absent = value.is_undefined() || (boolean && !self.truth(value)?);
                Ok(if is_absent { default.unwrap_or(Val::str("")) } else { value.clone() })
            }
            "int" | "float" => self.convert_number(name, value, given),
            "round" => self.round_number(value, given),
            "filesizeformat" => {
                let [binary] = self.bound(name, given, ["binary"])?;
                let binary = self.flag(binary)?;
                let bytes = match value.as_text() {
                    Some(text) => parse_float(text)?,
                    None => match number(value) {
                        Some(number) => number.to_f64()?,
                        None => return Err(self.invalid_arguments(name)),
                    },
                };
                Ok(Val::str(file_size(bytes, binary)))
            }
            "string" => {
                self.bound(name, given, [])?;
                match value {
                    Val::Markup(_) => Ok(value.clone()),
                    other => Ok(Val::Str(self.text(other)?)),
                }
            }
            "safe" => {
                self.bound(name, given, [])?;
                Ok(Val::Markup(self.text(value)?))
            }
            "escape" | "e" | "forceescape" => {
                self.bound(name, given, [])?;
                match value {
                    Val::Markup(_) if name != "forceescape" => Ok(value.clone()),
                    other => Ok(Val::Markup(escape(&self.text(other)?))),
                }
            }
            "format" => self.format_percent(value, given),
            "tojson" => {
                let [indent] = self.bound(name, given, ["indent"])?;
                if indent.is_some_and(|indent| !matches!(indent, Val::None)) {
                    return Err(self.invalid_arguments(name));
                }
                let mut out = String::new();
                self.json(value, &mut out)?;
                Ok(Val::Markup(out.into()))
            }
            "wordcount" => {
                self.bound(name, given, [])?;
                let text = self.text(value)?;
                let is_word = |c: char| c.is_alphanumeric() || c == '_';
                let words = text.split(|c| !is_word(c)).filter(|word| !word.is_empty());
                Ok(Val::int(words.count()))
            }
            "urlencode" => {
                self.bound(name, given, [])?;
                self.url_encoded(value)
            }
            "xmlattr" => self.xml_attributes(value, given),
            _ => {
                if let Val::Markup(_) = value {
                    return Err(self.unsupported(&format!(
                        "the filter `{name}` on text that is marked as HTML"
                    )));
                }
                if let Some(result) = self.not_a_text(name, value)? {
                    return Ok(result);
                }
                let text = self.text(value)?;
                self.text_filter(name, &text, given).map(Val::str)
            }
        }
    }

    /// The error for filters that do not convert their argument to a text.
    fn not_a_text(&self, name: &str, value: &Val) -> RenderResult<Option<Val>> {
        if value.as_text().is_some() || !matches!(name, "indent" | "truncate" | "wordwrap") {
            return Ok(None);
        }
        self.require_defined(value)?;
        let class = value.class();
        match name {
            _ if self.iterate_is_possible(value) => {
                Err(self.unsupported(&format!("the filter `{name}` on a {class}")))
            }
            "indent" => {
                type_error(format!("unsupported operand type(s) for +=: '{class}' and 'str'"))
            }
            "truncate" => type_error(format!("object of type '{class}' has no len()")),
            _ => {
                let message = format!("'{class}' object has no attribute 'splitlines'");
                Err(TemplateError::python("AttributeError", message))
            }
        }
    }

    fn text_filter(&mut self, name: &str, text: &str, given: CallArgs) -> RenderResult<String> {
        let simple: Option<fn(&str) -> String> = match name {
            "capitalize" => Some(str_capitalize),
            "lower" => Some(str_lower),
            "upper" => Some(str_upper),
            "title" => Some(title),
            _ => None,
        };
        if let Some(simple) = simple {
            self.bound(name, given, [])?;
            return Ok(simple(text));
        }
        let size = |value: Option<Val>, default: i64| {
            value.map_or(Ok(default), |value| to_integer(&value))
        };
        let unsigned = |value: i64| usize::try_from(value).unwrap_or(0);
        Ok(match name {
            "center" => {
                let [width] = self.bound(name, given, ["width"])?;
                center(text, unsigned(size(width, 80)?), ' ')
            }
            "indent" => {
                let [width, first, blank] = self.bound(name, given, ["width", "first", "blank"])?;
                let indention = match width {
                    Some(Val::Str(text)) => text.to_string(),
                    width => " ".repeat(unsigned(size(width, 4)?)),
                };
                indent(text, &indention, self.flag(first)?, self.flag(blank)?)
            }
            "replace" => {
                let [old, new, count] = self.bound(name, given, ["old", "new", "count"])?;
                let (Some(old), Some(new)) = (old, new) else {
                    return Err(self.invalid_arguments(name));
                };
                let (old, new) = (self.text(&old)?, self.text(&new)?);
                match count {
                    None | Some(Val::None) => text.replace(&*old, &new),
                    Some(count) => match to_integer(&count)? {
                        count if count < 0 => text.replace(&*old, &new),
                        count => text.replacen(&*old, &new, unsigned(count)),
                    },
                }
            }
            "trim" => {
                let [chars] = self.bound(name, given, ["chars"])?;
                match chars {
                    None | Some(Val::None) => text.trim_matches(is_space).to_owned(),
                    Some(chars) => {
                        let chars = self.text(&chars)?;
                        text.trim_matches(|c| chars.contains(c)).to_owned()
                    }
                }
            }
            "truncate" => {
                let [length, kill_words, end, leeway] =
                    self.bound(name, given, ["length", "killwords", "end", "leeway"])?;
                let end = match end {
                    Some(end) => self.text(&end)?,
                    None => "...".into(),
                };
                let leeway = leeway.filter(|leeway| !matches!(leeway, Val::None));
                let (length, leeway) = (size(length, 255)?, size(leeway, 5)?);
                let shortest = end.chars().count() as i64;
                if length < shortest {
                    let message = format!("expected length >= {shortest}, got {length}");
                    return Err(TemplateError::python("AssertionError", message));
                }
                if leeway < 0 {
                    let message = format!("expected leeway >= 0, got {leeway}");
                    return Err(TemplateError::python("AssertionError", message));
                }
                let kill_words = self.flag(kill_words)?;
                truncate(text, unsigned(length), kill_words, &end, unsigned(leeway))
            }
            "wordwrap" => self.word_wrap(text, given)?,
            _ => return Err(no_such_name("filter", name)),
        })
    }

    fn word_wrap(&mut self, text: &str, given: CallArgs) -> RenderResult<String> {
        let params = ["width", "break_long_words", "wrapstring", "break_on_hyphens"];
        let [width, break_long_words, separator, on_hyphens] =
            self.bound("wordwrap", given, params)?;
        let on_hyphens = on_hyphens.map_or(Ok(true), |flag| self.truth(&flag))?;
        if text.contains(['\t', '\u{b}', '\u{c}']) || (on_hyphens && text.contains('-')) {
            return Err(self.unsupported("the filter `wordwrap` on text with hyphens or tabs"));
        }
        let width = usize::try_from(width.map_or(Ok(79), |width| to_integer(&width))?).unwrap_or(0);
        if width == 0 {
            return Err(self.invalid_arguments("wordwrap"));
        }
        let break_long_words = break_long_words.map_or(Ok(true), |flag| self.truth(&flag))?;
        let separator = match separator {
            None | Some(Val::None) => "\n".into(),
            Some(separator) => self.text(&separator)?,
        };
        let lines: Vec<String> = split_lines(text, false)
            .into_iter()
            .map(|line| wrap(line, width, break_long_words).join(&separator))
            .collect();
        Ok(lines.join(&separator))
    }

    fn absolute(&self, value: &Val) -> RenderResult<Val> {
        match value {
            Val::Int(int) if int.is_negative() => Ok(Val::Int(int.neg())),
            Val::Int(_) => Ok(value.clone()),
            Val::Bool(bool) => Ok(Val::Int(Int::from(*bool))),
            Val::Float(float) => Ok(Val::Float(float.abs())),
            other => type_error(format!("bad operand type for abs(): '{}'", other.class())),
        }
    }

    /// `int` and `float`: a value that cannot be converted gives the default.
    fn convert_number(&mut self, name: &str, value: &Val, given: CallArgs) -> RenderResult<Val> {
        if name == "float" {
            let [default] = self.bound(name, given, ["default"])?;
            self.defined_if_strict(value)?;
            let converted = match value.as_text() {
                Some(text) => parse_float(text).ok(),
                None => number(value).and_then(|number| number.to_f64().ok()),
            };
            return Ok(converted.map_or_else(|| default.unwrap_or(Val::Float(0.0)), Val::Float));
        }
        let [default, base] = self.bound(name, given, ["default", "base"])?;
        self.defined_if_strict(value)?;
        let base = base.map_or(Ok(10), |base| to_integer(&base))?;
        let from_float = |float: f64| Int::from_f64_trunc(float).ok();
        let converted = match (value.as_text(), number(value)) {
            (Some(text), _) if base == 10 => {
                parse_int(text).ok().or_else(|| parse_float(text).ok().and_then(from_float))
            }
            (Some(text), _) => match in_base(text, base) {
                Some(int) => Some(int),
                None => parse_float(text).ok().and_then(from_float),
            },
            (None, Some(Number::Int(int))) => Some(int),
            (None, Some(Number::Float(float))) => from_float(float),
            (None, None) => None,
        };
        let zero = || Val::Int(Int::Small(0));
        Ok(converted.map_or_else(|| default.unwrap_or_else(zero), Val::Int))
    }

    /// Conversions suppress type errors, but not the error of a missing value.
    fn defined_if_strict(&self, value: &Val) -> RenderResult<()> {
        match value {
            Val::Undefined(_) => self.require_defined(value).map(|_| ()),
            _ => Ok(()),
        }
    }

    fn round_number(&mut self, value: &Val, given: CallArgs) -> RenderResult<Val> {
        let [precision, method] = self.bound("round", given, ["precision", "method"])?;
        let precision = precision.map_or(Ok(0), |precision| to_integer(&precision))?;
        let method = match method {
            Some(method) => self.text(&method)?,
            None => "common".into(),
        };
        let Some(found) = number(value) else {
            let class = value.class();
            return type_error(format!("type {class} doesn't define __round__ method"));
        };
        if !(0..=300).contains(&precision) {
            return Err(self.invalid_arguments("round"));
        }
        let digits = usize::try_from(precision).unwrap_or(0);
        match (&*method, found) {
            ("common", Number::Int(int)) => Ok(Val::Int(int)),
            ("common", Number::Float(float)) if !float.is_finite() => Ok(Val::Float(float)),
            ("common", Number::Float(float)) => {
                Ok(Val::Float(parse_float(&format!("{float:.digits$}"))?))
            }
            ("ceil" | "floor", found) => {
                let scale = 10f64.powi(i32::try_from(precision).unwrap_or(0));
                let scaled = found.to_f64()? * scale;
                let whole = if &*method == "ceil" { scaled.ceil() } else { scaled.floor() };
                Ok(Val::Float(whole / scale))
            }
            _ => {
                let message = "method must be common, ceil or floor";
                Err(TemplateError::python("jinja2.exceptions.FilterArgumentError", message))
            }
        }
    }

    fn format_percent(&mut self, value: &Val, given: CallArgs) -> RenderResult<Val> {
        let template = self.text(value)?;
        if !given.positional.is_empty() && !given.named.is_empty() {
            let message = "can't handle positional and keyword arguments at the same time";
            return Err(TemplateError::python("jinja2.exceptions.FilterArgumentError", message));
        }
        if given.named.is_empty() {
            return self.percent(&template, &Val::tuple(given.positional));
        }
        let named: IndexMap<Key, Val> =
            given.named.into_iter().map(|(name, value)| (Key::text(&name), value)).collect();
        self.percent(&template, &Val::Dict(Rc::new(RefCell::new(named))))
    }
}

/// Python's `int(text, base)` for common bases.
fn in_base(text: &str, base: i64) -> Option<Int> {
    let radix = u32::try_from(base).ok().filter(|radix| (2..=36).contains(radix))?;
    let text = text.trim_matches(is_space).to_lowercase();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(&text)),
    };
    let prefix = match radix {
        2 => "0b",
        8 => "0o",
        16 => "0x",
        _ => "\0",
    };
    let digits = digits.strip_prefix(prefix).unwrap_or(digits);
    if digits.starts_with(['-', '+']) || digits.contains('_') {
        return None;
    }
    let number = num_bigint::BigInt::parse_bytes(format!("{sign}{digits}").as_bytes(), radix)?;
    Some(Int::from(number))
}
