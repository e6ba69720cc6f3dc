//! Settings of environments.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use orrery_api::{Page, ProtectedSettings, Setting, SettingUpdate};
use orrery_model::similar_names::closest;
use orrery_store::{EnvironmentRecord, SettingRecord};
use uuid::Uuid;

use crate::access::Right;
use crate::auth::{Caller, WithAuditDetail};
use crate::error::ServerError;
use crate::extract::{Body, IfMatch, InEnvironment, Path, etag};
use crate::settings::{
    DEFINITIONS, Definition, InvalidSetting, check, definition, is_for_administrators,
};
use crate::state::ServerState;

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

fn setting_view(definition: &Definition, records: &[SettingRecord]) -> Setting {
    let record = records.iter().find(|record| record.name == definition.name);
    let given = record.and_then(|record| check(definition, &record.value).ok());
    let protected_by = record.and_then(|record| record.protected_by.clone());
    Setting {
        name: definition.name.to_owned(),
        set: given.is_some(),
        value: given.unwrap_or_else(|| definition.default()),
        default: definition.default(),
        r#type: definition.form.name().to_owned(),
        section: definition.section.to_owned(),
        doc: definition.doc.to_owned(),
        protected: protected_by.is_some(),
        protected_by,
    }
}

fn with_revision(definition: &Definition, records: &[SettingRecord]) -> (HeaderMap, Json<Setting>) {
    let record = records.iter().find(|record| record.name == definition.name);
    let revision = record.map_or(0, SettingRecord::revision);
    (etag(revision), Json(setting_view(definition, records)))
}

/// Lists all settings with their values and definitions.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/settings", tag = "settings", params(("environment" = Uuid, Path)),
    responses((status = 200, description = "All items, by name", body = Page<Setting>)))]
pub(super) async fn list(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
) -> Result<Json<Page<Setting>>, ServerError> {
    let records = app.with_store(move |store| store.records().settings(environment.key)).await?;
    let items = DEFINITIONS.iter().map(|definition| setting_view(definition, &records)).collect();
    Ok(Json(Page { items, next: None }))
}

/// Returns a setting.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/settings/{name}", tag = "settings",
    params(("environment" = Uuid, Path), ("name" = String, Path)),
    responses((status = 200, description = "The setting", body = Setting)))]
pub(super) async fn get(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, name)): Path<(Uuid, String)>,
) -> Result<(HeaderMap, Json<Setting>), ServerError> {
    let definition = definition(&name)?;
    let records = app.with_store(move |store| store.records().settings(environment.key)).await?;
    Ok(with_revision(definition, &records))
}

/// Sets the value of a setting.
#[utoipa::path(put, path = "/api/v1/environments/{environment}/settings/{name}", tag = "settings",
    params(("environment" = Uuid, Path), ("name" = String, Path)), request_body = SettingUpdate,
    responses((status = 200, description = "Current state", body = Setting)))]
pub(super) async fn put(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Path((_, name)): Path<(Uuid, String)>,
    IfMatch(expected): IfMatch,
    Body(update): Body<SettingUpdate>,
) -> Result<WithAuditDetail<(HeaderMap, Json<Setting>)>, ServerError> {
    let definition = definition(&name)?;
    check_right(&caller, &environment, &name)?;
    let value = check(definition, &update.value)?;
    let now = app.now();
    let records = app
        .change(move |store| {
            let (key, value) = (environment.key, Some(&value));
            store.records().change_setting_if(key, &name, value, expected, now)?;
            store.records().settings(environment.key)
        })
        .await?;
    let (headers, Json(now)) = with_revision(definition, &records);
    Ok(WithAuditDetail(format!("setting {} = {}", now.name, now.value), (headers, Json(now))))
}

/// Resets a setting to its default.
#[utoipa::path(delete, path = "/api/v1/environments/{environment}/settings/{name}", tag = "settings",
    params(("environment" = Uuid, Path), ("name" = String, Path)),
    responses((status = 200, description = "Current state", body = Setting)))]
pub(super) async fn delete(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Path((_, name)): Path<(Uuid, String)>,
    IfMatch(expected): IfMatch,
) -> Result<WithAuditDetail<(HeaderMap, Json<Setting>)>, ServerError> {
    let definition = definition(&name)?;
    check_right(&caller, &environment, &name)?;
    let now = app.now();
    let records = app
        .change(move |store| {
            store.records().change_setting_if(environment.key, &name, None, expected, now)?;
            store.records().settings(environment.key)
        })
        .await?;
    let (headers, Json(now)) = with_revision(definition, &records);
    Ok(WithAuditDetail(
        format!("setting {} = {} (default)", now.name, now.value),
        (headers, Json(now)),
    ))
}

/// Sets values and protects them from changes, such as those that files of a project define.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/settings/protect", tag = "settings", params(("environment" = Uuid, Path)),
    request_body = ProtectedSettings, responses((status = 204, description = "Set")))]
pub(super) async fn protect(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Body(batch): Body<ProtectedSettings>,
) -> Result<WithAuditDetail<StatusCode>, ServerError> {
    if batch.protected_by.is_empty() || batch.protected_by.chars().count() > 255 {
        return Err(ServerError::field("protected_by", "must have 1 to 255 characters"));
    }
    let mut settings = Vec::new();
    for (name, value) in &batch.settings {
        let definition = definition(name)
            .map_err(|error| ServerError::field(format!("settings.{name}"), error.to_string()))?;
        check_right(&caller, &environment, name)?;
        let value = check(definition, value)
            .map_err(|error| ServerError::field(format!("settings.{name}"), error.to_string()))?;
        settings.push((definition.name, value));
    }
    let now = app.now();
    let protector = batch.protected_by;
    let told: Vec<String> =
        settings.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    let detail = format!("settings {}, protected by {protector}", told.join(", "));
    app.change(move |store| {
        store.records().protect_settings(environment.key, &settings, &protector, now)
    })
    .await?;
    Ok(WithAuditDetail(detail, StatusCode::NO_CONTENT))
}
