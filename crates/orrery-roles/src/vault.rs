//! The vault: secrets sealed with a key that is not in the database.
//!
//! Each value has its own data key, which the master key seals. A new master key therefore rewrites
//! no values. Environment and name are authenticated along with the value: a row that is moved to
//! another name or environment cannot be opened.
//!
//! ```text
//! 1 | id of the master key (8) | nonce (24) | sealed data key (32 + 16) | nonce (24) | sealed value (n + 16)
//! ```

mod installation;

pub use installation::RESERVED;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use orrery_base::hex::to_hex;
use orrery_base::lock::IgnorePoison;
use orrery_model::{SecretText, Timestamp};
use orrery_store::{EnvironmentKey, SecretRecord, Store, StoreError};
use rand::TryRng as _;
use rand::rngs::SysRng;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

const FORMAT: u8 = 1;
const KEY: usize = 32;
const KEY_ID: usize = 8;
const NONCE: usize = 24;
const TAG: usize = 16;
const WRAPPED: usize = KEY + TAG;

/// Location of the master key.
#[derive(Clone, Debug, Default)]
pub enum MasterKey {
    /// No key: secrets can be neither stored nor used.
    #[default]
    Absent,
    /// A file that the administrator provides.
    Provided(PathBuf),
    /// A file that the server generates with the first secret.
    Generated(PathBuf),
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VaultError {
    #[error("the server has no secret key; provide one with --secret-key-file")]
    NoKey,
    #[error("cannot use the secret key file {}: {reason}", path.display())]
    KeyFile { path: PathBuf, reason: String },
    #[error(
        "the database has secrets sealed with a key that is not in {}; copy the key file of the server \
         that sealed them to this path, with mode 0600, or name it with --secret-key-file (if it is \
         lost, see docs/guide/secrets.md)",
        path.display()
    )]
    ForeignDatabase { path: PathBuf },
    #[error("the secret {name} was sealed with another key ({id}); add it to the key file")]
    OtherKey { name: String, id: String },
    #[error("the secret {name} was tampered with or moved; set it again")]
    Tampered { name: String },
    #[error("the system's random generator failed: {0}")]
    Random(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

type Key = Zeroizing<[u8; KEY]>;

fn random<const N: usize>() -> Result<[u8; N], VaultError> {
    let mut bytes = [0; N];
    let filled = SysRng.try_fill_bytes(&mut bytes);
    filled.map_err(|error| VaultError::Random(error.to_string()))?;
    Ok(bytes)
}

fn id_of(key: &Key) -> [u8; KEY_ID] {
    let digest = Sha256::new().chain_update(b"orrery key").chain_update(key.as_slice()).finalize();
    let mut id = [0; KEY_ID];
    id.copy_from_slice(&digest[..KEY_ID]);
    id
}

/// Associated data that binds a sealed value to its environment and name.
fn associated_data(environment: Option<EnvironmentKey>, name: &str) -> Vec<u8> {
    let environment = environment.map_or(0, EnvironmentKey::number);
    format!("secret\0{environment}\0{name}").into_bytes()
}

/// Seals bytes; returns the nonce followed by the ciphertext.
fn seal(key: &Key, aad: &[u8], plain: &[u8]) -> Result<Vec<u8>, VaultError> {
    let nonce = random::<NONCE>()?;
    let cipher = XChaCha20Poly1305::new(key.as_slice().try_into().map_err(|_| VaultError::NoKey)?);
    let sealed = cipher.encrypt(&XNonce::from(nonce), Payload { msg: plain, aad });
    // Fails only for more bytes than fit into memory.
    let sealed = sealed.map_err(|error| VaultError::Random(error.to_string()))?;
    Ok([nonce.as_slice(), &sealed].concat())
}

/// Opens sealed bytes; `None` if they were changed.
fn unseal(key: &Key, aad: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE>()?;
    let cipher = XChaCha20Poly1305::new(key.as_slice().try_into().ok()?);
    let plain = cipher.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad });
    plain.ok().map(Zeroizing::new)
}

/// Master keys: the first one seals, all of them open.
struct KeyRing {
    keys: Vec<Key>,
}

impl KeyRing {
    fn read(path: &Path) -> Result<Option<Self>, VaultError> {
        let failed = |reason: String| VaultError::KeyFile { path: path.to_owned(), reason };
        let text = match fs::read_to_string(path) {
            Ok(text) => Zeroizing::new(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error.to_string())),
        };
        let mode = fs::metadata(path).map_err(|error| failed(error.to_string()))?;
        if mode.permissions().mode() & 0o077 != 0 {
            return Err(failed("other users can read it; set its mode to 0600".to_owned()));
        }
        let mut keys = Vec::new();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let bytes = STANDARD.decode(line.trim()).map(Zeroizing::new);
            let key = bytes.ok().and_then(|bytes| <[u8; KEY]>::try_from(bytes.as_slice()).ok());
            let reason = || format!("line {} is not {KEY} bytes in Base64", at + 1);
            keys.push(Zeroizing::new(key.ok_or_else(|| failed(reason()))?));
        }
        if keys.is_empty() {
            Err(failed("it is empty".to_owned()))
        } else {
            Ok(Some(KeyRing { keys }))
        }
    }

    fn write(&self, path: &Path) -> Result<(), VaultError> {
        let failed = |error: std::io::Error| VaultError::KeyFile {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let mut text = Zeroizing::new(String::new());
        for key in &self.keys {
            text.push_str(&STANDARD.encode(key.as_slice()));
            text.push('\n');
        }
        let beside = path.with_extension("new");
        let _ = fs::remove_file(&beside);
        let mut options = fs::OpenOptions::new();
        let mut file =
            options.write(true).create_new(true).mode(0o600).open(&beside).map_err(failed)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        fs::rename(&beside, path).map_err(failed)?;
        let directory = path.parent().map(fs::File::open).transpose().map_err(failed)?;
        directory.map_or(Ok(()), |directory| directory.sync_all()).map_err(failed)
    }

    /// True if one of these keys sealed the value.
    fn has_key_for(&self, sealed: &[u8]) -> bool {
        let id = sealed.strip_prefix(&[FORMAT]).and_then(|rest| rest.first_chunk::<KEY_ID>());
        id.is_some_and(|id| self.keys.iter().any(|key| id_of(key) == *id))
    }

    fn seal(
        &self,
        environment: Option<EnvironmentKey>,
        name: &str,
        value: &SecretText,
    ) -> Result<Vec<u8>, VaultError> {
        let aad = associated_data(environment, name);
        let data_key = Zeroizing::new(random::<KEY>()?);
        let master = &self.keys[0];
        let wrapped = seal(master, &aad, data_key.as_slice())?;
        let sealed = seal(&data_key, &aad, value.expose().as_bytes())?;
        Ok([&[FORMAT], id_of(master).as_slice(), &wrapped, &sealed].concat())
    }

    /// Returns the data key of a record, and the value that it seals.
    fn data_key<'r>(&self, record: &'r SecretRecord) -> Result<(Key, &'r [u8]), VaultError> {
        let name = || record.name.clone();
        let tampered = || VaultError::Tampered { name: name() };
        let rest = record.sealed.strip_prefix(&[FORMAT]).ok_or_else(tampered)?;
        let (id, rest) = rest.split_first_chunk::<KEY_ID>().ok_or_else(tampered)?;
        let (wrapped, rest) = rest.split_at_checked(NONCE + WRAPPED).ok_or_else(tampered)?;
        let master = self.keys.iter().find(|key| id_of(key) == *id);
        let master = master.ok_or_else(|| VaultError::OtherKey { name: name(), id: to_hex(id) })?;
        let aad = associated_data(record.environment, &record.name);
        let opened = unseal(master, &aad, wrapped).ok_or_else(tampered)?;
        let key = <[u8; KEY]>::try_from(opened.as_slice()).map_err(|_| tampered())?;
        Ok((Zeroizing::new(key), rest))
    }

    fn open(&self, record: &SecretRecord) -> Result<SecretText, VaultError> {
        let (key, sealed) = self.data_key(record)?;
        let aad = associated_data(record.environment, &record.name);
        let plain = unseal(&key, &aad, sealed);
        let text = plain.and_then(|plain| String::from_utf8(plain.to_vec()).ok());
        text.map(SecretText::new).ok_or_else(|| VaultError::Tampered { name: record.name.clone() })
    }

    /// Seals the data key of a secret with the newest master key.
    fn rewrap(&self, record: &SecretRecord) -> Result<SecretRecord, VaultError> {
        let (key, sealed) = self.data_key(record)?;
        let aad = associated_data(record.environment, &record.name);
        let master = &self.keys[0];
        let wrapped = seal(master, &aad, key.as_slice())?;
        let sealed = [&[FORMAT], id_of(master).as_slice(), &wrapped, sealed].concat();
        Ok(SecretRecord { sealed, ..record.clone() })
    }
}

/// Stores and opens secrets. Cheap to clone; calls block.
#[derive(Clone)]
pub struct Vault {
    store: Store,
    key: MasterKey,
    ring: Arc<Mutex<Option<Arc<KeyRing>>>>,
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vault").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Vault {
    pub fn new(store: Store, key: MasterKey) -> Self {
        Vault { store, key, ring: Arc::default() }
    }

    fn path(&self) -> Result<&Path, VaultError> {
        match &self.key {
            MasterKey::Absent => Err(VaultError::NoKey),
            MasterKey::Provided(path) | MasterKey::Generated(path) => Ok(path),
        }
    }

    /// Returns the keys. With `make`, a missing key file is generated, if it may be and the
    /// database has no secrets yet.
    fn ring(&self, make: bool) -> Result<Arc<KeyRing>, VaultError> {
        let path = self.path()?;
        let mut ring = self.ring.lock().ignore_poison();
        if let Some(ring) = &*ring {
            return Ok(Arc::clone(ring));
        }
        let read = match KeyRing::read(path)? {
            Some(read) => read,
            None if make && matches!(self.key, MasterKey::Generated(_)) => {
                if !self.store.secrets().all()?.is_empty() {
                    return Err(VaultError::ForeignDatabase { path: path.to_owned() });
                }
                let made = KeyRing { keys: vec![Zeroizing::new(random()?)] };
                made.write(path)?;
                made
            }
            None => {
                let reason = "it does not exist".to_owned();
                return Err(VaultError::KeyFile { path: path.to_owned(), reason });
            }
        };
        Ok(Arc::clone(ring.insert(Arc::new(read))))
    }

    /// Stores a value; replaces an older one.
    ///
    /// # Errors
    /// If there is no key; store errors.
    pub fn put(
        &self,
        environment: Option<EnvironmentKey>,
        name: &str,
        value: &SecretText,
        now: Timestamp,
    ) -> Result<i64, VaultError> {
        self.put_if(environment, name, value, None, now)
    }

    /// Like `put`; with `expected`, only if the stored revision matches (zero: nothing stored).
    ///
    /// # Errors
    /// Those of `put`; `Outdated` of the store if the revision differs.
    pub fn put_if(
        &self,
        environment: Option<EnvironmentKey>,
        name: &str,
        value: &SecretText,
        expected: Option<i64>,
        now: Timestamp,
    ) -> Result<i64, VaultError> {
        let ring = self.ring(true)?;
        let sealed = ring.seal(environment, name, value)?;
        let is_known = |sealed: &[u8]| ring.has_key_for(sealed);
        let named = (name, expected);
        match self.store.secrets().put_if(environment, named, &sealed, &is_known, now) {
            Err(StoreError::OtherKey) => {
                Err(VaultError::ForeignDatabase { path: self.path()?.to_owned() })
            }
            kept => Ok(kept?),
        }
    }

    /// Checks at start-up that the key file is usable and that this process has the keys of all
    /// secrets in the database. A process without them would fail only when a handler needs a
    /// secret, or seal with a key that the other processes lack.
    ///
    /// # Errors
    /// `ForeignDatabase` if a key is missing; if the keys cannot be read.
    pub fn check(&self) -> Result<(), VaultError> {
        let secrets = self.store.secrets().all()?;
        let path = match &self.key {
            MasterKey::Absent if secrets.is_empty() => return Ok(()),
            _ => self.path()?,
        };
        let ring = KeyRing::read(path)?;
        if secrets.is_empty() {
            // Reported now: the first request that stores a secret, maybe weeks later, could not fix it.
            return match (&self.key, ring) {
                (MasterKey::Provided(_), None) => {
                    let reason =
                        "it does not exist; create it with: head -c 32 /dev/urandom | base64"
                            .to_owned();
                    Err(VaultError::KeyFile { path: path.to_owned(), reason })
                }
                _ => Ok(()),
            };
        }
        let is_known = |secret: &SecretRecord| {
            ring.as_ref().is_some_and(|ring| ring.has_key_for(&secret.sealed))
        };
        if secrets.iter().all(is_known) {
            return Ok(());
        }
        Err(VaultError::ForeignDatabase { path: path.to_owned() })
    }

    /// Opens a secret for an environment: its own value, or else the global one.
    ///
    /// # Errors
    /// `NotFound` of the store; if it cannot be opened.
    pub fn open(&self, environment: EnvironmentKey, name: &str) -> Result<SecretText, VaultError> {
        let store = &self.store;
        if name.starts_with(RESERVED) {
            return Err(StoreError::NotFound { kind: "secret", name: name.to_owned() }.into());
        }
        let record = match store.secrets().get(Some(environment), name) {
            Err(StoreError::NotFound { .. }) => store.secrets().get(None, name)?,
            found => found?,
        };
        self.ring(false)?.open(&record)
    }

    /// Generates a new master key and seals all data keys with it. The older keys stay in the file,
    /// below the new one, for backups and for concurrent writes of other processes. Returns the
    /// number of resealed secrets.
    ///
    /// # Errors
    /// If the file cannot be written, or a secret cannot be opened: then only the file has changed.
    pub fn rotate(&self) -> Result<u64, VaultError> {
        let old = self.ring(true)?;
        let mut keys = vec![Zeroizing::new(random()?)];
        keys.extend(old.keys.iter().cloned());
        let new = Arc::new(KeyRing { keys });
        // First the file: a value must never be sealed with a key that is not stored yet.
        new.write(self.path()?)?;
        *self.ring.lock().ignore_poison() = Some(Arc::clone(&new));
        let all = self.store.secrets().all()?;
        let resealed: Result<Vec<_>, _> = all.iter().map(|record| new.rewrap(record)).collect();
        Ok(self.store.secrets().reseal(&resealed?)?)
    }
}

#[cfg(test)]
mod tests {
    use orrery_store::Store;

    use super::*;

    const NOW: Timestamp = Timestamp(1);

    fn vault(directory: &Path) -> Vault {
        let store = Store::in_memory().unwrap();
        Vault::new(store, MasterKey::Generated(directory.join("secret.key")))
    }

    fn text(secret: &str) -> SecretText {
        SecretText::new(secret)
    }

    #[test]
    fn secrets_are_opened_where_they_belong_and_nowhere_else() {
        let directory = tempfile::tempdir().unwrap();
        let vault = vault(directory.path());
        let here = vault.store.environments().ensure_default().unwrap();
        let there = vault.store.environments().create("p", "e").unwrap().key;
        vault.put(None, "db", &text("for all"), NOW).unwrap();
        assert_eq!(vault.open(here, "db").unwrap(), text("for all"));
        vault.put(Some(here), "db", &text("own"), NOW).unwrap();
        assert_eq!(vault.open(here, "db").unwrap(), text("own"));
        assert_eq!(vault.open(there, "db").unwrap(), text("for all"));
        // An attacker with write access to the database moves a sealed value to an accessible name.
        let record = vault.store.secrets().get(Some(here), "db").unwrap();
        vault.store.secrets().put(Some(there), "mine", &record.sealed, &|_| true, NOW).unwrap();
        let moved = vault.open(there, "mine").unwrap_err();
        assert!(matches!(moved, VaultError::Tampered { .. }), "{moved}");
        for at in 0..record.sealed.len() {
            let mut changed = record.sealed.clone();
            changed[at] ^= 1;
            vault.store.secrets().put(Some(here), "db", &changed, &|_| true, NOW).unwrap();
            assert!(vault.open(here, "db").is_err(), "byte {at}");
        }
        let mode = fs::metadata(directory.path().join("secret.key")).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
    }

    #[test]
    fn a_new_key_opens_what_the_old_one_sealed() {
        let directory = tempfile::tempdir().unwrap();
        let vault = vault(directory.path());
        let here = vault.store.environments().ensure_default().unwrap();
        vault.put(Some(here), "db", &text("value"), NOW).unwrap();
        let before = vault.store.secrets().get(Some(here), "db").unwrap();
        assert_eq!(vault.rotate().unwrap(), 1);
        let after = vault.store.secrets().get(Some(here), "db").unwrap();
        assert_ne!(before.sealed[1..9], after.sealed[1..9], "the id of the key");
        assert_eq!(vault.open(here, "db").unwrap(), text("value"));
        // The old key is no longer needed.
        let path = directory.path().join("secret.key");
        let keys = fs::read_to_string(&path).unwrap();
        assert_eq!(keys.lines().count(), 2);
        fs::write(&path, keys.lines().next().unwrap()).unwrap();
        let again = Vault::new(vault.store.clone(), vault.key.clone());
        assert_eq!(again.open(here, "db").unwrap(), text("value"));
        fs::write(&path, keys.lines().nth(1).unwrap()).unwrap();
        let old = Vault::new(vault.store.clone(), vault.key.clone());
        assert!(matches!(old.open(here, "db"), Err(VaultError::OtherKey { .. })));
    }

    #[test]
    fn processes_with_different_keys_notice() {
        let directory = tempfile::tempdir().unwrap();
        let first = vault(directory.path());
        let second = Vault::new(
            first.store.clone(),
            MasterKey::Generated(directory.path().join("second.key")),
        );
        let here = first.store.environments().ensure_default().unwrap();
        // Both generate a key at the same time, before either has stored a secret.
        first.ring(true).unwrap();
        second.ring(true).unwrap();
        first.put(Some(here), "db", &text("value"), NOW).unwrap();
        let refused = second.put(Some(here), "other", &text("value"), NOW).unwrap_err();
        assert!(matches!(refused, VaultError::ForeignDatabase { .. }), "{refused}");
        first.check().unwrap();
        let refused = second.check().unwrap_err().to_string();
        assert!(
            refused.contains("second.key") && refused.contains("--secret-key-file"),
            "{refused}"
        );
        // With the key of the first process below its own, it has all keys.
        let keys = ["second.key", "secret.key"]
            .map(|name| fs::read_to_string(directory.path().join(name)).unwrap());
        fs::write(directory.path().join("second.key"), keys.concat()).unwrap();
        second.check().unwrap();
        let none = Vault::new(first.store.clone(), MasterKey::Absent);
        assert!(matches!(none.check(), Err(VaultError::NoKey)));
    }

    #[test]
    fn a_key_is_never_generated_for_a_database_that_has_secrets() {
        let directory = tempfile::tempdir().unwrap();
        let vault = vault(directory.path());
        let here = vault.store.environments().ensure_default().unwrap();
        vault.put(Some(here), "db", &text("value"), NOW).unwrap();
        let elsewhere = MasterKey::Generated(directory.path().join("other.key"));
        let other = Vault::new(vault.store.clone(), elsewhere);
        let refused = other.put(Some(here), "db", &text("new"), NOW).unwrap_err();
        assert!(matches!(refused, VaultError::ForeignDatabase { .. }), "{refused}");
        let given = Vault::new(
            vault.store.clone(),
            MasterKey::Provided(directory.path().join("missing.key")),
        );
        let refused = given.put(Some(here), "db", &text("new"), NOW).unwrap_err();
        assert!(matches!(refused, VaultError::KeyFile { .. }), "{refused}");
        let none = Vault::new(vault.store.clone(), MasterKey::Absent);
        assert!(matches!(none.open(here, "db"), Err(VaultError::NoKey)));
        fs::set_permissions(directory.path().join("secret.key"), fs::Permissions::from_mode(0o644))
            .unwrap();
        let again = Vault::new(vault.store.clone(), vault.key.clone());
        let open = again.open(here, "db").unwrap_err();
        assert!(open.to_string().contains("0600"), "{open}");
    }
}
