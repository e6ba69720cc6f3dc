//! Projects and environments, in both generations.

use std::time::Duration;

use orrery_store::{
    EnvironmentChange, EnvironmentRecord, NewEnvironment, ProjectRecord, SettingRecord, Store,
    StoreError,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::answer::{Answer, data, done, plain};
use super::call::{Call, bad};
use super::settings;
use crate::access::Right;
use crate::app::App;
use crate::compiling::{self, CredentialChange};
use crate::problem::ServerError;
use crate::routes::environments::{
    check_icon, check_repository, check_text, keep_credential, meant, refuse_if_protected,
};
use crate::routes::operations::begin;

/// Somewhat less than a request may take.
const DONE_WITHIN: Duration = Duration::from_secs(50);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Which generation of the paths is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Generation {
    First,
    Second,
}

fn uuid_of(id: &[u8; 16]) -> String {
    Uuid::from_bytes(*id).to_string()
}

fn shown(generation: Generation, record: &EnvironmentRecord, set: &[SettingRecord]) -> Value {
    let mut shown = json!({
        "id": uuid_of(&record.uuid),
        "name": record.name,
        "repo_url": compiling::without_password(&record.repository),
        "repo_branch": record.branch,
        "settings": settings::values(set),
        "halted": record.halted,
        "is_marked_for_deletion": record.deleting,
        "description": record.description,
        "icon": record.icon,
    });
    let owner = match generation {
        Generation::First => "project",
        Generation::Second => "project_id",
    };
    shown[owner] = json!(uuid_of(&record.project));
    shown
}

fn shown_project(
    generation: Generation,
    record: &ProjectRecord,
    environments: &[(EnvironmentRecord, Vec<SettingRecord>)],
) -> Value {
    let own = environments.iter().filter(|(environment, _)| environment.project == record.uuid);
    let own: Vec<Value> = match generation {
        Generation::First => own.map(|(one, _)| json!(uuid_of(&one.uuid))).collect(),
        Generation::Second => own.map(|(one, set)| shown(generation, one, set)).collect(),
    };
    json!({"id": uuid_of(&record.uuid), "name": record.name, "environments": own})
}

/// The environments that the caller may see, with what is set in them.
async fn visible(
    call: &Call,
    project: Option<Uuid>,
) -> Result<Vec<(EnvironmentRecord, Vec<SettingRecord>)>, ServerError> {
    let caller = call.caller.clone();
    call.app
        .with_store(move |store| {
            let found = store.records().list_environments(project.as_ref().map(Uuid::as_bytes))?;
            let seen = found.into_iter().filter(|one| caller.may_in_environment(Right::View, one));
            seen.map(|one| {
                let set = store.records().settings(one.key)?;
                Ok((one, set))
            })
            .collect()
        })
        .await
}

async fn projects(call: &Call, generation: Generation) -> Result<Vec<Value>, ServerError> {
    let environments = visible(call, None).await?;
    let found = call.app.with_store(|store| store.records().projects()).await?;
    let may_see = |record: &ProjectRecord| {
        call.caller.may_in_project(Right::View, &Uuid::from_bytes(record.uuid))
            || environments.iter().any(|(one, _)| one.project == record.uuid)
    };
    let seen = found.iter().filter(|record| may_see(record));
    Ok(seen.map(|record| shown_project(generation, record, &environments)).collect())
}

async fn project(call: &Call, generation: Generation) -> Result<Value, ServerError> {
    let id = call.path_uuid("project")?;
    let found = call.app.with_store(move |store| store.records().project(id.as_bytes())).await?;
    Ok(shown_project(generation, &found, &visible(call, Some(id)).await?))
}

async fn make_project(call: &Call) -> Result<Value, ServerError> {
    call.only(&["name", "project_id"])?;
    let name = checked_name(call.need_text("name")?)?;
    let id = call.uuid("project_id")?.unwrap_or_else(Uuid::new_v4);
    let now = call.app.now();
    let made = call
        .app
        .change(move |store| store.records().create_project(id.into_bytes(), &name, "", now))
        .await?;
    Ok(shown_project(Generation::Second, &made, &[]))
}

fn checked_name(name: &str) -> Result<String, ServerError> {
    match name.trim() {
        "" => Err(bad("the name must not be empty")),
        name if name.chars().count() > 255 => Err(bad("the name is longer than 255 characters")),
        name => Ok(name.to_owned()),
    }
}

async fn rename_project(call: &Call) -> Result<(), ServerError> {
    call.only(&["name"])?;
    let (id, name) = (call.path_uuid("project")?, checked_name(call.need_text("name")?)?);
    let now = call.app.now();
    call.app
        .change(move |store| {
            store.records().update_project(id.as_bytes(), None, Some(&name), None, now)
        })
        .await?;
    Ok(())
}

pub(super) async fn list_projects_v1(call: Call) -> Answer {
    plain(json!({"projects": projects(&call, Generation::First).await?}))
}

pub(super) async fn list_projects(call: Call) -> Answer {
    call.only(&["environment_details"])?;
    data(json!(projects(&call, Generation::Second).await?))
}

pub(super) async fn get_project_v1(call: Call) -> Answer {
    plain(json!({"project": project(&call, Generation::First).await?}))
}

pub(super) async fn get_project(call: Call) -> Answer {
    call.only(&["environment_details"])?;
    data(project(&call, Generation::Second).await?)
}

pub(super) async fn create_project_v1(call: Call) -> Answer {
    plain(json!({"project": make_project(&call).await?}))
}

pub(super) async fn create_project(call: Call) -> Answer {
    data(make_project(&call).await?)
}

pub(super) async fn modify_project_v1(call: Call) -> Answer {
    rename_project(&call).await?;
    plain(json!({"project": project(&call, Generation::First).await?}))
}

pub(super) async fn modify_project(call: Call) -> Answer {
    rename_project(&call).await?;
    data(project(&call, Generation::Second).await?)
}

/// Deletes a project with all its environments.
pub(super) async fn delete_project(call: Call) -> Answer {
    let id = call.path_uuid("project")?;
    let own = call
        .app
        .with_store(move |store| store.records().list_environments(Some(id.as_bytes())))
        .await?;
    for environment in &own {
        refuse_if_protected(&call.app, environment).await?;
    }
    for environment in own {
        erase(&call, environment).await?;
    }
    let now = call.app.now();
    call.app.change(move |store| store.records().delete_project(id.as_bytes(), None, now)).await?;
    done()
}

/// The rules for what people say about an environment.
fn check(
    app: &App,
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

async fn make_environment(call: &Call) -> Result<EnvironmentRecord, ServerError> {
    let project = call.uuid("project_id")?.ok_or_else(|| bad("Field 'project_id' is required."))?;
    call.caller.need_in_project(Right::Administer, &project)?;
    let id = call.uuid("environment_id")?.unwrap_or_else(Uuid::new_v4);
    let name = checked_name(call.need_text("name")?)?;
    let place = (call.text("repository")?, call.text("branch")?);
    if place.0.is_some() != place.1.is_some() {
        return Err(bad(
            "Repository and branch should be set together. Repository and branch should both be given, or none of them.",
        ));
    }
    let text = |name: &str| Ok::<_, ServerError>(call.text(name)?.unwrap_or_default().to_owned());
    let (repository, branch) = (text("repository")?, text("branch")?);
    let (description, icon) = (text("description")?, text("icon")?);
    let place = (Some(&*repository), Some(&*branch));
    check(&call.app, Some(&name), Some(&description), Some(&icon), place.0, place.1)?;
    let now = call.app.now();
    let (repository, credential) = compiling::credential_change(&repository, "");
    let made = call
        .app
        .change(move |store| {
            let new = NewEnvironment {
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
    keep_credential(&call.app, made.key, credential).await?;
    Ok(made)
}

pub(super) async fn create_environment_v1(call: Call) -> Answer {
    call.only(&["project_id", "name", "repository", "branch", "environment_id"])?;
    let made = make_environment(&call).await?;
    plain(json!({"environment": shown(Generation::First, &made, &[])}))
}

pub(super) async fn create_environment(call: Call) -> Answer {
    call.only(&[
        "project_id",
        "name",
        "repository",
        "branch",
        "environment_id",
        "description",
        "icon",
    ])?;
    data(shown(Generation::Second, &make_environment(&call).await?, &[]))
}

pub(super) async fn list_environments_v1(call: Call) -> Answer {
    let seen = visible(&call, None).await?;
    let shown: Vec<Value> =
        seen.iter().map(|(one, set)| shown(Generation::First, one, set)).collect();
    plain(json!({ "environments": shown }))
}

pub(super) async fn list_environments(call: Call) -> Answer {
    call.only(&["details"])?;
    let seen = visible(&call, None).await?;
    let shown = seen.iter().map(|(one, set)| shown(Generation::Second, one, set));
    data(Value::Array(shown.collect()))
}

async fn as_it_is(call: &Call, generation: Generation) -> Result<Value, ServerError> {
    let id = call.path_uuid("environment")?;
    let (found, set) = call
        .app
        .with_store(move |store| {
            let found = store.records().environment(id.as_bytes())?;
            let set = store.records().settings(found.key)?;
            Ok((found, set))
        })
        .await?;
    Ok(shown(generation, &found, &set))
}

pub(super) async fn get_environment_v1(call: Call) -> Answer {
    call.only(&["versions", "resources"])?;
    plain(json!({"environment": as_it_is(&call, Generation::First).await?}))
}

pub(super) async fn get_environment(call: Call) -> Answer {
    call.only(&["details"])?;
    data(as_it_is(&call, Generation::Second).await?)
}

async fn change_environment(call: &Call) -> Result<(), ServerError> {
    let id = call.path_uuid("environment")?;
    let name = call.text("name")?.map(checked_name).transpose()?;
    let project = call.uuid("project_id")?;
    if let Some(project) = &project {
        call.caller.need_in_project(Right::Administer, project)?;
    }
    let text = |name: &str| Ok::<_, ServerError>(call.text(name)?.map(str::to_owned));
    let (repository, branch) = (text("repository")?, text("branch")?);
    let (description, icon) = (text("description")?, text("icon")?);
    check(
        &call.app,
        name.as_deref(),
        description.as_deref(),
        icon.as_deref(),
        repository.as_deref(),
        branch.as_deref(),
    )?;
    let now = call.app.now();
    let (changed, credential) = call
        .app
        .change(move |store| {
            let (repository, credential) = meant(store, id, repository.as_deref())?.unzip();
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
    keep_credential(&call.app, changed, credential.unwrap_or(CredentialChange::Keep)).await
}

pub(super) async fn modify_environment_v1(call: Call) -> Answer {
    call.only(&["name", "repository", "branch"])?;
    change_environment(&call).await?;
    plain(json!({"environment": as_it_is(&call, Generation::First).await?}))
}

pub(super) async fn modify_environment(call: Call) -> Answer {
    call.only(&["name", "repository", "branch", "project_id", "description", "icon"])?;
    change_environment(&call).await?;
    data(as_it_is(&call, Generation::Second).await?)
}

/// Waits until the process role has done something. Clients of these paths expect it to be done when they are answered.
async fn wait_until(
    call: &Call,
    is_done: impl Fn(&dyn Store) -> Result<bool, StoreError> + Copy + Send + 'static,
) -> Result<(), ServerError> {
    let until = tokio::time::Instant::now() + DONE_WITHIN;
    while tokio::time::Instant::now() < until {
        if call.app.with_store(is_done).await? {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Err(ServerError::Unavailable("this takes longer, and goes on; look again later".to_owned()))
}

async fn erase(call: &Call, environment: EnvironmentRecord) -> Result<(), ServerError> {
    let (id, now) = (environment.uuid, call.app.now());
    call.app.change(move |store| store.records().begin_deletion(&id, now)).await?;
    drop(begin(&call.app, &environment, "delete", json!({})).await?);
    let is_gone = move |store: &dyn Store| match store.records().environment(&id) {
        Err(StoreError::NotFound { .. }) => Ok(true),
        found => found.map(|_| false),
    };
    wait_until(call, is_gone).await
}

pub(super) async fn delete_environment(call: Call) -> Answer {
    let environment = call.environment()?.clone();
    refuse_if_protected(&call.app, &environment).await?;
    erase(&call, environment).await?;
    done()
}

/// Empties an environment; it itself and its settings stay.
pub(super) async fn clear_environment(call: Call) -> Answer {
    let environment = call.environment()?.clone();
    refuse_if_protected(&call.app, &environment).await?;
    let payload = json!({"resume": !environment.halted});
    let (_, _, operation) = begin(&call.app, &environment, "clear", payload).await?;
    let id = operation.0.id.into_bytes();
    let is_done = move |store: &dyn Store| match store.records().request(&id) {
        // It goes with all that it asked to go.
        Err(StoreError::NotFound { .. }) => Ok(true),
        found => found.map(|request| request.finished.is_some()),
    };
    wait_until(&call, is_done).await?;
    done()
}

/// Stops everything in an environment.
pub(super) async fn halt(call: Call) -> Answer {
    set_halted(&call, true).await
}

pub(super) async fn resume(call: Call) -> Answer {
    set_halted(&call, false).await
}

async fn set_halted(call: &Call, halted: bool) -> Answer {
    call.only(&[])?;
    let id = call.environment()?.uuid;
    let now = call.app.now();
    call.app.change(move |store| store.records().set_halted(&id, halted, now)).await?;
    done()
}
