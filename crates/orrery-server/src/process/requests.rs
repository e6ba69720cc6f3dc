//! Translates requests to events of the scheduler, and outcomes to JSON.

use orrery_executor::{RequestOutcome, RequestProgress};
use orrery_model::{ResourceId, Status};
use orrery_scheduler::{Event, Filter};
use orrery_store::{EnvironmentKey, RequestRecord, ResourceQuery, Store, StoreError};
use serde::Deserialize;
use serde_json::{Value, json};

/// Page size when a filter is resolved.
const PAGE: usize = 10_000;
/// Maximum number of names in an outcome.
const NAMES_MAX: usize = 20;

/// Selection of resources; all given conditions must hold.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Selection {
    agents: Option<Vec<String>>,
    ids: Option<Vec<String>>,
    filter: Option<SelectionFilter>,
    /// For a deploy: also verify compliant resources.
    verify: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SelectionFilter {
    agent: Option<String>,
    entity: Option<String>,
    value: Option<String>,
    statuses: Vec<String>,
    set: Option<String>,
}

/// Returns the event of a request, or the reason why it is invalid. A repair that an engine had
/// accepted before an interruption continues with the resources not deployed since then.
pub(super) fn event(
    store: &dyn Store,
    environment: EnvironmentKey,
    request: &RequestRecord,
) -> Result<Result<Event, String>, StoreError> {
    let selection: Selection = match serde_json::from_value(request.payload.clone()) {
        Ok(selection) => selection,
        Err(error) => return Ok(Err(format!("invalid request: {error}"))),
    };
    let verify = selection.verify;
    let filter = match selection.resolve(store, environment)? {
        Ok(filter) => filter,
        Err(refusal) => return Ok(Err(refusal)),
    };
    Ok(match request.kind.as_str() {
        "deploy" if !verify => Ok(Event::DeployDirty(filter)),
        "deploy" | "repair" => Ok(match request.taken {
            Some(since) => Event::ResumeVerify { filter, since },
            None => Event::Verify(filter),
        }),
        "cancel" => Ok(Event::Cancel(filter)),
        "facts" => Ok(Event::FactRefresh(filter.ids.unwrap_or_default())),
        other => Err(format!("unknown kind of request: {other:?}")),
    })
}

/// Outcome of a finished request.
pub(super) fn outcome(answer: &RequestOutcome) -> Value {
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
        return json!({"error": format!("the released version has none of these: {names}{more}")});
    }
    json!({
        "done": true,
        "matched": matched,
        "deployed": runs.deployed,
        "changed": runs.changed(),
        "created": runs.created,
        "updated": runs.updated,
        "purged": runs.purged,
        "failed": runs.failed,
        "skipped": runs.skipped,
        "unavailable": runs.unavailable,
        "non_compliant": runs.non_compliant,
        "cancelled": runs.cancelled,
        "as_wanted": compliant,
        "blocked": blocked,
        "withdrawn": withdrawn,
        "followed": followed,
        "unknown": listed,
    })
}

/// Progress of a request: paused agents that it waits for, and counts.
pub(super) fn progress(paused: &[String], progress: Option<&RequestProgress>) -> Value {
    let mut noted = json!({"paused_agents": paused});
    if let Some(RequestProgress { total, done, running }) = progress {
        noted["total"] = (*total).into();
        noted["done"] = (*done).into();
        noted["running"] = running.iter().map(ResourceId::as_str).collect();
    }
    noted
}

/// Reads the paused agents of the latest progress record.
pub(super) fn reported_paused(progress: Option<&Value>) -> Vec<String> {
    let agents = progress.and_then(|progress| progress["paused_agents"].as_array());
    agents.into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

impl Selection {
    fn resolve(
        self,
        store: &dyn Store,
        environment: EnvironmentKey,
    ) -> Result<Result<Filter, String>, StoreError> {
        let agents =
            self.agents.map(|names| names.iter().map(|name| name.as_str().into()).collect());
        let mut ids: Option<Vec<ResourceId>> = None;
        if let Some(given) = self.ids {
            let mut parsed = Vec::with_capacity(given.len());
            for text in given {
                match text.parse() {
                    Ok(id) => parsed.push(id),
                    Err(error) => return Ok(Err(format!("{error}"))),
                }
            }
            ids = Some(parsed);
        }
        if let Some(filter) = self.filter {
            let found = filter.find(store, environment)?;
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
}

impl SelectionFilter {
    fn find(
        self,
        store: &dyn Store,
        environment: EnvironmentKey,
    ) -> Result<Vec<ResourceId>, StoreError> {
        let SelectionFilter { agent, entity, value, statuses, set } = self;
        let statuses = Status::ALL
            .into_iter()
            .filter(|status| statuses.iter().any(|name| name == status.as_str()))
            .collect();
        // The same query as the list of resources in the API.
        let query =
            ResourceQuery { agent, entity, value, statuses, set, ..ResourceQuery::default() };
        let mut found = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let page =
                store.records().list_resources(environment, &query, after.as_deref(), PAGE)?;
            found.extend(page.lines.into_iter().map(|line| line.summary.id));
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(found),
            }
        }
    }
}
