//! The grammar of macros.
//!
//! ```text
//! text    := ( char | "%%" | "%" expr "%" )*
//! expr    := "join(" inner "," literal ")" | inner
//! inner   := "map(" basic "," literal ")" | basic
//! basic   := name [ "[" digits "]" ]
//! literal := "'" [^']* "'" | '"' [^"]* '"'
//! ```
//!
//! There is no whitespace inside macros, and `%%` stays as it is.

use super::MacroError;

/// Default kind of address.
const ADDRESS_KIND: &str = "bind_v4";

pub(super) enum Part<'t> {
    Text(&'t str),
    Macro(Expression),
}

pub(super) struct Expression {
    pub(super) inner: Macro,
    pub(super) map: Option<String>,
    pub(super) join: Option<String>,
}

pub(super) struct Macro {
    pub(super) function: Function,
    pub(super) selector: Selector,
    /// From 0.
    pub(super) index: Option<u64>,
}

pub(super) enum Function {
    Owner,
    Host,
    /// Kind of the address.
    Address(String),
    Count,
    Instance,
}

pub(super) enum Selector {
    Owner,
    This,
    Service(String),
}

pub(super) fn parse(text: &str) -> Result<Vec<Part<'_>>, MacroError> {
    let mut parts = Vec::new();
    let mut literal = 0;
    let mut at = 0;
    while let Some(found) = text[at..].find('%') {
        let start = at + found;
        if text[start + 1..].starts_with('%') {
            at = start + 2;
            continue;
        }
        let Some(length) = text[start + 1..].find('%') else { break };
        let end = start + 1 + length + 1;
        let wrong = |message| MacroError::Syntax { message, start, end };
        let expression = Scanner { text: &text[start + 1..end - 1], at: 0 }.expression();
        parts.push(Part::Text(&text[literal..start]));
        parts.push(Part::Macro(expression.map_err(wrong)?));
        (literal, at) = (end, end);
    }
    parts.push(Part::Text(&text[literal..]));
    Ok(parts)
}

/// Parses the text between two `%`. Errors are sentences with positions from 0.
struct Scanner<'t> {
    text: &'t str,
    at: usize,
}

impl Scanner<'_> {
    fn eat(&mut self, token: &str) -> bool {
        let is_there = self.text[self.at..].starts_with(token);
        if is_there {
            self.at += token.len();
        }
        is_there
    }

    fn expect(&mut self, token: char) -> Result<(), String> {
        if self.eat(token.encode_utf8(&mut [0; 4])) {
            Ok(())
        } else {
            Err(format!("'{token}' expected at position {}", self.at))
        }
    }

    fn expression(mut self) -> Result<Expression, String> {
        let expression = if self.eat("join(") {
            let (inner, map) = self.inner()?;
            self.expect(',')?;
            let join = Some(self.literal()?);
            self.expect(')')?;
            Expression { inner, map, join }
        } else {
            let (inner, map) = self.inner()?;
            Expression { inner, map, join: None }
        };
        if self.at < self.text.len() {
            return Err(format!("nothing more expected at position {}", self.at));
        }
        Ok(expression)
    }

    fn inner(&mut self) -> Result<(Macro, Option<String>), String> {
        if !self.eat("map(") {
            return Ok((self.basic()?, None));
        }
        let basic = self.basic()?;
        self.expect(',')?;
        let map = self.literal()?;
        self.expect(')')?;
        Ok((basic, Some(map)))
    }

    fn literal(&mut self) -> Result<String, String> {
        let Some(quote @ ('\'' | '"')) = self.text[self.at..].chars().next() else {
            return Err(format!("Expected ' or \" at position {}", self.at));
        };
        let start = self.at + 1;
        let Some(length) = self.text[start..].find(quote) else {
            return Err(format!("{quote} expected after position {start}"));
        };
        self.at = start + length + 1;
        Ok(self.text[start..start + length].to_owned())
    }

    fn basic(&mut self) -> Result<Macro, String> {
        let rest = &self.text[self.at..];
        let is_part = |c: char| c.is_alphanumeric() || "_-.".contains(c);
        let name = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
        if name.is_empty() {
            return Err("A macro name must not be empty.".to_owned());
        }
        self.at += name.len();
        let index = if self.eat("[") { Some(self.index()?) } else { None };
        let (function, selector) = meaning(name)?;
        Ok(Macro { function, selector, index })
    }

    fn index(&mut self) -> Result<u64, String> {
        let rest = &self.text[self.at..];
        let Some(length) = rest.find(']') else {
            return Err(format!("']' expected after position {}", self.at));
        };
        let digits = &rest[..length];
        if digits.is_empty() {
            return Err("No service number seen.".to_owned());
        }
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err("A service number must consists of digits only.".to_owned());
        }
        self.at += length + 1;
        digits.parse().map_err(|_| format!("The service number {digits} is too large."))
    }
}

/// The meaning of a name.
fn meaning(name: &str) -> Result<(Function, Selector), String> {
    let invalid = || format!("'{name}' is not a valid macro name");
    let of_service = |function, service: &str| match service {
        "" => Err("macro is missing a service name".to_owned()),
        service => Ok((function, Selector::Service(service.to_owned()))),
    };
    match name {
        "cluster.owner" => return Ok((Function::Owner, Selector::Owner)),
        "host.self" => return Ok((Function::Host, Selector::This)),
        "ip.self" => return Ok((Function::Address(ADDRESS_KIND.to_owned()), Selector::This)),
        _ => {}
    }
    if let Some(service) = name.strip_prefix("host.service.") {
        return of_service(Function::Host, service);
    }
    if let Some(service) = name.strip_prefix("num.service.") {
        return of_service(Function::Count, service);
    }
    if let Some(service) = name.strip_prefix("instance.self.service.") {
        return of_service(Function::Instance, service);
    }
    let rest = name.strip_prefix("ip.").ok_or_else(invalid)?;
    if let Some(service) = rest.strip_prefix("service.").filter(|service| !service.contains('.')) {
        return of_service(Function::Address(ADDRESS_KIND.to_owned()), service);
    }
    let (kind, rest) = rest.split_once('.').ok_or_else(invalid)?;
    let function = Function::Address(kind.to_owned());
    match rest.strip_prefix("service.") {
        Some(service) if !kind.is_empty() => of_service(function, service),
        None if rest == "self" && !kind.is_empty() => Ok((function, Selector::This)),
        _ => Err(invalid()),
    }
}
