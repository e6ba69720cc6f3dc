//! One run of one handler. Engines and remote agents run handlers only through this module.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use orrery_handlers::{
    BeforeChange, CancelToken, Contents, Context, DependencyInfo, EffectGate, Handler,
    HandlerError, Mode, Registry, Run, RunServices, Secrets, Target, TargetCache,
};
use orrery_model::{
    Attributes, Change, LogLevel, LogLine, Outcome, OutcomeStatus, Resource, ResourceId, Timestamp,
    VersionNumber,
};
use serde_json::Value;

use crate::secret_refs;

/// Purpose of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Make the resource compliant, or report on it if its flags say so.
    Deploy,
    /// Report the changes that a deploy would make.
    DryRun,
    /// Read its facts.
    Facts,
}

/// The handler run to execute.
#[derive(Clone, Copy)]
pub struct HandlerRun<'a> {
    pub purpose: Purpose,
    pub resource: &'a Resource,
    pub version: VersionNumber,
    /// An earlier run succeeded.
    pub deployed_before: bool,
    /// Requirements that changed since that success; without one, all with a recorded change.
    pub changed_dependencies: &'a [ResourceId],
    /// Reason of the run, for people.
    pub reason: &'a dyn fmt::Display,
    pub stop: &'a CancelToken,
    /// Callback before the first change. Nothing may change if it fails.
    pub before_change: Option<BeforeChange<'a>>,
    /// Gate for effects that the handler itself declares as not to be repeated.
    pub effects: Option<EffectGate<'a>>,
}

impl fmt::Debug for HandlerRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HandlerRun({:?}, {}, {})", self.purpose, self.resource.id, self.reason)
    }
}

/// Services for a run.
#[derive(Clone, Copy)]
pub struct RunContext<'a> {
    pub registry: &'a Registry,
    pub target: &'a dyn Target,
    pub cache: &'a TargetCache,
    pub contents: &'a dyn Contents,
    pub secrets: &'a dyn Secrets,
    /// Handler log lines below this level are dropped.
    pub log_level: LogLevel,
}

impl fmt::Debug for RunContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunContext").field("log_level", &self.log_level).finish_non_exhaustive()
    }
}

/// Outcome of a run, with what is uncertain about it.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    pub outcome: Outcome,
    /// A change was announced. If the run failed, the extent of the change is unknown.
    pub announced: bool,
    /// A part of the run was lost and repeated; changes of the lost part are unknown.
    pub repeated: bool,
    /// An effect started, and its outcome is unknown.
    pub unclear: bool,
}

impl From<Outcome> for RunOutcome {
    fn from(outcome: Outcome) -> Self {
        RunOutcome { outcome, announced: false, repeated: false, unclear: false }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "handlers run in real time; the scheduler gets it from here"
)]
pub(crate) fn now() -> Timestamp {
    Timestamp::from_system(std::time::SystemTime::now())
}

impl HandlerRun<'_> {
    /// Runs the handler in this process. Always returns an outcome, without secrets.
    pub fn run(&self, run_context: &RunContext<'_>) -> RunOutcome {
        let resource = self.resource;
        let Some(handler) = run_context.registry.handler(resource.id.entity()) else {
            return no_handler_outcome(resource.id.entity()).into();
        };
        let resolved = if handler.resolves_late_bound_values() {
            Ok(None)
        } else {
            secret_refs::resolve(&resource.attributes, run_context.secrets)
        };
        let resolved = match resolved {
            Ok(resolved) => resolved,
            Err(error) => {
                return outcome_without_run(
                    OutcomeStatus::Failed,
                    LogLevel::Error,
                    error.to_string(),
                )
                .into();
            }
        };
        let attributes = resolved.as_ref().map_or(&resource.attributes, |with| &with.attributes);
        let surroundings = RunServices {
            target: run_context.target,
            cache: run_context.cache,
            contents: run_context.contents,
            clock: &now,
            log_level: run_context.log_level,
        };
        let run = Run {
            mode: self.mode(),
            stop: self.stop,
            deployed_before: self.deployed_before,
            changed_dependencies: self.changed_dependencies,
        };
        let announced = Cell::new(false);
        let announce = || {
            let Some(announce) = self.before_change else { return Ok(()) };
            (announce.0)()?;
            announced.set(true);
            Ok::<(), HandlerError>(())
        };
        let standing = DependencyInfo {
            version: self.version,
            requires: &resource.requires,
            changed: self.changed_dependencies,
            reason: self.reason,
        };
        let mut context =
            Context::new(&resource.id, &surroundings, run).with_dependencies(standing);
        if self.before_change.is_some() {
            context = context.with_before_change(BeforeChange(&announce));
        }
        if let Some(gate) = self.effects {
            context = context.with_effect_gate(gate);
        }
        let caught = catch_unwind(AssertUnwindSafe(|| {
            run_handler(&**handler, self.purpose, attributes, &mut context)
        }));
        let unclear = caught.is_err() || context.is_unclear();
        let outcome = caught.unwrap_or_else(|panic| panic_outcome(&*panic, &mut context));
        let outcome = match resolved {
            Some(resolved) => resolved.redactor.redact(outcome),
            None => outcome,
        };
        let repeated = context.was_repeated();
        RunOutcome { outcome, announced: announced.get(), repeated, unclear }
    }

    fn mode(&self) -> Mode {
        match self.purpose {
            Purpose::DryRun => Mode::DryRun,
            Purpose::Deploy | Purpose::Facts if self.resource.flags.report_only => Mode::ReportOnly,
            Purpose::Deploy | Purpose::Facts => Mode::Deploy,
        }
    }
}

fn run_handler(
    handler: &dyn Handler,
    purpose: Purpose,
    attributes: &Attributes,
    context: &mut Context<'_>,
) -> Outcome {
    if purpose != Purpose::Facts {
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

fn panic_outcome(panic: &(dyn std::any::Any + Send), context: &mut Context<'_>) -> Outcome {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    let values = [("panic", Value::from(text.clone()))];
    context.log(LogLevel::Critical, format!("the handler crashed: {text}"), values);
    context.finish(OutcomeStatus::Failed, Change::default())
}

pub(crate) fn no_handler_outcome(entity: &str) -> Outcome {
    let message = format!("there is no handler for {entity}");
    outcome_without_run(OutcomeStatus::Unavailable, LogLevel::Error, message)
}

/// Outcome without a handler run.
pub(crate) fn outcome_without_run(
    status: OutcomeStatus,
    level: LogLevel,
    message: String,
) -> Outcome {
    let line = LogLine { at: now(), level, message, values: serde_json::Map::new() };
    Outcome { status, change: Change::default(), facts: Vec::new(), log: vec![line] }
}
