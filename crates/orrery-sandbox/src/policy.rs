//! Policy of a sandbox: its view and limits.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// View and permissions of the program in a sandbox. All paths not named here are readable, as far
/// as the program's user may read them, and only temporary files are writable, which end with the
/// sandbox.
///
/// Home directories, `/run` and the data of databases and containers are hidden from every sandbox.
/// Of nested paths, the deepest one counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxPolicy {
    /// User id, and equal group id, of the program. Only root can set it; other users keep their
    /// identity, in a user namespace.
    pub uid: Option<u32>,
    /// Paths that are empty inside.
    pub hidden: Vec<PathBuf>,
    /// Paths that are readable below hidden ones.
    pub readable: Vec<PathBuf>,
    /// Writable paths, as far as the program's user may write.
    pub writable: Vec<PathBuf>,
    /// Writable paths that are excluded from the disk limit: they do not belong to the sandbox.
    pub shared: Vec<PathBuf>,
    /// True for programs that manage the machine: everything not hidden is writable as far as the
    /// program's user may write. Requires a user id of its own.
    #[serde(default)]
    pub manages_machine: bool,
    /// Complete environment of the program: the launcher's variables are not inherited.
    pub environment: BTreeMap<String, OsString>,
    pub limits: SandboxLimits,
    /// Niceness, 0 to 19.
    pub nice: u8,
}

/// Resource limits of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxLimits {
    /// Memory in bytes, for each process and in total.
    pub memory: Option<u64>,
    /// Concurrent processes and threads.
    pub processes: u64,
    /// Open descriptors of each process.
    pub descriptors: u64,
    /// Size of each written file in bytes.
    pub file_size: u64,
    /// Total size of temporary files, which are in memory.
    pub scratch: u64,
    /// Total size of all writable paths.
    pub disk: Option<u64>,
}

impl Default for SandboxLimits {
    fn default() -> Self {
        SandboxLimits {
            memory: None,
            processes: 512,
            descriptors: 4096,
            file_size: 2 << 30,
            scratch: 1 << 30,
            disk: None,
        }
    }
}

/// Temporary directories that are shared with the managed machine.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

impl SandboxPolicy {
    /// Allows writes wherever the program's user may write, if it has a user id of its own.
    /// Otherwise it could write files of the sandbox's creator.
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

/// Sandboxing method.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Method {
    /// Namespaces of the kernel, set up by the launcher.
    Namespaces,
    /// The program bubblewrap, which may create namespaces where other programs may not.
    Bubblewrap(PathBuf),
}

/// Message with the policy for the launcher and init, and their agreements.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Message {
    pub(crate) policy: SandboxPolicy,
    pub(crate) method: Method,
    /// Working directory of the program.
    pub(crate) directory: PathBuf,
    /// True if a control group limits memory.
    pub(crate) memory_is_limited: bool,
    /// True if a control group limits processes.
    pub(crate) processes_are_limited: bool,
}

/// Prefix of the variables that carry a message. A single variable has a maximum length.
const VARIABLE: &str = "ORRERY_SANDBOX";
const VARIABLE_BYTES: usize = 100_000;

impl Message {
    /// Encodes the message as variables. A process's environment is private to its user, its
    /// arguments are public.
    pub(crate) fn to_variables(&self) -> Result<Vec<(String, String)>, serde_json::Error> {
        // This JSON is ASCII at the cuts: other paths and values are encoded as numbers.
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
        let mut policy = SandboxPolicy::default();
        policy.set("LONG", "ä".repeat(150_000));
        let message = Message {
            policy: policy.clone(),
            method: Method::Namespaces,
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
