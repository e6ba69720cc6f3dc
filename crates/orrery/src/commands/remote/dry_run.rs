//! Dry runs on a server: begun, waited for, and shown as `orrery plan` shows what it finds here.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use orrery_api::client::query;
use orrery_api::{
    AttributeChange, DryRun, DryRunChange, Operation, ResourceDifference, SourcePlace,
    Transitioning, VersionSummary,
};
use orrery_executor::Risk;
use orrery_model::ChangeKind;
use serde_json::{Value, json};

use super::read_list;
use crate::commands::deploy::forecast::{Entry, Forecast, What};
use crate::commands::deploy::placing::UnplacedAgent;
use crate::commands::deploy::waiting;
use crate::commands::trouble::Trouble;
use crate::remote::RemoteEnvironment;
use crate::signals::Interrupt;
use crate::{Exit, output, style};

const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What a version would change.
pub(in crate::commands) struct Found {
    pub(in crate::commands) run: DryRun,
    pub(in crate::commands) changes: Vec<DryRunChange>,
    /// What the environment wants now, and the version does not.
    removed: Vec<String>,
    took: Duration,
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
    let run = loop {
        let run: DryRun = of.client.get(&at)?;
        if run.finished.is_some() {
            break run;
        }
        let operation: Operation = of.client.get(&operation)?;
        if operation.transitioning == Transitioning::Error {
            return Err(Trouble::said(operation.transitioning_message));
        }
        if interrupt.is_asked() {
            return Err(interrupted());
        }
        if !quiet && told.elapsed() > Duration::from_secs(2) {
            told = Instant::now();
            let done = run.total.saturating_sub(run.todo);
            let total = style::count(number_of(run.total), "resource");
            let waits = waiting::reason(&operation).map(|reason| format!("; {reason}"));
            let waits = style::harmless(&waits.unwrap_or_default());
            output::say(&format!("{done} of {total} looked at{waits}"));
        }
        std::thread::sleep(LOOK_EVERY);
    };
    let pages =
        of.client.list::<DryRunChange>(&of.path(&["versions", &number, "dry-runs", id, "changes"]));
    let changes = read_list(pages.large(), None)?;
    let removed = no_longer_wanted(of, version)?;
    Ok(Found { run, changes, removed, took: started.elapsed() })
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

fn number_of(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

pub(in crate::commands) fn attribute(change: &AttributeChange) -> orrery_model::AttributeChange {
    let AttributeChange { name, current, desired } = change.clone();
    orrery_model::AttributeChange { name, current, desired }
}

/// Shows it; how the command ends says whether something would change.
pub(in crate::commands) fn show(found: &Found, json: bool) -> Result<Exit, Trouble> {
    show_with(found, Vec::new(), json)
}

/// The same, where it was told before which resources have no machine.
pub(in crate::commands) fn show_with(
    found: &Found,
    unavailable: Vec<UnplacedAgent>,
    json: bool,
) -> Result<Exit, Trouble> {
    let Found { run, changes, removed, took } = found;
    let known: BTreeSet<String> = unavailable
        .iter()
        .flat_map(|agent| agent.resources.iter().map(ToString::to_string))
        .collect();
    let mut forecast = Forecast { removed: removed.clone(), unavailable, ..Forecast::default() };
    for change in changes.iter().filter(|change| !known.contains(&change.resource)) {
        match foreseen(change) {
            Some(entry) => forecast.entries.push(entry),
            None => forecast.same += 1,
        }
    }
    // As the API has it, too: programs read that before both plans had one form.
    let more = if json { json!({ "dry_run": run, "items": changes }) } else { Value::Null };
    Ok(forecast.show(json, *took, more))
}

/// What would become of a resource, unless it stays as it is.
fn foreseen(change: &DryRunChange) -> Option<Entry> {
    let kind = match change.status.as_str() {
        "unmodified" => return None,
        "added" => Some(ChangeKind::Created),
        "deleted" => Some(ChangeKind::Purged),
        "modified" => Some(ChangeKind::Updated),
        _ => None,
    };
    let what = match kind {
        Some(kind) => What::Change {
            kind,
            attributes: change.changes.iter().map(attribute).collect(),
            cause: change.cause.clone(),
            risk: risk(change.risk.as_deref()),
        },
        None => What::Unclear(reason(change)),
    };
    let place = |source: &SourcePlace| {
        let SourcePlace { file, line, column } = source;
        format!("{}:{line}:{column}", file.strip_prefix("./").unwrap_or(file))
    };
    let source = change.source.as_ref().map(place);
    Some(Entry { id: change.resource.clone(), source, what })
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
