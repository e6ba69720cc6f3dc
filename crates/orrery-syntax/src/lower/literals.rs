//! Literals, strings with references in them, and dict keys.

use std::borrow::Cow;

use orrery_python::Int;

use super::Lowering;
use crate::ast::{Expr, ExprKind, Interpolated, Loc, Name, Path};
use crate::error::{ERRORS_MAX, SyntaxWarning};
use crate::fields::{self, Field};
use crate::kind::SyntaxKind;
use crate::strings::{decoded, quote_lengths, regex_literal, string_content, unknown_escape};
use crate::tree::{NodeId, TokenId};

impl<'t> Lowering<'t, '_> {
    pub(super) fn literal(&mut self, node: NodeId) -> Expr {
        let token = TokenId(self.tree.token_range(node).start as u32);
        let range = self.tree.token_bytes(token);
        let text = self.tree.token_text(token);
        let loc = self.line_loc(range.clone());
        let kind = match self.tree.token_kind(token) {
            // Longer numbers than Python reads are errors of the token.
            SyntaxKind::Int => ExprKind::Int(Int::parse_decimal(text).unwrap_or(Int::Small(0))),
            SyntaxKind::Float => ExprKind::Float(text.parse().unwrap_or(f64::NAN)),
            SyntaxKind::TrueKw => ExprKind::Bool(true),
            SyntaxKind::FalseKw => ExprKind::Bool(false),
            SyntaxKind::RawString => {
                let kind = ExprKind::String(self.string_value(token).into());
                return Expr { kind, loc: self.column_loc(range) };
            }
            SyntaxKind::String | SyntaxKind::MultiLineString => return self.plain_string(token),
            SyntaxKind::FormatString => return self.format_string(node, token),
            SyntaxKind::Regex => {
                let literal = regex_literal(text).1;
                ExprKind::Regex(literal[1..literal.len() - 1].into())
            }
            _ => ExprKind::Null,
        };
        Expr { kind, loc }
    }

    /// The value of a string token.
    pub(super) fn string_value(&mut self, token: TokenId) -> Cow<'t, str> {
        let kind = self.tree.token_kind(token);
        let content = string_content(kind, self.tree.token_text(token));
        let Ok((value, had_unknown)) = decoded(kind, content) else {
            // Reported as an error of the token.
            return Cow::Borrowed("");
        };
        if had_unknown && self.warnings.len() < ERRORS_MAX {
            let content = string_content(kind, self.tree.token_text(token));
            self.warnings.push(SyntaxWarning {
                class: "DeprecationWarning",
                message: unknown_escape(&content),
                loc: self.line_loc(self.tree.token_bytes(token)),
            });
        }
        value
    }

    /// A string in which `{{a.b}}` stands for a reference.
    fn plain_string(&mut self, token: TokenId) -> Expr {
        let value = self.string_value(token);
        let found = fields::interpolations(&value);
        let range = self.tree.token_bytes(token);
        let column = self.tree.token_kind(token) == SyntaxKind::MultiLineString;
        let loc = Loc { column, ..self.column_loc(range) };
        if found.is_empty() {
            return Expr { kind: ExprKind::String(value.into()), loc };
        }
        let mut search = self.search(token);
        let mut parts = Vec::with_capacity(found.len());
        for field in found {
            let start = search.find(&field.text);
            let start = start.map(|s| s + (field.text.len() - field.text[2..].trim_start().len()));
            parts.push(self.interpolated(&field, start, token));
        }
        Expr { kind: ExprKind::Interpolation { text: value.into(), parts }, loc }
    }

    fn format_string(&mut self, node: NodeId, token: TokenId) -> Expr {
        let loc = self.column_loc(self.tree.token_bytes(token));
        let value = self.string_value(token);
        let mut parts = Vec::new();
        match fields::format_fields(&value) {
            Ok(found) => {
                let mut search = self.search(token);
                for field in found {
                    let start = search.find(&format!("{{{}", field.text)).map(|brace| brace + 1);
                    let blanks = field.text.len() - field.text.trim_start().len();
                    parts.push(self.interpolated(&field, start.map(|s| s + blanks), token));
                }
            }
            Err(problem) => {
                let message = format!("Syntax error: Invalid f-string: {problem}");
                let moment = self.after_expression(node);
                self.push_error("ParserException", message, loc, moment);
            }
        }
        Expr { kind: ExprKind::FString { text: value.into(), parts }, loc }
    }

    fn search(&self, token: TokenId) -> Search<'t> {
        let range = self.tree.token_bytes(token);
        let prefix = quote_lengths(self.tree.token_kind(token)).0;
        Search { text: self.text, next: range.start + prefix, end: range.end }
    }

    /// Lowers a reference inside a string; its name begins at `start` where that is known.
    fn interpolated(
        &mut self,
        field: &Field,
        start: Option<usize>,
        token: TokenId,
    ) -> Interpolated {
        let whole = self.tree.token_bytes(token);
        let mut names = field.name.split('.');
        let first = names.next().unwrap_or_default();
        let place = |from: usize, length: usize| match start {
            Some(start) => start + from..start + from + length,
            None => whole.clone(),
        };
        let loc = self.column_loc(place(0, first.len()));
        let symbol = self.intern(first);
        let mut reference = Expr { kind: ExprKind::Variable(Path { symbol, loc }), loc };
        let mut from = first.len() + 1;
        for name in names {
            let loc = self.column_loc(place(from, name.len()));
            let attribute = Name { symbol: self.intern(name), loc };
            reference =
                Expr { kind: ExprKind::Attribute { base: Box::new(reference), attribute }, loc };
            from += name.len() + 1;
        }
        Interpolated { text: field.text.as_str().into(), reference }
    }
}

/// Finds the parts of a decoded string in the source, one after the other. Parts written with
/// escapes are not found.
struct Search<'t> {
    text: &'t str,
    next: usize,
    end: usize,
}

impl Search<'_> {
    fn find(&mut self, part: &str) -> Option<usize> {
        let position = self.text[self.next..self.end].find(part)? + self.next;
        self.next = position + part.len();
        Some(position)
    }
}
