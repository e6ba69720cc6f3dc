//! Facets of the list of resources.

use axum::Json;
use axum::extract::State;
use orrery_api::ResourceFacets;
use orrery_store::ResourceQuery;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::facets;
use crate::app::operations::parse_statuses;
use crate::error::ServerError;
use crate::extract::{InEnvironment, Query, page_limit};
use crate::state::ServerState;

use super::parse_pattern;

/// Filter of the facets, as that of the list of resources.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Agent.
    agent: Option<String>,
    /// Type, such as `std::File`.
    r#type: Option<String>,
    /// Part of the identifying value; with `*` or `?`, a pattern for the whole value. In any case.
    value: Option<String>,
    /// Any of these statuses, separated by commas: `failed,skipped`; or none of these: `!deployed`.
    status: Option<String>,
    /// Name of a resource set.
    set: Option<String>,
    /// Maximum number of values of each facet.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// Returns the number of resources by status, type, agent and set, under a filter.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/resource-facets", tag = "resources", params(("environment" = Uuid, Path), Filter),
    responses((status = 200, description = "The facets", body = ResourceFacets)))]
pub(super) async fn count(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Query(filter): Query<Filter>,
) -> Result<Json<ResourceFacets>, ServerError> {
    let limit = page_limit(filter.limit)?;
    let statuses = parse_statuses(filter.status.as_deref().unwrap_or_default())
        .map_err(|reason| ServerError::rule("bad-filter", format!("status: {reason}")))?;
    let query = ResourceQuery {
        agent: filter.agent,
        entity: filter.r#type,
        value: parse_pattern(filter.value.as_deref()),
        statuses,
        set: filter.set,
        ..ResourceQuery::default()
    };
    let counted = app.facet_cache().get(&app, environment.key, query).await?;
    Ok(Json(facets::largest(&counted, limit)))
}
