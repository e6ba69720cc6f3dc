//! Request and response types of the HTTP API, with their descriptions for the OpenAPI document. The server answers with
//! them, the command line and tests read them: so both always speak of the same thing.
//!
//! Conventions that hold everywhere: ids are UUIDs, times are RFC 3339 in UTC, lists come in pages ([`Page`]), and whatever goes wrong is
//! a [`Problem`].

mod accounts;
mod audit;
mod compiles;
mod page;
mod problem;
mod projects;
mod secrets;
mod tokens;
mod versions;

pub use accounts::*;
pub use audit::*;
pub use compiles::*;
pub use page::Page;
pub use problem::{FieldProblem, Problem};
pub use projects::*;
pub use secrets::*;
pub use tokens::*;
pub use versions::*;
