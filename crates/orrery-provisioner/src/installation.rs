//! The plug-ins of an installation, with their places below its data directory.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::automator::{AnsibleAutomator, ModelAutomator, ShellAutomator};
use crate::plugins::Plugins;
use crate::provider::{
    Ec2Provider, InventoryProvider, NetnsProvider, ProcessProvider, SimProvider,
};
use crate::ssh_access::SshMachineAccess;

/// Creates all plug-ins. What they write is below `directory`.
///
/// # Errors
/// If the directory cannot be written, or the system has no threads left.
pub fn standard_plugins(directory: &Path) -> io::Result<Plugins> {
    let ssh = SshMachineAccess::new(directory.join("known_hosts"))?;
    let mut plugins = Plugins::default();
    plugins.add_provider(Arc::new(SimProvider::new(directory.join("sim"))));
    plugins.add_provider(Arc::new(ProcessProvider::new(directory.join("process"))));
    plugins.add_provider(Arc::new(NetnsProvider::new(directory.join("netns"), ssh.clone())));
    plugins.add_provider(Arc::new(InventoryProvider::new(ssh.clone())));
    plugins.add_provider(Arc::new(Ec2Provider::new(directory.join("python"), ssh)));
    plugins.add_automator(Arc::new(ShellAutomator::new()));
    plugins.add_automator(Arc::new(ModelAutomator::new()));
    plugins.add_automator(Arc::new(AnsibleAutomator::new(directory.join("python"))));
    Ok(plugins)
}
