//! The page of the guide that lists resources, made from their declarations.

use std::fmt::Write as _;

use orrery_compiler::documentation::Documentation;

use super::shown::{PROVIDES, REQUIRES};

/// What is below this line is made by a test.
pub(super) const BEGIN: &str = "<!-- generated from the models of the modules: what is below this line is not edited by hand -->\n";

/// Attributes of every resource; they have a table of their own.
const COMMON: [&str; 3] = ["send_event", "receive_events", "report_only"];
/// Kept for older models.
const HIDDEN: [&str; 1] = ["purge_on_delete"];

pub(super) fn guide(found: &Documentation, resources: &[String], own_words: &str) -> String {
    let mut text = format!("{own_words}{BEGIN}\n## What every resource has\n\n");
    text.push_str("| name | type | default | meaning |\n|---|---|---|---|\n");
    let resource = found.whole("std::Resource").unwrap_or_default();
    for one in &resource.attributes {
        let default = one.default.as_deref().unwrap_or_default();
        let _ =
            writeln!(text, "| `{}` | `{}` | `{default}` | {} |", one.name, one.r#type, one.text);
    }
    for (name, about) in [("requires", REQUIRES), ("provides", PROVIDES)] {
        let _ = writeln!(text, "| `{name}` | list of instances | empty | {about} |");
    }
    for name in resources {
        section(found, name, &mut text);
    }
    text
}

fn section(found: &Documentation, name: &str, text: &mut String) {
    let Some(entity) = found.whole(name) else { return };
    let _ = writeln!(text, "\n## `{name}`\n\n{}\n", entity.text);
    if let Some(example) = &entity.example {
        let _ = writeln!(text, "```inmanta\n{example}```\n");
    }
    text.push_str("| name | type | default | meaning |\n|---|---|---|---|\n");
    let default = |default: &Option<String>, required: bool| match default {
        Some(default) => format!("`{default}`"),
        None if required => "**required**".to_owned(),
        None => String::new(),
    };
    for one in &entity.attributes {
        if COMMON.contains(&&*one.name) || HIDDEN.contains(&&*one.name) {
            continue;
        }
        let (default, about) = (default(&one.default, one.required), one.text.replace('|', "\\|"));
        let _ = writeln!(text, "| `{}` | `{}` | {default} | {about} |", one.name, one.r#type);
    }
    for one in &entity.relations {
        let default = default(&None, one.required);
        let kind = format!("`{}` {}", one.to, one.arity);
        let _ = writeln!(text, "| `{}` | {kind} | {default} | {} |", one.name, one.text);
    }
}
