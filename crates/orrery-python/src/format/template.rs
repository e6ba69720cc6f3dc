//! Cutting a `str.format` template into literals and replacement fields.

use crate::PyError;

/// A literal text, and the replacement field after it if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatPart {
    pub literal: String,
    pub field: Option<FormatField>,
}

/// `{name!conversion:spec}`. The spec may hold fields itself: it is a template again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatField {
    pub name: String,
    pub spec: String,
    pub conversion: Option<char>,
}

/// Python's `string.Formatter().parse(template)`. An escaped brace ends a part: it gives a literal
/// with one brace and no field.
pub fn parse_format(template: &str) -> Result<Vec<FormatPart>, PyError> {
    let mut parser = TemplateParser { rest: template };
    let mut parts = Vec::new();
    while !parser.rest.is_empty() {
        parts.push(parser.part()?);
    }
    Ok(parts)
}

struct TemplateParser<'t> {
    rest: &'t str,
}

impl<'t> TemplateParser<'t> {
    fn part(&mut self) -> Result<FormatPart, PyError> {
        let Some(brace) = self.rest.find(['{', '}']) else {
            let literal = std::mem::take(&mut self.rest);
            return Ok(FormatPart { literal: literal.to_string(), field: None });
        };
        let opens = self.rest.as_bytes()[brace] == b'{';
        let after = &self.rest[brace + 1..];
        let doubled = after.starts_with(if opens { '{' } else { '}' });
        if doubled {
            let literal = self.rest[..=brace].to_string();
            self.rest = &after[1..];
            return Ok(FormatPart { literal, field: None });
        }
        if !opens {
            return Err(PyError::value("Single '}' encountered in format string"));
        }
        if after.is_empty() {
            return Err(PyError::value("Single '{' encountered in format string"));
        }
        let literal = self.rest[..brace].to_string();
        self.rest = after;
        Ok(FormatPart { literal, field: Some(self.field()?) })
    }

    fn next_char(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let next = chars.next();
        self.rest = chars.as_str();
        next
    }

    /// The field after its opening brace, up to and with its closing one.
    fn field(&mut self) -> Result<FormatField, PyError> {
        let start = self.rest;
        let ending = loop {
            match self.next_char() {
                Some('{') => return Err(PyError::value("unexpected '{' in field name")),
                // Whatever stands in brackets belongs to the name.
                Some('[') => {
                    let close = self.rest.find(']').unwrap_or(self.rest.len());
                    self.rest = &self.rest[close..];
                }
                Some(c @ ('}' | ':' | '!')) => break c,
                Some(_) => {}
                None => return Err(PyError::value("expected '}' before end of string")),
            }
        };
        let name = start[..start.len() - self.rest.len() - 1].to_string();
        let mut field = FormatField { name, spec: String::new(), conversion: None };
        if ending == '!' {
            field.conversion = self.next_char();
            if field.conversion.is_none() {
                return Err(PyError::value("end of string while looking for conversion specifier"));
            }
            match self.next_char() {
                Some('}') => return Ok(field),
                Some(':') => {}
                Some(_) => {
                    return Err(PyError::value("expected ':' after conversion specifier"));
                }
                None => return Err(PyError::value("unmatched '{' in format spec")),
            }
        }
        if ending != '}' {
            field.spec = self.spec()?.to_string();
        }
        Ok(field)
    }

    fn spec(&mut self) -> Result<&'t str, PyError> {
        let start = self.rest;
        let mut depth = 1;
        while let Some(c) = self.next_char() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(&start[..start.len() - self.rest.len() - 1]);
            }
        }
        Err(PyError::value("unmatched '{' in format spec"))
    }
}
