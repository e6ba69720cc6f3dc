//! Access rules: one table with the right that each route needs.
//!
//! A route that is missing from the table is not served. `middleware` checks the table before any
//! handler runs.

mod table;

use std::sync::LazyLock;

use axum::http::Method;
use orrery_api::{RightName, RoleName};
use rustc_hash::FxHashMap;

pub(crate) use table::{OWN, WEBHOOK};

/// Rights, weakest first. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Right {
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
    pub const ALL: [Right; 4] = [Right::View, Right::Operate, Right::Develop, Right::Administer];

    /// Returns the role that grants this right and the weaker ones.
    pub fn role(self) -> RoleName {
        match self {
            Right::View => RoleName::Viewer,
            Right::Operate => RoleName::Operator,
            Right::Develop => RoleName::Developer,
            Right::Administer => RoleName::Admin,
        }
    }

    pub(crate) fn name(self) -> RightName {
        match self {
            Right::View => RightName::View,
            Right::Operate => RightName::Operate,
            Right::Develop => RightName::Develop,
            Right::Administer => RightName::Administer,
        }
    }
}

impl From<RoleName> for Right {
    fn from(role: RoleName) -> Self {
        match role {
            RoleName::Viewer => Right::View,
            RoleName::Operator => Right::Operate,
            RoleName::Developer => Right::Develop,
            RoleName::Admin => Right::Administer,
        }
    }
}

/// Requirement of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
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
    /// The right in the project of the cluster that the path names.
    Cluster(Right),
    /// The right in the environment that the path names.
    Environment(Right),
    /// The right in the environment that a header names.
    Header(Right),
}

/// One route: its method, its path and its requirement.
pub type RouteRule = (&'static str, &'static str, Access);

/// Header of an API that names the environment of a request.
#[derive(Clone, Copy, Debug)]
pub struct EnvironmentHeader {
    pub name: &'static str,
    /// Name of the field in error messages.
    pub field: &'static str,
}

/// Rules of all routes of one API.
#[derive(Clone, Copy, Debug)]
pub struct RouteRules {
    pub routes: &'static [RouteRule],
    /// Routes that change something although their method is GET.
    pub changing_gets: &'static [&'static str],
    /// Queries that are too long for a URL. They change nothing and are not audited.
    pub queries: &'static [&'static str],
    /// Routes without idempotency keys, since the caller is not authenticated yet.
    pub keyless: &'static [&'static str],
    /// Routes with secrets in their responses, of which only hashes are stored: the execution is
    /// recorded, but not the response.
    pub secret: &'static [&'static str],
    /// For routes with [`Access::Header`].
    pub environment_header: Option<EnvironmentHeader>,
}

/// Access requirement of a route, for documentation and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteAccess {
    pub method: &'static str,
    pub path: &'static str,
    /// `everybody`, `known`, `somewhere`, or the scope of the required role: `server`, `project`,
    /// `cluster` for the project of a cluster, `environment`; `header` for the environment that the header of the Inmanta-compatible API
    /// names.
    pub place: &'static str,
    /// The weakest sufficient role.
    pub role: Option<&'static str>,
}

impl RouteRules {
    /// Returns the access requirements of all routes.
    pub fn describe(&self) -> impl Iterator<Item = RouteAccess> + use<> {
        self.routes.iter().map(|&(method, path, access)| {
            let (place, right) = match access {
                Access::Public => ("everybody", None),
                Access::Authenticated => ("known", None),
                Access::Somewhere(right) => ("somewhere", Some(right)),
                Access::Server(right) => ("server", Some(right)),
                Access::Project(right) => ("project", Some(right)),
                Access::Cluster(right) => ("cluster", Some(right)),
                Access::Environment(right) => ("environment", Some(right)),
                Access::Header(right) => ("header", Some(right)),
            };
            RouteAccess { method, path, place, role: right.map(|right| right.role().as_str()) }
        })
    }
}

/// Rules of all routes of a server, of its own API and of further ones.
#[derive(Debug)]
pub(crate) struct AccessTable {
    apis: Vec<&'static RouteRules>,
    by_route: FxHashMap<(&'static str, &'static str), Access>,
}

impl AccessTable {
    pub(crate) fn new(further: impl IntoIterator<Item = &'static RouteRules>) -> Self {
        let apis: Vec<&'static RouteRules> = [&OWN].into_iter().chain(further).collect();
        let routes = apis.iter().flat_map(|rules| rules.routes);
        let by_route: FxHashMap<_, _> =
            routes.clone().map(|(method, path, access)| ((*method, *path), *access)).collect();
        debug_assert_eq!(by_route.len(), routes.count(), "a route is listed twice");
        AccessTable { apis, by_route }
    }

    /// Returns the requirement of a route; `None` for an unknown one.
    pub(crate) fn required_access(&self, method: &Method, path: &str) -> Option<Access> {
        let found = self.by_route.get(&(method.as_str(), path));
        // HEAD needs the right of GET.
        let as_read =
            || (method == Method::HEAD).then(|| self.by_route.get(&("GET", path))).flatten();
        found.or_else(as_read).copied()
    }

    fn lists(&self, route: &str, list: impl Fn(&RouteRules) -> &'static [&'static str]) -> bool {
        self.apis.iter().any(|rules| list(rules).contains(&route))
    }

    /// True if a request changes something, or may.
    pub(crate) fn changes(&self, method: &Method, route: &str) -> bool {
        match method.is_safe() {
            true => method == Method::GET && self.lists(route, |rules| rules.changing_gets),
            false => !self.lists(route, |rules| rules.queries),
        }
    }

    /// True for routes without idempotency keys.
    pub(crate) fn is_keyless(&self, route: &str) -> bool {
        self.lists(route, |rules| rules.keyless)
    }

    /// True for routes with secrets in their responses.
    pub(crate) fn gives_secrets(&self, route: &str) -> bool {
        self.lists(route, |rules| rules.secret)
    }

    /// True if a group of routes exists.
    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.by_route.keys().any(|(_, route)| group_of(route) == group)
    }

    /// Header that names the environment, of the API that a route belongs to.
    pub(crate) fn environment_header(&self, route: &str) -> Option<EnvironmentHeader> {
        let mut apis = self.apis.iter();
        let own = apis.find(|rules| rules.routes.iter().any(|(_, path, _)| *path == route));
        own.and_then(|rules| rules.environment_header)
    }
}

/// Returns the requirement of a POST of the server's own API.
pub(crate) fn required_for_post(path: &str) -> Option<(&'static str, Access)> {
    // Indexed by the last segment of the path, which is mostly the name of the action.
    static POSTS: LazyLock<FxHashMap<&str, Vec<(&str, Access)>>> = LazyLock::new(|| {
        let mut posts: FxHashMap<&str, Vec<(&str, Access)>> = FxHashMap::default();
        for (_, route, access) in OWN.routes.iter().filter(|(method, ..)| *method == "POST") {
            posts.entry(last_part(route)).or_default().push((*route, *access));
        }
        posts
    });
    let mut named = [last_part(path), ANY].into_iter().filter_map(|part| POSTS.get(part)).flatten();
    named.find(|(route, _)| matches_route(route, path)).copied()
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
        for (method, path, _) in OWN.routes {
            assert!(seen.insert((method, path)), "{method} {path}");
        }
    }
}
