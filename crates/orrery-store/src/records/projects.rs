//! Projects: the tenants that own environments.

use orrery_model::{ProjectId, Timestamp};

use crate::records::accounts::delete_scope_grants;
use crate::records::cluster_documents::delete_documents;
use crate::records::clusters::delete_clusters;
use crate::records::{Projects, RoleScope, Transactions as _, record_change};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{Result, StoreError, values};

/// A project, which groups environments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectRecord {
    pub uuid: ProjectId,
    pub name: String,
    pub description: String,
    pub created: Timestamp,
    /// Grows with each change.
    pub revision: i64,
}

const COLUMNS: &str = "SELECT uuid, name, description, created, revision FROM project";

fn from_row(row: &dyn Row) -> Result<ProjectRecord> {
    Ok(ProjectRecord {
        uuid: row.id(0)?,
        name: row.string(1)?,
        description: row.string(2)?,
        created: row.time(3)?,
        revision: row.int(4)?,
    })
}

fn find(sql: &mut dyn Sql, uuid: ProjectId) -> Result<ProjectRecord> {
    let found = sql.first(&format!("{COLUMNS} WHERE uuid = ?1"), values![uuid], from_row)?;
    found.ok_or_else(|| StoreError::not_found("project", uuid.to_string()))
}

impl Projects<'_> {
    /// Creates a project. Its name must be new.
    ///
    /// # Errors
    /// `Exists` if the name or the id is taken.
    pub fn create(
        &self,
        uuid: ProjectId,
        name: &str,
        description: &str,
        now: Timestamp,
    ) -> Result<ProjectRecord> {
        self.transact(|sql| {
            let insert = "INSERT INTO project (uuid, name, description, created) \
                 VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING";
            if sql.run(insert, values![uuid, name, description, now])? == 0 {
                return Err(StoreError::exists("project", name));
            }
            record_change(sql, None, "project", &uuid.to_string(), now)?;
            find(sql, uuid)
        })
    }

    /// All projects by name.
    ///
    /// # Errors
    /// Database errors.
    pub fn list(&self) -> Result<Vec<ProjectRecord>> {
        self.query(|sql| sql.all(&format!("{COLUMNS} ORDER BY name"), &[], from_row))
    }

    /// The project with an id.
    ///
    /// # Errors
    /// `NotFound` if it does not exist.
    pub fn get(&self, uuid: ProjectId) -> Result<ProjectRecord> {
        self.query(|sql| find(sql, uuid))
    }

    /// Changes the given fields. With `expected`, only if the project still has that revision.
    ///
    /// # Errors
    /// `NotFound`; `Exists` if the new name is taken; `Outdated` after a concurrent change.
    pub fn update(
        &self,
        uuid: ProjectId,
        expected: Option<i64>,
        name: Option<&str>,
        description: Option<&str>,
        now: Timestamp,
    ) -> Result<ProjectRecord> {
        self.transact(|sql| {
            let old = find(sql, uuid)?;
            StoreError::check_revision("project", expected, old.revision)?;
            if let Some(name) = name {
                let other = "SELECT 1 FROM project WHERE name = ?1 AND uuid <> ?2";
                if sql.first(other, values![name, uuid], |row| row.int(0))?.is_some() {
                    return Err(StoreError::exists("project", name));
                }
            }
            let update = "UPDATE project SET name = ?2, description = ?3, revision = revision + 1 \
                 WHERE uuid = ?1";
            let name = name.unwrap_or(&old.name);
            let description = description.unwrap_or(&old.description);
            sql.run(update, values![uuid, name, description])?;
            record_change(sql, None, "project", &uuid.to_string(), now)?;
            find(sql, uuid)
        })
    }

    /// Deletes a project without environments, and its cluster documents. With `expected`, only if
    /// it still has that revision. Returns the deleted project.
    ///
    /// # Errors
    /// `NotFound`; `Outdated` after a concurrent change; `InUse` if it has an environment.
    pub fn delete(
        &self,
        uuid: ProjectId,
        expected: Option<i64>,
        now: Timestamp,
    ) -> Result<ProjectRecord> {
        self.transact(|sql| {
            let project = find(sql, uuid)?;
            StoreError::check_revision("project", expected, project.revision)?;
            let used = "SELECT 1 FROM environment JOIN project ON project.id = environment.project \
                 WHERE project.uuid = ?1";
            if sql.first(used, values![uuid], |row| row.int(0))?.is_some() {
                return Err(StoreError::InUse { kind: "project", name: project.name });
            }
            delete_scope_grants(sql, RoleScope::Project(uuid), now)?;
            delete_documents(sql, uuid)?;
            delete_clusters(sql, uuid)?;
            sql.run("DELETE FROM project WHERE uuid = ?1", values![uuid])?;
            record_change(sql, None, "project", &uuid.to_string(), now)?;
            Ok(project)
        })
    }
}
