//! Evaluates expressions once all their parts are available.

use orrery_python::{FormatArg, Int, Number, PowResult, PyError};
use orrery_syntax::ast::BinaryOp;
use smallvec::SmallVec;

use crate::error::{CompileError, Result};
use crate::ir::{Cast, ExprId, ExprKind, Format, Segment, Spec};
use crate::value::{Dict, Other, TEXT_BYTES_MAX, Value};

use super::build_units::{NO_OWNER, Owner, VariableLocation};
use super::{EMPTY, Evaluator, LITERAL, Temp, Unit};

/// Values of the placeholders in a text.
type Values = SmallVec<[Value; 4]>;

impl Evaluator<'_> {
    /// Evaluates for a unit; `slot` is the first of its temps that belongs to the expression.
    pub(super) fn eval_in(&mut self, id: ExprId, unit: &Unit, slot: u32) -> Result<Value> {
        if unit.flags & LITERAL != 0
            && let Temp::Value(value) = self.temps[unit.temps as usize]
        {
            return Ok(value);
        }
        let temps = unit.temps.wrapping_add(slot);
        self.eval(id, unit.frame, temps, unit.owner)
    }

    /// Evaluates an expression. `owner` is set if its value is directly assigned to an attribute.
    pub(super) fn eval(
        &mut self,
        id: ExprId,
        frame: u32,
        temps: u32,
        owner: Owner,
    ) -> Result<Value> {
        let program = self.program;
        match &program.expr(id).kind {
            ExprKind::Const(value) => Ok(*value),
            ExprKind::Nothing => Ok(Value::List(self.empty_list)),
            ExprKind::Var { var, cache, .. } => {
                match self.locate_variable_cached(*var, cache, frame) {
                    Some(VariableLocation::Value(value)) => Ok(value),
                    Some(VariableLocation::Cell(cell)) => self.read(cell),
                    None => Ok(Value::Null),
                }
            }
            ExprKind::Binary { op, left, right } => {
                let left_value = self.eval(*left, frame, temps, NO_OWNER)?;
                let right_temps = temps.wrapping_add(program.expr(*left).temps);
                let right_value = self.eval(*right, frame, right_temps, NO_OWNER)?;
                self.binary(*op, left_value, right_value).map_err(|e| self.blame_expr(e, id))
            }
            ExprKind::Not(inner) => {
                let value = self.eval(*inner, frame, temps, NO_OWNER)?;
                self.not(value).map_err(|e| self.blame_expr(e, id))
            }
            ExprKind::List(items) => {
                let mut temps = temps;
                let mut values = Vec::with_capacity(items.len());
                for &item in items {
                    match self.eval(item, frame, temps, owner)? {
                        Value::List(list) => values.extend_from_slice(self.heap.items(list)),
                        value => values.push(value),
                    }
                    temps = temps.wrapping_add(program.expr(item).temps);
                }
                let list = self.heap.list(values);
                self.check_size().map(|()| list).map_err(|e| self.blame_expr(e, id))
            }
            ExprKind::Dict(items) => {
                let mut temps = temps;
                let mut dict = Dict::default();
                for &(key, item) in items {
                    dict.insert(key, self.eval(item, frame, temps, NO_OWNER)?);
                    temps = temps.wrapping_add(program.expr(item).temps);
                }
                let dict = self.heap.dict(dict);
                self.check_size().map(|()| dict).map_err(|e| self.blame_expr(e, id))
            }
            ExprKind::Lookup { base, key } => {
                let dict = self.eval(*base, frame, temps, NO_OWNER)?;
                let key_temps = temps.wrapping_add(program.expr(*base).temps);
                let key = self.eval(*key, frame, key_temps, NO_OWNER)?;
                self.lookup(dict, key).map_err(|e| self.blame_expr(e, id))
            }
            ExprKind::Format(format) => {
                let values = self.format_values(format, frame, temps)?;
                self.refuse_late_bound(format, &values).map_err(|e| self.blame_expr(e, id))?;
                self.interpolate(format, &values).map_err(|e| self.blame_expr(e, id))
            }
            ExprKind::FString(format) => {
                let values = self.format_values(format, frame, temps)?;
                self.refuse_late_bound(format, &values).map_err(|e| self.blame_expr(e, id))?;
                self.fstring(format, &values).map_err(|e| self.blame_expr(e, id))
            }
            ExprKind::Construct(construct) => self.construct(id, construct, frame, temps, owner),
            ExprKind::Regex(_) => Ok(Value::Null),
            _ => match self.temps[temps as usize] {
                Temp::Value(value) => Ok(value),
                Temp::Cell(cell) => self.read(cell),
                Temp::Pending => Err(CompileError::new("AssertionError", "a result is not there")),
            },
        }
    }

    /// True if a value is late-bound: only the executor resolves it.
    pub(super) fn is_late_bound(&self, value: Value) -> bool {
        matches!(value, Value::Other(id) if self.heap.get_other(id).reference.is_some())
    }

    /// The error class for a value used where only a boolean is allowed.
    pub(super) fn class_of_misuse(&self, value: Value) -> &'static str {
        if self.is_late_bound(value) { "UnexpectedReference" } else { "RuntimeException" }
    }

    fn refuse_late_bound(&self, format: &Format, values: &[Value]) -> Result<()> {
        let found = values.iter().position(|&value| self.is_late_bound(value));
        let Some((shown, _)) = found.and_then(|at| format.parts.get(at)) else { return Ok(()) };
        let text = format!(
            "Encountered reference in string format for variable `{shown}`. This is not supported."
        );
        self.fail("UnexpectedReference", text)
    }

    pub(super) fn read(&self, cell: u32) -> Result<Value> {
        let content = &self.cells[cell as usize];
        if content.flags & EMPTY != 0 {
            return Err(self.optional_error(cell));
        }
        Ok(content.value)
    }

    /// A result derived from an unknown is a new unknown: two of them never count as equal.
    pub(super) fn derived_unknown(&mut self) -> Value {
        self.heap.unknown(None)
    }

    fn not(&mut self, value: Value) -> Result<Value> {
        match value {
            Value::Bool(b) => Ok(Value::Bool(!b)),
            Value::Unknown(_) => Ok(self.derived_unknown()),
            other => {
                let text = format!("Invalid value `{}`: `not` expects a boolean", self.str(other));
                self.fail("RuntimeException", text)
            }
        }
    }

    pub(super) fn lookup(&mut self, dict: Value, key: Value) -> Result<Value> {
        if dict.is_unknown() || key.is_unknown() {
            return Ok(self.derived_unknown());
        }
        let Value::Dict(dict) = dict else {
            let text = format!(
                "dict lookup is only possible on dicts, {} is not an object",
                self.str(dict)
            );
            return self.fail("TypingException", text);
        };
        let Value::Str(key) = key else {
            let text = format!("dict keys must be string, {} is not a string", self.str(key));
            return self.fail("TypingException", text);
        };
        let entries = self.heap.entries(dict);
        match entries.get(&key) {
            Some(&value) => Ok(value),
            None => {
                let options: Vec<&str> = entries.keys().map(|&key| self.heap.text(key)).collect();
                let text = format!(
                    "key {} not found in dict, options are [{}]",
                    self.heap.text(key),
                    options.join(",")
                );
                self.fail("KeyException", text)
            }
        }
    }

    pub(super) fn binary(&mut self, op: BinaryOp, left: Value, right: Value) -> Result<Value> {
        if op == BinaryOp::In {
            return self.is_in(left, right);
        }
        if left.is_unknown() || right.is_unknown() {
            return Ok(self.derived_unknown());
        }
        match op {
            BinaryOp::Equal => Ok(Value::Bool(self.heap.equal(left, right))),
            BinaryOp::NotEqual => Ok(Value::Bool(!self.heap.equal(left, right))),
            BinaryOp::Less | BinaryOp::Greater | BinaryOp::LessEqual | BinaryOp::GreaterEqual => {
                self.compare(op, left, right)
            }
            _ => self.arithmetic(op, left, right),
        }
    }

    fn compare(&self, op: BinaryOp, left: Value, right: Value) -> Result<Value> {
        let (Some(a), Some(b)) = (self.heap.number(left), self.heap.number(right)) else {
            return self.fail("TypingException", "Can only compare numbers.");
        };
        let order = orrery_python::num_cmp(&a, &b);
        let holds = order.is_some_and(|order| match op {
            BinaryOp::Less => order.is_lt(),
            BinaryOp::Greater => order.is_gt(),
            BinaryOp::LessEqual => order.is_le(),
            _ => order.is_ge(),
        });
        Ok(Value::Bool(holds))
    }

    fn arithmetic(&mut self, op: BinaryOp, left: Value, right: Value) -> Result<Value> {
        if let (Value::Int(a), Value::Int(b)) = (left, right) {
            let small = match op {
                BinaryOp::Add => a.checked_add(b),
                BinaryOp::Subtract => a.checked_sub(b),
                BinaryOp::Multiply => a.checked_mul(b),
                _ => None,
            };
            if let Some(small) = small {
                return Ok(Value::Int(small));
            }
        }
        if op == BinaryOp::Add
            && let Value::Str(a) = left
        {
            let Value::Str(b) = right else {
                let text = format!(
                    "Can only concatenate str (not '{}' ({})) to str",
                    self.heap.class_name(right),
                    self.repr(right)
                );
                return self.fail("TypingException", text);
            };
            let (a, b) = (self.heap.text(a), self.heap.text(b));
            if a.len() + b.len() > TEXT_BYTES_MAX {
                return Err(CompileError::from_python(PyError::new(
                    "MemoryError",
                    "text would be longer than 1 GiB",
                )));
            }
            let joined = format!("{a}{b}");
            return Ok(self.heap.str(&joined));
        }
        let (Some(a), Some(b)) = (self.heap.number(left), self.heap.number(right)) else {
            let name = match op {
                BinaryOp::Add => "plus",
                BinaryOp::Subtract => "minus",
                BinaryOp::Multiply => "multiplication",
                BinaryOp::Divide => "division",
                BinaryOp::Modulo => "modulo",
                _ => "exponentiation",
            };
            let text = format!(
                "Unsupported operand type(s) for {name}: '{}' ({}) and '{}' ({})",
                self.heap.class_name(left),
                self.repr(left),
                self.heap.class_name(right),
                self.repr(right)
            );
            return self.fail("TypingException", text);
        };
        let result = match op {
            BinaryOp::Add => orrery_python::add(&a, &b),
            BinaryOp::Subtract => orrery_python::sub(&a, &b),
            BinaryOp::Multiply => orrery_python::mul(&a, &b),
            BinaryOp::Divide => orrery_python::div(&a, &b),
            BinaryOp::Modulo => orrery_python::modulo(&a, &b),
            _ => return self.power(&a, &b),
        };
        let number = result.map_err(CompileError::from_python)?;
        Ok(self.heap.from_number(number))
    }

    fn power(&mut self, a: &Number, b: &Number) -> Result<Value> {
        match orrery_python::pow(a, b).map_err(CompileError::from_python)? {
            PowResult::Real(number) => Ok(self.heap.from_number(number)),
            PowResult::Complex { real, imaginary } => Ok(self.heap.other(Other {
                class: "complex".into(),
                repr: orrery_python::repr_complex(real, imaginary),
                ..Other::default()
            })),
        }
    }

    fn is_in(&mut self, left: Value, right: Value) -> Result<Value> {
        if left.is_unknown() {
            return Ok(self.derived_unknown());
        }
        match right {
            Value::List(list) => {
                let items = self.heap.items(list);
                if items.iter().any(|&item| self.heap.equal(item, left)) {
                    return Ok(Value::Bool(true));
                }
                match items.iter().any(|item| item.is_unknown()) {
                    true => Ok(self.derived_unknown()),
                    false => Ok(Value::Bool(false)),
                }
            }
            Value::Dict(dict) => {
                let Value::Str(key) = left else { return Ok(Value::Bool(false)) };
                Ok(Value::Bool(self.heap.entries(dict).contains_key(&key)))
            }
            other => {
                let text =
                    format!("Operand two of 'in' can only be a list or dict ({})", self.str(other));
                self.fail("TypingException", text)
            }
        }
    }

    fn format_values(&mut self, format: &Format, frame: u32, mut temps: u32) -> Result<Values> {
        let mut values = Values::new();
        for &(_, part) in &format.parts {
            values.push(self.eval(part, frame, temps, NO_OWNER)?);
            temps = temps.wrapping_add(self.program.expr(part).temps);
        }
        Ok(values)
    }

    /// Text of a value inside a string: a float without a fraction prints as an integer.
    fn display(&self, value: Value) -> Result<String> {
        if let Value::Float(f) = value
            && (f.fract() == 0.0 || !f.is_finite())
        {
            let int = Int::from_f64_trunc(f).map_err(CompileError::from_python)?;
            return Ok(int.to_string());
        }
        Ok(self.str(value))
    }

    /// `{{x}}`: global replacement, one placeholder after the other.
    fn interpolate(&mut self, format: &Format, values: &[Value]) -> Result<Value> {
        if values.iter().any(|value| value.is_unknown()) {
            return Ok(self.derived_unknown());
        }
        if let Some(text) = self.interpolate_at_once(format, values)? {
            return Ok(text);
        }
        let mut text = format.text.to_string();
        for ((pattern, _), &value) in format.parts.iter().zip(values) {
            let shown = self.display(value)?;
            text = text.replace(&**pattern, &shown);
        }
        Ok(self.heap.str(&text))
    }

    /// The same in one pass; not if a value itself could contain a placeholder.
    fn interpolate_at_once(&mut self, format: &Format, values: &[Value]) -> Result<Option<Value>> {
        let Some(segments) = &format.segments else { return Ok(None) };
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        for segment in segments {
            out.push_str(&segment.literal);
            let Some((number, _)) = &segment.part else { continue };
            match values[*number as usize] {
                Value::Str(id) => out.push_str(self.heap.text(id)),
                Value::Int(i) => write_int(&mut out, i),
                other => out.push_str(&self.display(other)?),
            }
        }
        let value =
            if values.len() > 1 && out.contains("{{") { None } else { Some(self.heap.str(&out)) };
        self.scratch = out;
        Ok(value)
    }

    fn fstring(&mut self, format: &Format, values: &[Value]) -> Result<Value> {
        if values.iter().any(|value| value.is_unknown()) {
            return Ok(self.derived_unknown());
        }
        if let Some(segments) = &format.segments {
            return self.format_segments(segments, values);
        }
        let text = self.format_text(&format.text, format, values, 0)?;
        Ok(self.heap.str(&text))
    }

    fn format_segments(&mut self, segments: &[Segment], values: &[Value]) -> Result<Value> {
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        for segment in segments {
            out.push_str(&segment.literal);
            let Some((number, spec)) = &segment.part else { continue };
            match values[*number as usize] {
                Value::Str(id) if matches!(spec, Spec::None) => out.push_str(self.heap.text(id)),
                Value::Int(i) if matches!(spec, Spec::None) => write_int(&mut out, i),
                Value::Int(i) if let Spec::Zeroes(width, _) = spec => {
                    write_padded(&mut out, i, *width);
                }
                other => {
                    let spec = match spec {
                        Spec::None => "",
                        Spec::Other(text) | Spec::Zeroes(_, text) => text,
                    };
                    out.push_str(&self.format_one(other, spec)?.map_err(invalid_format)?);
                }
            }
        }
        let value = self.heap.str(&out);
        self.scratch = out;
        Ok(value)
    }

    fn format_text(
        &self,
        template: &str,
        format: &Format,
        values: &[Value],
        depth: u32,
    ) -> Result<String> {
        if depth > 1 {
            let text = "Invalid f-string: Max string recursion exceeded";
            return self.fail("RuntimeException", text);
        }
        let mut out = String::new();
        for part in orrery_python::parse_format(template).map_err(invalid_format)? {
            out.push_str(&part.literal);
            let Some(field) = part.field else { continue };
            let name = &field.name;
            if name.is_empty() {
                let text = "f-strings do not support positional substitutions via '{}', use variable or attribute keys instead";
                return self.fail("RuntimeException", text);
            }
            let found = format.parts.iter().position(|(field, _)| **field == **name);
            let Some(at) = found else {
                let text = format!("Invalid key in f-string: ''{name}''");
                return self.fail("RuntimeException", text);
            };
            let spec = if field.spec.contains('{') {
                self.format_text(&field.spec, format, values, depth + 1)?
            } else {
                field.spec.clone()
            };
            let value = self.without_fraction(values[at])?;
            let shown = match field.conversion {
                Some('r') => {
                    let text = self.repr(value);
                    orrery_python::format_value(FormatArg::Str(&text), &spec)
                }
                Some('a') => {
                    let text = orrery_python::ascii_of_repr(&self.repr(value));
                    orrery_python::format_value(FormatArg::Str(&text), &spec)
                }
                Some(other) if other != 's' => {
                    let text = format!("Invalid f-string: Unknown conversion specifier {other}");
                    return self.fail("RuntimeException", text);
                }
                Some(_) => {
                    let text = self.str(value);
                    orrery_python::format_value(FormatArg::Str(&text), &spec)
                }
                None => self.format_one(values[at], &spec)?,
            };
            out.push_str(&shown.map_err(invalid_format)?);
        }
        Ok(out)
    }

    /// Converts a float without a fraction to an integer, if that is small.
    fn without_fraction(&self, value: Value) -> Result<Value> {
        if let Value::Float(f) = value
            && (f.fract() == 0.0 || !f.is_finite())
        {
            return Ok(match Int::from_f64_trunc(f).map_err(CompileError::from_python)? {
                Int::Small(small) => Value::Int(small),
                Int::Big(_) => value,
            });
        }
        Ok(value)
    }

    fn format_one(&self, value: Value, spec: &str) -> Result<std::result::Result<String, PyError>> {
        Ok(match value {
            Value::Str(id) => orrery_python::format_value(FormatArg::Str(self.heap.text(id)), spec),
            Value::Bool(b) => orrery_python::format_value(FormatArg::Bool(b), spec),
            Value::Int(i) => orrery_python::format_value(FormatArg::Int(&Int::Small(i)), spec),
            Value::Big(id) => orrery_python::format_value(FormatArg::Int(self.heap.big(id)), spec),
            Value::Float(f) if f.fract() == 0.0 || !f.is_finite() => {
                let int = Int::from_f64_trunc(f).map_err(CompileError::from_python)?;
                orrery_python::format_value(FormatArg::Int(&int), spec)
            }
            Value::Float(f) => orrery_python::format_value(FormatArg::Float(f), spec),
            other => {
                let text = self.str(other);
                let type_name = self.heap.class_name(other);
                orrery_python::format_value(FormatArg::Other { type_name, text: &text }, spec)
            }
        })
    }

    pub(super) fn cast(&mut self, cast: Cast, value: Value) -> Result<Value> {
        if value.is_unknown() {
            return Ok(value);
        }
        let failed = |this: &Self| {
            let name = match cast {
                Cast::String => "string",
                Cast::Int => "int",
                Cast::Float => "float",
                Cast::Number => "number",
                Cast::Bool => "bool",
            };
            let text = format!("Failed to cast '{}' to {name}", this.str(value));
            CompileError::new("RuntimeException", text)
        };
        Ok(match cast {
            Cast::Bool => Value::Bool(self.heap.truthy(value)),
            Cast::String => match value {
                Value::Str(_) => value,
                Value::Bool(b) => self.heap.str(if b { "true" } else { "false" }),
                other => {
                    let text = self.str(other);
                    self.heap.str(&text)
                }
            },
            Cast::Int => match value {
                Value::Str(id) => {
                    let int =
                        orrery_python::parse_int(self.heap.text(id)).map_err(|_| failed(self))?;
                    self.heap.int(int)
                }
                Value::Float(f) => {
                    let int = Int::from_f64_trunc(f).map_err(|error| match error.kind {
                        "OverflowError" => CompileError::from_python(error),
                        _ => failed(self),
                    })?;
                    self.heap.int(int)
                }
                Value::Bool(b) => Value::Int(i64::from(b)),
                Value::Int(_) | Value::Big(_) => value,
                _ => return Err(failed(self)),
            },
            Cast::Float => self.cast_float(value).ok_or_else(|| failed(self))?,
            Cast::Number => match value {
                Value::Int(_) | Value::Big(_) => value,
                Value::Bool(b) => Value::Int(i64::from(b)),
                _ => self.cast_float(value).ok_or_else(|| failed(self))?,
            },
        })
    }

    fn cast_float(&self, value: Value) -> Option<Value> {
        match value {
            Value::Str(id) => orrery_python::parse_float(self.heap.text(id)).ok().map(Value::Float),
            _ => match self.heap.number(value)? {
                Number::Float(f) => Some(Value::Float(f)),
                Number::Int(int) => int.to_f64().ok().map(Value::Float),
            },
        }
    }
}

/// Converts the errors that `str.format` raises for bad models; unexpected ones are not caught.
fn invalid_format(error: PyError) -> Box<CompileError> {
    if error.kind != "ValueError" {
        return CompileError::from_python(error);
    }
    CompileError::new("RuntimeException", format!("Invalid f-string: {}", error.message))
}

fn write_int(out: &mut String, value: i64) {
    use std::fmt::Write;
    // Writing to a string cannot fail.
    let _ = write!(out, "{value}");
}

fn write_padded(out: &mut String, value: i64, width: usize) {
    use std::fmt::Write;
    // Rust pads as Python does: the sign counts and stands first.
    let _ = write!(out, "{value:0width$}");
}
