//! `orrery why`: status of a resource, its reasons, and the next steps.

use std::fmt::Write as _;

use orrery_model::{Status, Timestamp};
use serde_json::{Value, json};

use super::cause::Cause;
use super::deployment::{ActiveRun, BlockingRequirement, NextStep, NextSteps, ResourceView};
use super::removal_record::RemovalRecord;
use super::view::{ActionView, ActionViewKind, VersionView};
use super::{CliError, OpenDeployment, find, json, print_json, text};
use crate::cli::inspect::Why;
use crate::commands::effects;
use crate::{Exit, output, style};

/// Number of recent actions that are searched.
const ACTIONS_MAX: usize = 20;

pub(crate) fn run(deployment: &OpenDeployment, options: &Why) -> Result<Exit, CliError> {
    let resource = find::find_one(deployment, &options.resource)?;
    let explanation = Explanation::find(deployment, resource)?;
    if options.inspect.json {
        print_json(&explanation.as_json())?;
        return Ok(Exit::Done);
    }
    let printed = output::print_styled(&explanation.as_text(deployment));
    Ok(if printed { Exit::Done } else { Exit::Error })
}

struct Explanation {
    resource: ResourceView,
    status: Status,
    version: VersionView,
    /// Last deploy in the log.
    last: Option<ActionView>,
    cause: Option<Cause>,
    removed: Option<RemovalRecord>,
    /// Reason for an overdue run.
    pending: Option<String>,
    path: Vec<BlockingRequirement>,
    next: Vec<NextStep>,
    writer: Option<ActiveRun>,
}

impl Explanation {
    fn find(deployment: &OpenDeployment, resource: ResourceView) -> Result<Self, CliError> {
        let (version, candidate) = deployment.released()?;
        let id = resource.id.as_str();
        let mut actions = deployment.actions(id, ACTIONS_MAX)?;
        let cause = Cause::of_last(&**deployment, &resource, &actions)?;
        let removed = RemovalRecord::find(&**deployment, &resource, &actions)?;
        actions.retain(|action| action.kind == ActionViewKind::Deploy);
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
            writer: deployment.at_work()?,
            version,
        };
        let NextSteps { status, path, next } =
            deployment.next_steps(&explanation.resource, &explanation.version)?;
        explanation.status = status.unwrap_or(explanation.status);
        (explanation.path, explanation.next) = (path, next);
        if let Some(candidate) = candidate
            && explanation.status == Status::Available
            && !deployment.is_in_released(&explanation.resource.id, &explanation.version)?
        {
            let number = candidate.number;
            let text = format!(
                "nothing yet: it is in version {number}, which is not released; `orrery version release {number}` deploys it"
            );
            explanation.next = vec![NextStep::new("not_released", text)];
        }
        if explanation.resource.parked {
            let id = explanation.resource.id.as_str();
            let unknown = deployment.unknown_effects()?;
            if let Some(effect) = unknown.iter().find(|effect| effect.resource == id) {
                let next = NextStep::new(
                    "unknown_effect",
                    effects::next_step_text(effect, deployment.settle_timing()),
                );
                explanation.next.retain(|next| next.kind != "parked");
                explanation.next.insert(0, next);
            }
        }
        if explanation.removed.is_some() {
            explanation.next.retain(|next| next.kind == "not_wanted");
            if explanation.next.is_empty() {
                explanation.next.push(NextStep::new("not_wanted", "nothing: it was removed"));
            }
        }
        if explanation.status == Status::Available {
            explanation.pending = Some(explanation.pending(deployment)?);
        }
        Ok(explanation)
    }

    fn pending(&self, deployment: &OpenDeployment) -> Result<String, CliError> {
        let number = self.version.number;
        let Some(last) = &self.last else { return Ok("it was never deployed".to_owned()) };
        let id = &self.resource.id;
        Ok(match deployment.changed_attributes(id, last.version, number)? {
            Some(attributes) => {
                let change = Cause::Intent { from: last.version, to: number, attributes };
                change.as_text()
            }
            None => format!("version {number} has not run yet"),
        })
    }

    fn as_text(&self, deployment: &OpenDeployment) -> String {
        let id = style::sanitize(self.resource.id.as_str());
        let word = ResourceView { status: self.status, ..self.resource.clone() }.word();
        let word = text::coloured(self.status, word);
        // The removal status already contains a verb: `x: removal failed`.
        let is = if self.resource.removal.is_some() { ": " } else { " is " };
        let mut out = format!("{}{is}{word}\n", style::heading(&id));
        let mut line = |name: &str, text: &str| {
            let text = text.replace('\n', "\n            ");
            let _ = writeln!(out, "  {name:<9} {text}");
        };
        if let Some(source) = &self.resource.source {
            line("defined", &format!("at {}", deployment.location(source)));
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
            line("because", &style::sanitize(&cause.as_text()));
        }
        if let Some(hint) =
            self.last.as_ref().filter(|_| self.has_failed()).and_then(ActionView::hint)
        {
            line("hint", &style::sanitize(hint));
        }
        let finished = self.last.as_ref().and_then(|action| action.finished);
        if let Some(at) = self.resource.last_run_at.filter(|at| later(*at, finished)) {
            line("verified", &format!("{} ({})", text::moment(at), text::since(at)));
        }
        if let Some(pending) = &self.pending {
            line("pending", &style::sanitize(pending));
        }
        for (depth, step) in self.path.iter().enumerate() {
            let text = step.as_text(deployment);
            match depth {
                0 => line("requires", &text),
                depth => line("", &format!("{:width$}requires {text}", "", width = 2 * depth)),
            }
        }
        for next in &self.next {
            line("next", &style::sanitize(&next.text));
        }
        if let Some(at_work) = &self.writer {
            line("now", &style::help(&style::sanitize(&at_work.text)));
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
            "removed": self.removed.as_ref().map(RemovalRecord::as_json),
            "pending": self.pending,
            "requires": path.collect::<Vec<_>>(),
            "next": next.collect::<Vec<_>>(),
        })
    }
}

impl BlockingRequirement {
    fn as_text(&self, deployment: &OpenDeployment) -> String {
        let mut text = style::sanitize(&self.id);
        let _ = write!(text, ", which is {}", text::coloured(self.status, self.status.as_str()));
        if let Some(message) = &self.message {
            let _ = write!(text, ": {}", style::sanitize(message));
        }
        if let Some(source) = &self.source {
            let _ = write!(text, " ({})", deployment.location(source));
        }
        if self.others > 0 {
            let _ = write!(text, "and {} more that are not deployed", self.others);
        }
        text
    }
}

fn later(at: Timestamp, than: Option<Timestamp>) -> bool {
    // State and log record a run with slightly different times.
    than.is_none_or(|than| at.since(than).as_secs() > 0)
}

/// The last run in a line, with its failure message if `complain`.
fn last_run(action: &ActionView, complain: bool) -> String {
    let (started, ago) = (text::moment(action.started), text::since(action.started));
    let mut line = format!("{started} ({ago}), deploy of version {}: ", action.version);
    match action.outcome {
        Some(outcome) => line += &text::coloured_outcome(outcome),
        None => line += &style::warning("interrupted"),
    }
    if action.change.kind != orrery_model::ChangeKind::NoChange {
        let _ = write!(line, ", {}", action.change.kind.as_str());
    }
    if complain
        && action.outcome.is_some()
        && let Some(complaint) = text::complaint(action)
    {
        let _ = write!(line, ", {}", style::sanitize(&complaint));
    }
    line
}
