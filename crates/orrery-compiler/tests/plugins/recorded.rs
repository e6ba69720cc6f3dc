//! Replays recorded calls.

use orrery_compiler::plugins::{Failure, native_plugins};
use serde_json::{Value as Json, json};

use crate::memory::{Memory, bind};

const RECORDED: &str = include_str!("../recorded/plugins.json");

/// The outcome of one recorded call, in the form of the record.
fn outcome(row: &Json) -> Json {
    let name = row["plugin"].as_str().expect("a name");
    let plugin = native_plugins().iter().find(|plugin| plugin.name == name);
    let plugin = plugin.unwrap_or_else(|| panic!("no plugin {name}"));
    let mut memory = Memory::with_prelude();
    let args: Vec<_> =
        row["args"].as_array().expect("a list").iter().map(|arg| memory.value(arg)).collect();
    let named: Vec<_> = row["kwargs"]
        .as_object()
        .map(|named| named.iter().map(|(name, arg)| (name.clone(), memory.value(arg))).collect())
        .unwrap_or_default();
    // The evaluator answers for plugins that do not accept unknowns.
    if !plugin.allow_unknown && args.iter().any(|arg| arg.is_unknown()) {
        return json!({"result": {"$unknown": true}});
    }
    let args = bind(&mut memory, plugin, args, named)
        .unwrap_or_else(|failure| panic!("{row}: {failure:?}"));
    let outcome = (plugin.run)(&mut memory, &args);
    // No other host is available.
    let outcome = outcome.map_err(|failure| match failure {
        Failure::NeedsOtherHost(failure) => failure.without_location(),
        other => other.without_location(),
    });
    match outcome {
        Ok(value) => {
            let mut outcome = json!({"result": memory.json(value)});
            if !memory.printed.is_empty() {
                outcome["printed"] = json!(memory.printed.join("\n") + "\n");
            }
            outcome
        }
        Err(Failure::Unknown(_)) => json!({"result": {"$unknown": true}}),
        Err(Failure::Optional { .. }) => json!({"optional": true}),
        Err(Failure::Python(error)) => {
            json!({"error": {"kind": error.kind, "message": error.message}})
        }
        Err(failure) => json!({"error": format!("{failure:?}")}),
    }
}

#[test]
fn recorded_calls_have_the_outcome_of_the_reference_compiler() {
    let rows: Vec<Json> = serde_json::from_str(RECORDED).expect("recorded calls are JSON");
    let mut different = Vec::new();
    for mut row in rows {
        let ours = outcome(&row);
        let entries = row.as_object_mut().expect("an object");
        let call = [("plugin"), ("args"), ("kwargs")].map(|key| entries.remove(key));
        let recorded = Json::Object(entries.clone());
        if ours != recorded {
            different.push(format!("{call:?}\n    recorded {recorded}\n    ours     {ours}"));
        }
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
}
