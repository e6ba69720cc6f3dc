//! What the syntax stages report: errors and warnings with the class, text and place that tools
//! know from the reference implementation.

use std::ops::Range;

use crate::ast::Loc;

/// Something in one file that keeps it from being compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// The class name by which tools know this kind of error, such as `ParserException`.
    pub class: &'static str,
    pub message: String,
    /// The place that the message names. For an unexpected token that is the empty range at the
    /// token's end; for an unexpected end of file it lies beyond the text, see
    /// [`LineIndex::line_col`](crate::LineIndex::line_col).
    pub loc: Loc,
    /// Bytes of the text to underline; always inside the text.
    pub highlight: Range<u32>,
    /// The statement that the message names as `reported in …`, for the kinds that do.
    pub reported_in: Option<String>,
    /// For a duplicate: the place of the first one.
    pub duplicate_of: Option<Loc>,
    pub help: Option<String>,
    /// The offset up to which the text must have been read before this error can be known. Errors
    /// are sorted by it, so that the first is the one that a parser which stops at once reports.
    pub(crate) known_at: u32,
    /// Set for what is only noticed once a construct is complete and the token after it fits: an
    /// error about that token comes first.
    pub(crate) needs_valid_next: bool,
}

/// Something in one file that is suspicious but compiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxWarning {
    pub class: &'static str,
    pub message: String,
    pub loc: Loc,
}
