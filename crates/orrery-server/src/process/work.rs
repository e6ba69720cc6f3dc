//! An environment that this process works for, and what people ask of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use orrery_executor::Engine;
use orrery_scheduler::{Event, Filter, Settings};
use orrery_store::{EnvironmentKey, Lease, RequestRecord, ServedName};

use crate::app::App;

use super::handlers::Handlers;
use super::places::AgentPlaces;
use super::runner::{DRY_RUN, RunnerError};

/// An environment that this process works for.
pub(super) struct Work {
    pub(super) engine: Engine,
    pub(super) lease: Lease,
    pub(super) handlers: Handlers,
    pub(super) places: Arc<AgentPlaces>,
    pub(super) settings: Settings,
    pub(super) paused: BTreeSet<String>,
    /// What was asked for and is under way.
    pub(super) requests: Vec<RequestRecord>,
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

    /// Takes in what was asked for since.
    pub(super) fn take_requests(
        &mut self,
        app: &App,
        key: EnvironmentKey,
        asked: Vec<RequestRecord>,
    ) -> Result<(), RunnerError> {
        let store = Arc::clone(app.store());
        for request in asked {
            let known = self.requests.iter().any(|known| known.key == request.key);
            if known || request.kind == DRY_RUN {
                continue;
            }
            match super::requests::event(&*store, key, &request)? {
                Ok(event) => {
                    // First: what an engine that has just begun does anyway is not done twice.
                    self.engine.tell(event);
                    store.records().take_request(request.key, app.now())?;
                    self.requests.push(request);
                }
                Err(refusal) => {
                    store.records().take_request(request.key, app.now())?;
                    let outcome = serde_json::json!({"error": refusal});
                    store.records().finish_request(&request, &outcome, app.now())?;
                    app.nudge();
                }
            }
        }
        Ok(())
    }

    /// All is done that can be: what was asked for is.
    pub(super) fn finish_requests(&mut self, app: &App) -> Result<(), RunnerError> {
        while let Some(request) = self.requests.pop() {
            let outcome = serde_json::json!({"done": true});
            app.store().records().finish_request(&request, &outcome, app.now())?;
            app.nudge();
        }
        Ok(())
    }
}
