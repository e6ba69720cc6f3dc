//! Automators of this installation.

mod ansible;
mod model;
mod shell;
mod task_data;

pub use ansible::AnsibleAutomator;
pub use model::ModelAutomator;
pub use shell::ShellAutomator;
