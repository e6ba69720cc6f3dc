//! Cluster documents: providers, machines, services and templates as administrators write them,
//! with every revision.
//!
//! Documents belong to the installation or to one project. This crate does not interpret them: the
//! caller validates a change against a [`DocumentSnapshot`], and it is stored only if no document
//! changed since.

use orrery_model::{ProjectId, Timestamp};

use crate::records::{ClusterDocuments, Transactions as _, record_change};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{Result, StoreError, values};

/// The project number of documents of the installation.
const INSTALLATION: i64 = 0;
/// Lock that serializes changes of documents: each is validated against all others.
const LOCK: &str = "cluster documents";
const NOUN: &str = "cluster document";

/// One revision of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterDocumentRecord {
    /// `None` for documents of the installation.
    pub project: Option<ProjectId>,
    pub kind: String,
    pub name: String,
    /// Counts up from 1 for each document, also after a deletion.
    pub revision: i64,
    /// JSON; `None` if this revision is a deletion.
    pub content: Option<String>,
    /// Time of the first revision since the document exists.
    pub created: Timestamp,
    /// Time of this revision.
    pub changed: Timestamp,
    pub changed_by: String,
}

/// All documents at one moment.
#[derive(Clone, Debug, Default)]
pub struct DocumentSnapshot {
    /// Number of the newest revision of any document.
    pub head: i64,
    /// Newest revisions of existing documents, ordered by project, kind and name.
    pub documents: Vec<ClusterDocumentRecord>,
}

/// A document to be stored or deleted.
#[derive(Clone, Copy, Debug)]
pub struct DocumentWrite<'a> {
    pub kind: &'a str,
    pub name: &'a str,
    /// JSON; `None` deletes the document.
    pub content: Option<&'a str>,
    /// Revision that the change is based on: 0 if the document must not exist.
    pub expected: Option<i64>,
}

/// Selection of documents for a list.
#[derive(Clone, Copy, Debug, Default)]
pub struct DocumentFilter<'a> {
    /// Documents of this project, and those of the installation that none of them replaces. Without
    /// one, documents of the installation.
    pub project: Option<ProjectId>,
    pub kind: Option<&'a str>,
    /// Kind and name of the last document of the page before.
    pub after: Option<(&'a str, &'a str)>,
}

/// A document in the installation or in a project.
#[derive(Clone, Copy, Debug)]
pub struct DocumentName<'a> {
    pub project: Option<ProjectId>,
    pub kind: &'a str,
    pub name: &'a str,
}

const COLUMNS: &str = "SELECT project.uuid, document.kind, document.name, document.revision, document.content, \
     document.created, document.changed, document.changed_by FROM cluster_document AS document \
     LEFT JOIN project ON project.id = document.project";

fn from_row(row: &dyn Row) -> Result<ClusterDocumentRecord> {
    Ok(ClusterDocumentRecord {
        project: row.maybe_id(0)?,
        kind: row.string(1)?,
        name: row.string(2)?,
        revision: row.int(3)?,
        content: row.maybe_string(4)?,
        created: row.time(5)?,
        changed: row.time(6)?,
        changed_by: row.string(7)?,
    })
}

/// Number of a project, or of the installation.
fn number_of(sql: &mut dyn Sql, project: Option<ProjectId>) -> Result<i64> {
    let Some(uuid) = project else { return Ok(INSTALLATION) };
    let select = "SELECT id FROM project WHERE uuid = ?1";
    let found = sql.first(select, values![uuid], |row| row.int(0))?;
    found.ok_or_else(|| StoreError::not_found("project", uuid.to_string()))
}

fn head(sql: &mut dyn Sql) -> Result<i64> {
    let select = "SELECT coalesce(max(id), 0) FROM cluster_document";
    Ok(sql.first(select, &[], |row| row.int(0))?.unwrap_or(0))
}

/// The newest revision, even if it is a deletion.
fn newest(
    sql: &mut dyn Sql,
    project: i64,
    kind: &str,
    name: &str,
) -> Result<Option<ClusterDocumentRecord>> {
    let select = format!(
        "{COLUMNS} WHERE document.is_newest = 1 AND document.project = ?1 AND document.kind = ?2 \
         AND document.name = ?3"
    );
    sql.first(&select, values![project, kind, name], from_row)
}

/// Subject of a change: `service/nginx`, or `projects/ID/service/nginx`.
fn subject(project: Option<ProjectId>, kind: &str, name: &str) -> String {
    match project {
        Some(uuid) => format!("projects/{uuid}/{kind}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

/// Deletes all documents of a project with their history.
pub(super) fn delete_documents(sql: &mut dyn Sql, project: ProjectId) -> Result<()> {
    sql.lock_name(LOCK)?;
    let number = number_of(sql, Some(project))?;
    sql.run("DELETE FROM cluster_document WHERE project = ?1", values![number])?;
    Ok(())
}

impl ClusterDocuments<'_> {
    /// All documents of the installation and of all projects.
    ///
    /// # Errors
    /// Database errors.
    pub fn snapshot(&self) -> Result<DocumentSnapshot> {
        let select = format!(
            "{COLUMNS} WHERE document.is_newest = 1 AND document.content IS NOT NULL \
             ORDER BY document.project, document.kind, document.name"
        );
        self.query(|sql| {
            Ok(DocumentSnapshot { head: head(sql)?, documents: sql.all(&select, &[], from_row)? })
        })
    }

    /// Stores and deletes documents of the installation or of a project, all or none of them, if no
    /// document changed since a snapshot. A document whose content is the same gets no new
    /// revision. Returns the newest revision of each.
    ///
    /// # Errors
    /// `DocumentsChanged` if a document changed since the snapshot; `Outdated` if a document has
    /// another revision than expected; `NotFound` if the project, or a document that is to be
    /// deleted, does not exist.
    pub fn write(
        &self,
        project: Option<ProjectId>,
        since: i64,
        writes: &[DocumentWrite<'_>],
        by: &str,
        now: Timestamp,
    ) -> Result<Vec<ClusterDocumentRecord>> {
        self.transact(|sql| {
            sql.lock_name(LOCK)?;
            if head(sql)? != since {
                return Err(StoreError::DocumentsChanged);
            }
            let number = number_of(sql, project)?;
            let mut written = Vec::with_capacity(writes.len());
            for write in writes {
                written.push(write_document(sql, (project, number), write, by, now)?);
            }
            Ok(written)
        })
    }

    /// A page of existing documents, by kind and name.
    ///
    /// # Errors
    /// `NotFound` if there is no such project; database errors.
    pub fn list(
        &self,
        filter: &DocumentFilter<'_>,
        limit: usize,
    ) -> Result<Vec<ClusterDocumentRecord>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (after_kind, after_name) = filter.after.unwrap_or_default();
        self.query(|sql| {
            let number = number_of(sql, filter.project)?;
            let mut select = format!(
                "{COLUMNS} WHERE document.is_newest = 1 AND document.content IS NOT NULL \
                 AND (document.kind > ?1 OR (document.kind = ?1 AND document.name > ?2))"
            );
            // A number, never text from outside.
            match number {
                INSTALLATION => select += " AND document.project = 0",
                number => {
                    select += &format!(
                        " AND (document.project = {number} OR (document.project = 0 AND NOT EXISTS \
                         (SELECT 1 FROM cluster_document AS own WHERE own.is_newest = 1 \
                         AND own.content IS NOT NULL AND own.project = {number} \
                         AND own.kind = document.kind AND own.name = document.name)))"
                    );
                }
            }
            let order = " ORDER BY document.kind, document.name LIMIT ?3";
            match filter.kind {
                Some(kind) => {
                    select += " AND document.kind = ?4";
                    select += order;
                    sql.all(&select, values![after_kind, after_name, limit, kind], from_row)
                }
                None => {
                    select += order;
                    sql.all(&select, values![after_kind, after_name, limit], from_row)
                }
            }
        })
    }

    /// One revision of a document of exactly this scope; without a number, the newest one if the
    /// document exists.
    ///
    /// # Errors
    /// `NotFound` if it does not exist.
    pub fn get(
        &self,
        document: DocumentName<'_>,
        revision: Option<i64>,
    ) -> Result<ClusterDocumentRecord> {
        let DocumentName { project, kind, name } = document;
        self.query(|sql| {
            let number = number_of(sql, project)?;
            let found = match revision {
                None => newest(sql, number, kind, name)?.filter(|record| record.content.is_some()),
                Some(revision) => {
                    let select = format!(
                        "{COLUMNS} WHERE document.project = ?1 AND document.kind = ?2 \
                         AND document.name = ?3 AND document.revision = ?4"
                    );
                    sql.first(&select, values![number, kind, name, revision], from_row)?
                }
            };
            found.ok_or_else(|| match revision {
                None => StoreError::not_found(NOUN, format!("{kind}/{name}")),
                Some(revision) => {
                    let name = format!("{kind}/{name} with revision {revision}");
                    StoreError::not_found(NOUN, name)
                }
            })
        })
    }

    /// Revisions of a document of exactly this scope, newest first, also of one that was deleted.
    ///
    /// # Errors
    /// `NotFound` if there was never such a document.
    pub fn history(
        &self,
        document: DocumentName<'_>,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<ClusterDocumentRecord>> {
        let DocumentName { project, kind, name } = document;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let select = format!(
            "{COLUMNS} WHERE document.project = ?1 AND document.kind = ?2 AND document.name = ?3 \
             AND document.revision < ?4 ORDER BY document.revision DESC LIMIT ?5"
        );
        self.query(|sql| {
            let number = number_of(sql, project)?;
            if newest(sql, number, kind, name)?.is_none() {
                return Err(StoreError::not_found(NOUN, format!("{kind}/{name}")));
            }
            let before = before.unwrap_or(i64::MAX);
            sql.all(&select, values![number, kind, name, before, limit], from_row)
        })
    }
}

fn write_document(
    sql: &mut dyn Sql,
    (project, number): (Option<ProjectId>, i64),
    write: &DocumentWrite<'_>,
    by: &str,
    now: Timestamp,
) -> Result<ClusterDocumentRecord> {
    let DocumentWrite { kind, name, content, expected } = *write;
    let last = newest(sql, number, kind, name)?;
    let existing = last.as_ref().filter(|record| record.content.is_some());
    StoreError::check_revision(NOUN, expected, existing.map_or(0, |record| record.revision))?;
    match existing {
        None if content.is_none() => {
            return Err(StoreError::not_found(NOUN, format!("{kind}/{name}")));
        }
        Some(record) if record.content.as_deref() == content => return Ok(record.clone()),
        _ => {}
    }
    let created = existing.map_or(now, |record| record.created);
    let revision = last.as_ref().map_or(0, |record| record.revision) + 1;
    let outdate = "UPDATE cluster_document SET is_newest = 0 \
         WHERE project = ?1 AND kind = ?2 AND name = ?3 AND is_newest = 1";
    sql.run(outdate, values![number, kind, name])?;
    let id = sql.allocate_id("cluster_document")?;
    let insert = "INSERT INTO cluster_document \
         (id, project, kind, name, revision, is_newest, content, created, changed, changed_by) \
         VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6, ?7, ?8, ?9)";
    sql.run(insert, values![id, number, kind, name, revision, content, created, now, by])?;
    record_change(sql, None, "cluster_document", &subject(project, kind, name), now)?;
    Ok(ClusterDocumentRecord {
        project,
        kind: kind.to_owned(),
        name: name.to_owned(),
        revision,
        content: content.map(str::to_owned),
        created,
        changed: now,
        changed_by: by.to_owned(),
    })
}
