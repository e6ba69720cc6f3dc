//! Requests to the engine. Each ends with its own resources, independent of other work.

use std::collections::BTreeMap;
use std::sync::Arc;

use orrery_model::{Blocked, ChangeKind, OutcomeStatus, ResourceId};
use orrery_scheduler::{Event, Filter, Reason, ResourceIndex, Scheduler, TaskNumber};
use rustc_hash::FxHashSet;

use crate::engine::Engine;
use crate::progress::Tally;
use crate::state::EngineState;

/// Resources searched for the agents that a request waits for.
const BLOCKER_SEARCH_MAX: usize = 10_000;

/// Id of a request; unique per engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(u64);

/// Outcome of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestOutcome {
    /// Resources that the request selects.
    pub matched: usize,
    /// Outcomes of their runs.
    pub runs: Tally,
    /// Compliant resources, which were not run.
    pub compliant: usize,
    /// Blocked resources: they or their requirements are undefined.
    pub blocked: usize,
    /// Resources that never ran: cancelled, or removed from the desired state.
    pub withdrawn: usize,
    /// Further runs of selected resources, caused by the change of another resource.
    pub followed: usize,
    /// Names in the request that match nothing.
    pub unknown_ids: Vec<ResourceId>,
    pub unknown_agents: Vec<String>,
}

/// Reasons why a request has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestBlockers {
    /// Paused agents that it waits for, sorted by name.
    pub paused: Vec<String>,
}

/// Progress of a request that has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestProgress {
    /// Resources to run.
    pub total: usize,
    /// Of those, the resources that have run.
    pub done: usize,
    /// Some of the resources with a running handler, the longest running first.
    pub running: Vec<ResourceId>,
}

/// Condition that completes a resource of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndCondition {
    /// A deploy that starts after the request, or no task left. `verified`: includes resources that
    /// are believed to be compliant.
    Deploy {
        verified: bool,
    },
    /// The running task ends.
    Cancelled,
    Facts,
}

#[derive(Debug)]
enum AgentScope {
    All,
    Named(Vec<Arc<str>>),
}

#[derive(Debug)]
struct TrackedRequest {
    end_condition: EndCondition,
    /// Agents that it selects as a whole; `None` if it names resources.
    scope: Option<AgentScope>,
    /// Tasks up to this number started before the request.
    since: TaskNumber,
    remaining: FxHashSet<ResourceIndex>,
    outcome: RequestOutcome,
    /// Set at the end: number of writes to persist before the request is reported as done.
    persisted_at: Option<u64>,
}

/// Requests that are open or not yet collected.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    open: BTreeMap<RequestId, TrackedRequest>,
    next: u64,
}

impl Requests {
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns true if a request ended and its results are persisted.
    pub(crate) fn has_finished(&self, persisted: u64) -> bool {
        self.open.values().any(|request| request.persisted_at.is_some_and(|at| at <= persisted))
    }

    /// Marks complete requests as ended; returns true if there were any.
    fn finish_complete(&mut self, queued: u64) -> bool {
        let mut ended = false;
        for request in self.open.values_mut() {
            if request.remaining.is_empty() && request.persisted_at.is_none() {
                request.persisted_at = Some(queued);
                ended = true;
            }
        }
        ended
    }
}

impl TrackedRequest {
    fn is_open(&self, scheduler: &Scheduler, resource: ResourceIndex) -> bool {
        match self.end_condition {
            EndCondition::Deploy { .. } | EndCondition::Cancelled => {
                scheduler.has_deploy_task(resource)
            }
            EndCondition::Facts => scheduler.has_fact_task(resource),
        }
    }

    /// Returns true if the request selects the resource without naming it.
    fn includes(&self, scheduler: &Scheduler, resource: ResourceIndex) -> bool {
        match &self.scope {
            None => false,
            Some(AgentScope::All) => true,
            Some(AgentScope::Named(names)) => scheduler
                .id(resource)
                .is_some_and(|id| names.iter().any(|name| &**name == id.agent())),
        }
    }
}

impl Engine {
    /// Submits an event as a tracked request.
    pub fn submit(&self, event: Event) -> RequestId {
        let id = self.with_state(|state| state.submit(event));
        self.wake_workers();
        id
    }

    /// Takes the ended requests with persisted results.
    pub fn take_finished_requests(&self) -> Vec<(RequestId, RequestOutcome)> {
        self.with_state(|state| {
            let persisted = state.persisted;
            let ended = state.requests.open.extract_if(.., |_, request| {
                request.persisted_at.is_some_and(|at| at <= persisted)
            });
            ended.map(|(id, request)| (id, request.outcome)).collect()
        })
    }

    /// Progress of a request.
    pub fn request_progress(&self, id: RequestId) -> RequestProgress {
        self.with_state(|state| state.request_progress(id))
    }

    /// Causes for which a request waits and that an operator can remove.
    pub fn request_blockers(&self, id: RequestId) -> RequestBlockers {
        self.with_state(|state| state.request_blockers(id))
    }
}

impl EngineState {
    pub(crate) fn submit(&mut self, event: Event) -> RequestId {
        let verified = matches!(event, Event::Verify(_) | Event::ResumeVerify { .. });
        let (filter, end_condition) = match &event {
            Event::FactRefresh(ids) => (Filter::ids(ids.iter().cloned()), EndCondition::Facts),
            Event::Cancel(filter) => (filter.clone(), EndCondition::Cancelled),
            Event::DeployDirty(filter)
            | Event::Verify(filter)
            | Event::ResumeVerify { filter, .. } => {
                (filter.clone(), EndCondition::Deploy { verified })
            }
            _ => (Filter::ids([]), EndCondition::Deploy { verified }),
        };
        let continued = match event {
            Event::ResumeVerify { since, .. } => Some(since),
            _ => None,
        };
        let deploys = matches!(end_condition, EndCondition::Deploy { .. });
        if deploys {
            self.invalidate_caches();
        }
        let since = self.latest_task;
        let matched = self.scheduler.resources_matching(&filter);
        let waited: Vec<ResourceIndex> = match end_condition {
            EndCondition::Cancelled => {
                let waits = |one: &ResourceIndex| self.scheduler.scheduled(*one).is_some();
                matched.iter().copied().filter(waits).collect()
            }
            EndCondition::Deploy { .. } | EndCondition::Facts => Vec::new(),
        };
        self.apply(event);
        let scope = match (&filter.ids, &filter.agents) {
            (Some(_), _) => None,
            (None, Some(names)) => Some(AgentScope::Named(names.clone())),
            (None, None) => Some(AgentScope::All),
        };
        let mut request = TrackedRequest {
            end_condition,
            scope,
            since,
            remaining: FxHashSet::default(),
            outcome: self.unknown_names(&filter),
            persisted_at: None,
        };
        request.outcome.matched = matched.len();
        for resource in matched {
            let Some(state) = self.scheduler.state(resource) else { continue };
            let is_tried = || match end_condition {
                EndCondition::Deploy { verified: false } => {
                    self.scheduler.is_dirty(resource)
                        || state.blocked == Blocked::TemporarilyBlocked
                        || !self.is_only_verified(resource)
                }
                EndCondition::Deploy { verified: true }
                | EndCondition::Cancelled
                | EndCondition::Facts => true,
            };
            if request.is_open(&self.scheduler, resource) && is_tried() {
                request.remaining.insert(resource);
            } else if state.blocked == Blocked::Blocked {
                request.outcome.blocked += 1;
            } else if continued.is_some() && state.last_success >= continued {
                // It ran before the engine was restarted.
                let was_changed = self.entry(resource).changed_at >= continued;
                let change = if was_changed { ChangeKind::Updated } else { ChangeKind::NoChange };
                request.outcome.runs.add(OutcomeStatus::Deployed, change);
            } else if deploys {
                request.outcome.compliant += 1;
            }
        }
        request.outcome.withdrawn += waited.len();
        self.requests.next += 1;
        let id = RequestId(self.requests.next);
        self.requests.open.insert(id, request);
        self.finish_requests();
        id
    }

    /// Returns true if only a repair or a timer scheduled the resource. A deploy request does not
    /// wait for that, but does for consequences of a change such as a new version.
    fn is_only_verified(&self, resource: ResourceIndex) -> bool {
        let reason = self.scheduler.scheduled(resource).map(|(_, reason)| reason);
        matches!(reason, Some(Reason::RepairInterval | Reason::RepairCron | Reason::UserVerify))
    }

    fn unknown_names(&self, filter: &Filter) -> RequestOutcome {
        let mut outcome = RequestOutcome::default();
        for id in filter.ids.iter().flatten() {
            if self.scheduler.index_of(id.as_str()).is_none() {
                outcome.unknown_ids.push(id.clone());
            }
        }
        for name in filter.agents.iter().flatten() {
            if self.scheduler.agent_of(name).is_none() {
                outcome.unknown_agents.push(name.to_string());
            }
        }
        outcome
    }

    /// Records the end of a run; called after the scheduler handled it.
    pub(crate) fn record_run_end(
        &mut self,
        resource: ResourceIndex,
        task: TaskNumber,
        facts: bool,
        result: Option<(OutcomeStatus, ChangeKind)>,
    ) {
        for request in self.requests.open.values_mut() {
            if (request.end_condition == EndCondition::Facts) != facts
                || !request.remaining.contains(&resource)
            {
                continue;
            }
            if task <= request.since && request.is_open(&self.scheduler, resource) {
                // It runs again.
                continue;
            }
            request.remaining.remove(&resource);
            match result {
                Some((status, change)) => request.outcome.runs.add(status, change),
                None => request.outcome.runs.cancelled += 1,
            }
            if !matches!(request.end_condition, EndCondition::Deploy { .. })
                || request.scope.is_none()
            {
                continue;
            }
            for dependent in self.scheduler.dependents(resource) {
                if self.scheduler.has_deploy_task(dependent)
                    && request.includes(&self.scheduler, dependent)
                    && request.remaining.insert(dependent)
                {
                    request.outcome.followed += 1;
                }
            }
        }
        self.finish_requests();
    }

    /// Withdraws a resource that left the desired state; called before the scheduler handles it.
    pub(crate) fn withdraw(&mut self, resource: ResourceIndex) {
        for request in self.requests.open.values_mut() {
            if request.remaining.remove(&resource) {
                request.outcome.withdrawn += 1;
            }
        }
    }

    /// Drops resources with a task that was cancelled without a run.
    pub(crate) fn drop_withdrawn(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        for request in self.requests.open.values_mut() {
            let former = std::mem::take(&mut request.remaining);
            let before = former.len();
            request.remaining =
                former.into_iter().filter(|one| request.is_open(&self.scheduler, *one)).collect();
            request.outcome.withdrawn += before - request.remaining.len();
        }
        self.finish_requests();
    }

    fn finish_requests(&mut self) {
        let queued = self.queued;
        if self.requests.finish_complete(queued) {
            // The requester waits until it is persisted.
            self.is_urgent = true;
        }
    }

    fn request_progress(&self, id: RequestId) -> RequestProgress {
        let Some(request) = self.requests.open.get(&id) else {
            return RequestProgress::default();
        };
        let RequestOutcome { matched, compliant, blocked, followed, .. } = &request.outcome;
        let total = (matched + followed).saturating_sub(compliant + blocked);
        let done = total.saturating_sub(request.remaining.len());
        let running = self.longest_running().into_iter().map(|one| one.id.clone()).collect();
        RequestProgress { total, done, running }
    }

    fn request_blockers(&self, id: RequestId) -> RequestBlockers {
        let Some(request) = self.requests.open.get(&id) else { return RequestBlockers::default() };
        let mut seen: FxHashSet<ResourceIndex> = FxHashSet::default();
        let mut ahead: Vec<ResourceIndex> = request.remaining.iter().copied().collect();
        let mut paused: Vec<String> = Vec::new();
        while let Some(resource) = ahead.pop() {
            if seen.len() >= BLOCKER_SEARCH_MAX || !seen.insert(resource) {
                continue;
            }
            let Some(id) = self.scheduler.id(resource) else { continue };
            let agent = self.scheduler.agent_of(id.agent());
            if agent.is_some_and(|agent| self.scheduler.is_paused(agent)) {
                paused.push(id.agent().to_owned());
            }
            ahead.extend(self.scheduler.waiting_on(resource).into_iter().flatten());
        }
        paused.sort_unstable();
        paused.dedup();
        RequestBlockers { paused }
    }
}
