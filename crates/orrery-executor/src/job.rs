//! What a worker of an engine does: it has one handler run, here or elsewhere.

use std::cell::Cell;
use std::sync::{Arc, PoisonError, RwLock};

use orrery_handlers::{
    Announcement, Contents, HandlerError, OutwardTarget, Registry, Secrets, Session, Stop,
};
use orrery_model::{
    LogLevel, Outcome, OutcomeStatus, Resource, ResourceId, Timestamp, VersionNumber,
};
use orrery_scheduler::{AgentIndex, Reason, SkipCause, TaskNumber};
use orrery_store::{ActionKind, ResourceKey, Started};
use serde_json::Value;

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
}

/// Has the handler run. Whatever it does, there is an outcome, and it can be kept.
pub(crate) fn perform(job: &Job, room: &AgentRoom, workshop: &Workshop) -> Performed {
    let mut performed = have_run(job, room, workshop);
    fit(&mut performed.outcome);
    performed
}

fn have_run(job: &Job, room: &AgentRoom, workshop: &Workshop) -> Performed {
    let resource = &job.resource;
    let registry = Arc::clone(&workshop.registry.read().unwrap_or_else(PoisonError::into_inner));
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
    let announced = Cell::new(false);
    let announce = || announce(job, workshop, &announced);
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
        announce: job.announce.is_some().then_some(Announcement(&announce)),
    };
    let run_with = |target| {
        task.run(&Bench {
            registry: &registry,
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
                registry: &registry,
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
