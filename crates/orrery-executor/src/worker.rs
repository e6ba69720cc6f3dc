//! Executes one pending run, locally or through a remote agent.

use std::cell::Cell;
use std::sync::{Arc, PoisonError, RwLock};

use orrery_handlers::{
    BeforeChange, CancelToken, Contents, EffectGate, HandlerError, OutwardTarget, Registry,
    Secrets, TargetCache,
};
use orrery_model::{
    LogLevel, Outcome, OutcomeStatus, Resource, ResourceId, Timestamp, VersionNumber,
};
use orrery_scheduler::{AgentIndex, Reason, SkipCause, TaskNumber};
use orrery_store::{ActionKind, ResourceKey, StartedAction};
use serde_json::Value;

use crate::effects::{self, Effect, EffectLog, EffectStarted, RunDecision};
use crate::engine::StoreHandle;
use crate::placement::{ExecutionSite, NoTarget};
use crate::remote::{self, RemoteContext};
use crate::run::{
    HandlerRun, Purpose, RunContext, RunOutcome, no_handler_outcome, outcome_without_run,
};
use crate::sanitize::sanitize_outcome;

pub(crate) use crate::run::now;

/// A run that waits for a worker.
#[derive(Clone, Debug)]
pub(crate) struct PendingRun {
    pub(crate) task: TaskNumber,
    pub(crate) kind: RunKind,
    /// The desired resource, as of the start of the task.
    pub(crate) resource: Resource,
    /// `None` in dry runs of resources that are not stored.
    pub(crate) key: Option<ResourceKey>,
    pub(crate) agent: AgentIndex,
    pub(crate) stop: CancelToken,
    pub(crate) started: Timestamp,
    pub(crate) version: VersionNumber,
    pub(crate) reason: Reason,
    /// Reason to skip the handler, with the resources that cause it.
    pub(crate) skip: Option<(LogLevel, SkipCause, Vec<ResourceId>)>,
    pub(crate) deployed_before: bool,
    /// Compliant at its last run.
    pub(crate) was_compliant: bool,
    pub(crate) changed_dependencies: Vec<ResourceId>,
    /// Record to write before a change for which dependents may reload.
    pub(crate) change_record: Option<(ResourceKey, VersionNumber)>,
    /// An earlier effect may or may not have happened.
    pub(crate) has_unknown_effect: bool,
    /// Set when an effect starts that must not be repeated.
    pub(crate) effect_started: Arc<EffectStarted>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunKind {
    Deploy,
    DryRun { entry: u32 },
    Facts,
}

/// Context that the runs of one agent share.
pub(crate) struct AgentContext {
    pub(crate) site: Result<ExecutionSite, NoTarget>,
    pub(crate) cache: TargetCache,
}

/// Context that all runs share.
pub(crate) struct WorkerContext {
    /// A new version may bring other handlers.
    pub(crate) registry: RwLock<Arc<Registry>>,
    pub(crate) contents: Arc<dyn Contents>,
    pub(crate) secrets: Arc<dyn Secrets>,
    pub(crate) log_level: LogLevel,
    /// `None` for dry runs.
    pub(crate) store_handle: Option<StoreHandle>,
    pub(crate) effect_log: EffectLog,
}

/// Runs the handler. Always returns an outcome, and one that can be persisted.
pub(crate) fn run_task(
    run: &PendingRun,
    agent: &AgentContext,
    context: &WorkerContext,
) -> (RunOutcome, Option<Effect>) {
    let registry = Arc::clone(&context.registry.read().unwrap_or_else(PoisonError::into_inner));
    let (mut run_outcome, effect) = match decide(run, &registry, context) {
        RunDecision::Skip(outcome, effect) => (outcome.into(), effect),
        RunDecision::Run(unknown) => {
            let run_outcome = run_at_site(run, agent, context, &registry, unknown.is_some());
            let effect = effects::effect_after_run(run, &run_outcome, unknown);
            (run_outcome, effect)
        }
    };
    if effect == Some(Effect::Unknown) {
        effects::add_settle_hint(&mut run_outcome.outcome, run.resource.id.as_str());
    }
    sanitize_outcome(&mut run_outcome.outcome);
    (run_outcome, effect)
}

/// Decides if the handler runs, given an effect that may have happened.
fn decide(run: &PendingRun, registry: &Registry, context: &WorkerContext) -> RunDecision {
    let (Some(key), Some(store_handle)) =
        (run.key.filter(|_| run.has_unknown_effect), &context.store_handle)
    else {
        return RunDecision::Run(None);
    };
    let handler = registry.handler(run.resource.id.entity());
    let reads_back = handler.is_some_and(|handler| handler.reads_back());
    match store_handle.store.records().begun_effect(key) {
        Ok(found) => effects::decide_run(found.as_ref(), reads_back),
        Err(error) => {
            let text = format!("cannot read the record of an earlier effect: {error}");
            RunDecision::Skip(
                outcome_without_run(OutcomeStatus::Failed, LogLevel::Error, text),
                None,
            )
        }
    }
}

fn run_at_site(
    run: &PendingRun,
    agent: &AgentContext,
    context: &WorkerContext,
    registry: &Registry,
    is_unknown: bool,
) -> RunOutcome {
    let resource = &run.resource;
    if registry.handler(resource.id.entity()).is_none() {
        return no_handler_outcome(resource.id.entity()).into();
    }
    if let Some((level, cause, bad)) = &run.skip {
        let text = cause.as_str().to_owned();
        let mut outcome = outcome_without_run(OutcomeStatus::SkippedForDependency, *level, text);
        let names = bad.iter().map(|id| Value::from(id.as_str())).collect();
        if let Some(line) = outcome.log.first_mut() {
            line.values.insert("resources".to_owned(), Value::Array(names));
        }
        return outcome.into();
    }
    let site = match &agent.site {
        Ok(site) => site,
        Err(error) => {
            let text = error.to_string();
            return outcome_without_run(OutcomeStatus::Unavailable, LogLevel::Error, text).into();
        }
    };
    let handler = registry.handler(resource.id.entity());
    let must_not_repeat = run.kind == RunKind::Deploy
        && !resource.flags.report_only
        && handler.is_some_and(|handler| handler.must_not_repeat(&resource.attributes));
    let announced = Cell::new(false);
    let announce = || {
        record_change_start(run, context, &announced)?;
        if must_not_repeat { record_effect_start(run, context) } else { Ok(()) }
    };
    let begin = || record_effect_start(run, context);
    let handler_run = HandlerRun {
        purpose: match run.kind {
            RunKind::Deploy => Purpose::Deploy,
            RunKind::DryRun { .. } => Purpose::DryRun,
            RunKind::Facts => Purpose::Facts,
        },
        resource,
        version: run.version,
        deployed_before: run.deployed_before,
        changed_dependencies: &run.changed_dependencies,
        reason: &run.reason,
        stop: &run.stop,
        before_change: (must_not_repeat || run.change_record.is_some())
            .then_some(BeforeChange(&announce)),
        effects: (run.kind == RunKind::Deploy).then_some(EffectGate { is_unknown, begin: &begin }),
    };
    let run_with = |target| {
        handler_run.run(&RunContext {
            registry,
            target,
            cache: &agent.cache,
            contents: &*context.contents,
            secrets: &*context.secrets,
            log_level: context.log_level,
        })
    };
    let mut run_outcome = match site {
        ExecutionSite::Local(target) => run_with(&**target),
        ExecutionSite::Outward(target) if registry.acts_on_machine(resource.id.entity()) => {
            return no_machine_outcome(target).into();
        }
        ExecutionSite::Outward(target) => run_with(&**target),
        ExecutionSite::Remote(remote) => {
            let remote_context = RemoteContext {
                registry,
                contents: &*context.contents,
                secrets: &*context.secrets,
                epoch: context.store_handle.as_ref().map(|store_handle| store_handle.lease.epoch()),
                log_level: context.log_level,
            };
            remote::run(handler_run, &**remote, &remote_context)
        }
    };
    // A repeated run may have no change left to announce, and a result may be lost entirely.
    run_outcome.announced |= announced.get();
    run_outcome
}

/// Outcome of a resource that needs a machine which its agent does not have.
fn no_machine_outcome(target: &OutwardTarget) -> Outcome {
    let mut outcome = outcome_without_run(
        OutcomeStatus::Unavailable,
        LogLevel::Error,
        target.reason().to_owned(),
    );
    if let Some(line) = outcome.log.first_mut() {
        line.values.insert("hint".to_owned(), target.help().into());
    }
    outcome
}

/// Records in the store, once, that an effect starts which must not be repeated. Durable when this
/// returns.
fn record_effect_start(run: &PendingRun, context: &WorkerContext) -> Result<(), HandlerError> {
    let (Some(started), Some(store_handle)) = (effects::start_record(run), &context.store_handle)
    else {
        return Ok(());
    };
    if !run.effect_started.get() {
        context.effect_log.record_start(store_handle, started)?;
        run.effect_started.set();
    }
    Ok(())
}

/// Records in the store, once, that a change starts. Durable when this returns.
fn record_change_start(
    run: &PendingRun,
    context: &WorkerContext,
    announced: &Cell<bool>,
) -> Result<(), HandlerError> {
    let (Some((resource, version)), Some(store_handle)) =
        (run.change_record, &context.store_handle)
    else {
        return Ok(());
    };
    if announced.get() {
        return Ok(());
    }
    let started = StartedAction { resource, kind: ActionKind::Deploy, version, at: run.started };
    let noted = store_handle.store.begin_actions(&store_handle.lease, &[started]);
    noted.map_err(|error| {
        HandlerError::failed(format!("cannot record the start of the change: {error}"))
    })?;
    announced.set(true);
    Ok(())
}
