//! The store: persists versions, states, results, facts, leases and the records of a server.
//!
//! It uses the types of `orrery_model` and knows nothing of models, schedules or handlers. Only
//! this crate touches the database. Start from [`Store`], the handle with one group of methods per
//! noun;
//! `docs/decisions/0006-store.md` has the design decisions. One test suite, `tests/it`, runs on
//! every implementation.

mod backend;
mod cluster_types;
mod encoding;
mod error;
mod holder;
mod idempotency;
mod lock;
mod migrations;
mod names;
mod postgres;
mod records;
mod request_kind;
mod resource_loader;
mod rows;
mod sql;
mod sqlite;
mod store;
#[cfg(any(test, feature = "test-support"))]
mod test_support;
mod types;
mod version_delta;

pub use cluster_types::*;
pub use error::{Result, StoreError};
pub use holder::Holder;
pub use idempotency::{IdempotentRequest, with_idempotency};
pub use lock::current_writer;
pub use records::*;
pub use request_kind::{
    NewRequest, ProgressRecord, RequestCounts, RequestKey, RequestKind, RequestRecord,
    RequestResult, RunCounts, RunProgress, Selection, SelectionFilter,
};
pub(crate) use sql::values;
pub use store::{Store, resource_keys};
#[cfg(any(test, feature = "test-support"))]
pub use test_support::EnvironmentInfo;
pub use types::*;
