//! The server: api, process and gateway roles, around one store.
//!
//! | module | what |
//! |---|---|
//! | `app` | what all requests share: the store, the clock, the nudges |
//! | `server`, `connection`, `tls` | listening, serving, ending |
//! | `access` | which right each route needs: one table, checked before any handler runs |
//! | `auth` | who is calling |
//! | `vault` | secrets, sealed with a key that is not in the database |
//! | `problem`, `extract` | errors and inputs, the same way everywhere |
//! | `routes` | the API, one module for each kind of thing |
//! | `process` | engines of environments, held by lease |
//! | `compiling` | the compile service |
//! | `classic` | the paths that clients of an older generation know |
//!
//! The api role keeps nothing: it writes what is wanted to the store, in one transaction, and answers. The process role finds it there.

mod access;
mod app;
mod auth;
mod code;
pub mod compiling;
mod connection;
mod extract;
mod metrics;
mod problem;
mod process;
mod routes;
mod server;
pub mod telemetry;
mod tls;
mod upload;
mod vault;

pub use access::{RouteAccess, routes};
pub use app::{App, AppSettings};
pub use auth::{
    AuthSettings, FirstStart, InvalidIssuer, InvalidNetwork, IssuerSettings, Network, RoleMapping,
    first_start,
};
pub use problem::ServerError;
pub use process::{ProcessOptions, ProcessRole};
pub use server::{NotWithoutTls, Server, check_listen, openapi};
pub use tls::{Tls, TlsError, TlsSource};
pub use vault::{MasterKey, Vault, VaultError};
