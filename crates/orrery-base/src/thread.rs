//! Threads with a name, so that a panic, a debugger or `top -H` tells what they do.

use std::io;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::thread::{Builder, JoinHandle};

use crate::lock::IgnorePoison as _;

/// Starts a thread with a name of at most 15 bytes, which is what Linux shows.
///
/// # Errors
/// If the system has no more threads.
pub fn spawn_named<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    debug_assert!(name.len() <= 15, "{name} is too long for the name of a thread");
    Builder::new().name(name.to_owned()).spawn(work)
}

/// Runs `here` on this thread, and `there` on a second one with this name at the same time. If the
/// system has no more threads, `there` runs afterwards.
///
/// # Panics
/// If one of the two panics.
pub fn run_both<A, B: Send>(
    name: &str,
    here: impl FnOnce() -> A,
    there: impl FnOnce() -> B + Send,
) -> (A, B) {
    debug_assert!(name.len() <= 15, "{name} is too long for the name of a thread");
    let there = Mutex::new(Some(there));
    let run = || {
        let there = there.lock().ignore_poison().take();
        there.map(|there| there())
    };
    std::thread::scope(|scope| {
        let started = Builder::new().name(name.to_owned()).spawn_scoped(scope, run);
        let first = here();
        let second = started
            .ok()
            .and_then(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        let second = second.or_else(run);
        (first, second.expect("invariant: it ran on one of the two threads"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_name() {
        let thread = spawn_named("reader", || std::thread::current().name().map(str::to_owned));
        assert_eq!(thread.unwrap().join().unwrap().as_deref(), Some("reader"));
    }

    #[test]
    fn two_pieces_of_work_run_at_the_same_time() {
        let meet = std::sync::Barrier::new(2);
        let (here, there) = run_both(
            "second",
            || meet.wait().is_leader(),
            || (meet.wait().is_leader(), std::thread::current().name().map(str::to_owned)),
        );
        assert_ne!(here, there.0);
        assert_eq!(there.1.as_deref(), Some("second"));
    }
}
