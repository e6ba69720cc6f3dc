//! Inventories of environments: the current one, its hosts, and replacing it.

use orrery_api::{InventoryDocument, UploadScope, VersionUpload};
use orrery_model::{Inventory, InventoryHost, VersionNumber};
use orrery_store::{
    ContentHash, EnvironmentKey, EnvironmentRecord, Store, StoreError, inventory_hash,
};
use serde_json::Value;
use sha1::{Digest, Sha1};

use crate::auth::Caller;
use crate::contents;
use crate::error::ServerError;
use crate::host_inventory::{read_document, read_hosts, resolve};
use crate::placement;
use crate::services::Services;
use crate::versions::StoredVersion;

use super::versions::store_pushed;

/// The newest version's inventory.
pub(crate) struct StoredInventory {
    pub(crate) version: Option<VersionNumber>,
    pub(crate) released: bool,
    pub(crate) document: Value,
}

/// Reads the inventory of the newest version.
pub(crate) fn read(
    store: &Store,
    environment: &EnvironmentRecord,
) -> Result<StoredInventory, StoreError> {
    let newest = store.versions().list(environment.key)?.pop();
    let document = match newest.as_ref().and_then(|version| inventory_hash(&version.info)) {
        Some(hash) => read_document(store, hash)?,
        None => Value::Null,
    };
    Ok(StoredInventory {
        version: newest.as_ref().map(|version| version.number),
        released: newest.is_some_and(|version| version.released),
        document,
    })
}

/// Stores an inventory as a new version with the resources of the newest one.
pub(crate) async fn put(
    services: &Services,
    caller: &Caller,
    environment: EnvironmentRecord,
    document: &InventoryDocument,
    limits: contents::ContentLimits,
) -> Result<StoredVersion, ServerError> {
    let document = document.to_value();
    resolve(&document)?;
    let content = serde_json::to_vec(&document)
        .map_err(|error| ServerError::field("document", error.to_string()))?;
    let hash = ContentHash(Sha1::digest(&content).into());
    contents::store_upload(services, caller, hash, content, limits).await?;
    let (pushing, now) = (caller.clone(), services.now());
    services
        .try_change(move |store| {
            super::environments::check_not_deleting(&environment)?;
            let has_version = store.versions().newest(environment.key)?.is_some();
            let scope = if has_version { UploadScope::Partial } else { UploadScope::Full };
            let inventory = Some(hash.to_hex());
            let upload = VersionUpload {
                scope,
                inventory,
                only_if_changed: true,
                ..VersionUpload::default()
            };
            store_pushed(store, &pushing, &environment, upload, now, |_, _, _| Ok(None))
        })
        .await
}

/// Hosts of the newest version's inventory after a name, in its order, with an inventory that places
/// their agents.
pub(crate) fn list_hosts(
    store: &Store,
    environment: EnvironmentKey,
    after: &str,
    limit: usize,
) -> Result<(Vec<(String, InventoryHost)>, Inventory), StoreError> {
    let Some(newest) = store.versions().list(environment)?.pop() else {
        return Ok((Vec::new(), Inventory::default()));
    };
    let hosts = read_hosts(store, &newest.info)?;
    let page = hosts.hosts().filter(|(name, _)| name.as_str() > after).take(limit);
    let page: Vec<(String, InventoryHost)> =
        page.map(|(name, host)| (name.clone(), host.clone())).collect();
    let names: Vec<&str> = page.iter().map(|(name, _)| name.as_str()).collect();
    let known = placement::read_newest(store, environment, &newest, &names)?;
    Ok((page, known))
}
