//! One run of one handler: the one way in which handlers are run, in an engine and in a remote agent.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use orrery_handlers::{
    Announcement, Contents, Context, EffectGate, Handler, HandlerError, Mode, Registry, Run,
    Secrets, Session, Standing, Stop, Surroundings, Target,
};
use orrery_model::{
    Attributes, Change, LogLevel, LogLine, Outcome, OutcomeStatus, Resource, ResourceId, Timestamp,
    VersionNumber,
};
use serde_json::Value;

use crate::resolving;

/// What a run is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Bring the resource to what is wanted, or report on it if its flags say so.
    Deploy,
    /// Say what would be done.
    DryRun,
    /// Say what is known of it.
    Facts,
}

/// What is to be run.
#[derive(Clone, Copy)]
pub struct Task<'a> {
    pub purpose: Purpose,
    pub resource: &'a Resource,
    pub version: VersionNumber,
    /// An earlier run ended well.
    pub deployed_before: bool,
    /// Requirements that changed something since then; if there was no such run, all that are known to have changed something.
    pub changed_dependencies: &'a [ResourceId],
    /// Why it is run, for people.
    pub reason: &'a dyn fmt::Display,
    pub stop: &'a Stop,
    /// What has to be called before something is changed. Nothing may be changed if it fails.
    pub announce: Option<Announcement<'a>>,
    /// What has to be asked before an effect which the handler itself declares as not to be repeated.
    pub effects: Option<EffectGate<'a>>,
}

impl fmt::Debug for Task<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Task({:?}, {}, {})", self.purpose, self.resource.id, self.reason)
    }
}

/// What it is run with.
#[derive(Clone, Copy)]
pub struct Bench<'a> {
    pub registry: &'a Registry,
    pub target: &'a dyn Target,
    pub session: &'a Session,
    pub contents: &'a dyn Contents,
    pub secrets: &'a dyn Secrets,
    /// Lines of handlers below it are not kept.
    pub log_level: LogLevel,
}

impl fmt::Debug for Bench<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bench").field("log_level", &self.log_level).finish_non_exhaustive()
    }
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Performed {
    pub outcome: Outcome,
    /// A change was announced; if the run did not end well, nobody knows how far it came.
    pub announced: bool,
    /// A part of the run was lost and repeated; nobody knows what it had changed.
    pub repeated: bool,
    /// Something was begun, and nobody knows whether it was done.
    pub unclear: bool,
}

impl From<Outcome> for Performed {
    fn from(outcome: Outcome) -> Self {
        Performed { outcome, announced: false, repeated: false, unclear: false }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "handlers run in real time; the scheduler gets it from here"
)]
pub(crate) fn now() -> Timestamp {
    Timestamp::from_system(std::time::SystemTime::now())
}

impl Task<'_> {
    /// Runs the handler here. Whatever it does, there is an outcome, and no secret is in it.
    pub fn run(&self, bench: &Bench<'_>) -> Performed {
        let resource = self.resource;
        let Some(handler) = bench.registry.handler(resource.id.entity()) else {
            return unhandled(resource.id.entity()).into();
        };
        let resolved = if handler.resolves_references() {
            Ok(None)
        } else {
            resolving::resolve(&resource.attributes, bench.secrets)
        };
        let resolved = match resolved {
            Ok(resolved) => resolved,
            Err(error) => {
                return ended(OutcomeStatus::Failed, LogLevel::Error, error.to_string()).into();
            }
        };
        let attributes = resolved.as_ref().map_or(&resource.attributes, |with| &with.attributes);
        let surroundings = Surroundings {
            target: bench.target,
            session: bench.session,
            contents: bench.contents,
            clock: &now,
            log_level: bench.log_level,
        };
        let run = Run {
            mode: self.mode(),
            stop: self.stop,
            deployed_before: self.deployed_before,
            changed_dependencies: self.changed_dependencies,
        };
        let announced = Cell::new(false);
        let announce = || {
            let Some(announce) = self.announce else { return Ok(()) };
            (announce.0)()?;
            announced.set(true);
            Ok::<(), HandlerError>(())
        };
        let standing = Standing {
            version: self.version,
            requires: &resource.requires,
            changed: self.changed_dependencies,
            reason: self.reason,
        };
        let mut context = Context::new(&resource.id, &surroundings, run).standing_at(standing);
        if self.announce.is_some() {
            context = context.announcing(Announcement(&announce));
        }
        if let Some(gate) = self.effects {
            context = context.recording_effects(gate);
        }
        let caught = catch_unwind(AssertUnwindSafe(|| {
            run_handler(&**handler, self.purpose, attributes, &mut context)
        }));
        let unclear = caught.is_err() || context.is_unclear();
        let outcome = caught.unwrap_or_else(|panic| crashed(&*panic, &mut context));
        let outcome = match resolved {
            Some(resolved) => resolved.hidden.hide(outcome),
            None => outcome,
        };
        let repeated = context.was_repeated();
        Performed { outcome, announced: announced.get(), repeated, unclear }
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

fn crashed(panic: &(dyn std::any::Any + Send), context: &mut Context<'_>) -> Outcome {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    let values = [("panic", Value::from(text.clone()))];
    context.log(LogLevel::Critical, format!("the handler crashed: {text}"), values);
    context.finish(OutcomeStatus::Failed, Change::default())
}

pub(crate) fn unhandled(entity: &str) -> Outcome {
    let message = format!("there is no handler for {entity}");
    ended(OutcomeStatus::Unavailable, LogLevel::Error, message)
}

/// An outcome that needed no handler.
pub(crate) fn ended(status: OutcomeStatus, level: LogLevel, message: String) -> Outcome {
    let line = LogLine { at: now(), level, message, values: serde_json::Map::new() };
    Outcome { status, change: Change::default(), facts: Vec::new(), log: vec![line] }
}
