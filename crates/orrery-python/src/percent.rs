//! `template % values`: printf-style formatting.

use crate::float::push_zeros;
use crate::format::{FORMATTED_CHARS_MAX, FloatKind, character, float_text, in_radix};
use crate::text::{ascii_of_repr, repr_str};
use crate::{FormatArg, Int, PyError};

/// A value for a template, and its `repr()` where that does not follow from the value.
#[derive(Clone, Copy, Debug)]
pub struct PercentArg<'a> {
    pub value: FormatArg<'a>,
    /// The `repr()` of a `FormatArg::Other`; its `str()` when absent. Unused for scalars.
    pub repr: Option<&'a str>,
}

impl<'a> From<FormatArg<'a>> for PercentArg<'a> {
    fn from(value: FormatArg<'a>) -> Self {
        PercentArg { value, repr: None }
    }
}

/// The right side of `%`.
pub enum PercentArgs<'a> {
    /// Anything but a tuple or a dict.
    Single(PercentArg<'a>),
    Tuple(&'a [PercentArg<'a>]),
    /// A dict: its values by key, and the dict as a value of its own.
    Mapping {
        get: &'a dyn Fn(&str) -> Option<PercentArg<'a>>,
        whole: PercentArg<'a>,
    },
}

/// Python's `template % args`.
pub fn percent_format(template: &str, args: &PercentArgs<'_>) -> Result<String, PyError> {
    let mut formatter = Formatter {
        chars: template.chars().collect(),
        at: 0,
        args,
        used: 0,
        keyed: None,
        out: String::with_capacity(template.len() + 16),
    };
    formatter.run()?;
    Ok(formatter.out)
}

struct Formatter<'t, 'a> {
    chars: Vec<char>,
    at: usize,
    args: &'t PercentArgs<'a>,
    /// Number of consumed positional values.
    used: usize,
    /// The value named by the `%(key)` of the current field.
    keyed: Option<PercentArg<'a>>,
    out: String,
}

#[derive(Default)]
struct Field {
    left: bool,
    plus: bool,
    blank: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
}

impl<'a> Formatter<'_, 'a> {
    fn run(&mut self) -> Result<(), PyError> {
        while let Some(c) = self.take() {
            if c != '%' {
                self.out.push(c);
                continue;
            }
            // Only two adjacent signs stand for one.
            if self.peek() == Some('%') {
                self.at += 1;
                self.out.push('%');
                continue;
            }
            self.keyed = None;
            if self.peek() == Some('(') {
                self.key()?;
            }
            self.field()?;
        }
        let left_over = match self.args {
            PercentArgs::Tuple(values) => self.used < values.len(),
            PercentArgs::Single(single) => self.used == 0 && !is_subscriptable(&single.value),
            PercentArgs::Mapping { .. } => false,
        };
        if left_over {
            return Err(PyError::type_error(
                "not all arguments converted during string formatting",
            ));
        }
        Ok(())
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn take(&mut self) -> Option<char> {
        let c = self.peek();
        self.at += usize::from(c.is_some());
        c
    }

    /// `(key)`: parentheses inside it must balance.
    fn key(&mut self) -> Result<(), PyError> {
        let has_keys = match self.args {
            PercentArgs::Mapping { .. } => true,
            PercentArgs::Single(single) => is_subscriptable(&single.value),
            PercentArgs::Tuple(_) => false,
        };
        if !has_keys {
            return Err(PyError::type_error("format requires a mapping"));
        }
        self.take();
        let start = self.at;
        let mut depth = 1;
        while depth > 0 {
            match self.take() {
                Some('(') => depth += 1,
                Some(')') => depth -= 1,
                Some(_) => {}
                None => return Err(PyError::value("incomplete format key")),
            }
        }
        let key: String = self.chars[start..self.at - 1].iter().collect();
        let PercentArgs::Mapping { get, .. } = self.args else {
            return Err(PyError::type_error("list indices must be integers or slices, not str"));
        };
        let value = get(&key).ok_or_else(|| PyError::new("KeyError", repr_str(&key)))?;
        self.keyed = Some(value);
        // After a key, no value without one is left.
        self.used = 1;
        Ok(())
    }

    fn next_value(&mut self) -> Result<PercentArg<'a>, PyError> {
        if let Some(value) = self.keyed.take() {
            return Ok(value);
        }
        let value = match self.args {
            PercentArgs::Tuple(values) => values.get(self.used).copied(),
            PercentArgs::Single(value) | PercentArgs::Mapping { whole: value, .. } => {
                (self.used == 0).then_some(*value)
            }
        };
        self.used += 1;
        value.ok_or_else(|| PyError::type_error("not enough arguments for format string"))
    }

    fn field(&mut self) -> Result<(), PyError> {
        let mut field = Field::default();
        while let Some(flag) = self.peek() {
            match flag {
                '-' => field.left = true,
                '+' => field.plus = true,
                ' ' => field.blank = true,
                '#' => field.alternate = true,
                '0' => field.zero = true,
                _ => break,
            }
            self.at += 1;
        }
        if self.peek() == Some('*') {
            let width = self.star("C ssize_t", i64::MAX)?;
            field.left |= width < 0;
            field.width = usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX);
        } else {
            field.width = self.digits(i64::MAX, "width too big")?.unwrap_or(0);
        }
        if self.peek() == Some('.') {
            self.at += 1;
            field.precision = Some(if self.peek() == Some('*') {
                usize::try_from(self.star("C int", i32::MAX.into())?.max(0)).unwrap_or(usize::MAX)
            } else {
                self.digits(i64::from(i32::MAX), "precision too big")?.unwrap_or(0)
            });
        }
        // C's length modifiers mean nothing here.
        if matches!(self.peek(), Some('h' | 'l' | 'L')) {
            self.at += 1;
        }
        let Some(kind) = self.take() else {
            return Err(PyError::value("incomplete format"));
        };
        if field.width.max(field.precision.unwrap_or(0)) > FORMATTED_CHARS_MAX {
            return Err(PyError::memory(format!(
                "formatted text would be longer than {FORMATTED_CHARS_MAX} characters"
            )));
        }
        let value = self.next_value()?;
        self.convert(kind, &field, value)
    }

    /// The value for a `*`; `c_type` is what it must fit in.
    fn star(&mut self, c_type: &str, max: i64) -> Result<i64, PyError> {
        self.at += 1;
        match self.next_value()?.value {
            FormatArg::Int(value) => {
                value.to_i64().filter(|value| (-max - 1..=max).contains(value)).ok_or_else(|| {
                    PyError::overflow(format!("Python int too large to convert to {c_type}"))
                })
            }
            FormatArg::Bool(value) => Ok(i64::from(value)),
            _ => Err(PyError::type_error("* wants int")),
        }
    }

    fn digits(&mut self, max: i64, too_big: &str) -> Result<Option<usize>, PyError> {
        let mut number: Option<i64> = None;
        while let Some(digit) = self.peek().and_then(|c| c.to_digit(10)) {
            self.at += 1;
            let next = number.unwrap_or(0).checked_mul(10);
            let next = next.and_then(|n| n.checked_add(i64::from(digit))).filter(|n| *n <= max);
            number = Some(next.ok_or_else(|| PyError::value(too_big))?);
        }
        Ok(number.map(|number| usize::try_from(number).unwrap_or(usize::MAX)))
    }

    fn convert(&mut self, kind: char, field: &Field, arg: PercentArg<'_>) -> Result<(), PyError> {
        match kind {
            's' => self.push_text(field, &arg.value.to_py_str()?),
            'r' => self.push_text(field, &repr_of(&arg)?),
            'a' => self.push_text(field, &ascii_of_repr(&repr_of(&arg)?)),
            'd' | 'i' | 'u' => {
                let value = integral(kind, &arg.value)?;
                let digits = value.to_py_str()?.trim_start_matches('-').to_string();
                self.push_number(field, value.is_negative(), "", &with_precision(digits, field));
            }
            'o' | 'x' | 'X' => {
                let value = index(kind, &arg.value)?;
                let digits = in_radix(&value, if kind == 'o' { 8 } else { 16 });
                let digits = with_precision(digits, field);
                let (prefix, digits) = match kind {
                    'o' => ("0o", digits),
                    'x' => ("0x", digits),
                    _ => ("0X", digits.to_ascii_uppercase()),
                };
                let prefix = if field.alternate { prefix } else { "" };
                self.push_number(field, value.is_negative(), prefix, &digits);
            }
            'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
                let value = real(&arg.value)?;
                let float_kind = match kind {
                    'e' | 'E' => FloatKind::Scientific,
                    'f' | 'F' => FloatKind::Fixed,
                    _ => FloatKind::General,
                };
                let precision = field.precision.unwrap_or(6);
                let mut text = float_text(value.abs(), float_kind, precision, field.alternate);
                if kind.is_ascii_uppercase() {
                    text.make_ascii_uppercase();
                }
                let negative = value.is_sign_negative() && !value.is_nan();
                self.push_number(field, negative, "", &text);
            }
            'c' => {
                let text = single_character(&arg.value)?.to_string();
                let field = Field { precision: None, ..*field };
                self.push_text(&field, &text);
            }
            _ => {
                let shown = if (' '..='\x7f').contains(&kind) { kind } else { '?' };
                return Err(PyError::value(format!(
                    "unsupported format character '{shown}' (0x{:x}) at index {}",
                    u32::from(kind),
                    self.at - 1
                )));
            }
        }
        Ok(())
    }

    fn push_text(&mut self, field: &Field, text: &str) {
        let shown = match field.precision.and_then(|limit| text.char_indices().nth(limit)) {
            Some((end, _)) => &text[..end],
            None => text,
        };
        self.pad(field, shown);
    }

    fn push_number(&mut self, field: &Field, negative: bool, prefix: &str, digits: &str) {
        let sign = match () {
            () if negative => "-",
            () if field.plus => "+",
            () if field.blank => " ",
            () => "",
        };
        let mut text = format!("{sign}{prefix}");
        if field.zero && !field.left {
            let zeros = field.width.saturating_sub(text.len() + digits.len());
            push_zeros(&mut text, zeros);
        }
        text.push_str(digits);
        self.pad(field, &text);
    }

    fn pad(&mut self, field: &Field, text: &str) {
        let blanks = field.width.saturating_sub(text.chars().count());
        let blanks = std::iter::repeat_n(' ', blanks);
        if field.left {
            self.out.push_str(text);
            self.out.extend(blanks);
        } else {
            self.out.extend(blanks);
            self.out.push_str(text);
        }
    }
}

/// Returns true for values that Python would index by a key; a leftover one of these is not an
/// error.
fn is_subscriptable(value: &FormatArg<'_>) -> bool {
    matches!(value, FormatArg::Other { type_name: "list", .. })
}

fn with_precision(digits: String, field: &Field) -> String {
    let mut padded = String::new();
    push_zeros(&mut padded, field.precision.unwrap_or(0).saturating_sub(digits.len()));
    padded + &digits
}

fn repr_of(arg: &PercentArg<'_>) -> Result<String, PyError> {
    match arg.value {
        FormatArg::Str(text) => Ok(repr_str(text)),
        FormatArg::Other { text, .. } => Ok(arg.repr.unwrap_or(text).to_string()),
        _ => arg.value.to_py_str(),
    }
}

/// A number for `%d`: floats lose their fraction.
fn integral(kind: char, value: &FormatArg<'_>) -> Result<Int, PyError> {
    match value {
        FormatArg::Int(value) => Ok((*value).clone()),
        FormatArg::Bool(value) => Ok(Int::from(*value)),
        FormatArg::Float(value) => Int::from_f64_trunc(*value),
        _ => Err(PyError::type_error(format!(
            "%{kind} format: a real number is required, not {}",
            value.type_name()
        ))),
    }
}

/// A number for `%x` and `%o`: integers only.
fn index(kind: char, value: &FormatArg<'_>) -> Result<Int, PyError> {
    match value {
        FormatArg::Int(value) => Ok((*value).clone()),
        FormatArg::Bool(value) => Ok(Int::from(*value)),
        _ => Err(PyError::type_error(format!(
            "%{kind} format: an integer is required, not {}",
            value.type_name()
        ))),
    }
}

fn real(value: &FormatArg<'_>) -> Result<f64, PyError> {
    match value {
        FormatArg::Int(value) => value.to_f64(),
        FormatArg::Bool(value) => Ok(f64::from(*value)),
        FormatArg::Float(value) => Ok(*value),
        _ => Err(PyError::type_error(format!("must be real number, not {}", value.type_name()))),
    }
}

fn single_character(value: &FormatArg<'_>) -> Result<char, PyError> {
    let wrong = || PyError::type_error("%c requires int or char");
    let code = match value {
        FormatArg::Str(text) => {
            let mut chars = text.chars();
            return match (chars.next(), chars.next()) {
                (Some(c), None) => Ok(c),
                _ => Err(wrong()),
            };
        }
        FormatArg::Int(value) => value.to_i64(),
        FormatArg::Bool(value) => Some(i64::from(*value)),
        _ => return Err(wrong()),
    };
    let code = code.and_then(|code| u32::try_from(code).ok()).filter(|code| *code < 0x0011_0000);
    character(code.ok_or_else(|| PyError::overflow("%c arg not in range(0x110000)"))?)
}
