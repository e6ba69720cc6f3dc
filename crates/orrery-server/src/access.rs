//! Access control: one table with the right that each route needs, checked before any handler runs.
//!
//! A route that is missing from the table is not served.

mod table;

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts as _, MatchedPath, Request, State};
use axum::http::Method;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use orrery_store::EnvironmentRecord;
use rustc_hash::FxHashMap;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use uuid::Uuid;

use crate::app::App;
use crate::auth::{self, Caller, RequestAudit, network_of};
use crate::body::{ANONYMOUS_BOUNDS, AUTHENTICATED_TIMEOUT, Bounds, LimitedBody};
use crate::error::ServerError;
use crate::inmanta_api;
use crate::listener::ConnectionSlot;
use crate::server::AnonymousResponse;

use table::ROUTES;

/// Rights, weakest first. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Right {
    /// Read.
    View,
    /// Deploy, repair, pause, halt.
    Operate,
    /// Change the desired state: versions, compiles, parameters, settings.
    Develop,
    /// Create and delete environments, assign roles.
    Administer,
}

impl Right {
    pub(crate) const ALL: [Right; 4] =
        [Right::View, Right::Operate, Right::Develop, Right::Administer];

    /// Returns the role that grants this right and the weaker ones.
    pub(crate) fn role(self) -> &'static str {
        match self {
            Right::View => "viewer",
            Right::Operate => "operator",
            Right::Develop => "developer",
            Right::Administer => "admin",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Right::View => "view",
            Right::Operate => "operate",
            Right::Develop => "develop",
            Right::Administer => "administer",
        }
    }
}

/// Requirement of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// No authentication.
    Public,
    /// Authentication only; the handler filters by rights.
    Authenticated,
    /// The right in any scope; the handler filters by rights.
    Somewhere(Right),
    /// The right on the whole server.
    Server(Right),
    /// The right in the project that the path names.
    Project(Right),
    /// The right in the environment that the path names.
    Environment(Right),
    /// The right in the environment that the header of the Inmanta-compatible API names.
    Header(Right),
}

/// Returns all routes of the server.
pub(crate) fn table() -> impl Iterator<Item = &'static (&'static str, &'static str, Access)> {
    ROUTES.iter().chain(inmanta_api::ROUTES)
}

/// Access requirement of a route, for documentation and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteAccess {
    pub method: &'static str,
    pub path: &'static str,
    /// `everybody`, `known`, `somewhere`, or the scope of the required role: `server`, `project`,
    /// `environment`; `header` for the environment that the header of the Inmanta-compatible API
    /// names.
    pub place: &'static str,
    /// The weakest sufficient role.
    pub role: Option<&'static str>,
}

/// Returns the access requirements of all routes.
pub fn routes() -> impl Iterator<Item = RouteAccess> {
    table().map(|&(method, path, access)| {
        let (place, right) = match access {
            Access::Public => ("everybody", None),
            Access::Authenticated => ("known", None),
            Access::Somewhere(right) => ("somewhere", Some(right)),
            Access::Server(right) => ("server", Some(right)),
            Access::Project(right) => ("project", Some(right)),
            Access::Environment(right) => ("environment", Some(right)),
            Access::Header(right) => ("header", Some(right)),
        };
        RouteAccess { method, path, place, role: right.map(Right::role) }
    })
}

/// Returns the requirement of a route; `None` for an unknown one.
pub(crate) fn required_access(method: &Method, path: &str) -> Option<Access> {
    static BY_ROUTE: LazyLock<FxHashMap<(&str, &str), Access>> = LazyLock::new(|| {
        table().map(|(method, path, access)| ((*method, *path), *access)).collect()
    });
    let found = BY_ROUTE.get(&(method.as_str(), path));
    // HEAD needs the right of GET.
    let as_read = || (method == Method::HEAD).then(|| BY_ROUTE.get(&("GET", path))).flatten();
    found.or_else(as_read).copied()
}

/// True if a caller may POST to a path in an environment. Responses offer only such actions.
pub(crate) fn may_post(caller: &Caller, environment: &EnvironmentRecord, path: &str) -> bool {
    // Indexed by the last segment of the path, which is mostly the name of the action.
    static POSTS: LazyLock<FxHashMap<&str, Vec<(&str, Access)>>> = LazyLock::new(|| {
        let mut posts: FxHashMap<&str, Vec<(&str, Access)>> = FxHashMap::default();
        for (_, route, access) in table().filter(|(method, ..)| *method == "POST") {
            posts.entry(last_part(route)).or_default().push((*route, *access));
        }
        posts
    });
    let mut named = [last_part(path), ANY].into_iter().filter_map(|part| POSTS.get(part)).flatten();
    let Some((route, access)) = named.find(|(route, _)| matches_route(route, path)) else {
        return false;
    };
    caller.need_route(&Method::POST, route).is_ok()
        && match *access {
            Access::Public | Access::Authenticated => true,
            Access::Somewhere(right) => caller.may_somewhere(right),
            Access::Server(right) => caller.may_everywhere(right),
            Access::Project(right) => {
                caller.may_in_project(right, &Uuid::from_bytes(environment.project))
            }
            Access::Environment(right) | Access::Header(right) => {
                caller.may_in_environment(right, environment)
            }
        }
}

/// Index key for a variable last segment.
const ANY: &str = "{}";

fn last_part(path: &str) -> &str {
    let part = path.rsplit('/').next().unwrap_or_default();
    if part.starts_with('{') { ANY } else { part }
}

/// True if a path matches a route.
fn matches_route(route: &str, path: &str) -> bool {
    let mut parts = path.split('/');
    let fits = |own: &str, given: Option<&str>| {
        given.is_some_and(|given| own.starts_with('{') || own == given)
    };
    route.split('/').all(|own| fits(own, parts.next())) && parts.next().is_none()
}

/// Returns the group of a route, as in its path: `versions`, `users`.
pub(crate) fn group_of(route: &str) -> &str {
    let mut parts = route.split('/').filter(|part| !part.is_empty());
    let first = parts.by_ref().find(|part| *part != "api" && !is_api_version(part));
    let first = first.unwrap_or_default();
    // Objects of a project or an environment have their own groups.
    let inner = (first == "projects" || first == "environments").then(|| parts.nth(1)).flatten();
    inner.unwrap_or(first)
}

fn is_api_version(part: &str) -> bool {
    part.strip_prefix('v').is_some_and(|number| number.parse::<u8>().is_ok())
}

/// Public: the handler checks the signature.
const WEBHOOK: &str = "/api/v1/webhooks/{environment}";

/// Queries that are too long for a URL. They change nothing and are not audited.
const QUERY_ROUTES: [&str; 3] = [
    "/api/v1/environments/{environment}/placements",
    "/api/v1/cluster-documents/solve",
    "/api/v1/projects/{project}/cluster-documents/solve",
];

/// Maximum number of bytes to drain from a refused request.
const DRAINED_MAX: usize = 64 * 1024;
const DRAINED_WITHIN: Duration = Duration::from_secs(1);

/// Larger than for other anonymous requests: a push lists all its commits.
const WEBHOOK_MAX: usize = 1024 * 1024;

/// Client address of the request, for handlers.
#[derive(Clone, Debug)]
pub(crate) struct ClientAddress(pub(crate) String);

/// Cancelled when the client disconnects: work that has not begun is skipped.
#[derive(Clone, Debug)]
pub(crate) struct ClientGone(pub(crate) CancellationToken);

/// Admits a request, passes the caller to the handler, and writes the audit log.
pub(crate) async fn check(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Result<Response, ServerError> {
    let (mut parts, body) = request.into_parts();
    let matched = MatchedPath::from_request_parts(&mut parts, &app).await;
    let Ok(matched) = matched else { return Err(ServerError::NoRoute) };
    let route = matched.as_str();
    let Some(access) = required_access(&parts.method, route) else {
        return Err(ServerError::MethodNotAllowed);
    };
    let changes = match parts.method.is_safe() {
        true => parts.method == Method::GET && route == inmanta_api::CHANGING_GET,
        false => !QUERY_ROUTES.contains(&route),
    };
    if !changes {
        if let Err(error) = admit(&app, &mut parts, route, access, None).await {
            drain_body(body).await;
            return Err(error);
        }
        // A query releases its body memory with the response.
        let charge = parts.extensions.get::<Caller>().filter(|_| !parts.method.is_safe());
        let charge = charge.map(|caller| app.budgets().for_account(owner_of(caller)));
        let body = match &charge {
            Some(charge) => {
                let bounds =
                    Bounds { size: crate::server::BODY_MAX, within: AUTHENTICATED_TIMEOUT };
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
    let mut audit = RequestAudit::begin(&app, &parts, route);
    if access == Access::Public {
        audit = audit.for_public_route();
    }
    parts.extensions.insert(ClientAddress(audit.address().to_owned()));
    let gone = CancellationToken::new();
    parts.extensions.insert(ClientGone(gone.clone()));
    let _gone_when_dropped = gone.drop_guard();
    if let Err(error) = admit(&app, &mut parts, route, access, Some(&mut audit)).await {
        let mut response = error.into_response();
        audit.finish(&app, &mut response).await;
        drain_body(body).await;
        return Ok(response);
    }
    let caller = parts.extensions.get::<Caller>();
    let (charge, bounds) = match caller.filter(|_| access != Access::Public) {
        Some(caller) => {
            let bounds = Bounds { size: crate::server::BODY_MAX, within: AUTHENTICATED_TIMEOUT };
            (app.budgets().for_account(owner_of(caller)), bounds)
        }
        None => {
            let size = if route == WEBHOOK { WEBHOOK_MAX } else { ANONYMOUS_BOUNDS.size };
            let charge = app.budgets().for_network(network_of(audit.address()));
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
        app.auth().cache.invalidate();
        audit.finish(&app, &mut response).await;
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
pub(crate) async fn drain_body(body: Body) {
    let rest = http_body_util::Limited::new(body, DRAINED_MAX);
    // A slow or large rest closes the connection.
    let _ = tokio::time::timeout(DRAINED_WITHIN, rest.collect()).await;
}

/// Authenticates the caller and checks the required right.
async fn admit(
    app: &App,
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
    let caller = auth::authenticate(app, parts, only_reads).await?;
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
        Access::Environment(right) | Access::Header(right) => {
            let id = match access {
                Access::Header(_) => environment_from_header(parts)?,
                _ => named("{environment}")?,
            };
            let found = match find_environment(app, id, only_reads).await {
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

/// Finds an environment. Requests that only read may use the cache.
async fn find_environment(
    app: &App,
    id: Uuid,
    only_reads: bool,
) -> Result<EnvironmentRecord, ServerError> {
    let cache = &app.auth().cache;
    if only_reads && let Some(found) = cache.environment(id.as_bytes()) {
        return Ok(found);
    }
    let asked = cache.stamp();
    let found = app.with_store(move |store| store.records().environment(id.as_bytes())).await?;
    cache.insert_environment(found.clone(), asked);
    Ok(found)
}

/// Reads the environment id from the header of the Inmanta-compatible API.
fn environment_from_header(parts: &Parts) -> Result<Uuid, ServerError> {
    let given = parts.headers.get(inmanta_api::ENVIRONMENT).and_then(|value| value.to_str().ok());
    let text =
        given.ok_or_else(|| ServerError::BadRequest("Field 'tid' is required.".to_owned()))?;
    let wrong = |_| ServerError::BadRequest(format!("Field 'tid' must be a valid UUID: {text:?}"));
    text.trim().parse().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_named_by_the_noun() {
        assert_eq!(group_of("/api/v1/projects"), "projects");
        assert_eq!(group_of("/api/v1/projects/{project}"), "projects");
        assert_eq!(group_of("/api/v1/environments/{environment}/versions/{version}"), "versions");
        assert_eq!(group_of("/api/v1/users/{user}/password"), "users");
        assert_eq!(group_of("/api/v2/resource"), "resource");
        assert_eq!(group_of("/health"), "health");
    }

    #[test]
    fn paths_belong_to_routes() {
        let route = "/api/v1/environments/{environment}/versions/{number}/release";
        assert!(matches_route(route, "/api/v1/environments/9f2c/versions/5/release"));
        for other in [
            "/api/v1/environments/9f2c/versions/5",
            "/api/v1/environments/9f2c/versions/5/release/x",
            "/",
        ] {
            assert!(!matches_route(route, other), "{other}");
        }
    }

    #[test]
    fn no_route_is_listed_twice() {
        let mut seen = std::collections::BTreeSet::new();
        for (method, path, _) in table() {
            assert!(seen.insert((method, path)), "{method} {path}");
        }
    }
}
