//! The server: api and process roles, around one store. The gateway is `orrery-gateway`, and the
//! compile service `orrery-compile-service`.
//!
//! | module | contents |
//! |---|---|
//! | `state` | state of the process: the services, and the parts that share them |
//! | `app` | application layer: the rules, one module per noun |
//! | `server` | router, shutdown |
//! | `access` | rights of all routes, in one table |
//! | `console` | files of the web console |
//! | `auth` | authentication, authorization, audit log |
//! | `middleware` | everything around handlers: admission, limits, idempotency, errors |
//! | `error`, `extract` | errors and inputs of requests |
//! | `openapi` | OpenAPI document |
//! | `count_cache`, `facet_cache` | cached counts, shared by all requests |
//! | `batch_loader` | batched reads of single resources |
//! | `causes` | statuses as causes of each other |
//! | `graph` | dependency graph: what to draw of it, and where |
//! | `contents` | contents of files: visibility, quotas |
//! | `heartbeat`, `task_status` | heartbeats of the roles; statuses of maintenance tasks |
//! | `maintenance` | named periodic tasks: metrics, retention, fact refresh |
//! | `routes` | the API, one module per noun |
//! | `process` | engines of environments, held by lease |
//! | `cluster` | cluster documents, and previews of clusters |
//! | `gateway` | start of the gateway role (`orrery-gateway`) |
//! | `further_api` | APIs beside the own one, and what they are built from |
//!
//! The api role is stateless: it writes the desired state to the store in one transaction. The process
//! role finds it there.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")
)]

mod access;
pub mod app;
mod auth;
mod batch_loader;
mod causes;
mod cluster;
mod code_sets;
mod console;
pub mod contents;
mod count_cache;
mod error;
mod extract;
mod facet_cache;
pub mod further_api;
mod gateway;
mod graph;
mod heartbeat;
mod host_inventory;
mod input_errors;
mod maintenance;
mod metrics;
mod middleware;
mod openapi;
mod placement;
mod process;
mod routes;
mod server;
mod state;
mod task_status;
pub mod telemetry;
mod throttle;
pub mod versions;

pub use access::{Access, EnvironmentHeader, Right, RouteAccess, RouteRule, RouteRules};
pub use app::compiled_versions::compile_context;
pub use auth::{
    AllowedHosts, AuthSettings, BootstrapState, InvalidIssuer, IssuerSettings, RoleMapping,
};
pub use console::ConsoleFile;
pub use contents::ContentLimits;
pub use error::ServerError;
pub use further_api::FurtherApi;
pub use gateway::start_gateway;
pub use openapi::document;
pub use orrery_gateway::{GatewayError, GatewayOptions, GatewayRole};
pub use orrery_roles::isolation::{Isolation, IsolationError, SandboxSettings, load_uid_base};
pub use orrery_roles::network::{InvalidNetwork, Network};
pub use orrery_roles::services::{ServiceError, Services, WakeUp};
pub use orrery_roles::settings::{EnvironmentSettings, InvalidSetting};
pub use orrery_roles::tls::{Tls, TlsError, TlsSource};
pub use orrery_roles::vault::{MasterKey, Vault, VaultError};
pub use process::{
    OwnMachineOptions, OwnMachinePolicy, ProcessOptions, ProcessRole, TargetHostCommand,
};
pub use server::{Server, TlsRequired, check_listen, routes};
pub use state::{ServerSettings, ServerState, prepare_first_account};

// Below this crate: paths stay short.
use orrery_roles::{body, change_stream, isolation, listener, services, settings, tls, vault};
