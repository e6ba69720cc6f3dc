//! Resources: lists, details, history, logs and relations.

use axum::Json;
use axum::extract::State;
use orrery_api::{
    Actions, AttributeChange, Page, RelatedResource, RemovalState, ResourceAction,
    ResourceActionKind, ResourceAxes, ResourceCounts, ResourceDetails, ResourceHistoryEntry,
    ResourceLogLine, ResourceSummary, SourceLocation, Transitioning,
};
use orrery_model::{LogLevel, ResourceState, Status};
use orrery_store::{
    Action, ActionKey, ActionKind, RemovalStage, ResourceDetailsRecord, ResourceLine,
    ResourceQuery, StateFilter,
};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::operations::parse_statuses;
use crate::app::resources::{
    self, ActionLogLine, LogPosition, LogQuery, ResourceInEnvironment, ResourceTotals,
};
use crate::app::resources_by_agent;
use crate::auth::Caller;
use crate::error::ServerError;
use crate::extract::{
    InEnvironment, LIMIT_MAX, Path, Query, encode_cursor, page_limit, parse_cursor, take_page,
};
use crate::state::ServerState;

use super::{
    environments, parse_filter, parse_pattern, parse_time, parse_variants, permitted_actions,
    segment, split_list, time,
};

fn transitioning(state: &ResourceState) -> Transitioning {
    match state.status() {
        Status::Deploying => Transitioning::Yes,
        Status::Failed | Status::Unavailable => Transitioning::Error,
        _ => Transitioning::No,
    }
}

pub(super) fn summary(line: ResourceLine) -> ResourceSummary {
    let ResourceLine { summary, set, removal } = line;
    ResourceSummary {
        id: summary.id.to_string(),
        r#type: summary.id.entity().to_owned(),
        agent: summary.id.agent().to_owned(),
        value: summary.id.value().to_owned(),
        status: summary.status,
        set,
        last_run_at: summary.state.last_run_at.map(time),
        last_outcome: summary.state.last_outcome,
        attempts: summary.state.attempts,
        parked: summary.state.parked,
        removal: removal.map(removal_view),
        source: summary.source.map(|source| SourceLocation {
            file: source.file.to_string(),
            line: source.line,
            column: source.column,
        }),
        transitioning: transitioning(&summary.state),
    }
}

fn removal_view(stage: RemovalStage) -> RemovalState {
    match stage {
        RemovalStage::Pending => RemovalState::Pending,
        RemovalStage::Done => RemovalState::Done,
    }
}

fn axes(state: &ResourceState) -> ResourceAxes {
    ResourceAxes {
        compliance: state.compliance(),
        last_handler_run: state.last_run,
        blocked: state.blocked,
        is_deploying: state.deploying,
        last_run_compliant: state.last_run_compliant,
        last_run_at: state.last_run_at.map(time),
        last_success: state.last_success.map(time),
        attempts: state.attempts,
        parked: state.parked,
    }
}

/// Filter of the list of resources.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Agents, separated by commas.
    agent: Option<String>,
    /// Types, separated by commas: `std::File,std::Directory`.
    r#type: Option<String>,
    /// Part of the identifying value; with `*` or `?`, a pattern for the whole value. In any case.
    value: Option<String>,
    /// Any of these statuses, separated by commas: `failed,skipped`; or none of these: `!deployed`.
    /// Orphans are omitted unless selected.
    status: Option<String>,
    /// Name of a resource set.
    set: Option<String>,
    /// Any of these, separated by commas: `compliant`, `has_update`, `non_compliant`, `undefined`.
    compliance: Option<String>,
    /// Outcomes of the last run, any of these, separated by commas: `failed,skipped`.
    last_outcome: Option<String>,
    /// True for resources that are not retried without a decision, false for the others.
    parked: Option<bool>,
    /// True for resources with an undefined or a bad requirement, false for the others.
    blocked: Option<bool>,
    /// Includes removed resources among the orphans.
    removed: Option<bool>,
    /// Order: `id`, which is type, agent, value; or `agent`, then by id. `-` reverses it.
    sort: Option<String>,
    /// Maximum number of items. A page can have fewer, even none, without being the last.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
    /// Start of the first page, instead of a cursor: the beginning of an id. For the order by id.
    from: Option<String>,
}

/// Parses the order: by agent, and reversed.
fn parse_order(filter: &Filter) -> Result<(bool, bool), ServerError> {
    match filter.sort.as_deref() {
        // Ids begin with their types.
        None | Some("id" | "type") => Ok((false, false)),
        Some("-id" | "-type") => Ok((false, true)),
        Some("agent") => Ok((true, false)),
        Some("-agent") => Ok((true, true)),
        Some(other) => {
            let text = format!(
                "sort: {other:?} is not an order of this list: expected id, type or agent, optionally after -"
            );
            Err(ServerError::rule("bad-sort", text))
        }
    }
}

fn parse_query(filter: &Filter) -> Result<ResourceQuery, ServerError> {
    let statuses = parse_statuses(filter.status.as_deref().unwrap_or_default())
        .map_err(|reason| ServerError::rule("bad-filter", format!("status: {reason}")))?;
    let (_, descending) = parse_order(filter)?;
    Ok(ResourceQuery {
        agents: split_list(filter.agent.as_deref()),
        entities: split_list(filter.r#type.as_deref()),
        value: parse_pattern(filter.value.as_deref()),
        statuses,
        set: filter.set.clone(),
        state: StateFilter {
            compliances: parse_variants("compliance", filter.compliance.as_deref())?,
            outcomes: parse_variants("last_outcome", filter.last_outcome.as_deref())?,
            parked: filter.parked,
            blocked: filter.blocked,
        },
        descending,
        removed: filter.removed == Some(true),
        ..ResourceQuery::default()
    })
}

/// Lists resources by id, or by agent.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/resources", tag = "resources", params(("environment" = Uuid, Path), Filter),
    responses((status = 200, description = "A page", body = Page<ResourceSummary>)))]
pub(super) async fn list(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Query(filter): Query<Filter>,
) -> Result<Json<Page<ResourceSummary>>, ServerError> {
    let limit = page_limit(filter.limit)?;
    let query = parse_query(&filter)?;
    if filter.from.is_some() && (filter.after.is_some() || filter.sort.is_some()) {
        let text = "from: not together with after or sort: it begins the order by id";
        return Err(ServerError::rule("bad-filter", text));
    }
    if parse_order(&filter)?.0 {
        let after: Option<resources_by_agent::AgentCursor> =
            filter.after.as_deref().map(parse_cursor).transpose()?;
        let (lines, next) = app
            .with_store(move |store| {
                resources_by_agent::list(store, environment.key, &query, after, limit)
            })
            .await?;
        let items = lines.into_iter().map(summary).collect();
        return Ok(Json(Page { items, next: next.as_ref().map(encode_cursor) }));
    }
    let after: Option<String> = filter.after.as_deref().map(parse_cursor).transpose()?;
    // No id is as short as the beginning of one, so it excludes no match.
    let after = after.or(filter.from);
    let found = app
        .with_store(move |store| {
            store.resources().list(environment.key, &query, after.as_deref(), limit)
        })
        .await?;
    let items = found.lines.into_iter().map(summary).collect();
    Ok(Json(Page { items, next: found.next.as_ref().map(encode_cursor) }))
}

/// Returns the number of resources by status.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/resource-counts", tag = "resources", params(("environment" = Uuid, Path)),
    responses((status = 200, description = "The counts", body = ResourceCounts)))]
pub(super) async fn counts(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
) -> Result<Json<ResourceCounts>, ServerError> {
    let counted = app.count_cache().get(&app, environment.key).await?;
    let ResourceTotals { total, by_status, parked, removed, verified_since } =
        ResourceTotals::new(&counted);
    let (verified_since, counted_at) = (verified_since.map(time), time(counted.at));
    Ok(Json(ResourceCounts { total, by_status, counted_at, parked, removed, verified_since }))
}

fn related(found: Vec<(String, Status)>) -> Vec<RelatedResource> {
    found.into_iter().map(|(id, status)| RelatedResource { id, status }).collect()
}

/// Returns a resource with its desired state, its dependencies and its next run.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/resources/{id}", tag = "resources",
    params(("environment" = Uuid, Path), ("id" = String, Path, description = "The id, percent-encoded")),
    responses((status = 200, description = "The resource", body = ResourceDetails)))]
pub(super) async fn get(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, String)>,
) -> Result<Json<ResourceDetails>, ServerError> {
    let found = resources::get(&app, &environment, id).await?;
    let ResourceInEnvironment { loaded: known, next_run, is_deployable, has_facts } = found;
    let ResourceDetailsRecord { line, attributes, .. } = known.details;
    let state = axes(&line.summary.state);
    let summary = summary(line);
    let path = environments::path_of(&environment);
    let mut actions = Actions::new();
    if is_deployable {
        for name in ["deploy", "repair"] {
            actions.insert(name.to_owned(), format!("{path}/{name}"));
        }
    }
    if has_facts {
        actions.insert(
            "refresh-facts".to_owned(),
            format!("{path}/resources/{}/refresh-facts", segment(&summary.id)),
        );
    }
    let actions = permitted_actions(&caller, &environment, actions);
    let transitioning_message = match summary.transitioning {
        Transitioning::No => String::new(),
        Transitioning::Yes => "its handler is running".to_owned(),
        Transitioning::Error => last_message(known.last.as_ref()),
    };
    Ok(Json(ResourceDetails {
        summary,
        attributes,
        requires: related(known.requires),
        state,
        next_run_at: next_run.map(time),
        transitioning_message,
        actions,
    }))
}

/// Returns the most severe message of the last run.
fn last_message(action: Option<&Action>) -> String {
    let lines = action.map(|action| &action.log[..]).unwrap_or_default();
    let worst = lines.iter().filter(|line| line.level >= LogLevel::Warning);
    let worst = worst.max_by_key(|line| line.level);
    worst.map_or_else(|| "the last run failed".to_owned(), |line| line.message.clone())
}

/// Lists the desired states of a resource, newest first: one entry per change of its attributes.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/resources/{id}/history", tag = "resources",
    params(("environment" = Uuid, Path), ("id" = String, Path, description = "The id, percent-encoded"), Pagination),
    responses((status = 200, description = "A page", body = Page<ResourceHistoryEntry>)))]
pub(super) async fn history(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, String)>,
    Query(part): Query<Pagination>,
) -> Result<Json<Page<ResourceHistoryEntry>>, ServerError> {
    let limit = page_limit(part.limit)?;
    let before: Option<u32> = part.after.as_deref().map(parse_cursor).transpose()?;
    let found =
        app.with_store(move |store| store.resources().history(environment.key, &id)).await?;
    let older = found
        .into_iter()
        .filter(|entry| before.is_none_or(|before| entry.version.0 < before))
        .take(limit + 1)
        .collect();
    let (entries, next) = take_page(older, limit, |entry| entry.version.0);
    let items = entries
        .into_iter()
        .map(|entry| ResourceHistoryEntry {
            version: entry.version.0,
            at: time(entry.at),
            hash: entry.hash.to_string(),
            attributes: serde_json::from_str(&entry.attributes).unwrap_or_default(),
            requires: entry.requires,
        })
        .collect();
    Ok(Json(Page { items, next }))
}

/// Pagination parameters.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Pagination {
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

/// Lists the dependents of a resource, with their states.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/resources/{id}/provides", tag = "resources",
    params(("environment" = Uuid, Path), ("id" = String, Path, description = "The id, percent-encoded"), Pagination),
    responses((status = 200, description = "A page; up to 1000 items if `limit` is absent", body = Page<RelatedResource>)))]
pub(super) async fn provides(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, String)>,
    Query(part): Query<Pagination>,
) -> Result<Json<Page<RelatedResource>>, ServerError> {
    let limit = page_limit(part.limit.or(Some(LIMIT_MAX)))?;
    let after: String = part.after.as_deref().map(parse_cursor).transpose()?.unwrap_or_default();
    let key = environment.key;
    let (items, next) =
        app.with_store(move |store| resources::dependents(store, key, &id, &after, limit)).await?;
    Ok(Json(Page { items: related(items), next: next.as_ref().map(encode_cursor) }))
}

fn kind_view(kind: ActionKind) -> ResourceActionKind {
    match kind {
        ActionKind::Deploy => ResourceActionKind::Deploy,
        ActionKind::DryRun => ResourceActionKind::DryRun,
        ActionKind::GetFacts => ResourceActionKind::GetFacts,
        ActionKind::Other => ResourceActionKind::Other,
    }
}

fn kind_of(kind: ResourceActionKind) -> ActionKind {
    match kind {
        ResourceActionKind::Deploy => ActionKind::Deploy,
        ResourceActionKind::DryRun => ActionKind::DryRun,
        ResourceActionKind::GetFacts => ActionKind::GetFacts,
        ResourceActionKind::Other => ActionKind::Other,
    }
}

/// Lists the actions of a resource, newest first.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/resources/{id}/actions", tag = "resources",
    params(("environment" = Uuid, Path), ("id" = String, Path, description = "The id, percent-encoded"), Pagination),
    responses((status = 200, description = "A page", body = Page<ResourceAction>)))]
pub(super) async fn actions(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, String)>,
    Query(part): Query<Pagination>,
) -> Result<Json<Page<ResourceAction>>, ServerError> {
    let limit = page_limit(part.limit)?;
    let before: Option<i64> = part.after.as_deref().map(parse_cursor).transpose()?;
    let (key, before) = (environment.key, before.map(ActionKey));
    let found =
        app.with_store(move |store| resources::actions(store, key, &id, before, limit + 1)).await?;
    let (found, next) = take_page(found, limit, |action| action.key.0);
    Ok(Json(Page { items: found.into_iter().map(action_view).collect(), next }))
}

pub(super) fn action_view(action: Action) -> ResourceAction {
    ResourceAction {
        id: action.key.0,
        action: kind_view(action.kind),
        version: action.version.0,
        started: time(action.started),
        finished: action.finished.map(time),
        outcome: action.outcome,
        change: action.change.kind,
        changes: action.change.attributes.into_iter().map(attribute_change).collect(),
        log_lines: action.log.len(),
    }
}

pub(super) fn attribute_change(change: orrery_model::AttributeDiff) -> AttributeChange {
    let orrery_model::AttributeDiff { name, current, desired } = change;
    AttributeChange { name, current, desired }
}

/// Filter of log lines.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct LogFilter {
    /// Minimum level.
    #[param(value_type = Option<LogLevel>)]
    min_level: Option<String>,
    /// Action.
    #[param(value_type = Option<ResourceActionKind>)]
    action: Option<String>,
    /// Start time (RFC 3339).
    #[param(format = DateTime)]
    since: Option<String>,
    /// End time, exclusive (RFC 3339).
    #[param(format = DateTime)]
    until: Option<String>,
    /// Text in the message.
    message: Option<String>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

/// Parses a level in any case.
fn parse_level(name: &str) -> Result<LogLevel, ServerError> {
    let found = LogLevel::ALL.into_iter().find(|level| level.as_str().eq_ignore_ascii_case(name));
    found.ok_or_else(|| {
        let known = LogLevel::ALL.map(LogLevel::as_str).join(", ");
        ServerError::rule("bad-filter", format!("min_level: {name:?} is none of {known}"))
    })
}

/// Lists log lines of a resource, newest first.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/resources/{id}/logs", tag = "resources",
    params(("environment" = Uuid, Path), ("id" = String, Path, description = "The id, percent-encoded"), LogFilter),
    responses((status = 200, description = "A page", body = Page<ResourceLogLine>)))]
pub(super) async fn logs(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, String)>,
    Query(filter): Query<LogFilter>,
) -> Result<Json<Page<ResourceLogLine>>, ServerError> {
    let limit = page_limit(filter.limit)?;
    let level = filter.min_level.as_deref().map(parse_level).transpose()?;
    let level = level.unwrap_or(LogLevel::Debug);
    let kind: Option<ResourceActionKind> = parse_filter("action", filter.action.as_deref())?;
    let since = filter.since.as_deref().map(|text| parse_time("since", text)).transpose()?;
    let until = filter.until.as_deref().map(|text| parse_time("until", text)).transpose()?;
    let after: Option<LogPosition> = filter.after.as_deref().map(parse_cursor).transpose()?;
    let kind = kind.map(kind_of);
    let query = LogQuery { min_level: level, kind, since, until, message: filter.message };
    let key = environment.key;
    let (found, next) =
        app.with_store(move |store| resources::logs(store, key, &id, &query, after, limit)).await?;
    let items = found.into_iter().map(log_line_view).collect();
    Ok(Json(Page { items, next: next.as_ref().map(encode_cursor) }))
}

fn log_line_view(found: ActionLogLine) -> ResourceLogLine {
    let ActionLogLine { action, kind, version, line } = found;
    ResourceLogLine {
        action: kind_view(kind),
        action_id: action.0,
        version: version.0,
        at: time(line.at),
        level: line.level,
        message: line.message,
        values: line.values,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_read_with_and_without_negation() {
        assert_eq!(parse_statuses("").unwrap(), []);
        assert_eq!(parse_statuses("failed, skipped").unwrap(), [Status::Failed, Status::Skipped]);
        let but_two = parse_statuses("!deployed,!orphaned").unwrap();
        assert_eq!(but_two.len(), 8);
        assert!(!but_two.contains(&Status::Deployed));
        assert_eq!(parse_statuses("failed,deployed,!deployed").unwrap(), [Status::Failed]);
        assert!(parse_statuses("broken").is_err());
        assert!(parse_statuses("failed,!failed").is_err());
    }
}
