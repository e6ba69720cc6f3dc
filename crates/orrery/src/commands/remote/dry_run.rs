//! Dry runs on a server: begun, waited for, and shown as `orrery plan` shows what it finds here.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use orrery_api::client::query;
use orrery_api::{
    AttributeChange, DryRun, DryRunChange, Operation, ResourceDifference, ResourceUpload,
    SettleChoice, SourcePlace, Transitioning, UnknownEffect, UnknownEffects, VersionResource,
    VersionSummary,
};
use orrery_executor::Risk;
use orrery_model::ChangeKind;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};

use super::read_list;
use crate::commands::deploy::bar::{Bar, State};
use crate::commands::deploy::forecast::{Entry, Forecast, Form, What};
use crate::commands::deploy::placing::UnplacedAgent;
use crate::commands::deploy::plan_order::{Required, by_dependency, held_up};
use crate::commands::deploy::reconnecting::{Reconnecting, Unanswered};
use crate::commands::deploy::waiting;
use crate::commands::effects;
use crate::commands::trouble::Trouble;
use crate::remote::RemoteEnvironment;
use crate::signals::Interrupt;
use crate::{Exit, style};

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often it is told why a dry run does not go on.
const REASON_EVERY: Duration = Duration::from_secs(2);

/// What a version would change.
pub(in crate::commands) struct Found {
    pub(in crate::commands) run: DryRun,
    pub(in crate::commands) changes: Vec<DryRunChange>,
    /// What the environment wants now, and the version does not.
    removed: Vec<String>,
    /// Effects that must not be repeated, and whose outcomes are unknown.
    unknown: Vec<UnknownEffect>,
    took: Duration,
}

/// A resource as the version wants it.
pub(in crate::commands) struct Desired {
    id: String,
    attributes: Map<String, Value>,
    requires: Vec<String>,
}

impl From<ResourceUpload> for Desired {
    fn from(upload: ResourceUpload) -> Self {
        let ResourceUpload { id, attributes, requires, .. } = upload;
        // The compiler has written what is read here.
        Desired { id, attributes: attributes.read().unwrap_or_default(), requires }
    }
}

impl From<VersionResource> for Desired {
    fn from(resource: VersionResource) -> Self {
        let VersionResource { id, attributes, requires, .. } = resource;
        Desired { id, attributes, requires }
    }
}

/// All resources of a stored version.
pub(in crate::commands) fn desired_of(
    of: &RemoteEnvironment,
    version: u32,
) -> Result<Vec<Desired>, Trouble> {
    let at = of.path(&["versions", &version.to_string(), "resources"]);
    let pages = of.client.list::<VersionResource>(&at).large();
    Ok(pages.map(|one| one.map(Desired::from)).collect::<Result<_, _>>()?)
}

/// Begins a dry run and waits for its end. Who does not want to wait any longer gets the chance to tidy up.
pub(in crate::commands) fn follow(
    of: &RemoteEnvironment,
    version: u32,
    quiet: bool,
    interrupt: &Interrupt,
) -> Result<Found, Trouble> {
    let started = Instant::now();
    let interrupted = || Trouble::said("interrupted");
    if interrupt.is_asked() {
        return Err(interrupted());
    }
    let number = version.to_string();
    let begun: Operation = of.client.act(&of.path(&["versions", &number, "dry-runs"]))?;
    let Some(id) = begun.request["dry_run"].as_str() else {
        return Err(Trouble::said(format!("{} told no id of the dry run", of.client.server())));
    };
    let operation = of.path(&["operations", &begun.id.to_string()]);
    let at = of.path(&["versions", &number, "dry-runs", id]);
    let mut told = Instant::now();
    let mut bar = Bar::new(quiet);
    let patience =
        Reconnecting::new(interrupt, format!("version {version} is stored, not released"));
    let unanswered = |unanswered| match unanswered {
        Unanswered::Interrupted => interrupted(),
        Unanswered::Failed(trouble) => trouble,
    };
    let run = loop {
        let run: DryRun = patience.ask(&bar, || of.client.get(&at)).map_err(unanswered)?;
        if run.finished.is_some() {
            break run;
        }
        let operation: Operation =
            patience.ask(&bar, || of.client.get(&operation)).map_err(unanswered)?;
        if operation.transitioning == Transitioning::Error {
            return Err(Trouble::said(operation.transitioning_message));
        }
        if interrupt.is_asked() {
            return Err(interrupted());
        }
        let reason = waiting::reason(&operation);
        if let Some(reason) = reason.filter(|_| !quiet && told.elapsed() > REASON_EVERY) {
            told = Instant::now();
            bar.say(&format!("{}: {}", style::help("note"), style::harmless(&reason)));
        }
        let done = run.total.saturating_sub(run.todo);
        bar.draw(&State { total: run.total, done, ..State::default() });
        std::thread::sleep(LOOK_EVERY);
    };
    bar.clear();
    let pages =
        of.client.list::<DryRunChange>(&of.path(&["versions", &number, "dry-runs", id, "changes"]));
    let changes = read_list(pages.large(), None)?;
    let removed = no_longer_wanted(of, version)?;
    let unknown: UnknownEffects = of.client.get(&of.path(&["unknown-effects"]))?;
    let unknown = unknown.items;
    Ok(Found { run, changes, removed, unknown, took: started.elapsed() })
}

/// Resources of the version that is deployed, and not of this one.
fn no_longer_wanted(of: &RemoteEnvironment, version: u32) -> Result<Vec<String>, Trouble> {
    let active = query(&of.path(&["versions"]), &[("status", Some("active"))]);
    let active = of.client.list::<VersionSummary>(&active).next().transpose()?;
    let Some(active) = active.filter(|active| active.number != version) else {
        return Ok(Vec::new());
    };
    let (from, to) = (active.number.to_string(), version.to_string());
    let at = of.path(&["versions", &from, "compare", &to]);
    let mut removed = Vec::new();
    for difference in of.client.list::<ResourceDifference>(&at).large() {
        let difference = difference?;
        if difference.status == "deleted" {
            removed.push(difference.id);
        }
    }
    Ok(removed)
}

pub(in crate::commands) fn attribute(change: &AttributeChange) -> orrery_model::AttributeChange {
    let AttributeChange { name, current, desired } = change.clone();
    orrery_model::AttributeChange { name, current, desired }
}

/// Shows it; how the command ends says whether something would change. `resources` are those of the version.
pub(in crate::commands) fn show(
    found: &Found,
    resources: Vec<Desired>,
    form: Form,
) -> Result<Exit, Trouble> {
    show_with(found, resources, Vec::new(), form)
}

/// The same, where resources without a machine were reported before.
pub(in crate::commands) fn show_with(
    found: &Found,
    resources: Vec<Desired>,
    unavailable: Vec<UnplacedAgent>,
    form: Form,
) -> Result<Exit, Trouble> {
    let Found { run, changes, removed, unknown, took } = found;
    let known: BTreeSet<String> = unavailable
        .iter()
        .flat_map(|agent| agent.resources.iter().map(ToString::to_string))
        .collect();
    let mut forecast = Forecast { removed: removed.clone(), unavailable, ..Forecast::default() };
    let required: Vec<Required<'_>> = resources
        .iter()
        .map(|resource| Required {
            id: &resource.id,
            requires: resource.requires.iter().map(String::as_str).collect(),
        })
        .collect();
    let held_up = held_up(&known, &required);
    let places = by_dependency(required);
    let mut desired: FxHashMap<String, Map<String, Value>> =
        resources.into_iter().map(|resource| (resource.id, resource.attributes)).collect();
    let unknown: FxHashMap<&str, &UnknownEffect> =
        unknown.iter().map(|effect| (effect.resource.as_str(), effect)).collect();
    for change in changes.iter().filter(|change| !known.contains(&change.resource)) {
        if let Some(cause) = held_up.get(&change.resource) {
            forecast.entries.push(Entry::skipped(&change.resource, cause));
            continue;
        }
        match foreseen(change, unknown.get(change.resource.as_str()), &mut desired) {
            Some(entry) => forecast.entries.push(entry),
            None => forecast.same += 1,
        }
    }
    forecast.sort(&places);
    // As the API has it, too: programs read that before both plans had one form.
    let more = match form.json {
        true => json!({ "dry_run": run, "items": changes, "unknown_effects": found.unknown }),
        false => Value::Null,
    };
    Ok(forecast.show(form, *took, more))
}

/// What would become of a resource, unless it stays as it is.
fn foreseen(
    change: &DryRunChange,
    unknown: Option<&&UnknownEffect>,
    desired: &mut FxHashMap<String, Map<String, Value>>,
) -> Option<Entry> {
    let kind = match change.status.as_str() {
        "unmodified" => return None,
        "added" => Some(ChangeKind::Created),
        "deleted" => Some(ChangeKind::Purged),
        "modified" => Some(ChangeKind::Updated),
        _ => None,
    };
    let undecided = match unknown.map(|effect| effect.choice) {
        Some(Some(SettleChoice::Done)) => return None,
        Some(None) => unknown.map(|effect| effects::foreseen(&effect.started)),
        Some(Some(SettleChoice::Again)) | None => None,
    };
    let what = match (undecided, kind) {
        (Some(reason), _) => What::Unclear(reason),
        (None, Some(kind)) => What::Change {
            kind,
            attributes: change.changes.iter().map(attribute).collect(),
            cause: change.cause.clone(),
            risk: risk(change.risk.as_deref()),
        },
        (None, None) => What::Unclear(reason(change)),
    };
    let place = |source: &SourcePlace| {
        let SourcePlace { file, line, column } = source;
        format!("{}:{line}:{column}", file.strip_prefix("./").unwrap_or(file))
    };
    let source = change.source.as_ref().map(place);
    let desired = desired.remove(&change.resource).unwrap_or_default();
    Some(Entry { id: change.resource.clone(), source, what, desired })
}

fn risk(word: Option<&str>) -> Option<Risk> {
    [Risk::Low, Risk::Medium, Risk::High].into_iter().find(|risk| Some(risk.as_str()) == word)
}

/// Why nobody can say what would change.
fn reason(change: &DryRunChange) -> String {
    let of_handler = change.changes.iter().find(|one| one.name == "handler");
    match change.status.as_str() {
        "undefined" => "something about it is not known yet".to_owned(),
        "skipped_for_undefined" => "something that it requires is not known yet".to_owned(),
        "agent_down" => "its agent is paused".to_owned(),
        status => of_handler.map_or_else(
            || status.to_owned(),
            |one| one.desired.as_str().or(one.current.as_str()).unwrap_or(status).to_owned(),
        ),
    }
}
