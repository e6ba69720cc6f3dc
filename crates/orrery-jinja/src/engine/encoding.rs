//! Filters that encode values: JSON, URLs and XML.

use orrery_python::{is_space, write_json_str};

use super::evaluate::CallArgs;
use super::operators::{number, type_error};
use super::render::{RenderResult, Renderer};
use super::str_methods::{escape, url_quote};
use super::value::{Val, View};
use crate::error::TemplateError;
use crate::model::ModelAccess;
use crate::objects::Object;

impl<M: ModelAccess> Renderer<'_, M> {
    /// JSON that is safe inside HTML; keys are sorted.
    pub(super) fn json(&self, value: &Val, out: &mut String) -> RenderResult<()> {
        match value {
            Val::None => out.push_str("null"),
            Val::Bool(bool) => out.push_str(if *bool { "true" } else { "false" }),
            Val::Int(int) => out.push_str(&int.to_py_str()?),
            Val::Float(float) if float.is_nan() => out.push_str("NaN"),
            Val::Float(float) if *float == f64::INFINITY => out.push_str("Infinity"),
            Val::Float(float) if float.is_infinite() => out.push_str("-Infinity"),
            Val::Float(float) => out.push_str(&orrery_python::repr_float(*float)),
            Val::Str(text) => self.json_text(text, out),
            Val::List(_) | Val::Tuple(_) => {
                out.push('[');
                for (index, item) in self.iterate(value)?.iter().enumerate() {
                    if index > 0 {
                        out.push_str(", ");
                    }
                    self.json(item, out)?;
                }
                out.push(']');
            }
            Val::Dict(entries) => {
                let mut sorted = Vec::new();
                for (key, item) in &*entries.borrow() {
                    let Some(name) = key.value.as_text() else {
                        return Err(self.unsupported("`tojson` of a dict whose keys are no texts"));
                    };
                    sorted.push((name.clone(), item.clone()));
                }
                sorted.sort_by(|(left, _), (right, _)| left.cmp(right));
                out.push('{');
                for (index, (name, item)) in sorted.iter().enumerate() {
                    if index > 0 {
                        out.push_str(", ");
                    }
                    self.json_text(name, out);
                    out.push_str(": ");
                    self.json(item, out)?;
                }
                out.push('}');
            }
            other => {
                let class = other.class();
                let class = if let Val::Undefined(_) = other { "StrictUndefined" } else { class };
                return type_error(format!("Object of type {class} is not JSON serializable"));
            }
        }
        Ok(())
    }

    fn json_text(&self, text: &str, out: &mut String) {
        let mut plain = String::new();
        write_json_str(&mut plain, text);
        for c in plain.chars() {
            match c {
                '<' => out.push_str("\\u003c"),
                '>' => out.push_str("\\u003e"),
                '&' => out.push_str("\\u0026"),
                '\'' => out.push_str("\\u0027"),
                other => out.push(other),
            }
        }
    }

    pub(super) fn url_encoded(&mut self, value: &Val) -> RenderResult<Val> {
        let is_plain = value.as_text().is_some()
            || number(value).is_some()
            || matches!(value, Val::None | Val::Model(Object::Instance(_)));
        if is_plain {
            return Ok(Val::str(url_quote(&self.text(value)?, false)));
        }
        let pairs = match value {
            Val::Dict(_) => {
                let keys = self.iterate(value)?;
                let mut pairs = Vec::new();
                for key in keys {
                    let item = self.plain_item(value, &key)?.unwrap_or(Val::None);
                    pairs.push(vec![key, item]);
                }
                pairs
            }
            other => {
                let items = self.iterate(other)?;
                items.iter().map(|item| self.unpack(item, 2)).collect::<RenderResult<Vec<_>>>()?
            }
        };
        let mut shown = Vec::new();
        for pair in &pairs {
            let (key, item) = (self.text(&pair[0])?, self.text(&pair[1])?);
            shown.push(format!("{}={}", url_quote(&key, true), url_quote(&item, true)));
        }
        Ok(Val::str(shown.join("&")))
    }

    pub(super) fn xml_attributes(&mut self, value: &Val, given: CallArgs) -> RenderResult<Val> {
        let [auto_space] = self.bound("xmlattr", given, ["autospace"])?;
        let auto_space = auto_space.map_or(Ok(true), |flag| self.truth(&flag))?;
        let mut shown = Vec::new();
        let view = match value {
            Val::Dict(entries) => Val::OwnView(View::Items, entries.clone()),
            Val::Model(Object::Dict(id)) => Val::View(View::Items, *id),
            _ => return Err(self.invalid_arguments("xmlattr")),
        };
        for pair in self.iterate(&view)? {
            let [key, item] =
                [self.unpack(&pair, 2)?[0].clone(), self.unpack(&pair, 2)?[1].clone()];
            if matches!(item, Val::None) || item.is_undefined() {
                continue;
            }
            let name = self.text(&key)?;
            if name.contains(|c| is_space(c) || matches!(c, '/' | '>' | '=')) {
                let message = format!("Invalid character in attribute name: {}", self.repr(&key)?);
                return Err(TemplateError::python("ValueError", message));
            }
            shown.push(format!("{}=\"{}\"", escape(&name), escape(&self.text(&item)?)));
        }
        let joined = shown.join(" ");
        Ok(Val::str(if auto_space && !joined.is_empty() { format!(" {joined}") } else { joined }))
    }
}
