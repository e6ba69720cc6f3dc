//! TLS configuration of an agent: trusted CA and client certificate.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use crate::state::AgentIdentity;
use crate::token::Fingerprint;

#[derive(Debug, thiserror::Error)]
#[error("the certificates of this agent are unusable; join again with a new invitation")]
pub struct AgentTlsError(#[source] Box<dyn std::error::Error + Send + Sync>);

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> AgentTlsError {
    AgentTlsError(error.into())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Both peers are this program: no older protocol version is needed.
const VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// Configuration for the first contact: trusts certificates of the CA with this fingerprint.
pub(crate) fn for_joining(fingerprint: &Fingerprint) -> Result<Arc<ClientConfig>, AgentTlsError> {
    let verifier = PinnedAuthority { fingerprint: fingerprint.clone(), provider: provider() };
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(VERSIONS)
        .map_err(failed)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(with_alpn(config))
}

/// Configuration for sessions: both peers present certificates of the CA.
pub(crate) fn for_sessions(
    identity: &AgentIdentity,
    key: &str,
) -> Result<Arc<ClientConfig>, AgentTlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(identity.ca.as_bytes()) {
        roots.add(certificate.map_err(failed)?).map_err(failed)?;
    }
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(failed)?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(VERSIONS)
        .map_err(failed)?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain.map_err(failed)?, key)
        .map_err(failed)?;
    Ok(with_alpn(config))
}

fn with_alpn(mut config: ClientConfig) -> Arc<ClientConfig> {
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// Verifier that trusts one CA, pinned by fingerprint, from the presented chain.
#[derive(Debug)]
struct PinnedAuthority {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let is_it = |one: &&CertificateDer<'_>| Fingerprint::from_der(one) == self.fingerprint;
        let Some(authority) = intermediates.iter().find(is_it) else {
            return Err(Error::General(
                "not the gateway that issued the token: it presents another CA".to_owned(),
            ));
        };
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let provider = Arc::clone(&self.provider);
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
