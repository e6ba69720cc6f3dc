//! Dry runs on a server: begun, waited for, and shown as `orrery plan` shows what it finds here.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use orrery_api::{AttributeChange, DryRun, DryRunChange, Operation, Transitioning};
use serde_json::json;

use super::{print_json, read_list};
use crate::commands::deploy::changes;
use crate::commands::trouble::Trouble;
use crate::remote::RemoteEnvironment;
use crate::{Exit, output, style};

const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What a version would change.
pub(in crate::commands) struct Found {
    pub(in crate::commands) run: DryRun,
    pub(in crate::commands) changes: Vec<DryRunChange>,
    took: Duration,
}

/// Begins a dry run and waits for its end.
pub(in crate::commands) fn follow(
    of: &RemoteEnvironment,
    version: u32,
    quiet: bool,
) -> Result<Found, Trouble> {
    let started = Instant::now();
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
        if !quiet && told.elapsed() > Duration::from_secs(2) {
            told = Instant::now();
            let done = run.total.saturating_sub(run.todo);
            output::say(&format!(
                "{done} of {} looked at",
                style::count(number_of(run.total), "resource")
            ));
        }
        std::thread::sleep(LOOK_EVERY);
    };
    let pages =
        of.client.list::<DryRunChange>(&of.path(&["versions", &number, "dry-runs", id, "changes"]));
    let changes = read_list(pages.large(), None)?;
    Ok(Found { run, changes, took: started.elapsed() })
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
    let Found { run, changes, took } = found;
    let worth: Vec<&DryRunChange> =
        changes.iter().filter(|change| change.status != "unmodified").collect();
    let exit = if worth.is_empty() { Exit::Done } else { Exit::Pending };
    if json {
        let items: Vec<&DryRunChange> = changes.iter().collect();
        print_json(&json!({ "dry_run": run, "items": items }))?;
        return Ok(exit);
    }
    let mut text = String::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for change in worth {
        show_change(change, &mut text, &mut counts);
    }
    if !output::print_styled(&text) {
        return Ok(Exit::Error);
    }
    let time = style::duration(*took);
    let same = changes.iter().filter(|change| change.status == "unmodified").count();
    if counts.is_empty() {
        let count = style::count(same, "resource");
        output::say(&format!("{}: {count} as wanted, in {time}", style::good("nothing to change")));
        return Ok(exit);
    }
    let order = ["to create", "to update", "to remove", "unclear"];
    let mut told: Vec<String> = order
        .iter()
        .filter_map(|word| counts.get(word).map(|count| format!("{count} {word}")))
        .collect();
    if same > 0 {
        told.push(format!("{same} as wanted"));
    }
    output::say(&format!("{}: {}, in {time}", style::heading("plan"), told.join(", ")));
    Ok(exit)
}

fn show_change(change: &DryRunChange, text: &mut String, counts: &mut BTreeMap<&str, usize>) {
    let id = style::harmless(&change.resource);
    let (sign, word) = match change.status.as_str() {
        "added" => (style::added("+"), "to create"),
        "deleted" => (style::removed("-"), "to remove"),
        "modified" => (style::warning("~"), "to update"),
        _ => (style::error("?"), "unclear"),
    };
    *counts.entry(word).or_default() += 1;
    if word != "unclear" {
        *text += &format!("{sign} {id}\n");
        for attribute in change.changes.iter().map(attribute) {
            for line in changes::lines(&attribute) {
                *text += &format!("    {line}\n");
            }
        }
        return;
    }
    let of_handler = change.changes.iter().find(|one| one.name == "handler");
    let reason = match change.status.as_str() {
        "undefined" => "something about it is not known yet".to_owned(),
        "skipped_for_undefined" => "something that it requires is not known yet".to_owned(),
        "agent_down" => "its agent is paused".to_owned(),
        status => of_handler.map_or_else(
            || status.to_owned(),
            |one| one.desired.as_str().or(one.current.as_str()).unwrap_or(status).to_owned(),
        ),
    };
    let reason = style::harmless(&reason).replace('\n', "\n    ");
    *text += &format!("{sign} {id} (cannot tell)\n    {reason}\n");
}
