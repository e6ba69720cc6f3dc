//! Versions: their status, pushes, release, roll-back and deletion. `crate::versions` stores them.

use std::collections::BTreeSet;

use orrery_api::{ReleaseRequest, VersionStatus, VersionUpload};
use orrery_compile_service::mask_password;
use orrery_handlers::Unmanaged;
use orrery_model::{Timestamp, VersionNumber};
use orrery_store::{
    EnvironmentKey, EnvironmentRecord, RemovalScope, RequestRecord, Store, StoreError, VersionInfo,
};

use super::environments::{check_not_deleting, check_not_of_cluster, protected};
use crate::auth::Caller;
use crate::contents::VersionAuthor;
use crate::error::ServerError;
use crate::services::Services;
use crate::settings::EnvironmentSettings;
use crate::versions::{self, ReleaseOperation, StoredVersion};

/// A version with its status.
#[derive(Clone, Debug)]
pub struct VersionState {
    pub info: VersionInfo,
    pub status: VersionStatus,
    /// True if no version with this or a higher number is released.
    pub is_ahead: bool,
}

impl VersionState {
    /// Actions that the version allows: `dry-runs`, `release`, `roll-back`.
    pub(crate) fn actions(
        &self,
        environment: &EnvironmentRecord,
    ) -> impl Iterator<Item = &'static str> + use<> {
        let is_alive = !environment.deleting;
        let offers = [
            ("dry-runs", is_alive && !environment.halted),
            ("release", is_alive && !self.info.released && self.is_ahead),
            ("roll-back", is_alive && self.status != VersionStatus::Active),
        ];
        offers.into_iter().filter(|(_, is_offered)| *is_offered).map(|(name, _)| name)
    }
}

/// Conditions on versions. All given ones must hold.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VersionFilter {
    pub(crate) status: Option<VersionStatus>,
    pub(crate) released: Option<bool>,
    /// Only versions with a lower number.
    pub(crate) before: Option<VersionNumber>,
}

/// A stored version, and the state that it leads to.
pub(crate) struct PushedVersion {
    pub(crate) stored: StoredVersion,
    pub(crate) state: VersionState,
    /// Resources that no version manages any more.
    pub(crate) unmanaged: Unmanaged,
}

/// Returns the status of a version, given the one that the engine has accepted.
pub fn status(version: &VersionInfo, processed: Option<VersionNumber>) -> VersionStatus {
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

/// Lists versions, newest first.
pub(crate) fn list(
    store: &Store,
    environment: EnvironmentKey,
    filter: VersionFilter,
    limit: usize,
) -> Result<Vec<VersionState>, StoreError> {
    let processed = store.engine().processed_version(environment)?;
    let versions = store.versions().list(environment)?;
    let released = versions.iter().filter(|version| version.released);
    let newest_released = released.map(|version| version.number).max();
    let states = versions.into_iter().rev().map(|info| VersionState {
        status: status(&info, processed),
        is_ahead: newest_released.is_none_or(|newest| info.number > newest),
        info,
    });
    let wanted = states.filter(|state| {
        filter.before.is_none_or(|before| state.info.number < before)
            && filter.released.is_none_or(|released| state.info.released == released)
            && filter.status.is_none_or(|wanted| state.status == wanted)
    });
    Ok(wanted.take(limit).collect())
}

/// Returns a version with its status.
pub(crate) fn get(
    store: &Store,
    environment: EnvironmentKey,
    number: VersionNumber,
) -> Result<VersionState, StoreError> {
    let all = list(store, environment, VersionFilter::default(), usize::MAX)?;
    all.into_iter().find(|state| state.info.number == number).ok_or(StoreError::NoVersion(number))
}

/// Stores a pushed version. Releases it if the upload or the environment's `auto_deploy` requires it.
pub(crate) async fn push(
    services: &Services,
    caller: &Caller,
    environment: EnvironmentRecord,
    upload: VersionUpload,
) -> Result<PushedVersion, ServerError> {
    check_not_deleting(&environment)?;
    let (caller, now) = (caller.clone(), services.now());
    let push = move |store: &Store| {
        let stored = store_pushed(store, &caller, &environment, upload, now, |_, _, _| Ok(None))?;
        describe(store, environment.key, stored)
    };
    services.try_change(push).await
}

/// Stores a pushed version with code that `bundle` generates from the upload. It returns the hash of
/// the code, if there is any.
pub async fn push_with_code<B>(
    services: &Services,
    caller: &Caller,
    environment: EnvironmentRecord,
    upload: VersionUpload,
    bundle: B,
) -> Result<StoredVersion, ServerError>
where
    B: FnOnce(&Store, &VersionAuthor, &mut VersionUpload) -> Result<Option<String>, ServerError>,
    B: Send + 'static,
{
    check_not_deleting(&environment)?;
    let (caller, now) = (caller.clone(), services.now());
    let push = move |store: &Store| store_pushed(store, &caller, &environment, upload, now, bundle);
    services.try_change(push).await
}

/// Stores a pushed version with generated code, if there is any.
pub(super) fn store_pushed(
    store: &Store,
    caller: &Caller,
    environment: &EnvironmentRecord,
    mut upload: VersionUpload,
    now: Timestamp,
    bundle: impl FnOnce(
        &Store,
        &VersionAuthor,
        &mut VersionUpload,
    ) -> Result<Option<String>, ServerError>,
) -> Result<StoredVersion, ServerError> {
    check_push(store, environment)?;
    let mut author = VersionAuthor::for_caller(store, caller)?;
    if let Some(code) = bundle(store, &author, &mut upload)? {
        upload.code = Some(code.clone());
        author.generated_code = Some(code);
    }
    let key = environment.key;
    let settings = EnvironmentSettings::from_records(&store.settings().list(key)?);
    if upload.prune
        && settings.protected_environment
        && (upload.include_adopted || versions::replaces_everything(store, key, &upload)?)
    {
        return Err(protected());
    }
    versions::store_upload(store, key, &author, upload, settings.auto_deploy, now)
}

/// Stores the content of an old version as a new one, and releases it with the requested operation.
pub(crate) async fn roll_back(
    services: &Services,
    environment: &EnvironmentRecord,
    number: VersionNumber,
    request: ReleaseRequest,
) -> Result<PushedVersion, ServerError> {
    let operation = release_operation(environment, request)?;
    check_not_deleting(environment)?;
    check_not_of_cluster(environment)?;
    let (key, now) = (environment.key, services.now());
    let roll_back = move |store: &Store| {
        let stored = versions::roll_back(store, key, number, operation, now)?;
        describe(store, key, stored)
    };
    services.try_change(roll_back).await
}

fn describe(
    store: &Store,
    environment: EnvironmentKey,
    stored: StoredVersion,
) -> Result<PushedVersion, ServerError> {
    let state = get(store, environment, stored.put.number)?;
    let unmanaged = unmanaged(store, environment, stored.put.number)?;
    Ok(PushedVersion { stored, state, unmanaged })
}

/// Returns the unmanaged resources after a version was stored. Until it is released, the previous
/// one still manages its resources.
fn unmanaged(
    store: &Store,
    environment: EnvironmentKey,
    stored: VersionNumber,
) -> Result<Unmanaged, StoreError> {
    let mut found = store.resources().unmanaged(environment, RemovalScope::Unmanaged)?;
    if found.is_empty() {
        return Ok(Unmanaged::default());
    }
    let versions = store.versions().list(environment)?;
    let released = versions.iter().rev().find(|version| version.released);
    if let Some(released) = released.filter(|one| one.number != stored) {
        let mut managed = BTreeSet::new();
        store.versions().read(environment, released.number, &mut |row| {
            managed.insert(row.id.to_owned());
        })?;
        found.retain(|remnant| !managed.contains(remnant.resource.id.as_str()));
    }
    versions::unmanaged(store, environment, &found)
}

/// Releases a version: makes it the desired state. With a requested operation, creates that
/// operation in the same step; the version may be released already.
pub async fn release(
    services: &Services,
    environment: &EnvironmentRecord,
    number: VersionNumber,
    request: ReleaseRequest,
) -> Result<(VersionState, Option<RequestRecord>), ServerError> {
    check_not_deleting(environment)?;
    let operation = release_operation(environment, request)?;
    let (key, now) = (environment.key, services.now());
    let release = move |store: &Store| {
        let asked = versions::release(store, key, number, operation, now)?;
        Ok((get(store, key, number)?, asked))
    };
    Ok(services.change(release).await?)
}

/// Deletes a version that is not in use.
pub async fn delete(
    services: &Services,
    environment: EnvironmentKey,
    number: VersionNumber,
) -> Result<(), ServerError> {
    Ok(services.change(move |store| store.versions().delete(environment, number)).await?)
}

/// Returns the operation to create with a release. Refused in a halted environment, which would never
/// execute it.
fn release_operation(
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
pub async fn reserve(
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

/// Refuses a pushed version if the environment follows a repository or belongs to a cluster.
fn check_push(store: &Store, environment: &EnvironmentRecord) -> Result<(), ServerError> {
    check_not_of_cluster(environment)?;
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
