//! Application layer: the rules, one module per noun.
//!
//! `/api/v1`, the Inmanta-compatible API, the process role and maintenance call the same functions:
//! they parse input, call, and convert the result. Input has types, errors are `ServerError`s, and
//! nothing here knows a request, a response or a status code. The rules of versions, contents and
//! cluster documents have modules of their own (`versions`, `contents`, `cluster`).

pub(crate) mod accounts;
pub(crate) mod agents;
pub(crate) mod audit;
pub(crate) mod compiles;
pub(crate) mod discovered;
pub(crate) mod dry_runs;
pub(crate) mod effects;
pub(crate) mod environments;
pub(crate) mod inventory;
pub(crate) mod metrics;
pub(crate) mod notifications;
pub(crate) mod operation_results;
pub(crate) mod operations;
pub(crate) mod parameters;
pub(crate) mod projects;
pub(crate) mod remote_agents;
pub(crate) mod resources;
pub(crate) mod resources_by_agent;
pub(crate) mod roles;
pub(crate) mod secrets;
pub(crate) mod settings;
pub(crate) mod tokens;
pub(crate) mod versions;
pub(crate) mod webhooks;
