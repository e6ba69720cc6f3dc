//! The core's side of hosts: processes that run code outside of this program.
//!
//! `docs/reference/host-protocol.md` defines the protocol. Bottom up: [`framing`] reads and writes
//! lines and trusts none of them, [`process`] starts and ends a host and captures its output,
//! [`handshake`] opens every connection, [`sdk`] unpacks the SDK, and [`host_command()`] starts it.
//! [`code_store`] stores the code of hosts, and [`manifest`] describes it for other machines; `orrery-pyenv` finds their interpreters and installs
//! their requirements. Hosts of compiles are in `orrery-compile-host`, those of handlers and targets
//! in `orrery-handler-host`. The crate knows nothing of models, handlers, stores or schedulers.
//! Tests: `tests/it`.

pub mod bundle;
pub mod code_store;
pub mod framing;
pub mod handshake;
mod host_command;
pub mod manifest;
pub mod process;
pub mod sdk;
pub mod sources;

pub use host_command::{host_command, host_command_with_sdk};
