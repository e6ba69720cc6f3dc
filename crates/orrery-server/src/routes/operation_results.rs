//! Results of deploys and repairs: exact counts, and runs that changed something or failed.

use axum::Json;
use axum::extract::State;
use orrery_api::{OperationReport, OperationResult, Page};
use orrery_store::{Action, ActionKey, RunSelection};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::operation_results::{self, OperationEffects};
use crate::error::ServerError;
use crate::extract::{InEnvironment, Path, Query, encode_cursor, page_limit, parse_cursor};
use crate::state::ServerState;

use super::resources::action_view;

/// Returns exact counts of the effects of a deploy or a repair.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/operations/{id}/report", tag = "operations",
    params(("environment" = Uuid, Path), ("id" = Uuid, Path)),
    responses((status = 200, description = "The counts", body = OperationReport)))]
pub(super) async fn report(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, Uuid)>,
) -> Result<Json<OperationReport>, ServerError> {
    let key = environment.key;
    let OperationEffects { by_status, changes } =
        app.with_store(move |store| operation_results::count(store, key, id)).await?;
    Ok(Json(OperationReport {
        total: by_status.values().sum(),
        by_status,
        created: changes.created,
        updated: changes.updated,
        purged: changes.purged,
    }))
}

/// Filter of results.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ResultFilter {
    /// `changed` for successful changes, `bad` for failures.
    only: Option<String>,
    /// Maximum number of items. A page can have fewer, even none, without being the last.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

pub(super) fn result_view((resource, action): (String, Action)) -> OperationResult {
    let complaint = match action.outcome {
        Some(orrery_model::OutcomeStatus::Deployed) => None,
        Some(_) => action.failure_line().map(|line| line.message.clone()),
        None => Some("interrupted: the engine stopped first".to_owned()),
    };
    OperationResult {
        resource,
        message: complaint,
        hint: action.hint().map(str::to_owned),
        blocked_by: action.blocked_by().into_iter().map(str::to_owned).collect(),
        run: action_view(action),
    }
}

/// Lists the runs of a deploy or a repair that changed something or failed, in recording order.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/operations/{id}/results", tag = "operations",
    params(("environment" = Uuid, Path), ("id" = Uuid, Path), ResultFilter),
    responses((status = 200, description = "A page", body = Page<OperationResult>)))]
pub(super) async fn results(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, Uuid)>,
    Query(part): Query<ResultFilter>,
) -> Result<Json<Page<OperationResult>>, ServerError> {
    let limit = page_limit(part.limit)?;
    let after: Option<i64> = part.after.as_deref().map(parse_cursor).transpose()?;
    let which = match part.only.as_deref() {
        None => RunSelection::All,
        Some("changed") => RunSelection::Changed,
        Some("bad") => RunSelection::Bad,
        Some(other) => {
            let text = format!("only: {other:?} is neither changed nor bad");
            return Err(ServerError::rule("bad-filter", text));
        }
    };
    let key = environment.key;
    let after = after.map(ActionKey);
    let found = app
        .with_store(move |store| operation_results::list_runs(store, key, id, which, after, limit))
        .await?;
    let next = found.next.map(|last| encode_cursor(&last.0));
    Ok(Json(Page { items: found.runs.into_iter().map(result_view).collect(), next }))
}
