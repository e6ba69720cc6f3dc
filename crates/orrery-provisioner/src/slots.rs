//! Slots of tenants: bounded concurrency with a floor and a cap for each, fair between tenants.
//!
//! A free slot goes to the waiting tenant that uses the fewest, so a tenant that floods delays
//! another by at most the time until a slot is free. Floors are reserved, also for tenants that
//! are idle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use orrery_base::lock::IgnorePoison as _;
use orrery_handlers::{CancelCause, CancelToken};

/// Interval between looks at a cancellation flag, which has no notification.
const POLL: Duration = Duration::from_millis(50);

/// Slots of one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantSlotLimits {
    /// Slots that other tenants cannot use.
    pub floor: usize,
    /// Maximum number of slots at once.
    pub cap: usize,
}

impl Default for TenantSlotLimits {
    fn default() -> Self {
        TenantSlotLimits { floor: 0, cap: usize::MAX }
    }
}

/// Slots of a process.
#[derive(Clone, Debug)]
pub struct Slots {
    shared: Arc<SharedSlots>,
}

#[derive(Debug)]
struct SharedSlots {
    queues: Mutex<Queues>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queues {
    total: usize,
    limits: BTreeMap<String, TenantSlotLimits>,
    used: BTreeMap<String, usize>,
    waiting: BTreeMap<String, VecDeque<u64>>,
    granted: BTreeSet<u64>,
    next_ticket: u64,
    /// Number of the last grant of each tenant, for turns among equals.
    last_grant: BTreeMap<String, u64>,
    grants: u64,
}

/// A used slot. Dropping it frees it.
#[derive(Debug)]
pub struct SlotGuard {
    shared: Arc<SharedSlots>,
    tenant: String,
}

impl Slots {
    /// Creates slots; at least one.
    pub fn new(total: usize) -> Self {
        let queues = Queues { total: total.max(1), ..Queues::default() };
        let shared = SharedSlots { queues: Mutex::new(queues), changed: Condvar::new() };
        Slots { shared: Arc::new(shared) }
    }

    /// Sets the number of slots; at least one. Slots in use are not taken away.
    pub fn set_total(&self, total: usize) {
        let mut queues = self.shared.queues.lock().ignore_poison();
        queues.total = total.max(1);
        self.shared.grant(&mut queues);
    }

    /// Sets the limits of a tenant. A floor beyond the total counts as far as it fits.
    pub fn set_limits(&self, tenant: &str, limits: TenantSlotLimits) {
        let mut queues = self.shared.queues.lock().ignore_poison();
        queues.limits.insert(tenant.to_owned(), limits);
        self.shared.grant(&mut queues);
    }

    /// Slots in use by tenant.
    pub fn used(&self) -> BTreeMap<String, usize> {
        self.shared.queues.lock().ignore_poison().used.clone()
    }

    /// Number of waiting tasks by tenant.
    pub fn waiting(&self) -> BTreeMap<String, usize> {
        let queues = self.shared.queues.lock().ignore_poison();
        queues.waiting.iter().map(|(tenant, queue)| (tenant.clone(), queue.len())).collect()
    }

    /// Waits for a slot. Tasks of one tenant get theirs in their order.
    ///
    /// # Errors
    /// If it is cancelled before.
    pub fn acquire(&self, tenant: &str, stop: &CancelToken) -> Result<SlotGuard, CancelCause> {
        let mut queues = self.shared.queues.lock().ignore_poison();
        let ticket = queues.next_ticket;
        queues.next_ticket += 1;
        queues.waiting.entry(tenant.to_owned()).or_default().push_back(ticket);
        self.shared.grant(&mut queues);
        loop {
            if queues.granted.remove(&ticket) {
                return Ok(SlotGuard {
                    shared: Arc::clone(&self.shared),
                    tenant: tenant.to_owned(),
                });
            }
            if let Some(cause) = stop.reason() {
                if let Some(queue) = queues.waiting.get_mut(tenant) {
                    queue.retain(|waiting| *waiting != ticket);
                    if queue.is_empty() {
                        queues.waiting.remove(tenant);
                    }
                }
                self.shared.grant(&mut queues);
                return Err(cause);
            }
            let limit = stop.remaining().map_or(POLL, |left| left.min(POLL));
            queues = self.shared.changed.wait_timeout(queues, limit).ignore_poison().0;
        }
    }
}

impl SharedSlots {
    /// Hands out free slots.
    fn grant(&self, queues: &mut Queues) {
        let mut has_granted = false;
        while let Some(tenant) = queues.next_tenant() {
            let Some(queue) = queues.waiting.get_mut(&tenant) else { break };
            let Some(ticket) = queue.pop_front() else { break };
            if queue.is_empty() {
                queues.waiting.remove(&tenant);
            }
            queues.granted.insert(ticket);
            queues.grants += 1;
            queues.last_grant.insert(tenant.clone(), queues.grants);
            *queues.used.entry(tenant).or_default() += 1;
            has_granted = true;
        }
        if has_granted {
            self.changed.notify_all();
        }
    }
}

impl Queues {
    fn limits(&self, tenant: &str) -> TenantSlotLimits {
        self.limits.get(tenant).copied().unwrap_or_default()
    }

    fn used(&self, tenant: &str) -> usize {
        self.used.get(tenant).copied().unwrap_or(0)
    }

    /// Tenant that gets the next free slot.
    fn next_tenant(&self) -> Option<String> {
        let in_use: usize = self.used.values().sum();
        let free = self.total.checked_sub(in_use).filter(|free| *free > 0)?;
        let missing = |tenant: &str| self.limits(tenant).floor.saturating_sub(self.used(tenant));
        let reserved: usize = self.limits.keys().map(|tenant| missing(tenant)).sum();
        let candidates = self.waiting.keys().filter(|tenant| {
            let reserved_for_others = reserved - missing(tenant).min(reserved);
            let below_cap = self.used(tenant) < self.limits(tenant).cap;
            below_cap && (missing(tenant) > 0 || free > reserved_for_others)
        });
        let last = |tenant: &String| self.last_grant.get(tenant).copied().unwrap_or(0);
        candidates.min_by_key(|tenant| (self.used(tenant), last(tenant))).cloned()
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        let mut queues = self.shared.queues.lock().ignore_poison();
        if let Some(used) = queues.used.get_mut(&self.tenant) {
            *used -= 1;
            if *used == 0 {
                queues.used.remove(&self.tenant);
            }
        }
        self.shared.grant(&mut queues);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while !condition() {
            assert!(std::time::Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits in the background; reports its name when it has a slot.
    fn waiter(
        slots: &Slots,
        tenant: &'static str,
        done: &std::sync::mpsc::Sender<(&'static str, SlotGuard)>,
    ) {
        let (slots, done) = (slots.clone(), done.clone());
        orrery_base::thread::spawn_named("waiter", move || {
            let guard = slots.acquire(tenant, &CancelToken::never()).unwrap();
            let _ = done.send((tenant, guard));
        })
        .unwrap();
    }

    #[test]
    fn a_flooding_tenant_delays_another_by_one_slot_only() {
        let slots = Slots::new(2);
        let (sender, receiver) = std::sync::mpsc::channel();
        for _ in 0..20 {
            waiter(&slots, "flood", &sender);
        }
        let held = [receiver.recv().unwrap(), receiver.recv().unwrap()];
        wait_for("the flood waits", || slots.waiting().get("flood") == Some(&18));
        waiter(&slots, "quiet", &sender);
        wait_for("the quiet one waits", || slots.waiting().contains_key("quiet"));
        let [first, second] = held;
        drop(first);
        let (tenant, guard) = receiver.recv().unwrap();
        assert_eq!(tenant, "quiet");
        drop((second, guard));
    }

    #[test]
    fn a_floor_is_free_at_once_and_a_cap_is_never_exceeded() {
        let slots = Slots::new(3);
        slots.set_limits("quiet", TenantSlotLimits { floor: 1, cap: 1 });
        let now = || CancelToken::never().within(Duration::from_millis(100));
        let first = slots.acquire("flood", &now()).unwrap();
        let second = slots.acquire("flood", &now()).unwrap();
        assert!(slots.acquire("flood", &now()).is_err(), "the floor of another tenant was used");
        let quiet = slots.acquire("quiet", &now()).unwrap();
        drop(first);
        assert!(slots.acquire("quiet", &now()).is_err(), "the cap was exceeded");
        drop((second, quiet));
        assert!(slots.used().is_empty() && slots.waiting().is_empty());
    }

    #[test]
    fn a_cancelled_wait_leaves_nothing_behind() {
        let slots = Slots::new(1);
        let held = slots.acquire("a", &CancelToken::never()).unwrap();
        let stop = CancelToken::never();
        stop.cancel();
        assert_eq!(slots.acquire("a", &stop).unwrap_err(), CancelCause::Cancelled);
        drop(held);
        drop(slots.acquire("a", &CancelToken::never()).unwrap());
        assert!(slots.used().is_empty());
    }
}
