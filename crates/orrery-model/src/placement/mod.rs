//! Placement: the machine on which an agent's resources are applied, decided from data alone.
//!
//! An agent is a name. Resources that act on a machine are applied only if their agent's machine is
//! known; otherwise they are unavailable, with a reason and remedies. [`Inventory::placement_of`]
//! alone decides this. Sources, strongest first:
//!
//! 1. the environment's setting `agent_placements`;
//! 2. declarations of another machine, or of none: by the model, then by the inventory file;
//! 3. enrolled remote agents;
//! 4. declarations of the deploying machine: by the model, by the inventory file, its own names, its
//!    host names, patterns of the project, patterns of the environment.
//!
//! So nothing but the setting makes an agent local that another source places elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::host_inventory::HostInventory;
use crate::pattern::matches_wildcards;
use crate::similar_names::closest;
use crate::ssh_address::{AddressError, AgentAddress, SshAddress};

#[cfg(test)]
mod tests;

/// Names of the deploying machine in every environment.
const OWN_NAMES: [&str; 2] = ["localhost", "internal"];

/// Placeholder for the agent's name in addresses of the environment.
const AGENT_PLACEHOLDER: &str = "{agent}";

/// Known agents and machines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Host names of the machine on which handlers run.
    pub host_names: Vec<String>,
    /// Addresses of the environment by pattern of agents (its setting `agent_placements`), with
    /// `{agent}` for the agent's name.
    pub environment_addresses: BTreeMap<String, String>,
    /// Addresses that the model declares, by agent: `local:`, `ssh://user@host:port`.
    pub addresses: BTreeMap<String, String>,
    /// Hosts of the inventory file.
    pub hosts: Arc<HostInventory>,
    /// Patterns of the project (`orrery.local_agents` in `project.yml`).
    pub project_patterns: Vec<String>,
    /// Patterns of the environment (its setting `local_agents`).
    pub environment_patterns: Vec<String>,
    /// Agents that remote agents serve, or served.
    pub enrolled: BTreeMap<String, Enrolment>,
    /// The agents are nodes of a cluster, whose machines this server provisions.
    pub is_provisioned: bool,
}

/// State of the remote agent that serves a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enrolment {
    Active,
    Revoked,
}

/// Location at which the resources of an agent are applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The machine on which handlers run.
    Local(Locality),
    /// The machine of an enrolled remote agent.
    Remote,
    /// The machine of a revoked remote agent, which is unreachable.
    Revoked,
    /// A machine that SSH reaches.
    Ssh {
        address: Box<SshAddress>,
        source: AddressSource,
        /// Weaker than the address, and not used.
        enrolment: Option<Enrolment>,
    },
    /// A machine of a cluster, on which tasks act.
    Provisioned,
    /// No machine, by declaration.
    Nowhere(AddressSource),
    /// A machine with an address that cannot be read.
    Invalid { address: String, source: AddressSource, error: AddressError },
    /// No known machine.
    Unknown {
        /// A known agent with nearly the same name.
        similar: Option<String>,
    },
}

/// Source of an agent's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressSource {
    /// The environment's setting `agent_placements`, with the pattern that matches.
    Environment(String),
    /// A `std::AgentConfig` of the model.
    Model,
    /// The inventory file.
    Inventory,
}

/// Reason that an agent is the deploying machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locality {
    /// The name is `localhost` or `internal`.
    OwnName,
    HostName,
    /// Declared by a `std::AgentConfig` of the model.
    Model,
    /// Declared by the inventory file.
    Inventory,
    Project,
    /// Declared by the environment's setting `local_agents`.
    Environment,
    /// Declared by the environment's setting `agent_placements`.
    EnvironmentAddress,
}

/// Program that applies resources: remedies differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deployer {
    /// A command on this machine, without a server.
    Command,
    Server,
}

impl Inventory {
    /// Returns an inventory in which every agent is the deploying machine.
    pub fn all_local() -> Self {
        Inventory { project_patterns: vec!["*".to_owned()], ..Inventory::default() }
    }

    /// Adds the host name of the machine on which handlers run, with and without its domain.
    #[must_use]
    pub fn on_host(mut self, name: &str) -> Self {
        let short = name.split('.').next().unwrap_or(name);
        for name in [name, short] {
            if !name.is_empty() && !self.host_names.iter().any(|known| known == name) {
                self.host_names.push(name.to_owned());
            }
        }
        self
    }

    /// Decides the placement of an agent. The strongest source wins; the module lists them.
    pub fn placement_of(&self, agent: &str) -> Placement {
        if self.is_provisioned {
            return Placement::Provisioned;
        }
        let parse = |text: String| text.parse::<AgentAddress>().map_err(|error| (text, error));
        let by_environment = self.environment_address(agent).map(|(pattern, address)| {
            let address = address.replace(AGENT_PLACEHOLDER, agent);
            (AddressSource::Environment(pattern.to_owned()), parse(address))
        });
        let by_model = self.addresses.get(agent);
        let by_model = by_model.map(|address| (AddressSource::Model, parse(address.clone())));
        let by_file = self.hosts.get(agent);
        let by_file = by_file.map(|host| (AddressSource::Inventory, Ok(host.address.clone())));
        let mut local = None;
        for (source, address) in [by_environment, by_model, by_file].into_iter().flatten() {
            return match address {
                Ok(AgentAddress::Local) => {
                    let locality = match source {
                        AddressSource::Environment(_) => {
                            return Placement::Local(Locality::EnvironmentAddress);
                        }
                        AddressSource::Model => Locality::Model,
                        AddressSource::Inventory => Locality::Inventory,
                    };
                    local.get_or_insert(locality);
                    continue;
                }
                Ok(AgentAddress::Nowhere) => Placement::Nowhere(source),
                Ok(AgentAddress::Ssh(address)) => {
                    let enrolment = self.enrolled.get(agent).copied();
                    Placement::Ssh { address, source, enrolment }
                }
                Err((address, error)) => Placement::Invalid { address, source, error },
            };
        }
        match self.enrolled.get(agent) {
            Some(Enrolment::Active) => return Placement::Remote,
            Some(Enrolment::Revoked) => return Placement::Revoked,
            None => {}
        }
        match local.or_else(|| self.own_locality(agent)) {
            Some(locality) => Placement::Local(locality),
            None => Placement::Unknown { similar: self.similar(agent) },
        }
    }

    /// Returns the address of the environment for an agent, with its pattern: that of the agent's
    /// name, or else that with the most characters that are no wildcards.
    fn environment_address(&self, agent: &str) -> Option<(&str, &str)> {
        if let Some((name, address)) = self.environment_addresses.get_key_value(agent) {
            return Some((name, address));
        }
        let literals = |pattern: &str| pattern.chars().filter(|c| !matches!(c, '*' | '?')).count();
        let addresses = self.environment_addresses.iter();
        let matching = addresses.filter(|(pattern, _)| matches_wildcards(pattern, agent));
        let (pattern, address) =
            matching.max_by_key(|(pattern, _)| (literals(pattern), std::cmp::Reverse(*pattern)))?;
        Some((pattern, address))
    }

    /// Returns the reason that an agent without an address is the deploying machine.
    fn own_locality(&self, agent: &str) -> Option<Locality> {
        let fit =
            |patterns: &[String]| patterns.iter().any(|pattern| matches_wildcards(pattern, agent));
        if OWN_NAMES.contains(&agent) {
            Some(Locality::OwnName)
        } else if self.host_names.iter().any(|name| name.eq_ignore_ascii_case(agent)) {
            Some(Locality::HostName)
        } else if fit(&self.project_patterns) {
            Some(Locality::Project)
        } else if fit(&self.environment_patterns) {
            Some(Locality::Environment)
        } else {
            None
        }
    }

    /// Returns a similar known name. Names that differ only in digits are different machines.
    fn similar(&self, agent: &str) -> Option<String> {
        let letters = |name: &str| -> String {
            name.chars().filter(|character| !character.is_ascii_digit()).collect()
        };
        let own = letters(agent);
        let known = self
            .enrolled
            .keys()
            .chain(self.addresses.keys())
            .chain(self.hosts.names())
            .chain(&self.host_names)
            .map(String::as_str)
            .chain(OWN_NAMES);
        closest(agent, known.filter(|name| letters(name) != own)).map(str::to_owned)
    }
}

impl Placement {
    /// Returns true if resources that act on the agent's machine can be applied.
    pub fn has_machine(&self) -> bool {
        use Placement as P;
        matches!(self, P::Local(_) | P::Remote | P::Ssh { .. } | P::Provisioned)
    }

    /// Returns true if both are the same machine, as far as is known.
    pub fn is_same_machine(&self, other: &Placement) -> bool {
        match (self, other) {
            (Placement::Ssh { address: one, .. }, Placement::Ssh { address: other, .. }) => {
                one == other
            }
            _ => self.as_str() == other.as_str(),
        }
    }

    /// Address of the machine, if one is declared.
    pub fn address(&self) -> Option<String> {
        match self {
            Placement::Ssh { address, .. } => Some(address.to_string()),
            Placement::Invalid { address, .. } => Some(address.clone()),
            _ => None,
        }
    }

    /// Name of the placement in interfaces.
    pub fn as_str(&self) -> &'static str {
        match self {
            Placement::Local(_) => "local",
            Placement::Remote => "remote",
            Placement::Revoked => "revoked",
            Placement::Ssh { .. } => "ssh",
            Placement::Provisioned => "provisioned",
            Placement::Nowhere(_) => "none",
            Placement::Invalid { .. } | Placement::Unknown { .. } => "unknown",
        }
    }

    /// Explains the decision in a sentence.
    pub fn reason(&self, agent: &str) -> String {
        match self {
            Placement::Local(locality) => format!("{agent} is this machine: {locality}"),
            Placement::Remote => format!("a remote agent serves {agent}"),
            Placement::Revoked => format!("the remote agent that served {agent} was revoked"),
            Placement::Ssh { address, source, enrolment } => {
                let unused = match enrolment {
                    Some(Enrolment::Active) => "; the remote agent that serves it is not used",
                    Some(Enrolment::Revoked) | None => "",
                };
                format!("{source} gives {agent} the address {}{unused}", address.location())
            }
            Placement::Provisioned => {
                format!("the machine of {agent} is provisioned by this server")
            }
            Placement::Nowhere(source) => format!("{source} gives {agent} no machine (none:)"),
            Placement::Invalid { address, source, error } => format!(
                "{source} gives {agent} the address {:?}, which cannot be read: {error}",
                without_options(address)
            ),
            Placement::Unknown { .. } => {
                format!("{agent} is not known to be this machine, and no remote agent serves it")
            }
        }
    }

    /// Returns the remedies if the agent has no machine.
    pub fn help(&self, agent: &str, deployer: Deployer) -> Option<String> {
        let enrol = match deployer {
            Deployer::Server => format!("enrol its machine with `orrery agent invite {agent}`"),
            Deployer::Command => format!(
                "deploy on that machine itself, or use a server and enrol it with `orrery agent invite {agent}`"
            ),
        };
        let reach = format!(
            "give {agent} an SSH address in inventory.yml or by a std::AgentConfig of the model"
        );
        let declare = match deployer {
            Deployer::Server => format!(
                "if {agent} is the server itself, add it to `orrery.local_agents` in project.yml or to the environment's setting local_agents"
            ),
            Deployer::Command => format!(
                "if {agent} is this machine, add it to `orrery.local_agents` in project.yml"
            ),
        };
        match self {
            Placement::Local(_)
            | Placement::Remote
            | Placement::Ssh { .. }
            | Placement::Provisioned => None,
            Placement::Revoked => {
                Some(format!("invite another one with `orrery agent invite {agent}`"))
            }
            Placement::Nowhere(source) => {
                Some(format!("remove the address none: from {}", source.where_to_edit()))
            }
            Placement::Invalid { source, .. } => {
                Some(format!("correct the address in {}", source.where_to_edit()))
            }
            Placement::Unknown { similar: Some(similar) } => {
                Some(format!("did you mean {similar}? Otherwise {enrol}; {reach}; {declare}"))
            }
            Placement::Unknown { similar: None } => {
                Some(format!("{enrol}; {reach}; {declare}; if the name is wrong, correct it"))
            }
        }
    }
}

impl Placement {
    /// What joining a remote agent for an agent with this placement does, and the remedy; `None` if
    /// it does what is expected.
    pub fn on_invitation(&self, agent: &str) -> Option<String> {
        let stays = |place: &str| {
            format!(
                "{}. That is stronger than a remote agent: the machine that joins is not used. To use it, remove the address from {place}",
                self.reason(agent)
            )
        };
        match self {
            Placement::Ssh { source, .. }
            | Placement::Nowhere(source)
            | Placement::Invalid { source, .. } => Some(stays(&source.where_to_edit())),
            Placement::Local(Locality::EnvironmentAddress) => {
                Some(stays("the environment's setting agent_placements"))
            }
            Placement::Local(_) => Some(format!(
                "{}. A remote agent is stronger: from its joining on, the resources of {agent} are applied on its machine instead. If that is not meant, let the token expire and invite another name",
                self.reason(agent)
            )),
            Placement::Provisioned => {
                Some(format!("{}: the machine that joins is not used", self.reason(agent)))
            }
            Placement::Remote | Placement::Revoked | Placement::Unknown { .. } => None,
        }
    }
}

/// Returns an address without the options after the host.
fn without_options(address: &str) -> &str {
    address.split('?').next().unwrap_or(address)
}

impl AddressSource {
    /// Place in which a user changes the address.
    fn where_to_edit(&self) -> String {
        match self {
            AddressSource::Environment(pattern) => {
                format!("the environment's setting agent_placements, under {pattern}")
            }
            AddressSource::Model => "the std::AgentConfig of the model".to_owned(),
            AddressSource::Inventory => "inventory.yml".to_owned(),
        }
    }
}

impl fmt::Display for AddressSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AddressSource::Environment(_) => "the environment's setting agent_placements",
            AddressSource::Model => "a std::AgentConfig of the model",
            AddressSource::Inventory => "the inventory",
        })
    }
}

impl fmt::Display for Locality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Locality::OwnName => "its name always means that",
            Locality::HostName => "that is its host name",
            Locality::Model => "a std::AgentConfig of the model gives it a local address",
            Locality::Inventory => "the inventory gives it a local address",
            Locality::EnvironmentAddress => {
                "the environment's setting agent_placements gives it a local address"
            }
            Locality::Project => "orrery.local_agents in project.yml names it",
            Locality::Environment => "the environment's setting local_agents names it",
        })
    }
}
