//! Parsing of uploaded versions.

use orrery_api::{FieldProblem, ResourceUpload, UnknownUpload};
use orrery_base::thread::run_both;
use orrery_model::{Resource, ResourceFlags, ResourceId, Source};
use orrery_store::UndefinedParameter;
use serde::Deserialize;
use serde_json::Value;

/// Maximum number of reported problems.
const PROBLEMS_MAX: usize = 20;

/// Parses the resources of an upload, sorted by id, and its unknowns.
///
/// # Errors
/// The problems, by field.
pub(crate) fn parse_upload(
    given: Vec<ResourceUpload>,
    given_unknowns: &[UnknownUpload],
) -> Result<(Vec<Resource>, Vec<UndefinedParameter>), Vec<FieldProblem>> {
    let (resources, mut problems) = parse_resources(given);
    if problems.len() >= PROBLEMS_MAX {
        return Err(problems);
    }
    let mut unknowns = Vec::with_capacity(given_unknowns.len());
    for (at, given) in given_unknowns.iter().enumerate() {
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
    Ok((resources, unknowns))
}

/// Number of resources from which a second thread pays.
const PARALLEL_MIN: usize = 2_000;

/// Parses resources, large numbers of them on two threads. Returns them sorted by id, and the first
/// problems.
fn parse_resources(mut given: Vec<ResourceUpload>) -> (Vec<Resource>, Vec<FieldProblem>) {
    if given.len() < PARALLEL_MIN {
        return parse_part(given, 0);
    }
    let middle = given.len() / 2;
    let rest = given.split_off(middle);
    let ((mut resources, mut problems), (others, more)) =
        run_both("parse", || parse_part(given, 0), || parse_part(rest, middle));
    resources.extend(others);
    problems.extend(more);
    problems.truncate(PROBLEMS_MAX);
    // Both parts are sorted, which a stable sort makes use of.
    resources.sort_by(|one, other| one.id.cmp(&other.id));
    (resources, problems)
}

/// Parses the resources from the number `first` on.
fn parse_part(given: Vec<ResourceUpload>, first: usize) -> (Vec<Resource>, Vec<FieldProblem>) {
    let mut problems = Vec::new();
    let mut resources = Vec::with_capacity(given.len());
    for (at, given) in (first..).zip(given) {
        match resource(given) {
            Ok(resource) => resources.push(resource),
            Err((field, reason)) => {
                let name = format!("resources[{at}].{field}");
                problems.push(FieldProblem { name, reason });
            }
        }
        if problems.len() >= PROBLEMS_MAX {
            break;
        }
    }
    resources.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    (resources, problems)
}

fn id(text: &str) -> Result<ResourceId, String> {
    text.parse().map_err(|error: orrery_model::InvalidId| format!("{text:?}: {error}"))
}

fn resource(given: ResourceUpload) -> Result<Resource, (&'static str, String)> {
    let own = id(&given.id).map_err(|reason| ("id", reason))?;
    let requires: Result<Vec<_>, String> = given.requires.iter().map(|text| id(text)).collect();
    let requires = requires.map_err(|reason| ("requires", reason))?;
    let asked: FlagAttributes = given
        .attributes
        .read()
        .map_err(|error| ("attributes", format!("cannot be parsed: {error}")))?;
    let mut resource = Resource::new(own, given.attributes, requires);
    let usual = ResourceFlags::default();
    resource.flags = ResourceFlags {
        undefined: given.undefined,
        send_event: asked.send_event.as_bool().unwrap_or(usual.send_event),
        receive_events: asked.receive_events.as_bool().unwrap_or(usual.receive_events),
        report_only: asked.report_only.as_bool().unwrap_or(usual.report_only),
        ..usual
    };
    resource.set = given.set.as_deref().map(Into::into);
    resource.source = given.source.as_ref().map(|place| Source {
        file: place.file.as_str().into(),
        line: place.line,
        column: place.column,
    });
    Ok(resource)
}

/// Attributes that also are flags, if they are booleans.
#[derive(Default, Deserialize)]
#[serde(default)]
struct FlagAttributes {
    send_event: Value,
    receive_events: Value,
    report_only: Value,
}

fn unknown(given: &UnknownUpload) -> Result<UndefinedParameter, String> {
    let resource = given.resource.as_deref().map(id).transpose()?;
    Ok(UndefinedParameter { name: given.name.clone(), resource, source: given.source.clone() })
}

#[cfg(test)]
mod tests {
    use orrery_api::VersionUpload;
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
        let (resources, unknowns) = parse_upload(upload.resources, &upload.unknowns).unwrap();
        assert_eq!(resources[0].id.as_str(), "t::R[a,name=z]");
        assert!(resources[0].flags.undefined && !resources[0].flags.send_event);
        assert!(resources[1].flags.send_event && resources[1].flags.receive_events);
        assert_eq!(resources[1].set.as_deref(), Some("one"));
        assert_eq!(unknowns[0].name, "ip");
    }

    #[test]
    fn many_resources_are_parsed_as_few_are() {
        let count = PARALLEL_MIN + 1;
        let upload = |wrong: &[usize]| -> Vec<ResourceUpload> {
            let ids = (0..count).map(|at| match wrong.contains(&at) {
                true => "nonsense".to_owned(),
                false => format!("t::R[a,name={}]", at * 7_919 % count),
            });
            ids.map(|id| serde_json::from_value(json!({"id": id, "attributes": {}})).unwrap())
                .collect()
        };
        let (resources, _) = parse_upload(upload(&[]), &[]).unwrap();
        assert_eq!(resources.len(), count);
        assert!(resources.is_sorted_by(|one, other| one.id < other.id));
        let wrong = [3, count / 2, count - 1];
        let problems = parse_upload(upload(&wrong), &[]).unwrap_err();
        let places: Vec<String> = problems.into_iter().map(|one| one.name).collect();
        assert_eq!(places, wrong.map(|at| format!("resources[{at}].id")));
        let all: Vec<usize> = (0..count).collect();
        assert_eq!(parse_upload(upload(&all), &[]).unwrap_err().len(), PROBLEMS_MAX);
    }

    #[test]
    fn problems_name_their_fields() {
        let upload: VersionUpload = serde_json::from_value(json!({
            "resources": [
                {"id": "t::R[b,name=z]", "attributes": {}},
                {"id": "nonsense", "attributes": {}},
                {"id": "t::R[c,name=z]", "attributes": {}, "requires": ["x"]},
            ],
        }))
        .unwrap();
        let problems = parse_upload(upload.resources, &upload.unknowns).unwrap_err();
        let places: Vec<&str> = problems.iter().map(|one| &*one.name).collect();
        assert_eq!(places, ["resources[1].id", "resources[2].requires"]);
    }
}
