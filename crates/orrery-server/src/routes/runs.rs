//! Handler runs of an environment, across resources.

use axum::Json;
use axum::extract::State;
use orrery_api::{OperationResult, Page};
use orrery_store::{ActionKey, RunQuery};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::ServerError;
use crate::extract::{InEnvironment, Query, encode_cursor, page_limit, parse_cursor};
use crate::state::ServerState;

use super::operation_results::result_view;
use super::{parse_time, parse_variants};

/// Filter of the runs.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Start time, at the earliest.
    since: Option<String>,
    /// True for runs that changed something, false for the others.
    changed: Option<bool>,
    /// Any of these outcomes, separated by commas: `failed,skipped`.
    outcome: Option<String>,
    /// Agent.
    agent: Option<String>,
    /// Maximum number of items. A page can have fewer, even none, without being the last.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

/// Lists handler runs, newest first.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/runs", tag = "resources", operation_id = "runs",
    params(("environment" = Uuid, Path), Filter),
    responses((status = 200, description = "A page", body = Page<OperationResult>)))]
pub(super) async fn list(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Query(filter): Query<Filter>,
) -> Result<Json<Page<OperationResult>>, ServerError> {
    let limit = page_limit(filter.limit)?;
    let before: Option<i64> = filter.after.as_deref().map(parse_cursor).transpose()?;
    let query = RunQuery {
        since: filter.since.as_deref().map(|text| parse_time("since", text)).transpose()?,
        changed: filter.changed,
        outcomes: parse_variants("outcome", filter.outcome.as_deref())?,
        agent: filter.agent,
    };
    let key = environment.key;
    let found = app
        .with_store(move |store| {
            store.actions().list_runs(key, &query, before.map(ActionKey), limit)
        })
        .await?;
    let next = found.next.map(|last| encode_cursor(&last.0));
    Ok(Json(Page { items: found.runs.into_iter().map(result_view).collect(), next }))
}
