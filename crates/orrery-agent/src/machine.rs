//! Description of the agent's machine.

use crate::protocol::Machine;

impl Machine {
    /// This machine.
    pub fn current() -> Self {
        let names = rustix::system::uname();
        Machine {
            host_name: names.nodename().to_string_lossy().into_owned(),
            system: std::env::consts::OS.to_owned(),
            distribution: std::fs::read_to_string("/etc/os-release")
                .map(|text| distribution(&text))
                .unwrap_or_default(),
            architecture: std::env::consts::ARCH.to_owned(),
        }
    }
}

/// Name of the distribution.
fn distribution(os_release: &str) -> String {
    let line = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    line.unwrap_or_default().trim_matches(['"', '\'']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_described() {
        let text = "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\n";
        assert_eq!(distribution(text), "Debian GNU/Linux 13 (trixie)");
        assert_eq!(distribution("ID=x\n"), "");
        assert!(!Machine::current().host_name.is_empty());
    }
}
