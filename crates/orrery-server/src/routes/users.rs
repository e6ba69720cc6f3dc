//! Users.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use orrery_api::{NewUser, Page, PasswordChange, Problem, User, UserUpdate};
use orrery_store::AccountRecord;
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::accounts::{self, AccountDraft};
use crate::auth::{Caller, WithAuditDetail};
use crate::error::ServerError;
use crate::extract::ClientAddress;
use crate::extract::{Body, IfMatch, Path, Query, etag};
use crate::state::ServerState;

use super::time;

const PAGE_MAX: usize = 1000;

pub(super) fn user_view(record: AccountRecord) -> User {
    let AccountRecord { uuid, name, issuer, admin, disabled, created, .. } = record;
    User { id: uuid.uuid(), name, admin, disabled, issuer, created: time(created) }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParameters {
    /// Cursor: end of the previous page.
    after: Option<String>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Lists users by name.
#[utoipa::path(get, path = "/api/v1/users", tag = "accounts", params(ListParameters),
    responses((status = 200, body = Page<User>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(app): State<ServerState>,
    Query(ListParameters { after, limit }): Query<ListParameters>,
) -> Result<Json<Page<User>>, ServerError> {
    let limit = page_size(limit)?;
    let after = after.unwrap_or_default();
    let found = app.with_store(move |store| store.accounts().list(&after, limit + 1)).await?;
    let mut items: Vec<User> = found.into_iter().map(user_view).collect();
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|user| user.name.clone());
    Ok(Json(Page { items, next }))
}

/// Validates the page size.
pub(super) fn page_size(wanted: Option<usize>) -> Result<usize, ServerError> {
    match wanted.unwrap_or(100) {
        size @ 1..=PAGE_MAX => Ok(size),
        _ => Err(ServerError::field("limit", format!("must be 1 to {PAGE_MAX}"))),
    }
}

/// Creates a user.
#[utoipa::path(post, path = "/api/v1/users", tag = "accounts", request_body = NewUser,
    responses((status = 201, body = User), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn create(
    State(app): State<ServerState>,
    caller: Caller,
    Body(new): Body<NewUser>,
) -> Result<WithAuditDetail<(StatusCode, HeaderMap, Json<User>)>, ServerError> {
    let NewUser { name, password, issuer, admin } = new;
    let draft = AccountDraft { name, password, issuer, admin };
    let made = accounts::create(&app, &caller, draft).await?;
    let detail = audit_text(&made);
    Ok(WithAuditDetail(detail, (StatusCode::CREATED, etag(made.revision), Json(user_view(made)))))
}

/// Formats an account for the audit log.
fn audit_text(account: &AccountRecord) -> String {
    let mut text = format!("user {}", account.name);
    if let Some(issuer) = &account.issuer {
        text += &format!(" of {issuer}");
    }
    if account.admin {
        text += ", admin";
    }
    if account.disabled {
        text += ", disabled";
    }
    text
}

/// Returns a user.
#[utoipa::path(get, path = "/api/v1/users/{user}", tag = "accounts", params(("user" = Uuid, Path)),
    responses((status = 200, body = User), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn get(
    State(app): State<ServerState>,
    Path(user): Path<Uuid>,
) -> Result<(HeaderMap, Json<User>), ServerError> {
    let found = app.with_store(move |store| store.accounts().get(user.into())).await?;
    Ok((etag(found.revision), Json(user_view(found))))
}

/// Changes a user. Disabling ends all its sessions at once.
#[utoipa::path(patch, path = "/api/v1/users/{user}", tag = "accounts", params(("user" = Uuid, Path)), request_body = UserUpdate,
    responses((status = 200, body = User), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn update(
    State(app): State<ServerState>,
    caller: Caller,
    Path(user): Path<Uuid>,
    IfMatch(expected): IfMatch,
    Body(UserUpdate { admin, disabled }): Body<UserUpdate>,
) -> Result<WithAuditDetail<(HeaderMap, Json<User>)>, ServerError> {
    let changed = accounts::update(&app, &caller, user, expected, (admin, disabled)).await?;
    let word = |is: Option<bool>, yes: &'static str, no: &'static str| {
        is.map(|is| if is { yes } else { no })
    };
    let words = [word(admin, "admin", "no admin"), word(disabled, "disabled", "enabled")];
    let words: Vec<&str> = words.into_iter().flatten().collect();
    let detail = format!("user {}: {}", changed.name, words.join(", "));
    Ok(WithAuditDetail(detail, (etag(changed.revision), Json(user_view(changed)))))
}

/// Deletes a user with its roles, sessions and tokens.
#[utoipa::path(delete, path = "/api/v1/users/{user}", tag = "accounts", params(("user" = Uuid, Path)),
    responses((status = 204, description = "Deleted"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn delete(
    State(app): State<ServerState>,
    Path(user): Path<Uuid>,
    IfMatch(expected): IfMatch,
) -> Result<WithAuditDetail<StatusCode>, ServerError> {
    let gone = accounts::delete(&app, user, expected).await?;
    Ok(WithAuditDetail(audit_text(&gone), StatusCode::NO_CONTENT))
}

/// Sets a password: the caller's own with the current one; administrators, that of any user. Ends
/// all other sessions of the user.
#[utoipa::path(put, path = "/api/v1/users/{user}/password", tag = "accounts", params(("user" = Uuid, Path)), request_body = PasswordChange,
    responses((status = 204, description = "Changed"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn set_password(
    State(app): State<ServerState>,
    caller: Caller,
    axum::Extension(ClientAddress(address)): axum::Extension<ClientAddress>,
    Path(user): Path<Uuid>,
    Body(change): Body<PasswordChange>,
) -> Result<WithAuditDetail<StatusCode>, ServerError> {
    let passwords = (change.current.as_ref(), &change.password);
    accounts::change_password(&app, &caller, &address, user, passwords).await?;
    let found = app.with_store(move |store| store.accounts().get(user.into())).await;
    // The password was changed, even if the account cannot be read now.
    let detail = found.map_or_else(|_| format!("user {user}"), |account| audit_text(&account));
    Ok(WithAuditDetail(detail, StatusCode::NO_CONTENT))
}
