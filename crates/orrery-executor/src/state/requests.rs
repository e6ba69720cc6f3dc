//! Requests: submitted as events, ended by runs.

use orrery_model::ResourceId;
use orrery_scheduler::{Event, Filter};

use super::EngineState;
use crate::request_tracker::{NewRequest, RequestId, RequestProgress, RunEnd};

impl EngineState {
    /// Handles an event as a tracked request.
    pub(crate) fn submit(&mut self, mut event: Event) -> RequestId {
        if let Event::Drift(filter) = &mut event
            && filter.ids.is_none()
        {
            filter.ids = Some(self.watchable(filter));
        }
        let new = NewRequest::new(&event, &self.scheduler, self.running.latest());
        if new.deploys() {
            self.sites.invalidate_caches();
        }
        self.apply(event);
        let changed_at = |resource| self.resources.entry(resource).changed_at;
        let id = self.requests.track(new, &self.scheduler, changed_at);
        let ended = self.requests.finish_complete(self.writes.queued());
        self.write_soon_if(ended);
        id
    }

    /// Returns the resources in scope whose handlers name a path to watch.
    fn watchable(&self, filter: &Filter) -> Vec<ResourceId> {
        let matching = self.scheduler.resources_matching(filter).into_iter();
        matching
            .filter_map(|index| self.scheduler.id(index))
            .filter(|id| {
                let handler = self.registry.handler(id.entity());
                handler.is_some_and(|handler| handler.watched_path(id).is_some())
            })
            .cloned()
            .collect()
    }

    /// Records the end of a run; called after the scheduler handled it.
    pub(super) fn record_run_end(&mut self, run: RunEnd) {
        let ended = self.requests.record_run_end(run, &self.scheduler, self.writes.queued());
        self.write_soon_if(ended);
    }

    /// Drops resources with a task that was cancelled without a run.
    pub(super) fn drop_withdrawn(&mut self) {
        if !self.requests.is_empty() {
            let ended = self.requests.drop_withdrawn(&self.scheduler, self.writes.queued());
            self.write_soon_if(ended);
        }
    }

    fn write_soon_if(&mut self, a_request_ended: bool) {
        if a_request_ended {
            // The requester waits until it is persisted.
            self.writes.mark_urgent();
        }
    }

    /// Resources that a request still waits for.
    pub(crate) fn request_remaining(&self, id: RequestId) -> Vec<ResourceId> {
        let remaining = self.requests.remaining(id);
        remaining.filter_map(|index| self.scheduler.id(index).cloned()).collect()
    }

    pub(crate) fn request_progress(&self, id: RequestId) -> RequestProgress {
        let Some((total, done)) = self.requests.progress(id) else {
            return RequestProgress::default();
        };
        let running = self.running.longest().into_iter().map(|one| one.id.clone()).collect();
        RequestProgress { total, done, running, runs: self.requests.runs(id) }
    }
}
