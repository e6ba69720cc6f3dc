//! `orrery diff`: differences between two versions, streamed.

use std::io::{self, Write};

use orrery_model::VersionNumber;
use serde_json::{Value, json};

use super::changes::Difference;
use super::deployment::{Changed, DifferenceKind};
use super::{CliError, OpenDeployment, json, styled_stdout};
use crate::cli::inspect::Diff;
use crate::{Exit, output, style};

pub(crate) fn run(deployment: &OpenDeployment, options: &Diff) -> Result<Exit, CliError> {
    let (from, to) = choose(deployment, options)?;
    show(deployment, (from, to), options.short, options.inspect.json)
}

/// Shows the differences from one version to another.
pub(crate) fn show(
    deployment: &OpenDeployment,
    (from, to): (VersionNumber, VersionNumber),
    short: bool,
    as_json: bool,
) -> Result<Exit, CliError> {
    let mut counts = Counts::default();
    let mut out = styled_stdout();
    // A visit cannot be stopped; after an error, nothing more is written.
    let mut written: io::Result<()> = Ok(());
    if as_json {
        write!(out, "{{\"from\": {from}, \"to\": {to}, \"resources\": [")?;
    }
    deployment.differences(from, to, &mut |difference| {
        counts.add(&difference);
        if written.is_ok() {
            let text = if as_json {
                let comma = if counts.total() > 1 { "," } else { "" };
                format!("{comma}\n  {}", form(&difference))
            } else {
                as_text(deployment, &difference, short)
            };
            written = out.write_all(text.as_bytes());
        }
    })?;
    written?;
    if as_json {
        let Counts { added, removed, changed } = counts;
        let counts = json!({ "added": added, "removed": removed, "changed": changed });
        writeln!(out, "\n], \"counts\": {counts}}}")?;
    }
    out.flush()?;
    if !as_json {
        output::print_status(&closing(from, to, &counts));
    }
    Ok(if counts.total() == 0 { Exit::Done } else { Exit::Pending })
}

#[derive(Default)]
struct Counts {
    added: usize,
    removed: usize,
    changed: usize,
}

impl Counts {
    fn add(&mut self, difference: &Changed) {
        match difference.change {
            DifferenceKind::Added => self.added += 1,
            DifferenceKind::Removed => self.removed += 1,
            DifferenceKind::Changed => self.changed += 1,
        }
    }

    fn total(&self) -> usize {
        self.added + self.removed + self.changed
    }
}

/// Returns the two versions, which exist.
fn choose(
    deployment: &OpenDeployment,
    options: &Diff,
) -> Result<(VersionNumber, VersionNumber), CliError> {
    let versions: Vec<VersionNumber> =
        deployment.versions()?.into_iter().map(|version| version.number).collect();
    for number in [Some(options.first), options.second].into_iter().flatten() {
        if !versions.contains(&VersionNumber(number)) {
            let error = CliError::new(format!("no version {number}"));
            return Err(error.help("`orrery versions` lists the stored versions"));
        }
    }
    let first = VersionNumber(options.first);
    if let Some(second) = options.second {
        return Ok((first, VersionNumber(second)));
    }
    match versions.into_iter().rfind(|version| *version < first) {
        Some(before) => Ok((before, first)),
        None => {
            let error = CliError::new(format!("no version before {first}"));
            Err(error.help("name two versions to compare"))
        }
    }
}

fn as_text(deployment: &OpenDeployment, difference: &Changed, short: bool) -> String {
    let Changed { id, change, differences, source } = difference;
    let id = style::sanitize(id.as_str());
    let mut text = match change {
        DifferenceKind::Added => style::added(&format!("+ {id}")),
        DifferenceKind::Removed => style::removed(&format!("- {id}")),
        DifferenceKind::Changed => style::warning(&format!("~ {id}")),
    };
    // Removed resources are listed without attributes.
    let more = !short && *change != DifferenceKind::Removed;
    if let Some(source) = source.as_ref().filter(|_| more) {
        text += &format!("  ({})", deployment.location(source));
    }
    text.push('\n');
    if more {
        differences.write(&mut text, 4);
    }
    text
}

fn form(difference: &Changed) -> Value {
    let Changed { id, change, differences, source } = difference;
    let attribute = |one: &Difference| {
        let mut form = json!({ "name": one.name });
        for (key, value) in [("before", &one.before), ("after", &one.after)] {
            if let Some(value) = value {
                form[key] = value.clone();
            }
        }
        form
    };
    json!({
        "id": id.as_str(),
        "change": match change {
            DifferenceKind::Added => "added",
            DifferenceKind::Removed => "removed",
            DifferenceKind::Changed => "changed",
        },
        "attributes": differences.attributes.iter().map(attribute).collect::<Vec<_>>(),
        "requires_added": differences.requires_added,
        "requires_removed": differences.requires_removed,
        "source": json::source(source.as_ref()),
    })
}

fn closing(from: VersionNumber, to: VersionNumber, counts: &Counts) -> String {
    let number = style::grouped;
    if counts.total() == 0 {
        return format!("version {to} is equal to version {from}");
    }
    format!(
        "version {from} to {to}: {}, {}, {}",
        style::added(&format!("{} added", number(counts.added))),
        style::warning(&format!("{} changed", number(counts.changed))),
        style::removed(&format!("{} removed", number(counts.removed))),
    )
}
