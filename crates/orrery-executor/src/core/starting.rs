//! How a task becomes a job: what a worker gets to know, and what is noted of it.

use std::sync::Arc;
use std::time::Instant;

use orrery_handlers::Stop;
use orrery_model::{Compliance, ResourceId, Timestamp};
use orrery_scheduler::{
    Decision, Dependency, Event, ResourceIndex, Start, TaskKind, TaskResult, decide,
};
use orrery_store::{ActionKind, Started};

use super::{Core, Underway};
use crate::begun::IsBegun;
use crate::job::{Job, JobKind};

impl Core {
    pub(super) fn start(&mut self, start: Start, now: Timestamp) {
        let (kind, position, index) = match start.kind {
            TaskKind::Deploy(index) => (JobKind::Deploy, self.entry(index).position, Some(index)),
            TaskKind::FactRefresh(index) => {
                (JobKind::Facts, self.entry(index).position, Some(index))
            }
            TaskKind::DryRun { entry, .. } => {
                let position = self.dry_run.positions.get(entry as usize).copied();
                (JobKind::DryRun { entry }, position, None)
            }
        };
        let Some(position) = position else {
            // It was taken out of the version while it stood in line; nothing is left to be done.
            let result = TaskResult::Cancelled;
            return self.apply(Event::TaskFinished { task: start.task, result });
        };
        let (resource, key) = self.wanted(position);
        let (resource, flags) = (resource.clone(), resource.flags);
        let state = index.and_then(|index| self.scheduler.state(index));
        let last_success = state.as_ref().and_then(|state| state.last_success);
        let mut skip = None;
        let mut changed_dependencies = Vec::new();
        let mut announce = None;
        if kind == JobKind::Deploy {
            announce = index
                .filter(|&index| self.may_cause_reloads(index))
                .and(key)
                .map(|key| (key, self.desired.version));
            let statuses = start.dependencies.iter().map(|dependency| dependency.status);
            if let Decision::Skip { level, because } = decide(statuses, flags.report_only) {
                skip = Some((level, because, self.bad_ones(&start.dependencies)));
            }
            if flags.receive_events {
                changed_dependencies = self.changed_since(&start.dependencies, last_success);
            }
        }
        let mut deployed_before = last_success.is_some();
        if matches!(kind, JobKind::DryRun { .. }) {
            (deployed_before, changed_dependencies) = self.before_dry_run(position);
        }
        let deadline = start.deadline.and_then(|at| Instant::now().checked_add(at.since(now)));
        let stop = deadline.map_or_else(Stop::never, Stop::at);
        let stop = match &self.permit {
            Some(permit) => stop.under(permit),
            None => stop,
        };
        let id = resource.id.clone();
        let version = self.desired.version;
        let long = key
            .filter(|_| kind == JobKind::Deploy && skip.is_none())
            .map(|resource| Started { resource, kind: ActionKind::Deploy, version, at: now });
        self.latest_task = self.latest_task.max(start.task);
        let facts = kind == JobKind::Facts;
        let is_begun = Arc::new(IsBegun::default());
        let underway = Underway {
            stop: stop.clone(),
            id,
            started: now,
            long,
            noted: false,
            facts,
            is_begun: Arc::clone(&is_begun),
        };
        let is_unsettled =
            kind == JobKind::Deploy && key.is_some_and(|key| self.unknown.contains(&key));
        self.underway.insert(start.task, underway);
        self.jobs.push_back(Job {
            task: start.task,
            kind,
            resource,
            key,
            agent: start.agent,
            stop,
            started: now,
            version: self.desired.version,
            reason: start.reason,
            skip,
            deployed_before,
            was_compliant: state
                .is_some_and(|state| state.compliance() == Some(Compliance::Compliant)),
            changed_dependencies,
            announce,
            is_unsettled,
            is_begun,
        });
    }

    /// Whether somebody would reload for its changes, for the first time or again.
    fn may_cause_reloads(&self, index: ResourceIndex) -> bool {
        let sends = self.scheduler.flags(index).is_some_and(|flags| flags.send_event);
        let reloads = |one: ResourceIndex| {
            self.scheduler.flags(one).is_some_and(|flags| flags.receive_events)
        };
        sends && !self.discard && self.scheduler.dependents(index).into_iter().any(reloads)
    }

    fn bad_ones(&self, dependencies: &[Dependency]) -> Vec<ResourceId> {
        dependencies
            .iter()
            .filter(|dependency| dependency.status != orrery_model::Status::Deployed)
            .filter_map(|dependency| self.scheduler.id(dependency.resource).cloned())
            .collect()
    }

    /// Requirements that send events and changed something after the dependent last ended well. For one that never
    /// did, whatever is known to have changed is news.
    fn changed_since(
        &self,
        dependencies: &[Dependency],
        last_success: Option<Timestamp>,
    ) -> Vec<ResourceId> {
        let is_news = |at| last_success.is_none_or(|last_success| at > last_success);
        dependencies
            .iter()
            .map(|dependency| dependency.resource)
            .filter(|&index| self.entry(index).changed_at.is_some_and(is_news))
            .filter(|&index| self.scheduler.flags(index).is_some_and(|flags| flags.send_event))
            .filter_map(|index| self.scheduler.id(index).cloned())
            .collect()
    }
}
