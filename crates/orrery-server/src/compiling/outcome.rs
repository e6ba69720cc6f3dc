//! What follows from a run: a version, or people who are told.

use std::collections::BTreeMap;

use orrery_api::{UploadScope, VersionUpload};
use orrery_model::VersionNumber;
use orrery_store::{
    CompileFailure, CompileRequest, ContentHash, EnvironmentKey, FailureNotice, NewVersion,
    ParameterFilter, ParameterSource, Scope, Store, StoreError,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::job::JobParameter;
use super::run::{Failed, Run, Stop};
use crate::code::parse_sha1;
use crate::upload::read_upload;

/// Contents are stored in batches of about so many bytes.
const BATCH_BYTES: usize = 8 << 20;
/// Facts that are read at once.
const PAGE: usize = 1_000;

/// The version that an earlier run of the same compile has stored, if one got so far.
pub(super) fn stored_before(run: &Run<'_>) -> Result<Option<VersionNumber>, StoreError> {
    let Some(number) = run.claimed.record.reserved else { return Ok(None) };
    let versions = run.app.store().versions(run.environment.key)?;
    Ok(versions.iter().any(|one| one.number == number).then_some(number))
}

/// What the model of an environment may ask for.
pub(super) fn known_parameters(
    store: &dyn Store,
    environment: EnvironmentKey,
) -> Result<Vec<JobParameter>, StoreError> {
    let shown = |one: orrery_store::Parameter| JobParameter {
        name: one.name,
        value: one.value,
        resource: one.resource.map(|id| id.to_string()),
        source: source_name(one.source).to_owned(),
    };
    let mut all: Vec<JobParameter> =
        store.parameters(environment)?.into_iter().map(shown).collect();
    let filter = ParameterFilter::default();
    let mut after = (0, String::new());
    loop {
        let page = store.records().list_facts(environment, &filter, &after, PAGE)?;
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

/// Stores what the model wants. A second run of the same compile stores nothing twice: it uses the same number.
pub(super) fn store(
    run: &mut Run<'_>,
    upload: VersionUpload,
    contents: &BTreeMap<String, u64>,
) -> Result<VersionNumber, Stop> {
    let wrong = |text: String| Stop::failed("export_error", "InvalidVersion", text);
    if upload.scope == UploadScope::Partial {
        return Err(wrong("this server does not store parts of a version yet".to_owned()));
    }
    let (resources, unknowns) = read_upload(&upload).map_err(|problems| {
        let lines: Vec<String> =
            problems.iter().map(|one| format!("{}: {}", one.name, one.reason)).collect();
        wrong(lines.join("\n"))
    })?;
    store_contents(run, contents)?;
    run.recorder.check()?;
    let number = number(run)?;
    let store = run.app.store();
    let environment = run.environment.key;
    let released = setting(&**store, environment, "auto_deploy")?;
    let info = info(run, &upload);
    let version = NewVersion {
        number: Some(number),
        base: None,
        made_at: run.app.now(),
        info: &info,
        scope: Scope::All,
        resources: &resources,
        unknowns: &unknowns,
        released: released.as_ref().and_then(Value::as_bool).unwrap_or(true),
        only_if_changed: false,
        lease: None,
    };
    match store.put_version(environment, &version) {
        // By a run that was believed dead, under the same number.
        Ok(_) | Err(StoreError::VersionExists(_)) => {}
        Err(error @ (StoreError::DuplicateResource(_) | StoreError::DanglingRequires { .. })) => {
            return Err(wrong(error.to_string()));
        }
        Err(error) => return Err(error.into()),
    }
    run.app.nudge();
    Ok(number)
}

/// The number that was reserved before, unless others have been stored meanwhile.
fn number(run: &Run<'_>) -> Result<VersionNumber, StoreError> {
    let store = run.app.store();
    let newest = store.versions(run.environment.key)?.last().map(|newest| newest.number);
    if let Some(reserved) = run.claimed.record.reserved
        && newest.is_none_or(|newest| newest < reserved)
    {
        return Ok(reserved);
    }
    let number = store.reserve_version(run.environment.key)?;
    store.records().reserve_for_compile(&run.claimed.run, number)?;
    Ok(number)
}

fn info(run: &Run<'_>, upload: &VersionUpload) -> Value {
    let mut info = upload.info.clone();
    info.insert("compile".to_owned(), run.id().to_string().into());
    let metadata = run.request.metadata.clone();
    if let Some(message) = metadata.get("message") {
        info.insert("message".to_owned(), message.clone());
    }
    info.insert("export_metadata".to_owned(), metadata.into());
    if let Some(code) = &upload.code {
        info.insert("code".to_owned(), code.as_str().into());
    }
    Value::Object(info)
}

pub(super) fn setting(
    store: &dyn Store,
    environment: EnvironmentKey,
    name: &str,
) -> Result<Option<Value>, StoreError> {
    Ok(store.settings(environment)?.remove(name))
}

/// Stores contents that are not there.
fn store_contents(run: &mut Run<'_>, contents: &BTreeMap<String, u64>) -> Result<(), Stop> {
    let wrong = |text: String| Stop::failed("stage_error", "Contents", text);
    let mut hashes = Vec::with_capacity(contents.len());
    for name in contents.keys() {
        hashes.push(parse_sha1(name).ok_or_else(|| wrong(format!("{name:?} is no SHA-1")))?);
    }
    let missing = run.app.store().missing_files(&hashes)?;
    let mut batch: Vec<(ContentHash, Vec<u8>)> = Vec::new();
    let mut bytes = 0;
    for hash in missing {
        let name: String = hash.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let content = std::fs::read(run.place.contents().join(&name))
            .map_err(|error| wrong(format!("{name}: {error}")))?;
        if orrery_host::bundle::sha1_hex(&content) != name {
            return Err(wrong(format!("{name} is not what its name says")));
        }
        bytes += content.len();
        batch.push((hash, content));
        if bytes >= BATCH_BYTES {
            run.recorder.check()?;
            put(run, &std::mem::take(&mut batch))?;
            bytes = 0;
        }
    }
    Ok(put(run, &batch)?)
}

fn put(run: &Run<'_>, batch: &[(ContentHash, Vec<u8>)]) -> Result<(), StoreError> {
    if batch.is_empty() {
        return Ok(());
    }
    let files: Vec<(ContentHash, &[u8])> =
        batch.iter().map(|(hash, content)| (*hash, content.as_slice())).collect();
    run.app.store().put_files(&files)
}

/// What is kept of a failure, and who is told.
pub(super) fn failure(run: &Run<'_>, failed: &Failed) -> CompileFailure {
    let environment = Uuid::from_bytes(run.environment.uuid);
    let uri = format!("/api/v1/environments/{environment}/compiles/{}", run.id());
    let message = failure_message(&run.request, failed.pulling);
    let notice = message.map(|message| FailureNotice {
        uuid: Uuid::new_v4().into_bytes(),
        title: "Compilation failed".to_owned(),
        message,
        uri,
    });
    CompileFailure { data: json!({ "errors": failed.problems }), notice }
}

/// What people are told of a failure, if they are.
pub(super) fn failure_message(request: &CompileRequest, pulling: bool) -> Option<String> {
    if !request.notify_failure.unwrap_or(request.export) {
        return None;
    }
    Some(match &request.failure_message {
        Some(own) => own.clone(),
        None if pulling => "The repository could not be fetched".to_owned(),
        None if request.export => "A compile that stores a version has failed".to_owned(),
        None => "A compile has failed".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_told_of_failures_that_concern_them() {
        let told = |export: bool,
                    notify_failure: Option<bool>,
                    own: Option<&str>,
                    pulling: bool| {
            let failure_message = own.map(str::to_owned);
            let request =
                CompileRequest { export, notify_failure, failure_message, ..Default::default() };
            super::failure_message(&request, pulling)
        };
        assert!(told(true, None, None, false).unwrap().contains("stores a version"));
        assert_eq!(told(true, Some(false), None, false), None);
        assert_eq!(told(false, None, None, false), None);
        assert!(told(false, Some(true), None, false).is_some());
        assert_eq!(told(true, None, Some("own words"), true).as_deref(), Some("own words"));
        assert!(told(true, None, None, true).unwrap().contains("fetched"));
    }
}
