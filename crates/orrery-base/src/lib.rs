//! Helpers that every crate with I/O needs, each written once.
//!
//! The lowest crate of the workspace: it knows no type of the domain. Pure crates do not use it,
//! because it reads the clocks of the machine. Start with [`lock::IgnorePoison`],
//! [`error_chain::error_chain`] and [`clock`]. Tests are at the end of each file.

pub mod byte_size;
pub mod clock;
pub mod credentials;
pub mod error_chain;
pub mod hex;
#[cfg(feature = "line-diff")]
pub mod line_diff;
pub mod lock;
pub mod thread;
