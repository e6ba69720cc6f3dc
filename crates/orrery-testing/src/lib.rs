//! Test helpers of several crates: a private PostgreSQL, a private SSH server, machines in
//! namespaces, a failing network, programs, and a validator of JSON. Only tests may depend on this.

#![allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")]

mod json_schema;
mod machine;
mod postgres;
mod program;
mod proxy;
mod sshd;

pub use json_schema::{JsonSchema, SchemaError};
pub use machine::{TestLink, TestMachine};
pub use postgres::{Postgres, TestDatabase, TlsFiles};
pub use program::write_program;
pub use proxy::Proxy;
pub use sshd::{TestSshd, keygen};
