//! Lists come in pages that stay right while the list changes: each continues after a key, never after a number.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A part of a list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Given as `after`, this continues the list; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
