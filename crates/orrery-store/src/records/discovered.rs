//! Discovered resources: found to exist, managed or not.

use orrery_model::{ResourceId, Timestamp};

use crate::records::versions::matches_value;
use crate::records::{Discovered, Transactions as _, record_change};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, Lease, ResourceFilter, Result, StoreError, values};

#[derive(Clone, Debug, PartialEq)]
pub struct DiscoveredRecord {
    /// The id that it would have as a resource.
    pub name: String,
    pub attributes: serde_json::Value,
    pub discovered_at: Timestamp,
    /// The resource that discovered it; or empty.
    pub discovery_resource: String,
    /// True if a version has it too.
    pub managed: bool,
}

/// A discovered resource to be stored.
#[derive(Clone, Copy, Debug)]
pub struct NewDiscovered<'a> {
    pub name: &'a str,
    pub attributes: &'a serde_json::Value,
    pub discovery_resource: &'a str,
}

/// Rows per batch, and rows scanned per page.
const CHUNK: usize = 1_000;
const SCAN_MAX: usize = 5_000;

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

/// Stores discovered resources.
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
    record_change(sql, Some(environment), "discovered", "*", now)
}

impl Discovered<'_> {
    /// Stores discovered resources, replacing those with the same id.
    ///
    /// # Errors
    /// Database errors.
    pub fn put(
        &self,
        environment: EnvironmentKey,
        found: &[NewDiscovered<'_>],
        now: Timestamp,
    ) -> Result<()> {
        self.transact(|sql| put(sql, environment, found, now))
    }

    /// Discovered resources by id, after an id; with `managed`, only managed or only unmanaged
    /// ones.
    ///
    /// # Errors
    /// Database errors.
    pub fn list(
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
        self.query(|sql| sql.all(&select, values![environment.0, after, limit], from_row))
    }

    /// Discovered resources that match a filter by agent, type and value, by id, after an id.
    /// Returns the cursor of the next page: a page scans a bounded number of rows, however few
    /// match.
    ///
    /// # Errors
    /// Database errors.
    pub fn list_filtered(
        &self,
        environment: EnvironmentKey,
        managed: Option<bool>,
        filter: &ResourceFilter,
        after: &str,
        limit: usize,
    ) -> Result<(Vec<DiscoveredRecord>, Option<String>)> {
        // Ids begin with the type, so those of one type are adjacent.
        let prefix = filter.entity.as_ref().map(|entity| format!("{entity}["));
        let prefix = prefix.unwrap_or_default();
        let mut low = if *after > *prefix { after.to_owned() } else { prefix.clone() };
        let (mut found, mut looked_at) = (Vec::new(), 0);
        loop {
            let part = self.list(environment, managed, &low, CHUNK)?;
            let read = part.len();
            for record in part {
                if !record.name.starts_with(&prefix) {
                    return Ok((found, None));
                }
                low.clone_from(&record.name);
                let agent = filter.agent.as_deref();
                let is_of = |id: ResourceId| agent.is_none_or(|agent| id.agent() == agent);
                if !record.name.parse().is_ok_and(is_of) || !matches_value(filter, &record.name) {
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
            if looked_at >= SCAN_MAX {
                return Ok((found, Some(low)));
            }
        }
    }

    /// One discovered resource.
    ///
    /// # Errors
    /// `NotFound` if it was not discovered.
    pub fn get(&self, environment: EnvironmentKey, name: &str) -> Result<DiscoveredRecord> {
        let select = format!("{COLUMNS} AND discovered.name = ?2");
        let found = self.query(|sql| sql.first(&select, values![environment.0, name], from_row))?;
        found.ok_or_else(|| StoreError::not_found("discovered resource", name))
    }

    /// Deletes a discovered resource.
    ///
    /// # Errors
    /// `NotFound` if it was not discovered.
    pub fn delete(&self, environment: EnvironmentKey, name: &str, now: Timestamp) -> Result<()> {
        self.transact(|sql| {
            let delete = "DELETE FROM discovered WHERE environment = ?1 AND name = ?2";
            if sql.run(delete, values![environment.0, name])? == 0 {
                return Err(StoreError::not_found("discovered resource", name));
            }
            record_change(sql, Some(environment), "discovered", name, now)
        })
    }
}

impl Discovered<'_> {
    /// As `put`, for a handler. Stored only if the engine still holds the lease.
    ///
    /// # Errors
    /// `StaleEpoch` if the lease is not the current one.
    pub fn put_for_handler(
        &self,
        lease: &Lease,
        found: &[NewDiscovered<'_>],
        now: Timestamp,
    ) -> Result<()> {
        self.transact(|sql| {
            sql.check_lease(lease)?;
            put(sql, lease.environment, found, now)
        })
    }
}
