//! Errors of templates: those of Python, those of the syntax, and those of the model.

use std::rc::Rc;

use orrery_python::PyError;

use super::objects::InstanceId;
use super::source::TemplateSource;

/// Failure of the model during a render. Only the model interprets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureId(pub u32);

/// Error that ends a render.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TemplateError {
    /// The equivalent of a Python exception.
    #[error(transparent)]
    Python(#[from] PyError),
    /// An undefined value was used.
    #[error("{0}")]
    Undefined(String),
    /// A feature that only Jinja2 itself supports exactly.
    #[error("this template needs the Python host: it uses {feature} at line {line}")]
    Unsupported { feature: String, line: usize },
    /// A template that cannot be parsed.
    #[error("{0}")]
    Syntax(Box<TemplateSyntaxError>, Rc<TemplateSource>),
    /// The model refused an operation; it knows why.
    #[error("the model failed")]
    Model(FailureId),
}

impl TemplateError {
    pub fn python(kind: &'static str, message: impl Into<String>) -> Self {
        TemplateError::Python(PyError { kind, message: message.into() })
    }
}

/// A failed render: the error, its line and the undefined name behind it.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct RenderError {
    #[source]
    pub error: TemplateError,
    /// Location of the first failure.
    pub location: Option<(Rc<TemplateSource>, usize)>,
    /// The misspelled name, if the last undefined value that was used stands for one.
    pub undefined: Option<Rc<UndefinedName>>,
}

/// An undefined name in a template.
#[derive(Debug)]
pub struct UndefinedName {
    pub name: Rc<str>,
    /// The instance that lacks the attribute; `None` for a variable.
    pub of: Option<InstanceId>,
}

/// A syntax error in a template.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct TemplateSyntaxError {
    /// Jinja's class of the error.
    pub kind: &'static str,
    pub message: String,
    /// Line, as far as it is known.
    pub line: Option<usize>,
    /// The innermost tag that is not closed, and its line.
    pub open: Option<(usize, String)>,
}

impl TemplateSyntaxError {
    pub(super) fn syntax(message: impl Into<String>) -> Self {
        Self::new("jinja2.exceptions.TemplateSyntaxError", message.into())
    }

    pub(super) fn assertion(message: impl Into<String>) -> Self {
        Self::new("jinja2.exceptions.TemplateAssertionError", message.into())
    }

    fn new(kind: &'static str, message: String) -> Self {
        TemplateSyntaxError { kind, message, line: None, open: None }
    }

    pub(super) fn at(mut self, line: usize) -> Self {
        self.line.get_or_insert(line);
        self
    }
}
