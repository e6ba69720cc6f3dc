//! Projects and environments, v1 and v2.

use std::time::Duration;

use orrery_api::{EnvironmentUpdate, NewEnvironment, NewProject, ProjectUpdate};
use orrery_model::Id;
use orrery_server::app;
use orrery_server::app::environments;
use orrery_server::{Right, ServerError};
use orrery_store::{EnvironmentRecord, ProjectRecord, SettingRecord, Store, StoreError};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::request::{InmantaRequest, bad_request};
use crate::response::{ApiResult, data, done, plain};
use crate::settings;

/// Timeout for waiting; shorter than that of a request.
const WAIT_TIMEOUT: Duration = Duration::from_secs(50);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Version of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApiVersion {
    V1,
    V2,
}

fn uuid_of<K>(id: Id<K>) -> String {
    id.uuid().to_string()
}

fn environment_json(
    generation: ApiVersion,
    record: &EnvironmentRecord,
    set: &[SettingRecord],
) -> Value {
    let mut shown = json!({
        "id": uuid_of(record.uuid),
        "name": record.name,
        "repo_url": orrery_compile_service::mask_password(&record.repository),
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
    shown[owner] = json!(uuid_of(record.project));
    shown
}

fn project_json(
    generation: ApiVersion,
    record: &ProjectRecord,
    environments: &[(EnvironmentRecord, Vec<SettingRecord>)],
) -> Value {
    let own = environments.iter().filter(|(environment, _)| environment.project == record.uuid);
    let own: Vec<Value> = match generation {
        ApiVersion::V1 => own.map(|(one, _)| json!(uuid_of(one.uuid))).collect(),
        ApiVersion::V2 => own.map(|(one, set)| environment_json(generation, one, set)).collect(),
    };
    json!({"id": uuid_of(record.uuid), "name": record.name, "environments": own})
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
            let found = store.environments().list(project.map(Into::into))?;
            let seen = found.into_iter().filter(|one| caller.may_in_environment(Right::View, one));
            seen.map(|one| {
                let set = store.settings().list(one.key)?;
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
    let found = request.app.with_store(|store| store.projects().list()).await?;
    let may_see = |record: &ProjectRecord| {
        request.caller.may_in_project(Right::View, &record.uuid.uuid())
            || environments.iter().any(|(one, _)| one.project == record.uuid)
    };
    let seen = found.iter().filter(|record| may_see(record));
    Ok(seen.map(|record| project_json(generation, record, &environments)).collect())
}

async fn project(request: &InmantaRequest, generation: ApiVersion) -> Result<Value, ServerError> {
    let id = request.path_uuid("project")?;
    let found = request.app.with_store(move |store| store.projects().get(id.into())).await?;
    Ok(project_json(generation, &found, &visible(request, Some(id)).await?))
}

async fn create_project_record(request: &InmantaRequest) -> Result<Value, ServerError> {
    request.allow_only(&["name", "project_id"])?;
    let name = checked_name(request.need_text("name")?)?;
    let id = request.uuid("project_id")?.unwrap_or_else(Uuid::new_v4);
    let new = NewProject { id: Some(id), name, description: String::new() };
    let made = app::projects::create(&request.app, new).await?;
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
    let update = ProjectUpdate { name: Some(name), description: None };
    app::projects::update(&request.app, id, None, update).await.map(drop)
}

pub(crate) async fn list_projects_v1(request: InmantaRequest) -> ApiResult {
    plain(json!({"projects": projects(&request, ApiVersion::V1).await?}))
}

pub(crate) async fn list_projects(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["environment_details"])?;
    data(json!(projects(&request, ApiVersion::V2).await?))
}

pub(crate) async fn get_project_v1(request: InmantaRequest) -> ApiResult {
    plain(json!({"project": project(&request, ApiVersion::V1).await?}))
}

pub(crate) async fn get_project(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["environment_details"])?;
    data(project(&request, ApiVersion::V2).await?)
}

pub(crate) async fn create_project_v1(request: InmantaRequest) -> ApiResult {
    plain(json!({"project": create_project_record(&request).await?}))
}

pub(crate) async fn create_project(request: InmantaRequest) -> ApiResult {
    data(create_project_record(&request).await?)
}

pub(crate) async fn modify_project_v1(request: InmantaRequest) -> ApiResult {
    rename_project(&request).await?;
    plain(json!({"project": project(&request, ApiVersion::V1).await?}))
}

pub(crate) async fn modify_project(request: InmantaRequest) -> ApiResult {
    rename_project(&request).await?;
    data(project(&request, ApiVersion::V2).await?)
}

/// Deletes a project with all its environments.
pub(crate) async fn delete_project(request: InmantaRequest) -> ApiResult {
    let id = request.path_uuid("project")?;
    let own =
        request.app.with_store(move |store| store.environments().list(Some(id.into()))).await?;
    for environment in &own {
        environments::refuse_if_protected(&request.app, environment).await?;
    }
    for environment in own {
        delete_and_wait(&request, environment).await?;
    }
    app::projects::delete(&request.app, id, None).await?;
    done()
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
    let new = NewEnvironment { id: Some(id), project, name, description, icon, repository, branch };
    environments::create(&request.app, &request.caller, new).await
}

pub(crate) async fn create_environment_v1(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["project_id", "name", "repository", "branch", "environment_id"])?;
    let made = create_environment_record(&request).await?;
    plain(json!({"environment": environment_json(ApiVersion::V1, &made, &[])}))
}

pub(crate) async fn create_environment(request: InmantaRequest) -> ApiResult {
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

pub(crate) async fn list_environments_v1(request: InmantaRequest) -> ApiResult {
    let seen = visible(&request, None).await?;
    let shown: Vec<Value> =
        seen.iter().map(|(one, set)| environment_json(ApiVersion::V1, one, set)).collect();
    plain(json!({ "environments": shown }))
}

pub(crate) async fn list_environments(request: InmantaRequest) -> ApiResult {
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
            let found = store.environments().get(id.into())?;
            let set = store.settings().list(found.key)?;
            Ok((found, set))
        })
        .await?;
    Ok(environment_json(generation, &found, &set))
}

pub(crate) async fn get_environment_v1(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["versions", "resources"])?;
    plain(json!({"environment": read_environment(&request, ApiVersion::V1).await?}))
}

pub(crate) async fn get_environment(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["details"])?;
    data(read_environment(&request, ApiVersion::V2).await?)
}

async fn change_environment(request: &InmantaRequest) -> Result<(), ServerError> {
    let id = request.path_uuid("environment")?;
    let name = request.text("name")?.map(checked_name).transpose()?;
    let project = request.uuid("project_id")?;
    let text = |name: &str| Ok::<_, ServerError>(request.text(name)?.map(str::to_owned));
    let (repository, branch) = (text("repository")?, text("branch")?);
    let (description, icon) = (text("description")?, text("icon")?);
    let update = EnvironmentUpdate {
        project,
        name,
        description,
        icon,
        repository,
        branch,
        ..EnvironmentUpdate::default()
    };
    environments::update(&request.app, &request.caller, id, None, update).await.map(drop)
}

pub(crate) async fn modify_environment_v1(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["name", "repository", "branch"])?;
    change_environment(&request).await?;
    plain(json!({"environment": read_environment(&request, ApiVersion::V1).await?}))
}

pub(crate) async fn modify_environment(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["name", "repository", "branch", "project_id", "description", "icon"])?;
    change_environment(&request).await?;
    data(read_environment(&request, ApiVersion::V2).await?)
}

/// Waits for the process role. Clients expect the work to be complete when they receive the
/// response.
async fn wait_until(
    request: &InmantaRequest,
    is_done: impl Fn(&Store) -> Result<bool, StoreError> + Copy + Send + 'static,
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
    let id = environment.uuid;
    drop(environments::begin_deletion(&request.app, &environment).await?);
    let is_gone = move |store: &Store| match store.environments().get(id) {
        Err(StoreError::NotFound { .. }) => Ok(true),
        found => found.map(|_| false),
    };
    wait_until(request, is_gone).await
}

pub(crate) async fn delete_environment(request: InmantaRequest) -> ApiResult {
    let environment = request.environment()?.clone();
    delete_and_wait(&request, environment).await?;
    done()
}

/// Deletes the contents of an environment; keeps it and its settings.
pub(crate) async fn clear_environment(request: InmantaRequest) -> ApiResult {
    let environment = request.environment()?.clone();
    let id = environments::begin_clearing(&request.app, &environment).await?.uuid;
    let is_done = move |store: &Store| match store.requests().get(id) {
        // The request is deleted with the contents.
        Err(StoreError::NotFound { .. }) => Ok(true),
        found => found.map(|request| request.finished.is_some()),
    };
    wait_until(&request, is_done).await?;
    done()
}

/// Halts an environment.
pub(crate) async fn halt(request: InmantaRequest) -> ApiResult {
    set_halted(&request, true).await
}

pub(crate) async fn resume(request: InmantaRequest) -> ApiResult {
    set_halted(&request, false).await
}

async fn set_halted(request: &InmantaRequest, halted: bool) -> ApiResult {
    request.allow_only(&[])?;
    let id = request.environment()?.uuid.uuid();
    environments::set_halted(&request.app, id, halted).await?;
    done()
}
