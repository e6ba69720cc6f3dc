//! Connection slots: their number, the share of one network, and eviction.
//!
//! A connection is *anonymous* until a request on it was authenticated, or its peer has shown a
//! certificate. Anonymous connections have half of the slots. When those are taken, the anonymous
//! connection that has been idle longest is evicted, first among those of the network that requests
//! a slot: a client with many connections evicts its own, and cannot lock out others.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use tokio_util::sync::CancellationToken;

use crate::network::Network;

/// Maximum number of slots of the main listener, regardless of file descriptors.
const MAIN_PLACES_MAX: usize = 8192;
/// The same of a gateway, where each agent has one all the time.
const GATEWAY_PLACES_MAX: usize = 20_000;
/// Assumed limit of descriptors if it cannot be read.
const DESCRIPTORS_DEFAULT: u64 = 1024;

/// Limits of connections of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotLimits {
    /// In total.
    pub total: usize,
    /// Of anonymous clients.
    pub anonymous: usize,
    /// Of anonymous clients of one network, and as many of authenticated ones.
    pub network: usize,
}

impl SlotLimits {
    /// Returns the limits for the main listener, or one with fewer clients. A quarter of the
    /// descriptors is reserved for other uses.
    pub fn for_process(main: bool) -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        Self::from_descriptors(limit.unwrap_or(u64::MAX).max(1), main)
    }

    fn from_descriptors(descriptors: u64, main: bool) -> Self {
        let (part, most) = if main { (4, MAIN_PLACES_MAX) } else { (2, GATEWAY_PLACES_MAX) };
        let share = descriptors.max(DESCRIPTORS_DEFAULT / 8) / part;
        let total = usize::try_from(share).unwrap_or(most).min(most);
        SlotLimits { total, anonymous: total / 2, network: total / 4 }
    }
}

/// Connection slots of one listener.
#[derive(Debug)]
pub struct ConnectionSlots {
    limits: SlotLimits,
    /// Proxies, which have many clients behind one address.
    proxies: Vec<Network>,
    began: Instant,
    next: AtomicU64,
    taken: Mutex<TakenSlots>,
}

#[derive(Debug, Default)]
struct TakenSlots {
    anonymous: usize,
    authenticated: usize,
    networks: HashMap<IpAddr, NetworkSlots>,
}

#[derive(Debug, Default)]
struct NetworkSlots {
    /// By number: the oldest first.
    anonymous: BTreeMap<u64, Arc<ConnectionState>>,
    authenticated: usize,
}

/// State of one connection.
#[derive(Debug)]
struct ConnectionState {
    network: IpAddr,
    is_authenticated: AtomicBool,
    /// Number of requests in flight.
    in_flight: AtomicUsize,
    requests: AtomicU64,
    /// End of the last request, in milliseconds since the start of the listener.
    idle_since: AtomicU64,
    evicted: CancellationToken,
}

/// Slot of one connection, until it is dropped.
#[derive(Debug)]
pub struct ConnectionSlot {
    number: u64,
    slots: Arc<ConnectionSlots>,
    state: Arc<ConnectionState>,
}

/// A request in flight, until its response was sent.
#[derive(Debug)]
pub struct InFlight(Arc<ConnectionSlot>);

fn network_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from(u128::from(address) & !u128::from(u64::MAX)))
        }
        address @ IpAddr::V4(_) => address,
    }
}

impl ConnectionSlots {
    pub fn new(limits: SlotLimits, proxies: Vec<Network>) -> Arc<Self> {
        Arc::new(ConnectionSlots {
            limits,
            proxies,
            began: monotonic(),
            next: AtomicU64::new(0),
            taken: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, TakenSlots> {
        self.taken.lock().ignore_poison()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn is_proxy(&self, network: IpAddr) -> bool {
        self.proxies.iter().any(|proxy| proxy.contains(network))
    }

    /// Takes a slot; `None` if authenticated clients have all of them.
    pub fn take(self: &Arc<Self>, peer: IpAddr) -> Option<Arc<ConnectionSlot>> {
        let network = if self.is_proxy(peer) { peer.to_canonical() } else { network_of(peer) };
        let mut taken = self.lock();
        let own = taken.networks.get(&network).map_or(0, |own| own.anonymous.len());
        if own >= self.limits.network && !self.is_proxy(peer) {
            taken.evict_from(network);
        } else if taken.anonymous >= self.limits.anonymous
            || taken.anonymous + taken.authenticated >= self.limits.total
        {
            let most = taken.networks.iter().max_by_key(|(_, of)| of.anonymous.len());
            let most = *most?.0;
            if !taken.evict_from(most) {
                return None;
            }
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let state = Arc::new(ConnectionState {
            network,
            is_authenticated: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            idle_since: AtomicU64::new(self.now()),
            evicted: CancellationToken::new(),
        });
        taken.anonymous += 1;
        let own = taken.networks.entry(network).or_default();
        own.anonymous.insert(number, Arc::clone(&state));
        Some(Arc::new(ConnectionSlot { number, slots: Arc::clone(self), state }))
    }
}

impl TakenSlots {
    /// Evicts an anonymous connection: the oldest idle one, or the oldest. False if the network has
    /// none.
    fn evict_from(&mut self, network: IpAddr) -> bool {
        let Some(own) = self.networks.get_mut(&network) else { return false };
        let is_idle = |state: &ConnectionState| state.in_flight.load(Ordering::Relaxed) == 0;
        let idle = own.anonymous.iter().find(|(_, state)| is_idle(state));
        let Some((&number, _)) = idle.or_else(|| own.anonymous.iter().next()) else { return false };
        if let Some(state) = own.anonymous.remove(&number) {
            state.evicted.cancel();
            self.anonymous -= 1;
        }
        self.remove_empty(network);
        true
    }

    fn remove_empty(&mut self, network: IpAddr) {
        if self
            .networks
            .get(&network)
            .is_some_and(|of| of.anonymous.is_empty() && of.authenticated == 0)
        {
            self.networks.remove(&network);
        }
    }
}

impl ConnectionSlot {
    /// Marks the client as authenticated: its connection is not evicted any more.
    pub fn mark_authenticated(&self) {
        if self.state.is_authenticated.load(Ordering::Relaxed) {
            return;
        }
        let mut taken = self.slots.lock();
        let is_proxy = self.slots.is_proxy(self.state.network);
        let most = self.slots.limits.network;
        let Some(own) = taken.networks.get_mut(&self.state.network) else { return };
        if own.authenticated >= most && !is_proxy {
            return;
        }
        // An eviction in the meantime stays valid.
        if own.anonymous.remove(&self.number).is_some() {
            own.authenticated += 1;
            taken.anonymous -= 1;
            taken.authenticated += 1;
            self.state.is_authenticated.store(true, Ordering::Relaxed);
        }
    }

    /// Resolves when the connection is evicted.
    pub async fn evicted(&self) {
        self.state.evicted.cancelled().await;
    }

    /// Starts the timeout of the first request.
    pub fn ready(&self) {
        self.state.idle_since.store(self.slots.now(), Ordering::Relaxed);
    }

    pub fn begin_request(self: &Arc<Self>) -> InFlight {
        self.state.in_flight.fetch_add(1, Ordering::Relaxed);
        self.state.requests.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    /// Resolves when no request is in flight, and the last response had time to be sent.
    pub async fn at_rest(&self) {
        const LEAVES_WITHIN: Duration = Duration::from_millis(100);
        loop {
            let idle = self.slots.now() - self.state.idle_since.load(Ordering::Relaxed);
            let is_busy = self.state.in_flight.load(Ordering::Relaxed) > 0;
            if !is_busy && Duration::from_millis(idle) >= LEAVES_WITHIN {
                return;
            }
            tokio::time::sleep(LEAVES_WITHIN / 2).await;
        }
    }

    /// Resolves when the timeout of the first or next request expires.
    pub async fn overdue(&self, first: Duration, next: Duration) {
        loop {
            let patience = match self.state.requests.load(Ordering::Relaxed) {
                0 => first,
                _ => next,
            };
            let idle = self.slots.now() - self.state.idle_since.load(Ordering::Relaxed);
            let left = patience.saturating_sub(Duration::from_millis(idle));
            let is_busy = self.state.in_flight.load(Ordering::Relaxed) > 0;
            match (is_busy, left.is_zero()) {
                (false, true) => return,
                (false, false) => tokio::time::sleep(left).await,
                (true, _) => tokio::time::sleep(next).await,
            }
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let network = self.state.network;
        let mut taken = self.slots.lock();
        if self.state.is_authenticated.load(Ordering::Relaxed) {
            taken.authenticated -= 1;
            if let Some(own) = taken.networks.get_mut(&network) {
                own.authenticated -= 1;
            }
        } else if let Some(own) = taken.networks.get_mut(&network)
            && own.anonymous.remove(&self.number).is_some()
        {
            taken.anonymous -= 1;
        }
        taken.remove_empty(network);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let state = &self.0.state;
        state.idle_since.store(self.0.slots.now(), Ordering::Relaxed);
        state.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(total: usize) -> Arc<ConnectionSlots> {
        let limits = SlotLimits { total, anonymous: total / 2, network: total / 4 };
        ConnectionSlots::new(limits, vec!["10.0.0.1".parse().unwrap()])
    }

    fn from(slots: &Arc<ConnectionSlots>, peer: &str) -> Option<Arc<ConnectionSlot>> {
        slots.take(peer.parse().unwrap())
    }

    fn is_evicted(slot: &ConnectionSlot) -> bool {
        slot.state.evicted.is_cancelled()
    }

    #[test]
    fn limits_follow_the_descriptors() {
        let usual = SlotLimits::from_descriptors(1024, true);
        assert_eq!(usual, SlotLimits { total: 256, anonymous: 128, network: 64 });
        assert_eq!(SlotLimits::from_descriptors(1024, false).total, 512);
        assert_eq!(SlotLimits::from_descriptors(1 << 20, true).total, MAIN_PLACES_MAX);
        assert_eq!(SlotLimits::from_descriptors(1 << 20, false).total, GATEWAY_PLACES_MAX);
        assert_eq!(SlotLimits::from_descriptors(20_000, false).total, 10_000, "agents");
        assert!(SlotLimits::from_descriptors(0, false).network > 0);
    }

    #[test]
    fn a_network_over_its_limit_evicts_its_own_connections() {
        let slots = slots(16);
        let other = from(&slots, "192.0.2.9").unwrap();
        let held: Vec<_> = (0..4).map(|_| from(&slots, "192.0.2.1").unwrap()).collect();
        let busy = held[0].begin_request();
        let more = from(&slots, "192.0.2.1").unwrap();
        assert!(!is_evicted(&held[0]), "a request is under way");
        assert!(is_evicted(&held[1]), "the oldest that is idle gives way");
        assert!(!is_evicted(&other) && !is_evicted(&more));
        drop(busy);
        // All addresses of a /64 are the same network.
        let ipv6: Vec<_> =
            (0..5).map(|n| from(&slots, &format!("2001:db8::{n}")).unwrap()).collect();
        assert!(is_evicted(&ipv6[0]));
        drop((held, more, ipv6, other));
        let taken = slots.lock();
        assert_eq!((taken.anonymous, taken.authenticated, taken.networks.len()), (0, 0, 0));
    }

    #[test]
    fn slots_are_reserved_for_authenticated_clients() {
        let slots = slots(16);
        let peer = |n: usize| format!("192.0.2.{n}");
        let authenticated: Vec<_> = (0..8).map(|n| from(&slots, &peer(n)).unwrap()).collect();
        authenticated.iter().for_each(|slot| slot.mark_authenticated());
        let anonymous: Vec<_> =
            (0..9).map(|n| from(&slots, &format!("198.51.100.{n}")).unwrap()).collect();
        let gone = anonymous.iter().filter(|slot| is_evicted(slot)).count();
        assert_eq!(gone, 1, "anonymous clients have half of the slots");
        assert!(authenticated.iter().all(|slot| !is_evicted(slot)));
        // Authenticated connections take the slots of anonymous ones, until there are no more.
        let more: Vec<_> = (0..8)
            .map(|n| {
                let slot = from(&slots, &format!("203.0.113.{n}")).unwrap();
                slot.mark_authenticated();
                slot
            })
            .collect();
        assert!(from(&slots, "192.0.2.77").is_none());
        drop(more);
        assert!(from(&slots, "192.0.2.77").is_some());
    }

    #[test]
    fn a_proxy_may_use_all_free_slots() {
        let slots = slots(16);
        let held: Vec<_> = (0..8).map(|_| from(&slots, "10.0.0.1").unwrap()).collect();
        assert!(held.iter().all(|slot| !is_evicted(slot)));
    }
}
