//! The store: where versions, states, results, facts and leases are kept. SQLite, in one file.
//!
//! It knows the shared words of `orrery_model` and nothing of models, schedules or handlers. Only this crate
//! touches the database. Start from the trait [`Store`] and from [`SqliteStore`]; `docs/decisions/0006-store.md`
//! tells why it is as it is. One suite of tests, `tests/it`, runs on every implementation.

mod error;
mod glob;
mod load;
mod lock;
mod sqlite;
mod store;
mod words;

pub use error::{Result, StoreError};
pub use lock::{Holder, current_writer};
pub use sqlite::SqliteStore;
pub use store::{Store, keys_of, load_version};
pub use words::*;
