//! Automators of this installation.

mod ansible;
mod model;
mod puppet;
mod shell;
mod task_data;

pub use ansible::AnsibleAutomator;
pub use model::ModelAutomator;
pub use puppet::PuppetAutomator;
pub use shell::ShellAutomator;
