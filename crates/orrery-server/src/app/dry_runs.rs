//! Dry runs: predicted changes of a version.

use orrery_model::VersionNumber;
use orrery_store::{DryRunRecord, EnvironmentRecord, RequestRecord};
use uuid::Uuid;

use crate::error::ServerError;
use crate::services::Services;

use super::environments::check_takes_requests;

/// Requests a dry run of a version.
pub(crate) async fn begin(
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
