//! Request and response types of the HTTP API, with their descriptions for the OpenAPI document.
//!
//! The server, the command line and tests share these types.
//!
//! Conventions: ids are UUIDs, times are RFC 3339 in UTC ([`Time`]), closed sets of words are enums, lists are paginated ([`Page`]), and
//! errors are [`Problem`]s. [`client`] is a client for them.

mod accounts;
mod activity;
mod audit;
pub mod client;
mod cluster_documents;
mod cluster_plugins;
mod clusters;
mod compiles;
mod console;
mod counts;
mod discovered;
mod dry_runs;
mod environments;
mod events;
mod files;
mod graph;
mod inventory;
mod metrics;
mod notifications;
mod operations;
mod page;
mod parameters;
mod problem;
mod projects;
mod remote_agents;
mod resources;
mod secrets;
mod server_overview;
mod status_condition;
mod string_enum;
mod time;
mod tokens;
mod transitioning;
mod versions;
mod webhooks;

pub use accounts::*;
pub use activity::*;
pub use audit::*;
pub use cluster_documents::*;
pub use cluster_plugins::*;
pub use clusters::*;
pub use compiles::*;
pub use console::*;
pub use discovered::*;
pub use dry_runs::*;
pub use environments::*;
pub use events::*;
pub use files::*;
pub use graph::*;
pub use inventory::*;
pub use metrics::*;
pub use notifications::*;
pub use operations::*;
pub use page::Page;
pub use parameters::*;
pub use problem::{FieldProblem, Problem};
pub use projects::*;
pub use remote_agents::*;
pub use resources::*;
pub use secrets::*;
pub use server_overview::*;
pub use status_condition::StatusCondition;
pub use string_enum::UnknownVariant;
pub use time::Time;
pub use tokens::*;
pub use transitioning::*;
pub use versions::*;
pub use webhooks::*;
