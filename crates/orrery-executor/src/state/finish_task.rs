//! Ends a run: reports to the scheduler, persists the outcome, updates requests.

use orrery_handlers::run::RunOutcome;
use orrery_model::{
    ChangeKind, DriftPolicy, LogLevel, LogLine, Outcome, OutcomeStatus, ResourceId, Timestamp,
};
use orrery_scheduler::{Event, Filter, TaskResult};
use orrery_store::ActionKind;

use super::EngineState;
use crate::dry_run::DryRunEntry;
use crate::effects::Effect;
use crate::pending_run::{PendingRun, RunKind};
use crate::progress::FinishedRun;
use crate::request_tracker::RunEnd;
use crate::running_tasks::RunningTask;
use crate::write_queue::{Action, ResourceRecord, Write};

impl EngineState {
    /// Handles the outcome of a run.
    pub(crate) fn finish_run(
        &mut self,
        run: PendingRun,
        run_outcome: RunOutcome,
        effect: Option<Effect>,
    ) {
        let RunOutcome { mut outcome, announced, repeated, .. } = run_outcome;
        let now = self.clock.now();
        self.queue.release(run.task);
        let Some(running_task) = self.running.finish(run.task) else {
            // The run was abandoned; its effect is known nevertheless.
            if let (Some(Effect::Ended(_)), Some(resource)) = (effect, run.key)
                && outcome.status == OutcomeStatus::Deployed
            {
                tracing::info!(id = %run.resource.id, ?resource, "an abandoned run succeeded");
            }
            return;
        };
        if let RunKind::DryRun { entry } = run.kind {
            self.progress.count(outcome.status, outcome.change.kind);
            self.dry_run.record(entry, DryRunEntry::Outcome(outcome));
            let result = TaskResult::Finished(OutcomeStatus::Deployed);
            return self.apply(Event::TaskFinished { task: run.task, result });
        }
        let is_unknown = effect == Some(Effect::Unknown);
        match (effect, run.key) {
            (Some(Effect::Unknown), Some(key)) => {
                outcome.status = OutcomeStatus::Failed;
                self.effects.add(key, run.resource.id.clone());
            }
            (Some(Effect::Ended(_)), Some(key)) => {
                self.effects.remove(key);
            }
            _ => {}
        }
        let interrupted = run.stop.is_cancelled() && outcome.status == OutcomeStatus::Skipped;
        let late = run.stop.remaining().is_some_and(|time_left| time_left.is_zero());
        if interrupted && late {
            // The handler sees either the deadline or the cancellation that follows it; both mean a
            // timeout.
            outcome.status = OutcomeStatus::Failed;
            let message = "the deadline has passed; the run was cancelled".to_owned();
            let values = serde_json::Map::new();
            outcome.log.push(LogLine { at: now, level: LogLevel::Error, message, values });
        }
        let result = if interrupted && !late {
            self.progress.count_cancelled();
            TaskResult::Cancelled
        } else {
            self.progress.count(outcome.status, outcome.change.kind);
            if is_unknown { TaskResult::Parked } else { TaskResult::Finished(outcome.status) }
        };
        let verdict = match result {
            TaskResult::Finished(_) | TaskResult::Parked => {
                Some((outcome.status, outcome.change.kind))
            }
            TaskResult::Cancelled => None,
        };
        if run.looks_for_drift == Some(DriftPolicy::Ask)
            && run.was_compliant
            && outcome.status == OutcomeStatus::NonCompliant
        {
            self.progress.ask_about_drift(run.resource.id.clone());
        }
        let unclear = announced && (repeated || outcome.status != OutcomeStatus::Deployed);
        if (unclear || outcome.change.kind != ChangeKind::NoChange)
            && let Some(index) = self.scheduler.index_of(run.resource.id.as_str())
        {
            self.resources.mark_changed(index, now);
        }
        self.report_finished(&run, &outcome, now);
        self.apply(Event::TaskFinished { task: run.task, result });
        if running_task.requested_again
            && result == TaskResult::Finished(OutcomeStatus::Unavailable)
        {
            // The request came during the run, which did nothing: it must not wait for a retry.
            self.apply(Event::DeployDirty(Filter::ids([run.resource.id.clone()])));
        }
        let due = run.kind == RunKind::Deploy && self.fact_watch.is_refresh_due(&run, &outcome);
        self.record(&run, outcome, (running_task.noted, effect), now);
        // After the record: the requester hears of it once it is persisted.
        if !self.requests.is_empty()
            && let Some(resource) = self.scheduler.index_of(run.resource.id.as_str())
        {
            let (task, facts) = (run.task, run.kind == RunKind::Facts);
            self.record_run_end(RunEnd { resource, task, facts, result: verdict });
        }
        if due {
            self.apply(Event::FactRefresh(vec![run.resource.id]));
        }
        if self.scheduler.is_idle() {
            // The next event, a timer or a version, may come much later.
            self.sites.invalidate_caches();
        }
    }

    /// Persists the outcome of a run. An unchanged outcome is stored in the state only, unless the
    /// run was recorded as long, which its end clears.
    fn record(
        &mut self,
        run: &PendingRun,
        outcome: Outcome,
        (noted, effect): (bool, Option<Effect>),
        now: Timestamp,
    ) {
        let uneventful = !noted
            && effect.is_none()
            && run.kind == RunKind::Deploy
            && run.was_compliant
            && outcome.status == OutcomeStatus::Deployed
            && outcome.change.kind == ChangeKind::NoChange
            && outcome.log.is_empty();
        if uneventful && outcome.facts.is_empty() {
            return;
        }
        self.writes.mark_urgent();
        let action = (!uneventful).then(|| Action {
            kind: if run.kind == RunKind::Facts {
                ActionKind::GetFacts
            } else {
                ActionKind::Deploy
            },
            version: run.version,
            started: run.started,
            finished: now,
            outcome: outcome.status,
            change: outcome.change,
            wants_absence: orrery_model::wants_absence(&run.resource.attributes),
            log: outcome.log,
        });
        let Some(resource) = run.key else { return };
        let facts = outcome.facts;
        self.writes.push(Write::Result(ResourceRecord {
            resource,
            state: None,
            action,
            facts,
            effect,
        }));
    }

    /// Records an unknown effect: its run was abandoned.
    pub(super) fn record_unknown_effect(&mut self, id: &ResourceId) {
        let Some(index) = self.scheduler.index_of(id.as_str()) else { return };
        let Some(resource) = self.resources.entry(index).key else { return };
        self.effects.add(resource, id.clone());
        let (state, action, facts) = (None, None, Vec::new());
        let effect = Some(Effect::Unknown);
        self.writes.push(Write::Result(ResourceRecord { resource, state, action, facts, effect }));
    }

    fn report_finished(&mut self, run: &PendingRun, outcome: &Outcome, now: Timestamp) {
        if outcome.status == OutcomeStatus::Deployed && outcome.change.kind == ChangeKind::NoChange
        {
            return;
        }
        let complaint = outcome.log.iter().rfind(|line| line.level >= LogLevel::Warning);
        let complaint = complaint
            .or_else(|| outcome.log.last().filter(|_| outcome.status != OutcomeStatus::Deployed));
        let hint = complaint.and_then(|line| line.values.get("hint")?.as_str());
        let bad = complaint
            .filter(|_| outcome.status == OutcomeStatus::SkippedForDependency)
            .and_then(|line| line.values.get("resources")?.as_array());
        let bad = bad.into_iter().flatten().filter_map(|id| id.as_str().map(str::to_owned));
        self.progress.report(FinishedRun {
            id: run.resource.id.clone(),
            blocked_by: bad.collect(),
            status: outcome.status,
            change: outcome.change.clone(),
            message: complaint.map(|line| line.message.clone()),
            hint: hint.map(str::to_owned),
            took: now.since(run.started),
            reason: run.reason.clone(),
        });
    }

    pub(super) fn report_abandoned(&mut self, running_task: &RunningTask, now: Timestamp) {
        self.progress.report(FinishedRun {
            id: running_task.id.clone(),
            status: OutcomeStatus::Failed,
            change: orrery_model::Change::default(),
            message: Some(
                "the handler did not end by its deadline, and ignored its cancellation".into(),
            ),
            hint: None,
            blocked_by: Vec::new(),
            took: now.since(running_task.started),
            reason: orrery_scheduler::Reason::Interrupted,
        });
    }
}
