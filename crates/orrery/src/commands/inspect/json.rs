//! JSON forms that several commands share.

use orrery_model::{Source, Timestamp};
use serde_json::{Value, json};

use super::deployment::ResourceView;
use super::text;
use super::view::{ActionView, FactView, RemovalProgress, VersionView};

pub(crate) fn time(at: Option<Timestamp>) -> Value {
    at.map_or(Value::Null, |at| at.to_string().into())
}

pub(crate) fn source(source: Option<&Source>) -> Value {
    source.map_or(
        Value::Null,
        |source| json!({ "file": &*source.file, "line": source.line, "column": source.column }),
    )
}

pub(crate) fn resource(resource: &ResourceView) -> Value {
    json!({
        "id": resource.id.as_str(),
        "type": resource.id.entity(),
        "agent": resource.id.agent(),
        "status": resource.status.as_str(),
        "removal": resource.removal.map(RemovalProgress::as_str),
        "last_run": time(resource.last_run_at),
        "last_outcome": resource.last_outcome.map(|outcome| outcome.as_str()),
        "attempts": resource.attempts,
        "parked": resource.parked,
        "source": source(resource.source.as_ref()),
    })
}

pub(crate) fn action(action: &ActionView) -> Value {
    let log = action.log.iter().map(|line| {
        json!({
            "at": time(Some(line.at)),
            "level": line.level.as_str(),
            "message": line.message,
            "values": line.values,
        })
    });
    let attributes = action.change.attributes.iter().map(|change| {
        json!({ "name": change.name, "current": change.current, "desired": change.desired })
    });
    json!({
        "kind": action.kind.as_str(),
        "version": action.version.0,
        "started": time(Some(action.started)),
        "finished": time(action.finished),
        "outcome": action.outcome.map(|outcome| outcome.as_str()),
        "change": action.change.kind.as_str(),
        "attributes": attributes.collect::<Vec<_>>(),
        "log": log.collect::<Vec<_>>(),
    })
}

pub(crate) fn version(version: &VersionView) -> Value {
    json!({
        "number": version.number.0,
        "made": time(Some(version.made_at)),
        "released": version.released,
        "released_at": time(version.released_at),
        "resources": version.total,
        "added": version.added,
        "changed": version.changed,
        "removed": version.removed,
        "message": text::message(&version.info),
        "rolled_back_to": version.info["rolled_back_to"].as_u64(),
        "info": version.info,
    })
}

pub(crate) fn fact(fact: &FactView) -> Value {
    json!({
        "resource": fact.resource.as_ref().map(|id| id.as_str()),
        "name": fact.name,
        "value": fact.value,
        "source": fact.origin.as_str(),
        "updated": time(Some(fact.updated)),
        "expires": fact.expires,
    })
}
