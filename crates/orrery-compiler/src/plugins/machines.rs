//! `std::facts`: facts of a machine.
//!
//! The facts are those of the resource `std::MachineFacts[MACHINE,name=MACHINE]`, which a call adds
//! to the export: the machine is then asked like any other resource, wherever its agent is.

use orrery_model::{MACHINE_FACTS_PROBE, ResourceId, machine_facts_object};
use serde_json::Value as Json;

use super::args::{attribute, plugin, required, text};
use super::{Failure, NativePlugin, PluginContext, PluginResult};
use crate::value::{Dict, Heap, Value};

pub(super) const PLUGINS: &[NativePlugin] =
    &[plugin!("std::facts", [required("host", "std::Host")] => "dict", facts)];

/// The facts of a machine, or an unknown until it was reached.
fn facts(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let name = attribute(ctx, args[0], "name")?;
    let machine = text(ctx, name)?.to_owned();
    let id = ResourceId::of_machine_facts(&machine)
        .map_err(|error| Failure::Plugin(format!("{machine} has no facts: {error}")))?;
    ctx.request_machine_facts(&machine);
    let known = ctx.facts().and_then(|facts| facts.facts_with(id.as_str(), MACHINE_FACTS_PROBE));
    let Some(known) = known else { return Ok(ctx.heap_mut().unknown(None)) };
    Ok(value(ctx.heap_mut(), Json::Object(machine_facts_object(&known))))
}

fn value(heap: &mut Heap, json: Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(bool) => Value::Bool(bool),
        Json::Number(number) => match number.as_i64() {
            Some(int) => Value::Int(int),
            None => Value::Float(number.as_f64().unwrap_or_default()),
        },
        Json::String(text) => heap.str(&text),
        Json::Array(items) => {
            let items = items.into_iter().map(|item| value(heap, item)).collect();
            heap.list(items)
        }
        Json::Object(entries) => {
            let mut dict = Dict::default();
            for (name, entry) in entries {
                let entry = value(heap, entry);
                dict.insert(heap.intern(&name), entry);
            }
            heap.dict(dict)
        }
    }
}
