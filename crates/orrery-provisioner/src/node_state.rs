//! State that a node remembers about each of its services, so that a lost answer is found out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// State of one service on one machine; that of the machine itself has no service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceRecord {
    /// Digest of the installation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed: Option<String>,
    /// Digest of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configured: Option<String>,
    /// By key. They outlive the removal of the service: its data may still exist.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub initializations: BTreeMap<String, InitializationState>,
    /// Generation that runs, or `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<u64>,
    /// Digest of the toolchain; only of the machine itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toolchain: Option<String>,
}

/// Progress of an initialization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InitializationState {
    /// Written before the action starts. If it stays, the outcome is unknown.
    Begun,
    Done,
}

/// A change that a successful action records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateChange {
    Toolchain {
        digest: String,
    },
    Installed {
        digest: String,
    },
    /// The service is gone from the machine.
    Removed,
    Configured {
        digest: String,
    },
    InitializationBegun {
        key: String,
    },
    /// The action failed, and its end was seen.
    InitializationFailed {
        key: String,
    },
    Initialized {
        key: String,
    },
    Started {
        generation: u64,
    },
    Stopped,
}

impl StateChange {
    /// Returns true for changes that a loss of power must not undo.
    pub fn is_of_initialization(&self) -> bool {
        matches!(self, StateChange::InitializationBegun { .. } | StateChange::Initialized { .. })
    }
}

impl ServiceRecord {
    pub fn apply(&mut self, change: &StateChange) {
        match change {
            StateChange::Toolchain { digest } => self.toolchain = Some(digest.clone()),
            StateChange::Installed { digest } => self.installed = Some(digest.clone()),
            StateChange::Removed => {
                self.installed = None;
                self.configured = None;
                self.running = None;
            }
            StateChange::Configured { digest } => self.configured = Some(digest.clone()),
            StateChange::InitializationBegun { key } => {
                self.initializations.insert(key.clone(), InitializationState::Begun);
            }
            StateChange::InitializationFailed { key } => {
                self.initializations.remove(key);
            }
            StateChange::Initialized { key } => {
                self.initializations.insert(key.clone(), InitializationState::Done);
            }
            StateChange::Started { generation } => self.running = Some(*generation),
            StateChange::Stopped => self.running = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_service_is_installed_anew_and_keeps_its_initializations() {
        let mut state = ServiceRecord::default();
        for change in [
            StateChange::Installed { digest: "d1".to_owned() },
            StateChange::Configured { digest: "c1".to_owned() },
            StateChange::Initialized { key: "k1".to_owned() },
            StateChange::Started { generation: 1 },
            StateChange::Removed,
        ] {
            state.apply(&change);
        }
        assert_eq!((&state.installed, &state.configured, state.running), (&None, &None, None));
        assert_eq!(state.initializations["k1"], InitializationState::Done);
    }
}
