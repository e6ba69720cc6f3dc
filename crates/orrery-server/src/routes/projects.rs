//! Projects: the owners of environments.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use orrery_api::{NewProject, Page, Problem, Project, ProjectUpdate};
use orrery_store::ProjectRecord;
use uuid::Uuid;

use crate::access::Right;
use crate::app::projects;
use crate::auth::{Caller, WithAuditDetail};
use crate::error::ServerError;
use crate::extract::{Body, IfMatch, Path, etag};
use crate::state::ServerState;

use super::{join_names, time};

fn project_view(record: ProjectRecord) -> Project {
    let ProjectRecord { uuid, name, description, created, .. } = record;
    Project { id: uuid.uuid(), name, description, created: time(created) }
}

/// Lists the projects visible to the caller.
#[utoipa::path(get, path = "/api/v1/projects", tag = "projects",
    responses((status = 200, body = Page<Project>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(app): State<ServerState>,
    caller: Caller,
) -> Result<Json<Page<Project>>, ServerError> {
    let found = app.with_store(|store| store.projects().list()).await?;
    let visible = found.into_iter().map(project_view);
    let items = visible.filter(|project| caller.may_in_project(Right::View, &project.id)).collect();
    Ok(Json(Page { items, next: None }))
}

/// Creates a project.
#[utoipa::path(post, path = "/api/v1/projects", tag = "projects", request_body = NewProject,
    responses((status = 201, body = Project), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn create(
    State(app): State<ServerState>,
    Body(new): Body<NewProject>,
) -> Result<WithAuditDetail<(StatusCode, HeaderMap, Json<Project>)>, ServerError> {
    let made = projects::create(&app, new).await?;
    let detail = format!("project {} ({})", made.name, made.uuid.uuid());
    Ok(WithAuditDetail(
        detail,
        (StatusCode::CREATED, etag(made.revision), Json(project_view(made))),
    ))
}

/// Returns a project.
#[utoipa::path(get, path = "/api/v1/projects/{project}", tag = "projects", params(("project" = Uuid, Path)),
    responses((status = 200, body = Project), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn get(
    State(app): State<ServerState>,
    Path(project): Path<Uuid>,
) -> Result<(HeaderMap, Json<Project>), ServerError> {
    let found = app.with_store(move |store| store.projects().get(project.into())).await?;
    Ok((etag(found.revision), Json(project_view(found))))
}

/// Changes a project.
#[utoipa::path(patch, path = "/api/v1/projects/{project}", tag = "projects", params(("project" = Uuid, Path)), request_body = ProjectUpdate,
    responses((status = 200, body = Project), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn update(
    State(app): State<ServerState>,
    Path(project): Path<Uuid>,
    IfMatch(expected): IfMatch,
    Body(update): Body<ProjectUpdate>,
) -> Result<WithAuditDetail<(HeaderMap, Json<Project>)>, ServerError> {
    let given = [("name", update.name.is_some()), ("description", update.description.is_some())];
    let changed = projects::update(&app, project, expected, update).await?;
    let detail = format!("project {}: {} changed", changed.name, join_names(&given));
    Ok(WithAuditDetail(detail, (etag(changed.revision), Json(project_view(changed)))))
}

/// Deletes a project without environments.
#[utoipa::path(delete, path = "/api/v1/projects/{project}", tag = "projects", params(("project" = Uuid, Path)),
    responses((status = 204, description = "Deleted"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn delete(
    State(app): State<ServerState>,
    Path(project): Path<Uuid>,
    IfMatch(expected): IfMatch,
) -> Result<WithAuditDetail<StatusCode>, ServerError> {
    let gone = projects::delete(&app, project, expected).await?;
    Ok(WithAuditDetail(format!("project {} deleted", gone.name), StatusCode::NO_CONTENT))
}
