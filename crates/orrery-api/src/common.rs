//! What many things have in common: whether they are changing, and what can be done with them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether something is on its way to another state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Transitioning {
    /// It is at rest.
    #[default]
    No,
    /// It is changing; look again later.
    Yes,
    /// The last change went wrong.
    Error,
}

/// What can be done with something now: the name of each action, and the path to POST to.
pub type Actions = BTreeMap<String, String>;

/// Something that was begun and takes its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    pub id: uuid::Uuid,
    /// What was asked for: `deploy`, `repair`, `dry_run`, `facts`, `clear`, `delete`.
    pub kind: String,
    /// What exactly was asked for. A deploy with `verify` looks at everything, as a repair does.
    pub request: serde_json::Value,
    /// When it was asked for.
    pub created: String,
    /// When the engine of the environment took it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<String>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<String>,
    /// What it came to: for deploys and repairs, counts of the resources that they mean. Before that, whom it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<serde_json::Value>,
    /// Whether it is still under way, or went wrong.
    pub transitioning: Transitioning,
    /// What it is doing, or what went wrong.
    pub transitioning_message: String,
    /// What can be done with it now.
    #[serde(default)]
    pub actions: Actions,
}
