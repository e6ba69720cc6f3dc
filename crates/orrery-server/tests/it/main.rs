//! The server through its public interfaces.

mod process;
