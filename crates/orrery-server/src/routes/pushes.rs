//! Check of pushed versions: an environment that follows a repository refuses them, unless an
//! administrator allows them.

use axum::http::StatusCode;
use orrery_store::{EnvironmentRecord, Store};

use crate::compile_service::mask_password;
use crate::error::ServerError;
use crate::settings::EnvironmentSettings;

/// Refuses a pushed version if the environment follows a repository.
pub(crate) fn check_push(
    store: &dyn Store,
    environment: &EnvironmentRecord,
) -> Result<(), ServerError> {
    if environment.repository.is_empty() {
        return Ok(());
    }
    let settings = store.records().settings(environment.key)?;
    if EnvironmentSettings::from_records(&settings).allow_push {
        return Ok(());
    }
    let name = format!("{}/{}", environment.project_name, environment.name);
    let repository = mask_password(&environment.repository);
    let branch = match &*environment.branch {
        "" => String::new(),
        branch => format!(" (branch {branch})"),
    };
    let detail = format!(
        "{name} follows {repository}{branch} and refuses pushed versions: commit to the repository; or an administrator allows \
         pushes with `orrery environment setting set allow_push true`"
    );
    Err(ServerError::Refused { status: StatusCode::CONFLICT, code: "follows-repository", detail })
}
