//! Storing versions as they are sent: by a push, by a compile, by a roll-back.

mod collisions;
mod cycles;
mod removal;
mod rules;
mod upload;

pub(crate) use removal::unmanaged;

use std::collections::{BTreeMap, BTreeSet};

use orrery_api::{UploadBinding, UploadScope, VersionUpload};
use orrery_host::bundle::{Bundle, sha1_hex};
use orrery_model::{Removal, Resource, SetName, Timestamp, VersionNumber};
use orrery_store::{
    EnvironmentKey, LOCAL_AGENTS, NewRequest, NewVersion, ProjectBinding, PutVersion,
    RequestRecord, Scope, Standing, Store, StoreError, Unknown, VersionInfo, load_version,
    local_agents,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::contents::{self, Pusher};
use crate::problem::ServerError;
use crate::upload::read_upload;

use rules::{Base, Change};

pub(crate) use upload::content_hash;

/// Characters of the name of a project.
const PROJECT_MAX: usize = 255;
/// Attempts to store a change of some sets while others do so too.
const ATTEMPTS: usize = 20;

/// In the information on a version: which code its handlers need, and whether sets depend on each other.
const CODE: &str = "code";
/// In the information on a version: contents that handlers ask for by other ids than their SHA-1.
const FILES: &str = "files";
const UNSUITABLE: &str = "unsuitable_for_partial";
const BASE: &str = "partial_base";
const ROLLED_BACK: &str = "rolled_back_to";
/// And which project its model belongs to.
const PROJECT: &str = "model_project";

/// What the engine is asked for along with a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Along {
    /// What is not as wanted is deployed.
    Deploy,
    /// Every resource is looked at.
    Verify,
}

/// What storing a version came to.
pub(crate) struct Stored {
    pub(crate) put: PutVersion,
    /// What was asked for along with it.
    pub(crate) asked: Option<RequestRecord>,
    /// What the version removes, if that was wanted.
    pub(crate) removal: Option<Removal>,
    /// The project that the environment belonged to before.
    pub(crate) rebound_from: Option<String>,
}

/// Stores a version. `auto_release` says whether it is released if the upload does not say.
///
/// Nothing is stored if a rule is broken.
pub(crate) fn store_upload(
    store: &dyn Store,
    environment: EnvironmentKey,
    pusher: &Pusher,
    upload: VersionUpload,
    auto_release: bool,
    now: Timestamp,
) -> Result<Stored, ServerError> {
    let release = upload.release.unwrap_or(auto_release);
    if upload.verify && !release {
        let reason = "is for versions that are released: ask for that too";
        return Err(ServerError::field("verify", reason));
    }
    let number = upload.number.map(upload::number).transpose()?;
    upload::check_sets(&upload)?;
    let (resources, unknowns) =
        read_upload(upload.resources, &upload.unknowns).map_err(ServerError::Invalid)?;
    if let Some(code) = &upload.code {
        check_code(store, pusher, code)?;
    }
    check_files(store, pusher, &upload.files)?;
    let used = contents::mentioned(&resources);
    let code = upload.code.clone();
    let mut info = upload.info;
    if !upload.files.is_empty() {
        info.insert(FILES.to_owned(), json!(upload.files));
    }
    if let Some(project) = &upload.project {
        info.insert(PROJECT.to_owned(), json!(project));
    }
    let new = Draft {
        number,
        info: Value::Object(info),
        unknowns,
        release,
        along: upload.verify.then_some(Along::Verify),
        only_if_changed: upload.only_if_changed,
        now,
        project: upload.project,
        binding: upload.binding,
    };
    new.check_binding()?;
    let used =
        contents::claim_use(store, environment, pusher, used, code.as_deref(), &new.info, now)?;
    let stored = match upload.scope {
        UploadScope::Full if !upload.removed_sets.is_empty() => Err(ServerError::rule(
            "removed-sets-in-full",
            "removed_sets is for changes of some sets: leave the resources of a set out instead",
        )),
        UploadScope::Full => {
            let mut new = new;
            if let Some(code) = &upload.code {
                new.info[CODE] = json!(code);
            }
            collisions::check(store, environment, &resources, &upload.local_agents)?;
            new.declare_local(upload.local_agents);
            if !rules::is_suitable(&resources) {
                new.info[UNSUITABLE] = json!(true);
            }
            cycles::check(&resources, &cycles::Left::new())?;
            if upload.prune {
                let adopted = upload.include_adopted;
                removal::store_removal(store, environment, &new, resources, adopted)
            } else {
                new.store(store, environment, &resources, Scope::All, None)
            }
        }
        UploadScope::Partial if upload.prune => Err(ServerError::rule(
            "prune-in-partial",
            "prune is for uploads of all that is wanted: a change of some sets says nothing about the rest",
        )),
        UploadScope::Partial => {
            let change = Change {
                resources,
                removed_sets: upload.removed_sets,
                code: upload.code,
                allow_code_update: upload.allow_code_update,
                local_agents: upload.local_agents,
            };
            store_change(store, environment, new, &change)
        }
    }?;
    contents::settle_use(store, environment, pusher, &used, now);
    Ok(stored)
}

/// Whether an upload of everything has no resource of the newest version.
pub(crate) fn replaces_everything(
    store: &dyn Store,
    environment: EnvironmentKey,
    upload: &VersionUpload,
) -> Result<bool, ServerError> {
    let Some(number) = store.records().newest_version(environment)? else {
        return Ok(upload.resources.is_empty());
    };
    let (resources, _) =
        read_upload(upload.resources.clone(), &upload.unknowns).map_err(ServerError::Invalid)?;
    let wanted: BTreeSet<_> = resources.iter().map(|resource| &resource.id).collect();
    let newest = load_version(store, environment, number)?.resources;
    Ok(newest.iter().all(|resource| !wanted.contains(&resource.id)))
}

/// Whether the newest version wants what an upload of everything wants: the same resources, unknowns and code.
pub(crate) fn repeats_newest(
    store: &dyn Store,
    environment: EnvironmentKey,
    upload: &VersionUpload,
) -> Result<bool, ServerError> {
    let Some(number) = store.records().newest_version(environment)? else { return Ok(false) };
    let info = version_info(store, environment, number)?;
    if info.info[CODE].as_str() != upload.code.as_deref() {
        return Ok(false);
    }
    let (resources, mut unknowns) =
        read_upload(upload.resources.clone(), &upload.unknowns).map_err(ServerError::Invalid)?;
    // What became known meanwhile and is asked for again has to be asked for by a version of its own.
    let known = store.unknowns(environment, number)?.into_iter();
    let mut known: Vec<Unknown> =
        known.filter(|(_, resolved)| !resolved).map(|(unknown, _)| unknown).collect();
    known.sort_unstable();
    unknowns.sort_unstable();
    if known != unknowns {
        return Ok(false);
    }
    let mut newest = load_version(store, environment, number)?.resources;
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

/// A version before it is known which resources it has.
#[derive(Clone)]
struct Draft {
    number: Option<VersionNumber>,
    info: Value,
    unknowns: Vec<Unknown>,
    release: bool,
    /// What the engine is asked for along with the release.
    along: Option<Along>,
    only_if_changed: bool,
    now: Timestamp,
    /// The project of its model, if that is known.
    project: Option<String>,
    binding: UploadBinding,
}

impl Draft {
    /// Notes which agents are the machine that runs the handlers, as the project declares them.
    fn declare_local(&mut self, mut patterns: Vec<String>) {
        patterns.sort_unstable();
        patterns.dedup();
        if !patterns.is_empty() {
            self.info[LOCAL_AGENTS] = json!(patterns);
        }
    }

    /// Whether the newest version declares the same about agents: if not, it is another version with the same resources.
    fn declares_the_same(
        &self,
        store: &dyn Store,
        environment: EnvironmentKey,
    ) -> Result<bool, StoreError> {
        let newest = store.records().newest_version(environment)?;
        let newest = newest.map(|number| version_info(store, environment, number)).transpose()?;
        Ok(newest.is_none_or(|newest| local_agents(&newest.info) == local_agents(&self.info)))
    }

    /// What is wanted of the binding has to name a project.
    fn check_binding(&self) -> Result<(), ServerError> {
        match (&self.project, self.binding) {
            (None, UploadBinding::Check | UploadBinding::Rebind) => {
                Err(ServerError::field("project", "must be there to be compared"))
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

    /// The other project that the environment is taken from, if it is.
    fn rebound_from(
        &self,
        store: &dyn Store,
        environment: EnvironmentKey,
    ) -> Result<Option<String>, StoreError> {
        if self.binding != UploadBinding::Rebind {
            return Ok(None);
        }
        let bound = store.records().environment_of(environment)?.model_project;
        Ok(Some(bound).filter(|bound| !bound.is_empty() && Some(bound) != self.project.as_ref()))
    }

    fn store(
        &self,
        store: &dyn Store,
        environment: EnvironmentKey,
        resources: &[Resource],
        scope: Scope<'_>,
        base: Option<VersionNumber>,
    ) -> Result<Stored, ServerError> {
        // A new number is the highest, so that it may be released as it is stored. A number from before may be late, and what is
        // asked for along with a release comes with it: an engine that knows of one of them only would run resources twice.
        let at_once = self.release && self.number.is_none() && self.along.is_none();
        let only_if_changed = self.only_if_changed && self.declares_the_same(store, environment)?;
        let rebound_from = self.rebound_from(store, environment)?;
        let put = store.put_version(
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
            true => release(store, environment, put.number, self.along, self.now),
        };
        let asked = match released {
            Ok(asked) => asked,
            // A newer one is released: this one is kept, and the answer says that it is not wanted.
            Err(StoreError::AlreadyReleased(_) | StoreError::Superseded { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(Stored { put, asked, removal: None, rebound_from })
    }
}

/// Makes a version the one that is wanted. What is asked for along with that is put down in the same transaction, and may be asked for a
/// version that is wanted already.
pub(crate) fn release(
    store: &dyn Store,
    environment: EnvironmentKey,
    number: VersionNumber,
    along: Option<Along>,
    now: Timestamp,
) -> Result<Option<RequestRecord>, StoreError> {
    // Both are deploys: people are told what was asked for, not what the engine makes of it.
    let payload = match along {
        None => return store.release_version(environment, number, now).map(|()| None),
        Some(Along::Deploy) => json!({}),
        Some(Along::Verify) => json!({"verify": true}),
    };
    // The engine would be asked for what another version wants. Nothing takes a release back, so that this stays so.
    let released = store.versions(environment)?.into_iter().filter(|version| version.released);
    let released: Vec<VersionNumber> = released.map(|version| version.number).collect();
    if let Some(&newest) = released.iter().max()
        && newest > number
        && released.contains(&number)
    {
        return Err(StoreError::Superseded { number, newest });
    }
    let request =
        NewRequest { uuid: Uuid::new_v4().into_bytes(), kind: "deploy", payload: &payload };
    store.release_and_ask(environment, number, &request, now).map(Some)
}

/// The ids, other than their SHA-1, by which handlers of a version ask for contents.
pub(crate) fn named_files(info: &Value) -> BTreeMap<String, String> {
    let files = info.get(FILES).and_then(Value::as_object).into_iter().flatten();
    files.filter_map(|(id, sha1)| Some((id.clone(), sha1.as_str()?.to_owned()))).collect()
}

fn check_files(
    store: &dyn Store,
    pusher: &Pusher,
    files: &BTreeMap<String, String>,
) -> Result<(), ServerError> {
    let mut hashes = Vec::with_capacity(files.len());
    for (id, sha1) in files {
        let hash = upload::content_hash(sha1);
        hashes.push(hash.ok_or_else(|| {
            let text = format!("{id:?} must have a SHA-1 in hexadecimal digits");
            ServerError::field("files", text)
        })?);
    }
    let missing = contents::unknown_to(store, pusher, &hashes)?;
    if missing > 0 {
        let text = format!("{missing} contents of the version are not there: upload them");
        return Err(ServerError::rule("contents-missing", text));
    }
    Ok(())
}

fn code_missing(code: &str) -> ServerError {
    let text = format!("there is no file {code}: upload the code before the version");
    ServerError::rule("code-missing", text)
}

/// The description of code.
fn read_bundle(store: &dyn Store, code: &str) -> Result<Bundle, ServerError> {
    let hash = upload::content_hash(code)
        .ok_or_else(|| ServerError::field("code", "must be a SHA-1 in hexadecimal digits"))?;
    let Some(content) = store.file(&hash)? else {
        return Err(code_missing(code));
    };
    // Nobody could run it later, and nobody would be there to be told.
    serde_json::from_slice(&content).map_err(|error| {
        let text = format!("the file {code} does not describe code: {error}");
        ServerError::rule("code-invalid", text)
    })
}

/// The code of a change of some sets: what the change imports, over that of the version before, which the other sets use. Notes
/// in `base` which modules are other ones.
fn merge_code(
    store: &dyn Store,
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
    let merged = change.over(&old).map_err(internal)?;
    if merged == old {
        return Ok(Some(before));
    }
    if merged == change {
        return Ok(Some(code.to_owned()));
    }
    let text = merged.to_json().map_err(internal)?;
    let sha1 = sha1_hex(&text);
    if let Some(hash) = upload::content_hash(&sha1) {
        store.put_files(&[(hash, &text)])?;
    }
    Ok(Some(sha1))
}

fn check_code(store: &dyn Store, pusher: &Pusher, code: &str) -> Result<(), ServerError> {
    let is_made = pusher.made.as_deref() == Some(code);
    let hash = upload::content_hash(code);
    if !is_made
        && let Some(hash) = hash
        && contents::unknown_to(store, pusher, &[hash])? > 0
    {
        return Err(code_missing(code));
    }
    let bundle = read_bundle(store, code)?;
    let mut files = Vec::with_capacity(bundle.files.len());
    for (path, sha1) in &bundle.files {
        files.push(upload::content_hash(sha1).ok_or_else(|| {
            let text = format!("the file {code} does not describe code: {path} has no SHA-1");
            ServerError::rule("code-invalid", text)
        })?);
    }
    let missing = contents::unknown_to(store, pusher, &files)?;
    if missing > 0 {
        let text = format!("{missing} of the files that {code} names are not there: upload them");
        return Err(ServerError::rule("code-missing", text));
    }
    Ok(())
}

fn standing_of(
    store: &dyn Store,
    environment: EnvironmentKey,
    base: &mut Base,
    ids: Vec<String>,
) -> Result<(), ServerError> {
    let names: Vec<&str> = ids.iter().map(String::as_str).collect();
    let found = store.records().standings(environment, &names)?;
    let known = ids.into_iter().zip(found);
    base.standings.extend(known.filter_map(|(id, standing)| Some((id, standing?))));
    Ok(())
}

/// What has to be known of the newest version to judge a change.
fn read_base(
    store: &dyn Store,
    environment: EnvironmentKey,
    info: &VersionInfo,
    change: &Change,
) -> Result<Base, ServerError> {
    let mut base = Base {
        standings: std::collections::HashMap::new(),
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
    // Shared resources bring along what they require already.
    let kept: Vec<&Standing> =
        base.standings.values().filter(|standing| standing.set.is_none()).collect();
    let mut more: Vec<String> =
        kept.iter().flat_map(|standing| standing.requires.clone()).collect();
    more.retain(|id| !base.standings.contains_key(id));
    more.sort_unstable();
    more.dedup();
    standing_of(store, environment, &mut base, more)?;
    Ok(base)
}

/// Stores a change of some sets, on top of the newest version.
fn store_change(
    store: &dyn Store,
    environment: EnvironmentKey,
    new: Draft,
    change: &Change,
) -> Result<Stored, ServerError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let Some(number) = store.records().newest_version(environment)? else {
            return Err(rules::Broken::NoBase.into());
        };
        // A number that was reserved before the newest version was stored is too late for a change of it.
        if let Some(own) = new.number.filter(|own| *own <= number) {
            return Err(rules::Broken::LateNumber { own: own.0, base: number.0 }.into());
        }
        let info = version_info(store, environment, number)?;
        let mut base = read_base(store, environment, &info, change)?;
        let code = merge_code(store, change.code.as_deref(), &mut base)?;
        let resources = rules::check(change, &base)?;
        let left = cycles::read_left(store, environment, (change, &base), &resources)?;
        cycles::check(&resources, &left)?;
        let touched = change.touched();
        let mut new = new.clone();
        keep_unknowns(store, environment, number, (change, &base), &mut new.unknowns)?;
        if let Some(code) = code {
            new.info[CODE] = json!(code);
        }
        let mut patterns = local_agents(&info.info);
        patterns.extend(change.local_agents.iter().cloned());
        new.declare_local(patterns);
        let mut files = named_files(&info.info);
        files.extend(named_files(&new.info));
        if !files.is_empty() {
            new.info[FILES] = json!(files);
        }
        new.info[BASE] = json!(number.0);
        let sets: Vec<SetName> = touched.iter().map(|name| Some((*name).into())).collect();
        match new.store(store, environment, &resources, Scope::Sets(&sets), Some(number)) {
            Err(ServerError::Store(StoreError::BaseChanged { .. })) if attempt < ATTEMPTS => {}
            answer => return answer,
        }
    }
}

/// Unknowns of what the change does not touch are those of the version before.
fn keep_unknowns(
    store: &dyn Store,
    environment: EnvironmentKey,
    number: VersionNumber,
    (change, base): (&Change, &Base),
    unknowns: &mut Vec<Unknown>,
) -> Result<(), ServerError> {
    let touched = change.touched();
    for (unknown, resolved) in store.unknowns(environment, number)? {
        if resolved || unknowns.contains(&unknown) {
            continue;
        }
        let is_touched = match &unknown.resource {
            None => false,
            Some(id) => {
                let known = base.standings.get(id.as_str()).cloned();
                let standing = match known {
                    Some(standing) => Some(standing),
                    None => store.records().standings(environment, &[id.as_str()])?.pop().flatten(),
                };
                standing
                    .and_then(|standing| standing.set)
                    .is_some_and(|set| touched.contains(set.as_str()))
            }
        };
        if !is_touched {
            unknowns.push(unknown);
        }
    }
    Ok(())
}

/// One stored version.
pub(crate) fn version_info(
    store: &dyn Store,
    environment: EnvironmentKey,
    number: VersionNumber,
) -> Result<VersionInfo, StoreError> {
    let found = store.versions(environment)?.into_iter().find(|info| info.number == number);
    found.ok_or(StoreError::NoVersion(number))
}

/// Stores what an old version wanted as a new one, and releases it.
pub(crate) fn roll_back(
    store: &dyn Store,
    environment: EnvironmentKey,
    number: VersionNumber,
    along: Option<Along>,
    now: Timestamp,
) -> Result<Stored, ServerError> {
    let old = load_version(store, environment, number)?;
    let unknowns = store.unknowns(environment, number)?;
    let unknowns = unknowns.into_iter().filter(|(_, resolved)| !resolved);
    let mut info = match old.info {
        Value::Object(info) => Value::Object(info),
        other => json!({"message": other}),
    };
    if let Some(info) = info.as_object_mut() {
        info.remove(BASE);
    }
    info[ROLLED_BACK] = json!(number.0);
    // Whoever goes back to what another project wanted goes back to that project.
    let project = info[PROJECT].as_str().map(str::to_owned);
    let new = Draft {
        number: None,
        info,
        unknowns: unknowns.map(|(unknown, _)| unknown).collect(),
        release: true,
        along,
        only_if_changed: false,
        now,
        binding: if project.is_some() { UploadBinding::Rebind } else { UploadBinding::Bind },
        project,
    };
    new.store(store, environment, &old.resources, Scope::All, None)
}
