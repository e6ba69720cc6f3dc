//! The API for Inmanta clients: a translation onto the application layer of the server.
//!
//! It parses requests, calls `orrery_server::app`, and converts the results; it has no rules of its
//! own and changes nothing itself, which `xtask` checks. The server gets it as a value: start with
//! [`inmanta_api`]. Tests, on a server with both APIs: `tests/it`.
//!
//! | module | contents |
//! |---|---|
//! | `request`, `response`, `paging` | parsing of requests, form of responses and errors,
//! pagination |
//! | `access_table` | rights of all routes |
//! | `projects`, `settings` | projects, environments and their settings |
//! | `versions`, `client_info`, `code`, `desired_state` | upload of versions with their code, lists and comparison
//! |
//! | `resources`, `actions` | resources and actions on them |
//! | `deploy`, `agents` | deploys, dry runs, agents |
//! | `compiles`, `parameters`, `files`, `notifications`, `discovered`, `metrics` | other objects of
//! an environment |
//! | `accounts`, `status` | users, roles, tokens; state of the server |
//!
//! There are two generations. Routes under `/api/v2` return `{"data", "links", "metadata"}`; routes
//! under `/api/v1` return objects of various forms. The header `X-Inmanta-tid` names the
//! environment. The routes do not collide with Orrery's own, which are plural.

mod access_table;
mod accounts;
mod actions;
mod agents;
mod client_info;
mod code;
mod compiles;
mod deploy;
mod desired_state;
mod discovered;
mod files;
mod metrics;
mod notifications;
mod paging;
mod parameters;
mod projects;
mod request;
mod resource_pages;
mod resources;
mod response;
mod settings;
mod status;
mod versions;

use access_table::RULES;
use axum::Router;
use axum::response::Response;
use axum::routing::{delete, get, head, patch, post, put};
use futures_util::future::BoxFuture;
use orrery_server::{FurtherApi, ServerState};

/// First path segments after `/api/v1/` that belong to this API.
const V1_SEGMENTS: [&str; 19] = [
    "agent",
    "agentproc",
    "compilequeue",
    "compilereport",
    "decommission",
    "deploy",
    "dryrun",
    "environment",
    "environment_auth",
    "environment_settings",
    "file",
    "filediff",
    "notify",
    "parameter",
    "parameters",
    "project",
    "resource",
    "serverstatus",
    "version",
];

/// True if a path belongs to the Inmanta-compatible API.
pub fn is_inmanta_path(path: &str) -> bool {
    if path.starts_with("/api/v2/") {
        return true;
    }
    let first = path.strip_prefix("/api/v1/").and_then(|rest| rest.split('/').next());
    first.is_some_and(|first| V1_SEGMENTS.contains(&first))
}

/// The API, for a server.
pub fn inmanta_api() -> FurtherApi {
    let convert_errors = |request, next| -> BoxFuture<'static, Response> {
        Box::pin(response::convert_errors(request, next))
    };
    FurtherApi { rules: &RULES, router, convert_errors }
}

/// Routes of the Inmanta-compatible API.
fn router() -> Router<ServerState> {
    Router::new()
        .merge(v1_routes())
        .merge(environment_routes())
        .merge(resource_routes())
        .merge(account_routes())
}

fn v1_routes() -> Router<ServerState> {
    use projects as p;
    Router::new()
        .route("/api/v1/project", get(p::list_projects_v1).put(p::create_project_v1))
        .route(
            "/api/v1/project/{project}",
            get(p::get_project_v1).post(p::modify_project_v1).delete(p::delete_project),
        )
        .route("/api/v1/environment", get(p::list_environments_v1).put(p::create_environment_v1))
        .route(
            "/api/v1/environment/{environment}",
            get(p::get_environment_v1).post(p::modify_environment_v1).delete(p::delete_environment),
        )
        .route("/api/v1/decommission/{environment}", delete(p::clear_environment))
        .route("/api/v1/environment_settings", get(settings::list_v1))
        .route(
            "/api/v1/environment_settings/{id}",
            get(settings::get_v1).post(settings::put_v1).delete(settings::delete_v1),
        )
        .route("/api/v1/environment_auth", post(accounts::create_token_v1))
        .route("/api/v1/version", get(versions::list_v1).put(versions::put))
        .route(
            "/api/v1/version/{version}",
            get(versions::get_v1).post(versions::release_v1).delete(versions::delete),
        )
        .route("/api/v1/deploy", post(deploy::deploy))
        .route("/api/v1/dryrun", get(deploy::dry_runs_v1))
        .route("/api/v1/dryrun/{version}", get(deploy::dry_run_v1).post(deploy::begin_dry_run_v1))
        .route("/api/v1/agent", get(agents::list_v1))
        .route("/api/v1/agentproc", get(agents::processes))
        .route("/api/v1/resource/{rid}", get(resources::get_v1))
        .route(
            "/api/v1/notify/{environment}",
            get(compiles::notify).post(compiles::notify).head(compiles::is_compiling),
        )
        .route("/api/v1/compilequeue", get(compiles::queue))
        .route("/api/v1/compilereport", get(compiles::list_v1))
        .route("/api/v1/compilereport/{compile}", get(compiles::details_v1))
        .route("/api/v1/parameter", post(parameters::list_v1))
        .route(
            "/api/v1/parameter/{id}",
            get(parameters::get_v1).put(parameters::put_v1).delete(parameters::delete_v1),
        )
        .route("/api/v1/parameters", put(parameters::put_many))
        .route("/api/v1/file", post(files::missing))
        .route("/api/v1/file/{id}", head(files::stat).get(files::get).put(files::put))
        .route("/api/v1/filediff", post(files::diff))
        .route("/api/v1/serverstatus", get(status::server_status))
}

fn environment_routes() -> Router<ServerState> {
    use projects as p;
    Router::new()
        .route("/api/v2/project", get(p::list_projects).put(p::create_project))
        .route(
            "/api/v2/project/{project}",
            get(p::get_project).post(p::modify_project).delete(p::delete_project),
        )
        .route("/api/v2/environment", get(p::list_environments).put(p::create_environment))
        .route(
            "/api/v2/environment/{environment}",
            get(p::get_environment).post(p::modify_environment).delete(p::delete_environment),
        )
        .route("/api/v2/decommission/{environment}", delete(p::clear_environment))
        .route("/api/v2/actions/environment/halt", post(p::halt))
        .route("/api/v2/actions/environment/resume", post(p::resume))
        .route("/api/v2/environment_settings", get(settings::list))
        .route(
            "/api/v2/environment_settings/{id}",
            get(settings::get).post(settings::put).delete(settings::delete),
        )
        .route("/api/v2/protected_environment_settings", post(settings::protect))
        .route("/api/v2/reserve_version", post(versions::reserve))
        .route("/api/v2/version/partial", put(versions::put_partial))
        .route("/api/v2/pip/config/{version}", get(versions::pip_config))
        .route("/api/v2/desiredstate", get(desired_state::list))
        .route("/api/v2/desiredstate/{version}", get(desired_state::resources))
        .route("/api/v2/desiredstate/{version}/promote", post(versions::promote))
        .route("/api/v2/desiredstate/{version}/resource/{rid}", get(resources::versioned))
        .route("/api/v2/desiredstate/diff/{from_version}/{to_version}", get(desired_state::diff))
}

fn resource_routes() -> Router<ServerState> {
    Router::new()
        .route("/api/v2/deploy_filtered", post(deploy::deploy_filtered))
        .route("/api/v2/dryrun/{version}", get(deploy::dry_runs).post(deploy::begin_dry_run))
        .route("/api/v2/dryrun/{version}/{report_id}", get(deploy::dry_run))
        .route("/api/v2/agents", get(agents::list))
        .route("/api/v2/agents/{action}", post(agents::act_on_all))
        .route("/api/v2/agent/{name}/{action}", post(agents::act_on_one))
        .route("/api/v2/scheduler_status", get(agents::scheduler_status))
        .route("/api/v2/resource", get(resources::list))
        .route("/api/v2/resource/{rid}", get(resources::details))
        .route("/api/v2/resource/{rid}/history", get(resources::history))
        .route("/api/v2/resource/{rid}/logs", get(actions::logs))
        .route("/api/v2/resource/{rid}/facts", get(parameters::facts_of))
        .route("/api/v2/resource/{rid}/facts/{fact}", get(parameters::fact))
        .route("/api/v2/resource_actions", get(actions::list))
        .route("/api/v2/compliance_report", post(resources::compliance))
        .route("/api/v2/compilereport", get(compiles::list))
        .route("/api/v2/compilereport/{compile}", get(compiles::details))
        .route("/api/v2/compiledata/{compile}", get(compiles::errors))
        .route("/api/v2/parameters", get(parameters::list))
        .route("/api/v2/parameters/{name}", put(parameters::put))
        .route("/api/v2/facts", get(parameters::list_facts))
        .route("/api/v2/facts/{name}", put(parameters::put_fact))
        .route("/api/v2/discovered", get(discovered::list))
        .route("/api/v2/discovered/", post(discovered::put).delete(discovered::delete))
        .route(
            "/api/v2/discovered/{discovered_resource_id}",
            get(discovered::get).post(discovered::put_one).delete(discovered::delete_one),
        )
        .route("/api/v2/notification", get(notifications::list))
        .route(
            "/api/v2/notification/{notification_id}",
            get(notifications::get).patch(notifications::update),
        )
        .route("/api/v2/metrics", get(metrics::get))
        .route("/api/v2/health", get(status::health))
        .route("/api/v2/docs", get(status::docs))
}

fn account_routes() -> Router<ServerState> {
    Router::new()
        .route("/api/v2/login", post(accounts::login))
        .route("/api/v2/login/renew", post(accounts::renew))
        .route("/api/v2/current_user", get(accounts::current_user))
        .route("/api/v2/user", get(accounts::users).post(accounts::add_user))
        .route("/api/v2/user/{username}", delete(accounts::delete_user))
        .route("/api/v2/user/{username}/password", patch(accounts::set_password))
        .route("/api/v2/is_admin", patch(accounts::set_is_admin))
        .route(
            "/api/v2/role",
            get(accounts::roles).post(accounts::change_roles).delete(accounts::change_roles),
        )
        .route(
            "/api/v2/role_assignment/{username}",
            get(accounts::roles_of).post(accounts::assign_role).delete(accounts::unassign_role),
        )
        .route("/api/v2/environment_auth", get(accounts::tokens).post(accounts::create_token))
        .route("/api/v2/environment_auth/{jti}", delete(accounts::revoke_token))
}

#[cfg(test)]
mod tests {
    use super::is_inmanta_path;

    #[test]
    fn inmanta_paths_are_recognized() {
        for path in ["/api/v2/health", "/api/v1/version", "/api/v1/file/abc", "/api/v2/nothing"] {
            assert!(is_inmanta_path(path), "{path}");
        }
        for path in ["/api/v1/projects", "/api/v1/files/abc", "/health", "/api/v1/versions"] {
            assert!(!is_inmanta_path(path), "{path}");
        }
    }
}
