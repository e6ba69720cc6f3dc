//! Activity of an environment: running handlers, waits by reason, next automatic runs.
//!
//! Derived from the store as reasons are (`why`), so every process of the api role can answer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use orrery_api::{Activity, AgentQueue, NextRuns, ReasonKind, RunningHandler, Time, WaitReason};
use orrery_model::{Status, Timestamp};
use orrery_store::{EnvironmentRecord, ResourceKey, ResourceQuery, Store, StoreError};

use crate::causes;
use crate::error::ServerError;
use crate::graph::{DependencyGraph, Index};
use crate::settings::EnvironmentSettings;
use crate::state::ServerState;

const RUNNING_MAX: usize = 20;
const WAITS_MAX: usize = 20;
const TIMERS_MAX: usize = 10;
const AGENTS_MAX: usize = 50;
/// Resources whose timers are looked at.
const TIMED_MAX: usize = 1_000;
/// Length of a path to a cause.
const PATH_MAX: usize = 16;
/// Paused agents that are read.
const PAUSED_MAX: usize = 100_000;
const MICROS_PER_SECOND: i64 = 1_000_000;

/// Describes the present work of an environment.
pub(crate) async fn describe(
    state: &ServerState,
    environment: EnvironmentRecord,
) -> Result<Activity, ServerError> {
    let graph = state.graph_cache().get(state, environment.key).await?;
    let now = state.now();
    let answer = state
        .with_store(move |store| {
            let agents = store.agents().list(environment.key, "", PAUSED_MAX)?;
            let paused = agents.into_iter().filter(|one| one.paused).map(|one| one.name).collect();
            let mut activity = Waits::of(&graph, environment.halted, &paused).into_activity();
            activity.counted_at = Time(graph.at);
            activity.running_resources = running(store, &environment)?;
            (activity.timers, activity.timers_complete) = timers(store, &environment, now)?;
            Ok(activity)
        })
        .await?;
    Ok(answer)
}

/// Reason of a wait: its kind, and the agent or resource that it is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wait {
    Halted,
    Paused(String),
    Undefined,
    On(Index),
    Running,
}

/// Work by reason and by agent.
#[derive(Default)]
struct Waits<'a> {
    running: u64,
    ready: u64,
    by_reason: BTreeMap<Wait, u64>,
    agents: BTreeMap<&'a str, AgentQueue>,
    causes: BTreeMap<Index, (&'a str, Status)>,
}

impl<'a> Waits<'a> {
    fn of(graph: &'a DependencyGraph, is_halted: bool, paused: &BTreeSet<String>) -> Self {
        let mut waits = Waits::default();
        for (index, vertex) in (0..).zip(&graph.vertices) {
            let agent = graph.name(vertex.agent);
            let wait = match vertex.status {
                Status::Deploying => None,
                Status::Undefined => Some(Wait::Undefined),
                Status::Available | Status::Skipped | Status::SkippedForUndefined => {
                    match reason(graph, index, is_halted, paused) {
                        None if vertex.status != Status::Available => continue,
                        wait => wait,
                    }
                }
                _ => continue,
            };
            let queue = waits.agents.entry(agent).or_insert_with(|| AgentQueue {
                agent: agent.to_owned(),
                running: 0,
                ready: 0,
                waiting: 0,
                paused: paused.contains(agent),
            });
            match wait {
                _ if vertex.status == Status::Deploying => {
                    waits.running += 1;
                    queue.running += 1;
                }
                None => {
                    waits.ready += 1;
                    queue.ready += 1;
                }
                Some(wait) => {
                    queue.waiting += 1;
                    if let Wait::On(cause) = wait {
                        let cause_vertex = graph.vertex(cause);
                        waits.causes.insert(cause, (&cause_vertex.id, cause_vertex.status));
                    }
                    *waits.by_reason.entry(wait).or_default() += 1;
                }
            }
        }
        waits
    }

    fn into_activity(self) -> Activity {
        let waiting = self.by_reason.values().sum();
        let mut reasons: Vec<(Wait, u64)> = self.by_reason.into_iter().collect();
        reasons.sort_by_key(|(_, count)| Reverse(*count));
        let other_waits = reasons.iter().skip(WAITS_MAX).map(|(_, count)| count).sum();
        reasons.truncate(WAITS_MAX);
        let causes = self.causes;
        let waits = reasons.into_iter().map(|(wait, count)| {
            let of =
                |kind, text: String| WaitReason { kind, text, count, agent: None, resource: None };
            match wait {
                Wait::Halted => of(ReasonKind::Halted, "the environment is halted".to_owned()),
                Wait::Paused(agent) => WaitReason {
                    agent: Some(agent.clone()),
                    ..of(ReasonKind::AgentPaused, format!("agent {agent} is paused"))
                },
                Wait::Undefined => of(ReasonKind::Undefined, "a value is not known yet".to_owned()),
                Wait::Running => {
                    of(ReasonKind::Running, "their requirements are running or next".to_owned())
                }
                Wait::On(cause) => {
                    let (id, status) = causes[&cause];
                    WaitReason {
                        resource: Some(id.to_owned()),
                        ..of(ReasonKind::WaitingOn, format!("{id} is {}", in_words(status)))
                    }
                }
            }
        });
        let waits = waits.collect();
        let mut agents: Vec<AgentQueue> = self.agents.into_values().collect();
        agents.sort_by_key(|queue| Reverse(queue.running + queue.ready + queue.waiting));
        let other_agents = agents.len().saturating_sub(AGENTS_MAX) as u64;
        agents.truncate(AGENTS_MAX);
        Activity {
            running: self.running,
            ready: self.ready,
            waiting,
            running_resources: Vec::new(),
            waits,
            other_waits,
            timers: Vec::new(),
            timers_complete: true,
            agents,
            other_agents,
            counted_at: Time(Timestamp(0)),
        }
    }
}

fn in_words(status: Status) -> &'static str {
    match status {
        Status::Failed => "failed",
        Status::Unavailable => "unavailable",
        Status::NonCompliant => "not compliant",
        Status::Skipped | Status::SkippedForUndefined => "skipped",
        other => other.as_str(),
    }
}

/// Finds why a resource does not run, at the end of the chain of its causes. `None` if nothing keeps
/// it from running.
fn reason(
    graph: &DependencyGraph,
    index: Index,
    is_halted: bool,
    paused: &BTreeSet<String>,
) -> Option<Wait> {
    if is_halted {
        return Some(Wait::Halted);
    }
    let pause = |at: Index| {
        let agent = graph.name(graph.vertex(at).agent);
        paused.contains(agent).then(|| Wait::Paused(agent.to_owned()))
    };
    let mut at = index;
    for _ in 0..PATH_MAX {
        if let Some(pause) = pause(at) {
            return Some(pause);
        }
        let Some(cause) = graph.cause(at) else { break };
        at = cause;
    }
    if at == index {
        return None;
    }
    Some(match graph.vertex(at).status {
        Status::Available | Status::Deploying => Wait::Running,
        Status::Undefined | Status::SkippedForUndefined => Wait::Undefined,
        _ => pause(at).unwrap_or(Wait::On(at)),
    })
}

/// Lists running handlers, longest first.
fn running(
    store: &Store,
    environment: &EnvironmentRecord,
) -> Result<Vec<RunningHandler>, StoreError> {
    let mut running = store.engine().running_actions(environment.key)?;
    running.sort_by_key(|action| action.at);
    running.truncate(RUNNING_MAX);
    let keys: Vec<ResourceKey> = running.iter().map(|action| action.resource).collect();
    let names = store.resources().statuses(&keys)?;
    let described = running.into_iter().filter_map(|action| {
        let (id, _) = names.get(&action.resource)?;
        Some(RunningHandler { id: id.clone(), version: action.version.0, since: Time(action.at) })
    });
    Ok(described.collect())
}

/// Lists the next automatic runs by second; false if there are too many resources to look at all.
fn timers(
    store: &Store,
    environment: &EnvironmentRecord,
    now: Timestamp,
) -> Result<(Vec<NextRuns>, bool), StoreError> {
    if environment.halted || environment.deleting {
        return Ok((Vec::new(), true));
    }
    let settings = store.settings().values(environment.key)?;
    let scheduling = EnvironmentSettings::from_map(&settings).scheduling();
    let statuses: Vec<Status> = Status::ALL
        .into_iter()
        .filter(|status| {
            causes::rank(*status).is_some()
                && !matches!(
                    status,
                    Status::Available
                        | Status::Deploying
                        | Status::Undefined
                        | Status::SkippedForUndefined
                )
        })
        .collect();
    let query = ResourceQuery { statuses, ..ResourceQuery::default() };
    let page = store.resources().list(environment.key, &query, None, TIMED_MAX)?;
    let mut by_second: BTreeMap<i64, NextRuns> = BTreeMap::new();
    for line in page.lines {
        let summary = line.summary;
        let Some((at, _)) = scheduling.next_run(&summary.id, &summary.state, now) else {
            continue;
        };
        let runs = by_second.entry(at.0.div_euclid(MICROS_PER_SECOND)).or_insert_with(|| {
            NextRuns { at: Time(at), count: 0, resource: summary.id.to_string() }
        });
        runs.count += 1;
        runs.at = runs.at.min(Time(at));
    }
    Ok((by_second.into_values().take(TIMERS_MAX).collect(), page.next.is_none()))
}
