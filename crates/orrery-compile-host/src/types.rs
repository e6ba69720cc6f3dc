//! Types of a model, sent to a host once before the first call.

use orrery_compiler::host::InstanceView;
use orrery_compiler::program::{Attribute, EntityId, Program, Type};
use orrery_compiler::source::Sources;
use serde_json::{Value as Json, json};

/// Builds the message with all types.
pub(super) fn message(view: &dyn InstanceView) -> Json {
    let program = view.program();
    let sources = view.sources();
    let entities: Vec<Json> = (0..program.entities.len())
        .map(|at| entity(program, sources, EntityId(at as u32)))
        .collect();
    let typedefs: Vec<Json> = (0..program.typedefs.len())
        .map(|at| {
            let typedef = &program.typedefs[at];
            let name = program.type_of.get(&Type::Typedef(at as u32));
            let name = name.map(|&id| program.type_name(id)).unwrap_or_default();
            json!({"name": name, "base": program.type_name(typedef.base)})
        })
        .collect();
    let namespaces: Vec<&str> =
        program.namespaces.iter().map(|namespace| program.text(namespace.name)).collect();
    json!({"k": "types", "entities": entities, "typedefs": typedefs, "namespaces": namespaces})
}

fn entity(program: &Program, sources: &Sources, id: EntityId) -> Json {
    let entity = program.entity(id);
    let parents: Vec<u32> = entity.parents.iter().map(|parent| parent.0).collect();
    let slots: Vec<&str> = entity
        .slots
        .iter()
        .map(|&attribute| program.text(program.attribute(attribute).name))
        .collect();
    let attributes: Vec<Json> =
        entity.slots.iter().map(|&at| attribute(program, sources, program.attribute(at))).collect();
    let indexes: Vec<Vec<&str>> = entity
        .indexes
        .iter()
        .map(|&index| {
            let names = &program.indexes[index as usize].attributes;
            names.iter().map(|&name| program.text(name)).collect()
        })
        .collect();
    let (line, _) = sources.line_col(entity.loc);
    json!({
        "name": program.text(entity.name),
        "parents": parents,
        "slots": slots,
        "attributes": attributes,
        "indexes": indexes,
        "file": sources.file(entity.loc.file).name,
        "line": line,
        "doc": null,
    })
}

fn attribute(program: &Program, sources: &Sources, attribute: &Attribute) -> Json {
    let name = program.text(attribute.name);
    let owner = attribute.entity.0;
    let (line, _) = sources.line_col(attribute.loc);
    match attribute.relation {
        None => json!({
            "name": name,
            "type": program.type_name(attribute.ty),
            "owner": owner,
            "relation": false,
            "doc": null,
            "line": line,
        }),
        Some(end) => json!({
            "name": name,
            "type": program.text(program.entity(end.target).name),
            "owner": owner,
            "low": end.low,
            "high": end.high,
            "end": end.inverse.map(|inverse| program.text(program.attribute(inverse).name)),
            "relation": true,
            "doc": null,
            "line": line,
        }),
    }
}
