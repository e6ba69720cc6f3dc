//! API tokens.

use std::sync::Arc;

use axum::Extension;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use orrery_api::{MadeToken, NewToken, Page, Problem, Token, Verb};
use orrery_model::{Duration, Timestamp, TokenId};
use orrery_store::TokenRecord;
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::access::{AccessTable, Right};
use crate::app::tokens::{self, TokenDraft};
use crate::auth::{Caller, TokenGrants, WithAuditDetail, granted, scope_of};
use crate::error::ServerError;
use crate::extract::{Body, Path, Query};
use crate::state::ServerState;

use super::users::page_size;
use super::{parse_stored, time};

const DAYS_DEFAULT: u32 = 90;
const DAYS_MAX: u32 = 3650;

fn token_view(record: TokenRecord) -> Result<Token, ServerError> {
    let TokenRecord { uuid, name, account, scope, grants, created, expires, revoked, last_used } =
        record;
    let grants: TokenGrants = serde_json::from_value(grants)
        .map_err(|error| ServerError::Internal(format!("the limits of a token: {error}")))?;
    let place = granted(scope.into(), parse_stored("role of a token", &grants.role)?);
    let verbs = grants.verbs.map(|verbs| {
        verbs
            .iter()
            .map(|verb| parse_stored("verb of a token", verb))
            .collect::<Result<Vec<Verb>, _>>()
    });
    Ok(Token {
        id: uuid.uuid(),
        name,
        user: account.uuid(),
        role: place.role,
        project: place.project,
        environment: place.environment,
        verbs: verbs.transpose()?,
        groups: grants.groups,
        created: time(created),
        expires: expires.map(time),
        revoked: revoked.map(time),
        last_used: last_used.map(time),
    })
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParameters {
    /// Tokens of all users. For administrators.
    all: Option<bool>,
    /// Cursor: end of the previous page.
    after: Option<String>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Lists the caller's tokens, newest first.
#[utoipa::path(get, path = "/api/v1/tokens", tag = "tokens", params(ListParameters),
    responses((status = 200, body = Page<Token>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(app): State<ServerState>,
    caller: Caller,
    Query(ListParameters { all, after, limit }): Query<ListParameters>,
) -> Result<Json<Page<Token>>, ServerError> {
    let limit = page_size(limit)?;
    let owner = match all.unwrap_or(false) {
        true => {
            caller.need_everywhere(Right::Administer)?;
            None
        }
        false => Some(caller.need_account()?),
    };
    let before = after.as_deref().map(parse_cursor).transpose()?;
    let pages = (limit + 1, limit + 1);
    let is_visible = move |token: &TokenRecord| caller.covers_token(token);
    let mut found = tokens::list(&app, owner, before, pages, is_visible).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let end = |last: &TokenRecord| format!("{}.{}", last.created.0, last.uuid.uuid());
    let next = found.last().filter(|_| more).map(end);
    let items = found.into_iter().map(token_view).collect::<Result<_, _>>()?;
    Ok(Json(Page { items, next }))
}

/// Parses a cursor.
fn parse_cursor(after: &str) -> Result<(Timestamp, TokenId), ServerError> {
    let parts = after.split_once('.');
    let read = parts.and_then(|(at, id)| Some((Timestamp(at.parse().ok()?), id.parse().ok()?)));
    read.ok_or_else(|| ServerError::field("after", "is not a cursor of this list"))
}

fn check(new: &NewToken, table: &AccessTable) -> Result<(), ServerError> {
    if !(1..=255).contains(&new.name.chars().count()) {
        return Err(ServerError::field("name", "must have 1 to 255 characters"));
    }
    if new.name.chars().any(char::is_control) {
        return Err(ServerError::field("name", "must be printable text on one line"));
    }
    if new.days.is_some_and(|days| days > DAYS_MAX) {
        return Err(ServerError::field("days", format!("must not be more than {DAYS_MAX}")));
    }
    for group in new.groups.iter().flatten() {
        if !table.has_group(group) {
            let reason = format!("unknown group {group:?}");
            return Err(ServerError::field("groups", reason));
        }
    }
    Ok(())
}

/// Creates a token for the caller. Its secret is returned only once.
#[utoipa::path(post, path = "/api/v1/tokens", tag = "tokens", request_body = NewToken,
    responses((status = 201, body = MadeToken), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn create(
    State(app): State<ServerState>,
    Extension(table): Extension<Arc<AccessTable>>,
    caller: Caller,
    Body(new): Body<NewToken>,
) -> Result<WithAuditDetail<(StatusCode, Json<MadeToken>)>, ServerError> {
    // Before the input is checked: a token cannot probe for valid inputs.
    caller.need_interactive_login()?;
    caller.need_account()?;
    check(&new, &table)?;
    let scope = scope_of(new.project, new.environment)?;
    let NewToken { name, role, verbs, groups, days, .. } = new;
    let verbs = verbs.map(|verbs| verbs.iter().map(ToString::to_string).collect());
    let grants = TokenGrants { role: role.to_string(), verbs, groups };
    let days = days.unwrap_or(DAYS_DEFAULT);
    let expires = (days > 0).then(|| app.now() + Duration::from_secs(u64::from(days) * 86_400));
    let draft = TokenDraft { name, scope, grants, expires };
    let (secret, token) = tokens::create(&app, &caller, draft).await?;
    let token = token_view(token)?;
    let mut detail = format!("token {} ({}): {}", token.name, token.id, token.role);
    match (token.environment, token.project) {
        (Some(id), _) => detail += &format!(" in environment {id}"),
        (None, Some(id)) => detail += &format!(" in project {id}"),
        (None, None) => {}
    }
    if let Some(verbs) = &token.verbs {
        let verbs: Vec<&str> = verbs.iter().copied().map(Verb::as_str).collect();
        detail += &format!(", verbs {}", verbs.join(" "));
    }
    if let Some(groups) = &token.groups {
        detail += &format!(", groups {}", groups.join(" "));
    }
    Ok(WithAuditDetail(detail, (StatusCode::CREATED, Json(MadeToken { secret, token }))))
}

/// Revokes a token of the caller; administrators, any token. It is refused from the next request
/// on.
#[utoipa::path(delete, path = "/api/v1/tokens/{token}", tag = "tokens", params(("token" = Uuid, Path)),
    responses((status = 204, description = "Revoked"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn revoke(
    State(app): State<ServerState>,
    caller: Caller,
    Path(token): Path<Uuid>,
) -> Result<WithAuditDetail<StatusCode>, ServerError> {
    let found = tokens::revoke(&app, token, |found| tokens::may_see(&caller, found)).await?;
    Ok(WithAuditDetail(format!("token {} revoked", found.name), StatusCode::NO_CONTENT))
}
