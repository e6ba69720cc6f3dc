//! Who may do what at a gateway: one table, checked before any handler runs.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use orrery_agent::protocol::{JOIN_PATH, RENEW_PATH, Refusal, RefusalCode, SESSION_PATH};
use orrery_store::{RemoteAgentRecord, StoreError};
use uuid::Uuid;

use crate::auth::network_of;
use crate::body::{Bounds, Guarded, KNOWN_WITHIN, STRANGER};
use crate::connection::PeerCertificate;

use super::authority::Identity;
use super::{BODY_MAX, GatewayState};

/// Where other processes of the installation dial in.
pub(crate) const PEER_PATH: &str = "/peer/v1";

/// What a route asks of who calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// A token in the body, which the handler checks.
    Token,
    /// A certificate of a remote agent that is not revoked.
    Agent,
    /// A certificate of another process of the installation.
    Server,
}

const ROUTES: [(&str, &str, Need); 4] = [
    ("POST", JOIN_PATH, Need::Token),
    ("POST", RENEW_PATH, Need::Agent),
    ("GET", SESSION_PATH, Need::Agent),
    ("GET", PEER_PATH, Need::Server),
];

/// A remote agent that was admitted.
#[derive(Clone, Debug)]
pub(crate) struct AdmittedAgent(pub(crate) RemoteAgentRecord);

/// Another process that was admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmittedServer(pub(crate) Uuid);

/// A refusal with its status.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) StatusCode, pub(crate) Refusal);

impl Refused {
    pub(crate) fn new(status: StatusCode, code: RefusalCode, reason: impl Into<String>) -> Self {
        Refused(status, Refusal { code, reason: reason.into() })
    }

    /// The gateway cannot answer now; the log says why.
    pub(crate) fn unavailable(error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(error, "an agent cannot be served now");
        let reason = "the gateway cannot answer now; its log tells more";
        Refused::new(StatusCode::SERVICE_UNAVAILABLE, RefusalCode::Unavailable, reason)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, Json(self.1)).into_response()
    }
}

/// Lets those through who show what the route needs.
pub(crate) async fn check(
    State(gateway): State<GatewayState>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refused> {
    let matched = request.extensions().get::<MatchedPath>();
    let path = matched.map(MatchedPath::as_str).unwrap_or_default();
    let method = request.method().as_str();
    let found = ROUTES.iter().find(|(verb, route, _)| *verb == method && *route == path);
    let Some((_, _, need)) = found else {
        let reason = "there is nothing for agents at this path";
        return Err(Refused::new(StatusCode::NOT_FOUND, RefusalCode::Unreadable, reason));
    };
    if *need != Need::Token {
        let shown = request.extensions().get::<PeerCertificate>();
        let identity = shown.and_then(|shown| Identity::of(&shown.0));
        match (*need, identity) {
            (Need::Agent, Some(Identity::Agent(id))) => {
                let agent = admitted_agent(&gateway, id).await?;
                request.extensions_mut().insert(AdmittedAgent(agent));
            }
            (Need::Server, Some(Identity::Server(id))) => {
                request.extensions_mut().insert(AdmittedServer(id));
            }
            _ => {
                let reason = "this needs a certificate of an enrolled agent: ask for an invitation, and join again";
                return Err(Refused::new(StatusCode::UNAUTHORIZED, RefusalCode::Revoked, reason));
            }
        }
    }
    // Who joins is a stranger until the token was checked.
    let app = &gateway.app;
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let network = peer.map_or_else(String::new, |peer| network_of(&peer.ip().to_string()));
    let (charge, bounds) = match request.extensions().get::<AdmittedAgent>() {
        Some(agent) => {
            let owner = Uuid::from_bytes(agent.0.uuid).to_string();
            (app.budgets().known(owner), Bounds { size: BODY_MAX, within: KNOWN_WITHIN })
        }
        None => (app.budgets().stranger(network), STRANGER),
    };
    let request = request.map(|body| Guarded::wrap(body, Arc::clone(&charge), bounds));
    let response = next.run(request).await;
    drop(charge);
    Ok(response)
}

/// Every time: a certificate says who somebody was, the store who may still come.
async fn admitted_agent(gateway: &GatewayState, id: Uuid) -> Result<RemoteAgentRecord, Refused> {
    let found =
        gateway.app.with_store(move |store| match store.records().remote_agent(id.as_bytes()) {
            Err(StoreError::NotFound { .. }) => Ok(None),
            found => found.map(Some),
        });
    let found = found.await.map_err(|error| Refused::unavailable(&error))?;
    found.filter(|agent| agent.revoked.is_none()).ok_or_else(revoked)
}

pub(crate) fn revoked() -> Refused {
    let reason = "this agent was revoked; ask for an invitation, and join again";
    Refused::new(StatusCode::FORBIDDEN, RefusalCode::Revoked, reason)
}
