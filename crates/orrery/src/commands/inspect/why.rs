//! `orrery why`: why a resource is as it is, what it waits for, and what comes next.
//!
//! A scheduler is brought to where the engine would start from, but halted, so that it decides and does
//! nothing; what it says is what a deploy would do.

use std::fmt::Write as _;

use orrery_executor::{Desired, recovery};
use orrery_model::{Source, Status, Timestamp};
use orrery_scheduler::{Because, Event, Interval, ResourceIndex, Scheduler, Settings};
use orrery_store::{
    Action, ActionKind, Holder, ResourceSummary, Store, VersionInfo, current_writer, load_version,
};
use serde_json::{Value, json};

use super::cause::{self, Cause};
use super::{Look, Trouble, find, json, nothing_deployed, print_json, status, text};
use crate::cli_inspect::Why;
use crate::{Exit, output, state, style};

/// How many of the last actions are searched.
const ACTIONS_MAX: usize = 20;

/// How far the requirements that are not as wanted are followed.
const PATH_MAX: usize = 16;

pub(crate) fn run(look: &Look, options: &Why) -> Result<Exit, Trouble> {
    let resource = find::one(look, &options.resource)?;
    let explanation = Explanation::find(look, resource)?;
    if options.look.json {
        print_json(&explanation.as_json())?;
        return Ok(Exit::Done);
    }
    let printed = output::print_styled(&explanation.as_text(look));
    Ok(if printed { Exit::Done } else { Exit::Error })
}

struct Explanation {
    resource: ResourceSummary,
    status: Status,
    version: VersionInfo,
    /// The last deploy that is in the log.
    last: Option<Action>,
    cause: Option<Cause>,
    /// Why a run is due that was not yet.
    pending: Option<String>,
    path: Vec<Step>,
    next: Vec<Next>,
    writer: Option<Holder>,
}

/// A requirement that is not as wanted, of the resource or of the step before.
struct Step {
    id: String,
    status: Status,
    message: Option<String>,
    source: Option<Source>,
    /// Other requirements that are not as wanted either.
    others: usize,
}

struct Next {
    kind: &'static str,
    text: String,
}

impl Explanation {
    fn find(look: &Look, resource: ResourceSummary) -> Result<Self, Trouble> {
        let version = look.released()?.ok_or_else(|| nothing_deployed(&look.file))?;
        let id = resource.id.as_str();
        let mut actions = look.store.actions(look.environment, id, None, ACTIONS_MAX)?;
        let cause = Cause::of_last(look, &resource.id, &resource.state, &actions)?;
        actions.retain(|action| action.kind == ActionKind::Deploy);
        let last = if actions.is_empty() { None } else { Some(actions.swap_remove(0)) };
        let mut explanation = Explanation {
            status: resource.status,
            resource,
            last,
            cause,
            pending: None,
            path: Vec::new(),
            next: Vec::new(),
            writer: current_writer(&look.file)?,
            version,
        };
        let scheduler = scheduler(look, &explanation.version)?;
        match scheduler.index_of(explanation.resource.id.as_str()) {
            Some(index) => explanation.ask(look, &scheduler, index)?,
            None => explanation.next.push(Next {
                kind: "not_wanted",
                text: format!("nothing: version {} does not have it", explanation.version.number),
            }),
        }
        Ok(explanation)
    }

    fn ask(
        &mut self,
        look: &Look,
        scheduler: &Scheduler,
        index: ResourceIndex,
    ) -> Result<(), Trouble> {
        if self.status != Status::Deploying
            && let Some(state) = scheduler.state(index)
        {
            self.status = state.status();
        }
        if self.status == Status::Deploying {
            let (kind, text) = match self.writer {
                Some(_) => ("running", "its handler runs now"),
                None => ("cut_off", "its handler was cut off; the next deploy verifies it"),
            };
            self.next.push(Next { kind, text: text.to_owned() });
            return Ok(());
        }
        if matches!(self.status, Status::Skipped | Status::SkippedForUndefined | Status::Available)
        {
            self.path = path(look, scheduler, index)?;
        }
        if self.status == Status::Available {
            self.pending = Some(self.pending(look)?);
        }
        let because = scheduler.why(index).map(|why| why.because).unwrap_or_default();
        self.next.extend(because.iter().filter_map(next));
        if self.next.is_empty() {
            // The scheduler was halted, and had no more to say than that.
            let rest = if self.has_failed() { Because::NothingPlanned } else { Because::Settled };
            self.next.extend(next(&rest));
        }
        let agent = self.resource.id.agent();
        let is_paused = scheduler.agent_of(agent).is_some_and(|agent| scheduler.is_paused(agent));
        if is_paused && self.next.iter().all(|next| next.kind != "agent_paused") {
            self.next.extend(next(&Because::AgentPaused { agent: agent.into() }));
        }
        Ok(())
    }

    fn pending(&self, look: &Look) -> Result<String, Trouble> {
        let number = self.version.number;
        let Some(last) = &self.last else { return Ok("it was never deployed".to_owned()) };
        let id = &self.resource.id;
        Ok(match cause::changed_attributes(look, id, last.version, number)? {
            Some(attributes) => {
                let change = Cause::Intent { from: last.version, to: number, attributes };
                change.as_text()
            }
            None => format!("version {number} has not been tried yet"),
        })
    }

    fn as_text(&self, look: &Look) -> String {
        let id = style::harmless(self.resource.id.as_str());
        let status = text::coloured(self.status, self.status.as_str());
        let mut out = format!("{} is {status}\n", style::heading(&id));
        let mut line = |name: &str, text: &str| {
            let text = text.replace('\n', "\n            ");
            let _ = writeln!(out, "  {name:<9} {text}");
        };
        if let Some(source) = &self.resource.source {
            line("defined", &format!("at {}", look.place(source)));
        }
        match &self.last {
            Some(action) => line("last run", &last_run(action, self.path.is_empty())),
            None if self.resource.state.last_run_at.is_none() => line("last run", "never"),
            None => {}
        }
        if let Some(cause) = &self.cause {
            line("because", &style::harmless(&cause.as_text()));
        }
        if let Some(hint) = self.last.as_ref().filter(|_| self.has_failed()).and_then(text::hint) {
            line("hint", &style::harmless(hint));
        }
        let finished = self.last.as_ref().and_then(|action| action.finished);
        if let Some(at) = self.resource.state.last_run_at.filter(|at| later(*at, finished)) {
            line("verified", &text::moment(at));
        }
        if let Some(pending) = &self.pending {
            line("pending", &style::harmless(pending));
        }
        for (depth, step) in self.path.iter().enumerate() {
            let text = step.as_text(look);
            match depth {
                0 => line("requires", &text),
                depth => line("", &format!("{:width$}requires {text}", "", width = 2 * depth)),
            }
        }
        for next in &self.next {
            line("next", &style::harmless(&next.text));
        }
        if let Some(holder) = &self.writer {
            line("now", &style::help(&style::harmless(&format!("{holder} is at work"))));
        }
        out
    }

    fn has_failed(&self) -> bool {
        !matches!(self.status, Status::Deployed | Status::Orphaned)
    }

    fn as_json(&self) -> Value {
        let path = self.path.iter().map(|step| {
            json!({
                "id": step.id,
                "status": step.status.as_str(),
                "message": step.message,
                "source": json::source(step.source.as_ref()),
                "others": step.others,
            })
        });
        let next = self.next.iter().map(|next| json!({ "kind": next.kind, "text": next.text }));
        let mut resource = json::resource(&self.resource);
        resource["status"] = self.status.as_str().into();
        json!({
            "resource": resource,
            "version": self.version.number.0,
            "last_action": self.last.as_ref().map(json::action),
            "message": self.last.as_ref().filter(|_| self.has_failed()).and_then(text::complaint),
            "cause": self.cause.as_ref().map(Cause::as_json),
            "pending": self.pending,
            "requires": path.collect::<Vec<_>>(),
            "next": next.collect::<Vec<_>>(),
        })
    }
}

impl Step {
    fn as_text(&self, look: &Look) -> String {
        let mut text = style::harmless(&self.id);
        let _ = write!(text, ", which is {}", text::coloured(self.status, self.status.as_str()));
        if let Some(message) = &self.message {
            let _ = write!(text, ": {}", style::harmless(message));
        }
        if let Some(source) = &self.source {
            let _ = write!(text, " ({})", look.place(source));
        }
        if self.others > 0 {
            let _ = write!(text, "; and {} that are not deployed either", self.others);
        }
        text
    }
}

fn later(at: Timestamp, than: Option<Timestamp>) -> bool {
    // A run is noted in the state and in the log with slightly different times.
    than.is_none_or(|than| at.since(than).as_secs() > 0)
}

/// The last run in a line; with its complaint, unless that is told otherwise.
fn last_run(action: &Action, complain: bool) -> String {
    let started = text::moment(action.started);
    let mut line = format!("{started}, deploy of version {}: ", action.version);
    match action.outcome {
        Some(outcome) => line += &text::coloured_outcome(outcome),
        None => line += &style::warning("cut off"),
    }
    if action.change.kind != orrery_model::ChangeKind::NoChange {
        let _ = write!(line, ", {}", action.change.kind.as_str());
    }
    if complain
        && action.outcome.is_some()
        && let Some(complaint) = text::complaint(action)
    {
        let _ = write!(line, ", {}", style::harmless(&complaint));
    }
    line
}

/// A scheduler that knows what the engine would know at its start. It is halted, and without intervals:
/// those are for an engine that stays.
fn scheduler(look: &Look, version: &VersionInfo) -> Result<Scheduler, Trouble> {
    let resources = load_version(&look.store, look.environment, version.number)?.resources;
    let mut keys = Vec::with_capacity(resources.len());
    look.store.read_version(look.environment, version.number, &mut |row| keys.push(row.key))?;
    let desired = Desired { version: version.number, resources, keys };
    let mut start = recovery(&look.store, look.environment, desired)?;
    start.recovery.halted = true;
    let settings = Settings {
        deploy_interval: Interval::Off,
        repair_interval: Interval::Off,
        ..Settings::default()
    };
    let mut scheduler = Scheduler::new(settings);
    let mut commands = Vec::new();
    scheduler.handle(Event::Recover(Box::new(start.recovery)), state::now(), &mut commands);
    Ok(scheduler)
}

/// The chain of requirements that are not as wanted, down to the one that is to blame.
fn path(look: &Look, scheduler: &Scheduler, from: ResourceIndex) -> Result<Vec<Step>, Trouble> {
    let mut steps: Vec<Step> = Vec::new();
    let mut at = from;
    while steps.len() < PATH_MAX {
        let mut bad: Vec<(u8, &str, ResourceIndex, Status)> = scheduler
            .requirements(at)
            .into_iter()
            .filter_map(|index| {
                let status = scheduler.state(index)?.status();
                let id = scheduler.id(index)?.as_str();
                Some((rank(status)?, id, index, status))
            })
            .collect();
        bad.sort_unstable();
        let Some(&(_, id, index, status)) = bad.first() else { break };
        let summary = look.store.find_resource(look.environment, id)?;
        let message = match &summary {
            Some(summary) => status::message(look, summary)?,
            None => None,
        };
        // What merely waits says so by the next step.
        let waits = matches!(status, Status::Skipped | Status::SkippedForUndefined);
        let leads_on = scheduler.requirements(index).into_iter().any(|index| {
            scheduler.state(index).is_some_and(|state| rank(state.status()).is_some())
        });
        steps.push(Step {
            id: id.to_owned(),
            status,
            message: message.filter(|_| !(waits && leads_on)),
            source: summary.and_then(|summary| summary.source),
            others: bad.len() - 1,
        });
        at = index;
        if !matches!(status, Status::Skipped | Status::SkippedForUndefined | Status::Available) {
            break;
        }
    }
    Ok(steps)
}

/// How much a requirement is to blame; `None` if it is as wanted.
fn rank(status: Status) -> Option<u8> {
    Some(match status {
        Status::Deployed | Status::Orphaned => return None,
        Status::Failed => 0,
        Status::Unavailable => 1,
        Status::NonCompliant => 2,
        Status::Undefined => 3,
        Status::SkippedForUndefined => 4,
        Status::Skipped => 5,
        Status::Available | Status::Deploying => 6,
    })
}

/// What the scheduler says, as what will come.
fn next(because: &Because) -> Option<Next> {
    let (kind, text) = match because {
        // That is only true of the scheduler that was asked.
        Because::Halted => return None,
        Because::Queued { .. } => ("next_deploy", "the next deploy runs it".to_owned()),
        Because::WaitingOn { resources, .. } => {
            let names: Vec<&str> = resources.iter().map(|id| id.as_str()).collect();
            let names = text::some_of(&names);
            ("next_deploy", format!("the next deploy runs it, after {names}"))
        }
        Because::Undefined { path } => match path.as_slice() {
            [_, .., last] => ("undefined", format!("it is deployed when {last} is known")),
            _ => ("undefined", "it is deployed when all of its attributes are known".to_owned()),
        },
        Because::AgentPaused { .. } => ("agent_paused", because.to_string()),
        Because::WaitingForRecovery { bad } => {
            let names: Vec<&str> = bad.iter().map(|id| id.as_str()).collect();
            let names = text::some_of(&names);
            ("waiting_for_recovery", format!("it is tried as soon as {names} is deployed"))
        }
        Because::Parked { .. } => ("parked", because.to_string()),
        Because::Settled => ("settled", because.to_string()),
        Because::NothingPlanned => ("nothing_planned", because.to_string()),
        Because::Running { .. } | Because::Outdated => ("running", because.to_string()),
        Because::GroupFull { .. } => ("group_full", because.to_string()),
        Because::NextTimer { .. } | Because::NextCron { .. } => ("timer", because.to_string()),
    };
    Some(Next { kind, text })
}
