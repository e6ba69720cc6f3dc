//! Test helpers of several crates: a private PostgreSQL, and a failing network. Only tests may
//! depend on this.

#![allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")]

mod postgres;
mod proxy;

pub use postgres::{Postgres, TestDatabase, TlsFiles};
pub use proxy::Proxy;
