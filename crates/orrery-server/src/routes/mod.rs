//! Routes of the API, one module per noun.

mod activity;
mod agents;
mod audit;
mod cluster_documents;
mod clusters;
mod compiles;
mod discovered;
mod dry_runs;
mod effects;
mod environment_summaries;
mod environments;
mod events;
mod files;
mod graph;
mod health;
pub(crate) mod html_pages;
pub(crate) mod inventory;
mod metrics;
mod notifications;
mod operation_results;
mod operations;
mod parameters;
mod plugin_resources;
mod projects;
mod remote_agents;
mod resource_changes;
mod resource_facets;
mod resources;
mod roles;
mod runs;
mod search;
mod secrets;
mod server_metrics;
mod server_overview;
pub(crate) mod sessions;
mod settings;
mod tokens;
pub(crate) mod users;
mod versions;
mod webhooks;
mod why;

use std::str::FromStr;

use orrery_api::{Actions, ChangeEvent, Problem, Time, UnknownVariant};
use orrery_model::{Pattern, Timestamp};
use orrery_store::{EnvironmentRecord, StoreError};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::Caller;
use crate::error::ServerError;
use crate::state::ServerState;

/// Converts a time for the API.
pub(crate) fn time(at: Timestamp) -> Time {
    Time(at)
}

/// Parses a value of a closed set that the store holds as text.
fn parse_stored<T: FromStr<Err = UnknownVariant>>(name: &str, text: &str) -> Result<T, StoreError> {
    text.parse().map_err(|error| StoreError::Unreadable(format!("{name}: {error}")))
}

/// Parses a filter that is a value of a closed set.
fn parse_filter<T: FromStr<Err = UnknownVariant>>(
    name: &str,
    text: Option<&str>,
) -> Result<Option<T>, ServerError> {
    let read = text.map(str::parse).transpose();
    read.map_err(|error: UnknownVariant| {
        ServerError::rule("bad-filter", format!("{name}: {error}"))
    })
}

/// Parses a time of a request.
fn parse_time(name: &str, text: &str) -> Result<Timestamp, ServerError> {
    let read = text.parse::<jiff::Timestamp>();
    read.map(|at| Timestamp(at.as_microsecond())).map_err(|_| {
        let text =
            format!("{name}: {text:?} is not a time: expected one like 2026-11-16T09:30:00Z");
        ServerError::rule("bad-filter", text)
    })
}

/// Parses a filter by value; an empty text is none.
fn parse_pattern(text: Option<&str>) -> Option<Pattern> {
    text.filter(|text| !text.is_empty()).map(Pattern::new)
}

/// Splits a list of names, without empty ones.
fn split_list(text: Option<&str>) -> Vec<String> {
    let names = text.unwrap_or_default().split(',').map(str::trim);
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Parses a list of names of a closed set.
fn parse_variants<T: serde::de::DeserializeOwned>(
    name: &str,
    text: Option<&str>,
) -> Result<Vec<T>, ServerError> {
    let parse = |variant: String| {
        serde_json::from_value(serde_json::Value::String(variant))
            .map_err(|error| ServerError::rule("bad-filter", format!("{name}: {error}")))
    };
    split_list(text).into_iter().map(parse).collect()
}

/// Joins the selected names into one text.
fn join_names(given: &[(&str, bool)]) -> String {
    let names: Vec<&str> = given.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

/// Restricts actions to those that the caller may execute.
fn permitted_actions(
    caller: &Caller,
    environment: &EnvironmentRecord,
    mut actions: Actions,
) -> Actions {
    actions.retain(|_, path| caller.may_post(environment, path));
    actions
}

/// Encodes a text as a path segment.
fn segment(text: &str) -> String {
    let mut part = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                part.push(char::from(byte));
            }
            other => part.push_str(&format!("%{other:02X}")),
        }
    }
    part
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Orrery",
        description = "Desired state of an infrastructure, its actual state, and the operations between them."
    ),
    components(schemas(Problem, ChangeEvent, agents::AgentAction))
)]
struct Description;

/// Routes of every server, regardless of its roles.
pub(crate) fn health_routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(health::health))
        .routes(routes!(health::live))
        .routes(routes!(health::ready))
        .routes(routes!(server_metrics::show))
}

/// All routes, with their OpenAPI description.
pub(crate) fn all() -> OpenApiRouter<ServerState> {
    health_routes()
        .routes(routes!(projects::list, projects::create))
        .routes(routes!(projects::get, projects::update, projects::delete))
        .routes(routes!(sessions::setup))
        .routes(routes!(sessions::login))
        .routes(routes!(sessions::logout))
        .routes(routes!(sessions::renew))
        .routes(routes!(sessions::current_account))
        .routes(routes!(users::list, users::create))
        .routes(routes!(users::get, users::update, users::delete))
        .routes(routes!(users::set_password))
        .routes(routes!(roles::definitions))
        .routes(routes!(roles::list_everywhere, roles::assign_everywhere))
        .routes(routes!(roles::revoke_everywhere))
        .routes(routes!(roles::list_in_project, roles::assign_in_project))
        .routes(routes!(roles::revoke_in_project))
        .routes(routes!(roles::list_in_environment, roles::assign_in_environment))
        .routes(routes!(roles::revoke_in_environment))
        .routes(routes!(secrets::list_shared))
        .routes(routes!(secrets::put_shared, secrets::delete_shared))
        .routes(routes!(secrets::list_own))
        .routes(routes!(secrets::put_own, secrets::delete_own))
        .routes(routes!(cluster_documents::list_shared))
        .routes(routes!(
            cluster_documents::get_shared,
            cluster_documents::put_shared,
            cluster_documents::delete_shared
        ))
        .routes(routes!(cluster_documents::history_shared))
        .routes(routes!(cluster_documents::apply_shared))
        .routes(routes!(cluster_documents::solve_shared))
        .routes(routes!(cluster_documents::list_own))
        .routes(routes!(
            cluster_documents::get_own,
            cluster_documents::put_own,
            cluster_documents::delete_own
        ))
        .routes(routes!(cluster_documents::history_own))
        .routes(routes!(cluster_documents::apply_own))
        .routes(routes!(cluster_documents::solve_own))
        .routes(routes!(server_overview::show))
        .routes(routes!(clusters::list, clusters::create))
        .routes(routes!(clusters::get, clusters::update, clusters::delete))
        .routes(routes!(clusters::operations, clusters::operate))
        .routes(routes!(clusters::operation))
        .routes(routes!(clusters::pause))
        .routes(routes!(clusters::resume))
        .routes(routes!(clusters::abort))
        .routes(routes!(clusters::nodes))
        .routes(routes!(clusters::layout))
        .routes(routes!(clusters::connection))
        .routes(routes!(clusters::plugins))
        .routes(routes!(clusters::workers))
        .routes(routes!(plugin_resources::list))
        .routes(routes!(plugin_resources::sync))
        .routes(routes!(plugin_resources::upload))
        .routes(routes!(plugin_resources::delete))
        .routes(routes!(plugin_resources::stage))
        .routes(routes!(plugin_resources::recall))
        .routes(routes!(audit::list))
        .routes(routes!(audit::verify))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::revoke))
        .routes(routes!(environments::list, environments::create))
        .routes(routes!(environment_summaries::summaries))
        .routes(routes!(search::search))
        .routes(routes!(environments::get, environments::update, environments::delete))
        .routes(routes!(environments::halt))
        .routes(routes!(environments::resume))
        .routes(routes!(environments::clear))
        .routes(routes!(settings::list))
        .routes(routes!(settings::get, settings::put, settings::delete))
        .routes(routes!(settings::protect))
        .routes(routes!(webhooks::get, webhooks::renew, webhooks::delete))
        .routes(routes!(webhooks::receive))
        .routes(routes!(compiles::list, compiles::create))
        .routes(routes!(compiles::queue))
        .routes(routes!(compiles::get))
        .routes(routes!(compiles::cancel))
        .routes(routes!(versions::list, versions::upload))
        .routes(routes!(versions::reserve))
        .routes(routes!(versions::get, versions::delete))
        .routes(routes!(versions::resources))
        .routes(routes!(versions::unknowns))
        .routes(routes!(versions::compare))
        .routes(routes!(versions::compare_counts))
        .routes(routes!(versions::release))
        .routes(routes!(versions::roll_back))
        .routes(routes!(dry_runs::list, dry_runs::create))
        .routes(routes!(dry_runs::get))
        .routes(routes!(dry_runs::results))
        .routes(routes!(resources::list))
        .routes(routes!(resources::counts))
        .routes(routes!(resource_facets::count))
        .routes(routes!(graph::show))
        .routes(routes!(activity::show))
        .routes(routes!(runs::list))
        .routes(routes!(resource_changes::list))
        .routes(routes!(resources::get))
        .routes(routes!(resources::history))
        .routes(routes!(resources::provides))
        .routes(routes!(resources::actions))
        .routes(routes!(resources::logs))
        .routes(routes!(why::why))
        .routes(routes!(operations::deploy))
        .routes(routes!(operations::repair))
        .routes(routes!(effects::list))
        .routes(routes!(effects::settle))
        .routes(routes!(operations::list))
        .routes(routes!(operations::get))
        .routes(routes!(operations::cancel))
        .routes(routes!(operations::list_everywhere))
        .routes(routes!(operation_results::report))
        .routes(routes!(operation_results::results))
        .routes(routes!(agents::list))
        .routes(routes!(agents::get))
        .routes(routes!(agents::act_on_agent))
        .routes(routes!(agents::act_all))
        .routes(routes!(agents::resolve_placements))
        .routes(routes!(inventory::get, inventory::put))
        .routes(routes!(inventory::hosts))
        .routes(routes!(remote_agents::list))
        .routes(routes!(remote_agents::invitations, remote_agents::invite))
        .routes(routes!(remote_agents::withdraw))
        .routes(routes!(remote_agents::get, remote_agents::delete))
        .routes(routes!(remote_agents::revoke))
        .routes(routes!(parameters::list))
        .routes(routes!(parameters::get, parameters::put, parameters::delete))
        .routes(routes!(parameters::facts))
        .routes(routes!(parameters::fact, parameters::put_fact, parameters::delete_fact))
        .routes(routes!(parameters::refresh))
        .routes(routes!(notifications::list, notifications::update_all))
        .routes(routes!(notifications::count_unread))
        .routes(routes!(notifications::get, notifications::update))
        .routes(routes!(discovered::list, discovered::put))
        .routes(routes!(discovered::get, discovered::delete))
        .routes(routes!(files::get, files::put))
        .routes(routes!(files::missing))
        .routes(routes!(metrics::get))
        .routes(routes!(events::of_environment))
        .routes(routes!(events::of_all))
}
