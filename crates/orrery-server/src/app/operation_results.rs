//! Results of deploys and repairs: exact counts, and runs that changed something or failed.

use std::collections::{BTreeMap, BTreeSet};

use orrery_model::{Pattern, ResourceId, Status};
use orrery_store::{
    Action, ActionKey, ChangeCounts, EnvironmentKey, RequestKind, RequestRecord, ResourceQuery,
    RunSelection, Selection, SelectionFilter, Store, StoreError,
};
use uuid::Uuid;

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

/// Effects of a deploy or a repair.
#[derive(Debug)]
pub(crate) struct OperationEffects {
    /// Present statuses of the selected resources, without orphans.
    pub(crate) by_status: BTreeMap<Status, u64>,
    pub(crate) changes: ChangeCounts,
}

/// Counts the effects of a deploy or a repair.
pub(crate) fn count(
    store: &Store,
    environment: EnvironmentKey,
    id: Uuid,
) -> Result<OperationEffects, StoreError> {
    let (request, latest) = find_request(store, environment, id)?;
    let selection = SelectedResources::from_request(store, environment, &request)?;
    let mut by_status: BTreeMap<Status, u64> = BTreeMap::new();
    let mut count = |status: Status, count: u64| {
        if status != Status::Orphaned && count > 0 {
            *by_status.entry(status).or_default() += count;
        }
    };
    if selection.is_all() {
        for one in store.resources().count(environment)? {
            count(one.status, one.count);
        }
    } else {
        visit_resources(store, environment, &ResourceQuery::default(), |id, status| {
            count(status, selection.covers(id).into());
        })?;
    }
    let covers = |id: &str| selection.covers(id);
    let changes = store.actions().count_changes(environment, latest, &covers)?;
    Ok(OperationEffects { by_status, changes })
}

/// Runs of a deploy or a repair that changed something or failed.
#[derive(Debug)]
pub(crate) struct EventfulRuns {
    /// Resources and their runs, in recording order.
    pub(crate) runs: Vec<(String, Action)>,
    /// The last run that was read, if there are more.
    pub(crate) next: Option<ActionKey>,
}

/// Lists the runs of a deploy or a repair after a place in the log. A page can have fewer than
/// `limit`, even none, without being the last.
pub(crate) fn list_runs(
    store: &Store,
    environment: EnvironmentKey,
    id: Uuid,
    which: RunSelection,
    after: Option<ActionKey>,
    limit: usize,
) -> Result<EventfulRuns, StoreError> {
    let (request, latest) = find_request(store, environment, id)?;
    let selection = SelectedResources::from_request(store, environment, &request)?;
    let after = ActionKey(after.map_or(latest.0, |after| after.0.max(latest.0)));
    let mut runs = store.actions().eventful_runs(environment, after, which, limit + 1)?;
    let more = runs.len() > limit;
    runs.truncate(limit);
    let next = runs.last().filter(|_| more).map(|(_, action)| action.key);
    runs.retain(|(resource, _)| selection.covers(resource));
    Ok(EventfulRuns { runs, next })
}
