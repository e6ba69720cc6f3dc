//! Escapes and inline flags of `re` patterns.

use super::ast::{Anchor, Category, ClassItem, Node};
use super::parser::{Flags, Parser};
use super::tokens::Token;
use crate::PyError;
use crate::names::character_by_name;
use crate::text::repr_str;

impl Parser {
    /// An escape outside a character set, after its first letter.
    pub(super) fn escape(&mut self, escaped: char, flags: Flags) -> Result<Node, PyError> {
        let ascii = flags.ascii;
        let anchor = match escaped {
            'A' => Some(Anchor::TextStart),
            'Z' => Some(Anchor::TextEnd),
            'b' => Some(Anchor::WordBoundary { ascii }),
            'B' => Some(Anchor::NotWordBoundary { ascii }),
            _ => None,
        };
        if let Some(anchor) = anchor {
            return Ok(Node::Anchor(anchor));
        }
        if let Some(category) = category(escaped, flags) {
            let case = flags.case();
            return Ok(Node::Class { negated: false, items: vec![category], case });
        }
        let literal = |character| Node::Literal { character, case: flags.case() };
        if let Some(code) = self.shared_escape(escaped)? {
            // No text contains a lone surrogate.
            return Ok(char::from_u32(code).map_or(Node::Never, literal));
        }
        match escaped {
            '0' => {
                let digits = self.tokens.take_while(2, is_octal)?;
                let code = u32::from_str_radix(&digits, 8).unwrap_or(0);
                Ok(literal(char::from_u32(code).unwrap_or('\0')))
            }
            '1'..='9' => self.number_escape(escaped, flags),
            letter if letter.is_ascii_alphabetic() => Err(self.bad_escape(&letter.to_string())),
            character => Ok(literal(character)),
        }
    }

    /// `\12` is a reference to a group, `\123` a character in octal.
    fn number_escape(&mut self, first: char, flags: Flags) -> Result<Node, PyError> {
        let mut digits = first.to_string();
        if let Some(second) = self.tokens.peek_char().filter(char::is_ascii_digit) {
            digits.push(second);
            self.tokens.take()?;
            let third = self.tokens.peek_char().filter(|c| is_octal(*c));
            if let (true, Some(third)) = (digits.chars().all(is_octal), third) {
                digits.push(third);
                self.tokens.take()?;
                let character = self.octal(&digits)?;
                return Ok(Node::Literal { character, case: flags.case() });
            }
        }
        let group: usize = digits.parse().unwrap_or(0);
        if self.group_exists(group) {
            return self.reference(group, digits.len() + 1, flags);
        }
        Err(self.tokens.error(format!("invalid group reference {group}"), digits.len()))
    }

    /// An escape inside a character set, after its first letter.
    pub(super) fn class_escape(
        &mut self,
        escaped: char,
        flags: Flags,
    ) -> Result<ClassItem, PyError> {
        if escaped == 'b' {
            return Ok(ClassItem::character('\x08'));
        }
        if let Some(category) = category(escaped, flags) {
            return Ok(category);
        }
        let code = match self.shared_escape(escaped)? {
            Some(code) => code,
            None => match escaped {
                '0'..='7' => {
                    let more = self.tokens.take_while(2, is_octal)?;
                    self.octal(&format!("{escaped}{more}"))?.into()
                }
                letter if letter.is_ascii_alphanumeric() => {
                    return Err(self.bad_escape(&letter.to_string()));
                }
                character => character.into(),
            },
        };
        Ok(ClassItem::Range(code, code))
    }

    /// The code points of escapes that stand for one character inside and outside of sets.
    fn shared_escape(&mut self, escaped: char) -> Result<Option<u32>, PyError> {
        let character = match escaped {
            'a' => '\x07',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            '\\' => '\\',
            'x' => return self.hex_escape('x', 2).map(Some),
            'u' => return self.hex_escape('u', 4).map(Some),
            'U' => return self.hex_escape('U', 8).map(Some),
            'N' => self.named_escape()?,
            _ => return Ok(None),
        };
        Ok(Some(character.into()))
    }

    fn hex_escape(&mut self, letter: char, count: usize) -> Result<u32, PyError> {
        let digits = self.tokens.take_while(count, |c| c.is_ascii_hexdigit())?;
        if digits.len() < count {
            let message = format!("incomplete escape \\{letter}{digits}");
            return Err(self.tokens.error(message, digits.len() + 2));
        }
        let code = u32::from_str_radix(&digits, 16).unwrap_or(u32::MAX);
        if code > char::MAX.into() {
            return Err(self.bad_escape(&format!("{letter}{digits}")));
        }
        Ok(code)
    }

    fn named_escape(&mut self) -> Result<char, PyError> {
        if !self.tokens.take_if('{')? {
            return Err(self.tokens.error("missing {", 0));
        }
        let name = self.tokens.take_until('}', "character name")?;
        character_by_name(&name).ok_or_else(|| {
            let message = format!("undefined character name {}", repr_str(&name));
            self.tokens.error(message, name.chars().count() + 4)
        })
    }

    fn octal(&self, digits: &str) -> Result<char, PyError> {
        let code = u32::from_str_radix(digits, 8).unwrap_or(u32::MAX);
        char::from_u32(code).filter(|_| code <= 0o377).ok_or_else(|| {
            let message = format!("octal escape value \\{digits} outside of range 0-0o377");
            self.tokens.error(message, digits.len() + 1)
        })
    }

    fn bad_escape(&self, escape: &str) -> PyError {
        self.tokens.error(format!("bad escape \\{escape}"), escape.chars().count() + 1)
    }
}

fn is_octal(c: char) -> bool {
    ('0'..='7').contains(&c)
}

fn category(letter: char, flags: Flags) -> Option<ClassItem> {
    let category = match letter.to_ascii_lowercase() {
        'd' => Category::Digit,
        's' => Category::Space,
        'w' => Category::Word,
        _ => return None,
    };
    let negated = letter.is_ascii_uppercase();
    Some(ClassItem::Category { category, negated, ascii: flags.ascii })
}

/// The letters of one side of `(?on-off:…)`.
#[derive(Default)]
struct FlagSet {
    letters: Vec<char>,
}

impl FlagSet {
    fn has(&self, letter: char) -> bool {
        self.letters.contains(&letter)
    }

    fn apply(&self, flags: &mut Flags, value: bool) {
        for letter in &self.letters {
            match letter {
                'i' => flags.ignore_case = value,
                'm' => flags.multi_line = value,
                's' => flags.dot_all = value,
                'x' => flags.verbose = value,
                'a' => flags.ascii = value,
                'u' => flags.ascii = !value,
                _ => {}
            }
        }
    }
}

impl Parser {
    /// Flags after `(?`: those of the group that follows, or `None` when they are for the whole pattern.
    pub(super) fn inline_flags(
        &mut self,
        first: char,
        outer: Flags,
    ) -> Result<Option<Flags>, PyError> {
        let mut on = FlagSet::default();
        let mut ending = first;
        if first != '-' {
            ending = self.flags_to_turn_on(first, &mut on)?;
        }
        if ending == ')' {
            on.apply(&mut self.flags, true);
            self.global_types.0 |= on.has('a');
            self.global_types.1 |= on.has('u');
            return Ok(None);
        }
        let mut off = FlagSet::default();
        if ending == '-' {
            self.flags_to_turn_off(&mut off)?;
        }
        if on.letters.iter().any(|letter| off.has(*letter)) {
            return Err(self.tokens.error("bad inline flags: flag turned on and off", 1));
        }
        let mut flags = outer;
        on.apply(&mut flags, true);
        off.apply(&mut flags, false);
        Ok(Some(flags))
    }

    /// Reads up to `)`, `-` or `:`, which it gives back.
    fn flags_to_turn_on(&mut self, first: char, on: &mut FlagSet) -> Result<char, PyError> {
        let mut letter = first;
        loop {
            if letter == 'L' {
                let message = "bad inline flags: cannot use 'L' flag with a str pattern";
                return Err(self.tokens.error(message, 0));
            }
            on.letters.push(letter);
            if on.has('a') && on.has('u') {
                let message = "bad inline flags: flags 'a', 'u' and 'L' are incompatible";
                return Err(self.tokens.error(message, 0));
            }
            match self.tokens.take()? {
                None => return Err(self.tokens.error("missing -, : or )", 0)),
                Some(Token::Char(ending @ (')' | '-' | ':'))) => return Ok(ending),
                Some(Token::Char(next)) if is_flag(next) => letter = next,
                Some(other) => return Err(self.not_a_flag(other, "missing -, : or )")),
            }
        }
    }

    fn flags_to_turn_off(&mut self, off: &mut FlagSet) -> Result<(), PyError> {
        let mut expected = "missing flag";
        loop {
            match self.tokens.take()? {
                None => return Err(self.tokens.error(expected, 0)),
                Some(Token::Char(':')) if !off.letters.is_empty() => return Ok(()),
                Some(Token::Char('a' | 'u' | 'L')) => {
                    let message = "bad inline flags: cannot turn off flags 'a', 'u' and 'L'";
                    return Err(self.tokens.error(message, 0));
                }
                Some(Token::Char(next)) if is_flag(next) => off.letters.push(next),
                Some(other) => return Err(self.not_a_flag(other, expected)),
            }
            expected = "missing :";
        }
    }

    fn not_a_flag(&self, token: Token, expected: &str) -> PyError {
        let letter = matches!(token, Token::Char(c) if c.is_alphabetic());
        self.tokens.error(if letter { "unknown flag" } else { expected }, token.len())
    }
}

pub(super) fn is_flag(letter: char) -> bool {
    matches!(letter, 'i' | 'L' | 'm' | 's' | 'x' | 'a' | 'u')
}
