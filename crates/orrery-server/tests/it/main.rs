//! The server through its public interfaces.

mod accounts;
mod process;
mod support;
