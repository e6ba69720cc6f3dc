//! Settings of environments.

use orrery_api::ProtectedSettings;
use orrery_model::similar_names::closest;
use orrery_store::{EnvironmentRecord, SettingRecord};
use serde_json::Value;

use crate::access::Right;
use crate::auth::Caller;
use crate::error::ServerError;
use crate::services::Services;
use crate::settings::{
    DEFINITIONS, InvalidSetting, SettingDefinition, check, definition, is_for_administrators,
};

impl From<InvalidSetting> for ServerError {
    fn from(error: InvalidSetting) -> Self {
        match error {
            InvalidSetting::Unknown(mut name) => {
                let known = DEFINITIONS.iter().map(|definition| definition.name);
                if let Some(close) = closest(&name, known) {
                    name += &format!("; did you mean {close}?");
                }
                ServerError::NotFound { kind: "setting", name }
            }
            InvalidSetting::Value { .. } => ServerError::field("value", error.to_string()),
        }
    }
}

/// Checks the right to change this setting, beyond the right to change settings.
pub(crate) fn check_right(
    caller: &Caller,
    environment: &EnvironmentRecord,
    name: &str,
) -> Result<(), ServerError> {
    match is_for_administrators(name) {
        true => caller.need_in_environment(Right::Administer, environment),
        false => Ok(()),
    }
}

/// Sets a setting, or resets it to its default, if it has the expected revision. Returns all settings
/// of the environment.
pub async fn change(
    services: &Services,
    caller: &Caller,
    environment: &EnvironmentRecord,
    definition: &'static SettingDefinition,
    value: Option<&Value>,
    expected: Option<i64>,
) -> Result<Vec<SettingRecord>, ServerError> {
    check_right(caller, environment, definition.name)?;
    let value = value.map(|value| check(definition, value)).transpose()?;
    let (key, now) = (environment.key, services.now());
    let changed = services.change(move |store| {
        store.settings().change_if(key, definition.name, value.as_ref(), expected, now)?;
        store.settings().list(key)
    });
    Ok(changed.await?)
}

/// Sets values and protects them from changes. Returns the values.
pub async fn protect(
    services: &Services,
    caller: &Caller,
    environment: &EnvironmentRecord,
    batch: ProtectedSettings,
) -> Result<Vec<(&'static str, Value)>, ServerError> {
    if batch.protected_by.is_empty() || batch.protected_by.chars().count() > 255 {
        return Err(ServerError::field("protected_by", "must have 1 to 255 characters"));
    }
    let mut settings = Vec::new();
    for (name, value) in &batch.settings {
        let definition = definition(name)
            .map_err(|error| ServerError::field(format!("settings.{name}"), error.to_string()))?;
        check_right(caller, environment, name)?;
        let value = check(definition, value)
            .map_err(|error| ServerError::field(format!("settings.{name}"), error.to_string()))?;
        settings.push((definition.name, value));
    }
    let (key, now, set) = (environment.key, services.now(), settings.clone());
    let protector = batch.protected_by;
    services.change(move |store| store.settings().protect(key, &set, &protector, now)).await?;
    Ok(settings)
}
