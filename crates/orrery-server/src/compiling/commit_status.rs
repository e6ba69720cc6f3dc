//! What forges are told about commits: noted with a compile, delivered afterwards, so that no compile waits for a forge.

use std::time::Duration;

use orrery_model::Timestamp;
use orrery_store::{
    CommitStatusRecord, EnvironmentKey, NewCommitStatus, NewNotification, StoreError,
};
use uuid::Uuid;

use super::CompileOptions;
use super::recorder::later;
use super::text::without_userinfo;
use crate::app::App;
use crate::forge::{Forge, Report, ReportError, Reporter, api_base, may_be_told, path_of};
use crate::settings::EnvironmentSettings;

/// A state that could not be delivered is tried again after so long, then after twice as long, and so on.
const PAUSE_FIRST: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(900);
/// A state that is older is of no use to anybody.
const KEPT: Duration = Duration::from_secs(86_400);
/// So many attempts fail before people are told.
const TOLD_AFTER: u32 = 3;

fn settings(app: &App, environment: EnvironmentKey) -> Result<EnvironmentSettings, StoreError> {
    Ok(EnvironmentSettings::from_records(&app.store().records().settings(environment)?))
}

/// Notes a state of a commit, if a forge is to be told of it.
pub(super) fn note(
    app: &App,
    environment: EnvironmentKey,
    status: &NewCommitStatus<'_>,
) -> Result<(), StoreError> {
    if Forge::named(&settings(app, environment)?.commit_status).is_none() {
        return Ok(());
    }
    app.store().records().put_commit_status(environment, status, app.now())
}

/// Why a state cannot be delivered now.
#[derive(Debug, thiserror::Error)]
enum Undelivered {
    #[error("{0}")]
    Settings(String),
    #[error(transparent)]
    Report(#[from] ReportError),
}

/// Delivers a state that is due, or says when it is tried again.
pub(super) fn deliver(
    app: &App,
    options: &CompileOptions,
    status: &CommitStatusRecord,
) -> Result<(), StoreError> {
    let records = app.store().records();
    let now = app.now();
    let set = settings(app, status.environment)?;
    let Some(forge) = Forge::named(&set.commit_status) else {
        return records.forget_commit_status(status);
    };
    match report(app, options, (forge, &set), status) {
        Ok(()) => records.forget_commit_status(status),
        Err(error) => {
            let text = chain(&error);
            let CommitStatusRecord { commit, failures, .. } = status;
            tracing::warn!(commit, failures, error = text, "a state of a commit is not delivered");
            if later(status.changed, KEPT) <= now {
                return records.forget_commit_status(status);
            }
            tell(app, status, &text, now)?;
            let pause = PAUSE_FIRST.saturating_mul(1 << (*failures).min(16)).min(PAUSE_MAX);
            records.postpone_commit_status(status, later(now, pause))
        }
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn report(
    app: &App,
    options: &CompileOptions,
    (forge, set): (Forge, &EnvironmentSettings),
    status: &CommitStatusRecord,
) -> Result<(), Undelivered> {
    let wrong = |text: String| Undelivered::Settings(text);
    let environment = app.store().records().environment_of(status.environment);
    let environment = environment.map_err(|error| wrong(error.to_string()))?;
    let url = &environment.repository;
    let repository = path_of(url).ok_or_else(|| {
        wrong(format!("{} names no repository of a forge", without_userinfo(url)))
    })?;
    let base = match &*set.commit_status_url {
        "" => api_base(forge, url),
        given => Some(given.trim_end_matches('/').to_owned()),
    };
    let base = base.ok_or_else(|| wrong("the setting commit_status_url is needed".to_owned()))?;
    if !may_be_told(&base, app.settings().local_repositories) {
        return Err(wrong(format!("commit_status_url must begin with https://: {base}")));
    }
    let name = &set.commit_status_secret;
    let token = app.vault().open(status.environment, name).map_err(|error| {
        wrong(format!("the secret {name} (setting commit_status_secret) cannot be used: {error}"))
    })?;
    let server = &options.server;
    let target = (server.host != "localhost").then(|| {
        let scheme = if server.secure { "https" } else { "http" };
        let compile = Uuid::from_bytes(status.compile);
        let environment = Uuid::from_bytes(environment.uuid);
        format!(
            "{scheme}://{}:{}/api/v1/environments/{environment}/compiles/{compile}",
            server.host, server.port
        )
    });
    let context = format!("orrery/{}/{}", environment.project_name, environment.name);
    let report = Report {
        repository,
        commit: &status.commit,
        state: &status.state,
        description: &status.description,
        context: &context,
        target: target.as_deref(),
    };
    Ok(Reporter { forge, base, token }.report(&report)?)
}

/// Tells people once that states are not delivered, not once for each commit.
fn tell(
    app: &App,
    status: &CommitStatusRecord,
    error: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    let records = app.store().records();
    let is_told =
        |other: &CommitStatusRecord| other.commit != status.commit && other.failures >= TOLD_AFTER;
    let others = records.commit_statuses(status.environment)?;
    if status.failures + 1 != TOLD_AFTER || others.iter().any(is_told) {
        return Ok(());
    }
    let environment = records.environment_of(status.environment)?;
    let uri = format!("/api/v1/environments/{}", Uuid::from_bytes(environment.uuid));
    let message = format!("The forge cannot be told about commits: {error}");
    let notice = NewNotification {
        uuid: Uuid::new_v4().into_bytes(),
        title: "Commit status not delivered",
        message: &message,
        severity: "warning",
        uri: &uri,
        compile: None,
    };
    records.add_notification(status.environment, &notice, now)?;
    app.nudge();
    Ok(())
}
