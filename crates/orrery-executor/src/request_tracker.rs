//! Requests to the engine. Each ends with its own resources, independent of other work.

use std::collections::BTreeMap;
use std::sync::Arc;

use orrery_model::{Blocked, ChangeKind, OutcomeStatus, ResourceId, Timestamp};
use orrery_scheduler::{Event, Filter, Reason, ResourceIndex, Scheduler, TaskNumber};
use rustc_hash::FxHashSet;

use crate::progress::Tally;

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
    /// Ended runs by outcome.
    pub runs: Tally,
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

/// A request whose event the scheduler has not handled yet.
#[derive(Debug)]
pub(crate) struct NewRequest {
    request: TrackedRequest,
    filter: Filter,
    matched: Vec<ResourceIndex>,
    /// Number of resources with a task that a cancellation withdraws.
    waited: usize,
    /// Start of the request, if an engine continues it after a restart.
    continued: Option<Timestamp>,
}

impl NewRequest {
    /// Describes the request of an event. `latest` is the task that was started last.
    pub(crate) fn new(event: &Event, scheduler: &Scheduler, latest: TaskNumber) -> Self {
        let verified =
            matches!(event, Event::Verify(_) | Event::ResumeVerify { .. } | Event::Drift(_));
        let (filter, end_condition) = match event {
            Event::FactRefresh(ids) => (Filter::ids(ids.iter().cloned()), EndCondition::Facts),
            Event::Cancel(filter) => (filter.clone(), EndCondition::Cancelled),
            Event::DeployDirty(filter)
            | Event::Verify(filter)
            | Event::Drift(filter)
            | Event::ResumeVerify { filter, .. } => {
                (filter.clone(), EndCondition::Deploy { verified })
            }
            _ => (Filter::ids([]), EndCondition::Deploy { verified }),
        };
        let continued = match event {
            Event::ResumeVerify { since, .. } => Some(*since),
            _ => None,
        };
        let matched = scheduler.resources_matching(&filter);
        let waited = match end_condition {
            EndCondition::Cancelled => {
                matched.iter().filter(|one| scheduler.scheduled(**one).is_some()).count()
            }
            EndCondition::Deploy { .. } | EndCondition::Facts => 0,
        };
        let scope = match (&filter.ids, &filter.agents) {
            (Some(_), _) => None,
            (None, Some(names)) => Some(AgentScope::Named(names.clone())),
            (None, None) => Some(AgentScope::All),
        };
        let request = TrackedRequest {
            end_condition,
            scope,
            since: latest,
            remaining: FxHashSet::default(),
            outcome: RequestOutcome { matched: matched.len(), ..RequestOutcome::default() },
            persisted_at: None,
        };
        NewRequest { request, filter, matched, waited, continued }
    }

    pub(crate) fn deploys(&self) -> bool {
        matches!(self.request.end_condition, EndCondition::Deploy { .. })
    }
}

/// Requests that are open or not yet collected.
///
/// Methods that may end a request get the number of queued writes, which are persisted before the
/// end is reported; they return true if one ended.
#[derive(Debug, Default)]
pub(crate) struct RequestTracker {
    open: BTreeMap<RequestId, TrackedRequest>,
    next: u64,
}

/// End of a run, for requests that wait for its resource.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunEnd {
    pub(crate) resource: ResourceIndex,
    pub(crate) task: TaskNumber,
    /// It read facts and deployed nothing.
    pub(crate) facts: bool,
    /// `None` if it was cancelled.
    pub(crate) result: Option<(OutcomeStatus, ChangeKind)>,
}

impl RequestTracker {
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Tracks a request after the scheduler handled its event. `changed_at` is the time of a
    /// resource's last change.
    pub(crate) fn track(
        &mut self,
        new: NewRequest,
        scheduler: &Scheduler,
        changed_at: impl Fn(ResourceIndex) -> Option<Timestamp>,
    ) -> RequestId {
        let deploys = new.deploys();
        let NewRequest { mut request, filter, matched, waited, continued } = new;
        request.find_unknown_names(&filter, scheduler);
        for resource in matched {
            let Some(state) = scheduler.state(resource) else { continue };
            let is_tried = || match request.end_condition {
                EndCondition::Deploy { verified: false } => {
                    scheduler.is_dirty(resource)
                        || state.blocked == Blocked::TemporarilyBlocked
                        || !is_only_verified(scheduler, resource)
                }
                EndCondition::Deploy { verified: true }
                | EndCondition::Cancelled
                | EndCondition::Facts => true,
            };
            if request.is_open(scheduler, resource) && is_tried() {
                request.remaining.insert(resource);
            } else if state.blocked == Blocked::Blocked {
                request.outcome.blocked += 1;
            } else if continued.is_some() && state.last_success >= continued {
                // It ran before the engine was restarted.
                let was_changed = changed_at(resource) >= continued;
                let change = if was_changed { ChangeKind::Updated } else { ChangeKind::NoChange };
                request.outcome.runs.add(OutcomeStatus::Deployed, change);
            } else if deploys {
                request.outcome.compliant += 1;
            }
        }
        request.outcome.withdrawn += waited;
        self.next += 1;
        let id = RequestId(self.next);
        self.open.insert(id, request);
        id
    }

    /// Records the end of a run; called after the scheduler handled it.
    pub(crate) fn record_run_end(
        &mut self,
        run: RunEnd,
        scheduler: &Scheduler,
        queued: u64,
    ) -> bool {
        let RunEnd { resource, task, facts, result } = run;
        for request in self.open.values_mut() {
            if (request.end_condition == EndCondition::Facts) != facts
                || !request.remaining.contains(&resource)
            {
                continue;
            }
            if task <= request.since && request.is_open(scheduler, resource) {
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
            for dependent in scheduler.dependents(resource) {
                if scheduler.has_deploy_task(dependent)
                    && request.includes(scheduler, dependent)
                    && request.remaining.insert(dependent)
                {
                    request.outcome.followed += 1;
                }
            }
        }
        self.finish_complete(queued)
    }

    /// Withdraws a resource that left the desired state; called before the scheduler handles it.
    pub(crate) fn withdraw(&mut self, resource: ResourceIndex) {
        for request in self.open.values_mut() {
            if request.remaining.remove(&resource) {
                request.outcome.withdrawn += 1;
            }
        }
    }

    /// Drops resources with a task that was cancelled without a run.
    pub(crate) fn drop_withdrawn(&mut self, scheduler: &Scheduler, queued: u64) -> bool {
        for request in self.open.values_mut() {
            let former = std::mem::take(&mut request.remaining);
            let before = former.len();
            request.remaining =
                former.into_iter().filter(|one| request.is_open(scheduler, *one)).collect();
            request.outcome.withdrawn += before - request.remaining.len();
        }
        self.finish_complete(queued)
    }

    /// Ends the requests that wait for no resource.
    pub(crate) fn finish_complete(&mut self, queued: u64) -> bool {
        let mut ended = false;
        for request in self.open.values_mut() {
            if request.remaining.is_empty() && request.persisted_at.is_none() {
                request.persisted_at = Some(queued);
                ended = true;
            }
            debug_assert!(request.persisted_at <= Some(queued), "writes are counted up");
        }
        ended
    }

    /// Returns true if a request ended and its results are persisted.
    pub(crate) fn has_finished(&self, persisted: u64) -> bool {
        self.open.values().any(|request| request.is_finished(persisted))
    }

    /// Takes the ended requests with persisted results.
    pub(crate) fn take_finished(&mut self, persisted: u64) -> Vec<(RequestId, RequestOutcome)> {
        let ended = self.open.extract_if(.., |_, request| request.is_finished(persisted));
        ended.map(|(id, request)| (id, request.outcome)).collect()
    }

    /// Resources that a request still waits for; none for an unknown request.
    pub(crate) fn remaining(&self, id: RequestId) -> impl Iterator<Item = ResourceIndex> {
        self.open.get(&id).into_iter().flat_map(|request| request.remaining.iter().copied())
    }

    /// Ended runs of a request by outcome.
    pub(crate) fn runs(&self, id: RequestId) -> Tally {
        self.open.get(&id).map(|request| request.outcome.runs).unwrap_or_default()
    }

    /// Number of resources to run, and of those that have run. `None` for an unknown request.
    pub(crate) fn progress(&self, id: RequestId) -> Option<(usize, usize)> {
        let request = self.open.get(&id)?;
        let RequestOutcome { matched, compliant, blocked, followed, .. } = &request.outcome;
        let total = (matched + followed).saturating_sub(compliant + blocked);
        Some((total, total.saturating_sub(request.remaining.len())))
    }

    pub(crate) fn blockers(&self, id: RequestId, scheduler: &Scheduler) -> RequestBlockers {
        let Some(request) = self.open.get(&id) else { return RequestBlockers::default() };
        let mut seen: FxHashSet<ResourceIndex> = FxHashSet::default();
        let mut ahead: Vec<ResourceIndex> = request.remaining.iter().copied().collect();
        let mut paused: Vec<String> = Vec::new();
        while let Some(resource) = ahead.pop() {
            if seen.len() >= BLOCKER_SEARCH_MAX || !seen.insert(resource) {
                continue;
            }
            let Some(id) = scheduler.id(resource) else { continue };
            let agent = scheduler.agent_of(id.agent());
            if agent.is_some_and(|agent| scheduler.is_paused(agent)) {
                paused.push(id.agent().to_owned());
            }
            ahead.extend(scheduler.waiting_on(resource).into_iter().flatten());
        }
        paused.sort_unstable();
        paused.dedup();
        RequestBlockers { paused }
    }
}

impl TrackedRequest {
    /// Records the names in the request that match nothing.
    fn find_unknown_names(&mut self, filter: &Filter, scheduler: &Scheduler) {
        for id in filter.ids.iter().flatten() {
            if scheduler.index_of(id.as_str()).is_none() {
                self.outcome.unknown_ids.push(id.clone());
            }
        }
        for name in filter.agents.iter().flatten() {
            if scheduler.agent_of(name).is_none() {
                self.outcome.unknown_agents.push(name.to_string());
            }
        }
    }

    /// Returns true if it ended and its results are persisted.
    fn is_finished(&self, persisted: u64) -> bool {
        self.persisted_at.is_some_and(|at| at <= persisted)
    }

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

/// Returns true if only a repair or a timer scheduled the resource. A deploy request does not wait
/// for that, but does for consequences of a change such as a new version.
fn is_only_verified(scheduler: &Scheduler, resource: ResourceIndex) -> bool {
    let reason = scheduler.scheduled(resource).map(|(_, reason)| reason);
    matches!(
        reason,
        Some(Reason::RepairInterval | Reason::RepairCron | Reason::UserVerify | Reason::Drift)
    )
}

#[cfg(test)]
mod tests {
    use orrery_scheduler::{SchedulerCommand, TaskKind, TaskResult};

    use super::*;
    use crate::test_support::{resource, scheduler};

    /// Submits an event to a halted scheduler.
    fn submit(tracker: &mut RequestTracker, scheduler: &mut Scheduler, event: Event) -> RequestId {
        let new = NewRequest::new(&event, scheduler, TaskNumber(0));
        scheduler.handle(event, Timestamp(2), &mut Vec::new());
        let id = tracker.track(new, scheduler, |_| None);
        tracker.finish_complete(0);
        id
    }

    /// Resumes the scheduler, and ends the first task that it starts.
    fn run_one(scheduler: &mut Scheduler) -> RunEnd {
        let mut commands = Vec::new();
        scheduler.handle(Event::Resume, Timestamp(3), &mut commands);
        let started = commands.into_iter().find_map(|command| match command {
            SchedulerCommand::Start(start) => Some(start),
            _ => None,
        });
        let start = started.expect("a task starts");
        let TaskKind::Deploy(resource) = start.kind else { panic!("{:?}", start.kind) };
        let task = start.task;
        let result = TaskResult::Finished(OutcomeStatus::Deployed);
        scheduler.handle(Event::TaskFinished { task, result }, Timestamp(4), &mut Vec::new());
        let result = Some((OutcomeStatus::Deployed, ChangeKind::Created));
        RunEnd { resource, task, facts: false, result }
    }

    #[test]
    fn a_request_ends_with_its_resources_and_is_reported_once_persisted() {
        let mut scheduler = scheduler(&["one"]);
        let mut tracker = RequestTracker::default();
        let id = submit(&mut tracker, &mut scheduler, Event::Verify(Filter::all()));
        assert_eq!(tracker.progress(id), Some((1, 0)));
        assert!(!tracker.has_finished(u64::MAX));
        let run = run_one(&mut scheduler);
        assert!(tracker.record_run_end(run, &scheduler, 5));
        assert!(!tracker.record_run_end(run, &scheduler, 6), "it ends once");
        assert_eq!(tracker.progress(id), Some((1, 1)));
        assert!(!tracker.has_finished(4) && tracker.take_finished(4).is_empty());
        let finished = tracker.take_finished(5);
        assert_eq!((finished[0].0, finished[0].1.runs.created), (id, 1));
        assert!(tracker.is_empty());
    }

    #[test]
    fn a_request_for_unknown_names_ends_at_once_and_names_them() {
        let mut scheduler = scheduler(&["one"]);
        let mut tracker = RequestTracker::default();
        let other = resource("other").id;
        let event = Event::Verify(Filter::ids([other.clone()]));
        let id = submit(&mut tracker, &mut scheduler, event);
        let finished = tracker.take_finished(0);
        assert_eq!((finished[0].0, &finished[0].1.unknown_ids), (id, &vec![other]));
    }

    #[test]
    fn a_resource_that_leaves_the_desired_state_is_withdrawn() {
        let mut scheduler = scheduler(&["one", "two"]);
        let mut tracker = RequestTracker::default();
        let id = submit(&mut tracker, &mut scheduler, Event::Verify(Filter::all()));
        let run = run_one(&mut scheduler);
        let both = ["one", "two"].map(|name| scheduler.index_of(resource(name).id.as_str()));
        for other in both.into_iter().flatten().filter(|index| *index != run.resource) {
            tracker.withdraw(other);
        }
        assert_eq!(tracker.progress(id), Some((2, 1)));
        assert!(!tracker.finish_complete(0));
        assert!(tracker.record_run_end(run, &scheduler, 0));
        let outcome = tracker.take_finished(0).remove(0).1;
        assert_eq!((outcome.withdrawn, outcome.runs.deployed), (1, 1));
    }
}
