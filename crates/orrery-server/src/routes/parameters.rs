//! Parameters of environments and facts of resources.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use orrery_api::{Page, Parameter, ParameterSet, ParameterUpdate, ValueSource};
use orrery_model::Timestamp;
use orrery_store::{
    CompileRequest, EnvironmentRecord, ParameterFilter, ParameterSource, StoredParameter,
};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::parameters::{self, ParameterChange, ParameterDraft, ParameterName};
use crate::auth::WithAuditDetail;
use crate::error::ServerError;
use crate::extract::{
    Body, IfMatch, InEnvironment, Path, Query, etag, page_limit, parse_cursor, take_page,
};
use crate::state::ServerState;

use super::time;

fn parameter_view(parameter: StoredParameter, now: Timestamp) -> Parameter {
    let expired = parameters::is_expired(&parameter, now);
    let source = match parameter.source {
        ParameterSource::Fact => ValueSource::Fact,
        ParameterSource::Plugin => ValueSource::Plugin,
        ParameterSource::User => ValueSource::User,
        ParameterSource::Report => ValueSource::Report,
    };
    Parameter {
        name: parameter.name,
        value: parameter.value,
        resource: parameter.resource.map(|id| id.to_string()),
        source,
        expired,
        updated: time(parameter.updated),
        expires: parameter.expires,
    }
}

fn source_of(source: ValueSource) -> ParameterSource {
    match source {
        ValueSource::Fact => ParameterSource::Fact,
        ValueSource::Plugin => ParameterSource::Plugin,
        ValueSource::User => ParameterSource::User,
        ValueSource::Report => ParameterSource::Report,
    }
}

/// Filter of the list of parameters.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Name.
    name: Option<String>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

/// Lists parameters by name.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/parameters", tag = "parameters",
    params(("environment" = Uuid, Path), Filter),
    responses((status = 200, description = "A page", body = Page<Parameter>)))]
pub(super) async fn list(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Query(filter): Query<Filter>,
) -> Result<Json<Page<Parameter>>, ServerError> {
    let limit = page_limit(filter.limit)?;
    let after: String = filter.after.as_deref().map(parse_cursor).transpose()?.unwrap_or_default();
    let now = app.now();
    let found = app
        .with_store(move |store| {
            let wanted =
                ParameterFilter { name: filter.name.as_deref(), ..ParameterFilter::default() };
            store.parameters().list(environment.key, &wanted, &after, limit + 1)
        })
        .await?;
    let (found, next) = take_page(found, limit, |parameter| parameter.name.clone());
    Ok(Json(Page {
        items: found.into_iter().map(|each| parameter_view(each, now)).collect(),
        next,
    }))
}

/// Returns a parameter.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/parameters/{name}", tag = "parameters",
    params(("environment" = Uuid, Path), ("name" = String, Path)),
    responses((status = 200, description = "The parameter", body = Parameter)))]
pub(super) async fn get(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, name)): Path<(Uuid, String)>,
) -> Result<(HeaderMap, Json<Parameter>), ServerError> {
    let now = app.now();
    let found =
        app.with_store(move |store| store.parameters().get(environment.key, &name, None)).await?;
    // The update time serves as the revision: each update has a later one.
    Ok((etag(found.updated.0), Json(parameter_view(found, now))))
}

async fn set(
    app: &ServerState,
    environment: EnvironmentRecord,
    name: ParameterName,
    expected: Option<i64>,
    update: ParameterUpdate,
) -> Result<WithAuditDetail<(HeaderMap, Json<ParameterSet>)>, ServerError> {
    let what = if name.resource.is_some() { "fact" } else { "parameter" };
    let draft = ParameterDraft {
        compile: recompile_request(&name, "set"),
        name,
        value: update.value,
        source: update.source.map(source_of),
        expires: update.expires,
        metadata: update.metadata,
        recompile: update.recompile,
    };
    let ParameterChange { parameter, effect, compile } =
        parameters::set(app, &environment, draft, expected).await?;
    let revision = parameter.updated.0;
    let set = ParameterSet {
        parameter: parameter_view(parameter, app.now()),
        changed: effect.changed > 0,
        resolved: effect.resolved,
        compile: compile.map(Uuid::from),
    };
    let changed = if set.changed { "set" } else { "is the same" };
    let detail = format!("{what} {} {changed}", set.parameter.name);
    Ok(WithAuditDetail(detail, (etag(revision), Json(set))))
}

/// Compile request for a changed value.
fn recompile_request(name: &ParameterName, change: &str) -> CompileRequest {
    let ParameterName { name, resource } = name;
    let mut request = CompileRequest::with_reason("param", &format!("{name} was {change}"));
    request.metadata.insert("param".to_owned(), name.as_str().into());
    request.metadata.insert("resource_id".to_owned(), resource.clone().into());
    request
}

/// Sets a parameter. Requests a compile if the value resolves an unknown, or if `recompile` is set
/// and it changed.
#[utoipa::path(put, path = "/api/v1/environments/{environment}/parameters/{name}", tag = "parameters",
    params(("environment" = Uuid, Path), ("name" = String, Path)), request_body = ParameterUpdate,
    responses((status = 200, description = "The new state, with its effects", body = ParameterSet)))]
pub(super) async fn put(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, name)): Path<(Uuid, String)>,
    IfMatch(expected): IfMatch,
    Body(update): Body<ParameterUpdate>,
) -> Result<WithAuditDetail<(HeaderMap, Json<ParameterSet>)>, ServerError> {
    set(&app, environment, ParameterName { name, resource: None }, expected, update).await
}

async fn delete_value(
    app: &ServerState,
    environment: &EnvironmentRecord,
    name: ParameterName,
    expected: Option<i64>,
) -> Result<StatusCode, ServerError> {
    let compile = recompile_request(&name, "deleted");
    parameters::delete(app, environment, name, expected, compile).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Deletes a parameter and requests a compile.
#[utoipa::path(delete, path = "/api/v1/environments/{environment}/parameters/{name}", tag = "parameters",
    params(("environment" = Uuid, Path), ("name" = String, Path)),
    responses((status = 204, description = "Deleted")))]
pub(super) async fn delete(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, name)): Path<(Uuid, String)>,
    IfMatch(expected): IfMatch,
) -> Result<StatusCode, ServerError> {
    delete_value(&app, &environment, ParameterName { name, resource: None }, expected).await
}

/// Filter of the list of facts.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct FactFilter {
    /// Name.
    name: Option<String>,
    /// Resource.
    resource: Option<String>,
    /// Expires without periodic updates, or not.
    expires: Option<bool>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

/// Lists facts of all resources.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/facts", tag = "facts",
    params(("environment" = Uuid, Path), FactFilter),
    responses((status = 200, description = "A page", body = Page<Parameter>)))]
pub(super) async fn facts(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Query(filter): Query<FactFilter>,
) -> Result<Json<Page<Parameter>>, ServerError> {
    let limit = page_limit(filter.limit)?;
    let after: Option<(i64, String)> = filter.after.as_deref().map(parse_cursor).transpose()?;
    let now = app.now();
    let found = app
        .with_store(move |store| {
            let wanted = ParameterFilter {
                name: filter.name.as_deref(),
                resource: filter.resource.as_deref(),
                expires: filter.expires,
            };
            let after = after.unwrap_or((0, String::new()));
            store.parameters().list_facts(environment.key, &wanted, &after, limit + 1)
        })
        .await?;
    let (found, next) = take_page(found, limit, |(place, _)| place.clone());
    Ok(Json(Page {
        items: found.into_iter().map(|(_, fact)| parameter_view(fact, now)).collect(),
        next,
    }))
}

/// Returns a fact of a resource. If it is missing or expired, requests a refresh and answers 404:
/// retry later.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/resources/{id}/facts/{name}", tag = "facts",
    params(("environment" = Uuid, Path), ("id" = String, Path, description = "The id, percent-encoded"), ("name" = String, Path)),
    responses((status = 200, description = "The fact", body = Parameter)))]
pub(super) async fn fact(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, id, name)): Path<(Uuid, String, String)>,
) -> Result<Json<Parameter>, ServerError> {
    let wanted = ParameterName { name, resource: Some(id) };
    match parameters::get_fresh(&app, environment.key, wanted).await? {
        Some(fact) => Ok(Json(parameter_view(fact, app.now()))),
        None => Err(ServerError::Refused {
            code: "fact-requested",
            detail: "the fact is missing or expired; a refresh was requested: try again later"
                .to_owned(),
        }),
    }
}

/// Sets a fact of a resource. Requests a compile if the value resolves an unknown, or if
/// `recompile` is set and it changed.
#[utoipa::path(put, path = "/api/v1/environments/{environment}/resources/{id}/facts/{name}", tag = "facts",
    params(("environment" = Uuid, Path), ("id" = String, Path, description = "The id, percent-encoded"), ("name" = String, Path)),
    request_body = ParameterUpdate, responses((status = 200, description = "The new state, with its effects", body = ParameterSet)))]
pub(super) async fn put_fact(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, id, name)): Path<(Uuid, String, String)>,
    Body(update): Body<ParameterUpdate>,
) -> Result<WithAuditDetail<Json<ParameterSet>>, ServerError> {
    let WithAuditDetail(detail, (_, set)) =
        set(&app, environment, ParameterName { name, resource: Some(id) }, None, update).await?;
    Ok(WithAuditDetail(detail, set))
}

/// Deletes a fact of a resource and requests a compile.
#[utoipa::path(delete, path = "/api/v1/environments/{environment}/resources/{id}/facts/{name}", tag = "facts",
    params(("environment" = Uuid, Path), ("id" = String, Path, description = "The id, percent-encoded"), ("name" = String, Path)),
    responses((status = 204, description = "Deleted")))]
pub(super) async fn delete_fact(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, id, name)): Path<(Uuid, String, String)>,
) -> Result<StatusCode, ServerError> {
    delete_value(&app, &environment, ParameterName { name, resource: Some(id) }, None).await
}

/// Refreshes the facts of a resource, at most once a minute.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/resources/{id}/refresh-facts", tag = "facts",
    params(("environment" = Uuid, Path), ("id" = String, Path, description = "The id, percent-encoded")),
    responses((status = 204, description = "Requested, now or within the last minute")))]
pub(super) async fn refresh(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, String)>,
) -> Result<StatusCode, ServerError> {
    parameters::refresh_facts(&app, &environment, id).await?;
    Ok(StatusCode::NO_CONTENT)
}
