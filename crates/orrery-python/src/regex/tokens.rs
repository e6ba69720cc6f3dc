//! The characters of a pattern as tokens (an escape is one token) with one token of look-ahead, and
//! the errors that point into the pattern.

use crate::PyError;

/// One character, or a backslash and the character after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Char(char),
    Escape(char),
}

impl Token {
    pub(super) fn len(self) -> usize {
        match self {
            Token::Char(_) => 1,
            Token::Escape(_) => 2,
        }
    }

    pub(super) fn text(self) -> String {
        match self {
            Token::Char(c) => c.to_string(),
            Token::Escape(c) => format!("\\{c}"),
        }
    }
}

pub(super) struct Tokens {
    pattern: Vec<char>,
    /// Start of the token after `next`.
    index: usize,
    next: Option<Token>,
}

impl Tokens {
    pub(super) fn new(pattern: &str) -> Result<Tokens, PyError> {
        let mut tokens = Tokens { pattern: pattern.chars().collect(), index: 0, next: None };
        tokens.advance()?;
        Ok(tokens)
    }

    fn advance(&mut self) -> Result<(), PyError> {
        self.next = match self.pattern.get(self.index) {
            None => None,
            Some('\\') => match self.pattern.get(self.index + 1) {
                Some(&escaped) => Some(Token::Escape(escaped)),
                None => {
                    let last = self.pattern.len() - 1;
                    return Err(self.error_at("bad escape (end of pattern)", last));
                }
            },
            Some(&c) => Some(Token::Char(c)),
        };
        self.index += self.next.map_or(0, Token::len);
        Ok(())
    }

    /// The position, in characters, of the next token.
    pub(super) fn position(&self) -> usize {
        self.index - self.next.map_or(0, Token::len)
    }

    pub(super) fn seek(&mut self, position: usize) -> Result<(), PyError> {
        self.index = position;
        self.advance()
    }

    pub(super) fn peek(&self) -> Option<Token> {
        self.next
    }

    pub(super) fn peek_char(&self) -> Option<char> {
        match self.next {
            Some(Token::Char(c)) => Some(c),
            _ => None,
        }
    }

    pub(super) fn take(&mut self) -> Result<Option<Token>, PyError> {
        let token = self.next;
        self.advance()?;
        Ok(token)
    }

    /// Takes the next token if it is this character.
    pub(super) fn take_if(&mut self, wanted: char) -> Result<bool, PyError> {
        let found = self.peek_char() == Some(wanted);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    /// Takes up to `count` characters that satisfy the predicate.
    pub(super) fn take_while(
        &mut self,
        count: usize,
        wanted: impl Fn(char) -> bool,
    ) -> Result<String, PyError> {
        let mut text = String::new();
        for _ in 0..count {
            let Some(c) = self.peek_char().filter(|c| wanted(*c)) else {
                break;
            };
            text.push(c);
            self.advance()?;
        }
        Ok(text)
    }

    /// The text up to `terminator`, which is taken too; `what` names it in errors.
    pub(super) fn take_until(&mut self, terminator: char, what: &str) -> Result<String, PyError> {
        let mut text = String::new();
        loop {
            let Some(token) = self.take()? else {
                if text.is_empty() {
                    return Err(self.error(format!("missing {what}"), 0));
                }
                let length = text.chars().count();
                return Err(self.error(format!("missing {terminator}, unterminated name"), length));
            };
            if token == Token::Char(terminator) {
                if text.is_empty() {
                    return Err(self.error(format!("missing {what}"), 1));
                }
                return Ok(text);
            }
            text.push_str(&token.text());
        }
    }

    /// An error `back` characters before the next token.
    pub(super) fn error(&self, message: impl AsRef<str>, back: usize) -> PyError {
        self.error_at(message.as_ref(), self.position().saturating_sub(back))
    }

    pub(super) fn error_at(&self, message: &str, position: usize) -> PyError {
        let mut text = format!("{message} at position {position}");
        if self.pattern.contains(&'\n') {
            let before = &self.pattern[..position.min(self.pattern.len())];
            let line = before.iter().filter(|c| **c == '\n').count() + 1;
            let column = match before.iter().rposition(|c| *c == '\n') {
                Some(newline) => position - newline,
                None => position + 1,
            };
            text.push_str(&format!(" (line {line}, column {column})"));
        }
        pattern_error(text)
    }
}

pub(super) fn pattern_error(message: impl Into<String>) -> PyError {
    PyError::new("PatternError", message)
}
