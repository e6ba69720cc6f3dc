//! Cache of facets of resources per environment and filter.
//!
//! Counting reads all resources. A count stays valid for a multiple of its own cost, and concurrent
//! callers with the same filter wait for the same count, as in `count_cache`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_model::Timestamp;
use orrery_store::{EnvironmentKey, FacetCounts, ResourceQuery};

use crate::error::ServerError;
use crate::services::Services;

/// Validity of a count, as a multiple of its cost.
const VALIDITY_FACTOR: u32 = 4;
/// Counts that are cheaper than this are not cached.
const CHEAP_MAX: Duration = Duration::from_millis(20);
/// Maximum age of a cached count.
const VALIDITY_MAX: Duration = Duration::from_secs(5);
/// Filters with cached counts; expired ones are dropped beyond.
const FILTERS_MAX: usize = 256;

#[derive(Debug)]
pub(crate) struct CachedFacets {
    pub(crate) at: Timestamp,
    pub(crate) counts: FacetCounts,
    until: Instant,
}

type Slot = Arc<tokio::sync::Mutex<Option<Arc<CachedFacets>>>>;

/// Latest counts by environment and filter.
#[derive(Debug, Default)]
pub(crate) struct FacetCache {
    slots: Mutex<HashMap<(EnvironmentKey, String), Slot>>,
}

impl FacetCache {
    fn slot(&self, environment: EnvironmentKey, query: &ResourceQuery) -> Slot {
        let mut slots = self.slots.lock().ignore_poison();
        if slots.len() >= FILTERS_MAX {
            let now = monotonic();
            slots.retain(|_, slot| match slot.try_lock() {
                Ok(cached) => cached.as_ref().is_some_and(|cached| cached.until > now),
                // A count is in progress.
                Err(_) => true,
            });
        }
        Arc::clone(slots.entry((environment, format!("{query:?}"))).or_default())
    }

    /// Returns cached counts if they are valid, else counts.
    pub(crate) async fn get(
        &self,
        services: &Services,
        environment: EnvironmentKey,
        query: ResourceQuery,
    ) -> Result<Arc<CachedFacets>, ServerError> {
        let slot = self.slot(environment, &query);
        let mut cached = slot.lock().await;
        if let Some(valid) = cached.as_ref().filter(|cached| cached.until > monotonic()) {
            return Ok(Arc::clone(valid));
        }
        let (begun, at) = (monotonic(), services.now());
        let counts =
            services.with_store(move |store| store.resources().facets(environment, &query)).await?;
        let cost = begun.elapsed();
        let validity = match cost < CHEAP_MAX {
            true => Duration::ZERO,
            false => (cost * VALIDITY_FACTOR).min(VALIDITY_MAX),
        };
        let counted = Arc::new(CachedFacets { at, counts, until: monotonic() + validity });
        *cached = Some(Arc::clone(&counted));
        Ok(counted)
    }
}
