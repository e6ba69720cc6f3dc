//! What a plan tells, wherever it was made: each resource that would change with why, where and how risky, and the counts.

use std::fmt::Write as _;
use std::time::Duration;

use orrery_executor::Risk;
use orrery_model::{AttributeChange, ChangeKind};
use serde_json::{Value, json};

use crate::{Exit, output, style};

use super::changes;
use super::placing::UnplacedAgent;

/// What would become of a resource that does not stay as it is.
pub(in crate::commands) struct Entry {
    pub(in crate::commands) id: String,
    /// Where the model defines it.
    pub(in crate::commands) source: Option<String>,
    pub(in crate::commands) what: What,
}

pub(in crate::commands) enum What {
    Change {
        kind: ChangeKind,
        attributes: Vec<AttributeChange>,
        /// An older server does not tell.
        cause: Option<String>,
        risk: Option<Risk>,
    },
    /// Nobody can say; this is why.
    Unclear(String),
}

/// A whole plan.
#[derive(Default)]
pub(in crate::commands) struct Forecast {
    pub(in crate::commands) entries: Vec<Entry>,
    /// Resources that would stay as they are.
    pub(in crate::commands) same: usize,
    /// Resources that could not be exported, or have no handler.
    pub(in crate::commands) left_out: usize,
    /// Ids of resources that were wanted and are not any more.
    pub(in crate::commands) removed: Vec<String>,
    /// Resources that act on a machine which their agents do not have, by agent. They were told of before.
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

impl Forecast {
    /// Shows it; how the command ends says whether something would change. `more` is added to the form for programs.
    pub(in crate::commands) fn show(&self, json: bool, took: Duration, more: Value) -> Exit {
        let counts = self.counts();
        let told = if json {
            let mut report = self.report(&counts);
            if let (Value::Object(report), Value::Object(more)) = (&mut report, more) {
                report.extend(more);
            }
            output::print(|out| writeln!(out, "{report}"))
        } else {
            let written = output::print_styled(&self.text());
            output::say(&self.summary(&counts, took));
            written
        };
        match self.is_empty() {
            _ if !told => Exit::Error,
            true => Exit::Done,
            false => Exit::Pending,
        }
    }

    /// Whether all stays as it is.
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
                What::Change { kind, risk, .. } => {
                    match kind {
                        ChangeKind::Created => counts.create += 1,
                        ChangeKind::Purged => counts.remove += 1,
                        ChangeKind::Updated | ChangeKind::NoChange => counts.update += 1,
                    }
                    counts.risk = counts.risk.max(*risk);
                }
                What::Unclear(_) => counts.unclear += 1,
            }
        }
        counts
    }

    fn text(&self) -> String {
        let mut text = String::new();
        self.entries.iter().for_each(|entry| entry.show(&mut text));
        for id in &self.removed {
            let (sign, id) = (style::warning("·"), style::harmless(id));
            let _ = writeln!(text, "{sign} {id} (no longer wanted: left as it is)");
        }
        text
    }

    fn summary(&self, counts: &Counts, took: Duration) -> String {
        let time = style::duration(took);
        if self.is_empty() {
            let count = style::count(self.same, "resource");
            return format!("{}: {count} as wanted, in {time}", style::good("nothing to change"));
        }
        let parts = [
            (counts.create, "to create"),
            (counts.update, "to update"),
            (counts.remove, "to remove"),
            (self.unavailable(), "unavailable"),
            (counts.unclear, "unclear"),
            (self.left_out, "left out"),
            (self.same, "as wanted"),
        ];
        let told: Vec<String> = parts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        let risk = counts.risk.map(|risk| format!("; risk: {risk}")).unwrap_or_default();
        format!("{}: {}{risk}, in {time}", style::heading("plan"), told.join(", "))
    }

    fn report(&self, counts: &Counts) -> Value {
        let resources: Vec<Value> = self.entries.iter().map(Entry::as_json).collect();
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

impl Entry {
    fn show(&self, text: &mut String) {
        let id = style::harmless(&self.id);
        let source = self.source.as_deref().map(style::harmless);
        match &self.what {
            What::Change { kind, attributes, cause, risk } => {
                let sign = match kind {
                    ChangeKind::Created => style::added("+"),
                    ChangeKind::Purged => style::removed("-"),
                    ChangeKind::Updated | ChangeKind::NoChange => style::warning("~"),
                };
                let why: Vec<String> =
                    cause.as_deref().map(style::harmless).into_iter().chain(source).collect();
                let risk = risk.map(|risk| format!("risk: {risk}"));
                let told: Vec<String> = Some(why.join(", "))
                    .filter(|why| !why.is_empty())
                    .into_iter()
                    .chain(risk)
                    .collect();
                let told = match told.join("; ") {
                    told if told.is_empty() => told,
                    told => format!(" ({told})"),
                };
                let _ = writeln!(text, "{sign} {id}{told}");
                for line in attributes.iter().flat_map(changes::lines) {
                    let _ = writeln!(text, "    {line}");
                }
            }
            What::Unclear(reason) => {
                let place = source.map(|source| format!(", {source}")).unwrap_or_default();
                let reason = style::harmless(reason).replace('\n', "\n    ");
                let sign = style::error("?");
                let _ = writeln!(text, "{sign} {id} (cannot tell{place})\n    {reason}");
            }
        }
    }

    fn as_json(&self) -> Value {
        match &self.what {
            What::Change { kind, attributes, cause, risk } => json!({
                "id": self.id,
                "change": kind,
                "attributes": attributes,
                "cause": cause,
                "risk": risk.map(Risk::as_str),
                "source": self.source,
            }),
            What::Unclear(reason) => json!({
                "id": self.id, "change": null, "unclear": reason, "source": self.source,
            }),
        }
    }
}
