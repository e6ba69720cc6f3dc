//! Groups of `re` patterns: captures, look-around, conditions, references.

use super::ast::Node;
use super::escape::is_flag;
use super::parser::{Flags, Parser};
use super::tokens::Token;
use crate::PyError;
use crate::text::repr_str;

/// Construct that an opening parenthesis starts.
pub(super) enum Opening {
    Group { name: Option<String>, capture: bool, atomic: bool, flags: Flags },
    Node(Node),
    Nothing,
    GlobalFlags,
}

/// Properties of a group at the start of its body.
pub(super) struct Group {
    pub(super) name: Option<String>,
    pub(super) capture: bool,
    pub(super) atomic: bool,
    pub(super) flags: Flags,
    pub(super) start: usize,
    pub(super) nesting: usize,
}

impl Parser {
    /// Parses from an opening parenthesis up to the body of a group.
    pub(super) fn opening(
        &mut self,
        start: usize,
        flags: Flags,
        nesting: usize,
    ) -> Result<Opening, PyError> {
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
                self.look_around(kind, start, flags, nesting).map(Opening::Node)
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

    fn unexpected_end(&self) -> PyError {
        self.tokens.error("unexpected end of pattern", 0)
    }

    pub(super) fn group(&mut self, group: Group) -> Result<Node, PyError> {
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

    fn look_around(
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
                    let position = self.tokens.position() - back;
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

/// Python's `str.isidentifier`, but for a few marks that identifiers may also contain.
fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    let starts = chars.next().is_some_and(|c| c == '_' || c.is_alphabetic());
    starts && chars.all(|c| c == '_' || c.is_alphanumeric())
}
