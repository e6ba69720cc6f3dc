//! An environment with a running engine, and its pending requests.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_executor::{Engine, RequestId, RequestProgress};
use orrery_handlers::Permit;
use orrery_model::{Inventory, ResourceId};
use orrery_scheduler::{Event, Filter, Settings};
use orrery_store::{Lease, RequestKind, RequestRecord, RequestResult, ServedName};

use crate::state::ServerState;

use super::agent_routing::{AgentRouter, RoutingChanges};
use super::drift::DriftInbox;
use super::epochs;
use super::facts::UnknownFacts;
use super::handlers::Handlers;
use super::runner::RunnerError;

/// Interval between progress records; shorter requests cost no write.
pub(super) const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// An environment with a running engine.
pub(super) struct ActiveEnvironment {
    pub(super) engine: Engine,
    pub(super) lease: Lease,
    pub(super) permit: Permit,
    pub(super) handlers: Handlers,
    pub(super) router: Arc<AgentRouter>,
    pub(super) settings: Settings,
    pub(super) paused: BTreeSet<String>,
    pub(super) unknown_facts: UnknownFacts,
    /// Requests in progress.
    pub(super) requests: Vec<PendingRequest>,
    /// Outcomes that are not persisted yet.
    pub(super) ended: Vec<(RequestRecord, RequestResult)>,
    /// Parked resources without a notification yet, with their attempts.
    pub(super) parked: Vec<(ResourceId, u32)>,
    /// Resources with an unknown effect, without a notification yet.
    pub(super) unknown: Vec<ResourceId>,
    /// An unknown was resolved, and the compile is not requested yet.
    pub(super) has_resolved: bool,
    /// Drift that this process sees itself.
    pub(super) drift: Arc<DriftInbox>,
    /// Drifted resources whose policy asks operators, without a notification yet.
    pub(super) drifted: Vec<ResourceId>,
}

/// A request that the engine has accepted.
pub(super) struct PendingRequest {
    request: RequestRecord,
    request_id: RequestId,
    /// Paused agents in the latest progress record.
    reported_paused: Vec<String>,
    /// Latest recorded progress, and the time of the latest check.
    progress: Option<RequestProgress>,
    checked_at: Instant,
}

impl ActiveEnvironment {
    /// Passes changed settings and paused agents to the engine.
    pub(super) fn apply_settings(&mut self, settings: Settings, paused: BTreeSet<String>) {
        if settings != self.settings {
            self.engine.handle_event(Event::SettingsChanged(Box::new(settings.clone())));
            self.settings = settings;
        }
        let names =
            |of: Vec<&String>| Some(of.into_iter().map(|name| name.as_str().into()).collect());
        let newly: Vec<&String> = paused.difference(&self.paused).collect();
        if !newly.is_empty() {
            self.engine.handle_event(Event::Pause(names(newly)));
        }
        let no_longer: Vec<&String> = self.paused.difference(&paused).collect();
        if !no_longer.is_empty() {
            self.engine.handle_event(Event::Unpause(names(no_longer)));
        }
        self.paused = paused;
    }

    /// Updates the routing of remote agents. Dirty resources of an agent that became reachable are
    /// deployed. Runs of an agent that moved are cancelled, since their results say nothing about
    /// the new machine; joining has already requested a repair.
    pub(super) fn update_remote_agents(&self, served: Vec<ServedName>) {
        let changes = self.router.set_served(served);
        if self.permit.end().is_some() {
            epochs::announce(
                &self.router,
                changes.reachable.iter().cloned(),
                self.lease,
                &self.permit,
            );
        }
        self.apply_routing(&changes);
    }

    /// Updates the routing after a change of declarations.
    pub(super) fn update_declared_agents(
        &self,
        agents: impl IntoIterator<Item = String>,
        change: impl FnOnce(&mut Inventory),
    ) {
        self.apply_routing(&self.router.set_declared(agents, change));
    }

    fn apply_routing(&self, changes: &RoutingChanges) {
        if changes.changed {
            self.engine.invalidate_sites();
        }
        if !changes.moved.is_empty() {
            let agents = changes.moved.iter().map(|name| name.as_str().into()).collect();
            self.engine.handle_event(Event::Cancel(Filter { agents: Some(agents), ids: None }));
        }
        if !changes.reachable.is_empty() {
            let agents = changes.reachable.iter().map(|name| name.as_str().into()).collect();
            self.engine
                .handle_event(Event::DeployDirty(Filter { agents: Some(agents), ids: None }));
        }
    }

    /// Requests that the engine has accepted, and the engine.
    pub(super) fn accepted(&self) -> (&[PendingRequest], Option<&Engine>) {
        (&self.requests, Some(&self.engine))
    }

    /// Completes finished requests, and records the progress of the others.
    pub(super) fn finish_requests(&mut self, app: &ServerState) -> Result<(), RunnerError> {
        for (request_id, answer) in self.engine.take_finished_requests() {
            let Some(at) = self.requests.iter().position(|open| open.request_id == request_id)
            else {
                continue;
            };
            let outcome = super::requests::result(&answer);
            self.ended.push((self.requests.remove(at).request, outcome));
        }
        let records = app.store().under_lease(&self.lease);
        // A failed write is retried at the next step.
        while let Some((request, outcome)) = self.ended.last() {
            records.requests().finish(request, outcome, app.now())?;
            self.ended.pop();
            app.wake_up();
        }
        for open in &mut self.requests {
            let none_paused = self.paused.is_empty();
            let paused = if none_paused {
                Vec::new()
            } else {
                self.engine.request_blockers(open.request_id).paused
            };
            let mut progress = open.progress.clone();
            if open.checked_at.elapsed() >= PROGRESS_INTERVAL {
                open.checked_at = monotonic();
                progress = Some(self.engine.request_progress(open.request_id));
            }
            if paused != open.reported_paused || progress != open.progress {
                let noted = super::requests::progress(&paused, progress.as_ref());
                records.requests().record_progress(&open.request, &noted, app.now())?;
                (open.reported_paused, open.progress) = (paused, progress);
                app.wake_up();
            }
        }
        Ok(())
    }
}

/// New requests, and their events for the engine.
pub(super) struct NewRequests {
    pub(super) events: Vec<Event>,
    pub(super) requests: Vec<RequestRecord>,
}

/// Claims the open requests that are not in `known`, which the engine has accepted. The caller
/// passes the events to the engine.
pub(super) fn claim_requests(
    app: &ServerState,
    lease: &Lease,
    open: Vec<RequestRecord>,
    (known, engine): (&[PendingRequest], Option<&Engine>),
) -> Result<NewRequests, RunnerError> {
    let store = app.store().clone();
    let (records, key) = (store.under_lease(lease), lease.environment());
    let mut new_requests = NewRequests { events: Vec::new(), requests: Vec::new() };
    let is_known = |request: &RequestRecord| known.iter().any(|of| of.request.key == request.key);
    let cancelled: BTreeSet<_> = open.iter().filter_map(cancelled_by).collect();
    for request in open {
        if request.kind.is_dry_run() || is_known(&request) {
            continue;
        }
        records.requests().accept(request.key, app.now())?;
        // The request and its cancellation arrive together: neither reaches the engine.
        if request.kind.is_cancellable() && cancelled.contains(&request.uuid) {
            let error = "cancelled before it began".to_owned();
            records.requests().finish(&request, &RequestResult::Failed { error }, app.now())?;
            app.wake_up();
            continue;
        }
        if let Some(operation) = cancelled_by(&request) {
            let of = known.iter().find(|known| known.request.uuid == operation);
            match of.zip(engine) {
                Some((of, engine)) => {
                    let filter = Filter::ids(engine.request_remaining(of.request_id));
                    new_requests.events.push(Event::Cancel(filter));
                    new_requests.requests.push(request);
                }
                // It has ended.
                None => {
                    let done = RequestResult::Done(None);
                    records.requests().finish(&request, &done, app.now())?;
                    app.wake_up();
                }
            }
            continue;
        }
        match super::requests::event(&store, key, &request)? {
            Ok(event) => {
                new_requests.events.push(event);
                new_requests.requests.push(request);
            }
            Err(refusal) => {
                let refused = RequestResult::Failed { error: refusal };
                records.requests().finish(&request, &refused, app.now())?;
                app.wake_up();
            }
        }
    }
    Ok(new_requests)
}

/// The request that a request cancels, if it is a cancellation.
fn cancelled_by(request: &RequestRecord) -> Option<orrery_model::RequestId> {
    match request.kind {
        RequestKind::CancelOperation { operation } => Some(operation),
        _ => None,
    }
}

/// Pairs requests with the ids that the engine assigned.
pub(super) fn pending_requests(
    requests: Vec<RequestRecord>,
    request_ids: Vec<RequestId>,
) -> impl Iterator<Item = PendingRequest> {
    requests.into_iter().zip(request_ids).map(|(request, request_id)| {
        let progress = request.progress.as_ref();
        let reported_paused = progress.map(|noted| noted.paused_agents.clone());
        let reported_paused = reported_paused.unwrap_or_default();
        PendingRequest {
            request,
            request_id,
            reported_paused,
            progress: None,
            checked_at: monotonic(),
        }
    })
}
