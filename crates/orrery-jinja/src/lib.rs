//! Jinja templates over a model: output and errors are those of Jinja2 3.1 over Python's values.
//!
//! A template reads the model lazily: reading an attribute without a value ends the render, an
//! unknown becomes the result, and plugins of the model are filters. All of that goes through the
//! trait `ModelAccess`, whose values a template holds by handle. Features that this engine cannot
//! reproduce exactly are refused by name, so that the caller can ask Jinja2 itself.
//!
//! The crate knows neither the compiler nor files; it does no I/O. Start from `parse`, `check`,
//! `render` and `ModelAccess`.
//!
//! `syntax` turns a text into a tree, and `engine` checks and renders it over a `model`, whose values
//! are `objects`.
//!
//! The tests in `tests/` replay recorded answers of Jinja2 (`tools/record.py`); those of the
//! reference compiler about values of a model are in `orrery-compiler`.

mod engine;
mod error;
mod model;
mod objects;
mod source;
mod syntax;

pub use engine::{FILTERS, TESTS, check, render};
pub use error::{FailureId, RenderError, TemplateError, TemplateSyntaxError, UndefinedName};
pub use model::ModelAccess;
pub use objects::{
    Argument, AttributeValue, DictId, InstanceId, ListId, ModelItem, Object, OtherId, UnknownId,
};
pub use source::TemplateSource;
pub use syntax::{TAGS, Template, parse};

/// Error class of a template that does not exist.
pub const NOT_FOUND: &str = "jinja2.exceptions.TemplateNotFound";
