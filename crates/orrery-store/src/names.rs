//! Names that rows refer to by number: source files and resource sets.
//!
//! A number never gets another name: source files are never deleted, a set is deleted with its
//! environment alone, and no environment gets the key of a deleted one. So a name that was read
//! once stays valid, and reads of resources need not look it up again.

use std::sync::{Arc, Mutex};

use orrery_base::lock::IgnorePoison;
use rustc_hash::FxHashMap;

use crate::EnvironmentKey;

/// Capacity of the cache. Beyond it, all names are read again.
const CAPACITY: usize = 20_000;

/// Reference to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NameRef {
    SourceFile(i64),
    ResourceSet(EnvironmentKey, i64),
}

impl NameRef {
    /// The statement that reads the name, and its parameter.
    pub(crate) fn lookup(self) -> (&'static str, i64) {
        match self {
            NameRef::SourceFile(id) => ("SELECT path FROM source_file WHERE id = ?1", id),
            NameRef::ResourceSet(_, id) => ("SELECT name FROM resource_set WHERE id = ?1", id),
        }
    }
}

/// Names that were read from a database.
#[derive(Debug, Default)]
pub(crate) struct NameCache(Mutex<FxHashMap<NameRef, Arc<str>>>);

impl NameCache {
    pub(crate) fn get(&self, name: NameRef) -> Option<Arc<str>> {
        self.0.lock().ignore_poison().get(&name).cloned()
    }

    pub(crate) fn insert(&self, name: NameRef, text: Arc<str>) {
        let mut names = self.0.lock().ignore_poison();
        if names.len() >= CAPACITY {
            names.clear();
        }
        names.insert(name, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_bounded() {
        let cache = NameCache::default();
        for id in 0..=CAPACITY as i64 {
            cache.insert(NameRef::SourceFile(id), "main.cf".into());
        }
        assert_eq!(cache.get(NameRef::SourceFile(0)), None);
        assert_eq!(cache.get(NameRef::SourceFile(CAPACITY as i64)).as_deref(), Some("main.cf"));
        assert_eq!(cache.get(NameRef::ResourceSet(EnvironmentKey(1), CAPACITY as i64)), None);
    }
}
