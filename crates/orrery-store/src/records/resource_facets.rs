//! Counts of resources by properties, under a filter. Each property applies the filter without its
//! own condition, so that its other values can be chosen.

use std::collections::BTreeMap;

use orrery_model::Status;
use rustc_hash::FxHashMap;

use crate::records::resource_list::{listed_line, select_from};
use crate::records::resource_query::ResourceQuery;
use crate::records::{Resources, Transactions as _};
use crate::resource_loader::parse_id;
use crate::sql::{RowExt as _, SqlExt as _};
use crate::{EnvironmentKey, Result, values};

/// Rows per page.
const PAGE: i64 = 5_000;

/// Counts under a filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FacetCounts {
    /// Resources that match all conditions.
    pub total: u64,
    pub by_status: BTreeMap<Status, u64>,
    pub by_entity: FxHashMap<String, u64>,
    pub by_agent: FxHashMap<String, u64>,
    /// Named sets only.
    pub by_set: FxHashMap<String, u64>,
}

fn add(counts: &mut FxHashMap<String, u64>, value: &str) {
    match counts.get_mut(value) {
        Some(count) => *count += 1,
        None => drop(counts.insert(value.to_owned(), 1)),
    }
}

impl Resources<'_> {
    /// Counts resources by status, entity, agent and set. Reads all of them: expensive.
    ///
    /// # Errors
    /// Database errors.
    pub fn facets(
        &self,
        environment: EnvironmentKey,
        query: &ResourceQuery,
    ) -> Result<FacetCounts> {
        let every = ResourceQuery {
            value: query.value.clone(),
            statuses: Status::ALL.to_vec(),
            removed: query.removed,
            state: query.state.clone(),
            ..ResourceQuery::default()
        };
        let some = "(SELECT * FROM resource WHERE environment = ?1 AND name > ?2 \
             ORDER BY environment, name LIMIT ?3) AS resource";
        let statement = format!("{} ORDER BY resource.name", select_from(some));
        self.query(|sql| {
            let named = "SELECT id, name FROM resource_set WHERE environment = ?1";
            let sets: FxHashMap<i64, String> = sql
                .all(named, values![environment.0], |row| Ok((row.int(0)?, row.string(1)?)))?
                .into_iter()
                .collect();
            let mut facets = FacetCounts::default();
            let mut last = String::new();
            loop {
                let mut read = 0;
                let mut next = String::new();
                sql.visit(&statement, values![environment.0, &last, PAGE], &mut |row| {
                    read += 1;
                    if read == PAGE {
                        next = row.string(0)?;
                    }
                    let Some(line) = listed_line(row, &every, None)? else { return Ok(()) };
                    let id = parse_id(&line.name)?;
                    let status = line.state.status();
                    let set = sets.get(&line.set).map(String::as_str);
                    let has_status = match &query.statuses[..] {
                        [] => status != Status::Orphaned,
                        statuses => statuses.contains(&status),
                    };
                    let misses = [
                        !has_status,
                        !query.has_entity(id.entity()),
                        !query.has_agent(id.agent()),
                        query.set.as_ref().is_some_and(|name| set != Some(name)),
                    ];
                    let others = |own: usize| {
                        let mut rest = misses.iter().enumerate().filter(|(at, _)| *at != own);
                        rest.all(|(_, misses)| !misses)
                    };
                    if others(misses.len()) {
                        facets.total += 1;
                    }
                    if others(0) {
                        *facets.by_status.entry(status).or_default() += 1;
                    }
                    if others(1) {
                        add(&mut facets.by_entity, id.entity());
                    }
                    if others(2) {
                        add(&mut facets.by_agent, id.agent());
                    }
                    if let Some(set) = set.filter(|_| others(3)) {
                        add(&mut facets.by_set, set);
                    }
                    Ok(())
                })?;
                if read < PAGE {
                    return Ok(facets);
                }
                last = next;
            }
        })
    }
}
