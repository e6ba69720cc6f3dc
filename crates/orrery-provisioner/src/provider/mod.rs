//! Providers of this installation.

mod sim;

pub use sim::SimProvider;
