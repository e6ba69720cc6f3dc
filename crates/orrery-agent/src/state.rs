//! What an agent keeps on its machine: its key, who it is, and the journal. One process at a time.
//!
//! Who is to be replaced stays until the next one is known: its key is made beside, and `identity.next.json` is the point from which on it counts. What has to
//! follow (its key in place, the journal of the other one gone) is done again by whoever opens the directory after a kill.

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

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    #[error("{} cannot be {action}", path.display())]
    Io { path: PathBuf, action: &'static str, source: io::Error },
    #[error("another agent uses {}; end it, or use another directory with --state", .0.display())]
    InUse(PathBuf),
    #[error(
        "{} cannot be understood; remove it, and join again with a new invitation", path.display()
    )]
    Damaged { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("no key can be made")]
    NoKey(#[source] rcgen::Error),
}

/// Who an agent is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub agent: Uuid,
    pub environment: Uuid,
    /// The agent names that it serves.
    pub names: Vec<String>,
    pub gateway: GatewayAddress,
    /// PEM.
    pub certificate: String,
    /// PEM: of the authority that gateways are recognized by.
    pub ca: String,
    /// When it got the certificate, by its own clock.
    pub obtained: Timestamp,
    pub valid_seconds: u64,
}

impl Identity {
    /// When the next certificate is to be asked for: with a third of the time left.
    pub fn renew_at(&self) -> Timestamp {
        self.obtained + Duration::from_secs(self.valid_seconds / 3 * 2)
    }

    /// Whether that is now. If the clock is before the time at which the certificate came, it was set back, and says nothing about how long it has been.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.renew_at() <= now || now < self.obtained
    }

    pub fn expires_at(&self) -> Timestamp {
        self.obtained + Duration::from_secs(self.valid_seconds)
    }
}

/// The directory of an agent.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    /// Held as long as this is.
    lock: File,
}

impl Drop for StateDirectory {
    fn drop(&mut self) {
        // Closing the file is not enough: a program that is just being started may still have it open. If this fails, that is what is left.
        let _ = self.lock.unlock();
    }
}

impl StateDirectory {
    /// Where an agent keeps its state if nobody says otherwise; `None` without a home.
    pub fn usual() -> Option<PathBuf> {
        if rustix::process::geteuid().is_root() {
            return Some(PathBuf::from("/var/lib/orrery-agent"));
        }
        let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state"));
        Some(state.or_else(home)?.join("orrery-agent"))
    }

    /// Opens a directory, or makes it.
    ///
    /// # Errors
    /// If it cannot be made or another process uses it.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let failed =
            |action| move |source| StateError::Io { path: path.to_owned(), action, source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("made"))?;
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

    /// `None` if the agent has not joined.
    ///
    /// # Errors
    /// If what is there cannot be read.
    pub fn identity(&self) -> Result<Option<Identity>, StateError> {
        let path = self.path.join(IDENTITY);
        let Some(text) = read(&path)? else { return Ok(None) };
        let identity = serde_json::from_str(&text);
        identity.map(Some).map_err(|error| StateError::Damaged { path, source: error.into() })
    }

    /// # Errors
    /// If it cannot be written; what was there before is there then.
    pub fn keep_identity(&self, identity: &Identity) -> Result<(), StateError> {
        self.write_identity(IDENTITY, identity)
    }

    fn write_identity(&self, name: &str, identity: &Identity) -> Result<(), StateError> {
        let path = self.path.join(name);
        let text = serde_json::to_string_pretty(identity);
        let text = text.map_err(|error| StateError::Io {
            path: path.clone(),
            action: "written",
            source: error.into(),
        })?;
        self.write(&path, &text)
    }

    /// The key of the agent. It is made once and kept before anybody hears of it, so that who joins again after a failure is the same agent.
    ///
    /// # Errors
    /// If it can be neither read nor made.
    pub fn key(&self) -> Result<KeyPair, StateError> {
        self.key_named(KEY)
    }

    /// The key of the agent that is to be the next one here, as `key`.
    ///
    /// # Errors
    /// If it can be neither read nor made.
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

    /// Becomes the agent that `next_key` was made for, and forgets the one before with all that it did.
    ///
    /// # Errors
    /// If it cannot be written. It is still the one before then, or becomes the next when the directory is opened again.
    pub fn replace_identity(&self, next: &Identity) -> Result<(), StateError> {
        self.write_identity(NEXT_IDENTITY, next)?;
        self.finish_replacing()
    }

    fn finish_replacing(&self) -> Result<(), StateError> {
        let next = self.path.join(NEXT_IDENTITY);
        if read(&next)?.is_none() {
            return Ok(());
        }
        let or_done = |path: &Path, action, done: io::Result<()>| match done {
            // A kill came after this step.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(StateError::Io { path: path.to_owned(), action, source }),
            Ok(()) => Ok(()),
        };
        let key = self.path.join(KEY);
        or_done(&key, "replaced", std::fs::rename(self.path.join(NEXT_KEY), &key))?;
        // Its epochs are those of another environment, perhaps of another server.
        let journal = self.journal();
        or_done(&journal, "removed", std::fs::remove_file(&journal))?;
        let identity = self.path.join(IDENTITY);
        or_done(&identity, "replaced", std::fs::rename(&next, &identity))?;
        let synced = File::open(&self.path).and_then(|directory| directory.sync_all());
        or_done(&self.path, "written to", synced)
    }

    /// Puts a file in place, whole, for its owner only.
    fn write(&self, path: &Path, text: &str) -> Result<(), StateError> {
        let write = || -> io::Result<()> {
            // Such files are for their owner only from the start.
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

    fn identity() -> Identity {
        Identity {
            agent: Uuid::from_u128(1),
            environment: Uuid::from_u128(2),
            names: vec!["web1".to_owned()],
            gateway: "localhost:9".parse().unwrap(),
            certificate: "certificate".to_owned(),
            ca: "authority".to_owned(),
            obtained: Timestamp(0),
            valid_seconds: 90,
        }
    }

    #[test]
    fn key_and_identity_stay_and_are_nobody_elses() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/agent");
        let state = StateDirectory::open(&path).unwrap();
        assert_eq!(state.identity().unwrap(), None);
        let key = state.key().unwrap();
        assert_eq!(state.key().unwrap().public_key_raw(), key.public_key_raw());
        state.keep_identity(&identity()).unwrap();
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
    fn the_next_agent_takes_the_place_wherever_a_kill_comes() {
        let next = Identity { agent: Uuid::from_u128(9), ..identity() };
        // How much of the replacement was done before the kill.
        for steps in 0..=4 {
            let directory = tempfile::tempdir().unwrap();
            let path = |name: &str| directory.path().join(name);
            let state = StateDirectory::open(directory.path()).unwrap();
            let before = state.key().unwrap();
            state.keep_identity(&identity()).unwrap();
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
            let (who, with) = if steps > 0 { (&next, key) } else { (&identity(), before) };
            assert_eq!(state.identity().unwrap().as_ref(), Some(who), "{steps}");
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
        // As a program has it that is just being started.
        let _inherited = state.lock.try_clone().unwrap();
        drop(state);
        StateDirectory::open(directory.path()).unwrap();
    }

    #[test]
    fn what_is_damaged_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(directory.path()).unwrap();
        std::fs::write(directory.path().join(IDENTITY), "{}").unwrap();
        std::fs::write(directory.path().join(KEY), "no key").unwrap();
        assert!(state.identity().unwrap_err().to_string().contains(IDENTITY));
        assert!(state.key().unwrap_err().to_string().contains(KEY));
    }
}
