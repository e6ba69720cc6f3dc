//! Results of deploys and repairs: exact counts, and runs that changed something or failed.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::State;
use orrery_api::{OperationReport, OperationResult, Page};
use orrery_model::{Pattern, ResourceId, Status};
use orrery_store::{
    Action, ActionKey, EnvironmentKey, RequestKind, RequestRecord, ResourceQuery, RunSelection,
    Selection, SelectionFilter, Store, StoreError,
};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::error::ServerError;
use crate::extract::{InEnvironment, Path, Query, page_limit, parse_cursor, take_page};
use crate::state::ServerState;

use super::resources::action_view;

/// Number of resources to read at a time.
const PAGE: usize = 10_000;

/// Resources selected by a deploy or a repair. All given conditions must hold.
#[derive(Debug, Default)]
struct SelectedResources {
    agents: Option<BTreeSet<String>>,
    ids: Option<BTreeSet<String>>,
}

impl SelectedResources {
    fn from_request(
        store: &Store,
        environment: EnvironmentKey,
        request: &RequestRecord,
    ) -> Result<Self, StoreError> {
        let requested = match &request.kind {
            RequestKind::Deploy { selection, .. } | RequestKind::Repair(selection) => {
                selection.clone()
            }
            _ => Selection::default(),
        };
        let mut selection = SelectedResources {
            agents: requested.agents.map(BTreeSet::from_iter),
            ids: requested.ids.map(BTreeSet::from_iter),
        };
        if let Some(SelectionFilter { agent, entity, value, set, .. }) = requested.filter {
            // Statuses have changed since.
            let (statuses, value) = (Vec::new(), value.map(Pattern::new));
            let query =
                ResourceQuery { agent, entity, value, statuses, set, ..ResourceQuery::default() };
            let mut found = BTreeSet::new();
            visit_resources(store, environment, &query, |id, _| {
                if selection.ids.as_ref().is_none_or(|ids| ids.contains(id)) {
                    found.insert(id.to_owned());
                }
            })?;
            selection.ids = Some(found);
        }
        if let Some(mut own) = ids_at_request(store, environment, request)? {
            if let Some(ids) = &selection.ids {
                own.retain(|id| ids.contains(id));
            }
            selection.ids = Some(own);
        }
        Ok(selection)
    }

    fn is_all(&self) -> bool {
        self.agents.is_none() && self.ids.is_none()
    }

    fn covers(&self, id: &str) -> bool {
        let of_agent = |agents: &BTreeSet<String>| {
            id.parse::<ResourceId>().is_ok_and(|id| agents.contains(id.agent()))
        };
        self.ids.as_ref().is_none_or(|ids| ids.contains(id))
            && self.agents.as_ref().is_none_or(of_agent)
    }
}

/// Returns the resources of the version at the time of the request, if another one was released
/// since: resources of later versions do not count.
fn ids_at_request(
    store: &Store,
    environment: EnvironmentKey,
    request: &RequestRecord,
) -> Result<Option<BTreeSet<String>>, StoreError> {
    let versions = store.versions().list(environment)?;
    let released = || versions.iter().filter(|version| version.released);
    let own = released().rev().find(|one| one.released_at <= Some(request.created));
    let newest = released().next_back().map(|newest| newest.number);
    let Some(own) = own.filter(|own| Some(own.number) != newest) else { return Ok(None) };
    let mut ids = BTreeSet::new();
    store.versions().read(environment, own.number, &mut |row| {
        ids.insert(row.id.to_owned());
    })?;
    Ok(Some(ids))
}

/// Visits the resources of a version with their statuses.
fn visit_resources(
    store: &Store,
    environment: EnvironmentKey,
    query: &ResourceQuery,
    mut visit: impl FnMut(&str, Status),
) -> Result<(), StoreError> {
    let mut after: Option<String> = None;
    loop {
        let page = store.resources().list(environment, query, after.as_deref(), PAGE)?;
        for line in &page.lines {
            visit(line.summary.id.as_str(), line.summary.status);
        }
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// Finds the request of an operation, and the action after which it began.
fn find_request(
    store: &Store,
    environment: EnvironmentKey,
    id: Uuid,
) -> Result<(RequestRecord, ActionKey), StoreError> {
    let request = store.requests().get(id.into())?;
    let is_work = matches!(request.kind, RequestKind::Deploy { .. } | RequestKind::Repair(_));
    match request.latest_action {
        Some(latest) if request.environment == environment && is_work => Ok((request, latest)),
        _ => Err(StoreError::NotFound { kind: "deploy or repair", name: id.to_string() }),
    }
}

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
    let report = app
        .with_store(move |store| {
            let (request, latest) = find_request(store, key, id)?;
            let selection = SelectedResources::from_request(store, key, &request)?;
            let mut by_status: BTreeMap<Status, u64> = BTreeMap::new();
            let mut count = |status: Status, count: u64| {
                if status != Status::Orphaned && count > 0 {
                    *by_status.entry(status).or_default() += count;
                }
            };
            if selection.is_all() {
                for one in store.resources().count(key)? {
                    count(one.status, one.count);
                }
            } else {
                visit_resources(store, key, &ResourceQuery::default(), |id, status| {
                    count(status, selection.covers(id).into());
                })?;
            }
            let covers = |id: &str| selection.covers(id);
            let changes = store.actions().count_changes(key, latest, &covers)?;
            Ok(OperationReport {
                total: by_status.values().sum(),
                by_status,
                created: changes.created,
                updated: changes.updated,
                purged: changes.purged,
            })
        })
        .await?;
    Ok(Json(report))
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

fn result_view((resource, action): (String, Action)) -> OperationResult {
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
    let (found, next, selection) = app
        .with_store(move |store| {
            let (request, latest) = find_request(store, key, id)?;
            let selection = SelectedResources::from_request(store, key, &request)?;
            let after = ActionKey(after.unwrap_or(latest.0).max(latest.0));
            let found = store.actions().eventful_runs(key, after, which, limit + 1)?;
            let (found, next) = take_page(found, limit, |(_, action)| action.key.0);
            Ok((found, next, selection))
        })
        .await?;
    let meant = found.into_iter().filter(|(resource, _)| selection.covers(resource));
    Ok(Json(Page { items: meant.map(result_view).collect(), next }))
}
