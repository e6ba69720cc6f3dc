//! Operations: requests to the engine of an environment, such as deploys and repairs.

use orrery_api::{DeployRequest, ResourceSelection};
use orrery_model::{ResourceId, Status};
use orrery_store::{EnvironmentRecord, RequestRecord};
use serde_json::{Value, json};
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
    start(services, environment, "deploy", request).await
}

/// Requests a verification of resources, and a deploy of those that are not compliant.
pub(crate) async fn repair(
    services: &Services,
    environment: &EnvironmentRecord,
    request: DeployRequest,
) -> Result<RequestRecord, ServerError> {
    start(services, environment, "repair", request).await
}

async fn start(
    services: &Services,
    environment: &EnvironmentRecord,
    kind: &'static str,
    request: DeployRequest,
) -> Result<RequestRecord, ServerError> {
    check_not_deleting(environment)?;
    let payload = request_payload(request)?;
    check_takes_requests(environment)?;
    let key = environment.key;
    let versions = services.with_store(move |store| store.versions(key)).await?;
    if !versions.iter().any(|version| version.released) {
        let text = "no version is released: there is nothing to deploy";
        return Err(ServerError::Conflict(text.to_owned()));
    }
    add(services, environment, kind, payload).await
}

/// Adds a request to the engine of an environment.
pub(crate) async fn add(
    services: &Services,
    environment: &EnvironmentRecord,
    kind: &'static str,
    payload: Value,
) -> Result<RequestRecord, ServerError> {
    let (key, now, id) = (environment.key, services.now(), Uuid::new_v4().into_bytes());
    let added =
        services.change(move |store| store.records().add_request(key, id, kind, &payload, now));
    Ok(added.await?)
}

fn check_list(name: &str, list: Option<&Vec<String>>) -> Result<(), ServerError> {
    match list {
        Some(list) if list.len() > SELECTED_MAX => {
            Err(ServerError::field(name, format!("must not have more than {SELECTED_MAX} entries")))
        }
        _ => Ok(()),
    }
}

fn request_payload(request: DeployRequest) -> Result<Value, ServerError> {
    check_list("agents", request.agents.as_ref())?;
    check_list("ids", request.ids.as_ref())?;
    for id in request.ids.iter().flatten() {
        id.parse::<ResourceId>().map_err(|error| ServerError::field("ids", error.to_string()))?;
    }
    let mut payload = json!({});
    if let Some(agents) = request.agents {
        payload["agents"] = json!(agents);
    }
    if let Some(ids) = request.ids {
        payload["ids"] = json!(ids);
    }
    if let Some(ResourceSelection { agent, r#type, value, status, set }) = request.filter {
        let statuses = parse_statuses(&status.join(","))
            .map_err(|reason| ServerError::field("filter.status", reason))?;
        let statuses: Vec<&str> = statuses.into_iter().map(Status::as_str).collect();
        payload["filter"] = json!({
            "agent": agent, "entity": r#type, "value": value, "statuses": statuses, "set": set,
        });
    }
    Ok(payload)
}

/// Parses a list of statuses; `!` selects all others.
pub(crate) fn parse_statuses(text: &str) -> Result<Vec<Status>, String> {
    let (mut wanted, mut unwanted) = (Vec::new(), Vec::new());
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, list) = match part.strip_prefix('!') {
            Some(name) => (name, &mut unwanted),
            None => (part, &mut wanted),
        };
        let status = Status::ALL.into_iter().find(|status| status.as_str() == name);
        list.push(status.ok_or_else(|| format!("there is no status {name:?}"))?);
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
