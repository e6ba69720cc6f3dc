//! Projects: the owners of environments.

use orrery_api::{NewProject, ProjectUpdate};
use orrery_store::ProjectRecord;
use uuid::Uuid;

use crate::error::ServerError;
use crate::services::Services;

fn check_name(name: &str) -> Result<(), ServerError> {
    match name.chars().count() {
        1..=255 => Ok(()),
        _ => Err(ServerError::field("name", "must have 1 to 255 characters")),
    }
}

/// Creates a project.
pub async fn create(services: &Services, new: NewProject) -> Result<ProjectRecord, ServerError> {
    check_name(&new.name)?;
    let id = new.id.unwrap_or_else(Uuid::new_v4);
    let now = services.now();
    let created = services
        .change(move |store| store.projects().create(id.into(), &new.name, &new.description, now));
    Ok(created.await?)
}

/// Changes a project, if it has the expected revision.
pub async fn update(
    services: &Services,
    project: Uuid,
    expected: Option<i64>,
    update: ProjectUpdate,
) -> Result<ProjectRecord, ServerError> {
    if let Some(name) = &update.name {
        check_name(name)?;
    }
    let now = services.now();
    let changed = services.change(move |store| {
        let ProjectUpdate { name, description } = &update;
        let (name, description) = (name.as_deref(), description.as_deref());
        store.projects().update(project.into(), expected, name, description, now)
    });
    Ok(changed.await?)
}

/// Deletes a project without environments, if it has the expected revision.
pub async fn delete(
    services: &Services,
    project: Uuid,
    expected: Option<i64>,
) -> Result<ProjectRecord, ServerError> {
    let now = services.now();
    let deleted =
        services.change(move |store| store.projects().delete(project.into(), expected, now));
    Ok(deleted.await?)
}
