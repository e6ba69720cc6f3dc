//! `orrery versions`: the history of the desired state.

use orrery_model::VersionNumber;
use serde_json::{Value, json};

use super::view::VersionView;
use super::{CliError, OpenDeployment, json, print_json, text};
use crate::cli::inspect::Versions;
use crate::{Exit, output, style};

const HEADINGS: [&str; 8] =
    ["VERSION", "CREATED", "STATE", "RESOURCES", "ADDED", "CHANGED", "REMOVED", "MESSAGE"];

pub(crate) fn run(deployment: &OpenDeployment, options: &Versions) -> Result<Exit, CliError> {
    let mut versions = deployment.versions()?;
    let total = versions.len();
    versions.reverse();
    versions.truncate(options.limit.unwrap_or(usize::MAX));
    let processed = deployment.processed()?;
    if options.inspect.json {
        let list = versions.iter().map(|version| {
            let mut form = json::version(version);
            form["state"] = state(version, processed).into();
            form
        });
        let list: Vec<Value> = list.collect();
        print_json(&json!({ "versions": list, "processed": processed.map(|number| number.0) }))?;
        return Ok(Exit::Done);
    }
    let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
    rows.extend(versions.iter().map(|version| row(version, processed)));
    let out = text::heading_table(&rows);
    if !versions.is_empty() && !output::print_styled(&out) {
        return Ok(Exit::Error);
    }
    let shown = style::count(versions.len(), "version");
    let of = if versions.len() < total { format!(" of {total}") } else { String::new() };
    output::print_status(&format!("{shown}{of}"));
    Ok(Exit::Done)
}

fn row(version: &VersionView, processed: Option<VersionNumber>) -> Vec<String> {
    let number = |count: u64| style::grouped(usize::try_from(count).unwrap_or(usize::MAX));
    let message = text::about(&version.info);
    vec![
        version.number.to_string(),
        text::moment(version.made_at),
        state(version, processed).to_owned(),
        number(version.total),
        number(version.added),
        number(version.changed),
        number(version.removed),
        style::sanitize(&message),
    ]
}

/// Current state of a version.
fn state(version: &VersionView, processed: Option<VersionNumber>) -> &'static str {
    let newer = processed.is_none_or(|processed| version.number > processed);
    if Some(version.number) == processed {
        "active"
    } else if newer && version.released {
        "released"
    } else if newer {
        "candidate"
    } else if version.released {
        "retired"
    } else {
        "skipped"
    }
}

#[cfg(test)]
mod tests {
    use orrery_model::Timestamp;

    use super::*;

    #[test]
    fn version_states_are_relative_to_the_processed_version() {
        let version = |number, released| VersionView {
            number: VersionNumber(number),
            made_at: Timestamp(0),
            released,
            released_at: released.then_some(Timestamp(0)),
            info: Value::Null,
            removes: 0,
            total: 0,
            added: 0,
            changed: 0,
            removed: 0,
        };
        let processed = Some(VersionNumber(3));
        let words = [(2, true), (2, false), (3, true), (4, true), (4, false)];
        let words = words.map(|(number, released)| state(&version(number, released), processed));
        assert_eq!(words, ["retired", "skipped", "active", "released", "candidate"]);
        assert_eq!(state(&version(1, true), None), "released");
    }
}
