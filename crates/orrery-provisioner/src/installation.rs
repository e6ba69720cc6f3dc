//! The plug-ins of an installation, with their places below its data directory.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::automator::{AnsibleAutomator, ModelAutomator, PuppetAutomator, ShellAutomator};
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
    plugins.add_automator(Arc::new(PuppetAutomator::new()));
    plugins.add_automator(Arc::new(AnsibleAutomator::new(directory.join("python"))));
    Ok(plugins)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::PluginKind;

    /// Words in backticks in the rows of a page's tables that belong to a plug-in.
    fn documented_fields(page: &str, plugin: &str) -> Vec<String> {
        let mut fields = Vec::new();
        let mut is_own = false;
        for line in page.lines() {
            let Some(row) = line.strip_prefix('|') else {
                is_own = false;
                continue;
            };
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            if !cells[0].is_empty() {
                is_own = cells[0] == format!("`{plugin}`");
            }
            if let Some(cell) = cells.get(1).filter(|_| is_own) {
                fields.extend(cell.split('`').skip(1).step_by(2).map(str::to_owned));
            }
        }
        fields
    }

    #[test]
    fn the_reference_lists_all_plug_ins_with_their_fields() {
        let page = include_str!("../../../docs/reference/cluster-plugins.md");
        let directory = tempfile::tempdir().unwrap();
        let plugins = standard_plugins(directory.path()).unwrap();
        let mut count = 0;
        for manifest in plugins.manifests() {
            let documented = documented_fields(page, &manifest.name);
            for field in manifest.parameters.admin.fields.keys() {
                assert!(documented.contains(field), "{} of {} is missing", field, manifest.name);
            }
            count += usize::from(manifest.kind == PluginKind::Provider);
        }
        assert_eq!(count, 5);
        // Secrets are marked.
        let ec2 = plugins.manifest(PluginKind::Provider, "ec2").unwrap();
        assert_eq!(ec2.sensitive_fields(), ["secret_key", "session_token", "identity"]);
    }
}
