//! The process that holds a store or a lease, for people.

use std::fmt;

use orrery_model::Timestamp;
use serde::{Deserialize, Serialize};

/// A process that works on a store or an environment, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub pid: u32,
    pub host: String,
    /// Command line of the process: `orrery deploy`.
    pub command: String,
    pub since: Timestamp,
}

impl Holder {
    /// This process, which began its work at `since`.
    pub fn this_process(command: impl Into<String>, since: Timestamp) -> Self {
        Holder {
            pid: std::process::id(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            command: command.into(),
            since,
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Holder { pid, host, command, since } = self;
        write!(f, "`{command}` (process {pid} on {host}, since {since})")
    }
}
