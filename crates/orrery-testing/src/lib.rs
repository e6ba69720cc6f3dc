//! Test helpers of several crates: a private PostgreSQL, and a failing network. Only tests may
//! depend on this.

mod postgres;
mod proxy;

pub use postgres::{Postgres, TestDatabase, TlsFiles};
pub use proxy::Proxy;
