//! Targets in a process of their own, so that what tenants have done to this machine is not done with the server's rights.
//!
//! ```text
//!   handlers ──► SandboxedTarget ──► TargetHost ══ connections ══► serve() ──► LocalTarget
//!            (in the server)                   (sockets)       (in the sandbox)
//! ```
//!
//! Handlers of this program stay in the server; what they do to the machine goes through a [`SandboxedTarget`]. Its
//! [`TargetHost`] starts a process, whose standard input is a socket over which connections are handed over. Each connection has one
//! call at a time, and as many are open as there are handlers that wait. Messages are lines of [`crate::wire`], with raw bytes
//! after them.
//!
//! A host may die at any moment, and nothing that it says is trusted. The end of the right to act goes with every call, so that
//! a host acts no longer than the server may, even if the server is frozen.

mod channel;
mod confines;
mod host;
mod message;
mod serve;
mod target;

pub use confines::Confines;
pub use host::{Spawn, TargetHost};
pub use serve::serve;
pub use target::SandboxedTarget;
