//! Health of environments: counts, versions and the current operation of each.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use orrery_api::{EnvironmentSummary, Page};
use orrery_model::Status;

use crate::auth::Caller;
use crate::error::ServerError;
use crate::extract::Query;
use crate::state::ServerState;

use super::environments::{self, Filter};
use super::{operations, time};

/// Operations that are searched for an unfinished one.
const OPERATIONS_SEARCHED: usize = 20;

/// Lists the environments visible to the caller with their health. Sorted by project and name.
#[utoipa::path(get, path = "/api/v1/environment-summaries", tag = "environments", params(Filter),
    responses((status = 200, description = "A page, by project and name", body = Page<EnvironmentSummary>)))]
pub(super) async fn summaries(
    State(app): State<ServerState>,
    caller: Caller,
    Query(filter): Query<Filter>,
) -> Result<Json<Page<EnvironmentSummary>>, ServerError> {
    let (visible, next) = environments::visible_page(&app, &caller, &filter).await?;
    let mut items = Vec::with_capacity(visible.len());
    for (record, environment) in visible {
        let key = record.key;
        let counted = app.count_cache().get(&app, key).await?;
        let mut by_status: BTreeMap<Status, u64> = BTreeMap::new();
        for count in &counted.counts {
            *by_status.entry(count.status).or_default() += count.count;
        }
        let (active, newest, requests) = app
            .with_store(move |store| {
                Ok((
                    store.engine().processed_version(key)?,
                    store.versions().newest(key)?,
                    store.requests().list(key, None, OPERATIONS_SEARCHED)?,
                ))
            })
            .await?;
        let open = requests.into_iter().find(|request| request.finished.is_none());
        let wanted = by_status.iter().filter(|(status, _)| **status != Status::Orphaned);
        items.push(EnvironmentSummary {
            total: wanted.map(|(_, count)| count).sum(),
            by_status,
            counted_at: time(counted.at),
            active_version: active.map(|version| version.0),
            newest_version: newest.map(|version| version.0),
            operation: open.map(|request| operations::operation_for(&caller, &record, request)),
            environment,
        });
    }
    Ok(Json(Page { items, next }))
}
