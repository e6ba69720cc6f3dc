//! `orrery status`: overview of the deployment.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use orrery_api::{PlacementKind, UnknownEffect};
use orrery_model::{Status, Timestamp, VersionNumber};
use serde_json::{Value, json};

use super::deployment::{ActiveRun, AgentView, Counts, Deployment, ResourceView};
use super::unfinished_removal::unfinished_removal;
use super::view::{ActionViewKind, ResourceSelection, VersionView};
use super::{CliError, OpenDeployment, json, print_json, text, unreleased};
use crate::cli::inspect::ShowStatus;
use crate::commands::effects;
use crate::{Exit, output, style};

/// Maximum number of problems and of agents that are listed.
const PROBLEMS_MAX: usize = 10;
const AGENTS_MAX: usize = 8;

/// Statuses that need attention, worst first.
const PROBLEMS: [Status; 6] = [
    Status::Failed,
    Status::Unavailable,
    Status::NonCompliant,
    Status::Undefined,
    Status::Skipped,
    Status::SkippedForUndefined,
];

/// Number of recent actions that are searched for a deploy.
const ACTIONS_MAX: usize = 10;

struct Overview {
    version: VersionView,
    /// A newer, unreleased version.
    candidate: Option<VersionView>,
    processed: Option<VersionNumber>,
    /// Without removed resources.
    counts: BTreeMap<Status, u64>,
    /// Number of removed resources.
    removed: u64,
    parked: u64,
    verified_since: Option<Timestamp>,
    place: Option<String>,
    agents: Vec<AgentView>,
    writer: Option<ActiveRun>,
    problems: Vec<(ResourceView, Option<String>)>,
    problem_count: u64,
    /// Unknown effects of parked resources.
    unknown_effects: Vec<UnknownEffect>,
}

pub(crate) fn run(deployment: &OpenDeployment, options: &ShowStatus) -> Result<Exit, CliError> {
    let overview = Overview::read(deployment)?;
    if options.inspect.json {
        print_json(&overview.as_json())?;
    } else if !output::print_styled(&overview.as_text(deployment)) {
        return Ok(Exit::Error);
    }
    if !options.inspect.json {
        output::print_status(&overview.closing());
    }
    Ok(if overview.is_done() { Exit::Done } else { Exit::Pending })
}

impl Overview {
    fn read(deployment: &OpenDeployment) -> Result<Self, CliError> {
        let (version, candidate) = deployment.released()?;
        let processed = deployment.processed()?;
        let Counts { by_status: mut counts, parked, removed, verified_since } =
            deployment.counts()?;
        if let Some(deployed) = counts.get_mut(&Status::Deployed) {
            *deployed = deployed.saturating_sub(removed);
        }
        let agents = deployment.agents()?;
        let writer = deployment.at_work()?;
        let count = |status: &Status| counts.get(status).copied().unwrap_or(0);
        let problem_count = PROBLEMS.iter().map(count).sum();
        let mut problems = Vec::new();
        for status in PROBLEMS.into_iter().filter(|status| count(status) > 0) {
            let room = PROBLEMS_MAX - problems.len();
            if room == 0 {
                break;
            }
            let query =
                ResourceSelection { statuses: vec![status], ..ResourceSelection::default() };
            deployment.visit(&query, None, room, &mut |resource| {
                let message = message(&**deployment, &resource)?;
                problems.push((resource, message));
                Ok(problems.len() < PROBLEMS_MAX)
            })?;
        }
        let unknown_effects = match parked > 0 {
            true => deployment.unknown_effects()?,
            false => Vec::new(),
        };
        let place = deployment.environment();
        Ok(Overview {
            version,
            candidate,
            processed,
            counts,
            removed,
            parked,
            verified_since,
            place,
            agents,
            writer,
            problems,
            problem_count,
            unknown_effects,
        })
    }

    /// True if everything is deployed and stays so: no agent is unavailable, no resource is parked,
    /// and no removal is unfinished.
    fn is_done(&self) -> bool {
        let is_kept = self.parked == 0 && self.agents.iter().all(|agent| !agent.down);
        self.is_deployed() && is_kept && self.unfinished_removal().is_none()
    }

    /// True if every resource of the version is deployed.
    fn is_deployed(&self) -> bool {
        let others = self.counts.iter().filter(|(status, count)| {
            **count > 0 && !matches!(status, Status::Deployed | Status::Orphaned)
        });
        let reached = self.agents.iter().all(|agent| !agent.down);
        others.count() == 0 && reached && self.processed == Some(self.version.number)
    }

    /// Note on an unfinished removal. Omitted during a run, and on a server, which continues
    /// removals itself and may have some without a following version.
    fn unfinished_removal(&self) -> Option<&'static str> {
        let is_at_rest = self.writer.is_none() && (self.place.is_none() || !self.is_deployed());
        unfinished_removal(&self.version).filter(|_| is_at_rest)
    }

    /// Number of resources without orphaned and removed ones.
    fn total(&self) -> u64 {
        let wanted = self.counts.iter().filter(|(status, _)| **status != Status::Orphaned);
        wanted.map(|(_, count)| count).sum()
    }

    fn as_text(&self, deployment: &OpenDeployment) -> String {
        let mut out = String::new();
        if let Some(place) = &self.place {
            let _ = writeln!(out, "where    {}", style::sanitize(place));
        }
        let VersionView { number, made_at, info, .. } = &self.version;
        let made = text::moment(*made_at);
        let about = style::sanitize(&text::about(info));
        let comma = if about.is_empty() { "" } else { ", " };
        let ago = text::since(*made_at);
        let _ = write!(out, "version  {number}, created {made} ({ago}){comma}{about}");
        if let Some(commit) = text::commit(info) {
            let short: String = commit.chars().take(12).collect();
            let _ = write!(out, ", commit {}", style::sanitize(&short));
        }
        if self.processed != Some(*number) {
            let waiting = match self.processed {
                Some(processed) => format!("not deployed yet, the last one was {processed}"),
                None => "not deployed yet".to_owned(),
            };
            let _ = write!(out, " ({})", style::warning(&waiting));
        }
        if let Some(candidate) = &self.candidate {
            let _ = write!(out, "\nnewer    {}", style::warning(&unreleased(candidate)));
        }
        let now = match &self.writer {
            Some(at_work) => style::help(&style::sanitize(&at_work.text)),
            None if self.counts.get(&Status::Deploying).is_some_and(|count| *count > 0) => {
                style::warning("nothing is being deployed; the last deploy was interrupted")
            }
            None => "nothing is being deployed".to_owned(),
        };
        let _ = writeln!(out, "\nnow      {now}");
        if let Some(sentence) = self.unfinished_removal() {
            let _ = writeln!(out, "removal  {}", style::warning(sentence));
        }
        let _ = writeln!(out, "agents   {}", self.agents());
        if let Some(since) = self.verified_since {
            let oldest = if self.total() > 1 { " (oldest)" } else { "" };
            let _ = writeln!(out, "verified {}{oldest}", text::since(since));
        }
        if !self.counts.is_empty() {
            out.push('\n');
            self.write_counts(&mut out);
        }
        for (resource, message) in &self.problems {
            let status = text::coloured(resource.status, resource.word());
            let id = style::sanitize(resource.id.as_str());
            let place = resource
                .source
                .as_ref()
                .map(|source| format!("  ({})", deployment.location(source)));
            let _ = writeln!(out, "\n{status}  {id}{}", place.unwrap_or_default());
            if let Some(message) = message {
                let message = style::sanitize(message).replace('\n', "\n    ");
                let _ = writeln!(out, "    {message}");
            }
            let id = resource.id.as_str();
            let unknown = self.unknown_effects.iter().find(|effect| effect.resource == id);
            if let Some(effect) = unknown.filter(|_| resource.parked) {
                let next = effects::next_step_text(effect, deployment.settle_timing());
                let _ = writeln!(out, "    {}", style::warning(&next));
            } else if resource.parked {
                let attempts = style::count(resource.attempts as usize, "attempt");
                let parked = style::warning(&format!("parked after {attempts}"));
                let _ = writeln!(out, "    {parked}: `orrery repair --pending` retries it");
            }
        }
        self.write_rest(&mut out);
        out
    }

    fn agents(&self) -> String {
        if self.agents.is_empty() {
            return "none".to_owned();
        }
        // Agents that do nothing are listed first.
        let (idle, others): (Vec<&AgentView>, Vec<&AgentView>) =
            self.agents.iter().partition(|agent| agent.paused || agent.down);
        let name = |agent: &&AgentView| {
            let name = style::sanitize(&agent.name);
            match (agent.paused, agent.down) {
                (true, _) => style::warning(&format!("{name} (paused)")),
                (false, true) => {
                    let word = if agent.reason.is_some() { "unavailable" } else { "down" };
                    style::warning(&format!("{name} ({word})"))
                }
                (false, false) if agent.placement == PlacementKind::Remote => {
                    format!("{name} (remote)")
                }
                (false, false) => name,
            }
        };
        let all: Vec<&AgentView> = idle.into_iter().chain(others).collect();
        let mut text = all.iter().take(AGENTS_MAX).map(name).collect::<Vec<_>>().join(", ");
        if all.len() > AGENTS_MAX {
            text += &format!(" and {} more", style::grouped(all.len() - AGENTS_MAX));
        }
        text
    }

    fn write_counts(&self, out: &mut String) {
        let number = |count: u64| style::grouped(usize::try_from(count).unwrap_or(usize::MAX));
        let mut rows: Vec<(String, String)> = self
            .counts
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(status, count)| (number(*count), text::coloured(*status, status.as_str())))
            .collect();
        if self.removed > 0 {
            rows.push((number(self.removed), "removed".to_owned()));
        }
        let width = rows.iter().map(|(number, _)| number.len()).max().unwrap_or(0);
        for (number, word) in rows {
            let _ = writeln!(out, "{number:>width$} {word}");
        }
    }

    /// Note on problems that are not listed.
    fn write_rest(&self, out: &mut String) {
        let left = self.problem_count.saturating_sub(self.problems.len() as u64);
        if left == 0 {
            return;
        }
        let there = |status: &&Status| self.counts.get(status).is_some_and(|count| *count > 0);
        let words: Vec<&str> =
            PROBLEMS.iter().filter(there).map(|status| status.as_str()).collect();
        let left = style::grouped(usize::try_from(left).unwrap_or(usize::MAX));
        let words = words.join(",");
        let _ = writeln!(out, "\n… and {left} more: orrery resources --status {words}");
    }

    fn closing(&self) -> String {
        let total = usize::try_from(self.total()).unwrap_or(usize::MAX);
        let resources = style::count(total, "resource");
        if self.is_done() {
            return format!("{}: {resources}", style::good("all deployed"));
        }
        let down = self.agents.iter().filter(|agent| agent.down).count();
        let down = match down {
            0 => String::new(),
            count => style::warning(&format!("{} unavailable", style::count(count, "agent"))),
        };
        let parked = match self.parked {
            0 => String::new(),
            count => {
                let count = style::grouped(usize::try_from(count).unwrap_or(usize::MAX));
                style::warning(&format!("{count} parked"))
            }
        };
        let mut wanted = self.counts.clone();
        wanted.remove(&Status::Orphaned);
        let parts = [text::tally_with(&wanted, self.removed), parked, down];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        match &*parts.join(", ") {
            "" => resources,
            tally => format!("{resources}: {tally}"),
        }
    }

    fn as_json(&self) -> Value {
        let problems = self.problems.iter().map(|(resource, message)| {
            let mut form = json::resource(resource);
            form["message"] = message.as_deref().into();
            let id = resource.id.as_str();
            let unknown = self.unknown_effects.iter().find(|effect| effect.resource == id);
            form["unknown_effect"] = unknown.map_or(Value::Null, |effect| json!(effect));
            form
        });
        let mut statuses: serde_json::Map<String, Value> = Status::ALL
            .into_iter()
            .map(|status| {
                let count = self.counts.get(&status).copied().unwrap_or(0);
                (status.as_str().to_owned(), count.into())
            })
            .collect();
        statuses.insert("removed".to_owned(), self.removed.into());
        let agents = self.agents.iter().map(|agent| {
            let AgentView { name, paused, down, reason, placement } = agent;
            json!({
                "name": name, "paused": paused, "down": down, "reason": reason,
                "placement": placement,
            })
        });
        let writer = self.writer.as_ref().map(|at_work| at_work.json.clone());
        json!({
            "where": self.place,
            "done": self.is_done(),
            "version": json::version(&self.version),
            "candidate": self.candidate.as_ref().map(json::version),
            "processed": self.processed.map(|number| number.0),
            "running": writer,
            "unfinished_removal": self.unfinished_removal().is_some(),
            "agents": agents.collect::<Vec<_>>(),
            "statuses": statuses,
            "problems": problems.collect::<Vec<_>>(),
            "problem_count": self.problem_count,
            "parked": self.parked,
            "unknown_effects": self.unknown_effects,
            "verified_since": json::time(self.verified_since),
        })
    }
}

/// Reason why a resource is not compliant, in a line.
pub(crate) fn message(
    deployment: &dyn Deployment,
    resource: &ResourceView,
) -> Result<Option<String>, CliError> {
    match resource.status {
        Status::Undefined => return Ok(Some("an attribute is unknown".to_owned())),
        Status::SkippedForUndefined => {
            return Ok(Some("a requirement has unknown attributes".to_owned()));
        }
        _ => {}
    }
    let id = resource.id.as_str();
    let actions = deployment.actions(id, ACTIONS_MAX)?;
    let last = actions.iter().find(|action| action.kind == ActionViewKind::Deploy);
    Ok(last.and_then(text::complaint))
}
