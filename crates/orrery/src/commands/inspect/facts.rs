//! `orrery facts`: what handlers learned about resources.

use orrery_model::Pattern;
use orrery_store::{Parameter, Store};
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
    let of = |id: &str| look.store.facts(look.environment, id);
    if let Some(asked) = asked
        && look.store.find_resource(look.environment, asked)?.is_some()
    {
        return Ok(of(asked)?);
    }
    let pattern = asked.map(Pattern::new);
    let mut facts = Vec::new();
    let mut matching = 0;
    find::each(look, &find::everything(), None, |resource| {
        if pattern.as_ref().is_none_or(|pattern| pattern.matches(&resource.id)) {
            matching += 1;
            facts.extend(of(resource.id.as_str())?);
        }
        Ok(true)
    })?;
    if matching == 0
        && let Some(asked) = asked
    {
        // It says what there is instead.
        find::one(look, asked)?;
    }
    Ok(facts)
}
