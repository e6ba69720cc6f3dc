//! Lists of resources that stay fast in large environments.
//!
//! A page reads a bounded number of rows. Filters by type and agent are ranges of the order in
//! which resources are stored; rare statuses and named sets have an index. For other filters, a
//! page may be shorter than requested, or empty, and still have a cursor.

use orrery_model::{Pattern, ResourceState, Status};

use crate::encoding::{STATE_COLUMNS, flags_from_code, hash_from, state_from};
use crate::records::pending_release::{
    MAY_EXIST_SQL, RemovalStage, has_pending_release_sql, removal_code_sql, with_pending_intent,
};
use crate::records::resource_line::{ResourceLine, UnresolvedLine};
use crate::records::resource_query::ResourceQuery;
use crate::records::{Resources, Transactions as _};
use crate::resource_loader::parse_id;
use crate::rows::ranges;
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, ResourceFilter, Result, values};

/// Names scanned per page.
const NAMES_SCANNED_MAX: usize = 10_000;
/// Names read at a time while searching.
const NAME_BATCH: usize = 2_000;
/// Whole rows scanned per page, beside those that it returns.
const ROWS_SCANNED_MAX: usize = 2_000;
/// Whole rows read at a time while searching.
const ROW_BATCH: usize = 500;
/// Number of index entries that are read and sorted; if there are more, matches are frequent enough
/// for a scan.
const CANDIDATES_MAX: i64 = 5_000;

/// A page of a list.
#[derive(Clone, Debug)]
pub struct ResourceLines {
    pub lines: Vec<ResourceLine>,
    /// Cursor of the next page; `None` at the end.
    pub next: Option<String>,
}

/// Columns before those of the state. `environment` is an SQL expression.
pub(super) fn own_columns(environment: &str) -> String {
    let may_exist =
        format!("CASE WHEN resource.head IS NOT NULL OR {MAY_EXIST_SQL} THEN 1 ELSE 0 END");
    columns(environment, &may_exist, &removal_code_sql(environment))
}

/// As `own_columns`, for resources that the newest version has and does not remove.
pub(super) fn managed_columns(environment: &str) -> String {
    columns(environment, "1", "0")
}

fn columns(environment: &str, may_exist: &str, removal: &str) -> String {
    let has_pending_release = has_pending_release_sql(environment);
    format!(
        "resource.name, resource.id, resource.head, \
         resource.source_file, resource.source_line, resource.source_column, \
         CASE WHEN running.resource IS NULL THEN 0 ELSE 1 END, \
         CASE WHEN state.resource IS NULL THEN 0 ELSE 1 END, \
         revision.hash, revision.flags, revision.resource_set, {has_pending_release}, \
         {may_exist}, {removal}"
    )
}
pub(super) const OWN_COLUMN_COUNT: usize = 14;

/// Stage of the removal of the resource in a row, for its status.
pub(super) fn removal_of(row: &dyn Row, status: Status) -> Result<Option<RemovalStage>> {
    Ok(RemovalStage::new(row.int(13)?, status))
}

/// Joined tables of the columns, beside `resource`.
pub(super) const JOINS: &str = "LEFT JOIN state ON state.resource = resource.id \
     LEFT JOIN running ON running.resource = resource.id \
     LEFT JOIN revision ON revision.id = resource.head";

/// Columns and tables. The first parameter is the environment.
pub(super) fn select() -> String {
    select_from("resource")
}

/// Columns and tables, for some resources.
pub(super) fn select_from(resources: &str) -> String {
    format!("SELECT {}, {STATE_COLUMNS} FROM {resources} {JOINS}", own_columns("?1"))
}

/// Condition for states with a status that is rare in a healthy environment. The index
/// `state_notable` has exactly this condition.
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

/// State of the resource in a row; `None` if it has and had no intent.
pub(super) fn state_of(row: &dyn Row) -> Result<Option<ResourceState>> {
    let deploying = row.flag(6)?;
    let intent = match row.integer(2)? {
        Some(_) => Some((hash_from(row.blob(8)?)?, flags_from_code(row.int(9)?).undefined)),
        None => None,
    };
    if row.flag(7)? {
        let state = state_from(row, OWN_COLUMN_COUNT, deploying)?;
        let has_pending_release = row.flag(11)?;
        return Ok(Some(if has_pending_release {
            with_pending_intent(state, intent)
        } else {
            state
        }));
    }
    let Some((hash, undefined)) = intent else { return Ok(None) };
    Ok(Some(ResourceState { deploying, ..ResourceState::new(hash, undefined) }))
}

pub(super) fn unresolved_line(
    row: &dyn Row,
    query: &ResourceQuery,
    set: Option<i64>,
) -> Result<Option<UnresolvedLine>> {
    let Some(state) = state_of(row)? else { return Ok(None) };
    let status = state.status();
    let is_selected = match &query.statuses[..] {
        [] => status != Status::Orphaned,
        statuses => statuses.contains(&status),
    };
    let of_set = row.integer(10)?.unwrap_or(0);
    if !is_selected || set.is_some_and(|set| set != of_set) || !query.state.matches(&state) {
        return Ok(None);
    }
    let name = row.string(0)?;
    if let Some(value) = &query.value
        && !value.matches_value(&parse_id(&name)?)
    {
        return Ok(None);
    }
    let source = match row.integer(3)? {
        Some(file) => Some((file, row.int(4)?, row.int(5)?)),
        None => None,
    };
    let removal = removal_of(row, status)?;
    Ok(Some(UnresolvedLine { key: row.int(1)?, name, state, source, set: of_set, removal }))
}

/// A line for lists, which leave out removed resources by default.
pub(super) fn listed_line(
    row: &dyn Row,
    query: &ResourceQuery,
    set: Option<i64>,
) -> Result<Option<UnresolvedLine>> {
    if query.removed || row.flag(12)? { unresolved_line(row, query, set) } else { Ok(None) }
}

/// Condition that selects the few rows that can match, if an index supports it and they are few.
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
        let count = format!("SELECT count(*) FROM ({part} LIMIT {}) AS few", CANDIDATES_MAX + 1);
        if sql.first(&count, &[], |row| row.int(0))?.unwrap_or(0) > CANDIDATES_MAX {
            return Ok(None);
        }
    }
    let parts: Vec<String> =
        parts.into_iter().map(|part| format!("resource.id IN ({part})")).collect();
    Ok((!parts.is_empty()).then(|| parts.join(" OR ")))
}

/// Lists rows that an index selects, in order, after a name. Names come from the index; whole rows
/// are read only for the result.
fn list_candidates(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    query: &ResourceQuery,
    (condition, set): (&str, Option<i64>),
    (after, limit): (Option<&str>, usize),
) -> Result<(Vec<UnresolvedLine>, Option<String>)> {
    // The unary plus keeps SQLite from scanning all resources of the environment instead.
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
        if let Some(end) = page.consider(sql, environment, query, set, name)? {
            return Ok((page.drafts, Some(end)));
        }
    }
    Ok((page.drafts, None))
}

/// A page that is being filled from names.
struct Page {
    limit: usize,
    drafts: Vec<UnresolvedLine>,
    rows: usize,
}

impl Page {
    fn new(limit: usize) -> Self {
        Page { limit, drafts: Vec::new(), rows: 0 }
    }

    /// Adds a resource if it matches. Returns the start of the next page if this page is full or
    /// its scan limit is reached.
    fn consider(
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
            found = listed_line(row, query, set)?;
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
        let is_enough = self.rows >= ROWS_SCANNED_MAX + self.limit;
        Ok(is_enough.then(|| name.to_owned()))
    }
}

fn ranges_of(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    query: &ResourceQuery,
) -> Result<Vec<(String, String)>> {
    let is_of_agents = query.agent.is_some() || !query.agents.is_empty();
    let is_of_entities = query.entity.is_some() || !query.entities.is_empty();
    let types = if is_of_agents && !is_of_entities {
        let select = "SELECT name FROM resource_type WHERE environment = ?1";
        sql.all(select, values![environment.0], |row| row.string(0))?
    } else {
        Vec::new()
    };
    let any = |only: &Option<String>, list: &[String]| -> Vec<Option<String>> {
        match list {
            [] => vec![only.clone()],
            list => list.iter().cloned().map(Some).collect(),
        }
    };
    let mut found: Vec<(String, String)> = Vec::new();
    for entity in any(&query.entity, &query.entities) {
        for agent in any(&query.agent, &query.agents) {
            let entity = entity.clone();
            found.extend(ranges(&ResourceFilter { agent, entity, ..<_>::default() }, &types));
        }
    }
    found.sort_unstable();
    found.dedup();
    if query.descending {
        found.reverse();
    }
    Ok(found)
}

/// Scans resources until a page is full or its scan limit is reached.
fn list_by_scan(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    query: &ResourceQuery,
    set: Option<i64>,
    (after, limit): (Option<&str>, usize),
) -> Result<(Vec<UnresolvedLine>, Option<String>)> {
    let mut walk = Scan { environment, query, set, names: 0, page: Page::new(limit) };
    for (begin, end) in ranges_of(sql, environment, query)? {
        // Ids are longer than the beginning of a range, so excluding it excludes no id.
        let (mut low, mut high) = (begin, end);
        if let Some(after) = after {
            match query.descending {
                true if after < high.as_str() => high = after.to_owned(),
                false if after > low.as_str() => low = after.to_owned(),
                _ => {}
            }
        }
        while low < high {
            let step = match &query.value {
                Some(value) => walk.by_names(sql, value, (&low, &high))?,
                None => walk.by_rows(sql, (&low, &high))?,
            };
            match step {
                ScanStep::Full(next) => return Ok((walk.page.drafts, Some(next))),
                ScanStep::End => break,
                ScanStep::On(last) if query.descending => high = last,
                ScanStep::On(last) => low = last,
            }
        }
    }
    Ok((walk.page.drafts, None))
}

/// Result of scanning a part of a range.
enum ScanStep {
    /// The page ends here.
    Full(String),
    /// The range ends here.
    End,
    /// Neither: continue after this name.
    On(String),
}

struct Scan<'a> {
    environment: EnvironmentKey,
    query: &'a ResourceQuery,
    set: Option<i64>,
    /// Scanned names.
    names: usize,
    page: Page,
}

impl Scan<'_> {
    fn order(&self) -> &'static str {
        if self.query.descending { "DESC" } else { "ASC" }
    }

    /// Scans names alone first: most do not match the value.
    fn by_names(
        &mut self,
        sql: &mut dyn Sql,
        value: &Pattern,
        (low, high): (&str, &str),
    ) -> Result<ScanStep> {
        let order = self.order();
        let statement = format!(
            "SELECT resource.name FROM resource \
             WHERE resource.environment = ?1 AND resource.name > ?2 AND resource.name < ?3 \
             ORDER BY resource.environment {order}, resource.name {order} LIMIT ?4"
        );
        let count = i64::try_from(NAME_BATCH).unwrap_or(i64::MAX);
        let (mut read, mut last, mut fitting) = (0, None, Vec::new());
        sql.visit(&statement, values![self.environment.0, low, high, count], &mut |row| {
            let name = row.str(0)?;
            read += 1;
            if value.matches_value(&parse_id(name)?) {
                fitting.push(name.to_owned());
            }
            last = Some(name.to_owned());
            Ok(())
        })?;
        for name in &fitting {
            let end = self.page.consider(sql, self.environment, self.query, self.set, name)?;
            if let Some(end) = end {
                return Ok(ScanStep::Full(end));
            }
        }
        self.names += read;
        Ok(match last {
            Some(last) if read == NAME_BATCH && self.names >= NAMES_SCANNED_MAX => {
                ScanStep::Full(last)
            }
            Some(last) if read == NAME_BATCH => ScanStep::On(last),
            _ => ScanStep::End,
        })
    }

    /// Scans whole rows.
    fn by_rows(&mut self, sql: &mut dyn Sql, (low, high): (&str, &str)) -> Result<ScanStep> {
        let order = self.order();
        // Limits the resources before joining their states: PostgreSQL's planner may underestimate
        // the range, and read and sort all of it.
        let some = format!(
            "(SELECT * FROM resource WHERE environment = ?1 AND name > ?2 AND name < ?3 \
             ORDER BY environment {order}, name {order} LIMIT ?4) AS resource"
        );
        let statement = format!("{} ORDER BY resource.name {order}", select_from(&some));
        let Page { limit, .. } = self.page;
        let is_picky =
            !self.query.statuses.is_empty() || self.set.is_some() || !self.query.state.is_empty();
        let at_once = if is_picky { ROW_BATCH } else { limit + 1 };
        let count = i64::try_from(at_once).unwrap_or(i64::MAX);
        let (mut read, mut last, mut full) = (0, None, None);
        let drafts = &mut self.page.drafts;
        sql.visit(&statement, values![self.environment.0, low, high, count], &mut |row| {
            read += 1;
            if full.is_some() {
                return Ok(());
            }
            if let Some(draft) = listed_line(row, self.query, self.set)? {
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
            (Some(next), _) => ScanStep::Full(next),
            (None, Some(last)) if read == at_once => {
                if self.page.rows >= ROWS_SCANNED_MAX + limit {
                    ScanStep::Full(last)
                } else {
                    ScanStep::On(last)
                }
            }
            _ => ScanStep::End,
        })
    }
}

impl Resources<'_> {
    /// Lists resources in ascending or descending order of their ids, after an id.
    ///
    /// # Errors
    /// Database errors.
    pub fn list(
        &self,
        environment: EnvironmentKey,
        query: &ResourceQuery,
        after: Option<&str>,
        limit: usize,
    ) -> Result<ResourceLines> {
        let page = (after, limit.max(1));
        let (lines, next) = self.query(|sql| {
            let set = match &query.set {
                None => None,
                Some(name) => {
                    let find = "SELECT id FROM resource_set WHERE environment = ?1 AND name = ?2";
                    let found = sql.first(find, values![environment.0, name], |row| row.int(0))?;
                    let Some(set) = found else { return Ok((Vec::new(), None)) };
                    Some(set)
                }
            };
            match candidates(sql, environment, query, set)? {
                Some(condition) => {
                    list_candidates(sql, environment, query, (&condition, set), page)
                }
                None => list_by_scan(sql, environment, query, set, page),
            }
        })?;
        Ok(ResourceLines { lines: self.resolve_lines(environment, lines)?, next })
    }
}
