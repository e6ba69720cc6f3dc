//! Explanations of syntax errors: expected constructs, unclosed ones, and this language's form of
//! habits from other languages. The compatible message is unchanged.

use std::string::String;

use orrery_model::similar_names;

use super::Parser;
use crate::ast::Loc;
use crate::error::Explanation;
use crate::kind::SyntaxKind::{self, *};

/// Expected constructs at the position of an unexpected token.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected {
    Token(SyntaxKind),
    /// In words: "a value".
    What(&'static str),
    /// The colon after the header of a block that begins at this token.
    Colon {
        header: u32,
    },
    /// The closing bracket of the one at this token, or another element inside it.
    Close {
        open: u32,
        close: SyntaxKind,
        part: &'static str,
    },
    /// The `end` of the innermost block.
    End,
    /// Tokens after the name of an entity in an expression.
    AfterClass,
}

/// A block that has no `end` yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenBlock {
    /// Its keyword.
    pub(crate) keyword: u32,
}

/// Limit of the backward search for the start of a line: handwritten lines are shorter.
const LINE_TOKENS_MAX: usize = 200;
/// The longest text of a token or header that is quoted in a message.
const QUOTED_CHARS_MAX: usize = 40;

impl Parser<'_> {
    /// Explains why the current token does not fit.
    pub(super) fn explain(&self, expected: Expected) -> Explanation {
        self.foreign_comment()
            .or_else(|| self.foreign_keyword())
            .or_else(|| self.capital_literal())
            .or_else(|| self.misspelt_keyword(expected))
            .or_else(|| self.unclosed(expected))
            .or_else(|| self.stray_end())
            .or_else(|| self.keyword_as_name(expected))
            .unwrap_or_else(|| self.not_expected(expected))
    }

    /// `// text` and `/* text */`.
    fn foreign_comment(&self) -> Option<Explanation> {
        let first = match self.current {
            Slash => self.pos,
            // The second of two slashes, where the first was read as a division.
            _ => self.pos.checked_sub(1)?,
        };
        let index = |at: usize| self.significant.get(at).copied();
        let one = index(first)?;
        let is_slash = |at: u32| self.tokens[at as usize].kind == Slash;
        let before =
            first.checked_sub(1).and_then(index).filter(|&at| is_slash(at) && at + 1 == one);
        let start = before.unwrap_or(one);
        let second = self.tokens.get(start as usize + 1)?.kind;
        if !is_slash(start) || !matches!(second, Slash | Star | StarStar) {
            return None;
        }
        let (from, _) = self.token_bytes(start);
        let (_, to) = self.token_bytes(start + 1);
        let written = &self.text[from as usize..to as usize];
        let headline = format!("`{written}` does not begin a comment");
        let loc = self.loc(from, to);
        Some(Explanation::new(headline).at(loc, "").help("comments begin with `#`"))
    }

    /// A line that begins with a keyword of another language.
    fn foreign_keyword(&self) -> Option<Explanation> {
        let first = self.line_start_token()?;
        let next = *self.significant.get(first + 1)?;
        let index = self.significant[first];
        if self.tokens[index as usize].kind != Id
            || !matches!(self.tokens[next as usize].kind, Id | ClassId)
        {
            return None;
        }
        let word = self.token_text(index);
        let (headline, help) = match word {
            "def" | "function" | "func" | "fn" => (
                "the language has no functions".to_owned(),
                "compute values in a plugin (a Python function in `plugins/__init__.py` of a \
                 module), or describe instances in an `implementation NAME for ENTITY:`",
            ),
            "class" | "struct" | "type" | "interface" | "record" => (
                format!("`{word}` does not begin a definition"),
                "a type with attributes is declared by `entity NAME:` … `end`",
            ),
            "let" | "var" | "const" | "val" | "local" | "set" => {
                (format!("`{word}` is not needed to assign a variable"), "write `NAME = VALUE`")
            }
            "from" => (
                "`from` does not begin an import".to_owned(),
                "write `import MODULE`, then use its names as `MODULE::NAME`",
            ),
            "return" => (
                "the language has no functions, and nothing to return from".to_owned(),
                "assign the value to a variable or an attribute",
            ),
            "while" => (
                "the language has no `while` loop".to_owned(),
                "variables never change, so there is nothing to wait for: use `for NAME in LIST:`",
            ),
            _ => return None,
        };
        let (start, end) = self.token_bytes(index);
        Some(Explanation::new(headline).at(self.loc(start, end), "").help(help))
    }

    /// Returns the first token of the line, if it begins a block by a word that is not a keyword.
    pub(super) fn foreign_header(&self) -> Option<u32> {
        let first = self.line_start_token()?;
        let index = self.significant[first];
        let rest = &self.text[self.token_bytes(index).0 as usize..];
        let line = rest.lines().next().unwrap_or_default();
        let line = line.split('#').next().unwrap_or(line);
        let opens = line.trim_end().ends_with(':') && self.tokens[index as usize].kind == Id;
        let wrong = self.foreign_keyword().is_some() || self.misspelt_definition().is_some();
        (opens && wrong).then_some(index)
    }

    /// `True`, `False` and `None` where a value is expected.
    fn capital_literal(&self) -> Option<Explanation> {
        let index = *self.significant.get(self.pos.checked_sub(1)?)?;
        let written = self.token_text(index);
        let meant = match written {
            "True" | "TRUE" => "true",
            "False" | "FALSE" => "false",
            "None" | "Null" | "NULL" | "Nil" => "null",
            _ => return None,
        };
        if self.tokens[index as usize].kind != ClassId {
            return None;
        }
        let (start, end) = self.token_bytes(index);
        let headline = format!("`{written}` is not a value: `{meant}` is written in lower case");
        let help = format!("write `{meant}`; names with a capital are entities");
        Some(Explanation::new(headline).at(self.loc(start, end), "").help(help))
    }

    /// A word that is nearly the keyword that fits, here or at the start of the line.
    fn misspelt_keyword(&self, expected: Expected) -> Option<Explanation> {
        if let Expected::Token(kind) = expected
            && kind.is_keyword()
            && matches!(self.current, Id | ClassId)
        {
            let word = self.token_text(self.current_index());
            let keyword = kind.spelled();
            let near = similar_names::closest(&word.to_lowercase(), std::iter::once(keyword));
            if near.is_some() {
                let headline = format!("expected `{keyword}`, found `{word}`");
                let (start, end) = self.token_bytes(self.current_index());
                let help = format!("did you mean `{keyword}`?");
                let explanation = Explanation::new(headline).at(self.loc(start, end), "");
                return Some(explanation.help(help));
            }
        }
        self.misspelt_definition()
    }

    /// Explains a line that begins with a misspelt keyword.
    fn misspelt_definition(&self) -> Option<Explanation> {
        let first = self.line_start_token()?;
        let index = self.significant[first];
        let next = *self.significant.get(first + 1)?;
        let follows = self.tokens[next as usize].kind;
        if first + 1 > self.pos || !matches!(self.tokens[index as usize].kind, Id | ClassId) {
            return None;
        }
        let word = self.token_text(index).to_lowercase();
        let known: &[&str] = match follows {
            ClassId => &["entity", "implement", "index"],
            Id => &["implementation", "implement", "import", "typedef", "for", "if", "elif"],
            _ => return None,
        };
        let keyword = similar_names::closest(&word, known.iter().copied())?;
        let headline = format!("`{}` does not begin a definition", self.token_text(index));
        let (start, end) = self.token_bytes(index);
        let help = format!("did you mean `{keyword}`?");
        Some(Explanation::new(headline).at(self.loc(start, end), "").help(help))
    }

    /// A bracket or block without its end.
    fn unclosed(&self, expected: Expected) -> Option<Explanation> {
        match expected {
            Expected::Close { open, close, part } => Some(self.unclosed_bracket(open, close, part)),
            Expected::End => self.unclosed_block(),
            Expected::Token(EndKw) => self.unclosed_block(),
            _ if self.at_end() && self.starts_statement() => self.unclosed_block(),
            _ => None,
        }
    }

    fn unclosed_bracket(&self, open: u32, close: SyntaxKind, part: &str) -> Explanation {
        let wanted = match part {
            "" => format!("`{}`", close.spelled()),
            part => format!("{part} or `{}`", close.spelled()),
        };
        let opening = self.token_text(open).to_owned();
        let closes_other = matches!(self.current, RParen | RBracket | RBrace);
        // Where the line continues with something else, a comma is missing as likely as the
        // bracket.
        let same_line = !self.after_gap() && !closes_other;
        let headline = match same_line {
            true => format!("expected {wanted}, found {}", self.found()),
            false if closes_other => {
                format!("`{opening}` is not closed: expected {wanted}, found {}", self.found())
            }
            false => format!("`{opening}` is not closed: expected {wanted}"),
        };
        let (start, end) = self.token_bytes(open);
        let label = format!("this `{opening}` is not closed");
        let explanation =
            Explanation::new(headline).at(self.missing_token_loc(), format!("expected {wanted}"));
        if same_line { explanation } else { explanation.related(self.loc(start, end), label) }
    }

    /// Explains a block without `end`: the innermost one, or a nested one with an `end` that is
    /// indented less than itself and probably closes another block.
    fn unclosed_block(&self) -> Option<Explanation> {
        let innermost = self.open.last()?.keyword;
        let keyword = self.doubtful.filter(|&at| at > innermost).unwrap_or(innermost);
        let name = self.header_text(keyword);
        let (start, end) = self.token_bytes(keyword);
        let before = self.first_outside(keyword);
        let place = match before {
            Some(index) => {
                let (start, end) = self.token_bytes(index);
                self.loc(start, end)
            }
            None => self.missing_token_loc(),
        };
        let label = if before.is_some() { "expected `end` before this" } else { "expected `end`" };
        let explanation = Explanation::new(format!("`{name}` is not closed: expected `end`"));
        Some(explanation.at(place, label).related(self.loc(start, end), "opened here"))
    }

    /// Returns the first token after `keyword` on a line outside the block, by its indentation.
    fn first_outside(&self, keyword: u32) -> Option<u32> {
        let from = self.significant.partition_point(|&index| index <= keyword);
        let depth = self.indentation(keyword);
        let is_end = |index: u32| self.tokens[index as usize].kind == EndKw;
        let continues = |index: u32| {
            matches!(self.tokens[index as usize].kind, ElseKw | ElifKw | RParen | RBracket | RBrace)
        };
        self.significant[from..].iter().copied().find(|&index| {
            let at = self.indentation(index);
            self.starts_line(index)
                && !continues(index)
                && (at < depth || at == depth && !is_end(index))
        })
    }

    /// An `end` where no block is open.
    fn stray_end(&self) -> Option<Explanation> {
        if !self.at(EndKw) || !self.open.is_empty() || !self.starts_statement() {
            return None;
        }
        let (start, end) = self.token_bytes(self.current_index());
        let explanation = Explanation::new("`end` without a block that it could close");
        let help = "`end` closes `entity`, `implementation`, `for` and `if`; remove this one, or \
                    look for an extra `end` above";
        Some(explanation.at(self.loc(start, end), "").help(help))
    }

    /// A keyword where a name is expected.
    fn keyword_as_name(&self, expected: Expected) -> Option<Explanation> {
        let keyword = self.misused_keyword()?;
        let is_current = keyword == self.current_index();
        let wants_name = matches!(expected, Expected::Token(Id | ClassId));
        let is_value = matches!(self.tokens[keyword as usize].kind, TrueKw | FalseKw | NullKw);
        // `index = 1` and the like: the next token shows that a name was meant.
        let assigned = is_current && matches!(self.nth(1), Equal | PlusEqual)
            || !is_current && matches!(self.current, Equal | PlusEqual);
        if !(wants_name && is_current || assigned) || is_current && self.at_definition() {
            return None;
        }
        let word = self.token_text(keyword);
        let (start, end) = self.token_bytes(keyword);
        let kind = if is_value { "value" } else { "keyword" };
        let headline = format!("`{word}` is a {kind} and cannot be used as a name");
        let help = format!("choose another name, such as `{word}_`");
        Some(Explanation::new(headline).at(self.loc(start, end), "").help(help))
    }

    fn not_expected(&self, expected: Expected) -> Explanation {
        let gap = self.after_gap();
        let (wanted, help) = match expected {
            Expected::Token(kind) => (kind.described(), None),
            Expected::What(what) => (what.to_owned(), self.advice(what)),
            Expected::End => ("`end`".to_owned(), None),
            Expected::Close { close, .. } => (close.described(), None),
            Expected::Colon { header } => {
                let help = self.at(Equal).then(|| "compare by `==`".to_owned());
                let before = self.pos.checked_sub(1).map_or(header, |at| self.significant[at]);
                let (start, _) = self.token_bytes(header);
                let (_, end) = self.token_bytes(before.max(header));
                let text = quoted(&self.text[start as usize..end as usize]);
                (format!("`:` after `{text}`"), help)
            }
            Expected::AfterClass => {
                let index = self.pos.checked_sub(1).and_then(|at| self.significant.get(at));
                let name = index.map_or("", |&index| self.token_text(index));
                let help = format!(
                    "`{name}` is an entity: `{name}(…)` makes an instance, `{name}[…]` looks one up; \
                     names of variables begin in lower case"
                );
                (format!("`(` or `[` after `{name}`"), Some(help))
            }
        };
        let headline = match gap && !self.at_end() {
            true => format!("expected {wanted}"),
            false => format!("expected {wanted}, found {}", self.found()),
        };
        let label = match expected {
            Expected::Colon { .. } => "expected `:`".to_owned(),
            _ => format!("expected {wanted}"),
        };
        let mut explanation = Explanation::new(headline).at(self.missing_token_loc(), label);
        explanation.help = help;
        explanation
    }

    /// Returns help in addition to the expected construct.
    fn advice(&self, what: &str) -> Option<String> {
        let help = match what {
            super::ARGUMENT if !self.at_end() => {
                "the attributes of a constructor are given by name: `NAME=VALUE`"
            }
            super::CARDINALITY => {
                "a relation says how many instances there may be: `[1]`, `[0:1]`, `[0:]` or `[1:]`"
            }
            super::VALUE if matches!(self.current, EqualEqual | NotEqual | Equal) => {
                "compare by `==`, assign by `=`"
            }
            super::VALUE if self.at(Minus) || self.at(Plus) => {
                "a sign belongs to a number: write `0 - x` for the negative of a variable"
            }
            _ => return None,
        };
        Some(help.to_owned())
    }

    /// Returns the location of a missing token: behind the last token if the current one is on
    /// another line.
    fn missing_token_loc(&self) -> Loc {
        if self.after_gap()
            && let Some(previous) = self.pos.checked_sub(1).and_then(|at| self.significant.get(at))
        {
            let (_, end) = self.token_bytes(*previous);
            return self.loc(end, end);
        }
        let (start, end) = self.token_bytes(self.current_index());
        self.loc(start, end)
    }

    /// Returns true if the current token is not on the line of the one before it, or there is none.
    fn after_gap(&self) -> bool {
        let Some(previous) = self.pos.checked_sub(1).and_then(|at| self.significant.get(at)) else {
            return false;
        };
        let (_, end) = self.token_bytes(*previous);
        let (start, _) = self.token_bytes(self.current_index());
        self.at_end() || self.text[end as usize..start as usize].contains(['\n', '\r'])
    }

    /// The current token as messages name it.
    fn found(&self) -> String {
        if self.at_end() {
            return "the end of the file".to_owned();
        }
        let text = quoted(self.token_text(self.current_index()));
        match self.current {
            kind if kind.is_keyword() => format!("the keyword `{text}`"),
            SyntaxKind::String | RawString | FormatString | MultiLineString => {
                format!("the string `{text}`")
            }
            _ => format!("`{text}`"),
        }
    }

    /// Returns the text of a block's header, without its colon.
    fn header_text(&self, keyword: u32) -> String {
        let (start, _) = self.token_bytes(keyword);
        let line = self.text[start as usize..].lines().next().unwrap_or_default();
        let line = line.split(" #").next().unwrap_or(line);
        quoted(line.trim_end().trim_end_matches(':').trim_end())
    }

    /// Returns true if the current statement has no token yet.
    fn starts_statement(&self) -> bool {
        self.statement == self.current_index()
    }

    /// Place in `significant` of the first token on the line of the current one.
    fn line_start_token(&self) -> Option<usize> {
        let last = self.pos.min(self.significant.len().checked_sub(1)?);
        let nearest = last.saturating_sub(LINE_TOKENS_MAX);
        (nearest..=last).rev().find(|&at| self.starts_line(self.significant[at]))
    }
}

fn quoted(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let cut = line.char_indices().nth(QUOTED_CHARS_MAX).map(|(at, _)| at);
    match cut {
        Some(at) => format!("{}…", &line[..at]),
        None if line.len() < text.len() => format!("{line}…"),
        None => line.to_owned(),
    }
}
