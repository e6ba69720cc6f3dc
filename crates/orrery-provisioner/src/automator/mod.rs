//! Automators of this installation.

mod shell;
mod task_data;

pub use shell::ShellAutomator;
