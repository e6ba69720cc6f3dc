//! Context of a handler run: the target, caches, log lines and facts.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use orrery_model::{
    AttributeDiff, Change, Fact, LogLevel, LogLine, Outcome, OutcomeStatus, ResourceId,
};
use serde_json::Value;

use crate::error::{Cause, HandlerError, TargetError};
use crate::handler_run::{HandlerRun, Mode, RunContext, ServerCalls};
use crate::target::{CancelCause, CancelToken, ContentDigest, Target};
use crate::target_cache::TargetCache;
use crate::transport_error::TransportErrorKind;

/// Addition to the error of a connection that failed during a change, as for remote agents.
const EFFECT_UNKNOWN: &str = ": the effect is unknown: the change may have been made; the next run starts by reading the current state";

/// Response to a handler that is about to start an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectStart {
    /// Recorded; the effect may start.
    Recorded,
    /// An earlier one may have happened: this one must not start.
    Refused,
}

/// Context of one handler run.
#[derive(Debug)]
pub struct Context<'a> {
    run: &'a HandlerRun<'a>,
    target: TargetRef<'a>,
    services: &'a RunContext<'a>,
    mode: Mode,
    /// A change was announced.
    announced: Cell<bool>,
    /// Changes that the target had started when this run announced its own.
    changes_before: Cell<Option<u64>>,
    effect_begun: bool,
    repeated: bool,
    unclear: bool,
    log: Vec<LogLine>,
    facts: Vec<Fact>,
}

#[derive(Clone, Copy)]
struct TargetRef<'a>(&'a dyn Target);

impl fmt::Debug for TargetRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Target")
    }
}

impl<'a> Context<'a> {
    pub fn new(
        run: &'a HandlerRun<'a>,
        target: &'a dyn Target,
        services: &'a RunContext<'a>,
    ) -> Self {
        Context {
            run,
            target: TargetRef(target),
            services,
            mode: run.mode(),
            announced: Cell::new(false),
            changes_before: Cell::new(None),
            effect_begun: false,
            repeated: false,
            unclear: false,
            log: Vec::new(),
            facts: Vec::new(),
        }
    }

    /// Returns true if an earlier run started an effect that must not be repeated, and its result
    /// was lost.
    pub fn has_unknown_effect(&self) -> bool {
        self.run.effects.is_some_and(|gate| gate.is_unknown)
    }

    /// Returns true if this run started an effect that must not be repeated.
    pub fn has_begun_effect(&self) -> bool {
        self.effect_begun
    }

    /// Records the start of an effect that must not be repeated. Refused if an earlier one may have
    /// happened, unless the handler found that it `did_not_happen`.
    ///
    /// # Errors
    /// If it cannot be recorded, or nothing may be changed in this run.
    pub fn begin_effect(&mut self, did_not_happen: bool) -> Result<EffectStart, HandlerError> {
        let gate = self.run.effects.filter(|_| self.mode == Mode::Deploy).ok_or_else(|| {
            HandlerError::failed("an effect must not start in a run that may not change anything")
        })?;
        if self.effect_begun {
            return Ok(EffectStart::Recorded);
        }
        if gate.is_unknown && !did_not_happen {
            self.unclear = true;
            return Ok(EffectStart::Refused);
        }
        (gate.begin)()?;
        self.effect_begun = true;
        Ok(EffectStart::Recorded)
    }

    /// Announces a possible change. Nothing may change if this fails.
    ///
    /// # Errors
    /// If the start of the change cannot be recorded.
    pub fn announce_change(&self) -> Result<(), HandlerError> {
        if let Some(before_change) = self.run.before_change {
            (before_change.0)()?;
            self.announced.set(true);
        }
        if self.changes_before.get().is_none() {
            self.changes_before.set(Some(self.target().changes_started()));
        }
        Ok(())
    }

    /// Returns true if a part of an announced change may have been made: by an operation whose
    /// connection failed, or by one before it.
    fn has_started_change(&self) -> bool {
        let before = self.changes_before.get();
        before.is_some_and(|before| self.target().changes_started() != before)
    }

    /// Returns true if a change was announced, and its announcement recorded.
    pub fn has_announced(&self) -> bool {
        self.announced.get()
    }

    /// Marks the run as repeated in part: the lost part may have made changes that are not
    /// reported.
    pub fn mark_repeated(&mut self) {
        self.repeated = true;
    }

    /// Marks the outcome of a started effect as unknown.
    pub fn mark_unclear(&mut self) {
        self.unclear = true;
    }

    pub fn is_unclear(&self) -> bool {
        self.unclear
    }

    pub fn was_repeated(&self) -> bool {
        self.repeated
    }

    pub fn id(&self) -> &'a ResourceId {
        &self.run.resource.id
    }

    /// The run that the handler executes.
    pub fn run(&self) -> &'a HandlerRun<'a> {
        self.run
    }

    pub fn target(&self) -> &'a dyn Target {
        self.target.0
    }

    pub fn cache(&self) -> &'a TargetCache {
        self.services.cache
    }

    /// Server of a run that happens on another machine.
    pub fn server(&self) -> Option<&'a dyn ServerCalls> {
        self.services.server
    }

    pub fn cancel_token(&self) -> &'a CancelToken {
        self.run.stop
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Log lines below this level are dropped.
    pub fn log_level(&self) -> LogLevel {
        self.services.log_level
    }

    pub fn is_dry_run(&self) -> bool {
        self.mode == Mode::DryRun
    }

    pub fn deployed_before(&self) -> bool {
        self.run.deployed_before
    }

    pub fn changed_dependencies(&self) -> &'a [ResourceId] {
        self.run.changed_dependencies
    }

    /// Returns an error if the run is cancelled or its deadline has passed.
    pub fn check_cancelled(&self) -> Result<(), HandlerError> {
        match self.run.stop.reason() {
            None => Ok(()),
            Some(CancelCause::Cancelled) => Err(HandlerError::Cancelled),
            Some(CancelCause::DeadlinePassed) => Err(HandlerError::DeadlinePassed),
        }
    }

    /// Returns the content with this digest.
    pub fn content(&self, digest: &ContentDigest) -> Result<Arc<[u8]>, HandlerError> {
        self.services.contents.content(digest)?.ok_or_else(|| {
            HandlerError::failed_with_hint(
                format!("the content with the digest {digest} is not in the store"),
                "export the model again, so that it is uploaded",
            )
        })
    }

    /// Returns the uid of a user. `None` in a dry run if the user does not exist yet.
    pub fn uid(&self, name: &str) -> Result<Option<u32>, TargetError> {
        self.missing_in_dry_run(self.cache().uid(self.target(), name))
    }

    /// Returns the gid of a group, like `uid`.
    pub fn gid(&self, name: &str) -> Result<Option<u32>, TargetError> {
        self.missing_in_dry_run(self.cache().gid(self.target(), name))
    }

    fn missing_in_dry_run(
        &self,
        found: Result<u32, TargetError>,
    ) -> Result<Option<u32>, TargetError> {
        match found {
            Ok(number) => Ok(Some(number)),
            Err(TargetError { cause: Cause::UnknownUser | Cause::UnknownGroup, .. })
                if self.mode != Mode::Deploy =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Adds a log line; `values` are its structured fields.
    pub fn log(
        &mut self,
        level: LogLevel,
        message: impl Into<Cow<'static, str>>,
        values: impl IntoIterator<Item = (&'static str, Value)>,
    ) {
        if level < self.services.log_level {
            return;
        }
        let values = values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let message = message.into().into_owned();
        self.log.push(LogLine { at: (self.services.clock)(), level, message, values });
    }

    /// Adds a log line from another process.
    pub fn add_line(&mut self, line: LogLine) {
        if line.level >= self.services.log_level {
            self.log.push(line);
        }
    }

    pub fn debug(&mut self, message: impl Into<Cow<'static, str>>) {
        self.log(LogLevel::Debug, message, []);
    }

    pub fn info(&mut self, message: impl Into<Cow<'static, str>>) {
        self.log(LogLevel::Info, message, []);
    }

    pub fn warning(&mut self, message: impl Into<Cow<'static, str>>) {
        self.log(LogLevel::Warning, message, []);
    }

    /// Reports a fact about the resource.
    pub fn set_fact(&mut self, name: impl Into<String>, value: impl Into<String>, expires: bool) {
        self.facts.push(Fact { name: name.into(), value: value.into(), expires });
    }

    /// Ends the run.
    pub fn finish(&mut self, status: OutcomeStatus, change: Change) -> Outcome {
        Outcome {
            status,
            change,
            facts: std::mem::take(&mut self.facts),
            log: std::mem::take(&mut self.log),
        }
    }

    /// Ends the run with an error, which determines the status and is logged with its hint.
    pub fn finish_with_error(&mut self, error: &HandlerError) -> Outcome {
        let mut message = error.to_string();
        let (status, level) = match error {
            HandlerError::Skipped(_) | HandlerError::Cancelled => {
                (OutcomeStatus::Skipped, LogLevel::Warning)
            }
            HandlerError::Target(TargetError { cause: Cause::Cancelled, .. }) => {
                (OutcomeStatus::Skipped, LogLevel::Warning)
            }
            HandlerError::Target(TargetError { cause: Cause::Transport(error), .. })
                if matches!(error.kind, TransportErrorKind::NotStarted(_)) =>
            {
                (OutcomeStatus::Skipped, LogLevel::Warning)
            }
            HandlerError::Target(TargetError { cause: Cause::Transport(error), .. })
                if self.has_started_change() =>
            {
                self.unclear |= error.may_have_run();
                message.push_str(EFFECT_UNKNOWN);
                (OutcomeStatus::Failed, LogLevel::Error)
            }
            // Nothing but reads happened, so nothing is unknown about the resource.
            HandlerError::Target(TargetError { cause: Cause::Transport(error), .. })
                if error.is_unavailable() =>
            {
                (OutcomeStatus::Unavailable, LogLevel::Error)
            }
            HandlerError::Attributes(_)
            | HandlerError::Target(TargetError { cause: Cause::NoMachine(_), .. }) => {
                (OutcomeStatus::Unavailable, LogLevel::Error)
            }
            HandlerError::Target(_)
            | HandlerError::Failed { .. }
            | HandlerError::DeadlinePassed => (OutcomeStatus::Failed, LogLevel::Error),
        };
        let mut values = Vec::new();
        if let HandlerError::Target(error) = error {
            values.push(("operation", Value::from(error.operation.as_str())));
            values.push(("subject", Value::from(&*error.subject)));
        }
        if let Some(hint) = error.hint() {
            values.push(("hint", Value::from(hint)));
        }
        self.log(level, message, values);
        self.finish(status, Change::default())
    }
}

/// Creates an attribute change, for `diff`.
pub fn changed(name: &str, current: impl Into<Value>, desired: impl Into<Value>) -> AttributeDiff {
    AttributeDiff { name: name.to_owned(), current: current.into(), desired: desired.into() }
}
