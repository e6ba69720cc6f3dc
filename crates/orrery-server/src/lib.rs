//! The server: api, process and gateway roles, around one store.
//!
//! | module | what |
//! |---|---|
//! | `app` | what all requests share: the store, the clock, the nudges |
//! | `server`, `connection`, `tls` | listening, serving, ending |
//! | `access` | which right each route needs: one table, checked before any handler runs |
//! | `auth` | who is calling |
//! | `problem`, `extract`, `conventions` | errors, inputs and what holds for all requests |
//! | `document` | the description of the API |
//! | `settings` | what can be set for an environment |
//! | `tail`, `counts` | the end of the change feed, and counts, read once for all who ask |
//! | `gather` | questions about single resources, asked together |
//! | `contents` | contents of files: who may know of them, and quotas |
//! | `pulse` | signs of life of the roles |
//! | `upkeep` | measuring, forgetting what is old, emptying environments |
//! | `vault` | secrets, sealed with a key that is not in the database |
//! | `routes` | the API, one module for each kind of thing |
//! | `process` | engines of environments, held by lease |
//! | `cluster` | cluster documents, and previews of clusters |
//! | `isolation` | where code of tenants runs |
//! | `compiling` | the compile service, and the branches that environments follow |
//! | `forge` | webhooks of services that host repositories, and states of commits for them |
//! | `gateway` | where remote agents dial in, and how engines reach them |
//! | `classic` | the paths that clients of an older generation know |
//!
//! The api role keeps nothing: it writes what is wanted to the store, in one transaction, and answers. The process role finds it there.

mod access;
mod app;
mod auth;
mod body;
mod classic;
mod cluster;
mod code;
pub mod compiling;
mod connection;
mod contents;
mod conventions;
mod counts;
mod document;
mod extract;
mod forge;
mod gateway;
mod gather;
pub mod isolation;
mod metrics;
mod pace;
mod placement;
mod problem;
mod process;
mod pulse;
mod routes;
mod server;
mod settings;
mod tail;
pub mod telemetry;
mod tls;
mod upkeep;
mod upload;
mod vault;
mod versions;
mod words;

pub use access::{RouteAccess, routes};
pub use app::{App, AppSettings};
pub use auth::{
    AuthSettings, FirstStart, InvalidIssuer, InvalidNetwork, IssuerSettings, Network, RoleMapping,
    first_start,
};
pub use classic::is_classic;
pub use contents::ContentLimits;
pub use document::document;
pub use gateway::{GatewayError, GatewayOptions, GatewayRole};
pub use isolation::{Isolation, IsolationError, Sandboxing, uid_base_of};
pub use problem::ServerError;
pub use process::{HostCommand, OwnMachineOptions, OwnMachinePolicy, ProcessOptions, ProcessRole};
pub use server::{NotWithoutTls, Server, check_listen};
pub use settings::{EnvironmentSettings, InvalidSetting};
pub use tls::{Tls, TlsError, TlsSource};
pub use vault::{MasterKey, Vault, VaultError};
