//! The API, one module for each kind of thing.

mod audit;
mod health;
mod projects;
mod roles;
mod secrets;
mod sessions;
mod tokens;
mod users;

use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

/// The time as the API tells it.
pub(crate) fn time(at: orrery_model::Timestamp) -> String {
    at.to_string()
}

#[derive(OpenApi)]
#[openapi(info(
    title = "Orrery",
    description = "What is wanted of an infrastructure, what it is, and what to do about it."
))]
struct Description;

/// All routes, with their description.
pub(crate) fn all() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(health::health))
        .routes(routes!(health::live))
        .routes(routes!(health::ready))
        .routes(routes!(crate::metrics::show))
        .routes(routes!(projects::list, projects::create))
        .routes(routes!(projects::get, projects::update, projects::delete))
        .routes(routes!(sessions::setup))
        .routes(routes!(sessions::login))
        .routes(routes!(sessions::logout))
        .routes(routes!(sessions::renew))
        .routes(routes!(sessions::who))
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
        .routes(routes!(audit::list))
        .routes(routes!(audit::verify))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::revoke))
}
