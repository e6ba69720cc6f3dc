//! The store: persists versions, states, results, facts, leases and the records of a server.
//!
//! It uses the types of `orrery_model` and knows nothing of models, schedules or handlers. Only
//! this crate touches the database. Start from [`Store`], the handle with one group of methods per
//! noun;
//! `docs/decisions/0006-store.md` has the design decisions. One test suite, `tests/it`, runs on
//! every implementation.

mod encoding;
mod error;
mod idempotency;
mod lock;
mod migrations;
mod postgres;
mod records;
mod request_kind;
mod resource_loader;
mod rows;
mod shared_methods;
mod sql;
mod sqlite;
mod store;
mod types;
mod version_delta;

pub use error::{Result, StoreError};
pub use idempotency::{IdempotentRequest, with_idempotency};
pub use lock::{Holder, current_writer};
pub use records::*;
pub use request_kind::{
    ProgressRecord, RequestCounts, RequestKind, RequestResult, RunProgress, Selection,
    SelectionFilter,
};
pub(crate) use sql::values;
pub use store::{Store, resource_keys};
pub use types::*;
