//! One run of one handler, on a worker thread.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};

use orrery_handlers::{
    Announcement, Contents, Context, Handler, HandlerError, Mode, Registry, Run, Secrets, Session,
    Standing, Stop, Surroundings,
};
use orrery_model::{
    Attributes, Change, LogLevel, LogLine, Outcome, OutcomeStatus, Resource, ResourceId, Timestamp,
    VersionNumber,
};
use orrery_scheduler::{AgentIndex, Reason, SkipCause, TaskNumber};
use orrery_store::{ActionKind, ResourceKey, Started};
use serde_json::Value;

use crate::engine::Keeper;
use crate::resolving;
use crate::targets::NoTarget;

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
    pub(crate) target: Result<Arc<dyn orrery_handlers::Target>, NoTarget>,
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

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Performed {
    pub(crate) outcome: Outcome,
    /// A change was announced; if the run did not end well, nobody knows how far it came.
    pub(crate) announced: bool,
    /// A part of the run was lost and repeated; nobody knows what it had changed.
    pub(crate) repeated: bool,
}

impl From<Outcome> for Performed {
    fn from(outcome: Outcome) -> Self {
        Performed { outcome, announced: false, repeated: false }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "handlers run in real time; the scheduler gets it from here"
)]
pub(crate) fn now() -> Timestamp {
    Timestamp::from_system(std::time::SystemTime::now())
}

/// Runs the handler. Whatever it does, there is an outcome.
pub(crate) fn perform(job: &Job, room: &AgentRoom, workshop: &Workshop) -> Performed {
    let resource = &job.resource;
    let registry = Arc::clone(&workshop.registry.read().unwrap_or_else(PoisonError::into_inner));
    let Some(handler) = registry.handler(resource.id.entity()) else {
        let message = format!("there is no handler for {}", resource.id.entity());
        return ended(OutcomeStatus::Unavailable, LogLevel::Error, message, Vec::new()).into();
    };
    if let Some((level, because, bad)) = &job.skip {
        let names = bad.iter().map(|id| Value::from(id.as_str())).collect();
        let values = vec![("resources", Value::Array(names))];
        let text = because.as_str().to_owned();
        return ended(OutcomeStatus::SkippedForDependency, *level, text, values).into();
    }
    let target = match &room.target {
        Ok(target) => target,
        Err(error) => {
            let text = error.to_string();
            return ended(OutcomeStatus::Unavailable, LogLevel::Error, text, Vec::new()).into();
        }
    };
    let resolved = if handler.resolves_references() {
        Ok(None)
    } else {
        resolving::resolve(&resource.attributes, &*workshop.secrets)
    };
    let resolved = match resolved {
        Ok(resolved) => resolved,
        Err(error) => {
            let text = error.to_string();
            return ended(OutcomeStatus::Failed, LogLevel::Error, text, Vec::new()).into();
        }
    };
    let attributes = resolved.as_ref().map_or(&resource.attributes, |with| &with.attributes);
    let surroundings = Surroundings {
        target: &**target,
        session: &room.session,
        contents: &*workshop.contents,
        clock: &now,
        log_level: workshop.log_level,
    };
    let mode = match job.kind {
        JobKind::DryRun { .. } => Mode::DryRun,
        JobKind::Deploy | JobKind::Facts if resource.flags.report_only => Mode::ReportOnly,
        JobKind::Deploy | JobKind::Facts => Mode::Deploy,
    };
    // What never ran has nothing to reload. Handlers elsewhere have their own ideas of that, and are told.
    let is_first = job.kind == JobKind::Deploy && !job.deployed_before;
    let run = Run {
        mode,
        stop: &job.stop,
        deployed_before: job.deployed_before,
        changed_dependencies: if is_first { &[] } else { &job.changed_dependencies },
    };
    let announced = Cell::new(false);
    let announce = || announce(job, workshop, &announced);
    let standing = Standing {
        version: job.version,
        requires: &resource.requires,
        changed: &job.changed_dependencies,
        reason: &job.reason,
    };
    let mut context = Context::new(&resource.id, &surroundings, run).standing_at(standing);
    if job.announce.is_some() {
        context = context.announcing(Announcement(&announce));
    }
    let caught =
        catch_unwind(AssertUnwindSafe(|| run_handler(&**handler, job, attributes, &mut context)));
    let outcome = match caught {
        Ok(outcome) => outcome,
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "no message".to_owned());
            let values = [("panic", Value::from(text.clone()))];
            context.log(LogLevel::Critical, format!("the handler crashed: {text}"), values);
            context.finish(OutcomeStatus::Failed, Change::default())
        }
    };
    let outcome = match resolved {
        Some(resolved) => resolved.hidden.hide(outcome),
        None => outcome,
    };
    Performed { outcome, announced: announced.get(), repeated: context.was_repeated() }
}

/// Notes in the store that a change begins. Durable when this returns.
fn announce(job: &Job, workshop: &Workshop, announced: &Cell<bool>) -> Result<(), HandlerError> {
    let (Some((resource, version)), Some(keeper)) = (job.announce, &workshop.keeper) else {
        return Ok(());
    };
    let started = Started { resource, kind: ActionKind::Deploy, version, at: job.started };
    let noted = keeper.store.begin(&keeper.lease, &[started]);
    noted.map_err(|error| HandlerError::failed(format!("the change cannot be noted: {error}")))?;
    announced.set(true);
    Ok(())
}

fn run_handler(
    handler: &dyn Handler,
    job: &Job,
    attributes: &Attributes,
    context: &mut Context<'_>,
) -> Outcome {
    if job.kind != JobKind::Facts {
        return handler.run(attributes, context);
    }
    match handler.facts(attributes, context) {
        Ok(facts) => {
            for fact in facts {
                context.set_fact(fact.name, fact.value, fact.expires);
            }
            context.finish(OutcomeStatus::Deployed, Change::default())
        }
        Err(error) => context.finish_with_error(&error),
    }
}

/// An outcome that needed no handler.
fn ended(
    status: OutcomeStatus,
    level: LogLevel,
    message: String,
    values: Vec<(&'static str, Value)>,
) -> Outcome {
    let values = values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let line = LogLine { at: now(), level, message, values };
    Outcome { status, change: Change::default(), facts: Vec::new(), log: vec![line] }
}
