//! The formatter: one canonical style.
//!
//! Only blanks, newlines and trailing commas change. Comments stay between the same tokens; strings
//! stay as they are written. A bracket with a comma after its last element is always broken, one
//! element a line; others are broken if they do not fit.

mod definitions;
mod expressions;
mod layout;

use layout::Op;

use crate::SyntaxError;
use crate::kind::SyntaxKind;
use crate::tree::{Element, NodeId, TokenId, Tree};

/// Formats a text, or returns its syntax errors.
pub fn format(text: &str) -> Result<String, Vec<SyntaxError>> {
    let parse = crate::parse(text);
    if !parse.errors.is_empty() {
        return Err(parse.errors);
    }
    let mut formatter = Formatter {
        tree: &parse.tree,
        ops: Vec::with_capacity(parse.tree.tokens().len()),
        next: 0,
        separator: Separator::None,
        open: Vec::new(),
    };
    formatter.file();
    Ok(layout::write(text, &formatter.ops))
}

/// Separator before the next token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Separator {
    None,
    Space,
    Soft,
    SoftSpace,
    /// A newline, and as many blank lines as there were, within bounds.
    Line {
        blank_min: u8,
        blank_max: u8,
    },
}

const LINE: Separator = Separator::Line { blank_min: 0, blank_max: 1 };
const TIGHT_LINE: Separator = Separator::Line { blank_min: 0, blank_max: 0 };

struct Formatter<'t> {
    tree: &'t Tree,
    ops: Vec<Op>,
    /// The first token that has not been written.
    next: usize,
    separator: Separator,
    /// Start indexes of the open groups in `ops`.
    open: Vec<usize>,
}

impl Formatter<'_> {
    fn separate(&mut self, separator: Separator) {
        self.separator = separator;
    }

    fn space(&mut self) {
        self.separate(Separator::Space);
    }

    /// Writes a token, and the comments before it.
    fn token(&mut self, token: TokenId) {
        self.write_gap(token);
        self.push_text(token);
    }

    fn push_text(&mut self, token: TokenId) {
        let range = self.tree.token_bytes(token);
        match self.tree.token_kind(token) {
            // The blanks inside this token have no meaning.
            SyntaxKind::Regex => {
                let (start, _) = crate::strings::regex_literal(self.tree.token_text(token));
                self.ops.push(Op::Static("matching "));
                self.ops.push(Op::Text(range.start + start..range.end));
            }
            SyntaxKind::MultiLineString if self.tree.token_text(token).contains('\n') => {
                self.ops.push(Op::Text(range));
                self.break_open_groups(false);
            }
            _ => self.ops.push(Op::Text(range)),
        }
    }

    /// Writes the comments before `token`, then the separator.
    fn write_gap(&mut self, token: TokenId) {
        let newlines = self.write_comments(token.0 as usize);
        match self.separator {
            Separator::None => {}
            Separator::Space => self.ops.push(Op::Space),
            Separator::Soft => self.ops.push(Op::Soft),
            Separator::SoftSpace => self.ops.push(Op::SoftSpace),
            Separator::Line { .. } => self.hard_line(newlines),
        }
        self.separator = Separator::None;
        self.next = token.0 as usize + 1;
    }

    /// Ends the line as the separator says, after so many newlines in the source.
    fn hard_line(&mut self, newlines: usize) {
        let (min, max) = match self.separator {
            Separator::Line { blank_min, blank_max } => (blank_min, blank_max),
            _ => (0, 0),
        };
        if self.ops.iter().rev().all(|op| matches!(op, Op::Open { .. } | Op::Indent)) {
            return;
        }
        let blank = u8::try_from(newlines.saturating_sub(1)).unwrap_or(u8::MAX);
        self.ops.push(Op::Hard(blank.clamp(min, max)));
        self.break_open_groups(true);
    }

    /// Nothing around a newline can be on one line, but for operators around brackets.
    fn break_open_groups(&mut self, and_operators: bool) {
        for open in &self.open {
            if let Op::Open { forced, operators, .. } = &mut self.ops[*open]
                && (!*operators || and_operators)
            {
                *forced = true;
            }
        }
    }

    /// Writes the comments before the token at `end`, and returns the number of newlines since the
    /// last thing written. After a comment, the separator is a newline.
    fn write_comments(&mut self, end: usize) -> usize {
        let mut newlines = 0;
        for index in self.next..end {
            let id = TokenId(index as u32);
            match self.tree.token_kind(id) {
                SyntaxKind::Whitespace => newlines += count_newlines(self.tree.token_text(id)),
                SyntaxKind::Comment => {
                    let range = self.tree.token_bytes(id);
                    let text = self.tree.token_text(id);
                    let range = range.start..range.start + text.trim_end().len();
                    if newlines == 0 && !self.ops.is_empty() {
                        self.ops.push(Op::TrailingComment(range));
                    } else {
                        self.hard_line(newlines);
                        self.ops.push(Op::Text(range));
                        // The next token is closer to the comment than the previous one.
                        self.after_comment();
                    }
                    if !matches!(self.separator, Separator::Line { .. }) {
                        self.separator = TIGHT_LINE;
                    }
                    newlines = 0;
                }
                _ => {}
            }
        }
        self.next = end;
        newlines
    }

    fn after_comment(&mut self) {
        self.separator = match self.separator {
            Separator::Line { blank_max, .. } => Separator::Line { blank_min: 0, blank_max },
            _ => TIGHT_LINE,
        };
    }

    /// Writes the comments before the token that closes a block or bracket, at the depth of its
    /// content.
    fn comments_before(&mut self, token: TokenId) {
        self.write_comments(token.0 as usize);
    }

    fn open_brackets(&mut self, forced: bool) {
        self.open.push(self.ops.len());
        self.ops.push(Op::Open { forced, operators: false, until: usize::MAX });
        if forced {
            self.break_open_groups(false);
        }
    }

    fn open_operators(&mut self) {
        self.open.push(self.ops.len());
        self.ops.push(Op::Open { forced: false, operators: true, until: usize::MAX });
    }

    fn close(&mut self) {
        self.open.pop();
        self.ops.push(Op::Close);
    }

    fn indent(&mut self) {
        self.ops.push(Op::Indent);
    }

    fn dedent(&mut self) {
        self.ops.push(Op::Dedent);
    }

    fn kind(&self, node: NodeId) -> SyntaxKind {
        self.tree.kind(node)
    }

    /// Returns the elements of a node as a list, so that writing can continue meanwhile.
    fn elements(&self, node: NodeId) -> Vec<Element> {
        self.tree.elements(node).collect()
    }
}

fn count_newlines(text: &str) -> usize {
    let bytes = text.as_bytes();
    let ends_line = |index: usize| match bytes[index] {
        b'\n' => true,
        b'\r' => bytes.get(index + 1) != Some(&b'\n'),
        _ => false,
    };
    (0..bytes.len()).filter(|index| ends_line(*index)).count()
}
