//! Discovered resources.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use orrery_api::{DiscoveredResource, DiscoveredUpload, Page};
use orrery_store::{DiscoveredRecord, EnvironmentRecord, ResourceFilter};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::discovered::{self, DiscoveredDraft, InvalidDraft, UPLOADED_MAX};
use crate::error::ServerError;
use crate::extract::{Body, InEnvironment, Path, Query, encode_cursor, page_limit, parse_cursor};
use crate::state::ServerState;

use super::{environments, parse_pattern, segment, time};

fn discovered_view(
    environment: &EnvironmentRecord,
    record: DiscoveredRecord,
) -> DiscoveredResource {
    let path = environments::path_of(environment);
    let managed = record.managed.then(|| format!("{path}/resources/{}", segment(&record.name)));
    let attributes = match record.attributes {
        Value::Object(attributes) => attributes,
        _ => serde_json::Map::new(),
    };
    DiscoveredResource {
        id: record.name,
        attributes,
        discovered_at: time(record.discovered_at),
        discovery_resource: Some(record.discovery_resource).filter(|id| !id.is_empty()),
        managed,
    }
}

/// Filter of the list of discovered resources.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Managed by a version, or not.
    managed: Option<bool>,
    /// Agent.
    agent: Option<String>,
    /// Type.
    r#type: Option<String>,
    /// Part of the identifying value; with `*` or `?`, a pattern for the whole value. In any case.
    value: Option<String>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

/// Lists discovered resources by id.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/discovered", tag = "discovered resources",
    params(("environment" = Uuid, Path), Filter),
    responses((status = 200, description = "A page", body = Page<DiscoveredResource>)))]
pub(super) async fn list(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Query(filter): Query<Filter>,
) -> Result<Json<Page<DiscoveredResource>>, ServerError> {
    let limit = page_limit(filter.limit)?;
    let after: String = filter.after.as_deref().map(parse_cursor).transpose()?.unwrap_or_default();
    let (key, managed) = (environment.key, filter.managed);
    let wanted = ResourceFilter {
        agent: filter.agent,
        entity: filter.r#type,
        value: parse_pattern(filter.value.as_deref()),
        statuses: Vec::new(),
    };
    let (found, next) = app
        .with_store(move |store| {
            store.discovered().list_filtered(key, managed, &wanted, &after, limit)
        })
        .await?;
    let items = found.into_iter().map(|record| discovered_view(&environment, record)).collect();
    Ok(Json(Page { items, next: next.as_ref().map(encode_cursor) }))
}

/// Returns a discovered resource.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/discovered/{id}", tag = "discovered resources",
    params(("environment" = Uuid, Path), ("id" = String, Path, description = "The id, percent-encoded")),
    responses((status = 200, description = "The discovered resource", body = DiscoveredResource)))]
pub(super) async fn get(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, String)>,
) -> Result<Json<DiscoveredResource>, ServerError> {
    let key = environment.key;
    let found = app.with_store(move |store| store.discovered().get(key, &id)).await?;
    Ok(Json(discovered_view(&environment, found)))
}

/// Stores discovered resources and replaces known ones.
#[utoipa::path(put, path = "/api/v1/environments/{environment}/discovered", tag = "discovered resources",
    params(("environment" = Uuid, Path)), request_body = DiscoveredUpload,
    responses((status = 204, description = "Stored")))]
pub(super) async fn put(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Body(upload): Body<DiscoveredUpload>,
) -> Result<StatusCode, ServerError> {
    if upload.resources.len() > UPLOADED_MAX {
        let text = format!("must not have more than {UPLOADED_MAX} entries");
        return Err(ServerError::field("resources", text));
    }
    let draft = |found: orrery_api::NewDiscovered| DiscoveredDraft {
        id: found.id,
        attributes: Value::Object(found.attributes),
        discovery_resource: found.discovery_resource,
    };
    let drafts: Vec<DiscoveredDraft> = upload.resources.into_iter().map(draft).collect();
    discovered::check(&drafts).map_err(|InvalidDraft { index, part, reason }| {
        ServerError::field(format!("resources[{index}].{part}"), reason)
    })?;
    discovered::put(&app, &environment, drafts).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Deletes a discovered resource.
#[utoipa::path(delete, path = "/api/v1/environments/{environment}/discovered/{id}", tag = "discovered resources",
    params(("environment" = Uuid, Path), ("id" = String, Path, description = "The id, percent-encoded")),
    responses((status = 204, description = "Deleted")))]
pub(super) async fn delete(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, String)>,
) -> Result<StatusCode, ServerError> {
    discovered::delete(&app, environment.key, id).await?;
    Ok(StatusCode::NO_CONTENT)
}
