//! Operations: requests to the engine of an environment, such as deploys and repairs.

use orrery_api::{DeployRequest, ResourceSelection, StatusCondition, UnknownVariant};
use orrery_model::{ResourceId, Status};
use orrery_store::{
    EnvironmentKey, EnvironmentRecord, NewRequest, RequestKind, RequestRecord, Selection,
    SelectionFilter,
};
use uuid::Uuid;

use crate::error::ServerError;
use crate::services::Services;

use super::environments::{check_not_deleting, check_takes_requests};

/// Maximum number of ids or agents in a request.
const SELECTED_MAX: usize = 10_000;

/// Requests a deploy of resources that are not compliant.
pub(crate) async fn deploy(
    services: &Services,
    environment: &EnvironmentRecord,
    request: DeployRequest,
) -> Result<RequestRecord, ServerError> {
    start(services, environment, request, |selection| RequestKind::Deploy {
        selection,
        verify: false,
    })
    .await
}

/// Requests a verification of resources, and a deploy of those that are not compliant.
pub(crate) async fn repair(
    services: &Services,
    environment: &EnvironmentRecord,
    request: DeployRequest,
) -> Result<RequestRecord, ServerError> {
    start(services, environment, request, RequestKind::Repair).await
}

async fn start(
    services: &Services,
    environment: &EnvironmentRecord,
    request: DeployRequest,
    kind: impl FnOnce(Selection) -> RequestKind,
) -> Result<RequestRecord, ServerError> {
    check_not_deleting(environment)?;
    let selection = selection(request)?;
    check_takes_requests(environment)?;
    let key = environment.key;
    let versions = services.with_store(move |store| store.versions().list(key)).await?;
    if !versions.iter().any(|version| version.released) {
        let text = "no version is released: there is nothing to deploy";
        return Err(ServerError::Conflict(text.to_owned()));
    }
    add(services, environment, kind(selection)).await
}

/// Adds a request to the engine of an environment.
pub async fn add(
    services: &Services,
    environment: &EnvironmentRecord,
    kind: RequestKind,
) -> Result<RequestRecord, ServerError> {
    let (key, now, id) = (environment.key, services.now(), Uuid::new_v4().into());
    let added = services
        .change(move |store| store.requests().add(key, &NewRequest { uuid: id, kind: &kind }, now));
    Ok(added.await?)
}

/// Returns an operation of an environment, and the current record of the environment.
pub(crate) async fn get(
    services: &Services,
    environment: EnvironmentKey,
    id: Uuid,
) -> Result<(EnvironmentRecord, RequestRecord), ServerError> {
    let found = services
        .with_store(move |store| {
            let found = store.requests().get(id.into())?;
            Ok((store.environments().by_key(environment)?, found))
        })
        .await?;
    match found.1.environment == environment {
        true => Ok(found),
        false => Err(ServerError::NotFound { kind: "operation", name: id.to_string() }),
    }
}

fn check_list(name: &str, list: Option<&Vec<String>>) -> Result<(), ServerError> {
    match list {
        Some(list) if list.len() > SELECTED_MAX => {
            Err(ServerError::field(name, format!("must not have more than {SELECTED_MAX} entries")))
        }
        _ => Ok(()),
    }
}

fn selection(request: DeployRequest) -> Result<Selection, ServerError> {
    check_list("agents", request.agents.as_ref())?;
    check_list("ids", request.ids.as_ref())?;
    for id in request.ids.iter().flatten() {
        id.parse::<ResourceId>().map_err(|error| ServerError::field("ids", error.to_string()))?;
    }
    let filter = match request.filter {
        Some(ResourceSelection { agent, r#type, value, status, set }) => {
            let statuses = select_statuses(&status)
                .map_err(|reason| ServerError::field("filter.status", reason))?;
            Some(SelectionFilter { agent, entity: r#type, value, statuses, set })
        }
        None => None,
    };
    Ok(Selection { agents: request.agents, ids: request.ids, filter })
}

/// Parses a list of statuses; `!` selects all others.
pub(crate) fn parse_statuses(text: &str) -> Result<Vec<Status>, String> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let conditions: Result<Vec<StatusCondition>, UnknownVariant> = parts.map(str::parse).collect();
    select_statuses(&conditions.map_err(|error| error.to_string())?)
}

/// Returns the statuses that conditions select.
fn select_statuses(conditions: &[StatusCondition]) -> Result<Vec<Status>, String> {
    let (mut wanted, mut unwanted) = (Vec::new(), Vec::new());
    for condition in conditions {
        match *condition {
            StatusCondition::Is(status) => wanted.push(status),
            StatusCondition::IsNot(status) => unwanted.push(status),
        }
    }
    if !unwanted.is_empty() {
        if wanted.is_empty() {
            wanted = Status::ALL.to_vec();
        }
        wanted.retain(|status| !unwanted.contains(status));
        if wanted.is_empty() {
            return Err("no status is left".to_owned());
        }
    }
    Ok(wanted)
}
