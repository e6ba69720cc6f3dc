//! Methods of strings, lists, dicts, loops and cyclers.

use std::cell::RefCell;
use std::rc::Rc;

use indexmap::IndexMap;
use orrery_python::{
    Int, is_space, str_capitalize, str_lower, str_split, str_split_blanks, str_upper,
};

use super::evaluate::CallArgs;
use super::operators::type_error;
use super::render::{RenderResult, Renderer};
use super::sequences::at;
use super::str_methods::{center, split_lines, str_title};
use super::tests::{is_cased, to_integer};
use super::value::{Key, Val, View};
use crate::error::TemplateError;
use crate::model::ModelAccess;
use crate::objects::Object;

impl<M: ModelAccess> Renderer<'_, M> {
    pub(super) fn call_method(
        &mut self,
        object: &Val,
        name: &str,
        given: CallArgs,
    ) -> RenderResult<Val> {
        let outcome = match object {
            Val::Str(text) => self.text_method(text, name, given)?,
            Val::List(items) => self.list_method(items, object, name, given)?,
            Val::Tuple(_) | Val::Model(Object::List(_)) | Val::Bare(Object::List(_)) => {
                self.reading_method(object, name, given)?
            }
            Val::Dict(entries) => self.dict_method(entries, name, given)?,
            Val::Model(Object::Dict(id)) | Val::Bare(Object::Dict(id)) => match name {
                "keys" => Some(Val::View(View::Keys, *id)),
                "values" => Some(Val::View(View::Values, *id)),
                "items" => Some(Val::View(View::Items, *id)),
                "copy" => Some(object.clone()),
                _ => given
                    .bound(["key", "default"])
                    .and_then(|[key, default]| {
                        let key = key?;
                        Some(
                            self.plain_item(object, &key)
                                .map(|found| found.unwrap_or_else(|| default.unwrap_or(Val::None))),
                        )
                    })
                    .transpose()?,
            },
            Val::Loop(state) if name == "cycle" => {
                if given.positional.is_empty() {
                    return type_error("no items for cycling given");
                }
                let position = state.index.get() % given.positional.len();
                given.positional.get(position).cloned()
            }
            Val::Loop(state) => {
                let previous = state.changed.replace(Some(given.positional.clone()));
                let is_same = match previous {
                    None => false,
                    Some(previous) => {
                        self.equal(&Val::tuple(previous), &Val::tuple(given.positional))?
                    }
                };
                Some(Val::Bool(!is_same))
            }
            Val::Cycler(cycler) if name == "next" => {
                let position = cycler.position.get();
                cycler.position.set((position + 1) % cycler.items.len());
                cycler.items.get(position).cloned()
            }
            Val::Cycler(cycler) => {
                cycler.position.set(0);
                Some(Val::None)
            }
            _ => None,
        };
        outcome.ok_or_else(|| {
            self.unsupported(&format!("these arguments of `{name}` of a {}", object.class()))
        })
    }

    /// `count`, `index` and `copy`.
    fn reading_method(
        &mut self,
        object: &Val,
        name: &str,
        given: CallArgs,
    ) -> RenderResult<Option<Val>> {
        if name == "copy" {
            return Ok(given.bound([]).map(|[]| object.clone()));
        }
        let Some([Some(wanted)]) = given.bound(["value"]) else {
            return Ok(None);
        };
        let mut positions = Vec::new();
        for (index, item) in self.iterate(object)?.iter().enumerate() {
            if self.equal(item, &wanted)? {
                positions.push(index);
            }
        }
        if name == "count" {
            return Ok(Some(Val::int(positions.len())));
        }
        match positions.first() {
            Some(&first) => Ok(Some(Val::int(first))),
            None => {
                let message = match object {
                    Val::Tuple(_) => "tuple.index(x): x not in tuple".to_owned(),
                    _ => format!("{} is not in list", self.repr(&wanted)?),
                };
                Err(TemplateError::python("ValueError", message))
            }
        }
    }

    fn list_method(
        &mut self,
        items: &Rc<RefCell<Vec<Val>>>,
        object: &Val,
        name: &str,
        given: CallArgs,
    ) -> RenderResult<Option<Val>> {
        match name {
            "count" | "index" => return self.reading_method(object, name, given),
            "copy" => return Ok(given.bound([]).map(|[]| Val::list(items.borrow().clone()))),
            "clear" => items.borrow_mut().clear(),
            "reverse" => items.borrow_mut().reverse(),
            "append" => {
                let Some([Some(item)]) = given.bound(["object"]) else { return Ok(None) };
                items.borrow_mut().push(item);
            }
            "extend" => {
                let Some([Some(more)]) = given.bound(["iterable"]) else { return Ok(None) };
                let more = self.iterate(&more)?;
                items.borrow_mut().extend(more);
            }
            "insert" => {
                let Some([Some(index), Some(item)]) = given.bound(["index", "object"]) else {
                    return Ok(None);
                };
                let index = to_integer(&index)?;
                let len = items.borrow().len() as i64;
                let index = if index < 0 { (index + len).max(0) } else { index.min(len) };
                items.borrow_mut().insert(usize::try_from(index).unwrap_or(0), item);
            }
            "remove" => {
                let Some([Some(wanted)]) = given.bound(["value"]) else { return Ok(None) };
                // The length is taken first: a sequence that a `for` iterates over stays borrowed
                // in its body.
                let len = items.borrow().len();
                for index in 0..len {
                    let item = items.borrow()[index].clone();
                    if self.equal(&item, &wanted)? {
                        items.borrow_mut().remove(index);
                        return Ok(Some(Val::None));
                    }
                }
                return Err(TemplateError::python("ValueError", "list.remove(x): x not in list"));
            }
            "pop" => {
                let Some([index]) = given.bound(["index"]) else { return Ok(None) };
                let index = index.map_or(Ok(-1), |index| to_integer(&index))?;
                if items.borrow().is_empty() {
                    return Err(TemplateError::python("IndexError", "pop from empty list"));
                }
                if at(&items.borrow(), index).is_none() {
                    return Err(TemplateError::python("IndexError", "pop index out of range"));
                }
                let len = items.borrow().len() as i64;
                let index = if index < 0 { index + len } else { index };
                let removed = items.borrow_mut().remove(usize::try_from(index).unwrap_or(0));
                return Ok(Some(removed));
            }
            "sort" => {
                let Some([reverse]) = given.bound(["reverse"]) else { return Ok(None) };
                let reverse = self.flag(reverse)?;
                let keyed =
                    items.borrow().iter().map(|item| (item.clone(), item.clone())).collect();
                let sorted = self.sorted(keyed, reverse)?;
                *items.borrow_mut() = sorted;
            }
            _ => return Ok(None),
        }
        Ok(Some(Val::None))
    }

    fn dict_method(
        &mut self,
        entries: &Rc<RefCell<IndexMap<Key, Val>>>,
        name: &str,
        given: CallArgs,
    ) -> RenderResult<Option<Val>> {
        let view = |view| Ok(Some(Val::OwnView(view, entries.clone())));
        match name {
            "keys" => return view(View::Keys),
            "values" => return view(View::Values),
            "items" => return view(View::Items),
            "copy" => {
                let copy = entries.borrow().clone();
                return Ok(Some(Val::Dict(Rc::new(RefCell::new(copy)))));
            }
            "clear" => {
                entries.borrow_mut().clear();
                return Ok(Some(Val::None));
            }
            "update" => {
                for other in &given.positional {
                    for key in self.iterate(other)? {
                        let Some(item) = self.plain_item(other, &key)? else {
                            return Err(self.unsupported("`update` with a list of pairs"));
                        };
                        let key = self.key(&key)?;
                        entries.borrow_mut().insert(key, item);
                    }
                }
                for (key, value) in given.named {
                    entries.borrow_mut().insert(Key::text(&key), value);
                }
                return Ok(Some(Val::None));
            }
            "popitem" => {
                let Some((key, value)) = entries.borrow_mut().pop() else {
                    let message = "'popitem(): dictionary is empty'";
                    return Err(TemplateError::python("KeyError", message));
                };
                return Ok(Some(Val::tuple(vec![key.value, value])));
            }
            _ => {}
        }
        let Some([Some(key), default]) = given.bound(["key", "default"]) else {
            return Ok(None);
        };
        let looked_up = self.key(&key)?;
        let found = entries.borrow().get(&looked_up).cloned();
        Ok(Some(match (name, found) {
            ("get", found) => found.unwrap_or_else(|| default.unwrap_or(Val::None)),
            ("setdefault", Some(found)) => found,
            ("setdefault", None) => {
                let value = default.unwrap_or(Val::None);
                entries.borrow_mut().insert(looked_up, value.clone());
                value
            }
            ("pop", Some(found)) => {
                entries.borrow_mut().shift_remove(&looked_up);
                found
            }
            ("pop", None) => match default {
                Some(default) => default,
                None => return Err(TemplateError::python("KeyError", self.repr(&key)?)),
            },
            _ => return Ok(None),
        }))
    }

    fn text_method(
        &mut self,
        text: &Rc<str>,
        name: &str,
        given: CallArgs,
    ) -> RenderResult<Option<Val>> {
        let simple: Option<fn(&str) -> Val> = match name {
            "upper" => Some(|text| Val::str(str_upper(text))),
            "lower" => Some(|text| Val::str(str_lower(text))),
            "casefold" => Some(|text| Val::str(str_lower(text))),
            "capitalize" => Some(|text| Val::str(str_capitalize(text))),
            "title" => Some(|text| Val::str(str_title(text))),
            "swapcase" => Some(|text| Val::str(swap_case(text))),
            "isupper" => Some(|text| Val::Bool(is_cased(text, true))),
            "islower" => Some(|text| Val::Bool(is_cased(text, false))),
            "isspace" => Some(|text| Val::Bool(all(text, is_space))),
            "isalpha" => Some(|text| Val::Bool(all(text, char::is_alphabetic))),
            "isalnum" => Some(|text| Val::Bool(all(text, char::is_alphanumeric))),
            "isdigit" => {
                Some(|text| Val::Bool(all(text, |c| orrery_python::decimal_digit(c).is_some())))
            }
            "isascii" => Some(|text| Val::Bool(text.is_ascii())),
            _ => None,
        };
        if let Some(simple) = simple {
            let is_exact = text.is_ascii() || matches!(name, "upper" | "lower" | "capitalize");
            if !is_exact && !matches!(name, "isspace" | "isascii") {
                return Err(self.unsupported(&format!("`{name}` of a text beyond ASCII")));
            }
            return Ok(given.bound([]).map(|[]| simple(text)));
        }
        match name {
            "format" => self.format_method(text, given).map(Some),
            "join" => {
                let Some([Some(parts)]) = given.bound(["iterable"]) else { return Ok(None) };
                let mut texts = Vec::new();
                for (index, part) in self.iterate(&parts)?.iter().enumerate() {
                    let Val::Str(part) = part else {
                        self.require_defined(part)?;
                        return type_error(format!(
                            "sequence item {index}: expected str instance, {} found",
                            part.class()
                        ));
                    };
                    texts.push(part.clone());
                }
                Ok(Some(Val::str(texts.join(text))))
            }
            "strip" | "lstrip" | "rstrip" => {
                let Some([chars]) = given.bound(["chars"]) else { return Ok(None) };
                let chars = match chars {
                    None | Some(Val::None) => None,
                    Some(Val::Str(chars)) => Some(chars),
                    Some(_) => return Ok(None),
                };
                let is_stripped = |c: char| match &chars {
                    Some(chars) => chars.contains(c),
                    None => is_space(c),
                };
                let stripped = match name {
                    "lstrip" => text.trim_start_matches(is_stripped),
                    "rstrip" => text.trim_end_matches(is_stripped),
                    _ => text.trim_matches(is_stripped),
                };
                Ok(Some(Val::str(stripped)))
            }
            "split" | "rsplit" => self.split_method(text, name, given),
            "splitlines" => {
                let Some([keep]) = given.bound(["keepends"]) else { return Ok(None) };
                let keep = self.flag(keep)?;
                let lines = split_lines(text, keep).into_iter().map(Val::str);
                Ok(Some(Val::list(lines.collect())))
            }
            "center" | "ljust" | "rjust" => {
                let Some([Some(width), fill]) = given.bound(["width", "fillchar"]) else {
                    return Ok(None);
                };
                let fill = match fill {
                    None => ' ',
                    Some(Val::Str(fill)) if fill.chars().count() == 1 => {
                        fill.chars().next().unwrap_or(' ')
                    }
                    Some(_) => return Ok(None),
                };
                let width = usize::try_from(to_integer(&width)?).unwrap_or(0);
                let padding = width.saturating_sub(text.chars().count());
                let padding: String = std::iter::repeat_n(fill, padding).collect();
                Ok(Some(Val::str(match name {
                    "ljust" => format!("{text}{padding}"),
                    "rjust" => format!("{padding}{text}"),
                    _ => center(text, width, fill),
                })))
            }
            "zfill" => {
                let Some([Some(width)]) = given.bound(["width"]) else { return Ok(None) };
                let width = usize::try_from(to_integer(&width)?).unwrap_or(0);
                let zeros = "0".repeat(width.saturating_sub(text.chars().count()));
                let (sign, digits) = match text.chars().next() {
                    Some('+' | '-') => text.split_at(1),
                    _ => ("", &**text),
                };
                Ok(Some(Val::str(format!("{sign}{zeros}{digits}"))))
            }
            "startswith" | "endswith" => {
                let Some([Some(affix)]) = given.bound(["prefix"]) else { return Ok(None) };
                let affixes = match &affix {
                    Val::Tuple(affixes) => affixes.to_vec(),
                    other => vec![other.clone()],
                };
                for affix in &affixes {
                    let Val::Str(affix) = affix else { return Ok(None) };
                    let fits = if name == "startswith" {
                        text.starts_with(&**affix)
                    } else {
                        text.ends_with(&**affix)
                    };
                    if fits {
                        return Ok(Some(Val::Bool(true)));
                    }
                }
                Ok(Some(Val::Bool(false)))
            }
            _ => self.search_method(text, name, given),
        }
    }

    fn split_method(
        &mut self,
        text: &str,
        name: &str,
        given: CallArgs,
    ) -> RenderResult<Option<Val>> {
        let Some([separator, most]) = given.bound(["sep", "maxsplit"]) else { return Ok(None) };
        let most = most.map_or(Ok(-1), |most| to_integer(&most))?;
        let parts: Vec<String> = match separator {
            None | Some(Val::None) if most < 0 => {
                str_split_blanks(text).into_iter().map(str::to_owned).collect()
            }
            Some(Val::Str(separator)) => {
                str_split(text, &separator)?;
                let most = usize::try_from(most).map_or(usize::MAX, |most| most.saturating_add(1));
                let mut parts: Vec<String> = if name == "split" {
                    text.splitn(most, &*separator).map(str::to_owned).collect()
                } else {
                    text.rsplitn(most, &*separator).map(str::to_owned).collect()
                };
                if name == "rsplit" {
                    parts.reverse();
                }
                parts
            }
            _ => return Ok(None),
        };
        Ok(Some(Val::list(parts.into_iter().map(Val::str).collect())))
    }

    /// Methods with one or two texts as arguments.
    fn search_method(
        &mut self,
        text: &str,
        name: &str,
        given: CallArgs,
    ) -> RenderResult<Option<Val>> {
        if name == "expandtabs" {
            return Ok(None);
        }
        let Some([Some(Val::Str(first)), second, third]) = given.bound(["old", "new", "count"])
        else {
            return Ok(None);
        };
        let position = |bytes: Option<usize>| {
            Val::Int(Int::Small(bytes.map_or(-1, |bytes| text[..bytes].chars().count() as i64)))
        };
        if name == "replace" {
            let Some(Val::Str(second)) = second else { return Ok(None) };
            let count = third.map_or(Ok(-1), |count| to_integer(&count))?;
            return Ok(Some(Val::str(match usize::try_from(count) {
                Ok(count) => text.replacen(&*first, &second, count),
                Err(_) => text.replace(&*first, &second),
            })));
        }
        if second.is_some() || third.is_some() {
            return Ok(None);
        }
        let whole = || (text.to_owned(), String::new(), String::new());
        Ok(Some(match name {
            "find" => position(text.find(&*first)),
            "rfind" => position(text.rfind(&*first)),
            "index" | "rindex" => {
                let found = if name == "index" { text.find(&*first) } else { text.rfind(&*first) };
                if found.is_none() {
                    return Err(TemplateError::python("ValueError", "substring not found"));
                }
                position(found)
            }
            "count" if first.is_empty() => Val::int(text.chars().count() + 1),
            "count" => Val::int(text.matches(&*first).count()),
            "removeprefix" => Val::str(text.strip_prefix(&*first).unwrap_or(text)),
            "removesuffix" => Val::str(text.strip_suffix(&*first).unwrap_or(text)),
            "partition" | "rpartition" if first.is_empty() => {
                return Err(TemplateError::python("ValueError", "empty separator"));
            }
            "partition" => {
                let (head, middle, tail) = text
                    .split_once(&*first)
                    .map_or_else(whole, |(a, b)| (a.to_owned(), first.to_string(), b.to_owned()));
                Val::tuple(vec![Val::str(head), Val::str(middle), Val::str(tail)])
            }
            "rpartition" => {
                let (head, middle, tail) = match text.rsplit_once(&*first) {
                    Some((a, b)) => (a.to_owned(), first.to_string(), b.to_owned()),
                    None => (String::new(), String::new(), text.to_owned()),
                };
                Val::tuple(vec![Val::str(head), Val::str(middle), Val::str(tail)])
            }
            _ => return Ok(None),
        }))
    }

    /// `"{}".format(…)`.
    fn format_method(&mut self, text: &str, given: CallArgs) -> RenderResult<Val> {
        let is_plain = |value: &Val| {
            !matches!(value, Val::List(_) | Val::Tuple(_) | Val::Dict(_) | Val::Range(..))
        };
        let values = given.positional.iter().chain(given.named.iter().map(|(_, value)| value));
        if !values.clone().all(is_plain) {
            return Err(self.unsupported("`format` with a list or dict of the template"));
        }
        let mut positional = Vec::new();
        for value in &given.positional {
            positional.push(self.argument(value)?);
        }
        let mut named = Vec::new();
        for (name, value) in &given.named {
            named.push((name.clone(), self.argument(value)?));
        }
        Ok(Val::str(self.model.format(text, positional, named)?))
    }
}

fn all(text: &str, test: impl Fn(char) -> bool) -> bool {
    !text.is_empty() && text.chars().all(test)
}

fn swap_case(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_uppercase() {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
    }
    out
}
