//! Network of the provider `netns`: a bridge, and a cable to each node.

use std::io;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use sha2::{Digest as _, Sha256};

use crate::machine_name::MachineName;
use crate::plugin::PluginError;

/// Addresses of the nodes of one directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeNetwork {
    pub(super) bridge: String,
    base: u32,
    prefix: u8,
}

impl NodeNetwork {
    /// Parses a network such as `10.77.0.0/16`.
    pub(super) fn parse(bridge: &str, network: &str) -> Result<Self, PluginError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if bridge.is_empty() || bridge.len() > 15 || !bridge.chars().all(is_plain) {
            let text = format!("the bridge {bridge:?} needs a name of up to 15 letters and digits");
            return Err(PluginError::new(text));
        }
        let parsed = network.split_once('/').and_then(|(base, prefix)| {
            let base: Ipv4Addr = base.parse().ok()?;
            let prefix: u8 = prefix.parse().ok().filter(|prefix| (8..=29).contains(prefix))?;
            let base = u32::from(base);
            (base & (u32::MAX >> prefix) == 0).then_some((base, prefix))
        });
        let (base, prefix) = parsed.ok_or_else(|| {
            PluginError::new(format!("{network:?} is not a network"))
                .with_hint("write a private network of 8 to 29 bits, such as 10.77.0.0/16")
        })?;
        Ok(NodeNetwork { bridge: bridge.to_owned(), base, prefix })
    }

    /// Number of nodes for which there are addresses: all but those of network, bridge and
    /// broadcast.
    pub(super) fn nodes_max(&self) -> u16 {
        u16::try_from((u32::MAX >> self.prefix) - 2).unwrap_or(u16::MAX)
    }

    /// Address of the bridge, through which this machine reaches the nodes.
    pub(super) fn gateway(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.base + 1)
    }

    pub(super) fn address(&self, slot: u16) -> Ipv4Addr {
        Ipv4Addr::from(self.base + 2 + u32::from(slot))
    }

    /// Creates the bridge unless it exists.
    pub(super) fn create_bridge(&self) -> io::Result<()> {
        if ip(&["link", "show", &self.bridge]).is_err() {
            ip(&["link", "add", &self.bridge, "type", "bridge"])?;
        }
        let gateway = format!("{}/{}", self.gateway(), self.prefix);
        // Replaces nothing else than the same address.
        ip(&["address", "replace", &gateway, "dev", &self.bridge])?;
        ip(&["link", "set", &self.bridge, "up"])
    }

    /// Removes the bridge. Cables end with their nodes.
    pub(super) fn remove_bridge(&self) -> io::Result<()> {
        remove_link(&self.bridge)
    }

    /// Connects a node to the bridge. `pid` is a process in its network.
    pub(super) fn connect(&self, name: &MachineName, slot: u16, pid: u32) -> io::Result<()> {
        let (device, pid) = (device(name), pid.to_string());
        remove_link(&device)?;
        ip(&["link", "add", &device, "type", "veth", "peer", "name", "eth0", "netns", &pid])?;
        ip(&["link", "set", &device, "master", &self.bridge, "up"])?;
        let inside = |arguments: &[&str]| {
            let network = format!("--net=/proc/{pid}/ns/net");
            run("nsenter", &[&[&network, "ip"], arguments].concat())
        };
        let address = format!("{}/{}", self.address(slot), self.prefix);
        inside(&["link", "set", "lo", "up"])?;
        inside(&["address", "add", &address, "dev", "eth0"])?;
        inside(&["link", "set", "eth0", "up"])?;
        inside(&["route", "add", "default", "via", &self.gateway().to_string()])
    }
}

/// Name of the end of a node's cable on this machine: devices have names of up to 15 bytes.
fn device(name: &MachineName) -> String {
    let hash = Sha256::digest(name.to_string());
    format!("orr{}", orrery_base::hex::to_hex(&hash[..6]))
}

/// Removes the cable of a node.
pub(super) fn disconnect(name: &MachineName) -> io::Result<()> {
    remove_link(&device(name))
}

fn remove_link(device: &str) -> io::Result<()> {
    if ip(&["link", "show", device]).is_err() {
        return Ok(());
    }
    match ip(&["link", "delete", device]) {
        // It ended with its node meanwhile.
        Err(_) if ip(&["link", "show", device]).is_err() => Ok(()),
        removed => removed,
    }
}

fn ip(arguments: &[&str]) -> io::Result<()> {
    run("ip", arguments)
}

/// Runs a command of this machine.
pub(super) fn run(program: &str, arguments: &[&str]) -> io::Result<()> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| io::Error::other(format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = format!("{program} {}: {}", arguments.join(" "), errors.trim());
    Err(io::Error::other(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_get_addresses_after_that_of_the_bridge() {
        let network = NodeNetwork::parse("orr0", "10.77.0.0/29").unwrap();
        assert_eq!(network.gateway().to_string(), "10.77.0.1");
        assert_eq!(network.address(0).to_string(), "10.77.0.2");
        let last = network.nodes_max() - 1;
        assert_eq!(network.address(last).to_string(), "10.77.0.6");
        for wrong in ["10.77.0.0", "10.77.0.1/16", "10.77.0.0/30", "x/16", "10.77.0.0/0"] {
            assert!(NodeNetwork::parse("orr0", wrong).is_err(), "{wrong}");
        }
        assert!(NodeNetwork::parse("a b", "10.77.0.0/16").is_err());
    }

    #[test]
    fn names_of_devices_fit() {
        let name = MachineName::new("k3xlongcluster", 1000, 12).unwrap();
        assert!(device(&name).len() <= 15);
    }
}
