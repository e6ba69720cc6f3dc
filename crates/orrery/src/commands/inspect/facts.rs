//! `orrery facts`: what handlers learned about resources.

use orrery_model::Pattern;
use orrery_store::Parameter;
use serde_json::{Value, json};

use super::{Look, Trouble, find, json, print_json, text};
use crate::cli_inspect::Facts;
use crate::{Exit, output, style};

const HEADINGS: [&str; 4] = ["NAME", "VALUE", "UPDATED", "RESOURCE"];

pub(crate) fn run(look: &Look, options: &Facts) -> Result<Exit, Trouble> {
    let facts = read(look, options.resource.as_deref())?;
    if options.look.json {
        let list: Vec<Value> = facts.iter().map(json::fact).collect();
        print_json(&json!({ "facts": list }))?;
        return Ok(Exit::Done);
    }
    let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
    rows.extend(facts.iter().map(|fact| {
        let id = fact.resource.as_ref().map_or("-", |id| id.as_str());
        vec![
            style::harmless(&fact.name),
            text::log_value(&Value::from(fact.value.as_str())),
            text::moment(fact.updated),
            style::harmless(id),
        ]
    }));
    let mut out = String::new();
    for (number, line) in text::table(&rows).iter().enumerate() {
        out += &if number == 0 { style::heading(line) } else { line.clone() };
        out.push('\n');
    }
    if !facts.is_empty() && !output::print_styled(&out) {
        return Ok(Exit::Error);
    }
    output::say(&style::count(facts.len(), "fact"));
    Ok(Exit::Done)
}

fn read(look: &Look, asked: Option<&str>) -> Result<Vec<Parameter>, Trouble> {
    let Some(asked) = asked else { return look.facts(None) };
    if look.find(asked)?.is_some() {
        return look.facts(Some(asked));
    }
    let pattern = Pattern::new(asked);
    let mut facts = look.facts(None)?;
    facts.retain(|fact| fact.resource.as_ref().is_some_and(|id| pattern.matches(id)));
    let mut is_meant = !facts.is_empty();
    if !is_meant {
        find::each(look, &find::everything(), None, |resource| {
            is_meant = pattern.matches(&resource.id);
            Ok(!is_meant)
        })?;
    }
    if !is_meant {
        // It says what there is instead.
        find::one(look, asked)?;
    }
    Ok(facts)
}
