//! Fields of version infos that only Inmanta clients use.

use orrery_store::VersionInfo;
use serde_json::Value;

/// Key in the version info for fields that only Inmanta clients use.
pub(crate) const INMANTA_INFO: &str = "classic";

/// Returns a field that the client sent beside the resources.
pub(crate) fn inmanta_info(version: &VersionInfo, name: &str) -> Value {
    version.info.get(INMANTA_INFO).and_then(|kept| kept.get(name)).cloned().unwrap_or(Value::Null)
}
