//! Settings of environments.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use orrery_api::{Page, ProtectedSettings, Setting, SettingUpdate};
use orrery_store::SettingRecord;
use uuid::Uuid;

use crate::app::settings;
use crate::auth::{Caller, WithAuditDetail};
use crate::error::ServerError;
use crate::extract::{Body, IfMatch, InEnvironment, Path, etag};
use crate::settings::{DEFINITIONS, SettingDefinition, ValueType, check, definition};
use crate::state::ServerState;

fn setting_view(definition: &SettingDefinition, records: &[SettingRecord]) -> Setting {
    let record = records.iter().find(|record| record.name == definition.name);
    let given = record.and_then(|record| check(definition, &record.value).ok());
    let protected_by = record.and_then(|record| record.protected_by.clone());
    Setting {
        name: definition.name.to_owned(),
        set: given.is_some(),
        value: given.unwrap_or_else(|| definition.default()),
        default: definition.default(),
        r#type: definition.form.name(),
        minimum: matches!(definition.form, ValueType::Integer | ValueType::Number).then_some(0),
        choices: match definition.form {
            ValueType::Choice(choices) => choices.iter().map(|one| (*one).to_owned()).collect(),
            _ => Vec::new(),
        },
        section: definition.section,
        doc: definition.doc.to_owned(),
        protected: protected_by.is_some(),
        protected_by,
    }
}

fn with_revision(
    definition: &SettingDefinition,
    records: &[SettingRecord],
) -> (HeaderMap, Json<Setting>) {
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
    let records = app.with_store(move |store| store.settings().list(environment.key)).await?;
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
    let records = app.with_store(move |store| store.settings().list(environment.key)).await?;
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
    let value = Some(&update.value);
    let records =
        settings::change(&app, &caller, &environment, definition, value, expected).await?;
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
    let records = settings::change(&app, &caller, &environment, definition, None, expected).await?;
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
    let protector = batch.protected_by.clone();
    let set = settings::protect(&app, &caller, &environment, batch).await?;
    let told: Vec<String> = set.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    let detail = format!("settings {}, protected by {protector}", told.join(", "));
    Ok(WithAuditDetail(detail, StatusCode::NO_CONTENT))
}
