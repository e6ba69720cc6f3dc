//! Executes one pending run, locally or through a remote agent.

use std::cell::Cell;

use orrery_handlers::clock::now;
use orrery_handlers::run::{
    HandlerRun, Purpose, RunContext, RunOutcome, no_handler_outcome, outcome_without_run,
    sanitize_outcome,
};
use orrery_handlers::target::{TransportError, TransportErrorKind};
use orrery_handlers::{BeforeChange, EffectGate, HandlerError, OutwardTarget, Registry, Target};
use orrery_model::{ChangeKind, LogLevel, Outcome, OutcomeStatus};
use orrery_store::{ActionKind, StartedAction};
use serde_json::Value;

use crate::effects::{self, Effect, RunDecision};
use crate::pending_run::{PendingRun, RunKind};
use crate::placement::{AgentContext, ConnectedMachine, ExecutionSite};
use crate::shared::Shared;

/// Runs the handler. Always returns an outcome, and one that can be persisted.
pub(crate) fn run_task(
    run: &PendingRun,
    agent: &AgentContext,
    registry: &Registry,
    shared: &Shared,
) -> (RunOutcome, Option<Effect>) {
    let (mut run_outcome, effect) = match decide(run, registry, shared) {
        RunDecision::Skip(outcome, effect) => (outcome.into(), effect),
        RunDecision::Run(unknown) => {
            let run_outcome = run_at_site(run, agent, registry, shared, unknown.is_some());
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
fn decide(run: &PendingRun, registry: &Registry, shared: &Shared) -> RunDecision {
    let (Some(key), Some(store_handle)) =
        (run.key.filter(|_| run.has_unknown_effect), &shared.store_handle)
    else {
        return RunDecision::Run(None);
    };
    let handler = registry.handler(run.resource.id.entity());
    let reads_back = handler.is_some_and(|handler| handler.reads_back());
    match store_handle.store.effects().of_resource(key) {
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
    registry: &Registry,
    shared: &Shared,
    is_unknown: bool,
) -> RunOutcome {
    let resource = &run.resource;
    // A remote agent may offer types that are unknown here.
    let handler = registry.handler(resource.id.entity());
    if handler.is_none() && matches!(agent.site, Ok(ExecutionSite::Local(_))) {
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
    let must_not_repeat = run.kind == RunKind::Deploy
        && !resource.flags.report_only
        && handler.is_some_and(|handler| handler.must_not_repeat(&resource.attributes));
    let announced = Cell::new(false);
    let announce = || {
        record_change_start(run, shared, &announced)?;
        if must_not_repeat { record_effect_start(run, shared) } else { Ok(()) }
    };
    let begin = || record_effect_start(run, shared);
    let handler_run = HandlerRun {
        purpose: match run.kind {
            RunKind::Deploy => Purpose::Deploy,
            RunKind::DryRun { .. } => Purpose::DryRun,
            RunKind::Facts => Purpose::Facts,
        },
        resource,
        version: run.version,
        epoch: shared.store_handle.as_ref().map(|store_handle| store_handle.lease.epoch()),
        deployed_before: run.deployed_before,
        changed_dependencies: &run.changed_dependencies,
        reason: &run.reason,
        stop: &run.stop,
        before_change: (must_not_repeat || run.change_record.is_some())
            .then_some(BeforeChange(&announce)),
        effects: (run.kind == RunKind::Deploy).then_some(EffectGate { is_unknown, begin: &begin }),
    };
    let context = RunContext {
        cache: &agent.cache,
        contents: &*shared.contents,
        secrets: &*shared.secrets,
        clock: &now,
        log_level: shared.log_level,
        server: None,
    };
    let mut run_outcome = match (site, handler) {
        (ExecutionSite::Remote(remote), _) => {
            crate::read_ahead::verify(run, &**remote, registry, shared);
            handler_run.run_remotely(registry, &**remote, &context)
        }
        (ExecutionSite::Outward(target), handler)
            if handler.is_none() || registry.acts_on_machine(resource.id.entity()) =>
        {
            return no_machine_outcome(target).into();
        }
        (_, None) => return no_handler_outcome(resource.id.entity()).into(),
        (ExecutionSite::Local(target), Some(handler)) => {
            crate::read_ahead::prefetch(run, &**target, registry, shared);
            handler_run.run(&**handler, &**target, &context)
        }
        (ExecutionSite::Outward(target), Some(handler)) => {
            handler_run.run(&**handler, &**target, &context)
        }
        (ExecutionSite::Machine { machine, .. }, Some(handler))
            if registry.acts_on_machine(resource.id.entity()) =>
        {
            match machine.connect(&run.stop) {
                Ok(ConnectedMachine::Target { target, .. }) => {
                    crate::read_ahead::prefetch(run, &*target, registry, shared);
                    let run_outcome = handler_run.run(&**handler, &*target, &context);
                    sync_changes(&*target, &run_outcome);
                    run_outcome
                }
                Ok(ConnectedMachine::Helper(helper)) => {
                    crate::read_ahead::verify(run, &*helper, registry, shared);
                    handler_run.run_remotely(registry, &*helper, &context)
                }
                Err(error) => return unreachable_outcome(&error).into(),
            }
        }
        (ExecutionSite::Machine { machine, outward }, Some(handler))
            if registry.uses_machine(resource.id.entity()) =>
        {
            match machine.connect(&run.stop) {
                Ok(ConnectedMachine::Helper(helper)) => {
                    handler_run.run_remotely(registry, &*helper, &context)
                }
                // Without a helper, the code connects on its own.
                Ok(ConnectedMachine::Target { no_helper, .. }) => {
                    let outward = outward.because(&no_helper);
                    handler_run.run(&**handler, &outward, &context)
                }
                Err(error) => return unreachable_outcome(&error).into(),
            }
        }
        (ExecutionSite::Machine { outward, .. }, Some(handler)) => {
            handler_run.run(&**handler, &**outward, &context)
        }
    };
    // A repeated run may have no change left to announce, and a result may be lost entirely.
    run_outcome.announced |= announced.get();
    run_outcome
}

/// Makes the changes of a run on another machine durable, before its result is recorded. A slow
/// machine delays only its own runs.
fn sync_changes(target: &dyn Target, run_outcome: &RunOutcome) {
    if run_outcome.outcome.change.kind == ChangeKind::NoChange && !run_outcome.announced {
        return;
    }
    if let Err(error) = target.sync() {
        tracing::warn!(%error, "cannot sync written files; they may not survive a power loss");
    }
}

/// Outcome of a resource whose machine is not reached.
fn unreachable_outcome(error: &TransportError) -> Outcome {
    let (status, level) = match error.kind {
        TransportErrorKind::NotStarted(_) => (OutcomeStatus::Skipped, LogLevel::Warning),
        _ => (OutcomeStatus::Unavailable, LogLevel::Error),
    };
    let mut outcome = outcome_without_run(status, level, error.to_string());
    if let (Some(line), Some(help)) = (outcome.log.first_mut(), &error.help) {
        line.values.insert("hint".to_owned(), help.as_str().into());
    }
    outcome
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
fn record_effect_start(run: &PendingRun, shared: &Shared) -> Result<(), HandlerError> {
    let (Some(started), Some(store_handle)) = (run.start_record(), &shared.store_handle) else {
        return Ok(());
    };
    if !run.effect_started.get() {
        shared.effect_log.record_start(store_handle, started)?;
        run.effect_started.set();
    }
    Ok(())
}

/// Records in the store, once, that a change starts. Durable when this returns.
fn record_change_start(
    run: &PendingRun,
    shared: &Shared,
    announced: &Cell<bool>,
) -> Result<(), HandlerError> {
    let (Some((resource, version)), Some(store_handle)) = (run.change_record, &shared.store_handle)
    else {
        return Ok(());
    };
    if announced.get() {
        return Ok(());
    }
    let started = StartedAction { resource, kind: ActionKind::Deploy, version, at: run.started };
    let noted = store_handle.store.engine().begin_actions(&store_handle.lease, &[started]);
    noted.map_err(|error| {
        HandlerError::failed(format!("cannot record the start of the change: {error}"))
    })?;
    announced.set(true);
    Ok(())
}
