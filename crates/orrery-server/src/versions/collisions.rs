//! Collisions: resources that manage the same path of the same machine undo each other's work, so
//! such a version is refused.
//!
//! Clients check their exports, but only the server knows which agents are its own machine.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use orrery_executor::declared_addresses;
use orrery_handlers::Registry;
use orrery_model::{PathCollision, Resource, path_collisions, wants_absence};
use orrery_store::{EnvironmentKey, Store};

use super::partial_update::RuleViolation;
use crate::error::ServerError;
use crate::placement::{self, DeclaredAgents};

/// Maximum number of named resources of a collision.
const NAMED_MAX: usize = 10;

/// Entities with resources identified by a path.
static PATH_ENTITIES: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let registry = Registry::native();
    let of_paths = registry.declarations().filter(|declaration| declaration.is_path);
    of_paths.map(|declaration| declaration.entity.to_string()).collect()
});

/// Refuses resources that manage the same path of the same machine, unless all of them purge it.
pub(super) fn check(
    store: &Store,
    environment: EnvironmentKey,
    resources: &[Resource],
    declared: DeclaredAgents,
) -> Result<(), ServerError> {
    let managed =
        || resources.iter().filter(|resource| PATH_ENTITIES.contains(resource.id.entity()));
    if managed().nth(1).is_none() {
        return Ok(());
    }
    let addresses = declared_addresses(resources);
    let declared = DeclaredAgents { addresses, ..declared };
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
    Err(RuleViolation::PathCollision { path: collision.path, resources }.into())
}
