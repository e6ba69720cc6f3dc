//! TLS: the administrator's own certificate, or one that signs itself, for development.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest as _, Sha256};

const SELF_SIGNED: &str = "self-signed.crt";

/// Where the certificate comes from.
#[derive(Clone, Debug)]
pub enum TlsSource {
    /// Files in PEM format: the certificate with those that vouch for it, and its key.
    Files { certificate: PathBuf, key: PathBuf },
    /// Made at the first start for these names, and kept in this directory.
    SelfSigned { directory: PathBuf, names: Vec<String> },
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    #[error("{} cannot be used", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{} has no {what} in PEM format: {reason}", path.display())]
    Pem { path: PathBuf, what: &'static str, reason: String },
    #[error("the certificate {} and its key do not go together or cannot be used", path.display())]
    Refused { path: PathBuf, source: rustls::Error },
    #[error("a certificate cannot be made: {0}")]
    Generate(String),
}

impl TlsError {
    /// The file that is to blame.
    pub fn path(&self) -> Option<&Path> {
        match self {
            TlsError::Io { path, .. }
            | TlsError::Pem { path, .. }
            | TlsError::Refused { path, .. } => Some(path),
            TlsError::Generate(_) => None,
        }
    }
}

/// The name of HTTP/2 where protocols are agreed on.
pub(crate) const HTTP2: &[u8] = b"h2";

/// What connections are encrypted with. It can be read anew while the server runs.
#[derive(Clone, Debug)]
pub struct Tls {
    source: TlsSource,
    loaded: Arc<RwLock<Loaded>>,
}

#[derive(Clone, Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    fingerprint: String,
    /// The certificates as they stand in their file.
    pem: String,
}

impl Tls {
    /// # Errors
    /// If files cannot be read, or what they have cannot be used.
    pub fn load(source: TlsSource) -> Result<Self, TlsError> {
        let loaded = Arc::new(RwLock::new(read(&source)?));
        Ok(Tls { source, loaded })
    }

    /// Reads the files again, for new connections. If that fails, all stays as it was.
    ///
    /// # Errors
    /// As `load`.
    pub fn reload(&self) -> Result<(), TlsError> {
        let fresh = read(&self.source)?;
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// SHA-256 of the certificate, by which somebody can recognize it.
    pub fn fingerprint(&self) -> String {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).fingerprint.clone()
    }

    /// The file with the certificate, if it signs itself: whoever has it can trust the server.
    pub fn self_signed(&self) -> Option<PathBuf> {
        match &self.source {
            TlsSource::Files { .. } => None,
            TlsSource::SelfSigned { directory, .. } => Some(directory.join(SELF_SIGNED)),
        }
    }

    /// The certificates as PEM, for those who want to recognize the server by them.
    pub(crate) fn certificates(&self) -> String {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).pem.clone()
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.loaded.read().unwrap_or_else(PoisonError::into_inner).config)
    }
}

/// Chooses the implementation of cryptography for the whole process; the first choice counts.
pub(crate) fn install_provider() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

fn read(source: &TlsSource) -> Result<Loaded, TlsError> {
    install_provider();
    let (certificate, key) = match source {
        TlsSource::Files { certificate, key } => (certificate.clone(), key.clone()),
        TlsSource::SelfSigned { directory, names } => self_signed(directory, names)?,
    };
    let bytes = |path: &PathBuf| {
        fs::read(path).map_err(|source| TlsError::Io { path: path.clone(), source })
    };
    let bad =
        |path: &PathBuf, what, reason: String| TlsError::Pem { path: path.clone(), what, reason };
    let pem = bytes(&certificate)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let chain = chain.map_err(|error| bad(&certificate, "certificate", error.to_string()))?;
    let Some(first) = chain.first() else {
        return Err(bad(&certificate, "certificate", "it is empty".to_owned()));
    };
    let fingerprint: Vec<String> =
        Sha256::digest(first).iter().map(|byte| format!("{byte:02X}")).collect();
    let private = PrivateKeyDer::from_pem_slice(&bytes(&key)?)
        .map_err(|error| bad(&key, "private key", error.to_string()))?;
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, private);
    let mut config =
        config.map_err(|source| TlsError::Refused { path: certificate.clone(), source })?;
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    let pem = String::from_utf8_lossy(&pem).into_owned();
    Ok(Loaded { config: Arc::new(config), fingerprint: fingerprint.join(":"), pem })
}

/// The files of the certificate that signs itself. It is made once: whoever has chosen to trust it is not asked again.
fn self_signed(directory: &Path, names: &[String]) -> Result<(PathBuf, PathBuf), TlsError> {
    let certificate = directory.join(SELF_SIGNED);
    let key = directory.join("self-signed.key");
    if certificate.exists() && key.exists() {
        return Ok((certificate, key));
    }
    let made = rcgen::generate_simple_self_signed(names.to_vec());
    let made = made.map_err(|error| TlsError::Generate(error.to_string()))?;
    write(&key, &made.signing_key.serialize_pem(), 0o600)?;
    write(&certificate, &made.cert.pem(), 0o644)?;
    Ok((certificate, key))
}

/// Writes a file whole or not at all.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), TlsError> {
    let beside = path.with_extension("new");
    let failed = |source| TlsError::Io { path: path.to_owned(), source };
    let _ = fs::remove_file(&beside);
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(mode).open(&beside);
    let mut file = file.map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&beside, path).map_err(failed)
}
