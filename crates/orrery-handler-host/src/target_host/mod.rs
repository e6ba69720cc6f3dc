//! Targets in a sandboxed process, so that tenants' operations on this machine do not have the
//! server's privileges.
//!
//! ```text
//!   handlers ──► SandboxedTarget ──► TargetHost ══ connections ══► serve() ──► LocalTarget
//!            (in the server)                   (sockets)       (in the sandbox)
//! ```
//!
//! Native handlers stay in the server; their operations on the machine go through a
//! [`SandboxedTarget`]. Its [`TargetHost`] starts a process with a socket as standard input, over
//! which connections are passed. Each connection has one call at a time, and there are as many as
//! concurrently waiting handlers. Messages are lines of [`orrery_host::framing`], followed by raw bytes.
//!
//! A host may die at any moment, and its output is untrusted. Every call carries the end of the
//! permit, so that a host acts no longer than the server may, even if the server is frozen.

mod channel;
mod host;
mod message;
mod sandbox_boundary;
mod serve;
mod target;

pub use host::{Spawn, TargetHost};
pub use sandbox_boundary::SandboxBoundary;
pub use serve::serve;
pub use target::SandboxedTarget;
