//! Facts of a node: addresses and SSH access, as `cluster::Reachable` reports them.

use std::collections::BTreeMap;

use orrery_model::Fact;
use serde::{Deserialize, Serialize};

/// Start of the names of facts with addresses, such as `ip.access_v4`.
const ADDRESS: &str = "ip.";
const INCARNATION: &str = "incarnation";
const PROVIDER_ID: &str = "provider.id";
const SSH_PORT: &str = "ssh.port";
const SSH_USER: &str = "ssh.user";
const SSH_HOST_KEY: &str = "ssh.host_key";
const PORT_BASE: &str = "port.base";

/// Facts of one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeFacts {
    /// Incarnation of the machine that they were read from.
    pub incarnation: Option<u32>,
    /// Id of the machine at its provider.
    pub provider_id: Option<String>,
    /// By kind: `access_v4`, `bind_v4`, …
    pub addresses: BTreeMap<String, String>,
    pub ssh_port: Option<u16>,
    pub ssh_user: Option<String>,
    /// Pinned key of the machine: type and base64, as in `known_hosts`.
    pub ssh_host_key: Option<String>,
    /// First of the ports that are reserved for services of this node, where nodes share a machine.
    pub port_base: Option<u16>,
}

impl NodeFacts {
    /// Reads facts by name; others are ignored.
    pub fn from_pairs<'f>(facts: impl IntoIterator<Item = (&'f str, &'f str)>) -> Self {
        let mut found = NodeFacts::default();
        for (name, value) in facts {
            let text = || Some(value.to_owned());
            match name {
                INCARNATION => found.incarnation = value.parse().ok(),
                PROVIDER_ID => found.provider_id = text(),
                SSH_PORT => found.ssh_port = value.parse().ok(),
                SSH_USER => found.ssh_user = text(),
                SSH_HOST_KEY => found.ssh_host_key = text(),
                PORT_BASE => found.port_base = value.parse().ok(),
                _ => {
                    if let Some(kind) = name.strip_prefix(ADDRESS) {
                        found.addresses.insert(kind.to_owned(), value.to_owned());
                    }
                }
            }
        }
        found
    }

    /// Facts to report. They do not expire: the machine keeps them until it is replaced.
    pub fn to_facts(&self) -> Vec<Fact> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        let mut add = |name: &str, value: Option<String>| {
            pairs.extend(value.map(|value| (name.to_owned(), value)));
        };
        add(INCARNATION, self.incarnation.map(|number| number.to_string()));
        add(PROVIDER_ID, self.provider_id.clone());
        add(SSH_PORT, self.ssh_port.map(|port| port.to_string()));
        add(SSH_USER, self.ssh_user.clone());
        add(SSH_HOST_KEY, self.ssh_host_key.clone());
        add(PORT_BASE, self.port_base.map(|port| port.to_string()));
        for (kind, address) in &self.addresses {
            pairs.push((format!("{ADDRESS}{kind}"), address.clone()));
        }
        pairs.into_iter().map(|(name, value)| Fact { name, value, expires: false }).collect()
    }

    /// Address for connections from outside.
    pub fn access_address(&self) -> Option<&str> {
        let kinds = ["access_v4", "access_v6", "bind_v4"];
        kinds.iter().find_map(|kind| self.addresses.get(*kind)).map(String::as_str)
    }

    /// Address on which services listen.
    pub fn bind_address(&self) -> Option<&str> {
        let kinds = ["bind_v4", "access_v4"];
        kinds.iter().find_map(|kind| self.addresses.get(*kind)).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_read_back() {
        let facts = NodeFacts {
            incarnation: Some(2),
            provider_id: Some("i-1".to_owned()),
            addresses: [("access_v4".to_owned(), "192.0.2.7".to_owned())].into(),
            ssh_port: Some(2222),
            ssh_user: Some("admin".to_owned()),
            ssh_host_key: Some("ssh-ed25519 AAAA".to_owned()),
            port_base: Some(20_000),
        };
        let reported = facts.to_facts();
        let pairs = reported.iter().map(|fact| (&*fact.name, &*fact.value));
        assert_eq!(NodeFacts::from_pairs(pairs), facts);
    }
}
