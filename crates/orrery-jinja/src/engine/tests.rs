//! Tests: `value is name`.

use orrery_python::{Int, Number};

use super::evaluate::{CallArgs, no_such_name};
use super::operators::{number, type_error};
use super::render::{RenderResult, Renderer};
use super::value::{Val, View};
use crate::model::ModelAccess;
use crate::objects::Object;
use crate::syntax::ast::Comparison;

/// Names of Jinja's tests.
pub const TESTS: [&str; 39] = [
    "!=",
    "<",
    "<=",
    "==",
    ">",
    ">=",
    "boolean",
    "callable",
    "defined",
    "divisibleby",
    "eq",
    "equalto",
    "escaped",
    "even",
    "false",
    "filter",
    "float",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "integer",
    "iterable",
    "le",
    "lessthan",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sameas",
    "sequence",
    "string",
    "test",
    "true",
    "undefined",
    "upper",
];

impl<M: ModelAccess> Renderer<'_, M> {
    pub(super) fn test(&mut self, name: &str, value: &Val, given: CallArgs) -> RenderResult<bool> {
        debug_assert!(TESTS.is_sorted(), "names of tests are searched by halves");
        if TESTS.binary_search(&name).is_err() {
            return Err(no_such_name("test", name));
        }
        let comparison = match name {
            "eq" | "equalto" | "==" => Some(Comparison::Equal),
            "ne" | "!=" => Some(Comparison::NotEqual),
            "lt" | "lessthan" | "<" => Some(Comparison::Less),
            "le" | "<=" => Some(Comparison::LessOrEqual),
            "gt" | "greaterthan" | ">" => Some(Comparison::Greater),
            "ge" | ">=" => Some(Comparison::GreaterOrEqual),
            "in" => Some(Comparison::In),
            _ => None,
        };
        let one = |renderer: &Self, given: CallArgs| match given.positional.as_slice() {
            [only] if given.named.is_empty() => Ok(only.clone()),
            _ => Err(renderer.unsupported(&format!("these arguments of the test `{name}`"))),
        };
        if let Some(comparison) = comparison {
            let other = one(self, given)?;
            return self.compare(comparison, value, &other);
        }
        match name {
            "divisibleby" => {
                let divisor = one(self, given)?;
                let rest = self.binary(crate::syntax::ast::Binary::Mod, value, &divisor)?;
                return self.equal(&rest, &Val::Int(Int::Small(0)));
            }
            "sameas" => {
                let other = one(self, given)?;
                return self.same(value, &other);
            }
            _ if !given.positional.is_empty() || !given.named.is_empty() => {
                return Err(self.unsupported(&format!("these arguments of the test `{name}`")));
            }
            _ => {}
        }
        Ok(match name {
            "defined" => !value.is_undefined(),
            "undefined" => value.is_undefined(),
            "none" => matches!(value, Val::None),
            "boolean" => matches!(value, Val::Bool(_)),
            "true" => matches!(value, Val::Bool(true)),
            "false" => matches!(value, Val::Bool(false)),
            "integer" => matches!(value, Val::Int(_)),
            "float" => matches!(value, Val::Float(_)),
            "number" => number(value).is_some(),
            "string" => value.as_text().is_some(),
            "mapping" => matches!(value, Val::Dict(_) | Val::Bare(Object::Dict(_))),
            "escaped" => matches!(value, Val::Markup(_)),
            "callable" => matches!(
                value,
                Val::Method(_)
                    | Val::Global(_)
                    | Val::Macro(_)
                    | Val::Loop(_)
                    | Val::Joiner(_)
                    | Val::Block(..)
                    | Val::Undefined(_)
            ),
            "iterable" => match value {
                Val::Undefined(_) => self.iterate(value).map(|_| true)?,
                other => is_iterable(other),
            },
            "sequence" => match value {
                Val::Undefined(undefined) => undefined.lenient,
                Val::View(..) | Val::OwnView(..) | Val::Iterator(..) => false,
                other => is_iterable(other),
            },
            "odd" | "even" => {
                let rest =
                    self.binary(crate::syntax::ast::Binary::Mod, value, &Val::Int(Int::Small(2)))?;
                let wanted = Val::Int(Int::Small(i64::from(name == "odd")));
                self.equal(&rest, &wanted)?
            }
            "lower" | "upper" => {
                let text = self.text(value)?;
                is_cased(&text, name == "upper")
            }
            "filter" | "test" => {
                let Some(wanted) = value.as_text() else {
                    self.require_defined(value)?;
                    return Ok(false);
                };
                match name {
                    "filter" => super::check::has_filter(wanted, self.model),
                    _ => TESTS.contains(&&**wanted),
                }
            }
            other => return Err(no_such_name("test", other)),
        })
    }

    pub(super) fn iterate_is_possible(&self, value: &Val) -> bool {
        is_iterable(value)
    }

    /// Python's `is`, where it does not depend on how values are stored.
    fn same(&self, left: &Val, right: &Val) -> RenderResult<bool> {
        match (left, right) {
            (Val::None, Val::None) => Ok(true),
            (Val::Bool(a), Val::Bool(b)) => Ok(a == b),
            (Val::None | Val::Bool(_), _) | (_, Val::None | Val::Bool(_)) => Ok(false),
            (Val::Int(a), Val::Int(b)) if is_small(a) && is_small(b) => Ok(a == b),
            _ => Err(self.unsupported("the test `sameas` on such values")),
        }
    }
}

/// True for integers that Python caches.
fn is_small(int: &Int) -> bool {
    matches!(int, Int::Small(-5..=256))
}

fn is_iterable(value: &Val) -> bool {
    matches!(
        value,
        Val::Str(_)
            | Val::Markup(_)
            | Val::Tuple(_)
            | Val::List(_)
            | Val::Dict(_)
            | Val::Range(..)
            | Val::Iterator(..)
            | Val::Model(Object::List(_) | Object::Dict(_))
            | Val::Bare(Object::List(_) | Object::Dict(_))
            | Val::View(View::Keys | View::Values | View::Items, _)
            | Val::OwnView(..)
    )
}

/// Python's `isupper` and `islower`: at least one letter, and none of the other case.
pub(super) fn is_cased(text: &str, upper: bool) -> bool {
    let is_wanted = |c: char| if upper { c.is_uppercase() } else { c.is_lowercase() };
    let is_other = |c: char| if upper { c.is_lowercase() } else { c.is_uppercase() };
    text.chars().any(is_wanted) && !text.chars().any(is_other)
}

/// A numeric argument of a filter, truncated to an integer.
pub(super) fn to_integer(value: &Val) -> RenderResult<i64> {
    match number(value) {
        Some(Number::Int(int)) => Ok(int.to_i64().unwrap_or(i64::MAX)),
        _ => {
            let class = value.class();
            type_error(format!("'{class}' object cannot be interpreted as an integer"))
        }
    }
}
