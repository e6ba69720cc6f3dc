//! Events of the change feed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::Time;
use crate::string_enum::string_enums;

string_enums! {
    /// Kind of a changed object. `request` is an operation; `parameter` includes facts.
    pub enum ObjectKind {
        Environment = "environment",
        Setting = "setting",
        Version = "version",
        Resources = "resources",
        Request = "request",
        DryRun = "dry_run",
        Agent = "agent",
        RemoteAgent = "remote_agent",
        Invitation = "invitation",
        Compile = "compile",
        Parameter = "parameter",
        Secret = "secret",
        Notification = "notification",
        Discovered = "discovered",
        Project = "project",
        User = "user",
        Token = "token",
        ClusterDocument = "cluster_document",
    }
}

/// A hint that something changed: names the object, not its state. Sent as the data of a
/// server-sent event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeEvent {
    /// Absent for objects outside of environments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Uuid>,
    /// Kind of the object. More kinds may follow: read everything again after an unknown one.
    pub kind: ObjectKind,
    /// Id of the object. Its form depends on the kind; `*` stands for many.
    pub subject: String,
    pub at: Time,
}
