//! Resources that manage one path of one machine undo each other's work: such a version is not stored.
//!
//! Clients check what they export, but only the server knows which agents are its own machine.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use orrery_executor::declared_addresses;
use orrery_handlers::Registry;
use orrery_model::{PathCollision, Resource, path_collisions, wants_absence};
use orrery_store::{EnvironmentKey, Store};

use super::rules::Broken;
use crate::placement::{self, Declared};
use crate::problem::ServerError;

/// Resources of a collision that are named.
const NAMED_MAX: usize = 10;

/// Entities whose resources are identified by a path.
static PATH_ENTITIES: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let registry = Registry::native();
    let of_paths = registry.declarations().filter(|declaration| declaration.is_path);
    of_paths.map(|declaration| declaration.entity.to_string()).collect()
});

/// Refuses resources that manage one path of one machine, unless all of them want its absence.
pub(super) fn check(
    store: &dyn Store,
    environment: EnvironmentKey,
    resources: &[Resource],
    patterns: &[String],
) -> Result<(), ServerError> {
    let managed =
        || resources.iter().filter(|resource| PATH_ENTITIES.contains(resource.id.entity()));
    if managed().nth(1).is_none() {
        return Ok(());
    }
    let addresses = declared_addresses(resources);
    let declared = Declared { addresses, patterns: patterns.to_vec() };
    let inventory = placement::read_inventory(store, environment, Some(declared), &[])?;
    let found = path_collisions(managed().map(|resource| (resource, &resource.id)), &inventory);
    let colliding = |collision: &PathCollision<&Resource>| {
        !collision.resources.iter().all(|resource| wants_absence(&resource.attributes))
    };
    let Some(collision) = found.into_iter().find(colliding) else { return Ok(()) };
    let agents = collision.resources.iter().map(|resource| resource.id.agent());
    let reasons = PathCollision::<()>::reasons(agents, &inventory);
    let mut named: Vec<&str> =
        collision.resources.iter().take(NAMED_MAX).map(|resource| resource.id.as_str()).collect();
    let more = format!("{} more", collision.resources.len() - named.len());
    if named.len() < collision.resources.len() {
        named.push(&more);
    }
    let mut resources = named.join(", ");
    if !reasons.is_empty() {
        resources = format!("{resources} ({})", reasons.join(", "));
    }
    Err(Broken::PathCollision { path: collision.path, resources }.into())
}
