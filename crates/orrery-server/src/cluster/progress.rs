//! Progress of operations, from the states of the resources of a cluster.

use std::collections::BTreeMap;

use orrery_api::{ClusterFailure, ClusterProgress, NodeProgress, ProgressCounts, StageProgress};
use orrery_cluster::render::{BARRIERS, entity};
use orrery_model::{ResourceId, Status};
use orrery_store::{EnvironmentKey, ResourceLine, ResourceQuery, Store, StoreError};

/// Maximum numbers of nodes and failures in an answer.
const NODES_MAX: usize = 1_000;
const FAILURES_MAX: usize = 100;
/// Runs of a resource that are searched for the reason of its failure.
const RUNS_SEARCHED: usize = 3;

/// Entities in the order of their first action, with the names of the actions.
pub(crate) const ACTIONS: [(&str, &str); 8] = [
    (entity::MACHINE, "create"),
    (entity::REACHABLE, "confirm"),
    (entity::TOOLCHAIN, "bootstrap"),
    (entity::INSTALLED, "install"),
    (entity::QUIESCED, "quiesce"),
    (entity::CONFIGURED, "configure"),
    (entity::INITIALIZED, "initialize"),
    (entity::RUNNING, "start"),
];

/// Action that brings resources of an entity into their state.
fn action_of(id: &ResourceId) -> &'static str {
    let found = ACTIONS.iter().find(|(entity, _)| *entity == id.entity());
    found.map_or("wait", |(_, action)| action)
}

/// Service of a resource: the part of its name behind the node.
pub(crate) fn service_of(id: &ResourceId) -> Option<String> {
    id.value().split_once('/').map(|(_, service)| service.to_owned())
}

/// Adds resources with a status.
pub(crate) fn count(counts: &mut ProgressCounts, status: Status, number: u64) {
    counts.total += number;
    match status {
        Status::Deployed => counts.done += number,
        Status::Failed | Status::Unavailable | Status::NonCompliant => counts.failed += number,
        _ => {}
    }
}

/// Progress of the version of an environment.
pub(crate) fn of_environment(
    store: &Store,
    environment: EnvironmentKey,
) -> Result<ClusterProgress, StoreError> {
    let mut progress = ClusterProgress::default();
    let mut nodes: BTreeMap<String, ProgressCounts> = BTreeMap::new();
    for group in store.resources().count(environment)? {
        if group.status == Status::Orphaned {
            continue;
        }
        count(&mut progress.counts, group.status, group.count);
        if group.agent != BARRIERS {
            count(nodes.entry(group.agent).or_default(), group.status, group.count);
        }
    }
    let mut nodes: Vec<NodeProgress> =
        nodes.into_iter().map(|(node, counts)| NodeProgress { node, counts }).collect();
    // Stable: unfinished nodes first, each group by name.
    nodes.sort_by_key(|node| node.counts.done == node.counts.total);
    nodes.truncate(NODES_MAX);
    progress.nodes = nodes;
    for (entity, action) in ACTIONS {
        let counts = of_entity(store, environment, entity)?;
        if counts.total > 0 {
            progress.stages.push(StageProgress { action: action.to_owned(), counts });
        }
    }
    let query = ResourceQuery {
        statuses: vec![Status::Failed, Status::Unavailable, Status::NonCompliant],
        ..ResourceQuery::default()
    };
    let failed = store.resources().list(environment, &query, None, FAILURES_MAX)?.lines;
    for line in failed {
        progress.failures.push(failure(store, environment, &line)?);
    }
    let unknown = store.effects().unknown(environment)?;
    for effect in unknown.into_iter().take(FAILURES_MAX) {
        let Ok(id) = effect.name.parse::<ResourceId>() else { continue };
        progress.unknown_effects.push(ClusterFailure {
            resource: effect.name,
            node: id.agent().to_owned(),
            service: service_of(&id),
            action: action_of(&id).to_owned(),
            attempts: 0,
            message: "its outcome is lost: settle it with `orrery settle`".to_owned(),
            is_final: true,
        });
    }
    Ok(progress)
}

fn of_entity(
    store: &Store,
    environment: EnvironmentKey,
    entity: &str,
) -> Result<ProgressCounts, StoreError> {
    const PAGE: usize = 5_000;
    let query = ResourceQuery { entity: Some(entity.to_owned()), ..ResourceQuery::default() };
    let (mut counts, mut after) = (ProgressCounts::default(), None::<String>);
    loop {
        let page = store.resources().list(environment, &query, after.as_deref(), PAGE)?;
        for line in &page.lines {
            count(&mut counts, line.summary.status, 1);
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(counts),
        }
    }
}

fn failure(
    store: &Store,
    environment: EnvironmentKey,
    line: &ResourceLine,
) -> Result<ClusterFailure, StoreError> {
    let (id, state) = (&line.summary.id, &line.summary.state);
    let runs = store.actions().of_resource(environment, id.as_str(), None, RUNS_SEARCHED)?;
    let message = runs.iter().find_map(|run| {
        let lines = run.log.iter().rev();
        let mut errors = lines.filter(|line| line.level >= orrery_model::LogLevel::Warning);
        errors.next().map(|line| line.message.clone())
    });
    Ok(ClusterFailure {
        resource: id.to_string(),
        node: id.agent().to_owned(),
        service: service_of(id),
        action: action_of(id).to_owned(),
        attempts: state.attempts,
        message: message.unwrap_or_else(|| "its log has expired".to_owned()),
        is_final: state.parked,
    })
}
