//! Facets of the list of resources.

use axum::Json;
use axum::extract::State;
use orrery_api::ResourceFacets;
use orrery_store::{ResourceQuery, StateFilter};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::facets;
use crate::app::operations::parse_statuses;
use crate::error::ServerError;
use crate::extract::{InEnvironment, Query, page_limit};
use crate::state::ServerState;

use super::{parse_pattern, parse_variants, split_list};

/// Filter of the facets, as that of the list of resources.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Agents, separated by commas.
    agent: Option<String>,
    /// Types, separated by commas: `std::File,std::Directory`.
    r#type: Option<String>,
    /// Part of the identifying value; with `*` or `?`, a pattern for the whole value. In any case.
    value: Option<String>,
    /// Any of these statuses, separated by commas: `failed,skipped`; or none of these: `!deployed`.
    status: Option<String>,
    /// Name of a resource set.
    set: Option<String>,
    /// Any of these, separated by commas: `compliant`, `has_update`, `non_compliant`, `undefined`.
    compliance: Option<String>,
    /// Outcomes of the last run, any of these, separated by commas: `failed,skipped`.
    last_outcome: Option<String>,
    /// True for resources that are not retried without a decision, false for the others.
    parked: Option<bool>,
    /// True for resources with an undefined or a bad requirement, false for the others.
    blocked: Option<bool>,
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
        agents: split_list(filter.agent.as_deref()),
        entities: split_list(filter.r#type.as_deref()),
        state: StateFilter {
            compliances: parse_variants("compliance", filter.compliance.as_deref())?,
            outcomes: parse_variants("last_outcome", filter.last_outcome.as_deref())?,
            parked: filter.parked,
            blocked: filter.blocked,
        },
        value: parse_pattern(filter.value.as_deref()),
        statuses,
        set: filter.set,
        ..ResourceQuery::default()
    };
    let counted = app.facet_cache().get(&app, environment.key, query).await?;
    Ok(Json(facets::largest(&counted, limit)))
}
