//! Compiles that follow from something: new values, schedules, a checkout that is not there.

use orrery_model::Timestamp;
use orrery_store::sql::Sql;
use orrery_store::{
    CompileRequest, EnvironmentKey, EnvironmentRecord, NewCompile, ParameterEffect, Records, Store,
    StoreError, enqueue_consequence,
};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::place::Place;

/// What a compile follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    Parameter,
    Fact,
    Setting,
    Schedule,
    Recovery,
}

impl Trigger {
    fn request(self) -> CompileRequest {
        let (kind, message) = match self {
            Trigger::Parameter => ("param", "Recompile because of a parameter"),
            Trigger::Fact => ("fact", "Recompile because of a fact"),
            Trigger::Setting => ("setting", "Recompile because of a setting"),
            Trigger::Schedule => ("schedule", "Full recompile by schedule"),
            Trigger::Recovery => ("recovery", "Recompile because the checkout was not up to date"),
        };
        CompileRequest::because(kind, message)
    }
}

/// Asks for a compile if new values are a reason for one, in the transaction that sets them: if they were unknown to a compile,
/// or if they changed and whoever set them wants that. Answers whether it did.
///
/// # Errors
/// Those of the database.
pub fn request_for_values(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    trigger: Trigger,
    effect: ParameterEffect,
    wanted: bool,
    now: Timestamp,
) -> Result<bool, StoreError> {
    if effect.resolved == 0 && !(wanted && effect.changed > 0) {
        return Ok(false);
    }
    let request = trigger.request();
    let new = NewCompile { id: Uuid::new_v4().into_bytes(), request: &request };
    enqueue_consequence(sql, environment, &new, now)
}

/// Asks for a compile after the engine learned facts that a compile did not know.
///
/// # Errors
/// Those of the database.
pub fn facts_became_known(
    records: Records<'_>,
    environment: EnvironmentKey,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let request = Trigger::Fact.request();
    let new = NewCompile { id: Uuid::new_v4().into_bytes(), request: &request };
    records.add_consequence(environment, &new, now)
}

/// Asks for a compile that is due at a time; whoever else finds the same due asks for the same.
pub(super) fn scheduled(
    store: &dyn Store,
    environment: EnvironmentKey,
    due: Timestamp,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let record = store.records().environment_of(environment)?;
    let mut hash = Sha256::new();
    hash.update(record.uuid);
    hash.update(due.0.to_le_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&hash.finalize()[..16]);
    // The branch may have moved on since the last time.
    let request = CompileRequest { update: true, ..Trigger::Schedule.request() };
    store.records().add_consequence(environment, &NewCompile { id, request: &request }, now)
}

/// The commit that the newest version was made of. `None` if it was not made by a compile, or goes back to an older one: then
/// people have something else in mind than the sources as they were compiled last.
pub(super) fn recorded_commit(
    store: &dyn Store,
    environment: EnvironmentKey,
) -> Result<Option<String>, StoreError> {
    let versions = store.versions(environment)?;
    let Some(newest) = versions.iter().max_by_key(|version| version.number) else {
        return Ok(None);
    };
    if newest.info.get("compile").is_none() || newest.info.get("rolled_back_to").is_some() {
        return Ok(None);
    }
    // A later compile may have led to the same version.
    let later = store.records().followed(environment)?.map(|followed| followed.compiled);
    let later = later.as_deref().filter(|commit| !commit.is_empty());
    let commit = later.or_else(|| newest.info.get("commit").and_then(|commit| commit.as_str()));
    let is_hash = |text: &&str| {
        (40..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    Ok(commit.filter(is_hash).map(str::to_owned))
}

/// Asks for a compile if the checkout on this machine is not where the environment's last compile happened. It compiles the
/// commit that was compiled last: newer ones are for who asks for them.
pub(super) fn recover_checkout(
    store: &dyn Store,
    environment: &EnvironmentRecord,
    place: &Place,
    now: Timestamp,
) -> Result<bool, StoreError> {
    if environment.halted || environment.deleting || environment.repository.is_empty() {
        return Ok(false);
    }
    let Some(last) = store.records().last_compile(environment.key)? else { return Ok(false) };
    if place.last_compile() == Some(Uuid::from_bytes(last.run_by())) {
        return Ok(false);
    }
    let is_recovery = |one: &orrery_store::CompileRecord| {
        one.request.metadata.get("type").and_then(|kind| kind.as_str()) == Some("recovery")
    };
    let open = store.records().compile_queue(environment.key)?;
    // One that was interrupted is done again; it is what the mark is of.
    if open.iter().any(|one| is_recovery(one) || one.started.is_some()) {
        return Ok(false);
    }
    if recorded_commit(store, environment.key)?.is_none() {
        return Ok(false);
    }
    let request = Trigger::Recovery.request();
    let new = NewCompile { id: Uuid::new_v4().into_bytes(), request: &request };
    store.records().add_consequence(environment.key, &new, now)
}
