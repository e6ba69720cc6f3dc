//! Threads of an engine: counts, and waiting for their exit.

use std::sync::{Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;

/// Maximum wait for threads without a running handler when an engine closes.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Workers of one engine, and the other threads that hold its store.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<Threads>);

#[derive(Debug, Default)]
pub(crate) struct Threads {
    pub(crate) workers: usize,
    pub(crate) idle: usize,
    /// Workers that run a handler.
    pub(crate) busy: usize,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    pub(crate) fn add(&mut self, thread: JoinHandle<()>) {
        self.handles.retain(|handle| !handle.is_finished());
        self.handles.push(thread);
    }
}

impl Pool {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Threads> {
        self.0.lock().ignore_poison()
    }

    /// Waits until only threads with a running handler are left. A remaining thread holds the store
    /// open, and SQLite keeps the write-ahead log until the last connection closes.
    pub(crate) fn wait_for_exit(&self) {
        let until = monotonic() + EXIT_TIMEOUT;
        loop {
            {
                let mut threads = self.lock();
                threads.handles.retain(|handle| !handle.is_finished());
                let is_own =
                    |handle: &&JoinHandle<()>| handle.thread().id() == std::thread::current().id();
                let own = threads.handles.iter().filter(is_own).count();
                if threads.handles.len() <= threads.busy + own {
                    return;
                }
            }
            if monotonic() >= until {
                return;
            }
            std::thread::sleep(EXIT_POLL_INTERVAL);
        }
    }
}
