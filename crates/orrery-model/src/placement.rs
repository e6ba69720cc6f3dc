//! Placement: the machine on which an agent's resources are applied, decided from data alone.
//!
//! An agent is a name. Resources that act on a machine are applied only if their agent's machine is
//! known; otherwise they are unavailable, with a reason and remedies. [`Inventory::placement_of`]
//! alone decides this.

use std::collections::BTreeMap;
use std::fmt;

use crate::pattern::matches_wildcards;
use crate::similar_names::closest;

/// Names of the deploying machine in every environment.
const OWN_NAMES: [&str; 2] = ["localhost", "internal"];

/// Known agents and machines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Host names of the machine on which handlers run.
    pub host_names: Vec<String>,
    /// Addresses that the model declares, by agent: `local:`, `ssh://user@host:port`.
    pub addresses: BTreeMap<String, String>,
    /// Patterns of the project (`orrery.local_agents` in `project.yml`).
    pub project_patterns: Vec<String>,
    /// Patterns of the environment (its setting `local_agents`).
    pub environment_patterns: Vec<String>,
    /// Agents that remote agents serve, or served.
    pub enrolled: BTreeMap<String, Enrolment>,
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
    /// A machine with an address, reachable only by handlers that connect on their own.
    Address(String),
    /// No known machine.
    Unknown {
        /// A known agent with nearly the same name.
        similar: Option<String>,
    },
}

/// Reason that an agent is the deploying machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locality {
    /// The name is `localhost` or `internal`.
    OwnName,
    HostName,
    /// Declared by a `std::AgentConfig` of the model.
    Model,
    Project,
    Environment,
}

/// Program that applies resources: remedies differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deployer {
    /// A command on this machine, without a server.
    Command,
    Server,
}

/// Returns true if an address of the model means the deploying machine.
pub fn is_local_address(address: &str) -> bool {
    address.is_empty()
        || address == "localhost"
        || address == "ssh://localhost"
        || address.starts_with("local:")
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

    /// Decides the placement of an agent. The most specific source wins: enrolment, address, names,
    /// patterns.
    pub fn placement_of(&self, agent: &str) -> Placement {
        match self.enrolled.get(agent) {
            Some(Enrolment::Active) => return Placement::Remote,
            Some(Enrolment::Revoked) => return Placement::Revoked,
            None => {}
        }
        match self.addresses.get(agent) {
            Some(address) if is_local_address(address) => return Placement::Local(Locality::Model),
            Some(address) => return Placement::Address(address.clone()),
            None => {}
        }
        if OWN_NAMES.contains(&agent) {
            return Placement::Local(Locality::OwnName);
        }
        if self.host_names.iter().any(|name| name.eq_ignore_ascii_case(agent)) {
            return Placement::Local(Locality::HostName);
        }
        let fit =
            |patterns: &[String]| patterns.iter().any(|pattern| matches_wildcards(pattern, agent));
        if fit(&self.project_patterns) {
            return Placement::Local(Locality::Project);
        }
        if fit(&self.environment_patterns) {
            return Placement::Local(Locality::Environment);
        }
        Placement::Unknown { similar: self.similar(agent) }
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
            .chain(&self.host_names)
            .map(String::as_str)
            .chain(OWN_NAMES);
        closest(agent, known.filter(|name| letters(name) != own)).map(str::to_owned)
    }
}

impl Placement {
    /// Returns true if resources that act on the agent's machine can be applied.
    pub fn has_machine(&self) -> bool {
        matches!(self, Placement::Local(_) | Placement::Remote)
    }

    /// Name of the placement in interfaces.
    pub fn as_str(&self) -> &'static str {
        match self {
            Placement::Local(_) => "local",
            Placement::Remote => "remote",
            Placement::Revoked => "revoked",
            Placement::Address(_) => "ssh",
            Placement::Unknown { .. } => "unknown",
        }
    }

    /// Explains the decision in a sentence.
    pub fn reason(&self, agent: &str) -> String {
        match self {
            Placement::Local(locality) => format!("{agent} is this machine: {locality}"),
            Placement::Remote => format!("a remote agent serves {agent}"),
            Placement::Revoked => format!("the remote agent that served {agent} was revoked"),
            Placement::Address(address) => format!(
                "{agent} has the address {}, and this type of resource is not applied over SSH yet",
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
        let declare = match deployer {
            Deployer::Server => format!(
                "if {agent} is the server itself, add it to `orrery.local_agents` in project.yml or to the environment's setting local_agents"
            ),
            Deployer::Command => format!(
                "if {agent} is this machine, add it to `orrery.local_agents` in project.yml"
            ),
        };
        match self {
            Placement::Local(_) | Placement::Remote => None,
            Placement::Revoked => {
                Some(format!("invite another one with `orrery agent invite {agent}`"))
            }
            Placement::Address(_) => {
                Some(format!("{enrol}; if {agent} is this machine, give it the address `local:`"))
            }
            Placement::Unknown { similar: Some(similar) } => {
                Some(format!("did you mean {similar}? Otherwise {enrol}; {declare}"))
            }
            Placement::Unknown { similar: None } => {
                Some(format!("{enrol}; {declare}; if the name is wrong, correct it"))
            }
        }
    }
}

/// Returns an address without the options after the host.
fn without_options(address: &str) -> &str {
    address.split('?').next().unwrap_or(address)
}

impl fmt::Display for Locality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Locality::OwnName => "its name always means that",
            Locality::HostName => "that is its host name",
            Locality::Model => "a std::AgentConfig of the model gives it a local address",
            Locality::Project => "orrery.local_agents in project.yml names it",
            Locality::Environment => "the environment's setting local_agents names it",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory() -> Inventory {
        let address = |name: &str, address: &str| (name.to_owned(), address.to_owned());
        Inventory {
            addresses: BTreeMap::from([
                address("by-ssh", "ssh://root@192.0.2.1:22?python=python3"),
                address("by-model", "local:"),
                address("lab-ssh", "ssh://root@192.0.2.2"),
            ]),
            project_patterns: vec!["lab-*".to_owned()],
            environment_patterns: vec!["node?".to_owned()],
            enrolled: BTreeMap::from([
                ("webserver1".to_owned(), Enrolment::Active),
                ("gone".to_owned(), Enrolment::Revoked),
                ("node1".to_owned(), Enrolment::Active),
            ]),
            ..Inventory::default()
        }
        .on_host("box.example.org")
    }

    fn unknown(similar: Option<&str>) -> Placement {
        Placement::Unknown { similar: similar.map(str::to_owned) }
    }

    #[test]
    fn an_agent_is_this_machine_only_if_declared() {
        let inventory = inventory();
        for (agent, locality) in [
            ("localhost", Locality::OwnName),
            ("internal", Locality::OwnName),
            ("box", Locality::HostName),
            ("BOX.example.org", Locality::HostName),
            ("by-model", Locality::Model),
            ("lab-3", Locality::Project),
            ("node2", Locality::Environment),
        ] {
            assert_eq!(inventory.placement_of(agent), Placement::Local(locality), "{agent}");
        }
        for agent in ["", "box.example.com", "web2", "lab", "node22"] {
            assert_eq!(inventory.placement_of(agent).as_str(), "unknown", "{agent}");
        }
        assert_eq!(Inventory::all_local().placement_of("x"), Placement::Local(Locality::Project));
        assert_eq!(Inventory::default().placement_of("box"), unknown(None));
    }

    #[test]
    fn an_enrolled_or_addressed_agent_is_never_this_machine() {
        let inventory = inventory();
        assert_eq!(inventory.placement_of("webserver1"), Placement::Remote);
        assert_eq!(inventory.placement_of("node1"), Placement::Remote, "whatever a pattern says");
        assert_eq!(inventory.placement_of("gone"), Placement::Revoked);
        assert_eq!(inventory.placement_of("lab-ssh").as_str(), "ssh", "whatever a pattern says");
        let mut enrolled = inventory;
        enrolled.enrolled.insert("localhost".to_owned(), Enrolment::Revoked);
        assert!(!enrolled.placement_of("localhost").has_machine());
    }

    #[test]
    fn a_misspelt_name_is_recognized_and_a_neighbour_is_not() {
        let inventory = inventory();
        assert_eq!(inventory.placement_of("webserevr1"), unknown(Some("webserver1")));
        assert_eq!(inventory.placement_of("webserver2"), unknown(None), "another machine");
        assert_eq!(inventory.placement_of("localhots"), unknown(Some("localhost")));
    }

    #[test]
    fn remedies_fit_the_program_that_deploys() {
        let nowhere = unknown(Some("web1"));
        let help = |deployer| nowhere.help("wbe1", deployer).unwrap();
        assert!(help(Deployer::Command).starts_with("did you mean web1?"));
        assert!(help(Deployer::Command).contains("`orrery.local_agents` in project.yml"));
        assert!(help(Deployer::Server).contains("`orrery agent invite wbe1`"));
        assert!(help(Deployer::Server).contains("setting local_agents"));
        let ssh = Placement::Address("ssh://root@192.0.2.1:22?python=python3".to_owned());
        assert!(ssh.reason("a").contains("ssh://root@192.0.2.1:22, and"), "{}", ssh.reason("a"));
        assert_eq!(Placement::Remote.help("a", Deployer::Server), None);
    }

    #[test]
    fn addresses_of_this_machine_are_known() {
        for local in ["", "local:", "local:x", "localhost", "ssh://localhost"] {
            assert!(is_local_address(local), "{local}");
        }
        for other in ["ssh://localhost:2222", "ssh://root@localhost", "web1", "ssh://web1"] {
            assert!(!is_local_address(other), "{other}");
        }
    }
}
