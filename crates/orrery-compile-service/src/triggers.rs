//! Automatic compiles: after new values, by schedule, or to restore a checkout.

use orrery_model::{CompileId, Timestamp};
use orrery_store::{
    CompileRequest, EnvironmentKey, EnvironmentRecord, NewCompileRecord, Store, StoreError,
};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::workdir::Workdir;

/// Cause of an automatic compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    Parameter,
    Fact,
    Setting,
    Schedule,
    Recovery,
}

impl Trigger {
    /// The request of a compile for this cause.
    pub fn to_request(self) -> CompileRequest {
        let (kind, message) = match self {
            Trigger::Parameter => ("param", "Recompile because of a parameter"),
            Trigger::Fact => ("fact", "Recompile because of a fact"),
            Trigger::Setting => ("setting", "Recompile because of a setting"),
            Trigger::Schedule => ("schedule", "Full recompile by schedule"),
            Trigger::Recovery => ("recovery", "Recompile because the checkout was not up to date"),
        };
        CompileRequest::with_reason(kind, message)
    }

    /// A new compile for this cause.
    pub fn to_compile(self) -> (CompileId, CompileRequest) {
        (Uuid::new_v4().into(), self.to_request())
    }
}

/// Requests a compile after the engine learned facts that a compile had found unknown.
///
/// # Errors
/// Store errors.
pub fn request_for_facts(
    store: &Store,
    environment: EnvironmentKey,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let request = Trigger::Fact.to_request();
    let new = NewCompileRecord { id: Uuid::new_v4().into(), request: &request };
    store.compiles().add_automatic(environment, &new, now)
}

/// Requests a scheduled compile. The id is derived from the due time, so all processes create the
/// same request.
pub(crate) fn request_scheduled(
    store: &Store,
    environment: EnvironmentKey,
    due: Timestamp,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let record = store.environments().by_key(environment)?;
    let mut hash = Sha256::new();
    hash.update(record.uuid.into_bytes());
    hash.update(due.0.to_le_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&hash.finalize()[..16]);
    // The branch may have new commits.
    let request = CompileRequest { update: true, ..Trigger::Schedule.to_request() };
    store.compiles().add_automatic(
        environment,
        &NewCompileRecord { id: CompileId::from_bytes(id), request: &request },
        now,
    )
}

/// Returns the commit of the newest version. `None` if a compile did not create it, or if it is a
/// rollback: then the operator deliberately deploys something other than the latest sources.
pub(crate) fn last_compiled_commit(
    store: &Store,
    environment: EnvironmentKey,
) -> Result<Option<String>, StoreError> {
    let versions = store.versions().list(environment)?;
    let Some(newest) = versions.iter().max_by_key(|version| version.number) else {
        return Ok(None);
    };
    if newest.info.get("compile").is_none() || newest.info.get("rolled_back_to").is_some() {
        return Ok(None);
    }
    // A later compile may have resulted in the same version.
    let later = store.branches().get(environment)?.map(|followed| followed.compiled);
    let later = later.as_deref().filter(|commit| !commit.is_empty());
    let commit = later.or_else(|| newest.info.get("commit").and_then(|commit| commit.as_str()));
    let is_hash = |text: &&str| {
        (40..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    Ok(commit.filter(is_hash).map(str::to_owned))
}

/// Requests a compile if this machine's checkout is not from the environment's last compile. It
/// compiles the same commit again; newer ones are compiled only on request.
pub(crate) fn recover_checkout(
    store: &Store,
    environment: &EnvironmentRecord,
    workdir: &Workdir,
    now: Timestamp,
) -> Result<bool, StoreError> {
    if environment.halted || environment.deleting || environment.repository.is_empty() {
        return Ok(false);
    }
    let Some(last) = store.compiles().last(environment.key)? else { return Ok(false) };
    if workdir.last_compile() == Some(last.serving_compile().uuid()) {
        return Ok(false);
    }
    let is_recovery = |one: &orrery_store::CompileRecord| {
        one.request.metadata.get("type").and_then(|kind| kind.as_str()) == Some("recovery")
    };
    let open = store.compiles().queue(environment.key)?;
    // An interrupted one is repeated, and updates the marker.
    if open.iter().any(|one| is_recovery(one) || one.started.is_some()) {
        return Ok(false);
    }
    if last_compiled_commit(store, environment.key)?.is_none() {
        return Ok(false);
    }
    let request = Trigger::Recovery.to_request();
    let new = NewCompileRecord { id: Uuid::new_v4().into(), request: &request };
    store.compiles().add_automatic(environment.key, &new, now)
}
