//! Contents of files: visibility, quotas, and use by versions.
//!
//! A content belongs to its uploader until a version refers to it, then to the environments of such
//! versions. Callers see only contents that are theirs in this sense; all others are reported as
//! missing, whether they exist or not.

use std::collections::BTreeSet;
use std::time::Duration;

use orrery_base::byte_size;
use orrery_model::{Resource, Timestamp, UploaderId};
use orrery_store::{
    ContentHash, ContentHolder, ContentView, EnvironmentKey, Store, StoreError, mentioned_hashes,
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::access::Right;
use crate::auth::Caller;
use crate::error::ServerError;
use crate::services::Services;

/// Limits on uploads that no version refers to yet.
#[derive(Clone, Copy, Debug)]
pub struct ContentLimits {
    /// Age at which unreferenced contents are deleted.
    pub grace: Duration,
    /// Maximum bytes of unreferenced uploads per account.
    pub account_max: u64,
    /// Maximum bytes of unreferenced uploads of all accounts.
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

/// The author of a version, which may refer to the contents that are visible to it.
#[derive(Clone, Debug)]
pub struct VersionAuthor {
    view: ContentView,
    uploader: Option<UploaderId>,
    /// Hash of the code bundle that the server generated from the upload.
    pub(crate) generated_code: Option<String>,
}

impl VersionAuthor {
    pub(crate) fn for_caller(store: &Store, caller: &Caller) -> Result<Self, StoreError> {
        let view = view_of(store, caller, Right::Develop)?;
        Ok(VersionAuthor { view, uploader: Some(uploader_id(caller)), generated_code: None })
    }

    /// The compile service, storing the output of an environment's compiles.
    pub(crate) fn for_compiles(environment: EnvironmentKey) -> Self {
        let environments = Some(BTreeSet::from([environment]));
        let view = ContentView { account: None, environments };
        VersionAuthor { view, uploader: None, generated_code: None }
    }
}

/// Id of a caller's uploads: its account, or a hash of its name if it has none.
fn uploader_id(caller: &Caller) -> UploaderId {
    if let Some(account) = caller.account {
        return account.into();
    }
    let digest = Sha256::digest(caller.name.as_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&digest[..16]);
    UploaderId::from_bytes(id)
}

/// Returns the contents visible to a caller: its uploads, and those of environments where it has
/// `right`.
fn view_of(store: &Store, caller: &Caller, right: Right) -> Result<ContentView, StoreError> {
    let environments = match caller.may_everywhere(right) {
        true => None,
        false => {
            let all = store.environments().list(None)?.into_iter();
            let theirs = all.filter(|one| caller.may_in_environment(right, one));
            Some(theirs.map(|one| one.key).collect())
        }
    };
    Ok(ContentView { account: Some(uploader_id(caller)), environments })
}

/// Counts the contents that are missing or not visible to the author of a version.
pub fn count_unknown(
    store: &Store,
    author: &VersionAuthor,
    hashes: &[ContentHash],
) -> Result<usize, StoreError> {
    let hashes: BTreeSet<ContentHash> = hashes.iter().copied().collect();
    let hashes: Vec<ContentHash> = hashes.into_iter().collect();
    let mut unknown = store.contents().foreign(&author.view, &hashes)?;
    unknown.extend(store.contents().missing(&hashes)?);
    Ok(unknown.len())
}

/// Returns the contents that a caller has to upload before it can refer to them. The retention of
/// the others starts anew.
pub async fn find_missing(
    services: &Services,
    caller: &Caller,
    hashes: Vec<ContentHash>,
) -> Result<Vec<ContentHash>, ServerError> {
    let (caller, now) = (caller.clone(), services.now());
    let query = move |store: &Store| {
        let view = view_of(store, &caller, Right::Develop)?;
        let known = store.contents().visible(&view, &hashes)?;
        store.contents().touch(&known, now)?;
        Ok(hashes.into_iter().filter(|hash| !known.contains(hash)).collect())
    };
    Ok(services.with_store(query).await?)
}

/// Reads a content, if it is visible to the caller.
pub async fn read(
    services: &Services,
    caller: &Caller,
    hash: ContentHash,
) -> Result<Option<Vec<u8>>, ServerError> {
    let caller = caller.clone();
    let query = move |store: &Store| {
        let view = view_of(store, &caller, Right::View)?;
        match store.contents().foreign(&view, &[hash])?.is_empty() {
            true => store.contents().get(&hash),
            false => Ok(None),
        }
    };
    Ok(services.with_store(query).await?)
}

/// Stores an upload, within the quotas.
pub async fn store_upload(
    services: &Services,
    caller: &Caller,
    hash: ContentHash,
    content: impl AsRef<[u8]> + Send + 'static,
    limits: ContentLimits,
) -> Result<(), ServerError> {
    let (own, now) = (uploader_id(caller), services.now());
    let view = ContentView { account: Some(own), environments: Some(BTreeSet::new()) };
    let put = move |store: &Store| {
        let content = content.as_ref();
        if store.contents().visible(&view, &[hash])?.is_empty() {
            let unused = store.contents().unused(own)?;
            let size = content.len() as u64;
            if unused.of_account.saturating_add(size) > limits.account_max {
                return Err(over_quota("your account", limits.account_max, limits.grace));
            }
            if unused.of_all.saturating_add(size) > limits.all_max {
                return Err(over_quota("all accounts", limits.all_max, limits.grace));
            }
        }
        store.contents().put(&[(hash, content)])?;
        store.contents().claim(ContentHolder::Account(own), &BTreeSet::from([hash]), now)?;
        Ok(())
    };
    services.try_change(put).await
}

fn over_quota(whose: &str, most: u64, grace: Duration) -> ServerError {
    ServerError::Refused {
        code: "contents-quota",
        detail: format!(
            "unreferenced contents of {whose} are limited to {}: store versions that \
             refer to them, or wait until they are deleted, {} hours after their upload",
            byte_size::format_limit(most),
            grace.as_secs() / 3600
        ),
    }
}

/// Returns the contents that resources refer to.
pub(crate) fn mentioned_contents(resources: &[Resource]) -> BTreeSet<ContentHash> {
    resources.iter().flat_map(|one| mentioned_hashes(one.attributes.as_str())).collect()
}

/// Claims the contents of a version for its environment, as far as they are visible to the author.
/// Contents of other tenants stay out of reach, even for a model that guesses their hashes. Returns
/// the newly claimed ones.
pub(crate) fn claim_for_version(
    store: &Store,
    environment: EnvironmentKey,
    author: &VersionAuthor,
    mut used: BTreeSet<ContentHash>,
    code: Option<&str>,
    info: &Value,
    now: Timestamp,
) -> Result<BTreeSet<ContentHash>, StoreError> {
    used.extend(mentioned_hashes(&info.to_string()));
    if let Some(code) = code.and_then(ContentHash::from_hex) {
        used.insert(code);
        let bundle = store.contents().get(&code)?.unwrap_or_default();
        used.extend(mentioned_hashes(&String::from_utf8_lossy(&bundle)));
    }
    let asked: Vec<ContentHash> = used.iter().copied().collect();
    let environments = Some(BTreeSet::from([environment]));
    let own = ContentView { account: None, environments };
    let known = store.contents().visible(&own, &asked)?;
    let foreign = store.contents().foreign(&author.view, &asked)?;
    used.retain(|hash| !known.contains(hash) && !foreign.contains(hash));
    store.contents().claim(ContentHolder::Environment(environment), &used, now)?;
    Ok(used)
}

/// Records that a stored version uses contents, so that they no longer count as uploads. If that
/// fails, the next garbage collection corrects it.
pub(crate) fn record_use(
    store: &Store,
    environment: EnvironmentKey,
    author: &VersionAuthor,
    used: &BTreeSet<ContentHash>,
    now: Timestamp,
) {
    let settled = store.contents().record_use(environment, author.uploader, used, now);
    if let Err(error) = settled {
        let error: &dyn std::error::Error = &error;
        tracing::warn!(error, "the contents that a version uses still count as uploads");
    }
}
