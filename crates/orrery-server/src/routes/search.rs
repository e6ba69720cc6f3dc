//! Search over all environments.

use axum::Json;
use axum::extract::State;
use orrery_api::{SearchKind, SearchResult};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::search::{self, Search};
use crate::auth::Caller;
use crate::error::ServerError;
use crate::extract::Query;
use crate::state::ServerState;

/// Longest text of a search.
const TEXT_MAX: usize = 200;
/// Hits of each kind.
const LIMIT: u32 = 10;
const LIMIT_MAX: u32 = 100;

/// Parameters of a search.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Parameters {
    /// Text: part of the identifying value of a resource, part of the name of an agent, or the
    /// number of a version.
    #[param(min_length = 1, max_length = 200)]
    q: String,
    /// Environment to search first.
    environment: Option<Uuid>,
    /// Kinds of hits, separated by commas: `resource,agent,version`. All if absent.
    kinds: Option<String>,
    /// Maximum number of hits of each kind; 10 if absent.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
}

/// Searches resources, agents and versions in the environments visible to the caller.
#[utoipa::path(get, path = "/api/v1/search", tag = "search", params(Parameters),
    responses((status = 200, description = "The hits", body = SearchResult)))]
pub(super) async fn search(
    State(app): State<ServerState>,
    caller: Caller,
    Query(parameters): Query<Parameters>,
) -> Result<Json<SearchResult>, ServerError> {
    let text = parameters.q.trim().to_owned();
    if text.is_empty() || text.chars().count() > TEXT_MAX {
        let text = format!("q: expected 1 to {TEXT_MAX} characters");
        return Err(ServerError::rule("bad-filter", text));
    }
    let limit = parameters.limit.unwrap_or(LIMIT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        let text = format!("limit: expected 1 to {LIMIT_MAX}");
        return Err(ServerError::rule("bad-filter", text));
    }
    let kinds = parameters.kinds.as_deref().unwrap_or_default();
    let kinds = kinds.split(',').filter(|kind| !kind.is_empty());
    let kinds = kinds.map(|kind| super::parse_filter::<SearchKind>("kinds", Some(kind)));
    let kinds = kinds.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    let limit = usize::try_from(limit).unwrap_or(1);
    let search = Search { text, environment: parameters.environment, kinds, limit };
    Ok(Json(search::find(&app, &caller, search).await?))
}
