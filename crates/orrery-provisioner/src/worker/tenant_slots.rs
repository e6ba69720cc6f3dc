//! Slots of a worker, each for one tenant at a time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use orrery_base::lock::IgnorePoison as _;

/// State of one slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SlotState {
    /// Tenant that it serves, also while it is idle.
    tenant: Option<String>,
    is_busy: bool,
    /// Number of the last use, to clear the slot that was idle for longest.
    used: u64,
}

#[derive(Debug, Default)]
struct SlotTable {
    slots: Vec<SlotState>,
    uses: u64,
}

/// Slots of a worker.
#[derive(Clone, Debug)]
pub struct TenantSlots {
    table: Arc<Mutex<SlotTable>>,
}

/// A slot in use. Dropping it makes it idle; it stays with its tenant.
pub struct TenantSlot {
    table: Arc<Mutex<SlotTable>>,
    number: usize,
    /// Tenant that the slot served before, whose files must be removed first.
    former: Option<String>,
}

impl fmt::Debug for TenantSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantSlot").field("number", &self.number).finish_non_exhaustive()
    }
}

impl TenantSlot {
    pub fn number(&self) -> usize {
        self.number
    }

    /// Tenant that the slot served before, if it is another one.
    pub fn former(&self) -> Option<&str> {
        self.former.as_deref()
    }
}

impl Drop for TenantSlot {
    fn drop(&mut self) {
        let mut table = self.table.lock().ignore_poison();
        debug_assert!(table.slots[self.number].is_busy, "a slot in use is busy");
        table.slots[self.number].is_busy = false;
    }
}

impl TenantSlots {
    /// Creates idle slots without tenants; at least one.
    pub fn new(count: usize) -> Self {
        let slots = vec![SlotState::default(); count.max(1)];
        TenantSlots { table: Arc::new(Mutex::new(SlotTable { slots, uses: 0 })) }
    }

    /// Takes an idle slot: one of the tenant, else one without a tenant, else the one that was idle
    /// for longest. `None` if all are busy.
    pub fn take(&self, tenant: &str) -> Option<TenantSlot> {
        let mut table = self.table.lock().ignore_poison();
        let rank = |slot: &SlotState| match &slot.tenant {
            Some(own) if own == tenant => (0, slot.used),
            None => (1, 0),
            Some(_) => (2, slot.used),
        };
        let idle = table.slots.iter().enumerate().filter(|(_, slot)| !slot.is_busy);
        let number = idle.min_by_key(|(_, slot)| rank(slot)).map(|(number, _)| number)?;
        table.uses += 1;
        let used = table.uses;
        let slot = &mut table.slots[number];
        let former = slot.tenant.replace(tenant.to_owned()).filter(|former| former != tenant);
        slot.is_busy = true;
        slot.used = used;
        Some(TenantSlot { table: Arc::clone(&self.table), number, former })
    }

    /// Number of slots of each tenant.
    pub fn assigned(&self) -> BTreeMap<String, usize> {
        let mut assigned = BTreeMap::new();
        for slot in &self.table.lock().ignore_poison().slots {
            if let Some(tenant) = &slot.tenant {
                *assigned.entry(tenant.clone()).or_default() += 1;
            }
        }
        assigned
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_idle_slot_stays_with_its_tenant() {
        let slots = TenantSlots::new(2);
        drop(slots.take("a").unwrap());
        let own = slots.take("a").unwrap();
        assert_eq!((own.number(), own.former()), (0, None));
        let other = slots.take("b").unwrap();
        assert_eq!((other.number(), other.former()), (1, None));
        assert!(slots.take("a").is_none(), "the slot of b is busy");
        drop(other);
        let moved = slots.take("a").unwrap();
        assert_eq!((moved.number(), moved.former()), (1, Some("b")));
    }

    proptest! {
        /// Whatever is taken and returned: a slot never serves two tenants at once, a change of
        /// its tenant is told, and an idle slot of the own tenant comes first.
        #[test]
        fn slots_serve_one_tenant_at_a_time(
            count in 1usize..5,
            steps in prop::collection::vec((0usize..4, any::<bool>()), 0..60),
        ) {
            let slots = TenantSlots::new(count);
            let mut serves: Vec<Option<String>> = vec![None; count];
            let mut taken: Vec<(String, TenantSlot)> = Vec::new();
            for (tenant, is_return) in steps {
                let tenant = format!("t{tenant}");
                if is_return {
                    if let Some(at) = taken.iter().position(|(owner, _)| *owner == tenant) {
                        taken.remove(at);
                    }
                    continue;
                }
                let busy: Vec<usize> = taken.iter().map(|(_, slot)| slot.number()).collect();
                let has_own = (0..count)
                    .any(|slot| !busy.contains(&slot) && serves[slot].as_ref() == Some(&tenant));
                let Some(slot) = slots.take(&tenant) else {
                    prop_assert_eq!(busy.len(), count);
                    continue;
                };
                prop_assert!(!busy.contains(&slot.number()));
                let former = serves[slot.number()].clone().filter(|former| *former != tenant);
                prop_assert_eq!(slot.former().map(str::to_owned), former);
                prop_assert!(!has_own || serves[slot.number()].as_ref() == Some(&tenant));
                serves[slot.number()] = Some(tenant.clone());
                taken.push((tenant, slot));
            }
        }
    }
}
