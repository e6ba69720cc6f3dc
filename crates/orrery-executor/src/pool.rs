//! Threads of an engine: how many there are, and that they are gone when the engine is.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the end of an engine waits for threads that run no handler.
const GONE_WITHIN: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(1);

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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no thread is left but those that run handlers. A thread that is still there holds the store open: a database
    /// file whose last connection is not closed keeps its log beside it.
    pub(crate) fn wait_until_gone(&self) {
        let until = Instant::now() + GONE_WITHIN;
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
            if Instant::now() >= until {
                return;
            }
            std::thread::sleep(POLL);
        }
    }
}
