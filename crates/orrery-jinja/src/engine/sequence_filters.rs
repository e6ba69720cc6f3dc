//! Filters that select, order, group and count items.

use std::rc::Rc;

use orrery_python::{Int, str_lower};

use super::evaluate::CallArgs;
use super::operators::type_error;
use super::render::{RenderResult, Renderer, template_error};
use super::tests::to_integer;
use super::value::Val;
use crate::error::TemplateError;
use crate::model::ModelAccess;
use crate::objects::Object;

/// Extracts sort keys from items: attributes by path, and case-folded texts.
struct KeyExtractor {
    paths: Vec<Vec<Val>>,
    default: Option<Val>,
    ignores_case: bool,
}

impl<M: ModelAccess> Renderer<'_, M> {
    /// Applies a filter of this file; `None` for all others.
    pub(super) fn item_filter(
        &mut self,
        name: &str,
        value: &Val,
        given: &CallArgs,
    ) -> RenderResult<Option<Val>> {
        let given = given.clone();
        Ok(Some(match name {
            "length" | "count" => {
                self.bound(name, given, [])?;
                Val::int(self.length(value)?)
            }
            "list" => {
                self.bound(name, given, [])?;
                Val::list(self.iterate(value)?)
            }
            "first" | "last" => {
                self.bound(name, given, [])?;
                if let ("last", Val::OwnView(..) | Val::View(..)) = (name, value) {
                    return Err(self.unsupported("the filter `last` on a view"));
                }
                let mut items = self.iterate(value).map_err(|failure| match failure {
                    TemplateError::Python(error)
                        if name == "last" && error.message.ends_with("is not iterable") =>
                    {
                        let message = format!("'{}' object is not reversible", value.class());
                        TemplateError::python("TypeError", message)
                    }
                    other => other,
                })?;
                if let ("last", Val::Iterator(_)) = (name, value) {
                    let class = value.class();
                    return type_error(format!("'{class}' object is not reversible"));
                }
                let found = if name == "last" { items.pop() } else { items.into_iter().next() };
                found.unwrap_or_else(|| {
                    Val::undefined(format!("No {name} item, sequence was empty."))
                })
            }
            "reverse" => {
                self.bound(name, given, [])?;
                self.reversed(value)?
            }
            "join" => {
                let [separator, attribute] = self.bound(name, given, ["d", "attribute"])?;
                let separator = match separator {
                    Some(separator) => self.text(&separator)?,
                    None => "".into(),
                };
                let mut items = self.iterate(value)?;
                if let Some(attribute) = attribute {
                    let key = self.key_of(Some(attribute), None, false)?;
                    items = items
                        .iter()
                        .map(|item| self.extract_key(item, &key))
                        .collect::<RenderResult<_>>()?;
                }
                let texts = items.iter().map(|item| self.text(item));
                Val::str(texts.collect::<RenderResult<Vec<_>>>()?.join(&separator))
            }
            "sort" | "unique" | "min" | "max" | "sum" | "groupby" | "dictsort" => {
                return self.ordering_filter(name, value, given).map(Some);
            }
            "map" => self.map_items(value, given),
            "select" | "reject" | "selectattr" | "rejectattr" => {
                self.select_items(name, value, given)
            }
            "batch" | "slice" => self.split_items(name, value, given)?,
            "items" => {
                self.bound(name, given, [])?;
                let value = value.clone();
                self.generator("do_items", |renderer| match value {
                    Val::Dict(entries) => {
                        renderer.iterate(&Val::OwnView(super::value::View::Items, entries))
                    }
                    Val::Undefined(_) => Ok(Vec::new()),
                    _ => type_error("Can only get item pairs from a mapping."),
                })
            }
            _ => return Ok(None),
        }))
    }

    fn reversed(&mut self, value: &Val) -> RenderResult<Val> {
        if let Some(text) = value.as_text() {
            return Ok(Val::str(text.chars().rev().collect::<String>()));
        }
        let class = match value {
            Val::List(_) => "list_reverseiterator",
            Val::Range(..) => "range_iterator",
            Val::Tuple(_) | Val::Model(Object::List(_)) => "reversed",
            Val::Dict(_) => "dict_reversekeyiterator",
            _ => {
                let mut items = self.iterate(value).map_err(|failure| match failure {
                    TemplateError::Python(error) if error.kind == "TypeError" => {
                        TemplateError::python(
                            "jinja2.exceptions.FilterArgumentError",
                            "argument must be iterable",
                        )
                    }
                    other => other,
                })?;
                items.reverse();
                return Ok(Val::list(items));
            }
        };
        let mut items = self.iterate(value)?;
        items.reverse();
        Ok(Val::iterator(class, items))
    }

    fn key_of(
        &mut self,
        attribute: Option<Val>,
        default: Option<Val>,
        ignores_case: bool,
    ) -> RenderResult<KeyExtractor> {
        let mut paths = Vec::new();
        if let Some(attribute) = attribute.filter(|attribute| !matches!(attribute, Val::None)) {
            let part = |text: &str| match text.parse::<i64>() {
                Ok(index) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                    Val::Int(Int::Small(index))
                }
                _ => Val::str(text),
            };
            match attribute.as_text() {
                Some(text) => paths.extend(
                    text.split(',').map(|path| path.split('.').map(part).collect::<Vec<_>>()),
                ),
                None => paths.push(vec![attribute]),
            }
        }
        Ok(KeyExtractor { paths, default, ignores_case })
    }

    /// The key of an item.
    fn extract_key(&mut self, item: &Val, key: &KeyExtractor) -> RenderResult<Val> {
        let mut taken = Vec::new();
        for path in &key.paths {
            let mut value = item.clone();
            for part in path {
                value = self.item(&value, part)?;
                if value.is_undefined()
                    && let Some(default) = &key.default
                {
                    value = default.clone();
                }
            }
            taken.push(value);
        }
        let mut value = match taken.len() {
            0 => item.clone(),
            1 => taken.remove(0),
            _ => {
                let lowered = taken.iter().map(|value| self.without_case(value, key)).collect();
                return Ok(Val::list(lowered));
            }
        };
        value = self.without_case(&value, key);
        Ok(value)
    }

    fn without_case(&self, value: &Val, key: &KeyExtractor) -> Val {
        match value.as_text() {
            Some(text) if key.ignores_case => Val::str(str_lower(text)),
            _ => value.clone(),
        }
    }

    fn keyed(&mut self, items: &[Val], key: &KeyExtractor) -> RenderResult<Vec<(Val, Val)>> {
        items.iter().map(|item| Ok((self.extract_key(item, key)?, item.clone()))).collect()
    }

    fn ordering_filter(&mut self, name: &str, value: &Val, given: CallArgs) -> RenderResult<Val> {
        match name {
            "sort" => {
                let params = ["reverse", "case_sensitive", "attribute"];
                let [reverse, case_sensitive, attribute] = self.bound(name, given, params)?;
                let (reverse, case_sensitive) = (self.flag(reverse)?, self.flag(case_sensitive)?);
                let key = self.key_of(attribute, None, !case_sensitive)?;
                let items = self.iterate(value)?;
                // Keys are lists even if there is one attribute, so that equal ones are never
                // ordered.
                let keyed = self.keyed(&items, &key)?.into_iter();
                let keyed = keyed.map(|(key, item)| (Val::list(vec![key]), item)).collect();
                Ok(Val::list(self.sorted(keyed, reverse)?))
            }
            "unique" => {
                let params = ["case_sensitive", "attribute"];
                let [case_sensitive, attribute] = self.bound(name, given, params)?;
                let case_sensitive = self.flag(case_sensitive)?;
                let key = self.key_of(attribute, None, !case_sensitive)?;
                let value = value.clone();
                Ok(self.generator("sync_do_unique", |renderer| {
                    let mut seen = hashbrown::HashSet::new();
                    let mut kept = Vec::new();
                    for item in renderer.iterate(&value)? {
                        let taken = renderer.extract_key(&item, &key)?;
                        if seen.insert(renderer.key(&taken)?.identity) {
                            kept.push(item);
                        }
                    }
                    Ok(kept)
                }))
            }
            "min" | "max" => {
                let params = ["case_sensitive", "attribute"];
                let [case_sensitive, attribute] = self.bound(name, given, params)?;
                let case_sensitive = self.flag(case_sensitive)?;
                let key = self.key_of(attribute, None, !case_sensitive)?;
                let items = self.iterate(value)?;
                self.min_or_max(name == "max", &items, &key)
            }
            "sum" => {
                let [attribute, start] = self.bound(name, given, ["attribute", "start"])?;
                let key = self.key_of(attribute, None, false)?;
                let mut sum = start.unwrap_or(Val::Int(Int::Small(0)));
                if sum.as_text().is_some() {
                    return type_error("sum() can't sum strings [use ''.join(seq) instead]");
                }
                for item in self.iterate(value)? {
                    let item = self.extract_key(&item, &key)?;
                    sum = self.binary(crate::syntax::ast::Binary::Add, &sum, &item)?;
                }
                Ok(sum)
            }
            "groupby" => {
                let params = ["attribute", "default", "case_sensitive"];
                let [attribute, default, case_sensitive] = self.bound(name, given, params)?;
                let case_sensitive = self.flag(case_sensitive)?;
                self.group_by(value, attribute, default, !case_sensitive)
            }
            _ => {
                let params = ["case_sensitive", "by", "reverse"];
                let [case_sensitive, by, reverse] = self.bound(name, given, params)?;
                let by = match by {
                    Some(by) => self.text(&by)?,
                    None => "key".into(),
                };
                let position = match &*by {
                    "key" => 0,
                    "value" => 1,
                    _ => {
                        let message = "You can only sort by either \"key\" or \"value\"";
                        return Err(TemplateError::python(
                            "jinja2.exceptions.FilterArgumentError",
                            message,
                        ));
                    }
                };
                let pairs = match value {
                    Val::Dict(entries) => {
                        let view = Val::OwnView(super::value::View::Items, entries.clone());
                        self.iterate(&view)?
                    }
                    Val::Model(Object::Dict(id)) => {
                        self.iterate(&Val::View(super::value::View::Items, *id))?
                    }
                    other => {
                        self.require_defined(other)?;
                        return Err(
                            self.unsupported("the filter `dictsort` on something else than a dict")
                        );
                    }
                };
                let key = KeyExtractor {
                    paths: vec![vec![Val::int(position)]],
                    default: None,
                    ignores_case: !self.flag(case_sensitive)?,
                };
                let keyed = self.keyed(&pairs, &key)?;
                let reverse = self.flag(reverse)?;
                Ok(Val::list(self.sorted(keyed, reverse)?))
            }
        }
    }

    fn min_or_max(
        &mut self,
        largest: bool,
        items: &[Val],
        key: &KeyExtractor,
    ) -> RenderResult<Val> {
        let mut best: Option<(Val, Val)> = None;
        for item in items {
            let taken = self.extract_key(item, key)?;
            let is_better = match &best {
                None => true,
                Some((found, _)) if largest => {
                    self.ordering(&taken, found, ">")? == Some(std::cmp::Ordering::Greater)
                }
                Some((found, _)) => {
                    self.ordering(&taken, found, "<")? == Some(std::cmp::Ordering::Less)
                }
            };
            if is_better {
                best = Some((taken, item.clone()));
            }
        }
        let none = || Val::undefined("No aggregated item, sequence was empty.");
        Ok(best.map_or_else(none, |(_, item)| item))
    }

    fn group_by(
        &mut self,
        value: &Val,
        attribute: Option<Val>,
        default: Option<Val>,
        ignores_case: bool,
    ) -> RenderResult<Val> {
        let attribute =
            attribute.ok_or_else(|| self.unsupported("`groupby` without an attribute"))?;
        let compared = self.key_of(Some(attribute.clone()), default.clone(), ignores_case)?;
        let original = self.key_of(Some(attribute), default, false)?;
        let items = self.iterate(value)?;
        let keyed = self.keyed(&items, &compared)?;
        let mut groups: Vec<(Val, Val, Vec<Val>)> = Vec::new();
        for item in self.sorted(keyed, false)? {
            let key = self.extract_key(&item, &compared)?;
            match groups.last_mut() {
                Some((found, _, members)) if self.equal(found, &key)? => members.push(item),
                _ => {
                    let shown = self.extract_key(&item, &original)?;
                    groups.push((key, shown, vec![item]));
                }
            }
        }
        let pair = |(_, shown, members)| Val::Group(Rc::new((shown, Val::list(members))));
        Ok(Val::list(groups.into_iter().map(pair).collect()))
    }

    /// Iterates over a value; some filters treat every false value as empty.
    fn iterate_if_true(&mut self, value: &Val) -> RenderResult<Vec<Val>> {
        if self.truth(value)? { self.iterate(value) } else { Ok(Vec::new()) }
    }

    fn map_items(&mut self, value: &Val, mut given: CallArgs) -> Val {
        let value = value.clone();
        self.generator("sync_do_map", |renderer| {
            let argument_error = |message: String| {
                TemplateError::python("jinja2.exceptions.FilterArgumentError", message)
            };
            let named = |given: &CallArgs, name: &str| {
                let found = given.named.iter().find(|(found, _)| &**found == name);
                found.map(|(_, value)| value.clone())
            };
            let attribute = named(&given, "attribute");
            if given.positional.is_empty() && attribute.is_some() {
                let default = named(&given, "default");
                let is_other =
                    |(name, _): &&(Rc<str>, Val)| !matches!(&**name, "attribute" | "default");
                if let Some((name, _)) = given.named.iter().find(is_other) {
                    return Err(argument_error(format!("Unexpected keyword argument '{name}'")));
                }
                let key = renderer.key_of(attribute, default, false)?;
                let items = renderer.iterate_if_true(&value)?;
                return items.iter().map(|item| renderer.extract_key(item, &key)).collect();
            }
            if given.positional.is_empty() {
                return Err(argument_error("map requires a filter argument".to_owned()));
            }
            let filter = given.positional.remove(0);
            let filter = renderer.text(&filter)?;
            if !super::check::has_filter(&filter, renderer.model) {
                return Err(template_error(&format!("No filter named '{filter}'.")));
            }
            let items = renderer.iterate_if_true(&value)?;
            items.into_iter().map(|item| renderer.filter(&filter, item, given.clone())).collect()
        })
    }

    fn select_items(&mut self, name: &str, value: &Val, mut given: CallArgs) -> Val {
        let (by_attribute, wanted) = (name.ends_with("attr"), name.starts_with("select"));
        let value = value.clone();
        self.generator("select_or_reject", |renderer| {
            let key = if by_attribute {
                if given.positional.is_empty() {
                    let message = "Missing parameter for attribute name";
                    return Err(TemplateError::python(
                        "jinja2.exceptions.FilterArgumentError",
                        message,
                    ));
                }
                let attribute = given.positional.remove(0);
                renderer.key_of(Some(attribute), None, false)?
            } else {
                renderer.key_of(None, None, false)?
            };
            let test = if given.positional.is_empty() {
                None
            } else {
                let test = given.positional.remove(0);
                let test = renderer.text(&test)?;
                if !super::tests::TESTS.contains(&&*test) {
                    return Err(template_error(&format!("No test named '{test}'.")));
                }
                Some(test)
            };
            let mut kept = Vec::new();
            for item in renderer.iterate_if_true(&value)? {
                let taken = renderer.extract_key(&item, &key)?;
                let verdict = match &test {
                    Some(test) => renderer.test(test, &taken, given.clone())?,
                    None => renderer.truth(&taken)?,
                };
                if verdict == wanted {
                    kept.push(item);
                }
            }
            Ok(kept)
        })
    }

    fn split_items(&mut self, name: &str, value: &Val, given: CallArgs) -> RenderResult<Val> {
        let is_batch = name == "batch";
        let params = [if is_batch { "linecount" } else { "slices" }, "fill_with"];
        let [count, fill] = self.bound(name, given, params)?;
        let count = count.ok_or_else(|| self.unsupported(&format!("`{name}` without a number")))?;
        let count = usize::try_from(to_integer(&count)?).unwrap_or(0);
        if count == 0 {
            return Err(self.unsupported(&format!("`{name}` of nothing")));
        }
        let fill = fill.filter(|fill| !matches!(fill, Val::None));
        let value = value.clone();
        let function = if is_batch { "do_batch" } else { "sync_do_slice" };
        Ok(self.generator(function, |renderer| {
            let items = renderer.iterate(&value)?;
            let parts =
                if is_batch { batches(&items, count, fill) } else { slices(&items, count, fill) };
            Ok(parts.into_iter().map(Val::list).collect())
        }))
    }
}

fn batches(items: &[Val], count: usize, fill: Option<Val>) -> Vec<Vec<Val>> {
    let mut parts: Vec<Vec<Val>> = items.chunks(count).map(<[Val]>::to_vec).collect();
    if let (Some(last), Some(fill)) = (parts.last_mut(), fill) {
        last.resize(count, fill);
    }
    parts
}

fn slices(items: &[Val], count: usize, fill: Option<Val>) -> Vec<Vec<Val>> {
    let (each, longer) = (items.len() / count, items.len() % count);
    let mut rest = items;
    let mut parts = Vec::new();
    for index in 0..count {
        let (part, others) = rest.split_at(each + usize::from(index < longer));
        let mut part = part.to_vec();
        if let (Some(fill), true) = (&fill, index >= longer) {
            part.push(fill.clone());
        }
        parts.push(part);
        rest = others;
    }
    parts
}
