//! Lays out a sequence of texts and possible breaks so that lines stay short.
//!
//! A group is set on one line if its content, and the text after it up to the next possible break,
//! fits; otherwise each of its own breaks becomes a newline. Groups nest, and an outer one is
//! decided before those inside it.

use std::ops::Range;

/// The column that lines should not exceed.
const WIDTH: usize = 100;
const INDENT: usize = 4;

#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Bytes of the source, with newlines of any platform written as `\n`.
    Text(Range<usize>),
    Static(&'static str),
    Space,
    /// Nothing on one line, a newline in a broken group.
    Soft,
    /// A space on one line, a newline in a broken group.
    SoftSpace,
    /// A newline, then so many blank lines.
    Hard(u8),
    /// A comma, only in a broken group.
    TrailingComma,
    /// A comment behind other text on its line.
    TrailingComment(Range<usize>),
    /// Opens a group, which must be broken if `forced`. A broken group of `operators` is indented
    /// as a whole; in brackets, `Indent` marks the indented part. The group fits if the text before
    /// the index `until` fits.
    Open {
        forced: bool,
        operators: bool,
        until: usize,
    },
    Close,
    Indent,
    Dedent,
}

/// Writes `ops`, with texts that are ranges of `source`.
pub(super) fn write(source: &str, ops: &[Op]) -> String {
    let mut layout = Layout {
        source,
        ops,
        out: String::with_capacity(source.len() + source.len() / 8),
        column: 0,
        indent: 0,
        line_indent: 0,
        groups: Vec::new(),
    };
    layout.run();
    let mut out = layout.out;
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

struct Layout<'s> {
    source: &'s str,
    ops: &'s [Op],
    out: String,
    column: usize,
    indent: usize,
    /// The indent when the line began.
    line_indent: usize,
    /// The open groups.
    groups: Vec<Group>,
}

#[derive(Clone, Copy)]
struct Group {
    broken: bool,
    indent: usize,
}

impl Layout<'_> {
    fn run(&mut self) {
        for index in 0..self.ops.len() {
            let broken = self.groups.last().is_some_and(|group| group.broken);
            match &self.ops[index] {
                Op::Text(range) => self.text(range.clone()),
                Op::Static(text) => self.push(text),
                Op::Space => self.push(" "),
                Op::Soft | Op::SoftSpace if broken => self.newline(0),
                Op::Soft => {}
                Op::SoftSpace => self.push(" "),
                Op::Hard(blank) => self.newline(*blank),
                Op::TrailingComma if broken => self.push(","),
                Op::TrailingComma => {}
                Op::TrailingComment(range) => {
                    self.push("  ");
                    self.text(range.clone());
                }
                Op::Open { forced, operators, until } => {
                    let broken = *forced || !self.fits(index, *until);
                    let indent = if broken && *operators { INDENT } else { 0 };
                    self.groups.push(Group { broken, indent });
                    self.indent += indent;
                }
                Op::Close => {
                    let closed = self.groups.pop();
                    self.indent -= closed.map_or(0, |group| group.indent);
                }
                Op::Indent => self.indent += INDENT,
                Op::Dedent => self.indent = self.indent.saturating_sub(INDENT),
            }
        }
    }

    fn push(&mut self, text: &str) {
        if self.column == 0 && text != " " {
            self.out.extend(std::iter::repeat_n(' ', self.line_indent));
            self.column = self.line_indent;
        }
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    fn text(&mut self, range: Range<usize>) {
        let text = &self.source[range];
        let mut lines = text.split('\n');
        if let Some(first) = lines.next() {
            self.push(first.strip_suffix('\r').unwrap_or(first));
        }
        // The further lines of a multi-line string stay as they are.
        for line in lines {
            let line = line.strip_suffix('\r').unwrap_or(line);
            self.out.push('\n');
            self.out.push_str(line);
            self.column = line.chars().count().max(1);
        }
    }

    fn newline(&mut self, blank: u8) {
        for _ in 0..=blank {
            self.out.push('\n');
        }
        self.column = 0;
        self.line_indent = self.indent;
    }

    /// Returns true if the group opened at `open` fits on the line, with the text after it. Forced
    /// breaks play no part: a bracket that was broken for its width has a trailing comma the next
    /// time, and nothing else may change for that.
    fn fits(&self, open: usize, until: usize) -> bool {
        let mut column = self.column.max(self.line_indent);
        let mut depth = 0_usize;
        let mut after = false;
        for op in &self.ops[open..until.min(self.ops.len())] {
            match op {
                Op::Text(range) | Op::TrailingComment(range) => {
                    let text = &self.source[range.clone()];
                    let (first, multi_line) = match text.split_once('\n') {
                        Some((first, _)) => (first, true),
                        None => (text, false),
                    };
                    column += first.chars().count();
                    if multi_line {
                        return column <= WIDTH;
                    }
                }
                Op::Static(text) => column += text.len(),
                Op::Space => column += 1,
                Op::Soft | Op::SoftSpace | Op::Hard(_) if after => return column <= WIDTH,
                Op::SoftSpace => column += 1,
                Op::Hard(_) => return column <= WIDTH,
                Op::Open { .. } => depth += 1,
                Op::Close => {
                    depth = depth.saturating_sub(1);
                    after |= depth == 0;
                }
                Op::Soft | Op::TrailingComma | Op::Indent | Op::Dedent => {}
            }
            if column > WIDTH {
                return false;
            }
        }
        true
    }
}
