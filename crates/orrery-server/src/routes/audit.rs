//! Audit log. No route changes or deletes an entry.

use axum::Json;
use axum::extract::State;
use orrery_api::{AuditCheck, AuditEntry, AuditVerdict, Page, Problem};
use orrery_base::hex::to_hex;
use orrery_model::Timestamp;
use orrery_store::{AuditFilter, ChainedAuditRecord};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::audit::{self, Verdict};
use crate::error::ServerError;
use crate::extract::{Body, Query};
use crate::state::ServerState;

use super::time;
use super::users::page_size;

fn entry_view(record: ChainedAuditRecord) -> AuditEntry {
    let ChainedAuditRecord { id, entry, hash } = record;
    AuditEntry {
        id,
        at: time(entry.at),
        actor: entry.actor,
        address: entry.address,
        action: entry.action,
        subject: entry.subject,
        environment: entry.environment.map(Uuid::from),
        status: entry.status,
        detail: entry.detail,
        hash: to_hex(&hash),
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditParameters {
    /// Actor: `user:NAME`, `token:USER/NAME`, `anonymous`.
    actor: Option<String>,
    /// Environment.
    environment: Option<Uuid>,
    /// Method and route, such as `POST /api/v1/projects`.
    action: Option<String>,
    /// Start time, inclusive (RFC 3339).
    #[param(format = DateTime)]
    since: Option<String>,
    /// End time, exclusive (RFC 3339).
    #[param(format = DateTime)]
    until: Option<String>,
    /// Cursor: end of the previous page.
    after: Option<i64>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

fn parse_time(field: &str, text: Option<&str>) -> Result<Option<Timestamp>, ServerError> {
    let Some(text) = text else { return Ok(None) };
    let read: Result<jiff::Timestamp, _> = text.parse();
    match read {
        Ok(at) => Ok(Some(Timestamp(at.as_microsecond()))),
        Err(_) => Err(ServerError::field(field, "must be a time such as 2026-11-16T09:30:00Z")),
    }
}

/// Lists entries, newest first.
#[utoipa::path(get, path = "/api/v1/audit", tag = "audit", params(AuditParameters),
    responses((status = 200, body = Page<AuditEntry>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(app): State<ServerState>,
    Query(wanted): Query<AuditParameters>,
) -> Result<Json<Page<AuditEntry>>, ServerError> {
    let limit = page_size(wanted.limit)?;
    let since = parse_time("since", wanted.since.as_deref())?;
    let until = parse_time("until", wanted.until.as_deref())?;
    let mut found = app
        .with_store(move |store| {
            let filter = AuditFilter {
                actor: wanted.actor.as_deref(),
                environment: wanted.environment.map(Into::into),
                action: wanted.action.as_deref(),
                since,
                until,
            };
            store.audit().list(&filter, wanted.after, limit + 1)
        })
        .await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(|last| last.id.to_string());
    Ok(Json(Page { items: found.into_iter().map(entry_view).collect(), next }))
}

/// Verifies the whole hash chain.
#[utoipa::path(post, path = "/api/v1/audit/verify", tag = "audit", request_body = AuditCheck,
    responses((status = 200, body = AuditVerdict), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn verify(
    State(app): State<ServerState>,
    Body(check): Body<AuditCheck>,
) -> Result<Json<AuditVerdict>, ServerError> {
    let known = match (check.id, check.hash) {
        (Some(id), Some(hash)) => Some((id, hash)),
        (None, None) => None,
        _ => return Err(ServerError::field("hash", "give both the id and the hash, or neither")),
    };
    let Verdict { entries, head, broken } = audit::verify(&app, known).await?;
    let (broken_at, reason) = broken.unzip();
    Ok(Json(AuditVerdict {
        good: broken_at.is_none(),
        entries,
        head: to_hex(&head),
        broken_at,
        reason: reason.map(str::to_owned),
    }))
}
