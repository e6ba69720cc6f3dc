//! The model behind a template: the operations on its values.
//!
//! A template holds lists, dicts and instances of the model by handle and reads them when it needs
//! them, because a read may fail: an attribute may have no value yet. Scalars are copied.

use std::rc::Rc;

use crate::error::TemplateError;
use crate::objects::{
    Argument, AttributeValue, DictId, InstanceId, ListId, ModelItem, Object, UnknownId,
};
use crate::syntax::Template;

/// The outside of a template: variables, values behind handles, filters and other templates.
pub trait ModelAccess {
    /// The variable of this name; `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be read now.
    fn variable(&mut self, name: &str) -> Result<Option<ModelItem<'_>>, TemplateError>;

    /// The attribute of an instance.
    ///
    /// # Errors
    /// If it cannot be read now.
    fn attribute(
        &mut self,
        instance: InstanceId,
        name: &str,
    ) -> Result<AttributeValue<'_>, TemplateError>;

    /// Description of an instance for messages.
    fn describe(&self, instance: InstanceId) -> String;

    /// The error for an unknown that was read.
    fn unknown(&self, unknown: UnknownId) -> TemplateError;

    /// All elements of a list.
    fn items(&self, list: ListId) -> impl ExactSizeIterator<Item = ModelItem<'_>>;

    /// One element of a list; `None` beyond its end.
    fn item(&self, list: ListId, index: usize) -> Option<ModelItem<'_>>;

    /// A new list with the elements at these positions of another.
    fn slice(&mut self, list: ListId, positions: impl Iterator<Item = usize>) -> ListId;

    /// All entries of a dict, in its order.
    fn entries(&self, dict: DictId) -> impl ExactSizeIterator<Item = (&str, ModelItem<'_>)>;

    /// One value of a dict.
    fn entry(&self, dict: DictId, key: &str) -> Option<ModelItem<'_>>;

    /// Python's truth of a value.
    fn is_true(&self, object: Object) -> bool;

    /// Python's `==` of two values.
    fn are_equal(&self, left: Object, right: Object) -> bool;

    /// Python's `str()` of the proxy of a value.
    fn proxy_text(&self, object: Object) -> String;

    /// Python's `repr()` of a value.
    fn repr(&self, object: Object) -> String;

    /// Python's `repr()` of the keys and values of a dict.
    fn entry_reprs(&self, dict: DictId) -> Vec<(String, String)>;

    /// True if a text under construction has become too long.
    fn is_too_long(&self, text: &str) -> bool;

    /// True if the model has a filter of this dotted name.
    fn has_filter(&self, name: &str) -> bool;

    /// Calls a filter of the model.
    ///
    /// # Errors
    /// If the filter fails.
    fn call_filter(
        &mut self,
        name: &str,
        args: Vec<Argument>,
    ) -> Result<ModelItem<'_>, TemplateError>;

    /// Python's `str.format` over values of the model.
    ///
    /// # Errors
    /// Those of Python, and those of reading attributes.
    fn format(
        &mut self,
        text: &str,
        positional: Vec<Argument>,
        named: Vec<(Rc<str>, Argument)>,
    ) -> Result<String, TemplateError>;

    /// The template at a path, parsed and checked.
    ///
    /// # Errors
    /// `jinja2.exceptions.TemplateNotFound` if there is none, or a syntax error.
    fn template(&mut self, path: &str) -> Result<Rc<Template>, TemplateError>;
}
