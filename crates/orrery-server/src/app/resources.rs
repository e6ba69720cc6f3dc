//! Resources: counts, details, relations and logs.

use std::collections::BTreeMap;

use orrery_model::{LogLevel, LogLine, Status, Timestamp, VersionNumber};
use orrery_store::{
    Action, ActionKey, ActionKind, EnvironmentKey, EnvironmentRecord, ResourceLine, Store,
    StoreError,
};

use crate::batch_loader::{self, LoadedResource};
use crate::count_cache::CachedCounts;
use crate::error::ServerError;
use crate::services::Services;
use crate::settings::EnvironmentSettings;
use crate::state::ServerState;

/// Maximum number of actions to read for a page of log lines.
const ACTIONS_READ_MAX: usize = 500;

/// Numbers of resources. Orphans count in `by_status` and `removed` only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourceTotals {
    pub(crate) total: u64,
    pub(crate) by_status: BTreeMap<Status, u64>,
    pub(crate) parked: u64,
    /// Deployed removals.
    pub(crate) removed: u64,
    /// Time of the oldest latest run.
    pub(crate) verified_since: Option<Timestamp>,
}

impl ResourceTotals {
    pub(crate) fn new(counted: &CachedCounts) -> Self {
        let mut totals = ResourceTotals::default();
        for count in &counted.counts {
            if count.status == Status::Deployed {
                totals.removed += count.removals;
            }
            *totals.by_status.entry(count.status).or_default() += count.count;
            if count.status != Status::Orphaned {
                totals.total += count.count;
                totals.parked += count.parked;
            }
        }
        let wanted = counted.counts.iter().filter(|count| count.status != Status::Orphaned);
        totals.verified_since = wanted.filter_map(|count| count.oldest_run).min();
        totals
    }
}

/// A resource with what its environment adds to it.
#[derive(Debug)]
pub(crate) struct ResourceInEnvironment {
    pub(crate) loaded: LoadedResource,
    /// Time of the next automatic run.
    pub(crate) next_run: Option<Timestamp>,
    /// True if a deploy or a repair of the resource can be requested.
    pub(crate) is_deployable: bool,
    /// True if a refresh of its facts can be requested.
    pub(crate) has_facts: bool,
}

/// Loads a resource.
pub(crate) async fn get(
    state: &ServerState,
    environment: &EnvironmentRecord,
    id: String,
) -> Result<ResourceInEnvironment, ServerError> {
    let key = environment.key;
    let loaded = state.batch_loader().resource(state, key, id).await?;
    let line = &loaded.details.line;
    // A resource that has run was released; the query costs as much as the rest.
    let has_run = line.summary.state.last_run_at.is_some();
    let is_released =
        has_run || state.with_store(move |store| store.versions().has_release(key)).await?;
    let next_run = next_run(state, environment, line).await?;
    let is_managed = line.summary.status != Status::Orphaned && !environment.deleting;
    Ok(ResourceInEnvironment {
        loaded,
        next_run,
        is_deployable: is_managed && !environment.halted && is_released,
        has_facts: is_managed,
    })
}

/// Returns the time of the next automatic run. Not queried for compliant resources, which are the
/// most.
async fn next_run(
    services: &Services,
    environment: &EnvironmentRecord,
    line: &ResourceLine,
) -> Result<Option<Timestamp>, ServerError> {
    let ResourceLine { summary, .. } = line;
    let at_rest = !matches!(
        summary.status,
        Status::Deployed | Status::Deploying | Status::Available | Status::Orphaned
    );
    if !at_rest || environment.halted || environment.deleting {
        return Ok(None);
    }
    let key = environment.key;
    let settings = services.with_store(move |store| store.settings().values(key)).await?;
    let settings = EnvironmentSettings::from_map(&settings).scheduling();
    let next = settings.next_run(&summary.id, &summary.state, services.now());
    Ok(next.map(|(at, _)| at))
}

/// Ids and statuses of related resources.
pub(crate) type RelatedResources = Vec<(String, Status)>;

/// Lists the dependents of a resource after an id, with their statuses. Returns the last id, if there
/// are more.
pub(crate) fn dependents(
    store: &Store,
    environment: EnvironmentKey,
    id: &str,
    after: &str,
    limit: usize,
) -> Result<(RelatedResources, Option<String>), StoreError> {
    let mut found = store.resources().dependents_after(environment, id, after, limit + 1)?;
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(|(_, name)| name.clone());
    let keys: Vec<_> = found.into_iter().map(|(key, _)| key).collect();
    Ok((batch_loader::related(&keys, &store.resources().statuses(&keys)?), next))
}

/// Lists the actions of a resource, newest first. Fails for an unknown resource.
pub(crate) fn actions(
    store: &Store,
    environment: EnvironmentKey,
    id: &str,
    before: Option<ActionKey>,
    limit: usize,
) -> Result<Vec<Action>, StoreError> {
    store.resources().line(environment, id)?;
    store.actions().of_resource(environment, id, before, limit)
}

/// Conditions on log lines. All given ones must hold.
#[derive(Clone, Debug)]
pub(crate) struct LogQuery {
    pub(crate) min_level: LogLevel,
    pub(crate) kind: Option<ActionKind>,
    pub(crate) since: Option<Timestamp>,
    /// Exclusive.
    pub(crate) until: Option<Timestamp>,
    /// Text in the message.
    pub(crate) message: Option<String>,
}

impl LogQuery {
    fn matches(&self, line: &LogLine) -> bool {
        line.level >= self.min_level
            && self.since.is_none_or(|since| line.at >= since)
            && self.until.is_none_or(|until| line.at < until)
            && self.message.as_ref().is_none_or(|text| line.message.contains(text))
    }
}

/// A log line and its action.
#[derive(Clone, Debug)]
pub(crate) struct ActionLogLine {
    pub(crate) action: ActionKey,
    pub(crate) kind: ActionKind,
    pub(crate) version: VersionNumber,
    pub(crate) line: LogLine,
}

/// Position in the log: an action, and the number of its lines that were returned.
pub(crate) type LogPosition = (i64, usize);

/// Lists log lines of a resource, newest first. Returns the position of the next page, if there may
/// be more.
pub(crate) fn logs(
    store: &Store,
    environment: EnvironmentKey,
    id: &str,
    query: &LogQuery,
    after: Option<LogPosition>,
    limit: usize,
) -> Result<(Vec<ActionLogLine>, Option<LogPosition>), StoreError> {
    let before = after.map(|(action, _)| ActionKey(action.saturating_add(1)));
    let actions = actions(store, environment, id, before, ACTIONS_READ_MAX)?;
    let more = actions.len() == ACTIONS_READ_MAX;
    let mut found = Vec::new();
    let mut last = None;
    for action in actions {
        let key = action.key.0;
        let shown = after.filter(|(at, _)| *at == key).map_or(0, |(_, shown)| shown);
        last = Some((key - 1, 0));
        if query.kind.is_some_and(|kind| kind != action.kind) {
            continue;
        }
        for (index, line) in action.log.iter().rev().enumerate().skip(shown) {
            if !query.matches(line) {
                continue;
            }
            if found.len() == limit {
                return Ok((found, Some((key, index))));
            }
            found.push(ActionLogLine {
                action: action.key,
                kind: action.kind,
                version: action.version,
                line: line.clone(),
            });
        }
    }
    Ok((found, last.filter(|_| more)))
}
