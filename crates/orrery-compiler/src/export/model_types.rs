//! Resource types that the model itself declares: instances of `agents::ResourceType`. Their handlers
//! are part of remote agents.
//!
//! ```inmanta
//! agents::ResourceType(name="notes::Note", agent="host.name", id_attribute="title")
//! ```

use std::borrow::Cow;

use orrery_model::ResourceType;

use crate::report::Model;
use crate::value::{InstanceId, Value};

use super::plan::{entity_of, is_metadata};

/// Entity whose instances are declarations.
const DECLARATION: &str = "agents::ResourceType";

/// A declaration of the model.
#[derive(Debug)]
pub(super) struct ModelType {
    pub declaration: ResourceType,
    pub instance: InstanceId,
    /// False if the model has no entity of that name.
    pub is_known: bool,
}

/// Returns the declarations of the model. An incomplete one, with unknown values, is left out.
pub(super) fn model_types(model: &Model) -> Vec<ModelType> {
    let Some(declaring) = entity_of(&model.program, DECLARATION) else { return Vec::new() };
    let instances = model.graph.instances.iter().enumerate();
    let declaring = instances.filter(|(_, of)| of.entity == declaring);
    declaring.filter_map(|(number, _)| read(model, InstanceId(number as u32))).collect()
}

fn read(model: &Model, instance: InstanceId) -> Option<ModelType> {
    let program = &model.program;
    let declaring = program.entity(model.graph.instances[instance.index()].entity);
    let value = |name: &str| {
        let slot = declaring.slot_of.get(&program.interner.get(name)?)?;
        model.graph.slot_value(instance, *slot)
    };
    let text = |value: Value| match value {
        Value::Str(text) => Some(model.graph.heap.text(text).to_owned()),
        _ => None,
    };
    let name = value("name").and_then(text)?;
    let entity = entity_of(program, &name);
    let mut fields: Vec<String> = match value("attributes")? {
        Value::List(list) => {
            model.graph.heap.items(list).iter().filter_map(|&item| text(item)).collect()
        }
        _ => return None,
    };
    if let Some(entity) = entity.filter(|_| fields.is_empty()) {
        let slots = 0..program.entity(entity).slots.len() as u32;
        let attributes = slots.map(|slot| program.slot(entity, slot));
        let plain = attributes.filter(|attribute| attribute.relation.is_none());
        fields = plain.map(|attribute| program.text(attribute.name).to_owned()).collect();
        fields.retain(|field| !is_metadata(field));
    }
    let declaration = ResourceType {
        entity: name.into(),
        agent: value("agent").and_then(text)?.into(),
        id_attribute: value("id_attribute").and_then(text)?.into(),
        fields: fields.into_iter().map(Cow::Owned).collect(),
        ..ResourceType::new("", "", "", &[])
    };
    Some(ModelType { declaration, instance, is_known: entity.is_some() })
}
