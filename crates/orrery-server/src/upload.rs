//! Versions as they arrive, turned into what is stored.

use orrery_api::{FieldProblem, ResourceUpload, UnknownUpload, VersionUpload};
use orrery_model::{Attributes, Resource, ResourceId, Source};
use orrery_store::Unknown;
use serde_json::{Map, Value};

/// So many problems are told; more say nothing new.
const PROBLEMS_MAX: usize = 20;

/// The resources of an upload in the order of their ids, and what it could not know.
///
/// # Errors
/// What is wrong with it, place by place.
pub(crate) fn read_upload(
    upload: &VersionUpload,
) -> Result<(Vec<Resource>, Vec<Unknown>), Vec<FieldProblem>> {
    let mut problems = Vec::new();
    let mut resources = Vec::with_capacity(upload.resources.len());
    for (at, given) in upload.resources.iter().enumerate() {
        match resource(given) {
            Ok(resource) => resources.push(resource),
            Err((field, reason)) => {
                let name = format!("resources[{at}].{field}");
                problems.push(FieldProblem { name, reason });
            }
        }
        if problems.len() >= PROBLEMS_MAX {
            return Err(problems);
        }
    }
    let mut unknowns = Vec::with_capacity(upload.unknowns.len());
    for (at, given) in upload.unknowns.iter().enumerate() {
        match unknown(given) {
            Ok(unknown) => unknowns.push(unknown),
            Err(reason) => {
                problems.push(FieldProblem { name: format!("unknowns[{at}].resource"), reason });
            }
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    resources.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    Ok((resources, unknowns))
}

fn id(text: &str) -> Result<ResourceId, String> {
    text.parse().map_err(|error: orrery_model::InvalidId| format!("{text:?}: {error}"))
}

fn resource(given: &ResourceUpload) -> Result<Resource, (&'static str, String)> {
    let own = id(&given.id).map_err(|reason| ("id", reason))?;
    let requires: Result<Vec<_>, String> = given.requires.iter().map(|text| id(text)).collect();
    let requires = requires.map_err(|reason| ("requires", reason))?;
    let attributes = Attributes::from_object(given.attributes.clone());
    let mut resource = Resource::new(own, attributes, requires);
    let flags = &mut resource.flags;
    flags.undefined = given.undefined;
    flags.send_event = is_set(&given.attributes, "send_event", flags.send_event);
    flags.receive_events = is_set(&given.attributes, "receive_events", flags.receive_events);
    flags.report_only = is_set(&given.attributes, "report_only", flags.report_only);
    resource.set = given.set.as_deref().map(Into::into);
    resource.source = given.source.as_ref().map(|place| Source {
        file: place.file.as_str().into(),
        line: place.line,
        column: place.column,
    });
    Ok(resource)
}

fn is_set(attributes: &Map<String, Value>, name: &str, otherwise: bool) -> bool {
    attributes.get(name).and_then(Value::as_bool).unwrap_or(otherwise)
}

fn unknown(given: &UnknownUpload) -> Result<Unknown, String> {
    let resource = given.resource.as_deref().map(id).transpose()?;
    Ok(Unknown { name: given.name.clone(), resource, source: given.source.clone() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn resources_are_read_with_their_flags_and_in_order() {
        let upload: VersionUpload = serde_json::from_value(json!({
            "resources": [
                {"id": "t::R[b,name=z]", "attributes": {"send_event": true, "x": 1}, "set": "one"},
                {"id": "t::R[a,name=z]", "attributes": {}, "requires": ["t::R[b,name=z]"],
                 "undefined": true, "source": {"file": "main.cf", "line": 3, "column": 1}},
            ],
            "unknowns": [{"name": "ip", "resource": "t::R[b,name=z]", "source": "fact"}],
        }))
        .unwrap();
        let (resources, unknowns) = read_upload(&upload).unwrap();
        assert_eq!(resources[0].id.as_str(), "t::R[a,name=z]");
        assert!(resources[0].flags.undefined && !resources[0].flags.send_event);
        assert!(resources[1].flags.send_event && resources[1].flags.receive_events);
        assert_eq!(resources[1].set.as_deref(), Some("one"));
        assert_eq!(unknowns[0].name, "ip");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let upload: VersionUpload = serde_json::from_value(json!({
            "resources": [
                {"id": "t::R[b,name=z]", "attributes": {}},
                {"id": "nonsense", "attributes": {}},
                {"id": "t::R[c,name=z]", "attributes": {}, "requires": ["x"]},
            ],
        }))
        .unwrap();
        let problems = read_upload(&upload).unwrap_err();
        let places: Vec<&str> = problems.iter().map(|one| &*one.name).collect();
        assert_eq!(places, ["resources[1].id", "resources[2].requires"]);
    }
}
