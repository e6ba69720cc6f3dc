//! The store: where versions, states, results, facts, leases and the records of a server are kept.
//!
//! It knows the shared words of `orrery_model` and nothing of models, schedules or handlers. Only this crate
//! touches the database. Start from the trait [`Store`] and from [`SqliteStore`]; `docs/decisions/0006-store.md`
//! tells why it is as it is. One suite of tests, `tests/it`, runs on every implementation.

mod acting;
mod both;
mod codes;
mod error;
mod glob;
mod load;
mod lock;
mod migrations;
mod plan;
mod postgres;
mod records;
mod rows;
pub mod sql;
mod sqlite;
mod store;
mod words;

pub use acting::{Attempt, on_behalf_of};
pub use error::{Result, StoreError};
pub use lock::{Holder, current_writer};
pub use postgres::PostgresStore;
pub use records::*;
pub use sqlite::SqliteStore;
pub use store::{Store, keys_of, load_version};
pub use words::*;

/// The usual text of an id.
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
