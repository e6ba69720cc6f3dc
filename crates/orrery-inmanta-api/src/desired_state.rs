//! Versions and their resources as paginated lists, and comparison of versions.

use orrery_model::Resource;
use orrery_server::app::versions::status;
use orrery_server::versions::version_info;
use orrery_store::{ResourceDiff, ResourceFilter, VersionEntry, VersionInfo};
use serde_json::{Map, Value, json};

use crate::deploy::attribute_diff;
use crate::paging::{Form, Key, ListDefinition, ListItem, ListRequest};
use crate::request::{InmantaRequest, bad_request};
use crate::resources::id_details;
use crate::response::{ApiResult, LongText, long_response_permit, time};

const AT_ONCE: usize = 10_000;

/// Returns labels for the origin of a version.
fn labels(version: &VersionInfo) -> Value {
    let metadata = version.info.get("export_metadata").unwrap_or(&version.info);
    let text = |name: &str| metadata.get(name).and_then(Value::as_str);
    match (text("type"), text("message")) {
        (Some(kind), Some(message)) => json!([{"name": kind, "message": message}]),
        _ => json!([]),
    }
}

const VERSIONS: ListDefinition = ListDefinition {
    columns: &[("version", Form::Number)],
    descending: true,
    filters: &["version", "date", "status", "released"],
    with_ids: false,
    others: &[],
};

pub(crate) async fn list(request: InmantaRequest) -> ApiResult {
    let wanted = ListRequest::parse(&request, &VERSIONS)?;
    let released = wanted.flag("released")?;
    let (versions, processed) = request
        .with_store(|store, key| {
            Ok((store.versions().list(key)?, store.engine().processed_version(key)?))
        })
        .await?;
    let mut items = Vec::new();
    for version in &versions {
        let number = Key::Number(i64::from(version.number.0));
        let fits = wanted.in_ranges("version", Form::Number, &number)?
            && wanted.in_ranges("date", Form::Time, &Key::Time(version.made_at))?
            && wanted.matches("status", status(version, processed).as_str())
            && released.is_none_or(|released| released == version.released);
        if !fits {
            continue;
        }
        let shown = json!({
            "version": version.number.0,
            "date": time(version.made_at),
            "total": version.total,
            "labels": labels(version),
            "status": status(version, processed),
            "released": version.released,
        });
        items.push(ListItem { key: number, id: String::new(), shown });
    }
    wanted.page(items)
}

const RESOURCES: ListDefinition = ListDefinition {
    columns: &[
        ("resource_type", Form::Text),
        ("agent", Form::Text),
        ("resource_id_value", Form::Text),
    ],
    descending: true,
    filters: &["agent", "resource_type", "resource_id_value"],
    with_ids: true,
    others: &[],
};

/// Lists the resources of a version.
pub(crate) async fn resources(request: InmantaRequest) -> ApiResult {
    let wanted = ListRequest::parse(&request, &RESOURCES)?;
    let number = request.path_version("version")?;
    let found = request
        .with_store(move |store, key| {
            let mut found: Vec<VersionEntry> = Vec::new();
            let mut after: Option<String> = None;
            loop {
                let (part, next) = store.versions().resources(
                    key,
                    number,
                    &ResourceFilter::default(),
                    after.as_deref(),
                    AT_ONCE,
                )?;
                found.extend(part);
                match next {
                    Some(next) => after = Some(next),
                    None => return Ok(found),
                }
            }
        })
        .await?;
    let mut items = Vec::new();
    for resource in found {
        let Ok(id) = resource.id.parse::<orrery_model::ResourceId>() else { continue };
        let fits = wanted.contains("agent", id.agent())
            && wanted.contains("resource_type", id.entity())
            && wanted.contains("resource_id_value", id.value());
        if !fits {
            continue;
        }
        let key = match wanted.column {
            "agent" => id.agent(),
            "resource_id_value" => id.value(),
            _ => id.entity(),
        };
        let shown = json!({
            "resource_id": resource.id,
            "resource_version_id": format!("{},v={number}", resource.id),
            "id_details": id_details(&id),
            "requires": resource.requires,
        });
        items.push(ListItem { key: Key::Text(key.to_owned()), id: resource.id, shown });
    }
    wanted.page(items)
}

fn difference_json(difference: &ResourceDiff) -> Value {
    let of = |side: Option<&Resource>| {
        side.map(|resource| {
            let mut attributes = resource.attributes.to_object();
            let requires: Vec<&str> = resource.requires.iter().map(|id| id.as_str()).collect();
            attributes.insert("requires".to_owned(), json!(requires));
            attributes
        })
        .unwrap_or_default()
    };
    let (before, after) = (of(difference.before.as_ref()), of(difference.after.as_ref()));
    let status = match (&difference.before, &difference.after) {
        (None, _) => "added",
        (_, None) => "deleted",
        _ => "modified",
    };
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let side =
        |side: &Map<String, Value>, name: &str| side.get(name).cloned().unwrap_or(Value::Null);
    let attributes: Map<String, Value> = names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name))
        .map(|name| (name.clone(), attribute_diff(&side(&before, name), &side(&after, name))))
        .collect();
    json!({"resource_id": difference.id.as_str(), "attributes": attributes, "status": status})
}

/// Compares two versions.
pub(crate) async fn diff(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let (from, to) = (request.path_version("from_version")?, request.path_version("to_version")?);
    if from >= to {
        return Err(bad_request(format!(
            "Invalid version range specified: the source version {from} must be lower than the target version {to}"
        )));
    }
    let turn = long_response_permit().await?;
    let found = request
        .with_store(move |store, key| {
            for number in [from, to] {
                version_info(store, key, number)?;
            }
            let mut found = LongText::new(r#"{"data":["#.to_owned());
            store
                .versions()
                .diff(key, from, to, &mut |difference| found.push(&difference_json(&difference)))?;
            Ok(found)
        })
        .await?;
    found.end("]}", turn)
}
