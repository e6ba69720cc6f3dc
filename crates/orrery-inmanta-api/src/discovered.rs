//! Discovered resources.

use orrery_model::ResourceId;
use orrery_server::ServerError;
use orrery_server::app::discovered::{self, DiscoveredDraft};
use orrery_store::DiscoveredRecord;
use serde_json::{Map, Value, json};

use crate::paging::{Form, Key, ListDefinition, ListItem, ListRequest};
use crate::request::{InmantaRequest, bad_request};
use crate::response::{ApiResult, data, done, escaped};

const AT_ONCE: usize = 1_000;
const LISTED_MAX: usize = 100_000;

fn discovered_json(record: &DiscoveredRecord) -> Value {
    let uri = |id: &str| format!("/api/v2/resource/{}", escaped(id));
    let by = &record.discovery_resource;
    let parts = record.name.parse::<ResourceId>().ok();
    json!({
        "discovered_resource_id": record.name,
        "values": record.attributes,
        "managed_resource_uri": record.managed.then(|| uri(&record.name)),
        "discovery_resource_id": if by.is_empty() { Value::Null } else { json!(by) },
        "discovery_resource_uri": if by.is_empty() { Value::Null } else { json!(uri(by)) },
        "resource_type": parts.as_ref().map(ResourceId::entity),
        "agent": parts.as_ref().map(ResourceId::agent),
        "resource_id_value": parts.as_ref().map(ResourceId::value),
    })
}

const DISCOVERED: ListDefinition = ListDefinition {
    columns: &[
        ("discovered_resource_id", Form::Text),
        ("resource_type", Form::Text),
        ("agent", Form::Text),
        ("resource_id_value", Form::Text),
    ],
    descending: false,
    filters: &["managed", "resource_type", "agent", "resource_id_value"],
    with_ids: true,
    others: &[],
};

pub(crate) async fn list(request: InmantaRequest) -> ApiResult {
    let wanted = ListRequest::parse(&request, &DISCOVERED)?;
    let managed = wanted.flag("managed")?;
    let found = request
        .with_store(move |store, key| {
            let mut found: Vec<DiscoveredRecord> = Vec::new();
            loop {
                let after = found.last().map(|last| last.name.clone()).unwrap_or_default();
                let part = store.discovered().list(key, managed, &after, AT_ONCE)?;
                let is_last = part.len() < AT_ONCE;
                found.extend(part);
                if is_last || found.len() >= LISTED_MAX {
                    return Ok(found);
                }
            }
        })
        .await?;
    let items = found.iter().filter_map(|record| {
        let id: ResourceId = record.name.parse().ok()?;
        let fits = wanted.contains("resource_type", id.entity())
            && wanted.contains("agent", id.agent())
            && wanted.contains("resource_id_value", id.value());
        let key = match wanted.column {
            "resource_type" => id.entity(),
            "agent" => id.agent(),
            "resource_id_value" => id.value(),
            _ => id.as_str(),
        };
        let key = Key::Text(key.to_owned());
        fits.then(|| ListItem { key, id: record.name.clone(), shown: discovered_json(record) })
    });
    wanted.page(items.collect())
}

pub(crate) async fn get(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let id = request.path_text("discovered_resource_id").to_owned();
    let found = request.with_store(move |store, key| store.discovered().get(key, &id)).await?;
    data(discovered_json(&found))
}

/// Parses a discovered resource of a request.
fn parse_discovered(name: &str, one: &Map<String, Value>) -> Result<DiscoveredDraft, ServerError> {
    name.parse::<ResourceId>().map_err(|error| bad_request(format!("{name:?}: {error}")))?;
    let values = one.get("values").filter(|values| values.is_object());
    let values = values.ok_or_else(|| bad_request(format!("{name} has no values")))?.clone();
    let by = one.get("discovery_resource_id").and_then(Value::as_str);
    let discovery_resource = by.map(str::to_owned);
    Ok(DiscoveredDraft { id: name.to_owned(), attributes: values, discovery_resource })
}

async fn store_discovered(request: &InmantaRequest, found: Vec<DiscoveredDraft>) -> ApiResult {
    discovered::put(&request.app, request.environment()?, found).await?;
    done()
}

pub(crate) async fn put(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["discovered_resources"])?;
    let Some(Value::Array(list)) = request.value("discovered_resources") else {
        return Err(bad_request("Field 'discovered_resources' must be a list."));
    };
    let mut found = Vec::with_capacity(list.len());
    for one in list {
        let object = one
            .as_object()
            .ok_or_else(|| bad_request("a discovered resource must be an object"))?;
        let name = object.get("discovered_resource_id").and_then(Value::as_str);
        found.push(parse_discovered(
            name.ok_or_else(|| bad_request("a discovered resource has no id"))?,
            object,
        )?);
    }
    store_discovered(&request, found).await
}

pub(crate) async fn put_one(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["values", "discovery_resource_id"])?;
    let mut object = Map::new();
    for name in ["values", "discovery_resource_id"] {
        if let Some(value) = request.value(name) {
            object.insert(name.to_owned(), value.clone());
        }
    }
    let found = parse_discovered(request.path_text("discovered_resource_id"), &object)?;
    store_discovered(&request, vec![found]).await
}

pub(crate) async fn delete_one(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let id = request.path_text("discovered_resource_id").to_owned();
    discovered::delete(&request.app, request.environment()?.key, id).await?;
    done()
}

pub(crate) async fn delete(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["discovered_resource_ids"])?;
    let ids = request.texts("discovered_resource_ids")?;
    let ids = ids.ok_or_else(|| bad_request("Field 'discovered_resource_ids' is required."))?;
    discovered::delete_all(&request.app, request.environment()?.key, ids).await?;
    done()
}
