//! The messages about operations, as types.

use orrery_handlers::{AgentMachine, Context, Mode};
use orrery_model::{
    AttributeDiff, Attributes, Change, ChangeKind, Fact, LogLevel, LogLine, Timestamp,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationKind {
    Run,
    Facts,
}

/// Builds the message `op` without its number, which differs by host. It is built once, because an
/// operation may be repeated in another process.
pub(super) fn operation(
    question: OperationKind,
    attributes: &Attributes,
    context: &Context<'_>,
    machine: AgentMachine<'_>,
) -> String {
    let (uri, no_machine) = match machine {
        AgentMachine::Here => (Some("local:"), None),
        AgentMachine::Address(address) => (Some(address), None),
        AgentMachine::None { reason, help } => {
            (None, Some(json!({ "reason": reason, "help": help })))
        }
    };
    let op = match (question, context.mode()) {
        (OperationKind::Facts, _) => "facts",
        (OperationKind::Run, Mode::DryRun) => "dryrun",
        (OperationKind::Run, Mode::Deploy | Mode::ReportOnly) => "deploy",
    };
    let run = context.run();
    let dependencies = &run.resource.requires;
    let requires: Map<String, Value> =
        dependencies.iter().map(|id| (id.to_string(), "deployed".into())).collect();
    let changed: Vec<&str> = run.changed_dependencies.iter().map(|id| id.as_str()).collect();
    let rest = json!({
        "op": op,
        "agent": context.id().agent(),
        "uri": uri,
        "no_machine": no_machine,
        "requires": requires,
        "changed": changed,
        "deadline": context.cancel_token().remaining().map(|left| left.as_secs_f64()),
        "level": context.log_level().as_str(),
        "unknown_effect": context.has_unknown_effect(),
        "reason": run.reason.to_string(),
    });
    let rest = rest.to_string();
    // The attributes are text already.
    let id = format!("{},v={}", context.id(), run.version);
    let required: Vec<&str> = dependencies.iter().map(|id| id.as_str()).collect();
    let identity = json!({ "id": id, "requires": required }).to_string();
    let attributes = &attributes.as_str()[1..];
    let separator = if attributes.len() > 1 { "," } else { "" };
    let identity = &identity[..identity.len() - 1];
    format!("{},\"resource\":{identity}{separator}{attributes}}}", &rest[..rest.len() - 1])
}

/// Writes the message `op` with a number.
pub(super) fn write_operation(buffer: &mut Vec<u8>, number: u64, operation: &str) {
    buffer.extend_from_slice(format!("{{\"k\":\"op\",\"c\":{number},").as_bytes());
    buffer.extend_from_slice(&operation.as_bytes()[1..]);
}

#[derive(Debug, Deserialize)]
pub(super) struct Log {
    pub(super) c: u64,
    pub(super) lines: Vec<Line>,
}

/// Operation number, time, level, text, values.
#[derive(Debug, Deserialize)]
pub(super) struct Line(
    IgnoredAny,
    f64,
    LogLevel,
    String,
    #[serde(default)] Option<Map<String, Value>>,
);

impl Line {
    pub(super) fn level(&self) -> LogLevel {
        self.2
    }

    pub(super) fn into_line(self) -> LogLine {
        let Line(_, at, level, message, values) = self;
        // Casts saturate an invalid time to the minimum or maximum.
        let at = Timestamp((at * 1e6) as i64);
        LogLine { at, level, message, values: values.unwrap_or_default() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ReportedState {
    Deployed,
    Failed,
    Skipped,
    SkippedForDependency,
    Unavailable,
    NonCompliant,
    Dry,
    Cancelled,
}

#[derive(Debug, Deserialize)]
pub(super) struct Report {
    pub(super) c: u64,
    pub(super) state: ReportedState,
    /// A non-repeatable effect was begun, and is known not to have happened.
    #[serde(default)]
    pub(super) effect_undone: bool,
    #[serde(default)]
    change: ChangeKind,
    #[serde(default)]
    changes: Map<String, Value>,
    #[serde(default)]
    facts: Vec<(String, Value, bool)>,
}

impl Report {
    pub(super) fn facts(&mut self) -> Vec<Fact> {
        let text = |value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        std::mem::take(&mut self.facts)
            .into_iter()
            .map(|(name, value, expires)| Fact { name, value: text(value), expires })
            .collect()
    }

    /// Returns the change; in a dry run the predicted one, where handlers name attributes only.
    pub(super) fn change(&mut self, dry: bool) -> Change {
        let side = |value: &Value, name| value.get(name).cloned().unwrap_or_default();
        let mut attributes: Vec<AttributeDiff> = std::mem::take(&mut self.changes)
            .into_iter()
            .map(|(name, value)| AttributeDiff {
                current: side(&value, "current"),
                desired: side(&value, "desired"),
                name,
            })
            .collect();
        let mut kind = self.change;
        if dry && kind == ChangeKind::NoChange && !attributes.is_empty() {
            let purged = attributes.iter().position(|change| change.name == "purged");
            kind = match purged.map(|at| attributes.remove(at).desired) {
                Some(Value::Bool(true)) => ChangeKind::Purged,
                Some(_) => ChangeKind::Created,
                None => ChangeKind::Updated,
            };
        }
        Change { kind, attributes }
    }
}

/// A call of the core's API by a handler.
#[derive(Debug, Deserialize)]
pub(super) struct ServerCall {
    #[serde(default)]
    pub(super) c: Option<u64>,
    pub(super) q: u64,
    pub(super) method: String,
    #[serde(default)]
    pub(super) args: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str) -> Report {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_dry_run_reports_predicted_changes() {
        let kind = |changes: &str| {
            let mut report = report(&format!(r#"{{"c":1,"state":"dry","changes":{changes}}}"#));
            report.change(true)
        };
        assert_eq!(kind("{}").kind, ChangeKind::NoChange);
        let created = kind(r#"{"purged":{"current":true,"desired":false}}"#);
        assert_eq!((created.kind, created.attributes.len()), (ChangeKind::Created, 0));
        assert_eq!(kind(r#"{"purged":{"current":false,"desired":true}}"#).kind, ChangeKind::Purged);
        let updated = kind(r#"{"mode":{"current":1,"desired":2}}"#);
        assert_eq!((updated.kind, updated.attributes.len()), (ChangeKind::Updated, 1));
        assert_eq!(updated.attributes[0].desired, 2);
    }

    #[test]
    fn reports_and_lines_are_read_as_they_are() {
        let mut found = report(
            r#"{"c":9,"state":"skipped_for_dependency","change":"purged","facts":[["n",1,true]],"x":0}"#,
        );
        assert_eq!(found.state, ReportedState::SkippedForDependency);
        assert_eq!(found.change(false).kind, ChangeKind::Purged);
        assert_eq!(found.facts()[0].value, "1");
        assert!(serde_json::from_str::<Report>(r#"{"c":9,"state":"fine"}"#).is_err());
        let log: Log = serde_json::from_str(
            r#"{"c":9,"lines":[[1,1.5,"info","a",{"x":1}],[2,-1e300,"debug","b",null]]}"#,
        )
        .unwrap();
        let lines: Vec<LogLine> = log.lines.into_iter().map(Line::into_line).collect();
        assert_eq!(lines[0].at, Timestamp(1_500_000));
        assert_eq!(lines[0].values["x"], 1);
        assert_eq!(lines[1].at, Timestamp(i64::MIN));
    }
}
