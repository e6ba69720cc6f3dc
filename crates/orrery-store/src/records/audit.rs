//! Audit log: append-only entries, each chained by a hash that covers its predecessor.
//!
//! Changing, inserting or deleting an entry, or truncating the beginning, breaks the chain, and
//! [`Audit::verify`] finds the position. Truncation of the end can be detected only with a
//! copy of the chain's head stored elsewhere.
//!
//! Retention deletes old entries and keeps the chain intact: an entry at the end names the new
//! first entry and its hash.

use orrery_base::hex::to_hex;
use orrery_model::{EnvironmentId, Timestamp};
use sha2::{Digest as _, Sha256};

use crate::records::{Audit, Transactions as _};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _, SqlValue};
use crate::{Result, StoreError, values};

/// An action or an attempted action of an actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    pub at: Timestamp,
    /// `user:ada`, `token:ci`, `anonymous`.
    pub actor: String,
    /// Source address of the request.
    pub address: String,
    /// The method and the route.
    pub action: String,
    /// Object of the action.
    pub subject: String,
    pub environment: Option<EnvironmentId>,
    /// HTTP status of the response.
    pub status: i64,
    pub detail: String,
}

/// An entry at its position in the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainedAuditRecord {
    /// Counted from 1, without gaps.
    pub id: i64,
    pub entry: AuditRecord,
    /// Hash over the entry, its number and the previous hash.
    pub hash: [u8; 32],
}

/// Filter for entries; `None` matches everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditFilter<'a> {
    pub actor: Option<&'a str>,
    pub environment: Option<EnvironmentId>,
    pub action: Option<&'a str>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

/// Result of verifying a part of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditVerification {
    /// Valid up to this entry.
    Good { id: i64, hash: [u8; 32] },
    /// The first entry that breaks the chain, and the reason.
    Broken { id: i64, reason: &'static str },
}

/// The action of entries that name the first entry of the chain.
const RETENTION: &str = "retention";

/// Hash before the first entry.
const START: [u8; 32] = [0; 32];

impl AuditRecord {
    /// Hash of this entry as number `id` after `before`. Every field is preceded by its length, so
    /// that no two entries give the same bytes.
    fn chain_hash(&self, before: &[u8; 32], id: i64) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(before);
        let mut field = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        field(&id.to_be_bytes());
        field(&self.at.0.to_be_bytes());
        field(self.actor.as_bytes());
        field(self.address.as_bytes());
        field(self.action.as_bytes());
        field(self.subject.as_bytes());
        match self.environment {
            Some(id) => field(&id.into_bytes()),
            None => field(&[]),
        }
        field(&self.status.to_be_bytes());
        field(self.detail.as_bytes());
        hash.finalize().into()
    }
}

const COLUMNS: &str = "SELECT id, at, actor, address, action, subject, environment, status, \
     detail, hash FROM audit";

fn hash_of(row: &dyn Row, column: usize) -> Result<[u8; 32]> {
    let bytes = row.blob(column)?.unwrap_or_default();
    bytes.try_into().map_err(|_| StoreError::Unreadable("a hash of the audit log".to_owned()))
}

fn from_row(row: &dyn Row) -> Result<ChainedAuditRecord> {
    Ok(ChainedAuditRecord {
        id: row.int(0)?,
        entry: AuditRecord {
            at: row.time(1)?,
            actor: row.string(2)?,
            address: row.string(3)?,
            action: row.string(4)?,
            subject: row.string(5)?,
            environment: row.maybe_id(6)?,
            status: row.int(7)?,
            detail: row.string(8)?,
        },
        hash: hash_of(row, 9)?,
    })
}

fn head(sql: &mut dyn Sql) -> Result<(i64, [u8; 32])> {
    let select = "SELECT id, hash FROM audit ORDER BY id DESC LIMIT 1";
    let found = sql.first(select, &[], |row| Ok((row.int(0)?, hash_of(row, 1)?)))?;
    Ok(found.unwrap_or((0, START)))
}

fn insert(sql: &mut dyn Sql, id: i64, entry: &AuditRecord, hash: &[u8; 32]) -> Result<()> {
    let insert = "INSERT INTO audit (id, at, actor, address, action, subject, \
         environment, status, detail, hash) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    let AuditRecord { at, actor, address, action, subject, .. } = entry;
    let environment = entry.environment.as_ref();
    let (status, detail) = (entry.status, &entry.detail);
    let values =
        values![id, *at, actor, address, action, subject, environment, status, detail, hash];
    sql.run(insert, values).map(drop)
}

impl Audit<'_> {
    /// Appends entries to the chain, all or none.
    ///
    /// # Errors
    /// Database errors.
    pub fn append(&self, entries: &[AuditRecord]) -> Result<()> {
        self.transact(|sql| {
            sql.lock_name("audit")?;
            let (mut id, mut hash) = head(sql)?;
            for entry in entries {
                id += 1;
                hash = entry.chain_hash(&hash, id);
                insert(sql, id, entry, &hash)?;
            }
            Ok(())
        })
    }

    /// Deletes entries from before a time, oldest first and at most `limit`; returns their number.
    /// The last old entry stays as the beginning of the chain, and a new entry records that.
    ///
    /// # Errors
    /// Database errors.
    pub fn expire(&self, before: Timestamp, limit: usize, now: Timestamp) -> Result<u64> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.transact(|sql| {
            sql.lock_name("audit")?;
            let oldest = sql.first("SELECT min(id) FROM audit", &[], |row| row.integer(0))?;
            let Some(first) = oldest.flatten() else { return Ok(0) };
            let select =
                "SELECT id, hash FROM audit WHERE at < ?1 AND id <= ?2 ORDER BY id DESC LIMIT 1";
            let values = values![before, first.saturating_add(limit)];
            let newest = sql.first(select, values, |row| Ok((row.int(0)?, hash_of(row, 1)?)))?;
            let Some((start, hash)) = newest.filter(|(start, _)| *start > first) else {
                return Ok(0);
            };
            let (last, before) = head(sql)?;
            let entry = AuditRecord {
                at: now,
                actor: "system".to_owned(),
                address: String::new(),
                action: RETENTION.to_owned(),
                subject: start.to_string(),
                environment: None,
                status: 0,
                detail: format!(
                    "entries before {start} were deleted; {start} has the hash {}",
                    to_hex(&hash)
                ),
            };
            let seal = entry.chain_hash(&before, last + 1);
            insert(sql, last + 1, &entry, &seal)?;
            sql.run("DELETE FROM audit WHERE id < ?1", values![start])?;
            Ok(u64::try_from(start - first).unwrap_or(0))
        })
    }

    /// Number of the oldest entry; zero if there is none.
    ///
    /// # Errors
    /// Database errors.
    pub fn oldest_id(&self) -> Result<i64> {
        let select = "SELECT min(id) FROM audit";
        let found = self.query(|sql| sql.first(select, &[], |row| row.integer(0)))?;
        Ok(found.flatten().unwrap_or(0))
    }

    /// True if a retention entry names this entry as the beginning of the chain.
    fn is_retention_start(&self, record: &ChainedAuditRecord) -> Result<bool> {
        let select =
            "SELECT detail FROM audit WHERE action = ?1 AND subject = ?2 ORDER BY id DESC LIMIT 1";
        let subject = record.id.to_string();
        let detail =
            self.query(|sql| sql.first(select, values![RETENTION, &subject], |row| row.string(0)))?;
        Ok(detail.is_some_and(|detail| detail.ends_with(&to_hex(&record.hash))))
    }

    /// Matching entries, newest first. With `before`, only those with smaller numbers.
    ///
    /// # Errors
    /// Database errors.
    pub fn list(
        &self,
        filter: &AuditFilter<'_>,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<ChainedAuditRecord>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut conditions = vec!["id < ?2".to_owned()];
        let mut values = vec![SqlValue::from(limit), SqlValue::from(before.unwrap_or(i64::MAX))];
        let filters: [(&str, Option<SqlValue<'_>>); 5] = [
            ("actor =", filter.actor.map(SqlValue::from)),
            ("environment =", filter.environment.map(SqlValue::from)),
            ("action =", filter.action.map(SqlValue::from)),
            ("at >=", filter.since.map(SqlValue::from)),
            ("at <", filter.until.map(SqlValue::from)),
        ];
        for (condition, value) in filters {
            if let Some(value) = value {
                values.push(value);
                conditions.push(format!("{condition} ?{}", values.len()));
            }
        }
        let select =
            format!("{COLUMNS} WHERE {} ORDER BY id DESC LIMIT ?1", conditions.join(" AND "));
        self.query(|sql| sql.all(&select, &values, from_row))
    }

    /// Verifies up to `limit` entries of the chain, from the end of the previous verification or
    /// from the start.
    ///
    /// # Errors
    /// Database errors.
    pub fn verify(&self, from: Option<(i64, [u8; 32])>, limit: usize) -> Result<AuditVerification> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (mut id, mut hash) = from.unwrap_or((0, START));
        let mut broken = None;
        let select = format!("{COLUMNS} WHERE id > ?1 ORDER BY id LIMIT ?2");
        let found = self.query(|sql| sql.all(&select, values![id, limit], from_row))?;
        for record in found {
            // After retention, the chain begins with the entry that retention named.
            if id == 0 && record.id > 1 && self.is_retention_start(&record)? {
                (id, hash) = (record.id, record.hash);
                continue;
            }
            if record.id != id + 1 {
                broken = Some((id + 1, "the entry is missing"));
                break;
            }
            if record.entry.chain_hash(&hash, record.id) != record.hash {
                broken = Some((record.id, "the entry was changed after it was written"));
                break;
            }
            (id, hash) = (record.id, record.hash);
        }
        Ok(match broken {
            Some((id, reason)) => AuditVerification::Broken { id, reason },
            None => AuditVerification::Good { id, hash },
        })
    }
}
