//! Environments: creation, changes, halt, clearing and deletion.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orrery_api::{EnvironmentUpdate, NewEnvironment};
use orrery_compile_service::{CredentialChange, RepositoryError};
use orrery_store::{
    EnvironmentChange, EnvironmentKey, EnvironmentRecord, NewEnvironmentRecord, RequestKind,
    RequestRecord, Store, StoreError,
};
use uuid::Uuid;

use super::operations;
use crate::access::Right;
use crate::auth::Caller;
use crate::error::ServerError;
use crate::services::Services;
use crate::settings::EnvironmentSettings;
use crate::state::ServerState;

const ICON_MAX: usize = 64 * 1024;
const ICON_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/webp", "image/svg+xml"];

/// Creates an environment. Requires administration rights in its project.
pub async fn create(
    app: &ServerState,
    caller: &Caller,
    new: NewEnvironment,
) -> Result<EnvironmentRecord, ServerError> {
    caller.need_in_project(Right::Administer, &new.project)?;
    check_text("name", Some(&new.name), (1, 255))?;
    check_text("description", Some(&new.description), (0, 255))?;
    check_icon(Some(&new.icon))?;
    check_repository(app, Some(&new.repository), Some(&new.branch))?;
    let id = new.id.unwrap_or_else(Uuid::new_v4);
    let now = app.now();
    let (repository, credential) = orrery_compile_service::credential_change(&new.repository, "");
    let created = app
        .change(move |store| {
            let new = NewEnvironmentRecord {
                uuid: id.into(),
                project: new.project.into(),
                name: &new.name,
                description: &new.description,
                icon: &new.icon,
                repository: &repository,
                branch: &new.branch,
            };
            store.environments().add(&new, now)
        })
        .await?;
    apply_credential_change(app, created.key, credential).await?;
    Ok(created)
}

/// Changes an environment, if it has the expected revision. A new project requires administration
/// rights there.
pub async fn update(
    app: &ServerState,
    caller: &Caller,
    environment: Uuid,
    expected: Option<i64>,
    update: EnvironmentUpdate,
) -> Result<EnvironmentRecord, ServerError> {
    if let Some(project) = &update.project {
        caller.need_in_project(Right::Administer, project)?;
    }
    check_text("name", update.name.as_deref(), (1, 255))?;
    check_text("description", update.description.as_deref(), (0, 255))?;
    check_icon(update.icon.as_deref())?;
    check_repository(app, update.repository.as_deref(), update.branch.as_deref())?;
    check_text("model_project", update.model_project.as_deref(), (0, 255))?;
    let now = app.now();
    let (changed, credential) = app
        .try_change(move |store| {
            check_not_of_cluster(&store.environments().get(environment.into())?)?;
            let meant = resolve_repository(store, environment, update.repository.as_deref())?;
            let (repository, credential) = meant.unzip();
            let change = EnvironmentChange {
                project: update.project.map(Into::into),
                name: update.name.as_deref(),
                description: update.description.as_deref(),
                icon: update.icon.as_deref(),
                repository: repository.as_deref(),
                branch: update.branch.as_deref(),
                model_project: update.model_project.as_deref(),
            };
            let id = environment.into();
            let changed = store.environments().update(id, expected, &change, now)?;
            Ok::<_, ServerError>((changed, credential))
        })
        .await?;
    apply_credential_change(app, changed.key, credential.unwrap_or(CredentialChange::Keep)).await?;
    Ok(changed)
}

/// Halts or resumes an environment. Running handlers finish; nothing new starts while it is halted.
pub async fn set_halted(
    services: &Services,
    environment: Uuid,
    halted: bool,
) -> Result<EnvironmentRecord, ServerError> {
    let now = services.now();
    let changed = services.try_change(move |store| {
        check_not_of_cluster(&store.environments().get(environment.into())?)?;
        Ok::<_, ServerError>(store.environments().set_halted(environment.into(), halted, now)?)
    });
    changed.await
}

/// Requests the deletion of an environment's contents, but not of itself and its settings.
pub async fn begin_clearing(
    services: &Services,
    environment: &EnvironmentRecord,
) -> Result<RequestRecord, ServerError> {
    check_not_of_cluster(environment)?;
    refuse_if_protected(services, environment).await?;
    let clear = RequestKind::Clear { resume: !environment.halted };
    operations::add(services, environment, clear).await
}

/// Requests the deletion of an environment. It is halted at once.
pub async fn begin_deletion(
    services: &Services,
    environment: &EnvironmentRecord,
) -> Result<RequestRecord, ServerError> {
    check_not_of_cluster(environment)?;
    refuse_if_protected(services, environment).await?;
    let (uuid, now) = (environment.uuid, services.now());
    services.change(move |store| store.environments().begin_deletion(uuid, now)).await?;
    operations::add(services, environment, RequestKind::Delete).await
}

/// Fails for an environment of a cluster, which only operations on the cluster change.
pub(crate) fn check_not_of_cluster(environment: &EnvironmentRecord) -> Result<(), ServerError> {
    let Some(cluster) = &environment.cluster else { return Ok(()) };
    let detail = format!(
        "the environment {} belongs to the cluster {cluster}: change the cluster instead (`orrery cluster`)",
        environment.name
    );
    Err(ServerError::rule("belongs-to-cluster", detail))
}

/// Fails for an environment that is being deleted.
pub(crate) fn check_not_deleting(environment: &EnvironmentRecord) -> Result<(), ServerError> {
    if environment.deleting {
        return Err(StoreError::Deleting(environment.name.clone()).into());
    }
    Ok(())
}

/// Fails for an environment whose engine can take no requests: deleted or halted.
pub fn check_takes_requests(environment: &EnvironmentRecord) -> Result<(), ServerError> {
    check_not_deleting(environment)?;
    // A halted environment would never execute it.
    if environment.halted {
        return Err(ServerError::Conflict("the environment is halted: resume it first".to_owned()));
    }
    Ok(())
}

/// Fails for a protected environment.
pub async fn refuse_if_protected(
    services: &Services,
    record: &EnvironmentRecord,
) -> Result<(), ServerError> {
    let key = record.key;
    let settings = services.with_store(move |store| store.settings().list(key)).await?;
    if EnvironmentSettings::from_records(&settings).protected_environment {
        return Err(protected());
    }
    Ok(())
}

/// Error for clearing or deleting a protected environment.
pub(crate) fn protected() -> ServerError {
    ServerError::Refused {
        code: "protected",
        detail: "the environment is protected: set protected_environment to false first".to_owned(),
    }
}

fn check_text(
    name: &str,
    text: Option<&str>,
    (least, most): (usize, usize),
) -> Result<(), ServerError> {
    match text.map(|text| text.chars().count()) {
        Some(length) if length < least || length > most => {
            let reason = format!("must have {least} to {most} characters, and has {length}");
            Err(ServerError::field(name, reason))
        }
        _ => Ok(()),
    }
}

/// Accepts a data URL of an image that browsers support, or an empty text.
fn check_icon(icon: Option<&str>) -> Result<(), ServerError> {
    let Some(icon) = icon.filter(|icon| !icon.is_empty()) else { return Ok(()) };
    let refuse = |reason: &str| Err(ServerError::field("icon", reason));
    if icon.len() > ICON_MAX {
        return refuse("must not be larger than 64 KiB");
    }
    let Some((head, content)) = icon.strip_prefix("data:").and_then(|rest| rest.split_once(','))
    else {
        return refuse("must be a data URL: data:image/png;base64,…");
    };
    let Some(media_type) = head.strip_suffix(";base64") else {
        return refuse("must be encoded in base64");
    };
    if !ICON_TYPES.contains(&media_type) {
        return refuse("must be a PNG, JPEG, WebP or SVG picture");
    }
    match STANDARD.decode(content) {
        Ok(bytes) if !bytes.is_empty() => Ok(()),
        _ => refuse("is not encoded in base64"),
    }
}

fn check_repository(
    app: &ServerState,
    repository: Option<&str>,
    branch: Option<&str>,
) -> Result<(), ServerError> {
    check_text("repository", repository, (0, 2048))?;
    check_text("branch", branch, (0, 255))?;
    let local = app.settings().local_repositories;
    match orrery_compile_service::check_repository(
        repository.unwrap_or_default(),
        branch.unwrap_or_default(),
        local,
    ) {
        // Versions may be pushed.
        Ok(()) | Err(RepositoryError::None) => Ok(()),
        Err(error @ RepositoryError::Branch(_)) => {
            Err(ServerError::field("branch", error.to_string()))
        }
        Err(error) => Err(ServerError::field("repository", error.to_string())),
    }
}

/// Resolves the repository of an update: the redacted URL from an earlier response stands for the
/// stored one.
fn resolve_repository(
    store: &Store,
    environment: Uuid,
    given: Option<&str>,
) -> Result<Option<(String, CredentialChange)>, StoreError> {
    let Some(given) = given else { return Ok(None) };
    let kept = store.environments().get(environment.into())?.repository;
    let is_other = given != orrery_compile_service::mask_password(&kept);
    Ok(is_other.then(|| orrery_compile_service::credential_change(given, &kept)))
}

/// Seals or deletes the credential of an environment's repository.
async fn apply_credential_change(
    app: &ServerState,
    environment: EnvironmentKey,
    change: CredentialChange,
) -> Result<(), ServerError> {
    if change == CredentialChange::Keep {
        return Ok(());
    }
    let (store, vault, now) = (app.store().clone(), app.vault().clone(), app.now());
    let keep = move || {
        orrery_compile_service::apply_credential_change(&store, &vault, environment, &change, now)
    };
    let kept = tokio::task::spawn_blocking(keep).await.map_err(|_| ServerError::Stopping)?;
    kept.map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "cannot store a credential");
        let text = "the environment was stored, but not the password of its repository: set the repository again";
        ServerError::Unavailable(format!("{text} ({error})"))
    })
}
