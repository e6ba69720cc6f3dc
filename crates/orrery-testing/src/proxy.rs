//! TCP proxy between a program and its database that can stop relaying without closing connections:
//! both ends see a black hole.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Poll interval of a stalled relay.
const TICK: Duration = Duration::from_millis(5);

/// A proxy on the loopback interface. Its threads end with this value.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Nothing is relayed; connections are accepted and stay open.
    stalled: AtomicBool,
    /// Connections are closed at once, as if the server were down.
    down: AtomicBool,
    /// Connections of older generations are closed.
    generation: AtomicU64,
    closed: AtomicBool,
}

impl Proxy {
    /// Relays to `target`.
    ///
    /// # Panics
    /// Panics if no port is free.
    pub fn new(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("the address of a listener");
        listener.set_nonblocking(true).expect("a listener that does not block");
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            while !shared.closed.load(Ordering::Acquire) {
                match listener.accept() {
                    Ok((client, _)) => {
                        let shared = Arc::clone(&shared);
                        thread::spawn(move || connect(client, target, &shared));
                    }
                    Err(_) => thread::sleep(TICK),
                }
            }
        });
        Proxy { address, state }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Stops relaying without closing connections.
    pub fn stall(&self) {
        self.state.stalled.store(true, Ordering::Release);
    }

    /// Closes all connections, also new ones, until `heal`: the server is down.
    pub fn shut(&self) {
        self.state.down.store(true, Ordering::Release);
        self.state.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Closes stalled connections, and relays new ones again.
    pub fn heal(&self) {
        self.state.generation.fetch_add(1, Ordering::AcqRel);
        self.state.stalled.store(false, Ordering::Release);
        self.state.down.store(false, Ordering::Release);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.closed.store(true, Ordering::Release);
        self.heal();
    }
}

fn connect(client: TcpStream, target: SocketAddr, state: &Arc<State>) {
    if state.down.load(Ordering::Acquire) {
        return;
    }
    let generation = state.generation.load(Ordering::Acquire);
    while state.stalled.load(Ordering::Acquire) {
        if state.generation.load(Ordering::Acquire) != generation {
            return;
        }
        thread::sleep(TICK);
    }
    let Ok(server) = TcpStream::connect(target) else { return };
    let (Ok(from_client), Ok(from_server)) = (client.try_clone(), server.try_clone()) else {
        return;
    };
    let shared = Arc::clone(state);
    let back = thread::spawn(move || relay(from_server, client, generation, &shared));
    relay(from_client, server, generation, state);
    // A panicked relay has closed nothing; the test then fails by itself.
    let _ = back.join();
}

fn relay(mut from: TcpStream, mut to: TcpStream, generation: u64, state: &State) {
    let mut buffer = vec![0; 64 * 1024];
    if from.set_read_timeout(Some(Duration::from_millis(50))).is_err() {
        return;
    }
    'relay: loop {
        let current = || state.generation.load(Ordering::Acquire) == generation;
        if !current() || state.closed.load(Ordering::Acquire) {
            break;
        }
        if state.stalled.load(Ordering::Acquire) {
            thread::sleep(TICK);
            continue;
        }
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Err(_) => break,
        };
        // Data read before the stall is held back, too.
        while state.stalled.load(Ordering::Acquire) {
            if !current() {
                break 'relay;
            }
            thread::sleep(TICK);
        }
        if !current() || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // The other end may have closed it already.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
