//! The store: persists versions, states, results, facts, leases and the records of a server.
//!
//! It uses the types of `orrery_model` and knows nothing of models, schedules or handlers. Only
//! this crate touches the database. Start from the trait [`Store`] and from [`SqliteStore`];
//! `docs/decisions/0006-store.md` has the design decisions. One test suite, `tests/it`, runs on
//! every implementation.

mod encoding;
mod error;
mod glob;
mod idempotency;
mod lock;
mod migrations;
mod postgres;
mod records;
mod resource_loader;
mod rows;
mod shared_methods;
pub mod sql;
mod sqlite;
mod store;
mod types;
mod version_delta;

pub use error::{Result, StoreError};
pub use idempotency::{IdempotentRequest, with_idempotency};
pub use lock::{Holder, current_writer};
pub use postgres::PostgresStore;
pub use records::*;
pub use sqlite::SqliteStore;
pub use store::{Store, load_version, resource_keys};
pub use types::*;

/// Hyphenated hexadecimal text of a UUID.
pub fn uuid_text(id: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in id.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}
