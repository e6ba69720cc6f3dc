//! Application layer: the rules, one module per noun.
//!
//! `/api/v1`, the Inmanta-compatible API, the process role and maintenance call the same functions:
//! they parse input, call, and convert the result. Input has types, errors are `ServerError`s, and
//! nothing here knows a request, a response or a status code. The rules of versions, contents and
//! cluster documents have modules of their own (`versions`, `contents`, `cluster`).

pub mod accounts;
pub(crate) mod activity;
pub mod agents;
pub(crate) mod audit;
pub(crate) mod cluster_nodes;
pub(crate) mod clusters;
pub mod compiled_versions;
pub mod compiles;
pub mod discovered;
pub mod dry_runs;
pub(crate) mod effects;
pub mod environments;
pub(crate) mod facets;
pub(crate) mod inventory;
pub mod metrics;
pub mod notifications;
pub(crate) mod operation_results;
pub mod operations;
pub mod parameters;
pub(crate) mod plugin_resources;
pub mod projects;
pub(crate) mod remote_agents;
pub(crate) mod resource_changes;
pub(crate) mod resources;
pub(crate) mod resources_by_agent;
pub mod roles;
pub(crate) mod search;
pub(crate) mod secrets;
pub(crate) mod server_overview;
pub mod settings;
pub mod tokens;
pub mod versions;
pub(crate) mod webhooks;
pub(crate) mod why;
