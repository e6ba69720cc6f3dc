//! Commit statuses for forges: queued with a compile and delivered afterwards, so that no compile
//! waits for a forge.

use std::time::Duration;

use orrery_base::error_chain::error_chain;
use orrery_model::Timestamp;
use orrery_roles::settings::EnvironmentSettings;
use orrery_store::{
    CommitStatusRecord, EnvironmentKey, NewCommitStatus, NewNotification, StoreError,
};
use uuid::Uuid;

use crate::CompileOptions;
use crate::context::CompileContext;
use crate::forge::{
    CommitReport, Forge, ReportError, Reporter, api_base, may_send_token, repository_path,
};
use crate::output_filter::mask_userinfo;
use crate::recorder::later;

/// Initial and maximum backoff of a status that could not be delivered.
const BACKOFF_MIN: Duration = Duration::from_secs(5);
const BACKOFF_MAX: Duration = Duration::from_secs(900);
/// Age at which an undelivered status is dropped.
const MAX_AGE: Duration = Duration::from_secs(86_400);
/// Failures before a notification.
const NOTIFY_AFTER: u32 = 3;

fn settings(
    app: &CompileContext,
    environment: EnvironmentKey,
) -> Result<EnvironmentSettings, StoreError> {
    Ok(EnvironmentSettings::from_records(&app.store().settings().list(environment)?))
}

/// Queues a commit status, if a forge is configured.
pub(crate) fn enqueue(
    app: &CompileContext,
    environment: EnvironmentKey,
    status: &NewCommitStatus<'_>,
) -> Result<(), StoreError> {
    if Forge::from_name(&settings(app, environment)?.commit_status).is_none() {
        return Ok(());
    }
    app.store().commit_statuses().put(environment, status, app.now())
}

/// Reason why a status cannot be delivered.
#[derive(Debug, thiserror::Error)]
enum DeliveryError {
    #[error("{0}")]
    Settings(String),
    #[error(transparent)]
    Report(#[from] ReportError),
}

/// Delivers a due status, or schedules a retry.
pub(crate) fn deliver(
    app: &CompileContext,
    options: &CompileOptions,
    status: &CommitStatusRecord,
) -> Result<(), StoreError> {
    let store = app.store();
    let now = app.now();
    let set = settings(app, status.environment)?;
    let Some(forge) = Forge::from_name(&set.commit_status) else {
        return store.commit_statuses().delete(status);
    };
    match report(app, options, (forge, &set), status) {
        Ok(()) => store.commit_statuses().delete(status),
        Err(error) => {
            let text = error_chain(&error);
            let CommitStatusRecord { commit, failures, .. } = status;
            tracing::warn!(commit, failures, error = text, "commit status not delivered");
            if later(status.changed, MAX_AGE) <= now {
                return store.commit_statuses().delete(status);
            }
            notify_once(app, status, &text, now)?;
            let pause = BACKOFF_MIN.saturating_mul(1 << (*failures).min(16)).min(BACKOFF_MAX);
            store.commit_statuses().postpone(status, later(now, pause))
        }
    }
}

fn report(
    app: &CompileContext,
    options: &CompileOptions,
    (forge, set): (Forge, &EnvironmentSettings),
    status: &CommitStatusRecord,
) -> Result<(), DeliveryError> {
    let wrong = |text: String| DeliveryError::Settings(text);
    let environment = app.store().environments().by_key(status.environment);
    let environment = environment.map_err(|error| wrong(error.to_string()))?;
    let url = &environment.repository;
    let repository = repository_path(url)
        .ok_or_else(|| wrong(format!("{} is not a repository of a forge", mask_userinfo(url))))?;
    let base = match &*set.commit_status_url {
        "" => api_base(forge, url),
        given => Some(given.trim_end_matches('/').to_owned()),
    };
    let base = base.ok_or_else(|| wrong("the setting commit_status_url is required".to_owned()))?;
    if !may_send_token(&base, app.local_repositories) {
        return Err(wrong(format!("commit_status_url must begin with https://: {base}")));
    }
    let name = &set.commit_status_secret;
    let token = app.vault.open(status.environment, name).map_err(|error| {
        wrong(format!("the secret {name} (setting commit_status_secret) cannot be used: {error}"))
    })?;
    let server = &options.server;
    let target = (server.host != "localhost").then(|| {
        let scheme = if server.secure { "https" } else { "http" };
        let compile = status.compile.uuid();
        let environment = environment.uuid.uuid();
        format!(
            "{scheme}://{}:{}/api/v1/environments/{environment}/compiles/{compile}",
            server.host, server.port
        )
    });
    let context = format!("orrery/{}/{}", environment.project_name, environment.name);
    let report = CommitReport {
        repository,
        commit: &status.commit,
        state: &status.state,
        description: &status.description,
        context: &context,
        target: target.as_deref(),
    };
    Ok(Reporter { forge, base, token }.report(&report)?)
}

/// Notifies once about undelivered statuses, not once per commit.
fn notify_once(
    app: &CompileContext,
    status: &CommitStatusRecord,
    error: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    let store = app.store();
    let is_reported = |other: &CommitStatusRecord| {
        other.commit != status.commit && other.failures >= NOTIFY_AFTER
    };
    let others = store.commit_statuses().list(status.environment)?;
    if status.failures + 1 != NOTIFY_AFTER || others.iter().any(is_reported) {
        return Ok(());
    }
    let environment = store.environments().by_key(status.environment)?;
    let uri = format!("/api/v1/environments/{}", environment.uuid);
    let message = format!("Commit statuses cannot be delivered to the forge: {error}");
    let notice = NewNotification {
        uuid: Uuid::new_v4().into(),
        title: "Commit status not delivered",
        message: &message,
        severity: "warning",
        uri: &uri,
        compile: None,
    };
    store.notifications().add(status.environment, &notice, now)?;
    app.wake_up();
    Ok(())
}
