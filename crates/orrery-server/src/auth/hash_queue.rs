//! Fair queue for password hashing: few hashes run at once, and networks are served round-robin.
//!
//! Waiting requests are in one of two lanes. The reserved lane is for authenticated callers and for
//! accounts that logged in from the same network before; all others share the open lane. Within a
//! lane, lines (networks or accounts) are served round-robin; the lanes alternate. When the open
//! lane is full, the longest line loses its last request to a network that has fewer.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use orrery_base::lock::IgnorePoison;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::error::ServerError;

/// Concurrent hashes: each needs 19 MiB and a core.
const AT_ONCE: usize = 2;
/// Maximum number of waiting requests of the open lane, in total and per network.
const OPEN_MAX: usize = 64;
const OPEN_MAX_PER_LINE: usize = 16;
/// Maximum number of waiting requests of the reserved lane, in total and per line.
const RESERVED_MAX: usize = 32;
const RESERVED_MAX_PER_LINE: usize = 4;

/// Line in which a request waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// An authenticated caller, or an account at a network from which it logged in before.
    Reserved(String),
    /// The network of any other client.
    Open(String),
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    permit: oneshot::Sender<HashPermit>,
}

#[derive(Debug, Default)]
struct Lane {
    waiting: usize,
    /// Names of the lines that are not empty, the next one first.
    rotation: VecDeque<String>,
    lines: HashMap<String, VecDeque<Waiter>>,
}

impl Lane {
    fn len_of(&self, line: &str) -> usize {
        self.lines.get(line).map_or(0, VecDeque::len)
    }

    fn push(&mut self, line: &str, waiter: Waiter) {
        if !self.lines.contains_key(line) {
            self.rotation.push_back(line.to_owned());
        }
        self.lines.entry(line.to_owned()).or_default().push_back(waiter);
        self.waiting += 1;
    }

    /// Takes the first request of the next line.
    fn pop(&mut self) -> Option<Waiter> {
        let line = self.rotation.pop_front()?;
        let waiters = self.lines.get_mut(&line)?;
        let waiter = waiters.pop_front();
        if waiters.is_empty() {
            self.lines.remove(&line);
        } else {
            self.rotation.push_back(line);
        }
        self.waiting -= usize::from(waiter.is_some());
        waiter
    }

    /// Removes a request from its line, if it still waits.
    fn remove(&mut self, line: &str, matches: impl Fn(&Waiter) -> bool) {
        let Some(waiters) = self.lines.get_mut(line) else { return };
        let Some(at) = waiters.iter().rposition(matches) else { return };
        waiters.remove(at);
        self.waiting -= 1;
        if waiters.is_empty() {
            self.lines.remove(line);
            self.rotation.retain(|name| name != line);
        }
    }

    /// Makes room for a line that is shorter than the longest one, which loses its last request.
    fn make_room_for(&mut self, line: &str) -> bool {
        let longest = self.lines.iter().max_by_key(|(_, waiters)| waiters.len());
        let Some((name, length)) = longest.map(|(name, waiters)| (name.clone(), waiters.len()))
        else {
            return false;
        };
        let has_room = self.len_of(line) + 1 < length;
        if has_room {
            self.remove(&name, |_| true);
        }
        has_room
    }
}

#[derive(Debug, Default)]
struct Queue {
    running: usize,
    last_id: u64,
    open: Lane,
    reserved: Lane,
    /// The lane that is served next, if both have requests.
    is_open_next: bool,
}

impl Queue {
    fn pop(&mut self) -> Option<Waiter> {
        let open_first = self.is_open_next;
        self.is_open_next = !open_first;
        if open_first {
            self.open.pop().or_else(|| self.reserved.pop())
        } else {
            self.reserved.pop().or_else(|| self.open.pop())
        }
    }
}

/// Queue of requests for password hashing.
#[derive(Clone, Debug, Default)]
pub(crate) struct HashQueue(Arc<Mutex<Queue>>);

/// Position in a line. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct QueuePosition {
    queue: HashQueue,
    line: Line,
    id: u64,
    permit: oneshot::Receiver<HashPermit>,
}

/// Permission to hash one password, until it is dropped.
#[derive(Debug)]
pub(crate) struct HashPermit(Option<HashQueue>);

impl HashQueue {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().ignore_poison()
    }

    /// Enters a line without waiting.
    ///
    /// # Errors
    /// `TooMany` if the line or the lane is full.
    pub(crate) fn join(&self, line: Line) -> Result<QueuePosition, ServerError> {
        let mut queue = self.lock();
        queue.last_id += 1;
        let (id, (permit, granted)) = (queue.last_id, oneshot::channel());
        let (lane, name, has_room) = match &line {
            Line::Reserved(name) => {
                let lane = &mut queue.reserved;
                let fits = lane.waiting < RESERVED_MAX && lane.len_of(name) < RESERVED_MAX_PER_LINE;
                (lane, name, fits)
            }
            Line::Open(name) => {
                let lane = &mut queue.open;
                let fits = lane.len_of(name) < OPEN_MAX_PER_LINE
                    && (lane.waiting < OPEN_MAX || lane.make_room_for(name));
                (lane, name, fits)
            }
        };
        if !has_room {
            return Err(ServerError::TooMany { seconds: 1 });
        }
        lane.push(name, Waiter { id, permit });
        self.dispatch(queue);
        Ok(QueuePosition { queue: self.clone(), line, id, permit: granted })
    }

    /// Grants the free permits.
    fn dispatch(&self, mut queue: MutexGuard<'_, Queue>) {
        while queue.running < AT_ONCE {
            let Some(waiter) = queue.pop() else { return };
            // A permit without a receiver must not be dropped under the lock.
            match waiter.permit.send(HashPermit(Some(self.clone()))) {
                Ok(()) => queue.running += 1,
                Err(mut unwanted) => drop(unwanted.0.take()),
            }
        }
    }
}

impl QueuePosition {
    /// Waits for a permit, unless the client disconnects.
    ///
    /// # Errors
    /// `TooMany` if the position was given to another network, or the client disconnected.
    pub(crate) async fn acquire(
        mut self,
        gone: &CancellationToken,
    ) -> Result<HashPermit, ServerError> {
        let lost = ServerError::TooMany { seconds: 1 };
        tokio::select! {
            biased;
            permit = &mut self.permit => permit.map_err(|_| lost),
            () = gone.cancelled() => Err(lost),
        }
    }
}

impl Drop for QueuePosition {
    fn drop(&mut self) {
        let id = self.id;
        let mut queue = self.queue.lock();
        match &self.line {
            Line::Reserved(name) => queue.reserved.remove(name, |waiter| waiter.id == id),
            Line::Open(name) => queue.open.remove(name, |waiter| waiter.id == id),
        }
    }
}

impl Drop for HashPermit {
    fn drop(&mut self) {
        if let Some(owner) = self.0.take() {
            let mut queue = owner.lock();
            queue.running -= 1;
            owner.dispatch(queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(network: &str) -> Line {
        Line::Open(network.to_owned())
    }

    /// Enters a line; fails the test if it is full.
    fn join(queue: &HashQueue, line: Line) -> QueuePosition {
        queue.join(line).unwrap()
    }

    fn served(
        queue: &HashQueue,
        mut places: Vec<(&'static str, QueuePosition)>,
    ) -> Vec<&'static str> {
        let mut order = Vec::new();
        while !places.is_empty() {
            let mut at = 0;
            let permit = loop {
                if let Ok(permit) = places[at].1.permit.try_recv() {
                    break permit;
                }
                at += 1;
            };
            order.push(places.remove(at).0);
            drop(permit);
        }
        assert_eq!(queue.lock().running, 0);
        order
    }

    #[tokio::test]
    async fn networks_and_lanes_take_turns() {
        let queue = HashQueue::default();
        // Two running hashes block the others.
        let mut running = [join(&queue, open("x")), join(&queue, open("x"))];
        let held: Vec<HashPermit> =
            running.iter_mut().map(|place| place.permit.try_recv().unwrap()).collect();
        let mut places = Vec::new();
        for (name, line) in [
            ("a1", open("a")),
            ("a2", open("a")),
            ("a3", open("a")),
            ("b1", open("b")),
            ("f1", Line::Reserved("f".to_owned())),
            ("f2", Line::Reserved("f".to_owned())),
        ] {
            places.push((name, join(&queue, line)));
        }
        drop(held);
        let mut order = served(&queue, places);
        order.retain(|name| !name.starts_with('f'));
        assert_eq!(order, ["a1", "b1", "a2", "a3"]);
    }

    #[tokio::test]
    async fn one_network_takes_neither_all_positions_nor_reserved_ones() {
        let queue = HashQueue::default();
        let mut places: Vec<QueuePosition> =
            (0..AT_ONCE).map(|_| join(&queue, open("x"))).collect();
        for network in 0..OPEN_MAX / OPEN_MAX_PER_LINE {
            let line = open(&network.to_string());
            places.extend((0..OPEN_MAX_PER_LINE).map(|_| join(&queue, line.clone())));
            queue.join(line).unwrap_err();
        }
        // The queue is full: another network takes the last position of a long line, up to the
        // length of the others.
        let own: Vec<QueuePosition> =
            (0..OPEN_MAX_PER_LINE - 4).map(|_| join(&queue, open("y"))).collect();
        assert_eq!(queue.lock().open.waiting, OPEN_MAX);
        assert_eq!(own.len(), queue.lock().open.len_of("y"));
        queue.join(open("y")).unwrap_err();
        let lost = places.iter_mut().filter_map(|place| place.permit.try_recv().err());
        let lost = lost.filter(|error| *error == oneshot::error::TryRecvError::Closed).count();
        assert_eq!(lost, own.len());
        // Reserved positions are still available, a few per line.
        let reserved = || queue.join(Line::Reserved("ada".to_owned()));
        let held: Vec<QueuePosition> =
            (0..RESERVED_MAX_PER_LINE).map(|_| reserved().unwrap()).collect();
        reserved().unwrap_err();
        drop(held);
        reserved().unwrap();
    }

    #[tokio::test]
    async fn a_disconnected_client_leaves_the_queue() {
        let queue = HashQueue::default();
        let mut first = [join(&queue, open("x")), join(&queue, open("x"))];
        let held: Vec<HashPermit> =
            first.iter_mut().map(|place| place.permit.try_recv().unwrap()).collect();
        let (gone, there) = (CancellationToken::new(), CancellationToken::new());
        let leaving = join(&queue, open("x"));
        let staying = join(&queue, open("x"));
        gone.cancel();
        leaving.acquire(&gone).await.unwrap_err();
        assert_eq!(queue.lock().open.waiting, 1);
        // A permit that is dropped is available again.
        drop(held);
        assert_eq!(queue.lock().running, 1);
        drop(staying);
        assert_eq!(queue.lock().running, 0);
        join(&queue, open("x")).acquire(&there).await.unwrap();
    }
}
