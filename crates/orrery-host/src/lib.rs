//! The core's side of hosts: processes that run code which this program does not contain.
//!
//! `docs/reference/host-protocol.md` says what is spoken. From below: [`wire`] reads and writes lines and trusts none
//! of them, [`process`] starts and ends a host and keeps what it printed, [`session`] is the beginning of every
//! conversation, [`python`] finds an interpreter and [`sdk`] unpacks what it runs. [`compiling`] is the conversation while a model is compiled
//! and exported, [`handling`] runs handlers; [`code`] keeps
//! the code that they need, and [`environments`] what that requires. [`target_host`] is a target in a process of its own. It knows nothing of stores, schedulers or terminals.
//! Tests: `tests/it`.

pub mod bundle;
pub mod code;
pub mod compiling;
pub mod environments;
pub mod handling;
pub mod pip;
pub mod process;
pub mod python;
pub mod sdk;
pub mod session;
pub mod sources;
pub mod target_host;
pub mod wire;
