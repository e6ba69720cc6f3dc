//! What a handler is given beside its resource: the target, what is known of it, and a place for log
//! lines and facts.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use orrery_model::{
    AttributeChange, Change, Fact, LogLevel, LogLine, Outcome, OutcomeStatus, ResourceId,
    Timestamp, VersionNumber,
};
use serde_json::Value;

use crate::error::{Cause, HandlerError, TargetError};
use crate::session::Session;
use crate::target::{ContentDigest, Stop, StopReason, Target};

/// What is to be done about differences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Deploy,
    /// Say what would be done; change nothing.
    DryRun,
    /// Say whether it is as wanted; change nothing, ever.
    ReportOnly,
}

/// Contents of files that resources name by their digest.
pub trait Contents: Send + Sync {
    fn content(&self, digest: &ContentDigest) -> Result<Option<Arc<[u8]>>, HandlerError>;
}

/// There are none: all contents stand in the resources themselves.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoContents;

impl Contents for NoContents {
    fn content(&self, _: &ContentDigest) -> Result<Option<Arc<[u8]>>, HandlerError> {
        Ok(None)
    }
}

/// What all runs for one agent share.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    pub target: &'a dyn Target,
    pub session: &'a Session,
    pub contents: &'a dyn Contents,
    /// Gives log lines their time.
    pub clock: &'a (dyn Fn() -> Timestamp + Sync),
    /// Lines below it are not kept.
    pub log_level: LogLevel,
}

impl fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").field("log_level", &self.log_level).finish_non_exhaustive()
    }
}

/// What is particular to one run.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    pub mode: Mode,
    /// The deadline, and whoever may cancel.
    pub stop: &'a Stop,
    /// Whether an earlier run of this resource ended well, whatever its attributes were then: what is
    /// to be done once is done.
    pub deployed_before: bool,
    /// Resources that this one requires, that send events, and that changed something since this one last
    /// ended well, or ever if it never did; in a dry run also those that would.
    pub changed_dependencies: &'a [ResourceId],
}

/// Where the resource stands among others: for handlers that run elsewhere and have to be told everything.
#[derive(Clone, Copy)]
pub struct Standing<'a> {
    pub version: VersionNumber,
    /// All that it requires. Whoever runs a handler has seen to it that they are deployed, unless the resource is
    /// only reported on.
    pub requires: &'a [ResourceId],
    /// As `Run::changed_dependencies`.
    pub changed: &'a [ResourceId],
    /// Why it is run, for people.
    pub reason: &'a (dyn fmt::Display + 'a),
}

impl fmt::Debug for Standing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Standing({}, {})", self.version, self.reason)
    }
}

/// Is told when a run is about to change something: the last moment at which nothing has happened yet.
#[derive(Clone, Copy)]
pub struct Announcement<'a>(pub &'a dyn Fn() -> Result<(), HandlerError>);

impl fmt::Debug for Announcement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Announcement")
    }
}

/// Gate before effects that a handler declares, while it runs, as not to be repeated.
#[derive(Clone, Copy)]
pub struct EffectGate<'a> {
    /// An earlier run began such an effect, and its result was lost.
    pub is_unknown: bool,
    /// Records durably that an effect begins.
    pub begin: &'a dyn Fn() -> Result<(), HandlerError>,
}

impl fmt::Debug for EffectGate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EffectGate").field("is_unknown", &self.is_unknown).finish_non_exhaustive()
    }
}

/// Answer to a handler that is about to begin an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectStart {
    /// It is recorded, and may begin.
    Recorded,
    /// An earlier one may have happened: this one must not begin.
    Refused,
}

/// One run of a handler.
#[derive(Debug)]
pub struct Context<'a> {
    id: &'a ResourceId,
    surroundings: &'a Surroundings<'a>,
    run: Run<'a>,
    standing: Standing<'a>,
    announcement: Option<Announcement<'a>>,
    effects: Option<EffectGate<'a>>,
    effect_begun: bool,
    repeated: bool,
    unclear: bool,
    log: Vec<LogLine>,
    facts: Vec<Fact>,
}

impl<'a> Context<'a> {
    pub fn new(id: &'a ResourceId, surroundings: &'a Surroundings<'a>, run: Run<'a>) -> Self {
        let standing =
            Standing { version: VersionNumber(0), requires: &[], changed: &[], reason: &"" };
        let (log, facts) = (Vec::new(), Vec::new());
        Context {
            id,
            surroundings,
            run,
            standing,
            announcement: None,
            effects: None,
            effect_begun: false,
            repeated: false,
            unclear: false,
            log,
            facts,
        }
    }

    /// Says where the resource stands.
    #[must_use]
    pub fn standing_at(mut self, standing: Standing<'a>) -> Self {
        self.standing = standing;
        self
    }

    /// Has a change announced before it is made.
    #[must_use]
    pub fn announcing(mut self, announcement: Announcement<'a>) -> Self {
        self.announcement = Some(announcement);
        self
    }

    /// Has effects that must not be repeated recorded before they begin.
    #[must_use]
    pub fn recording_effects(mut self, gate: EffectGate<'a>) -> Self {
        self.effects = Some(gate);
        self
    }

    /// Whether an earlier run began an effect that must not be repeated, and its result was lost.
    pub fn has_unknown_effect(&self) -> bool {
        self.effects.is_some_and(|gate| gate.is_unknown)
    }

    /// Whether this run has begun an effect that must not be repeated.
    pub fn has_begun_effect(&self) -> bool {
        self.effect_begun
    }

    /// Records that an effect begins which must not be repeated. If an earlier one may have happened it is refused, unless the
    /// handler has found out that it `did_not_happen`.
    ///
    /// # Errors
    /// If it cannot be recorded, or nothing may be changed in this run.
    pub fn begin_effect(&mut self, did_not_happen: bool) -> Result<EffectStart, HandlerError> {
        let gate = self.effects.filter(|_| self.run.mode == Mode::Deploy).ok_or_else(|| {
            HandlerError::failed("an effect must not begin in a run that changes nothing")
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

    /// Says that something is about to be changed, or may be. It must not be, if this fails.
    ///
    /// # Errors
    /// If it cannot be noted.
    pub fn announce_change(&self) -> Result<(), HandlerError> {
        self.announcement.map_or(Ok(()), |announcement| (announcement.0)())
    }

    /// Says that a part of this run was lost and is repeated: it may have changed something that the end of the run
    /// does not know of.
    pub fn note_repetition(&mut self) {
        self.repeated = true;
    }

    /// Says that something was begun, and that nobody knows whether it was done.
    pub fn note_unclear(&mut self) {
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
        self.surroundings.target
    }

    pub fn session(&self) -> &'a Session {
        self.surroundings.session
    }

    pub fn stop(&self) -> &'a Stop {
        self.run.stop
    }

    pub fn mode(&self) -> Mode {
        self.run.mode
    }

    pub fn standing(&self) -> Standing<'a> {
        self.standing
    }

    /// Lines below it are not kept.
    pub fn log_level(&self) -> LogLevel {
        self.surroundings.log_level
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

    /// Ends the run if somebody cancelled it or its time is over.
    pub fn check_stop(&self) -> Result<(), HandlerError> {
        match self.run.stop.reason() {
            None => Ok(()),
            Some(StopReason::Cancelled) => Err(HandlerError::Cancelled),
            Some(StopReason::DeadlinePassed) => Err(HandlerError::DeadlinePassed),
        }
    }

    /// The content with this digest.
    pub fn content(&self, digest: &ContentDigest) -> Result<Arc<[u8]>, HandlerError> {
        self.surroundings.contents.content(digest)?.ok_or_else(|| {
            HandlerError::failed_with_hint(
                format!("the content with the digest {digest} is not in the store"),
                "export the model again, so that it is uploaded",
            )
        })
    }

    /// The number of a user. In a dry run there may be none yet: then it is made before this resource.
    pub fn uid(&self, name: &str) -> Result<Option<u32>, TargetError> {
        self.unless_future(self.session().uid(self.target(), name))
    }

    /// The number of a group, as `uid`.
    pub fn gid(&self, name: &str) -> Result<Option<u32>, TargetError> {
        self.unless_future(self.session().gid(self.target(), name))
    }

    fn unless_future(&self, found: Result<u32, TargetError>) -> Result<Option<u32>, TargetError> {
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

    /// Keeps a line for the log of this run; `values` are what it names, for programs.
    pub fn log(
        &mut self,
        level: LogLevel,
        message: impl Into<Cow<'static, str>>,
        values: impl IntoIterator<Item = (&'static str, Value)>,
    ) {
        if level < self.surroundings.log_level {
            return;
        }
        let values = values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let message = message.into().into_owned();
        self.log.push(LogLine { at: (self.surroundings.clock)(), level, message, values });
    }

    /// Keeps a line that was written elsewhere.
    pub fn add_line(&mut self, line: LogLine) {
        if line.level >= self.surroundings.log_level {
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

    /// Says something about the resource that models and people can ask for.
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

    /// Ends the run with an error: it decides about the status, and is logged with its help.
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

/// A changed attribute; for what `diff` gives.
pub fn changed(
    name: &str,
    current: impl Into<Value>,
    desired: impl Into<Value>,
) -> AttributeChange {
    AttributeChange { name: name.to_owned(), current: current.into(), desired: desired.into() }
}
