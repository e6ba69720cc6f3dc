//! Checks the key that a host presents against the files of known hosts, and records new keys.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use russh::keys::PublicKeyOrCertificate;
use russh::keys::ssh_key::certificate::CertType;
use russh::keys::{Algorithm, Certificate, EcdsaCurve, HashAlg, PublicKey, PublicKeyBase64 as _};

use crate::config::{Destination, HostKeyPolicy};
use crate::error::HostKeyError;
use crate::known_hosts::{KnownHosts, Verdict, new_line};

/// Maximum size of a file of known hosts in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Key or certificate that a host presents.
#[derive(Debug)]
pub(crate) enum PresentedKey {
    Key(PublicKey),
    Certificate(Box<Certificate>),
}

impl PresentedKey {
    pub(crate) fn new(presented: &PublicKeyOrCertificate) -> Self {
        match presented {
            PublicKeyOrCertificate::PublicKey { key, .. } => PresentedKey::Key(key.clone()),
            PublicKeyOrCertificate::Certificate(certificate) => {
                PresentedKey::Certificate(Box::new(certificate.clone()))
            }
        }
    }
}

/// Check of the keys of one host, with the files as they were read.
#[derive(Debug)]
pub(crate) struct HostKeyCheck {
    /// `name` or `[name]:port`.
    host: String,
    /// Name alone, for the principals of certificates.
    name: String,
    policy: HostKeyPolicy,
    known: KnownHosts,
    /// File for new keys.
    record: Option<PathBuf>,
}

impl HostKeyCheck {
    /// Reads the files of a destination. A missing file has no hosts.
    pub(crate) fn read(destination: &Destination) -> Result<Self, HostKeyError> {
        let mut known = KnownHosts::default();
        let files = destination.user_known_hosts.iter().chain(&destination.global_known_hosts);
        for path in files {
            match read_text(path) {
                Ok(Some(text)) => known.add_file(&path.display().to_string(), &text),
                Ok(None) => {}
                Err(source) => return Err(HostKeyError::Read { path: path.clone(), source }),
            }
        }
        Ok(HostKeyCheck {
            host: destination.host_key_name(),
            name: destination.host_key_alias.as_ref().unwrap_or(&destination.host).clone(),
            policy: destination.host_keys,
            known,
            record: destination.user_known_hosts.first().cloned(),
        })
    }

    /// Host key algorithms in the order of preference: those of known keys come first, since
    /// another type of key of the same host counts as changed.
    pub(crate) fn algorithms(&self) -> Vec<Algorithm> {
        let known = self.known.algorithms(&self.host);
        let is_known = |algorithm: &Algorithm| match algorithm {
            Algorithm::Rsa { .. } => known.contains(&"ssh-rsa"),
            other => known.contains(&other.as_str()),
        };
        let mut algorithms = supported_algorithms();
        algorithms.sort_by_key(|algorithm| !is_known(algorithm));
        algorithms
    }

    /// Algorithms for which a certificate is accepted.
    pub(crate) fn certificate_algorithms(&self) -> Vec<Algorithm> {
        match self.known.has_authority(&self.host) {
            true => supported_algorithms(),
            false => Vec::new(),
        }
    }

    /// Judges the key or certificate of the host; records a new key if the policy accepts it.
    pub(crate) fn judge(&self, presented: &PresentedKey) -> Result<(), HostKeyError> {
        match presented {
            PresentedKey::Key(key) => self.judge_key(key),
            PresentedKey::Certificate(certificate) => self.judge_certificate(certificate),
        }
    }

    fn judge_key(&self, key: &PublicKey) -> Result<(), HostKeyError> {
        let encoded = key.public_key_bytes();
        let host = self.host.clone();
        let algorithm = key.algorithm().as_str().to_owned();
        let fingerprint = key.fingerprint(HashAlg::Sha256).to_string();
        match self.known.check(&self.host, &encoded) {
            Verdict::Known(_) => Ok(()),
            Verdict::Revoked(place) => Err(HostKeyError::Revoked { host, place }),
            Verdict::Changed(place) => {
                Err(HostKeyError::Changed { host, algorithm, fingerprint, place })
            }
            Verdict::Unknown => match (self.policy, &self.record) {
                (HostKeyPolicy::AcceptNew, Some(file)) => {
                    record(file, &new_line(&host, &algorithm, &encoded)).map_err(|source| {
                        HostKeyError::Record { host: host.clone(), path: file.clone(), source }
                    })?;
                    tracing::info!(%host, %algorithm, %fingerprint, file = %file.display(), "recorded the host key at the first connection");
                    Ok(())
                }
                (_, file) => {
                    Err(HostKeyError::Unknown { host, algorithm, fingerprint, file: file.clone() })
                }
            },
        }
    }

    fn judge_certificate(&self, certificate: &Certificate) -> Result<(), HostKeyError> {
        let host = || self.host.clone();
        let refuse = |reason: &str| {
            Err(HostKeyError::Certificate { host: host(), reason: reason.to_owned() })
        };
        let authority = PublicKey::from(certificate.signature_key().clone());
        let subject = PublicKey::from(certificate.public_key().clone());
        for key in [&authority, &subject] {
            if let Some(place) = self.known.revoked(&key.public_key_bytes()) {
                return Err(HostKeyError::Revoked { host: host(), place });
            }
        }
        if self.known.authority(&self.host, &authority.public_key_bytes()).is_none() {
            return refuse("its authority is not that of the host");
        }
        if certificate.cert_type() != CertType::Host {
            return refuse("it is not the certificate of a host");
        }
        if certificate.critical_options().iter().next().is_some() {
            return refuse("it has critical options, which are not known");
        }
        let principals = certificate.valid_principals();
        if !principals.iter().any(|name| name.eq_ignore_ascii_case(&self.name)) {
            return refuse("the host is not among its principals");
        }
        let fingerprint = authority.fingerprint(HashAlg::Sha256);
        let now = orrery_base::clock::wall();
        match certificate.validate_at(unix_seconds(now), [&fingerprint]) {
            Ok(()) => Ok(()),
            Err(_) => refuse("it has expired, is not valid yet, or its signature is wrong"),
        }
    }
}

fn unix_seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Algorithms of host keys that this program verifies.
fn supported_algorithms() -> Vec<Algorithm> {
    let mut algorithms = vec![Algorithm::Ed25519];
    for curve in [EcdsaCurve::NistP256, EcdsaCurve::NistP384, EcdsaCurve::NistP521] {
        algorithms.push(Algorithm::Ecdsa { curve });
    }
    if cfg!(feature = "ssh-rsa") {
        for hash in [HashAlg::Sha512, HashAlg::Sha256] {
            algorithms.push(Algorithm::Rsa { hash: Some(hash) });
        }
    }
    algorithms
}

fn read_text(path: &Path) -> io::Result<Option<String>> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if metadata.len() > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it is larger than {FILE_BYTES_MAX} bytes")));
    }
    let bytes = fs::read(path)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Appends a line in one write, so that concurrent connections do not mix theirs.
fn record(path: &Path, line: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    let unterminated = match read_text(path)? {
        Some(text) => !text.is_empty() && !text.ends_with('\n'),
        None => false,
    };
    let line = if unterminated { format!("\n{line}") } else { line.to_owned() };
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    file.write_all(line.as_bytes())?;
    file.sync_all()
}
