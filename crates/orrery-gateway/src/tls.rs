//! Mutual TLS with certificates of the installation's own authority.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_model::Timestamp;
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use uuid::Uuid;

use orrery_roles::listener::TlsConfigs;
use orrery_roles::services::system_time;
use orrery_roles::tls::install_provider;
use orrery_roles::vault::Vault;

use super::certificate_authority::{AuthorityError, CertificateAuthority, ServerCredentials};

/// Age at which a certificate of this process is replaced, in microseconds. Its validity is much
/// longer.
const REPLACE_AFTER_MICROS: i64 = 24 * 60 * 60 * 1_000_000;
/// Maximum step of the clock backwards before a certificate is reissued, in microseconds: less than
/// its backdating.
const SET_BACK_MAX_MICROS: i64 = 30 * 60 * 1_000_000;
/// Minimum interval between errors about a missing certificate.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// TLS configurations of a gateway, created on demand.
pub(crate) struct MutualTls {
    vault: Vault,
    /// Id of this process.
    id: Uuid,
    /// Names in the certificate.
    names: Vec<String>,
    configs: Mutex<Option<CachedConfigs>>,
    /// Time of the latest error.
    logged_at: Mutex<Option<Instant>>,
}

#[derive(Clone)]
struct CachedConfigs {
    at: Timestamp,
    authority: Arc<CertificateAuthority>,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl std::fmt::Debug for MutualTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MutualTls").field("names", &self.names).finish_non_exhaustive()
    }
}

impl MutualTls {
    pub(crate) fn new(vault: Vault, id: Uuid, names: Vec<String>) -> Self {
        MutualTls { vault, id, names, configs: Mutex::default(), logged_at: Mutex::default() }
    }

    fn cached(&self) -> Option<CachedConfigs> {
        let configs = self.configs.lock().ignore_poison();
        // After a step backwards, the certificate would not be valid yet.
        let age = |configs: &CachedConfigs| system_time().0 - configs.at.0;
        configs
            .clone()
            .filter(|configs| (-SET_BACK_MAX_MICROS..REPLACE_AFTER_MICROS).contains(&age(configs)))
    }

    /// Blocks. `None` before the first invitation: there is no authority yet, and no agent.
    fn create(&self) -> Result<Option<CachedConfigs>, AuthorityError> {
        if let Some(configs) = self.cached() {
            return Ok(Some(configs));
        }
        let Some(authority) = CertificateAuthority::open(&self.vault)? else { return Ok(None) };
        let at = system_time();
        let credentials = || authority.credentials(self.id, &self.names, at);
        let server = server_config(&authority, credentials()?)?;
        let client = client_config(&authority, credentials()?)?;
        let configs =
            CachedConfigs { at, authority, server: Arc::new(server), client: Arc::new(client) };
        *self.configs.lock().ignore_poison() = Some(configs.clone());
        Ok(Some(configs))
    }

    async fn current(self: &Arc<Self>) -> Option<CachedConfigs> {
        if let Some(configs) = self.cached() {
            return Some(configs);
        }
        let own = Arc::clone(self);
        match tokio::task::spawn_blocking(move || own.create()).await {
            Ok(Ok(configs)) => configs,
            Ok(Err(error)) => {
                self.log_error(&error);
                None
            }
            Err(_) => None,
        }
    }

    fn log_error(&self, error: &(dyn std::error::Error + 'static)) {
        let mut logged_at = self.logged_at.lock().ignore_poison();
        if logged_at.is_none_or(|at| at.elapsed() > LOG_INTERVAL) {
            *logged_at = Some(monotonic());
            tracing::error!(error, "the gateway has no certificate");
        }
    }

    pub(crate) async fn authority(self: &Arc<Self>) -> Option<Arc<CertificateAuthority>> {
        Some(self.current().await?.authority)
    }

    /// Client configuration for other gateways.
    pub(crate) async fn client(self: &Arc<Self>) -> Option<Arc<ClientConfig>> {
        Some(self.current().await?.client)
    }
}

#[async_trait::async_trait]
impl TlsConfigs for MutualTls {
    async fn server_config(self: Arc<Self>) -> Option<Arc<ServerConfig>> {
        Some(self.current().await?.server)
    }
}

fn roots(authority: &CertificateAuthority) -> Result<RootCertStore, AuthorityError> {
    let mut roots = RootCertStore::empty();
    roots
        .add(authority.certificate().clone())
        .map_err(|error| AuthorityError::Unusable(error.to_string()))?;
    Ok(roots)
}

fn server_config(
    authority: &CertificateAuthority,
    own: ServerCredentials,
) -> Result<ServerConfig, AuthorityError> {
    install_provider();
    let unusable = |reason: String| AuthorityError::Unusable(reason);
    // A joining machine has no certificate yet; every other route requires one.
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots(authority)?))
        .allow_unauthenticated()
        .build()
        .map_err(|error| unusable(error.to_string()))?;
    let mut config = ServerConfig::builder_with_protocol_versions(&[&TLS13])
        .with_client_cert_verifier(verifier)
        .with_single_cert(own.chain, own.key)
        .map_err(|error| unusable(error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn client_config(
    authority: &CertificateAuthority,
    own: ServerCredentials,
) -> Result<ClientConfig, AuthorityError> {
    let mut config = ClientConfig::builder_with_protocol_versions(&[&TLS13])
        .with_root_certificates(roots(authority)?)
        .with_client_auth_cert(own.chain, own.key)
        .map_err(|error| AuthorityError::Unusable(error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Returns the names of a gateway: given ones, those of its addresses, and this machine's.
pub(crate) fn own_names(given: &[String], addresses: [&str; 2], listen: IpAddr) -> Vec<String> {
    let mut names = given.to_vec();
    names.extend(addresses.map(|address| host_of(address).to_owned()));
    if !listen.is_unspecified() {
        names.push(listen.to_string());
    }
    names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
    names.push(host_name());
    names.sort();
    names.dedup();
    names
}

/// Returns the host name of this machine.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}

/// Returns the host of `host:port` or `[address]:port`.
pub(crate) fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_answers_to_its_names() {
        let names = own_names(
            &["gw.example.com".to_owned()],
            ["agents.example.com:8889", "agents.example.com:8889"],
            IpAddr::from([10, 0, 0, 1]),
        );
        for name in ["gw.example.com", "agents.example.com", "10.0.0.1", "localhost", "::1"] {
            assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
        }
        let names = own_names(
            &[],
            ["[2001:db8::1]:8889", "gw1.example.com:8889"],
            IpAddr::from([0, 0, 0, 0]),
        );
        assert!(names.iter().any(|known| known == "2001:db8::1"), "{names:?}");
        assert!(names.iter().any(|known| known == "gw1.example.com"), "{names:?}");
        assert!(!names.iter().any(|known| known == "0.0.0.0"), "{names:?}");
    }
}
