//! Enrolment: obtains and renews the certificate of an agent.

use orrery_base::error_chain::error_chain;
use orrery_handlers::clock::now;
use rcgen::{CertificateParams, KeyPair};

use crate::address::{DEFAULT_PORT, GatewayAddress};
use crate::gateway_client::{GatewayRequestError, get, post};
use crate::protocol::{
    JOIN_PATH, JoinRequest, JoinResponse, Machine, PROGRAM_INFO_PATH, ProgramInfo, RENEW_PATH,
    RefusalCode, RenewRequest, RenewResponse, WireSecret,
};
use crate::state::{AgentIdentity, StateDirectory, StateError};
use crate::tls::{self, AgentTlsError};
use crate::token::JoinToken;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnrolmentError {
    #[error(
        "{state} already belongs to the agent {agent}; use another directory with --state, or replace that agent with --replace"
    )]
    Joined { state: String, agent: uuid::Uuid },
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Gateway(#[from] GatewayRequestError),
    #[error(transparent)]
    Tls(#[from] AgentTlsError),
    #[error("cannot create a certificate signing request")]
    Request(#[from] rcgen::Error),
}

impl EnrolmentError {
    /// Remedy, for people.
    pub fn help(&self) -> Option<String> {
        match self {
            EnrolmentError::Gateway(GatewayRequestError::Refused(refusal))
                if refusal.code == RefusalCode::Token =>
            {
                Some(
                    "tokens expire and admit one machine: `orrery agent invite` creates another"
                        .to_owned(),
                )
            }
            EnrolmentError::Gateway(
                GatewayRequestError::NoGateway { .. } | GatewayRequestError::Insecure { .. },
            ) => Some(format!(
                "the gateway has its own port, default {DEFAULT_PORT}: `orrery agent invite` shows its address"
            )),
            _ => None,
        }
    }
}

/// Creates a certificate signing request. Its subject is empty: the server assigns the identity.
fn signing_request(key: &KeyPair) -> Result<String, rcgen::Error> {
    CertificateParams::default().serialize_request(key)?.pem()
}

/// Reads the description of the agent's program that a gateway offers, which the token authenticates.
///
/// # Errors
/// If the gateway has none, or is unreachable.
pub async fn offered_program(
    gateway: &GatewayAddress,
    token: &JoinToken,
) -> Result<ProgramInfo, EnrolmentError> {
    let config = tls::for_joining(token.fingerprint())?;
    Ok(get(gateway, config, PROGRAM_INFO_PATH).await?)
}

/// Joins: exchanges a token for a certificate. A retry after a failure yields the same agent.
///
/// # Errors
/// If the agent joined before, the gateway refuses or is unreachable, or the state cannot be
/// written.
pub async fn join(
    state: &StateDirectory,
    gateway: &GatewayAddress,
    token: &JoinToken,
    names: Option<Vec<String>>,
) -> Result<AgentIdentity, EnrolmentError> {
    if let Some(identity) = state.identity()? {
        let state = state.path().display().to_string();
        return Err(EnrolmentError::Joined { state, agent: identity.agent });
    }
    let key = state.key()?;
    let identity = enrol(&key, gateway, token, names).await?;
    state.store_identity(&identity)?;
    Ok(identity)
}

/// Joins as a new agent and replaces an existing identity, which stays until the new one is
/// complete.
///
/// # Errors
/// If the gateway refuses or is unreachable, or the state cannot be written.
pub async fn join_and_replace(
    state: &StateDirectory,
    gateway: &GatewayAddress,
    token: &JoinToken,
    names: Option<Vec<String>>,
) -> Result<AgentIdentity, EnrolmentError> {
    let key = state.next_key()?;
    let identity = enrol(&key, gateway, token, names).await?;
    state.replace_identity(&identity)?;
    Ok(identity)
}

async fn enrol(
    key: &KeyPair,
    gateway: &GatewayAddress,
    token: &JoinToken,
    names: Option<Vec<String>>,
) -> Result<AgentIdentity, EnrolmentError> {
    let request = JoinRequest {
        token: WireSecret(token.text().clone()),
        csr: signing_request(key)?,
        names,
        machine: Machine::current(),
    };
    let config = tls::for_joining(token.fingerprint())?;
    let response: JoinResponse = post(gateway, config, JOIN_PATH, &request).await?;
    let JoinResponse { agent, environment, names, certificate, ca, valid_seconds } = response;
    let identity = AgentIdentity {
        agent,
        environment,
        names,
        gateway: gateway.clone(),
        gateways: Vec::new(),
        certificate,
        ca,
        obtained: now(),
        valid_seconds,
    };
    // Reject unusable certificates now rather than later.
    tls::for_sessions(&identity, &key.serialize_pem())?;
    Ok(identity)
}

/// Requests the next certificate, from any gateway of the server.
///
/// # Errors
/// As `join`; the last one if all gateways fail.
pub(crate) async fn renew(
    key: &KeyPair,
    identity: &AgentIdentity,
) -> Result<AgentIdentity, EnrolmentError> {
    let request = RenewRequest { csr: signing_request(key)? };
    let key = key.serialize_pem();
    let config = tls::for_sessions(identity, &key)?;
    let mut answer = post(&identity.gateway, config.clone(), RENEW_PATH, &request).await;
    for gateway in identity.addresses().iter().skip(1) {
        match &answer {
            Ok(_) | Err(GatewayRequestError::Refused(_)) => break,
            Err(error) => tracing::debug!(error = error_chain(error), "trying another gateway"),
        }
        answer = post(gateway, config.clone(), RENEW_PATH, &request).await;
    }
    let RenewResponse { certificate, ca, valid_seconds } = answer?;
    let renewed =
        AgentIdentity { certificate, ca, valid_seconds, obtained: now(), ..identity.clone() };
    tls::for_sessions(&renewed, &key)?;
    Ok(renewed)
}
