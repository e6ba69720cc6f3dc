//! `orrery log`: actions on a resource, newest first.

use std::fmt::Write as _;

use orrery_model::{ChangeKind, LogLevel, LogLine};
use serde_json::{Value, json};

use super::changes::write_change;
use super::removal_record::RemovalRecord;
use super::view::ActionView;
use super::{CliError, OpenDeployment, find, json, print_json, text};
use crate::cli::inspect::Log;
use crate::{Exit, output, style};

pub(crate) fn run(
    deployment: &OpenDeployment,
    options: &Log,
    verbose: bool,
) -> Result<Exit, CliError> {
    let resource = find::find_one(deployment, &options.resource)?;
    let id = resource.id.as_str();
    let mut actions = deployment.actions(id, options.limit + 1)?;
    let more = actions.len() > options.limit;
    let removed = RemovalRecord::find(&**deployment, &resource, &actions)?;
    actions.truncate(options.limit);
    if options.inspect.json {
        let actions: Vec<Value> = actions.iter().map(json::action).collect();
        let mut form = json!({ "resource": json::resource(&resource), "actions": actions });
        form["more"] = more.into();
        form["removed"] = removed.as_ref().map_or(Value::Null, RemovalRecord::as_json);
        print_json(&form)?;
        return Ok(Exit::Done);
    }
    let mut out = String::new();
    for action in &actions {
        if !out.is_empty() {
            out.push('\n');
        }
        write_action(&mut out, action, verbose);
    }
    if !output::print_styled(&out) {
        return Ok(Exit::Error);
    }
    let id = style::sanitize(id);
    let entries = match actions.len() {
        0 => "no entry".to_owned(),
        1 => "1 entry".to_owned(),
        count => format!("{} entries", style::grouped(count)),
    };
    let rest = if more { "; more with --limit N" } else { "" };
    let removed = removed.map(|removed| format!("; removed {}", removed.as_text()));
    output::print_status(&format!("{id}: {entries}{}{rest}", removed.unwrap_or_default()));
    Ok(Exit::Done)
}

fn write_action(out: &mut String, action: &ActionView, verbose: bool) {
    let started = style::heading(&text::moment(action.started));
    let kind = action.kind.as_str().replace('_', " ");
    let _ = write!(out, "{started}  {kind} of version {}: ", action.version);
    match (action.outcome, action.finished) {
        (Some(outcome), Some(finished)) => {
            out.push_str(&text::coloured_outcome(outcome));
            if action.change.kind != ChangeKind::NoChange {
                let _ = write!(out, ", {}", action.change.kind.as_str());
            }
            let _ = writeln!(out, " ({})", style::duration(finished.since(action.started)));
        }
        _ => {
            let _ = writeln!(out, "{}", style::warning("interrupted: the engine ended first"));
        }
    }
    for change in &action.change.attributes {
        write_change(change, out, 2);
    }
    let hidden = if verbose { None } else { Some(LogLevel::Debug) };
    for line in action.log.iter().filter(|line| Some(line.level) != hidden) {
        write_line(out, line);
    }
}

fn write_line(out: &mut String, line: &LogLine) {
    let word = format!("{:<8}", line.level.as_str());
    let level = match line.level {
        LogLevel::Debug | LogLevel::Info => word,
        LogLevel::Warning => style::warning(&word),
        LogLevel::Error | LogLevel::Critical => style::error(&word),
    };
    let message = style::sanitize(&line.message).replace('\n', "\n    ");
    let _ = write!(out, "  {}  {level}  {message}", text::clock(line.at));
    // Multi-line values, such as command output, are printed below the line.
    let is_block = |value: &Value| {
        value.as_str().is_some_and(|text| text.trim_end_matches('\n').contains('\n'))
    };
    for (name, value) in line.values.iter().filter(|(_, value)| !is_block(value)) {
        let _ = write!(out, "  {}={}", style::sanitize(name), text::log_value(value));
    }
    out.push('\n');
    for (name, value) in line.values.iter().filter(|(_, value)| is_block(value)) {
        let _ = writeln!(out, "    {}:", style::sanitize(name));
        for text in value.as_str().unwrap_or_default().lines() {
            let _ = writeln!(out, "      {}", style::sanitize(text));
        }
    }
}
