//! How an agent gets its certificate, and the next one.

use rcgen::{CertificateParams, KeyPair};

use crate::address::GatewayAddress;
use crate::asking::{AskError, post};
use crate::clock::now;
use crate::protocol::{
    JOIN_PATH, JoinAnswer, JoinRequest, Machine, RENEW_PATH, RenewAnswer, RenewRequest, Secret,
};
use crate::state::{Identity, StateDirectory, StateError};
use crate::tls::{self, TlsError};
use crate::token::JoinToken;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnrolmentError {
    #[error(
        "{state} belongs to the agent {agent} already; use another directory with --state, or --replace to forget that one"
    )]
    Joined { state: String, agent: uuid::Uuid },
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("no request for a certificate can be made")]
    Request(#[from] rcgen::Error),
}

/// A request for a certificate. Its subject says nothing: the server decides who this is.
fn signing_request(key: &KeyPair) -> Result<String, rcgen::Error> {
    CertificateParams::default().serialize_request(key)?.pem()
}

/// Joins: turns a token into a certificate. Who does it again after a failure is the same agent.
///
/// # Errors
/// If the agent joined before, the gateway refuses or cannot be reached, or nothing can be kept.
pub async fn join(
    state: &StateDirectory,
    gateway: &GatewayAddress,
    token: &JoinToken,
    names: Option<Vec<String>>,
) -> Result<Identity, EnrolmentError> {
    if let Some(identity) = state.identity()? {
        let state = state.path().display().to_string();
        return Err(EnrolmentError::Joined { state, agent: identity.agent });
    }
    let key = state.key()?;
    let identity = enrol(&key, gateway, token, names).await?;
    state.keep_identity(&identity)?;
    Ok(identity)
}

/// Joins as another agent than the one that is there, if one is. It stays until the new one is known.
///
/// # Errors
/// If the gateway refuses or cannot be reached, or nothing can be kept.
pub async fn join_instead(
    state: &StateDirectory,
    gateway: &GatewayAddress,
    token: &JoinToken,
    names: Option<Vec<String>>,
) -> Result<Identity, EnrolmentError> {
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
) -> Result<Identity, EnrolmentError> {
    let request = JoinRequest {
        token: Secret(token.text().clone()),
        csr: signing_request(key)?,
        names,
        machine: Machine::this(),
    };
    let config = tls::for_joining(token.fingerprint())?;
    let answer: JoinAnswer = post(gateway, config, JOIN_PATH, &request).await?;
    let JoinAnswer { agent, environment, names, certificate, ca, valid_seconds } = answer;
    let identity = Identity {
        agent,
        environment,
        names,
        gateway: gateway.clone(),
        certificate,
        ca,
        obtained: now(),
        valid_seconds,
    };
    // What could not be used later is better refused now.
    tls::for_sessions(&identity, &key.serialize_pem())?;
    Ok(identity)
}

/// Asks for the next certificate, and keeps it.
///
/// # Errors
/// As `join`.
pub(crate) async fn renew(
    state: &StateDirectory,
    identity: &Identity,
) -> Result<Identity, EnrolmentError> {
    let key = state.key()?;
    let request = RenewRequest { csr: signing_request(&key)? };
    let config = tls::for_sessions(identity, &key.serialize_pem())?;
    let answer: RenewAnswer = post(&identity.gateway, config, RENEW_PATH, &request).await?;
    let RenewAnswer { certificate, ca, valid_seconds } = answer;
    let renewed = Identity { certificate, ca, valid_seconds, obtained: now(), ..identity.clone() };
    tls::for_sessions(&renewed, &key.serialize_pem())?;
    state.keep_identity(&renewed)?;
    Ok(renewed)
}
