//! Python's `re` syntax: what it accepts, and what it says of the rest.

use super::ast::{Anchor, Case, ClassItem, Greed, Node, Width};
use super::tokens::{Token, Tokens, pattern_error};
use crate::PyError;
use crate::text::repr_str;

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

/// What a pattern that Python accepts means.
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
    /// Whether `(?a)` and `(?u)` were given for the whole pattern.
    pub(super) global_types: (bool, bool),
    /// The widths of the capture groups, by number; `None` while a group is open.
    group_widths: Vec<Option<Width>>,
    group_names: Vec<(String, usize)>,
    /// Groups that conditions test by number, which may be defined later.
    group_references: Vec<(u64, usize)>,
    /// Inside a look-behind: the first group that it defines itself.
    look_behind_from: Option<usize>,
    variable_look_behind: bool,
}

/// What an opening parenthesis starts.
enum Opening {
    Group { name: Option<String>, capture: bool, atomic: bool, flags: Flags },
    Node(Node),
    Nothing,
    GlobalFlags,
}

impl Parser {
    fn alternatives(&mut self, mut flags: Flags, nesting: usize) -> Result<Node, PyError> {
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
    fn sequence(
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
                    let start = self.tokens.tell() - 1;
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
        let here = self.tokens.tell();
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
        let here = self.tokens.tell() - 1;
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
                items.push(ClassItem::Range('-', '-'));
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
            Token::Char(character) => Ok(ClassItem::Range(character, character)),
            Token::Escape(escaped) => self.class_escape(escaped, flags),
        }
    }
}

/// What is known of a group when its body starts.
struct Group {
    name: Option<String>,
    capture: bool,
    atomic: bool,
    flags: Flags,
    start: usize,
    nesting: usize,
}

impl Parser {
    /// What follows an opening parenthesis, up to the body of a group.
    fn opening(&mut self, start: usize, flags: Flags, nesting: usize) -> Result<Opening, PyError> {
        let group = |name| Opening::Group { name, capture: true, atomic: false, flags };
        if !self.tokens.take_if('?')? {
            return Ok(group(None));
        }
        let kind = self.tokens.take()?.ok_or_else(|| self.unexpected_end())?;
        match kind {
            Token::Char('P') => {
                if self.tokens.take_if('<')? {
                    let name = self.tokens.take_until('>', "group name")?;
                    self.check_group_name(&name)?;
                    return Ok(group(Some(name)));
                }
                if self.tokens.take_if('=')? {
                    return self.named_reference(flags).map(Opening::Node);
                }
                let next = self.tokens.take()?.ok_or_else(|| self.unexpected_end())?;
                let message = format!("unknown extension ?P{}", next.text());
                Err(self.tokens.error(message, next.len() + 2))
            }
            Token::Char(':') => {
                Ok(Opening::Group { name: None, capture: false, atomic: false, flags })
            }
            Token::Char('>') => {
                Ok(Opening::Group { name: None, capture: false, atomic: true, flags })
            }
            Token::Char('#') => loop {
                match self.tokens.peek() {
                    None => {
                        let message = "missing ), unterminated comment";
                        return Err(self.tokens.error_at(message, start));
                    }
                    Some(token) => {
                        self.tokens.take()?;
                        if token == Token::Char(')') {
                            return Ok(Opening::Nothing);
                        }
                    }
                }
            },
            Token::Char(kind @ ('=' | '!' | '<')) => {
                self.look(kind, start, flags, nesting).map(Opening::Node)
            }
            Token::Char('(') => self.conditional(start, flags, nesting).map(Opening::Node),
            Token::Char(letter) if letter == '-' || is_flag(letter) => {
                match self.inline_flags(letter, flags)? {
                    Some(flags) => {
                        Ok(Opening::Group { name: None, capture: false, atomic: false, flags })
                    }
                    None => Ok(Opening::GlobalFlags),
                }
            }
            other => {
                let message = format!("unknown extension ?{}", other.text());
                Err(self.tokens.error(message, other.len() + 1))
            }
        }
    }

    pub(super) fn unexpected_end(&self) -> PyError {
        self.tokens.error("unexpected end of pattern", 0)
    }

    fn group(&mut self, group: Group) -> Result<Node, PyError> {
        let number = self.group_widths.len();
        if group.capture {
            self.group_widths.push(None);
            if let Some(name) = group.name {
                if let Some(earlier) = self.group_number(&name) {
                    let message = format!(
                        "redefinition of group name {} as group {number}; was group {earlier}",
                        repr_str(&name)
                    );
                    return Err(self.tokens.error(message, name.chars().count() + 1));
                }
                self.group_names.push((name, number));
            }
        }
        let body = self.alternatives(group.flags, group.nesting + 1)?;
        self.close(group.start)?;
        if group.capture {
            self.group_widths[number] = Some(body.width(&self.group_widths));
        }
        let body = Box::new(body);
        if group.atomic {
            return Ok(Node::Atomic(body));
        }
        Ok(Node::Group { capture: group.capture.then_some(number), body })
    }

    fn close(&mut self, start: usize) -> Result<(), PyError> {
        if self.tokens.take_if(')')? {
            return Ok(());
        }
        Err(self.tokens.error_at("missing ), unterminated subpattern", start))
    }

    fn look(
        &mut self,
        kind: char,
        start: usize,
        flags: Flags,
        nesting: usize,
    ) -> Result<Node, PyError> {
        let behind = kind == '<';
        let kind = if behind {
            match self.tokens.take()?.ok_or_else(|| self.unexpected_end())? {
                Token::Char(kind @ ('=' | '!')) => kind,
                other => {
                    let message = format!("unknown extension ?<{}", other.text());
                    return Err(self.tokens.error(message, other.len() + 2));
                }
            }
        } else {
            kind
        };
        let outer = self.look_behind_from;
        if behind && outer.is_none() {
            self.look_behind_from = Some(self.group_widths.len());
        }
        let body = self.alternatives(flags, nesting + 1)?;
        if behind {
            self.look_behind_from = outer;
        }
        self.close(start)?;
        let negated = kind == '!';
        if negated && matches!(&body, Node::Sequence(nodes) if nodes.is_empty()) {
            return Ok(Node::Never);
        }
        if behind {
            // Python reports this only when all else in the pattern is right.
            let width = body.width(&self.group_widths);
            self.variable_look_behind |= width.min != width.max;
        }
        Ok(Node::Look { behind, negated, body: Box::new(body) })
    }

    fn conditional(&mut self, start: usize, flags: Flags, nesting: usize) -> Result<Node, PyError> {
        let condition = self.tokens.take_until(')', "group name")?;
        let back = condition.chars().count() + 1;
        let group = if condition.bytes().all(|byte| byte.is_ascii_digit()) {
            let number = condition.trim_start_matches('0');
            if number.is_empty() {
                return Err(self.tokens.error("bad group number", back));
            }
            match number.parse::<u64>().ok().filter(|number| *number < 1 << 30) {
                Some(number) => {
                    let position = self.tokens.tell() - back;
                    if !self.group_references.iter().any(|(known, _)| *known == number) {
                        self.group_references.push((number, position));
                    }
                    number as usize
                }
                None => {
                    let message = format!("invalid group reference {number}");
                    return Err(self.tokens.error(message, back));
                }
            }
        } else {
            self.check_group_name(&condition)?;
            self.group_number(&condition).ok_or_else(|| {
                let message = format!("unknown group name {}", repr_str(&condition));
                self.tokens.error(message, back)
            })?
        };
        self.check_look_behind_group(group)?;
        let mut inner_flags = flags;
        let yes = self.sequence(&mut inner_flags, nesting + 1, false)?;
        let no = if self.tokens.take_if('|')? {
            let no = self.sequence(&mut inner_flags, nesting + 1, false)?;
            if self.tokens.peek_char() == Some('|') {
                let message = "conditional backref with more than two branches";
                return Err(self.tokens.error(message, 0));
            }
            Some(Box::new(no))
        } else {
            None
        };
        self.close(start)?;
        Ok(Node::Conditional { group, yes: Box::new(yes), no })
    }

    fn named_reference(&mut self, flags: Flags) -> Result<Node, PyError> {
        let name = self.tokens.take_until(')', "group name")?;
        self.check_group_name(&name)?;
        let back = name.chars().count() + 1;
        let Some(group) = self.group_number(&name) else {
            let message = format!("unknown group name {}", repr_str(&name));
            return Err(self.tokens.error(message, back));
        };
        self.reference(group, back, flags)
    }

    pub(super) fn reference(
        &mut self,
        group: usize,
        back: usize,
        flags: Flags,
    ) -> Result<Node, PyError> {
        if self.group_widths.get(group).copied().flatten().is_none() {
            return Err(self.tokens.error("cannot refer to an open group", back));
        }
        self.check_look_behind_group(group)?;
        Ok(Node::BackReference { group, case: flags.case() })
    }

    pub(super) fn group_exists(&self, group: usize) -> bool {
        group < self.group_widths.len()
    }

    fn check_look_behind_group(&self, group: usize) -> Result<(), PyError> {
        let Some(first_inside) = self.look_behind_from else {
            return Ok(());
        };
        if self.group_widths.get(group).copied().flatten().is_none() {
            return Err(self.tokens.error("cannot refer to an open group", 0));
        }
        if group >= first_inside {
            let message = "cannot refer to group defined in the same lookbehind subpattern";
            return Err(self.tokens.error(message, 0));
        }
        Ok(())
    }

    fn group_number(&self, name: &str) -> Option<usize> {
        self.group_names.iter().find(|(known, _)| known == name).map(|(_, number)| *number)
    }

    fn check_group_name(&self, name: &str) -> Result<(), PyError> {
        if is_identifier(name) {
            return Ok(());
        }
        let message = format!("bad character in group name {}", repr_str(name));
        Err(self.tokens.error(message, name.chars().count() + 1))
    }
}

pub(super) fn is_flag(letter: char) -> bool {
    matches!(letter, 'i' | 'L' | 'm' | 's' | 'x' | 'a' | 'u')
}

/// Python's `str.isidentifier`, but for a few marks that identifiers may also contain.
fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    let starts = chars.next().is_some_and(|c| c == '_' || c.is_alphabetic());
    starts && chars.all(|c| c == '_' || c.is_alphanumeric())
}
