//! Documentation in a terminal, and as JSON.

use std::fmt::Write as _;

use orrery_compiler::documentation::{Documentation, TypeDoc};
use serde_json::{Value, json};

use crate::commands::inspect::text;
use crate::style;

/// Relations of every instance.
pub(super) const REQUIRES: &str = "instances that have to be deployed before this one";
pub(super) const PROVIDES: &str = "instances that have to be deployed after this one";

pub(super) fn first_sentence(text: &str) -> String {
    let line: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
    let line = line.join(" ");
    match line.split_once(". ") {
        Some((first, _)) => format!("{first}."),
        None => line,
    }
}

/// Entities and types of a namespace, or of all.
pub(super) fn list(found: &Documentation, of: Option<&str>) -> String {
    let mut text = String::new();
    if let Some(about) = of.and_then(|name| found.namespaces.get(name)).filter(|t| !t.is_empty()) {
        let _ = writeln!(text, "{}\n", style::sanitize(about));
    }
    let is_meant = |name: &str| match of {
        Some(of) => name.strip_prefix(of).is_some_and(|rest| rest.starts_with("::")),
        None => true,
    };
    let mut section = |heading: &str, rows: Vec<Vec<String>>| {
        if rows.is_empty() {
            return;
        }
        let _ = writeln!(text, "{}", style::heading(heading));
        for line in text::table(&rows) {
            let _ = writeln!(text, "  {line}");
        }
        text.push('\n');
    };
    let row = |name: &String, about: &str| {
        vec![style::sanitize(name), style::sanitize(&first_sentence(about))]
    };
    let entities = found.entities.values().filter(|one| is_meant(&one.name));
    let (resources, others): (Vec<_>, Vec<_>) =
        entities.partition(|one| found.descends(&one.name, "std::Resource"));
    section("Resources", resources.iter().map(|one| row(&one.name, &one.text)).collect());
    if of.is_some() {
        section("Entities", others.iter().map(|one| row(&one.name, &one.text)).collect());
        let types = found.types.values().filter(|one| is_meant(&one.name));
        section("Types", types.map(|one| row(&one.name, &one.text)).collect());
    } else {
        let names = found.namespaces.iter().filter(|(name, _)| !name.starts_with("__"));
        section("Modules", names.map(|(name, about)| row(name, about)).collect());
    }
    text.push_str("`orrery docs NAME` shows one of them.\n");
    text
}

pub(super) fn list_json(found: &Documentation, of: Option<&str>) -> Value {
    let is_meant = |name: &&String| {
        of.is_none_or(|of| name.strip_prefix(of).is_some_and(|rest| rest.starts_with("::")))
    };
    json!({
        "entities": found.entities.keys().filter(is_meant).collect::<Vec<_>>(),
        "types": found.types.keys().filter(is_meant).collect::<Vec<_>>(),
        "modules": found.namespaces.keys().collect::<Vec<_>>(),
    })
}

pub(super) fn refinement(of: &TypeDoc) -> String {
    let about = if of.text.is_empty() { String::new() } else { format!("\n{}\n", of.text) };
    let heading = style::heading(&style::sanitize(&of.name));
    style::sanitize(&format!("{heading}\n{about}\n  {}\n", of.definition))
        .replace('\u{241b}', "\x1b")
}

/// One entity: attributes, relations and an example.
pub(super) fn entity(found: &Documentation, name: &str) -> String {
    let Some(entity) = found.with_inherited(name) else { return String::new() };
    let safe = style::sanitize;
    let mut shown = style::heading(&safe(&entity.name));
    if !entity.parents.is_empty() {
        let _ = write!(shown, " extends {}", safe(&entity.parents.join(", ")));
    }
    shown.push('\n');
    if !entity.text.is_empty() {
        let _ = writeln!(shown, "\n{}", safe(&entity.text));
    }
    let value = |default: &Option<String>, required: bool| match default {
        Some(default) => format!("= {}", safe(default)),
        None if required => "required".to_owned(),
        None => String::new(),
    };
    let mut section = |heading: &str, rows: Vec<Vec<String>>| {
        if !rows.is_empty() {
            let _ = writeln!(shown, "\n{}", style::heading(heading));
            for line in text::table(&rows) {
                let _ = writeln!(shown, "  {line}");
            }
        }
    };
    let attributes = entity.attributes.iter().map(|one| {
        vec![safe(&one.name), safe(&one.r#type), value(&one.default, one.required), safe(&one.text)]
    });
    section("Attributes", attributes.collect());
    let fixed = [("requires", REQUIRES), ("provides", PROVIDES)].map(|(name, about)| {
        vec![name.to_owned(), "std::Entity [0:]".to_owned(), String::new(), about.to_owned()]
    });
    let relations = entity.relations.iter().map(|one| {
        let to = format!("{} {}", safe(&one.to), one.arity);
        vec![safe(&one.name), to, value(&None, one.required), safe(&one.text)]
    });
    section("Relations", relations.chain(fixed).collect());
    for index in &entity.indexes {
        let _ = writeln!(shown, "\nIdentified by {}.", safe(&index.join(" and ")));
    }
    if let Some(example) = &entity.example {
        let _ = writeln!(shown, "\n{}", style::heading("Example"));
        for line in example.lines() {
            let _ = writeln!(shown, "{}", format!("  {}", safe(line)).trim_end());
        }
    }
    shown
}

pub(super) fn entity_json(found: &Documentation, name: &str) -> Value {
    let Some(entity) = found.with_inherited(name) else { return Value::Null };
    let attributes = entity.attributes.iter().map(|one| {
        json!({ "name": one.name, "type": one.r#type, "default": one.default, "required": one.required, "text": one.text })
    });
    let relations = entity.relations.iter().map(|one| {
        json!({ "name": one.name, "to": one.to, "arity": one.arity, "required": one.required, "text": one.text })
    });
    json!({
        "entity": entity.name,
        "text": entity.text,
        "extends": entity.parents,
        "attributes": attributes.collect::<Vec<_>>(),
        "relations": relations.collect::<Vec<_>>(),
        "indexes": entity.indexes,
        "example": entity.example,
    })
}
