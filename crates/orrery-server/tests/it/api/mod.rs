//! The API, noun by noun, on both databases.

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

use crate::world::{World, id_of, ids, on_both, path_of, refused, resource};
