//! Versions: their numbers, their list, their release.

use orrery_model::{Timestamp, VersionNumber};

use crate::encoding::version_number_from;
use crate::records::environments::lock_environment;
use crate::records::requests::insert_request;
use crate::records::{Transactions as _, Versions};
use crate::rows::{VERSION_COLUMNS, version_from};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{
    EnvironmentKey, NewChange, NewRequest, RequestRecord, Result, StoreError, VersionInfo, values,
};

/// A version and its step.
pub(super) fn find_version(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    number: VersionNumber,
) -> Result<(VersionInfo, i64)> {
    let select =
        format!("SELECT {VERSION_COLUMNS} FROM version WHERE environment = ?1 AND number = ?2");
    let values = values![environment.0, i64::from(number.0)];
    let found = sql.first(&select, values, |row| version_from(row))?;
    found.ok_or(StoreError::NoVersion(number))
}

/// Versions by ascending number, each with its step.
pub(super) fn all_versions(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
) -> Result<Vec<(VersionInfo, i64)>> {
    let select =
        format!("SELECT {VERSION_COLUMNS} FROM version WHERE environment = ?1 ORDER BY number");
    sql.all(&select, values![environment.0], |row| version_from(row))
}

pub(super) fn newest_released(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
) -> Result<Option<VersionNumber>> {
    let select = "SELECT max(number) FROM version WHERE environment = ?1 AND released = 1";
    let newest = sql.first(select, values![environment.0], |row: &dyn Row| row.integer(0))?;
    newest.flatten().map(version_number_from).transpose()
}

/// Adds to the change feed, with the time of the database.
pub(super) fn record_version_change(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    subject: &str,
) -> Result<()> {
    let environment = Some(environment);
    sql.record_change(&NewChange { environment, kind: "version", subject, at: None })
}

/// Reserves the next number of an environment.
pub(crate) fn reserve_version(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
) -> Result<VersionNumber> {
    let update = "UPDATE environment SET last_version = last_version + 1 WHERE id = ?1 \
         RETURNING last_version";
    let number =
        sql.first(update, values![environment.0], |row| version_number_from(row.int(0)?))?;
    number.ok_or_else(|| StoreError::NoEnvironment(format!("number {}", environment.0)))
}

/// Releases a version. Writers of an environment's versions wait for one another: a release that
/// were repeated after a conflict would have to compete with puts, which take long.
fn release(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    number: VersionNumber,
    now: Timestamp,
) -> Result<()> {
    lock_environment(sql, environment)?;
    let (version, _) = find_version(sql, environment, number)?;
    if version.released {
        return Err(StoreError::AlreadyReleased(number));
    }
    if let Some(newest) = newest_released(sql, environment)?
        && newest > number
    {
        return Err(StoreError::Superseded { number, newest });
    }
    let update = "UPDATE version SET released = 1, released_at = ?3 \
         WHERE environment = ?1 AND number = ?2";
    sql.run(update, values![environment.0, i64::from(number.0), now])?;
    record_version_change(sql, environment, &number.to_string())
}

impl Versions<'_> {
    /// Reserves the next version number. Gaps are normal, so a repeated request may reserve another.
    ///
    /// # Errors
    /// `NoEnvironment`.
    pub fn reserve(&self, environment: EnvironmentKey) -> Result<VersionNumber> {
        self.transact_unmarked(|sql| reserve_version(sql, environment))
    }

    /// Makes a version the desired state.
    ///
    /// # Errors
    /// `NoVersion`, `AlreadyReleased`; `Superseded` if a newer version is released.
    pub fn release(
        &self,
        environment: EnvironmentKey,
        number: VersionNumber,
        now: Timestamp,
    ) -> Result<()> {
        self.transact_locked(|sql| release(sql, environment, number, now))
    }

    /// Releases a version, if it is not released yet, and adds a request to its engine, in one
    /// transaction: a reader sees both or neither.
    ///
    /// # Errors
    /// `NoVersion`; `Superseded` if a newer version is released.
    pub fn release_with_request(
        &self,
        environment: EnvironmentKey,
        number: VersionNumber,
        request: &NewRequest<'_>,
        now: Timestamp,
    ) -> Result<RequestRecord> {
        self.transact_locked(|sql| {
            match release(sql, environment, number, now) {
                Ok(()) | Err(StoreError::AlreadyReleased(_)) => {}
                Err(error) => return Err(error),
            }
            insert_request(sql, environment, request, now)
        })
    }

    /// Versions by ascending number.
    ///
    /// # Errors
    /// Database errors.
    pub fn list(&self, environment: EnvironmentKey) -> Result<Vec<VersionInfo>> {
        let versions = self.query(|sql| all_versions(sql, environment))?;
        Ok(versions.into_iter().map(|(version, _)| version).collect())
    }
}
