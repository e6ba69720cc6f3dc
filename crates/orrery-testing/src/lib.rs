//! What the tests of several crates need: a PostgreSQL of their own, and a network that fails. Only tests may depend on this.

mod postgres;
mod proxy;

pub use postgres::{Database, Postgres, TlsFiles};
pub use proxy::Proxy;
