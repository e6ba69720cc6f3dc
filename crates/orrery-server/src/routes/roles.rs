//! Roles and role assignments.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use orrery_api::{NewRoleAssignment, Page, Problem, Role, RoleAssignment};
use orrery_store::{RoleRecord, RoleScope, StoreError};
use uuid::Uuid;

use crate::access::Right;
use crate::app::roles;
use crate::auth::{Caller, WithAuditDetail, granted};
use crate::error::ServerError;
use crate::extract::{Body, Path};
use crate::state::ServerState;

use super::parse_stored;

type ListResponse = Result<Json<Page<RoleAssignment>>, ServerError>;

/// Lists the roles and their rights.
#[utoipa::path(get, path = "/api/v1/roles", tag = "roles",
    responses((status = 200, body = Page<Role>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn definitions() -> Json<Page<Role>> {
    let described = |right: Right| match right {
        Right::View => "View everything but secrets.",
        Right::Operate => "Also deploy, repair, plan, pause and halt.",
        Right::Develop => "Also change the desired state: versions, compiles, parameters, secrets.",
        Right::Administer => "Also create and delete environments, and assign roles.",
    };
    let assignment_view = |right: Right| Role {
        name: right.role(),
        right: right.name(),
        description: described(right).to_owned(),
    };
    Json(Page { items: Right::ALL.into_iter().map(assignment_view).collect(), next: None })
}

fn assignment_view(record: RoleRecord) -> Result<RoleAssignment, StoreError> {
    let RoleRecord { account, account_name, scope, role } = record;
    let user = account.uuid();
    let granted = granted(scope.into(), parse_stored("role", &role)?);
    Ok(RoleAssignment { user, user_name: account_name, granted })
}

async fn list(app: ServerState, scope: Option<RoleScope>) -> ListResponse {
    let found = app.with_store(move |store| store.accounts().role_assignments(scope)).await?;
    let items = found.into_iter().map(assignment_view).collect::<Result<_, _>>()?;
    Ok(Json(Page { items, next: None }))
}

async fn assign(
    app: ServerState,
    caller: &Caller,
    scope: RoleScope,
    new: NewRoleAssignment,
) -> Result<WithAuditDetail<(StatusCode, Json<RoleAssignment>)>, ServerError> {
    let NewRoleAssignment { user, role } = new;
    let (made, place) = roles::assign(&app, caller, user, scope, role).await?;
    let detail = format!("{}: {role} {place}", made.account_name);
    Ok(WithAuditDetail(detail, (StatusCode::CREATED, Json(assignment_view(made)?))))
}

async fn revoke(
    app: ServerState,
    scope: RoleScope,
    user: Uuid,
    role: String,
) -> Result<WithAuditDetail<StatusCode>, ServerError> {
    let (name, place) = roles::revoke(&app, user, scope, role.clone()).await?;
    let detail = format!("{name}: no longer {role} {place}");
    Ok(WithAuditDetail(detail, StatusCode::NO_CONTENT))
}

/// Lists all role assignments.
#[utoipa::path(get, path = "/api/v1/role-assignments", tag = "roles",
    responses((status = 200, body = Page<RoleAssignment>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list_everywhere(State(app): State<ServerState>) -> ListResponse {
    list(app, None).await
}

/// Assigns a role on the whole server.
#[utoipa::path(post, path = "/api/v1/role-assignments", tag = "roles", request_body = NewRoleAssignment,
    responses((status = 201, body = RoleAssignment), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn assign_everywhere(
    State(app): State<ServerState>,
    caller: Caller,
    Body(new): Body<NewRoleAssignment>,
) -> Result<WithAuditDetail<(StatusCode, Json<RoleAssignment>)>, ServerError> {
    assign(app, &caller, RoleScope::Everywhere, new).await
}

/// Removes a role on the whole server.
#[utoipa::path(delete, path = "/api/v1/role-assignments/{user}/{role}", tag = "roles", params(("user" = Uuid, Path), ("role" = String, Path)),
    responses((status = 204, description = "Removed"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn revoke_everywhere(
    State(app): State<ServerState>,
    Path((user, role)): Path<(Uuid, String)>,
) -> Result<WithAuditDetail<StatusCode>, ServerError> {
    revoke(app, RoleScope::Everywhere, user, role).await
}

/// Lists the role assignments of a project.
#[utoipa::path(get, path = "/api/v1/projects/{project}/role-assignments", tag = "roles", params(("project" = Uuid, Path)),
    responses((status = 200, body = Page<RoleAssignment>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list_in_project(
    State(app): State<ServerState>,
    Path(project): Path<Uuid>,
) -> ListResponse {
    list(app, Some(RoleScope::Project(project.into()))).await
}

/// Assigns a role in a project and all its environments.
#[utoipa::path(post, path = "/api/v1/projects/{project}/role-assignments", tag = "roles", params(("project" = Uuid, Path)), request_body = NewRoleAssignment,
    responses((status = 201, body = RoleAssignment), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn assign_in_project(
    State(app): State<ServerState>,
    caller: Caller,
    Path(project): Path<Uuid>,
    Body(new): Body<NewRoleAssignment>,
) -> Result<WithAuditDetail<(StatusCode, Json<RoleAssignment>)>, ServerError> {
    assign(app, &caller, RoleScope::Project(project.into()), new).await
}

/// Removes a role in a project.
#[utoipa::path(delete, path = "/api/v1/projects/{project}/role-assignments/{user}/{role}", tag = "roles", params(("project" = Uuid, Path), ("user" = Uuid, Path), ("role" = String, Path)),
    responses((status = 204, description = "Removed"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn revoke_in_project(
    State(app): State<ServerState>,
    Path((project, user, role)): Path<(Uuid, Uuid, String)>,
) -> Result<WithAuditDetail<StatusCode>, ServerError> {
    revoke(app, RoleScope::Project(project.into()), user, role).await
}

/// Lists the role assignments of an environment.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/role-assignments", tag = "roles", params(("environment" = Uuid, Path)),
    responses((status = 200, body = Page<RoleAssignment>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list_in_environment(
    State(app): State<ServerState>,
    Path(environment): Path<Uuid>,
) -> ListResponse {
    list(app, Some(RoleScope::Environment(environment.into()))).await
}

/// Assigns a role in an environment.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/role-assignments", tag = "roles", params(("environment" = Uuid, Path)), request_body = NewRoleAssignment,
    responses((status = 201, body = RoleAssignment), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn assign_in_environment(
    State(app): State<ServerState>,
    caller: Caller,
    Path(environment): Path<Uuid>,
    Body(new): Body<NewRoleAssignment>,
) -> Result<WithAuditDetail<(StatusCode, Json<RoleAssignment>)>, ServerError> {
    assign(app, &caller, RoleScope::Environment(environment.into()), new).await
}

/// Removes a role in an environment.
#[utoipa::path(delete, path = "/api/v1/environments/{environment}/role-assignments/{user}/{role}", tag = "roles", params(("environment" = Uuid, Path), ("user" = Uuid, Path), ("role" = String, Path)),
    responses((status = 204, description = "Removed"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn revoke_in_environment(
    State(app): State<ServerState>,
    Path((environment, user, role)): Path<(Uuid, Uuid, String)>,
) -> Result<WithAuditDetail<StatusCode>, ServerError> {
    revoke(app, RoleScope::Environment(environment.into()), user, role).await
}
