//! Dry runs: predicted changes of a version.

use orrery_model::{DryRunId, Timestamp, VersionNumber};
use orrery_store::{
    DryRunRecord, EnvironmentKey, EnvironmentRecord, RequestRecord, Store, StoreError,
};
use uuid::Uuid;

use crate::error::ServerError;
use crate::services::Services;
use crate::versions::version_info;

use super::environments::check_takes_requests;

/// Requests a dry run of a version.
pub async fn begin(
    services: &Services,
    environment: &EnvironmentRecord,
    version: VersionNumber,
) -> Result<(DryRunRecord, RequestRecord), ServerError> {
    check_takes_requests(environment)?;
    let (key, now) = (environment.key, services.now());
    let ids = (Uuid::new_v4().into(), Uuid::new_v4().into());
    let created = services.change(move |store| store.dry_runs().create(key, ids, version, now));
    Ok(created.await?)
}

/// A dry run, and the number of its results by status.
pub(crate) type CountedDryRun = (DryRunRecord, Vec<(String, u64)>);

/// Lists the dry runs of a version, newest first, after a place in the list.
pub(crate) fn list(
    store: &Store,
    environment: EnvironmentKey,
    version: VersionNumber,
    after: Option<(Timestamp, DryRunId)>,
    limit: usize,
) -> Result<Vec<CountedDryRun>, StoreError> {
    version_info(store, environment, version)?;
    let found = store.dry_runs().list_after(environment, version, after, limit)?;
    let counted = found.into_iter().map(|record| {
        let counts = store.dry_runs().counts(record.uuid)?;
        Ok((record, counts))
    });
    counted.collect()
}

/// Returns a dry run of a version.
pub fn get(
    store: &Store,
    environment: EnvironmentKey,
    version: VersionNumber,
    id: DryRunId,
) -> Result<DryRunRecord, StoreError> {
    let record = store.dry_runs().get(environment, id)?;
    if record.version != version {
        return Err(StoreError::NotFound { kind: "dry run", name: id.uuid().to_string() });
    }
    Ok(record)
}
