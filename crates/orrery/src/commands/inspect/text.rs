//! Text forms of times, statuses and values, and tables.

use std::borrow::Cow;
use std::collections::BTreeMap;

use orrery_model::{OutcomeStatus, Status, Timestamp};
use serde_json::Value;

use super::view::ActionView;
use crate::style;

/// Longer values are cut; `--json` has them in full.
const VALUE_MAX: usize = 100;

/// Maximum length of a table cell.
const CELL_MAX: usize = 500;

/// Maximum number of resources that a message names.
const NAMED_MAX: usize = 3;

/// `2026-11-16 09:30:00Z`
pub(crate) fn moment(at: Timestamp) -> String {
    let text = at.to_string();
    let seconds = text.split_once('.').map_or(&*text, |(seconds, _)| seconds);
    seconds.replacen('T', " ", 1) + "Z"
}

/// `3 min ago`
pub(crate) fn since(at: Timestamp) -> String {
    style::ago(orrery_handlers::clock::now().since(at))
}

/// `in 3 min`, or `now` if it has passed.
pub(crate) fn until(at: Timestamp) -> String {
    let now = orrery_handlers::clock::now();
    if at <= now {
        return "now".to_owned();
    }
    format!("in {}", style::ago(at.since(now)).trim_end_matches(" ago"))
}

/// `09:30:00.123`
pub(crate) fn clock(at: Timestamp) -> String {
    let text = at.to_string();
    let time = text.split_once('T').map_or(&*text, |(_, time)| time);
    time.get(..12).unwrap_or(time).to_owned()
}

/// Text in the colour of a status.
pub(crate) fn coloured(status: Status, text: &str) -> String {
    match status {
        Status::Deployed => style::good(text),
        Status::Failed | Status::Unavailable => style::error(text),
        Status::Skipped
        | Status::NonCompliant
        | Status::Undefined
        | Status::SkippedForUndefined => style::warning(text),
        Status::Available | Status::Deploying => style::help(text),
        Status::Orphaned => text.to_owned(),
    }
}

pub(crate) fn coloured_outcome(outcome: OutcomeStatus) -> String {
    let text = outcome.as_str();
    match outcome {
        OutcomeStatus::Deployed => style::good(text),
        OutcomeStatus::Failed | OutcomeStatus::Unavailable => style::error(text),
        OutcomeStatus::Skipped
        | OutcomeStatus::SkippedForDependency
        | OutcomeStatus::NonCompliant => style::warning(text),
    }
}

/// `4 deployed, 1 failed`
pub(crate) fn tally(counts: &BTreeMap<Status, u64>) -> String {
    let parts = counts.iter().filter(|(_, count)| **count > 0).map(|(status, count)| {
        let number = style::grouped(usize::try_from(*count).unwrap_or(usize::MAX));
        coloured(*status, &format!("{number} {}", status.as_str()))
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// The same, including removed resources.
pub(crate) fn tally_with(counts: &BTreeMap<Status, u64>, removed: u64) -> String {
    let mut parts = vec![tally(counts)];
    if removed > 0 {
        let number = style::grouped(usize::try_from(removed).unwrap_or(usize::MAX));
        parts.push(format!("{number} removed"));
    }
    parts.retain(|part| !part.is_empty());
    parts.join(", ")
}

/// A value in one line, truncated.
pub(crate) fn value(value: &Value) -> String {
    style::sanitize(&short(&value.to_string()))
}

/// A truncated text.
pub(crate) fn short(text: &str) -> Cow<'_, str> {
    cut(text, VALUE_MAX)
}

fn cut(text: &str, most: usize) -> Cow<'_, str> {
    let Some((end, _)) = text.char_indices().nth(most) else { return Cow::Borrowed(text) };
    let length = style::count(text.chars().count(), "character");
    Cow::Owned(format!("{}… ({length})", &text[..end]))
}

/// First line of a text, truncated.
pub(crate) fn first_line(text: &str) -> String {
    short(text.lines().next().unwrap_or_default()).into_owned()
}

/// Value of a log line; a single word has no quotes.
pub(crate) fn log_value(given: &Value) -> String {
    match given {
        Value::String(text)
            if !text.is_empty()
                && text.len() <= VALUE_MAX
                && !text.contains(|c: char| c.is_whitespace() || c == '"') =>
        {
            style::sanitize(text)
        }
        other => value(other),
    }
}

/// Message of a failed run: its last error, or its last line.
pub(crate) fn complaint(action: &ActionView) -> Option<String> {
    if action.outcome.is_none() {
        return Some("interrupted: the engine ended first".to_owned());
    }
    let mut message = action.failure_line()?.message.clone();
    let names = action.blocked_by();
    if !names.is_empty() {
        message += &format!(": {}", some_of(&names));
    }
    Some(message)
}

/// The first few names.
pub(crate) fn some_of(names: &[&str]) -> String {
    let mut text = names.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
    if names.len() > NAMED_MAX {
        text += &format!(" and {} more", names.len() - NAMED_MAX);
    }
    text
}

/// Message of a version.
pub(crate) fn message(info: &Value) -> Option<&str> {
    let spoken = |value: &'_ Value| value.as_str().is_some_and(|text| !text.is_empty());
    [info, &info["message"], &info["export_metadata"]["message"]]
        .into_iter()
        .find(|value| spoken(value))
        .and_then(Value::as_str)
}

/// Message of a version in a line, including its rollback.
pub(crate) fn about(info: &Value) -> String {
    let message = message(info).map(first_line).unwrap_or_default();
    match (info["rolled_back_to"].as_u64(), message.is_empty()) {
        (None, _) => message,
        (Some(version), true) => format!("rolled back to {version}"),
        (Some(version), false) => format!("rolled back to {version}: {message}"),
    }
}

/// Commit that a server compiled the version from.
pub(crate) fn commit(info: &Value) -> Option<&str> {
    info["commit"].as_str().filter(|commit| !commit.is_empty())
}

/// Aligns columns except the last. Expects unstyled texts; truncates long ones.
pub(crate) fn table(rows: &[Vec<String>]) -> Vec<String> {
    let rows: Vec<Vec<Cow<'_, str>>> =
        rows.iter().map(|row| row.iter().map(|text| cut(text, CELL_MAX)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let lengths =
            rows.iter().filter_map(|row| row.get(column)).map(|text| text.chars().count());
        lengths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<Cow<'_, str>>| {
        let cells = row.iter().zip(&widths).map(|(text, width)| format!("{text:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Table as text, with its first row as headings.
pub(crate) fn heading_table(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (number, line) in table(rows).iter().enumerate() {
        text += &if number == 0 { style::heading(line) } else { line.clone() };
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use orrery_model::{Change, LogLevel, LogLine, VersionNumber};
    use serde_json::json;

    use super::*;
    use crate::commands::inspect::view::ActionViewKind;

    #[test]
    fn times_are_short_and_in_utc() {
        let at = Timestamp(1_794_821_400_123_456);
        assert_eq!(moment(at), "2026-11-16 09:30:00Z");
        assert_eq!(clock(at), "09:30:00.123");
        assert_eq!(moment(Timestamp::default()), "1970-01-01 00:00:00Z");
    }

    #[test]
    fn long_values_are_cut_and_controls_made_visible() {
        assert_eq!(value(&json!({"a": [1, "x"]})), r#"{"a":[1,"x"]}"#);
        assert_eq!(value(&json!("a\u{202e}b")), "\"a\u{fffd}b\"");
        let cut = value(&json!("é".repeat(200)));
        assert!(cut.ends_with("é… (202 characters)"), "{cut}");
        assert_eq!(log_value(&json!("/etc/motd")), "/etc/motd");
        assert_eq!(log_value(&json!("two words")), "\"two words\"");
        assert_eq!(log_value(&json!("")), "\"\"");
        assert_eq!(log_value(&json!(5)), "5");
    }

    #[test]
    fn columns_are_aligned_by_characters() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let lines = table(&[row(["A", "BB", "C"]), row(["éé", "b", ""]), row(["a", "b", "long"])]);
        assert_eq!(lines, ["A   BB  C", "éé  b", "a   b   long"]);
    }

    #[test]
    fn a_cell_of_any_length_is_cut() {
        let long = "é".repeat(100_000);
        let lines = table(&[vec!["A".to_owned(), "B".to_owned()], vec![long, "b".to_owned()]]);
        assert!(lines[1].ends_with("é… (100,000 characters)  b"), "{}", lines[1]);
        assert!(lines[1].chars().count() < 600);
        assert_eq!(first_line("one\ntwo"), "one");
        assert_eq!(first_line(&"x".repeat(100)), "x".repeat(100));
        assert_eq!(first_line(&"x".repeat(101)), "x".repeat(100) + "… (101 characters)");
    }

    #[test]
    fn messages_are_found_where_exporters_put_them() {
        assert_eq!(message(&json!("by hand")), Some("by hand"));
        assert_eq!(message(&json!({"message": "a"})), Some("a"));
        assert_eq!(message(&json!({"export_metadata": {"message": "b"}})), Some("b"));
        assert_eq!(message(&json!({"message": ""})), None);
        assert_eq!(message(&json!(null)), None);
        assert_eq!(about(&json!({"message": "a\nb"})), "a");
        assert_eq!(about(&json!({"message": "a", "rolled_back_to": 5})), "rolled back to 5: a");
        assert_eq!(about(&json!({"rolled_back_to": 5})), "rolled back to 5");
    }

    fn action(outcome: OutcomeStatus, log: &[LogLine]) -> ActionView {
        ActionView {
            kind: ActionViewKind::Deploy,
            version: VersionNumber(1),
            started: Timestamp(0),
            finished: Some(Timestamp(0)),
            outcome: Some(outcome),
            change: Change::default(),
            log: log.to_vec(),
        }
    }

    fn line(level: LogLevel, message: &str, values: Value) -> LogLine {
        let values = values.as_object().cloned().unwrap_or_default();
        LogLine { at: Timestamp(0), level, message: message.to_owned(), values }
    }

    #[test]
    fn the_last_complaint_of_a_run_is_its_message() {
        let log = [
            line(LogLevel::Warning, "careful", json!({})),
            line(LogLevel::Error, "no space", json!({"hint": "make some"})),
            line(LogLevel::Info, "gave up", json!({})),
        ];
        let failed = action(OutcomeStatus::Failed, &log);
        assert_eq!(complaint(&failed).as_deref(), Some("no space"));
        assert_eq!(failed.hint(), Some("make some"));
        let skipped = action(OutcomeStatus::Skipped, &log[2..]);
        assert_eq!(complaint(&skipped).as_deref(), Some("gave up"));
        assert_eq!(complaint(&action(OutcomeStatus::Deployed, &log[2..])), None);
        let waits = line(
            LogLevel::Info,
            "a requirement is not deployed",
            json!({"resources": ["a", "b", "c", "d", "e"]}),
        );
        let waits = action(OutcomeStatus::SkippedForDependency, &[waits]);
        let text = "a requirement is not deployed: a, b, c and 2 more";
        assert_eq!(complaint(&waits).as_deref(), Some(text));
    }
}
