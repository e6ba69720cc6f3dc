//! Lexer, lossless tree, recovering parser, typed tree and formatter of the modelling language.
//!
//! It knows nothing of types, modules or evaluation, and does no I/O. Start from `parse_file`,
//! `ast::File` and `format`.

pub mod ast;
pub mod interner;

pub use interner::{Interner, Symbol};
