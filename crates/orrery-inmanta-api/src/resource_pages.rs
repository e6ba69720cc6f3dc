//! Pages of the list of resources by type, which is the default order: only the page itself is
//! read, and the rest is counted.
//!
//! The store sorts by id, where `a::Bc[…]` precedes `a::B[…]`; the list sorts by type name. Within
//! a type, both orders are the same.

use orrery_model::Status;
use orrery_store::{EnvironmentKey, ResourceQuery, Store, StoreError};
use serde_json::json;

use crate::paging::{Key, ListItem, ListRequest, Page, PagePosition};

/// Filters that a page by type supports.
const FILTERS: [&str; 2] = ["resource_type", "status"];

/// Returns the requested page; `None` if the list has another order, or filters that need all
/// resources.
pub(crate) fn typed_page(
    store: &Store,
    environment: EnvironmentKey,
    wanted: &ListRequest,
    statuses: &[Status],
) -> Result<Option<Page>, StoreError> {
    let with_orphans = statuses.contains(&Status::Orphaned);
    let others = statuses.iter().filter(|status| **status != Status::Orphaned).count();
    let is_countable = others == Status::ALL.len() - 1;
    let (Some(place), "resource_type", true, true) =
        (wanted.position(), wanted.column, is_countable, wanted.filters_only(&FILTERS))
    else {
        return Ok(None);
    };
    let mut entities = store.resources().entities(environment)?;
    entities.retain(|entity| wanted.contains("resource_type", entity));
    let list = TypedList { store, environment, entities, with_orphans };
    let total = list.count_before(PagePosition::End)?;
    let before = match place {
        PagePosition::Start => 0,
        PagePosition::End => total,
        bound => list.count_before(bound)?,
    };
    let is_upper = matches!(place, PagePosition::Before(..) | PagePosition::End);
    let items = list.read(place, wanted.limit(), is_upper)?;
    let from = if is_upper { before.saturating_sub(items.len()) } else { before };
    Ok(Some(wanted.assemble(items, from, total)))
}

struct TypedList<'s> {
    store: &'s Store,
    environment: EnvironmentKey,
    /// In the order of the list.
    entities: Vec<String>,
    with_orphans: bool,
}

impl TypedList<'_> {
    /// Returns the number of types entirely before a bound, and the type that it splits: the id of
    /// the split, and true if that id is before the bound.
    fn divide<'b>(&self, bound: PagePosition<'b>) -> (usize, Option<(&'b str, bool)>) {
        let before = |entity: &str| self.entities.partition_point(|one| one.as_str() < entity);
        let (entity, id, is_included) = match bound {
            PagePosition::Start => return (0, None),
            PagePosition::End => return (self.entities.len(), None),
            PagePosition::After(entity, id) => (entity, id, true),
            PagePosition::Before(entity, id) => (entity, id, false),
        };
        let whole = before(entity);
        let is_there = self.entities.get(whole).is_some_and(|one| one == entity);
        match id {
            Some(id) if is_there => (whole, Some((id, is_included))),
            None if is_there && is_included => (whole + 1, None),
            _ => (whole, None),
        }
    }

    fn count_before(&self, bound: PagePosition<'_>) -> Result<usize, StoreError> {
        let (whole, divided) = self.divide(bound);
        let range = |entity: &String| (format!("{entity}["), format!("{entity}\\"));
        let mut ranges: Vec<(String, String)> = self.entities[..whole].iter().map(range).collect();
        if let (Some((id, is_included)), Some(entity)) = (divided, self.entities.get(whole)) {
            let (low, high) = range(entity);
            // The smallest text greater than the id.
            let until = if is_included { format!("{id}\u{1}") } else { id.to_owned() };
            ranges.push((low, until.min(high)));
        }
        let ranges: Vec<(&str, &str)> =
            ranges.iter().map(|(low, high)| (low.as_str(), high.as_str())).collect();
        let store = &self.store;
        let count = store.resources().count_listed(self.environment, &ranges, self.with_orphans)?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Reads a number of resources after a bound or before it, in ascending order.
    fn read(
        &self,
        bound: PagePosition<'_>,
        limit: usize,
        descending: bool,
    ) -> Result<Vec<ListItem>, StoreError> {
        let (whole, divided) = self.divide(bound);
        // The id splits the first type.
        let mut after = divided.map(|(id, _)| id.to_owned());
        let types: Vec<&String> = match descending {
            true => {
                let until = if after.is_some() { whole + 1 } else { whole };
                self.entities[..until].iter().rev().collect()
            }
            false => self.entities[whole..].iter().collect(),
        };
        let mut items: Vec<ListItem> = Vec::new();
        for entity in types {
            let query = ResourceQuery {
                entity: Some(entity.clone()),
                statuses: if self.with_orphans { Status::ALL.to_vec() } else { Vec::new() },
                descending,
                ..ResourceQuery::default()
            };
            while items.len() < limit {
                let left = limit - items.len();
                let store = &self.store;
                let part =
                    store.resources().list(self.environment, &query, after.as_deref(), left)?;
                items.extend(part.lines.into_iter().map(|line| ListItem {
                    key: Key::Text(entity.clone()),
                    id: line.summary.id.to_string(),
                    shown: json!(line.summary.status.as_str()),
                }));
                after = part.next;
                if after.is_none() {
                    break;
                }
            }
            after = None;
        }
        if descending {
            items.reverse();
        }
        Ok(items)
    }
}
