//! New and ended revisions: their rows, and a second connection that copies them.
//!
//! A revision means nothing until a resource points to it, nor does its end until there is a
//! version of that step. So a large put copies both on a second connection while the first one
//! writes the rest of the version, and commits them just before it. They are recorded in the table
//! `unclaimed`, in the same transaction; the transaction of the version deletes that entry. An
//! entry that a later put of the environment finds was left by a put that failed between the two
//! commits.

use orrery_base::thread::run_both;
use orrery_model::Resource;
use postgres::types::Type;
use rustc_hash::FxHashMap;

use super::connection::Connection;
use super::copy::{CopyError, CopyRows};
use super::pool::{Pool, PooledConnection};
use super::transaction::Tx;
use crate::encoding::flags_code;
use crate::{EnvironmentKey, Result};

/// Numbers of revisions for which a second connection pays. Below, it would cost more than it
/// spares; above, one of the two might wait for the other longer than a transaction may be idle.
/// Debug builds, and so the tests, use it for small versions too.
const PARALLEL: std::ops::Range<usize> = if cfg!(debug_assertions) { 3 } else { 1_000 }..200_000;

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = off";

const ENDED_COLUMNS: &str = "ended (environment, until, revision, resource)";
const ENDED_TYPES: [Type; 4] = [Type::INT8, Type::INT8, Type::INT8, Type::INT8];

const COLUMNS: &str = "revision (id, environment, resource, since, resource_set, flags, hash, \
     attributes, requires)";
const TYPES: [Type; 9] = [
    Type::INT8,
    Type::INT8,
    Type::INT8,
    Type::INT8,
    Type::INT8,
    Type::INT8,
    Type::BYTEA,
    Type::TEXT,
    Type::BYTEA,
];

/// The number of a resource's set; the shared one is 0.
pub(super) fn set_of(resource: &Resource, sets: &FxHashMap<String, i64>) -> Option<i64> {
    resource.set.as_deref().map_or(Some(0), |set| sets.get(set).copied())
}

/// Revisions to be written, with consecutive numbers, and those that end.
pub(super) struct NewRevisions<'a> {
    pub(super) environment: EnvironmentKey,
    pub(super) step: i64,
    /// Number of the first one.
    pub(super) first: i64,
    pub(super) resources: &'a [Resource],
    /// Indexes of the resources.
    pub(super) indexes: &'a [usize],
    /// Keys of all resources.
    pub(super) keys: &'a [i64],
    pub(super) sets: &'a FxHashMap<String, i64>,
    /// Packed keys of the requirements, by revision.
    pub(super) requires: &'a [Option<Vec<u8>>],
    /// Revisions that this step ends, each with its resource.
    pub(super) ended: &'a [(i64, i64)],
}

impl NewRevisions<'_> {
    /// Writes the revisions in the transaction of the version.
    fn copy(&self, tx: &mut Tx<'_>) -> Result<()> {
        if !self.ended.is_empty() {
            tx.copy(ENDED_COLUMNS, &ENDED_TYPES, |rows| self.write_ended(rows))?;
        }
        tx.copy(COLUMNS, &TYPES, |rows| self.write_rows(rows))
    }

    fn write_ended(&self, rows: &mut CopyRows<'_>) -> std::result::Result<(), CopyError> {
        for (revision, resource) in self.ended {
            rows.write(&[&self.environment.0, &self.step, revision, resource])?;
        }
        Ok(())
    }

    fn write_rows(&self, rows: &mut CopyRows<'_>) -> std::result::Result<(), CopyError> {
        for ((revision, index), requires) in (self.first..).zip(self.indexes).zip(self.requires) {
            let resource = &self.resources[*index];
            rows.write(&[
                &revision,
                &self.environment.0,
                &self.keys[*index],
                &self.step,
                &set_of(resource, self.sets),
                &flags_code(resource.flags),
                &&resource.hash.0[..],
                &resource.attributes.as_str(),
                requires,
            ])?;
        }
        Ok(())
    }

    fn end(&self) -> i64 {
        self.first + i64::try_from(self.indexes.len()).unwrap_or(i64::MAX)
    }

    /// Writes the revisions while `rest` writes other tables: on a second connection if that pays
    /// and there is one, otherwise after it.
    pub(super) fn copy_beside<'p>(
        &self,
        tx: &mut Tx<'_>,
        pool: &'p Pool,
        rest: impl FnOnce(&mut Tx<'_>) -> Result<()>,
    ) -> Result<Option<UnclaimedRevisions<'p>>> {
        if !PARALLEL.contains(&self.indexes.len()) {
            self.copy(tx)?;
            rest(tx)?;
            return Ok(None);
        }
        let (rest, copied) = run_both("revisions", || rest(tx), || self.copy_on_another(pool));
        rest?;
        if copied.is_none() {
            self.copy(tx)?;
        }
        Ok(copied)
    }

    /// Writes the revisions on another connection, and leaves its transaction open. Returns `None`
    /// if there is no connection, or it fails.
    fn copy_on_another<'p>(&self, pool: &'p Pool) -> Option<UnclaimedRevisions<'p>> {
        let mut connection = pool.try_acquire()?;
        connection.batch(BEGIN).ok()?;
        connection.in_transaction = true;
        let copied = self.copy_unclaimed(&mut connection);
        let (environment, step) = (self.environment, self.step);
        let unclaimed = UnclaimedRevisions { connection, environment, step };
        if copied.is_err() {
            // An error of the rows themselves occurs again in the transaction of the version.
            unclaimed.roll_back();
            return None;
        }
        Some(unclaimed)
    }

    fn copy_unclaimed(&self, connection: &mut Connection) -> Result<()> {
        connection.execute(
            "INSERT INTO unclaimed (environment, step, first_revision, end_revision) \
             VALUES ($1, $2, $3, $4)",
            &[&self.environment.0, &self.step, &self.first, &self.end()],
        )?;
        connection.copy(COLUMNS, &TYPES, |rows| self.write_rows(rows))?;
        if self.ended.is_empty() {
            return Ok(());
        }
        connection.copy(ENDED_COLUMNS, &ENDED_TYPES, |rows| self.write_ended(rows))
    }
}

/// Revisions in the open transaction of a second connection. Dropping it ends that connection.
pub(super) struct UnclaimedRevisions<'p> {
    connection: PooledConnection<'p>,
    environment: EnvironmentKey,
    step: i64,
}

impl UnclaimedRevisions<'_> {
    /// Commits the revisions, and makes them part of the version with its transaction.
    pub(super) fn claim(mut self, tx: &mut Tx<'_>) -> Result<()> {
        // Not synced: the commit of the version is, and the database writes both to one log.
        self.connection.batch("COMMIT")?;
        self.connection.in_transaction = false;
        let sql = "DELETE FROM unclaimed WHERE environment = $1 AND step = $2";
        tx.execute(sql, &[&self.environment.0, &self.step])?;
        Ok(())
    }

    fn roll_back(mut self) {
        if self.connection.batch("ROLLBACK").is_ok() {
            self.connection.in_transaction = false;
        }
    }
}

/// Deletes what a failed put left behind. The environment must be locked: the entry of a
/// put in progress is not visible then.
pub(super) fn delete_unclaimed(tx: &mut Tx<'_>, environment: EnvironmentKey) -> Result<()> {
    tx.execute(
        "WITH failed AS (DELETE FROM unclaimed WHERE environment = $1 \
         RETURNING step, first_revision, end_revision), \
         open AS (DELETE FROM ended USING failed WHERE ended.environment = $1 \
         AND ended.until = failed.step) \
         DELETE FROM revision USING failed \
         WHERE revision.id >= failed.first_revision AND revision.id < failed.end_revision",
        &[&environment.0],
    )?;
    Ok(())
}
