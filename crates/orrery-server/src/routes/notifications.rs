//! Notifications.

use axum::Json;
use axum::extract::State;
use orrery_api::{
    Notification, NotificationSeverity, NotificationUpdate, NotificationsUpdate, Page,
    UnreadNotifications,
};
use orrery_model::Timestamp;
use orrery_store::{NotificationFilter, NotificationRecord, StoreError};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::notifications::{self, NotificationMarks};
use crate::error::ServerError;
use crate::extract::{Body, InEnvironment, Path, Query, page_limit, parse_cursor, take_page};
use crate::state::ServerState;

use super::{parse_filter, parse_stored, time};

fn notification_view(record: NotificationRecord) -> Result<Notification, StoreError> {
    Ok(Notification {
        id: record.uuid.uuid(),
        created: time(record.created),
        title: record.title,
        message: record.message,
        severity: parse_stored("severity", &record.severity)?,
        uri: record.uri,
        compile: record.compile.map(Uuid::from),
        read: record.read,
        cleared: record.cleared,
    })
}

/// Filter of the list of notifications.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Read, or not.
    read: Option<bool>,
    /// Cleared, or not.
    cleared: Option<bool>,
    /// Severity.
    #[param(value_type = Option<NotificationSeverity>)]
    severity: Option<String>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

/// Lists notifications, newest first.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/notifications", tag = "notifications",
    params(("environment" = Uuid, Path), Filter),
    responses((status = 200, description = "A page", body = Page<Notification>)))]
pub(super) async fn list(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Query(filter): Query<Filter>,
) -> Result<Json<Page<Notification>>, ServerError> {
    let limit = page_limit(filter.limit)?;
    let after: Option<(i64, Uuid)> = filter.after.as_deref().map(parse_cursor).transpose()?;
    let severity: Option<NotificationSeverity> =
        parse_filter("severity", filter.severity.as_deref())?;
    let found = app
        .with_store(move |store| {
            let wanted = NotificationFilter {
                read: filter.read,
                cleared: filter.cleared,
                severity: severity.map(NotificationSeverity::as_str),
            };
            let after = after.map(|(at, id)| (Timestamp(at), id.into()));
            store.notifications().list(environment.key, &wanted, after, limit + 1)
        })
        .await?;
    let (found, next) = take_page(found, limit, |record| (record.created.0, record.uuid.uuid()));
    let items = found.into_iter().map(notification_view).collect::<Result<_, _>>()?;
    Ok(Json(Page { items, next }))
}

/// Returns a notification.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/notifications/{id}", tag = "notifications",
    params(("environment" = Uuid, Path), ("id" = Uuid, Path)),
    responses((status = 200, description = "The notification", body = Notification)))]
pub(super) async fn get(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, Uuid)>,
) -> Result<Json<Notification>, ServerError> {
    let found =
        app.with_store(move |store| store.notifications().get(environment.key, id.into())).await?;
    Ok(Json(notification_view(found)?))
}

/// Returns the number of notifications that are neither read nor cleared.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/unread-notifications", tag = "notifications",
    params(("environment" = Uuid, Path)),
    responses((status = 200, description = "The number", body = UnreadNotifications)))]
pub(super) async fn count_unread(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
) -> Result<Json<UnreadNotifications>, ServerError> {
    let key = environment.key;
    let unread = app.with_store(move |store| store.notifications().count_unread(key)).await?;
    Ok(Json(UnreadNotifications { unread }))
}

/// Marks all notifications of an environment as read or cleared, up to a time.
#[utoipa::path(patch, path = "/api/v1/environments/{environment}/notifications", tag = "notifications", operation_id = "update_all_notifications",
    params(("environment" = Uuid, Path)), request_body = NotificationsUpdate,
    responses((status = 200, description = "Unread ones afterwards", body = UnreadNotifications)))]
pub(super) async fn update_all(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Body(update): Body<NotificationsUpdate>,
) -> Result<Json<UnreadNotifications>, ServerError> {
    let NotificationsUpdate { until, read, cleared } = update;
    let marks = NotificationMarks { read, cleared };
    let until = until.map(|time| time.0);
    let unread = notifications::mark_all(&app, environment.key, until, marks).await?;
    Ok(Json(UnreadNotifications { unread }))
}

/// Marks a notification as read or cleared.
#[utoipa::path(patch, path = "/api/v1/environments/{environment}/notifications/{id}", tag = "notifications",
    params(("environment" = Uuid, Path), ("id" = Uuid, Path)), request_body = NotificationUpdate,
    responses((status = 200, description = "Current state", body = Notification)))]
pub(super) async fn update(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, Uuid)>,
    Body(update): Body<NotificationUpdate>,
) -> Result<Json<Notification>, ServerError> {
    let NotificationUpdate { read, cleared } = update;
    let marks = NotificationMarks { read, cleared };
    let changed = notifications::mark(&app, environment.key, id.into(), marks).await?;
    Ok(Json(notification_view(changed)?))
}
