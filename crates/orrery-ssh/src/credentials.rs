//! Private keys and passwords of one hop, read when a connection is made and dropped afterwards.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orrery_handlers::{SecretSource, Secrets};
use orrery_model::SecretText;
use russh::keys::{Algorithm, Certificate, PrivateKey, decode_secret_key};

use crate::config::{AgentSocket, LocalUser};
use crate::error::CredentialError;
use crate::route::Hop;

/// Maximum size of a file with a key in bytes.
const KEY_BYTES_MAX: u64 = 64 * 1024;

/// A private key with its certificates.
pub(crate) struct Identity {
    /// Path or name of the secret, for messages.
    pub(crate) what: String,
    pub(crate) key: Arc<PrivateKey>,
    pub(crate) certificates: Vec<Certificate>,
}

/// Everything that may authenticate a user at one hop.
pub(crate) struct Credentials {
    pub(crate) identities: Vec<Identity>,
    /// Public keys of configured identities, which select those of the agent.
    pub(crate) configured_public: Vec<Vec<u8>>,
    pub(crate) agent: Option<PathBuf>,
    pub(crate) password: Option<SecretText>,
    /// Problems with keys that are not named explicitly, for the error of a failed authentication.
    pub(crate) skipped: Vec<CredentialError>,
}

/// Reads the credentials of a hop. Blocks: files and secrets are read.
///
/// # Errors
/// If a secret or key that the address names cannot be used. Keys of the configuration and default
/// keys that cannot be used are skipped.
pub(crate) fn read_credentials(
    hop: &Hop,
    local: &LocalUser,
    secrets: &dyn Secrets,
    uses_own_keys: bool,
) -> Result<Credentials, CredentialError> {
    let passphrase = match &hop.passphrase {
        Some(source) => Some((secret_name(source), secrets.resolve(source)?)),
        None => None,
    };
    let mut credentials = Credentials {
        identities: Vec::new(),
        configured_public: Vec::new(),
        agent: None,
        password: hop.password.as_ref().map(|source| secrets.resolve(source)).transpose()?,
        skipped: Vec::new(),
    };
    if let Some(source) = &hop.identity {
        let text = secrets.resolve(source)?;
        let what = secret_name(source);
        if is_public_key(text.expose()) {
            return Err(CredentialError::PublicKey { what, is_file: false });
        }
        let key = parse_key(&what, text.expose(), passphrase.as_ref())?;
        credentials.identities.push(Identity { what, key, certificates: Vec::new() });
    }
    let destination = &hop.destination;
    if !uses_own_keys {
        if let Some(path) = destination.identities.first() {
            return Err(CredentialError::PathNotAllowed(path.display().to_string()));
        }
        return Ok(credentials);
    }
    credentials.agent = match &destination.agent {
        AgentSocket::Environment => local.agent_socket.clone(),
        AgentSocket::Path(path) => Some(path.clone()),
        AgentSocket::None => None,
    };
    let configured = !destination.identities.is_empty();
    // A key or password that is a secret of the address needs no default files.
    let has_secret = hop.identity.is_some() || hop.password.is_some();
    let files = match (configured, has_secret) {
        (true, _) => destination.identities.clone(),
        (false, true) => Vec::new(),
        (false, false) => default_identities(&local.home),
    };
    for path in files {
        let public = path.with_added_extension("pub");
        if configured && let Some(key) = read_small(&public).ok().flatten() {
            credentials.configured_public.extend(public_key_bytes(&key));
        }
        match read_identity(&path, passphrase.as_ref()) {
            Ok(Some(mut identity)) => {
                add_certificates(&mut identity, &path, &destination.certificates);
                credentials.identities.push(identity);
            }
            Ok(None) if configured => {
                credentials.skipped.push(CredentialError::MissingKey { path });
            }
            Ok(None) => {}
            Err(error) => {
                // As with OpenSSH, it selects the key of the agent that it belongs to.
                if matches!(error, CredentialError::PublicKey { .. })
                    && let Some(key) = read_small(&path).ok().flatten()
                {
                    credentials.configured_public.extend(public_key_bytes(&key));
                }
                credentials.skipped.push(error);
            }
        }
    }
    Ok(credentials)
}

fn default_identities(home: &Path) -> Vec<PathBuf> {
    ["id_ed25519", "id_ecdsa", "id_rsa"].map(|name| home.join(".ssh").join(name)).to_vec()
}

fn secret_name(source: &SecretSource) -> String {
    match source {
        SecretSource::Environment(name) => format!("env:{name}"),
        SecretSource::File(path) => format!("file:{}", path.display()),
        SecretSource::Command(_) => "command".to_owned(),
        SecretSource::Stored(name) => name.clone(),
    }
}

fn read_small(path: &Path) -> io::Result<Option<String>> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.len() > KEY_BYTES_MAX => {
            Err(io::Error::other(format!("it is larger than {KEY_BYTES_MAX} bytes")))
        }
        Ok(_) => fs::read_to_string(path).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn public_key_bytes(text: &str) -> Option<Vec<u8>> {
    use base64::Engine as _;
    let encoded = text.split_ascii_whitespace().nth(1)?;
    base64::engine::general_purpose::STANDARD.decode(encoded).ok()
}

/// Returns true for a public key, in the formats of OpenSSH, RFC 4716 and PKCS#8.
fn is_public_key(text: &str) -> bool {
    let text = text.trim_start();
    let first = text.split_ascii_whitespace().next().unwrap_or_default();
    let is_line = ["ssh-", "ecdsa-sha2-", "sk-ssh-", "sk-ecdsa-"];
    let is_line = is_line.iter().any(|start| first.starts_with(start));
    let begin = text.lines().next().unwrap_or_default();
    is_line || (begin.contains("BEGIN") && begin.contains("PUBLIC KEY"))
}

/// Reads a private key; `None` if the file does not exist.
fn read_identity(
    path: &Path,
    passphrase: Option<&(String, SecretText)>,
) -> Result<Option<Identity>, CredentialError> {
    let failed = |source| CredentialError::ReadKey { path: path.to_owned(), source };
    let Some(text) = read_small(path).map_err(failed)? else { return Ok(None) };
    let text = SecretText::new(text);
    if is_public_key(text.expose()) {
        let what = path.display().to_string();
        return Err(CredentialError::PublicKey { what, is_file: true });
    }
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(CredentialError::Unprotected { path: path.to_owned(), mode });
    }
    let what = path.display().to_string();
    let key = parse_key(&what, text.expose(), passphrase)?;
    Ok(Some(Identity { what, key, certificates: Vec::new() }))
}

fn parse_key(
    what: &str,
    text: &str,
    passphrase: Option<&(String, SecretText)>,
) -> Result<Arc<PrivateKey>, CredentialError> {
    let what = || what.to_owned();
    let opened = match decode_secret_key(text, None) {
        Err(russh::keys::Error::KeyIsEncrypted) => match passphrase {
            None => return Err(CredentialError::Encrypted { what: what() }),
            Some((secret, passphrase)) => decode_secret_key(text, Some(passphrase.expose()))
                .map_err(|_| CredentialError::Passphrase { what: what(), secret: secret.clone() }),
        },
        other => other
            .map_err(|error| CredentialError::ParseKey { what: what(), reason: error.to_string() }),
    };
    let key = opened?;
    match key.algorithm() {
        Algorithm::Ed25519 | Algorithm::Ecdsa { .. } => Ok(Arc::new(key)),
        Algorithm::Rsa { .. } if cfg!(feature = "ssh-rsa") => Ok(Arc::new(key)),
        other => {
            Err(CredentialError::Unsupported { what: what(), algorithm: other.as_str().to_owned() })
        }
    }
}

/// Adds the certificate beside a key, and configured ones for the same key.
fn add_certificates(identity: &mut Identity, path: &Path, configured: &[PathBuf]) {
    let mut beside = path.as_os_str().to_owned();
    beside.push("-cert.pub");
    let own = identity.key.public_key().key_data().clone();
    let files = std::iter::once(PathBuf::from(beside)).chain(configured.iter().cloned());
    for file in files {
        let Some(text) = read_small(&file).ok().flatten() else { continue };
        match Certificate::from_openssh(text.trim()) {
            Ok(certificate) if *certificate.public_key() == own => {
                identity.certificates.push(certificate);
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "skipped a certificate that cannot be read");
            }
        }
    }
}
