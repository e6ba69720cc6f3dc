//! Joining and renewing: how agents come to their certificates.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use orrery_agent::protocol::{
    JOIN_PATH, JoinAnswer, JoinRequest, RENEW_PATH, RefusalCode, RenewAnswer, RenewRequest,
};
use orrery_store::{EnvironmentRecord, Join, Joining, RemoteAgentRecord, uuid_text};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::auth::{AuditNote, Trail, hash_of};

use super::GatewayState;
use super::admission::{AdmittedAgent, Refused};
use super::authority::{AGENT_LASTS, Authority, AuthorityError, Request};
use super::clipping::clipped;

fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|error| {
        // Its own words would quote what was sent, which may be a token.
        let (line, column) = (error.line(), error.column());
        let reason = format!(
            "the request is not understood: it is no such JSON at line {line}, column {column}"
        );
        Refused::new(StatusCode::BAD_REQUEST, RefusalCode::Unreadable, reason)
    })
}

fn unusable(error: &AuthorityError) -> Refused {
    match error {
        AuthorityError::Request(_) => {
            Refused::new(StatusCode::BAD_REQUEST, RefusalCode::Unreadable, error.to_string())
        }
        other => Refused::unavailable(other),
    }
}

async fn authority(gateway: &GatewayState) -> Result<std::sync::Arc<Authority>, Refused> {
    gateway.tls.authority().await.ok_or_else(|| {
        let reason = "nobody was invited yet";
        Refused::new(StatusCode::SERVICE_UNAVAILABLE, RefusalCode::Unavailable, reason)
    })
}

/// Why a token does not help.
fn refusal(join: &Join) -> Option<Refused> {
    let token = |status, reason: String| Some(Refused::new(status, RefusalCode::Token, reason));
    let ask = "ask for another invitation";
    match join {
        Join::Joined(_) => None,
        Join::Unknown => {
            token(StatusCode::UNAUTHORIZED, format!("nobody was invited with this token; {ask}"))
        }
        Join::Expired => {
            token(StatusCode::UNAUTHORIZED, format!("the invitation has expired; {ask}"))
        }
        Join::Used => token(
            StatusCode::UNAUTHORIZED,
            format!(
                "another machine, or another state directory, has joined with this token; {ask}"
            ),
        ),
        Join::Revoked => token(
            StatusCode::UNAUTHORIZED,
            format!("the agent that joined with this token was revoked; {ask}"),
        ),
        Join::NotInvited(name) => {
            token(StatusCode::CONFLICT, format!("the invitation is not for the agent {name:?}"))
        }
        Join::Taken { name, by } => token(
            StatusCode::CONFLICT,
            format!("{name:?} is served by the remote agent {}; revoke it first", uuid_text(by)),
        ),
    }
}

type Enrolled = (RemoteAgentRecord, EnvironmentRecord);

/// Makes an agent of who shows the token of an invitation. Whatever comes of it is in the audit log.
pub(super) async fn join(
    State(gateway): State<GatewayState>,
    parts: Parts,
    body: Bytes,
) -> Response {
    let mut trail = Trail::begin(&gateway.app, &parts, JOIN_PATH).of_strangers();
    let mut response = match try_join(&gateway, &body).await {
        Ok(((agent, environment), answer)) => {
            trail.within(environment.uuid);
            let mut response = (StatusCode::OK, Json(answer)).into_response();
            response.extensions_mut().insert(AuditNote {
                actor: Some(format!("agent:{}", uuid_text(&agent.uuid))),
                subject: Some(agent.names.join(",")),
                detail: None,
            });
            response
        }
        Err(refused) => {
            let detail = Some(refused.1.reason.clone());
            let mut response = refused.into_response();
            response.extensions_mut().insert(AuditNote { detail, ..AuditNote::default() });
            response
        }
    };
    trail.end(&gateway.app, &mut response).await;
    response
}

async fn try_join(gateway: &GatewayState, body: &Bytes) -> Result<(Enrolled, JoinAnswer), Refused> {
    let JoinRequest { token, csr, names, machine } = read(body)?;
    let authority = authority(gateway).await?;
    let request = Request::parse(&csr).map_err(|error| unusable(&error))?;
    let facts =
        serde_json::to_value(clipped(machine)).map_err(|error| Refused::unavailable(&error))?;
    let joining = Joining {
        uuid: Uuid::new_v4().into_bytes(),
        key: request.key(),
        names: names.unwrap_or_default(),
        facts,
        version: String::new(),
    };
    let (hash, now) = (hash_of(token.0.expose().trim()), gateway.app.now());
    let done = gateway.app.change(move |store| {
        let joined = store.records().join(&hash, &joining, now)?;
        let environment = match &joined {
            Join::Joined(agent) => Some(store.records().environment_of(agent.environment)?),
            _ => None,
        };
        Ok((joined, environment))
    });
    let (joined, environment) = done.await.map_err(|error| Refused::unavailable(&error))?;
    if let Some(refused) = refusal(&joined) {
        return Err(refused);
    }
    let (Join::Joined(agent), Some(environment)) = (joined, environment) else {
        let reason = "the agent is gone again";
        return Err(Refused::new(StatusCode::CONFLICT, RefusalCode::Token, reason));
    };
    let id = Uuid::from_bytes(agent.uuid);
    let certificate =
        authority.certify_agent(&request, id, now).map_err(|error| unusable(&error))?;
    tracing::info!(agent = %id, names = ?agent.names, environment = environment.name, "a remote agent has joined");
    let answer = JoinAnswer {
        agent: id,
        environment: Uuid::from_bytes(environment.uuid),
        names: agent.names.clone(),
        certificate,
        ca: authority.pem().to_owned(),
        valid_seconds: AGENT_LASTS,
    };
    Ok(((*agent, environment), answer))
}

/// Gives an agent its next certificate.
pub(super) async fn renew(
    State(gateway): State<GatewayState>,
    Extension(AdmittedAgent(agent)): Extension<AdmittedAgent>,
    parts: Parts,
    body: Bytes,
) -> Response {
    let mut trail = Trail::begin(&gateway.app, &parts, RENEW_PATH).of_strangers();
    trail.by(&format!("agent:{}", uuid_text(&agent.uuid)));
    let mut response = match try_renew(&gateway, &agent, &body).await {
        Ok(answer) => (StatusCode::OK, Json(answer)).into_response(),
        Err(refused) => refused.into_response(),
    };
    trail.end(&gateway.app, &mut response).await;
    response
}

async fn try_renew(
    gateway: &GatewayState,
    agent: &RemoteAgentRecord,
    body: &Bytes,
) -> Result<RenewAnswer, Refused> {
    let RenewRequest { csr } = read(body)?;
    let request = Request::parse(&csr).map_err(|error| unusable(&error))?;
    if request.key() != agent.key {
        let reason = "a certificate is renewed for the key with which the agent joined; join again for another one";
        return Err(Refused::new(StatusCode::BAD_REQUEST, RefusalCode::Unreadable, reason));
    }
    let authority = authority(gateway).await?;
    let id = Uuid::from_bytes(agent.uuid);
    let certificate = authority
        .certify_agent(&request, id, gateway.app.now())
        .map_err(|error| unusable(&error))?;
    Ok(RenewAnswer { certificate, ca: authority.pem().to_owned(), valid_seconds: AGENT_LASTS })
}
