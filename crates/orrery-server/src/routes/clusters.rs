//! Clusters: creation, operations, nodes.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use orrery_api::{
    AbortRequest, Actions, Cluster, ClusterChangeAnswer, ClusterConnection, ClusterLayout,
    ClusterNode, ClusterOperation, ClusterOperationKind, ClusterOperationRequest,
    ClusterOperationSummary, ClusterPlugins, ClusterUpdate, NewCluster, Page, Transitioning,
    WorkerInfo, WorkerList,
};
use orrery_store::{
    ClusterFilter, ClusterOperationPhase, ClusterOperationRecord, ClusterPhase, ClusterRecord,
    StoreError,
};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use super::{parse_stored, time};
use crate::access::Right;
use crate::app::cluster_nodes;
use crate::app::clusters::{self, Requested};
use crate::auth::{Caller, WithAuditDetail};
use crate::cluster;
use crate::error::ServerError;
use crate::extract::{Body, IfMatch, Path, Query, etag, page_limit, parse_cursor, take_page};
use crate::state::ServerState;

/// Filter of the list of clusters.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListFilter {
    /// Includes terminated clusters.
    terminated: Option<bool>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Section {
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

fn path_of(id: &str) -> String {
    format!("/api/v1/clusters/{id}")
}

fn transition(state: ClusterOperationPhase, message: &str) -> (Transitioning, String) {
    let transitioning = match state {
        ClusterOperationPhase::Running | ClusterOperationPhase::Paused => Transitioning::Yes,
        ClusterOperationPhase::Failed => Transitioning::Error,
        ClusterOperationPhase::Done | ClusterOperationPhase::Aborted => Transitioning::No,
    };
    let text = if message.is_empty() { state.as_str() } else { message };
    (
        transitioning,
        if state == ClusterOperationPhase::Done { String::new() } else { text.to_owned() },
    )
}

fn may_operate(caller: &Caller, record: &ClusterRecord) -> bool {
    caller.may_in_project(Right::Operate, &record.project.uuid())
}

fn operation_view(
    caller: &Caller,
    cluster: &ClusterRecord,
    record: ClusterOperationRecord,
) -> Result<ClusterOperation, StoreError> {
    let path = format!("{}/operations/{}", path_of(&cluster.id), record.number);
    let mut actions = Actions::new();
    let offers: &[&str] = match record.state {
        ClusterOperationPhase::Running => &["pause", "abort"],
        ClusterOperationPhase::Paused => &["resume", "abort"],
        ClusterOperationPhase::Failed | ClusterOperationPhase::Aborted
            if record.intent == cluster.intent && cluster.terminated.is_none() =>
        {
            &["resume"]
        }
        _ => &[],
    };
    if may_operate(caller, cluster) {
        let offers = offers.iter().map(|name| ((*name).to_owned(), format!("{path}/{name}")));
        actions.extend(offers);
    }
    let (transitioning, transitioning_message) = transition(record.state, &record.message);
    let progress = record.progress.and_then(|progress| serde_json::from_value(progress).ok());
    Ok(ClusterOperation {
        number: record.number,
        cluster: cluster.id.clone(),
        kind: parse_stored("kind of an operation", &record.kind)?,
        state: parse_stored("state of an operation", record.state.as_str())?,
        message: record.message,
        author: record.author,
        requested: time(record.requested),
        ended: record.ended.map(time),
        request: record.request,
        revision: record.intent,
        version: Some(record.version.0),
        progress,
        transitioning,
        transitioning_message,
        actions,
    })
}

fn summary(record: &ClusterOperationRecord) -> Result<ClusterOperationSummary, StoreError> {
    Ok(ClusterOperationSummary {
        number: record.number,
        kind: parse_stored("kind of an operation", &record.kind)?,
        state: parse_stored("state of an operation", record.state.as_str())?,
        message: record.message.clone(),
    })
}

fn cluster_view(
    caller: &Caller,
    record: ClusterRecord,
    last: Option<&ClusterOperationRecord>,
) -> Result<Cluster, StoreError> {
    let mut actions = Actions::new();
    if record.terminated.is_none() && may_operate(caller, &record) {
        actions.insert("operate".to_owned(), format!("{}/operations", path_of(&record.id)));
    }
    let (transitioning, transitioning_message) = match record.status {
        ClusterPhase::Pending => (Transitioning::Yes, record.message.clone()),
        ClusterPhase::Active | ClusterPhase::Terminated => (Transitioning::No, String::new()),
        ClusterPhase::Degraded | ClusterPhase::Incomplete | ClusterPhase::Inconsistent => {
            (Transitioning::Error, record.message.clone())
        }
    };
    Ok(Cluster {
        id: record.id,
        name: record.name,
        description: record.description,
        project: record.project.uuid(),
        project_name: record.project_name,
        environment: record.environment_id.uuid(),
        owner: record.owner,
        template: record.template,
        template_revision: record.template_revision,
        provider: record.provider,
        status: parse_stored("status of a cluster", record.status.as_str())?,
        message: record.message,
        created: time(record.created),
        expires: record.expires.map(time),
        terminated: record.terminated.map(time),
        size: record.size,
        services: record.services,
        revision: record.revision,
        operation: last.map(summary).transpose()?,
        transitioning,
        transitioning_message,
        actions,
    })
}

/// Lists the clusters of a project.
#[utoipa::path(get, path = "/api/v1/projects/{project}/clusters", tag = "clusters",
    params(("project" = Uuid, Path), ListFilter),
    responses((status = 200, description = "A page, by name", body = Page<Cluster>)))]
pub(super) async fn list(
    State(app): State<ServerState>,
    caller: Caller,
    Path(project): Path<Uuid>,
    Query(filter): Query<ListFilter>,
) -> Result<Json<Page<Cluster>>, ServerError> {
    let limit = page_limit(filter.limit)?;
    let after: Option<(String, String)> = filter.after.as_deref().map(parse_cursor).transpose()?;
    let terminated = filter.terminated.unwrap_or(false);
    let found = app.with_store(move |store| {
        let after = after.as_ref().map(|(name, id)| (name.as_str(), id.as_str()));
        let filter = ClusterFilter { project: Some(project.into()), terminated, after };
        let found = store.clusters().list(&filter, limit + 1)?.into_iter();
        let with_last = found.map(|record| {
            let last = store.cluster_operations().list(record.key, None, 1)?.into_iter().next();
            Ok((record, last))
        });
        with_last.collect::<Result<Vec<_>, StoreError>>()
    });
    let (found, next) =
        take_page(found.await?, limit, |(record, _)| (record.name.clone(), record.id.clone()));
    let items =
        found.into_iter().map(|(record, last)| cluster_view(&caller, record, last.as_ref()));
    Ok(Json(Page { items: items.collect::<Result<_, _>>()?, next }))
}

/// Answer to a request of a change, with a text for the audit log.
type Changed = WithAuditDetail<(StatusCode, HeaderMap, Json<ClusterChangeAnswer>)>;

fn changed(caller: &Caller, requested: Requested, what: &str) -> Result<Changed, ServerError> {
    Ok(match requested {
        Requested::Plan(plan) => {
            let answer = ClusterChangeAnswer { cluster: None, operation: None, plan: Some(plan) };
            let detail = format!("{what}: planned only");
            WithAuditDetail(detail, (StatusCode::OK, HeaderMap::new(), Json(answer)))
        }
        Requested::Operation(begun) => {
            let (record, operation) = *begun;
            let detail = format!(
                "cluster {}/{} ({}): {what}, operation {}",
                record.project_name, record.name, record.id, operation.number
            );
            let headers = etag(record.revision);
            let view = operation_view(caller, &record, operation.clone())?;
            let cluster = cluster_view(caller, record, Some(&operation))?;
            let answer =
                ClusterChangeAnswer { cluster: Some(cluster), operation: Some(view), plan: None };
            WithAuditDetail(detail, (StatusCode::ACCEPTED, headers, Json(answer)))
        }
    })
}

/// Creates a cluster, or returns the plan.
#[utoipa::path(post, path = "/api/v1/projects/{project}/clusters", tag = "clusters",
    params(("project" = Uuid, Path)), request_body = NewCluster,
    responses((status = 202, description = "Started; the operation reports the end", body = ClusterChangeAnswer),
        (status = 200, description = "The plan", body = ClusterChangeAnswer)))]
pub(super) async fn create(
    State(app): State<ServerState>,
    caller: Caller,
    Path(project): Path<Uuid>,
    Body(new): Body<NewCluster>,
) -> Result<Changed, ServerError> {
    let requested = clusters::create(&app, &caller, project, new).await?;
    changed(&caller, requested, "created")
}

async fn read(
    app: &ServerState,
    id: String,
) -> Result<(ClusterRecord, Option<ClusterOperationRecord>), ServerError> {
    let found = app.with_store(move |store| {
        let record = store.clusters().get(&id)?;
        let last = store.cluster_operations().list(record.key, None, 1)?.into_iter().next();
        Ok((record, last))
    });
    Ok(found.await?)
}

/// Returns a cluster.
#[utoipa::path(get, path = "/api/v1/clusters/{cluster}", tag = "clusters", params(("cluster" = String, Path)),
    responses((status = 200, description = "The cluster", body = Cluster)))]
pub(super) async fn get(
    State(app): State<ServerState>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<(HeaderMap, Json<Cluster>), ServerError> {
    let (record, last) = read(&app, id).await?;
    Ok((etag(record.revision), Json(cluster_view(&caller, record, last.as_ref())?)))
}

/// Changes the description or the lease of a cluster.
#[utoipa::path(patch, path = "/api/v1/clusters/{cluster}", tag = "clusters", params(("cluster" = String, Path)),
    request_body = ClusterUpdate, responses((status = 200, description = "Current state", body = Cluster)))]
pub(super) async fn update(
    State(app): State<ServerState>,
    caller: Caller,
    Path(id): Path<String>,
    IfMatch(expected): IfMatch,
    Body(update): Body<ClusterUpdate>,
) -> Result<WithAuditDetail<(HeaderMap, Json<Cluster>)>, ServerError> {
    let lease = update.expires.is_some() || update.lease_seconds.is_some();
    let given = [("description", update.description.is_some()), ("lease", lease)];
    let record = clusters::update(&app, &id, expected, update).await?;
    let detail = format!(
        "cluster {}/{} ({id}): {} changed",
        record.project_name,
        record.name,
        super::join_names(&given)
    );
    let (record, last) = read(&app, id).await?;
    let headers = etag(record.revision);
    Ok(WithAuditDetail(detail, (headers, Json(cluster_view(&caller, record, last.as_ref())?))))
}

/// Requests the deletion of a cluster. Its record stays.
#[utoipa::path(delete, path = "/api/v1/clusters/{cluster}", tag = "clusters", params(("cluster" = String, Path)),
    responses((status = 202, description = "Started; the operation reports the end", body = ClusterChangeAnswer)))]
pub(super) async fn delete(
    State(app): State<ServerState>,
    caller: Caller,
    Path(id): Path<String>,
    IfMatch(expected): IfMatch,
) -> Result<Changed, ServerError> {
    let request = ClusterOperationRequest::new(ClusterOperationKind::Delete);
    let requested = clusters::operate(&app, &caller, &id, expected, request).await?;
    changed(&caller, requested, "deletion")
}

/// Requests an operation on a cluster, or returns its plan.
#[utoipa::path(post, path = "/api/v1/clusters/{cluster}/operations", tag = "clusters",
    params(("cluster" = String, Path)), request_body = ClusterOperationRequest,
    responses((status = 202, description = "Started; the operation reports the end", body = ClusterChangeAnswer),
        (status = 200, description = "The plan", body = ClusterChangeAnswer)))]
pub(super) async fn operate(
    State(app): State<ServerState>,
    caller: Caller,
    Path(id): Path<String>,
    IfMatch(expected): IfMatch,
    Body(request): Body<ClusterOperationRequest>,
) -> Result<Changed, ServerError> {
    let kind = request.kind;
    if kind == ClusterOperationKind::Delete {
        let (record, _) = read(&app, id.clone()).await?;
        caller.need_in_project(Right::Develop, &record.project.uuid())?;
    }
    let requested = clusters::operate(&app, &caller, &id, expected, request).await?;
    changed(&caller, requested, kind.as_str())
}

/// Lists the operations of a cluster, newest first.
#[utoipa::path(get, path = "/api/v1/clusters/{cluster}/operations", tag = "clusters",
    params(("cluster" = String, Path), Section),
    responses((status = 200, description = "A page", body = Page<ClusterOperation>)))]
pub(super) async fn operations(
    State(app): State<ServerState>,
    caller: Caller,
    Path(id): Path<String>,
    Query(section): Query<Section>,
) -> Result<Json<Page<ClusterOperation>>, ServerError> {
    let limit = page_limit(section.limit)?;
    let before: Option<i64> = section.after.as_deref().map(parse_cursor).transpose()?;
    let found = app.with_store(move |store| {
        let record = store.clusters().get(&id)?;
        let found = store.cluster_operations().list(record.key, before, limit + 1)?;
        Ok((record, found))
    });
    let (record, found) = found.await?;
    let (found, next) = take_page(found, limit, |one| one.number);
    let items = found.into_iter().map(|one| {
        operation_view(&caller, &record, ClusterOperationRecord { progress: None, ..one })
    });
    Ok(Json(Page { items: items.collect::<Result<_, _>>()?, next }))
}

/// Returns an operation with its progress.
#[utoipa::path(get, path = "/api/v1/clusters/{cluster}/operations/{number}", tag = "clusters",
    params(("cluster" = String, Path), ("number" = i64, Path)),
    responses((status = 200, description = "The operation", body = ClusterOperation)))]
pub(super) async fn operation(
    State(app): State<ServerState>,
    caller: Caller,
    Path((id, number)): Path<(String, i64)>,
) -> Result<Json<ClusterOperation>, ServerError> {
    let found = app.with_store(move |store| {
        let record = store.clusters().get(&id)?;
        let operation = store.cluster_operations().get(record.key, number)?;
        let progress = match operation.state.is_open() {
            true => Some(cluster::progress(store, record.environment)?),
            false => None,
        };
        Ok((record, operation, progress))
    });
    let (record, operation, progress) = found.await?;
    let mut view = operation_view(&caller, &record, operation)?;
    view.progress = progress.or(view.progress);
    Ok(Json(view))
}

async fn set_paused(
    app: &ServerState,
    caller: &Caller,
    (id, number): (String, i64),
    paused: bool,
) -> Result<WithAuditDetail<Json<ClusterOperation>>, ServerError> {
    let (record, operation) = clusters::set_paused(app, &id, number, paused).await?;
    let word = if paused { "paused" } else { "resumed" };
    let detail = format!(
        "cluster {}/{} ({id}): operation {number} {word}",
        record.project_name, record.name
    );
    Ok(WithAuditDetail(detail, Json(operation_view(caller, &record, operation)?)))
}

/// Pauses an operation at once. Running actions finish.
#[utoipa::path(post, path = "/api/v1/clusters/{cluster}/operations/{number}/pause", tag = "clusters",
    params(("cluster" = String, Path), ("number" = i64, Path)),
    responses((status = 200, description = "The operation", body = ClusterOperation)))]
pub(super) async fn pause(
    State(app): State<ServerState>,
    caller: Caller,
    Path(path): Path<(String, i64)>,
) -> Result<WithAuditDetail<Json<ClusterOperation>>, ServerError> {
    set_paused(&app, &caller, path, true).await
}

/// Resumes a paused operation, or the last one after it failed or was aborted.
#[utoipa::path(post, path = "/api/v1/clusters/{cluster}/operations/{number}/resume", tag = "clusters",
    params(("cluster" = String, Path), ("number" = i64, Path)),
    responses((status = 200, description = "The operation", body = ClusterOperation)))]
pub(super) async fn resume(
    State(app): State<ServerState>,
    caller: Caller,
    Path(path): Path<(String, i64)>,
) -> Result<WithAuditDetail<Json<ClusterOperation>>, ServerError> {
    set_paused(&app, &caller, path, false).await
}

/// Aborts an operation. `hold` does nothing more for it; `revert` returns to the intent before it.
#[utoipa::path(post, path = "/api/v1/clusters/{cluster}/operations/{number}/abort", tag = "clusters",
    params(("cluster" = String, Path), ("number" = i64, Path)), request_body = AbortRequest,
    responses((status = 202, description = "The aborted operation, or the one that reverts it", body = ClusterChangeAnswer)))]
pub(super) async fn abort(
    State(app): State<ServerState>,
    caller: Caller,
    Path((id, number)): Path<(String, i64)>,
    Body(request): Body<AbortRequest>,
) -> Result<Changed, ServerError> {
    let requested = clusters::abort(&app, &caller, &id, number, request.policy).await?;
    changed(&caller, requested, &format!("operation {number} aborted ({})", request.policy))
}

/// Lists the nodes of a cluster.
#[utoipa::path(get, path = "/api/v1/clusters/{cluster}/nodes", tag = "clusters",
    params(("cluster" = String, Path), Section),
    responses((status = 200, description = "A page, by number", body = Page<ClusterNode>)))]
pub(super) async fn nodes(
    State(app): State<ServerState>,
    Path(id): Path<String>,
    Query(section): Query<Section>,
) -> Result<Json<Page<ClusterNode>>, ServerError> {
    let limit = page_limit(section.limit)?;
    let after: Option<u64> = section.after.as_deref().map(parse_cursor).transpose()?;
    let found =
        app.with_store(move |store| cluster_nodes::nodes(store, &id, after, limit + 1)).await?;
    let (items, next) = take_page(found, limit, |node| node.number);
    Ok(Json(Page { items, next }))
}

/// Returns the groups of identical nodes.
#[utoipa::path(get, path = "/api/v1/clusters/{cluster}/layout", tag = "clusters",
    params(("cluster" = String, Path)),
    responses((status = 200, description = "The layout", body = ClusterLayout)))]
pub(super) async fn layout(
    State(app): State<ServerState>,
    Path(id): Path<String>,
) -> Result<Json<ClusterLayout>, ServerError> {
    let groups = app.with_store(move |store| cluster_nodes::layout(store, &id)).await?;
    Ok(Json(ClusterLayout { groups }))
}

/// Returns the addresses of the nodes and the links of the template.
#[utoipa::path(get, path = "/api/v1/clusters/{cluster}/connection", tag = "clusters",
    params(("cluster" = String, Path)),
    responses((status = 200, description = "Addresses and links", body = ClusterConnection)))]
pub(super) async fn connection(
    State(app): State<ServerState>,
    Path(id): Path<String>,
) -> Result<Json<ClusterConnection>, ServerError> {
    Ok(Json(app.with_store(move |store| cluster_nodes::connection(store, &id)).await?))
}

/// Returns the plug-ins of the server with their schemas.
#[utoipa::path(get, path = "/api/v1/cluster-plugins", tag = "clusters",
    responses((status = 200, description = "Providers and automators", body = ClusterPlugins)))]
pub(super) async fn plugins(
    State(app): State<ServerState>,
) -> Result<Json<ClusterPlugins>, ServerError> {
    Ok(Json(app.with_store(cluster::manifests).await?))
}

/// Lists the workers of the installation.
#[utoipa::path(get, path = "/api/v1/workers", tag = "clusters",
    responses((status = 200, description = "All workers", body = WorkerList)))]
pub(super) async fn workers(
    State(app): State<ServerState>,
) -> Result<Json<WorkerList>, ServerError> {
    let mut items = Vec::new();
    if let Some(slots) = app.cluster_slots() {
        let used = slots.used().into_iter();
        let busy = used.map(|(tenant, count)| (tenant, u32::try_from(count).unwrap_or(u32::MAX)));
        items.push(WorkerInfo {
            name: "server".to_owned(),
            host: orrery_handlers::target::host_name(),
            in_process: true,
            slots: u32::try_from(cluster::SLOTS).unwrap_or(u32::MAX),
            busy: busy.collect(),
            seen: time(app.now()),
        });
    }
    Ok(Json(WorkerList { items }))
}
