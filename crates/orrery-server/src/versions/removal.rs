//! Versions that remove: what was deployed and is not wanted any more is kept in them, to be purged.

use orrery_executor::declared_addresses;
use orrery_handlers::Abilities;
use orrery_host::bundle::Bundle;
use orrery_model::{Resource, plan_removal};
use orrery_store::{
    EnvironmentKey, LOCAL_AGENTS, RemnantScope, Scope, Store, StoreError, local_agents,
};
use serde_json::{Value, json};

use crate::placement::{self, Declared};
use crate::problem::ServerError;

use super::{
    ATTEMPTS, CODE, Draft, REMOVES, Stored, UNSUITABLE, cycles, rules, upload, version_info,
};

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

/// Stores a version with all that is wanted, and with what is to be removed.
pub(super) fn store_removal(
    store: &dyn Store,
    environment: EnvironmentKey,
    new: &Draft,
    wanted: Vec<Resource>,
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
        let known = store.records().remnants(environment, RemnantScope::All)?;
        let declared =
            Declared { addresses: declared_addresses(&wanted), patterns: local_agents(&new.info) };
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
