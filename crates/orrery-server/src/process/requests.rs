//! Translates requests to events of the scheduler, and outcomes to stored results.

use orrery_executor::RequestOutcome;
use orrery_model::{Pattern, ResourceId};
use orrery_scheduler::{Event, Filter};
use orrery_store::{
    EnvironmentKey, ProgressRecord, RequestCounts, RequestKind, RequestRecord, RequestResult,
    ResourceQuery, RunCounts, RunProgress, Selection, SelectionFilter, Store, StoreError,
};

/// Page size when a filter is resolved.
const PAGE: usize = 10_000;
/// Maximum number of names in an outcome.
const NAMES_MAX: usize = 20;

/// Returns the event of a request, or the reason why it is invalid. A repair that an engine had
/// accepted before an interruption continues with the resources not deployed since then.
pub(super) fn event(
    store: &Store,
    environment: EnvironmentKey,
    request: &RequestRecord,
) -> Result<Result<Event, String>, StoreError> {
    let selection = match &request.kind {
        RequestKind::Deploy { selection, .. }
        | RequestKind::Repair(selection)
        | RequestKind::Cancel(selection)
        | RequestKind::Drift(selection)
        | RequestKind::Facts(selection) => selection,
        RequestKind::Unreadable { reason, .. } => return Ok(Err(reason.clone())),
        other @ (RequestKind::CancelOperation { .. }
        | RequestKind::DryRun { .. }
        | RequestKind::Clear { .. }
        | RequestKind::Delete) => {
            return Ok(Err(format!("unknown kind of request: {:?}", other.name())));
        }
    };
    let filter = match resolve(selection, store, environment)? {
        Ok(filter) => filter,
        Err(refusal) => return Ok(Err(refusal)),
    };
    Ok(Ok(match &request.kind {
        RequestKind::Deploy { verify: false, .. } => Event::DeployDirty(filter),
        RequestKind::Cancel(_) => Event::Cancel(filter),
        RequestKind::Drift(_) => Event::Drift(filter),
        RequestKind::Facts(_) => Event::FactRefresh(filter.ids.unwrap_or_default()),
        // A deploy that verifies, or a repair.
        _ => match request.taken {
            Some(since) => Event::ResumeVerify { filter, since },
            None => Event::Verify(filter),
        },
    }))
}

/// Outcome of a finished request.
pub(super) fn result(answer: &RequestOutcome) -> RequestResult {
    let RequestOutcome {
        matched,
        runs,
        compliant,
        blocked,
        withdrawn,
        followed,
        unknown_ids,
        unknown_agents,
    } = answer;
    let unknown: Vec<String> = unknown_agents
        .iter()
        .map(|agent| format!("agent {agent}"))
        .chain(unknown_ids.iter().map(ResourceId::to_string))
        .collect();
    let listed = &unknown[..unknown.len().min(NAMES_MAX)];
    if *matched == 0 && !unknown.is_empty() {
        let more = unknown.len() - listed.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let names = listed.join(", ");
        let error = format!("the released version has none of these: {names}{more}");
        return RequestResult::Failed { error };
    }
    RequestResult::Done(Some(RequestCounts {
        matched: *matched as u64,
        deployed: runs.deployed,
        changed: runs.changed(),
        created: runs.created,
        updated: runs.updated,
        purged: runs.purged,
        failed: runs.failed,
        skipped: runs.skipped,
        unavailable: runs.unavailable,
        non_compliant: runs.non_compliant,
        cancelled: runs.cancelled,
        compliant: *compliant as u64,
        blocked: *blocked as u64,
        withdrawn: *withdrawn as u64,
        followed: *followed as u64,
        unknown: listed.to_vec(),
    }))
}

/// Progress of a request: paused agents that it waits for, and counts.
pub(super) fn progress(
    paused: &[String],
    progress: Option<&orrery_executor::RequestProgress>,
) -> ProgressRecord {
    let runs = progress.map(|orrery_executor::RequestProgress { total, done, running, runs }| {
        let running = running.iter().map(ResourceId::to_string).collect();
        let by_outcome = RunCounts {
            deployed: runs.deployed,
            changed: runs.changed(),
            failed: runs.failed,
            skipped: runs.skipped,
            unavailable: runs.unavailable,
            non_compliant: runs.non_compliant,
            cancelled: runs.cancelled,
        };
        RunProgress { total: *total, done: *done, running, by_outcome }
    });
    ProgressRecord { paused_agents: paused.to_vec(), runs }
}

fn resolve(
    selection: &Selection,
    store: &Store,
    environment: EnvironmentKey,
) -> Result<Result<Filter, String>, StoreError> {
    let agents = selection
        .agents
        .as_ref()
        .map(|names| names.iter().map(|name| name.as_str().into()).collect());
    let mut ids: Option<Vec<ResourceId>> = None;
    if let Some(given) = &selection.ids {
        let mut parsed = Vec::with_capacity(given.len());
        for text in given {
            match text.parse() {
                Ok(id) => parsed.push(id),
                Err(error) => return Ok(Err(format!("{error}"))),
            }
        }
        ids = Some(parsed);
    }
    if let Some(filter) = &selection.filter {
        let found = find(filter, store, environment)?;
        ids = Some(match ids {
            None => found,
            Some(given) => {
                let found: std::collections::BTreeSet<_> = found.into_iter().collect();
                given.into_iter().filter(|id| found.contains(id)).collect()
            }
        });
    }
    Ok(Ok(Filter { agents, ids }))
}

fn find(
    filter: &SelectionFilter,
    store: &Store,
    environment: EnvironmentKey,
) -> Result<Vec<ResourceId>, StoreError> {
    let SelectionFilter { agent, entity, value, statuses, set } = filter.clone();
    // The same query as the list of resources in the API.
    let value = value.map(Pattern::new);
    let query = ResourceQuery { agent, entity, value, statuses, set, ..ResourceQuery::default() };
    let mut found = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = store.resources().list(environment, &query, after.as_deref(), PAGE)?;
        found.extend(page.lines.into_iter().map(|line| line.summary.id));
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(found),
        }
    }
}
