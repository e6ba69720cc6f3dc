//! One run of one handler, in this process or on a remote agent. Engines and remote agents run
//! handlers only through this module.

mod remote;
mod sanitize;
mod secret_refs;

pub use remote::{Remote, RemoteCode, RemoteCommand, RemoteError};
pub use sanitize::sanitize_outcome;

pub use crate::handler_run::{HandlerRun, Purpose, RunContext};

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::clock::now;
use orrery_model::{
    Attributes, Change, ChangeKind, LogLevel, LogLine, Outcome, OutcomeStatus, ResourceId,
};
use serde_json::Value;

use crate::context::Context;
use crate::drift::{DriftWatch, RunEnd, RunMark};
use crate::handler::Handler;
use crate::target::Target;

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

impl HandlerRun<'_> {
    /// Runs the handler in this process. Always returns an outcome, without secrets.
    pub fn run(
        &self,
        handler: &dyn Handler,
        target: &dyn Target,
        run_context: &RunContext<'_>,
    ) -> RunOutcome {
        let resource = self.resource;
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
        let watch = WatchedRun::begin(self, handler, target);
        let mut context = Context::new(self, target, run_context);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            run_handler(handler, self.purpose, attributes, &mut context)
        }));
        let unclear = caught.is_err() || context.is_unclear();
        let outcome = caught.unwrap_or_else(|panic| panic_outcome(&*panic, &mut context));
        let mut outcome = match resolved {
            Some(resolved) => resolved.redactor.redact(outcome),
            None => outcome,
        };
        let (announced, repeated) = (context.has_announced(), context.was_repeated());
        if let Some(watch) = watch {
            watch.end(&mut outcome, announced);
        }
        debug_assert!(!announced || self.before_change.is_some(), "announced without a callback");
        RunOutcome { outcome, announced, repeated, unclear }
    }
}

/// A run whose path is watched for drift.
struct WatchedRun<'a> {
    watch: &'a dyn DriftWatch,
    id: &'a ResourceId,
    path: &'a str,
    purpose: Purpose,
    mark: RunMark,
}

impl<'a> WatchedRun<'a> {
    fn begin(
        run: &'a HandlerRun<'_>,
        handler: &dyn Handler,
        target: &'a dyn Target,
    ) -> Option<Self> {
        let id = &run.resource.id;
        let (watch, purpose) = (target.drift_watch()?, run.purpose);
        let path = handler.watched_path(id).filter(|_| purpose != Purpose::Facts)?;
        let mark = watch.mark(path);
        if purpose == Purpose::Deploy {
            watch.begin_run(path);
        }
        Some(WatchedRun { watch, id, path, purpose, mark })
    }

    fn end(self, outcome: &mut Outcome, announced: bool) {
        let status = outcome.status;
        if self.purpose == Purpose::DryRun {
            // Read ahead of its run, which does not happen if nothing differs.
            if status != OutcomeStatus::Deployed || outcome.change.kind != ChangeKind::NoChange {
                return;
            }
            self.watch.begin_run(self.path);
        }
        let end = RunEnd {
            succeeded: matches!(status, OutcomeStatus::Deployed | OutcomeStatus::NonCompliant),
            changed: announced || outcome.change.kind != ChangeKind::NoChange,
        };
        if let Err(refusal) = self.watch.end_run(self.id, self.path, self.mark, end) {
            let (message, values) = (refusal.to_string(), serde_json::Map::new());
            outcome.log.push(LogLine { at: now(), level: LogLevel::Warning, message, values });
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

/// Outcome of a resource without a handler.
pub fn no_handler_outcome(entity: &str) -> Outcome {
    let message = format!("there is no handler for {entity}");
    outcome_without_run(OutcomeStatus::Unavailable, LogLevel::Error, message)
}

/// Outcome without a handler run.
pub fn outcome_without_run(status: OutcomeStatus, level: LogLevel, message: String) -> Outcome {
    let line = LogLine { at: now(), level, message, values: serde_json::Map::new() };
    Outcome { status, change: Change::default(), facts: Vec::new(), log: vec![line] }
}
