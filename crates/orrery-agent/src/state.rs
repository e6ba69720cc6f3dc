//! State of an agent on its machine: key, identity and journal. One process at a time.
//!
//! An identity to be replaced stays until the next one is complete: the next key lies beside it,
//! and `identity.next.json` is the commit point. The remaining steps (replace the key, remove the
//! journal) are repeated when the directory is opened after a kill.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use orrery_model::Timestamp;
use rcgen::KeyPair;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::address::GatewayAddress;

const LOCK: &str = "lock";
const KEY: &str = "key.pem";
const IDENTITY: &str = "identity.json";
const NEXT_KEY: &str = "key.next.pem";
const NEXT_IDENTITY: &str = "identity.next.json";
const JOURNAL: &str = "journal";
const COMMANDS: &str = "commands";

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    #[error("{} cannot be {action}", path.display())]
    Io { path: PathBuf, action: &'static str, source: io::Error },
    #[error("another agent uses {}; stop it, or use another directory with --state", .0.display())]
    InUse(PathBuf),
    #[error(
        "{} is damaged; remove it, and join again with a new invitation", path.display()
    )]
    Damaged { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("cannot generate a key")]
    NoKey(#[source] rcgen::Error),
}

/// Identity of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentIdentity {
    pub agent: Uuid,
    pub environment: Uuid,
    /// Agent names that it serves.
    pub names: Vec<String>,
    /// The gateway that it joined at.
    pub gateway: GatewayAddress,
    /// All gateways of the server, as its last session reported them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<GatewayAddress>,
    /// PEM.
    pub certificate: String,
    /// PEM of the CA that signs gateway certificates.
    pub ca: String,
    /// Time of the certificate's receipt, by the agent's clock.
    pub obtained: Timestamp,
    pub valid_seconds: u64,
}

impl AgentIdentity {
    /// Addresses to connect to: the gateway that it joined at, and then the others.
    pub fn addresses(&self) -> Vec<GatewayAddress> {
        let others = self.gateways.iter().filter(|address| **address != self.gateway);
        std::iter::once(&self.gateway).chain(others).cloned().collect()
    }

    /// Time to renew the certificate: with a third of its validity left.
    pub fn renew_at(&self) -> Timestamp {
        self.obtained + Duration::from_secs(self.valid_seconds / 3 * 2)
    }

    /// Returns true if renewal is due. A clock before the receipt was set back, and says nothing
    /// about the age of the certificate.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.renew_at() <= now || now < self.obtained
    }

    pub fn expires_at(&self) -> Timestamp {
        self.obtained + Duration::from_secs(self.valid_seconds)
    }
}

/// State directory of an agent.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    /// Locked while this value lives.
    lock: File,
}

impl Drop for StateDirectory {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process that is being spawned may still have it
        // open. A failure leaves only that case.
        let _ = self.lock.unlock();
    }
}

impl StateDirectory {
    /// Default state directory; `None` without a home directory.
    pub fn default_path() -> Option<PathBuf> {
        if rustix::process::geteuid().is_root() {
            return Some(PathBuf::from("/var/lib/orrery-agent"));
        }
        let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state"));
        Some(state.or_else(home)?.join("orrery-agent"))
    }

    /// Opens or creates a directory.
    ///
    /// # Errors
    /// If it cannot be created, or another process uses it.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let failed =
            |action| move |source| StateError::Io { path: path.to_owned(), action, source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("created"))?;
        let mut options = OpenOptions::new();
        let lock =
            options.write(true).create(true).truncate(false).mode(0o600).open(path.join(LOCK));
        let lock = lock.map_err(failed("written to"))?;
        match lock.try_lock() {
            Ok(()) => {
                let state = StateDirectory { path: path.to_owned(), lock };
                state.finish_replacing()?;
                Ok(state)
            }
            Err(TryLockError::WouldBlock) => Err(StateError::InUse(path.to_owned())),
            Err(TryLockError::Error(source)) => Err(failed("locked")(source)),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn journal(&self) -> PathBuf {
        self.path.join(JOURNAL)
    }

    /// Directory of the records of running commands.
    pub fn commands(&self) -> PathBuf {
        self.path.join(COMMANDS)
    }

    /// `None` if the agent has not joined.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn identity(&self) -> Result<Option<AgentIdentity>, StateError> {
        let path = self.path.join(IDENTITY);
        let Some(text) = read(&path)? else { return Ok(None) };
        let identity = serde_json::from_str(&text);
        identity.map(Some).map_err(|error| StateError::Damaged { path, source: error.into() })
    }

    /// # Errors
    /// If it cannot be written; the old file stays then.
    pub fn store_identity(&self, identity: &AgentIdentity) -> Result<(), StateError> {
        self.write_identity(IDENTITY, identity)
    }

    fn write_identity(&self, name: &str, identity: &AgentIdentity) -> Result<(), StateError> {
        let path = self.path.join(name);
        let text = serde_json::to_string_pretty(identity);
        let text = text.map_err(|error| StateError::Io {
            path: path.clone(),
            action: "written",
            source: error.into(),
        })?;
        self.write(&path, &text)
    }

    /// Key of the agent. It is created once and stored before it is used, so a retried join yields
    /// the same agent.
    ///
    /// # Errors
    /// If it can neither be read nor created.
    pub fn key(&self) -> Result<KeyPair, StateError> {
        self.key_named(KEY)
    }

    /// Key of the agent that replaces this one, as `key`.
    ///
    /// # Errors
    /// If it can neither be read nor created.
    pub fn next_key(&self) -> Result<KeyPair, StateError> {
        self.key_named(NEXT_KEY)
    }

    fn key_named(&self, name: &str) -> Result<KeyPair, StateError> {
        let path = self.path.join(name);
        if let Some(text) = read(&path)? {
            let key = KeyPair::from_pem(&text);
            return key.map_err(|error| StateError::Damaged { path, source: error.into() });
        }
        let key = KeyPair::generate().map_err(StateError::NoKey)?;
        self.write(&path, &key.serialize_pem())?;
        Ok(key)
    }

    /// Replaces the identity by the one of `next_key`, and deletes the journal of the old one.
    ///
    /// # Errors
    /// If it cannot be written. The old identity stays then, or the next opening completes the
    /// replacement.
    pub fn replace_identity(&self, next: &AgentIdentity) -> Result<(), StateError> {
        self.write_identity(NEXT_IDENTITY, next)?;
        self.finish_replacing()
    }

    fn finish_replacing(&self) -> Result<(), StateError> {
        let next = self.path.join(NEXT_IDENTITY);
        if read(&next)?.is_none() {
            return Ok(());
        }
        let or_done = |path: &Path, action, done: io::Result<()>| match done {
            // This step was done before a kill.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(StateError::Io { path: path.to_owned(), action, source }),
            Ok(()) => Ok(()),
        };
        let key = self.path.join(KEY);
        or_done(&key, "replaced", std::fs::rename(self.path.join(NEXT_KEY), &key))?;
        // Its epochs belong to another environment, perhaps of another server.
        let journal = self.journal();
        or_done(&journal, "removed", std::fs::remove_file(&journal))?;
        let identity = self.path.join(IDENTITY);
        or_done(&identity, "replaced", std::fs::rename(&next, &identity))?;
        let synced = File::open(&self.path).and_then(|directory| directory.sync_all());
        or_done(&self.path, "written to", synced)
    }

    /// Writes a file atomically, readable only by its owner.
    fn write(&self, path: &Path, text: &str) -> Result<(), StateError> {
        let write = || -> io::Result<()> {
            // Temporary files are private from the start.
            let mut file = tempfile::NamedTempFile::new_in(&self.path)?;
            file.write_all(text.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            File::open(&self.path)?.sync_all()
        };
        let failed = |source| StateError::Io { path: path.to_owned(), action: "written", source };
        write().map_err(failed)
    }
}

fn read(path: &Path) -> Result<Option<String>, StateError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StateError::Io { path: path.to_owned(), action: "read", source }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn identity() -> AgentIdentity {
        AgentIdentity {
            agent: Uuid::from_u128(1),
            environment: Uuid::from_u128(2),
            names: vec!["web1".to_owned()],
            gateway: "localhost:9".parse().unwrap(),
            gateways: Vec::new(),
            certificate: "certificate".to_owned(),
            ca: "authority".to_owned(),
            obtained: Timestamp(0),
            valid_seconds: 90,
        }
    }

    #[test]
    fn key_and_identity_are_persistent_and_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/agent");
        let state = StateDirectory::open(&path).unwrap();
        assert_eq!(state.identity().unwrap(), None);
        let key = state.key().unwrap();
        assert_eq!(state.key().unwrap().public_key_raw(), key.public_key_raw());
        state.store_identity(&identity()).unwrap();
        assert_eq!(state.identity().unwrap(), Some(identity()));
        let due = |seconds: i64| identity().is_due(Timestamp(seconds * 1_000_000));
        assert_eq!([0, 59, 60, -1].map(due), [false, false, true, true]);
        for name in [KEY, IDENTITY] {
            let mode = std::fs::metadata(path.join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_replacement_survives_a_kill_at_any_step() {
        let next = AgentIdentity { agent: Uuid::from_u128(9), ..identity() };
        // Number of replacement steps before the kill.
        for steps in 0..=4 {
            let directory = tempfile::tempdir().unwrap();
            let path = |name: &str| directory.path().join(name);
            let state = StateDirectory::open(directory.path()).unwrap();
            let before = state.key().unwrap();
            state.store_identity(&identity()).unwrap();
            std::fs::write(state.journal(), "").unwrap();
            let key = state.next_key().unwrap();
            assert_eq!(state.next_key().unwrap().public_key_raw(), key.public_key_raw());
            if steps > 0 {
                state.write_identity(NEXT_IDENTITY, &next).unwrap();
            }
            if steps > 1 {
                std::fs::rename(path(NEXT_KEY), path(KEY)).unwrap();
            }
            if steps > 2 {
                std::fs::remove_file(state.journal()).unwrap();
            }
            if steps > 3 {
                state.replace_identity(&next).unwrap();
            }
            drop(state);
            let state = StateDirectory::open(directory.path()).unwrap();
            let (expected, with) = if steps > 0 { (&next, key) } else { (&identity(), before) };
            assert_eq!(state.identity().unwrap().as_ref(), Some(expected), "{steps}");
            assert_eq!(state.key().unwrap().public_key_raw(), with.public_key_raw(), "{steps}");
            assert_eq!(state.journal().exists(), steps == 0, "{steps}");
            assert!(!path(NEXT_IDENTITY).exists(), "{steps}");
        }
    }

    #[test]
    fn a_directory_has_one_agent_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(directory.path()).unwrap();
        assert!(matches!(StateDirectory::open(directory.path()), Err(StateError::InUse(_))));
        // As in a child process that is being spawned.
        let _inherited = state.lock.try_clone().unwrap();
        drop(state);
        StateDirectory::open(directory.path()).unwrap();
    }

    #[test]
    fn errors_name_the_damaged_file() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(directory.path()).unwrap();
        std::fs::write(directory.path().join(IDENTITY), "{}").unwrap();
        std::fs::write(directory.path().join(KEY), "no key").unwrap();
        assert!(state.identity().unwrap_err().to_string().contains(IDENTITY));
        assert!(state.key().unwrap_err().to_string().contains(KEY));
    }
}
