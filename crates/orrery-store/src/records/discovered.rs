//! Discovered resources: what was found to exist, wanted or not.

use orrery_model::{ResourceId, Timestamp};

use crate::records::versions::value_fits;
use crate::records::{Records, note};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, ResourceFilter, Result, StoreError, values};

#[derive(Clone, Debug, PartialEq)]
pub struct DiscoveredRecord {
    /// The id that it would have as a resource.
    pub name: String,
    pub attributes: serde_json::Value,
    pub discovered_at: Timestamp,
    /// The resource whose handler found it; or empty.
    pub discovery_resource: String,
    /// Whether a version wants it too.
    pub managed: bool,
}

/// Something that was found.
#[derive(Clone, Copy, Debug)]
pub struct NewDiscovered<'a> {
    pub name: &'a str,
    pub attributes: &'a serde_json::Value,
    pub discovery_resource: &'a str,
}

/// Rows that are read at once, and those that one page looks at.
const CHUNK: usize = 1_000;
const LOOKED_AT: usize = 5_000;

const COLUMNS: &str = "SELECT discovered.name, discovered.attributes, discovered.discovered_at, \
     discovered.discovery_resource, CASE WHEN resource.head IS NULL THEN 0 ELSE 1 END FROM discovered \
     LEFT JOIN resource ON resource.environment = discovered.environment \
     AND resource.name = discovered.name WHERE discovered.environment = ?1";

fn from_row(row: &dyn Row) -> Result<DiscoveredRecord> {
    Ok(DiscoveredRecord {
        name: row.string(0)?,
        attributes: row.json(1)?,
        discovered_at: row.time(2)?,
        discovery_resource: row.string(3)?,
        managed: row.flag(4)?,
    })
}

/// Keeps what was found.
pub(super) fn put(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    found: &[NewDiscovered<'_>],
    now: Timestamp,
) -> Result<()> {
    let insert = "INSERT INTO discovered \
         (environment, name, attributes, discovered_at, discovery_resource) \
         VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (environment, name) DO UPDATE SET \
         attributes = excluded.attributes, discovered_at = excluded.discovered_at, \
         discovery_resource = excluded.discovery_resource";
    for item in found {
        let attributes = item.attributes.to_string();
        let from = item.discovery_resource;
        sql.run(insert, values![environment.0, item.name, &attributes, now, from])?;
    }
    note(sql, Some(environment), "discovered", "*", now)
}

impl Records<'_> {
    /// Keeps what was found; what is known already is replaced.
    ///
    /// # Errors
    /// Those of the database.
    pub fn put_discovered(
        &self,
        environment: EnvironmentKey,
        found: &[NewDiscovered<'_>],
        now: Timestamp,
    ) -> Result<()> {
        self.change(|sql| put(sql, environment, found, now))
    }

    /// By id, after an id; with `managed`, only those that a version wants, or does not.
    ///
    /// # Errors
    /// Those of the database.
    pub fn discovered(
        &self,
        environment: EnvironmentKey,
        managed: Option<bool>,
        after: &str,
        limit: usize,
    ) -> Result<Vec<DiscoveredRecord>> {
        let condition = match managed {
            None => "",
            Some(true) => " AND resource.head IS NOT NULL",
            Some(false) => " AND resource.head IS NULL",
        };
        let select = format!(
            "{COLUMNS} AND discovered.name > ?2{condition} ORDER BY discovered.name LIMIT ?3"
        );
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.look(|sql| sql.all(&select, values![environment.0, after, limit], from_row))
    }

    /// Those that fit a filter by agent, type and value, by id, after an id. Answers where the list continues: a page looks at
    /// no more than some thousands, however few fit.
    ///
    /// # Errors
    /// Those of the database.
    pub fn discovered_that_fit(
        &self,
        environment: EnvironmentKey,
        managed: Option<bool>,
        filter: &ResourceFilter,
        after: &str,
        limit: usize,
    ) -> Result<(Vec<DiscoveredRecord>, Option<String>)> {
        // Ids begin with the type: those of one stand together.
        let prefix = filter.entity.as_ref().map(|entity| format!("{entity}["));
        let prefix = prefix.unwrap_or_default();
        let mut low = if *after > *prefix { after.to_owned() } else { prefix.clone() };
        let (mut found, mut looked_at) = (Vec::new(), 0);
        loop {
            let part = self.discovered(environment, managed, &low, CHUNK)?;
            let read = part.len();
            for record in part {
                if !record.name.starts_with(&prefix) {
                    return Ok((found, None));
                }
                low.clone_from(&record.name);
                let agent = filter.agent.as_deref();
                let is_of = |id: ResourceId| agent.is_none_or(|agent| id.agent() == agent);
                if !record.name.parse().is_ok_and(is_of) || !value_fits(filter, &record.name) {
                    continue;
                }
                if found.len() == limit {
                    let last = found.last().map(|last: &DiscoveredRecord| last.name.clone());
                    return Ok((found, last));
                }
                found.push(record);
            }
            looked_at += read;
            if read < CHUNK {
                return Ok((found, None));
            }
            if looked_at >= LOOKED_AT {
                return Ok((found, Some(low)));
            }
        }
    }

    /// # Errors
    /// `NotFound` if it was not found.
    pub fn discovered_one(
        &self,
        environment: EnvironmentKey,
        name: &str,
    ) -> Result<DiscoveredRecord> {
        let select = format!("{COLUMNS} AND discovered.name = ?2");
        let found = self.look(|sql| sql.first(&select, values![environment.0, name], from_row))?;
        found.ok_or_else(|| StoreError::not_found("discovered resource", name))
    }

    /// Forgets one.
    ///
    /// # Errors
    /// `NotFound` if it was not found.
    pub fn forget_discovered(
        &self,
        environment: EnvironmentKey,
        name: &str,
        now: Timestamp,
    ) -> Result<()> {
        self.change(|sql| {
            let delete = "DELETE FROM discovered WHERE environment = ?1 AND name = ?2";
            if sql.run(delete, values![environment.0, name])? == 0 {
                return Err(StoreError::not_found("discovered resource", name));
            }
            note(sql, Some(environment), "discovered", name, now)
        })
    }
}
