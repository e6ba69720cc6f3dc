//! Splits a template into tokens, with the delimiters, white space control and messages of Jinja.

use orrery_python::{Int, decode_escapes, is_space, repr_str};

use crate::error::TemplateSyntaxError;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tok {
    Data(String),
    VariableBegin,
    VariableEnd,
    BlockBegin,
    BlockEnd,
    Name(String),
    Str(String),
    Int(Int),
    Float(f64),
    Op(&'static str),
    Eof,
}

#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) tok: Tok,
    pub(crate) line: usize,
}

/// Longest first, so that the first match is the longest.
const OPERATORS: [&str; 26] = [
    "==", "!=", ">=", "<=", "**", "//", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}",
    ">", "<", "=", ".", ":", "|", ",", ";",
];

impl Tok {
    /// Name of a token in messages.
    pub(crate) fn describe(&self) -> &str {
        match self {
            Tok::Data(_) => "template data / text",
            Tok::VariableBegin => "begin of print statement",
            Tok::VariableEnd => "end of print statement",
            Tok::BlockBegin => "begin of statement block",
            Tok::BlockEnd => "end of statement block",
            Tok::Name(name) => name,
            Tok::Str(_) => "string",
            Tok::Int(_) => "integer",
            Tok::Float(_) => "float",
            Tok::Op(op) => op,
            Tok::Eof => "end of template",
        }
    }
}

pub(crate) fn tokenize(source: &str) -> Result<Vec<Token>, TemplateSyntaxError> {
    let mut source = source.replace("\r\n", "\n").replace('\r', "\n");
    if source.ends_with('\n') {
        source.pop();
    }
    let mut lexer = Lexer { source: &source, at: 0, line: 1, tokens: Vec::new() };
    while lexer.at < source.len() {
        if let Err(error) = lexer.root() {
            return Err(error.at(lexer.line));
        }
    }
    lexer.push(Tok::Eof);
    Ok(lexer.tokens)
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    line: usize,
    tokens: Vec<Token>,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn push(&mut self, tok: Tok) {
        self.tokens.push(Token { tok, line: self.line });
    }

    fn advance(&mut self, bytes: usize) {
        self.line += self.rest()[..bytes].matches('\n').count();
        self.at += bytes;
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T, TemplateSyntaxError> {
        Err(TemplateSyntaxError::syntax(message))
    }

    fn data(&mut self, text: &str) {
        if !text.is_empty() {
            self.push(Tok::Data(text.to_owned()));
        }
    }

    fn skip_blanks(&mut self) {
        let rest = self.rest();
        self.advance(rest.len() - rest.trim_start_matches(is_space).len());
    }

    /// Text up to the next delimiter, and the construct that it begins.
    fn root(&mut self) -> Result<(), TemplateSyntaxError> {
        let rest = self.rest();
        let is_mark = |&(at, _): &(usize, &str)| {
            matches!(rest.as_bytes().get(at + 1), Some(b'%' | b'{' | b'#'))
        };
        let Some((begin, _)) = rest.match_indices('{').find(is_mark) else {
            self.data(rest);
            self.advance(rest.len());
            return Ok(());
        };
        let mark = &rest[begin..begin + 2];
        let after = &rest[begin + 2..];
        let sign = after.chars().next().filter(|sign| matches!(sign, '-' | '+'));
        let text = &rest[..begin];
        self.data(if sign == Some('-') { text.trim_end_matches(is_space) } else { text });
        self.advance(begin);
        let opening = 2 + sign.map_or(0, char::len_utf8);
        if mark == "{%"
            && let Some(len) = raw_begin(&self.rest()[opening..])
        {
            self.advance(opening + len);
            return self.raw();
        }
        self.advance(opening);
        match mark {
            "{#" => self.comment(),
            "{{" => {
                self.push(Tok::VariableBegin);
                self.tag_content("}}", Tok::VariableEnd)
            }
            _ => {
                self.push(Tok::BlockBegin);
                self.tag_content("%}", Tok::BlockEnd)
            }
        }
    }

    fn comment(&mut self) -> Result<(), TemplateSyntaxError> {
        let Some(end) = self.rest().find("#}") else {
            return self.error("Missing end of comment tag");
        };
        let strips = self.rest()[..end].ends_with('-');
        self.advance(end + 2);
        if strips {
            self.skip_blanks();
        }
        Ok(())
    }

    fn raw(&mut self) -> Result<(), TemplateSyntaxError> {
        let rest = self.rest();
        for (begin, _) in rest.match_indices("{%") {
            let after = &rest[begin + 2..];
            let sign = after.chars().next().filter(|sign| matches!(sign, '-' | '+'));
            let inner = &after[sign.map_or(0, char::len_utf8)..];
            if let Some(len) = tag_end(inner, "endraw") {
                let text = &rest[..begin];
                let strips = sign == Some('-');
                self.data(if strips { text.trim_end_matches(is_space) } else { text });
                self.advance(begin + 2 + sign.map_or(0, char::len_utf8) + len);
                return Ok(());
            }
        }
        self.error("Missing end of raw directive")
    }

    /// The inside of `{{ }}` or `{% %}`.
    fn tag_content(&mut self, end: &str, end_token: Tok) -> Result<(), TemplateSyntaxError> {
        let mut brackets: Vec<char> = Vec::new();
        loop {
            let rest = self.rest();
            if rest.is_empty() {
                return Ok(());
            }
            if brackets.is_empty() {
                let sign = rest.chars().next().filter(|&c| c == '-' || (c == '+' && end == "%}"));
                let closing = sign.map_or(0, char::len_utf8);
                if rest[closing..].starts_with(end) {
                    self.push(end_token);
                    self.advance(closing + 2);
                    if sign == Some('-') {
                        self.skip_blanks();
                    }
                    return Ok(());
                }
            }
            self.operator_or_literal(&mut brackets)?;
        }
    }

    fn operator_or_literal(&mut self, brackets: &mut Vec<char>) -> Result<(), TemplateSyntaxError> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return Ok(());
        };
        if is_space(first) {
            self.skip_blanks();
            return Ok(());
        }
        if first.is_ascii_digit() {
            return self.number();
        }
        if first == '_' || first.is_alphanumeric() {
            let len = rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(rest.len());
            let name = &rest[..len];
            if first.is_numeric() {
                return self.error("Invalid character in identifier");
            }
            self.push(Tok::Name(name.to_owned()));
            self.advance(len);
            return Ok(());
        }
        if let '"' | '\'' = first
            && let Some(len) = string_len(rest, first)
        {
            let inner = &rest[1..len - 1];
            let value = decode_escapes(inner)
                .map_err(|error| TemplateSyntaxError::syntax(error.message))?;
            self.push(Tok::Str(value.0));
            self.advance(len);
            return Ok(());
        }
        let Some(&op) = OPERATORS.iter().find(|op| rest.starts_with(**op)) else {
            let shown = repr_str(&first.to_string());
            let position = self.source[..self.at].chars().count();
            return self.error(format!("unexpected char {shown} at {position}"));
        };
        match first {
            '{' => brackets.push('}'),
            '(' => brackets.push(')'),
            '[' => brackets.push(']'),
            '}' | ')' | ']' => match brackets.pop() {
                None => return self.error(format!("unexpected '{first}'")),
                Some(expected) if expected != first => {
                    return self.error(format!("unexpected '{first}', expected '{expected}'"));
                }
                Some(_) => {}
            },
            _ => {}
        }
        self.push(Tok::Op(op));
        self.advance(op.len());
        Ok(())
    }

    fn number(&mut self) -> Result<(), TemplateSyntaxError> {
        let rest = self.rest();
        let follows_dot = self.source[..self.at].ends_with('.');
        if !follows_dot && let Some(len) = float_len(rest) {
            let digits = rest[..len].replace('_', "");
            let value = orrery_python::parse_float(&digits)
                .map_err(|error| TemplateSyntaxError::syntax(error.message))?;
            self.push(Tok::Float(value));
            self.advance(len);
            return Ok(());
        }
        let (len, radix, prefix) = integer_len(rest);
        let digits = rest[prefix..len].replace('_', "");
        let value = num_bigint::BigInt::parse_bytes(digits.as_bytes(), radix).unwrap_or_default();
        self.push(Tok::Int(Int::from(value)));
        self.advance(len);
        Ok(())
    }
}

/// Length of `raw %}` after `{%`, if present.
fn raw_begin(after: &str) -> Option<usize> {
    tag_end(after, "raw")
}

/// Length of `WORD %}` with blanks and white space control.
fn tag_end(after: &str, word: &str) -> Option<usize> {
    let trimmed = after.trim_start_matches(is_space).strip_prefix(word)?;
    let trimmed = trimmed.trim_start_matches(is_space);
    let rest = if let Some(rest) = trimmed.strip_prefix("-%}") {
        rest.trim_start_matches(is_space)
    } else if word == "endraw" && trimmed.starts_with("+%}") {
        &trimmed[3..]
    } else {
        trimmed.strip_prefix("%}")?
    };
    Some(after.len() - rest.len())
}

/// Length of a string literal with its quotes; `None` if it does not end.
fn string_len(rest: &str, quote: char) -> Option<usize> {
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next()?;
        } else if c == quote {
            return Some(at + 1);
        }
    }
    None
}

/// Length of digits with single underscores between them.
fn digits_len(bytes: &[u8], is_digit: impl Fn(u8) -> bool) -> usize {
    let mut len = 0;
    loop {
        match bytes.get(len) {
            Some(&byte) if is_digit(byte) => len += 1,
            Some(b'_') if len > 0 && bytes.get(len + 1).is_some_and(|&next| is_digit(next)) => {
                len += 2;
            }
            _ => return len,
        }
    }
}

/// `1.5`, `1e5`, `1.5e-3`; `None` if it is not a float.
fn float_len(rest: &str) -> Option<usize> {
    let bytes = rest.as_bytes();
    let digits = |from: usize| {
        digits_len(bytes.get(from..).unwrap_or_default(), |byte| byte.is_ascii_digit())
    };
    let whole = digits(0);
    let mut len = whole;
    if bytes.get(len) == Some(&b'.') && digits(len + 1) > 0 {
        len += 1 + digits(len + 1);
    }
    if let Some(b'e' | b'E') = bytes.get(len) {
        let sign = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
        let exponent = digits(len + 1 + sign);
        if exponent > 0 {
            return Some(len + 1 + sign + exponent);
        }
    }
    (len > whole).then_some(len)
}

/// Length, radix and prefix length of an integer.
fn integer_len(rest: &str) -> (usize, u32, usize) {
    let bytes = rest.as_bytes();
    let prefixed = match bytes.get(..2) {
        Some(b"0b" | b"0B") => Some(2),
        Some(b"0o" | b"0O") => Some(8),
        Some(b"0x" | b"0X") => Some(16),
        _ => None,
    };
    if let Some(radix) = prefixed {
        let skip = usize::from(bytes.get(2) == Some(&b'_'));
        let is_digit = |byte: u8| char::from(byte).is_digit(radix);
        let len = digits_len(&bytes[2 + skip..], is_digit);
        if len > 0 {
            return (2 + skip + len, radix, 2);
        }
    }
    if bytes[0] == b'0' {
        (digits_len(bytes, |byte| byte == b'0'), 10, 0)
    } else {
        (digits_len(bytes, |byte| byte.is_ascii_digit()), 10, 0)
    }
}
