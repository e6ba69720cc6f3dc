//! Text to syntax tree: `lexer` → `parser` with `imports` and `expressions` → `free_names`.

pub(crate) mod ast;
mod expressions;
pub(crate) mod free_names;
mod imports;
mod lexer;
mod parser;

use std::rc::Rc;

pub use ast::Template;

use crate::error::TemplateError;
use crate::source::TemplateSource;

/// All tags that begin a statement.
pub const TAGS: [&str; 14] = [
    "for",
    "if",
    "block",
    "extends",
    "print",
    "macro",
    "include",
    "from",
    "import",
    "set",
    "with",
    "autoescape",
    "call",
    "filter",
];

/// Parses a template.
///
/// # Errors
/// A syntax error with its line.
pub fn parse(source: &Rc<TemplateSource>) -> Result<Template, TemplateError> {
    let parsed = parser::parse(source);
    parsed.map_err(|error| TemplateError::Syntax(Box::new(error), source.clone()))
}
