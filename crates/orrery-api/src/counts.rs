//! Counts by a value, written in the order of the values' names.

use std::collections::BTreeMap;

use orrery_model::Status;
use serde::{Serialize, Serializer};

/// Value that counts are grouped by.
pub(crate) trait CountedValue: Copy {
    fn name(self) -> &'static str;
}

impl CountedValue for Status {
    fn name(self) -> &'static str {
        self.as_str()
    }
}

pub(crate) fn serialize<K: CountedValue, S: Serializer>(
    counts: &BTreeMap<K, u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let by_name: BTreeMap<&str, u64> =
        counts.iter().map(|(value, count)| (value.name(), *count)).collect();
    by_name.serialize(serializer)
}
