//! Transition state and available actions, common to many objects.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// State of a transition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Transitioning {
    /// No transition.
    #[default]
    No,
    /// In progress; poll again later.
    Yes,
    /// The last transition failed.
    Error,
}

/// Available actions: name of each action, and the path to POST to.
pub type Actions = BTreeMap<String, String>;
