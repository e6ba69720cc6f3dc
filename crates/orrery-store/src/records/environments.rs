//! Environments: project, source of the model, halted or not.

use orrery_model::{EnvironmentId, ProjectId, Timestamp};
use uuid::Uuid;

use crate::records::{Environments, Transactions as _, record_change};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, ProjectBinding, Result, StoreError, values};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentRecord {
    pub key: EnvironmentKey,
    pub uuid: EnvironmentId,
    pub project: ProjectId,
    pub project_name: String,
    pub name: String,
    pub description: String,
    /// A data URL, or empty.
    pub icon: String,
    /// Repository of the model; empty if versions are uploaded.
    pub repository: String,
    pub branch: String,
    pub created: Timestamp,
    /// Grows with each change.
    pub revision: i64,
    pub halted: bool,
    pub deleting: bool,
    /// Reason why the environment cannot be processed now; empty if it can.
    pub problem: String,
    /// The project that it is bound to; empty if there is none.
    pub model_project: String,
    /// Id of the cluster that it belongs to. Only operations on the cluster change such an
    /// environment.
    pub cluster: Option<String>,
}

/// An environment to be created.
#[derive(Clone, Copy, Debug)]
pub struct NewEnvironmentRecord<'a> {
    pub uuid: EnvironmentId,
    pub project: ProjectId,
    pub name: &'a str,
    pub description: &'a str,
    pub icon: &'a str,
    pub repository: &'a str,
    pub branch: &'a str,
}

/// Changes of an environment; `None` leaves a field unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct EnvironmentChange<'a> {
    pub project: Option<ProjectId>,
    pub name: Option<&'a str>,
    pub description: Option<&'a str>,
    pub icon: Option<&'a str>,
    pub repository: Option<&'a str>,
    pub branch: Option<&'a str>,
    /// The project to bind it to; empty to remove the binding. A new repository removes it, too.
    pub model_project: Option<&'a str>,
}

const COLUMNS: &str = "SELECT environment.id, environment.uuid, project.uuid, project.name, environment.name, \
     environment.description, environment.icon, environment.repository, environment.branch, \
     environment.created, environment.revision, environment.halted, environment.deleting, \
     environment.trouble, environment.model_project, \
     (SELECT cluster.code FROM cluster WHERE cluster.environment = environment.id) \
     FROM environment JOIN project ON project.id = environment.project";

fn from_row(row: &dyn Row) -> Result<EnvironmentRecord> {
    Ok(EnvironmentRecord {
        key: EnvironmentKey(row.int(0)?),
        uuid: row.id(1)?,
        project: row.id(2)?,
        project_name: row.string(3)?,
        name: row.string(4)?,
        description: row.string(5)?,
        icon: row.string(6)?,
        repository: row.string(7)?,
        branch: row.string(8)?,
        created: row.time(9)?,
        revision: row.int(10)?,
        halted: row.flag(11)?,
        deleting: row.flag(12)?,
        problem: row.string(13)?,
        model_project: row.string(14)?,
        cluster: row.maybe_string(15)?,
    })
}

fn find(sql: &mut dyn Sql, uuid: EnvironmentId) -> Result<EnvironmentRecord> {
    let select = format!("{COLUMNS} WHERE environment.uuid = ?1");
    let found = sql.first(&select, values![uuid], from_row)?;
    found.ok_or_else(|| StoreError::not_found("environment", uuid.to_string()))
}

fn project_number(sql: &mut dyn Sql, uuid: ProjectId) -> Result<i64> {
    let select = "SELECT id FROM project WHERE uuid = ?1";
    let found = sql.first(select, values![uuid], |row| row.int(0))?;
    found.ok_or_else(|| StoreError::not_found("project", uuid.to_string()))
}

/// Checks the project of a version that is being stored, in the same transaction, and binds the
/// environment if required.
pub(crate) fn bind_project(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    project: ProjectBinding<'_>,
    now: Timestamp,
) -> Result<()> {
    let select = "SELECT model_project FROM environment WHERE id = ?1";
    let bound = sql.first(select, values![environment.0], |row| row.string(0))?;
    let bound = bound.unwrap_or_default();
    let (declared, binds) = match project {
        ProjectBinding::Bind(name) => (name, true),
        ProjectBinding::Check(name) => (name, false),
        ProjectBinding::Rebind(name) => {
            return write_binding(sql, environment, (&bound, name), now);
        }
        ProjectBinding::Unbind => return write_binding(sql, environment, (&bound, ""), now),
    };
    if !bound.is_empty() && bound != declared {
        return Err(StoreError::OtherProject { bound, declared: declared.to_owned() });
    }
    if binds { write_binding(sql, environment, (&bound, declared), now) } else { Ok(()) }
}

fn write_binding(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    (bound, name): (&str, &str),
    now: Timestamp,
) -> Result<()> {
    if bound == name {
        return Ok(());
    }
    // A binding is not a change by a user: the revision stays.
    let update = "UPDATE environment SET model_project = ?2 WHERE id = ?1";
    sql.run(update, values![environment.0, name])?;
    record_change(sql, Some(environment), "environment", "", now)
}

pub(super) fn insert_environment(
    sql: &mut dyn Sql,
    new: &NewEnvironmentRecord<'_>,
    now: Timestamp,
) -> Result<EnvironmentRecord> {
    let project = project_number(sql, new.project)?;
    let insert = "INSERT INTO environment \
         (id, uuid, project, name, description, icon, repository, branch, created) \
         VALUES (?9, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING";
    let NewEnvironmentRecord { uuid, name, description, icon, repository, branch, .. } = *new;
    let id = sql.allocate_id("environment")?;
    let values = values![uuid, project, name, description, icon, repository, branch, now, id];
    if sql.run(insert, values)? == 0 {
        return Err(StoreError::exists("environment", name));
    }
    let record = find(sql, uuid)?;
    record_change(sql, Some(record.key), "environment", &uuid.to_string(), now)?;
    Ok(record)
}

pub(super) fn set_halted(
    sql: &mut dyn Sql,
    uuid: EnvironmentId,
    halted: bool,
    now: Timestamp,
) -> Result<EnvironmentRecord> {
    let old = find(sql, uuid)?;
    if old.deleting && !halted {
        return Err(StoreError::Deleting(old.name));
    }
    if old.halted == halted {
        return Ok(old);
    }
    let agents = if halted {
        "UPDATE agent SET unpause_on_resume = 1 - paused, paused = 1 WHERE environment = ?1"
    } else {
        "UPDATE agent SET paused = 1 - coalesce(unpause_on_resume, 1 - paused), \
         unpause_on_resume = NULL WHERE environment = ?1"
    };
    sql.run(agents, values![old.key.0])?;
    let update = "UPDATE environment SET halted = ?2, revision = revision + 1 WHERE uuid = ?1";
    sql.run(update, values![uuid, halted])?;
    record_change(sql, Some(old.key), "environment", &uuid.to_string(), now)?;
    find(sql, uuid)
}

pub(super) fn begin_deletion(
    sql: &mut dyn Sql,
    uuid: EnvironmentId,
    now: Timestamp,
) -> Result<EnvironmentRecord> {
    let old = find(sql, uuid)?;
    let update = "UPDATE environment SET deleting = 1, halted = 1, revision = revision + 1 \
         WHERE uuid = ?1";
    sql.run(update, values![uuid])?;
    record_change(sql, Some(old.key), "environment", &uuid.to_string(), now)?;
    find(sql, uuid)
}

impl Environments<'_> {
    /// Creates an environment in an existing project.
    ///
    /// # Errors
    /// `NotFound` for the project; `Exists` if the name is taken in it.
    pub fn add(&self, new: &NewEnvironmentRecord<'_>, now: Timestamp) -> Result<EnvironmentRecord> {
        self.transact(|sql| insert_environment(sql, new, now))
    }

    /// All environments by project and name, or those of one project.
    ///
    /// # Errors
    /// Database errors.
    pub fn list(&self, project: Option<ProjectId>) -> Result<Vec<EnvironmentRecord>> {
        let order = "ORDER BY project.name, environment.name";
        self.query(|sql| match project {
            Some(uuid) => {
                let select = format!("{COLUMNS} WHERE project.uuid = ?1 {order}");
                sql.all(&select, values![uuid], from_row)
            }
            None => sql.all(&format!("{COLUMNS} {order}"), &[], from_row),
        })
    }

    /// The environment with an id.
    ///
    /// # Errors
    /// `NotFound` if it does not exist.
    pub fn get(&self, uuid: EnvironmentId) -> Result<EnvironmentRecord> {
        self.query(|sql| find(sql, uuid))
    }

    /// The environment with a key.
    ///
    /// # Errors
    /// `NotFound` if it does not exist.
    pub fn by_key(&self, key: EnvironmentKey) -> Result<EnvironmentRecord> {
        self.query(|sql| {
            let select = format!("{COLUMNS} WHERE environment.id = ?1");
            let found = sql.first(&select, values![key.0], from_row)?;
            found.ok_or_else(|| StoreError::not_found("environment", key.0.to_string()))
        })
    }

    /// Changes the given fields. With `expected`, only if the environment still has that revision.
    ///
    /// # Errors
    /// `NotFound`; `Exists` if the new name is taken; `Outdated` after a concurrent change.
    pub fn update(
        &self,
        uuid: EnvironmentId,
        expected: Option<i64>,
        change: &EnvironmentChange<'_>,
        now: Timestamp,
    ) -> Result<EnvironmentRecord> {
        self.transact(|sql| {
            let old = find(sql, uuid)?;
            StoreError::check_revision("environment", expected, old.revision)?;
            let project = project_number(sql, change.project.unwrap_or(old.project))?;
            let name = change.name.unwrap_or(&old.name);
            let other = "SELECT 1 FROM environment WHERE project = ?1 AND name = ?2 AND uuid <> ?3";
            if sql.first(other, values![project, name, uuid], |row| row.int(0))?.is_some() {
                return Err(StoreError::exists("environment", name));
            }
            let update = "UPDATE environment SET project = ?2, name = ?3, description = ?4, \
                 icon = ?5, repository = ?6, branch = ?7, model_project = ?8, \
                 revision = revision + 1 WHERE uuid = ?1";
            // Another repository is another model, so the binding ends.
            let is_moved = change.repository.is_some_and(|new| *new != old.repository);
            let default_project = if is_moved { "" } else { &old.model_project };
            let values = values![
                uuid,
                project,
                name,
                change.description.unwrap_or(&old.description),
                change.icon.unwrap_or(&old.icon),
                change.repository.unwrap_or(&old.repository),
                change.branch.unwrap_or(&old.branch),
                change.model_project.unwrap_or(default_project),
            ];
            sql.run(update, values)?;
            record_change(sql, Some(old.key), "environment", &uuid.to_string(), now)?;
            find(sql, uuid)
        })
    }

    /// Halts or resumes an environment. Agents that were paused before a halt stay paused after it,
    /// unless that was changed meanwhile. Idempotent.
    ///
    /// # Errors
    /// `NotFound`; `Deleting` if it is being deleted and should resume.
    pub fn set_halted(
        &self,
        uuid: EnvironmentId,
        halted: bool,
        now: Timestamp,
    ) -> Result<EnvironmentRecord> {
        self.transact(|sql| set_halted(sql, uuid, halted, now))
    }

    /// Sets the reason why an environment cannot be processed; an empty text clears it. This is not
    /// a change by a user, so the revision stays.
    ///
    /// # Errors
    /// Database errors.
    pub fn set_problem(&self, key: EnvironmentKey, trouble: &str, now: Timestamp) -> Result<()> {
        self.transact(|sql| {
            let update = "UPDATE environment SET trouble = ?2 WHERE id = ?1 AND trouble <> ?2";
            if sql.run(update, values![key.0, trouble])? > 0 {
                record_change(sql, Some(key), "environment", "", now)?;
            }
            Ok(())
        })
    }

    /// Marks an environment for deletion and halts it; its contents are deleted afterwards.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn begin_deletion(&self, uuid: EnvironmentId, now: Timestamp) -> Result<EnvironmentRecord> {
        self.transact(|sql| begin_deletion(sql, uuid, now))
    }
}

/// Locks out other writers of an environment's versions until the transaction ends. Returns the last
/// version number.
pub(crate) fn lock_environment(sql: &mut dyn Sql, environment: EnvironmentKey) -> Result<i64> {
    let select = format!("SELECT last_version FROM environment WHERE id = ?1{}", sql.row_lock());
    let found = sql.first(&select, values![environment.0], |row| row.int(0))?;
    found.ok_or_else(|| StoreError::NoEnvironment(format!("number {}", environment.0)))
}

/// Project and name of the environment of embedded mode.
const DEFAULT: &str = "default";

fn find_default(sql: &mut dyn Sql) -> Result<Option<EnvironmentKey>> {
    let select = "SELECT environment.id FROM environment JOIN project \
         ON project.id = environment.project WHERE project.name = ?1 AND environment.name = ?1";
    sql.first(select, values![DEFAULT], |row| Ok(EnvironmentKey(row.int(0)?)))
}

/// Creates an environment, and its project if it does not exist. Returns false if the environment
/// exists; another process may create it at the same time.
pub(crate) fn create_environment(
    sql: &mut dyn Sql,
    project: &str,
    name: &str,
    uuid: EnvironmentId,
) -> Result<bool> {
    let insert = "INSERT INTO project (uuid, name) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING";
    sql.run(insert, values![ProjectId::new(Uuid::new_v4()), project])?;
    let key = sql.allocate_id("environment")?;
    let insert = "INSERT INTO environment (id, uuid, project, name) \
         SELECT ?1, ?2, project.id, ?3 FROM project WHERE project.name = ?4 \
         ON CONFLICT (project, name) DO NOTHING";
    Ok(sql.run(insert, values![key, uuid, name, project])? > 0)
}

impl Environments<'_> {
    /// The environment of a store that has only one; created at the first call.
    ///
    /// # Errors
    /// Database errors.
    pub fn ensure_default(&self) -> Result<EnvironmentKey> {
        if let Some(found) = self.query(find_default)? {
            return Ok(found);
        }
        // Sees an environment that a concurrent transaction creates meanwhile.
        self.transact_unmarked(|sql| {
            create_environment(sql, DEFAULT, DEFAULT, EnvironmentId::new(Uuid::new_v4()))?;
            find_default(sql)?.ok_or_else(|| StoreError::NoEnvironment(DEFAULT.to_owned()))
        })
    }
}
