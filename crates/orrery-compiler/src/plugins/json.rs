//! `std::json_loads` and `std::json_dumps`: JSON as read and written by Python's `json`, including
//! its messages.
//!
//! Two limits are ours: nesting ends at `DEPTH_MAX` (Python's own limit depends on its stack), and
//! a lone surrogate is refused, because texts here are Unicode.

use orrery_python::{parse_float, parse_int, repr_float, write_json_str};

use super::args::{plugin, require_known, required, text};
use super::{Failure, NativePlugin, PluginContext, PluginResult};
use crate::value::{Dict, Heap, Value};

pub(super) const PLUGINS: &[NativePlugin] = &[
    plugin!("std::json_dumps", [required("obj", "any")] => "string", json_dumps),
    plugin!("std::json_loads", [required("s", "string")] => "any", json_loads),
];

const DEPTH_MAX: usize = 900;
const NOT_SERIALIZABLE: &str = " is not JSON serializable";
const DECODE_ERROR: &str = "json.decoder.JSONDecodeError";

fn json_loads(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let source = text(ctx, args[0])?.to_owned();
    loads(ctx.heap_mut(), &source)
}

/// Reads one JSON document.
pub(super) fn loads(heap: &mut Heap, source: &str) -> PluginResult {
    let mut reader = Reader { source, at: 0, heap, depth: 0 };
    if source.starts_with('\u{feff}') {
        return Err(reader.error("Unexpected UTF-8 BOM (decode using utf-8-sig)", 0));
    }
    reader.skip_blanks();
    let value = reader.value()?;
    reader.skip_blanks();
    if reader.at < source.len() {
        return Err(reader.error("Extra data", reader.at));
    }
    Ok(value)
}

struct Reader<'a> {
    source: &'a str,
    /// Byte offset.
    at: usize,
    heap: &'a mut Heap,
    depth: usize,
}

impl Reader<'_> {
    fn error(&self, problem: &str, at: usize) -> Failure {
        let before = &self.source[..at];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.matches('\n').count() + 1;
        let column = before[line_start..].chars().count() + 1;
        let char = before.chars().count();
        Failure::python(
            DECODE_ERROR,
            format!("{problem}: line {line} column {column} (char {char})"),
        )
    }

    fn peek(&self) -> Option<u8> {
        self.source.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn value(&mut self) -> PluginResult {
        match self.peek() {
            Some(b'"') => {
                self.at += 1;
                let text = self.string()?;
                Ok(self.heap.str(&text))
            }
            Some(b'{') => self.nested("object", Self::object),
            Some(b'[') => self.nested("array", Self::array),
            _ => self.word_or_number(),
        }
    }

    fn nested(&mut self, kind: &str, read: fn(&mut Self) -> PluginResult) -> PluginResult {
        self.at += 1;
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let message = format!(
                "maximum recursion depth exceeded while decoding a JSON {kind} from a unicode string"
            );
            return Err(Failure::python("RecursionError", message));
        }
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn word_or_number(&mut self) -> PluginResult {
        let words = [
            ("null", Value::Null),
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("NaN", Value::Float(f64::NAN)),
            ("Infinity", Value::Float(f64::INFINITY)),
            ("-Infinity", Value::Float(f64::NEG_INFINITY)),
        ];
        let rest = &self.source[self.at..];
        for (word, value) in words {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        let (len, is_float) = number_len(rest.as_bytes());
        if len == 0 {
            return Err(self.error("Expecting value", self.at));
        }
        let digits = &rest[..len];
        let value = if is_float {
            Value::Float(parse_float(digits)?)
        } else {
            let int = parse_int(digits)?;
            self.heap.int(int)
        };
        self.at += len;
        Ok(value)
    }

    fn array(&mut self) -> PluginResult {
        let mut items = Vec::new();
        self.skip_blanks();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(self.heap.list(items));
        }
        loop {
            items.push(self.value()?);
            self.skip_blanks();
            match self.peek() {
                Some(b']') => break,
                Some(b',') => {
                    let comma = self.at;
                    self.at += 1;
                    self.skip_blanks();
                    if self.peek() == Some(b']') {
                        return Err(self.error("Illegal trailing comma before end of array", comma));
                    }
                }
                _ => return Err(self.error("Expecting ',' delimiter", self.at)),
            }
        }
        self.at += 1;
        Ok(self.heap.list(items))
    }

    fn object(&mut self) -> PluginResult {
        let mut entries = Dict::default();
        self.skip_blanks();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(self.heap.dict(entries));
        }
        loop {
            if self.peek() != Some(b'"') {
                let problem = "Expecting property name enclosed in double quotes";
                return Err(self.error(problem, self.at));
            }
            self.at += 1;
            let key = self.string()?;
            self.skip_blanks();
            if self.peek() != Some(b':') {
                return Err(self.error("Expecting ':' delimiter", self.at));
            }
            self.at += 1;
            self.skip_blanks();
            let value = self.value()?;
            entries.insert(self.heap.intern(&key), value);
            self.skip_blanks();
            match self.peek() {
                Some(b'}') => break,
                Some(b',') => {
                    let comma = self.at;
                    self.at += 1;
                    self.skip_blanks();
                    if self.peek() == Some(b'}') {
                        return Err(
                            self.error("Illegal trailing comma before end of object", comma)
                        );
                    }
                }
                _ => return Err(self.error("Expecting ',' delimiter", self.at)),
            }
        }
        self.at += 1;
        Ok(self.heap.dict(entries))
    }

    /// The rest of a string after its opening quote.
    fn string(&mut self) -> Result<String, Failure> {
        let start = self.at - 1;
        let mut out = String::new();
        loop {
            let rest = &self.source[self.at..];
            let plain = rest.find(|c: char| c == '"' || c == '\\' || c < ' ');
            let Some(plain) = plain else {
                return Err(self.error("Unterminated string starting at", start));
            };
            out.push_str(&rest[..plain]);
            self.at += plain;
            match rest.as_bytes()[plain] {
                b'"' => {
                    self.at += 1;
                    return Ok(out);
                }
                b'\\' => out.push(self.escape(start)?),
                _ => return Err(self.error("Invalid control character at", self.at)),
            }
        }
    }

    fn escape(&mut self, start: usize) -> Result<char, Failure> {
        let backslash = self.at;
        let Some(&kind) = self.source.as_bytes().get(backslash + 1) else {
            return Err(self.error("Unterminated string starting at", start));
        };
        self.at += 2;
        Ok(match kind {
            b'"' | b'\\' | b'/' => kind as char,
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let high = self.code_unit()?;
                let mut code = u32::from(high);
                if (0xd800..0xdc00).contains(&high) && self.source[self.at..].starts_with("\\u") {
                    let after_high = self.at;
                    self.at += 2;
                    let low = self.code_unit()?;
                    if (0xdc00..0xe000).contains(&low) {
                        code = 0x10000 + ((code - 0xd800) << 10) + (u32::from(low) - 0xdc00);
                    } else {
                        self.at = after_high;
                    }
                }
                char::from_u32(code).ok_or_else(|| {
                    let message = format!("lone surrogate \\u{code:04x} in JSON text");
                    Failure::python("ValueError", message)
                })?
            }
            _ => return Err(self.error("Invalid \\escape", backslash)),
        })
    }

    fn code_unit(&mut self) -> Result<u16, Failure> {
        let digits = self.source.as_bytes().get(self.at..self.at + 4);
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let unit = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u16::from_str_radix(digits, 16).ok());
        let Some(unit) = unit else {
            return Err(self.error("Invalid \\uXXXX escape", self.at - 1));
        };
        self.at += 4;
        Ok(unit)
    }
}

/// Length of the number at the start, and true if it has a fraction or an exponent.
fn number_len(bytes: &[u8]) -> (usize, bool) {
    let digits_from = |from: usize| {
        bytes[from.min(bytes.len())..].iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    let minus = usize::from(bytes.first() == Some(&b'-'));
    let mut len = match bytes.get(minus) {
        Some(b'0') => minus + 1,
        Some(b'1'..=b'9') => minus + digits_from(minus),
        _ => return (0, false),
    };
    let mut is_float = false;
    if bytes.get(len) == Some(&b'.') && digits_from(len + 1) > 0 {
        len += 1 + digits_from(len + 1);
        is_float = true;
    }
    if let Some(b'e' | b'E') = bytes.get(len) {
        let sign = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
        let digits = digits_from(len + 1 + sign);
        if digits > 0 {
            len += 1 + sign + digits;
            is_float = true;
        }
    }
    (len, is_float)
}

fn json_dumps(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let mut out = String::new();
    if let Err(failure) = dumps(ctx, args[0], &mut out, 0) {
        if let Failure::Python(error) = &failure
            && let Some(value) = error.message.strip_suffix(NOT_SERIALIZABLE)
        {
            ctx.warn(&format!("Unable to serialize {value}"));
        }
        return Err(failure);
    }
    Ok(ctx.heap_mut().str(&out))
}

fn dumps(
    ctx: &dyn PluginContext,
    value: Value,
    out: &mut String,
    depth: usize,
) -> Result<(), Failure> {
    if depth > DEPTH_MAX {
        return Err(Failure::python("RecursionError", "maximum recursion depth exceeded"));
    }
    let heap = ctx.heap();
    if heap.is_too_long(out) {
        return Err(Failure::python("MemoryError", "the text is too long"));
    }
    match require_known(value)? {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Int(int) => out.push_str(&int.to_string()),
        Value::Big(id) => out.push_str(&heap.big(id).to_py_str()?),
        Value::Float(float) if float.is_nan() => out.push_str("NaN"),
        Value::Float(float) if float.is_infinite() => {
            out.push_str(if float > 0.0 { "Infinity" } else { "-Infinity" });
        }
        Value::Float(float) => out.push_str(&repr_float(float)),
        Value::Str(id) => write_json_str(out, heap.text(id)),
        Value::List(id) => {
            out.push('[');
            for (index, &item) in heap.items(id).iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                dumps(ctx, item, out, depth + 1)?;
            }
            out.push(']');
        }
        Value::Dict(id) => {
            out.push('{');
            for (index, (&key, &item)) in heap.entries(id).iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_json_str(out, heap.text(key));
                out.push_str(": ");
                dumps(ctx, item, out, depth + 1)?;
            }
            out.push('}');
        }
        Value::Instance(_) | Value::Unknown(_) | Value::Other(_) => {
            let message = format!("{}{NOT_SERIALIZABLE}", ctx.proxy_str(value));
            return Err(Failure::python("TypeError", message));
        }
    }
    Ok(())
}
