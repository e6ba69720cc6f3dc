//! Converts values to text: Python's `str()`, `repr()` and `%`.

use std::rc::Rc;

use orrery_python::{
    FormatArg, Int, PercentArg, PercentArgs, percent_format, repr_float, repr_str,
};

use super::render::{RenderResult, Renderer};
use super::value::{Val, View};
use crate::error::TemplateError;
use crate::model::ModelAccess;
use crate::objects::Object;

impl<M: ModelAccess> Renderer<'_, M> {
    /// Python's `str()`.
    pub(super) fn text(&self, value: &Val) -> RenderResult<Rc<str>> {
        Ok(match value {
            Val::Str(text) | Val::Markup(text) => text.clone(),
            Val::Undefined(undefined) if undefined.lenient => "".into(),
            Val::Undefined(_) => self.require_defined(value).map(|_| "".into())?,
            Val::Module(module) => module.body.clone(),
            other => self.repr(other)?.into(),
        })
    }

    fn write_joined<'v>(
        &self,
        items: impl IntoIterator<Item = &'v Val>,
        out: &mut String,
    ) -> RenderResult<()> {
        for (at, item) in items.into_iter().enumerate() {
            if at > 0 {
                out.push_str(", ");
            }
            self.write_repr(item, out)?;
        }
        Ok(())
    }

    /// Python's `repr()`.
    pub(super) fn repr(&self, value: &Val) -> RenderResult<String> {
        let mut out = String::new();
        self.write_repr(value, &mut out)?;
        Ok(out)
    }

    fn write_repr(&self, value: &Val, out: &mut String) -> RenderResult<()> {
        // A list that contains another one twice can have a text of exponential size.
        if self.model.is_too_long(out) {
            return Err(TemplateError::python("MemoryError", "the text is too long"));
        }
        match value {
            Val::Tuple(items) => {
                out.push('(');
                self.write_joined(&**items, out)?;
                out.push_str(if items.len() == 1 { ",)" } else { ")" });
            }
            Val::List(items) => {
                out.push('[');
                self.write_joined(&*items.borrow(), out)?;
                out.push(']');
            }
            Val::Dict(entries) => {
                out.push('{');
                for (at, (key, item)) in entries.borrow().iter().enumerate() {
                    if at > 0 {
                        out.push_str(", ");
                    }
                    self.write_repr(&key.value, out)?;
                    out.push_str(": ");
                    self.write_repr(item, out)?;
                }
                out.push('}');
            }
            Val::OwnView(view, _) => {
                let items = self.iterate(value)?;
                out.push_str(view_name(*view));
                out.push_str("([");
                self.write_joined(&items, out)?;
                out.push_str("])");
            }
            other => out.push_str(&self.plain_repr(other)?),
        }
        Ok(())
    }

    /// The `repr()` of values other than lists and dicts of the template.
    fn plain_repr(&self, value: &Val) -> RenderResult<String> {
        Ok(match value {
            Val::Tuple(_) | Val::List(_) | Val::Dict(_) | Val::OwnView(..) => self.repr(value)?,
            Val::Undefined(_) => "Undefined".to_owned(),
            Val::None => "None".to_owned(),
            Val::Bool(bool) => if *bool { "True" } else { "False" }.to_owned(),
            Val::Int(int) => int.to_py_str()?,
            Val::Float(float) => repr_float(*float),
            Val::Str(text) => repr_str(text),
            Val::Markup(text) => format!("Markup({})", repr_str(text)),
            Val::Range(start, stop, 1) => format!("range({start}, {stop})"),
            Val::Range(start, stop, step) => format!("range({start}, {stop}, {step})"),
            Val::Model(model) => self.model.proxy_text(*model),
            Val::Bare(model) => self.model.repr(*model),
            Val::View(view, id) => {
                let entries = self.model.entry_reprs(*id).into_iter();
                let entries = entries.map(|(key, item)| match view {
                    View::Keys => key,
                    View::Values => item,
                    View::Items => format!("({key}, {item})"),
                });
                let entries: Vec<String> = entries.collect();
                format!("@{}([{}])", view_name(*view), entries.join(", "))
            }
            Val::Iterator(iterator) if !iterator.function.is_empty() => {
                format!("<generator object {} at 0x7f0000000000>", iterator.function)
            }
            Val::Iterator(iterator) => format!("<{} object at 0x7f0000000000>", iterator.class),
            Val::Method(method) => {
                let (proxy, class) = match &method.object {
                    Val::Model(Object::List(_)) => ("@", "list"),
                    Val::Model(Object::Dict(_)) => ("@", "dict"),
                    object => ("", object.class()),
                };
                let name = &method.name;
                format!("{proxy}<built-in method {name} of {class} object at 0x7f0000000000>")
            }
            Val::Global("range") => "<class 'range'>".to_owned(),
            Val::Global("dict") => "<class 'dict'>".to_owned(),
            Val::Global(name) => {
                let mut class = (*name).to_owned();
                class[..1].make_ascii_uppercase();
                format!("<class 'jinja2.utils.{class}'>")
            }
            Val::Macro(definition) => format!("<Macro {}>", repr_str(&definition.name)),
            Val::Loop(state) => {
                format!("<LoopContext {}/{}>", state.index.get() + 1, state.items.len())
            }
            Val::Namespace(entries) => {
                let mut shown = Vec::new();
                for (name, item) in &*entries.borrow() {
                    shown.push(format!("{}: {}", repr_str(name), self.repr(item)?));
                }
                format!("<Namespace {{{}}}>", shown.join(", "))
            }
            Val::Cycler(_) => "<jinja2.utils.Cycler object at 0x7f0000000000>".to_owned(),
            Val::Joiner(_) => "<jinja2.utils.Joiner object at 0x7f0000000000>".to_owned(),
            Val::Blocks => format!("<TemplateReference {}>", repr_str(&self.template_name)),
            Val::Block(..) => "<jinja2.runtime.BlockReference object at 0x7f0000000000>".to_owned(),
            Val::Module(module) => format!("<TemplateModule {}>", repr_str(&module.name)),
            Val::Group(pair) => format!("({}, {})", self.repr(&pair.0)?, self.repr(&pair.1)?),
        })
    }

    /// `template % values`.
    pub(super) fn percent(&self, template: &str, values: &Val) -> RenderResult<Val> {
        let result = match values {
            Val::Tuple(items) => {
                let shown = items
                    .iter()
                    .map(|item| self.printed(item))
                    .collect::<RenderResult<Vec<_>>>()?;
                let args: Vec<PercentArg<'_>> = shown.iter().map(PrintableValue::arg).collect();
                percent_format(template, &PercentArgs::Tuple(&args))
            }
            Val::Dict(_) | Val::Model(Object::Dict(_)) => {
                let mut shown = Vec::new();
                for key in self.iterate(values)? {
                    if let (Some(name), Some(item)) =
                        (key.as_text(), self.plain_item(values, &key)?)
                    {
                        shown.push((name.clone(), self.printed(&item)?));
                    }
                }
                let whole = self.printed(values)?;
                let get = |name: &str| {
                    shown.iter().find(|(key, _)| **key == *name).map(|(_, item)| item.arg())
                };
                percent_format(template, &PercentArgs::Mapping { get: &get, whole: whole.arg() })
            }
            other => {
                let shown = self.printed(other)?;
                percent_format(template, &PercentArgs::Single(shown.arg()))
            }
        };
        Ok(Val::str(result?))
    }

    fn printed(&self, value: &Val) -> RenderResult<PrintableValue> {
        Ok(match value {
            Val::Int(int) => PrintableValue::Int(int.clone()),
            Val::Float(float) => PrintableValue::Float(*float),
            Val::Bool(bool) => PrintableValue::Bool(*bool),
            Val::None => PrintableValue::None,
            Val::Str(text) => PrintableValue::Str(text.clone()),
            other => PrintableValue::Other {
                class: other.class(),
                text: self.text(other)?.to_string(),
                repr: self.repr(other)?,
            },
        })
    }
}

/// A value with all its representations for formatting.
enum PrintableValue {
    Int(Int),
    Float(f64),
    Bool(bool),
    None,
    Str(Rc<str>),
    Other { class: &'static str, text: String, repr: String },
}

impl PrintableValue {
    fn arg(&self) -> PercentArg<'_> {
        let value = match self {
            PrintableValue::Int(int) => FormatArg::Int(int),
            PrintableValue::Float(float) => FormatArg::Float(*float),
            PrintableValue::Bool(bool) => FormatArg::Bool(*bool),
            PrintableValue::None => FormatArg::None,
            PrintableValue::Str(text) => FormatArg::Str(text),
            PrintableValue::Other { class, text, repr } => {
                let value = FormatArg::Other { type_name: class, text };
                return PercentArg { value, repr: Some(repr) };
            }
        };
        PercentArg { value, repr: None }
    }
}

fn view_name(view: View) -> &'static str {
    match view {
        View::Keys => "dict_keys",
        View::Values => "dict_values",
        View::Items => "dict_items",
    }
}
