//! `orrery diff`: what changed from one version to another, written as it is read.

use std::io::{self, Write};

use orrery_model::VersionNumber;
use serde_json::{Value, json};

use super::changes::Difference;
use super::source::{ChangeOf, Changed};
use super::{Look, Trouble, json, paper};
use crate::cli_inspect::Diff;
use crate::{Exit, output, style};

pub(crate) fn run(look: &Look, options: &Diff) -> Result<Exit, Trouble> {
    let (from, to) = choose(look, options)?;
    show(look, (from, to), options.short, options.look.json)
}

/// How the second version differs from the first.
pub(crate) fn show(
    look: &Look,
    (from, to): (VersionNumber, VersionNumber),
    short: bool,
    as_json: bool,
) -> Result<Exit, Trouble> {
    let mut counts = Counts::default();
    let mut out = paper();
    // A visit cannot be ended early; after an error, nothing more is written.
    let mut written: io::Result<()> = Ok(());
    if as_json {
        write!(out, "{{\"from\": {from}, \"to\": {to}, \"resources\": [")?;
    }
    look.differences(from, to, &mut |difference| {
        counts.add(&difference);
        if written.is_ok() {
            let text = if as_json {
                let comma = if counts.total() > 1 { "," } else { "" };
                format!("{comma}\n  {}", form(&difference))
            } else {
                as_text(look, &difference, short)
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
        output::say(&closing(from, to, &counts));
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
            ChangeOf::Added => self.added += 1,
            ChangeOf::Removed => self.removed += 1,
            ChangeOf::Changed => self.changed += 1,
        }
    }

    fn total(&self) -> usize {
        self.added + self.removed + self.changed
    }
}

/// The two versions; both are there.
fn choose(look: &Look, options: &Diff) -> Result<(VersionNumber, VersionNumber), Trouble> {
    let versions: Vec<VersionNumber> =
        look.versions()?.into_iter().map(|version| version.number).collect();
    for number in [Some(options.first), options.second].into_iter().flatten() {
        if !versions.contains(&VersionNumber(number)) {
            let trouble = Trouble::said(format!("there is no version {number}"));
            return Err(trouble.help("`orrery versions` lists those that are kept"));
        }
    }
    let first = VersionNumber(options.first);
    if let Some(second) = options.second {
        return Ok((first, VersionNumber(second)));
    }
    match versions.into_iter().rfind(|version| *version < first) {
        Some(before) => Ok((before, first)),
        None => {
            let trouble = Trouble::said(format!("there is no version before {first}"));
            Err(trouble.help("name two versions to compare"))
        }
    }
}

fn as_text(look: &Look, difference: &Changed, short: bool) -> String {
    let Changed { id, change, differences, source } = difference;
    let id = style::harmless(id.as_str());
    let mut text = match change {
        ChangeOf::Added => style::added(&format!("+ {id}")),
        ChangeOf::Removed => style::removed(&format!("- {id}")),
        ChangeOf::Changed => style::warning(&format!("~ {id}")),
    };
    // What is removed is known by its name.
    let more = !short && *change != ChangeOf::Removed;
    if let Some(source) = source.as_ref().filter(|_| more) {
        text += &format!("  ({})", look.place(source));
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
            ChangeOf::Added => "added",
            ChangeOf::Removed => "removed",
            ChangeOf::Changed => "changed",
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
        return format!("version {to} is the same as version {from}");
    }
    format!(
        "version {from} to {to}: {}, {}, {}",
        style::added(&format!("{} added", number(counts.added))),
        style::warning(&format!("{} changed", number(counts.changed))),
        style::removed(&format!("{} removed", number(counts.removed))),
    )
}
