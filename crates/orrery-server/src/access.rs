//! Which right each route needs: one table for all, looked up before any handler runs. A route that is not in it is not served.

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
use crate::auth::{self, Caller, Trail, network_of};
use crate::body::{Bounds, Guarded, KNOWN_WITHIN, STRANGER};
use crate::classic;
use crate::connection::Place;
use crate::problem::ServerError;
use crate::server::ToStranger;

use table::ROUTES;

/// What somebody may do, weakest first. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Right {
    /// Look.
    View,
    /// Deploy, repair, pause, halt.
    Operate,
    /// Change what is wanted: versions, compiles, parameters, settings.
    Develop,
    /// Make and delete environments, hand out rights.
    Administer,
}

impl Right {
    pub(crate) const ALL: [Right; 4] =
        [Right::View, Right::Operate, Right::Develop, Right::Administer];

    /// The role that gives this right and those before it.
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

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everybody, unknown or not.
    Public,
    /// Everybody who is known; the handler shows each only what they may see.
    Known,
    /// Who has the right in any place; the handler shows each only what they may see.
    Somewhere(Right),
    /// Who has the right everywhere.
    Server(Right),
    /// Who has the right in the project that the path names.
    Project(Right),
    /// Who has the right in the environment that the path names.
    Environment(Right),
    /// Who has the right in the environment that the header of the classic paths names.
    Header(Right),
}

/// Every route of the server.
pub(crate) fn table() -> impl Iterator<Item = &'static (&'static str, &'static str, Access)> {
    ROUTES.iter().chain(classic::ROUTES)
}

/// What one route needs, for documents and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteAccess {
    pub method: &'static str,
    pub path: &'static str,
    /// `everybody`, `known`, `somewhere`, or where the role is needed: `server`, `project`, `environment`; or `header` for the environment that
    /// the header of the classic paths names.
    pub place: &'static str,
    /// The weakest role that is enough.
    pub role: Option<&'static str>,
}

/// Every route of the server with what it needs.
pub fn routes() -> impl Iterator<Item = RouteAccess> {
    table().map(|&(method, path, access)| {
        let (place, right) = match access {
            Access::Public => ("everybody", None),
            Access::Known => ("known", None),
            Access::Somewhere(right) => ("somewhere", Some(right)),
            Access::Server(right) => ("server", Some(right)),
            Access::Project(right) => ("project", Some(right)),
            Access::Environment(right) => ("environment", Some(right)),
            Access::Header(right) => ("header", Some(right)),
        };
        RouteAccess { method, path, place, role: right.map(Right::role) }
    })
}

/// What a route needs; `None` if it is not known.
pub(crate) fn access_of(method: &Method, path: &str) -> Option<Access> {
    static BY_ROUTE: LazyLock<FxHashMap<(&str, &str), Access>> = LazyLock::new(|| {
        table().map(|(method, path, access)| ((*method, *path), *access)).collect()
    });
    let found = BY_ROUTE.get(&(method.as_str(), path));
    // What can be read can be looked at without its content.
    let as_read = || (method == Method::HEAD).then(|| BY_ROUTE.get(&("GET", path))).flatten();
    found.or_else(as_read).copied()
}

/// Whether a caller would be let through to POST to a path in an environment: what is not is not offered.
pub(crate) fn may_post(caller: &Caller, environment: &EnvironmentRecord, path: &str) -> bool {
    // By the last part of the path, which most often is what an action is called.
    static POSTS: LazyLock<FxHashMap<&str, Vec<(&str, Access)>>> = LazyLock::new(|| {
        let mut posts: FxHashMap<&str, Vec<(&str, Access)>> = FxHashMap::default();
        for (_, route, access) in table().filter(|(method, ..)| *method == "POST") {
            posts.entry(last_part(route)).or_default().push((*route, *access));
        }
        posts
    });
    let mut named = [last_part(path), ANY].into_iter().filter_map(|part| POSTS.get(part)).flatten();
    let Some((route, access)) = named.find(|(route, _)| is_of(route, path)) else {
        return false;
    };
    caller.need_route(&Method::POST, route).is_ok()
        && match *access {
            Access::Public | Access::Known => true,
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

/// Instead of a last part that can be anything.
const ANY: &str = "{}";

fn last_part(path: &str) -> &str {
    let part = path.rsplit('/').next().unwrap_or_default();
    if part.starts_with('{') { ANY } else { part }
}

/// Whether a path is one of a route's.
fn is_of(route: &str, path: &str) -> bool {
    let mut parts = path.split('/');
    let fits = |own: &str, given: Option<&str>| {
        given.is_some_and(|given| own.starts_with('{') || own == given)
    };
    route.split('/').all(|own| fits(own, parts.next())) && parts.next().is_none()
}

/// The kind of thing that a route is about, as it stands in its path: `versions`, `users`.
pub(crate) fn group_of(route: &str) -> &str {
    let mut parts = route.split('/').filter(|part| !part.is_empty());
    let first = parts.by_ref().find(|part| *part != "api" && !is_number_of_api(part));
    let first = first.unwrap_or_default();
    // Things in a project or an environment have their own groups.
    let inner = (first == "projects" || first == "environments").then(|| parts.nth(1)).flatten();
    inner.unwrap_or(first)
}

fn is_number_of_api(part: &str) -> bool {
    part.strip_prefix('v').is_some_and(|number| number.parse::<u8>().is_ok())
}

/// Open to everybody, until the handler has checked the signature.
const WEBHOOK: &str = "/api/v1/webhooks/{environment}";

/// Questions that are too long for a URL: nothing is changed, and nothing is written down.
const QUESTIONS: [&str; 3] = [
    "/api/v1/environments/{environment}/placements",
    "/api/v1/cluster-documents/solve",
    "/api/v1/projects/{project}/cluster-documents/solve",
];

/// What is read of requests that are refused.
const SWALLOWED_MAX: usize = 64 * 1024;
const SWALLOWED_WITHIN: Duration = Duration::from_secs(1);

/// Forges send more than other strangers do: a push with all its commits.
const WEBHOOK_MAX: usize = 1024 * 1024;

/// Where the request came from, for handlers.
#[derive(Clone, Debug)]
pub(crate) struct ClientAddress(pub(crate) String);

/// Cancelled when the client of a request is not there any more: what has not begun for it need not begin.
#[derive(Clone, Debug)]
pub(crate) struct ClientGone(pub(crate) CancellationToken);

/// Lets through who may use the route, notes who it is for the handler, and writes down what was tried.
pub(crate) async fn check(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Result<Response, ServerError> {
    let (mut parts, body) = request.into_parts();
    let matched = MatchedPath::from_request_parts(&mut parts, &app).await;
    let Ok(matched) = matched else { return Err(ServerError::NoRoute) };
    let route = matched.as_str();
    let Some(access) = access_of(&parts.method, route) else {
        return Err(ServerError::MethodNotAllowed);
    };
    let changes = match parts.method.is_safe() {
        true => parts.method == Method::GET && route == classic::CHANGING_GET,
        false => !QUESTIONS.contains(&route),
    };
    if !changes {
        if let Err(error) = admit(&app, &mut parts, route, access, None).await {
            swallow(body).await;
            return Err(error);
        }
        // What a question takes of the memory for bodies is given back with the answer.
        let charge = parts.extensions.get::<Caller>().filter(|_| !parts.method.is_safe());
        let charge = charge.map(|caller| app.budgets().known(owner_of(caller)));
        let body = match &charge {
            Some(charge) => {
                let bounds = Bounds { size: crate::server::BODY_MAX, within: KNOWN_WITHIN };
                Guarded::wrap(body, Arc::clone(charge), bounds)
            }
            None => body,
        };
        let mut response = next.run(Request::from_parts(parts, body)).await;
        drop(charge);
        if access == Access::Public {
            response.extensions_mut().insert(ToStranger);
        }
        return Ok(response);
    }
    let mut trail = Trail::begin(&app, &parts, route);
    if access == Access::Public {
        trail = trail.of_strangers();
    }
    parts.extensions.insert(ClientAddress(trail.address().to_owned()));
    let gone = CancellationToken::new();
    parts.extensions.insert(ClientGone(gone.clone()));
    let _gone_when_dropped = gone.drop_guard();
    if let Err(error) = admit(&app, &mut parts, route, access, Some(&mut trail)).await {
        let mut response = error.into_response();
        trail.end(&app, &mut response).await;
        swallow(body).await;
        return Ok(response);
    }
    let caller = parts.extensions.get::<Caller>();
    let (charge, bounds) = match caller.filter(|_| access != Access::Public) {
        Some(caller) => {
            let bounds = Bounds { size: crate::server::BODY_MAX, within: KNOWN_WITHIN };
            (app.budgets().known(owner_of(caller)), bounds)
        }
        None => {
            let size = if route == WEBHOOK { WEBHOOK_MAX } else { STRANGER.size };
            let charge = app.budgets().stranger(network_of(trail.address()));
            (charge, Bounds { size, ..STRANGER })
        }
    };
    let body = Guarded::wrap(body, Arc::clone(&charge), bounds);
    // In a task of its own: whoever hangs up early has acted all the same, and it is written down.
    let request = Request::from_parts(parts, body);
    let work = async move {
        let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
        let failed = || ServerError::Internal("a handler panicked".to_owned()).into_response();
        let mut response = answered.unwrap_or_else(|_| failed());
        app.auth().remembered.forget();
        trail.end(&app, &mut response).await;
        drop(charge);
        response
    };
    tokio::spawn(work.in_current_span()).await.map_err(|_| ServerError::Stopping)
}

/// The account that memory for bodies is charged to.
fn owner_of(caller: &Caller) -> String {
    caller.account.map_or_else(|| caller.name.clone(), |id| id.to_string())
}

/// Reads and forgets what is left of a small request, so that the connection can be used again: a client may have begun the next
/// one before it learns that this one was refused.
pub(crate) async fn swallow(body: Body) {
    let rest = http_body_util::Limited::new(body, SWALLOWED_MAX);
    // What does not come, or is too much, costs the connection.
    let _ = tokio::time::timeout(SWALLOWED_WITHIN, rest.collect()).await;
}

/// Finds out who is calling and whether they may.
async fn admit(
    app: &App,
    parts: &mut Parts,
    route: &str,
    access: Access,
    mut trail: Option<&mut Trail>,
) -> Result<(), ServerError> {
    if access == Access::Public {
        parts.extensions.insert(Caller::nobody());
        return Ok(());
    }
    // What changes something leaves a trail.
    let only_reads = trail.is_none();
    let caller = auth::authenticate(app, parts, only_reads).await?;
    if let Some(trail) = trail.as_deref_mut() {
        trail.by(&caller.name);
    }
    caller.need_route(&parts.method, route)?;
    let named = |name: &str| {
        let at = route.split('/').position(|part| part == name);
        let text = at.and_then(|at| parts.uri.path().split('/').nth(at)).unwrap_or_default();
        text.parse::<Uuid>().map_err(|_| ServerError::BadRequest(format!("{text:?} is no id")))
    };
    match access {
        Access::Public | Access::Known => {}
        Access::Somewhere(right) => caller.need_somewhere(right)?,
        Access::Server(right) => caller.need_everywhere(right)?,
        Access::Project(right) => caller.need_in_project(right, &named("{project}")?)?,
        Access::Environment(right) | Access::Header(right) => {
            let id = match access {
                Access::Header(_) => in_header(parts)?,
                _ => named("{environment}")?,
            };
            let found = match find_environment(app, id, only_reads).await {
                // Who sees nothing elsewhere learns nothing of what is there.
                Err(_) if !caller.may_everywhere(Right::View) => {
                    return Err(caller.forbidden(right, "in this environment"));
                }
                found => found?,
            };
            if let Some(trail) = trail {
                trail.within(found.uuid);
            }
            caller.need_in_environment(right, &found)?;
            parts.extensions.insert(found);
        }
    }
    if let Some(place) = parts.extensions.get::<Arc<Place>>() {
        place.become_known();
    }
    parts.extensions.insert(caller);
    Ok(())
}

/// The environment with an id: for what only reads, as it was a moment ago.
async fn find_environment(
    app: &App,
    id: Uuid,
    only_reads: bool,
) -> Result<EnvironmentRecord, ServerError> {
    let remembered = &app.auth().remembered;
    if only_reads && let Some(found) = remembered.environment(id.as_bytes()) {
        return Ok(found);
    }
    let asked = remembered.moment();
    let found = app.with_store(move |store| store.records().environment(id.as_bytes())).await?;
    remembered.keep_environment(found.clone(), asked);
    Ok(found)
}

/// The environment that the header of the classic paths names.
fn in_header(parts: &Parts) -> Result<Uuid, ServerError> {
    let given = parts.headers.get(classic::ENVIRONMENT).and_then(|value| value.to_str().ok());
    let text =
        given.ok_or_else(|| ServerError::BadRequest("Field 'tid' is required.".to_owned()))?;
    let wrong = |_| ServerError::BadRequest(format!("Field 'tid' must be a valid UUID: {text:?}"));
    text.trim().parse().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_named_by_the_thing() {
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
        assert!(is_of(route, "/api/v1/environments/9f2c/versions/5/release"));
        for other in [
            "/api/v1/environments/9f2c/versions/5",
            "/api/v1/environments/9f2c/versions/5/release/x",
            "/",
        ] {
            assert!(!is_of(route, other), "{other}");
        }
    }

    #[test]
    fn no_route_stands_twice() {
        let mut seen = std::collections::BTreeSet::new();
        for (method, path, _) in table() {
            assert!(seen.insert((method, path)), "{method} {path}");
        }
    }
}
