//! TLS: the administrator's certificate, or a self-signed one for development.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use orrery_base::lock::IgnorePoison;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest as _, Sha256};

const SELF_SIGNED: &str = "self-signed.crt";

/// Source of the certificate.
#[derive(Clone, Debug)]
pub enum TlsSource {
    /// PEM files: the certificate with its chain, and its private key.
    Files { certificate: PathBuf, key: PathBuf },
    /// Generated at first start for these names, and stored in this directory.
    SelfSigned { directory: PathBuf, names: Vec<String> },
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    #[error("{} cannot be used", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{} has no {what} in PEM format: {reason}", path.display())]
    Pem { path: PathBuf, what: &'static str, reason: String },
    #[error("the certificate {} and its key do not match or cannot be used", path.display())]
    Refused { path: PathBuf, source: rustls::Error },
    #[error("cannot generate a certificate: {0}")]
    Generate(String),
}

impl TlsError {
    /// The file that caused the error.
    pub fn path(&self) -> Option<&Path> {
        match self {
            TlsError::Io { path, .. }
            | TlsError::Pem { path, .. }
            | TlsError::Refused { path, .. } => Some(path),
            TlsError::Generate(_) => None,
        }
    }
}

/// ALPN name of HTTP/2.
pub const HTTP2: &[u8] = b"h2";

/// TLS configuration of a listener, which can be reloaded at run time.
#[derive(Clone, Debug)]
pub struct Tls {
    source: TlsSource,
    loaded: Arc<RwLock<LoadedTls>>,
}

#[derive(Clone, Debug)]
struct LoadedTls {
    config: Arc<ServerConfig>,
    fingerprint: String,
    /// PEM text of the certificate chain.
    pem: String,
}

impl Tls {
    /// # Errors
    /// If a file cannot be read, or its content is invalid.
    pub fn load(source: TlsSource) -> Result<Self, TlsError> {
        let loaded = Arc::new(RwLock::new(read(&source)?));
        Ok(Tls { source, loaded })
    }

    /// Reloads the files for new connections. On failure the old configuration stays in use.
    ///
    /// # Errors
    /// As `load`.
    pub fn reload(&self) -> Result<(), TlsError> {
        let fresh = read(&self.source)?;
        *self.loaded.write().ignore_poison() = fresh;
        Ok(())
    }

    /// SHA-256 fingerprint of the certificate.
    pub fn fingerprint(&self) -> String {
        self.loaded.read().ignore_poison().fingerprint.clone()
    }

    /// Path of a self-signed certificate, which clients can add to their trust store.
    pub fn self_signed(&self) -> Option<PathBuf> {
        match &self.source {
            TlsSource::Files { .. } => None,
            TlsSource::SelfSigned { directory, .. } => Some(directory.join(SELF_SIGNED)),
        }
    }

    /// Certificate chain as PEM, for clients that pin it.
    pub fn certificates(&self) -> String {
        self.loaded.read().ignore_poison().pem.clone()
    }

    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.loaded.read().ignore_poison().config)
    }
}

/// Installs the crypto provider of the process; the first call wins.
pub fn install_provider() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

fn read(source: &TlsSource) -> Result<LoadedTls, TlsError> {
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
    Ok(LoadedTls { config: Arc::new(config), fingerprint: fingerprint.join(":"), pem })
}

/// Returns the files of the self-signed certificate. It is generated only once, because clients may
/// have decided to trust it.
fn self_signed(directory: &Path, names: &[String]) -> Result<(PathBuf, PathBuf), TlsError> {
    let certificate = directory.join(SELF_SIGNED);
    let key = directory.join("self-signed.key");
    if certificate.exists() && key.exists() {
        return Ok((certificate, key));
    }
    let generated = rcgen::generate_simple_self_signed(names.to_vec());
    let generated = generated.map_err(|error| TlsError::Generate(error.to_string()))?;
    write_atomically(&key, &generated.signing_key.serialize_pem(), 0o600)?;
    write_atomically(&certificate, &generated.cert.pem(), 0o644)?;
    Ok((certificate, key))
}

/// Writes a file atomically.
fn write_atomically(path: &Path, text: &str, mode: u32) -> Result<(), TlsError> {
    let beside = path.with_extension("new");
    let failed = |source| TlsError::Io { path: path.to_owned(), source };
    let _ = fs::remove_file(&beside);
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(mode).open(&beside);
    let mut file = file.map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&beside, path).map_err(failed)
}
