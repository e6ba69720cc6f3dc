//! The inventory: machines that SSH reaches, with groups and defaults, resolved from a document.
//!
//! A document is a JSON value; `inventory.yml` of a project is read into one. [`HostInventory::resolve`]
//! checks all of it and decides every value: that of a host beats that of its groups, an inner group
//! beats the groups around it, and any group beats the defaults. Groups that disagree are a problem.
//! Problems have the path of the value, from which a reader of the file derives line and column.

mod document;
mod problem;
mod ranges;
mod resolve;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use crate::ssh_address::AgentAddress;

pub use problem::{InventoryIssue, InventoryProblem, PathStep};

/// Maximum number of hosts.
pub const HOSTS_MAX: usize = 100_000;

/// Hosts by name. Agents with these names run there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostInventory {
    hosts: BTreeMap<String, InventoryHost>,
}

/// A host with its resolved address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InventoryHost {
    /// Groups that contain it, directly or through other groups.
    pub groups: Vec<String>,
    pub address: AgentAddress,
    /// Values by key, such as `user`; each with its source.
    pub values: BTreeMap<&'static str, HostValue>,
}

/// A value of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostValue {
    pub value: String,
    pub source: HostValueSource,
}

/// Part of the inventory that gives a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostValueSource {
    /// The entry of the host itself.
    Host,
    Group(String),
    Defaults,
    /// The name of the host, which is its address unless another is given.
    Name,
}

impl HostInventory {
    /// Resolves a document.
    ///
    /// # Errors
    /// All problems, in the order of the document.
    pub fn resolve(document: &serde_json::Value) -> Result<Self, Vec<InventoryProblem>> {
        let (document, problems) = document::read(document);
        let (hosts, more) = resolve::hosts(&document);
        let problems: Vec<InventoryProblem> = problems.into_iter().chain(more).collect();
        if problems.is_empty() { Ok(HostInventory { hosts }) } else { Err(problems) }
    }

    /// Returns a host.
    pub fn get(&self, name: &str) -> Option<&InventoryHost> {
        self.hosts.get(name)
    }

    /// Names of all hosts, sorted.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.hosts.keys()
    }

    /// All hosts, sorted by name.
    pub fn hosts(&self) -> impl Iterator<Item = (&String, &InventoryHost)> {
        self.hosts.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }
}

impl fmt::Display for HostValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostValueSource::Host => f.write_str("host"),
            HostValueSource::Group(name) => write!(f, "group {name}"),
            HostValueSource::Defaults => f.write_str("defaults"),
            HostValueSource::Name => f.write_str("name"),
        }
    }
}
