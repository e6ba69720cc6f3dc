//! Admission of new connections: limits their rate and how many are made at once, in all and per
//! host, so that thousands of machines do not overrun this one, a jump host or a server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::ConnectionLimits;

/// Limits that all connections of a process share.
#[derive(Debug)]
pub(crate) struct Admission {
    handshakes: Arc<Semaphore>,
    per_host: usize,
    interval: Duration,
    hosts: Mutex<HashMap<String, Arc<Semaphore>>>,
    next: Mutex<Option<Instant>>,
}

/// Right to make one connection.
#[derive(Debug)]
pub(crate) struct Admitted {
    _host: Option<OwnedSemaphorePermit>,
    _all: Option<OwnedSemaphorePermit>,
}

impl Admission {
    pub(crate) fn new(limits: &ConnectionLimits) -> Self {
        Admission {
            handshakes: Arc::new(Semaphore::new(limits.handshakes.max(1))),
            per_host: limits.handshakes_per_host.max(1),
            interval: limits.connection_interval,
            hosts: Mutex::default(),
            next: Mutex::default(),
        }
    }

    /// Waits for the right to connect to or through a host. The slot of the host comes first: those
    /// that wait for a slow host take no slot of the others.
    pub(crate) async fn admit(&self, host: &str) -> Admitted {
        let of_host = {
            let mut hosts = self.hosts.lock().ignore_poison();
            // Semaphores without users are at their initial value.
            if hosts.len() > 1024 {
                hosts.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
            }
            let new = || Arc::new(Semaphore::new(self.per_host));
            Arc::clone(hosts.entry(host.to_owned()).or_insert_with(new))
        };
        let host = of_host.acquire_owned().await.ok();
        let all = Arc::clone(&self.handshakes).acquire_owned().await.ok();
        let pause = self.take_turn(monotonic());
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        Admitted { _host: host, _all: all }
    }

    /// Reserves the next moment for a connection; returns the time until then.
    fn take_turn(&self, now: Instant) -> Duration {
        let mut next = self.next.lock().ignore_poison();
        let turn = next.map_or(now, |at| at.max(now));
        *next = turn.checked_add(self.interval);
        turn.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_spread_over_time() {
        let limits = ConnectionLimits {
            connection_interval: Duration::from_millis(10),
            ..ConnectionLimits::default()
        };
        let admission = Admission::new(&limits);
        let now = Instant::now();
        let pauses: Vec<u128> = (0..3).map(|_| admission.take_turn(now).as_millis()).collect();
        assert_eq!(pauses, [0, 10, 20]);
        assert_eq!(admission.take_turn(now + Duration::from_secs(1)), Duration::ZERO);
    }
}
