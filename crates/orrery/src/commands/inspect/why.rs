//! `orrery why`: why a resource is as it is, what it waits for, and what comes next.

use std::fmt::Write as _;

use orrery_model::{Status, Timestamp};
use orrery_store::{Action, ActionKind, VersionInfo};
use serde_json::{Value, json};

use super::cause::Cause;
use super::removed::Removed;
use super::source::{AtWork, Next, Outlook, Seen, Step};
use super::{Look, Trouble, find, json, print_json, text};
use crate::cli_inspect::Why;
use crate::commands::effects;
use crate::{Exit, output, style};

/// How many of the last actions are searched.
const ACTIONS_MAX: usize = 20;

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
    resource: Seen,
    status: Status,
    version: VersionInfo,
    /// The last deploy that is in the log.
    last: Option<Action>,
    cause: Option<Cause>,
    removed: Option<Removed>,
    /// Why a run is due that was not yet.
    pending: Option<String>,
    path: Vec<Step>,
    next: Vec<Next>,
    writer: Option<AtWork>,
}

impl Explanation {
    fn find(look: &Look, resource: Seen) -> Result<Self, Trouble> {
        let (version, candidate) = look.released()?;
        let id = resource.id.as_str();
        let mut actions = look.actions(id, ACTIONS_MAX)?;
        let cause = Cause::of_last(&**look, &resource, &actions)?;
        let removed = Removed::find(&**look, &resource, &actions)?;
        actions.retain(|action| action.kind == ActionKind::Deploy);
        let last = if actions.is_empty() { None } else { Some(actions.swap_remove(0)) };
        let mut explanation = Explanation {
            status: resource.status,
            resource,
            last,
            cause,
            removed,
            pending: None,
            path: Vec::new(),
            next: Vec::new(),
            writer: look.at_work()?,
            version,
        };
        let Outlook { status, path, next } =
            look.outlook(&explanation.resource, &explanation.version)?;
        explanation.status = status.unwrap_or(explanation.status);
        (explanation.path, explanation.next) = (path, next);
        if let Some(candidate) = candidate
            && explanation.status == Status::Available
            && !look.is_wanted(&explanation.resource.id, &explanation.version)?
        {
            let number = candidate.number;
            let text = format!(
                "nothing yet: it is in version {number}, which is not released; `orrery version release {number}` deploys it"
            );
            explanation.next = vec![Next::new("not_released", text)];
        }
        if explanation.resource.parked {
            let id = explanation.resource.id.as_str();
            let unknown = look.unknown_effects()?;
            if let Some(effect) = unknown.iter().find(|effect| effect.resource == id) {
                let next = Next::new("unknown_effect", effects::outlook(effect, look.acting()));
                explanation.next.retain(|next| next.kind != "parked");
                explanation.next.insert(0, next);
            }
        }
        if explanation.removed.is_some() {
            explanation.next.retain(|next| next.kind == "not_wanted");
            if explanation.next.is_empty() {
                explanation.next.push(Next::new("not_wanted", "nothing: it is gone"));
            }
        }
        if explanation.status == Status::Available {
            explanation.pending = Some(explanation.pending(look)?);
        }
        Ok(explanation)
    }

    fn pending(&self, look: &Look) -> Result<String, Trouble> {
        let number = self.version.number;
        let Some(last) = &self.last else { return Ok("it was never deployed".to_owned()) };
        let id = &self.resource.id;
        Ok(match look.changed_attributes(id, last.version, number)? {
            Some(attributes) => {
                let change = Cause::Intent { from: last.version, to: number, attributes };
                change.as_text()
            }
            None => format!("version {number} has not been tried yet"),
        })
    }

    fn as_text(&self, look: &Look) -> String {
        let id = style::harmless(self.resource.id.as_str());
        let word = Seen { status: self.status, ..self.resource.clone() }.word();
        let word = text::coloured(self.status, word);
        // What happens to a removal is said of the resource: `x: removal failed`.
        let is = if self.resource.removal.is_some() { ": " } else { " is " };
        let mut out = format!("{}{is}{word}\n", style::heading(&id));
        let mut line = |name: &str, text: &str| {
            let text = text.replace('\n', "\n            ");
            let _ = writeln!(out, "  {name:<9} {text}");
        };
        if let Some(source) = &self.resource.source {
            line("defined", &format!("at {}", look.place(source)));
        }
        if let Some(removed) = &self.removed {
            line("removed", &removed.as_text());
        }
        match &self.last {
            Some(action) => line("last run", &last_run(action, self.path.is_empty())),
            None if self.resource.last_run_at.is_none() => line("last run", "never"),
            None => {}
        }
        if let Some(cause) = &self.cause {
            line("because", &style::harmless(&cause.as_text()));
        }
        if let Some(hint) = self.last.as_ref().filter(|_| self.has_failed()).and_then(Action::hint)
        {
            line("hint", &style::harmless(hint));
        }
        let finished = self.last.as_ref().and_then(|action| action.finished);
        if let Some(at) = self.resource.last_run_at.filter(|at| later(*at, finished)) {
            line("verified", &format!("{} ({})", text::moment(at), text::since(at)));
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
        if let Some(at_work) = &self.writer {
            line("now", &style::help(&style::harmless(&at_work.text)));
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
            "removed": self.removed.as_ref().map(Removed::as_json),
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
    let (started, ago) = (text::moment(action.started), text::since(action.started));
    let mut line = format!("{started} ({ago}), deploy of version {}: ", action.version);
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
