//! The result of a compile as JSON: variables of the main file and all instances.

use serde_json::{Map, Value as Json, json};

use crate::Compiled;
use crate::error::CompileError;
use crate::eval::Machine;
use crate::value::{InstanceId, Value};

/// The compiled model in the report's form.
pub struct Model(pub Json);

/// Everything about a compile as one JSON object.
pub fn report(compiled: &Compiled) -> Json {
    let mut out = Map::new();
    let status = if compiled.outcome.is_ok() { "ok" } else { "error" };
    out.insert("status".into(), status.into());
    out.insert("stdout".into(), compiled.output.as_str().into());
    if let Err(error) = &compiled.outcome {
        out.insert("error".into(), error_json(compiled, error));
    }
    let warnings: Vec<Json> =
        compiled.warnings.iter().map(|warning| json!({ "message": warning.shown() })).collect();
    out.insert("warnings".into(), Json::Array(warnings));
    if let Some(Model(model)) = &compiled.model {
        out.insert("model".into(), model.clone());
    }
    Json::Object(out)
}

fn error_json(compiled: &Compiled, error: &CompileError) -> Json {
    let sources = &compiled.sources;
    let (mut file, mut line, mut column) = (Json::Null, Json::Null, Json::Null);
    if let Some(loc) = error.loc
        && !error.bare
        && !error.hide_place
    {
        let (at_line, at_column) = sources.line_col(loc);
        file = sources.file(loc.file).name.as_str().into();
        line = at_line.into();
        if loc.column {
            column = at_column.into();
        }
    }
    json!({
        "message": error.message(&|loc| sources.place(loc)),
        "file": file,
        "line": line,
        "column": column,
        "class": error.class,
        "text": if error.parts.is_empty() { error.text.as_str() } else { "" },
    })
}

/// Collects the model from a machine that has run.
pub fn model(machine: &Machine<'_>) -> Model {
    let program = machine.program;
    let mut variables = Map::new();
    if let Some(main) = program.namespaces.first() {
        let mut named: Vec<(&str, u32)> =
            main.variables.iter().map(|(&name, &cell)| (program.text(name), cell)).collect();
        named.sort_by_key(|&(_, cell)| cell);
        for (name, cell) in named {
            if let Some(value) = machine.cell_value(cell) {
                variables.insert(name.into(), value_json(machine, value));
            }
        }
    }
    let mut instances = Vec::with_capacity(machine.instance_count());
    for number in 0..machine.instance_count() {
        instances.push(instance_json(machine, InstanceId(number as u32)));
    }
    Model(json!({ "variables": variables, "instances": instances }))
}

fn instance_json(machine: &Machine<'_>, id: InstanceId) -> Json {
    let program = machine.program;
    let instance = &machine.instances[id.index()];
    let entity = program.entity(instance.entity);
    let (mut attributes, mut relations) = (Map::new(), Map::new());
    for (slot, &attribute) in entity.slots.iter().enumerate() {
        let attribute = program.attribute(attribute);
        let Some(value) = machine.cell_value(instance.cells + slot as u32) else { continue };
        let name = program.text(attribute.name).to_owned();
        if attribute.relation.is_none() {
            attributes.insert(name, value_json(machine, value));
            continue;
        }
        let members: Vec<Json> = match value {
            Value::List(list) => {
                machine.heap.items(list).iter().map(|&item| member_json(machine, item)).collect()
            }
            other => vec![member_json(machine, other)],
        };
        if !members.is_empty() {
            relations.insert(name, Json::Array(members));
        }
    }
    json!({
        "id": instance_name(id),
        "type": program.text(entity.name),
        "attributes": attributes,
        "relations": relations,
    })
}

fn instance_name(id: InstanceId) -> String {
    format!("i{}", id.0)
}

fn member_json(machine: &Machine<'_>, value: Value) -> Json {
    match value {
        Value::Instance(id) => instance_name(id).into(),
        other => value_json(machine, other),
    }
}

fn value_json(machine: &Machine<'_>, value: Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(b) => b.into(),
        Value::Int(i) => i.into(),
        Value::Float(f) if f.is_finite() => f.into(),
        Value::Float(f) => json!({ "$float": orrery_python::repr_float(f) }),
        Value::Str(id) => machine.heap.text(id).into(),
        Value::List(list) => {
            machine.heap.items(list).iter().map(|&item| value_json(machine, item)).collect()
        }
        Value::Dict(dict) => {
            let mut out = Map::new();
            for (&key, &item) in machine.heap.entries(dict) {
                let key = machine.heap.text(key);
                let key = if key.starts_with('$') { format!("${key}") } else { key.to_owned() };
                out.insert(key, value_json(machine, item));
            }
            Json::Object(out)
        }
        Value::Instance(id) => json!({ "$instance": instance_name(id) }),
        Value::Unknown(_) => json!({ "$unknown": true }),
        Value::Big(id) => {
            let text = machine.heap.big(id).to_string();
            serde_json::from_str(&text).unwrap_or_else(|_| json!({ "$other": text }))
        }
        Value::Other(id) => json!({ "$other": machine.heap.get_other(id).repr }),
    }
}
