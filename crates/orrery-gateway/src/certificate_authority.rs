//! The certificate authority of gateways and remote agents: one per installation, sealed in the
//! vault.

use std::sync::Arc;

use orrery_agent::token::JoinToken;
use orrery_model::{SecretText, Timestamp};
use rand::TryRng as _;
use rand::rngs::SysRng;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use orrery_roles::vault::{Vault, VaultError};

/// Name of its secret in the vault.
const NAME: &str = "agent-authority";
const DAY: u64 = 24 * 60 * 60;
const AUTHORITY_VALIDITY_SECONDS: u64 = 20 * 365 * DAY;
/// Validity of an agent's certificate. Agents renew it after two thirds.
pub(crate) const AGENT_VALIDITY_SECONDS: u64 = 90 * DAY;
/// Validity of a process's own certificate, which is replaced daily.
const SERVER_VALIDITY_SECONDS: u64 = 30 * DAY;
/// Tolerance for clocks that are behind.
const BACKDATED: u64 = 60 * 60;

#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error("invalid certificate request: {0}")]
    SigningRequest(rcgen::Error),
    #[error("invalid certificate of the authority: {0}")]
    Unusable(String),
    #[error("cannot issue a certificate: {0}")]
    Generate(rcgen::Error),
}

/// Identity in a certificate of the authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CertificateIdentity {
    Agent(Uuid),
    /// Another process of this installation.
    Server(Uuid),
}

const AGENTS: &str = "Orrery agents";
const SERVERS: &str = "Orrery servers";

impl CertificateIdentity {
    /// Reads the identity of a certificate. The TLS handshake has already verified the signature.
    pub(crate) fn from_certificate(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let subject = parsed.subject();
        let id = subject.iter_common_name().next()?.as_str().ok()?.parse().ok()?;
        match subject.iter_organizational_unit().next()?.as_str().ok()? {
            AGENTS => Some(CertificateIdentity::Agent(id)),
            SERVERS => Some(CertificateIdentity::Server(id)),
            _ => None,
        }
    }
}

/// Certificate and key of this process.
pub(crate) struct ServerCredentials {
    /// The certificate, followed by that of the authority.
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

/// Certificate signing request of an agent.
pub(crate) struct SigningRequest {
    parsed: CertificateSigningRequestParams,
}

impl SigningRequest {
    /// Parses a PEM request and verifies that the sender has the private key.
    pub(crate) fn parse(pem: &str) -> Result<Self, AuthorityError> {
        let parsed = CertificateSigningRequestParams::from_pem(pem);
        Ok(SigningRequest { parsed: parsed.map_err(AuthorityError::SigningRequest)? })
    }

    /// SHA-256 of the public key.
    pub(crate) fn key(&self) -> [u8; 32] {
        Sha256::digest(self.parsed.public_key.subject_public_key_info()).into()
    }
}

pub struct CertificateAuthority {
    certificate: CertificateDer<'static>,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CertificateAuthority")
    }
}

fn with_validity(mut params: CertificateParams, now: Timestamp, seconds: u64) -> CertificateParams {
    let now = u64::try_from(now.0 / 1_000_000).unwrap_or_default();
    let at = |seconds| rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds);
    params.not_before = at(now.saturating_sub(BACKDATED));
    params.not_after = at(now.saturating_add(seconds));
    params
}

fn params_for(unit: Option<&str>, name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    if let Some(unit) = unit {
        params.distinguished_name.push(DnType::OrganizationalUnitName, unit);
    }
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

impl CertificateAuthority {
    /// Opens the authority of this installation, if it exists.
    pub fn open(vault: &Vault) -> Result<Option<Arc<Self>>, AuthorityError> {
        vault.installation_secret(NAME)?.map(|text| Self::read(&text)).transpose()
    }

    /// Opens the authority of this installation; the first call creates it.
    pub fn open_or_create(vault: &Vault, now: Timestamp) -> Result<Arc<Self>, AuthorityError> {
        if let Some(found) = Self::open(vault)? {
            return Ok(found);
        }
        let key = KeyPair::generate().map_err(AuthorityError::Generate)?;
        let mut params = with_validity(
            params_for(None, "Orrery agents' authority"),
            now,
            AUTHORITY_VALIDITY_SECONDS,
        );
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issued = params.self_signed(&key).map_err(AuthorityError::Generate)?;
        let text = SecretText::new(format!("{}{}", issued.pem(), key.serialize_pem()));
        Self::read(&vault.store_installation_secret(NAME, &text, now)?)
    }

    fn read(text: &SecretText) -> Result<Arc<Self>, AuthorityError> {
        let unusable = |reason: String| AuthorityError::Unusable(reason);
        let bytes = text.expose().as_bytes();
        let certificate =
            CertificateDer::from_pem_slice(bytes).map_err(|error| unusable(error.to_string()))?;
        let key = PrivatePkcs8KeyDer::from_pem_slice(bytes)
            .map_err(|error| unusable(error.to_string()))?;
        let key = KeyPair::try_from(&key).map_err(|error| unusable(error.to_string()))?;
        let end = text.expose().find("-----BEGIN PRIVATE").unwrap_or_default();
        let issuer = Issuer::from_ca_cert_der(&certificate, key);
        let issuer = issuer.map_err(|error| unusable(error.to_string()))?;
        Ok(Arc::new(CertificateAuthority {
            pem: text.expose()[..end].to_owned(),
            certificate,
            issuer,
        }))
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The certificate, in PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Creates the token of an invitation, which contains the fingerprint of the authority.
    pub fn token(&self) -> Result<JoinToken, VaultError> {
        let mut bytes = [0; 32];
        let filled = SysRng.try_fill_bytes(&mut bytes);
        filled.map_err(|error| VaultError::Random(error.to_string()))?;
        Ok(JoinToken::new(&bytes, &self.certificate))
    }

    /// Issues a PEM certificate for an agent. Only the public key is taken from the request.
    pub(crate) fn certify_agent(
        &self,
        request: &SigningRequest,
        agent: Uuid,
        now: Timestamp,
    ) -> Result<String, AuthorityError> {
        let mut params = with_validity(
            params_for(Some(AGENTS), &agent.to_string()),
            now,
            AGENT_VALIDITY_SECONDS,
        );
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let issued = params.signed_by(&request.parsed.public_key, &self.issuer);
        Ok(issued.map_err(AuthorityError::Generate)?.pem())
    }

    /// Issues a certificate for this process: as a gateway with these names, or as a client of
    /// other gateways.
    pub(crate) fn credentials(
        &self,
        server: Uuid,
        names: &[String],
        now: Timestamp,
    ) -> Result<ServerCredentials, AuthorityError> {
        let mut params = with_validity(
            params_for(Some(SERVERS), &server.to_string()),
            now,
            SERVER_VALIDITY_SECONDS,
        );
        for name in names {
            params.subject_alt_names.push(match name.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => {
                    let name = name.as_str().try_into().map_err(AuthorityError::Generate)?;
                    SanType::DnsName(name)
                }
            });
        }
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().map_err(AuthorityError::Generate)?;
        let issued = params.signed_by(&key, &self.issuer).map_err(AuthorityError::Generate)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(ServerCredentials { chain: vec![issued.der().clone(), self.certificate.clone()], key })
    }
}

#[cfg(test)]
mod tests {
    use orrery_store::Store;

    use orrery_roles::vault::MasterKey;

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

    #[test]
    fn there_is_one_authority_and_it_certifies_identities() {
        let directory = tempfile::tempdir().unwrap();
        let key = MasterKey::Generated(directory.path().join("secret.key"));
        let vault = Vault::new(Store::in_memory().unwrap(), key);
        assert!(CertificateAuthority::open(&vault).unwrap().is_none());
        let issued = CertificateAuthority::open_or_create(&vault, NOW).unwrap();
        let again = CertificateAuthority::open_or_create(&vault, NOW).unwrap();
        assert_eq!(issued.certificate(), again.certificate());
        assert!(issued.pem().ends_with("-----END CERTIFICATE-----\n"), "{}", issued.pem());
        assert!(!issued.pem().contains("PRIVATE"));
        vault.rotate().unwrap();
        assert!(
            CertificateAuthority::open(&vault).unwrap().is_some(),
            "a new master key changes nothing"
        );

        let agent = Uuid::new_v4();
        let own = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["gateway.example.com".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::OrganizationalUnitName, SERVERS);
        let request = params.serialize_request(&own).unwrap().pem().unwrap();
        let request = SigningRequest::parse(&request).unwrap();
        let pem = issued.certify_agent(&request, agent, NOW).unwrap();
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        assert_eq!(
            CertificateIdentity::from_certificate(&der),
            Some(CertificateIdentity::Agent(agent))
        );
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
        assert!(!parsed.is_ca(), "what the request wants to be does not count");
        assert!(parsed.subject_alternative_name().unwrap().is_none());

        let server = Uuid::new_v4();
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let credentials = issued.credentials(server, &names, NOW).unwrap();
        assert_eq!(
            CertificateIdentity::from_certificate(&credentials.chain[0]),
            Some(CertificateIdentity::Server(server))
        );
        assert_eq!(CertificateIdentity::from_certificate(issued.certificate()), None);
    }

    #[test]
    fn a_request_without_its_key_is_refused() {
        let params = CertificateParams::new(Vec::new()).unwrap();
        let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap();
        let mut forged = request.der().to_vec();
        let last = forged.len() - 1;
        forged[last] ^= 1;
        let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &forged);
        let text = format!(
            "-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n"
        );
        assert!(SigningRequest::parse(&text).is_err());
        assert!(SigningRequest::parse("no request").is_err());
    }
}
