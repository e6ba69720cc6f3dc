//! Plug-in resources: scripts, cookbooks and archives of a project, with all their versions. One
//! version of each is live, and one may be staged to become live with the next sync.

use orrery_model::{ProjectId, Timestamp};

use crate::records::clusters::lock_project;
use crate::records::{PluginResources, Transactions as _, record_change};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{Result, StoreError, values};

const NOUN: &str = "plug-in resource";

/// Plug-in, type and name of a resource of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PluginResourceName<'a> {
    pub project: ProjectId,
    /// Type of the plug-in, such as `shell`.
    pub plugin: &'a str,
    /// Type of the resource, such as `scripts`.
    pub kind: &'a str,
    pub name: &'a str,
}

/// One version of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginResourceRecord {
    pub plugin: String,
    pub kind: String,
    pub name: String,
    pub version: i64,
    /// SHA-256 of the content in hexadecimal digits.
    pub digest: String,
    pub size: u64,
    pub is_live: bool,
    pub is_staged: bool,
    pub created: Timestamp,
    pub created_by: String,
}

const COLUMNS: &str = "SELECT plugin, type, name, version, digest, size, is_live, is_staged, created, created_by \
     FROM plugin_resource";

fn from_row(row: &dyn Row) -> Result<PluginResourceRecord> {
    Ok(PluginResourceRecord {
        plugin: row.string(0)?,
        kind: row.string(1)?,
        name: row.string(2)?,
        version: row.int(3)?,
        digest: row.string(4)?,
        size: u64::try_from(row.int(5)?).unwrap_or(0),
        is_live: row.flag(6)?,
        is_staged: row.flag(7)?,
        created: row.time(8)?,
        created_by: row.string(9)?,
    })
}

fn find(
    sql: &mut dyn Sql,
    project: i64,
    name: PluginResourceName<'_>,
    version: i64,
) -> Result<PluginResourceRecord> {
    let select = format!(
        "{COLUMNS} WHERE project = ?1 AND plugin = ?2 AND type = ?3 AND name = ?4 AND version = ?5"
    );
    let PluginResourceName { plugin, kind, name, .. } = name;
    let found = sql.first(&select, values![project, plugin, kind, name, version], from_row)?;
    found.ok_or_else(|| StoreError::not_found(NOUN, format!("{plugin}/{kind}/{name}/{version}")))
}

fn note(sql: &mut dyn Sql, name: PluginResourceName<'_>, now: Timestamp) -> Result<()> {
    let PluginResourceName { project, plugin, kind, name } = name;
    let subject = format!("projects/{project}/{plugin}/{kind}/{name}");
    record_change(sql, None, "plugin_resource", &subject, now)
}

impl PluginResources<'_> {
    /// Stores a new version, staged. Content that equals that of the newest version gets no new
    /// version.
    ///
    /// # Errors
    /// `NotFound` if there is no such project.
    pub fn put(
        &self,
        name: PluginResourceName<'_>,
        (digest, content): (&str, &[u8]),
        by: &str,
        now: Timestamp,
    ) -> Result<PluginResourceRecord> {
        self.transact(|sql| {
            let project = lock_project(sql, name.project)?;
            let newest = format!(
                "{COLUMNS} WHERE project = ?1 AND plugin = ?2 AND type = ?3 AND name = ?4 \
                 ORDER BY version DESC LIMIT 1"
            );
            let key = values![project, name.plugin, name.kind, name.name];
            let newest = sql.first(&newest, key, from_row)?;
            if let Some(same) = newest.as_ref().filter(|newest| newest.digest == digest) {
                return Ok(same.clone());
            }
            let insert = "INSERT INTO plugin_content (digest, content) VALUES (?1, ?2) \
                 ON CONFLICT (digest) DO NOTHING";
            sql.run(insert, values![digest, content])?;
            let unstage = "UPDATE plugin_resource SET is_staged = 0 \
                 WHERE project = ?1 AND plugin = ?2 AND type = ?3 AND name = ?4";
            sql.run(unstage, key)?;
            let version = newest.map_or(0, |newest| newest.version) + 1;
            let insert = "INSERT INTO plugin_resource (id, project, plugin, type, name, version, digest, size, \
                 is_live, is_staged, created, created_by) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0, 1, ?9, ?10)";
            let id = sql.allocate_id("plugin_resource")?;
            let size = i64::try_from(content.len()).unwrap_or(i64::MAX);
            let PluginResourceName { plugin, kind, name: own, .. } = name;
            let values =
                values![id, project, plugin, kind, own, version, digest, size, now, by];
            sql.run(insert, values)?;
            note(sql, name, now)?;
            find(sql, project, name, version)
        })
    }

    /// Stages a version in the place of another one, or recalls it. Idempotent.
    ///
    /// # Errors
    /// `NotFound` if it does not exist.
    pub fn stage(
        &self,
        name: PluginResourceName<'_>,
        version: i64,
        staged: bool,
        now: Timestamp,
    ) -> Result<PluginResourceRecord> {
        self.transact(|sql| {
            let project = lock_project(sql, name.project)?;
            find(sql, project, name, version)?;
            let PluginResourceName { plugin, kind, name: own, .. } = name;
            let own = values![project, plugin, kind, own, version];
            if staged {
                let others = "UPDATE plugin_resource SET is_staged = 0 WHERE project = ?1 \
                     AND plugin = ?2 AND type = ?3 AND name = ?4 AND version <> ?5";
                sql.run(others, own)?;
            }
            let flag = i64::from(staged);
            let update = format!(
                "UPDATE plugin_resource SET is_staged = {flag} WHERE project = ?1 \
                 AND plugin = ?2 AND type = ?3 AND name = ?4 AND version = ?5"
            );
            sql.run(&update, own)?;
            note(sql, name, now)?;
            find(sql, project, name, version)
        })
    }

    /// Makes the staged versions of a project live. A resource without a staged version is not
    /// available to new operations any more. Returns the live versions.
    ///
    /// # Errors
    /// `NotFound` if there is no such project.
    pub fn sync(&self, project: ProjectId, now: Timestamp) -> Result<Vec<PluginResourceRecord>> {
        self.transact(|sql| {
            let number = lock_project(sql, project)?;
            let update = "UPDATE plugin_resource SET is_live = is_staged WHERE project = ?1";
            sql.run(update, values![number])?;
            record_change(sql, None, "plugin_resource", &format!("projects/{project}"), now)?;
            let select =
                format!("{COLUMNS} WHERE project = ?1 AND is_live = 1 ORDER BY plugin, type, name");
            sql.all(&select, values![number], from_row)
        })
    }

    /// All versions of all resources of a project, by plug-in, type, name and version.
    ///
    /// # Errors
    /// Database errors.
    pub fn list(&self, project: ProjectId) -> Result<Vec<PluginResourceRecord>> {
        let select = format!(
            "{COLUMNS} WHERE project = (SELECT id FROM project WHERE uuid = ?1) \
             ORDER BY plugin, type, name, version"
        );
        self.query(|sql| sql.all(&select, values![project], from_row))
    }

    /// Deletes a version that is neither live nor staged, and its content if nothing else has it.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` if it is live or staged.
    pub fn delete(
        &self,
        name: PluginResourceName<'_>,
        version: i64,
        now: Timestamp,
    ) -> Result<PluginResourceRecord> {
        self.transact(|sql| {
            let project = lock_project(sql, name.project)?;
            let found = find(sql, project, name, version)?;
            if found.is_live || found.is_staged {
                let text = format!(
                    "version {version} of {} is in use: recall it, and sync the project, first",
                    name.name
                );
                return Err(StoreError::Conflict(text));
            }
            let PluginResourceName { plugin, kind, name: own, .. } = name;
            let delete = "DELETE FROM plugin_resource WHERE project = ?1 AND plugin = ?2 \
                 AND type = ?3 AND name = ?4 AND version = ?5";
            sql.run(delete, values![project, plugin, kind, own, version])?;
            let collect = "DELETE FROM plugin_content WHERE digest = ?1 AND NOT EXISTS \
                 (SELECT 1 FROM plugin_resource WHERE plugin_resource.digest = ?1)";
            sql.run(collect, values![&found.digest])?;
            note(sql, name, now)?;
            Ok(found)
        })
    }

    /// A content of a resource of a project, by its digest.
    ///
    /// # Errors
    /// Database errors.
    pub fn content(&self, project: ProjectId, digest: &str) -> Result<Option<Vec<u8>>> {
        let select = "SELECT content FROM plugin_content WHERE digest = ?1 AND EXISTS \
             (SELECT 1 FROM plugin_resource JOIN project ON project.id = plugin_resource.project \
             WHERE plugin_resource.digest = ?1 AND project.uuid = ?2)";
        self.query(|sql| {
            sql.first(select, values![digest, project], |row| {
                Ok(row.blob(0)?.unwrap_or_default().to_vec())
            })
        })
    }
}
