//! The core's side of hosts: processes that run code outside of this program.
//!
//! `docs/reference/host-protocol.md` defines the protocol. Bottom up: [`framing`] reads and writes
//! lines and trusts none of them, [`process`] starts and ends a host and captures its output,
//! [`handshake`] opens every connection, [`python`] finds an interpreter and [`sdk`] unpacks the
//! SDK. [`compile_host`] serves compiles and exports, [`handler_host`] runs handlers;
//! [`code_store`] stores their code, and [`virtualenvs`] their requirements. [`target_host`] is a
//! target in a process of its own. The crate knows nothing of stores, schedulers or terminals.
//! Tests: `tests/it`.

pub mod bundle;
pub mod code_store;
pub mod compile_host;
pub mod framing;
pub mod handler_host;
pub mod handshake;
pub mod pip;
pub mod process;
pub mod python;
pub mod sdk;
pub mod sources;
pub mod target_host;
pub mod virtualenvs;
