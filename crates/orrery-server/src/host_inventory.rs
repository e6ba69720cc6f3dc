//! Inventories of versions. An inventory is a content that a version refers to, so that it is
//! released, rolled back and retained with the version.

use orrery_api::FieldProblem;
use orrery_model::{HostInventory, InventoryProblem};
use orrery_store::{ContentHash, Store, StoreError, inventory_hash};
use serde_json::Value;

use crate::contents::{self, VersionAuthor};
use crate::error::ServerError;

/// Reads and resolves the inventory of a version; empty if it has none.
pub(crate) fn read_hosts(store: &Store, info: &Value) -> Result<HostInventory, StoreError> {
    let Some(hash) = inventory_hash(info) else { return Ok(HostInventory::default()) };
    let document = read_document(store, hash)?;
    HostInventory::resolve(&document).map_err(|problems| {
        let problem = problems.first().map(ToString::to_string).unwrap_or_default();
        StoreError::Unreadable(format!("inventory {hash}: {problem}"))
    })
}

pub(crate) fn read_document(store: &Store, hash: &str) -> Result<Value, StoreError> {
    let missing = || StoreError::Unreadable(format!("there is no inventory {hash}"));
    let content = ContentHash::from_hex(hash).ok_or_else(missing)?;
    let content = store.contents().get(&content)?.ok_or_else(missing)?;
    serde_json::from_slice(&content)
        .map_err(|error| StoreError::Unreadable(format!("inventory {hash}: {error}")))
}

/// Checks the inventory of an upload, which is a content.
pub(crate) fn check(
    store: &Store,
    author: &VersionAuthor,
    hash: &str,
) -> Result<HostInventory, ServerError> {
    let content = ContentHash::from_hex(hash)
        .ok_or_else(|| ServerError::field("inventory", "must be a SHA-1 in hexadecimal digits"))?;
    if contents::count_unknown(store, author, &[content])? > 0 {
        return Err(missing(hash));
    }
    let Some(content) = store.contents().get(&content)? else { return Err(missing(hash)) };
    let document: Value = serde_json::from_slice(&content)
        .map_err(|error| ServerError::field("inventory", format!("is no JSON: {error}")))?;
    resolve(&document)
}

/// Error for an inventory that was not uploaded.
fn missing(hash: &str) -> ServerError {
    let text = format!("there is no file {hash}: upload the inventory before the version");
    ServerError::rule("inventory-missing", text)
}

/// Resolves a document; problems are fields with their paths.
pub(crate) fn resolve(document: &Value) -> Result<HostInventory, ServerError> {
    HostInventory::resolve(document).map_err(|problems| {
        let field = |problem: &InventoryProblem| {
            let reason = match problem.help() {
                Some(help) => format!("{}; {help}", problem.issue),
                None => problem.issue.to_string(),
            };
            FieldProblem { name: problem.path_text(), reason }
        };
        ServerError::Invalid(problems.iter().map(field).collect())
    })
}
