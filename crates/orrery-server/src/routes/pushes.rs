//! Whether an environment takes versions from outside: one that follows a repository does not, unless an administrator allows it.

use axum::http::StatusCode;
use orrery_store::{EnvironmentRecord, Store};

use crate::compiling::without_password;
use crate::problem::ServerError;
use crate::settings::EnvironmentSettings;

/// Refuses a pushed version where the server compiles by itself.
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
    let repository = without_password(&environment.repository);
    let branch = match &*environment.branch {
        "" => String::new(),
        branch => format!(" (branch {branch})"),
    };
    let detail = format!(
        "{name} follows {repository}{branch} and takes no pushed versions: commit to the repository; or an administrator allows \
         pushes with `orrery environment setting set allow_push true`"
    );
    Err(ServerError::Refused { status: StatusCode::CONFLICT, code: "follows-repository", detail })
}
