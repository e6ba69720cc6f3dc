//! Machines of a page: SSH servers on this machine, with addresses and a user that the page can show.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Result;
use orrery_testing::TestSshd;

/// Addresses and user of the pages.
const ADDRESSES: [&str; 2] = ["192.0.2.11", "192.0.2.12"];
const USER: &str = "deploy";

/// Running machines, in the order of their addresses.
pub(super) struct Machines(Vec<TestSshd>);

impl Machines {
    /// Starts the machines. The key in the home directory is accepted by all of them.
    pub(super) fn start(home: &Path) -> Result<Self> {
        let machines: Vec<TestSshd> = ADDRESSES.iter().map(|_| TestSshd::start()).collect();
        let (directory, first) = (home.join(".ssh"), &machines[0]);
        fs::create_dir_all(&directory)?;
        let identity = directory.join("id_ed25519");
        fs::copy(first.identity(), &identity)?;
        fs::set_permissions(&identity, fs::Permissions::from_mode(0o600))?;
        for machine in &machines {
            fs::copy(first.path("identity.pub"), machine.path("authorized_keys"))?;
        }
        Ok(Machines(machines))
    }

    /// Replaces the addresses and the user of an inventory by the real ones.
    pub(super) fn filled_in(&self, text: &str) -> String {
        let mut text = text.replace(&format!("user: {USER}"), &format!("user: {}", self.user()));
        for (machine, address) in self.0.iter().zip(ADDRESSES) {
            let real = format!("address: 127.0.0.1, port: {}", machine.port());
            text = text.replace(&format!("address: {address}"), &real);
        }
        text
    }

    /// Replaces real addresses and the real user in output by those of the page.
    pub(super) fn render(&self, text: &str) -> String {
        let mut text = text.replace(
            &format!("ssh://{}@127.0.0.1", self.user()),
            &format!("ssh://{USER}@127.0.0.1"),
        );
        text = text.replace(&format!("user {} ", self.user()), &format!("user {USER} "));
        for (machine, address) in self.0.iter().zip(ADDRESSES) {
            let port = machine.port();
            text = text.replace(&format!("127.0.0.1:{port}"), address);
            text = text.replace(&format!(", port {port} (host)"), "");
            text = text.replace(&format!("port {port} (host), "), "");
        }
        text
    }

    fn user(&self) -> &str {
        self.0[0].user()
    }
}
