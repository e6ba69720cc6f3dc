//! Table of routes and rights.

use super::{Access, Right, RouteRule, RouteRules};

/// Public: the handler checks the signature.
pub(crate) const WEBHOOK: &str = "/api/v1/webhooks/{environment}";

/// Rules of the server's own API.
pub(crate) static OWN: RouteRules = RouteRules {
    routes: ROUTES,
    changing_gets: &[],
    queries: &[
        "/api/v1/environments/{environment}/placements",
        "/api/v1/cluster-documents/solve",
        "/api/v1/projects/{project}/cluster-documents/solve",
    ],
    keyless: &["/api/v1/login", "/api/v1/setup", "/api/v1/renew", WEBHOOK],
    secret: &[
        "/api/v1/tokens",
        "/api/v1/environments/{environment}/webhook",
        "/api/v1/environments/{environment}/remote-agents/invitations",
    ],
    environment_header: None,
};

/// All routes of the server's own API.
const ROUTES: &[RouteRule] = &[
    ("GET", "/health", Access::Public),
    ("GET", "/health/live", Access::Public),
    ("GET", "/health/ready", Access::Public),
    ("GET", "/metrics", Access::Server(Right::View)),
    ("GET", "/api/v1/openapi.json", Access::Public),
    ("POST", "/api/v1/setup", Access::Public),
    ("POST", "/api/v1/login", Access::Public),
    ("POST", "/api/v1/logout", Access::Authenticated),
    ("POST", "/api/v1/renew", Access::Authenticated),
    ("GET", "/api/v1/me", Access::Authenticated),
    ("GET", "/api/v1/users", Access::Server(Right::Administer)),
    ("POST", "/api/v1/users", Access::Server(Right::Administer)),
    ("GET", "/api/v1/users/{user}", Access::Server(Right::Administer)),
    ("PATCH", "/api/v1/users/{user}", Access::Server(Right::Administer)),
    ("DELETE", "/api/v1/users/{user}", Access::Server(Right::Administer)),
    // Own password with the current one; administrators, any password.
    ("PUT", "/api/v1/users/{user}/password", Access::Authenticated),
    ("GET", "/api/v1/roles", Access::Authenticated),
    ("GET", "/api/v1/role-assignments", Access::Server(Right::Administer)),
    ("POST", "/api/v1/role-assignments", Access::Server(Right::Administer)),
    ("DELETE", "/api/v1/role-assignments/{user}/{role}", Access::Server(Right::Administer)),
    ("GET", "/api/v1/projects/{project}/role-assignments", Access::Project(Right::Administer)),
    ("POST", "/api/v1/projects/{project}/role-assignments", Access::Project(Right::Administer)),
    (
        "DELETE",
        "/api/v1/projects/{project}/role-assignments/{user}/{role}",
        Access::Project(Right::Administer),
    ),
    (
        "GET",
        "/api/v1/environments/{environment}/role-assignments",
        Access::Environment(Right::Administer),
    ),
    (
        "POST",
        "/api/v1/environments/{environment}/role-assignments",
        Access::Environment(Right::Administer),
    ),
    (
        "DELETE",
        "/api/v1/environments/{environment}/role-assignments/{user}/{role}",
        Access::Environment(Right::Administer),
    ),
    // Own tokens; administrators, all.
    ("GET", "/api/v1/tokens", Access::Authenticated),
    ("POST", "/api/v1/tokens", Access::Authenticated),
    ("DELETE", "/api/v1/tokens/{token}", Access::Authenticated),
    ("GET", "/api/v1/secrets", Access::Server(Right::Administer)),
    ("PUT", "/api/v1/secrets/{name}", Access::Server(Right::Administer)),
    ("DELETE", "/api/v1/secrets/{name}", Access::Server(Right::Administer)),
    ("GET", "/api/v1/environments/{environment}/secrets", Access::Environment(Right::Develop)),
    (
        "PUT",
        "/api/v1/environments/{environment}/secrets/{name}",
        Access::Environment(Right::Develop),
    ),
    (
        "DELETE",
        "/api/v1/environments/{environment}/secrets/{name}",
        Access::Environment(Right::Develop),
    ),
    // The catalog is visible with any role. Handlers omit documents for administrators.
    ("GET", "/api/v1/cluster-documents", Access::Somewhere(Right::View)),
    ("POST", "/api/v1/cluster-documents/apply", Access::Server(Right::Administer)),
    ("POST", "/api/v1/cluster-documents/solve", Access::Somewhere(Right::View)),
    ("GET", "/api/v1/cluster-documents/{kind}/{name}", Access::Somewhere(Right::View)),
    ("PUT", "/api/v1/cluster-documents/{kind}/{name}", Access::Server(Right::Administer)),
    ("DELETE", "/api/v1/cluster-documents/{kind}/{name}", Access::Server(Right::Administer)),
    ("GET", "/api/v1/cluster-documents/{kind}/{name}/history", Access::Somewhere(Right::View)),
    ("GET", "/api/v1/projects/{project}/cluster-documents", Access::Project(Right::View)),
    (
        "POST",
        "/api/v1/projects/{project}/cluster-documents/apply",
        Access::Project(Right::Administer),
    ),
    ("POST", "/api/v1/projects/{project}/cluster-documents/solve", Access::Project(Right::View)),
    (
        "GET",
        "/api/v1/projects/{project}/cluster-documents/{kind}/{name}",
        Access::Project(Right::View),
    ),
    (
        "PUT",
        "/api/v1/projects/{project}/cluster-documents/{kind}/{name}",
        Access::Project(Right::Administer),
    ),
    (
        "DELETE",
        "/api/v1/projects/{project}/cluster-documents/{kind}/{name}",
        Access::Project(Right::Administer),
    ),
    (
        "GET",
        "/api/v1/projects/{project}/cluster-documents/{kind}/{name}/history",
        Access::Project(Right::View),
    ),
    ("GET", "/api/v1/audit", Access::Server(Right::Administer)),
    ("POST", "/api/v1/audit/verify", Access::Server(Right::Administer)),
    ("GET", "/api/v1/projects", Access::Authenticated),
    ("POST", "/api/v1/projects", Access::Server(Right::Administer)),
    ("GET", "/api/v1/projects/{project}", Access::Project(Right::View)),
    ("PATCH", "/api/v1/projects/{project}", Access::Project(Right::Administer)),
    ("DELETE", "/api/v1/projects/{project}", Access::Project(Right::Administer)),
    ("GET", "/api/v1/docs", Access::Public),
    ("GET", "/setup", Access::Public),
    ("GET", "/", Access::Public),
    ("GET", "/api/v1/environments", Access::Authenticated),
    // The handler checks the right to administer the project.
    ("POST", "/api/v1/environments", Access::Authenticated),
    ("GET", "/api/v1/environments/{environment}", Access::Environment(Right::View)),
    ("PATCH", "/api/v1/environments/{environment}", Access::Environment(Right::Administer)),
    ("DELETE", "/api/v1/environments/{environment}", Access::Environment(Right::Administer)),
    ("POST", "/api/v1/environments/{environment}/halt", Access::Environment(Right::Operate)),
    ("POST", "/api/v1/environments/{environment}/resume", Access::Environment(Right::Operate)),
    ("POST", "/api/v1/environments/{environment}/clear", Access::Environment(Right::Administer)),
    ("GET", "/api/v1/environments/{environment}/settings", Access::Environment(Right::View)),
    ("GET", "/api/v1/environments/{environment}/settings/{name}", Access::Environment(Right::View)),
    (
        "PUT",
        "/api/v1/environments/{environment}/settings/{name}",
        Access::Environment(Right::Develop),
    ),
    (
        "DELETE",
        "/api/v1/environments/{environment}/settings/{name}",
        Access::Environment(Right::Develop),
    ),
    (
        "POST",
        "/api/v1/environments/{environment}/settings/protect",
        Access::Environment(Right::Develop),
    ),
    ("GET", "/api/v1/environments/{environment}/webhook", Access::Environment(Right::Administer)),
    ("POST", "/api/v1/environments/{environment}/webhook", Access::Environment(Right::Administer)),
    (
        "DELETE",
        "/api/v1/environments/{environment}/webhook",
        Access::Environment(Right::Administer),
    ),
    // The handler checks the signature with the secret of the webhook.
    ("POST", "/api/v1/webhooks/{environment}", Access::Public),
    ("GET", "/api/v1/environments/{environment}/compiles", Access::Environment(Right::View)),
    ("POST", "/api/v1/environments/{environment}/compiles", Access::Environment(Right::Develop)),
    ("GET", "/api/v1/environments/{environment}/compiles/queue", Access::Environment(Right::View)),
    ("GET", "/api/v1/environments/{environment}/compiles/{id}", Access::Environment(Right::View)),
    (
        "POST",
        "/api/v1/environments/{environment}/compiles/{id}/cancel",
        Access::Environment(Right::Develop),
    ),
    ("GET", "/api/v1/environments/{environment}/versions", Access::Environment(Right::View)),
    ("POST", "/api/v1/environments/{environment}/versions", Access::Environment(Right::Develop)),
    (
        "POST",
        "/api/v1/environments/{environment}/versions/reserve",
        Access::Environment(Right::Develop),
    ),
    (
        "GET",
        "/api/v1/environments/{environment}/versions/{number}",
        Access::Environment(Right::View),
    ),
    (
        "DELETE",
        "/api/v1/environments/{environment}/versions/{number}",
        Access::Environment(Right::Develop),
    ),
    (
        "GET",
        "/api/v1/environments/{environment}/versions/{number}/resources",
        Access::Environment(Right::View),
    ),
    (
        "GET",
        "/api/v1/environments/{environment}/versions/{number}/unknowns",
        Access::Environment(Right::View),
    ),
    (
        "GET",
        "/api/v1/environments/{environment}/versions/{from}/compare/{to}",
        Access::Environment(Right::View),
    ),
    (
        "POST",
        "/api/v1/environments/{environment}/versions/{number}/release",
        Access::Environment(Right::Operate),
    ),
    (
        "POST",
        "/api/v1/environments/{environment}/versions/{number}/roll-back",
        Access::Environment(Right::Operate),
    ),
    (
        "GET",
        "/api/v1/environments/{environment}/versions/{number}/dry-runs",
        Access::Environment(Right::View),
    ),
    (
        "POST",
        "/api/v1/environments/{environment}/versions/{number}/dry-runs",
        Access::Environment(Right::Operate),
    ),
    (
        "GET",
        "/api/v1/environments/{environment}/versions/{number}/dry-runs/{id}",
        Access::Environment(Right::View),
    ),
    (
        "GET",
        "/api/v1/environments/{environment}/versions/{number}/dry-runs/{id}/changes",
        Access::Environment(Right::View),
    ),
    ("GET", "/api/v1/environments/{environment}/resources", Access::Environment(Right::View)),
    ("GET", "/api/v1/environments/{environment}/resource-counts", Access::Environment(Right::View)),
    ("GET", "/api/v1/environments/{environment}/resources/{id}", Access::Environment(Right::View)),
    (
        "GET",
        "/api/v1/environments/{environment}/resources/{id}/history",
        Access::Environment(Right::View),
    ),
    (
        "GET",
        "/api/v1/environments/{environment}/resources/{id}/provides",
        Access::Environment(Right::View),
    ),
    (
        "GET",
        "/api/v1/environments/{environment}/resources/{id}/actions",
        Access::Environment(Right::View),
    ),
    (
        "GET",
        "/api/v1/environments/{environment}/resources/{id}/logs",
        Access::Environment(Right::View),
    ),
    ("POST", "/api/v1/environments/{environment}/deploy", Access::Environment(Right::Operate)),
    ("POST", "/api/v1/environments/{environment}/repair", Access::Environment(Right::Operate)),
    ("GET", "/api/v1/environments/{environment}/unknown-effects", Access::Environment(Right::View)),
    (
        "POST",
        "/api/v1/environments/{environment}/unknown-effects/settle",
        Access::Environment(Right::Operate),
    ),
    ("GET", "/api/v1/environments/{environment}/operations", Access::Environment(Right::View)),
    ("GET", "/api/v1/environments/{environment}/operations/{id}", Access::Environment(Right::View)),
    (
        "GET",
        "/api/v1/environments/{environment}/operations/{id}/report",
        Access::Environment(Right::View),
    ),
    (
        "GET",
        "/api/v1/environments/{environment}/operations/{id}/results",
        Access::Environment(Right::View),
    ),
    ("GET", "/api/v1/environments/{environment}/agents", Access::Environment(Right::View)),
    ("GET", "/api/v1/environments/{environment}/agents/{name}", Access::Environment(Right::View)),
    // A query: changes nothing.
    ("POST", "/api/v1/environments/{environment}/placements", Access::Environment(Right::View)),
    ("GET", "/api/v1/environments/{environment}/inventory", Access::Environment(Right::View)),
    // Stores a version.
    ("PUT", "/api/v1/environments/{environment}/inventory", Access::Environment(Right::Develop)),
    ("GET", "/api/v1/environments/{environment}/inventory/hosts", Access::Environment(Right::View)),
    (
        "POST",
        "/api/v1/environments/{environment}/agents/{name}/{action}",
        Access::Environment(Right::Operate),
    ),
    (
        "POST",
        "/api/v1/environments/{environment}/all-agents/{action}",
        Access::Environment(Right::Operate),
    ),
    ("GET", "/api/v1/environments/{environment}/remote-agents", Access::Environment(Right::View)),
    // A joining machine receives the secrets of its resources.
    (
        "POST",
        "/api/v1/environments/{environment}/remote-agents/invitations",
        Access::Environment(Right::Develop),
    ),
    (
        "GET",
        "/api/v1/environments/{environment}/remote-agents/{id}",
        Access::Environment(Right::View),
    ),
    (
        "DELETE",
        "/api/v1/environments/{environment}/remote-agents/{id}",
        Access::Environment(Right::Operate),
    ),
    (
        "POST",
        "/api/v1/environments/{environment}/remote-agents/{id}/revoke",
        Access::Environment(Right::Operate),
    ),
    ("GET", "/api/v1/environments/{environment}/parameters", Access::Environment(Right::View)),
    (
        "GET",
        "/api/v1/environments/{environment}/parameters/{name}",
        Access::Environment(Right::View),
    ),
    (
        "PUT",
        "/api/v1/environments/{environment}/parameters/{name}",
        Access::Environment(Right::Develop),
    ),
    (
        "DELETE",
        "/api/v1/environments/{environment}/parameters/{name}",
        Access::Environment(Right::Develop),
    ),
    ("GET", "/api/v1/environments/{environment}/facts", Access::Environment(Right::View)),
    (
        "GET",
        "/api/v1/environments/{environment}/resources/{id}/facts/{name}",
        Access::Environment(Right::View),
    ),
    (
        "PUT",
        "/api/v1/environments/{environment}/resources/{id}/facts/{name}",
        Access::Environment(Right::Develop),
    ),
    (
        "DELETE",
        "/api/v1/environments/{environment}/resources/{id}/facts/{name}",
        Access::Environment(Right::Develop),
    ),
    (
        "POST",
        "/api/v1/environments/{environment}/resources/{id}/refresh-facts",
        Access::Environment(Right::Operate),
    ),
    ("GET", "/api/v1/environments/{environment}/notifications", Access::Environment(Right::View)),
    (
        "GET",
        "/api/v1/environments/{environment}/notifications/{id}",
        Access::Environment(Right::View),
    ),
    (
        "PATCH",
        "/api/v1/environments/{environment}/notifications/{id}",
        Access::Environment(Right::Operate),
    ),
    ("GET", "/api/v1/environments/{environment}/discovered", Access::Environment(Right::View)),
    ("PUT", "/api/v1/environments/{environment}/discovered", Access::Environment(Right::Develop)),
    ("GET", "/api/v1/environments/{environment}/discovered/{id}", Access::Environment(Right::View)),
    (
        "DELETE",
        "/api/v1/environments/{environment}/discovered/{id}",
        Access::Environment(Right::Develop),
    ),
    ("GET", "/api/v1/environments/{environment}/metrics", Access::Environment(Right::View)),
    ("GET", "/api/v1/environments/{environment}/events", Access::Environment(Right::View)),
    // Contents do not belong to an environment. Reading needs the hash, storing the right to upload
    // versions.
    ("GET", "/api/v1/files/{sha1}", Access::Somewhere(Right::View)),
    ("PUT", "/api/v1/files/{sha1}", Access::Somewhere(Right::Develop)),
    ("POST", "/api/v1/files/missing", Access::Somewhere(Right::Develop)),
    ("GET", "/api/v1/events", Access::Authenticated),
];
