//! Handlers that run in host processes.
//!
//! ```text
//! worker ──► HostedHandler ──► HandlerHosts ──► Host ──► process
//!            (one operation)   (which process)  (one conversation)
//! ```
//!
//! An operation is a blocking call on the caller's thread; each host has one thread that reads
//! messages and dispatches them to pending operations. Buffers are bounded so that no operation
//! blocks another: excess lines are dropped and counted.

mod callbacks;
mod file_contents;
mod handler;
mod host;
mod messages;
mod operation;
mod pool;
mod portable;
mod server_calls;

pub use callbacks::{
    Discovered, HandlerCallbacks, HandlerParameter, NoParameters, Parameters, Reply,
};
pub use file_contents::{ContentError, ContentSource, FileContents, remove_old_files};
pub use handler::HostedHandler;
pub use pool::{HandlerHosts, HandlerManifest, HostsError};
pub use portable::SetCode;

use std::time::Duration;

/// Limits of handler hosts.
#[derive(Clone, Copy, Debug)]
pub struct HostLimits {
    /// Number of processes that share the agents.
    pub processes_max: usize,
    /// Concurrent operations of one process, each on a thread of its own, if its memory allows.
    pub operations_max: usize,
    /// Time limit from the start of a process until its modules are loaded.
    pub start_time_max: Duration,
    /// Grace period of a cancelled operation.
    pub cancel_time_max: Duration,
    /// Grace period of other operations in a process that is ended because of one.
    pub drain_time_max: Duration,
    /// Interval of pings to a busy host.
    pub ping_interval: Duration,
    /// Time without messages and processor use after which a host counts as hung.
    pub silence_max: Duration,
    /// Idle time after which an agent's connections, then the process, are closed.
    pub idle_time_max: Duration,
    /// Time limit of an orderly shutdown.
    pub shutdown_time_max: Duration,
    /// Maximum backoff before a repeatedly dying process is restarted.
    pub backoff_max: Duration,
    /// Limit of private memory of each process.
    pub memory_max: Option<u64>,
}

/// Memory reserved for the thread of an operation: mostly stack, rarely used.
const THREAD_BYTES: u64 = 16 << 20;

impl HostLimits {
    /// Returns the number of concurrent operations of one process.
    fn operations_at_once(&self) -> usize {
        let by_memory = self.memory_max.map_or(u64::MAX, |bytes| bytes / THREAD_BYTES);
        self.operations_max.min(usize::try_from(by_memory).unwrap_or(usize::MAX)).max(1)
    }
}

impl Default for HostLimits {
    fn default() -> Self {
        HostLimits {
            processes_max: std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 4),
            operations_max: 256,
            start_time_max: Duration::from_secs(120),
            // Together with the rest of a shutdown, shorter than the scheduler's grace period.
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
