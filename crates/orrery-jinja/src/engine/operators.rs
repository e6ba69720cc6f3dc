//! Python's semantics of values: truth, text, equality, order and arithmetic.

use std::cmp::Ordering;
use std::rc::Rc;

use orrery_python::{Int, Number, PowResult, num_cmp, num_eq, repr_complex};

use super::render::{RenderResult, Renderer};
use super::value::{Identity, Key, Undefined, Val, View, range_items};
use crate::error::TemplateError;
use crate::model::ModelAccess;
use crate::objects::Object;
use crate::syntax::ast::Binary;

/// Maximum length of a result of `*`.
const REPEATED_MAX: usize = 1 << 26;

pub(super) fn type_error<T>(message: impl Into<String>) -> RenderResult<T> {
    Err(TemplateError::python("TypeError", message))
}

pub(super) fn number(value: &Val) -> Option<Number> {
    match value {
        Val::Bool(bool) => Some(Number::Int(Int::from(*bool))),
        Val::Int(int) => Some(Number::Int(int.clone())),
        Val::Float(float) => Some(Number::Float(*float)),
        _ => None,
    }
}

pub(super) fn from_number(number: Number) -> Val {
    match number {
        Number::Int(int) => Val::Int(int),
        Number::Float(float) => Val::Float(float),
    }
}

impl<M: ModelAccess> Renderer<'_, M> {
    /// Fails for an undefined value.
    pub(super) fn require_defined<'v>(&self, value: &'v Val) -> RenderResult<&'v Val> {
        match value {
            Val::Undefined(undefined) => Err(self.undefined(undefined)),
            defined => Ok(defined),
        }
    }

    fn undefined(&self, undefined: &Rc<Undefined>) -> TemplateError {
        self.blamed.replace(Some(undefined.clone()));
        TemplateError::Undefined(undefined.message.clone())
    }

    pub(super) fn truth(&self, value: &Val) -> RenderResult<bool> {
        Ok(match value {
            Val::Undefined(undefined) if undefined.lenient => false,
            Val::Undefined(_) => self.require_defined(value).map(|_| false)?,
            Val::None => false,
            Val::Bool(bool) => *bool,
            Val::Int(int) => !int.is_zero(),
            Val::Float(float) => *float != 0.0,
            Val::Str(text) | Val::Markup(text) => !text.is_empty(),
            Val::Tuple(items) => !items.is_empty(),
            Val::List(items) => !items.borrow().is_empty(),
            Val::Dict(entries) | Val::OwnView(_, entries) => !entries.borrow().is_empty(),
            Val::Range(start, stop, step) => range_items(*start, *stop, *step).next().is_some(),
            Val::Model(value) | Val::Bare(value) => self.model.is_true(*value),
            Val::View(_, id) => self.model.entries(*id).len() > 0,
            _ => true,
        })
    }

    /// Python's `==`.
    pub(super) fn equal(&self, left: &Val, right: &Val) -> RenderResult<bool> {
        if let (Some(a), Some(b)) = (number(left), number(right)) {
            return Ok(num_eq(&a, &b));
        }
        Ok(match (left, right) {
            (Val::Undefined(a), Val::Undefined(b)) if a.lenient && b.lenient => true,
            (Val::Undefined(undefined), _) | (_, Val::Undefined(undefined)) => {
                if !undefined.lenient {
                    return Err(self.undefined(undefined));
                }
                false
            }
            (Val::None, Val::None) => true,
            (Val::Str(a) | Val::Markup(a), Val::Str(b) | Val::Markup(b)) => a == b,
            (Val::Tuple(a), Val::Tuple(b)) => self.equal_items(a, b)?,
            (Val::List(a), Val::List(b)) => self.equal_items(&a.borrow(), &b.borrow())?,
            (Val::Dict(a), Val::Dict(b)) => {
                let (a, b) = (a.borrow(), b.borrow());
                if a.len() != b.len() {
                    return Ok(false);
                }
                for (key, item) in &*a {
                    match b.get(key) {
                        Some(other) if self.equal(item, other)? => {}
                        _ => return Ok(false),
                    }
                }
                true
            }
            (Val::Model(a) | Val::Bare(a), Val::Model(b) | Val::Bare(b)) => {
                self.model.are_equal(*a, *b)
            }
            (Val::Model(Object::List(_)) | Val::Bare(Object::List(_)), Val::List(b)) => {
                self.equal_items(&self.iterate(left)?, &b.borrow())?
            }
            (Val::List(a), Val::Model(Object::List(_)) | Val::Bare(Object::List(_))) => {
                self.equal_items(&a.borrow(), &self.iterate(right)?)?
            }
            (Val::Model(Object::Dict(_)), Val::Dict(own))
            | (Val::Dict(own), Val::Model(Object::Dict(_))) => {
                let model = if let Val::Model(_) = left { left } else { right };
                self.equal_dict(model, own)?
            }
            (Val::Range(..), Val::Range(..)) => {
                self.equal_items(&self.iterate(left)?, &self.iterate(right)?)?
            }
            (Val::Macro(a), Val::Macro(b)) => Rc::ptr_eq(a, b),
            (Val::Loop(a), Val::Loop(b)) => Rc::ptr_eq(a, b),
            (Val::Namespace(a), Val::Namespace(b)) => Rc::ptr_eq(a, b),
            (Val::Global(a), Val::Global(b)) => a == b,
            _ => false,
        })
    }

    fn equal_items(&self, left: &[Val], right: &[Val]) -> RenderResult<bool> {
        if left.len() != right.len() {
            return Ok(false);
        }
        for (left, right) in left.iter().zip(right) {
            if !self.equal(left, right)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn equal_dict(
        &self,
        model: &Val,
        own: &std::cell::RefCell<indexmap::IndexMap<Key, Val>>,
    ) -> RenderResult<bool> {
        let Val::Model(Object::Dict(id)) = model else {
            return Ok(false);
        };
        let entries = self.model.entries(*id);
        if entries.len() != own.borrow().len() {
            return Ok(false);
        }
        for (key, item) in entries {
            let key = Key::text(key);
            match own.borrow().get(&key) {
                Some(other) if self.equal(&self.template_value(item)?, other)? => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Python's order; `symbol` is the operator named in the error.
    pub(super) fn ordering(
        &self,
        left: &Val,
        right: &Val,
        symbol: &str,
    ) -> RenderResult<Option<Ordering>> {
        self.require_defined(left)?;
        self.require_defined(right)?;
        if let (Some(a), Some(b)) = (number(left), number(right)) {
            return Ok(num_cmp(&a, &b));
        }
        let is_list = |value: &Val| matches!(value, Val::List(_) | Val::Model(Object::List(_)));
        match (left, right) {
            (Val::Str(a) | Val::Markup(a), Val::Str(b) | Val::Markup(b)) => Ok(Some(a.cmp(b))),
            (Val::Tuple(a), Val::Tuple(b)) => self.item_ordering(a, b, symbol),
            _ if is_list(left) && is_list(right) => {
                self.item_ordering(&self.iterate(left)?, &self.iterate(right)?, symbol)
            }
            _ => {
                let is_instance = |value: &Val| matches!(value, Val::Model(Object::Instance(_)));
                let are_instances = is_instance(left) && is_instance(right);
                let class = |value: &Val| if are_instances { "Instance" } else { value.class() };
                type_error(format!(
                    "'{symbol}' not supported between instances of '{}' and '{}'",
                    class(left),
                    class(right)
                ))
            }
        }
    }

    fn item_ordering(
        &self,
        left: &[Val],
        right: &[Val],
        symbol: &str,
    ) -> RenderResult<Option<Ordering>> {
        for (a, b) in left.iter().zip(right) {
            if !self.equal(a, b)? {
                return self.ordering(a, b, symbol);
            }
        }
        Ok(Some(left.len().cmp(&right.len())))
    }

    /// Python's `in`.
    pub(super) fn contains(&self, container: &Val, item: &Val) -> RenderResult<bool> {
        match container {
            Val::Str(text) | Val::Markup(text) => match item.as_text() {
                Some(part) => Ok(text.contains(&**part)),
                None => {
                    self.require_defined(item)?;
                    type_error(format!(
                        "'in <string>' requires string as left operand, not {}",
                        item.class()
                    ))
                }
            },
            Val::Dict(entries) | Val::OwnView(View::Keys, entries) => {
                Ok(entries.borrow().contains_key(&self.key(item)?))
            }
            Val::Model(Object::Dict(id)) | Val::Bare(Object::Dict(id)) => {
                let found = item.as_text().and_then(|text| self.model.entry(*id, text));
                Ok(found.is_some())
            }
            Val::Undefined(_) => {
                for _ in self.iterate(container)? {}
                Ok(false)
            }
            _ => {
                let items = self.iterate(container).map_err(|failure| match failure {
                    TemplateError::Python(error)
                        if error.message.ends_with("object is not iterable") =>
                    {
                        let message =
                            format!("argument of type '{}' is not iterable", container.class());
                        TemplateError::python("TypeError", message)
                    }
                    other => other,
                })?;
                for found in &items {
                    if self.equal(found, item)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }

    /// A value as a key of a dict or set.
    pub(super) fn key(&self, value: &Val) -> RenderResult<Key> {
        let identity = match value {
            Val::None => Identity::None,
            Val::Bool(bool) => Identity::Int(Int::from(*bool)),
            Val::Int(int) => Identity::Int(int.clone()),
            Val::Float(float) if float.fract() == 0.0 && float.is_finite() => {
                Identity::Int(Int::from_f64_trunc(*float)?)
            }
            Val::Float(float) => Identity::Float(float.to_bits()),
            Val::Str(text) | Val::Markup(text) => Identity::Str(text.clone()),
            Val::Tuple(items) => {
                let items = items.iter().map(|item| Ok(self.key(item)?.identity));
                Identity::Tuple(items.collect::<RenderResult<_>>()?)
            }
            Val::Model(Object::Instance(id)) | Val::Bare(Object::Instance(id)) => {
                Identity::Instance(id.0)
            }
            Val::Undefined(_) => self.require_defined(value).map(|_| Identity::None)?,
            other => return type_error(format!("unhashable type: '{}'", unproxied(other))),
        };
        Ok(Key { identity, value: value.clone() })
    }

    pub(super) fn binary(&self, operator: Binary, left: &Val, right: &Val) -> RenderResult<Val> {
        self.require_defined(left)?;
        self.require_defined(right)?;
        if let (Binary::Mod, Some(template)) = (operator, left.as_text()) {
            return self.percent(template, right);
        }
        if let (Some(a), Some(b)) = (number(left), number(right)) {
            return self.arithmetic(operator, &a, &b);
        }
        if let (Val::Markup(_), _) | (_, Val::Markup(_)) = (left, right) {
            return Err(self.unsupported("an operator on text that is marked as HTML"));
        }
        match (operator, left, right) {
            (Binary::Add, Val::Str(a), Val::Str(b)) => Ok(Val::str(format!("{a}{b}"))),
            (Binary::Add, Val::Str(_), other) => {
                type_error(format!("can only concatenate str (not \"{}\") to str", other.class()))
            }
            (Binary::Add, Val::List(a), Val::List(b)) => {
                Ok(Val::list(a.borrow().iter().chain(&*b.borrow()).cloned().collect()))
            }
            (Binary::Add, Val::Tuple(a), Val::Tuple(b)) => {
                Ok(Val::tuple(a.iter().chain(&**b).cloned().collect()))
            }
            (Binary::Add, Val::List(_) | Val::Tuple(_), other) => {
                let class = left.class();
                type_error(format!(
                    "can only concatenate {class} (not \"{}\") to {class}",
                    other.class()
                ))
            }
            (Binary::Mul, sequence, count) | (Binary::Mul, count, sequence)
                if matches!(sequence, Val::Str(_) | Val::List(_) | Val::Tuple(_))
                    && matches!(count, Val::Int(_) | Val::Bool(_)) =>
            {
                repeat(sequence, count)
            }
            (Binary::Mul, sequence @ (Val::Str(_) | Val::List(_) | Val::Tuple(_)), other)
            | (Binary::Mul, other, sequence @ (Val::Str(_) | Val::List(_) | Val::Tuple(_)))
                if !matches!(other, Val::Model(_)) =>
            {
                let _ = sequence;
                type_error(format!(
                    "can't multiply sequence by non-int of type '{}'",
                    other.class()
                ))
            }
            _ => type_error(format!(
                "unsupported operand type(s) for {}: '{}' and '{}'",
                operator.symbol(),
                left.class(),
                right.class()
            )),
        }
    }

    fn arithmetic(&self, operator: Binary, a: &Number, b: &Number) -> RenderResult<Val> {
        Ok(match operator {
            Binary::Add => from_number(orrery_python::add(a, b)?),
            Binary::Sub => from_number(orrery_python::sub(a, b)?),
            Binary::Mul => from_number(orrery_python::mul(a, b)?),
            Binary::Div => from_number(orrery_python::div(a, b)?),
            Binary::Mod => from_number(orrery_python::modulo(a, b)?),
            Binary::FloorDiv => floor_div(a, b)?,
            Binary::Pow => match orrery_python::pow(a, b)? {
                PowResult::Real(number) => from_number(number),
                PowResult::Complex { real, imaginary } => {
                    let shown = repr_complex(real, imaginary);
                    return Err(self.unsupported(&format!("the complex number {shown}")));
                }
            },
        })
    }
}

/// The class below a proxy.
fn unproxied(value: &Val) -> &'static str {
    match value {
        Val::Model(Object::List(_)) => "list",
        Val::Model(Object::Dict(_)) => "dict",
        other => other.class(),
    }
}

fn repeat(sequence: &Val, count: &Val) -> RenderResult<Val> {
    let count = match count {
        Val::Int(int) if int.is_negative() => 0,
        Val::Int(int) => {
            int.to_i64().and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX)
        }
        Val::Bool(bool) => usize::from(*bool),
        _ => 0,
    };
    let len = match sequence {
        Val::Str(text) => text.len(),
        Val::List(items) => items.borrow().len(),
        Val::Tuple(items) => items.len(),
        _ => 0,
    };
    if len.saturating_mul(count) > REPEATED_MAX {
        return Err(TemplateError::python("MemoryError", ""));
    }
    Ok(match sequence {
        Val::Str(text) => Val::str(text.repeat(count)),
        Val::List(items) => {
            let items = items.borrow();
            Val::list((0..count).flat_map(|_| items.iter().cloned()).collect())
        }
        Val::Tuple(items) => Val::tuple((0..count).flat_map(|_| items.iter().cloned()).collect()),
        other => other.clone(),
    })
}

/// Python's `//`.
fn floor_div(a: &Number, b: &Number) -> RenderResult<Val> {
    let zero_division = |message: &str| TemplateError::python("ZeroDivisionError", message);
    if let (Number::Int(a), Number::Int(b)) = (a, b) {
        if b.is_zero() {
            return Err(zero_division("integer division or modulo by zero"));
        }
        let rest = a.modulo(b)?;
        let exact = a.sub(&rest);
        let quotient = &*exact.to_big() / &*b.to_big();
        return Ok(Val::Int(Int::from(quotient)));
    }
    let (a, b) = (a.to_f64()?, b.to_f64()?);
    if b == 0.0 {
        return Err(zero_division("float floor division by zero"));
    }
    let Number::Float(rest) = orrery_python::modulo(&Number::Float(a), &Number::Float(b))? else {
        return Ok(Val::Float((a / b).floor()));
    };
    let quotient = (a - rest) / b;
    let rounded = quotient.round();
    let is_near = (quotient - rounded).abs() < 0.5;
    Ok(Val::Float(if is_near { rounded } else { quotient.floor() }))
}
