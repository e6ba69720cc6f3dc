//! Handlers that run in host processes.
//!
//! ```text
//! worker ──► HostedHandler ──► HandlerHosts ──► Host ──► process
//!            (one operation)   (which process)  (one conversation)
//! ```
//!
//! An operation is a blocking call on the thread of whoever wants it; each host has one thread that reads what it
//! says and gives it to those who wait. What a host keeps for an operation is bounded, so that nobody has to wait for
//! anybody else: what is too much is dropped and counted.

mod contents;
mod handler;
mod host;
mod messages;
mod operation;
mod pool;
mod services;

pub use contents::{ContentError, ContentSource, FileContents};
pub use handler::HostedHandler;
pub use pool::{HandlerHosts, HostsError, Manifest};
pub use services::{Discovered, NoParameters, Parameter, Parameters, Reply, Services};

use std::time::Duration;

/// What hosts may take, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Processes that share the agents between them.
    pub processes_max: usize,
    /// Operations that run at once in one process, each on a thread of its own, if its memory allows for that.
    pub operations_max: usize,
    /// From the start of a process to its modules being loaded.
    pub start_time_max: Duration,
    /// How long an operation may go on after it was cancelled.
    pub cancel_time_max: Duration,
    /// How long others may go on in a process that has to be ended because of one of them.
    pub drain_time_max: Duration,
    /// How often a host with something to do is asked whether it is there.
    pub ping_interval: Duration,
    /// A host that says nothing and uses no processor time for so long is hung.
    pub silence_max: Duration,
    /// What is not used for so long is closed: connections of an agent, then the process.
    pub idle_time_max: Duration,
    /// How long a process may take to end when it is asked to.
    pub shutdown_time_max: Duration,
    /// The longest pause before a process that keeps dying is started again.
    pub backoff_max: Duration,
    /// Private memory of each process.
    pub memory_max: Option<u64>,
}

/// What the thread of an operation may take from the memory of its process: mostly its stack, which is reserved and rarely used.
const THREAD_BYTES: u64 = 16 << 20;

impl Limits {
    /// Operations that may run at once in one process.
    fn operations_at_once(&self) -> usize {
        let by_memory = self.memory_max.map_or(u64::MAX, |bytes| bytes / THREAD_BYTES);
        self.operations_max.min(usize::try_from(by_memory).unwrap_or(usize::MAX)).max(1)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            processes_max: std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 4),
            operations_max: 256,
            start_time_max: Duration::from_secs(120),
            // With the rest of what ending takes, less than the scheduler waits before it gives up.
            cancel_time_max: Duration::from_secs(8),
            drain_time_max: Duration::from_secs(2),
            ping_interval: Duration::from_secs(10),
            silence_max: Duration::from_secs(60),
            idle_time_max: Duration::from_secs(60),
            shutdown_time_max: Duration::from_secs(5),
            backoff_max: Duration::from_secs(5),
            memory_max: Some(4 << 30),
        }
    }
}
