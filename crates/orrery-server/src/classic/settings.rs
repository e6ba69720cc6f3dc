//! Settings of environments, in both generations.

use orrery_store::SettingRecord;
use serde_json::{Map, Value, json};

use super::answer::{Answer, data, done, plain};
use super::call::{Call, bad};
use crate::problem::ServerError;
use crate::routes::settings::check_right;
use crate::settings::{DEFINITIONS, Definition, Form, check, definition};

/// Who protects what a project file sets, as clients name it in a request and as they are told.
const PROTECTORS: [&str; 2] = ["project_yml", "project.yml"];

/// Every setting with the value that counts.
pub(super) fn values(set: &[SettingRecord]) -> Map<String, Value> {
    let value = |one: &Definition| {
        let kept = set.iter().find(|record| record.name == one.name);
        kept.map_or_else(|| one.default(), |record| record.value.clone())
    };
    DEFINITIONS.iter().map(|one| (one.name.to_owned(), value(one))).collect()
}

fn definitions(set: &[SettingRecord]) -> Map<String, Value> {
    let shown = |one: &Definition| {
        let kept = set.iter().find(|record| record.name == one.name);
        let protector = kept.and_then(|record| record.protected_by.clone());
        let form = match one.form {
            Form::Bool => "bool",
            Form::Integer => "int",
            Form::Number => "positive_float",
            Form::Interval | Form::Cron | Form::Choice(_) | Form::Text => "str",
            Form::Patterns => "list",
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

async fn all(call: &Call) -> Result<(Map<String, Value>, Map<String, Value>), ServerError> {
    call.only(&[])?;
    let set = call.look(|store, key| store.records().settings(key)).await?;
    Ok((values(&set), definitions(&set)))
}

fn known(call: &Call) -> Result<&'static Definition, ServerError> {
    let name = call.path_text("id");
    let unknown = || ServerError::NotFound { kind: "setting", name: name.to_owned() };
    definition(name).map_err(|_| unknown())
}

async fn set(call: &Call) -> Result<(), ServerError> {
    call.only(&["value"])?;
    let one = known(call)?;
    let given = call.value("value").ok_or_else(|| bad("Field 'value' is required."))?;
    let value = check(one, given).map_err(|error| bad(error.to_string()))?;
    check_right(&call.caller, call.environment()?, one.name)?;
    call.change(move |store, key, now| {
        store.records().change_setting(key, one.name, Some(&value), now)
    })
    .await
}

async fn reset(call: &Call) -> Result<(), ServerError> {
    call.only(&[])?;
    let one = known(call)?;
    check_right(&call.caller, call.environment()?, one.name)?;
    call.change(move |store, key, now| store.records().change_setting(key, one.name, None, now))
        .await
}

pub(super) async fn list(call: Call) -> Answer {
    let (settings, definition) = all(&call).await?;
    data(json!({"settings": settings, "definition": definition}))
}

pub(super) async fn list_v1(call: Call) -> Answer {
    let (settings, metadata) = all(&call).await?;
    plain(json!({"settings": settings, "metadata": metadata}))
}

pub(super) async fn get(call: Call) -> Answer {
    let name = known(&call)?.name;
    let (mut settings, definition) = all(&call).await?;
    settings.retain(|other, _| other == name);
    data(json!({"settings": settings, "definition": definition}))
}

pub(super) async fn get_v1(call: Call) -> Answer {
    let name = known(&call)?.name;
    let (settings, metadata) = all(&call).await?;
    plain(json!({"value": settings.get(name), "metadata": metadata}))
}

pub(super) async fn put(call: Call) -> Answer {
    set(&call).await?;
    data(Value::Null)
}

pub(super) async fn put_v1(call: Call) -> Answer {
    set(&call).await?;
    plain(json!({}))
}

pub(super) async fn delete(call: Call) -> Answer {
    reset(&call).await?;
    data(Value::Null)
}

pub(super) async fn delete_v1(call: Call) -> Answer {
    reset(&call).await?;
    plain(json!({}))
}

/// Sets what a project file says; people cannot change it then.
pub(super) async fn protect(call: Call) -> Answer {
    call.only(&["settings", "protected_by"])?;
    if !PROTECTORS.contains(&call.need_text("protected_by")?) {
        return Err(bad("Field 'protected_by' must be project_yml."));
    }
    let given = call.object("settings")?.ok_or_else(|| bad("Field 'settings' is required."))?;
    let mut checked = Vec::with_capacity(given.len());
    for (name, value) in given {
        let one = definition(name).map_err(|error| bad(error.to_string()))?;
        check_right(&call.caller, call.environment()?, one.name)?;
        let value = check(one, value).map_err(|error| bad(error.to_string()))?;
        checked.push((one.name, value));
    }
    call.change(move |store, key, now| {
        store.records().protect_settings(key, &checked, PROTECTORS[1], now)
    })
    .await?;
    done()
}
