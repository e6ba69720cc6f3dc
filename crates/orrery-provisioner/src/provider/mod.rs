//! Providers of this installation.

mod process;
mod process_end;
mod sim;

pub use process::ProcessProvider;
pub use sim::SimProvider;
