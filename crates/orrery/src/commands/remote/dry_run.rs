//! Dry runs on a server: started, followed, and shown in the form of `orrery plan`.

use std::collections::BTreeSet;
use std::time::Duration;

use orrery_api::client::query;
use orrery_api::{
    AttributeChange, DifferenceKind, DryRun, DryRunChange, DryRunRisk, DryRunStatus, Operation,
    ResourceDifference, ResourceUpload, SettleChoice, SourceLocation, Transitioning, UnknownEffect,
    UnknownEffects, VersionResource, VersionSummary,
};
use orrery_base::clock::monotonic;
use orrery_executor::Risk;
use orrery_model::ChangeKind;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};

use super::read_list;
use crate::commands::deploy::follow_operation;
use crate::commands::deploy::plan_order::{Required, by_dependency, held_up};
use crate::commands::deploy::plan_report::{
    PlanFormat, PlanReport, PlanReportEntry, PlannedChange,
};
use crate::commands::deploy::progress_bar::{Bar, State};
use crate::commands::deploy::reconnect::{ReconnectLoop, Unanswered};
use crate::commands::deploy::unplaced::UnplacedAgent;
use crate::commands::effects;
use crate::error::CliError;
use crate::remote::RemoteEnvironment;
use crate::signals::Interrupt;
use crate::{Exit, style};

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Interval of reports about a stalled dry run.
const REASON_EVERY: Duration = Duration::from_secs(2);

/// Result of a dry run.
pub(in crate::commands) struct DryRunResult {
    pub(in crate::commands) run: DryRun,
    pub(in crate::commands) changes: Vec<DryRunChange>,
    /// Resources of the active version that are not in this one.
    removed: Vec<String>,
    /// Unrepeatable effects with unknown outcomes.
    unknown: Vec<UnknownEffect>,
    took: Duration,
}

/// Desired state of a resource in the version.
pub(in crate::commands) struct Desired {
    id: String,
    attributes: Map<String, Value>,
    requires: Vec<String>,
}

impl From<ResourceUpload> for Desired {
    fn from(upload: ResourceUpload) -> Self {
        let ResourceUpload { id, attributes, requires, .. } = upload;
        // Attributes written by the compiler are valid JSON.
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
) -> Result<Vec<Desired>, CliError> {
    let at = of.path(&["versions", &version.to_string(), "resources"]);
    let pages = of.client.list::<VersionResource>(&at).large();
    Ok(pages.map(|one| one.map(Desired::from)).collect::<Result<_, _>>()?)
}

/// Starts a dry run and waits for it. An interrupt returns, so that the caller can clean up.
pub(in crate::commands) fn follow(
    of: &RemoteEnvironment,
    version: u32,
    quiet: bool,
    interrupt: &Interrupt,
) -> Result<DryRunResult, CliError> {
    let started = monotonic();
    let interrupted = || CliError::new("interrupted");
    if interrupt.is_requested() {
        return Err(interrupted());
    }
    let number = version.to_string();
    let begun: Operation = of.client.post_empty(&of.path(&["versions", &number, "dry-runs"]))?;
    let Some(id) = begun.request["dry_run"].as_str() else {
        return Err(CliError::new(format!("{} returned no id of the dry run", of.client.server())));
    };
    let operation = of.path(&["operations", &begun.id.to_string()]);
    let at = of.path(&["versions", &number, "dry-runs", id]);
    let mut told = monotonic();
    let mut bar = Bar::new(quiet);
    let patience =
        ReconnectLoop::new(interrupt, format!("version {version} is stored, not released"));
    let unanswered = |unanswered| match unanswered {
        Unanswered::Interrupted => interrupted(),
        Unanswered::Failed(error) => error,
    };
    let run = loop {
        let run: DryRun = patience.ask(&bar, || of.client.get(&at)).map_err(unanswered)?;
        if run.finished.is_some() {
            break run;
        }
        let operation: Operation =
            patience.ask(&bar, || of.client.get(&operation)).map_err(unanswered)?;
        if operation.transitioning == Transitioning::Error {
            return Err(CliError::new(operation.transitioning_message));
        }
        if interrupt.is_requested() {
            return Err(interrupted());
        }
        let reason = follow_operation::reason(&operation);
        if let Some(reason) = reason.filter(|_| !quiet && told.elapsed() > REASON_EVERY) {
            told = monotonic();
            bar.print_above(&format!("{}: {}", style::help("note"), style::sanitize(&reason)));
        }
        let done = run.total.saturating_sub(run.todo);
        bar.draw(&State { total: run.total, done, ..State::default() });
        std::thread::sleep(LOOK_EVERY);
    };
    bar.clear();
    let pages =
        of.client.list::<DryRunChange>(&of.path(&["versions", &number, "dry-runs", id, "changes"]));
    let changes = read_list(pages.large(), None)?;
    let removed = removed_resources(of, version)?;
    let unknown: UnknownEffects = of.client.get(&of.path(&["unknown-effects"]))?;
    let unknown = unknown.items;
    Ok(DryRunResult { run, changes, removed, unknown, took: started.elapsed() })
}

/// Resources of the active version that are not in this one.
fn removed_resources(of: &RemoteEnvironment, version: u32) -> Result<Vec<String>, CliError> {
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
        if difference.status == DifferenceKind::Deleted {
            removed.push(difference.id);
        }
    }
    Ok(removed)
}

pub(in crate::commands) fn attribute(change: &AttributeChange) -> orrery_model::AttributeDiff {
    let AttributeChange { name, current, desired } = change.clone();
    orrery_model::AttributeDiff { name, current, desired }
}

/// Shows the plan; the exit code tells if something would change. `resources` are those of the
/// version.
pub(in crate::commands) fn show(
    found: &DryRunResult,
    resources: Vec<Desired>,
    form: PlanFormat,
) -> Result<Exit, CliError> {
    show_with(found, resources, Vec::new(), form)
}

/// Shows the plan, excluding resources without a machine that were already reported.
pub(in crate::commands) fn show_with(
    found: &DryRunResult,
    resources: Vec<Desired>,
    unavailable: Vec<UnplacedAgent>,
    form: PlanFormat,
) -> Result<Exit, CliError> {
    let DryRunResult { run, changes, removed, unknown, took } = found;
    let known: BTreeSet<String> = unavailable
        .iter()
        .flat_map(|agent| agent.resources.iter().map(ToString::to_string))
        .collect();
    let mut report = PlanReport { removed: removed.clone(), unavailable, ..PlanReport::default() };
    let required: Vec<Required<'_>> = resources
        .iter()
        .map(|resource| Required {
            id: &resource.id,
            requires: resource.requires.iter().map(String::as_str).collect(),
        })
        .collect();
    let held_up = held_up(&known, &required);
    let lookup = by_dependency(required);
    let mut desired: FxHashMap<String, Map<String, Value>> =
        resources.into_iter().map(|resource| (resource.id, resource.attributes)).collect();
    let unknown: FxHashMap<&str, &UnknownEffect> =
        unknown.iter().map(|effect| (effect.resource.as_str(), effect)).collect();
    for change in changes.iter().filter(|change| !known.contains(&change.resource)) {
        if let Some(cause) = held_up.get(&change.resource) {
            report.entries.push(PlanReportEntry::skipped(&change.resource, cause));
            continue;
        }
        match plan_entry(change, unknown.get(change.resource.as_str()), &mut desired) {
            Some(entry) => report.entries.push(entry),
            None => report.same += 1,
        }
    }
    report.sort(&lookup);
    // Also in the form of the API, for compatibility with older scripts.
    let more = match form.json {
        true => json!({ "dry_run": run, "items": changes, "unknown_effects": found.unknown }),
        false => Value::Null,
    };
    Ok(report.show(form, *took, more))
}

/// Entry of a resource in the plan, unless it is unchanged.
fn plan_entry(
    change: &DryRunChange,
    unknown: Option<&&UnknownEffect>,
    desired: &mut FxHashMap<String, Map<String, Value>>,
) -> Option<PlanReportEntry> {
    let kind = match change.status {
        DryRunStatus::Unmodified => return None,
        DryRunStatus::Added => Some(ChangeKind::Created),
        DryRunStatus::Deleted => Some(ChangeKind::Purged),
        DryRunStatus::Modified => Some(ChangeKind::Updated),
        DryRunStatus::AgentDown
        | DryRunStatus::Undefined
        | DryRunStatus::SkippedForUndefined
        | DryRunStatus::Failed => None,
    };
    let undecided = match unknown.map(|effect| effect.choice) {
        Some(Some(SettleChoice::Done)) => return None,
        Some(None) => unknown.map(|effect| effects::pending_decision(effect.started)),
        Some(Some(SettleChoice::Again)) | None => None,
    };
    let what = match (undecided, kind) {
        (Some(reason), _) => PlannedChange::Unclear(reason),
        (None, Some(kind)) => PlannedChange::Change {
            kind,
            attributes: change.changes.iter().map(attribute).collect(),
            cause: change.cause.map(|cause| cause.to_string()),
            risk: change.risk.map(risk),
        },
        (None, None) => PlannedChange::Unclear(reason(change)),
    };
    let place = |source: &SourceLocation| {
        let SourceLocation { file, line, column } = source;
        format!("{}:{line}:{column}", file.strip_prefix("./").unwrap_or(file))
    };
    let source = change.source.as_ref().map(place);
    let desired = desired.remove(&change.resource).unwrap_or_default();
    Some(PlanReportEntry { id: change.resource.clone(), source, what, desired })
}

fn risk(risk: DryRunRisk) -> Risk {
    match risk {
        DryRunRisk::Low => Risk::Low,
        DryRunRisk::Medium => Risk::Medium,
        DryRunRisk::High => Risk::High,
    }
}

/// Reason why the change cannot be determined.
fn reason(change: &DryRunChange) -> String {
    let of_handler = change.changes.iter().find(|one| one.name == "handler");
    match change.status {
        DryRunStatus::Undefined => "it has unknown attributes".to_owned(),
        DryRunStatus::SkippedForUndefined => "a requirement has unknown attributes".to_owned(),
        DryRunStatus::AgentDown => "its agent is paused".to_owned(),
        status => of_handler.map_or_else(
            || status.to_string(),
            |one| {
                let text = one.desired.as_str().or(one.current.as_str());
                text.unwrap_or(status.as_str()).to_owned()
            },
        ),
    }
}
