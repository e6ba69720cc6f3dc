//! Context of a handler run: the target, caches, log lines and facts.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use orrery_model::{
    AttributeDiff, Change, Fact, LogLevel, LogLine, Outcome, OutcomeStatus, ResourceId, Timestamp,
    VersionNumber,
};
use serde_json::Value;

use crate::error::{Cause, HandlerError, TargetError};
use crate::target::{CancelCause, CancelToken, ContentDigest, Target};
use crate::target_cache::TargetCache;

/// Mode of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Deploy,
    /// Report planned changes; change nothing.
    DryRun,
    /// Report compliance; never change anything.
    ReportOnly,
}

/// File contents that resources name by digest.
pub trait Contents: Send + Sync {
    fn content(&self, digest: &ContentDigest) -> Result<Option<Arc<[u8]>>, HandlerError>;
}

/// No contents: resources contain theirs inline.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoContents;

impl Contents for NoContents {
    fn content(&self, _: &ContentDigest) -> Result<Option<Arc<[u8]>>, HandlerError> {
        Ok(None)
    }
}

/// Services that the runs of one agent share.
#[derive(Clone, Copy)]
pub struct RunServices<'a> {
    pub target: &'a dyn Target,
    pub cache: &'a TargetCache,
    pub contents: &'a dyn Contents,
    /// Time source for log lines.
    pub clock: &'a (dyn Fn() -> Timestamp + Sync),
    /// Log lines below this level are dropped.
    pub log_level: LogLevel,
}

impl fmt::Debug for RunServices<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunServices").field("log_level", &self.log_level).finish_non_exhaustive()
    }
}

/// Parameters of one run.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    pub mode: Mode,
    /// Deadline and cancellation.
    pub stop: &'a CancelToken,
    /// True if an earlier run succeeded, with any attributes: one-time work is done then.
    pub deployed_before: bool,
    /// Requirements that send events and changed since the last success of this resource, or ever
    /// if it never succeeded; in a dry run also those that would change.
    pub changed_dependencies: &'a [ResourceId],
}

/// Version and dependencies of the resource, for handlers in other processes.
#[derive(Clone, Copy)]
pub struct DependencyInfo<'a> {
    pub version: VersionNumber,
    /// All requirements. The caller ensures that they are deployed, unless the resource is
    /// report-only.
    pub requires: &'a [ResourceId],
    /// Like `Run::changed_dependencies`.
    pub changed: &'a [ResourceId],
    /// Reason of the run, for people.
    pub reason: &'a (dyn fmt::Display + 'a),
}

impl fmt::Debug for DependencyInfo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DependencyInfo({}, {})", self.version, self.reason)
    }
}

/// Callback before the first change of a run: the last moment at which nothing has happened.
#[derive(Clone, Copy)]
pub struct BeforeChange<'a>(pub &'a dyn Fn() -> Result<(), HandlerError>);

impl fmt::Debug for BeforeChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BeforeChange")
    }
}

/// Gate before effects that a handler declares, while it runs, as not to be repeated.
#[derive(Clone, Copy)]
pub struct EffectGate<'a> {
    /// An earlier run started such an effect, and its result was lost.
    pub is_unknown: bool,
    /// Records durably that an effect starts.
    pub begin: &'a dyn Fn() -> Result<(), HandlerError>,
}

impl fmt::Debug for EffectGate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EffectGate").field("is_unknown", &self.is_unknown).finish_non_exhaustive()
    }
}

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
    id: &'a ResourceId,
    services: &'a RunServices<'a>,
    run: Run<'a>,
    dependencies: DependencyInfo<'a>,
    before_change: Option<BeforeChange<'a>>,
    effects: Option<EffectGate<'a>>,
    effect_begun: bool,
    repeated: bool,
    unclear: bool,
    log: Vec<LogLine>,
    facts: Vec<Fact>,
}

impl<'a> Context<'a> {
    pub fn new(id: &'a ResourceId, services: &'a RunServices<'a>, run: Run<'a>) -> Self {
        let dependencies =
            DependencyInfo { version: VersionNumber(0), requires: &[], changed: &[], reason: &"" };
        let (log, facts) = (Vec::new(), Vec::new());
        Context {
            id,
            services,
            run,
            dependencies,
            before_change: None,
            effects: None,
            effect_begun: false,
            repeated: false,
            unclear: false,
            log,
            facts,
        }
    }

    /// Sets the version and dependencies.
    #[must_use]
    pub fn with_dependencies(mut self, dependencies: DependencyInfo<'a>) -> Self {
        self.dependencies = dependencies;
        self
    }

    /// Sets the callback before the first change.
    #[must_use]
    pub fn with_before_change(mut self, before_change: BeforeChange<'a>) -> Self {
        self.before_change = Some(before_change);
        self
    }

    /// Sets the gate for effects that must not be repeated.
    #[must_use]
    pub fn with_effect_gate(mut self, gate: EffectGate<'a>) -> Self {
        self.effects = Some(gate);
        self
    }

    /// Returns true if an earlier run started an effect that must not be repeated, and its result
    /// was lost.
    pub fn has_unknown_effect(&self) -> bool {
        self.effects.is_some_and(|gate| gate.is_unknown)
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
        let gate = self.effects.filter(|_| self.run.mode == Mode::Deploy).ok_or_else(|| {
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
        self.before_change.map_or(Ok(()), |before_change| (before_change.0)())
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
        self.id
    }

    pub fn target(&self) -> &'a dyn Target {
        self.services.target
    }

    pub fn cache(&self) -> &'a TargetCache {
        self.services.cache
    }

    pub fn cancel_token(&self) -> &'a CancelToken {
        self.run.stop
    }

    pub fn mode(&self) -> Mode {
        self.run.mode
    }

    pub fn dependency_info(&self) -> DependencyInfo<'a> {
        self.dependencies
    }

    /// Log lines below this level are dropped.
    pub fn log_level(&self) -> LogLevel {
        self.services.log_level
    }

    pub fn is_dry_run(&self) -> bool {
        self.run.mode == Mode::DryRun
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
                if self.run.mode != Mode::Deploy =>
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
        let (status, level) = match error {
            HandlerError::Skipped(_) | HandlerError::Cancelled => {
                (OutcomeStatus::Skipped, LogLevel::Warning)
            }
            HandlerError::Target(TargetError { cause: Cause::Cancelled, .. }) => {
                (OutcomeStatus::Skipped, LogLevel::Warning)
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
        self.log(level, error.to_string(), values);
        self.finish(status, Change::default())
    }
}

/// Creates an attribute change, for `diff`.
pub fn changed(name: &str, current: impl Into<Value>, desired: impl Into<Value>) -> AttributeDiff {
    AttributeDiff { name: name.to_owned(), current: current.into(), desired: desired.into() }
}
