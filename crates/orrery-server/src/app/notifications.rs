//! Notifications: marked as read or cleared.

use orrery_model::{NotificationId, Timestamp};
use orrery_store::{EnvironmentKey, NotificationRecord};

use crate::error::ServerError;
use crate::services::Services;

/// Marks a notification; `None` keeps a mark as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotificationMarks {
    pub read: Option<bool>,
    pub cleared: Option<bool>,
}

/// Changes the marks of all notifications that were created until `until`; returns the number of
/// unread ones afterwards.
pub(crate) async fn mark_all(
    services: &Services,
    environment: EnvironmentKey,
    until: Option<Timestamp>,
    marks: NotificationMarks,
) -> Result<u64, ServerError> {
    let NotificationMarks { read, cleared } = marks;
    let now = services.now();
    let changed = services.change(move |store| {
        let notifications = store.notifications();
        notifications.update_all(environment, until.unwrap_or(now), read, cleared, now)?;
        notifications.count_unread(environment)
    });
    Ok(changed.await?)
}

/// Changes the marks of a notification.
pub async fn mark(
    services: &Services,
    environment: EnvironmentKey,
    id: NotificationId,
    marks: NotificationMarks,
) -> Result<NotificationRecord, ServerError> {
    let NotificationMarks { read, cleared } = marks;
    let now = services.now();
    let changed = services
        .change(move |store| store.notifications().update(environment, id, read, cleared, now));
    Ok(changed.await?)
}
