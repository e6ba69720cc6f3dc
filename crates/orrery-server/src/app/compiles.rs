//! Compiles on the server: requests, states and cancellation. `orrery-compile-service` runs them.

use std::collections::BTreeMap;

use orrery_api::{CompileProblem, CompileState, ProblemCategory};
use orrery_compile_service::RepositoryError;
use orrery_model::CompileId;
use orrery_store::{CompileRecord, CompileRequest, EnvironmentRecord, NewCompileRecord, Store};
use uuid::Uuid;

use super::environments::{check_not_deleting, check_not_of_cluster};
use crate::access::Right;
use crate::auth::Caller;
use crate::error::ServerError;
use crate::services::Services;
use crate::settings::EnvironmentSettings;

/// Maximum number of environment variables, sets or exporters in a request.
const NAMED_MAX: usize = 1_000;

/// Returns the problems of a failed compile.
pub(crate) fn problems(record: &CompileRecord) -> Vec<CompileProblem> {
    let errors = record.data.as_ref().and_then(|data| data.get("errors")).cloned();
    let read = errors.map_or_else(|| Ok(Vec::new()), serde_json::from_value);
    read.unwrap_or_else(|error| {
        vec![CompileProblem {
            category: ProblemCategory::Stage,
            r#type: "UnreadableErrors".to_owned(),
            message: format!("the stored errors cannot be read: {error}"),
            ..CompileProblem::default()
        }]
    })
}

/// True if a compile resulted in the version that was the newest before.
pub(crate) fn is_unchanged(record: &CompileRecord) -> bool {
    record.data.as_ref().is_some_and(|data| data["unchanged"] == true)
}

/// Returns the state of a compile.
pub(crate) fn state(record: &CompileRecord) -> CompileState {
    match (record.started, record.completed, record.success) {
        (_, Some(_), Some(true)) => CompileState::Succeeded,
        (_, Some(_), _) => {
            let first = problems(record).first().map(|problem| problem.category);
            match first {
                Some(ProblemCategory::Cancelled) => CompileState::Cancelled,
                _ => CompileState::Failed,
            }
        }
        (Some(_), None, _) => CompileState::Running,
        (None, None, _) => CompileState::Queued,
    }
}

/// Requests a compile of the environment's repository. Refused if there is none, or if the server
/// does not compile for the environment.
pub(crate) async fn create(
    services: &Services,
    environment: &EnvironmentRecord,
    id: Uuid,
    new: CompileRequest,
) -> Result<CompileRecord, ServerError> {
    check_not_deleting(environment)?;
    check_repository(environment)?;
    request(services, environment, id, new).await?.ok_or_else(|| {
        let text =
            "the server does not compile for this environment: its setting server_compile is off";
        ServerError::Conflict(text.to_owned())
    })
}

/// Requests a compile. It is queued; equal requests are merged. Returns `None` if the server does not
/// compile for the environment.
pub async fn request(
    services: &Services,
    environment: &EnvironmentRecord,
    id: Uuid,
    request: CompileRequest,
) -> Result<Option<CompileRecord>, ServerError> {
    check_not_deleting(environment)?;
    check_not_of_cluster(environment)?;
    check_request(&request)?;
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

fn check_request(request: &CompileRequest) -> Result<(), ServerError> {
    let CompileRequest { variables, joined_variables: joined, removed_sets, exporters, .. } =
        request;
    check_variables("environment_variables", variables)?;
    check_variables("mergeable_environment_variables", joined)?;
    if let Some(name) = joined.keys().find(|name| variables.contains_key(*name)) {
        let text = format!("{name} is in environment_variables too: it can be in one of them only");
        return Err(ServerError::field("mergeable_environment_variables", text));
    }
    if !request.partial && !removed_sets.is_empty() {
        let text = "only a partial compile removes sets: a full one defines all of them";
        return Err(ServerError::field("removed_sets", text));
    }
    let counts = [
        ("environment_variables", variables.len()),
        ("mergeable_environment_variables", joined.len()),
        ("removed_sets", removed_sets.len()),
        ("exporters", exporters.len()),
    ];
    if let Some((field, _)) = counts.into_iter().find(|(_, count)| *count > NAMED_MAX) {
        let text = format!("must not have more than {NAMED_MAX} entries");
        return Err(ServerError::field(field, text));
    }
    Ok(())
}

/// Accepts only variable names that every shell can set.
fn check_variables(field: &str, variables: &BTreeMap<String, String>) -> Result<(), ServerError> {
    for (name, value) in variables {
        let first = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        let all = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !first || !all || name.len() > 255 {
            let text = format!("{name:?} is not a valid name of an environment variable");
            return Err(ServerError::field(field, text));
        }
        if value.contains('\0') {
            return Err(ServerError::field(field, format!("{name} has a NUL character in it")));
        }
    }
    Ok(())
}

/// Finds a compile of any environment that the caller may view.
pub async fn find(
    services: &Services,
    caller: &Caller,
    id: CompileId,
) -> Result<(EnvironmentRecord, CompileRecord), ServerError> {
    let found = services
        .with_store(move |store| {
            let compile = store.compiles().by_id(id)?;
            Ok((store.environments().by_key(compile.environment)?, compile))
        })
        .await?;
    match caller.may_in_environment(Right::View, &found.0) {
        true => Ok(found),
        false => Err(ServerError::NotFound { kind: "compile", name: id.to_string() }),
    }
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
