//! What a worker of an engine does: it has one handler run, here or elsewhere.

use std::cell::Cell;
use std::sync::{Arc, PoisonError, RwLock};

use orrery_handlers::{
    Announcement, Contents, EffectGate, HandlerError, OutwardTarget, Registry, Secrets, Session,
    Stop,
};
use orrery_model::{
    LogLevel, Outcome, OutcomeStatus, Resource, ResourceId, Timestamp, VersionNumber,
};
use orrery_scheduler::{AgentIndex, Reason, SkipCause, TaskNumber};
use orrery_store::{ActionKind, ResourceKey, Started};
use serde_json::Value;

use crate::begun::{self, BegunNotes, Effect, IsBegun, Verdict};
use crate::engine::Keeper;
use crate::fitting::fit;
use crate::remote::{self, Depot};
use crate::targets::{NoTarget, Place};
use crate::task::{Bench, Performed, Purpose, Task, ended, unhandled};

pub(crate) use crate::task::now;

/// What a worker is to do.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) task: TaskNumber,
    pub(crate) kind: JobKind,
    /// What is wanted, as it was when the job began.
    pub(crate) resource: Resource,
    /// `None` in dry runs of what is not stored.
    pub(crate) key: Option<ResourceKey>,
    pub(crate) agent: AgentIndex,
    pub(crate) stop: Stop,
    pub(crate) started: Timestamp,
    pub(crate) version: VersionNumber,
    pub(crate) reason: Reason,
    /// Why it must not run at all, and which resources are to blame.
    pub(crate) skip: Option<(LogLevel, SkipCause, Vec<ResourceId>)>,
    pub(crate) deployed_before: bool,
    /// It was as wanted when it was last looked at.
    pub(crate) was_compliant: bool,
    pub(crate) changed_dependencies: Vec<ResourceId>,
    /// If somebody may reload when this changes: what is noted before it does.
    pub(crate) announce: Option<(ResourceKey, VersionNumber)>,
    /// An earlier effect of it may have happened or not.
    pub(crate) is_unsettled: bool,
    /// Whether it was noted that an effect begins which must not be repeated.
    pub(crate) is_begun: Arc<IsBegun>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobKind {
    Deploy,
    DryRun { entry: u32 },
    Facts,
}

/// What the runs of one agent share.
pub(crate) struct AgentRoom {
    pub(crate) place: Result<Place, NoTarget>,
    pub(crate) session: Session,
}

/// What all runs share.
pub(crate) struct Workshop {
    /// A version may bring other handlers than the one before it.
    pub(crate) registry: RwLock<Arc<Registry>>,
    pub(crate) contents: Arc<dyn Contents>,
    pub(crate) secrets: Arc<dyn Secrets>,
    pub(crate) log_level: LogLevel,
    /// `None` for dry runs.
    pub(crate) keeper: Option<Keeper>,
    pub(crate) begun: BegunNotes,
}

/// Has the handler run. Whatever it does, there is an outcome, and it can be kept.
pub(crate) fn perform(
    job: &Job,
    room: &AgentRoom,
    workshop: &Workshop,
) -> (Performed, Option<Effect>) {
    let registry = Arc::clone(&workshop.registry.read().unwrap_or_else(PoisonError::into_inner));
    let (mut performed, effect) = match verdict(job, &registry, workshop) {
        Verdict::Ends(outcome, effect) => (outcome.into(), effect),
        Verdict::Run(unknown) => {
            let performed = have_run(job, room, workshop, &registry, unknown.is_some());
            let effect = begun::effect_of(job, &performed, unknown);
            (performed, effect)
        }
    };
    if effect == Some(Effect::Unknown) {
        begun::explain(&mut performed.outcome, job.resource.id.as_str());
    }
    fit(&mut performed.outcome);
    (performed, effect)
}

/// Whether a job is run, given that an earlier effect of it may have happened.
fn verdict(job: &Job, registry: &Registry, workshop: &Workshop) -> Verdict {
    let (Some(key), Some(keeper)) = (job.key.filter(|_| job.is_unsettled), &workshop.keeper) else {
        return Verdict::Run(None);
    };
    let handler = registry.handler(job.resource.id.entity());
    let reads_back = handler.is_some_and(|handler| handler.reads_back());
    match keeper.store.records().begun_effect(key) {
        Ok(found) => begun::settle(found.as_ref(), reads_back),
        Err(error) => {
            let text = format!("whether it was done before cannot be found out now: {error}");
            Verdict::Ends(ended(OutcomeStatus::Failed, LogLevel::Error, text), None)
        }
    }
}

fn have_run(
    job: &Job,
    room: &AgentRoom,
    workshop: &Workshop,
    registry: &Registry,
    is_unknown: bool,
) -> Performed {
    let resource = &job.resource;
    if registry.handler(resource.id.entity()).is_none() {
        return unhandled(resource.id.entity()).into();
    }
    if let Some((level, because, bad)) = &job.skip {
        let text = because.as_str().to_owned();
        let mut outcome = ended(OutcomeStatus::SkippedForDependency, *level, text);
        let names = bad.iter().map(|id| Value::from(id.as_str())).collect();
        if let Some(line) = outcome.log.first_mut() {
            line.values.insert("resources".to_owned(), Value::Array(names));
        }
        return outcome.into();
    }
    let place = match &room.place {
        Ok(place) => place,
        Err(error) => {
            let text = error.to_string();
            return ended(OutcomeStatus::Unavailable, LogLevel::Error, text).into();
        }
    };
    let handler = registry.handler(resource.id.entity());
    let must_not_repeat = job.kind == JobKind::Deploy
        && !resource.flags.report_only
        && handler.is_some_and(|handler| handler.must_not_repeat(&resource.attributes));
    let announced = Cell::new(false);
    let announce = || {
        announce(job, workshop, &announced)?;
        if must_not_repeat { begin(job, workshop) } else { Ok(()) }
    };
    let begin = || begin(job, workshop);
    let task = Task {
        purpose: match job.kind {
            JobKind::Deploy => Purpose::Deploy,
            JobKind::DryRun { .. } => Purpose::DryRun,
            JobKind::Facts => Purpose::Facts,
        },
        resource,
        version: job.version,
        deployed_before: job.deployed_before,
        changed_dependencies: &job.changed_dependencies,
        reason: &job.reason,
        stop: &job.stop,
        announce: (must_not_repeat || job.announce.is_some()).then_some(Announcement(&announce)),
        effects: (job.kind == JobKind::Deploy).then_some(EffectGate { is_unknown, begin: &begin }),
    };
    let run_with = |target| {
        task.run(&Bench {
            registry,
            target,
            session: &room.session,
            contents: &*workshop.contents,
            secrets: &*workshop.secrets,
            log_level: workshop.log_level,
        })
    };
    let mut performed = match place {
        Place::Here(target) => run_with(&**target),
        Place::Outward(target) if registry.acts_on_machine(resource.id.entity()) => {
            return without_machine(target).into();
        }
        Place::Outward(target) => run_with(&**target),
        Place::Remote(remote) => {
            let depot = Depot {
                registry,
                contents: &*workshop.contents,
                secrets: &*workshop.secrets,
                epoch: workshop.keeper.as_ref().map(|keeper| keeper.lease.epoch()),
                log_level: workshop.log_level,
            };
            remote::run(task, &**remote, &depot)
        }
    };
    // A run that was lost and repeated may have nothing left to announce, and an answer may be lost whole.
    performed.announced |= announced.get();
    performed
}

/// The outcome for a resource that acts on a machine which its agent does not have.
fn without_machine(target: &OutwardTarget) -> Outcome {
    let mut outcome =
        ended(OutcomeStatus::Unavailable, LogLevel::Error, target.reason().to_owned());
    if let Some(line) = outcome.log.first_mut() {
        line.values.insert("hint".to_owned(), target.help().into());
    }
    outcome
}

/// Notes in the store that an effect begins which must not be repeated. Durable when this returns. Once is enough.
fn begin(job: &Job, workshop: &Workshop) -> Result<(), HandlerError> {
    let (Some(started), Some(keeper)) = (begun::started(job), &workshop.keeper) else {
        return Ok(());
    };
    if !job.is_begun.get() {
        workshop.begun.note(keeper, started)?;
        job.is_begun.set();
    }
    Ok(())
}

/// Notes in the store that a change begins. Durable when this returns. Once is enough.
fn announce(job: &Job, workshop: &Workshop, announced: &Cell<bool>) -> Result<(), HandlerError> {
    let (Some((resource, version)), Some(keeper)) = (job.announce, &workshop.keeper) else {
        return Ok(());
    };
    if announced.get() {
        return Ok(());
    }
    let started = Started { resource, kind: ActionKind::Deploy, version, at: job.started };
    let noted = keeper.store.begin(&keeper.lease, &[started]);
    noted.map_err(|error| HandlerError::failed(format!("the change cannot be noted: {error}")))?;
    announced.set(true);
    Ok(())
}
