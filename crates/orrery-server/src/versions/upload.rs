//! From what is sent to words: ids, attributes, flags, numbers.

use orrery_api::{ResourceUpload, UnknownUpload};
use orrery_model::{Attributes, Resource, ResourceFlags, ResourceId, Source, VersionNumber};
use orrery_store::{ContentHash, Unknown};
use serde_json::{Map, Value};

use crate::problem::ServerError;

const SET_NAME_MAX: usize = 1024;

pub(super) fn number(given: u64) -> Result<VersionNumber, ServerError> {
    // Databases count in signed numbers.
    let number = u32::try_from(given).ok().filter(|number| (1..=i32::MAX as u32).contains(number));
    number.map(VersionNumber).ok_or_else(|| {
        ServerError::rule("version-not-reserved", format!("{given} is no number of a version"))
    })
}

fn id(place: String, text: &str) -> Result<ResourceId, ServerError> {
    text.parse::<ResourceId>().map_err(|error| {
        ServerError::rule("invalid-resource-id", format!("{place}: {error}"))
    })
}

/// What a scheduler has to know, from the attributes that say it.
fn flags(attributes: &Map<String, Value>, undefined: bool) -> ResourceFlags {
    let said = |name: &str, default: bool| {
        attributes.get(name).and_then(Value::as_bool).unwrap_or(default)
    };
    let default = ResourceFlags::default();
    ResourceFlags {
        undefined,
        send_event: said("send_event", default.send_event),
        receive_events: said("receive_events", default.receive_events),
        report_only: said("report_only", default.report_only),
    }
}

pub(super) fn resources(given: Vec<ResourceUpload>) -> Result<Vec<Resource>, ServerError> {
    let mut resources = Vec::with_capacity(given.len());
    for (index, given) in given.into_iter().enumerate() {
        let place = |part: &str| format!("resources[{index}].{part}");
        let own = id(place("id"), &given.id)?;
        let mut requires = Vec::with_capacity(given.requires.len());
        for text in &given.requires {
            requires.push(id(place("requires"), text)?);
        }
        if let Some(set) = &given.set
            && (set.is_empty() || set.len() > SET_NAME_MAX)
        {
            let text = format!("{} must have 1 to {SET_NAME_MAX} bytes", place("set"));
            return Err(ServerError::rule("invalid-set-name", text));
        }
        let flags = flags(&given.attributes, given.undefined);
        let attributes = Attributes::from_object(given.attributes);
        let mut resource = Resource::new(own, attributes, requires);
        resource.flags = flags;
        resource.set = given.set.map(Into::into);
        resource.source = given.source.map(|source| Source {
            file: source.file.into(),
            line: source.line,
            column: source.column,
        });
        resources.push(resource);
    }
    resources.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    Ok(resources)
}

pub(super) fn unknowns(given: &[UnknownUpload]) -> Result<Vec<Unknown>, ServerError> {
    let mut unknowns = Vec::with_capacity(given.len());
    for (index, given) in given.iter().enumerate() {
        let place = || format!("unknowns[{index}].resource");
        let resource = given.resource.as_deref().map(|text| id(place(), text)).transpose()?;
        let (name, source) = (given.name.clone(), given.source.clone());
        unknowns.push(Unknown { name, resource, source });
    }
    Ok(unknowns)
}

/// Reads the SHA-1 of a file.
pub(crate) fn content_hash(text: &str) -> Option<ContentHash> {
    let mut hash = [0; 20];
    if text.len() != 40 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    // Signs are not digits, though they can be read as numbers.
    text.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(ContentHash(hash))
}
