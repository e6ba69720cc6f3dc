//! Enrolment of agents: joining, and renewal of certificates.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::future::BoxFuture;
use orrery_agent::protocol::{JoinRequest, JoinResponse, RefusalCode, RenewRequest, RenewResponse};
use orrery_model::EnvironmentId;
use orrery_store::{EnvironmentRecord, JoinOutcome, JoiningAgent, RemoteAgentRecord};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use orrery_roles::token_hash::hash_of;

use super::GatewayState;
use super::admission::{AdmittedAgent, Refused};
use super::certificate_authority::{
    AGENT_VALIDITY_SECONDS, AuthorityError, CertificateAuthority, SigningRequest,
};
use super::truncate::truncate_machine;

fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|error| {
        // The parser's message could quote the token.
        let (line, column) = (error.line(), error.column());
        let reason = format!("invalid JSON at line {line}, column {column}");
        Refused::new(StatusCode::BAD_REQUEST, RefusalCode::Unreadable, reason)
    })
}

fn unusable(error: &AuthorityError) -> Refused {
    match error {
        AuthorityError::SigningRequest(_) => {
            Refused::new(StatusCode::BAD_REQUEST, RefusalCode::Unreadable, error.to_string())
        }
        other => Refused::unavailable(other),
    }
}

async fn authority(gateway: &GatewayState) -> Result<Arc<CertificateAuthority>, Refused> {
    gateway.tls.authority().await.ok_or_else(|| {
        let reason = "no invitation was issued yet";
        Refused::new(StatusCode::SERVICE_UNAVAILABLE, RefusalCode::Unavailable, reason)
    })
}

/// Returns the refusal of a failed join.
fn refusal(join: &JoinOutcome) -> Option<Refused> {
    let token = |status, reason: String| Some(Refused::new(status, RefusalCode::Token, reason));
    let ask = "request another invitation";
    match join {
        JoinOutcome::Joined(_) => None,
        JoinOutcome::Unknown => token(StatusCode::UNAUTHORIZED, format!("unknown token; {ask}")),
        JoinOutcome::Expired => {
            token(StatusCode::UNAUTHORIZED, format!("the invitation has expired; {ask}"))
        }
        JoinOutcome::Used => token(
            StatusCode::UNAUTHORIZED,
            format!(
                "another machine, or another state directory, has joined with this token; {ask}"
            ),
        ),
        JoinOutcome::Revoked => token(
            StatusCode::UNAUTHORIZED,
            format!("the agent that joined with this token was revoked; {ask}"),
        ),
        JoinOutcome::NotInvited(name) => {
            token(StatusCode::CONFLICT, format!("the invitation is not for the agent {name:?}"))
        }
        JoinOutcome::Taken { name, by } => token(
            StatusCode::CONFLICT,
            format!("{name:?} is served by the remote agent {by}; revoke it first"),
        ),
    }
}

/// Audit details of an enrolment. Passed in the response extensions.
#[derive(Clone, Debug, Default)]
pub struct EnrolmentNote {
    pub actor: Option<String>,
    pub subject: Option<String>,
    /// Id of the environment that the agent belongs to.
    pub environment: Option<EnvironmentId>,
    pub detail: Option<String>,
}

/// Middleware that records every attempt to enrol in the audit log of the installation.
pub type EnrolmentAudit = Arc<dyn Fn(Request, Next) -> BoxFuture<'static, Response> + Send + Sync>;

type Enrolled = (RemoteAgentRecord, EnvironmentRecord);

/// Enrols a machine that presents the token of an invitation. The audit log records every attempt.
pub(super) async fn join(State(gateway): State<GatewayState>, body: Bytes) -> Response {
    let (mut response, note) = match try_join(&gateway, &body).await {
        Ok(((agent, environment), answer)) => {
            let note = EnrolmentNote {
                actor: Some(format!("agent:{}", agent.uuid)),
                subject: Some(agent.names.join(",")),
                environment: Some(environment.uuid),
                detail: None,
            };
            ((StatusCode::OK, Json(answer)).into_response(), note)
        }
        Err(refused) => {
            let detail = Some(refused.1.reason.clone());
            (refused.into_response(), EnrolmentNote { detail, ..EnrolmentNote::default() })
        }
    };
    response.extensions_mut().insert(note);
    response
}

async fn try_join(
    gateway: &GatewayState,
    body: &Bytes,
) -> Result<(Enrolled, JoinResponse), Refused> {
    let JoinRequest { token, csr, names, machine } = read(body)?;
    let authority = authority(gateway).await?;
    let request = SigningRequest::parse(&csr).map_err(|error| unusable(&error))?;
    let facts = serde_json::to_value(truncate_machine(machine))
        .map_err(|error| Refused::unavailable(&error))?;
    let joining = JoiningAgent {
        uuid: Uuid::new_v4().into(),
        key: request.key(),
        names: names.unwrap_or_default(),
        facts,
        version: String::new(),
    };
    let (hash, now) = (hash_of(token.0.expose().trim()), gateway.services.now());
    let done = gateway.services.change(move |store| {
        let joined = store.invitations().join(&hash, &joining, now)?;
        let environment = match &joined {
            JoinOutcome::Joined(agent) => Some(store.environments().by_key(agent.environment)?),
            _ => None,
        };
        Ok((joined, environment))
    });
    let (joined, environment) = done.await.map_err(|error| Refused::unavailable(&error))?;
    if let Some(refused) = refusal(&joined) {
        return Err(refused);
    }
    let (JoinOutcome::Joined(agent), Some(environment)) = (joined, environment) else {
        let reason = "the agent was removed";
        return Err(Refused::new(StatusCode::CONFLICT, RefusalCode::Token, reason));
    };
    let id = agent.uuid.uuid();
    let certificate =
        authority.certify_agent(&request, id, now).map_err(|error| unusable(&error))?;
    tracing::info!(agent = %id, names = ?agent.names, environment = environment.name, "remote agent joined");
    let answer = JoinResponse {
        agent: id,
        environment: environment.uuid.uuid(),
        names: agent.names.clone(),
        certificate,
        ca: authority.pem().to_owned(),
        valid_seconds: AGENT_VALIDITY_SECONDS,
    };
    Ok(((*agent, environment), answer))
}

/// Renews the certificate of an agent.
pub(super) async fn renew(
    State(gateway): State<GatewayState>,
    Extension(AdmittedAgent(agent)): Extension<AdmittedAgent>,
    body: Bytes,
) -> Response {
    let mut response = match try_renew(&gateway, &agent, &body).await {
        Ok(answer) => (StatusCode::OK, Json(answer)).into_response(),
        Err(refused) => refused.into_response(),
    };
    let actor = Some(format!("agent:{}", agent.uuid));
    response.extensions_mut().insert(EnrolmentNote { actor, ..EnrolmentNote::default() });
    response
}

async fn try_renew(
    gateway: &GatewayState,
    agent: &RemoteAgentRecord,
    body: &Bytes,
) -> Result<RenewResponse, Refused> {
    let RenewRequest { csr } = read(body)?;
    let request = SigningRequest::parse(&csr).map_err(|error| unusable(&error))?;
    if request.key() != agent.key {
        let reason = "a renewal must use the key with which the agent joined; to use another key, join again";
        return Err(Refused::new(StatusCode::BAD_REQUEST, RefusalCode::Unreadable, reason));
    }
    let authority = authority(gateway).await?;
    let id = agent.uuid.uuid();
    let certificate = authority
        .certify_agent(&request, id, gateway.services.now())
        .map_err(|error| unusable(&error))?;
    Ok(RenewResponse {
        certificate,
        ca: authority.pem().to_owned(),
        valid_seconds: AGENT_VALIDITY_SECONDS,
    })
}
