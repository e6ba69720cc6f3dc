//! Turns a scheduled task into a pending run.

use std::sync::Arc;

use orrery_base::clock::monotonic;
use orrery_handlers::CancelToken;
use orrery_model::{
    Compliance, DriftPolicy, LastRunStatus, Resource, ResourceId, ResourceState, Timestamp,
};
use orrery_scheduler::{
    AgentIndex, Decision, Dependency, Event, Reason, ResourceIndex, Start, TaskKind, TaskResult,
    decide,
};
use orrery_store::{ActionKind, StartedAction};

use super::EngineState;
use crate::pending_run::{EffectStarted, PendingRun, RunKind};
use crate::running_tasks::RunningTask;

impl EngineState {
    pub(super) fn start_task(&mut self, start: Start, now: Timestamp) {
        let (kind, position, index) = match start.kind {
            TaskKind::Deploy(index) => {
                (RunKind::Deploy, self.resources.entry(index).position, Some(index))
            }
            TaskKind::FactRefresh(index) => {
                (RunKind::Facts, self.resources.entry(index).position, Some(index))
            }
            TaskKind::DryRun { entry, .. } => {
                let position = self.dry_run.position_of(entry);
                (RunKind::DryRun { entry }, position, None)
            }
        };
        let Some(position) = position else {
            // It left the version while it was queued; nothing is left to do.
            let result = TaskResult::Cancelled;
            return self.apply(Event::TaskFinished { task: start.task, result });
        };
        let (resource, key) = self.resources.desired(position);
        let mut resource = resource.clone();
        let state = index.and_then(|index| self.scheduler.state(index));
        let looks_for_drift = state
            .as_ref()
            .filter(|_| kind == RunKind::Deploy)
            .and_then(|state| self.drift_report(&resource.id, state, &start.reason));
        resource.flags.report_only |= looks_for_drift.is_some();
        let flags = resource.flags;
        let last_success = state.as_ref().and_then(|state| state.last_success);
        let mut skip = None;
        let mut changed_dependencies = Vec::new();
        let mut change_record = None;
        if kind == RunKind::Deploy {
            change_record = index
                .filter(|&index| self.may_cause_reloads(index))
                .and(key)
                .map(|key| (key, self.resources.version()));
            let statuses = start.dependencies.iter().map(|dependency| dependency.status);
            if let Decision::Skip { level, cause: because } = decide(statuses, flags.report_only) {
                skip = Some((level, because, self.failed_dependencies(&start.dependencies)));
            }
            if flags.receive_events {
                changed_dependencies = self.changed_since(&start.dependencies, last_success);
            }
        }
        let mut deployed_before = last_success.is_some();
        if matches!(kind, RunKind::DryRun { .. }) {
            (deployed_before, changed_dependencies) =
                self.dry_run.inputs(position, self.resources.resources());
        }
        let deadline = start.deadline.and_then(|at| monotonic().checked_add(at.since(now)));
        let stop = deadline.map_or_else(CancelToken::never, CancelToken::at);
        let stop = self.lifecycle.limit(stop);
        let id = resource.id.clone();
        let version = self.resources.version();
        let long = key
            .filter(|_| kind == RunKind::Deploy && skip.is_none())
            .map(|resource| StartedAction { resource, kind: ActionKind::Deploy, version, at: now });
        let facts = kind == RunKind::Facts;
        let effect_started = Arc::new(EffectStarted::default());
        let running_task = RunningTask {
            stop: stop.clone(),
            id,
            started: now,
            long,
            noted: false,
            facts,
            effect_started: Arc::clone(&effect_started),
            requested_again: false,
        };
        let has_unknown_effect =
            kind == RunKind::Deploy && key.is_some_and(|key| self.effects.contains(key));
        self.running.start(start.task, running_task);
        let run = PendingRun {
            task: start.task,
            kind,
            resource,
            key,
            agent: start.agent,
            stop,
            started: now,
            version: self.resources.version(),
            reason: start.reason,
            skip,
            deployed_before,
            was_compliant: state
                .is_some_and(|state| state.compliance() == Some(Compliance::Compliant)),
            looks_for_drift,
            changed_dependencies,
            change_record,
            has_unknown_effect,
            effect_started,
        };
        if self.acts_on_this_machine(&run) {
            self.queue.push_local(run);
        } else {
            self.queue.push(run);
        }
    }

    /// Returns the policy of a run that only reports: it was not requested, the resource was in its
    /// desired state, and its policy does not repair drift.
    fn drift_report(
        &self,
        id: &ResourceId,
        state: &ResourceState,
        reason: &Reason,
    ) -> Option<DriftPolicy> {
        let is_automatic = matches!(
            reason,
            Reason::Drift
                | Reason::Retry { .. }
                | Reason::RepairInterval
                | Reason::DeployCron
                | Reason::RepairCron
                | Reason::Restart
        );
        let was_deployed = state.last_run == LastRunStatus::Successful
            && matches!(state.compliance(), Some(Compliance::Compliant | Compliance::NonCompliant));
        if !is_automatic || !was_deployed {
            return None;
        }
        Some(self.drift_policies.of(id)).filter(|policy| *policy != DriftPolicy::Heal)
    }

    /// Returns true if the handler uses this machine, and does not merely wait for others.
    fn acts_on_this_machine(&mut self, run: &PendingRun) -> bool {
        run.skip.is_none()
            && self.registry.acts_on_machine(run.resource.id.entity())
            && self.sites.get(run.agent, run.resource.id.agent()).is_local()
    }

    /// Returns the resources that an agent will probably run next.
    pub(crate) fn upcoming(&self, agent: AgentIndex, limit: usize) -> Vec<Resource> {
        let tasks = self.scheduler.upcoming(agent, limit).into_iter();
        let position = |kind: TaskKind| match kind {
            TaskKind::Deploy(index) => self.resources.entry(index).position,
            TaskKind::DryRun { entry, .. } => self.dry_run.position_of(entry),
            TaskKind::FactRefresh(_) => None,
        };
        tasks.filter_map(position).map(|at| self.resources.desired(at).0.clone()).collect()
    }

    /// Returns true if a dependent would reload for changes of the resource.
    fn may_cause_reloads(&self, index: ResourceIndex) -> bool {
        let sends = self.scheduler.flags(index).is_some_and(|flags| flags.send_event);
        let reloads = |one: ResourceIndex| {
            self.scheduler.flags(one).is_some_and(|flags| flags.receive_events)
        };
        sends
            && !self.writes.discards()
            && self.scheduler.dependents(index).into_iter().any(reloads)
    }

    fn failed_dependencies(&self, dependencies: &[Dependency]) -> Vec<ResourceId> {
        dependencies
            .iter()
            .filter(|dependency| dependency.status != orrery_model::Status::Deployed)
            .filter_map(|dependency| self.scheduler.id(dependency.resource).cloned())
            .collect()
    }

    /// Requirements that send events and changed after the last success of the dependent. Without a
    /// success, every recorded change counts.
    fn changed_since(
        &self,
        dependencies: &[Dependency],
        last_success: Option<Timestamp>,
    ) -> Vec<ResourceId> {
        let is_news = |at| last_success.is_none_or(|last_success| at > last_success);
        dependencies
            .iter()
            .map(|dependency| dependency.resource)
            .filter(|&index| self.resources.entry(index).changed_at.is_some_and(is_news))
            .filter(|&index| self.scheduler.flags(index).is_some_and(|flags| flags.send_event))
            .filter_map(|index| self.scheduler.id(index).cloned())
            .collect()
    }
}
