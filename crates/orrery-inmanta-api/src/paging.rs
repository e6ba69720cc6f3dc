//! Pagination: filters, a sort column, and bounds from the links of the previous page.
//!
//! `start` and `first_id` exclude everything that is not greater than a bound, `end` and `last_id`
//! everything that is not smaller, regardless of the sort order.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use orrery_model::Timestamp;
use orrery_server::ServerError;
use serde_json::{Map, Value, json};

use crate::request::{InmantaRequest, bad_request, parse_time};
use crate::response::{ApiResult, escaped, plain, time};

const LIMIT_MAX: i64 = 1000;

/// Sort key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Nothing,
    Flag(bool),
    Number(i64),
    Time(Timestamp),
    Text(String),
}

impl Key {
    fn text(&self) -> Option<String> {
        match self {
            Key::Nothing => None,
            Key::Flag(flag) => Some(flag.to_string()),
            Key::Number(number) => Some(number.to_string()),
            Key::Time(at) => Some(time(*at)),
            Key::Text(text) => Some(text.clone()),
        }
    }
}

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Number,
    Time,
    Flag,
}

impl Form {
    fn read(self, text: &str) -> Option<Key> {
        match self {
            Form::Text => Some(Key::Text(text.to_owned())),
            Form::Number => text.parse().ok().map(Key::Number),
            Form::Time => parse_time(text).map(Key::Time),
            Form::Flag => match text.to_ascii_lowercase().as_str() {
                "true" => Some(Key::Flag(true)),
                "false" => Some(Key::Flag(false)),
                _ => None,
            },
        }
    }
}

/// Definition of a kind of list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListDefinition {
    /// Sortable columns; the first is the default.
    pub(crate) columns: &'static [(&'static str, Form)],
    /// True for a descending default order.
    pub(crate) descending: bool,
    pub(crate) filters: &'static [&'static str],
    /// True if the column is not unique, so that bounds include an id.
    pub(crate) with_ids: bool,
    /// Arguments in addition to those of all lists.
    pub(crate) others: &'static [&'static str],
}

/// Parsed list request.
#[derive(Debug)]
pub(crate) struct ListRequest {
    pub(crate) column: &'static str,
    descending: bool,
    limit: usize,
    /// The bound, and true if it is the lower one.
    bound: Option<(Key, Option<String>, bool)>,
    filters: BTreeMap<String, Vec<String>>,
    /// Arguments that every link repeats, in order.
    repeated: Vec<(String, String)>,
    bounds: Vec<(String, String)>,
    path: String,
    with_ids: bool,
}

/// Position of a page in ascending order: next to a bound, which is a column value and perhaps an
/// id.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PagePosition<'w> {
    Start,
    After(&'w str, Option<&'w str>),
    Before(&'w str, Option<&'w str>),
    End,
}

/// An item of a list: its sort key, and its content.
#[derive(Debug)]
pub(crate) struct ListItem {
    pub(crate) key: Key,
    pub(crate) id: String,
    pub(crate) shown: Value,
}

/// One page of a list, in display order.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) items: Vec<ListItem>,
    links: Map<String, Value>,
    metadata: Value,
}

impl Page {
    /// Builds the response, with additional metadata.
    pub(crate) fn answer(mut self, more: Map<String, Value>) -> ApiResult {
        for (name, value) in more {
            self.metadata[name] = value;
        }
        let shown: Vec<Value> = self.items.into_iter().map(|item| item.shown).collect();
        plain(json!({"data": shown, "links": self.links, "metadata": self.metadata}))
    }
}

impl ListRequest {
    pub(crate) fn parse(
        request: &InmantaRequest,
        offer: &ListDefinition,
    ) -> Result<Self, ServerError> {
        for name in request.names() {
            let known = ["limit", "start", "end", "sort", "filter"].contains(&name)
                || (offer.with_ids && ["first_id", "last_id"].contains(&name))
                || offer.others.contains(&name)
                || name.starts_with("filter.");
            if !known {
                return Err(bad_request(format!(
                    "request contains fields {{'{name}'}} that are not declared in method"
                )));
            }
        }
        let limit = match request.number("limit")? {
            None | Some(0) => LIMIT_MAX,
            Some(limit @ 1..=LIMIT_MAX) => limit,
            Some(limit) => {
                let text = format!("limit parameter can not exceed {LIMIT_MAX}, got {limit}.");
                return Err(bad_request(text));
            }
        };
        let mut filters: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in request.prefixed("filter.") {
            let texts = match value {
                Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
                other => other.as_str().into_iter().collect::<Vec<_>>(),
            };
            filters.insert(name.to_owned(), texts.into_iter().map(str::to_owned).collect());
        }
        let strange = filters.keys().find(|name| !offer.filters.contains(&name.as_str()));
        if let Some(name) = strange {
            return Err(bad_request(format!(
                "The following filters are not supported: {{'{name}'}}"
            )));
        }
        let ((column, form), descending) = sorting(request, offer)?;
        let (bound, bounds) = bound(request, form)?;
        let order = if descending { "desc" } else { "asc" };
        let mut repeated = vec![("limit".to_owned(), limit.to_string())];
        for (name, values) in &filters {
            let named = |value: &String| (format!("filter.{name}"), value.clone());
            repeated.extend(values.iter().map(named));
        }
        repeated.push(("sort".to_owned(), format!("{column}.{order}")));
        for name in offer.others {
            if let Some(value) = request.value(name).and_then(Value::as_str) {
                repeated.push(((*name).to_owned(), value.to_owned()));
            }
        }
        Ok(ListRequest {
            column,
            descending,
            limit: usize::try_from(limit).unwrap_or(1),
            bound,
            filters,
            repeated,
            bounds,
            path: request.path.clone(),
            with_ids: offer.with_ids,
        })
    }

    /// Returns the values of a filter, if it was given.
    pub(crate) fn filter(&self, name: &str) -> Option<&[String]> {
        self.filters.get(name).map(Vec::as_slice)
    }

    /// True if a value of the filter is part of the text, case-insensitive, or the filter is
    /// absent.
    pub(crate) fn contains(&self, name: &str, text: &str) -> bool {
        let text = text.to_lowercase();
        self.filter(name)
            .is_none_or(|values| values.iter().any(|value| text.contains(&value.to_lowercase())))
    }

    /// True if the text is a value of the filter, or the filter is absent.
    pub(crate) fn matches(&self, name: &str, text: &str) -> bool {
        self.filter(name).is_none_or(|values| values.iter().any(|value| value == text))
    }

    /// Parses a boolean filter.
    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, ServerError> {
        let Some(values) = self.filter(name) else { return Ok(None) };
        match values {
            [value] if value.eq_ignore_ascii_case("true") => Ok(Some(true)),
            [value] if value.eq_ignore_ascii_case("false") => Ok(Some(false)),
            _ => Err(bad_request(format!("Filter {name} must be true or false."))),
        }
    }

    /// True if a key is within all ranges of a filter: `lt`, `le`, `gt` or `ge`, a colon and a
    /// bound.
    pub(crate) fn in_ranges(&self, name: &str, form: Form, key: &Key) -> Result<bool, ServerError> {
        for range in self.filter(name).unwrap_or_default() {
            let wrong = || bad_request(format!("Filter {name} is no range: {range:?}"));
            let (relation, text) = range.split_once(':').ok_or_else(wrong)?;
            let bound = form.read(text).ok_or_else(wrong)?;
            let order = key.cmp(&bound);
            let holds = match relation.to_ascii_lowercase().as_str() {
                "lt" => order == Ordering::Less,
                "le" => order != Ordering::Greater,
                "gt" => order == Ordering::Greater,
                "ge" => order != Ordering::Less,
                _ => return Err(wrong()),
            };
            if !holds || *key == Key::Nothing {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Responds with the requested page of all matching items.
    pub(crate) fn page(&self, items: Vec<ListItem>) -> ApiResult {
        self.cut(items).answer(Map::new())
    }

    /// Cuts the requested page out of all matching items.
    pub(crate) fn cut(&self, mut items: Vec<ListItem>) -> Page {
        items.sort_unstable_by(|a, b| (&a.key, &a.id).cmp(&(&b.key, &b.id)));
        let total = items.len();
        let (from, until) = match &self.bound {
            None if self.descending => (total.saturating_sub(self.limit), total),
            None => (0, total.min(self.limit)),
            Some((key, id, true)) => {
                let is_outside =
                    |item: &ListItem| !is_beyond(item, key, id.as_deref(), Ordering::Greater);
                let from = items.partition_point(is_outside);
                // The items next to the bound.
                (from, total.min(from + self.limit))
            }
            Some((key, id, false)) => {
                let is_inside =
                    |item: &ListItem| is_beyond(item, key, id.as_deref(), Ordering::Less);
                let until = items.partition_point(is_inside);
                (until.saturating_sub(self.limit), until)
            }
        };
        items.truncate(until);
        items.drain(..from);
        self.assemble(items, from, total)
    }

    /// Returns the position of the page, for text columns.
    pub(crate) fn position(&self) -> Option<PagePosition<'_>> {
        Some(match &self.bound {
            None if self.descending => PagePosition::End,
            None => PagePosition::Start,
            Some((Key::Text(key), id, true)) => PagePosition::After(key, id.as_deref()),
            Some((Key::Text(key), id, false)) => PagePosition::Before(key, id.as_deref()),
            Some(_) => return None,
        })
    }

    /// Page size.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// True if no filters but these are given.
    pub(crate) fn filters_only(&self, names: &[&str]) -> bool {
        self.filters.keys().all(|name| names.contains(&name.as_str()))
    }

    /// Builds a page of items in ascending order, given their offset in the whole list.
    pub(crate) fn assemble(&self, mut items: Vec<ListItem>, from: usize, total: usize) -> Page {
        let until = from + items.len();
        let (mut before, mut after) = (from, total.saturating_sub(until));
        if self.descending {
            (before, after) = (after, before);
            items.reverse();
        }
        let mut links = Map::new();
        if before > 0 {
            links.insert("first".to_owned(), json!(self.link(&[])));
            let to = items.first().map(|item| self.bound_at(item, self.descending));
            links.insert("prev".to_owned(), json!(self.link(&to.unwrap_or_default())));
        }
        if after > 0 {
            let to = items.last().map(|item| self.bound_at(item, !self.descending));
            links.insert("next".to_owned(), json!(self.link(&to.unwrap_or_default())));
        }
        links.insert("self".to_owned(), json!(self.link(&self.bounds)));
        let metadata = json!({
            "total": total, "before": before, "after": after, "page_size": self.limit,
        });
        Page { items, links, metadata }
    }

    /// Returns the bound at an item: the lower one to continue with greater items.
    fn bound_at(&self, item: &ListItem, greater: bool) -> Vec<(String, String)> {
        let (value, id) = if greater { ("start", "first_id") } else { ("end", "last_id") };
        let mut place = Vec::new();
        if let Some(text) = item.key.text() {
            place.push((value.to_owned(), text));
        }
        if self.with_ids {
            place.push((id.to_owned(), item.id.clone()));
        }
        place
    }

    fn link(&self, bounds: &[(String, String)]) -> String {
        let pairs = self.repeated.iter().chain(bounds);
        let query: Vec<String> =
            pairs.map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        format!("{}?{}", self.path, query.join("&"))
    }
}

/// True if an item is on the given side of a bound, in ascending order.
fn is_beyond(item: &ListItem, key: &Key, id: Option<&str>, side: Ordering) -> bool {
    let order = item.key.cmp(key);
    let order = match id {
        Some(id) => order.then_with(|| item.id.as_str().cmp(id)),
        None => order,
    };
    order == side
}

type Column = ((&'static str, Form), bool);

fn sorting(request: &InmantaRequest, offer: &ListDefinition) -> Result<Column, ServerError> {
    let Some(text) = request.text("sort")? else {
        return Ok((offer.columns[0], offer.descending));
    };
    let wrong = || bad_request(format!("Sort parameter invalid: {text}"));
    let (column, order) = text.rsplit_once('.').ok_or_else(wrong)?;
    let column = offer.columns.iter().find(|(name, _)| name.eq_ignore_ascii_case(column));
    let descending = match order.to_ascii_lowercase().as_str() {
        "asc" => false,
        "desc" => true,
        _ => return Err(wrong()),
    };
    Ok((*column.ok_or_else(wrong)?, descending))
}

type Bound = (Option<(Key, Option<String>, bool)>, Vec<(String, String)>);

fn bound(request: &InmantaRequest, form: Form) -> Result<Bound, ServerError> {
    let given = |name: &str| request.text(name).map(|text| text.map(str::to_owned));
    let (start, end) = (given("start")?, given("end")?);
    let (first, last) = (given("first_id")?, given("last_id")?);
    if (start.is_some() || first.is_some()) && (end.is_some() || last.is_some()) {
        return Err(bad_request(format!(
            "Only one of start and end parameters is allowed at the same time. Received start: {}, end: {}",
            start.or(first).unwrap_or_default(),
            end.or(last).unwrap_or_default()
        )));
    }
    let is_lower = start.is_some() || first.is_some();
    let (value, id) = if is_lower { (start, first) } else { (end, last) };
    if value.is_none() && id.is_none() {
        return Ok((None, Vec::new()));
    }
    let names = if is_lower { ["start", "first_id"] } else { ["end", "last_id"] };
    let mut bounds = Vec::new();
    for (name, value) in names.iter().zip([&value, &id]) {
        bounds.extend(value.as_ref().map(|value| ((*name).to_owned(), value.clone())));
    }
    let key = match &value {
        None => Key::Nothing,
        Some(text) => form
            .read(text)
            .ok_or_else(|| bad_request(format!("{} is not valid: {text:?}", names[0])))?,
    };
    Ok((Some((key, id, is_lower)), bounds))
}
