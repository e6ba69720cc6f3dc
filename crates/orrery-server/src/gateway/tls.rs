//! TLS in which both sides show certificates of the installation's own authority.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use orrery_model::Timestamp;
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use uuid::Uuid;

use crate::app::system_time;
use crate::tls::install_provider;
use crate::vault::Vault;

use super::authority::{Authority, AuthorityError, Credentials};

/// How long a certificate of this process is used, in microseconds. It is good for much longer.
const USED_FOR: i64 = 24 * 60 * 60 * 1_000_000;
/// So far a clock may be set back before a certificate is made anew, in microseconds: less than it is backdated.
const SET_BACK_MAX: i64 = 30 * 60 * 1_000_000;
/// Whoever connects while there is no certificate is no reason to say so again, within this time.
const SAY_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// What a gateway shows to agents and to other servers.
pub(crate) struct MutualTls {
    vault: Vault,
    /// Who this process is.
    id: Uuid,
    /// Under which names it is dialled.
    names: Vec<String>,
    made: Mutex<Option<Made>>,
    /// When it was last said that there is none.
    complained: Mutex<Option<Instant>>,
}

#[derive(Clone)]
struct Made {
    at: Timestamp,
    authority: Arc<Authority>,
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
        MutualTls { vault, id, names, made: Mutex::default(), complained: Mutex::default() }
    }

    fn known(&self) -> Option<Made> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        // A clock that was set back would make it one that is not valid yet.
        let age = |made: &Made| system_time().0 - made.at.0;
        made.clone().filter(|made| (-SET_BACK_MAX..USED_FOR).contains(&age(made)))
    }

    /// Blocks. `None` as long as nobody was ever invited: there is no authority then, and no agent.
    fn make(&self) -> Result<Option<Made>, AuthorityError> {
        if let Some(made) = self.known() {
            return Ok(Some(made));
        }
        let Some(authority) = Authority::open(&self.vault)? else { return Ok(None) };
        let at = system_time();
        let credentials = || authority.credentials(self.id, &self.names, at);
        let server = server_config(&authority, credentials()?)?;
        let client = client_config(&authority, credentials()?)?;
        let made = Made { at, authority, server: Arc::new(server), client: Arc::new(client) };
        *self.made.lock().unwrap_or_else(PoisonError::into_inner) = Some(made.clone());
        Ok(Some(made))
    }

    async fn current(self: &Arc<Self>) -> Option<Made> {
        if let Some(made) = self.known() {
            return Some(made);
        }
        let own = Arc::clone(self);
        match tokio::task::spawn_blocking(move || own.make()).await {
            Ok(Ok(made)) => made,
            Ok(Err(error)) => {
                self.complain(&error);
                None
            }
            Err(_) => None,
        }
    }

    fn complain(&self, error: &(dyn std::error::Error + 'static)) {
        let mut complained = self.complained.lock().unwrap_or_else(PoisonError::into_inner);
        if complained.is_none_or(|at| at.elapsed() > SAY_AGAIN_AFTER) {
            *complained = Some(Instant::now());
            tracing::error!(error, "the gateway has no certificate");
        }
    }

    /// What connections are encrypted with; `None` if nobody can be served.
    pub(crate) async fn config(self: &Arc<Self>) -> Option<Arc<ServerConfig>> {
        Some(self.current().await?.server)
    }

    pub(crate) async fn authority(self: &Arc<Self>) -> Option<Arc<Authority>> {
        Some(self.current().await?.authority)
    }

    /// How this process dials in to other gateways.
    pub(crate) async fn client(self: &Arc<Self>) -> Option<Arc<ClientConfig>> {
        Some(self.current().await?.client)
    }
}

fn roots(authority: &Authority) -> Result<RootCertStore, AuthorityError> {
    let mut roots = RootCertStore::empty();
    roots
        .add(authority.certificate().clone())
        .map_err(|error| AuthorityError::Unusable(error.to_string()))?;
    Ok(roots)
}

fn server_config(authority: &Authority, own: Credentials) -> Result<ServerConfig, AuthorityError> {
    install_provider();
    let unusable = |reason: String| AuthorityError::Unusable(reason);
    // Who joins has no certificate yet; every other route asks for one.
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

fn client_config(authority: &Authority, own: Credentials) -> Result<ClientConfig, AuthorityError> {
    let mut config = ClientConfig::builder_with_protocol_versions(&[&TLS13])
        .with_root_certificates(roots(authority)?)
        .with_client_auth_cert(own.chain, own.key)
        .map_err(|error| AuthorityError::Unusable(error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The names under which a gateway may be dialled: those that are given, those of its addresses, and this machine's.
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

/// What this machine calls itself.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}

/// The host of `host:port` or `[address]:port`.
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
