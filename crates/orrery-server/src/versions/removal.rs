//! Versions that remove resources: unmanaged resources are added to them, to be purged.

use std::collections::{BTreeMap, BTreeSet};

use orrery_executor::{declared_address, declared_addresses};
use orrery_handlers::{HandlerCapabilities, Unmanaged};
use orrery_host::bundle::Bundle;
use orrery_model::{
    Attributes, DeployedResource, PathIndex, Resource, ResourceId, plan_removal, wants_absence,
};
use orrery_store::{
    EnvironmentKey, INVENTORY, LOCAL_AGENTS, PutScope, REMOVAL_COUNT, RemovalScope, Store,
    StoreError,
};
use serde_json::{Value, json};

use crate::error::ServerError;
use crate::placement::{self, DeclaredAgents};

use super::{
    ATTEMPTS, CODE, Draft, StoredVersion, UNSUITABLE, cycles, partial_update, validate,
    version_info,
};

/// Returns the capabilities of native handlers and of those in a version's code.
fn handler_capabilities(
    store: &Store,
    code: Option<&str>,
) -> Result<HandlerCapabilities, StoreError> {
    let mut hosted = Vec::new();
    if let Some(hash) = code.and_then(validate::content_hash)
        && let Some(content) = store.contents().get(&hash)?
        && let Ok(bundle) = serde_json::from_slice::<Bundle>(&content)
    {
        hosted = bundle.set.handlers;
    }
    Ok(HandlerCapabilities::new(hosted))
}

/// Takes over the code and agent declarations of an older version.
fn inherit(info: &mut Value, older: &Value) {
    for name in [CODE, LOCAL_AGENTS, INVENTORY] {
        if let Some(value) = older.get(name) {
            info[name] = value.clone();
        }
    }
}

/// Returns the unmanaged resources among the candidates. A resource with another id on the same
/// machine in the newest version is managed.
pub(crate) fn unmanaged(
    store: &Store,
    environment: EnvironmentKey,
    candidates: &[DeployedResource],
) -> Result<Unmanaged, StoreError> {
    let newest = store.versions().newest(environment)?;
    let Some(newest) = newest.filter(|_| !candidates.is_empty()) else {
        return Ok(Unmanaged::default());
    };
    let of_interest: BTreeSet<&str> =
        candidates.iter().map(|one| one.resource.id.entity()).collect();
    let (mut present, mut addresses) = (Vec::new(), BTreeMap::new());
    let info = store.versions().read(environment, newest, &mut |row| {
        let Ok(id) = row.id.parse::<ResourceId>() else { return };
        let is_config = id.entity() == "std::AgentConfig";
        if !is_config && !of_interest.contains(id.entity()) {
            return;
        }
        let attributes = Attributes::from_canonical(row.attributes);
        let is_present = !wants_absence(&attributes);
        let resource = Resource::new(id, attributes, Vec::new());
        if is_config {
            addresses.extend(declared_address(&resource));
        }
        if is_present {
            present.push(resource.id);
        }
    })?;
    let declared = DeclaredAgents::of_version(store, addresses, &info.info)?;
    let inventory = placement::read_inventory(store, environment, Some(declared), &[])?;
    let capabilities = HandlerCapabilities::new([]).with_inventory(inventory);
    Ok(Unmanaged::new(candidates, &PathIndex::new(&present, &capabilities), &capabilities))
}

/// Stores a full version with the removals; optionally including adopted resources.
pub(super) fn store_removal(
    store: &Store,
    environment: EnvironmentKey,
    new: &Draft,
    wanted: Vec<Resource>,
    include_adopted: bool,
) -> Result<StoredVersion, ServerError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let mut new = new.clone();
        let newest = store.versions().newest(environment)?;
        // An empty upload has neither code nor agents: removals use those of the version that
        // deployed them.
        if new.info.get(CODE).is_none()
            && let Some(number) = newest
            && wanted.is_empty()
        {
            inherit(&mut new.info, &version_info(store, environment, number)?.info);
        }
        let mut known = store.resources().unmanaged(environment, RemovalScope::All)?;
        known.iter_mut().for_each(|remnant| remnant.is_adopted &= !include_adopted);
        let mut addresses: BTreeMap<String, String> =
            known.iter().filter_map(|one| declared_address(&one.resource)).collect();
        addresses.extend(declared_addresses(&wanted));
        let declared = DeclaredAgents::of_version(store, addresses, &new.info)?;
        let inventory = placement::read_inventory(store, environment, Some(declared), &[])?;
        let capabilities =
            handler_capabilities(store, new.info[CODE].as_str())?.with_inventory(inventory);
        let mut removal = plan_removal(wanted.clone(), &known, &capabilities);
        cycles::check(&removal.resources, &cycles::UntouchedRequires::new())?;
        let info = new.info.as_object_mut();
        if let Some(info) = info {
            info.remove(UNSUITABLE);
            info.insert(REMOVAL_COUNT.to_owned(), json!(removal.removed.len()));
            if !partial_update::is_suitable(&removal.resources) {
                info.insert(UNSUITABLE.to_owned(), json!(true));
            }
        }
        let resources = std::mem::take(&mut removal.resources);
        match new.store(store, environment, &resources, PutScope::All, newest) {
            Err(ServerError::Store(StoreError::BaseChanged { .. })) if attempt < ATTEMPTS => {}
            Err(error) => return Err(error),
            Ok(stored) => return Ok(StoredVersion { removal: Some(removal), ..stored }),
        }
    }
}
