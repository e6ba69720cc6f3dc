//! The format specification mini-language: `[[fill]align][sign][z][#][0][width][grouping][.precision][type]`.

use super::FORMATTED_CHARS_MAX;
use crate::PyError;
use crate::text::decimal_digit;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
    Center,
    /// Padding between the sign and the digits.
    AfterSign,
}

impl Align {
    fn from_char(c: char) -> Option<Align> {
        match c {
            '<' => Some(Align::Left),
            '>' => Some(Align::Right),
            '^' => Some(Align::Center),
            '=' => Some(Align::AfterSign),
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) fill: char,
    pub(super) align: Align,
    pub(super) sign: Option<char>,
    pub(super) no_negative_zero: bool,
    pub(super) alternate: bool,
    pub(super) width: usize,
    pub(super) grouping: Option<char>,
    pub(super) precision: Option<usize>,
    /// The presentation type, a letter.
    pub(super) kind: Option<char>,
}

impl Spec {
    pub(super) fn parse(
        text: &str,
        type_name: &str,
        default_kind: Option<char>,
        default_align: Align,
    ) -> Result<Spec, PyError> {
        let chars: Vec<char> = text.chars().collect();
        let mut at = 0;
        let take = |wanted: char, at: &mut usize| {
            let found = chars.get(*at) == Some(&wanted);
            *at += usize::from(found);
            found
        };
        let mut align = None;
        let mut fill = None;
        if let Some(found) = chars.get(1).and_then(|&c| Align::from_char(c)) {
            (fill, align, at) = (Some(chars[0]), Some(found), 2);
        } else if let Some(found) = chars.first().and_then(|&c| Align::from_char(c)) {
            (align, at) = (Some(found), 1);
        }
        let sign = chars.get(at).copied().filter(|c| matches!(c, ' ' | '+' | '-'));
        at += usize::from(sign.is_some());
        let no_negative_zero = take('z', &mut at);
        let alternate = take('#', &mut at);
        if fill.is_none() && take('0', &mut at) {
            fill = Some('0');
            if align.is_none() && default_align == Align::Right {
                align = Some(Align::AfterSign);
            }
        }
        let width = integer(&chars, &mut at)?.unwrap_or(0);
        let mut grouping = take(',', &mut at).then_some(',');
        if take('_', &mut at) {
            if grouping.is_some() {
                return Err(both_separators());
            }
            grouping = Some('_');
        }
        if grouping == Some('_') && chars.get(at) == Some(&',') {
            return Err(both_separators());
        }
        let mut precision = None;
        if take('.', &mut at) {
            precision = integer(&chars, &mut at)?;
            if precision.is_none() {
                return Err(PyError::value("Format specifier missing precision"));
            }
        }
        if chars.len() > at + 1 {
            return Err(PyError::value(format!(
                "Invalid format specifier '{text}' for object of type '{type_name}'"
            )));
        }
        let spec = Spec {
            fill: fill.unwrap_or(' '),
            align: align.unwrap_or(default_align),
            sign,
            no_negative_zero,
            alternate,
            width,
            grouping,
            precision,
            kind: chars.get(at).copied().or(default_kind),
        };
        spec.check_grouping()?;
        Ok(spec)
    }

    fn check_grouping(&self) -> Result<(), PyError> {
        let Some(separator) = self.grouping else {
            return Ok(());
        };
        match self.kind {
            None | Some('d' | 'e' | 'f' | 'g' | 'E' | 'G' | '%' | 'F') => Ok(()),
            Some('b' | 'o' | 'x' | 'X') if separator == '_' => Ok(()),
            Some(kind) => Err(PyError::value(format!(
                "Cannot specify '{separator}' with {}.",
                quoted_kind(kind)
            ))),
        }
    }

    pub(super) fn unknown_kind(&self, type_name: &str) -> PyError {
        let kind = self.kind.map(quoted_kind).unwrap_or_default();
        PyError::value(format!("Unknown format code {kind} for object of type '{type_name}'"))
    }

    /// `head` (sign and prefix) and `body`, padded to the width.
    pub(super) fn pad(&self, head: &str, body: &str) -> Result<String, PyError> {
        let length = head.chars().count() + body.chars().count();
        let padding = self.width.saturating_sub(length);
        check_size(length.saturating_add(padding))?;
        let (left, inner, right) = match self.align {
            Align::Left => (0, 0, padding),
            Align::Right => (padding, 0, 0),
            Align::Center => (padding / 2, 0, padding - padding / 2),
            Align::AfterSign => (0, padding, 0),
        };
        let fill = |count| std::iter::repeat_n(self.fill, count);
        let mut out =
            String::with_capacity(head.len() + body.len() + padding * self.fill.len_utf8());
        out.extend(fill(left));
        out.push_str(head);
        out.extend(fill(inner));
        out.push_str(body);
        out.extend(fill(right));
        Ok(out)
    }
}

pub(super) fn check_size(chars: usize) -> Result<(), PyError> {
    if chars > FORMATTED_CHARS_MAX {
        return Err(PyError::memory(format!(
            "formatted text would be longer than {FORMATTED_CHARS_MAX} characters"
        )));
    }
    Ok(())
}

/// Formats a presentation type as Python's messages do.
fn quoted_kind(kind: char) -> String {
    if ('!'..='\x7f').contains(&kind) {
        format!("'{kind}'")
    } else {
        format!("'\\x{:x}'", u32::from(kind))
    }
}

fn both_separators() -> PyError {
    PyError::value("Cannot specify both ',' and '_'.")
}

/// A run of decimal digits, of any script.
fn integer(chars: &[char], at: &mut usize) -> Result<Option<usize>, PyError> {
    let mut value: Option<i64> = None;
    while let Some(digit) = chars.get(*at).copied().and_then(decimal_digit) {
        let next = value.unwrap_or(0).checked_mul(10).and_then(|v| v.checked_add(i64::from(digit)));
        if next.is_none() {
            return Err(PyError::value("Too many decimal digits in format string"));
        }
        value = next;
        *at += 1;
    }
    Ok(value.map(|value| usize::try_from(value).unwrap_or(usize::MAX)))
}
