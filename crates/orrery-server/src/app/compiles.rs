//! Compiles on the server: requests and cancellation. `crate::compile_service` runs them.

use orrery_store::{CompileRecord, CompileRequest, EnvironmentRecord, NewCompileRecord, Store};
use uuid::Uuid;

use crate::compile_service::RepositoryError;
use crate::error::ServerError;
use crate::services::Services;
use crate::settings::EnvironmentSettings;

use super::environments::check_not_deleting;

/// Requests a compile. It is queued; equal requests are merged. Returns `None` if the server does not
/// compile for the environment.
pub(crate) async fn request(
    services: &Services,
    environment: &EnvironmentRecord,
    id: Uuid,
    request: CompileRequest,
) -> Result<Option<CompileRecord>, ServerError> {
    check_not_deleting(environment)?;
    let (key, now, id) = (environment.key, services.now(), id.into());
    let added = services.change(move |store| {
        let settings = EnvironmentSettings::from_records(&store.settings().list(key)?);
        if !settings.server_compile {
            return Ok(None);
        }
        store.compiles().add(key, &NewCompileRecord { id, request: &request }, now)?;
        // The id may belong to another environment.
        store.compiles().get(key, id).map(Some)
    });
    Ok(added.await?)
}

/// Fails for an environment without a repository.
pub(crate) fn check_repository(environment: &EnvironmentRecord) -> Result<(), ServerError> {
    if !environment.repository.is_empty() {
        return Ok(());
    }
    let detail = format!("{}: {}", environment.name, RepositoryError::None);
    Err(ServerError::rule("no-repository", detail))
}

/// Cancels a queued or running compile. Refused if it has ended.
pub(crate) async fn cancel(
    services: &Services,
    environment: &EnvironmentRecord,
    id: Uuid,
    by: String,
) -> Result<CompileRecord, ServerError> {
    let (key, now) = (environment.key, services.now());
    let cancel = move |store: &Store| {
        if store.compiles().get(key, id.into())?.completed.is_some() {
            let text = "the compile has ended: there is nothing to cancel";
            return Err(ServerError::Conflict(text.to_owned()));
        }
        Ok(store.compiles().cancel(key, id.into(), &by, now)?)
    };
    services.try_change(cancel).await
}
