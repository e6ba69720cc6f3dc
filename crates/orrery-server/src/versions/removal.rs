//! Versions that remove: what was deployed and is not wanted any more is kept in them, to be purged.

use std::collections::{BTreeMap, BTreeSet};

use orrery_executor::{declared_address, declared_addresses};
use orrery_handlers::{Abilities, Unmanaged};
use orrery_host::bundle::Bundle;
use orrery_model::{
    Attributes, PathIndex, Remnant, Resource, ResourceId, plan_removal, wants_absence,
};
use orrery_store::{
    EnvironmentKey, LOCAL_AGENTS, REMOVES, RemnantScope, Scope, Store, StoreError, local_agents,
};
use serde_json::{Value, json};

use crate::placement::{self, Declared};
use crate::problem::ServerError;

use super::{ATTEMPTS, CODE, Draft, Stored, UNSUITABLE, cycles, rules, upload, version_info};

/// What the handlers of this program and those of a version's code can do.
fn abilities_of(store: &dyn Store, code: Option<&str>) -> Result<Abilities, StoreError> {
    let mut hosted = Vec::new();
    if let Some(hash) = code.and_then(upload::content_hash)
        && let Some(content) = store.file(&hash)?
        && let Ok(bundle) = serde_json::from_slice::<Bundle>(&content)
    {
        hosted = bundle.set.handlers;
    }
    Ok(Abilities::new(hosted))
}

/// Takes over what an older version says about its code and its agents.
fn inherit(info: &mut Value, older: &Value) {
    for name in [CODE, LOCAL_AGENTS] {
        if let Some(value) = older.get(name) {
            info[name] = value.clone();
        }
    }
}

/// Those of the remnants that nothing manages any more. What the newest version has under another id of the same machine is managed.
pub(crate) fn unmanaged(
    store: &dyn Store,
    environment: EnvironmentKey,
    remnants: &[Remnant],
) -> Result<Unmanaged, StoreError> {
    let newest = store.records().newest_version(environment)?;
    let Some(newest) = newest.filter(|_| !remnants.is_empty()) else {
        return Ok(Unmanaged::default());
    };
    let of_interest: BTreeSet<&str> = remnants.iter().map(|one| one.resource.id.entity()).collect();
    let (mut present, mut addresses) = (Vec::new(), BTreeMap::new());
    let info = store.read_version(environment, newest, &mut |row| {
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
    let declared = Declared { addresses, patterns: local_agents(&info.info) };
    let inventory = placement::read_inventory(store, environment, Some(declared), &[])?;
    let abilities = Abilities::new([]).with_inventory(inventory);
    Ok(Unmanaged::new(remnants, &PathIndex::new(&present, &abilities), &abilities))
}

/// Stores a version with all that is wanted, and with what is to be removed; with what was adopted, if that is wanted.
pub(super) fn store_removal(
    store: &dyn Store,
    environment: EnvironmentKey,
    new: &Draft,
    wanted: Vec<Resource>,
    include_adopted: bool,
) -> Result<Stored, ServerError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let mut new = new.clone();
        let newest = store.records().newest_version(environment)?;
        // Who wants nothing sends no code and knows no machines: what is there goes with those that it came with.
        if new.info.get(CODE).is_none()
            && let Some(number) = newest
            && wanted.is_empty()
        {
            inherit(&mut new.info, &version_info(store, environment, number)?.info);
        }
        let mut known = store.records().remnants(environment, RemnantScope::All)?;
        known.iter_mut().for_each(|remnant| remnant.is_adopted &= !include_adopted);
        let mut addresses: BTreeMap<String, String> =
            known.iter().filter_map(|one| declared_address(&one.resource)).collect();
        addresses.extend(declared_addresses(&wanted));
        let declared = Declared { addresses, patterns: local_agents(&new.info) };
        let inventory = placement::read_inventory(store, environment, Some(declared), &[])?;
        let abilities = abilities_of(store, new.info[CODE].as_str())?.with_inventory(inventory);
        let mut removal = plan_removal(wanted.clone(), &known, &abilities);
        cycles::check(&removal.resources, &cycles::Left::new())?;
        let info = new.info.as_object_mut();
        if let Some(info) = info {
            info.remove(UNSUITABLE);
            info.insert(REMOVES.to_owned(), json!(removal.removed.len()));
            if !rules::is_suitable(&removal.resources) {
                info.insert(UNSUITABLE.to_owned(), json!(true));
            }
        }
        let resources = std::mem::take(&mut removal.resources);
        match new.store(store, environment, &resources, Scope::All, newest) {
            Err(ServerError::Store(StoreError::BaseChanged { .. })) if attempt < ATTEMPTS => {}
            Err(error) => return Err(error),
            Ok(stored) => return Ok(Stored { removal: Some(removal), ..stored }),
        }
    }
}
