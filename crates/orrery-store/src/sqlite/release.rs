//! Releasing versions.

use orrery_model::{Timestamp, VersionNumber};
use rusqlite::{Connection, params};

use super::read::find_version;
use super::record_change;
use super::sql::SqliteTransaction;
use crate::records::insert_request;
use crate::{EnvironmentKey, NewRequest, RequestRecord, Result, StoreError};

pub(super) fn release_version(
    tx: &Connection,
    environment: EnvironmentKey,
    number: VersionNumber,
    now: Timestamp,
) -> Result<()> {
    let (version, _) = find_version(tx, environment, number)?;
    if version.released {
        return Err(StoreError::AlreadyReleased(number));
    }
    if let Some(newest) = newest_released(tx, environment)?
        && newest > number
    {
        return Err(StoreError::Superseded { number, newest });
    }
    tx.execute(
        "UPDATE version SET released = 1, released_at = ?3 WHERE environment = ?1 AND number = ?2",
        params![environment.0, number.0, now.0],
    )?;
    record_change(tx, environment, "version", &number.to_string())
}

pub(super) fn release_with_request(
    tx: &Connection,
    environment: EnvironmentKey,
    number: VersionNumber,
    request: &NewRequest<'_>,
    now: Timestamp,
) -> Result<RequestRecord> {
    match release_version(tx, environment, number, now) {
        Ok(()) | Err(StoreError::AlreadyReleased(_)) => {}
        Err(error) => return Err(error),
    }
    insert_request(&mut SqliteTransaction(tx), environment, request, now)
}

pub(super) fn newest_released(
    tx: &Connection,
    environment: EnvironmentKey,
) -> Result<Option<VersionNumber>> {
    let sql = "SELECT max(number) FROM version WHERE environment = ?1 AND released";
    let number: Option<u32> = tx.query_row(sql, [environment.0], |row| row.get(0))?;
    Ok(number.map(VersionNumber))
}
