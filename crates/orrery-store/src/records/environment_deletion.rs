//! Deletion of environments: table by table, in transactions of bounded size, so that no other
//! transaction waits long and an interrupted deletion can be restarted.

use orrery_model::{EnvironmentId, Timestamp};

use crate::records::accounts::delete_scope_grants;
use crate::records::{Environments, RoleScope, Transactions as _, record_change};
use crate::sql::{RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, Result, values};

/// Resources deleted per transaction.
const RESOURCE_BATCH: i64 = 500;
/// Rows of other tables deleted per transaction.
const ROW_BATCH: i64 = 5_000;

/// Contents with a key of their own beside the environment: table and key.
const KEYED: [(&str, &str); 9] = [
    ("unknown", "version"),
    ("notification", "id"),
    ("discovered", "name"),
    ("metric", "at"),
    ("parameter", "name"),
    ("agent", "name"),
    ("agent_connection", "name"),
    ("resource_type", "name"),
    ("resource_set", "id"),
];

/// Contents that are found through a parent: table, its column, the parent and its key.
const CHILDREN: [(&str, &str, &str); 3] = [
    ("dry_run_result", "dry_run", "dry_run"),
    ("compile_output", "compile", "compile"),
    ("compile_stage", "compile", "compile"),
];

/// Deletes some resources with all rows that refer to them. Returns their number.
fn delete_resources(sql: &mut dyn Sql, environment: EnvironmentKey) -> Result<usize> {
    let select = "SELECT name, id, head FROM resource WHERE environment = ?1 \
         ORDER BY name LIMIT ?2";
    let found = sql.all(select, values![environment.0, RESOURCE_BATCH], |row| {
        Ok((row.string(0)?, row.int(1)?, row.integer(2)?))
    })?;
    for (name, id, head) in &found {
        sql.run("DELETE FROM revision WHERE id = ?1", values![head.unwrap_or(0)])?;
        let past = "DELETE FROM revision \
             WHERE id IN (SELECT revision FROM ended WHERE resource = ?1)";
        sql.run(past, values![*id])?;
        for table in ["ended", "state", "running", "begun", "action"] {
            sql.run(&format!("DELETE FROM {table} WHERE resource = ?1"), values![*id])?;
        }
        let facts = "DELETE FROM parameter WHERE environment = ?1 AND resource = ?2";
        sql.run(facts, values![environment.0, *id])?;
        let resource = "DELETE FROM resource WHERE environment = ?1 AND name = ?2";
        sql.run(resource, values![environment.0, name])?;
    }
    Ok(found.len())
}

/// Deletes some rows of one table; true if there may be more.
fn delete_batch(sql: &mut dyn Sql, statement: &str, environment: EnvironmentKey) -> Result<bool> {
    let deleted = sql.run(statement, values![environment.0, ROW_BATCH])?;
    Ok(i64::try_from(deleted).unwrap_or(i64::MAX) >= ROW_BATCH)
}

impl Environments<'_> {
    /// Deletes a part of an environment's contents: versions, resources, their states and logs,
    /// facts, parameters, compiles and other records. The environment itself, its settings and its
    /// secrets stay. Returns true if nothing is left.
    ///
    /// # Errors
    /// Database errors.
    pub fn delete_contents(&self, environment: EnvironmentKey, now: Timestamp) -> Result<bool> {
        let key = environment.0;
        // Versions first: the rest of an interrupted deletion must not look like a version.
        self.transact(|sql| {
            for table in ["version", "step", "scheduler"] {
                sql.run(&format!("DELETE FROM {table} WHERE environment = ?1"), values![key])?;
            }
            Ok(())
        })?;
        if self.transact(|sql| delete_resources(sql, environment))? > 0 {
            return Ok(false);
        }
        for (child, column, parent) in CHILDREN {
            let statement = format!(
                "DELETE FROM {child} WHERE {column} IN (SELECT id FROM {parent} \
                 WHERE environment = ?1 AND EXISTS (SELECT 1 FROM {child} \
                 WHERE {child}.{column} = {parent}.id) ORDER BY id LIMIT 1) AND ?2 > 0"
            );
            if self.transact(|sql| sql.run(&statement, values![key, ROW_BATCH]))? > 0 {
                return Ok(false);
            }
        }
        for table in ["dry_run", "compile"] {
            let statement = format!(
                "DELETE FROM {table} WHERE id IN \
                 (SELECT id FROM {table} WHERE environment = ?1 LIMIT ?2)"
            );
            if self.transact(|sql| delete_batch(sql, &statement, environment))? {
                return Ok(false);
            }
        }
        for (table, column) in KEYED {
            let statement = format!(
                "DELETE FROM {table} WHERE environment = ?1 AND {column} IN \
                 (SELECT {column} FROM {table} WHERE environment = ?1 LIMIT ?2)"
            );
            if self.transact(|sql| delete_batch(sql, &statement, environment))? {
                return Ok(false);
            }
        }
        // The request for this deletion stays until it is finished.
        let requests = "DELETE FROM request WHERE environment = ?1 AND id IN (SELECT id FROM request \
             WHERE environment = ?1 AND (kind <> 'clear' OR finished IS NOT NULL) LIMIT ?2)";
        if self.transact(|sql| delete_batch(sql, requests, environment))? {
            return Ok(false);
        }
        // Logs and revisions of resources that were deleted before; rarely many.
        self.transact(|sql| {
            // Compile history is deleted too, so that an environment that follows a branch starts
            // from its newest commit.
            for table in
                ["action", "revision", "ended", "running", "begun", "followed", "commit_status"]
            {
                sql.run(&format!("DELETE FROM {table} WHERE environment = ?1"), values![key])?;
            }
            let unbind = "UPDATE environment SET model_project = '' WHERE id = ?1";
            sql.run(unbind, values![key])?;
            record_change(sql, Some(environment), "version", "*", now)
        })?;
        Ok(true)
    }

    /// Deletes an emptied environment with its remaining records.
    ///
    /// # Errors
    /// `NotFound` if it does not exist.
    pub fn delete(&self, uuid: EnvironmentId, now: Timestamp) -> Result<()> {
        let environment = self.get(uuid)?;
        self.transact(|sql| {
            // The change feed is not touched: its sequence numbers are never reused, and all of it
            // expires.
            let tables = ["setting", "lease", "scheduler", "secret", "request", "followed"];
            let agents = ["invitation", "remote_agent", "remote_agent_name", "commit_status"];
            for table in tables.into_iter().chain(agents) {
                let delete = format!("DELETE FROM {table} WHERE environment = ?1");
                sql.run(&delete, values![environment.key.0])?;
            }
            delete_scope_grants(sql, RoleScope::Environment(uuid), now)?;
            sql.run("DELETE FROM environment WHERE uuid = ?1", values![uuid])?;
            record_change(sql, None, "environment", &uuid.to_string(), now)
        })
    }
}
