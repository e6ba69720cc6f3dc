//! Contents of files: who may know of them, how much may wait to be used, and which of them versions use.
//!
//! A content belongs to who uploaded it until a version refers to it, and to the environments of such versions from then on. Callers learn
//! only of those that are theirs in this sense; for everything else the answer is that it is not there, whether it is or not.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::http::StatusCode;
use orrery_model::{Resource, Timestamp};
use orrery_store::{
    ContentHash, ContentHolder, ContentView, EnvironmentKey, Store, StoreError, mentioned_hashes,
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::access::Right;
use crate::app::App;
use crate::auth::Caller;
use crate::problem::ServerError;

/// How long and how much of what is uploaded is kept until a version refers to it.
#[derive(Clone, Copy, Debug)]
pub struct ContentLimits {
    /// What nothing refers to is deleted after this.
    pub grace: Duration,
    /// Bytes that one account may have uploaded and that no version refers to.
    pub account_max: u64,
    /// The same for all accounts together.
    pub all_max: u64,
}

impl Default for ContentLimits {
    fn default() -> Self {
        ContentLimits {
            grace: Duration::from_secs(24 * 3600),
            account_max: 2 << 30,
            all_max: 16 << 30,
        }
    }
}

/// Who stores a version: it may refer to what it may know of.
#[derive(Clone, Debug)]
pub(crate) struct Pusher {
    view: ContentView,
    uploader: Option<[u8; 16]>,
    /// The description of code that the server itself made of what the pusher sent.
    pub(crate) made: Option<String>,
}

impl Pusher {
    pub(crate) fn of(store: &dyn Store, caller: &Caller) -> Result<Self, StoreError> {
        let view = view_of(store, caller, Right::Develop)?;
        Ok(Pusher { view, uploader: Some(uploader(caller)), made: None })
    }

    /// The compile service, which stores what compiles of one environment handed over.
    pub(crate) fn compiles_of(environment: EnvironmentKey) -> Self {
        let environments = Some(BTreeSet::from([environment]));
        let view = ContentView { account: None, environments };
        Pusher { view, uploader: None, made: None }
    }
}

/// How the uploads of a caller are marked: by its account, or by its name where it has none.
fn uploader(caller: &Caller) -> [u8; 16] {
    if let Some(account) = caller.account {
        return account.into_bytes();
    }
    let digest = Sha256::digest(caller.name.as_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&digest[..16]);
    id
}

/// The contents that a caller uploaded, and those of environments where it has a right.
fn view_of(store: &dyn Store, caller: &Caller, right: Right) -> Result<ContentView, StoreError> {
    let environments = match caller.may_everywhere(right) {
        true => None,
        false => {
            let all = store.records().list_environments(None)?.into_iter();
            let theirs = all.filter(|one| caller.may_in_environment(right, one));
            Some(theirs.map(|one| one.key).collect())
        }
    };
    Ok(ContentView { account: Some(uploader(caller)), environments })
}

/// How many of some contents are not there, or not known to what stores a version.
pub(crate) fn unknown_to(
    store: &dyn Store,
    pusher: &Pusher,
    hashes: &[ContentHash],
) -> Result<usize, StoreError> {
    let hashes: BTreeSet<ContentHash> = hashes.iter().copied().collect();
    let hashes: Vec<ContentHash> = hashes.into_iter().collect();
    let mut unknown = store.records().foreign_contents(&pusher.view, &hashes)?;
    unknown.extend(store.missing_files(&hashes)?);
    Ok(unknown.len())
}

/// Which of some contents a caller has to upload before it can refer to them. The others are kept for a while from now on.
pub(crate) async fn missing(
    app: &App,
    caller: &Caller,
    hashes: Vec<ContentHash>,
) -> Result<Vec<ContentHash>, ServerError> {
    let (caller, now) = (caller.clone(), app.now());
    let look = move |store: &dyn Store| {
        let view = view_of(store, &caller, Right::Develop)?;
        let known = store.records().known_contents(&view, &hashes)?;
        store.records().touch_contents(&known, now)?;
        Ok(hashes.into_iter().filter(|hash| !known.contains(hash)).collect())
    };
    app.with_store(look).await
}

/// A content, if the caller may know of it.
pub(crate) async fn read(
    app: &App,
    caller: &Caller,
    hash: ContentHash,
) -> Result<Option<Vec<u8>>, ServerError> {
    let caller = caller.clone();
    let look = move |store: &dyn Store| {
        let view = view_of(store, &caller, Right::View)?;
        match store.records().foreign_contents(&view, &[hash])?.is_empty() {
            true => store.file(&hash),
            false => Ok(None),
        }
    };
    app.with_store(look).await
}

/// Keeps a content for who uploads it, within what may wait to be used.
pub(crate) async fn keep(
    app: &App,
    caller: &Caller,
    hash: ContentHash,
    content: impl AsRef<[u8]> + Send + 'static,
) -> Result<(), ServerError> {
    let (own, now, limits) = (uploader(caller), app.now(), app.settings().contents);
    let view = ContentView { account: Some(own), environments: Some(BTreeSet::new()) };
    let put = move |store: &dyn Store| {
        let (records, content) = (store.records(), content.as_ref());
        if records.known_contents(&view, &[hash])?.is_empty() {
            let unused = records.unused_contents(&own)?;
            let size = content.len() as u64;
            if unused.of_account.saturating_add(size) > limits.account_max {
                return Ok(Err(over_quota("your account", limits.account_max, limits.grace)));
            }
            if unused.of_all.saturating_add(size) > limits.all_max {
                return Ok(Err(over_quota("all accounts", limits.all_max, limits.grace)));
            }
        }
        store.put_files(&[(hash, content)])?;
        records.claim_contents(ContentHolder::Account(own), &BTreeSet::from([hash]), now)?;
        Ok(Ok(()))
    };
    app.change(put).await?
}

fn over_quota(whose: &str, most: u64, grace: Duration) -> ServerError {
    ServerError::Refused {
        status: StatusCode::INSUFFICIENT_STORAGE,
        code: "contents-quota",
        detail: format!(
            "contents of {whose} that no version refers to may have {} MiB: store versions that \
             refer to them, or wait until they are deleted, {} hours after their upload",
            most >> 20,
            grace.as_secs() / 3600
        ),
    }
}

/// Contents that resources and what is known of their version mention.
pub(crate) fn mentioned(resources: &[Resource]) -> BTreeSet<ContentHash> {
    resources.iter().flat_map(|one| mentioned_hashes(one.attributes.as_str())).collect()
}

/// Claims what a version is about to use for its environment, as far as its pusher may know of it: contents of others stay out of reach,
/// even for a model that guesses their names. Answers what is newly claimed.
pub(crate) fn claim_use(
    store: &dyn Store,
    environment: EnvironmentKey,
    pusher: &Pusher,
    mut used: BTreeSet<ContentHash>,
    code: Option<&str>,
    info: &Value,
    now: Timestamp,
) -> Result<BTreeSet<ContentHash>, StoreError> {
    used.extend(mentioned_hashes(&info.to_string()));
    if let Some(code) = code.and_then(ContentHash::from_hex) {
        used.insert(code);
        let bundle = store.file(&code)?.unwrap_or_default();
        used.extend(mentioned_hashes(&String::from_utf8_lossy(&bundle)));
    }
    let records = store.records();
    let asked: Vec<ContentHash> = used.iter().copied().collect();
    let environments = Some(BTreeSet::from([environment]));
    let own = ContentView { account: None, environments };
    let known = records.known_contents(&own, &asked)?;
    let foreign = records.foreign_contents(&pusher.view, &asked)?;
    used.retain(|hash| !known.contains(hash) && !foreign.contains(hash));
    records.claim_contents(ContentHolder::Environment(environment), &used, now)?;
    Ok(used)
}

/// Notes that a version that was stored uses contents: they do not count as uploads any more. Should that fail, the next collection finds
/// it out.
pub(crate) fn settle_use(
    store: &dyn Store,
    environment: EnvironmentKey,
    pusher: &Pusher,
    used: &BTreeSet<ContentHash>,
    now: Timestamp,
) {
    let settled = store.records().use_contents(environment, pusher.uploader.as_ref(), used, now);
    if let Err(error) = settled {
        let error: &dyn std::error::Error = &error;
        tracing::warn!(error, "the contents that a version uses still count as uploads");
    }
}
