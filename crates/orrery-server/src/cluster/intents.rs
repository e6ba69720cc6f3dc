//! Stored intents: their compressed form, and the state of a cluster that operations start from.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use orrery_cluster::intent::ClusterIntent;
use orrery_store::{ClusterKey, ClusterRecord, Store, StoreError};

/// Largest intent in bytes, without compression. One with 10,000 nodes has about 5 MB.
const INTENT_MAX: u64 = 256 << 20;

/// A cluster with the intents that its next operation starts from.
#[derive(Clone, Debug)]
pub(crate) struct ClusterState {
    pub(crate) record: ClusterRecord,
    /// The newest intent.
    pub(crate) intent: ClusterIntent,
    /// The newest intent with everything of earlier ones that may still exist, because their
    /// operations did not end well.
    pub(crate) existing: ClusterIntent,
}

/// Compresses an intent.
pub(crate) fn encode(intent: &ClusterIntent) -> Result<Vec<u8>, StoreError> {
    let failed = |error: std::io::Error| StoreError::Unreadable(format!("an intent: {error}"));
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    let text = serde_json::to_vec(intent).map_err(|error| failed(error.into()))?;
    encoder.write_all(&text).map_err(failed)?;
    encoder.finish().map_err(failed)
}

fn decode(content: &[u8]) -> Result<ClusterIntent, StoreError> {
    let failed = |reason: String| StoreError::Unreadable(format!("an intent: {reason}"));
    let mut text = Vec::new();
    let mut decoder = ZlibDecoder::new(content).take(INTENT_MAX);
    decoder.read_to_end(&mut text).map_err(|error| failed(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))
}

/// Reads one intent of a cluster.
pub(crate) fn read(
    store: &Store,
    cluster: ClusterKey,
    revision: i64,
) -> Result<ClusterIntent, StoreError> {
    decode(&store.clusters().intent(cluster, revision)?.content)
}

/// Reads the state of a cluster.
pub(crate) fn load(store: &Store, id: &str) -> Result<ClusterState, StoreError> {
    let record = store.clusters().get(id)?;
    let intent = read(store, record.key, record.intent)?;
    let mut existing = intent.clone();
    let first = record.settled_intent.max(1);
    let earlier = store.clusters().intent_revisions(record.key, first, record.intent - 1)?;
    for revision in earlier.into_iter().rev() {
        existing = existing.including(&read(store, record.key, revision)?);
    }
    Ok(ClusterState { record, intent, existing })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_intents_are_refused() {
        for bad in [&b""[..], b"x", &encode_text(b"{}"), &encode_text(b"[1,")] {
            assert!(matches!(decode(bad), Err(StoreError::Unreadable(_))));
        }
    }

    fn encode_text(text: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }
}
