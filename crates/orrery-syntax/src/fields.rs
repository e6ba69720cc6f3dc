//! References inside strings: `{{name}}` in plain strings, `{name}` in f-strings.

/// A reference as it is written in a decoded string.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Field<'t> {
    /// Plain strings: the match with braces. F-strings: the field's name with its blanks.
    pub(crate) text: &'t str,
    /// The dotted name.
    pub(crate) name: &'t str,
}

fn is_blank(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// All `{{ a.b }}` of a text, in order: two braces, blanks, a name of letters, digits, dots,
/// underscores and hyphens, blanks, two braces.
pub(crate) fn interpolations(text: &str) -> Vec<Field<'_>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(open) = text[from..].find("{{") {
        let open = from + open;
        match interpolation(&text[open..]) {
            Some(field) => {
                from = open + field.text.len();
                found.push(field);
            }
            None => from = open + 1,
        }
    }
    found
}

fn interpolation(text: &str) -> Option<Field<'_>> {
    let inner = text.strip_prefix("{{")?.trim_start_matches(is_blank);
    let length = inner
        .bytes()
        .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
        .count();
    if length == 0 {
        return None;
    }
    let (name, rest) = inner.split_at(length);
    let rest = rest.trim_start_matches(is_blank).strip_prefix("}}")?;
    Some(Field { text: &text[..text.len() - rest.len()], name })
}

/// The fields of a Python format string that the language collects: those before the first piece
/// of text that ends with a doubled brace or at the end, and those in their format specifications.
pub(crate) fn format_fields(text: &str) -> Result<Vec<Field<'_>>, &'static str> {
    let mut fields = Vec::new();
    collect(text, &mut fields, 0)?;
    Ok(fields)
}

/// Format specifications nest as deep as braces do, but only one level can ever be used.
const SPECIFICATION_DEPTH_MAX: u32 = 20;

fn collect<'t>(text: &'t str, fields: &mut Vec<Field<'t>>, depth: u32) -> Result<(), &'static str> {
    let mut collecting = true;
    let mut rest = text;
    while !rest.is_empty() {
        let (field, after) = next_piece(rest)?;
        rest = after;
        match field {
            // `{}` has no name to collect, and ends the collection like text without a field.
            Some(("", _)) => collecting = false,
            Some((name, specification)) if collecting => {
                fields.push(Field { text: name, name: name.trim_matches(is_blank) });
                if depth < SPECIFICATION_DEPTH_MAX {
                    collect(specification, fields, depth + 1)?;
                }
            }
            Some(_) => {}
            None => collecting = false,
        }
    }
    Ok(())
}

type Piece<'t> = (Option<(&'t str, &'t str)>, &'t str);

/// The next stretch of literal text with the field that follows it, if one does: its name and
/// format specification, and what is left of the text.
fn next_piece(text: &str) -> Result<Piece<'_>, &'static str> {
    let Some(brace) = text.find(['{', '}']) else {
        return Ok((None, ""));
    };
    let opening = text.as_bytes()[brace] == b'{';
    let after = &text[brace + 1..];
    match (opening, after.as_bytes().first()) {
        (true, None) => Err("Single '{' encountered in format string"),
        (true, Some(b'{')) | (false, Some(b'}')) => Ok((None, &after[1..])),
        (false, _) => Err("Single '}' encountered in format string"),
        (true, Some(_)) => field(after).map(|(name, spec, rest)| (Some((name, spec)), rest)),
    }
}

/// `name!c:spec}`
fn field(text: &str) -> Result<(&str, &str, &str), &'static str> {
    let bytes = text.as_bytes();
    let mut pos = 0;
    let end = loop {
        match bytes.get(pos) {
            None => return Err("expected '}' before end of string"),
            Some(b'{') => return Err("unexpected '{' in field name"),
            Some(b'[') => {
                let close = text[pos..].find(']').ok_or("expected '}' before end of string")?;
                pos += close + 1;
            }
            Some(b'}' | b':' | b'!') => break pos,
            Some(_) => pos += 1,
        }
    };
    let name = &text[..end];
    let mut rest = &text[end + 1..];
    match bytes[end] {
        b'}' => return Ok((name, "", rest)),
        b'!' => {
            let mut chars = rest.chars();
            if chars.next().is_none() {
                return Err("end of string while looking for conversion specifier");
            }
            match chars.next() {
                Some('}') => return Ok((name, "", chars.as_str())),
                Some(':') | None => rest = chars.as_str(),
                Some(_) => return Err("expected ':' after conversion specifier"),
            }
        }
        _ => {}
    }
    let mut depth = 1;
    for (position, byte) in rest.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Ok((name, &rest[..position], &rest[position + 1..]));
        }
    }
    Err("unmatched '{' in format spec")
}
