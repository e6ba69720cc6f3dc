//! Which right each route needs: one table for all, looked up before any handler runs. A route that is not in it is not served.

use axum::extract::{FromRequestParts as _, MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use uuid::Uuid;

use crate::app::App;
use crate::auth::{self, Caller};
use crate::problem::ServerError;

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
    /// Who has the right everywhere.
    Server(Right),
    /// Who has the right in the project that the path names.
    Project(Right),
    /// Who has the right in the environment that the path names.
    Environment(Right),
}

/// Every route of the server.
pub(crate) const ROUTES: &[(&str, &str, Access)] = &[
    ("GET", "/health", Access::Public),
    ("GET", "/health/live", Access::Public),
    ("GET", "/health/ready", Access::Public),
    ("GET", "/metrics", Access::Server(Right::View)),
    ("GET", "/api/v1/openapi.json", Access::Public),
    ("GET", "/api/v1/projects", Access::Known),
    ("POST", "/api/v1/projects", Access::Server(Right::Administer)),
    ("GET", "/api/v1/projects/{project}", Access::Project(Right::View)),
    ("PATCH", "/api/v1/projects/{project}", Access::Project(Right::Administer)),
    ("DELETE", "/api/v1/projects/{project}", Access::Project(Right::Administer)),
];

/// What a route needs; `None` if it is not known.
pub(crate) fn access_of(method: &Method, path: &str) -> Option<Access> {
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    ROUTES.iter().find(|(of, at, _)| *of == method && *at == path).map(|(_, _, access)| *access)
}

/// Lets through who may use the route, and notes who it is for the handler.
pub(crate) async fn check(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Result<Response, ServerError> {
    let (mut parts, body) = request.into_parts();
    let matched = MatchedPath::from_request_parts(&mut parts, &app).await;
    let Ok(matched) = matched else { return Err(ServerError::NoRoute) };
    let Some(access) = access_of(&parts.method, matched.as_str()) else {
        return Err(ServerError::MethodNotAllowed);
    };
    let caller = if access == Access::Public {
        Caller::nobody()
    } else {
        auth::authenticate(&app, &parts).await?
    };
    let named = |name: &str| {
        let at = matched.as_str().split('/').position(|part| part == name);
        let text = at.and_then(|at| parts.uri.path().split('/').nth(at)).unwrap_or_default();
        text.parse::<Uuid>().map_err(|_| ServerError::BadRequest(format!("{text:?} is no id")))
    };
    match access {
        Access::Public | Access::Known => {}
        Access::Server(right) => caller.need_everywhere(right)?,
        Access::Project(right) => {
            let id = named("{project}")?;
            caller.need_in_project(right, &id)?;
        }
        Access::Environment(right) => {
            let id = named("{environment}")?;
            let found =
                app.with_store(move |store| store.records().environment(id.as_bytes())).await?;
            caller.need_in_environment(right, &found)?;
            parts.extensions.insert(found);
        }
    }
    parts.extensions.insert(caller);
    Ok(next.run(Request::from_parts(parts, body)).await)
}
