//! Threads with a name, so that a panic, a debugger or `top -H` tells what they do.

use std::io;
use std::thread::{Builder, JoinHandle};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_name() {
        let thread = spawn_named("reader", || std::thread::current().name().map(str::to_owned));
        assert_eq!(thread.unwrap().join().unwrap().as_deref(), Some("reader"));
    }
}
