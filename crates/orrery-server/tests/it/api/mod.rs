//! The API, noun by noun, on both databases.

mod activity;
mod cluster_documents;
mod compiles;
mod discovered;
mod environments;
mod events;
mod files;
mod graph;
mod inventory;
mod metrics;
mod middleware;
mod notifications;
mod operations;
mod parameters;
mod partial_versions;
mod reasons;
mod removal;
mod resources;
mod versions;

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::world::{World, id_of, ids, on_both, path_of, refused, resource};

/// Reads until an answer, which may be cached for a moment, fulfils a condition.
fn until_current(world: &World, path: &str, is_current: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let now = world.get(path).good();
        if is_current(&now) {
            return now;
        }
        assert!(Instant::now() < deadline, "{now}");
        std::thread::yield_now();
    }
}
