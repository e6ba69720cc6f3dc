//! Cuts a text into tokens. Every byte belongs to exactly one token, so that the tokens' texts
//! joined together are the source.
//!
//! The rules are tried in a fixed order and the first that matches wins, which is why a hyphen is
//! part of a name (`a-1` is one identifier) and a minus sign part of a number (`5-1` is `5` then
//! `-1`).

use orrery_python::is_space;

use crate::kind::SyntaxKind;

/// A token: its kind and where it starts. It ends where the next one starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntaxToken {
    pub kind: SyntaxKind,
    pub start: u32,
}

/// Cuts `text` into tokens. Texts of 4 GiB and more must have been refused by the caller.
pub fn lex(text: &str) -> Vec<SyntaxToken> {
    // Models have a token for about every four bytes, trivia included.
    let mut tokens = Vec::with_capacity(text.len() / 4 + 8);
    let mut lexer = Lexer { text, bytes: text.as_bytes(), pos: 0 };
    if text.starts_with('\u{feff}') {
        tokens.push(SyntaxToken { kind: SyntaxKind::ByteOrderMark, start: 0 });
        lexer.pos = '\u{feff}'.len_utf8();
    }
    while lexer.pos < lexer.bytes.len() {
        let start = lexer.pos as u32;
        let kind = lexer.next_token();
        tokens.push(SyntaxToken { kind, start });
    }
    tokens
}

struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    pos: usize,
}

impl Lexer<'_> {
    fn at(&self, pos: usize) -> u8 {
        self.bytes.get(pos).copied().unwrap_or(0)
    }

    fn take(&mut self, length: usize, kind: SyntaxKind) -> SyntaxKind {
        self.pos += length;
        kind
    }

    fn next_token(&mut self) -> SyntaxKind {
        use SyntaxKind::*;
        let first = self.bytes[self.pos];
        let second = self.at(self.pos + 1);
        match first {
            b' ' | b'\t' | b'\n' | b'\r' => self.whitespace(),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => self.word(),
            b':' if second == b':' => self.take(2, PathSep),
            b'-' if second == b'-' || second == b'>' => self.take(2, RelationOp),
            b'<' if second == b'-' => self.take(2, RelationOp),
            b'!' if second == b'=' => self.take(2, NotEqual),
            b'=' if second == b'=' => self.take(2, EqualEqual),
            b'>' if second == b'=' => self.take(2, GreaterEqual),
            b'<' if second == b'=' => self.take(2, LessEqual),
            b'<' => self.take(1, Less),
            b'>' => self.take(1, Greater),
            b'+' if second == b'=' => self.take(2, PlusEqual),
            b'#' => self.comment(),
            b'"' | b'\'' => self.string(first),
            b'0'..=b'9' => self.number(),
            b'.' if second.is_ascii_digit() => self.number(),
            b'-' if second.is_ascii_digit() => self.number(),
            b'-' if second == b'.' && self.at(self.pos + 2).is_ascii_digit() => self.number(),
            b'+' => self.take(1, Plus),
            b'-' => self.take(1, Minus),
            b'/' => self.take(1, Slash),
            b'*' if second == b'*' => self.take(2, StarStar),
            b':' => self.take(1, Colon),
            b'[' => self.take(1, LBracket),
            b']' => self.take(1, RBracket),
            b'(' => self.take(1, LParen),
            b')' => self.take(1, RParen),
            b'=' => self.take(1, Equal),
            b',' => self.take(1, Comma),
            b'.' => self.take(1, Dot),
            b'{' => self.take(1, LBrace),
            b'}' => self.take(1, RBrace),
            b'?' => self.take(1, Question),
            b'*' => self.take(1, Star),
            b'%' => self.take(1, Percent),
            _ => self.illegal(),
        }
    }

    fn whitespace(&mut self) -> SyntaxKind {
        while matches!(self.at(self.pos), b' ' | b'\t' | b'\n' | b'\r') {
            self.pos += 1;
        }
        SyntaxKind::Whitespace
    }

    fn comment(&mut self) -> SyntaxKind {
        self.pos = self.end_of_line(self.pos);
        SyntaxKind::Comment
    }

    fn end_of_line(&self, from: usize) -> usize {
        let rest = &self.bytes[from..];
        rest.iter().position(|b| matches!(b, b'\n' | b'\r')).map_or(self.bytes.len(), |n| from + n)
    }

    fn illegal(&mut self) -> SyntaxKind {
        let length = self.text[self.pos..].chars().next().map_or(1, char::len_utf8);
        self.take(length, SyntaxKind::Illegal)
    }

    fn word(&mut self) -> SyntaxKind {
        let start = self.pos;
        let first = self.bytes[start];
        let second = self.at(start + 1);
        if matches!(second, b'"' | b'\'')
            && matches!(first, b'f' | b'r')
            && let Some(end) = self.quoted_end(start + 1, second)
        {
            self.pos = end;
            let format = first == b'f';
            return if format { SyntaxKind::FormatString } else { SyntaxKind::RawString };
        }
        let mut pos = start + 1;
        while matches!(self.at(pos), b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-') {
            pos += 1;
        }
        let text = &self.text[start..pos];
        let kind = match first {
            b'A'..=b'Z' => SyntaxKind::ClassId,
            _ => SyntaxKind::keyword(text).unwrap_or(SyntaxKind::Id),
        };
        if kind == SyntaxKind::MatchingKw
            && let Some(end) = self.regex_end(pos)
        {
            self.pos = end;
            return SyntaxKind::Regex;
        }
        self.pos = pos;
        kind
    }

    /// Returns the end of the `/…/` after a `matching` that ends at `pos`, if there is one.
    fn regex_end(&self, pos: usize) -> Option<usize> {
        let rest = &self.text[pos..];
        let trimmed = rest.trim_start_matches(is_space);
        if trimmed.len() == rest.len() || !trimmed.starts_with('/') {
            return None;
        }
        let body = pos + (rest.len() - trimmed.len()) + 1;
        let end = self.delimited_end(body, b'/')?;
        (end - 1 > body).then_some(end)
    }

    /// Returns the offset after the closing delimiter of a one-line literal with content from
    /// `pos`. A backslash protects the next character, but not a newline.
    fn delimited_end(&self, mut pos: usize, delimiter: u8) -> Option<usize> {
        loop {
            match *self.bytes.get(pos)? {
                b'\n' | b'\r' => return None,
                b'\\' => match *self.bytes.get(pos + 1)? {
                    b'\n' | b'\r' => return None,
                    _ => pos += 2,
                },
                byte if byte == delimiter => return Some(pos + 1),
                _ => pos += 1,
            }
        }
    }

    fn quoted_end(&self, quote_pos: usize, quote: u8) -> Option<usize> {
        self.delimited_end(quote_pos + 1, quote)
    }

    fn string(&mut self, quote: u8) -> SyntaxKind {
        if quote == b'"'
            && let Some(end) = self.multi_line_end()
        {
            self.pos = end;
            return SyntaxKind::MultiLineString;
        }
        match self.quoted_end(self.pos, quote) {
            Some(end) => {
                self.pos = end;
                SyntaxKind::String
            }
            // The quote is what is illegal; the rest of the line would only give errors that
            // follow from it (and make the lexer quadratic).
            None => {
                self.pos = self.end_of_line(self.pos);
                SyntaxKind::OpenString
            }
        }
    }

    /// A multi-line string opens with three to five quotes, as many as possible, runs to the next
    /// three quotes and takes up to two more with them. It opens with fewer only where with more
    /// there would be no end: `""""""` alone is the empty string.
    fn multi_line_end(&self) -> Option<usize> {
        let rest = &self.bytes[self.pos..];
        let quotes = rest.iter().take(5).take_while(|b| **b == b'"').count();
        for opening in (3..=quotes).rev() {
            if let Some(length) = self.text[self.pos + opening..].find("\"\"\"") {
                let close = self.pos + opening + length + 3;
                let extra = self.bytes[close..].iter().take(2).take_while(|b| **b == b'"').count();
                return Some(close + extra);
            }
        }
        None
    }

    fn number(&mut self) -> SyntaxKind {
        let mut pos = self.pos + usize::from(self.bytes[self.pos] == b'-');
        while self.at(pos).is_ascii_digit() {
            pos += 1;
        }
        let float = self.at(pos) == b'.' && self.at(pos + 1).is_ascii_digit();
        if float {
            pos += 1;
            while self.at(pos).is_ascii_digit() {
                pos += 1;
            }
        }
        self.pos = pos;
        if float { SyntaxKind::Float } else { SyntaxKind::Int }
    }
}
