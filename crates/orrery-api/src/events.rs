//! Events of the change feed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A hint that something changed: names the object, not its state. Sent as the data of a
/// server-sent event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeEvent {
    /// Absent for objects outside of environments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Uuid>,
    /// Kind of the object: `environment`, `setting`, `version`, `resources`, `request` (an
    /// operation), `dry_run`, `agent`, `remote_agent`, `invitation`, `compile`, `parameter` (also
    /// facts), `secret`, `notification`, `discovered`, `project`, `user` or `token`.
    pub kind: String,
    /// Id of the object. Its form depends on the kind; `*` stands for many.
    pub subject: String,
    pub at: String,
}
