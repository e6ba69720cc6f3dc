//! Versions: their status, and rules for pushed ones. `crate::versions` stores them.

use orrery_api::{ReleaseRequest, VersionStatus, VersionUpload};
use orrery_model::{Timestamp, VersionNumber};
use orrery_store::{EnvironmentRecord, Store, VersionInfo};

use crate::auth::Caller;
use crate::compile_service::mask_password;
use crate::contents::VersionAuthor;
use crate::error::ServerError;
use crate::services::Services;
use crate::settings::EnvironmentSettings;
use crate::versions::{self, ReleaseOperation, StoredVersion};

use super::environments::{check_not_deleting, protected};

/// Returns the status of a version, given the one that the engine has accepted.
pub(crate) fn status(version: &VersionInfo, processed: Option<VersionNumber>) -> VersionStatus {
    match processed {
        Some(processed) if processed == version.number => VersionStatus::Active,
        Some(processed) if processed > version.number => {
            if version.released {
                VersionStatus::Retired
            } else {
                VersionStatus::SkippedCandidate
            }
        }
        _ => VersionStatus::Candidate,
    }
}

/// Stores a pushed version. Releases it if the upload or the environment's `auto_deploy` requires it.
pub(crate) fn push(
    store: &Store,
    caller: &Caller,
    environment: &EnvironmentRecord,
    upload: VersionUpload,
    now: Timestamp,
) -> Result<StoredVersion, ServerError> {
    check_push(store, environment)?;
    let author = VersionAuthor::for_caller(store, caller)?;
    let settings = store.settings().list(environment.key)?;
    let settings = EnvironmentSettings::from_records(&settings);
    if upload.prune
        && settings.protected_environment
        && (upload.include_adopted
            || versions::replaces_everything(store, environment.key, &upload)?)
    {
        return Err(protected());
    }
    versions::store_upload(store, environment.key, &author, upload, settings.auto_deploy, now)
}

/// Returns the operation to create with a release. Refused in a halted environment, which would never
/// execute it.
pub(crate) fn release_operation(
    environment: &EnvironmentRecord,
    request: ReleaseRequest,
) -> Result<Option<ReleaseOperation>, ServerError> {
    let operation = match request {
        ReleaseRequest { verify: true, .. } => ReleaseOperation::Verify,
        ReleaseRequest { deploy: true, .. } => ReleaseOperation::Deploy,
        _ => return Ok(None),
    };
    if environment.halted {
        return Err(ServerError::Conflict("the environment is halted: resume it first".to_owned()));
    }
    Ok(Some(operation))
}

/// Reserves a number for a later version.
pub(crate) async fn reserve(
    services: &Services,
    environment: EnvironmentRecord,
) -> Result<VersionNumber, ServerError> {
    check_not_deleting(&environment)?;
    let reserve = move |store: &Store| {
        check_push(store, &environment)?;
        Ok(store.versions().reserve(environment.key)?)
    };
    services.try_with_store(reserve).await
}

/// Refuses a pushed version if the environment follows a repository.
pub(crate) fn check_push(
    store: &Store,
    environment: &EnvironmentRecord,
) -> Result<(), ServerError> {
    if environment.repository.is_empty() {
        return Ok(());
    }
    let settings = store.settings().list(environment.key)?;
    if EnvironmentSettings::from_records(&settings).allow_push {
        return Ok(());
    }
    let name = format!("{}/{}", environment.project_name, environment.name);
    let repository = mask_password(&environment.repository);
    let branch = match &*environment.branch {
        "" => String::new(),
        branch => format!(" (branch {branch})"),
    };
    let detail = format!(
        "{name} follows {repository}{branch} and refuses pushed versions: commit to the repository; or an administrator allows \
         pushes with `orrery environment setting set allow_push true`"
    );
    Err(ServerError::rule("follows-repository", detail))
}
