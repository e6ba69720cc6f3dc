//! Cache of resource counts per environment.
//!
//! The cost of counting grows with the number of resources, so a count stays valid for a multiple
//! of its own cost: small environments are always counted afresh, large ones seldom. A release
//! invalidates the cached count.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_model::Timestamp;
use orrery_store::{EnvironmentKey, ReleaseState, StatusCount, Store};

use crate::error::ServerError;
use crate::services::Services;

/// Validity of a count, as a multiple of its cost.
const VALIDITY_FACTOR: u32 = 4;
/// Counts that are cheaper than this are not cached.
const CHEAP_MAX: Duration = Duration::from_millis(20);
/// Maximum age of a cached count.
const VALIDITY_MAX: Duration = Duration::from_secs(5);

/// Counts of one environment.
#[derive(Debug)]
pub(crate) struct CachedCounts {
    pub(crate) at: Timestamp,
    pub(crate) counts: Vec<StatusCount>,
    release_state: ReleaseState,
    until: Instant,
}

/// Latest counts of one environment. The lock is held while counting.
type Slot = Arc<tokio::sync::Mutex<Option<Arc<CachedCounts>>>>;

#[derive(Debug, Default)]
pub(crate) struct CountCache {
    slots: Mutex<HashMap<EnvironmentKey, Slot>>,
}

impl CountCache {
    /// Returns cached counts if they are valid, else counts. Concurrent callers wait for the same
    /// count.
    pub(crate) async fn get(
        &self,
        services: &Services,
        environment: EnvironmentKey,
    ) -> Result<Arc<CachedCounts>, ServerError> {
        let slot = {
            let mut slots = self.slots.lock().ignore_poison();
            Arc::clone(slots.entry(environment).or_default())
        };
        let mut cached = slot.lock().await;
        if let Some(counted) = cached.as_ref().filter(|counted| counted.until > monotonic()) {
            let release_state = services
                .with_store(move |store| store.versions().release_state(environment))
                .await?;
            if release_state == counted.release_state {
                return Ok(Arc::clone(counted));
            }
        }
        let begun = monotonic();
        let at = services.now();
        let count = move |store: &Store| {
            // Before the count: a change in between invalidates the result.
            Ok((
                store.versions().release_state(environment)?,
                store.resources().count(environment)?,
            ))
        };
        let (release_state, counts) = services.with_store(count).await?;
        let cost = begun.elapsed();
        let validity = if cost < CHEAP_MAX {
            Duration::ZERO
        } else {
            (cost * VALIDITY_FACTOR).min(VALIDITY_MAX)
        };
        let counted =
            Arc::new(CachedCounts { at, counts, release_state, until: monotonic() + validity });
        *cached = Some(Arc::clone(&counted));
        Ok(counted)
    }
}

#[cfg(test)]
mod tests {
    use orrery_model::{Resource, Status};
    use orrery_store::{NewVersion, PutScope, Store};

    use super::*;

    fn put(services: &Services, environment: EnvironmentKey, names: &[&str]) {
        let resource = |name: &&str| {
            let id = format!("t::R[a,name={name}]").parse().unwrap();
            Resource::new(id, orrery_model::Attributes::parse("{}").unwrap(), Vec::new())
        };
        let resources: Vec<Resource> = names.iter().map(resource).collect();
        let version = NewVersion {
            number: None,
            base: None,
            made_at: services.now(),
            info: &serde_json::Value::Null,
            scope: PutScope::All,
            resources: &resources,
            unknowns: &[],
            released: true,
            only_if_changed: false,
            lease: None,
            project: None,
        };
        services.store().versions().put(environment, &version).unwrap();
    }

    #[tokio::test]
    async fn a_release_invalidates_cached_counts() {
        let services = Services::new(Store::in_memory().unwrap());
        let cache = CountCache::default();
        let environment = services.store().environments().ensure_default().unwrap();
        let available = async || -> u64 {
            let counted = cache.get(&services, environment).await.unwrap();
            counted
                .counts
                .iter()
                .filter(|one| one.status == Status::Available)
                .map(|one| one.count)
                .sum()
        };
        put(&services, environment, &["a"]);
        assert_eq!(available().await, 1);
        // A long validity, as after a slow count.
        let slot = Arc::clone(&cache.slots.lock().unwrap()[&environment]);
        let release_state = services.store().versions().release_state(environment).unwrap();
        let counts = vec![StatusCount {
            agent: "a".into(),
            status: Status::Available,
            count: 7,
            parked: 0,
            removals: 0,
            oldest_run: None,
        }];
        let until = Instant::now() + Duration::from_secs(3600);
        *slot.lock().await =
            Some(Arc::new(CachedCounts { at: services.now(), counts, release_state, until }));
        assert_eq!(available().await, 7, "counted a short while ago");
        put(&services, environment, &["a", "b"]);
        assert_eq!(available().await, 2, "counted anew");
    }
}
