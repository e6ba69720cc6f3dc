//! An environment that this process works for, and what people ask of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery_executor::{Engine, RequestProgress, Ticket};
use orrery_handlers::Permit;
use orrery_model::{Inventory, ResourceId};
use orrery_scheduler::{Event, Filter, Settings};
use orrery_store::{Lease, RequestRecord, ServedName};
use serde_json::Value;

use crate::app::App;

use super::epochs;
use super::facts::UnknownFacts;
use super::handlers::Handlers;
use super::places::{AgentPlaces, Moves};
use super::runner::{DRY_RUN, RunnerError};

/// How often it is noted how far a request is: what ends sooner costs no write.
pub(super) const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// An environment that this process works for.
pub(super) struct Work {
    pub(super) engine: Engine,
    pub(super) lease: Lease,
    pub(super) permit: Permit,
    pub(super) handlers: Handlers,
    pub(super) places: Arc<AgentPlaces>,
    pub(super) settings: Settings,
    pub(super) paused: BTreeSet<String>,
    pub(super) unknown_facts: UnknownFacts,
    /// What was asked for and is under way.
    pub(super) requests: Vec<Open>,
    /// What has ended, and is not yet kept as ended.
    pub(super) ended: Vec<(RequestRecord, Value)>,
    /// Parked resources that people are still to be told of.
    pub(super) parked: Vec<(ResourceId, u32)>,
    /// Resources of whose effect nobody knows whether it happened, that people are still to be told of.
    pub(super) unknown: Vec<ResourceId>,
    /// Something became known that a compile is still to be asked for.
    pub(super) has_resolved: bool,
}

/// A request that the engine has taken in.
pub(super) struct Open {
    request: RequestRecord,
    ticket: Ticket,
    /// Agents that people were told it waits for.
    said: Vec<String>,
    /// The progress that was noted last, and when it was looked for.
    progress: Option<RequestProgress>,
    looked: Instant,
}

impl Work {
    /// Tells the engine what people have set since.
    pub(super) fn set(&mut self, settings: Settings, paused: BTreeSet<String>) {
        if settings != self.settings {
            self.engine.tell(Event::SettingsChanged(Box::new(settings.clone())));
            self.settings = settings;
        }
        let names =
            |of: Vec<&String>| Some(of.into_iter().map(|name| name.as_str().into()).collect());
        let newly: Vec<&String> = paused.difference(&self.paused).collect();
        if !newly.is_empty() {
            self.engine.tell(Event::Pause(names(newly)));
        }
        let no_longer: Vec<&String> = self.paused.difference(&paused).collect();
        if !no_longer.is_empty() {
            self.engine.tell(Event::Unpause(names(no_longer)));
        }
        self.paused = paused;
    }

    /// Tells the engine who serves which agent now. What is not as wanted on a machine that came back is tried again. What runs for an
    /// agent that moved says nothing about the machine where it is now: whoever moved it has asked for a repair.
    pub(super) fn move_agents(&self, served: Vec<ServedName>) {
        let moves = self.places.set(served);
        if self.permit.end().is_some() {
            epochs::tell(&self.places, moves.reachable.iter().cloned(), self.lease, &self.permit);
        }
        self.follow_moves(&moves);
    }

    /// Tells the engine where agents are now that something else is declared about them.
    pub(super) fn declare_agents(
        &self,
        agents: impl IntoIterator<Item = String>,
        change: impl FnOnce(&mut Inventory),
    ) {
        self.follow_moves(&self.places.declare(agents, change));
    }

    fn follow_moves(&self, moves: &Moves) {
        if moves.changed {
            self.engine.forget_places();
        }
        if !moves.moved.is_empty() {
            let agents = moves.moved.iter().map(|name| name.as_str().into()).collect();
            self.engine.tell(Event::Cancel(Filter { agents: Some(agents), ids: None }));
        }
        if !moves.reachable.is_empty() {
            let agents = moves.reachable.iter().map(|name| name.as_str().into()).collect();
            self.engine.tell(Event::Deploy(Filter { agents: Some(agents), ids: None }));
        }
    }

    /// Ends the requests whose work is done, and says what others wait for.
    pub(super) fn finish_requests(&mut self, app: &App) -> Result<(), RunnerError> {
        for (ticket, answer) in self.engine.take_answers() {
            let Some(at) = self.requests.iter().position(|open| open.ticket == ticket) else {
                continue;
            };
            let outcome = super::requests::outcome(&answer);
            self.ended.push((self.requests.remove(at).request, outcome));
        }
        let records = app.store().records().under(&self.lease);
        // What cannot be kept now is kept later.
        while let Some((request, outcome)) = self.ended.last() {
            records.finish_request(request, outcome, app.now())?;
            self.ended.pop();
            app.nudge();
        }
        for open in &mut self.requests {
            let nobody = self.paused.is_empty();
            let paused = if nobody { Vec::new() } else { self.engine.waiting(open.ticket).paused };
            let mut progress = open.progress.clone();
            if open.looked.elapsed() >= PROGRESS_EVERY {
                open.looked = Instant::now();
                progress = Some(self.engine.request_progress(open.ticket));
            }
            if paused != open.said || progress != open.progress {
                let noted = super::requests::progress(&paused, progress.as_ref());
                records.note_progress(&open.request, &noted, app.now())?;
                (open.said, open.progress) = (paused, progress);
                app.nudge();
            }
        }
        Ok(())
    }
}

/// What was asked for and is new, as the engine understands it.
pub(super) struct Taken {
    pub(super) events: Vec<Event>,
    pub(super) requests: Vec<RequestRecord>,
}

/// Takes in what was asked for, but for what is known already. The engine has to be told.
pub(super) fn take_requests(
    app: &App,
    lease: &Lease,
    open: Vec<RequestRecord>,
    known: &[Open],
) -> Result<Taken, RunnerError> {
    let store = Arc::clone(app.store());
    let (records, key) = (store.records().under(lease), lease.environment());
    let mut taken = Taken { events: Vec::new(), requests: Vec::new() };
    for request in open {
        if request.kind == DRY_RUN || known.iter().any(|known| known.request.key == request.key) {
            continue;
        }
        records.take_request(request.key, app.now())?;
        match super::requests::event(&*store, key, &request)? {
            Ok(event) => {
                taken.events.push(event);
                taken.requests.push(request);
            }
            Err(refusal) => {
                let outcome = serde_json::json!({"error": refusal});
                records.finish_request(&request, &outcome, app.now())?;
                app.nudge();
            }
        }
    }
    Ok(taken)
}

/// Requests that the engine answers for, each with its ticket.
pub(super) fn opened(
    requests: Vec<RequestRecord>,
    tickets: Vec<Ticket>,
) -> impl Iterator<Item = Open> {
    requests.into_iter().zip(tickets).map(|(request, ticket)| {
        let said = super::requests::said(request.outcome.as_ref());
        Open { request, ticket, said, progress: None, looked: Instant::now() }
    })
}
