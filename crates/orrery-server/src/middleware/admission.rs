//! Admission of requests: authentication, rights, body limits and the audit log, before any handler
//! runs.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts as _, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use orrery_roles::network::network_of;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use uuid::Uuid;

use crate::access::{Access, AccessTable, Right, WEBHOOK};
use crate::auth::{self, Auth, Caller, RequestAudit};
use crate::body::{ANONYMOUS_BOUNDS, AUTHENTICATED_TIMEOUT, BODY_MAX, Bounds, LimitedBody};
use crate::error::ServerError;
use crate::extract::{ClientAddress, ClientGone};
use crate::listener::ConnectionSlot;
use crate::state::ServerState;

use super::AnonymousResponse;

/// What admission needs: the server, and the rules of its routes.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    pub(crate) state: ServerState,
    pub(crate) table: Arc<AccessTable>,
}

/// Maximum number of bytes to drain from a refused request.
const DRAINED_MAX: usize = 64 * 1024;
const DRAINED_WITHIN: Duration = Duration::from_secs(1);

/// Larger than for other anonymous requests: a push lists all its commits.
const WEBHOOK_MAX: usize = 1024 * 1024;

/// Admits a request, passes the caller to the handler, and writes the audit log.
pub(crate) async fn admit_request(
    State(Admission { state, table }): State<Admission>,
    request: Request,
    next: Next,
) -> Result<Response, ServerError> {
    let (mut parts, body) = request.into_parts();
    let matched = MatchedPath::from_request_parts(&mut parts, &state).await;
    let Ok(matched) = matched else { return Err(ServerError::NoRoute) };
    let route = matched.as_str();
    let Some(access) = table.required_access(&parts.method, route) else {
        return Err(ServerError::MethodNotAllowed);
    };
    if let Err(error) = auth::check_host(state.auth().settings(), &parts, route, access) {
        tracing::info!(%error, "request with a foreign host");
        drain_body(body).await;
        return Err(error);
    }
    let changes = table.changes(&parts.method, route);
    parts.extensions.insert(Arc::clone(&table));
    if !changes {
        if let Err(error) = admit(state.auth(), &table, &mut parts, route, access, None).await {
            drain_body(body).await;
            return Err(error);
        }
        // A query releases its body memory with the response.
        let charge = parts.extensions.get::<Caller>().filter(|_| !parts.method.is_safe());
        let charge = charge.map(|caller| state.budgets().for_account(owner_of(caller)));
        let body = match &charge {
            Some(charge) => {
                let bounds = Bounds { size: BODY_MAX, within: AUTHENTICATED_TIMEOUT };
                LimitedBody::wrap(body, Arc::clone(charge), bounds)
            }
            None => body,
        };
        let mut response = next.run(Request::from_parts(parts, body)).await;
        drop(charge);
        if access == Access::Public {
            response.extensions_mut().insert(AnonymousResponse);
        }
        return Ok(response);
    }
    let mut audit = RequestAudit::begin(state.auth(), &parts, route);
    if access == Access::Public {
        audit = audit.for_public_route();
    }
    parts.extensions.insert(ClientAddress(audit.address().to_owned()));
    let gone = CancellationToken::new();
    parts.extensions.insert(ClientGone(gone.clone()));
    let _gone_when_dropped = gone.drop_guard();
    if let Err(error) =
        admit(state.auth(), &table, &mut parts, route, access, Some(&mut audit)).await
    {
        let mut response = error.into_response();
        audit.finish(state.auth(), &mut response).await;
        drain_body(body).await;
        return Ok(response);
    }
    let caller = parts.extensions.get::<Caller>();
    let (charge, bounds) = match caller.filter(|_| access != Access::Public) {
        Some(caller) => {
            let bounds = Bounds { size: BODY_MAX, within: AUTHENTICATED_TIMEOUT };
            (state.budgets().for_account(owner_of(caller)), bounds)
        }
        None => {
            let size = if route == WEBHOOK { WEBHOOK_MAX } else { ANONYMOUS_BOUNDS.size };
            let charge = state.budgets().for_network(network_of(audit.address()));
            (charge, Bounds { size, ..ANONYMOUS_BOUNDS })
        }
    };
    let body = LimitedBody::wrap(body, Arc::clone(&charge), bounds);
    // In a separate task: a disconnecting client must not skip the audit entry.
    let request = Request::from_parts(parts, body);
    let work = async move {
        let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
        let failed = || ServerError::Internal("a handler panicked".to_owned()).into_response();
        let mut response = answered.unwrap_or_else(|_| failed());
        state.auth().cache.invalidate();
        audit.finish(state.auth(), &mut response).await;
        drop(charge);
        response
    };
    tokio::spawn(work.in_current_span()).await.map_err(|_| ServerError::Stopping)
}

/// Returns the account that body memory is charged to.
fn owner_of(caller: &Caller) -> String {
    caller.account.map_or_else(|| caller.name.clone(), |id| id.to_string())
}

/// Drains the rest of a small refused request, so that the connection can be reused: a client may
/// pipeline the next request before it reads the refusal.
pub(super) async fn drain_body(body: Body) {
    let rest = http_body_util::Limited::new(body, DRAINED_MAX);
    // A slow or large rest closes the connection.
    let _ = tokio::time::timeout(DRAINED_WITHIN, rest.collect()).await;
}

/// Authenticates the caller and checks the required right.
async fn admit(
    auth: &Auth,
    table: &AccessTable,
    parts: &mut Parts,
    route: &str,
    access: Access,
    mut audit: Option<&mut RequestAudit>,
) -> Result<(), ServerError> {
    if access == Access::Public {
        parts.extensions.insert(Caller::anonymous());
        return Ok(());
    }
    // Only changing requests have an audit record.
    let only_reads = audit.is_none();
    let caller = auth::authenticate(auth, parts, only_reads).await?;
    if let Some(audit) = audit.as_deref_mut() {
        audit.set_actor(&caller.name);
    }
    caller.need_route(&parts.method, route)?;
    let named = |name: &str| {
        let at = route.split('/').position(|part| part == name);
        let text = at.and_then(|at| parts.uri.path().split('/').nth(at)).unwrap_or_default();
        text.parse::<Uuid>().map_err(|_| ServerError::BadRequest(format!("{text:?} is not an id")))
    };
    match access {
        Access::Public | Access::Authenticated => {}
        Access::Somewhere(right) => caller.need_somewhere(right)?,
        Access::Server(right) => caller.need_everywhere(right)?,
        Access::Project(right) => caller.need_in_project(right, &named("{project}")?)?,
        Access::Cluster(right) => {
            let at = route.split('/').position(|part| part == "{cluster}");
            let id = at.and_then(|at| parts.uri.path().split('/').nth(at)).unwrap_or_default();
            let found = match auth.find_cluster(id).await {
                Err(_) if !caller.may_everywhere(Right::View) => {
                    return Err(caller.forbidden(right, "in the project of this cluster"));
                }
                found => found?,
            };
            if let Some(audit) = audit {
                audit.set_environment(found.environment_id);
            }
            caller.need_in_project(right, &found.project.uuid())?;
        }
        Access::Environment(right) | Access::Header(right) => {
            let id = match access {
                Access::Header(_) => environment_from_header(table, route, parts)?,
                _ => named("{environment}")?,
            };
            let found = match auth.find_environment(id, only_reads).await {
                // A caller without rights elsewhere must not learn which objects exist.
                Err(_) if !caller.may_everywhere(Right::View) => {
                    return Err(caller.forbidden(right, "in this environment"));
                }
                found => found?,
            };
            if let Some(audit) = audit {
                audit.set_environment(found.uuid);
            }
            caller.need_in_environment(right, &found)?;
            parts.extensions.insert(found);
        }
    }
    if let Some(slot) = parts.extensions.get::<Arc<ConnectionSlot>>() {
        slot.mark_authenticated();
    }
    parts.extensions.insert(caller);
    Ok(())
}

/// Reads the environment id from the header of the API that a route belongs to.
fn environment_from_header(
    table: &AccessTable,
    route: &str,
    parts: &Parts,
) -> Result<Uuid, ServerError> {
    let header = table.environment_header(route);
    let header = header.ok_or_else(|| ServerError::Internal("no environment header".to_owned()))?;
    let given = parts.headers.get(header.name).and_then(|value| value.to_str().ok());
    let field = header.field;
    let required = || ServerError::BadRequest(format!("Field '{field}' is required."));
    let text = given.ok_or_else(required)?;
    let wrong =
        |_| ServerError::BadRequest(format!("Field '{field}' must be a valid UUID: {text:?}"));
    text.trim().parse().map_err(wrong)
}
