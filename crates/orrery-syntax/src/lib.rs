//! Lexer, lossless tree, recovering parser, typed tree and formatter of the modelling language.
//!
//! It knows nothing of types, modules or evaluation, and does no I/O. Start from `parse_file`,
//! `ast::File` and `format`.

#![allow(clippy::enum_glob_use, reason = "a grammar names a kind of node in every line")]

pub mod ast;
pub mod interner;
pub mod kind;
pub mod lexer;
pub mod tree;

mod error;
mod fields;
mod format;
mod line_index;
mod lower;
mod parser;
mod render;
mod strings;
mod token_errors;

pub use error::{Explanation, SyntaxError, SyntaxWarning};
pub use format::format;
pub use interner::{Interner, Symbol};
pub use kind::SyntaxKind;
pub use line_index::LineIndex;
pub use render::render_expr;
pub use tree::Tree;

use ast::FileId;

/// A text as a lossless tree, for tools.
#[derive(Debug)]
pub struct Parse {
    pub tree: Tree,
    /// In the order in which a reader of the text meets them.
    pub errors: Vec<SyntaxError>,
}

/// A text as the compiler reads it.
#[derive(Debug)]
pub struct ParsedFile {
    /// Without the parts in error, where `errors` is not empty.
    pub file: ast::File,
    /// The first is the one that a parser which stops at once reports.
    pub errors: Vec<SyntaxError>,
    pub warnings: Vec<SyntaxWarning>,
}

/// Parses a text into its lossless tree. Errors that only show in the values of literals and names
/// are left to [`parse_file`].
pub fn parse(text: &str) -> Parse {
    let mut parse = parse_in(text, FileId(0));
    sort(&mut parse.errors);
    parse
}

/// Parses a text into the typed tree, with all errors that can be found in one file alone.
pub fn parse_file(text: &str, file: FileId, interner: &mut Interner) -> ParsedFile {
    let parse = parse_in(text, file);
    let mut parsed = lower::lower(&parse.tree, file, interner);
    parsed.errors.extend(parse.errors);
    sort(&mut parsed.errors);
    parsed
}

/// Maximum size of a text with 32-bit offsets, with some to spare beyond its end.
const TEXT_BYTES_MAX: usize = u32::MAX as usize - 16;

fn parse_in(text: &str, file: FileId) -> Parse {
    if text.len() > TEXT_BYTES_MAX {
        let mut parse = parse_in("", file);
        parse.errors.push(SyntaxError::too_large(file));
        return parse;
    }
    let tokens = lexer::lex(text);
    let mut output = parser::parse_tokens(text, &tokens, file);
    output.errors.extend(token_errors::check(text, &tokens, file));
    Parse { tree: Tree::from_postorder(text, tokens, output.postorder), errors: output.errors }
}

fn sort(errors: &mut [SyntaxError]) {
    errors.sort_by_key(|error| error.moment);
}
