//! Request and response types of the HTTP API, with their descriptions for the OpenAPI document. The server answers with
//! them, the command line and tests read them: so both always speak of the same thing.
//!
//! Conventions that hold everywhere: ids are UUIDs, times are RFC 3339 in UTC, lists come in pages ([`Page`]), and whatever goes wrong is
//! a [`Problem`]. [`client`] speaks to a server with them.

mod accounts;
mod audit;
pub mod client;
mod cluster_documents;
mod common;
mod compiles;
mod environments;
mod operations;
mod page;
mod problem;
mod projects;
mod remote_agents;
mod resources;
mod secrets;
mod things;
mod tokens;
mod versions;
mod webhooks;

pub use accounts::*;
pub use audit::*;
pub use cluster_documents::*;
pub use common::*;
pub use compiles::*;
pub use environments::*;
pub use operations::*;
pub use page::Page;
pub use problem::{FieldProblem, Problem};
pub use projects::*;
pub use remote_agents::*;
pub use resources::*;
pub use secrets::*;
pub use things::*;
pub use tokens::*;
pub use versions::*;
pub use webhooks::*;
