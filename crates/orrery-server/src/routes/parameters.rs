//! Parameters of environments and facts of resources.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use orrery_api::{Page, Parameter, ParameterSet, ParameterUpdate};
use orrery_model::Timestamp;
use orrery_store::{
    CompileRequest, EnvironmentRecord, NewCompile, NewParameter, ParameterFilter, ParameterSource,
    StoreError, enqueue_consequence,
};
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::App;
use crate::auth::Noted;
use crate::extract::{Body, IfMatch, InEnvironment, Path, Query, etag, limit_of, page, place};
use crate::problem::ServerError;

use super::{active, time};

/// How long a fact is believed that has to be told again.
pub(crate) const FACT_EXPIRY: Duration = Duration::from_secs(3600);
/// A fact that was told so long ago is asked for again, so that it need not expire.
pub(crate) const FACT_RENEWAL: Duration = Duration::from_secs(FACT_EXPIRY.as_secs() / 3);
/// A resource is asked for its facts at most once in this time.
pub(crate) const FACTS_PAUSE: Duration = Duration::from_secs(60);
const NAME_MAX: usize = 1024;

fn shown(parameter: orrery_store::Parameter, now: Timestamp) -> Parameter {
    let source = match parameter.source {
        ParameterSource::Fact => "fact",
        ParameterSource::Plugin => "plugin",
        ParameterSource::User => "user",
        ParameterSource::Report => "report",
    };
    Parameter {
        name: parameter.name,
        value: parameter.value,
        resource: parameter.resource.map(|id| id.to_string()),
        source: source.to_owned(),
        expired: parameter.expires && parameter.updated + FACT_EXPIRY < now,
        updated: time(parameter.updated),
        expires: parameter.expires,
    }
}

fn check_name(name: &str) -> Result<(), ServerError> {
    if name.is_empty() || name.chars().count() > NAME_MAX {
        return Err(ServerError::field("name", format!("must have 1 to {NAME_MAX} characters")));
    }
    Ok(())
}

fn source_of(name: Option<&str>, default: ParameterSource) -> Result<ParameterSource, ServerError> {
    match name {
        None => Ok(default),
        Some("fact") => Ok(ParameterSource::Fact),
        Some("plugin") => Ok(ParameterSource::Plugin),
        Some("user") => Ok(ParameterSource::User),
        Some("report") => Ok(ParameterSource::Report),
        Some(other) => {
            let text = format!("{other:?} is none of fact, plugin, user, report");
            Err(ServerError::field("source", text))
        }
    }
}

/// Which parameters to list.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Only that of this name.
    name: Option<String>,
    /// How many at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// Parameters by name.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/parameters", tag = "parameters",
    params(("environment" = Uuid, Path), Filter),
    responses((status = 200, description = "A page of them", body = Page<Parameter>)))]
pub(super) async fn list(
    State(app): State<App>,
    InEnvironment(environment): InEnvironment,
    Query(filter): Query<Filter>,
) -> Result<Json<Page<Parameter>>, ServerError> {
    let limit = limit_of(filter.limit)?;
    let after: String = filter.after.as_deref().map(place).transpose()?.unwrap_or_default();
    let now = app.now();
    let found = app
        .with_store(move |store| {
            let wanted =
                ParameterFilter { name: filter.name.as_deref(), ..ParameterFilter::default() };
            store.records().list_parameters(environment.key, &wanted, &after, limit + 1)
        })
        .await?;
    let (found, next) = page(found, limit, |parameter| parameter.name.clone());
    Ok(Json(Page { items: found.into_iter().map(|each| shown(each, now)).collect(), next }))
}

/// One parameter.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/parameters/{name}", tag = "parameters",
    params(("environment" = Uuid, Path), ("name" = String, Path)),
    responses((status = 200, description = "The parameter", body = Parameter)))]
pub(super) async fn get(
    State(app): State<App>,
    InEnvironment(environment): InEnvironment,
    Path((_, name)): Path<(Uuid, String)>,
) -> Result<(HeaderMap, Json<Parameter>), ServerError> {
    let now = app.now();
    let found = app
        .with_store(move |store| store.records().parameter(environment.key, &name, None))
        .await?;
    // Whoever sets it again sets it later.
    Ok((etag(found.updated.0), Json(shown(found, now))))
}

/// Sets a value and, in the same transaction, asks for the compile that it makes necessary.
async fn set(
    app: &App,
    environment: EnvironmentRecord,
    name: String,
    resource: Option<String>,
    expected: Option<i64>,
    update: ParameterUpdate,
) -> Result<Noted<(HeaderMap, Json<ParameterSet>)>, ServerError> {
    active(&environment)?;
    check_name(&name)?;
    let is_fact = resource.is_some();
    if !is_fact && update.expires == Some(true) {
        return Err(ServerError::rule("parameter-expires", "parameters do not expire, facts do"));
    }
    let default = if is_fact { ParameterSource::Fact } else { ParameterSource::User };
    let source = source_of(update.source.as_deref(), default)?;
    let (key, now, compile) = (environment.key, app.now(), Uuid::new_v4());
    let set = app
        .change(move |store| {
            let new = NewParameter {
                metadata: update.metadata.as_ref(),
                name: &name,
                value: &update.value,
                resource: resource.as_deref(),
                source,
                expires: update.expires.unwrap_or(is_fact),
            };
            let reason = json!({
                "type": "param", "message": format!("{name} was set"), "param": name, "resource_id": resource,
            });
            let request = recompile(reason);
            let asked = std::cell::Cell::new(false);
            let is_due = |changed: usize, resolved: usize| {
                resolved > 0 || (update.recompile && changed > 0)
            };
            let effect = store.records().put_parameter_if(key, &new, expected, now, &|sql, effect| {
                if is_due(effect.changed, effect.resolved) {
                    let new = NewCompile { id: compile.into_bytes(), request: &request };
                    asked.set(enqueue_consequence(sql, key, &new, now)?);
                }
                Ok(())
            })?;
            let parameter = store.records().parameter(key, &name, resource.as_deref())?;
            let revision = parameter.updated.0;
            let set = ParameterSet {
                parameter: shown(parameter, now),
                changed: effect.changed > 0,
                resolved: effect.resolved,
                compile: asked.get().then_some(compile),
            };
            Ok((revision, set))
        })
        .await?;
    let (revision, set) = set;
    let what = if is_fact { "fact" } else { "parameter" };
    let changed = if set.changed { "set" } else { "is the same" };
    let detail = format!("{what} {} {changed}", set.parameter.name);
    Ok(Noted(detail, (etag(revision), Json(set))))
}

/// A compile because of a value.
fn recompile(reason: serde_json::Value) -> CompileRequest {
    let metadata = match reason {
        serde_json::Value::Object(metadata) => metadata,
        _ => serde_json::Map::new(),
    };
    CompileRequest { metadata, ..CompileRequest::default() }
}

/// Sets a parameter. If a compile did not know it, or `recompile` is given and the value is another one, a compile is asked for.
#[utoipa::path(put, path = "/api/v1/environments/{environment}/parameters/{name}", tag = "parameters",
    params(("environment" = Uuid, Path), ("name" = String, Path)), request_body = ParameterUpdate,
    responses((status = 200, description = "As it is now, and what it did", body = ParameterSet)))]
pub(super) async fn put(
    State(app): State<App>,
    InEnvironment(environment): InEnvironment,
    Path((_, name)): Path<(Uuid, String)>,
    IfMatch(expected): IfMatch,
    Body(update): Body<ParameterUpdate>,
) -> Result<Noted<(HeaderMap, Json<ParameterSet>)>, ServerError> {
    set(&app, environment, name, None, expected, update).await
}

async fn forget(
    app: &App,
    environment: EnvironmentRecord,
    name: String,
    resource: Option<String>,
    expected: Option<i64>,
) -> Result<StatusCode, ServerError> {
    active(&environment)?;
    let (key, now, compile) = (environment.key, app.now(), Uuid::new_v4().into_bytes());
    app.change(move |store| {
        let message = format!("{name} was deleted");
        let request = recompile(json!({
            "type": "param", "message": message, "param": name, "resource_id": resource,
        }));
        let named = (&*name, resource.as_deref());
        store.records().delete_parameter_if(key, named, expected, now, &|sql| {
            let new = NewCompile { id: compile, request: &request };
            enqueue_consequence(sql, key, &new, now).map(drop)
        })
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Deletes a parameter, and asks for a compile.
#[utoipa::path(delete, path = "/api/v1/environments/{environment}/parameters/{name}", tag = "parameters",
    params(("environment" = Uuid, Path), ("name" = String, Path)),
    responses((status = 204, description = "Deleted")))]
pub(super) async fn delete(
    State(app): State<App>,
    InEnvironment(environment): InEnvironment,
    Path((_, name)): Path<(Uuid, String)>,
    IfMatch(expected): IfMatch,
) -> Result<StatusCode, ServerError> {
    forget(&app, environment, name, None, expected).await
}

/// Which facts to list.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct FactFilter {
    /// Only those of this name.
    name: Option<String>,
    /// Only those of this resource.
    resource: Option<String>,
    /// Only those that have to be told again from time to time, or have not.
    expires: Option<bool>,
    /// How many at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// Facts of all resources.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/facts", tag = "facts",
    params(("environment" = Uuid, Path), FactFilter),
    responses((status = 200, description = "A page of them", body = Page<Parameter>)))]
pub(super) async fn facts(
    State(app): State<App>,
    InEnvironment(environment): InEnvironment,
    Query(filter): Query<FactFilter>,
) -> Result<Json<Page<Parameter>>, ServerError> {
    let limit = limit_of(filter.limit)?;
    let after: Option<(i64, String)> = filter.after.as_deref().map(place).transpose()?;
    let now = app.now();
    let found = app
        .with_store(move |store| {
            let wanted = ParameterFilter {
                name: filter.name.as_deref(),
                resource: filter.resource.as_deref(),
                expires: filter.expires,
            };
            let after = after.unwrap_or((0, String::new()));
            store.records().list_facts(environment.key, &wanted, &after, limit + 1)
        })
        .await?;
    let (found, next) = page(found, limit, |(place, _)| place.clone());
    Ok(Json(Page { items: found.into_iter().map(|(_, fact)| shown(fact, now)).collect(), next }))
}

/// One fact of a resource. If it is not known, or too old, the resource is asked for it, and this answers 404: try again later.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/resources/{id}/facts/{name}", tag = "facts",
    params(("environment" = Uuid, Path), ("id" = String, Path, description = "The id, percent-encoded"), ("name" = String, Path)),
    responses((status = 200, description = "The fact", body = Parameter)))]
pub(super) async fn fact(
    State(app): State<App>,
    InEnvironment(environment): InEnvironment,
    Path((_, id, name)): Path<(Uuid, String, String)>,
) -> Result<Json<Parameter>, ServerError> {
    let (key, now) = (environment.key, app.now());
    let found = app
        .with_store(move |store| {
            let found = match store.records().parameter(key, &name, Some(&id)) {
                Ok(fact) => Some(shown(fact, now)).filter(|fact| !fact.expired),
                Err(StoreError::NotFound { .. }) => None,
                Err(error) => return Err(error),
            };
            if found.is_none() {
                store.records().ask_for_facts(key, &id, FACTS_PAUSE, now)?;
            }
            Ok(found)
        })
        .await?;
    match found {
        Some(fact) => Ok(Json(fact)),
        None => {
            app.nudge();
            Err(ServerError::Refused {
                status: StatusCode::NOT_FOUND,
                code: "fact-requested",
                detail: "the fact is not known; the resource was asked for it: try again later"
                    .to_owned(),
            })
        }
    }
}

/// Sets a fact of a resource. If a compile did not know it, or `recompile` is given and the value is another one, a compile is asked
/// for.
#[utoipa::path(put, path = "/api/v1/environments/{environment}/resources/{id}/facts/{name}", tag = "facts",
    params(("environment" = Uuid, Path), ("id" = String, Path, description = "The id, percent-encoded"), ("name" = String, Path)),
    request_body = ParameterUpdate, responses((status = 200, description = "As it is now, and what it did", body = ParameterSet)))]
pub(super) async fn put_fact(
    State(app): State<App>,
    InEnvironment(environment): InEnvironment,
    Path((_, id, name)): Path<(Uuid, String, String)>,
    Body(update): Body<ParameterUpdate>,
) -> Result<Noted<Json<ParameterSet>>, ServerError> {
    let Noted(detail, (_, set)) = set(&app, environment, name, Some(id), None, update).await?;
    Ok(Noted(detail, set))
}

/// Deletes a fact of a resource, and asks for a compile.
#[utoipa::path(delete, path = "/api/v1/environments/{environment}/resources/{id}/facts/{name}", tag = "facts",
    params(("environment" = Uuid, Path), ("id" = String, Path, description = "The id, percent-encoded"), ("name" = String, Path)),
    responses((status = 204, description = "Deleted")))]
pub(super) async fn delete_fact(
    State(app): State<App>,
    InEnvironment(environment): InEnvironment,
    Path((_, id, name)): Path<(Uuid, String, String)>,
) -> Result<StatusCode, ServerError> {
    forget(&app, environment, name, Some(id), None).await
}

/// Asks a resource for its facts, unless somebody did so within the last minute.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/resources/{id}/refresh-facts", tag = "facts",
    params(("environment" = Uuid, Path), ("id" = String, Path, description = "The id, percent-encoded")),
    responses((status = 204, description = "Asked, now or a moment ago")))]
pub(super) async fn refresh(
    State(app): State<App>,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, String)>,
) -> Result<StatusCode, ServerError> {
    active(&environment)?;
    let now = app.now();
    app.change(move |store| store.records().ask_for_facts(environment.key, &id, FACTS_PAUSE, now))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
