//! From the lossless tree to the typed one: sugar removed, escapes decoded, names interned, and
//! every node given its source location.
//!
//! # Locations
//!
//! Some constructs are named by line and column, others by line alone; which line is a matter of
//! the construct, and shows when one is spread over several:
//!
//! | construct | location |
//! |---|---|
//! | variable, class, function, namespace | line and column of the whole (qualified) name |
//! | names of entities, attributes, relations, typedefs, implementations, keyword arguments | line and column of the name |
//! | multi-line, raw and f-strings | line and column of the literal |
//! | `a` and `b` of `{{a.b}}` or `{a.b}` in a string | line and column of that name |
//! | entity, implementation, typedef, relation, attribute | that of its name |
//! | implement | that of its class |
//! | call | that of its function's name |
//! | other literals, plain strings with `{{…}}` included | the line of the literal |
//! | `a.b`, `a.b is defined` | the line of the dot |
//! | assignment | the line of `=` or `+=` |
//! | constructor | the line of `(` |
//! | index lookups | the line of `[` |
//! | dict lookup | the line of the dict |
//! | operator | the line of the operator |
//! | `c ? a : b` | the line of the condition's location |
//! | `d[k] is defined` | the line of `is` |
//! | list, dict, comprehension (all levels) | the line of the opening bracket |
//! | `for`, `if`, `import`, `index` | the line of the keyword |
//! | `elif` | the line of the colon after its condition |
//! | `**d` | the line of the stars |
//!
//! Where a location is a line, its bytes cover as much of the construct as is useful to underline.

mod checks;
mod expressions;
mod items;
mod literals;
mod statements;

use std::ops::Range;

use crate::ParsedFile;
use crate::ast::{FileId, Loc, Name, Path};
use crate::error::{ERRORS_MAX, Moment, Stage, SyntaxError, SyntaxWarning};
use crate::interner::{Interner, Symbol};
use crate::kind::SyntaxKind;
use crate::tree::{Element, NodeId, TokenId, Tree};

/// Lowers a whole tree.
pub(crate) fn lower(tree: &Tree, file: FileId, interner: &mut Interner) -> ParsedFile {
    let mut lowering = Lowering {
        tree,
        text: tree.text(),
        file,
        interner,
        errors: Vec::new(),
        warnings: Vec::new(),
        defined_depth: 0,
    };
    let file = lowering.file();
    ParsedFile { file, errors: lowering.errors, warnings: lowering.warnings }
}

struct Lowering<'t, 'i> {
    tree: &'t Tree,
    text: &'t str,
    file: FileId,
    interner: &'i mut Interner,
    errors: Vec<SyntaxError>,
    warnings: Vec<SyntaxWarning>,
    /// Number of `d[k] is defined` around the current node.
    defined_depth: u32,
}

/// Maximum distance from the anchor back to the start of an underlined line.
const UNDERLINE_MAX: usize = 1000;

impl<'t> Lowering<'t, '_> {
    fn column_loc(&self, range: Range<usize>) -> Loc {
        Loc { file: self.file, start: range.start as u32, end: range.end as u32, column: true }
    }

    fn line_loc(&self, range: Range<usize>) -> Loc {
        Loc { column: false, ..self.column_loc(range) }
    }

    /// Returns a location by line: the line of `anchor`, from the start of `whole` if that is on
    /// the same line.
    fn anchored(&self, anchor: usize, whole: Range<usize>) -> Loc {
        let before = &self.text.as_bytes()[whole.start.min(anchor)..anchor];
        let same_line =
            before.len() < UNDERLINE_MAX && !before.iter().any(|b| matches!(b, b'\n' | b'\r'));
        let start = if same_line { whole.start.min(anchor) } else { anchor };
        self.line_loc(start..whole.end)
    }

    fn token_name(&mut self, token: TokenId) -> Name {
        let symbol = self.interner.intern(self.tree.token_text(token));
        Name { symbol, loc: self.column_loc(self.tree.token_bytes(token)) }
    }

    fn path(&mut self, node: NodeId) -> Path {
        let range = self.tree.range(node);
        let tokens = self.tree.token_range(node);
        let symbol = if tokens.len() == 1 {
            self.interner.intern(&self.text[range.clone()])
        } else {
            let joined = self.joined(tokens);
            self.interner.intern(&joined)
        };
        Path { symbol, loc: self.column_loc(range) }
    }

    /// The tokens' texts without trivia.
    fn joined(&self, tokens: Range<usize>) -> String {
        tokens
            .map(|index| TokenId(index as u32))
            .filter(|token| !self.tree.token_kind(*token).is_trivia())
            .map(|token| self.tree.token_text(token))
            .collect()
    }

    fn intern(&mut self, text: &str) -> Symbol {
        self.interner.intern(text)
    }

    /// The first direct token of this kind.
    fn token(&self, node: NodeId, kind: SyntaxKind) -> Option<TokenId> {
        self.tokens(node).find(|token| self.tree.token_kind(*token) == kind)
    }

    /// The direct tokens of a node.
    fn tokens(&self, node: NodeId) -> impl Iterator<Item = TokenId> + use<'t> {
        self.tree.elements(node).filter_map(|element| match element {
            Element::Token(token) => Some(token),
            Element::Node(_) => None,
        })
    }

    fn child(&self, node: NodeId, kind: SyntaxKind) -> Option<NodeId> {
        self.tree.children(node).find(|child| self.tree.kind(*child) == kind)
    }

    /// Returns the moment at which a statement or definition is complete: once the next token fits.
    fn after(&self, node: NodeId) -> Moment {
        Moment { known_at: self.next_token(node).0, stage: Stage::Completed }
    }

    /// Returns the moment at which an expression is complete.
    fn after_expression(&self, node: NodeId) -> Moment {
        let (known_at, next) = self.next_token(node);
        let fits = next.may_follow_expression();
        Moment { known_at, stage: if fits { Stage::Completing } else { Stage::Completed } }
    }

    fn push_error(&mut self, class: &'static str, message: String, loc: Loc, moment: Moment) {
        if self.errors.len() >= ERRORS_MAX {
            return;
        }
        self.errors.push(SyntaxError {
            class,
            message,
            loc,
            highlight: loc.start..loc.end,
            reported_in: None,
            duplicate_of: None,
            help: None,
            explanation: None,
            moment,
        });
    }

    /// The start and kind of the token after a node; beyond the text there is the end of file.
    fn next_token(&self, node: NodeId) -> (u32, SyntaxKind) {
        let after = self.tree.token_range(node).end;
        let next = self.tree.tokens()[after..].iter().find(|token| !token.kind.is_trivia());
        let end = (self.text.len() as u32 + 1, SyntaxKind::EndOfFile);
        next.map_or(end, |token| (token.start, token.kind))
    }
}
