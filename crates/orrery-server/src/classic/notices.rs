//! Notifications, discovered resources and measurements over time.

use orrery_model::{ResourceId, Timestamp};
use orrery_store::{DiscoveredRecord, NewDiscovered, NotificationFilter, NotificationRecord};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::answer::{Answer, data, done, escaped, time};
use super::call::{Call, bad};
use super::paging::{Form, Item, Key, Offer, Wanted};
use crate::problem::ServerError;
use crate::routes::metrics::{Spans, Values, series};
use crate::upkeep::RESOURCE_COUNT;

const AT_ONCE: usize = 1_000;
const LISTED_MAX: usize = 100_000;
const SPANS_MAX: i64 = 1_000;
/// Statuses that the classic words have beside ours.
const MORE_STATUSES: [&str; 2] = ["cancelled", "dry"];

fn shown(environment: &[u8; 16], record: &NotificationRecord) -> Value {
    let uri = match record.compile {
        Some(compile) => format!("/api/v2/compilereport/{}", Uuid::from_bytes(compile)),
        None => record.uri.clone(),
    };
    json!({
        "id": Uuid::from_bytes(record.uuid),
        "environment": Uuid::from_bytes(*environment),
        "created": time(record.created),
        "title": record.title,
        "message": record.message,
        "severity": record.severity,
        "uri": if uri.is_empty() { Value::Null } else { json!(uri) },
        "compile_id": record.compile.map(Uuid::from_bytes),
        "read": record.read,
        "cleared": record.cleared,
    })
}

const NOTIFICATIONS: Offer = Offer {
    columns: &[("created", Form::Time)],
    descending: true,
    filters: &["read", "cleared", "severity", "title", "message"],
    with_ids: true,
    others: &[],
};

pub(super) async fn notifications(call: Call) -> Answer {
    let wanted = Wanted::read(&call, &NOTIFICATIONS)?;
    let (read, cleared) = (wanted.flag("read")?, wanted.flag("cleared")?);
    let environment = call.environment()?.uuid;
    let found = call
        .look(move |store, key| {
            let filter = NotificationFilter { read, cleared, severity: None };
            let mut found: Vec<NotificationRecord> = Vec::new();
            loop {
                let after = found.last().map(|last| (last.created, last.uuid));
                let part = store.records().notifications(key, &filter, after, AT_ONCE)?;
                let is_last = part.len() < AT_ONCE;
                found.extend(part);
                if is_last || found.len() >= LISTED_MAX {
                    return Ok(found);
                }
            }
        })
        .await?;
    let fits = |one: &&NotificationRecord| {
        wanted.contains("title", &one.title)
            && wanted.contains("message", &one.message)
            && wanted.is_one("severity", &one.severity)
    };
    let items = found.iter().filter(fits).map(|one| Item {
        key: Key::Time(one.created),
        id: Uuid::from_bytes(one.uuid).to_string(),
        shown: shown(&environment, one),
    });
    wanted.page(items.collect())
}

pub(super) async fn notification(call: Call) -> Answer {
    call.only(&[])?;
    let id = call.path_uuid("notification_id")?;
    let environment = call.environment()?.uuid;
    let found =
        call.look(move |store, key| store.records().notification(key, id.as_bytes())).await?;
    data(shown(&environment, &found))
}

pub(super) async fn update_notification(call: Call) -> Answer {
    call.only(&["read", "cleared"])?;
    let id = call.path_uuid("notification_id")?;
    let (read, cleared) = (call.flag("read")?, call.flag("cleared")?);
    if read.is_none() && cleared.is_none() {
        return Err(bad("At least one of {read, cleared} should be specified for a valid update."));
    }
    let environment = call.environment()?.uuid;
    let changed = call
        .change(move |store, key, now| {
            store.records().update_notification(key, id.as_bytes(), read, cleared, now)
        })
        .await?;
    data(shown(&environment, &changed))
}

fn shown_discovered(record: &DiscoveredRecord) -> Value {
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

const DISCOVERED: Offer = Offer {
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

pub(super) async fn discovered(call: Call) -> Answer {
    let wanted = Wanted::read(&call, &DISCOVERED)?;
    let managed = wanted.flag("managed")?;
    let found = call
        .look(move |store, key| {
            let mut found: Vec<DiscoveredRecord> = Vec::new();
            loop {
                let after = found.last().map(|last| last.name.clone()).unwrap_or_default();
                let part = store.records().discovered(key, managed, &after, AT_ONCE)?;
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
        fits.then(|| Item { key, id: record.name.clone(), shown: shown_discovered(record) })
    });
    wanted.page(items.collect())
}

pub(super) async fn discovered_one(call: Call) -> Answer {
    call.only(&[])?;
    let id = call.path_text("discovered_resource_id").to_owned();
    let found = call.look(move |store, key| store.records().discovered_one(key, &id)).await?;
    data(shown_discovered(&found))
}

/// Something that was found, as a client tells it.
fn given(name: &str, one: &Map<String, Value>) -> Result<(String, Value, String), ServerError> {
    name.parse::<ResourceId>().map_err(|error| bad(format!("{name:?}: {error}")))?;
    let values = one.get("values").filter(|values| values.is_object());
    let values = values.ok_or_else(|| bad(format!("{name} has no values")))?.clone();
    let by = one.get("discovery_resource_id").and_then(Value::as_str).unwrap_or_default();
    Ok((name.to_owned(), values, by.to_owned()))
}

async fn keep(call: &Call, found: Vec<(String, Value, String)>) -> Answer {
    call.change(move |store, key, now| {
        let new: Vec<NewDiscovered<'_>> = found
            .iter()
            .map(|(name, attributes, by)| NewDiscovered {
                name,
                attributes,
                discovery_resource: by,
            })
            .collect();
        store.records().put_discovered(key, &new, now)
    })
    .await?;
    done()
}

pub(super) async fn put_discovered(call: Call) -> Answer {
    call.only(&["discovered_resources"])?;
    let Some(Value::Array(list)) = call.value("discovered_resources") else {
        return Err(bad("Field 'discovered_resources' must be a list."));
    };
    let mut found = Vec::with_capacity(list.len());
    for one in list {
        let object =
            one.as_object().ok_or_else(|| bad("a discovered resource must be an object"))?;
        let name = object.get("discovered_resource_id").and_then(Value::as_str);
        found.push(given(name.ok_or_else(|| bad("a discovered resource has no id"))?, object)?);
    }
    keep(&call, found).await
}

pub(super) async fn put_discovered_one(call: Call) -> Answer {
    call.only(&["values", "discovery_resource_id"])?;
    let mut object = Map::new();
    for name in ["values", "discovery_resource_id"] {
        if let Some(value) = call.value(name) {
            object.insert(name.to_owned(), value.clone());
        }
    }
    let found = given(call.path_text("discovered_resource_id"), &object)?;
    keep(&call, vec![found]).await
}

pub(super) async fn forget_discovered_one(call: Call) -> Answer {
    call.only(&[])?;
    let id = call.path_text("discovered_resource_id").to_owned();
    call.change(move |store, key, now| store.records().forget_discovered(key, &id, now)).await?;
    done()
}

pub(super) async fn forget_discovered(call: Call) -> Answer {
    call.only(&["discovered_resource_ids"])?;
    let ids = call.texts("discovered_resource_ids")?;
    let ids = ids.ok_or_else(|| bad("Field 'discovered_resource_ids' is required."))?;
    call.change(move |store, key, now| {
        for id in &ids {
            match store.records().forget_discovered(key, id, now) {
                Ok(()) | Err(orrery_store::StoreError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    })
    .await?;
    done()
}

/// Measurements in equal spans of time.
pub(super) async fn metrics(call: Call) -> Answer {
    call.only(&["metrics", "start_interval", "end_interval", "nb_datapoints", "round_timestamps"])?;
    let names = call.texts("metrics")?.ok_or_else(|| bad("Field 'metrics' is required."))?;
    let need =
        |name: &str| call.time(name)?.ok_or_else(|| bad(format!("Field '{name}' is required.")));
    let (start, end) = (need("start_interval")?, need("end_interval")?);
    let count = call.number("nb_datapoints")?.unwrap_or(15);
    if !(1..=SPANS_MAX).contains(&count) {
        return Err(bad(format!("nb_datapoints must be 1 to {SPANS_MAX}")));
    }
    let round = call.flag("round_timestamps")?.unwrap_or(false);
    let spans = Spans::of(start.0, end.0, u32::try_from(count).unwrap_or(1), round)?;
    let (from, until) = (spans.start(), spans.end());
    let timestamps: Vec<String> = spans.ends().map(|at| time(Timestamp(at))).collect();
    let (wanted, now) = (names.clone(), call.app.now());
    let found = call.look(move |store, key| series(store, key, &spans, &wanted, now)).await??;
    let mut shown = Map::new();
    for (name, values) in names.into_iter().zip(found) {
        shown.insert(name.clone(), by_span(&name, &values, timestamps.len()));
    }
    data(json!({
        "start": time(Timestamp(from)), "end": time(Timestamp(until)),
        "timestamps": timestamps, "metrics": shown,
    }))
}

/// One value for each span: a number, or numbers by what was counted.
fn by_span(name: &str, values: &Values, count: usize) -> Value {
    let is_plain = values.keys().all(String::is_empty);
    let at = |place: usize| {
        if is_plain {
            return json!(values.get("").and_then(|values| values[place]));
        }
        let mut counted = Map::new();
        for (category, values) in values {
            if let Some(value) = values[place] {
                counted.insert(category.clone(), json!(value));
            }
        }
        if counted.is_empty() {
            return Value::Null;
        }
        if name == RESOURCE_COUNT {
            counted.remove("orphaned");
            for status in MORE_STATUSES {
                counted.insert(status.to_owned(), json!(0.0));
            }
        }
        Value::Object(counted)
    };
    Value::Array((0..count).map(at).collect())
}
