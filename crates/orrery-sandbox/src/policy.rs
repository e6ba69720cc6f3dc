//! What a sandbox shows, and how far it may go.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What the program in a sandbox can see and do. Everything that is not named here can be read, as far as the program's user may, and
/// nothing can be written but temporary files, which go with the sandbox.
///
/// Home directories, `/run` and the data of databases and containers are hidden from every sandbox. Where paths lie in each other, the
/// deepest one counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// The user, and the group of the same number, that the program runs as. Only root can choose; others stay who they are, in a user
    /// namespace of their own.
    pub uid: Option<u32>,
    /// Paths that are empty inside.
    pub hidden: Vec<PathBuf>,
    /// Paths that can be read although something above them is hidden.
    pub readable: Vec<PathBuf>,
    /// Paths that can be written, as far as the program's user may.
    pub writable: Vec<PathBuf>,
    /// Paths that can be written too, and do not count for the disk: they are not the sandbox's own.
    pub shared: Vec<PathBuf>,
    /// Nothing is read-only that is not hidden: the program writes wherever its user may. For programs that manage the machine; the user
    /// has to be one of its own.
    #[serde(default)]
    pub manages_machine: bool,
    /// The environment of the program, and all of it: variables of the launcher itself are not passed on.
    pub environment: BTreeMap<String, OsString>,
    pub limits: Limits,
    /// How much other processes go first: 0 to 19.
    pub nice: u8,
}

/// How far the processes of a sandbox may go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of memory, for each process and for all of them together.
    pub memory: Option<u64>,
    /// Processes and threads at once.
    pub processes: u64,
    /// Open descriptors of each process.
    pub descriptors: u64,
    /// Bytes of each file that is written.
    pub file_size: u64,
    /// Bytes of temporary files, which are in memory.
    pub scratch: u64,
    /// Bytes that all writable paths may hold together.
    pub disk: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            memory: None,
            processes: 512,
            descriptors: 4096,
            file_size: 2 << 30,
            scratch: 1 << 30,
            disk: None,
        }
    }
}

/// Directories for temporary files that a program shares with the machine that it manages.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

impl Policy {
    /// Paths that have a file system of the sandbox's own inside: what is written there does not reach the machine.
    pub fn covered(&self) -> Vec<PathBuf> {
        crate::mounts::covered(self)
    }

    /// Lets the program write wherever its user may, if it has a user of its own. Without one, it could write what belongs to the user
    /// that makes the sandbox.
    pub fn manage_machine(&mut self) {
        if self.uid.is_some() {
            self.manages_machine = true;
            self.shared.extend(TEMPORARY.map(PathBuf::from));
        }
    }

    /// Sets a variable of the program.
    pub fn set(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.environment.insert(name.to_owned(), value.as_ref().to_owned());
    }
}

/// The policy on its way to the launcher and to init, and what they agreed on.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Message {
    pub(crate) policy: Policy,
    pub(crate) method: crate::Method,
    /// Where the program begins.
    pub(crate) directory: PathBuf,
    /// A control group limits memory.
    pub(crate) memory_is_limited: bool,
    /// A control group limits processes.
    pub(crate) processes_are_limited: bool,
}

/// Names of the variables that a message comes in. A single one has a maximal length.
const VARIABLE: &str = "ORRERY_SANDBOX";
const VARIABLE_BYTES: usize = 100_000;

impl Message {
    /// Variables for the launcher or init. The environment of a process is for its own user, its arguments are for everybody.
    pub(crate) fn to_variables(&self) -> Result<Vec<(String, String)>, serde_json::Error> {
        // JSON of this kind is ASCII where it is cut: paths and values that are not are numbers.
        let text = serde_json::to_string(self)?;
        let mut variables = Vec::new();
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let mut at = rest.len().min(VARIABLE_BYTES);
            while !rest.is_char_boundary(at) {
                at -= 1;
            }
            let (part, after) = rest.split_at(at);
            variables.push((format!("{VARIABLE}_{}", variables.len()), part.to_owned()));
            rest = after;
        }
        Ok(variables)
    }

    pub(crate) fn from_variables() -> Result<Self, String> {
        let mut text = String::new();
        for number in 0.. {
            match std::env::var(format!("{VARIABLE}_{number}")) {
                Ok(part) => text.push_str(&part),
                Err(_) => break,
            }
        }
        if text.is_empty() {
            return Err("no policy was given; only a server starts this command".to_owned());
        }
        serde_json::from_str(&text).map_err(|error| format!("the policy cannot be read: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_policy_comes_in_several_variables() {
        let mut policy = Policy::default();
        policy.set("LONG", "ä".repeat(150_000));
        let message = Message {
            policy: policy.clone(),
            method: crate::Method::Namespaces,
            directory: "/".into(),
            memory_is_limited: false,
            processes_are_limited: true,
        };
        let variables = message.to_variables().unwrap();
        assert!(variables.len() > 1);
        assert!(variables.iter().all(|(_, value)| value.len() <= VARIABLE_BYTES));
        let text: String = variables.into_iter().map(|(_, value)| value).collect();
        let read: Message = serde_json::from_str(&text).unwrap();
        assert_eq!(read.policy, policy);
    }
}
