//! Fair queue for hashing passwords: few hashes run at once, networks are served in turn, and no network takes all places.
//!
//! Requests that wait are in one of two lanes. The reserved lane is for callers that are known and for accounts that logged in from the same
//! network before; all others share the open lane. Within a lane each line (a network, an account) is served once before any is served
//! again; the lanes alternate. When the open lane is full, the longest line gives up its last place for a network that has fewer.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::problem::ServerError;

/// Hashes at once: each takes 19 MiB and a core.
const AT_ONCE: usize = 2;
/// Waiting requests of the open lane, of all networks and of one.
const OPEN_MAX: usize = 64;
const OPEN_MAX_PER_LINE: usize = 16;
/// Waiting requests of the reserved lane, of all and of one line.
const RESERVED_MAX: usize = 32;
const RESERVED_MAX_PER_LINE: usize = 4;

/// Line in which a request waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A known caller, or an account at a network from which it logged in before.
    Reserved(String),
    /// The network of any other client.
    Open(String),
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    turn: oneshot::Sender<Turn>,
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

    /// Takes the first request of the line whose turn it is.
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

    /// Takes one request out of its line, if it still waits.
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

    /// Makes room for a line that has fewer requests than the longest one: that one loses its last.
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

/// Turns of requests whose passwords are hashed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns(Arc<Mutex<Queue>>);

/// Place in a line. A request that drops it does not wait any more.
#[derive(Debug)]
pub(crate) struct Place {
    turns: Turns,
    line: Line,
    id: u64,
    turn: oneshot::Receiver<Turn>,
}

/// Permission to hash one password, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(Option<Turns>);

impl Turns {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place in a line, without waiting.
    ///
    /// # Errors
    /// `TooMany` if the line, or all lines together, have as many requests as may wait.
    pub(crate) fn enter(&self, line: Line) -> Result<Place, ServerError> {
        let mut queue = self.queue();
        queue.last_id += 1;
        let (id, (turn, told)) = (queue.last_id, oneshot::channel());
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
        lane.push(name, Waiter { id, turn });
        self.dispatch(queue);
        Ok(Place { turns: self.clone(), line, id, turn: told })
    }

    /// Gives out the turns that are free.
    fn dispatch(&self, mut queue: MutexGuard<'_, Queue>) {
        while queue.running < AT_ONCE {
            let Some(waiter) = queue.pop() else { return };
            // One that is not wanted any more must not be given back under the lock.
            match waiter.turn.send(Turn(Some(self.clone()))) {
                Ok(()) => queue.running += 1,
                Err(mut unwanted) => drop(unwanted.0.take()),
            }
        }
    }
}

impl Place {
    /// Waits for the turn, unless the client goes away meanwhile.
    ///
    /// # Errors
    /// `TooMany` if the place was given to another network, or the client is gone.
    pub(crate) async fn turn(mut self, gone: &CancellationToken) -> Result<Turn, ServerError> {
        let lost = ServerError::TooMany { seconds: 1 };
        tokio::select! {
            biased;
            turn = &mut self.turn => turn.map_err(|_| lost),
            () = gone.cancelled() => Err(lost),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let id = self.id;
        let mut queue = self.turns.queue();
        match &self.line {
            Line::Reserved(name) => queue.reserved.remove(name, |waiter| waiter.id == id),
            Line::Open(name) => queue.open.remove(name, |waiter| waiter.id == id),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            let mut queue = turns.queue();
            queue.running -= 1;
            turns.dispatch(queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(network: &str) -> Line {
        Line::Open(network.to_owned())
    }

    /// Enters and fails the test if there is no place.
    fn enter(turns: &Turns, line: Line) -> Place {
        turns.enter(line).unwrap()
    }

    async fn served(turns: &Turns, mut places: Vec<(&'static str, Place)>) -> Vec<&'static str> {
        let mut order = Vec::new();
        while !places.is_empty() {
            let mut at = 0;
            let turn = loop {
                if let Ok(turn) = places[at].1.turn.try_recv() {
                    break turn;
                }
                at += 1;
            };
            order.push(places.remove(at).0);
            drop(turn);
        }
        assert_eq!(turns.queue().running, 0);
        order
    }

    #[tokio::test]
    async fn networks_and_lanes_take_turns() {
        let turns = Turns::default();
        // Two that run keep the others waiting.
        let mut running = [enter(&turns, open("x")), enter(&turns, open("x"))];
        let held: Vec<Turn> =
            running.iter_mut().map(|place| place.turn.try_recv().unwrap()).collect();
        let mut places = Vec::new();
        for (name, line) in [
            ("a1", open("a")),
            ("a2", open("a")),
            ("a3", open("a")),
            ("b1", open("b")),
            ("f1", Line::Reserved("f".to_owned())),
            ("f2", Line::Reserved("f".to_owned())),
        ] {
            places.push((name, enter(&turns, line)));
        }
        drop(held);
        let mut order = served(&turns, places).await;
        order.retain(|name| !name.starts_with('f'));
        assert_eq!(order, ["a1", "b1", "a2", "a3"]);
    }

    #[tokio::test]
    async fn one_network_neither_takes_all_places_nor_those_in_reserve() {
        let turns = Turns::default();
        let mut places: Vec<Place> = (0..AT_ONCE).map(|_| enter(&turns, open("x"))).collect();
        for network in 0..OPEN_MAX / OPEN_MAX_PER_LINE {
            let line = open(&network.to_string());
            places.extend((0..OPEN_MAX_PER_LINE).map(|_| enter(&turns, line.clone())));
            turns.enter(line).unwrap_err();
        }
        // All is full: another network takes the last place of one that has many, and then no more than they have.
        let own: Vec<Place> =
            (0..OPEN_MAX_PER_LINE - 4).map(|_| enter(&turns, open("y"))).collect();
        assert_eq!(turns.queue().open.waiting, OPEN_MAX);
        assert_eq!(own.len(), turns.queue().open.len_of("y"));
        turns.enter(open("y")).unwrap_err();
        let lost = places.iter_mut().filter_map(|place| place.turn.try_recv().err());
        let lost = lost.filter(|error| *error == oneshot::error::TryRecvError::Closed).count();
        assert_eq!(lost, own.len());
        // Those in reserve are there all the same, a few for each.
        let reserved = || turns.enter(Line::Reserved("ada".to_owned()));
        let held: Vec<Place> = (0..RESERVED_MAX_PER_LINE).map(|_| reserved().unwrap()).collect();
        reserved().unwrap_err();
        drop(held);
        reserved().unwrap();
    }

    #[tokio::test]
    async fn a_client_that_is_gone_waits_no_longer_and_costs_no_turn() {
        let turns = Turns::default();
        let mut first = [enter(&turns, open("x")), enter(&turns, open("x"))];
        let held: Vec<Turn> =
            first.iter_mut().map(|place| place.turn.try_recv().unwrap()).collect();
        let (gone, there) = (CancellationToken::new(), CancellationToken::new());
        let leaving = enter(&turns, open("x"));
        let staying = enter(&turns, open("x"));
        gone.cancel();
        leaving.turn(&gone).await.unwrap_err();
        assert_eq!(turns.queue().open.waiting, 1);
        // One that is dropped after it got its turn gives it back.
        drop(held);
        assert_eq!(turns.queue().running, 1);
        drop(staying);
        assert_eq!(turns.queue().running, 0);
        enter(&turns, open("x")).turn(&there).await.unwrap();
    }
}
