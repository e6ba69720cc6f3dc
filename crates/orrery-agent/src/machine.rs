//! What an agent says about the machine that it is on.

use crate::protocol::Machine;

impl Machine {
    /// This machine.
    pub fn this() -> Self {
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

/// The name of the distribution in its own words.
fn distribution(os_release: &str) -> String {
    let line = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    line.unwrap_or_default().trim_matches(['"', '\'']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_says_what_it_is() {
        let text = "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\n";
        assert_eq!(distribution(text), "Debian GNU/Linux 13 (trixie)");
        assert_eq!(distribution("ID=x\n"), "");
        assert!(!Machine::this().host_name.is_empty());
    }
}
