//! Storing versions: from a push, a compile or a roll-back.

mod collisions;
mod cycles;
mod parse;
mod partial_update;
mod removal;
mod upload_body;
mod validate;

pub(crate) use removal::unmanaged;
pub(crate) use upload_body::UploadBody;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orrery_api::{UploadBinding, UploadScope, VersionUpload};
use orrery_host::bundle::{Bundle, sha1_hex};
use orrery_model::{HostInventory, Removal, Resource, SetName, Timestamp, VersionNumber};
use orrery_store::{
    EnvironmentKey, INVENTORY, LOCAL_AGENTS, NewRequest, NewVersion, NewestRevision,
    ProjectBinding, PutOutcome, PutScope, RequestKind, RequestRecord, Selection, Store, StoreError,
    UndefinedParameter, VersionInfo, inventory_hash, local_agents,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::contents::{self, VersionAuthor};
use crate::error::ServerError;
use crate::host_inventory;
use crate::placement::DeclaredAgents;
use parse::parse_upload;

use partial_update::{Base, Change};

pub use validate::content_hash;

/// Maximum length of the name of a project.
const PROJECT_MAX: usize = 255;
/// Maximum number of attempts to store a partial version concurrently with others.
const ATTEMPTS: usize = 20;

/// Keys in the version info: code of the handlers, and dependencies between sets.
const CODE: &str = "code";
/// Key in the version info: contents that handlers request by another id than their SHA-1.
const FILES: &str = "files";
const UNSUITABLE: &str = "unsuitable_for_partial";
const BASE: &str = "partial_base";
const ROLLED_BACK: &str = "rolled_back_to";
/// Key in the version info: project of the model.
const PROJECT: &str = "model_project";

/// Operation to create with a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseOperation {
    /// Deploys resources that are not compliant.
    Deploy,
    /// Verifies every resource.
    Verify,
}

/// Result of storing a version.
pub struct StoredVersion {
    pub put: PutOutcome,
    /// Request that was created with the version.
    pub asked: Option<RequestRecord>,
    /// Removals by the version, if they were requested.
    pub removal: Option<Removal>,
    /// Project that the environment was bound to before.
    pub rebound_from: Option<String>,
}

/// Stores a version. `auto_release` is the default for the release.
///
/// Stores nothing if a rule is violated.
pub(crate) fn store_upload(
    store: &Store,
    environment: EnvironmentKey,
    author: &VersionAuthor,
    upload: VersionUpload,
    auto_release: bool,
    now: Timestamp,
) -> Result<StoredVersion, ServerError> {
    let release = upload.release.unwrap_or(auto_release);
    if upload.verify && !release {
        let reason = "requires a release: set release too";
        return Err(ServerError::field("verify", reason));
    }
    let number = upload.number.map(validate::version_number).transpose()?;
    validate::check_sets(&upload)?;
    let (resources, unknowns) =
        parse_upload(upload.resources, &upload.unknowns).map_err(ServerError::Invalid)?;
    if let Some(code) = &upload.code {
        check_code(store, author, code)?;
    }
    check_files(store, author, &upload.files)?;
    let hosts = match &upload.inventory {
        Some(hash) => host_inventory::check(store, author, hash)?,
        None => HostInventory::default(),
    };
    let used = contents::mentioned_contents(&resources);
    let code = upload.code.clone();
    let mut info = upload.info;
    if !upload.files.is_empty() {
        info.insert(FILES.to_owned(), json!(upload.files));
    }
    if let Some(inventory) = &upload.inventory {
        info.insert(INVENTORY.to_owned(), json!(inventory));
    }
    if let Some(project) = &upload.project {
        info.insert(PROJECT.to_owned(), json!(project));
    }
    let new = Draft {
        number,
        info: Value::Object(info),
        unknowns,
        release,
        operation: upload.verify.then_some(ReleaseOperation::Verify),
        only_if_changed: upload.only_if_changed,
        now,
        project: upload.project,
        binding: upload.binding,
    };
    new.check_binding()?;
    let used = contents::claim_for_version(
        store,
        environment,
        author,
        used,
        code.as_deref(),
        &new.info,
        now,
    )?;
    let stored = match upload.scope {
        UploadScope::Full if !upload.removed_sets.is_empty() => Err(ServerError::rule(
            "removed-sets-in-full",
            "removed_sets requires a partial upload: omit the resources of the set instead",
        )),
        UploadScope::Full => {
            let mut new = new;
            if let Some(code) = &upload.code {
                new.info[CODE] = json!(code);
            }
            let patterns = upload.local_agents.clone();
            let declared =
                DeclaredAgents { patterns, hosts: Arc::new(hosts), ..DeclaredAgents::default() };
            collisions::check(store, environment, &resources, declared)?;
            new.declare_local(upload.local_agents);
            if !partial_update::is_suitable(&resources) {
                new.info[UNSUITABLE] = json!(true);
            }
            cycles::check(&resources, &cycles::UntouchedRequires::new())?;
            if upload.prune {
                let adopted = upload.include_adopted;
                removal::store_removal(store, environment, &new, resources, adopted)
            } else {
                new.store(store, environment, &resources, PutScope::All, None)
            }
        }
        UploadScope::Partial if upload.prune => Err(ServerError::rule(
            "prune-in-partial",
            "prune requires a full upload: a partial one does not define the other sets",
        )),
        UploadScope::Partial => {
            let change = Change {
                resources,
                removed_sets: upload.removed_sets,
                code: upload.code,
                allow_code_update: upload.allow_code_update,
                local_agents: upload.local_agents,
            };
            store_partial(store, environment, new, &change)
        }
    }?;
    contents::record_use(store, environment, author, &used, now);
    Ok(stored)
}

/// True if a full upload has no resource in common with the newest version.
pub(crate) fn replaces_everything(
    store: &Store,
    environment: EnvironmentKey,
    upload: &VersionUpload,
) -> Result<bool, ServerError> {
    let Some(number) = store.versions().newest(environment)? else {
        return Ok(upload.resources.is_empty());
    };
    let (resources, _) =
        parse_upload(upload.resources.clone(), &upload.unknowns).map_err(ServerError::Invalid)?;
    let wanted: BTreeSet<_> = resources.iter().map(|resource| &resource.id).collect();
    let newest = store.versions().load(environment, number)?.resources;
    Ok(newest.iter().all(|resource| !wanted.contains(&resource.id)))
}

/// True if a full upload equals the newest version: the same resources, unknowns and code.
pub(crate) fn repeats_newest(
    store: &Store,
    environment: EnvironmentKey,
    upload: &VersionUpload,
) -> Result<bool, ServerError> {
    let Some(number) = store.versions().newest(environment)? else { return Ok(false) };
    let info = version_info(store, environment, number)?;
    if info.info[CODE].as_str() != upload.code.as_deref() {
        return Ok(false);
    }
    let (resources, mut unknowns) =
        parse_upload(upload.resources.clone(), &upload.unknowns).map_err(ServerError::Invalid)?;
    // An unknown that was resolved and is requested again needs a new version.
    let known = store.versions().unknowns(environment, number)?.into_iter();
    let mut known: Vec<UndefinedParameter> =
        known.filter(|(_, resolved)| !resolved).map(|(unknown, _)| unknown).collect();
    known.sort_unstable();
    unknowns.sort_unstable();
    if known != unknowns {
        return Ok(false);
    }
    let mut newest = store.versions().load(environment, number)?.resources;
    newest.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    let same = |(one, other): (&Resource, &Resource)| {
        one.id == other.id
            && one.hash == other.hash
            && one.requires == other.requires
            && one.flags == other.flags
            && one.set == other.set
    };
    Ok(newest.len() == resources.len() && newest.iter().zip(&resources).all(same))
}

/// A version before its resources are determined.
#[derive(Clone)]
struct Draft {
    number: Option<VersionNumber>,
    info: Value,
    unknowns: Vec<UndefinedParameter>,
    release: bool,
    /// Operation to create with the release.
    operation: Option<ReleaseOperation>,
    only_if_changed: bool,
    now: Timestamp,
    /// Project of the model, if known.
    project: Option<String>,
    binding: UploadBinding,
}

impl Draft {
    /// Records the agents that are the machine which runs the handlers, as the project declares
    /// them.
    fn declare_local(&mut self, mut patterns: Vec<String>) {
        patterns.sort_unstable();
        patterns.dedup();
        if !patterns.is_empty() {
            self.info[LOCAL_AGENTS] = json!(patterns);
        }
    }

    /// True if the newest version declares the same agents. Otherwise the version differs despite
    /// equal resources.
    fn declares_the_same(
        &self,
        store: &Store,
        environment: EnvironmentKey,
    ) -> Result<bool, StoreError> {
        let newest = store.versions().newest(environment)?;
        let newest = newest.map(|number| version_info(store, environment, number)).transpose()?;
        Ok(newest.is_none_or(|newest| {
            local_agents(&newest.info) == local_agents(&self.info)
                && inventory_hash(&newest.info) == inventory_hash(&self.info)
        }))
    }

    /// Fails if the binding mode requires a project and there is none.
    fn check_binding(&self) -> Result<(), ServerError> {
        match (&self.project, self.binding) {
            (None, UploadBinding::Check | UploadBinding::Rebind) => {
                Err(ServerError::field("project", "is required for the comparison"))
            }
            (Some(name), _) if name.is_empty() || name.chars().count() > PROJECT_MAX => {
                let reason = format!("must have 1 to {PROJECT_MAX} characters");
                Err(ServerError::field("project", reason))
            }
            _ => Ok(()),
        }
    }

    fn project(&self) -> Option<ProjectBinding<'_>> {
        match (self.binding, self.project.as_deref()) {
            (UploadBinding::Unbind, _) => Some(ProjectBinding::Unbind),
            (_, None) => None,
            (UploadBinding::Bind, Some(name)) => Some(ProjectBinding::Bind(name)),
            (UploadBinding::Check, Some(name)) => Some(ProjectBinding::Check(name)),
            (UploadBinding::Rebind, Some(name)) => Some(ProjectBinding::Rebind(name)),
        }
    }

    /// Returns the project that the environment is rebound from, if any.
    fn rebound_from(
        &self,
        store: &Store,
        environment: EnvironmentKey,
    ) -> Result<Option<String>, StoreError> {
        if self.binding != UploadBinding::Rebind {
            return Ok(None);
        }
        let bound = store.environments().by_key(environment)?.model_project;
        Ok(Some(bound).filter(|bound| !bound.is_empty() && Some(bound) != self.project.as_ref()))
    }

    fn store(
        &self,
        store: &Store,
        environment: EnvironmentKey,
        resources: &[Resource],
        scope: PutScope<'_>,
        base: Option<VersionNumber>,
    ) -> Result<StoredVersion, ServerError> {
        // A new number is the highest, so it can be released as it is stored. A reserved number may
        // be too old. An operation is created in one transaction with the release: an engine that
        // sees only one of them would run resources twice.
        let at_once = self.release && self.number.is_none() && self.operation.is_none();
        let only_if_changed = self.only_if_changed && self.declares_the_same(store, environment)?;
        let rebound_from = self.rebound_from(store, environment)?;
        let put = store.versions().put(
            environment,
            &NewVersion {
                number: self.number,
                made_at: self.now,
                info: &self.info,
                scope,
                base,
                resources,
                unknowns: &self.unknowns,
                released: at_once,
                only_if_changed,
                lease: None,
                project: self.project(),
            },
        )?;
        let is_due = self.release && !(at_once && put.created);
        let released = match is_due {
            false => Ok(None),
            true => release(store, environment, put.number, self.operation, self.now),
        };
        let asked = match released {
            Ok(asked) => asked,
            // A newer version is released: this one is stored, and the response shows that it is
            // not released.
            Err(StoreError::AlreadyReleased(_) | StoreError::Superseded { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(StoredVersion { put, asked, removal: None, rebound_from })
    }
}

/// Releases a version. Creates the operation in the same transaction; for it, the version may be
/// released already.
pub(crate) fn release(
    store: &Store,
    environment: EnvironmentKey,
    number: VersionNumber,
    operation: Option<ReleaseOperation>,
    now: Timestamp,
) -> Result<Option<RequestRecord>, StoreError> {
    // Both are deploys: users see the request, not its execution by the engine.
    let verify = match operation {
        None => return store.versions().release(environment, number, now).map(|()| None),
        Some(ReleaseOperation::Deploy) => false,
        Some(ReleaseOperation::Verify) => true,
    };
    // The operation would apply to another version. A release is never revoked, so this check stays
    // valid.
    let released =
        store.versions().list(environment)?.into_iter().filter(|version| version.released);
    let released: Vec<VersionNumber> = released.map(|version| version.number).collect();
    if let Some(&newest) = released.iter().max()
        && newest > number
        && released.contains(&number)
    {
        return Err(StoreError::Superseded { number, newest });
    }
    let kind = &RequestKind::Deploy { selection: Selection::default(), verify };
    let request = NewRequest { uuid: Uuid::new_v4().into(), kind };
    store.versions().release_with_request(environment, number, &request, now).map(Some)
}

/// Returns the ids, other than SHA-1, by which handlers of a version request contents.
pub(crate) fn named_files(info: &Value) -> BTreeMap<String, String> {
    let files = info.get(FILES).and_then(Value::as_object).into_iter().flatten();
    files.filter_map(|(id, sha1)| Some((id.clone(), sha1.as_str()?.to_owned()))).collect()
}

fn check_files(
    store: &Store,
    author: &VersionAuthor,
    files: &BTreeMap<String, String>,
) -> Result<(), ServerError> {
    let mut hashes = Vec::with_capacity(files.len());
    for (id, sha1) in files {
        let hash = validate::content_hash(sha1);
        hashes.push(hash.ok_or_else(|| {
            let text = format!("{id:?} must have a SHA-1 in hexadecimal digits");
            ServerError::field("files", text)
        })?);
    }
    let missing = contents::count_unknown(store, author, &hashes)?;
    if missing > 0 {
        let text = format!("{missing} contents of the version are missing: upload them");
        return Err(ServerError::rule("contents-missing", text));
    }
    Ok(())
}

fn code_missing(code: &str) -> ServerError {
    let text = format!("there is no file {code}: upload the code before the version");
    ServerError::rule("code-missing", text)
}

/// Reads a code bundle.
fn read_bundle(store: &Store, code: &str) -> Result<Bundle, ServerError> {
    let hash = validate::content_hash(code)
        .ok_or_else(|| ServerError::field("code", "must be a SHA-1 in hexadecimal digits"))?;
    let Some(content) = store.contents().get(&hash)? else {
        return Err(code_missing(code));
    };
    // Checked now: an invalid bundle would fail later, without a client to report to.
    serde_json::from_slice(&content).map_err(|error| {
        let text = format!("the file {code} does not describe code: {error}");
        ServerError::rule("code-invalid", text)
    })
}

/// Merges the code of a partial version over that of the previous one, which the other sets use.
/// Records changed modules in `base`.
fn merge_code(
    store: &Store,
    code: Option<&str>,
    base: &mut Base,
) -> Result<Option<String>, ServerError> {
    let (code, before) = match (code, &base.code) {
        (Some(code), Some(before)) if code != before => (code, before.clone()),
        (code, before) => return Ok(code.map(str::to_owned).or_else(|| before.clone())),
    };
    let (change, old) = (read_bundle(store, code)?, read_bundle(store, &before)?);
    base.differing = change.differing(&old);
    let internal = |error| ServerError::Internal(format!("a bundle: {error}"));
    let merged = change.merged_over(&old).map_err(internal)?;
    if merged == old {
        return Ok(Some(before));
    }
    if merged == change {
        return Ok(Some(code.to_owned()));
    }
    let text = merged.to_json().map_err(internal)?;
    let sha1 = sha1_hex(&text);
    if let Some(hash) = validate::content_hash(&sha1) {
        store.contents().put(&[(hash, &text)])?;
    }
    Ok(Some(sha1))
}

fn check_code(store: &Store, author: &VersionAuthor, code: &str) -> Result<(), ServerError> {
    let is_made = author.generated_code.as_deref() == Some(code);
    let hash = validate::content_hash(code);
    if !is_made
        && let Some(hash) = hash
        && contents::count_unknown(store, author, &[hash])? > 0
    {
        return Err(code_missing(code));
    }
    let bundle = read_bundle(store, code)?;
    let mut files = Vec::with_capacity(bundle.files.len());
    for (path, sha1) in &bundle.files {
        files.push(validate::content_hash(sha1).ok_or_else(|| {
            let text = format!("the file {code} does not describe code: {path} has no SHA-1");
            ServerError::rule("code-invalid", text)
        })?);
    }
    let missing = contents::count_unknown(store, author, &files)?;
    if missing > 0 {
        let text = format!("{missing} of the files of {code} are missing: upload them");
        return Err(ServerError::rule("code-missing", text));
    }
    Ok(())
}

fn standing_of(
    store: &Store,
    environment: EnvironmentKey,
    base: &mut Base,
    ids: Vec<String>,
) -> Result<(), ServerError> {
    let names: Vec<&str> = ids.iter().map(String::as_str).collect();
    let found = store.versions().newest_revisions(environment, &names)?;
    let known = ids.into_iter().zip(found);
    base.newest_revisions.extend(known.filter_map(|(id, newest)| Some((id, newest?))));
    Ok(())
}

/// Reads the facts about the newest version that the rules need.
fn read_base(
    store: &Store,
    environment: EnvironmentKey,
    info: &VersionInfo,
    change: &Change,
) -> Result<Base, ServerError> {
    let mut base = Base {
        newest_revisions: std::collections::HashMap::new(),
        code: info.info[CODE].as_str().map(str::to_owned),
        differing: Vec::new(),
        suitable: info.info[UNSUITABLE] != json!(true),
    };
    let mut ids: Vec<String> = Vec::new();
    for resource in &change.resources {
        ids.push(resource.id.to_string());
        ids.extend(resource.requires.iter().map(ToString::to_string));
    }
    ids.sort_unstable();
    ids.dedup();
    standing_of(store, environment, &mut base, ids)?;
    // Shared resources keep their present requirements.
    let kept: Vec<&NewestRevision> =
        base.newest_revisions.values().filter(|newest| newest.set.is_none()).collect();
    let mut more: Vec<String> = kept.iter().flat_map(|newest| newest.requires.clone()).collect();
    more.retain(|id| !base.newest_revisions.contains_key(id));
    more.sort_unstable();
    more.dedup();
    standing_of(store, environment, &mut base, more)?;
    Ok(base)
}

/// Stores a partial version on top of the newest one.
fn store_partial(
    store: &Store,
    environment: EnvironmentKey,
    new: Draft,
    change: &Change,
) -> Result<StoredVersion, ServerError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let Some(number) = store.versions().newest(environment)? else {
            return Err(partial_update::RuleViolation::NoBase.into());
        };
        // A number reserved before the newest version was stored is too old.
        if let Some(own) = new.number.filter(|own| *own <= number) {
            return Err(
                partial_update::RuleViolation::LateNumber { own: own.0, base: number.0 }.into()
            );
        }
        let info = version_info(store, environment, number)?;
        let mut base = read_base(store, environment, &info, change)?;
        let code = merge_code(store, change.code.as_deref(), &mut base)?;
        let resources = partial_update::check(change, &base)?;
        let untouched = cycles::read_untouched(store, environment, (change, &base), &resources)?;
        cycles::check(&resources, &untouched)?;
        let touched = change.touched();
        let mut new = new.clone();
        keep_unknowns(store, environment, number, (change, &base), &mut new.unknowns)?;
        if let Some(code) = code {
            new.info[CODE] = json!(code);
        }
        let mut patterns = local_agents(&info.info);
        patterns.extend(change.local_agents.iter().cloned());
        new.declare_local(patterns);
        if new.info.get(INVENTORY).is_none()
            && let Some(hash) = inventory_hash(&info.info)
        {
            new.info[INVENTORY] = json!(hash);
        }
        let mut files = named_files(&info.info);
        files.extend(named_files(&new.info));
        if !files.is_empty() {
            new.info[FILES] = json!(files);
        }
        if !base.suitable {
            new.info[UNSUITABLE] = json!(true);
        }
        new.info[BASE] = json!(number.0);
        let sets: Vec<SetName> = touched.iter().map(|name| Some((*name).into())).collect();
        match new.store(store, environment, &resources, PutScope::Sets(&sets), Some(number)) {
            Err(ServerError::Store(StoreError::BaseChanged { .. })) if attempt < ATTEMPTS => {}
            answer => return answer,
        }
    }
}

/// Keeps the unknowns of untouched resources.
fn keep_unknowns(
    store: &Store,
    environment: EnvironmentKey,
    number: VersionNumber,
    (change, base): (&Change, &Base),
    unknowns: &mut Vec<UndefinedParameter>,
) -> Result<(), ServerError> {
    let touched = change.touched();
    for (unknown, resolved) in store.versions().unknowns(environment, number)? {
        if resolved || unknowns.contains(&unknown) {
            continue;
        }
        let is_touched = match &unknown.resource {
            None => false,
            Some(id) => {
                let known = base.newest_revisions.get(id.as_str()).cloned();
                let newest = match known {
                    Some(newest) => Some(newest),
                    None => store
                        .versions()
                        .newest_revisions(environment, &[id.as_str()])?
                        .pop()
                        .flatten(),
                };
                newest
                    .and_then(|newest| newest.set)
                    .is_some_and(|set| touched.contains(set.as_str()))
            }
        };
        if !is_touched {
            unknowns.push(unknown);
        }
    }
    Ok(())
}

/// Returns a stored version.
pub fn version_info(
    store: &Store,
    environment: EnvironmentKey,
    number: VersionNumber,
) -> Result<VersionInfo, StoreError> {
    let found = store.versions().list(environment)?.into_iter().find(|info| info.number == number);
    found.ok_or(StoreError::NoVersion(number))
}

/// Stores the content of an old version as a new one, and releases it.
pub(crate) fn roll_back(
    store: &Store,
    environment: EnvironmentKey,
    number: VersionNumber,
    operation: Option<ReleaseOperation>,
    now: Timestamp,
) -> Result<StoredVersion, ServerError> {
    let old = store.versions().load(environment, number)?;
    let unknowns = store.versions().unknowns(environment, number)?;
    let unknowns = unknowns.into_iter().filter(|(_, resolved)| !resolved);
    let mut info = match old.info {
        Value::Object(info) => Value::Object(info),
        other => json!({"message": other}),
    };
    if let Some(info) = info.as_object_mut() {
        info.remove(BASE);
    }
    info[ROLLED_BACK] = json!(number.0);
    // A roll-back to a version of another project rebinds the environment to it.
    let project = info[PROJECT].as_str().map(str::to_owned);
    let new = Draft {
        number: None,
        info,
        unknowns: unknowns.map(|(unknown, _)| unknown).collect(),
        release: true,
        operation,
        only_if_changed: false,
        now,
        binding: if project.is_some() { UploadBinding::Rebind } else { UploadBinding::Bind },
        project,
    };
    new.store(store, environment, &old.resources, PutScope::All, None)
}
