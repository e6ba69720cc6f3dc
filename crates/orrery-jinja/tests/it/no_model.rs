//! A model without variables and values; it has other templates only.

use std::collections::BTreeMap;
use std::rc::Rc;

use orrery_jinja::{
    Argument, AttributeValue, DictId, InstanceId, ListId, ModelAccess, ModelItem, NOT_FOUND,
    Object, Template, TemplateError, TemplateSource, UnknownId, check, parse,
};
use orrery_python::{FormatArg, format_value, parse_format, repr_str};

pub(crate) struct NoModel {
    templates: BTreeMap<String, String>,
}

/// Nothing hands out a handle, so that none can arrive.
fn no_handle() -> ! {
    unreachable!("this model has no values")
}

impl NoModel {
    pub(crate) fn new(templates: BTreeMap<String, String>) -> Self {
        NoModel { templates }
    }
}

impl ModelAccess for NoModel {
    fn variable(&mut self, _: &str) -> Result<Option<ModelItem<'_>>, TemplateError> {
        Ok(None)
    }

    fn attribute(&mut self, _: InstanceId, _: &str) -> Result<AttributeValue<'_>, TemplateError> {
        no_handle()
    }

    fn describe(&self, _: InstanceId) -> String {
        no_handle()
    }

    fn unknown(&self, _: UnknownId) -> TemplateError {
        no_handle()
    }

    fn items(&self, _: ListId) -> impl ExactSizeIterator<Item = ModelItem<'_>> {
        std::iter::empty()
    }

    fn item(&self, _: ListId, _: usize) -> Option<ModelItem<'_>> {
        no_handle()
    }

    fn slice(&mut self, _: ListId, _: impl Iterator<Item = usize>) -> ListId {
        no_handle()
    }

    fn entries(&self, _: DictId) -> impl ExactSizeIterator<Item = (&str, ModelItem<'_>)> {
        std::iter::empty()
    }

    fn entry(&self, _: DictId, _: &str) -> Option<ModelItem<'_>> {
        no_handle()
    }

    fn is_true(&self, _: Object) -> bool {
        no_handle()
    }

    fn are_equal(&self, _: Object, _: Object) -> bool {
        no_handle()
    }

    fn proxy_text(&self, _: Object) -> String {
        no_handle()
    }

    fn repr(&self, _: Object) -> String {
        no_handle()
    }

    fn entry_reprs(&self, _: DictId) -> Vec<(String, String)> {
        no_handle()
    }

    fn is_too_long(&self, text: &str) -> bool {
        text.len() > 1 << 20
    }

    fn has_filter(&self, _: &str) -> bool {
        false
    }

    fn call_filter(&mut self, _: &str, _: Vec<Argument>) -> Result<ModelItem<'_>, TemplateError> {
        no_handle()
    }

    /// Scalars by number or name, without attributes.
    fn format(
        &mut self,
        text: &str,
        positional: Vec<Argument>,
        named: Vec<(Rc<str>, Argument)>,
    ) -> Result<String, TemplateError> {
        let mut out = String::new();
        let mut next = 0;
        for part in parse_format(text)? {
            out.push_str(&part.literal);
            let Some(field) = part.field else {
                continue;
            };
            let found = match field.name.parse::<usize>() {
                _ if field.name.is_empty() => {
                    next += 1;
                    positional.get(next - 1)
                }
                Ok(index) => positional.get(index),
                Err(_) => named.iter().find(|(name, _)| **name == *field.name).map(|(_, of)| of),
            };
            let Some(found) = found else {
                return Err(if field.name.is_empty() {
                    let message = "Replacement index 0 out of range for positional args tuple";
                    TemplateError::python("IndexError", message)
                } else {
                    TemplateError::python("KeyError", repr_str(&field.name))
                });
            };
            let repr;
            let value = match found {
                Argument::Int(int) => FormatArg::Int(int),
                Argument::Float(float) => FormatArg::Float(*float),
                Argument::Str(text) if field.conversion == Some('r') => {
                    repr = repr_str(text);
                    FormatArg::Str(&repr)
                }
                Argument::Str(text) => FormatArg::Str(text),
                other => panic!("no test formats {other:?}"),
            };
            out.push_str(&format_value(value, &field.spec)?);
        }
        Ok(out)
    }

    fn template(&mut self, path: &str) -> Result<Rc<Template>, TemplateError> {
        let Some(text) = self.templates.get(path) else {
            return Err(TemplateError::python(NOT_FOUND, path));
        };
        let source = TemplateSource { path: path.to_owned(), text: text.clone() };
        let template = parse(&Rc::new(source))?;
        check(&template, self)?;
        Ok(Rc::new(template))
    }
}
