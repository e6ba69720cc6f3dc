//! Unpacks the code sets of versions from the store to this machine.

use std::path::Path;

use orrery_host::bundle::Bundle;
use orrery_host::code_store::{CodeSet, CodeStore, CodeStoreError};
use orrery_store::{ContentHash, Store};

fn content(store: &Store, sha1: &str) -> Result<Vec<u8>, String> {
    let hash = ContentHash::from_hex(sha1).ok_or_else(|| format!("{sha1:?} is not a SHA-1"))?;
    let found = store.contents().get(&hash).map_err(|error| error.to_string())?;
    found.ok_or_else(|| format!("the store has no file {sha1}"))
}

/// Opens the code set of the bundle with this hash; unpacks it if necessary.
pub(crate) fn open(store: &Store, data: &Path, sha1: &str) -> Result<CodeSet, CodeStoreError> {
    let missing = |reason: String| CodeStoreError::Missing { path: sha1.into(), reason };
    let text = content(store, sha1).map_err(missing)?;
    let bundle: Bundle =
        serde_json::from_slice(&text).map_err(|error| missing(error.to_string()))?;
    CodeStore::new(data.join("code")).unpack(sha1, &bundle, &mut |sha1| content(store, sha1))
}
