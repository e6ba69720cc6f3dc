//! The authority that vouches for gateways and remote agents: one for all servers of an installation, sealed by the vault.

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

use crate::vault::{Vault, VaultError};

/// Under which name the vault keeps it.
const NAME: &str = "agent-authority";
const DAY: u64 = 24 * 60 * 60;
const AUTHORITY_LASTS: u64 = 20 * 365 * DAY;
/// Agents ask for the next one when two thirds are gone.
pub(crate) const AGENT_LASTS: u64 = 90 * DAY;
/// A process makes its own certificate, and a new one every day.
const OWN_LASTS: u64 = 30 * DAY;
/// Clocks of others may be a little behind.
const BACKDATED: u64 = 60 * 60;

#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthorityError {
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error("the request for a certificate cannot be used: {0}")]
    Request(rcgen::Error),
    #[error("the certificate of the authority cannot be used: {0}")]
    Unusable(String),
    #[error("a certificate cannot be made: {0}")]
    Make(rcgen::Error),
}

/// Who somebody is, by a certificate of the authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    Agent(Uuid),
    /// Another process of this installation.
    Server(Uuid),
}

const AGENTS: &str = "Orrery agents";
const SERVERS: &str = "Orrery servers";

impl Identity {
    /// Whom a certificate is for. Whether the authority signed it was checked before, when the connection was made.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let subject = parsed.subject();
        let id = subject.iter_common_name().next()?.as_str().ok()?.parse().ok()?;
        match subject.iter_organizational_unit().next()?.as_str().ok()? {
            AGENTS => Some(Identity::Agent(id)),
            SERVERS => Some(Identity::Server(id)),
            _ => None,
        }
    }
}

/// A certificate with its key, for this process.
pub(crate) struct Credentials {
    /// The certificate, and that of the authority.
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

/// What an agent asks to be certified.
pub(crate) struct Request {
    parsed: CertificateSigningRequestParams,
}

impl Request {
    /// Reads a request in PEM and checks that who made it has the key.
    pub(crate) fn parse(pem: &str) -> Result<Self, AuthorityError> {
        let parsed = CertificateSigningRequestParams::from_pem(pem);
        Ok(Request { parsed: parsed.map_err(AuthorityError::Request)? })
    }

    /// SHA-256 of the public key.
    pub(crate) fn key(&self) -> [u8; 32] {
        Sha256::digest(self.parsed.public_key.subject_public_key_info()).into()
    }
}

pub(crate) struct Authority {
    certificate: CertificateDer<'static>,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

fn lasting(mut params: CertificateParams, now: Timestamp, seconds: u64) -> CertificateParams {
    let now = u64::try_from(now.0 / 1_000_000).unwrap_or_default();
    let at = |seconds| rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds);
    params.not_before = at(now.saturating_sub(BACKDATED));
    params.not_after = at(now.saturating_add(seconds));
    params
}

fn named(unit: Option<&str>, name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    if let Some(unit) = unit {
        params.distinguished_name.push(DnType::OrganizationalUnitName, unit);
    }
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

impl Authority {
    /// The one of this installation, if it has one yet.
    pub(crate) fn open(vault: &Vault) -> Result<Option<Arc<Self>>, AuthorityError> {
        vault.own(NAME)?.map(|text| Self::read(&text)).transpose()
    }

    /// The one of this installation. The first who asks makes it.
    pub(crate) fn open_or_make(vault: &Vault, now: Timestamp) -> Result<Arc<Self>, AuthorityError> {
        if let Some(found) = Self::open(vault)? {
            return Ok(found);
        }
        let key = KeyPair::generate().map_err(AuthorityError::Make)?;
        let mut params = lasting(named(None, "Orrery agents' authority"), now, AUTHORITY_LASTS);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let made = params.self_signed(&key).map_err(AuthorityError::Make)?;
        let text = SecretText::new(format!("{}{}", made.pem(), key.serialize_pem()));
        Self::read(&vault.keep_own(NAME, &text, now)?)
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
        Ok(Arc::new(Authority { pem: text.expose()[..end].to_owned(), certificate, issuer }))
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The certificate, in PEM.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// A new token for an invitation: it says whom to trust.
    pub(crate) fn token(&self) -> Result<JoinToken, VaultError> {
        let mut bytes = [0; 32];
        let filled = SysRng.try_fill_bytes(&mut bytes);
        filled.map_err(|error| VaultError::Random(error.to_string()))?;
        Ok(JoinToken::new(&bytes, &self.certificate))
    }

    /// A certificate for an agent, in PEM. Nothing but the key is taken from the request.
    pub(crate) fn certify_agent(
        &self,
        request: &Request,
        agent: Uuid,
        now: Timestamp,
    ) -> Result<String, AuthorityError> {
        let mut params = lasting(named(Some(AGENTS), &agent.to_string()), now, AGENT_LASTS);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let made = params.signed_by(&request.parsed.public_key, &self.issuer);
        Ok(made.map_err(AuthorityError::Make)?.pem())
    }

    /// A certificate for this process: as a gateway with these names, or to dial in to other gateways.
    pub(crate) fn credentials(
        &self,
        server: Uuid,
        names: &[String],
        now: Timestamp,
    ) -> Result<Credentials, AuthorityError> {
        let mut params = lasting(named(Some(SERVERS), &server.to_string()), now, OWN_LASTS);
        for name in names {
            params.subject_alt_names.push(match name.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => {
                    let name = name.as_str().try_into().map_err(AuthorityError::Make)?;
                    SanType::DnsName(name)
                }
            });
        }
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().map_err(AuthorityError::Make)?;
        let made = params.signed_by(&key, &self.issuer).map_err(AuthorityError::Make)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(Credentials { chain: vec![made.der().clone(), self.certificate.clone()], key })
    }
}

#[cfg(test)]
mod tests {
    use orrery_store::SqliteStore;

    use crate::vault::MasterKey;

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

    #[test]
    fn there_is_one_authority_and_it_says_who_somebody_is() {
        let directory = tempfile::tempdir().unwrap();
        let key = MasterKey::Made(directory.path().join("secret.key"));
        let vault = Vault::new(Arc::new(SqliteStore::in_memory().unwrap()), key);
        assert!(Authority::open(&vault).unwrap().is_none());
        let made = Authority::open_or_make(&vault, NOW).unwrap();
        let again = Authority::open_or_make(&vault, NOW).unwrap();
        assert_eq!(made.certificate(), again.certificate());
        assert!(made.pem().ends_with("-----END CERTIFICATE-----\n"), "{}", made.pem());
        assert!(!made.pem().contains("PRIVATE"));
        vault.rotate().unwrap();
        assert!(Authority::open(&vault).unwrap().is_some(), "a new master key changes nothing");

        let agent = Uuid::new_v4();
        let own = KeyPair::generate().unwrap();
        let mut wish = CertificateParams::new(vec!["gateway.example.com".to_owned()]).unwrap();
        wish.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        wish.distinguished_name.push(DnType::OrganizationalUnitName, SERVERS);
        let request = wish.serialize_request(&own).unwrap().pem().unwrap();
        let request = Request::parse(&request).unwrap();
        let pem = made.certify_agent(&request, agent, NOW).unwrap();
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        assert_eq!(Identity::of(&der), Some(Identity::Agent(agent)));
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
        assert!(!parsed.is_ca(), "what the request wants to be does not count");
        assert!(parsed.subject_alternative_name().unwrap().is_none());

        let server = Uuid::new_v4();
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let credentials = made.credentials(server, &names, NOW).unwrap();
        assert_eq!(Identity::of(&credentials.chain[0]), Some(Identity::Server(server)));
        assert_eq!(Identity::of(made.certificate()), None);
    }

    #[test]
    fn a_request_without_its_key_is_refused() {
        let wish = CertificateParams::new(Vec::new()).unwrap();
        let request = wish.serialize_request(&KeyPair::generate().unwrap()).unwrap();
        let mut forged = request.der().to_vec();
        let last = forged.len() - 1;
        forged[last] ^= 1;
        let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &forged);
        let text = format!(
            "-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n"
        );
        assert!(Request::parse(&text).is_err());
        assert!(Request::parse("no request").is_err());
    }
}
