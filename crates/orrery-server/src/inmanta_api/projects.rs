//! Projects and environments, v1 and v2.

use std::time::Duration;

use orrery_store::{
    EnvironmentChange, EnvironmentRecord, NewEnvironmentRecord, ProjectRecord, SettingRecord,
    Store, StoreError,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::request::{InmantaRequest, bad_request};
use super::response::{ApiResult, data, done, plain};
use super::settings;
use crate::access::Right;
use crate::compile_service::{self, CredentialChange};
use crate::error::ServerError;
use crate::routes::environments::{
    apply_credential_change, check_icon, check_repository, check_text, refuse_if_protected,
    resolve_repository,
};
use crate::routes::operations::begin;
use crate::state::ServerState;

/// Timeout for waiting; shorter than that of a request.
const WAIT_TIMEOUT: Duration = Duration::from_secs(50);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// ApiVersion of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApiVersion {
    V1,
    V2,
}

fn uuid_of(id: &[u8; 16]) -> String {
    Uuid::from_bytes(*id).to_string()
}

fn environment_json(
    generation: ApiVersion,
    record: &EnvironmentRecord,
    set: &[SettingRecord],
) -> Value {
    let mut shown = json!({
        "id": uuid_of(&record.uuid),
        "name": record.name,
        "repo_url": compile_service::mask_password(&record.repository),
        "repo_branch": record.branch,
        "settings": settings::values(set),
        "halted": record.halted,
        "is_marked_for_deletion": record.deleting,
        "description": record.description,
        "icon": record.icon,
    });
    let owner = match generation {
        ApiVersion::V1 => "project",
        ApiVersion::V2 => "project_id",
    };
    shown[owner] = json!(uuid_of(&record.project));
    shown
}

fn project_json(
    generation: ApiVersion,
    record: &ProjectRecord,
    environments: &[(EnvironmentRecord, Vec<SettingRecord>)],
) -> Value {
    let own = environments.iter().filter(|(environment, _)| environment.project == record.uuid);
    let own: Vec<Value> = match generation {
        ApiVersion::V1 => own.map(|(one, _)| json!(uuid_of(&one.uuid))).collect(),
        ApiVersion::V2 => own.map(|(one, set)| environment_json(generation, one, set)).collect(),
    };
    json!({"id": uuid_of(&record.uuid), "name": record.name, "environments": own})
}

/// Returns the environments visible to the caller, with their settings.
async fn visible(
    request: &InmantaRequest,
    project: Option<Uuid>,
) -> Result<Vec<(EnvironmentRecord, Vec<SettingRecord>)>, ServerError> {
    let caller = request.caller.clone();
    let seen = request
        .app
        .with_store(move |store| {
            let found = store.records().list_environments(project.as_ref().map(Uuid::as_bytes))?;
            let seen = found.into_iter().filter(|one| caller.may_in_environment(Right::View, one));
            seen.map(|one| {
                let set = store.records().settings(one.key)?;
                Ok((one, set))
            })
            .collect()
        })
        .await?;
    Ok(seen)
}

async fn projects(
    request: &InmantaRequest,
    generation: ApiVersion,
) -> Result<Vec<Value>, ServerError> {
    let environments = visible(request, None).await?;
    let found = request.app.with_store(|store| store.records().projects()).await?;
    let may_see = |record: &ProjectRecord| {
        request.caller.may_in_project(Right::View, &Uuid::from_bytes(record.uuid))
            || environments.iter().any(|(one, _)| one.project == record.uuid)
    };
    let seen = found.iter().filter(|record| may_see(record));
    Ok(seen.map(|record| project_json(generation, record, &environments)).collect())
}

async fn project(request: &InmantaRequest, generation: ApiVersion) -> Result<Value, ServerError> {
    let id = request.path_uuid("project")?;
    let found = request.app.with_store(move |store| store.records().project(id.as_bytes())).await?;
    Ok(project_json(generation, &found, &visible(request, Some(id)).await?))
}

async fn create_project_record(request: &InmantaRequest) -> Result<Value, ServerError> {
    request.allow_only(&["name", "project_id"])?;
    let name = checked_name(request.need_text("name")?)?;
    let id = request.uuid("project_id")?.unwrap_or_else(Uuid::new_v4);
    let now = request.app.now();
    let made = request
        .app
        .change(move |store| store.records().create_project(id.into_bytes(), &name, "", now))
        .await?;
    Ok(project_json(ApiVersion::V2, &made, &[]))
}

fn checked_name(name: &str) -> Result<String, ServerError> {
    match name.trim() {
        "" => Err(bad_request("the name must not be empty")),
        name if name.chars().count() > 255 => {
            Err(bad_request("the name is longer than 255 characters"))
        }
        name => Ok(name.to_owned()),
    }
}

async fn rename_project(request: &InmantaRequest) -> Result<(), ServerError> {
    request.allow_only(&["name"])?;
    let (id, name) = (request.path_uuid("project")?, checked_name(request.need_text("name")?)?);
    let now = request.app.now();
    request
        .app
        .change(move |store| {
            store.records().update_project(id.as_bytes(), None, Some(&name), None, now)
        })
        .await?;
    Ok(())
}

pub(super) async fn list_projects_v1(request: InmantaRequest) -> ApiResult {
    plain(json!({"projects": projects(&request, ApiVersion::V1).await?}))
}

pub(super) async fn list_projects(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["environment_details"])?;
    data(json!(projects(&request, ApiVersion::V2).await?))
}

pub(super) async fn get_project_v1(request: InmantaRequest) -> ApiResult {
    plain(json!({"project": project(&request, ApiVersion::V1).await?}))
}

pub(super) async fn get_project(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["environment_details"])?;
    data(project(&request, ApiVersion::V2).await?)
}

pub(super) async fn create_project_v1(request: InmantaRequest) -> ApiResult {
    plain(json!({"project": create_project_record(&request).await?}))
}

pub(super) async fn create_project(request: InmantaRequest) -> ApiResult {
    data(create_project_record(&request).await?)
}

pub(super) async fn modify_project_v1(request: InmantaRequest) -> ApiResult {
    rename_project(&request).await?;
    plain(json!({"project": project(&request, ApiVersion::V1).await?}))
}

pub(super) async fn modify_project(request: InmantaRequest) -> ApiResult {
    rename_project(&request).await?;
    data(project(&request, ApiVersion::V2).await?)
}

/// Deletes a project with all its environments.
pub(super) async fn delete_project(request: InmantaRequest) -> ApiResult {
    let id = request.path_uuid("project")?;
    let own = request
        .app
        .with_store(move |store| store.records().list_environments(Some(id.as_bytes())))
        .await?;
    for environment in &own {
        refuse_if_protected(&request.app, environment).await?;
    }
    for environment in own {
        delete_and_wait(&request, environment).await?;
    }
    let now = request.app.now();
    request
        .app
        .change(move |store| store.records().delete_project(id.as_bytes(), None, now))
        .await?;
    done()
}

/// Validates the fields of an environment.
fn check(
    app: &ServerState,
    name: Option<&str>,
    description: Option<&str>,
    icon: Option<&str>,
    repository: Option<&str>,
    branch: Option<&str>,
) -> Result<(), ServerError> {
    check_text("name", name, (1, 255))?;
    check_text("description", description, (0, 255))?;
    check_icon(icon)?;
    check_repository(app, repository, branch)
}

async fn create_environment_record(
    request: &InmantaRequest,
) -> Result<EnvironmentRecord, ServerError> {
    let project = request
        .uuid("project_id")?
        .ok_or_else(|| bad_request("Field 'project_id' is required."))?;
    request.caller.need_in_project(Right::Administer, &project)?;
    let id = request.uuid("environment_id")?.unwrap_or_else(Uuid::new_v4);
    let name = checked_name(request.need_text("name")?)?;
    let place = (request.text("repository")?, request.text("branch")?);
    if place.0.is_some() != place.1.is_some() {
        return Err(bad_request(
            "Repository and branch should be set together. Repository and branch should both be given, or none of them.",
        ));
    }
    let text =
        |name: &str| Ok::<_, ServerError>(request.text(name)?.unwrap_or_default().to_owned());
    let (repository, branch) = (text("repository")?, text("branch")?);
    let (description, icon) = (text("description")?, text("icon")?);
    let place = (Some(&*repository), Some(&*branch));
    check(&request.app, Some(&name), Some(&description), Some(&icon), place.0, place.1)?;
    let now = request.app.now();
    let (repository, credential) = compile_service::credential_change(&repository, "");
    let made = request
        .app
        .change(move |store| {
            let new = NewEnvironmentRecord {
                uuid: id.into_bytes(),
                project: project.as_bytes(),
                name: &name,
                description: &description,
                icon: &icon,
                repository: &repository,
                branch: &branch,
            };
            store.records().add_environment(&new, now)
        })
        .await?;
    apply_credential_change(&request.app, made.key, credential).await?;
    Ok(made)
}

pub(super) async fn create_environment_v1(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["project_id", "name", "repository", "branch", "environment_id"])?;
    let made = create_environment_record(&request).await?;
    plain(json!({"environment": environment_json(ApiVersion::V1, &made, &[])}))
}

pub(super) async fn create_environment(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[
        "project_id",
        "name",
        "repository",
        "branch",
        "environment_id",
        "description",
        "icon",
    ])?;
    data(environment_json(ApiVersion::V2, &create_environment_record(&request).await?, &[]))
}

pub(super) async fn list_environments_v1(request: InmantaRequest) -> ApiResult {
    let seen = visible(&request, None).await?;
    let shown: Vec<Value> =
        seen.iter().map(|(one, set)| environment_json(ApiVersion::V1, one, set)).collect();
    plain(json!({ "environments": shown }))
}

pub(super) async fn list_environments(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["details"])?;
    let seen = visible(&request, None).await?;
    let shown = seen.iter().map(|(one, set)| environment_json(ApiVersion::V2, one, set));
    data(Value::Array(shown.collect()))
}

async fn read_environment(
    request: &InmantaRequest,
    generation: ApiVersion,
) -> Result<Value, ServerError> {
    let id = request.path_uuid("environment")?;
    let (found, set) = request
        .app
        .with_store(move |store| {
            let found = store.records().environment(id.as_bytes())?;
            let set = store.records().settings(found.key)?;
            Ok((found, set))
        })
        .await?;
    Ok(environment_json(generation, &found, &set))
}

pub(super) async fn get_environment_v1(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["versions", "resources"])?;
    plain(json!({"environment": read_environment(&request, ApiVersion::V1).await?}))
}

pub(super) async fn get_environment(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["details"])?;
    data(read_environment(&request, ApiVersion::V2).await?)
}

async fn change_environment(request: &InmantaRequest) -> Result<(), ServerError> {
    let id = request.path_uuid("environment")?;
    let name = request.text("name")?.map(checked_name).transpose()?;
    let project = request.uuid("project_id")?;
    if let Some(project) = &project {
        request.caller.need_in_project(Right::Administer, project)?;
    }
    let text = |name: &str| Ok::<_, ServerError>(request.text(name)?.map(str::to_owned));
    let (repository, branch) = (text("repository")?, text("branch")?);
    let (description, icon) = (text("description")?, text("icon")?);
    check(
        &request.app,
        name.as_deref(),
        description.as_deref(),
        icon.as_deref(),
        repository.as_deref(),
        branch.as_deref(),
    )?;
    let now = request.app.now();
    let (changed, credential) = request
        .app
        .change(move |store| {
            let (repository, credential) =
                resolve_repository(store, id, repository.as_deref())?.unzip();
            let change = EnvironmentChange {
                project: project.as_ref().map(Uuid::as_bytes),
                name: name.as_deref(),
                description: description.as_deref(),
                icon: icon.as_deref(),
                repository: repository.as_deref(),
                branch: branch.as_deref(),
                model_project: None,
            };
            let changed = store.records().update_environment(id.as_bytes(), None, &change, now)?;
            Ok((changed.key, credential))
        })
        .await?;
    apply_credential_change(&request.app, changed, credential.unwrap_or(CredentialChange::Keep))
        .await
}

pub(super) async fn modify_environment_v1(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["name", "repository", "branch"])?;
    change_environment(&request).await?;
    plain(json!({"environment": read_environment(&request, ApiVersion::V1).await?}))
}

pub(super) async fn modify_environment(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["name", "repository", "branch", "project_id", "description", "icon"])?;
    change_environment(&request).await?;
    data(read_environment(&request, ApiVersion::V2).await?)
}

/// Waits for the process role. Clients expect the work to be complete when they receive the
/// response.
async fn wait_until(
    request: &InmantaRequest,
    is_done: impl Fn(&dyn Store) -> Result<bool, StoreError> + Copy + Send + 'static,
) -> Result<(), ServerError> {
    let until = tokio::time::Instant::now() + WAIT_TIMEOUT;
    while tokio::time::Instant::now() < until {
        if request.app.with_store(is_done).await? {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Err(ServerError::Unavailable("this takes longer, and goes on; look again later".to_owned()))
}

async fn delete_and_wait(
    request: &InmantaRequest,
    environment: EnvironmentRecord,
) -> Result<(), ServerError> {
    let (id, now) = (environment.uuid, request.app.now());
    request.app.change(move |store| store.records().begin_deletion(&id, now)).await?;
    drop(begin(&request.app, &environment, "delete", json!({})).await?);
    let is_gone = move |store: &dyn Store| match store.records().environment(&id) {
        Err(StoreError::NotFound { .. }) => Ok(true),
        found => found.map(|_| false),
    };
    wait_until(request, is_gone).await
}

pub(super) async fn delete_environment(request: InmantaRequest) -> ApiResult {
    let environment = request.environment()?.clone();
    refuse_if_protected(&request.app, &environment).await?;
    delete_and_wait(&request, environment).await?;
    done()
}

/// Deletes the contents of an environment; keeps it and its settings.
pub(super) async fn clear_environment(request: InmantaRequest) -> ApiResult {
    let environment = request.environment()?.clone();
    refuse_if_protected(&request.app, &environment).await?;
    let payload = json!({"resume": !environment.halted});
    let (_, _, operation) = begin(&request.app, &environment, "clear", payload).await?;
    let id = operation.0.id.into_bytes();
    let is_done = move |store: &dyn Store| match store.records().request(&id) {
        // The request is deleted with the contents.
        Err(StoreError::NotFound { .. }) => Ok(true),
        found => found.map(|request| request.finished.is_some()),
    };
    wait_until(&request, is_done).await?;
    done()
}

/// Halts an environment.
pub(super) async fn halt(request: InmantaRequest) -> ApiResult {
    set_halted(&request, true).await
}

pub(super) async fn resume(request: InmantaRequest) -> ApiResult {
    set_halted(&request, false).await
}

async fn set_halted(request: &InmantaRequest, halted: bool) -> ApiResult {
    request.allow_only(&[])?;
    let id = request.environment()?.uuid;
    let now = request.app.now();
    request.app.change(move |store| store.records().set_halted(&id, halted, now)).await?;
    done()
}
