//! Places for connections: how many there are, how many one network may take, and which connection gives way when there are no more.
//!
//! A connection is a *stranger* until a request on it was admitted with a credential, or its peer has shown a certificate. Strangers have half of
//! the places. When those are taken, the stranger that has been idle longest gives way, first among those of the network that wants one more: a
//! client that holds many connections closes its own, and locks out nobody.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::auth::Network;

/// Places of one listener, however many descriptors there are.
const PLACES_MAX: usize = 8192;
/// Descriptors of a process whose limit cannot be read.
const DESCRIPTORS_USUAL: u64 = 1024;

/// How many connections a listener takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlaceLimits {
    /// All together.
    pub(crate) total: usize,
    /// Of strangers.
    pub(crate) strangers: usize,
    /// Of strangers of one network, and as many of known clients.
    pub(crate) network: usize,
}

impl PlaceLimits {
    /// Limits for the main listener, or one that has fewer clients. A quarter of the descriptors is left for everything else.
    pub(crate) fn for_process(main: bool) -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        Self::of_descriptors(limit.unwrap_or(u64::MAX).max(1), main)
    }

    fn of_descriptors(descriptors: u64, main: bool) -> Self {
        let share = descriptors.max(DESCRIPTORS_USUAL / 8) / if main { 2 } else { 4 };
        let total = usize::try_from(share).unwrap_or(PLACES_MAX).min(PLACES_MAX);
        PlaceLimits { total, strangers: total / 2, network: total / 4 }
    }
}

/// Places of one listener.
#[derive(Debug)]
pub(crate) struct Places {
    limits: PlaceLimits,
    /// Proxies, which bring many clients from one address.
    proxies: Vec<Network>,
    began: Instant,
    next: AtomicU64,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    strangers: usize,
    known: usize,
    networks: HashMap<IpAddr, OfNetwork>,
}

#[derive(Debug, Default)]
struct OfNetwork {
    /// By number: the oldest first.
    strangers: BTreeMap<u64, Arc<Holder>>,
    known: usize,
}

/// What is known of one connection.
#[derive(Debug)]
struct Holder {
    network: IpAddr,
    is_known: AtomicBool,
    /// Requests that are not answered to their end.
    in_flight: AtomicUsize,
    requests: AtomicU64,
    /// Milliseconds since the listener began, when the last request ended.
    idle_since: AtomicU64,
    evicted: CancellationToken,
}

/// A place that one connection has, until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    number: u64,
    places: Arc<Places>,
    holder: Arc<Holder>,
}

/// A request that is under way, until its answer was sent.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Place>);

fn network_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from(u128::from(address) & !u128::from(u64::MAX)))
        }
        address => address,
    }
}

impl Places {
    pub(crate) fn new(limits: PlaceLimits, proxies: Vec<Network>) -> Arc<Self> {
        Arc::new(Places {
            limits,
            proxies,
            began: Instant::now(),
            next: AtomicU64::new(0),
            taken: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn is_proxy(&self, network: IpAddr) -> bool {
        self.proxies.iter().any(|proxy| proxy.contains(network))
    }

    /// A place for one more connection; `None` if known clients have all of them.
    pub(crate) fn take(self: &Arc<Self>, peer: IpAddr) -> Option<Arc<Place>> {
        let network = if self.is_proxy(peer) { peer.to_canonical() } else { network_of(peer) };
        let mut taken = self.lock();
        let own = taken.networks.get(&network).map_or(0, |own| own.strangers.len());
        if own >= self.limits.network && !self.is_proxy(peer) {
            taken.evict_from(network);
        } else if taken.strangers >= self.limits.strangers
            || taken.strangers + taken.known >= self.limits.total
        {
            let most = taken.networks.iter().max_by_key(|(_, of)| of.strangers.len());
            let most = *most?.0;
            if !taken.evict_from(most) {
                return None;
            }
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let holder = Arc::new(Holder {
            network,
            is_known: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            idle_since: AtomicU64::new(self.now()),
            evicted: CancellationToken::new(),
        });
        taken.strangers += 1;
        let own = taken.networks.entry(network).or_default();
        own.strangers.insert(number, Arc::clone(&holder));
        Some(Arc::new(Place { number, places: Arc::clone(self), holder }))
    }
}

impl Taken {
    /// Ends the connection of a stranger: the oldest that is idle, else the oldest. False if the network has none.
    fn evict_from(&mut self, network: IpAddr) -> bool {
        let Some(own) = self.networks.get_mut(&network) else { return false };
        let is_idle = |holder: &Holder| holder.in_flight.load(Ordering::Relaxed) == 0;
        let idle = own.strangers.iter().find(|(_, holder)| is_idle(holder));
        let Some((&number, _)) = idle.or_else(|| own.strangers.iter().next()) else { return false };
        if let Some(holder) = own.strangers.remove(&number) {
            holder.evicted.cancel();
            self.strangers -= 1;
        }
        self.forget_empty(network);
        true
    }

    fn forget_empty(&mut self, network: IpAddr) {
        if self.networks.get(&network).is_some_and(|of| of.strangers.is_empty() && of.known == 0) {
            self.networks.remove(&network);
        }
    }
}

impl Place {
    /// The client has shown who it is: its connection does not give way any more.
    pub(crate) fn become_known(&self) {
        if self.holder.is_known.load(Ordering::Relaxed) {
            return;
        }
        let mut taken = self.places.lock();
        let is_proxy = self.places.is_proxy(self.holder.network);
        let most = self.places.limits.network;
        let Some(own) = taken.networks.get_mut(&self.holder.network) else { return };
        if own.known >= most && !is_proxy {
            return;
        }
        // One that was evicted meanwhile stays so.
        if own.strangers.remove(&self.number).is_some() {
            own.known += 1;
            taken.strangers -= 1;
            taken.known += 1;
            self.holder.is_known.store(true, Ordering::Relaxed);
        }
    }

    /// Resolves when the connection has to give way to another one.
    pub(crate) async fn evicted(&self) {
        self.holder.evicted.cancelled().await;
    }

    /// From now on requests can come: the time for the first one counts from here.
    pub(crate) fn ready(&self) {
        self.holder.idle_since.store(self.places.now(), Ordering::Relaxed);
    }

    pub(crate) fn begin_request(self: &Arc<Self>) -> InFlight {
        self.holder.in_flight.fetch_add(1, Ordering::Relaxed);
        self.holder.requests.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    /// Resolves when no request is under way, and the last answer has had time to leave.
    pub(crate) async fn at_rest(&self) {
        const LEAVES_WITHIN: Duration = Duration::from_millis(100);
        loop {
            let idle = self.places.now() - self.holder.idle_since.load(Ordering::Relaxed);
            let is_busy = self.holder.in_flight.load(Ordering::Relaxed) > 0;
            if !is_busy && Duration::from_millis(idle) >= LEAVES_WITHIN {
                return;
            }
            tokio::time::sleep(LEAVES_WITHIN / 2).await;
        }
    }

    /// Resolves when no request came for too long: the first one, or another one after the last was answered.
    pub(crate) async fn overdue(&self, first: Duration, next: Duration) {
        loop {
            let patience = match self.holder.requests.load(Ordering::Relaxed) {
                0 => first,
                _ => next,
            };
            let idle = self.places.now() - self.holder.idle_since.load(Ordering::Relaxed);
            let left = patience.saturating_sub(Duration::from_millis(idle));
            let is_busy = self.holder.in_flight.load(Ordering::Relaxed) > 0;
            match (is_busy, left.is_zero()) {
                (false, true) => return,
                (false, false) => tokio::time::sleep(left).await,
                (true, _) => tokio::time::sleep(next).await,
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let network = self.holder.network;
        let mut taken = self.places.lock();
        if self.holder.is_known.load(Ordering::Relaxed) {
            taken.known -= 1;
            if let Some(own) = taken.networks.get_mut(&network) {
                own.known -= 1;
            }
        } else if let Some(own) = taken.networks.get_mut(&network)
            && own.strangers.remove(&self.number).is_some()
        {
            taken.strangers -= 1;
        }
        taken.forget_empty(network);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let holder = &self.0.holder;
        holder.idle_since.store(self.0.places.now(), Ordering::Relaxed);
        holder.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(total: usize) -> Arc<Places> {
        let limits = PlaceLimits { total, strangers: total / 2, network: total / 4 };
        Places::new(limits, vec!["10.0.0.1".parse().unwrap()])
    }

    fn from(places: &Arc<Places>, peer: &str) -> Option<Arc<Place>> {
        places.take(peer.parse().unwrap())
    }

    fn is_evicted(place: &Place) -> bool {
        place.holder.evicted.is_cancelled()
    }

    #[test]
    fn limits_follow_the_descriptors() {
        let usual = PlaceLimits::of_descriptors(1024, true);
        assert_eq!(usual, PlaceLimits { total: 512, strangers: 256, network: 128 });
        assert_eq!(PlaceLimits::of_descriptors(1024, false).total, 256);
        assert_eq!(PlaceLimits::of_descriptors(1 << 20, true).total, PLACES_MAX);
        assert!(PlaceLimits::of_descriptors(0, false).network > 0);
    }

    #[test]
    fn the_network_that_wants_too_much_closes_its_own() {
        let places = places(16);
        let other = from(&places, "192.0.2.9").unwrap();
        let held: Vec<_> = (0..4).map(|_| from(&places, "192.0.2.1").unwrap()).collect();
        let busy = held[0].begin_request();
        let more = from(&places, "192.0.2.1").unwrap();
        assert!(!is_evicted(&held[0]), "a request is under way");
        assert!(is_evicted(&held[1]), "the oldest that is idle gives way");
        assert!(!is_evicted(&other) && !is_evicted(&more));
        drop(busy);
        // Each address of a /64 is the same network.
        let ipv6: Vec<_> =
            (0..5).map(|n| from(&places, &format!("2001:db8::{n}")).unwrap()).collect();
        assert!(is_evicted(&ipv6[0]));
        drop((held, more, ipv6, other));
        let taken = places.lock();
        assert_eq!((taken.strangers, taken.known, taken.networks.len()), (0, 0, 0));
    }

    #[test]
    fn places_are_kept_for_those_who_are_known() {
        let places = places(16);
        let peer = |n: usize| format!("192.0.2.{n}");
        let known: Vec<_> = (0..8).map(|n| from(&places, &peer(n)).unwrap()).collect();
        known.iter().for_each(|place| place.become_known());
        let strangers: Vec<_> =
            (0..9).map(|n| from(&places, &format!("198.51.100.{n}")).unwrap()).collect();
        let gone = strangers.iter().filter(|place| is_evicted(place)).count();
        assert_eq!(gone, 1, "strangers have half of the places");
        assert!(known.iter().all(|place| !is_evicted(place)));
        // Those who are known take the places of strangers, and then there are no more.
        let more: Vec<_> = (0..8)
            .map(|n| {
                let place = from(&places, &format!("203.0.113.{n}")).unwrap();
                place.become_known();
                place
            })
            .collect();
        assert!(from(&places, "192.0.2.77").is_none());
        drop(more);
        assert!(from(&places, "192.0.2.77").is_some());
    }

    #[test]
    fn a_proxy_brings_as_many_as_there_is_room_for() {
        let places = places(16);
        let held: Vec<_> = (0..8).map(|_| from(&places, "10.0.0.1").unwrap()).collect();
        assert!(held.iter().all(|place| !is_evicted(place)));
    }
}
