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
