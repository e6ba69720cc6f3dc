//! The code that versions were made with: from the store to this machine.

use std::path::Path;

use orrery_host::bundle::Bundle;
use orrery_host::code::{CodeError, CodeSet, CodeStore};
use orrery_store::{ContentHash, Store};

/// A hash as it is written.
pub(crate) fn parse_sha1(text: &str) -> Option<ContentHash> {
    let bytes = text.as_bytes();
    if bytes.len() != 40 {
        return None;
    }
    let mut hash = [0; 20];
    for (at, pair) in bytes.chunks_exact(2).enumerate() {
        let pair = std::str::from_utf8(pair).ok()?;
        hash[at] = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(ContentHash(hash))
}

fn content(store: &dyn Store, sha1: &str) -> Result<Vec<u8>, String> {
    let hash = parse_sha1(sha1).ok_or_else(|| format!("{sha1:?} is no SHA-1"))?;
    let found = store.file(&hash).map_err(|error| error.to_string())?;
    found.ok_or_else(|| format!("the store has no file {sha1}"))
}

/// The code whose bundle has this hash; it is unpacked if it is not here yet.
pub(crate) fn open(store: &dyn Store, data: &Path, sha1: &str) -> Result<CodeSet, CodeError> {
    let missing = |reason: String| CodeError::Missing { path: sha1.into(), reason };
    let text = content(store, sha1).map_err(missing)?;
    let bundle: Bundle =
        serde_json::from_slice(&text).map_err(|error| missing(error.to_string()))?;
    CodeStore::new(data.join("code")).unpack(&bundle, &mut |sha1| content(store, sha1))
}
