//! Facets of resources: counts by status, type, agent and set under a filter.

use std::collections::BTreeMap;

use orrery_api::{Facet, ResourceFacets, Time};
use rustc_hash::FxHashMap;

use crate::facet_cache::CachedFacets;

/// Lists the largest values of each facet, at most `limit`.
pub(crate) fn largest(counted: &CachedFacets, limit: usize) -> ResourceFacets {
    let CachedFacets { at, counts, .. } = counted;
    let mut left_out = BTreeMap::new();
    let mut largest = |name: &str, counts: &FxHashMap<String, u64>| {
        let mut facets: Vec<Facet> = counts
            .iter()
            .map(|(value, count)| Facet { value: value.clone(), count: *count })
            .collect();
        facets.sort_unstable_by(|a, b| b.count.cmp(&a.count).then_with(|| a.value.cmp(&b.value)));
        if facets.len() > limit {
            left_out.insert(name.to_owned(), (facets.len() - limit) as u64);
            facets.truncate(limit);
        }
        facets
    };
    ResourceFacets {
        total: counts.total,
        counted_at: Time(*at),
        status: counts.by_status.clone(),
        r#type: largest("type", &counts.by_entity),
        agent: largest("agent", &counts.by_agent),
        set: largest("set", &counts.by_set),
        left_out,
    }
}
