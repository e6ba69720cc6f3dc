//! `std::validate_type` accepts and refuses the same values as the reference compiler.
//!
//! A larger table, created by `tools/oracle/validation.py --mutants`, is compared if the
//! environment variable `ORRERY_VALIDATION_TABLE` names it.

use orrery_compiler::plugins::{NativePlugin, native_plugins};
use orrery_compiler::value::Value;
use serde_json::Value as Json;

use crate::memory::Memory;

const RECORDED: &str = include_str!("../recorded/validation.json");

fn accepts(memory: &mut Memory, plugin: &NativePlugin, kind: &str, value: &Json) -> Json {
    let (name, parameters) = kind.split_once(' ').unwrap_or((kind, "null"));
    let parameters = serde_json::from_str(parameters).expect("parameters are JSON");
    let args = [memory.heap.str(name), memory.value(value), memory.value(&parameters)];
    match (plugin.run)(memory, &args) {
        Ok(Value::Bool(accepted)) => Json::Bool(accepted),
        other => Json::String(format!("{other:?}")),
    }
}

#[test]
fn types_accept_and_refuse_the_same_values_as_the_reference_compiler() {
    let table = match std::env::var_os("ORRERY_VALIDATION_TABLE") {
        Some(path) => std::fs::read_to_string(path).expect("the table that was asked for"),
        None => RECORDED.to_owned(),
    };
    let table: serde_json::Map<String, Json> = serde_json::from_str(&table).expect("JSON");
    let plugin = native_plugins().iter().find(|plugin| plugin.name == "std::validate_type");
    let plugin = plugin.expect("the plugin exists");
    let mut different = Vec::new();
    for (kind, row) in &table {
        for (outcome, expected) in [("accepted", true), ("rejected", false)] {
            for value in row[outcome].as_array().expect("a list") {
                let mut memory = Memory::default();
                let ours = accepts(&mut memory, plugin, kind, value);
                if ours != Json::Bool(expected) {
                    different.push(format!("{kind} {outcome} {value}: {ours}"));
                }
            }
        }
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
}
