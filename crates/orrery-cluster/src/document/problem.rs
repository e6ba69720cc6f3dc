//! Problems of documents: an id with a page, a message, and source locations.

use std::collections::BTreeMap;
use std::ops::Range;

/// Number of a file in its catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentFileId(pub usize);

/// A location in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentLocation {
    pub file: DocumentFileId,
    /// Bytes of the text to underline.
    pub span: Range<usize>,
    /// JSON pointer of the value: `/constraints/services/nginx/quantities/max`.
    pub path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemSeverity {
    Error,
    Warning,
}

/// Kind of a problem. Each has a page in `docs/diagnostics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    DocumentSyntax,
    UnknownField,
    MissingField,
    InvalidField,
    DuplicateField,
    DuplicateDocument,
    DocumentNotFound,
    DependencyCycle,
    TemplateCycle,
    ImmutableSetting,
    IncompatibleDefault,
    IncompleteTemplate,
    InvalidMacro,
}

impl ProblemKind {
    pub fn diagnostic_id(&self) -> &'static str {
        match self {
            ProblemKind::DocumentSyntax => "document-syntax",
            ProblemKind::UnknownField => "unknown-field",
            ProblemKind::MissingField => "missing-field",
            ProblemKind::InvalidField => "invalid-field",
            ProblemKind::DuplicateField => "duplicate-field",
            ProblemKind::DuplicateDocument => "duplicate-document",
            ProblemKind::DocumentNotFound => "document-not-found",
            ProblemKind::DependencyCycle => "dependency-cycle",
            ProblemKind::TemplateCycle => "template-cycle",
            ProblemKind::ImmutableSetting => "immutable-setting",
            ProblemKind::IncompatibleDefault => "incompatible-default",
            ProblemKind::IncompleteTemplate => "incomplete-template",
            ProblemKind::InvalidMacro => "invalid-macro",
        }
    }
}

/// An error in a document, or an inconsistency between documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogProblem {
    pub kind: ProblemKind,
    pub severity: ProblemSeverity,
    /// One sentence in lower case.
    pub message: String,
    pub location: DocumentLocation,
    /// Label of the location.
    pub label: String,
    /// Related locations, each with a label.
    pub related: Vec<(DocumentLocation, String)>,
    pub help: Option<String>,
}

impl CatalogProblem {
    pub(crate) fn error(
        kind: ProblemKind,
        location: DocumentLocation,
        message: impl Into<String>,
    ) -> Self {
        CatalogProblem {
            kind,
            severity: ProblemSeverity::Error,
            message: message.into(),
            location,
            label: String::new(),
            related: Vec::new(),
            help: None,
        }
    }

    pub(crate) fn warning(
        kind: ProblemKind,
        location: DocumentLocation,
        message: impl Into<String>,
    ) -> Self {
        CatalogProblem {
            severity: ProblemSeverity::Warning,
            ..CatalogProblem::error(kind, location, message)
        }
    }

    pub(crate) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    pub(crate) fn help(mut self, help: Option<String>) -> Self {
        self.help = help;
        self
    }

    pub(crate) fn related(mut self, location: DocumentLocation, label: impl Into<String>) -> Self {
        self.related.push((location, label.into()));
        self
    }
}

/// The spans of all values of one document, by JSON pointer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueSpans(pub(crate) BTreeMap<String, Range<usize>>);

impl ValueSpans {
    /// The span of a value, or of the nearest enclosing value in the document.
    pub fn find(&self, path: &str) -> Range<usize> {
        let mut path = path;
        loop {
            if let Some(span) = self.0.get(path) {
                return span.clone();
            }
            match path.rfind('/') {
                Some(end) => path = &path[..end],
                None => return 0..0,
            }
        }
    }
}

/// A JSON pointer with one more step.
pub(crate) fn step(path: &str, key: &str) -> String {
    let mut path = path.to_owned();
    path.push('/');
    for c in key.chars() {
        match c {
            '~' => path.push_str("~0"),
            '/' => path.push_str("~1"),
            c => path.push(c),
        }
    }
    path
}

/// Line and column of an offset, both from 1, columns in characters.
pub fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(offset.min(text.len()))];
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
}
