//! Lists of resources that stay fast in large environments.
//!
//! A page never looks at more than a bounded number of rows. Filters by type and agent are ranges of the order in which
//! resources are kept; rare statuses and named sets have an index; for what is left, a page may be shorter than asked for, or
//! empty, and still say where to continue.

use orrery_model::{ResourceState, Status};
use rustc_hash::FxHashMap;

use crate::codes::{STATE_COLUMNS, flags_from_code, hash_from, state_from};
use crate::load::parse_id;
use crate::records::Records;
use crate::records::released::{LEFT_BEHIND, RemovalStage, is_ahead, removal_code, with_intent};
use crate::rows::ranges;
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{
    EnvironmentKey, ResourceFilter, ResourceKey, ResourceSummary, Result, StoreError, glob, values,
};

/// Names that one page looks at.
const NAMES_LOOKED_AT: usize = 10_000;
/// Names that are read at once while looking for a few.
const NAMES_AT_ONCE: usize = 2_000;
/// Whole rows that one page looks at, beside those that it shows.
const ROWS_LOOKED_AT: usize = 2_000;
/// Whole rows that are read at once while looking for a few.
const ROWS_AT_ONCE: usize = 500;
/// So many that an index names are read and sorted; if there are more, they are frequent enough to be looked for.
const CANDIDATES: i64 = 5_000;

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
    /// Also those that were removed. They are orphans.
    pub removed: bool,
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
    /// `None` if it is not removed.
    pub removal: Option<RemovalStage>,
}

/// Columns before those of the state, for an expression of SQL that is the environment.
pub(super) fn own_columns(environment: &str) -> String {
    let (is_ahead, removal) = (is_ahead(environment), removal_code(environment));
    format!(
        "resource.name, resource.id, resource.head, \
         resource.source_file, resource.source_line, resource.source_column, \
         CASE WHEN running.resource IS NULL THEN 0 ELSE 1 END, \
         CASE WHEN state.resource IS NULL THEN 0 ELSE 1 END, \
         revision.hash, revision.flags, revision.resource_set, {is_ahead}, \
         CASE WHEN resource.head IS NOT NULL OR {LEFT_BEHIND} THEN 1 ELSE 0 END, {removal}"
    )
}
pub(super) const OWN_COLUMN_COUNT: usize = 14;

/// Stage of the removal of the resource in a row, for its status.
pub(super) fn removal_of(row: &dyn Row, status: Status) -> Result<Option<RemovalStage>> {
    Ok(RemovalStage::new(row.int(13)?, status))
}

/// Where the columns come from, beside `resource`.
pub(super) const JOINS: &str = "LEFT JOIN state ON state.resource = resource.id \
     LEFT JOIN running ON running.resource = resource.id \
     LEFT JOIN revision ON revision.id = resource.head";

/// Columns, and where they come from. The first parameter is the environment.
pub(super) fn select() -> String {
    select_from("resource")
}

/// The same, of some resources.
fn select_from(resources: &str) -> String {
    format!("SELECT {}, {STATE_COLUMNS} FROM {resources} {JOINS}", own_columns("?1"))
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
pub(super) fn state_of(row: &dyn Row) -> Result<Option<ResourceState>> {
    let deploying = row.flag(6)?;
    let wanted = match row.integer(2)? {
        Some(_) => Some((hash_from(row.blob(8)?)?, flags_from_code(row.int(9)?).undefined)),
        None => None,
    };
    if row.flag(7)? {
        let state = state_from(row, OWN_COLUMN_COUNT, deploying)?;
        let is_ahead = row.flag(11)?;
        return Ok(Some(if is_ahead { with_intent(state, wanted) } else { state }));
    }
    let Some((hash, undefined)) = wanted else { return Ok(None) };
    Ok(Some(ResourceState { deploying, ..ResourceState::new(hash, undefined) }))
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
pub(super) struct Draft {
    key: i64,
    name: String,
    state: ResourceState,
    source: Option<(i64, i64, i64)>,
    set: i64,
    removal: Option<RemovalStage>,
}

pub(super) fn draft_of(
    row: &dyn Row,
    query: &ResourceQuery,
    set: Option<i64>,
) -> Result<Option<Draft>> {
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
        && !glob::matches_or_contains(value, parse_id(&name)?.value())
    {
        return Ok(None);
    }
    let source = match row.integer(3)? {
        Some(file) => Some((file, row.int(4)?, row.int(5)?)),
        None => None,
    };
    let removal = removal_of(row, status)?;
    Ok(Some(Draft { key: row.int(1)?, name, state, source, set: of_set, removal }))
}

/// The same for lists, which leave out what was removed unless that is asked for.
fn listed_draft_of(
    row: &dyn Row,
    query: &ResourceQuery,
    set: Option<i64>,
) -> Result<Option<Draft>> {
    if query.removed || row.flag(12)? { draft_of(row, query, set) } else { Ok(None) }
}

pub(super) fn finish(sql: &mut dyn Sql, drafts: Vec<Draft>) -> Result<Vec<ResourceLine>> {
    let mut names = Names::default();
    let mut lines = Vec::with_capacity(drafts.len());
    for Draft { key, name, state, source, set, removal } in drafts {
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
            removal,
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
            "SELECT member.id FROM resource AS member \
             WHERE member.resource_set <> 0 AND member.resource_set = {set}"
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

/// What an index named, in order, after a name. The names come from the index; whole rows are read for those that are shown.
fn list_candidates(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    query: &ResourceQuery,
    (condition, set): (&str, Option<i64>),
    (after, limit): (Option<&str>, usize),
) -> Result<(Vec<Draft>, Option<String>)> {
    // The sign keeps SQLite from walking all resources of the environment instead.
    let statement = format!(
        "SELECT resource.name FROM resource WHERE +resource.environment = ?1 AND ({condition})"
    );
    let in_ranges = ranges_of(sql, environment, query)?;
    let mut names = sql.all(&statement, values![environment.0], |row| row.string(0))?;
    names.retain(|name| {
        let is_later = after.is_none_or(|after| match query.descending {
            true => name.as_str() < after,
            false => name.as_str() > after,
        });
        is_later && in_ranges.iter().any(|(begin, end)| name >= begin && name < end)
    });
    names.sort_unstable();
    if query.descending {
        names.reverse();
    }
    let mut page = Page::new(limit);
    for name in &names {
        if let Some(end) = page.look_at(sql, environment, query, set, name)? {
            return Ok((page.drafts, Some(end)));
        }
    }
    Ok((page.drafts, None))
}

/// A page that is being filled from names.
struct Page {
    limit: usize,
    drafts: Vec<Draft>,
    rows: usize,
}

impl Page {
    fn new(limit: usize) -> Self {
        Page { limit, drafts: Vec::new(), rows: 0 }
    }

    /// Takes a resource in if it fits; where the next page begins if there is no place for it, or enough was looked at.
    fn look_at(
        &mut self,
        sql: &mut dyn Sql,
        environment: EnvironmentKey,
        query: &ResourceQuery,
        set: Option<i64>,
        name: &str,
    ) -> Result<Option<String>> {
        let statement =
            format!("{} WHERE resource.environment = ?1 AND resource.name = ?2", select());
        let mut found = None;
        sql.visit(&statement, values![environment.0, name], &mut |row| {
            found = listed_draft_of(row, query, set)?;
            Ok(())
        })?;
        self.rows += 1;
        match found {
            Some(_) if self.drafts.len() == self.limit => {
                return Ok(self.drafts.last().map(|last| last.name.clone()));
            }
            Some(draft) => self.drafts.push(draft),
            None => {}
        }
        let is_enough = self.rows >= ROWS_LOOKED_AT + self.limit;
        Ok(is_enough.then(|| name.to_owned()))
    }
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

/// Walks the resources until a page is full, or enough was looked at.
fn list_walking(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    query: &ResourceQuery,
    set: Option<i64>,
    (after, limit): (Option<&str>, usize),
) -> Result<(Vec<Draft>, Option<String>)> {
    let mut walk = Walk { environment, query, set, names: 0, page: Page::new(limit) };
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
            let step = match query.value.as_deref() {
                Some(value) => walk.by_names(sql, value, (&low, &high))?,
                None => walk.by_rows(sql, (&low, &high))?,
            };
            match step {
                Step::Full(next) => return Ok((walk.page.drafts, Some(next))),
                Step::End => break,
                Step::On(last) if query.descending => high = last,
                Step::On(last) => low = last,
            }
        }
    }
    Ok((walk.page.drafts, None))
}

/// What came of a part of a range.
enum Step {
    /// The page ends here.
    Full(String),
    /// The range does.
    End,
    /// Neither: go on after this name.
    On(String),
}

struct Walk<'a> {
    environment: EnvironmentKey,
    query: &'a ResourceQuery,
    set: Option<i64>,
    /// Names that were looked at.
    names: usize,
    page: Page,
}

impl Walk<'_> {
    fn order(&self) -> &'static str {
        if self.query.descending { "DESC" } else { "ASC" }
    }

    /// Looks at names alone first: most do not have the value.
    fn by_names(
        &mut self,
        sql: &mut dyn Sql,
        value: &str,
        (low, high): (&str, &str),
    ) -> Result<Step> {
        let order = self.order();
        let statement = format!(
            "SELECT resource.name FROM resource \
             WHERE resource.environment = ?1 AND resource.name > ?2 AND resource.name < ?3 \
             ORDER BY resource.environment {order}, resource.name {order} LIMIT ?4"
        );
        let count = i64::try_from(NAMES_AT_ONCE).unwrap_or(i64::MAX);
        let (mut read, mut last, mut fitting) = (0, None, Vec::new());
        sql.visit(&statement, values![self.environment.0, low, high, count], &mut |row| {
            let name = row.str(0)?;
            read += 1;
            if glob::matches_or_contains(value, parse_id(name)?.value()) {
                fitting.push(name.to_owned());
            }
            last = Some(name.to_owned());
            Ok(())
        })?;
        for name in &fitting {
            let end = self.page.look_at(sql, self.environment, self.query, self.set, name)?;
            if let Some(end) = end {
                return Ok(Step::Full(end));
            }
        }
        self.names += read;
        Ok(match last {
            Some(last) if read == NAMES_AT_ONCE && self.names >= NAMES_LOOKED_AT => {
                Step::Full(last)
            }
            Some(last) if read == NAMES_AT_ONCE => Step::On(last),
            _ => Step::End,
        })
    }

    /// Looks at whole rows.
    fn by_rows(&mut self, sql: &mut dyn Sql, (low, high): (&str, &str)) -> Result<Step> {
        let order = self.order();
        // So many, and then all that is known of them: PostgreSQL's planner might think that a range has few resources, and read and
        // sort all of them.
        let some = format!(
            "(SELECT * FROM resource WHERE environment = ?1 AND name > ?2 AND name < ?3 \
             ORDER BY environment {order}, name {order} LIMIT ?4) AS resource"
        );
        let statement = format!("{} ORDER BY resource.name {order}", select_from(&some));
        let Page { limit, .. } = self.page;
        let is_picky = !self.query.statuses.is_empty() || self.set.is_some();
        let at_once = if is_picky { ROWS_AT_ONCE } else { limit + 1 };
        let count = i64::try_from(at_once).unwrap_or(i64::MAX);
        let (mut read, mut last, mut full) = (0, None, None);
        let drafts = &mut self.page.drafts;
        sql.visit(&statement, values![self.environment.0, low, high, count], &mut |row| {
            read += 1;
            if full.is_some() {
                return Ok(());
            }
            if let Some(draft) = listed_draft_of(row, self.query, self.set)? {
                if drafts.len() == limit {
                    full = drafts.last().map(|last| last.name.clone());
                    return Ok(());
                }
                drafts.push(draft);
            }
            last = Some(row.string(0)?);
            Ok(())
        })?;
        self.page.rows += read;
        Ok(match (full, last) {
            (Some(next), _) => Step::Full(next),
            (None, Some(last)) if read == at_once => {
                if self.page.rows >= ROWS_LOOKED_AT + limit {
                    Step::Full(last)
                } else {
                    Step::On(last)
                }
            }
            _ => Step::End,
        })
    }
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
}
