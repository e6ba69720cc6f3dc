//! Outcome of a run: a stored version, or a failure and its notification.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use orrery_api::{ProblemCategory, UploadScope, VersionUpload};
use orrery_model::VersionNumber;
use orrery_roles::settings::EnvironmentSettings;
use orrery_store::{
    CompileFailure, CompileRequest, ContentHash, ContentHolder, ContentView, EnvironmentKey,
    FailureNotice, ParameterFilter, ParameterSource, Store, StoreError,
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{Run, RunError, RunFailure};
use crate::context::VersionError;
use crate::job::JobParameter;
use crate::recorder::RunInterruption;
use crate::untrusted_file::{self, CONTENT_MAX};

/// Approximate size of a batch of contents.
const BATCH_BYTES: usize = 8 << 20;
/// Maximum length of an error in a notification.
const ERROR_TEXT_MAX: usize = 300;
/// Page size of facts.
const PAGE: usize = 1_000;

/// Returns the version that an earlier run of the same compile stored, if any.
pub(crate) fn find_stored_version(run: &Run<'_>) -> Result<Option<VersionNumber>, StoreError> {
    if run.claimed.record.reserved.is_none() {
        return Ok(None);
    }
    let (store, environment) = (run.app.store(), run.environment.key);
    let own = run.id().to_string();
    let versions = store.versions().list(environment)?;
    let Some(stored) = versions.iter().find(|one| one.info["compile"] == own) else {
        return Ok(None);
    };
    if !stored.released && settings(run)?.auto_deploy {
        match store.versions().release(environment, stored.number, run.app.now()) {
            Ok(()) | Err(StoreError::AlreadyReleased(_) | StoreError::Superseded { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(stored.number))
}

fn settings(run: &Run<'_>) -> Result<EnvironmentSettings, StoreError> {
    let records = run.app.store().settings().list(run.environment.key)?;
    Ok(EnvironmentSettings::from_records(&records))
}

/// Returns the parameters and facts for a model.
pub(crate) fn model_parameters(
    store: &Store,
    environment: EnvironmentKey,
) -> Result<Vec<JobParameter>, StoreError> {
    let shown = |one: orrery_store::StoredParameter| JobParameter {
        name: one.name,
        value: one.value,
        resource: one.resource.map(|id| id.to_string()),
        source: source_name(one.source).to_owned(),
    };
    let mut all: Vec<JobParameter> =
        store.parameters().all(environment)?.into_iter().map(shown).collect();
    let filter = ParameterFilter::default();
    let mut after = (0, String::new());
    loop {
        let page = store.parameters().list_facts(environment, &filter, &after, PAGE)?;
        let Some((last, _)) = page.last() else { return Ok(all) };
        after = last.clone();
        all.extend(page.into_iter().map(|(_, fact)| shown(fact)));
    }
}

fn source_name(source: ParameterSource) -> &'static str {
    match source {
        ParameterSource::Fact => "fact",
        ParameterSource::Plugin => "plugin",
        ParameterSource::User => "user",
        ParameterSource::Report => "report",
    }
}

/// Version that a compile resulted in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExportedVersion {
    pub(crate) number: VersionNumber,
    /// The version existed before, with the same resources and code.
    pub(crate) unchanged: bool,
}

/// Stores the version, unless it repeats the newest one. A second run of the same compile stores
/// nothing twice: it finds the version, or uses the same number.
pub(crate) fn store_version(
    run: &mut Run<'_>,
    mut upload: VersionUpload,
    contents: &BTreeMap<String, u64>,
) -> Result<ExportedVersion, RunError> {
    store_contents(run, contents)?;
    run.recorder.check()?;
    upload.info = version_info(run, &upload);
    let (store, environment) = (run.app.store(), run.environment.key);
    if !run.request.partial
        && run.app.versions.repeats_newest(store, environment, &upload).map_err(to_run_error)?
    {
        // Source locations may have changed, and an unreleased version may have to be released.
        upload.only_if_changed = true;
        return put_version(run, upload);
    }
    let number = version_number(run)?;
    if run.request.partial {
        upload.only_if_changed = true;
        let exported: BTreeSet<&str> =
            upload.resources.iter().filter_map(|one| one.set.as_deref()).collect();
        let removed = run.request.removed_sets.iter();
        let removed =
            removed.filter(|name| !(run.request.soft_delete && exported.contains(name.as_str())));
        upload.removed_sets = removed.cloned().collect();
        upload.scope = UploadScope::Partial;
        // In server compiles, the code always comes from the repository.
        upload.allow_code_update = true;
    } else {
        upload.number = Some(number.0.into());
    }
    match put_version(run, upload) {
        // Stored by a run that was presumed dead, under the same number.
        Err(RunError::RunInterruption(RunInterruption::Store(StoreError::VersionExists(_)))) => {
            Ok(ExportedVersion { number, unchanged: false })
        }
        put => put,
    }
}

fn put_version(run: &Run<'_>, upload: VersionUpload) -> Result<ExportedVersion, RunError> {
    let (store, environment) = (run.app.store(), run.environment.key);
    let auto_deploy = settings(run)?.auto_deploy;
    let now = run.app.now();
    let stored = run.app.versions.store(store, environment, upload, auto_deploy, now);
    let stored = stored.map_err(to_run_error)?;
    run.app.wake_up();
    Ok(ExportedVersion { number: stored.number, unchanged: !stored.created })
}

/// Classifies an error: an invalid version is an error of the model, a store error is not.
fn to_run_error(error: VersionError) -> RunError {
    match error {
        // A server compile has no force option.
        VersionError::Store(StoreError::OtherProject { bound, declared }) => {
            let text = format!(
                "the environment is bound to the project {bound:?}, and the repository has the project \
                 {declared:?}; to rebind it: orrery environment update --model-project {declared}"
            );
            RunError::failed(ProblemCategory::Export, "other-project", text)
        }
        VersionError::Store(error) => error.into(),
        VersionError::Refused(problem) => {
            RunError::failed(ProblemCategory::Export, &problem.code, problem.to_string())
        }
    }
}

/// Returns the reserved version number, or reserves a new one if newer versions exist.
fn version_number(run: &Run<'_>) -> Result<VersionNumber, StoreError> {
    let store = run.app.store();
    let newest = store.versions().newest(run.environment.key)?;
    if let Some(reserved) = run.claimed.record.reserved
        && newest.is_none_or(|newest| newest < reserved)
    {
        return Ok(reserved);
    }
    let number = store.versions().reserve(run.environment.key)?;
    store.compiles().reserve_version(&run.claimed.run, number)?;
    Ok(number)
}

fn version_info(run: &Run<'_>, upload: &VersionUpload) -> Map<String, Value> {
    let mut info = upload.info.clone();
    info.insert("compile".to_owned(), run.id().to_string().into());
    if let Some(commit) = &run.commit {
        info.insert("commit".to_owned(), commit.as_str().into());
    }
    let metadata = run.request.metadata.clone();
    if let Some(message) = metadata.get("message") {
        info.insert("message".to_owned(), message.clone());
    }
    info.insert("export_metadata".to_owned(), metadata.into());
    info
}

/// Stores the contents that the environment does not have yet. Contents of other environments are
/// handed over like new ones.
fn store_contents(run: &mut Run<'_>, contents: &BTreeMap<String, u64>) -> Result<(), RunError> {
    let wrong = |text: String| RunError::failed(ProblemCategory::Stage, "Contents", text);
    let mut hashes = Vec::with_capacity(contents.len());
    for name in contents.keys() {
        hashes.push(
            ContentHash::from_hex(name).ok_or_else(|| wrong(format!("{name:?} is not a SHA-1")))?,
        );
    }
    let environments = Some(BTreeSet::from([run.environment.key]));
    let own = ContentView { account: None, environments };
    let known = run.app.store().contents().visible(&own, &hashes)?;
    let mut batch: Vec<(ContentHash, Vec<u8>)> = Vec::new();
    let mut bytes = 0;
    for hash in hashes.into_iter().filter(|hash| !known.contains(hash)) {
        let name = hash.to_hex();
        let content = untrusted_file::read(
            &run.workdir.scratch(),
            &Path::new("contents").join(&name),
            CONTENT_MAX,
        )
        .map_err(|error| wrong(format!("{name}: {error}")))?;
        if orrery_host::bundle::sha1_hex(&content) != name {
            return Err(wrong(format!("{name} does not match its hash")));
        }
        bytes += content.len();
        batch.push((hash, content));
        if bytes >= BATCH_BYTES {
            run.recorder.check()?;
            store_batch(run, &std::mem::take(&mut batch))?;
            bytes = 0;
        }
    }
    Ok(store_batch(run, &batch)?)
}

fn store_batch(run: &Run<'_>, batch: &[(ContentHash, Vec<u8>)]) -> Result<(), StoreError> {
    if batch.is_empty() {
        return Ok(());
    }
    let files: Vec<(ContentHash, &[u8])> =
        batch.iter().map(|(hash, content)| (*hash, content.as_slice())).collect();
    let store = run.app.store();
    store.contents().put(&files)?;
    let holder = ContentHolder::Environment(run.environment.key);
    let hashes = batch.iter().map(|(hash, _)| *hash).collect();
    store.contents().claim(holder, &hashes, run.app.now())
}

/// Builds the failure record and its notification.
pub(crate) fn failure(run: &Run<'_>, failed: &RunFailure) -> CompileFailure {
    let environment = run.environment.uuid.uuid();
    let uri = format!("/api/v1/environments/{environment}/compiles/{}", run.id());
    let first = failed.problems.first().map(|problem| problem.message.as_str());
    let message = failure_message(&run.request, failed.while_fetching, first);
    let notice = message.map(|message| FailureNotice {
        uuid: Uuid::new_v4().into(),
        title: "Compilation failed".to_owned(),
        message,
        uri,
    });
    CompileFailure { data: json!({ "errors": failed.problems }), notice }
}

/// Returns the notification text of a failure, if one is wanted.
pub(crate) fn failure_message(
    request: &CompileRequest,
    while_fetching: bool,
    first: Option<&str>,
) -> Option<String> {
    if !request.notify_failure.unwrap_or(request.export) {
        return None;
    }
    let words = match &request.failure_message {
        Some(own) => return Some(own.clone()),
        None if while_fetching => "The repository could not be fetched",
        None if request.export => "A compile that stores a version has failed",
        None => "A compile has failed",
    };
    // The linked page has the rest.
    let lines = first.unwrap_or_default().lines().map(str::trim);
    let first: String = lines.filter(|line| !line.is_empty()).take(1).collect();
    Some(match first.char_indices().nth(ERROR_TEXT_MAX) {
        _ if first.is_empty() => words.to_owned(),
        None => format!("{words}: {first}"),
        Some((at, _)) => format!("{words}: {}…", &first[..at]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_notified_as_requested() {
        let told = |export: bool,
                    notify_failure: Option<bool>,
                    own: Option<&str>,
                    while_fetching: bool| {
            let failure_message = own.map(str::to_owned);
            let request =
                CompileRequest { export, notify_failure, failure_message, ..Default::default() };
            super::failure_message(&request, while_fetching, Some("\nno type named x\nand more"))
        };
        let all = told(true, None, None, false).unwrap();
        assert_eq!(all, "A compile that stores a version has failed: no type named x");
        assert_eq!(told(true, Some(false), None, false), None);
        assert_eq!(told(false, None, None, false), None);
        assert!(told(false, Some(true), None, false).is_some());
        assert_eq!(told(true, None, Some("own words"), true).as_deref(), Some("own words"));
        assert!(told(true, None, None, true).unwrap().contains("fetched"));
    }
}
