//! Releasing versions.

use orrery_model::{Timestamp, VersionNumber};

use super::environments::lock_environment;
use super::read::find_version;
use super::transaction::Tx;
use crate::encoding::version_number_from;
use crate::records::insert_request;
use crate::sql::Row as _;
use crate::{EnvironmentKey, NewRequest, RequestRecord, Result, StoreError};

pub(super) fn release_version(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    number: VersionNumber,
    now: Timestamp,
) -> Result<()> {
    lock_environment(tx, environment)?;
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
        "UPDATE version SET released = 1, released_at = $3 WHERE environment = $1 AND number = $2",
        &[&environment.0, &i64::from(number.0), &now.0],
    )?;
    tx.record_change(environment, "version", &number.to_string());
    Ok(())
}

pub(super) fn release_with_request(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    number: VersionNumber,
    request: &NewRequest<'_>,
    now: Timestamp,
) -> Result<RequestRecord> {
    match release_version(tx, environment, number, now) {
        Ok(()) | Err(StoreError::AlreadyReleased(_)) => {}
        Err(error) => return Err(error),
    }
    insert_request(tx, environment, request, now)
}

pub(super) fn newest_released(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
) -> Result<Option<VersionNumber>> {
    let sql = "SELECT max(number) FROM version WHERE environment = $1 AND released = 1";
    tx.query_one(sql, &[&environment.0])?.integer(0)?.map(version_number_from).transpose()
}
