//! Admission to the routes of a gateway: one table, checked before any handler runs.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use orrery_agent::protocol::{
    JOIN_PATH, PROGRAM_INFO_PATH, PROGRAM_PATH, RENEW_PATH, Refusal, RefusalCode, SESSION_PATH,
};
use orrery_store::{RemoteAgentRecord, StoreError};
use uuid::Uuid;

use orrery_roles::body::{ANONYMOUS_BOUNDS, AUTHENTICATED_TIMEOUT, Bounds, LimitedBody};
use orrery_roles::listener::PeerCertificate;
use orrery_roles::network::network_of;

use super::certificate_authority::CertificateIdentity;
use super::{BODY_MAX, GatewayState};

/// Path for connections of other processes of the installation.
pub(crate) const PEER_PATH: &str = "/peer/v1";

/// Credential that a route requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequiredCredential {
    /// Public.
    Nothing,
    /// A token in the body, checked by the handler.
    Token,
    /// The certificate of a remote agent that is not revoked.
    Agent,
    /// The certificate of another process of the installation.
    Server,
}

const ROUTES: [(&str, &str, RequiredCredential); 6] = [
    ("GET", PROGRAM_PATH, RequiredCredential::Nothing),
    ("GET", PROGRAM_INFO_PATH, RequiredCredential::Nothing),
    ("POST", JOIN_PATH, RequiredCredential::Token),
    ("POST", RENEW_PATH, RequiredCredential::Agent),
    ("GET", SESSION_PATH, RequiredCredential::Agent),
    ("GET", PEER_PATH, RequiredCredential::Server),
];

/// An admitted remote agent.
#[derive(Clone, Debug)]
pub(crate) struct AdmittedAgent(pub(crate) RemoteAgentRecord);

/// Another admitted process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmittedServer(pub(crate) Uuid);

/// A refusal with its HTTP status.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) StatusCode, pub(crate) Refusal);

impl Refused {
    pub(crate) fn new(status: StatusCode, code: RefusalCode, reason: impl Into<String>) -> Self {
        Refused(status, Refusal { code, reason: reason.into() })
    }

    /// A temporary failure of the gateway; logs the error.
    pub(crate) fn unavailable(error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(error, "cannot serve an agent");
        let reason = "the gateway is temporarily unavailable; see its log";
        Refused::new(StatusCode::SERVICE_UNAVAILABLE, RefusalCode::Unavailable, reason)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, Json(self.1)).into_response()
    }
}

/// Passes requests that present the required credential.
pub(crate) async fn check(
    State(gateway): State<GatewayState>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refused> {
    let matched = request.extensions().get::<MatchedPath>();
    let path = matched.map(MatchedPath::as_str).unwrap_or_default();
    let method = request.method().as_str();
    let found = ROUTES.iter().find(|(verb, route, _)| *verb == method && *route == path);
    let Some((_, _, required)) = found else {
        let reason = "unknown path";
        return Err(Refused::new(StatusCode::NOT_FOUND, RefusalCode::Unreadable, reason));
    };
    if !matches!(required, RequiredCredential::Nothing | RequiredCredential::Token) {
        let certificate = request.extensions().get::<PeerCertificate>();
        let identity = certificate
            .and_then(|certificate| CertificateIdentity::from_certificate(&certificate.0));
        match (*required, identity) {
            (RequiredCredential::Agent, Some(CertificateIdentity::Agent(id))) => {
                let agent = admitted_agent(&gateway, id).await?;
                request.extensions_mut().insert(AdmittedAgent(agent));
            }
            (RequiredCredential::Server, Some(CertificateIdentity::Server(id))) => {
                request.extensions_mut().insert(AdmittedServer(id));
            }
            _ => {
                let reason = "certificate of an enrolled agent required: request an invitation and join again";
                return Err(Refused::new(StatusCode::UNAUTHORIZED, RefusalCode::Revoked, reason));
            }
        }
    }
    // A joining machine is unauthenticated until its token is checked.
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let network = peer.map_or_else(String::new, |peer| network_of(&peer.ip().to_string()));
    let (charge, bounds) = match request.extensions().get::<AdmittedAgent>() {
        Some(agent) => {
            let owner = agent.0.uuid.uuid().to_string();
            (
                gateway.budgets.for_account(owner),
                Bounds { size: BODY_MAX, within: AUTHENTICATED_TIMEOUT },
            )
        }
        None => (gateway.budgets.for_network(network), ANONYMOUS_BOUNDS),
    };
    let request = request.map(|body| LimitedBody::wrap(body, Arc::clone(&charge), bounds));
    let response = next.run(request).await;
    drop(charge);
    Ok(response)
}

/// Reads the agent from the store on every request: a certificate proves an identity, the store has
/// the revocations.
async fn admitted_agent(gateway: &GatewayState, id: Uuid) -> Result<RemoteAgentRecord, Refused> {
    let found =
        gateway.services.with_store(move |store| match store.remote_agents().get(id.into()) {
            Err(StoreError::NotFound { .. }) => Ok(None),
            found => found.map(Some),
        });
    let found = found.await.map_err(|error| Refused::unavailable(&error))?;
    found.filter(|agent| agent.revoked.is_none()).ok_or_else(revoked)
}

pub(crate) fn revoked() -> Refused {
    let reason = "this agent was revoked; request an invitation and join again";
    Refused::new(StatusCode::FORBIDDEN, RefusalCode::Revoked, reason)
}
