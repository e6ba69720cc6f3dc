//! Plug-in resources of projects.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use orrery_api::{Page, PluginResource};
use orrery_store::PluginResourceRecord;
use uuid::Uuid;

use super::time;
use crate::app::plugin_resources::{self, ResourcePath};
use crate::auth::{Caller, WithAuditDetail};
use crate::error::ServerError;
use crate::extract::{Path, read_bytes};
use crate::state::ServerState;

fn view(record: PluginResourceRecord) -> PluginResource {
    PluginResource {
        plugin: record.plugin,
        r#type: record.kind,
        name: record.name,
        version: record.version,
        digest: record.digest,
        size: record.size,
        live: record.is_live,
        staged: record.is_staged,
        created: time(record.created),
        created_by: record.created_by,
    }
}

fn audit_text(resource: &PluginResource, verb: &str) -> String {
    let PluginResource { plugin, r#type: kind, name, version, .. } = resource;
    format!("plug-in resource {plugin}/{kind}/{name} version {version} {verb}")
}

fn path_of((project, plugin, kind, name): (Uuid, String, String, String)) -> ResourcePath {
    ResourcePath { project: project.into(), plugin, kind, name }
}

/// Lists all versions of the plug-in resources of a project.
#[utoipa::path(get, path = "/api/v1/projects/{project}/plugin-resources", tag = "plugin-resources",
    params(("project" = Uuid, Path)),
    responses((status = 200, description = "All of them, by plug-in, type, name and version", body = Page<PluginResource>)))]
pub(super) async fn list(
    State(app): State<ServerState>,
    Path(project): Path<Uuid>,
) -> Result<Json<Page<PluginResource>>, ServerError> {
    let found = app.with_store(move |store| store.plugin_resources().list(project.into())).await?;
    Ok(Json(Page { items: found.into_iter().map(view).collect(), next: None }))
}

/// Uploads a new version of a plug-in resource. It is staged: the next sync makes it live.
#[utoipa::path(put, path = "/api/v1/projects/{project}/plugin-resources/{plugin}/{type}/{name}", tag = "plugin-resources",
    params(("project" = Uuid, Path), ("plugin" = String, Path), ("type" = String, Path), ("name" = String, Path)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, description = "The version; the newest one if it has the same content", body = PluginResource)))]
pub(super) async fn upload(
    State(app): State<ServerState>,
    caller: Caller,
    Path(path): Path<(Uuid, String, String, String)>,
    request: Request,
) -> Result<WithAuditDetail<Json<PluginResource>>, ServerError> {
    let content = read_bytes(request, &app).await?.to_vec();
    let stored = plugin_resources::upload(&app, &caller.name, path_of(path), content).await?;
    let stored = view(stored);
    Ok(WithAuditDetail(audit_text(&stored, "uploaded"), Json(stored)))
}

/// Path parameters of one version.
type VersionPath = (Uuid, String, String, String, i64);

/// Stages a version in the place of another one.
#[utoipa::path(post, path = "/api/v1/projects/{project}/plugin-resources/{plugin}/{type}/{name}/{version}/stage", tag = "plugin-resources",
    params(("project" = Uuid, Path), ("plugin" = String, Path), ("type" = String, Path), ("name" = String, Path), ("version" = i64, Path)),
    responses((status = 200, description = "The version", body = PluginResource)))]
pub(super) async fn stage(
    State(app): State<ServerState>,
    Path((project, plugin, kind, name, version)): Path<VersionPath>,
) -> Result<WithAuditDetail<Json<PluginResource>>, ServerError> {
    let path = path_of((project, plugin, kind, name));
    let changed = view(plugin_resources::stage(&app, path, version, true).await?);
    Ok(WithAuditDetail(audit_text(&changed, "staged"), Json(changed)))
}

/// Recalls a version: the next sync ends its use by new operations.
#[utoipa::path(post, path = "/api/v1/projects/{project}/plugin-resources/{plugin}/{type}/{name}/{version}/recall", tag = "plugin-resources",
    params(("project" = Uuid, Path), ("plugin" = String, Path), ("type" = String, Path), ("name" = String, Path), ("version" = i64, Path)),
    responses((status = 200, description = "The version", body = PluginResource)))]
pub(super) async fn recall(
    State(app): State<ServerState>,
    Path((project, plugin, kind, name, version)): Path<VersionPath>,
) -> Result<WithAuditDetail<Json<PluginResource>>, ServerError> {
    let path = path_of((project, plugin, kind, name));
    let changed = view(plugin_resources::stage(&app, path, version, false).await?);
    Ok(WithAuditDetail(audit_text(&changed, "recalled"), Json(changed)))
}

/// Makes the staged versions of a project live, for new operations.
#[utoipa::path(post, path = "/api/v1/projects/{project}/plugin-resources/sync", tag = "plugin-resources",
    params(("project" = Uuid, Path)),
    responses((status = 200, description = "Live versions", body = Page<PluginResource>)))]
pub(super) async fn sync(
    State(app): State<ServerState>,
    Path(project): Path<Uuid>,
) -> Result<Json<Page<PluginResource>>, ServerError> {
    let live = plugin_resources::sync(&app, project.into()).await?;
    Ok(Json(Page { items: live.into_iter().map(view).collect(), next: None }))
}

/// Deletes a version that is neither live nor staged.
#[utoipa::path(delete, path = "/api/v1/projects/{project}/plugin-resources/{plugin}/{type}/{name}/{version}", tag = "plugin-resources",
    params(("project" = Uuid, Path), ("plugin" = String, Path), ("type" = String, Path), ("name" = String, Path), ("version" = i64, Path)),
    responses((status = 204, description = "Deleted")))]
pub(super) async fn delete(
    State(app): State<ServerState>,
    Path((project, plugin, kind, name, version)): Path<VersionPath>,
) -> Result<WithAuditDetail<StatusCode>, ServerError> {
    let path = path_of((project, plugin, kind, name));
    let deleted = view(plugin_resources::delete(&app, path, version).await?);
    Ok(WithAuditDetail(audit_text(&deleted, "deleted"), StatusCode::NO_CONTENT))
}
