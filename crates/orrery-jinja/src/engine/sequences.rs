//! Iteration, length, indexing and slicing.

use std::cell::RefCell;
use std::rc::Rc;

use orrery_python::Int;

use super::operators::type_error;
use super::render::{RenderResult, Renderer};
use super::value::{Val, View, range_items};
use crate::error::TemplateError;
use crate::model::ModelAccess;
use crate::objects::{ListId, ModelItem, Object};

/// Maximum length of a range.
const ITEMS_MAX: usize = 1 << 24;

impl<M: ModelAccess> Renderer<'_, M> {
    /// Converts an item of the model to a template value.
    pub(super) fn template_value(&self, item: ModelItem<'_>) -> RenderResult<Val> {
        self.known_value(Val::from_item(item))
    }

    /// Fails for an unknown of the model.
    pub(super) fn known_value(&self, value: Val) -> RenderResult<Val> {
        match value {
            Val::Model(Object::Unknown(unknown)) => Err(self.model.unknown(unknown)),
            known => Ok(known),
        }
    }

    fn model_items(&self, id: ListId, is_proxied: bool) -> RenderResult<Vec<Val>> {
        let items = self.model.items(id);
        items
            .map(
                |item| {
                    if is_proxied { self.template_value(item) } else { Ok(Val::unproxied(item)) }
                },
            )
            .collect()
    }

    /// All elements of an iterable.
    pub(super) fn iterate(&self, value: &Val) -> RenderResult<Vec<Val>> {
        Ok(match value {
            Val::Undefined(undefined) if undefined.lenient => Vec::new(),
            Val::Undefined(_) => self.require_defined(value).map(|_| Vec::new())?,
            Val::Str(text) | Val::Markup(text) => {
                text.chars().map(|c| Val::str(c.encode_utf8(&mut [0; 4]) as &str)).collect()
            }
            Val::Tuple(items) => items.to_vec(),
            Val::List(items) => items.borrow().clone(),
            Val::Dict(entries) | Val::OwnView(View::Keys, entries) => {
                entries.borrow().keys().map(|key| key.value.clone()).collect()
            }
            Val::OwnView(View::Values, entries) => entries.borrow().values().cloned().collect(),
            Val::OwnView(View::Items, entries) => {
                let pair = |(key, item): (&super::value::Key, &Val)| {
                    Val::tuple(vec![key.value.clone(), item.clone()])
                };
                entries.borrow().iter().map(pair).collect()
            }
            Val::Range(start, stop, step) => {
                let numbers: Vec<Val> = range_items(*start, *stop, *step)
                    .take(ITEMS_MAX + 1)
                    .map(|at| Val::Int(Int::Small(at)))
                    .collect();
                if numbers.len() > ITEMS_MAX {
                    return Err(TemplateError::python("MemoryError", ""));
                }
                numbers
            }
            Val::Iterator(iterator) => {
                let (items, failure) = iterator.state.take();
                match failure {
                    Some(failure) => return Err(failure),
                    None => items,
                }
            }
            Val::Model(Object::List(id)) => self.model_items(*id, true)?,
            Val::Bare(Object::List(id)) => self.model_items(*id, false)?,
            Val::Model(Object::Dict(id))
            | Val::Bare(Object::Dict(id))
            | Val::View(View::Keys, id) => {
                self.model.entries(*id).map(|(key, _)| Val::str(key)).collect()
            }
            Val::View(View::Values, id) => {
                let items = self.model.entries(*id).map(|(_, item)| item);
                items.map(|item| self.template_value(item)).collect::<RenderResult<_>>()?
            }
            Val::View(View::Items, id) => {
                let entries = self.model.entries(*id);
                entries
                    .map(|(key, item)| Val::tuple(vec![Val::str(key), Val::unproxied(item)]))
                    .collect()
            }
            Val::Group(pair) => vec![pair.0.clone(), pair.1.clone()],
            other => {
                return type_error(format!("'{}' object is not iterable", other.class()));
            }
        })
    }

    /// A generator: its items are computed at once, but a failure is deferred to its reader.
    pub(super) fn generator(
        &mut self,
        function: &'static str,
        work: impl FnOnce(&mut Self) -> RenderResult<Vec<Val>>,
    ) -> Val {
        let state = match work(self) {
            Ok(items) => (items, None),
            Err(failure) => (Vec::new(), Some(failure)),
        };
        let state = RefCell::new(state);
        Val::Iterator(Rc::new(super::value::OnceIterator { class: "generator", function, state }))
    }

    /// Python's `len()`.
    pub(super) fn length(&self, value: &Val) -> RenderResult<usize> {
        Ok(match value {
            Val::Undefined(undefined) if undefined.lenient => 0,
            Val::Undefined(_) => self.require_defined(value).map(|_| 0)?,
            Val::Str(text) | Val::Markup(text) => text.chars().count(),
            Val::Tuple(items) => items.len(),
            Val::List(items) => items.borrow().len(),
            Val::Dict(entries) | Val::OwnView(_, entries) => entries.borrow().len(),
            Val::Range(..) => self.iterate(value)?.len(),
            Val::Model(Object::List(id)) | Val::Bare(Object::List(id)) => {
                self.model.items(*id).len()
            }
            Val::Model(Object::Dict(id)) | Val::Bare(Object::Dict(id)) | Val::View(_, id) => {
                self.model.entries(*id).len()
            }
            Val::Loop(state) => state.items.len(),
            Val::Group(_) => 2,
            other => {
                return type_error(format!("object of type '{}' has no len()", other.class()));
            }
        })
    }

    /// `value[key]` as Jinja does it: attributes are tried for text keys.
    pub(super) fn item(&mut self, value: &Val, key: &Val) -> RenderResult<Val> {
        self.require_defined(value)?;
        if let Some(found) = self.plain_item(value, key)? {
            return Ok(found);
        }
        if let Some(name) = key.as_text() {
            return self.attribute_alone(value, name);
        }
        self.require_defined(key)?;
        Ok(Val::undefined(format!("{} has no element {}", value.description(), self.repr(key)?)))
    }

    /// `value[key]` without attributes; `None` where Python would raise.
    pub(super) fn plain_item(&self, value: &Val, key: &Val) -> RenderResult<Option<Val>> {
        let index = match key {
            Val::Int(int) => int.to_i64(),
            Val::Bool(bool) => Some(i64::from(*bool)),
            _ => None,
        };
        Ok(match (value, index) {
            (Val::Dict(entries), _) => match self.key(key) {
                Ok(key) => entries.borrow().get(&key).cloned(),
                Err(TemplateError::Python(_)) => None,
                Err(failure) => return Err(failure),
            },
            (Val::Model(Object::Dict(id)) | Val::Bare(Object::Dict(id)), _) => {
                let found = key.as_text().and_then(|text| self.model.entry(*id, text));
                match (found, value) {
                    (Some(item), Val::Model(_)) => Some(self.template_value(item)?),
                    (Some(item), _) => Some(Val::unproxied(item)),
                    (None, _) => None,
                }
            }
            (Val::Model(Object::List(id)), Some(index)) => {
                let found = self.model_item(*id, index);
                found.map(|item| self.template_value(item)).transpose()?
            }
            (Val::Bare(Object::List(id)), Some(index)) => {
                self.model_item(*id, index).map(Val::unproxied)
            }
            (Val::List(items), Some(index)) => at(&items.borrow(), index).cloned(),
            (Val::Tuple(items), Some(index)) => at(items, index).cloned(),
            (Val::Str(_) | Val::Markup(_) | Val::Range(..) | Val::Group(_), Some(index)) => {
                at(&self.iterate(value)?, index).cloned()
            }
            _ => None,
        })
    }

    /// An element of a list of the model by Python's index.
    fn model_item(&self, list: ListId, index: i64) -> Option<ModelItem<'_>> {
        let position = position(self.model.items(list).len(), index)?;
        self.model.item(list, position)
    }

    /// `value[start:stop:step]`.
    pub(super) fn slice(&mut self, value: &Val, bounds: &[Val; 3]) -> RenderResult<Val> {
        self.require_defined(value)?;
        let bound = |bound: &Val| -> RenderResult<Option<i64>> {
            match bound {
                Val::None => Ok(None),
                Val::Int(int) => {
                    let end = if int.is_negative() { i64::MIN } else { i64::MAX };
                    Ok(Some(int.to_i64().unwrap_or(end)))
                }
                Val::Bool(bool) => Ok(Some(i64::from(*bool))),
                _ => {
                    type_error("slice indices must be integers or None or have an __index__ method")
                }
            }
        };
        let [start, stop, step] = [bound(&bounds[0])?, bound(&bounds[1])?, bound(&bounds[2])?];
        let step = step.unwrap_or(1);
        if step == 0 {
            return Err(TemplateError::python("ValueError", "slice step cannot be zero"));
        }
        let positions = |len: usize| slice_positions(len, start, stop, step);
        Ok(match value {
            Val::Str(text) => {
                let chars: Vec<char> = text.chars().collect();
                Val::str(positions(chars.len()).map(|at| chars[at]).collect::<String>())
            }
            Val::List(items) => {
                let items = items.borrow();
                Val::list(positions(items.len()).map(|at| items[at].clone()).collect())
            }
            Val::Tuple(items) => {
                Val::tuple(positions(items.len()).map(|at| items[at].clone()).collect())
            }
            Val::Model(Object::List(id)) => {
                let len = self.model.items(*id).len();
                Val::Model(Object::List(self.model.slice(*id, positions(len))))
            }
            Val::Range(..)
            | Val::Markup(_)
            | Val::Bare(_)
            | Val::Dict(_)
            | Val::Model(Object::Dict(_))
            | Val::Group(_) => {
                return Err(self.unsupported(&format!("a slice of a {}", value.class())));
            }
            other => {
                return type_error(format!("'{}' object is not subscriptable", other.class()));
            }
        })
    }

    /// Sorts by Python's `<` over keys; stable in both directions.
    pub(super) fn sorted(&self, keyed: Vec<(Val, Val)>, reverse: bool) -> RenderResult<Vec<Val>> {
        let mut keyed = keyed;
        let less = |left: &Val, right: &Val| -> RenderResult<bool> {
            Ok(self.ordering(left, right, "<")? == Some(std::cmp::Ordering::Less))
        };
        // Python compares neighbours first: this finds the pair of its error message.
        for pair in keyed.windows(2) {
            let (first, second) =
                if reverse { (&pair[0].0, &pair[1].0) } else { (&pair[1].0, &pair[0].0) };
            less(first, second)?;
        }
        let mut failure = None;
        keyed.sort_by(|(left, _), (right, _)| {
            let (left, right) = if reverse { (right, left) } else { (left, right) };
            match self.ordering(left, right, "<") {
                // Numbers that are not comparable count as equal: neither is less.
                Ok(order) => order.unwrap_or(std::cmp::Ordering::Equal),
                Err(error) => {
                    failure.get_or_insert(error);
                    std::cmp::Ordering::Equal
                }
            }
        });
        match failure {
            Some(failure) => Err(failure),
            None => Ok(keyed.into_iter().map(|(_, item)| item).collect()),
        }
    }

    /// Unpacks a value into several targets.
    pub(super) fn unpack(&self, value: &Val, count: usize) -> RenderResult<Vec<Val>> {
        let items = self.iterate(value).map_err(|failure| match failure {
            TemplateError::Python(error) if error.message.ends_with("object is not iterable") => {
                let message = format!("cannot unpack non-iterable {} object", value.class());
                TemplateError::python("TypeError", message)
            }
            other => other,
        })?;
        let message = match items.len() {
            found if found == count => return Ok(items),
            found if found < count => {
                format!("not enough values to unpack (expected {count}, got {found})")
            }
            _ => format!("too many values to unpack (expected {count})"),
        };
        Err(TemplateError::python("ValueError", message))
    }
}

/// An element by Python's index.
pub(super) fn at<T>(items: &[T], index: i64) -> Option<&T> {
    items.get(position(items.len(), index)?)
}

/// The position of Python's index, which may lie behind the end.
fn position(len: usize, index: i64) -> Option<usize> {
    let index = if index < 0 { index.checked_add_unsigned(len as u64)? } else { index };
    usize::try_from(index).ok()
}

fn slice_positions(
    len: usize,
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
) -> impl Iterator<Item = usize> {
    let len = len as i64;
    let clamp = |bound: i64, low: i64, high: i64| {
        let from_start = if bound < 0 { bound.saturating_add(len) } else { bound };
        from_start.clamp(low, high)
    };
    let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let (first, last) = if step > 0 { (0, len) } else { (len - 1, -1) };
    let start = start.map_or(first, |start| clamp(start, low, high));
    let stop = stop.map_or(last, |stop| clamp(stop, low, high));
    range_items(start, stop, step).filter_map(|at| usize::try_from(at).ok())
}
