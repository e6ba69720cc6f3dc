//! The code that versions were made with: from the store to this machine.

use std::path::Path;

use orrery_host::bundle::Bundle;
use orrery_host::code::{CodeError, CodeSet, CodeStore};
use orrery_store::{ContentHash, Store};

fn content(store: &dyn Store, sha1: &str) -> Result<Vec<u8>, String> {
    let hash = ContentHash::from_hex(sha1).ok_or_else(|| format!("{sha1:?} is no SHA-1"))?;
    let found = store.file(&hash).map_err(|error| error.to_string())?;
    found.ok_or_else(|| format!("the store has no file {sha1}"))
}

/// The code whose bundle has this hash; it is unpacked if it is not here yet.
pub(crate) fn open(store: &dyn Store, data: &Path, sha1: &str) -> Result<CodeSet, CodeError> {
    let missing = |reason: String| CodeError::Missing { path: sha1.into(), reason };
    let text = content(store, sha1).map_err(missing)?;
    let bundle: Bundle =
        serde_json::from_slice(&text).map_err(|error| missing(error.to_string()))?;
    CodeStore::new(data.join("code")).unpack(sha1, &bundle, &mut |sha1| content(store, sha1))
}
