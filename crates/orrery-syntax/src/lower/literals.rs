//! Literals, strings with references in them, and dict keys.

use std::borrow::Cow;

use num_bigint::BigInt;
use orrery_python::Int;
use rustc_hash::FxHashMap;

use super::Lowering;
use super::fields::{self, Field};
use crate::ast::{Expr, ExprKind, Interpolated, Loc, Name, Path};
use crate::error::SyntaxWarning;
use crate::kind::SyntaxKind;
use crate::strings::{decoded, quote_lengths, regex_literal, string_content};
use crate::tree::{NodeId, TokenId};

/// Python refuses to read integers with more digits than this.
const INT_DIGITS_MAX: usize = 4300;

impl<'t> Lowering<'t, '_> {
    pub(super) fn literal(&mut self, node: NodeId) -> Expr {
        let token = TokenId(self.tree.token_range(node).start as u32);
        let range = self.tree.token_bytes(token);
        let text = self.tree.token_text(token);
        let loc = self.line_loc(range.clone());
        let kind = match self.tree.token_kind(token) {
            SyntaxKind::Int => self.int(text, loc),
            SyntaxKind::Float => ExprKind::Float(text.parse().unwrap_or(f64::NAN)),
            SyntaxKind::TrueKw => ExprKind::Bool(true),
            SyntaxKind::FalseKw => ExprKind::Bool(false),
            SyntaxKind::RawString => ExprKind::String(self.string_value(token).0.into()),
            SyntaxKind::String | SyntaxKind::MultiLineString => return self.plain_string(token),
            SyntaxKind::FormatString => return self.format_string(token),
            SyntaxKind::Regex => {
                let literal = regex_literal(text).1;
                ExprKind::Regex(literal[1..literal.len() - 1].into())
            }
            _ => ExprKind::Null,
        };
        Expr { kind, loc }
    }

    fn int(&mut self, text: &str, loc: Loc) -> ExprKind {
        if let Ok(small) = text.parse() {
            return ExprKind::Int(Int::Small(small));
        }
        let digits = text.trim_start_matches('-').len();
        if digits > INT_DIGITS_MAX {
            let message = format!(
                "Syntax error: integer with {digits} digits, at most {INT_DIGITS_MAX} are allowed"
            );
            self.push_error("ParserException", message, loc, loc.start, false);
            return ExprKind::Int(Int::Small(0));
        }
        ExprKind::Int(Int::Big(Box::new(text.parse::<BigInt>().unwrap_or_default())))
    }

    /// The value of a string token, and whether escapes or newlines make it differ from its text.
    pub(super) fn string_value(&mut self, token: TokenId) -> (Cow<'t, str>, bool) {
        let kind = self.tree.token_kind(token);
        let content = string_content(kind, self.tree.token_text(token));
        let (value, had_invalid) = decoded(kind, content);
        if had_invalid {
            let form = match kind {
                SyntaxKind::MultiLineString => "multi-line string",
                SyntaxKind::FormatString => "f-string",
                _ => "string",
            };
            self.warnings.push(SyntaxWarning {
                class: "ParserWarning",
                message: format!("Invalid escape sequence in {form}."),
                loc: self.line_loc(self.tree.token_bytes(token)),
            });
        }
        let differs = matches!(value, Cow::Owned(_));
        (value, differs)
    }

    /// A string in which `{{a.b}}` stands for a reference.
    fn plain_string(&mut self, token: TokenId) -> Expr {
        let (value, _) = self.string_value(token);
        let found = fields::interpolations(&value);
        if found.is_empty() {
            let loc = self.line_loc(self.tree.token_bytes(token));
            return Expr { kind: ExprKind::String(value.into()), loc };
        }
        let mut search = self.search(token);
        let mut parts = Vec::with_capacity(found.len());
        for field in found {
            let start = search.find(field.text);
            let start = start.map(|s| s + (field.text.len() - field.text[2..].trim_start().len()));
            parts.push(self.interpolated(&field, start, token));
        }
        let loc = self.column_loc(self.tree.token_bytes(token));
        Expr { kind: ExprKind::Interpolation { text: value.into(), parts }, loc }
    }

    fn format_string(&mut self, token: TokenId) -> Expr {
        let loc = self.column_loc(self.tree.token_bytes(token));
        let (value, _) = self.string_value(token);
        let mut parts = Vec::new();
        match fields::format_fields(&value) {
            Ok(found) => {
                let mut search = self.search(token);
                for field in found {
                    let start = search.find(field.text);
                    let blanks = field.text.len() - field.text.trim_start().len();
                    parts.push(self.interpolated(&field, start.map(|s| s + blanks), token));
                }
            }
            Err(problem) => {
                let message = format!("Syntax error: Invalid f-string: {problem}");
                self.push_error("ParserException", message, loc, loc.start, false);
            }
        }
        Expr { kind: ExprKind::FString { text: value.into(), parts }, loc }
    }

    fn search(&self, token: TokenId) -> Search<'t> {
        let range = self.tree.token_bytes(token);
        let prefix = quote_lengths(self.tree.token_kind(token)).0;
        Search { text: self.text, next: range.start + prefix, end: range.end }
    }

    /// A reference inside a string, whose name begins at `start` where that is known.
    fn interpolated(
        &mut self,
        field: &Field<'_>,
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
        Interpolated { text: field.text.into(), reference }
    }

    pub(super) fn dict_key(&mut self, entry: NodeId, token: TokenId) -> Box<str> {
        let (value, _) = self.string_value(token);
        if self.tree.token_kind(token) == SyntaxKind::String
            && !fields::interpolations(&value).is_empty()
        {
            let loc = self.column_loc(self.tree.token_bytes(token));
            let message = "Syntax error: String interpolation is not supported in dictionary keys. \
                           Use raw string to use a key containing double curly brackets";
            self.error_after(entry, "ParserException", message.to_owned(), loc);
        }
        value.into()
    }

    /// Reports keys that occur twice, and keeps the first of each. Both places are those of the
    /// values.
    pub(super) fn check_duplicate_keys(
        &mut self,
        dict: NodeId,
        entries: &mut Vec<(Box<str>, Loc, Expr)>,
    ) {
        let mut seen: FxHashMap<&str, Loc> = FxHashMap::default();
        let mut duplicates = Vec::new();
        for (index, (key, _, value)) in entries.iter().enumerate() {
            match seen.get(&**key) {
                Some(first) => duplicates.push((index, *first)),
                None => drop(seen.insert(key, value.loc)),
            }
        }
        drop(seen);
        for (index, first) in duplicates.into_iter().rev() {
            let (key, _, value) = entries.remove(index);
            let message = format!("duplicate key in dict {key}");
            self.error_after(dict, "DuplicateException", message, value.loc);
            if let Some(error) = self.errors.last_mut() {
                error.duplicate_of = Some(first);
            }
        }
    }
}

/// Finds, one after the other, where parts of a decoded string stand in the source. Parts that
/// were written with escapes are not found.
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
