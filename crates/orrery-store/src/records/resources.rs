//! Lists of resources that stay fast in large environments, and what is known of one.
//!
//! A page never looks at more than a bounded number of rows. Filters by type and agent are ranges of the order in which
//! resources are kept; rare statuses and named sets have an index; for what is left, a page may be shorter than asked for, or
//! empty, and still say where to continue.

use orrery_model::{AttributeHash, ResourceState, Status, Timestamp, VersionNumber};
use rustc_hash::FxHashMap;

use crate::codes::{
    STATE_COLUMNS, flags_from_code, hash_from, number_from, state_from, unpack_keys,
};
use crate::load::parse_id;
use crate::records::Records;
use crate::rows::ranges;
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{
    EnvironmentKey, ResourceFilter, ResourceKey, ResourceSummary, Result, StoreError, glob, values,
};

/// Rows that one page looks at.
const LOOKED_AT: usize = 10_000;
/// Rows that are read at once while looking for a few.
const CHUNK: usize = 1_000;
/// So many that an index names are read and sorted; if there are more, they are frequent enough to be looked for.
const CANDIDATES: i64 = 3_000;

/// Which resources to list. Everything that is given must hold.
#[derive(Clone, Debug, Default)]
pub struct ResourceQuery {
    pub agent: Option<String>,
    /// The entity: `std::File`.
    pub entity: Option<String>,
    /// Part of the identifying value in any case of letters; with `*` or `?`, a pattern for all of it.
    pub value: Option<String>,
    /// Any of these; empty for all but orphans.
    pub statuses: Vec<Status>,
    /// Those of one named set.
    pub set: Option<String>,
    pub descending: bool,
}

/// A part of a list.
#[derive(Clone, Debug)]
pub struct ResourceLines {
    pub lines: Vec<ResourceLine>,
    /// Where the list continues; `None` at its end.
    pub next: Option<String>,
}

#[derive(Clone, Debug)]
pub struct ResourceLine {
    pub summary: ResourceSummary,
    /// `None` for the shared set.
    pub set: Option<String>,
}

/// How many resources of an agent have a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusCount {
    pub agent: String,
    pub status: Status,
    pub count: u64,
}

/// What was wanted of a resource from one version on.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryEntry {
    pub version: VersionNumber,
    pub at: Timestamp,
    pub hash: AttributeHash,
    /// Canonical text.
    pub attributes: String,
    pub requires: Vec<String>,
}

const OWN_COLUMNS: usize = 11;

/// Columns, and where they come from.
fn select() -> String {
    format!(
        "SELECT resource.name, resource.id, resource.head, resource.source_file, \
         resource.source_line, resource.source_column, \
         CASE WHEN running.resource IS NULL THEN 0 ELSE 1 END, \
         CASE WHEN state.resource IS NULL THEN 0 ELSE 1 END, \
         revision.hash, revision.flags, revision.resource_set, {STATE_COLUMNS} \
         FROM resource LEFT JOIN state ON state.resource = resource.id \
         LEFT JOIN running ON running.resource = resource.id \
         LEFT JOIN revision ON revision.id = resource.head"
    )
}

/// States whose status is one that is rare in an environment that works. The index `state_notable` has just these words.
const NOTABLE: &str = "state.last_outcome > 1 OR state.blocked = 1";

fn is_notable(status: Status) -> bool {
    matches!(
        status,
        Status::Failed
            | Status::Skipped
            | Status::Unavailable
            | Status::NonCompliant
            | Status::SkippedForUndefined
    )
}

/// One row; `None` if nothing is or was wanted of the resource.
fn state_of(row: &dyn Row) -> Result<Option<ResourceState>> {
    let deploying = row.flag(6)?;
    if row.flag(7)? {
        return state_from(row, OWN_COLUMNS, deploying).map(Some);
    }
    if row.integer(2)?.is_none() {
        return Ok(None);
    }
    let undefined = flags_from_code(row.int(9)?).undefined;
    let state = ResourceState::new(hash_from(row.blob(8)?)?, undefined);
    Ok(Some(ResourceState { deploying, ..state }))
}

/// Names of sets and files, looked up when they are first met.
#[derive(Default)]
struct Names(FxHashMap<(bool, i64), String>);

impl Names {
    fn get(&mut self, sql: &mut dyn Sql, is_file: bool, number: i64) -> Result<String> {
        if let Some(name) = self.0.get(&(is_file, number)) {
            return Ok(name.clone());
        }
        let select = if is_file {
            "SELECT path FROM source_file WHERE id = ?1"
        } else {
            "SELECT name FROM resource_set WHERE id = ?1"
        };
        let name = sql.first(select, values![number], |row| row.string(0))?;
        let name = name.ok_or_else(|| StoreError::Unreadable(format!("no name for {number}")))?;
        self.0.insert((is_file, number), name.clone());
        Ok(name)
    }
}

/// A row that is to be shown, before its names are known.
struct Draft {
    key: i64,
    name: String,
    state: ResourceState,
    source: Option<(i64, i64, i64)>,
    set: i64,
}

fn draft_of(row: &dyn Row, query: &ResourceQuery, set: Option<i64>) -> Result<Option<Draft>> {
    let Some(state) = state_of(row)? else { return Ok(None) };
    let status = state.status();
    let wanted = match &query.statuses[..] {
        [] => status != Status::Orphaned,
        statuses => statuses.contains(&status),
    };
    let of_set = row.integer(10)?.unwrap_or(0);
    if !wanted || set.is_some_and(|set| set != of_set) {
        return Ok(None);
    }
    let name = row.string(0)?;
    if let Some(value) = &query.value
        && !value_matches(value, parse_id(&name)?.value())
    {
        return Ok(None);
    }
    let source = match row.integer(3)? {
        Some(file) => Some((file, row.int(4)?, row.int(5)?)),
        None => None,
    };
    Ok(Some(Draft { key: row.int(1)?, name, state, source, set: of_set }))
}

pub(super) fn value_matches(wanted: &str, value: &str) -> bool {
    if wanted.contains(['*', '?']) {
        glob::matches(wanted, value)
    } else {
        value.to_lowercase().contains(&wanted.to_lowercase())
    }
}

fn finish(sql: &mut dyn Sql, drafts: Vec<Draft>) -> Result<Vec<ResourceLine>> {
    let mut names = Names::default();
    let mut lines = Vec::with_capacity(drafts.len());
    for Draft { key, name, state, source, set } in drafts {
        let source = match source {
            None => None,
            Some((file, line, column)) => Some(orrery_model::Source {
                file: names.get(sql, true, file)?.into(),
                line: u32::try_from(line).unwrap_or(0),
                column: u32::try_from(column).unwrap_or(0),
            }),
        };
        let set = if set == 0 { None } else { Some(names.get(sql, false, set)?) };
        let (key, id, status) = (ResourceKey(key), parse_id(&name)?, state.status());
        lines.push(ResourceLine {
            summary: ResourceSummary { key, id, status, state, source },
            set,
        });
    }
    Ok(lines)
}

/// A condition that names the few rows that can fit, if there is an index that does and they are few.
fn candidates(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    query: &ResourceQuery,
    set: Option<i64>,
) -> Result<Option<String>> {
    let mut parts = Vec::new();
    if let Some(set) = set {
        parts.push(format!(
            "SELECT revision.resource FROM revision WHERE revision.until IS NULL \
             AND revision.resource_set <> 0 AND revision.resource_set = {set}"
        ));
    } else if !query.statuses.is_empty()
        && query.statuses.iter().all(|status| is_notable(*status) || *status == Status::Deploying)
    {
        if query.statuses.contains(&Status::Deploying) {
            let key = environment.0;
            parts.push(format!("SELECT resource FROM running WHERE environment = {key}"));
        }
        if query.statuses.iter().any(|status| is_notable(*status)) {
            parts.push(format!("SELECT state.resource FROM state WHERE {NOTABLE}"));
        }
    }
    for part in &parts {
        let count = format!("SELECT count(*) FROM ({part} LIMIT {}) AS few", CANDIDATES + 1);
        if sql.first(&count, &[], |row| row.int(0))?.unwrap_or(0) > CANDIDATES {
            return Ok(None);
        }
    }
    let parts: Vec<String> =
        parts.into_iter().map(|part| format!("resource.id IN ({part})")).collect();
    Ok((!parts.is_empty()).then(|| parts.join(" OR ")))
}

/// All that an index named, in order, after a name.
fn list_candidates(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    query: &ResourceQuery,
    (condition, set): (&str, Option<i64>),
    (after, limit): (Option<&str>, usize),
) -> Result<(Vec<Draft>, Option<String>)> {
    // The sign keeps SQLite from walking all resources of the environment instead.
    let statement = format!("{} WHERE +resource.environment = ?1 AND ({condition})", select());
    let in_ranges = ranges_of(sql, environment, query)?;
    let mut drafts = Vec::new();
    sql.visit(&statement, values![environment.0], &mut |row| {
        if let Some(draft) = draft_of(row, query, set)? {
            drafts.push(draft);
        }
        Ok(())
    })?;
    drafts.retain(|draft| {
        let name = &draft.name;
        let is_later = after.is_none_or(|after| match query.descending {
            true => name.as_str() < after,
            false => name.as_str() > after,
        });
        is_later && in_ranges.iter().any(|(begin, end)| name >= begin && name < end)
    });
    drafts.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    if query.descending {
        drafts.reverse();
    }
    let next = (drafts.len() > limit).then(|| drafts[limit - 1].name.clone());
    drafts.truncate(limit);
    Ok((drafts, next))
}

fn ranges_of(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    query: &ResourceQuery,
) -> Result<Vec<(String, String)>> {
    let types = if query.agent.is_some() && query.entity.is_none() {
        let select = "SELECT name FROM resource_type WHERE environment = ?1";
        sql.all(select, values![environment.0], |row| row.string(0))?
    } else {
        Vec::new()
    };
    let filter = ResourceFilter {
        agent: query.agent.clone(),
        entity: query.entity.clone(),
        ..ResourceFilter::default()
    };
    let mut found = ranges(&filter, &types);
    if query.descending {
        found.reverse();
    }
    Ok(found)
}

/// Walks the names until a page is full, or enough was looked at.
fn list_walking(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    query: &ResourceQuery,
    set: Option<i64>,
    (after, limit): (Option<&str>, usize),
) -> Result<(Vec<Draft>, Option<String>)> {
    let order = if query.descending { "DESC" } else { "ASC" };
    let statement = format!(
        "{} WHERE resource.environment = ?1 AND resource.name > ?2 AND resource.name < ?3 \
         ORDER BY resource.environment {order}, resource.name {order} LIMIT ?4",
        select()
    );
    let is_picky = !query.statuses.is_empty() || query.value.is_some() || set.is_some();
    let chunk = if is_picky { CHUNK } else { limit + 1 };
    let mut drafts: Vec<Draft> = Vec::new();
    let mut looked_at = 0;
    for (begin, end) in ranges_of(sql, environment, query)? {
        // Ids never are as short as the beginning of a range, so that leaving it out leaves nothing out.
        let (mut low, mut high) = (begin, end);
        if let Some(after) = after {
            match query.descending {
                true if after < high.as_str() => high = after.to_owned(),
                false if after > low.as_str() => low = after.to_owned(),
                _ => {}
            }
        }
        while low < high {
            let mut last = None;
            let mut read = 0;
            let mut full = None;
            let limits = i64::try_from(chunk).unwrap_or(i64::MAX);
            sql.visit(&statement, values![environment.0, &low, &high, limits], &mut |row| {
                read += 1;
                if full.is_some() {
                    return Ok(());
                }
                if let Some(draft) = draft_of(row, query, set)? {
                    if drafts.len() == limit {
                        full = Some(drafts[limit - 1].name.clone());
                        return Ok(());
                    }
                    drafts.push(draft);
                }
                last = Some(row.string(0)?);
                Ok(())
            })?;
            if full.is_some() {
                return Ok((drafts, full));
            }
            looked_at += read;
            let Some(last) = last else { break };
            if read < chunk {
                break;
            }
            if looked_at >= LOOKED_AT {
                return Ok((drafts, Some(last)));
            }
            if query.descending { high = last } else { low = last }
        }
    }
    Ok((drafts, None))
}

impl Records<'_> {
    /// Lists resources in the order of their ids, or against it, after an id.
    ///
    /// # Errors
    /// Those of the database.
    pub fn list_resources(
        &self,
        environment: EnvironmentKey,
        query: &ResourceQuery,
        after: Option<&str>,
        limit: usize,
    ) -> Result<ResourceLines> {
        let page = (after, limit.max(1));
        self.look(|sql| {
            let set = match &query.set {
                None => None,
                Some(name) => {
                    let find = "SELECT id FROM resource_set WHERE environment = ?1 AND name = ?2";
                    let found = sql.first(find, values![environment.0, name], |row| row.int(0))?;
                    let Some(set) = found else {
                        return Ok(ResourceLines { lines: Vec::new(), next: None });
                    };
                    Some(set)
                }
            };
            let (drafts, next) = match candidates(sql, environment, query, set)? {
                Some(condition) => {
                    list_candidates(sql, environment, query, (&condition, set), page)?
                }
                None => list_walking(sql, environment, query, set, page)?,
            };
            Ok(ResourceLines { lines: finish(sql, drafts)?, next })
        })
    }

    /// One resource, wanted or orphaned.
    ///
    /// # Errors
    /// `NoResource` if there is none.
    pub fn resource_line(&self, environment: EnvironmentKey, id: &str) -> Result<ResourceLine> {
        let statement =
            format!("{} WHERE resource.environment = ?1 AND resource.name = ?2", select());
        let query = ResourceQuery { statuses: Status::ALL.to_vec(), ..ResourceQuery::default() };
        self.look(|sql| {
            let mut found = None;
            sql.visit(&statement, values![environment.0, id], &mut |row| {
                found = draft_of(row, &query, None)?;
                Ok(())
            })?;
            let lines = finish(sql, found.into_iter().collect())?;
            lines.into_iter().next().ok_or_else(|| StoreError::NoResource(id.to_owned()))
        })
    }

    /// Resources by agent and status. It reads all of them: ask seldom.
    ///
    /// # Errors
    /// Those of the database.
    pub fn count_resources(&self, environment: EnvironmentKey) -> Result<Vec<StatusCount>> {
        let statement = format!("{} WHERE resource.environment = ?1", select());
        let mut counts: FxHashMap<(String, Status), u64> = FxHashMap::default();
        self.look(|sql| {
            counts.clear();
            sql.visit(&statement, values![environment.0], &mut |row| {
                let Some(state) = state_of(row)? else { return Ok(()) };
                let name = row.str(0)?;
                let agent = name.split_once('[').and_then(|(_, rest)| rest.split_once(','));
                let agent = agent.map_or("", |(agent, _)| agent);
                let key = (agent.to_owned(), state.status());
                *counts.entry(key).or_default() += 1;
                Ok(())
            })
        })?;
        let mut found: Vec<StatusCount> = counts
            .into_iter()
            .map(|((agent, status), count)| StatusCount { agent, status, count })
            .collect();
        found.sort_unstable_by(|a, b| (&a.agent, a.status).cmp(&(&b.agent, b.status)));
        Ok(found)
    }

    /// What was wanted of a resource, latest first. Versions in which its attributes did not change are one entry, which
    /// has the first of them.
    ///
    /// # Errors
    /// `NoResource` if there is none.
    pub fn resource_history(
        &self,
        environment: EnvironmentKey,
        id: &str,
    ) -> Result<Vec<HistoryEntry>> {
        self.look(|sql| {
            let find = "SELECT id, head FROM resource WHERE environment = ?1 AND name = ?2";
            let found = sql.first(find, values![environment.0, id], |row| {
                Ok((row.int(0)?, row.integer(1)?))
            })?;
            let (key, head) = found.ok_or_else(|| StoreError::NoResource(id.to_owned()))?;
            let columns = "SELECT since, until, hash, attributes, requires FROM revision";
            let read = |row: &dyn Row| {
                let mut requires = Vec::new();
                unpack_keys(row.blob(4)?, &mut requires)?;
                let until = row.integer(1)?.unwrap_or(i64::MAX);
                Ok((row.int(0)?, until, hash_from(row.blob(2)?)?, row.string(3)?, requires))
            };
            let past = format!("{columns} WHERE resource = ?1 AND until IS NOT NULL");
            let mut revisions = sql.all(&past, values![key], read)?;
            let current = format!("{columns} WHERE id = ?1");
            revisions.extend(sql.first(&current, values![head.unwrap_or(0)], read)?);
            revisions.sort_unstable_by_key(|revision| revision.0);
            let mut entries: Vec<HistoryEntry> = Vec::new();
            for (since, until, hash, attributes, keys) in revisions {
                let version = "SELECT number, made_at FROM version \
                     WHERE environment = ?1 AND step >= ?2 AND step < ?3 ORDER BY step LIMIT 1";
                let values = values![environment.0, since, until];
                let version = sql
                    .first(version, values, |row| Ok((number_from(row.int(0)?)?, row.time(1)?)))?;
                // No version that has it is kept.
                let Some((version, at)) = version else { continue };
                if entries.last().is_some_and(|last| last.hash == hash) {
                    continue;
                }
                let requires = names_of(sql, &keys)?;
                entries.push(HistoryEntry { version, at, hash, attributes, requires });
            }
            entries.reverse();
            Ok(entries)
        })
    }

    /// Ids of the resources that require one, in the newest version. It reads all requirements: ask seldom.
    ///
    /// # Errors
    /// `NoResource` if there is none.
    pub fn dependents(
        &self,
        environment: EnvironmentKey,
        id: &str,
        limit: usize,
    ) -> Result<Vec<String>> {
        self.look(|sql| {
            let find = "SELECT id FROM resource WHERE environment = ?1 AND name = ?2";
            let key = sql.first(find, values![environment.0, id], |row| row.int(0))?;
            let key = ResourceKey(key.ok_or_else(|| StoreError::NoResource(id.to_owned()))?);
            let select = "SELECT resource.name, revision.requires FROM resource \
                 JOIN revision ON revision.id = resource.head WHERE resource.environment = ?1 \
                 AND revision.requires IS NOT NULL ORDER BY resource.name";
            let (mut found, mut keys) = (Vec::new(), Vec::new());
            sql.visit(select, values![environment.0], &mut |row| {
                unpack_keys(row.blob(1)?, &mut keys)?;
                if keys.contains(&key) && found.len() < limit {
                    found.push(row.string(0)?);
                }
                Ok(())
            })?;
            Ok(found)
        })
    }
}

fn names_of(sql: &mut dyn Sql, keys: &[ResourceKey]) -> Result<Vec<String>> {
    let mut names = Vec::with_capacity(keys.len());
    for key in keys {
        let select = "SELECT name FROM resource WHERE id = ?1";
        names.extend(sql.first(select, values![key.0], |row| row.string(0))?);
    }
    names.sort_unstable();
    Ok(names)
}
