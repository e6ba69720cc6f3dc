//! Errors and warnings of the syntax stages, with the class, text and location of the reference
//! compiler.

use std::ops::Range;

use crate::ast::{FileId, Loc};

/// An error in one file that prevents its compilation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// The class name by which tools know this kind of error, such as `ParserException`.
    pub class: &'static str,
    pub message: String,
    /// The location in the message. For an unexpected token that is the empty range at the token's
    /// end; for an unexpected end of file it lies beyond the text, see
    /// [`LineIndex::line_col`](crate::LineIndex::line_col).
    pub loc: Loc,
    /// Bytes of the text to underline; always inside the text.
    pub highlight: Range<u32>,
    /// The statement that the message names as `reported in …`, for the kinds that do.
    pub reported_in: Option<String>,
    /// For a duplicate: the location of the first one.
    pub duplicate_of: Option<Loc>,
    pub help: Option<String>,
    /// Additional explanation for terminals and editors, if any.
    pub explanation: Option<Box<Explanation>>,
    pub(crate) moment: Moment,
}

/// An error in our own words, for terminals and editors. Reports keep the compatible text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// One sentence: the wrong construct, and the expected one.
    pub headline: String,
    /// The location to underline and its label; without one, that of the compatible message.
    pub primary: Option<(Loc, String)>,
    /// Related locations with their labels: "opened here".
    pub related: Vec<(Loc, String)>,
    pub notes: Vec<String>,
    pub help: Option<String>,
}

impl Explanation {
    pub fn new(headline: impl Into<String>) -> Self {
        Explanation { headline: headline.into(), ..Explanation::default() }
    }

    #[must_use]
    pub fn at(mut self, loc: Loc, label: impl Into<String>) -> Self {
        self.primary = Some((loc, label.into()));
        self
    }

    #[must_use]
    pub fn related(mut self, loc: Loc, label: impl Into<String>) -> Self {
        self.related.push((loc, label.into()));
        self
    }

    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// Maximum number of errors of each stage for one file: a file of a million illegal characters
/// should not need the memory for them.
pub(crate) const ERRORS_MAX: usize = 1000;

/// Moment at which a parser with one token of look-ahead that stops at the first error would report
/// it. The smallest moment of a file is the error that the reference reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    /// The start of the token that must have been read.
    pub(crate) known_at: u32,
    pub(crate) stage: Stage,
}

/// Stages at one token, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Cutting the token.
    Lexing,
    /// Completing the construct before the token, if the token can follow it.
    Completing,
    /// Finding that the token does not fit.
    Token,
    /// Completing the construct before the token, which must fit.
    Completed,
}

impl SyntaxError {
    pub(crate) fn too_large(file: FileId) -> SyntaxError {
        SyntaxError {
            class: "ParserException",
            message: "Syntax error: the file is larger than 4 GiB".to_owned(),
            loc: Loc { file, start: 0, end: 0, column: false },
            highlight: 0..0,
            reported_in: None,
            duplicate_of: None,
            help: None,
            explanation: None,
            moment: Moment { known_at: 0, stage: Stage::Lexing },
        }
    }
}

/// Something in one file that is suspicious but compiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxWarning {
    pub class: &'static str,
    pub message: String,
    pub loc: Loc,
}
