//! `orrery facts`: facts of resources.

use orrery_model::Pattern;
use serde_json::{Value, json};

use super::view::FactView;
use super::{CliError, OpenDeployment, find, json, print_json, text};
use crate::cli::inspect::Facts;
use crate::{Exit, output, style};

const HEADINGS: [&str; 4] = ["NAME", "VALUE", "UPDATED", "RESOURCE"];

pub(crate) fn run(deployment: &OpenDeployment, options: &Facts) -> Result<Exit, CliError> {
    let facts = read(deployment, options.resource.as_deref())?;
    if options.inspect.json {
        let list: Vec<Value> = facts.iter().map(json::fact).collect();
        print_json(&json!({ "facts": list }))?;
        return Ok(Exit::Done);
    }
    let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
    rows.extend(facts.iter().map(|fact| {
        let id = fact.resource.as_ref().map_or("-", |id| id.as_str());
        vec![
            style::sanitize(&fact.name),
            text::log_value(&Value::from(fact.value.as_str())),
            text::moment(fact.updated),
            style::sanitize(id),
        ]
    }));
    let out = text::heading_table(&rows);
    if !facts.is_empty() && !output::print_styled(&out) {
        return Ok(Exit::Error);
    }
    output::print_status(&style::count(facts.len(), "fact"));
    Ok(Exit::Done)
}

fn read(deployment: &OpenDeployment, asked: Option<&str>) -> Result<Vec<FactView>, CliError> {
    let Some(asked) = asked else { return deployment.facts(None) };
    if deployment.find(asked)?.is_some() {
        return deployment.facts(Some(asked));
    }
    let pattern = Pattern::new(asked);
    let mut facts = deployment.facts(None)?;
    facts.retain(|fact| fact.resource.as_ref().is_some_and(|id| pattern.matches(id)));
    let mut is_meant = !facts.is_empty();
    if !is_meant {
        find::visit(deployment, &find::everything(), None, |resource| {
            is_meant = pattern.matches(&resource.id);
            Ok(!is_meant)
        })?;
    }
    if !is_meant {
        // Fails with suggestions.
        find::find_one(deployment, asked)?;
    }
    Ok(facts)
}
