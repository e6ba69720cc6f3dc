//! What a job comes to: what the scheduler hears of it, what is kept, and what is told.

use orrery_model::{ChangeKind, LogLevel, LogLine, Outcome, OutcomeStatus, ResourceId, Timestamp};
use orrery_scheduler::{Event, TaskResult};
use orrery_store::ActionKind;

use super::{Core, Underway};
use crate::begun::Effect;
use crate::dry_run::DryRunEntry;
use crate::job::{Job, JobKind};
use crate::progress::Finished;
use crate::task::Performed;
use crate::writer::{Action, Record, Write};

impl Core {
    /// A worker is done with a job.
    pub(crate) fn job_ended(&mut self, job: Job, performed: Performed, effect: Option<Effect>) {
        let Performed { mut outcome, announced, repeated, .. } = performed;
        let now = self.now();
        let Some(underway) = self.underway.remove(&job.task) else {
            // It was given up before; what it has done is known nevertheless.
            self.lost = self.lost.saturating_sub(1);
            if let (Some(Effect::Ended(_)), Some(resource)) = (effect, job.key)
                && outcome.status == OutcomeStatus::Deployed
            {
                tracing::info!(id = %job.resource.id, ?resource, "a run that was given up ended well");
            }
            return;
        };
        if let JobKind::DryRun { entry } = job.kind {
            self.tally.add(outcome.status, outcome.change.kind);
            self.dry_run_answer(entry, DryRunEntry::Outcome(outcome));
            let result = TaskResult::Finished(OutcomeStatus::Deployed);
            return self.apply(Event::TaskFinished { task: job.task, result });
        }
        let is_unknown = effect == Some(Effect::Unknown);
        match (effect, job.key) {
            (Some(Effect::Unknown), Some(key)) => {
                outcome.status = OutcomeStatus::Failed;
                self.unknown.insert(key);
                self.became_unknown.push(job.resource.id.clone());
            }
            (Some(Effect::Ended(_)), Some(key)) => {
                self.unknown.remove(&key);
            }
            _ => {}
        }
        let interrupted = job.stop.is_cancelled() && outcome.status == OutcomeStatus::Skipped;
        let late = job.stop.remaining().is_some_and(|left| left.is_zero());
        if interrupted && late {
            // Whether the handler saw the deadline or the cancellation that follows it first is chance.
            outcome.status = OutcomeStatus::Failed;
            let message = "it took longer than it may, and was stopped".to_owned();
            let values = serde_json::Map::new();
            outcome.log.push(LogLine { at: now, level: LogLevel::Error, message, values });
        }
        let result = if interrupted && !late {
            self.tally.cancelled += 1;
            TaskResult::Cancelled
        } else {
            self.tally.add(outcome.status, outcome.change.kind);
            if is_unknown { TaskResult::Parked } else { TaskResult::Finished(outcome.status) }
        };
        let verdict = match result {
            TaskResult::Finished(_) | TaskResult::Parked => {
                Some((outcome.status, outcome.change.kind))
            }
            TaskResult::Cancelled => None,
        };
        let unclear = announced && (repeated || outcome.status != OutcomeStatus::Deployed);
        if (unclear || outcome.change.kind != ChangeKind::NoChange)
            && let Some(index) = self.scheduler.index_of(job.resource.id.as_str())
        {
            self.entry_mut(index).changed_at = Some(now);
        }
        self.tell(&job, &outcome, now);
        self.apply(Event::TaskFinished { task: job.task, result });
        let due = job.kind == JobKind::Deploy && self.awaited_facts.are_due(&job, &outcome);
        self.record(&job, outcome, (underway.noted, effect), now);
        // After that: whoever asked for it is told when it is kept.
        if !self.requests.is_empty()
            && let Some(index) = self.scheduler.index_of(job.resource.id.as_str())
        {
            self.run_ended(index, job.task, job.kind == JobKind::Facts, verdict);
        }
        if due {
            self.apply(Event::FactRefresh(vec![job.resource.id]));
        }
        if self.scheduler.is_idle() {
            // Whatever comes next, a timer or a version, may come much later.
            self.begin_pass();
        }
    }

    /// Keeps what a run did. One that found everything as it was is kept in the state alone, unless it was noted that it takes
    /// long, which its end takes back.
    fn record(
        &mut self,
        job: &Job,
        outcome: Outcome,
        (noted, effect): (bool, Option<Effect>),
        now: Timestamp,
    ) {
        let uneventful = !noted
            && effect.is_none()
            && job.kind == JobKind::Deploy
            && job.was_compliant
            && outcome.status == OutcomeStatus::Deployed
            && outcome.change.kind == ChangeKind::NoChange
            && outcome.log.is_empty();
        if uneventful && outcome.facts.is_empty() {
            return;
        }
        self.pressing = true;
        let action = (!uneventful).then(|| Action {
            kind: if job.kind == JobKind::Facts {
                ActionKind::GetFacts
            } else {
                ActionKind::Deploy
            },
            version: job.version,
            started: job.started,
            finished: now,
            outcome: outcome.status,
            change: outcome.change,
            wants_absence: orrery_model::wants_absence(&job.resource.attributes),
            log: outcome.log,
        });
        let Some(resource) = job.key else { return };
        let facts = outcome.facts;
        self.write(Write::Result(Record { resource, state: None, action, facts, effect }));
    }

    /// Notes that nobody will learn how an effect ended: its run was given up.
    pub(super) fn effect_is_unknown(&mut self, id: &ResourceId) {
        let Some(index) = self.scheduler.index_of(id.as_str()) else { return };
        let Some(resource) = self.entry(index).key else { return };
        self.unknown.insert(resource);
        self.became_unknown.push(id.clone());
        let (state, action, facts) = (None, None, Vec::new());
        let effect = Some(Effect::Unknown);
        self.write(Write::Result(Record { resource, state, action, facts, effect }));
    }

    fn tell(&mut self, job: &Job, outcome: &Outcome, now: Timestamp) {
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
        self.finished.push(Finished {
            id: job.resource.id.clone(),
            blocked_by: bad.collect(),
            status: outcome.status,
            change: outcome.change.clone(),
            message: complaint.map(|line| line.message.clone()),
            hint: hint.map(str::to_owned),
            took: now.since(job.started),
            reason: job.reason.clone(),
        });
    }

    pub(super) fn give_up(&mut self, underway: &Underway, now: Timestamp) {
        self.finished.push(Finished {
            id: underway.id.clone(),
            status: OutcomeStatus::Failed,
            change: orrery_model::Change::default(),
            message: Some(
                "the handler did not end in time, not even after it was cancelled".into(),
            ),
            hint: None,
            blocked_by: Vec::new(),
            took: now.since(underway.started),
            reason: orrery_scheduler::Reason::Interrupted,
        });
    }
}
