//! Problems of inventory documents: the path of the value, the reason, and help.

use std::fmt;

use super::HOSTS_MAX;
use crate::ssh_address::AddressError;

/// Step from a value of a document to one inside it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathStep {
    Key(String),
    Index(usize),
}

/// A problem of an inventory document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{issue}", PathPrefix(.path))]
pub struct InventoryProblem {
    pub path: Vec<PathStep>,
    /// True if the key at the path is wrong, not its value.
    pub is_key: bool,
    #[source]
    pub issue: InventoryIssue,
}

/// Name of a group, and its value.
type GroupValue = (String, String);

/// Reason for refusing a part of an inventory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InventoryIssue {
    #[error("expected {expected}, but it is {found}")]
    Type { expected: &'static str, found: &'static str },
    #[error("unknown key {key:?}")]
    UnknownKey { key: String, known: Vec<&'static str>, similar: Option<String> },
    #[error("there is no group {name:?}")]
    UnknownGroup { name: String, similar: Option<String> },
    #[error("group {0} contains itself")]
    GroupCycle(String),
    #[error("the hosts that {0} is reached through lead back to it")]
    JumpCycle(String),
    #[error("{0:?} is no name of a host")]
    HostName(String),
    #[error("{0:?} matches no host of this inventory")]
    NoMatch(String),
    #[error("{given:?} is no range: {expected}")]
    Range { given: String, expected: &'static str },
    #[error("there are more than {HOSTS_MAX} hosts")]
    TooManyHosts,
    #[error("{address} is not reached over SSH, so {key} has no effect")]
    NoEffect { address: String, key: &'static str },
    #[error("groups {} and {} give host {host} a different {key}: {} and {}", .one.0, .other.0, .one.1, .other.1)]
    Conflict { host: String, key: &'static str, one: Box<GroupValue>, other: Box<GroupValue> },
    #[error(transparent)]
    Value(#[from] AddressError),
}

impl InventoryProblem {
    /// Returns help, if there is any.
    pub fn help(&self) -> Option<String> {
        match &self.issue {
            InventoryIssue::UnknownKey { similar: Some(similar), .. }
            | InventoryIssue::UnknownGroup { similar: Some(similar), .. } => {
                Some(format!("did you mean {similar}?"))
            }
            InventoryIssue::UnknownKey { known, .. } => {
                Some(format!("expected one of {}", known.join(", ")))
            }
            InventoryIssue::UnknownGroup { .. } => {
                Some("declare it under groups, or remove it here".to_owned())
            }
            InventoryIssue::Conflict { host, key, .. } => Some(format!(
                "give {host} its own {key} under hosts, or nest one group in the other"
            )),
            InventoryIssue::NoMatch(_) => Some(
                "patterns select hosts that are declared under hosts or listed in a group"
                    .to_owned(),
            ),
            _ => None,
        }
    }

    /// Path in messages: `groups.web.hosts[2]`.
    pub fn path_text(&self) -> String {
        PathPrefix(&self.path).to_string().trim_end_matches(": ").to_owned()
    }
}

/// Path with a separator: `groups.web.hosts[2]: `.
struct PathPrefix<'p>(&'p [PathStep]);

impl fmt::Display for PathPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                PathStep::Key(key) if at == 0 => f.write_str(key)?,
                PathStep::Key(key) => write!(f, ".{key}")?,
                PathStep::Index(index) => write!(f, "[{index}]")?,
            }
        }
        if self.0.is_empty() { Ok(()) } else { f.write_str(": ") }
    }
}
