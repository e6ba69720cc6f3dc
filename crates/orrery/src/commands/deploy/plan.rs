//! `orrery plan`: what a deploy would change, why, and how risky that is.

use std::fmt;

use orrery_executor::{Desired, Planned, plan};
use orrery_model::{
    Change, ChangeKind, LogLevel, Outcome, OutcomeStatus, Resource, ResourceState, VersionNumber,
};
use orrery_scheduler::DryRunAnswer;
use orrery_store::{Store, StoreError};
use rustc_hash::FxHashMap;
use serde_json::json;

use crate::cli_deploy::{Plan, Wanted};
use crate::signals::Interrupt;
use crate::{Exit, output, style};

use super::progress::Display;
use super::{Handlers, Place, Prepared, changes, failed, finish, on_server, prepare, setup};

/// Why something would be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cause {
    /// It was never deployed.
    New,
    /// The model wants something else than what was deployed last.
    Model,
    /// It was deployed as it is wanted, and is not so any more.
    Drift,
    /// It was tried as it is wanted, and did not end well.
    Failed,
    /// Something that it requires changes.
    Dependency,
}

impl Cause {
    fn as_str(&self) -> &'static str {
        match self {
            Cause::New => "new",
            Cause::Model => "changed in the model",
            Cause::Drift => "drift",
            Cause::Failed => "failed before",
            Cause::Dependency => "dependency",
        }
    }
}

/// How much can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Risk {
    /// Nothing is interrupted or lost.
    Low,
    /// Something runs, restarts or is installed.
    Medium,
    /// Something is removed.
    High,
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Risk::Low => "low",
            Risk::Medium => "medium",
            Risk::High => "high",
        })
    }
}

fn risk(resource: &Resource, change: &Change) -> Risk {
    let acts = ["exec::Run", "std::Service", "std::Package", "http::Request"];
    let reloads = change.attributes.iter().any(|attribute| attribute.name == "reload");
    match change.kind {
        ChangeKind::Purged => Risk::High,
        _ if reloads || acts.contains(&resource.id.entity()) => Risk::Medium,
        _ => Risk::Low,
    }
}

fn cause(resource: &Resource, state: Option<&ResourceState>, change: &Change) -> Cause {
    let only_reload =
        !change.attributes.is_empty() && change.attributes.iter().all(|one| one.name == "reload");
    match state.and_then(|state| state.last_deployed) {
        _ if only_reload => Cause::Dependency,
        None => Cause::New,
        Some(deployed) if deployed != resource.hash => Cause::Model,
        Some(_) if state.is_some_and(|state| state.last_run_compliant == Some(false)) => {
            Cause::Failed
        }
        Some(_) => Cause::Drift,
    }
}

pub(in crate::commands) fn run(options: &Plan) -> Exit {
    let keep = options.keep;
    let options = &options.wanted;
    match on_server::chosen(&options.place, &options.state, options.project.project.as_deref()) {
        Ok(Some(of)) => return on_server::plan(&of, options, keep),
        Ok(None) => {}
        Err(trouble) => return finish(Err(trouble)),
    }
    let Prepared { project, resources, problems, code, .. } =
        match prepare(&options.project, &options.limits, options.json, &options.state) {
            Ok(prepared) => prepared,
            Err(exit) => return exit,
        };
    let place = Place { project: &project, state: &options.state, run: &options.run, opened: None };
    let handlers = match Handlers::of(code, &resources, &place) {
        Ok(handlers) => handlers,
        Err(error) => return failed(&error),
    };
    let known = match known_states(options, &project) {
        Ok(known) => known,
        Err(error) => return failed(&error),
    };
    let interrupt = match Interrupt::listen() {
        Ok(interrupt) => interrupt,
        Err(error) => return failed(&error),
    };
    let removed: Vec<String> = removed(&known, &resources);
    // Requirements are looked at too, since what they would change matters to those that are selected.
    let states: Vec<Option<ResourceState>> =
        resources.iter().map(|resource| known.get(resource.id.as_str()).cloned()).collect();
    let desired =
        Desired { version: VersionNumber(0), resources: resources.clone(), keys: Vec::new() };
    let mut display = Display::new(true);
    let mut watch = |progress: &orrery_executor::Progress| {
        display.show(progress);
        !interrupt.is_asked()
    };
    let setup = setup(&handlers, &options.run, None);
    let answers = plan(setup, desired, states.clone(), &mut watch);
    handlers.close();
    let answers = match answers {
        Ok(answers) => answers,
        Err(error) => return failed(&error),
    };
    let mut entries = Vec::new();
    for ((resource, state), answer) in resources.iter().zip(&states).zip(&answers) {
        if options.selection.covers(resource) {
            entries.push(Entry { resource, state: state.as_ref(), answer });
        }
    }
    let counts = Counts::of(&entries, problems);
    let told = if options.json {
        let report = report(&entries, &counts, &removed);
        output::print(|out| writeln!(out, "{report}"))
    } else {
        let mut text = String::new();
        entries.iter().for_each(|entry| entry.show(&mut text));
        for id in &removed {
            text.push_str(&format!(
                "{} {} (no longer wanted: left as it is)\n",
                style::warning("·"),
                style::harmless(id)
            ));
        }
        let written = output::print_styled(&text);
        output::say(&counts.summary(display.elapsed()));
        written
    };
    if !told || interrupt.is_asked() {
        return Exit::Error;
    }
    let clean = counts.changes() == 0 && counts.unclear == 0 && problems == 0;
    if clean { Exit::Done } else { Exit::Pending }
}

/// What is kept of resources, by id; nothing if nothing was ever deployed.
fn known_states(
    options: &Wanted,
    project: &std::path::Path,
) -> Result<FxHashMap<String, ResourceState>, StoreError> {
    let mut known = FxHashMap::default();
    let store = match options.state.look(project) {
        Ok(store) => store,
        Err(StoreError::Missing { .. }) => return Ok(known),
        Err(error) => return Err(error),
    };
    let environments = store.environments()?;
    let Some(environment) = environments.first() else { return Ok(known) };
    store.read_states(environment.key, &mut |row| {
        known.insert(row.id.to_owned(), row.state.clone());
    })?;
    Ok(known)
}

/// Resources that were wanted and are not any more.
fn removed(known: &FxHashMap<String, ResourceState>, resources: &[Resource]) -> Vec<String> {
    let wanted = |id: &str| resources.binary_search_by(|one| one.id.as_str().cmp(id)).is_ok();
    let mut removed: Vec<String> = known
        .iter()
        .filter(|(id, state)| state.intent.is_some() && !wanted(id))
        .map(|(id, _)| id.clone())
        .collect();
    removed.sort_unstable();
    removed
}

/// One resource of the plan.
struct Entry<'a> {
    resource: &'a Resource,
    state: Option<&'a ResourceState>,
    answer: &'a Planned,
}

impl Entry<'_> {
    /// What would change, if something would.
    fn change(&self) -> Option<&Change> {
        match self.answer {
            Planned::Asked(Outcome { status: OutcomeStatus::Deployed, change, .. })
                if change.kind != ChangeKind::NoChange =>
            {
                Some(change)
            }
            _ => None,
        }
    }

    /// Why nobody can say what would change.
    fn unclear(&self) -> Option<String> {
        match self.answer {
            Planned::Asked(outcome) if outcome.status == OutcomeStatus::Deployed => None,
            Planned::Asked(outcome) => {
                let line = outcome.log.iter().rfind(|line| line.level >= LogLevel::Warning);
                let line = line.or(outcome.log.last());
                Some(
                    line.map_or_else(
                        || outcome.status.as_str().into(),
                        |line| line.message.clone(),
                    ),
                )
            }
            Planned::NotAsked(DryRunAnswer::Undefined) => {
                Some("something about it is not known yet".to_owned())
            }
            Planned::NotAsked(DryRunAnswer::SkippedForUndefined) => {
                Some("something that it requires is not known yet".to_owned())
            }
            Planned::NotAsked(DryRunAnswer::AgentDown) => Some("its agent is paused".to_owned()),
            Planned::Unanswered => Some("it was not asked".to_owned()),
        }
    }

    fn show(&self, text: &mut String) {
        let id = style::harmless(self.resource.id.as_str());
        let place = self.resource.source.as_ref();
        let place = place.map(|source| format!(", {source}")).unwrap_or_default();
        if let Some(change) = self.change() {
            let (sign, risk) = match change.kind {
                ChangeKind::Created => (style::added("+"), risk(self.resource, change)),
                ChangeKind::Purged => (style::removed("-"), risk(self.resource, change)),
                _ => (style::warning("~"), risk(self.resource, change)),
            };
            let cause = cause(self.resource, self.state, change);
            text.push_str(&format!("{sign} {id} ({}{place}; risk: {risk})\n", cause.as_str()));
            for line in change.attributes.iter().flat_map(changes::lines) {
                text.push_str(&format!("    {line}\n"));
            }
        } else if let Some(reason) = self.unclear() {
            let reason = style::harmless(&reason).replace('\n', "\n    ");
            text.push_str(&format!(
                "{} {id} (cannot tell{place})\n    {reason}\n",
                style::error("?")
            ));
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    create: usize,
    update: usize,
    remove: usize,
    unclear: usize,
    same: usize,
    problems: usize,
    risk: Option<Risk>,
}

impl Counts {
    fn of(entries: &[Entry<'_>], problems: usize) -> Self {
        let mut counts = Counts { problems, ..Counts::default() };
        for entry in entries {
            match entry.change() {
                Some(change) => {
                    match change.kind {
                        ChangeKind::Created => counts.create += 1,
                        ChangeKind::Purged => counts.remove += 1,
                        ChangeKind::Updated | ChangeKind::NoChange => counts.update += 1,
                    }
                    counts.risk = counts.risk.max(Some(risk(entry.resource, change)));
                }
                None if entry.unclear().is_some() => counts.unclear += 1,
                None => counts.same += 1,
            }
        }
        counts
    }

    fn changes(&self) -> usize {
        self.create + self.update + self.remove
    }

    fn summary(&self, time: std::time::Duration) -> String {
        let time = style::duration(time);
        if self.changes() == 0 && self.unclear == 0 && self.problems == 0 {
            let count = style::count(self.same, "resource");
            return format!("{}: {count} as wanted, in {time}", style::good("nothing to change"));
        }
        let parts = [
            (self.create, "to create"),
            (self.update, "to update"),
            (self.remove, "to remove"),
            (self.unclear, "unclear"),
            (self.problems, "left out"),
            (self.same, "as wanted"),
        ];
        let told: Vec<String> = parts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        let risk = self.risk.map(|risk| format!("; risk: {risk}")).unwrap_or_default();
        format!("{}: {}{risk}, in {time}", style::heading("plan"), told.join(", "))
    }
}

fn report(entries: &[Entry<'_>], counts: &Counts, removed: &[String]) -> serde_json::Value {
    let resources: Vec<_> = entries
        .iter()
        .filter_map(|entry| {
            let source = entry.resource.source.as_ref().map(ToString::to_string);
            let id = &entry.resource.id;
            if let Some(change) = entry.change() {
                return Some(json!({
                    "id": id,
                    "change": change.kind,
                    "attributes": change.attributes,
                    "cause": cause(entry.resource, entry.state, change).as_str(),
                    "risk": risk(entry.resource, change).to_string(),
                    "source": source,
                }));
            }
            let reason = entry.unclear()?;
            Some(json!({ "id": id, "change": null, "unclear": reason, "source": source }))
        })
        .collect();
    json!({
        "counts": {
            "create": counts.create,
            "update": counts.update,
            "remove": counts.remove,
            "unclear": counts.unclear,
            "left_out": counts.problems,
            "unchanged": counts.same,
        },
        "resources": resources,
        "no_longer_wanted": removed,
    })
}
