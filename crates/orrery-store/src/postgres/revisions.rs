//! New and ended revisions: their rows, and a second connection that copies them.
//!
//! A revision means nothing until a resource points to it, nor does its end until there is a
//! version of that step. So a large put copies both on a second connection while the first one
//! writes the rest of the version. The second one commits part by part, without waiting for the
//! disk: each commit makes the database write its log in the background, of which the commit of the
//! version would otherwise have to write and sync all.
//!
//! The first part records all of them in the table `unclaimed`; the transaction of the version
//! deletes that entry. A put that fails deletes what it copied. If its process ends before that,
//! the next put or deletion in the environment finds the entry, and does so.

use std::ops::Range;

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
const PARALLEL: Range<usize> = if cfg!(debug_assertions) { 3 } else { 1_000 }..200_000;

/// Revisions per commit of the second connection: about a megabyte of the database's log, from which
/// on the database writes and syncs it in the background. Debug builds use several parts for small
/// versions too.
const PART: usize = if cfg!(debug_assertions) { 4 } else { 2_000 };

/// Not synced: the commit of the version is, and the database writes both to one log.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = off";

/// A single request, so that a part costs one round trip.
const NEXT: &str =
    "COMMIT; BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = off";

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
            tx.copy(ENDED_COLUMNS, &ENDED_TYPES, |rows| self.write_ended(rows, self.ended))?;
        }
        tx.copy(COLUMNS, &TYPES, |rows| self.write_rows(rows, 0..self.indexes.len()))
    }

    fn write_ended(
        &self,
        rows: &mut CopyRows<'_>,
        ended: &[(i64, i64)],
    ) -> std::result::Result<(), CopyError> {
        for (revision, resource) in ended {
            rows.write(&[&self.environment.0, &self.step, revision, resource])?;
        }
        Ok(())
    }

    /// Writes the rows of a range of positions.
    fn write_rows(
        &self,
        rows: &mut CopyRows<'_>,
        part: Range<usize>,
    ) -> std::result::Result<(), CopyError> {
        let positions = part.clone().zip(&self.indexes[part.clone()]).zip(&self.requires[part]);
        for ((position, index), requires) in positions {
            let resource = &self.resources[*index];
            rows.write(&[
                &self.number(position),
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

    /// Number of the revision at a position.
    fn number(&self, position: usize) -> i64 {
        self.first + i64::try_from(position).unwrap_or(i64::MAX)
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
            // Parts may have been committed.
            delete_unclaimed(tx, self.environment)?;
            self.copy(tx)?;
        }
        Ok(copied)
    }

    /// Writes and commits the revisions on another connection. Returns `None` if there is no
    /// connection, or it fails. An error of the rows themselves occurs again in the transaction of
    /// the version.
    fn copy_on_another<'p>(&self, pool: &'p Pool) -> Option<UnclaimedRevisions<'p>> {
        let mut connection = pool.try_acquire()?;
        connection.batch(BEGIN).ok()?;
        connection.in_transaction = true;
        let copied = self.copy_unclaimed(&mut connection).and_then(|()| connection.batch("COMMIT"));
        if copied.is_ok() || connection.batch("ROLLBACK").is_ok() {
            connection.in_transaction = false;
        }
        copied.ok()?;
        let (environment, step) = (self.environment, self.step);
        let numbers = self.first..self.number(self.indexes.len());
        Some(UnclaimedRevisions { connection, environment, step, numbers, is_claimed: false })
    }

    fn copy_unclaimed(&self, connection: &mut Connection) -> Result<()> {
        let count = self.indexes.len();
        connection.execute(
            "INSERT INTO unclaimed (environment, step, first_revision, end_revision) \
             VALUES ($1, $2, $3, $4)",
            &[&self.environment.0, &self.step, &self.first, &self.number(count)],
        )?;
        for begin in (0..count).step_by(PART) {
            if begin > 0 {
                connection.batch(NEXT)?;
            }
            let part = begin..count.min(begin + PART);
            connection.copy(COLUMNS, &TYPES, |rows| self.write_rows(rows, part))?;
        }
        for part in self.ended.chunks(PART) {
            connection.batch(NEXT)?;
            connection.copy(ENDED_COLUMNS, &ENDED_TYPES, |rows| self.write_ended(rows, part))?;
        }
        Ok(())
    }
}

/// Revisions that a second connection has committed, and that belong to no version yet. Dropping
/// them deletes them.
pub(super) struct UnclaimedRevisions<'p> {
    connection: PooledConnection<'p>,
    environment: EnvironmentKey,
    step: i64,
    numbers: Range<i64>,
    is_claimed: bool,
}

impl UnclaimedRevisions<'_> {
    /// Leaves the revisions to the transaction of the version, which has deleted their entry. If it
    /// is not committed, the next put or deletion in the environment deletes them: deleting them
    /// here would wait for the lock of that transaction.
    pub(super) fn claim(mut self) {
        self.is_claimed = true;
    }
}

impl Drop for UnclaimedRevisions<'_> {
    fn drop(&mut self) {
        if self.is_claimed {
            return;
        }
        // Only these: the transaction of the version may hold the locks of older ones. If this
        // fails, the next put or deletion in the environment does it.
        let sql = "WITH revisions AS (DELETE FROM revision WHERE id >= $3 AND id < $4), \
             ends AS (DELETE FROM ended WHERE environment = $1 AND until = $2) \
             DELETE FROM unclaimed WHERE environment = $1 AND step = $2";
        let Range { start, end } = self.numbers;
        let _ = self.connection.execute(sql, &[&self.environment.0, &self.step, &start, &end]);
    }
}

/// Deletes what a failed put left behind. The environment must be locked, so that no other put is
/// in progress.
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
