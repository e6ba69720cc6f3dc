//! Queries for files by content hash.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Hashes of files.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileHashes {
    /// SHA-1 hashes in hexadecimal.
    #[schema(max_items = 10000)]
    pub hashes: Vec<String>,
}
