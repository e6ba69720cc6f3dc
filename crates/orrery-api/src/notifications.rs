//! Notifications of an environment.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::Time;
use crate::string_enum::string_enums;

string_enums! {
    /// Severity of a notification.
    pub enum NotificationSeverity {
        Message = "message",
        Info = "info",
        Success = "success",
        Warning = "warning",
        Error = "error",
    }
}

/// A message to the users of an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Notification {
    pub id: Uuid,
    pub created: Time,
    pub title: String,
    pub message: String,
    pub severity: NotificationSeverity,
    /// Path of the object of the notification, or empty.
    pub uri: String,
    /// Compile of the notification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compile: Option<Uuid>,
    pub read: bool,
    pub cleared: bool,
}

/// Number of notifications to look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnreadNotifications {
    /// Neither read nor cleared.
    pub unread: u64,
}

/// Changes to many notifications. Absent fields keep their values.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NotificationsUpdate {
    /// Newest creation time of the notifications to change: later ones were not seen yet. Default:
    /// now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleared: Option<bool>,
}

/// Changes to a notification. Absent fields keep their values.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NotificationUpdate {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleared: Option<bool>,
}
