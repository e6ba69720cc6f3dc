//! Notifications.

use axum::Json;
use axum::extract::State;
use orrery_api::{Notification, NotificationUpdate, Page};
use orrery_model::Timestamp;
use orrery_store::{NotificationFilter, NotificationRecord};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::App;
use crate::extract::{Body, InEnvironment, Path, Query, limit_of, page, place};
use crate::problem::ServerError;

use super::time;

const SEVERITIES: [&str; 5] = ["message", "info", "success", "warning", "error"];

fn shown(record: NotificationRecord) -> Notification {
    Notification {
        id: Uuid::from_bytes(record.uuid),
        created: time(record.created),
        title: record.title,
        message: record.message,
        severity: record.severity,
        uri: record.uri,
        compile: record.compile.map(Uuid::from_bytes),
        read: record.read,
        cleared: record.cleared,
    }
}

/// Which notifications to list.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Only those that were read, or were not.
    read: Option<bool>,
    /// Only those that were cleared, or were not.
    cleared: Option<bool>,
    /// Only those of this severity: `message`, `info`, `success`, `warning`, `error`.
    severity: Option<String>,
    /// How many at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// Notifications, newest first.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/notifications", tag = "notifications",
    params(("environment" = Uuid, Path), Filter),
    responses((status = 200, description = "A page of them", body = Page<Notification>)))]
pub(super) async fn list(
    State(app): State<App>,
    InEnvironment(environment): InEnvironment,
    Query(filter): Query<Filter>,
) -> Result<Json<Page<Notification>>, ServerError> {
    let limit = limit_of(filter.limit)?;
    let after: Option<(i64, Uuid)> = filter.after.as_deref().map(place).transpose()?;
    if let Some(severity) = filter.severity.as_deref().filter(|name| !SEVERITIES.contains(name)) {
        let text = format!("severity: {severity:?} is none of {}", SEVERITIES.join(", "));
        return Err(ServerError::rule("bad-filter", text));
    }
    let found = app
        .with_store(move |store| {
            let wanted = NotificationFilter {
                read: filter.read,
                cleared: filter.cleared,
                severity: filter.severity.as_deref(),
            };
            let after = after.map(|(at, id)| (Timestamp(at), id.into_bytes()));
            store.records().notifications(environment.key, &wanted, after, limit + 1)
        })
        .await?;
    let (found, next) =
        page(found, limit, |record| (record.created.0, Uuid::from_bytes(record.uuid)));
    Ok(Json(Page { items: found.into_iter().map(shown).collect(), next }))
}

/// One notification.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/notifications/{id}", tag = "notifications",
    params(("environment" = Uuid, Path), ("id" = Uuid, Path)),
    responses((status = 200, description = "The notification", body = Notification)))]
pub(super) async fn get(
    State(app): State<App>,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, Uuid)>,
) -> Result<Json<Notification>, ServerError> {
    let found = app
        .with_store(move |store| store.records().notification(environment.key, id.as_bytes()))
        .await?;
    Ok(Json(shown(found)))
}

/// Marks a notification as read or cleared.
#[utoipa::path(patch, path = "/api/v1/environments/{environment}/notifications/{id}", tag = "notifications",
    params(("environment" = Uuid, Path), ("id" = Uuid, Path)), request_body = NotificationUpdate,
    responses((status = 200, description = "As it is now", body = Notification)))]
pub(super) async fn update(
    State(app): State<App>,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, Uuid)>,
    Body(update): Body<NotificationUpdate>,
) -> Result<Json<Notification>, ServerError> {
    let now = app.now();
    let NotificationUpdate { read, cleared } = update;
    let changed = app
        .change(move |store| {
            let id = id.as_bytes();
            store.records().update_notification(environment.key, id, read, cleared, now)
        })
        .await?;
    Ok(Json(shown(changed)))
}
