//! Settings of environments, v1 and v2.

use orrery_api::ProtectedSettings;
use orrery_roles::settings::{DEFINITIONS, SettingDefinition, ValueType, check, definition};
use orrery_server::ServerError;
use orrery_server::app::settings;
use orrery_store::SettingRecord;
use serde_json::{Map, Value, json};

use crate::request::{InmantaRequest, bad_request};
use crate::response::{ApiResult, data, done, plain};

/// Source of protection by a project file, as in requests and in responses.
const PROTECTORS: [&str; 2] = ["project_yml", "project.yml"];

/// Returns all settings with their effective values.
pub(crate) fn values(set: &[SettingRecord]) -> Map<String, Value> {
    let value = |one: &SettingDefinition| {
        let kept = set.iter().find(|record| record.name == one.name);
        kept.map_or_else(|| one.default(), |record| record.value.clone())
    };
    DEFINITIONS.iter().map(|one| (one.name.to_owned(), value(one))).collect()
}

fn definitions(set: &[SettingRecord]) -> Map<String, Value> {
    let shown = |one: &SettingDefinition| {
        let kept = set.iter().find(|record| record.name == one.name);
        let protector = kept.and_then(|record| record.protected_by.clone());
        let form = match one.form {
            ValueType::Bool => "bool",
            ValueType::Integer => "int",
            ValueType::Number => "positive_float",
            ValueType::Interval | ValueType::Cron | ValueType::Choice(_) | ValueType::Text => "str",
            ValueType::Patterns => "list",
            ValueType::Placements | ValueType::DriftPolicies => "dict",
        };
        json!({
            "name": one.name,
            "type": form,
            "default": one.default(),
            "doc": one.doc,
            "recompile": false,
            "update_model": false,
            "agent_restart": false,
            "allowed_values": null,
            "section": one.section,
            "protected": protector.is_some(),
            "protected_by": protector,
        })
    };
    DEFINITIONS.iter().map(|one| (one.name.to_owned(), shown(one))).collect()
}

async fn all(
    request: &InmantaRequest,
) -> Result<(Map<String, Value>, Map<String, Value>), ServerError> {
    request.allow_only(&[])?;
    let set = request.with_store(|store, key| store.settings().list(key)).await?;
    Ok((values(&set), definitions(&set)))
}

fn find_definition(request: &InmantaRequest) -> Result<&'static SettingDefinition, ServerError> {
    let name = request.path_text("id");
    let unknown = || ServerError::NotFound { kind: "setting", name: name.to_owned() };
    definition(name).map_err(|_| unknown())
}

async fn set(request: &InmantaRequest) -> Result<(), ServerError> {
    request.allow_only(&["value"])?;
    let one = find_definition(request)?;
    let given = request.value("value").ok_or_else(|| bad_request("Field 'value' is required."))?;
    let value = check(one, given).map_err(|error| bad_request(error.to_string()))?;
    let environment = request.environment()?;
    settings::change(&request.app, &request.caller, environment, one, Some(&value), None).await?;
    Ok(())
}

async fn reset(request: &InmantaRequest) -> Result<(), ServerError> {
    request.allow_only(&[])?;
    let one = find_definition(request)?;
    let environment = request.environment()?;
    settings::change(&request.app, &request.caller, environment, one, None, None).await?;
    Ok(())
}

pub(crate) async fn list(request: InmantaRequest) -> ApiResult {
    let (settings, definition) = all(&request).await?;
    data(json!({"settings": settings, "definition": definition}))
}

pub(crate) async fn list_v1(request: InmantaRequest) -> ApiResult {
    let (settings, metadata) = all(&request).await?;
    plain(json!({"settings": settings, "metadata": metadata}))
}

pub(crate) async fn get(request: InmantaRequest) -> ApiResult {
    let name = find_definition(&request)?.name;
    let (mut settings, definition) = all(&request).await?;
    settings.retain(|other, _| other == name);
    data(json!({"settings": settings, "definition": definition}))
}

pub(crate) async fn get_v1(request: InmantaRequest) -> ApiResult {
    let name = find_definition(&request)?.name;
    let (settings, metadata) = all(&request).await?;
    plain(json!({"value": settings.get(name), "metadata": metadata}))
}

pub(crate) async fn put(request: InmantaRequest) -> ApiResult {
    set(&request).await?;
    data(Value::Null)
}

pub(crate) async fn put_v1(request: InmantaRequest) -> ApiResult {
    set(&request).await?;
    plain(json!({}))
}

pub(crate) async fn delete(request: InmantaRequest) -> ApiResult {
    reset(&request).await?;
    data(Value::Null)
}

pub(crate) async fn delete_v1(request: InmantaRequest) -> ApiResult {
    reset(&request).await?;
    plain(json!({}))
}

/// Sets and protects values of a project file.
pub(crate) async fn protect(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["settings", "protected_by"])?;
    if !PROTECTORS.contains(&request.need_text("protected_by")?) {
        return Err(bad_request("Field 'protected_by' must be project_yml."));
    }
    let given =
        request.object("settings")?.ok_or_else(|| bad_request("Field 'settings' is required."))?;
    for (name, value) in given {
        let one = definition(name).map_err(|error| bad_request(error.to_string()))?;
        check(one, value).map_err(|error| bad_request(error.to_string()))?;
    }
    let settings = given.clone().into_iter().collect();
    let batch = ProtectedSettings { settings, protected_by: PROTECTORS[1].to_owned() };
    settings::protect(&request.app, &request.caller, request.environment()?, batch).await?;
    done()
}
