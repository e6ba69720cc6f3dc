//! Environments: creation, changes, halt, clearing and deletion.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use orrery_api::{
    Actions, Environment, EnvironmentUpdate, FollowedBranch, NewEnvironment, Operation, Page,
    Transitioning,
};
use orrery_store::{BranchState, EnvironmentKey, EnvironmentRecord};
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;
use uuid::Uuid;

use super::{join_names, operations, permitted_actions, time};
use crate::access::Right;
use crate::app::environments::{self, create as create_environment, update as update_environment};
use crate::auth::{Caller, WithAuditDetail};
use crate::error::ServerError;
use crate::extract::{
    Body, IfMatch, InEnvironment, Path, Query, encode_cursor, etag, page_limit, parse_cursor,
    unchanged,
};
use crate::settings::EnvironmentSettings;
use crate::state::ServerState;

/// Returns the path of an environment.
pub(super) fn path_of(environment: &EnvironmentRecord) -> String {
    format!("/api/v1/environments/{}", environment.uuid)
}

/// Inputs for the actions of an environment, beside its record.
#[derive(Clone, Debug, Default)]
struct EnvironmentContext {
    protected: bool,
    /// True if a version is released.
    released: bool,
    followed: Option<BranchState>,
}

fn branch_view(followed: BranchState) -> FollowedBranch {
    let given = |text: String| Some(text).filter(|text| !text.is_empty());
    FollowedBranch {
        commit: given(followed.seen),
        compiled: given(followed.compiled),
        checked: followed.checked.map(time),
        next_check: (followed.due.0 != i64::MAX).then(|| time(followed.due)),
        error: given(followed.error),
    }
}

fn environment_view(
    caller: &Caller,
    record: EnvironmentRecord,
    context: EnvironmentContext,
) -> Environment {
    let EnvironmentContext { protected, released, followed } = context;
    let path = path_of(&record);
    let mut actions = Actions::new();
    let mut offer = |name: &str| actions.insert(name.to_owned(), format!("{path}/{name}"));
    if !record.deleting {
        offer(if record.halted { "resume" } else { "halt" });
        if !record.halted && released {
            offer("deploy");
            offer("repair");
        }
        if !protected {
            offer("clear");
        }
    }
    let actions = permitted_actions(caller, &record, actions);
    let (transitioning, message) = match &*record.problem {
        _ if record.deleting => (Transitioning::Yes, "it is being deleted".to_owned()),
        _ if record.halted => (Transitioning::No, "it is halted".to_owned()),
        "" => (Transitioning::No, String::new()),
        trouble => (Transitioning::Error, trouble.to_owned()),
    };
    Environment {
        id: record.uuid.uuid(),
        project: record.project.uuid(),
        project_name: record.project_name,
        name: record.name,
        description: record.description,
        icon: record.icon,
        repository: orrery_compile_service::mask_password(&record.repository),
        branch: record.branch,
        followed: followed.map(branch_view),
        model_project: record.model_project,
        created: time(record.created),
        halted: record.halted,
        protected,
        transitioning,
        transitioning_message: message,
        actions,
    }
}

async fn with_settings(
    app: &ServerState,
    caller: &Caller,
    record: EnvironmentRecord,
) -> Result<(HeaderMap, Json<Environment>), ServerError> {
    let key = record.key;
    let (settings, released, followed) = app
        .with_store(move |store| {
            Ok((
                store.settings().list(key)?,
                store.versions().has_release(key)?,
                store.branches().get(key)?,
            ))
        })
        .await?;
    let protected = EnvironmentSettings::from_records(&settings).protected_environment;
    let etag = etag(record.revision);
    Ok((
        etag,
        Json(environment_view(
            caller,
            record,
            EnvironmentContext { protected, released, followed },
        )),
    ))
}

/// Filter of the list of environments.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Project.
    project: Option<Uuid>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

/// Lists the environments visible to the caller.
#[utoipa::path(get, path = "/api/v1/environments", tag = "environments", params(Filter),
    responses((status = 200, description = "A page, by project and name", body = Page<Environment>)))]
pub(super) async fn list(
    State(app): State<ServerState>,
    caller: Caller,
    Query(filter): Query<Filter>,
) -> Result<Json<Page<Environment>>, ServerError> {
    let (visible, next) = visible_page(&app, &caller, &filter).await?;
    Ok(Json(Page { items: visible.into_iter().map(|(_, view)| view).collect(), next }))
}

/// Reads a page of the environments visible to the caller, and its cursor.
pub(super) async fn visible_page(
    app: &ServerState,
    caller: &Caller,
    filter: &Filter,
) -> Result<(Vec<(EnvironmentRecord, Environment)>, Option<String>), ServerError> {
    let limit = page_limit(filter.limit)?;
    let after: Option<(String, String)> = filter.after.as_deref().map(parse_cursor).transpose()?;
    let project = filter.project;
    let found = app
        .with_store(move |store| {
            let found = store.environments().list(project.map(Into::into))?;
            let settings = store.settings().of_all_environments("protected_environment")?;
            Ok((
                found,
                settings,
                store.versions().environments_with_release()?,
                store.branches().list()?,
            ))
        })
        .await?;
    let (found, settings, released, followed) = found;
    let mut followed: BTreeMap<EnvironmentKey, BranchState> =
        followed.into_iter().map(|one| (one.environment, one)).collect();
    let released: BTreeSet<EnvironmentKey> = released.into_iter().collect();
    let protected: BTreeSet<EnvironmentKey> = settings
        .into_iter()
        .filter(|(_, value)| *value == json!(true))
        .map(|(key, _)| key)
        .collect();
    let mut visible: Vec<EnvironmentRecord> = found
        .into_iter()
        .filter(|record| {
            caller.may_in_environment(Right::View, record)
                && after.as_ref().is_none_or(|(project, name)| {
                    (&record.project_name, &record.name) > (project, name)
                })
        })
        .collect();
    let next = (visible.len() > limit).then(|| {
        let last = &visible[limit - 1];
        encode_cursor(&(&last.project_name, &last.name))
    });
    visible.truncate(limit);
    let views = visible.into_iter().map(|record| {
        let key = &record.key;
        let context = EnvironmentContext {
            protected: protected.contains(key),
            released: released.contains(key),
            followed: followed.remove(key),
        };
        (record.clone(), environment_view(caller, record, context))
    });
    Ok((views.collect(), next))
}

/// Creates an environment. Requires administration rights in its project.
#[utoipa::path(post, path = "/api/v1/environments", tag = "environments", request_body = NewEnvironment,
    responses((status = 201, description = "Created", body = Environment)))]
pub(super) async fn create(
    State(app): State<ServerState>,
    caller: Caller,
    Body(new): Body<NewEnvironment>,
) -> Result<WithAuditDetail<(StatusCode, HeaderMap, Json<Environment>)>, ServerError> {
    let made = create_environment(&app, &caller, new).await?;
    let mut headers = etag(made.revision);
    if let Ok(location) = HeaderValue::from_str(&path_of(&made)) {
        headers.insert(header::LOCATION, location);
    }
    let detail = format!("environment {} ({})", audit_text(&made), made.uuid.uuid());
    Ok(WithAuditDetail(
        detail,
        (
            StatusCode::CREATED,
            headers,
            Json(environment_view(&caller, made, EnvironmentContext::default())),
        ),
    ))
}

fn audit_text(record: &EnvironmentRecord) -> String {
    format!("{}/{}", record.project_name, record.name)
}

/// Returns an environment.
#[utoipa::path(get, path = "/api/v1/environments/{environment}", tag = "environments", params(("environment" = Uuid, Path)),
    responses((status = 200, description = "The environment", body = Environment)))]
pub(super) async fn get(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(known): InEnvironment,
) -> Result<(HeaderMap, Json<Environment>), ServerError> {
    // Not from the cache: clients compare later changes with this state.
    let found = app.with_store(move |store| store.environments().get(known.uuid)).await?;
    with_settings(&app, &caller, found).await
}

/// Changes an environment.
#[utoipa::path(patch, path = "/api/v1/environments/{environment}", tag = "environments",
    params(("environment" = Uuid, Path)),
    request_body = EnvironmentUpdate, responses((status = 200, description = "Current state", body = Environment)))]
pub(super) async fn update(
    State(app): State<ServerState>,
    caller: Caller,
    Path(environment): Path<Uuid>,
    IfMatch(expected): IfMatch,
    Body(update): Body<EnvironmentUpdate>,
) -> Result<WithAuditDetail<(HeaderMap, Json<Environment>)>, ServerError> {
    let given = [
        ("project", update.project.is_some()),
        ("name", update.name.is_some()),
        ("description", update.description.is_some()),
        ("icon", update.icon.is_some()),
        ("repository", update.repository.is_some()),
        ("branch", update.branch.is_some()),
        ("model_project", update.model_project.is_some()),
    ];
    let changed = update_environment(&app, &caller, environment, expected, update).await?;
    let mut detail =
        format!("environment {}: {} changed", audit_text(&changed), join_names(&given));
    if given.iter().any(|(name, is)| *is && matches!(*name, "repository" | "branch")) {
        let repository = orrery_compile_service::mask_password(&changed.repository);
        detail += &format!("; compiled from {repository:?}, branch {:?}", changed.branch);
    }
    if let Some((_, true)) = given.iter().find(|(name, _)| *name == "model_project") {
        detail += &format!("; bound to the project {:?}", changed.model_project);
    }
    Ok(WithAuditDetail(detail, with_settings(&app, &caller, changed).await?))
}

/// Halts an environment. Running handlers finish; nothing new starts.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/halt", tag = "environments", params(("environment" = Uuid, Path)),
    responses((status = 200, description = "Halted", body = Environment)))]
pub(super) async fn halt(
    State(app): State<ServerState>,
    caller: Caller,
    Path(environment): Path<Uuid>,
) -> Result<WithAuditDetail<(HeaderMap, Json<Environment>)>, ServerError> {
    set_halted(&app, &caller, environment, true).await
}

/// Resumes a halted environment.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/resume", tag = "environments", params(("environment" = Uuid, Path)),
    responses((status = 200, description = "Resumed", body = Environment)))]
pub(super) async fn resume(
    State(app): State<ServerState>,
    caller: Caller,
    Path(environment): Path<Uuid>,
) -> Result<WithAuditDetail<(HeaderMap, Json<Environment>)>, ServerError> {
    set_halted(&app, &caller, environment, false).await
}

async fn set_halted(
    app: &ServerState,
    caller: &Caller,
    environment: Uuid,
    halted: bool,
) -> Result<WithAuditDetail<(HeaderMap, Json<Environment>)>, ServerError> {
    let changed = environments::set_halted(app, environment, halted).await?;
    let word = if halted { "halted" } else { "resumed" };
    let detail = format!("environment {} {word}", audit_text(&changed));
    Ok(WithAuditDetail(detail, with_settings(app, caller, changed).await?))
}

/// Deletes the contents of an environment, but not the environment and its settings.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/clear", tag = "environments", params(("environment" = Uuid, Path)),
    responses((status = 202, description = "Started; the operation reports the end", body = Operation)))]
pub(super) async fn clear(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
) -> Result<WithAuditDetail<(StatusCode, HeaderMap, Json<Operation>)>, ServerError> {
    let begun = environments::begin_clearing(&app, &environment).await?;
    let begun = operations::accepted(&environment, begun);
    Ok(WithAuditDetail(format!("environment {} is being cleared", audit_text(&environment)), begun))
}

/// Deletes an environment with its contents. It is halted at once; when the operation has
/// disappeared, the environment is deleted.
#[utoipa::path(delete, path = "/api/v1/environments/{environment}", tag = "environments",
    params(("environment" = Uuid, Path)),
    responses((status = 202, description = "Started", body = Operation)))]
pub(super) async fn delete(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    IfMatch(expected): IfMatch,
) -> Result<WithAuditDetail<(StatusCode, HeaderMap, Json<Operation>)>, ServerError> {
    unchanged(expected, environment.revision)?;
    let begun = environments::begin_deletion(&app, &environment).await?;
    let begun = operations::accepted(&environment, begun);
    Ok(WithAuditDetail(format!("environment {} is being deleted", audit_text(&environment)), begun))
}
