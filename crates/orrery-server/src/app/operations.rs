//! Operations: requests to the engine of an environment, such as deploys and repairs.

use std::collections::BTreeMap;

use orrery_api::{DeployRequest, ResourceSelection, StatusCondition, UnknownVariant};
use orrery_model::{ResourceId, Status};
use orrery_store::{
    EnvironmentKey, EnvironmentRecord, NewRequest, RequestKey, RequestKind, RequestRecord,
    Selection, SelectionFilter,
};
use uuid::Uuid;

use crate::error::ServerError;
use crate::services::Services;

use super::environments::{check_not_deleting, check_takes_requests};

/// Maximum number of ids or agents in a request.
const SELECTED_MAX: usize = 10_000;
/// Number of operations that a page across environments reads.
const SEARCHED_MAX: usize = 2_000;

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

/// Records the caller of a request. A loss by an interruption in between is harmless.
pub(crate) async fn attribute(
    services: &Services,
    mut request: RequestRecord,
    actor: &str,
) -> Result<RequestRecord, ServerError> {
    let (key, name) = (request.key, actor.to_owned());
    services.with_store(move |store| store.requests().record_actor(key, &name)).await?;
    request.actor = Some(actor.to_owned());
    Ok(request)
}

/// Requests the cancellation of an operation: what it waits for is withdrawn, running handlers are
/// cancelled, and what has run stays.
pub(crate) async fn cancel(
    services: &Services,
    environment: &EnvironmentRecord,
    id: Uuid,
) -> Result<RequestRecord, ServerError> {
    check_not_deleting(environment)?;
    let (_, request) = get(services, environment.key, id).await?;
    if request.finished.is_some() {
        let text = "the operation has ended: there is nothing to cancel";
        return Err(ServerError::Conflict(text.to_owned()));
    }
    if !request.kind.is_cancellable() {
        let text = format!("an operation of the kind {} cannot be cancelled", request.kind.name());
        return Err(ServerError::Conflict(text));
    }
    let operation = request.uuid;
    add(services, environment, RequestKind::CancelOperation { operation }).await
}

/// Filter of operations across environments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OperationFilter {
    /// Unfinished operations only.
    pub(crate) open: bool,
    pub(crate) before: Option<RequestKey>,
    pub(crate) limit: usize,
}

/// Operations of several environments.
#[derive(Debug)]
pub(crate) struct OperationPage {
    pub(crate) items: Vec<(EnvironmentRecord, RequestRecord)>,
    /// The last one that was read, if there may be more.
    pub(crate) next: Option<RequestKey>,
}

/// Lists operations of all environments that `is_visible` permits, latest first. A page reads a
/// bounded number of rows: it may be short, or empty, without being the last.
pub(crate) async fn list_everywhere(
    services: &Services,
    filter: OperationFilter,
    is_visible: impl Fn(&EnvironmentRecord) -> bool + Send + 'static,
) -> Result<OperationPage, ServerError> {
    let OperationFilter { open, before, limit } = filter;
    let page = services.with_store(move |store| {
        let visible: BTreeMap<EnvironmentKey, EnvironmentRecord> = store
            .environments()
            .list(None)?
            .into_iter()
            .filter(|record| is_visible(record))
            .map(|record| (record.key, record))
            .collect();
        let mut page = OperationPage { items: Vec::new(), next: None };
        if visible.is_empty() {
            return Ok(page);
        }
        let read = store.requests().list_everywhere(open, before, SEARCHED_MAX)?;
        let is_full = read.len() == SEARCHED_MAX;
        for request in read {
            if page.items.len() == limit {
                return Ok(page);
            }
            page.next = Some(request.key);
            if let Some(environment) = visible.get(&request.environment) {
                page.items.push((environment.clone(), request));
            }
        }
        page.next = page.next.filter(|_| is_full);
        Ok(page)
    });
    Ok(page.await?)
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
