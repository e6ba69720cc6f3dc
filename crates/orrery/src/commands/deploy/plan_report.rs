//! Renders a plan, local or from a server: changes with cause, location and risk, and counts.

use std::fmt::Write as _;
use std::time::Duration;

use orrery_executor::{Risk, runs_at_every_deploy};
use orrery_model::{AttributeDiff, ChangeKind, ResourceId};
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};

use crate::commands::inspect::changes::write_change;
use crate::{Exit, output, style};

use super::new_attributes::{self, RUNS_ALWAYS};
use super::plan_order::by_name;
use super::unplaced::UnplacedAgent;

/// Maximum number of lines per resource without `--all`.
const LINES_MAX: usize = 40;
/// Maximum number of changes without folding. A longer plan lists a few of each type, agent and
/// kind.
const UNFOLDED_MAX: usize = 50;
const CREATED_MAX: usize = 3;
const UPDATED_MAX: usize = 20;
/// Minimum number of folded changes.
const REST_LEAST: usize = 10;

/// A resource that would change.
pub(in crate::commands) struct PlanReportEntry {
    pub(in crate::commands) id: String,
    /// Source location in the model.
    pub(in crate::commands) source: Option<String>,
    pub(in crate::commands) what: PlannedChange,
    /// Desired attributes, as far as known.
    pub(in crate::commands) desired: Map<String, Value>,
}

pub(in crate::commands) enum PlannedChange {
    Change {
        kind: ChangeKind,
        attributes: Vec<AttributeDiff>,
        /// Absent from older servers.
        cause: Option<String>,
        risk: Option<Risk>,
    },
    /// The change cannot be determined, for this reason.
    Unclear(String),
}

/// A plan.
#[derive(Default)]
pub(in crate::commands) struct PlanReport {
    pub(in crate::commands) entries: Vec<PlanReportEntry>,
    /// Number of unchanged resources.
    pub(in crate::commands) same: usize,
    /// Number of resources that could not be exported or have no handler.
    pub(in crate::commands) left_out: usize,
    /// Ids of deployed resources that are no longer in the model.
    pub(in crate::commands) removed: Vec<String>,
    /// Resources of agents without a machine, by agent. Already reported.
    pub(in crate::commands) unavailable: Vec<UnplacedAgent>,
}

#[derive(Debug, Default)]
struct Counts {
    create: usize,
    update: usize,
    remove: usize,
    unclear: usize,
    risk: Option<Risk>,
}

/// Output format of a plan.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::commands) struct PlanFormat {
    pub(in crate::commands) json: bool,
    /// True to disable folding.
    pub(in crate::commands) all: bool,
}

impl PlanReport {
    /// Sorts entries by position; those without a position come last.
    pub(in crate::commands) fn sort(&mut self, places: &FxHashMap<String, usize>) {
        let place = |entry: &PlanReportEntry| places.get(&entry.id).copied().unwrap_or(usize::MAX);
        self.entries.sort_by(|one, other| {
            place(one).cmp(&place(other)).then_with(|| by_name(&one.id, &other.id))
        });
        self.removed.sort_by(|one, other| by_name(one, other));
    }

    /// Prints the plan; the exit code tells if something would change. `more` is added to the JSON.
    pub(in crate::commands) fn show(&self, form: PlanFormat, took: Duration, more: Value) -> Exit {
        let counts = self.counts();
        let is_written = if form.json {
            let mut report = self.report(&counts);
            if let (Value::Object(report), Value::Object(more)) = (&mut report, more) {
                report.extend(more);
            }
            output::print(|out| writeln!(out, "{report}"))
        } else {
            let written = output::print_styled(&self.text(form.all));
            output::print_status(&self.summary(&counts, took));
            written
        };
        match self.is_empty() {
            _ if !is_written => Exit::Error,
            true => Exit::Done,
            false => Exit::Pending,
        }
    }

    /// True if nothing would change.
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.left_out == 0 && self.unavailable.is_empty()
    }

    fn unavailable(&self) -> usize {
        self.unavailable.iter().map(|agent| agent.resources.len()).sum()
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for entry in &self.entries {
            match &entry.what {
                PlannedChange::Change { kind, risk, .. } => {
                    match kind {
                        ChangeKind::Created => counts.create += 1,
                        ChangeKind::Purged => counts.remove += 1,
                        ChangeKind::Updated | ChangeKind::NoChange => counts.update += 1,
                    }
                    counts.risk = counts.risk.max(*risk);
                }
                PlannedChange::Unclear(_) => counts.unclear += 1,
            }
        }
        counts
    }

    fn text(&self, all: bool) -> String {
        let mut text = String::new();
        let mut folded: Vec<(Group<'_>, usize)> = Vec::new();
        let mut seen: FxHashMap<Group<'_>, usize> = FxHashMap::default();
        let sizes = self.group_sizes();
        let mut had_details = false;
        for entry in &self.entries {
            if let Some(group) = entry.group().filter(|_| !all) {
                let number = seen.entry(group.clone()).or_default();
                *number += 1;
                let size = sizes.get(&group).copied().unwrap_or(0);
                let most = group.listed_of(size, self.entries.len());
                if *number > most {
                    if *number == most + 1 {
                        folded.push((group, size - most));
                    }
                    continue;
                }
            }
            let shown = entry.text(all);
            // Separates entries with details by blank lines.
            let has_details = shown.trim_end_matches('\n').contains('\n');
            if !text.is_empty() && (has_details || had_details) {
                text.push('\n');
            }
            had_details = has_details;
            text.push_str(&shown);
        }
        if !folded.is_empty() {
            text.push('\n');
        }
        for (Group { is_new, entity, agent }, count) in &folded {
            let (kind, word) = match is_new {
                true => (ChangeKind::Created, "to create"),
                false => (ChangeKind::Updated, "to update"),
            };
            let (sign, count) = (sign_of(kind), style::grouped(*count));
            let (entity, agent) = (style::sanitize(entity), style::sanitize(agent));
            let _ = writeln!(text, "{sign} … {count} more {entity} on {agent} {word}");
        }
        if !folded.is_empty() {
            let _ = writeln!(text, "  --all lists them");
        }
        for (at, id) in self.removed.iter().enumerate() {
            if at == 0 && !text.is_empty() {
                text.push('\n');
            }
            let (sign, id) = (style::changed("·"), style::sanitize(id));
            let _ = writeln!(text, "{sign} {id} (no longer in the model: left in place)");
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text
    }

    fn group_sizes(&self) -> FxHashMap<Group<'_>, usize> {
        let mut sizes: FxHashMap<Group<'_>, usize> = FxHashMap::default();
        for group in self.entries.iter().filter_map(PlanReportEntry::group) {
            *sizes.entry(group).or_default() += 1;
        }
        sizes
    }

    fn summary(&self, counts: &Counts, took: Duration) -> String {
        let time = style::duration(took);
        if self.is_empty() {
            let count = style::count(self.same, "resource");
            return format!("{}: {count} unchanged, in {time}", style::good("nothing to change"));
        }
        let parts = [
            (counts.create, "to create"),
            (counts.update, "to update"),
            (counts.remove, "to remove"),
            (self.unavailable(), "unavailable"),
            (counts.unclear, "unclear"),
            (self.left_out, "left out"),
            (self.same, "unchanged"),
        ];
        let counts_text: Vec<String> = parts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{} {word}", style::grouped(count)))
            .collect();
        let risk = counts.risk.map(|risk| format!("; risk: {risk}")).unwrap_or_default();
        format!("{}: {}{risk}, in {time}", style::heading("plan"), counts_text.join(", "))
    }

    fn report(&self, counts: &Counts) -> Value {
        let resources: Vec<Value> = self.entries.iter().map(PlanReportEntry::as_json).collect();
        json!({
            "counts": {
                "create": counts.create,
                "update": counts.update,
                "remove": counts.remove,
                "unclear": counts.unclear,
                "unavailable": self.unavailable(),
                "left_out": self.left_out,
                "unchanged": self.same,
            },
            "resources": resources,
            "no_longer_wanted": self.removed,
            "unavailable_agents": UnplacedAgent::list_as_json(&self.unavailable),
        })
    }
}

/// Changes that differ only in the name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Group<'a> {
    /// True to create, false to update.
    is_new: bool,
    entity: &'a str,
    agent: &'a str,
}

impl Group<'_> {
    /// Number of listed changes in a group of `size`, for a plan of `length` changes.
    fn listed_of(&self, size: usize, length: usize) -> usize {
        let most = if self.is_new { CREATED_MAX } else { UPDATED_MAX };
        if length <= UNFOLDED_MAX || size < most + REST_LEAST { size } else { most }
    }
}

fn sign_of(kind: ChangeKind) -> String {
    match kind {
        ChangeKind::Created => style::added("+"),
        ChangeKind::Purged => style::removed("-"),
        ChangeKind::Updated | ChangeKind::NoChange => style::changed("~"),
    }
}

impl PlanReportEntry {
    /// Entry of a resource that a deploy skips, because a requirement has no machine.
    pub(in crate::commands) fn skipped(id: &str, cause: &str) -> Self {
        let what =
            PlannedChange::Unclear(format!("skipped: it requires {cause}, which is unavailable"));
        PlanReportEntry { id: id.to_owned(), source: None, what, desired: Map::new() }
    }

    /// Group for folding; removals are always listed.
    fn group(&self) -> Option<Group<'_>> {
        let PlannedChange::Change { kind, .. } = &self.what else { return None };
        if *kind == ChangeKind::Purged {
            return None;
        }
        let (entity, rest) = self.id.split_once('[')?;
        let (agent, _) = rest.split_once(',')?;
        Some(Group { is_new: *kind == ChangeKind::Created, entity, agent })
    }

    fn text(&self, all: bool) -> String {
        let mut text = String::new();
        let id = style::heading(&style::sanitize(&self.id));
        let source = self.source.as_deref().map(style::sanitize);
        match &self.what {
            PlannedChange::Change { kind, attributes, cause, risk } => {
                let why: Vec<String> =
                    cause.as_deref().map(style::sanitize).into_iter().chain(source).collect();
                let risk = risk.map(|risk| format!("risk: {risk}"));
                let details: Vec<String> = Some(why.join(", "))
                    .filter(|why| !why.is_empty())
                    .into_iter()
                    .chain(risk)
                    .collect();
                let details = match details.join("; ") {
                    details if details.is_empty() => details,
                    details => format!(" ({details})"),
                };
                let _ = writeln!(text, "{} {id}{details}", sign_of(*kind));
                self.write_details(&mut text, (*kind, cause.as_deref()), attributes, all);
            }
            PlannedChange::Unclear(reason) => {
                let place = source.map(|source| format!(", {source}")).unwrap_or_default();
                let reason = style::sanitize(reason).replace('\n', "\n    ");
                let sign = style::error("?");
                let _ = writeln!(text, "{sign} {id} (cannot tell{place})\n    {reason}");
            }
        }
        text
    }

    fn write_details(
        &self,
        text: &mut String,
        (kind, cause): (ChangeKind, Option<&str>),
        attributes: &[AttributeDiff],
        all: bool,
    ) {
        let mut lines: Vec<String> = Vec::new();
        let id: Option<ResourceId> = self.id.parse().ok();
        let entity = self.id.split('[').next().unwrap_or_default();
        if kind == ChangeKind::Created && !self.desired.is_empty() {
            let identity = id.as_ref().map_or("", |id| id.attribute());
            lines.extend(new_attributes::lines(&self.desired, identity, all));
        } else {
            for change in attributes {
                // Redundant in a removal.
                if change.name == "purged" && kind == ChangeKind::Purged {
                    continue;
                }
                if change.name == "executed" && runs_at_every_deploy(entity, &self.desired) {
                    // The cause may be the first half of the sentence.
                    let said = cause.map(|cause| format!("{cause}: ")).unwrap_or_default();
                    lines.push(RUNS_ALWAYS.strip_prefix(&said).unwrap_or(RUNS_ALWAYS).to_owned());
                    continue;
                }
                let mut shown = String::new();
                write_change(change, &mut shown, 0);
                lines.extend(shown.lines().map(str::to_owned));
            }
        }
        let count = lines.len();
        let most = if all || count <= LINES_MAX + 1 { count } else { LINES_MAX };
        for line in &lines[..most] {
            let _ = writeln!(text, "    {line}");
        }
        if count > most {
            let more = style::count(count - most, "more line");
            let _ = writeln!(text, "    … {more}; --all shows them");
        }
    }

    fn as_json(&self) -> Value {
        let mut form = match &self.what {
            PlannedChange::Change { kind, attributes, cause, risk } => json!({
                "id": self.id,
                "change": kind,
                "attributes": attributes,
                "cause": cause,
                "risk": risk.map(Risk::as_str),
                "source": self.source,
            }),
            PlannedChange::Unclear(reason) => json!({
                "id": self.id, "change": null, "unclear": reason, "source": self.source,
            }),
        };
        if matches!(self.what, PlannedChange::Change { kind: ChangeKind::Created, .. }) {
            form["desired"] = Value::Object(self.desired.clone());
        }
        form
    }
}
