//! Parameters and facts: values, their expiry, and the compiles that a change causes.

use std::time::Duration;

use orrery_model::{CompileId, Timestamp};
use orrery_store::{
    CompileRequest, EnvironmentKey, EnvironmentRecord, NewCompileRecord, NewParameter,
    OnParameterChanged, ParameterEffect, ParameterSource, ParameterWrite, Store, StoreError,
    StoredParameter,
};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::error::ServerError;
use crate::services::Services;

use super::environments::check_not_deleting;

/// Validity of a fact that expires.
pub const FACT_EXPIRY: Duration = Duration::from_secs(3600);
/// Age at which a fact is refreshed before it expires.
pub(crate) const FACT_RENEWAL: Duration = Duration::from_secs(FACT_EXPIRY.as_secs() / 3);
/// Minimum interval between fact refreshes of a resource.
pub(crate) const FACTS_PAUSE: Duration = Duration::from_secs(60);

/// Maximum number of characters of a name.
const NAME_MAX: usize = 1024;

/// Name of a parameter, or of a fact of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterName {
    pub name: String,
    /// Resource of a fact; `None` for a parameter.
    pub resource: Option<String>,
}

/// A value to set.
#[derive(Clone, Debug)]
pub struct ParameterDraft {
    pub name: ParameterName,
    pub value: String,
    /// Default: `Fact` for facts, `User` for parameters.
    pub source: Option<ParameterSource>,
    /// Default: facts expire. Parameters never do.
    pub expires: Option<bool>,
    /// `None` keeps the present metadata.
    pub metadata: Option<Map<String, Value>>,
    /// Requests a compile if the value is new or changed. A value that resolves an unknown always
    /// does.
    pub recompile: bool,
    /// The compile to request.
    pub compile: CompileRequest,
}

/// A value that was set, with its effects.
#[derive(Clone, Debug)]
pub struct ParameterChange {
    pub parameter: StoredParameter,
    pub effect: ParameterEffect,
    /// The requested compile.
    pub compile: Option<CompileId>,
}

/// True if a fact is too old to be used.
pub(crate) fn is_expired(parameter: &StoredParameter, now: Timestamp) -> bool {
    parameter.expires && parameter.updated + FACT_EXPIRY < now
}

/// Sets a value, if it has the expected revision, and requests the resulting compile in the same
/// transaction. The update time serves as the revision: each update has a later one.
pub async fn set(
    services: &Services,
    environment: &EnvironmentRecord,
    draft: ParameterDraft,
    expected: Option<i64>,
) -> Result<ParameterChange, ServerError> {
    check_not_deleting(environment)?;
    let ParameterName { name, resource } = draft.name;
    check_name(&name)?;
    let is_fact = resource.is_some();
    if !is_fact && draft.expires == Some(true) {
        return Err(ServerError::rule("parameter-expires", "parameters do not expire, facts do"));
    }
    let default = if is_fact { ParameterSource::Fact } else { ParameterSource::User };
    let source = draft.source.unwrap_or(default);
    let expires = draft.expires.unwrap_or(is_fact);
    let (key, now, id) = (environment.key, services.now(), Uuid::new_v4().into());
    let set = move |store: &Store| {
        let new = NewParameter {
            metadata: draft.metadata.as_ref(),
            name: &name,
            value: &draft.value,
            resource: resource.as_deref(),
            source,
            expires,
        };
        let then = OnParameterChanged::EnqueueCompile {
            compile: NewCompileRecord { id, request: &draft.compile },
            if_changed: draft.recompile,
        };
        let ParameterWrite { effect, has_requested_compile } =
            store.parameters().put_if(key, &new, expected, now, then)?;
        let parameter = store.parameters().get(key, &name, resource.as_deref())?;
        let compile = has_requested_compile.then_some(id);
        Ok(ParameterChange { parameter, effect, compile })
    };
    Ok(services.change(set).await?)
}

/// Deletes a value, if it has the expected revision, and requests a compile.
pub async fn delete(
    services: &Services,
    environment: &EnvironmentRecord,
    name: ParameterName,
    expected: Option<i64>,
    compile: CompileRequest,
) -> Result<(), ServerError> {
    check_not_deleting(environment)?;
    let (key, now, id) = (environment.key, services.now(), Uuid::new_v4().into());
    let delete = move |store: &Store| {
        let then = OnParameterChanged::EnqueueCompile {
            compile: NewCompileRecord { id, request: &compile },
            if_changed: true,
        };
        let name = (&*name.name, name.resource.as_deref());
        store.parameters().delete_if(key, name, expected, now, then)
    };
    Ok(services.change(delete).await?)
}

/// Returns a value. If a fact is missing or expired, returns `None` and requests a refresh.
pub async fn get_fresh(
    services: &Services,
    environment: EnvironmentKey,
    name: ParameterName,
) -> Result<Option<StoredParameter>, ServerError> {
    let now = services.now();
    let (found, is_requested) = services
        .with_store(move |store| {
            let ParameterName { name, resource } = &name;
            let found = match store.parameters().get(environment, name, resource.as_deref()) {
                Ok(found) => Some(found).filter(|found| !is_expired(found, now)),
                Err(StoreError::NotFound { .. }) => None,
                Err(error) => return Err(error),
            };
            let stale = resource.as_deref().filter(|_| found.is_none());
            if let Some(resource) = stale {
                store.parameters().request_facts(environment, resource, FACTS_PAUSE, now)?;
            }
            Ok((found, stale.is_some()))
        })
        .await?;
    if is_requested {
        services.wake_up();
    }
    Ok(found)
}

/// Requests a refresh of the facts of a resource, unless there was one within the last minute.
pub(crate) async fn refresh_facts(
    services: &Services,
    environment: &EnvironmentRecord,
    resource: String,
) -> Result<(), ServerError> {
    check_not_deleting(environment)?;
    let (key, now) = (environment.key, services.now());
    services
        .change(move |store| store.parameters().request_facts(key, &resource, FACTS_PAUSE, now))
        .await?;
    Ok(())
}

fn check_name(name: &str) -> Result<(), ServerError> {
    if name.is_empty() || name.chars().count() > NAME_MAX {
        return Err(ServerError::field("name", format!("must have 1 to {NAME_MAX} characters")));
    }
    Ok(())
}
