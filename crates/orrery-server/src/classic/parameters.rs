//! Parameters of environments and facts of resources.

use axum::http::StatusCode;
use orrery_model::ResourceId;
use orrery_store::{
    EnvironmentKey, NewParameter, Parameter, ParameterFilter, ParameterSource, Store, StoreError,
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::answer::{Answer, data, plain, time, told};
use super::call::{Call, bad};
use super::paging::{Form, Item, Key, Offer, Wanted};
use super::resources::derived_uuid;
use crate::compiling::{Trigger, request_for_values};
use crate::problem::ServerError;
use crate::routes::parameters::{FACT_EXPIRY, FACTS_PAUSE};

const AT_ONCE: usize = 1_000;

fn source_name(source: ParameterSource) -> &'static str {
    match source {
        ParameterSource::Fact => "fact",
        ParameterSource::Plugin => "plugin",
        ParameterSource::User => "user",
        ParameterSource::Report => "report",
    }
}

fn source_of(name: &str) -> Result<ParameterSource, ServerError> {
    match name {
        "fact" => Ok(ParameterSource::Fact),
        "plugin" => Ok(ParameterSource::Plugin),
        "user" => Ok(ParameterSource::User),
        "report" => Ok(ParameterSource::Report),
        other => Err(bad(format!("source: {other:?} is none of fact, plugin, user, report"))),
    }
}

/// The id that clients know a parameter or a fact by.
fn uuid_of(environment: &[u8; 16], parameter: &Parameter) -> Uuid {
    let resource = parameter.resource.as_ref().map(ResourceId::as_str).unwrap_or_default();
    derived_uuid(environment, "parameter", &format!("{resource}\0{}", parameter.name))
}

fn shown(environment: &[u8; 16], parameter: &Parameter) -> Value {
    let mut shown = json!({
        "id": uuid_of(environment, parameter),
        "name": parameter.name,
        "value": parameter.value,
        "environment": Uuid::from_bytes(*environment),
        "source": source_name(parameter.source),
        "updated": time(parameter.updated),
        "metadata": parameter.metadata,
    });
    if let Some(resource) = &parameter.resource {
        shown["resource_id"] = json!(resource.as_str());
        shown["expires"] = json!(parameter.expires);
    }
    shown
}

/// In the form of the first generation.
fn shown_v1(environment: &[u8; 16], parameter: &Parameter) -> Value {
    let mut shown = shown(environment, parameter);
    let resource = parameter.resource.as_ref().map(ResourceId::as_str).unwrap_or_default();
    shown["resource_id"] = json!(resource);
    shown["expires"] = json!(parameter.expires);
    shown
}

fn all_parameters(store: &dyn Store, key: EnvironmentKey) -> Result<Vec<Parameter>, StoreError> {
    let mut found: Vec<Parameter> = Vec::new();
    loop {
        let after = found.last().map(|last| last.name.clone()).unwrap_or_default();
        let filter = ParameterFilter::default();
        let part = store.records().list_parameters(key, &filter, &after, AT_ONCE)?;
        let is_last = part.len() < AT_ONCE;
        found.extend(part);
        if is_last {
            return Ok(found);
        }
    }
}

fn all_facts(
    store: &dyn Store,
    key: EnvironmentKey,
    resource: Option<&str>,
) -> Result<Vec<Parameter>, StoreError> {
    let (mut found, mut after) = (Vec::new(), (0, String::new()));
    loop {
        let filter = ParameterFilter { resource, ..ParameterFilter::default() };
        let part = store.records().list_facts(key, &filter, &after, AT_ONCE)?;
        let is_last = part.len() < AT_ONCE;
        for (place, fact) in part {
            after = place;
            found.push(fact);
        }
        if is_last {
            return Ok(found);
        }
    }
}

const PARAMETERS: Offer = Offer {
    columns: &[("name", Form::Text), ("source", Form::Text), ("updated", Form::Time)],
    descending: false,
    filters: &["name", "source", "updated"],
    with_ids: true,
    others: &[],
};

pub(super) async fn list(call: Call) -> Answer {
    let wanted = Wanted::read(&call, &PARAMETERS)?;
    let environment = call.environment()?.uuid;
    let found = call.look(all_parameters).await?;
    let mut items = Vec::new();
    for parameter in &found {
        let source = source_name(parameter.source);
        let fits = wanted.contains("name", &parameter.name)
            && wanted.contains("source", source)
            && wanted.in_ranges("updated", Form::Time, &Key::Time(parameter.updated))?;
        if fits {
            let key = match wanted.column {
                "source" => Key::Text(source.to_owned()),
                "updated" => Key::Time(parameter.updated),
                _ => Key::Text(parameter.name.clone()),
            };
            let id = uuid_of(&environment, parameter).to_string();
            items.push(Item { key, id, shown: shown(&environment, parameter) });
        }
    }
    wanted.page(items)
}

const FACTS: Offer = Offer {
    columns: &[("name", Form::Text), ("resource_id", Form::Text)],
    descending: false,
    filters: &["name", "resource_id", "expires"],
    with_ids: true,
    others: &[],
};

pub(super) async fn list_facts(call: Call) -> Answer {
    let wanted = Wanted::read(&call, &FACTS)?;
    let expires = wanted.flag("expires")?;
    let environment = call.environment()?.uuid;
    let found = call.look(|store, key| all_facts(store, key, None)).await?;
    let items = found.iter().filter_map(|fact| {
        let resource = fact.resource.as_ref().map(ResourceId::as_str).unwrap_or_default();
        let fits = wanted.contains("name", &fact.name)
            && wanted.contains("resource_id", resource)
            && expires.is_none_or(|expires| expires == fact.expires);
        let key = if wanted.column == "resource_id" { resource } else { fact.name.as_str() };
        let id = uuid_of(&environment, fact).to_string();
        fits.then(|| Item { key: Key::Text(key.to_owned()), id, shown: shown(&environment, fact) })
    });
    wanted.page(items.collect())
}

/// The facts of one resource.
pub(super) async fn facts_of(call: Call) -> Answer {
    call.only(&[])?;
    let environment = call.environment()?.uuid;
    let id = call.path_text("rid").to_owned();
    let found = call.look(move |store, key| all_facts(store, key, Some(&id))).await?;
    data(found.iter().map(|fact| shown(&environment, fact)).collect())
}

pub(super) async fn fact(call: Call) -> Answer {
    call.only(&[])?;
    let environment = call.environment()?.uuid;
    let (id, wanted) = (call.path_text("rid").to_owned(), call.path_uuid("fact")?);
    let found = call.look(move |store, key| all_facts(store, key, Some(&id))).await?;
    let fact = found.iter().find(|fact| uuid_of(&environment, fact) == wanted);
    let unknown = || ServerError::NotFound { kind: "fact", name: wanted.to_string() };
    data(shown(&environment, fact.ok_or_else(unknown)?))
}

/// A value that a client sets.
struct Given {
    name: String,
    value: String,
    resource: Option<String>,
    source: ParameterSource,
    expires: bool,
    recompile: bool,
    /// Replaces what was said before.
    metadata: Map<String, Value>,
}

impl Given {
    fn check(&self, expires: Option<bool>) -> Result<(), ServerError> {
        if self.resource.is_none() && expires == Some(true) {
            return Err(bad(format!(
                "Cannot update or set parameter {}: `expire` set to True but parameters cannot expire. \
                 Consider using a fact instead by providing a resource_id.",
                self.name
            )));
        }
        if let Some(id) = &self.resource {
            id.parse::<ResourceId>().map_err(|error| bad(format!("{id:?}: {error}")))?;
        }
        Ok(())
    }
}

/// Sets a value and, in the same transaction, asks for the compile that it makes necessary.
async fn set(call: &Call, given: Given) -> Result<Parameter, ServerError> {
    call.change(move |store, key, now| {
        let new = NewParameter {
            name: &given.name,
            value: &given.value,
            resource: given.resource.as_deref(),
            source: given.source,
            expires: given.expires,
            metadata: Some(&given.metadata),
        };
        let trigger = if given.resource.is_some() { Trigger::Fact } else { Trigger::Parameter };
        store.records().put_parameter(key, &new, now, &|sql, effect| {
            request_for_values(sql, key, trigger, effect, given.recompile, now).map(drop)
        })?;
        store.records().parameter(key, &given.name, given.resource.as_deref())
    })
    .await
}

fn given(call: &Call, name: &str) -> Result<Given, ServerError> {
    let resource = call.text("resource_id")?.filter(|id| !id.is_empty()).map(str::to_owned);
    let expires = call.flag("expires")?;
    let value = call.value("value").ok_or_else(|| bad("Field 'value' is required."))?;
    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let given = Given {
        name: name.to_owned(),
        value,
        source: source_of(call.need_text("source")?)?,
        expires: expires.unwrap_or(resource.is_some()),
        resource,
        recompile: call.flag("recompile")?.unwrap_or(false),
        metadata: call.object("metadata")?.cloned().unwrap_or_default(),
    };
    given.check(expires)?;
    Ok(given)
}

/// In the second generation, metadata are texts.
fn check_metadata(call: &Call) -> Result<(), ServerError> {
    let metadata = call.object("metadata")?.into_iter().flatten();
    match metadata.into_iter().find(|(_, value)| !value.is_string()) {
        Some((name, _)) => Err(bad(format!("Field 'metadata': {name:?} must be a string."))),
        None => Ok(()),
    }
}

pub(super) async fn put(call: Call) -> Answer {
    call.only(&["source", "value", "metadata", "recompile"])?;
    check_metadata(&call)?;
    let set = set(&call, given(&call, call.path_text("name"))?).await?;
    data(shown(&call.environment()?.uuid, &set))
}

pub(super) async fn put_fact(call: Call) -> Answer {
    call.only(&["source", "value", "resource_id", "metadata", "recompile", "expires"])?;
    call.need_text("resource_id")?;
    check_metadata(&call)?;
    let set = set(&call, given(&call, call.path_text("name"))?).await?;
    data(shown(&call.environment()?.uuid, &set))
}

pub(super) async fn put_v1(call: Call) -> Answer {
    call.only(&["source", "value", "resource_id", "metadata", "recompile", "expires"])?;
    let set = set(&call, given(&call, call.path_text("id"))?).await?;
    plain(json!({"parameter": shown_v1(&call.environment()?.uuid, &set)}))
}

/// Sets many values, each of which has its own compile if it needs one.
pub(super) async fn put_many(call: Call) -> Answer {
    call.only(&["parameters"])?;
    let Some(Value::Array(list)) = call.value("parameters") else {
        return Err(bad("Field 'parameters' must be a list."));
    };
    let mut all = Vec::with_capacity(list.len());
    for one in list {
        let text = |name: &str| one.get(name).and_then(Value::as_str).map(str::to_owned);
        let resource = text("resource_id").filter(|id| !id.is_empty());
        let expires = one.get("expires").and_then(Value::as_bool);
        let value = one.get("value").ok_or_else(|| bad("a parameter has no value"))?;
        let given = Given {
            name: text("id").ok_or_else(|| bad("a parameter has no id"))?,
            value: value.as_str().map_or_else(|| value.to_string(), str::to_owned),
            source: source_of(text("source").as_deref().unwrap_or("fact"))?,
            expires: expires.unwrap_or(resource.is_some()),
            resource,
            recompile: false,
            metadata: match one.get("metadata") {
                None | Some(Value::Null) => Map::new(),
                Some(Value::Object(metadata)) => metadata.clone(),
                Some(_) => return Err(bad("metadata of a parameter is not an object")),
            },
        };
        given.check(expires)?;
        all.push(given);
    }
    for given in all {
        set(&call, given).await?;
    }
    plain(json!({}))
}

/// A parameter; or a fact, for which its resource is asked if it is not known or too old.
pub(super) async fn get_v1(call: Call) -> Answer {
    call.only(&["resource_id"])?;
    let name = call.path_text("id").to_owned();
    let resource = call.text("resource_id")?.filter(|id| !id.is_empty()).map(str::to_owned);
    let environment = call.environment()?.uuid;
    let is_fact = resource.is_some();
    let found = call
        .change(move |store, key, now| {
            let found = match store.records().parameter(key, &name, resource.as_deref()) {
                Ok(found) => Some(found),
                Err(StoreError::NotFound { .. } | StoreError::NoResource(_)) => None,
                Err(error) => return Err(error),
            };
            let is_fresh = |one: &Parameter| !one.expires || one.updated + FACT_EXPIRY >= now;
            let found = found.filter(is_fresh);
            if let (None, Some(id)) = (&found, &resource) {
                match store.records().ask_for_facts(key, id, FACTS_PAUSE, now) {
                    Ok(_) | Err(StoreError::NoResource(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(found)
        })
        .await?;
    match found {
        Some(found) => plain(json!({"parameter": shown_v1(&environment, &found)})),
        None if is_fact => {
            let content = json!({"message": "Agents queried for resource parameter."});
            told(StatusCode::SERVICE_UNAVAILABLE, content)
        }
        None => {
            let name = call.path_text("id").to_owned();
            Err(ServerError::NotFound { kind: "parameter", name })
        }
    }
}

/// Whether a value has all of another: objects have its names, lists its elements.
fn contains(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Object(value), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, wanted)| value.get(name).is_some_and(|value| contains(value, wanted))),
        (Value::Array(value), Value::Array(wanted)) => {
            wanted.iter().all(|wanted| value.iter().any(|value| contains(value, wanted)))
        }
        (value, wanted) => value == wanted,
    }
}

/// All parameters and facts, or those whose metadata have what is asked for.
pub(super) async fn list_v1(call: Call) -> Answer {
    call.only(&["query"])?;
    let query = Value::from(call.object("query")?.cloned().unwrap_or_default());
    let environment = call.environment()?.uuid;
    let found = call
        .look(|store, key| {
            let mut found = all_parameters(store, key)?;
            found.extend(all_facts(store, key, None)?);
            Ok(found)
        })
        .await?;
    let shown = found.iter().map(|one| shown_v1(&environment, one));
    let shown: Vec<Value> = shown.filter(|one| contains(&one["metadata"], &query)).collect();
    let expire = FACT_EXPIRY.as_secs();
    plain(json!({"parameters": shown, "expire": expire, "now": time(call.app.now())}))
}

/// Deletes a parameter or a fact, and asks for a compile.
pub(super) async fn delete_v1(call: Call) -> Answer {
    call.only(&["resource_id"])?;
    let name = call.path_text("id").to_owned();
    let resource = call.text("resource_id")?.filter(|id| !id.is_empty()).map(str::to_owned);
    call.change(move |store, key, now| {
        let trigger = if resource.is_some() { Trigger::Fact } else { Trigger::Parameter };
        let effect = orrery_store::ParameterEffect { changed: 1, resolved: 0 };
        store.records().delete_parameter(key, &name, resource.as_deref(), now, &|sql| {
            request_for_values(sql, key, trigger, effect, true, now).map(drop)
        })
    })
    .await?;
    plain(json!({}))
}
