//! Results of deploys and repairs: exact counts, and the runs that changed something or did not end well.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::State;
use orrery_api::{OperationReport, OperationResult, Page};
use orrery_model::{ResourceId, Status};
use orrery_store::{
    Action, ActionKey, EnvironmentKey, EventfulRuns, RequestRecord, ResourceQuery, Store,
    StoreError,
};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::App;
use crate::extract::{InEnvironment, Path, Query, limit_of, page, place};
use crate::problem::ServerError;

use super::resources::shown_action;

/// Resources that are read at once.
const PAGE: usize = 10_000;

/// Resources that a deploy or a repair means. All that is given must hold.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Selection {
    agents: Option<BTreeSet<String>>,
    ids: Option<BTreeSet<String>>,
    filter: Option<SelectionFilter>,
}

/// Statuses are left out: they have changed since.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SelectionFilter {
    agent: Option<String>,
    entity: Option<String>,
    value: Option<String>,
    set: Option<String>,
}

impl Selection {
    fn of(
        store: &dyn Store,
        environment: EnvironmentKey,
        request: &RequestRecord,
    ) -> Result<Self, StoreError> {
        let mut selection: Selection =
            serde_json::from_value(request.payload.clone()).unwrap_or_default();
        if let Some(SelectionFilter { agent, entity, value, set }) = selection.filter.take() {
            let statuses = Vec::new();
            let query =
                ResourceQuery { agent, entity, value, statuses, set, ..ResourceQuery::default() };
            let mut found = BTreeSet::new();
            each(store, environment, &query, |id, _| {
                if selection.ids.as_ref().is_none_or(|ids| ids.contains(id)) {
                    found.insert(id.to_owned());
                }
            })?;
            selection.ids = Some(found);
        }
        if let Some(mut own) = ids_of_own_version(store, environment, request)? {
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

/// The resources of the version that was wanted when something was asked for, if another one was released since: what that brought is
/// none of its business.
fn ids_of_own_version(
    store: &dyn Store,
    environment: EnvironmentKey,
    request: &RequestRecord,
) -> Result<Option<BTreeSet<String>>, StoreError> {
    let versions = store.versions(environment)?;
    let released = || versions.iter().filter(|version| version.released);
    let own = released().rev().find(|one| one.released_at <= Some(request.created));
    let newest = released().next_back().map(|newest| newest.number);
    let Some(own) = own.filter(|own| Some(own.number) != newest) else { return Ok(None) };
    let mut ids = BTreeSet::new();
    store.read_version(environment, own.number, &mut |row| {
        ids.insert(row.id.to_owned());
    })?;
    Ok(Some(ids))
}

/// Visits resources that a version wants, with their statuses.
fn each(
    store: &dyn Store,
    environment: EnvironmentKey,
    query: &ResourceQuery,
    mut visit: impl FnMut(&str, Status),
) -> Result<(), StoreError> {
    let mut after: Option<String> = None;
    loop {
        let page = store.records().list_resources(environment, query, after.as_deref(), PAGE)?;
        for line in &page.lines {
            visit(line.summary.id.as_str(), line.summary.status);
        }
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// The request behind an operation, with the action after which it began.
fn find(
    store: &dyn Store,
    environment: EnvironmentKey,
    id: Uuid,
) -> Result<(RequestRecord, ActionKey), StoreError> {
    let request = store.records().request(id.as_bytes())?;
    let is_work = matches!(request.kind.as_str(), "deploy" | "repair");
    match request.latest_action {
        Some(latest) if request.environment == environment && is_work => Ok((request, latest)),
        _ => Err(StoreError::NotFound { kind: "deploy or repair", name: id.to_string() }),
    }
}

/// What a deploy or a repair did, counted exactly.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/operations/{id}/report", tag = "operations",
    params(("environment" = Uuid, Path), ("id" = Uuid, Path)),
    responses((status = 200, description = "The counts", body = OperationReport)))]
pub(super) async fn report(
    State(app): State<App>,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, Uuid)>,
) -> Result<Json<OperationReport>, ServerError> {
    let key = environment.key;
    let report = app
        .with_store(move |store| {
            let (request, latest) = find(store, key, id)?;
            let selection = Selection::of(store, key, &request)?;
            let mut by_status: BTreeMap<String, u64> = BTreeMap::new();
            let mut count = |status: Status, count: u64| {
                if status != Status::Orphaned && count > 0 {
                    *by_status.entry(status.as_str().to_owned()).or_default() += count;
                }
            };
            if selection.is_all() {
                for one in store.records().count_resources(key)? {
                    count(one.status, one.count);
                }
            } else {
                each(store, key, &ResourceQuery::default(), |id, status| {
                    count(status, selection.covers(id).into());
                })?;
            }
            let covers = |id: &str| selection.covers(id);
            let changes = store.records().count_changes(key, latest, &covers)?;
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

/// Which results to list.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Part {
    /// Only those that `changed` something and ended well, or only those that did not end well: `bad`.
    only: Option<String>,
    /// How many at most. A page may have fewer, also none, and still not be the last.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the page before.
    after: Option<String>,
}

fn shown((resource, action): (String, Action)) -> OperationResult {
    let complaint = match action.outcome {
        Some(orrery_model::OutcomeStatus::Deployed) => None,
        Some(_) => action.complaint().map(|line| line.message.clone()),
        None => Some("it was cut off: the engine ended before it did".to_owned()),
    };
    OperationResult {
        resource,
        message: complaint,
        hint: action.hint().map(str::to_owned),
        blocked_by: action.blocked_by().into_iter().map(str::to_owned).collect(),
        run: shown_action(action),
    }
}

/// The runs of a deploy or a repair that changed something or did not end well, in the order in which they were recorded.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/operations/{id}/results", tag = "operations",
    params(("environment" = Uuid, Path), ("id" = Uuid, Path), Part),
    responses((status = 200, description = "A page of them", body = Page<OperationResult>)))]
pub(super) async fn results(
    State(app): State<App>,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, Uuid)>,
    Query(part): Query<Part>,
) -> Result<Json<Page<OperationResult>>, ServerError> {
    let limit = limit_of(part.limit)?;
    let after: Option<i64> = part.after.as_deref().map(place).transpose()?;
    let which = match part.only.as_deref() {
        None => EventfulRuns::All,
        Some("changed") => EventfulRuns::Changed,
        Some("bad") => EventfulRuns::Bad,
        Some(other) => {
            let text = format!("only: {other:?} is neither changed nor bad");
            return Err(ServerError::rule("bad-filter", text));
        }
    };
    let key = environment.key;
    let (found, next, selection) = app
        .with_store(move |store| {
            let (request, latest) = find(store, key, id)?;
            let selection = Selection::of(store, key, &request)?;
            let after = ActionKey(after.unwrap_or(latest.0).max(latest.0));
            let found = store.records().eventful_runs(key, after, which, limit + 1)?;
            let (found, next) = page(found, limit, |(_, action)| action.key.0);
            Ok((found, next, selection))
        })
        .await?;
    let meant = found.into_iter().filter(|(resource, _)| selection.covers(resource));
    Ok(Json(Page { items: meant.map(shown).collect(), next }))
}
