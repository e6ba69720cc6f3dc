//! Parser of Python's `re` syntax, with its error messages.

use super::ast::{Anchor, Case, ClassItem, Greed, Node, Width};
use super::groups::{Group, Opening};
use super::tokens::{Token, Tokens, pattern_error};
use crate::PyError;

/// Deeper nesting is refused, as Python does at its recursion limit.
const NESTING_MAX: usize = 200;

/// Python's bound on repetition counts.
const REPEAT_MAX: u64 = u32::MAX as u64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    pub(super) ignore_case: bool,
    pub(super) multi_line: bool,
    pub(super) dot_all: bool,
    pub(super) verbose: bool,
    pub(super) ascii: bool,
}

impl Flags {
    pub(super) fn case(self) -> Case {
        match (self.ignore_case, self.ascii) {
            (false, _) => Case::Sensitive,
            (true, true) => Case::IgnoreAscii,
            (true, false) => Case::Ignore,
        }
    }
}

/// Parses a pattern by Python's rules.
pub(super) fn parse(pattern: &str) -> Result<Node, PyError> {
    let mut parser = Parser {
        tokens: Tokens::new(pattern)?,
        flags: Flags::default(),
        global_types: (false, false),
        group_widths: vec![None],
        group_names: Vec::new(),
        group_references: Vec::new(),
        look_behind_from: None,
        variable_look_behind: false,
    };
    let node = parser.alternatives(Flags::default(), 0)?;
    if parser.global_types == (true, true) {
        return Err(PyError::value("ASCII and UNICODE flags are incompatible"));
    }
    if parser.tokens.peek().is_some() {
        return Err(parser.tokens.error("unbalanced parenthesis", 0));
    }
    for (group, position) in &parser.group_references {
        if *group >= parser.group_widths.len() as u64 {
            let message = format!("invalid group reference {group}");
            return Err(parser.tokens.error_at(&message, *position));
        }
    }
    if parser.variable_look_behind {
        return Err(pattern_error("look-behind requires fixed-width pattern"));
    }
    Ok(node)
}

pub(super) struct Parser {
    pub(super) tokens: Tokens,
    /// The flags of the whole pattern, as far as they have been read.
    pub(super) flags: Flags,
    /// True if `(?a)` and `(?u)` were given for the whole pattern.
    pub(super) global_types: (bool, bool),
    /// The widths of the capture groups, by number; `None` while a group is open.
    pub(super) group_widths: Vec<Option<Width>>,
    pub(super) group_names: Vec<(String, usize)>,
    /// Groups that conditions test by number, which may be defined later.
    pub(super) group_references: Vec<(u64, usize)>,
    /// Inside a look-behind: the first group that it defines itself.
    pub(super) look_behind_from: Option<usize>,
    pub(super) variable_look_behind: bool,
}

impl Parser {
    pub(super) fn alternatives(
        &mut self,
        mut flags: Flags,
        nesting: usize,
    ) -> Result<Node, PyError> {
        if nesting > NESTING_MAX {
            return Err(PyError::new("RecursionError", "maximum recursion depth exceeded"));
        }
        let mut branches = Vec::new();
        loop {
            branches.push(self.sequence(
                &mut flags,
                nesting,
                nesting == 0 && branches.is_empty(),
            )?);
            if !self.tokens.take_if('|')? {
                break;
            }
        }
        if branches.len() > 1 {
            return Ok(Node::Alternatives(branches));
        }
        Ok(branches.pop().unwrap_or(Node::Sequence(Vec::new())))
    }

    /// One branch. `flags` changes only through flags for the whole pattern at its very start.
    pub(super) fn sequence(
        &mut self,
        flags: &mut Flags,
        nesting: usize,
        at_pattern_start: bool,
    ) -> Result<Node, PyError> {
        let mut nodes: Vec<Node> = Vec::new();
        while let Some(token) = self.tokens.peek() {
            if matches!(token, Token::Char('|' | ')')) {
                break;
            }
            self.tokens.take()?;
            let character = match token {
                Token::Escape(escaped) => {
                    nodes.push(self.escape(escaped, *flags)?);
                    continue;
                }
                Token::Char(character) => character,
            };
            if flags.verbose {
                if matches!(character, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c') {
                    continue;
                }
                if character == '#' {
                    while !matches!(self.tokens.take()?, None | Some(Token::Char('\n'))) {}
                    continue;
                }
            }
            match character {
                '[' => nodes.push(self.class(*flags)?),
                '*' | '+' | '?' | '{' => self.repeat(character, &mut nodes, *flags)?,
                '.' => nodes.push(Node::AnyCharacter { newline_too: flags.dot_all }),
                '^' if flags.multi_line => nodes.push(Node::Anchor(Anchor::LineStart)),
                '^' => nodes.push(Node::Anchor(Anchor::TextStart)),
                '$' if flags.multi_line => nodes.push(Node::Anchor(Anchor::LineEnd)),
                '$' => nodes.push(Node::Anchor(Anchor::TextEndOrLastNewline)),
                '(' => {
                    let start = self.tokens.position() - 1;
                    match self.opening(start, *flags, nesting)? {
                        Opening::Nothing => {}
                        Opening::Node(node) => nodes.push(node),
                        Opening::GlobalFlags => {
                            if !at_pattern_start || !nodes.is_empty() {
                                let message = "global flags not at the start of the expression";
                                return Err(self.tokens.error_at(message, start));
                            }
                            *flags = self.flags;
                        }
                        Opening::Group { name, capture, atomic, flags } => {
                            let inner = Group { name, capture, atomic, flags, start, nesting };
                            nodes.push(self.group(inner)?);
                        }
                    }
                }
                _ => nodes.push(Node::Literal { character, case: flags.case() }),
            }
        }
        if nodes.len() == 1 {
            return Ok(nodes.swap_remove(0));
        }
        Ok(Node::Sequence(nodes))
    }

    fn repeat(
        &mut self,
        operator: char,
        nodes: &mut Vec<Node>,
        flags: Flags,
    ) -> Result<(), PyError> {
        let here = self.tokens.position();
        let (min, max) = match operator {
            '?' => (0, Some(1)),
            '*' => (0, None),
            '+' => (1, None),
            _ => match self.counts(here)? {
                Some(counts) => counts,
                None => {
                    nodes.push(Node::Literal { character: '{', case: flags.case() });
                    return Ok(());
                }
            },
        };
        let body = match nodes.pop() {
            None | Some(Node::Anchor(_)) => {
                return Err(self.tokens.error_at("nothing to repeat", here - 1));
            }
            Some(Node::Repeat { .. }) => {
                return Err(self.tokens.error_at("multiple repeat", here - 1));
            }
            Some(body) => Box::new(body),
        };
        let greed = if self.tokens.take_if('?')? {
            Greed::Lazy
        } else if self.tokens.take_if('+')? {
            Greed::Possessive
        } else {
            Greed::Greedy
        };
        nodes.push(Node::Repeat { min, max, greed, body });
        Ok(())
    }

    /// `{min,max}` after its brace; `None` when it is no such thing and the brace is a literal.
    fn counts(&mut self, here: usize) -> Result<Option<(u32, Option<u32>)>, PyError> {
        if self.tokens.peek_char() == Some('}') {
            return Ok(None);
        }
        let low = self.tokens.take_while(usize::MAX, |c| c.is_ascii_digit())?;
        let high = if self.tokens.take_if(',')? {
            self.tokens.take_while(usize::MAX, |c| c.is_ascii_digit())?
        } else {
            low.clone()
        };
        if !self.tokens.take_if('}')? {
            self.tokens.seek(here)?;
            return Ok(None);
        }
        let count = |digits: &str| match digits.trim_start_matches('0') {
            "" => Ok(0),
            digits => {
                let count = digits.parse().ok().filter(|count: &u64| *count < REPEAT_MAX);
                let count = count.and_then(|count| u32::try_from(count).ok());
                count.ok_or_else(|| PyError::overflow("the repetition number is too large"))
            }
        };
        let min = count(&low)?;
        let max = if high.is_empty() { None } else { Some(count(&high)?) };
        if max.is_some_and(|max| max < min) {
            return Err(self.tokens.error_at("min repeat greater than max repeat", here));
        }
        Ok(Some((min, max)))
    }

    fn class(&mut self, flags: Flags) -> Result<Node, PyError> {
        let here = self.tokens.position() - 1;
        let unterminated =
            |parser: &Parser| parser.tokens.error_at("unterminated character set", here);
        let negated = self.tokens.take_if('^')?;
        let mut items = Vec::new();
        loop {
            let Some(first) = self.tokens.take()? else {
                return Err(unterminated(self));
            };
            if first == Token::Char(']') && !items.is_empty() {
                break;
            }
            let low = self.class_member(first, flags)?;
            if !self.tokens.take_if('-')? {
                items.push(low);
                continue;
            }
            let Some(second) = self.tokens.take()? else {
                return Err(unterminated(self));
            };
            if second == Token::Char(']') {
                items.push(low);
                items.push(ClassItem::character('-'));
                break;
            }
            let high = self.class_member(second, flags)?;
            match (low, high) {
                (ClassItem::Range(low, _), ClassItem::Range(high, _)) if low <= high => {
                    items.push(ClassItem::Range(low, high));
                }
                _ => {
                    let range = format!("{}-{}", first.text(), second.text());
                    let back = range.chars().count();
                    return Err(self.tokens.error(format!("bad character range {range}"), back));
                }
            }
        }
        Ok(Node::Class { negated, items, case: flags.case() })
    }

    fn class_member(&mut self, token: Token, flags: Flags) -> Result<ClassItem, PyError> {
        match token {
            Token::Char(character) => Ok(ClassItem::character(character)),
            Token::Escape(escaped) => self.class_escape(escaped, flags),
        }
    }
}
