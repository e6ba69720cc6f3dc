//! Parameters of environments and facts of resources.

use axum::http::StatusCode;
use orrery_compile_service::Trigger;
use orrery_model::{EnvironmentId, ResourceId};
use orrery_server::ServerError;
use orrery_server::app::parameters::{self, FACT_EXPIRY, ParameterDraft, ParameterName};
use orrery_store::{
    EnvironmentKey, ParameterFilter, ParameterSource, Store, StoreError, StoredParameter,
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::paging::{Form, Key, ListDefinition, ListItem, ListRequest};
use crate::request::{InmantaRequest, bad_request};
use crate::resources::derived_uuid;
use crate::response::{ApiResult, data, plain, time, with_status};

const AT_ONCE: usize = 1_000;

fn source_name(source: ParameterSource) -> &'static str {
    match source {
        ParameterSource::Fact => "fact",
        ParameterSource::Plugin => "plugin",
        ParameterSource::User => "user",
        ParameterSource::Report => "report",
    }
}

fn parse_source(name: &str) -> Result<ParameterSource, ServerError> {
    match name {
        "fact" => Ok(ParameterSource::Fact),
        "plugin" => Ok(ParameterSource::Plugin),
        "user" => Ok(ParameterSource::User),
        "report" => Ok(ParameterSource::Report),
        other => {
            Err(bad_request(format!("source: {other:?} is none of fact, plugin, user, report")))
        }
    }
}

/// Returns the UUID of a parameter or a fact for clients.
fn uuid_of(environment: EnvironmentId, parameter: &StoredParameter) -> Uuid {
    let resource = parameter.resource.as_ref().map(ResourceId::as_str).unwrap_or_default();
    derived_uuid(environment, "parameter", &format!("{resource}\0{}", parameter.name))
}

fn parameter_json(environment: EnvironmentId, parameter: &StoredParameter) -> Value {
    let mut shown = json!({
        "id": uuid_of(environment, parameter),
        "name": parameter.name,
        "value": parameter.value,
        "environment": environment.uuid(),
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

/// Converts to the v1 form.
fn parameter_v1_json(environment: EnvironmentId, parameter: &StoredParameter) -> Value {
    let mut shown = parameter_json(environment, parameter);
    let resource = parameter.resource.as_ref().map(ResourceId::as_str).unwrap_or_default();
    shown["resource_id"] = json!(resource);
    shown["expires"] = json!(parameter.expires);
    shown
}

fn all_parameters(store: &Store, key: EnvironmentKey) -> Result<Vec<StoredParameter>, StoreError> {
    let mut found: Vec<StoredParameter> = Vec::new();
    loop {
        let after = found.last().map(|last| last.name.clone()).unwrap_or_default();
        let filter = ParameterFilter::default();
        let part = store.parameters().list(key, &filter, &after, AT_ONCE)?;
        let is_last = part.len() < AT_ONCE;
        found.extend(part);
        if is_last {
            return Ok(found);
        }
    }
}

fn all_facts(
    store: &Store,
    key: EnvironmentKey,
    resource: Option<&str>,
) -> Result<Vec<StoredParameter>, StoreError> {
    let (mut found, mut after) = (Vec::new(), (0, String::new()));
    loop {
        let filter = ParameterFilter { resource, ..ParameterFilter::default() };
        let part = store.parameters().list_facts(key, &filter, &after, AT_ONCE)?;
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

const PARAMETERS: ListDefinition = ListDefinition {
    columns: &[("name", Form::Text), ("source", Form::Text), ("updated", Form::Time)],
    descending: false,
    filters: &["name", "source", "updated"],
    with_ids: true,
    others: &[],
};

pub(crate) async fn list(request: InmantaRequest) -> ApiResult {
    let wanted = ListRequest::parse(&request, &PARAMETERS)?;
    let environment = request.environment()?.uuid;
    let found = request.with_store(all_parameters).await?;
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
            let id = uuid_of(environment, parameter).to_string();
            items.push(ListItem { key, id, shown: parameter_json(environment, parameter) });
        }
    }
    wanted.page(items)
}

const FACTS: ListDefinition = ListDefinition {
    columns: &[("name", Form::Text), ("resource_id", Form::Text)],
    descending: false,
    filters: &["name", "resource_id", "expires"],
    with_ids: true,
    others: &[],
};

pub(crate) async fn list_facts(request: InmantaRequest) -> ApiResult {
    let wanted = ListRequest::parse(&request, &FACTS)?;
    let expires = wanted.flag("expires")?;
    let environment = request.environment()?.uuid;
    let found = request.with_store(|store, key| all_facts(store, key, None)).await?;
    let items = found.iter().filter_map(|fact| {
        let resource = fact.resource.as_ref().map(ResourceId::as_str).unwrap_or_default();
        let fits = wanted.contains("name", &fact.name)
            && wanted.contains("resource_id", resource)
            && expires.is_none_or(|expires| expires == fact.expires);
        let key = if wanted.column == "resource_id" { resource } else { fact.name.as_str() };
        let id = uuid_of(environment, fact).to_string();
        fits.then(|| ListItem {
            key: Key::Text(key.to_owned()),
            id,
            shown: parameter_json(environment, fact),
        })
    });
    wanted.page(items.collect())
}

/// Lists the facts of a resource.
pub(crate) async fn facts_of(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let environment = request.environment()?.uuid;
    let id = request.path_text("rid").to_owned();
    let found = request.with_store(move |store, key| all_facts(store, key, Some(&id))).await?;
    data(found.iter().map(|fact| parameter_json(environment, fact)).collect())
}

pub(crate) async fn fact(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let environment = request.environment()?.uuid;
    let (id, wanted) = (request.path_text("rid").to_owned(), request.path_uuid("fact")?);
    let found = request.with_store(move |store, key| all_facts(store, key, Some(&id))).await?;
    let fact = found.iter().find(|fact| uuid_of(environment, fact) == wanted);
    let unknown = || ServerError::NotFound { kind: "fact", name: wanted.to_string() };
    data(parameter_json(environment, fact.ok_or_else(unknown)?))
}

/// A parameter value of a request.
struct NewValue {
    name: String,
    value: String,
    resource: Option<String>,
    source: ParameterSource,
    expires: bool,
    recompile: bool,
    /// Replaces the present metadata.
    metadata: Map<String, Value>,
}

impl NewValue {
    fn check(&self, expires: Option<bool>) -> Result<(), ServerError> {
        if self.resource.is_none() && expires == Some(true) {
            return Err(bad_request(format!(
                "Cannot update or set parameter {}: `expire` set to True but parameters cannot expire. \
                 Consider using a fact instead by providing a resource_id.",
                self.name
            )));
        }
        if let Some(id) = &self.resource {
            id.parse::<ResourceId>().map_err(|error| bad_request(format!("{id:?}: {error}")))?;
        }
        Ok(())
    }
}

/// Sets a value and requests the resulting compile.
async fn set(request: &InmantaRequest, given: NewValue) -> Result<StoredParameter, ServerError> {
    let trigger = trigger_of(given.resource.as_deref());
    let draft = ParameterDraft {
        name: ParameterName { name: given.name, resource: given.resource },
        value: given.value,
        source: Some(given.source),
        expires: Some(given.expires),
        metadata: Some(given.metadata),
        recompile: given.recompile,
        compile: trigger.to_request(),
    };
    let set = parameters::set(&request.app, request.environment()?, draft, None).await?;
    Ok(set.parameter)
}

/// Cause of the compiles that a change of a parameter, or of a fact, requests.
fn trigger_of(resource: Option<&str>) -> Trigger {
    if resource.is_some() { Trigger::Fact } else { Trigger::Parameter }
}

fn parse_value(request: &InmantaRequest, name: &str) -> Result<NewValue, ServerError> {
    let resource = request.text("resource_id")?.filter(|id| !id.is_empty()).map(str::to_owned);
    let expires = request.flag("expires")?;
    let value = request.value("value").ok_or_else(|| bad_request("Field 'value' is required."))?;
    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let given = NewValue {
        name: name.to_owned(),
        value,
        source: parse_source(request.need_text("source")?)?,
        expires: expires.unwrap_or(resource.is_some()),
        resource,
        recompile: request.flag("recompile")?.unwrap_or(false),
        metadata: request.object("metadata")?.cloned().unwrap_or_default(),
    };
    given.check(expires)?;
    Ok(given)
}

/// Checks that metadata values are texts, as v2 requires.
fn check_metadata(request: &InmantaRequest) -> Result<(), ServerError> {
    let metadata = request.object("metadata")?.into_iter().flatten();
    match metadata.into_iter().find(|(_, value)| !value.is_string()) {
        Some((name, _)) => {
            Err(bad_request(format!("Field 'metadata': {name:?} must be a string.")))
        }
        None => Ok(()),
    }
}

pub(crate) async fn put(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["source", "value", "metadata", "recompile"])?;
    check_metadata(&request)?;
    let set = set(&request, parse_value(&request, request.path_text("name"))?).await?;
    data(parameter_json(request.environment()?.uuid, &set))
}

pub(crate) async fn put_fact(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["source", "value", "resource_id", "metadata", "recompile", "expires"])?;
    request.need_text("resource_id")?;
    check_metadata(&request)?;
    let set = set(&request, parse_value(&request, request.path_text("name"))?).await?;
    data(parameter_json(request.environment()?.uuid, &set))
}

pub(crate) async fn put_v1(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["source", "value", "resource_id", "metadata", "recompile", "expires"])?;
    let set = set(&request, parse_value(&request, request.path_text("id"))?).await?;
    plain(json!({"parameter": parameter_v1_json(request.environment()?.uuid, &set)}))
}

/// Sets many values. Each requests its own compile if needed.
pub(crate) async fn put_many(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["parameters"])?;
    let Some(Value::Array(list)) = request.value("parameters") else {
        return Err(bad_request("Field 'parameters' must be a list."));
    };
    let mut all = Vec::with_capacity(list.len());
    for one in list {
        let text = |name: &str| one.get(name).and_then(Value::as_str).map(str::to_owned);
        let resource = text("resource_id").filter(|id| !id.is_empty());
        let expires = one.get("expires").and_then(Value::as_bool);
        let value = one.get("value").ok_or_else(|| bad_request("a parameter has no value"))?;
        let given = NewValue {
            name: text("id").ok_or_else(|| bad_request("a parameter has no id"))?,
            value: value.as_str().map_or_else(|| value.to_string(), str::to_owned),
            source: parse_source(text("source").as_deref().unwrap_or("fact"))?,
            expires: expires.unwrap_or(resource.is_some()),
            resource,
            recompile: false,
            metadata: match one.get("metadata") {
                None | Some(Value::Null) => Map::new(),
                Some(Value::Object(metadata)) => metadata.clone(),
                Some(_) => return Err(bad_request("metadata of a parameter is not an object")),
            },
        };
        given.check(expires)?;
        all.push(given);
    }
    for given in all {
        set(&request, given).await?;
    }
    plain(json!({}))
}

/// Returns a parameter or a fact. A missing or expired fact is refreshed.
pub(crate) async fn get_v1(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["resource_id"])?;
    let name = request.path_text("id").to_owned();
    let resource = request.text("resource_id")?.filter(|id| !id.is_empty()).map(str::to_owned);
    let environment = request.environment()?.uuid;
    let is_fact = resource.is_some();
    let wanted = ParameterName { name, resource };
    let found = match parameters::get_fresh(&request.app, request.key()?, wanted).await {
        Err(ServerError::Store(StoreError::NoResource(_))) => None,
        found => found?,
    };
    match found {
        Some(found) => plain(json!({"parameter": parameter_v1_json(environment, &found)})),
        None if is_fact => {
            let content = json!({"message": "Agents queried for resource parameter."});
            with_status(StatusCode::SERVICE_UNAVAILABLE, content)
        }
        None => {
            let name = request.path_text("id").to_owned();
            Err(ServerError::NotFound { kind: "parameter", name })
        }
    }
}

/// True if a value contains another: objects its members, lists its elements.
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

/// Lists all parameters and facts, or those with the given metadata.
pub(crate) async fn list_v1(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["query"])?;
    let query = Value::from(request.object("query")?.cloned().unwrap_or_default());
    let environment = request.environment()?.uuid;
    let found = request
        .with_store(|store, key| {
            let mut found = all_parameters(store, key)?;
            found.extend(all_facts(store, key, None)?);
            Ok(found)
        })
        .await?;
    let shown = found.iter().map(|one| parameter_v1_json(environment, one));
    let shown: Vec<Value> = shown.filter(|one| contains(&one["metadata"], &query)).collect();
    let expire = FACT_EXPIRY.as_secs();
    plain(json!({"parameters": shown, "expire": expire, "now": time(request.app.now())}))
}

/// Deletes a parameter or a fact and requests a compile.
pub(crate) async fn delete_v1(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["resource_id"])?;
    let name = request.path_text("id").to_owned();
    let resource = request.text("resource_id")?.filter(|id| !id.is_empty()).map(str::to_owned);
    let compile = trigger_of(resource.as_deref()).to_request();
    let name = ParameterName { name, resource };
    parameters::delete(&request.app, request.environment()?, name, None, compile).await?;
    plain(json!({}))
}
