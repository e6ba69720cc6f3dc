//! Assignment of slots on workers to tenants: a pure function.
//!
//! A slot serves one tenant, also while it is idle. Each tenant gets its floor first, as far as
//! there is capacity; the rest is shared by need, up to the caps. Slots move only if they have to,
//! and a tenant's slots are spread over the workers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Slots by worker and tenant.
pub type Assignment = BTreeMap<String, BTreeMap<String, usize>>;

/// Claim of a tenant on slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantClaim {
    /// Slots that it has also when it is idle.
    pub floor: usize,
    /// Maximum number of slots.
    pub cap: usize,
    /// Slots that it could use now: running and waiting tasks.
    pub demand: usize,
}

/// Assigns the slots of workers to tenants. `capacity` is by worker; `current` is the assignment
/// before, which may name workers and tenants that are gone.
pub fn rebalance(
    capacity: &BTreeMap<String, usize>,
    tenants: &BTreeMap<String, TenantClaim>,
    current: &Assignment,
) -> Assignment {
    let total: usize = capacity.values().sum();
    let shares = shares(total, tenants);
    let mut assignment: Assignment =
        capacity.keys().map(|worker| (worker.clone(), BTreeMap::new())).collect();
    let mut missing = shares;
    // First everything that can stay where it is.
    for (worker, slots) in current {
        let (Some(own), Some(assigned)) = (capacity.get(worker), assignment.get_mut(worker)) else {
            continue;
        };
        let mut free = *own;
        for (tenant, slots) in slots {
            let Some(missing) = missing.get_mut(tenant) else { continue };
            let kept = (*slots).min(*missing).min(free);
            if kept > 0 {
                assigned.insert(tenant.clone(), kept);
                *missing -= kept;
                free -= kept;
            }
        }
    }
    // Then one slot after the other, on the worker with the fewest of the tenant.
    for (tenant, missing) in missing {
        for _ in 0..missing {
            let free = |worker: &str| {
                let used: usize = assignment[worker].values().sum();
                capacity[worker].saturating_sub(used)
            };
            let place = capacity
                .keys()
                .filter(|worker| free(worker) > 0)
                .min_by_key(|worker| {
                    let own = assignment[*worker].get(&tenant).copied().unwrap_or(0);
                    (own, std::cmp::Reverse(free(worker)))
                })
                .cloned();
            let Some(slots) = place.and_then(|worker| assignment.get_mut(&worker)) else { break };
            *slots.entry(tenant.clone()).or_default() += 1;
        }
    }
    assignment
}

/// Number of slots of each tenant.
fn shares(total: usize, tenants: &BTreeMap<String, TenantClaim>) -> BTreeMap<String, usize> {
    let mut shares: BTreeMap<String, usize> =
        tenants.keys().map(|tenant| (tenant.clone(), 0)).collect();
    let mut left = total;
    let floor = |claim: &TenantClaim| claim.floor.min(claim.cap);
    let wanted = |claim: &TenantClaim| claim.demand.min(claim.cap).max(floor(claim));
    // Always the tenant with the fewest gets the next one, first up to the floors.
    for limit in [&floor as &dyn Fn(&TenantClaim) -> usize, &wanted] {
        while left > 0 {
            let next = shares
                .iter()
                .filter(|(tenant, share)| **share < limit(&tenants[*tenant]))
                .min_by_key(|(_, share)| **share)
                .map(|(tenant, _)| tenant.clone());
            let Some(share) = next.and_then(|tenant| shares.get_mut(&tenant)) else { break };
            *share += 1;
            left -= 1;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn total(assignment: &Assignment, tenant: &str) -> usize {
        assignment.values().filter_map(|slots| slots.get(tenant)).sum()
    }

    fn workers(capacities: &[usize]) -> BTreeMap<String, usize> {
        let named = capacities.iter().enumerate();
        named.map(|(at, capacity)| (format!("w{at}"), *capacity)).collect()
    }

    fn claims(claims: &[(usize, usize, usize)]) -> BTreeMap<String, TenantClaim> {
        let named = claims.iter().enumerate();
        named
            .map(|(at, (floor, cap, demand))| {
                let claim = TenantClaim { floor: *floor, cap: *cap, demand: *demand };
                (format!("t{at}"), claim)
            })
            .collect()
    }

    #[test]
    fn floors_come_first_and_the_rest_goes_to_need() {
        let assignment =
            rebalance(&workers(&[4, 4]), &claims(&[(2, 9, 0), (1, 9, 100)]), &Assignment::new());
        assert_eq!((total(&assignment, "t0"), total(&assignment, "t1")), (2, 6));
        // One slot of each floor on each worker.
        assert!(assignment.values().all(|slots| slots["t0"] == 1), "{assignment:?}");
    }

    #[test]
    fn a_dead_worker_moves_nothing_else() {
        let tenants = claims(&[(2, 4, 4), (2, 4, 4)]);
        let before = rebalance(&workers(&[4, 4, 4]), &tenants, &Assignment::new());
        let mut rest = workers(&[4, 4, 4]);
        rest.remove("w1");
        let after = rebalance(&rest, &tenants, &before);
        for worker in ["w0", "w2"] {
            for (tenant, slots) in &before[worker] {
                assert!(after[worker].get(tenant).is_some_and(|now| now >= slots), "{after:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn assignments_keep_their_limits(
            capacities in prop::collection::vec(0usize..6, 0..6),
            wanted in prop::collection::vec((0usize..5, 0usize..8, 0usize..12), 0..6),
            before in prop::collection::btree_map("w[0-7]", prop::collection::btree_map("t[0-7]", 0usize..5, 0..4), 0..8),
        ) {
            let (capacity, tenants) = (workers(&capacities), claims(&wanted));
            let assignment = rebalance(&capacity, &tenants, &before);
            let all: usize = capacity.values().sum();
            // No worker has more than its capacity.
            for (worker, slots) in &assignment {
                prop_assert!(slots.values().sum::<usize>() <= capacity[worker]);
            }
            let mut used = 0;
            let floors: usize = tenants.values().map(|claim| claim.floor.min(claim.cap)).sum();
            for (tenant, claim) in &tenants {
                let share = total(&assignment, tenant);
                used += share;
                // No tenant is beyond its cap, and none beyond what it can use.
                prop_assert!(share <= claim.cap.min(claim.demand.max(claim.floor)));
                // With enough capacity for all floors, each has its own.
                if floors <= all {
                    prop_assert!(share >= claim.floor.min(claim.cap));
                }
            }
            // No capacity is idle while a tenant could use it.
            let need: usize = tenants
                .values()
                .map(|claim| claim.cap.min(claim.demand.max(claim.floor)))
                .sum();
            prop_assert_eq!(used, need.min(all));
            // Nothing moves without a reason.
            prop_assert_eq!(rebalance(&capacity, &tenants, &assignment), assignment);
        }

        #[test]
        fn the_fewest_slots_move_when_a_tenant_comes(
            capacities in prop::collection::vec(1usize..6, 1..6),
            wanted in prop::collection::vec((0usize..3, 1usize..8, 0usize..12), 1..5),
        ) {
            let capacity = workers(&capacities);
            let mut tenants = claims(&wanted);
            let before = rebalance(&capacity, &tenants, &Assignment::new());
            tenants.insert("zz".to_owned(), TenantClaim { floor: 1, cap: 2, demand: 2 });
            let after = rebalance(&capacity, &tenants, &before);
            for tenant in tenants.keys() {
                let (old, new) = (total(&before, tenant), total(&after, tenant));
                let kept: usize = before
                    .iter()
                    .map(|(worker, slots)| {
                        let old = slots.get(tenant).copied().unwrap_or(0);
                        old.min(after[worker].get(tenant).copied().unwrap_or(0))
                    })
                    .sum();
                prop_assert_eq!(kept, old.min(new), "slots of {} moved", tenant);
            }
        }
    }
}
