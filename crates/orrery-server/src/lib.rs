//! The server: api, process and gateway roles, around one store.
//!
//! | module | contents |
//! |---|---|
//! | `services` | what every part needs: the store, the clock, wake-ups |
//! | `state` | state of the process: the services, and the parts that share them |
//! | `app` | application layer: the rules, one module per noun |
//! | `server`, `listener`, `tls` | router, connections, shutdown |
//! | `access` | rights of all routes, in one table |
//! | `auth` | authentication, authorization, audit log |
//! | `middleware` | everything around handlers: admission, limits, idempotency, errors |
//! | `error`, `extract` | errors and inputs of requests |
//! | `openapi` | OpenAPI document |
//! | `settings` | settings of environments |
//! | `change_stream`, `count_cache` | stream of new changes, and cached counts, shared by all requests |
//! | `batch_loader` | batched reads of single resources |
//! | `contents` | contents of files: visibility, quotas |
//! | `heartbeat` | heartbeats of the roles |
//! | `maintenance` | periodic tasks: metrics, retention, fact refresh, erasure |
//! | `vault` | secrets, sealed with a key that is not in the database |
//! | `routes` | the API, one module per noun |
//! | `process` | engines of environments, held by lease |
//! | `cluster` | cluster documents, and previews of clusters |
//! | `isolation` | isolation of tenant code |
//! | `compile_service` | the compile service, and the branches that environments follow |
//! | `forge` | webhooks of forges, and commit statuses for them |
//! | `gateway` | listener of remote agents, and the route of engines to them |
//! | `inmanta_api` | API compatible with Inmanta clients |
//!
//! The api role is stateless: it writes the desired state to the store in one transaction. The process
//! role finds it there.

mod access;
mod app;
mod auth;
mod batch_loader;
mod body;
mod change_stream;
mod cluster;
mod code_sets;
pub mod compile_service;
mod contents;
mod count_cache;
mod error;
mod extract;
mod forge;
mod gateway;
mod heartbeat;
mod inmanta_api;
mod input_errors;
pub mod isolation;
mod listener;
mod maintenance;
mod metrics;
mod middleware;
mod openapi;
mod placement;
mod process;
mod routes;
mod server;
mod services;
mod settings;
mod state;
pub mod telemetry;
mod throttle;
mod tls;
mod vault;
mod versions;

pub use access::{Access, EnvironmentHeader, Right, RouteAccess, RouteRule, RouteRules};
pub use auth::{
    AuthSettings, BootstrapState, InvalidIssuer, InvalidNetwork, IssuerSettings, Network,
    RoleMapping,
};
pub use contents::ContentLimits;
pub use error::ServerError;
pub use gateway::{GatewayError, GatewayOptions, GatewayRole};
pub use inmanta_api::is_inmanta_path;
pub use isolation::{Isolation, IsolationError, SandboxSettings, load_uid_base};
pub use openapi::document;
pub use process::{
    OwnMachineOptions, OwnMachinePolicy, ProcessOptions, ProcessRole, TargetHostCommand,
};
pub use server::{Server, TlsRequired, check_listen, routes};
pub use services::{ServiceError, Services, WakeUp};
pub use settings::{EnvironmentSettings, InvalidSetting};
pub use state::{ServerSettings, ServerState, prepare_first_account};
pub use tls::{Tls, TlsError, TlsSource};
pub use vault::{MasterKey, Vault, VaultError};
