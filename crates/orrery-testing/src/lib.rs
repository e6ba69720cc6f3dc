//! What the tests of several crates need: a PostgreSQL of their own. Only tests may depend on this.

mod postgres;

pub use postgres::{Database, Postgres, TlsFiles};
