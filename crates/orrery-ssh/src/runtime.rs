//! Threads that serve connections, and the limits that all of them share.

use std::fmt;
use std::io;
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::admission::Admission;
use crate::limits::ConnectionLimits;

/// Threads that serve all connections of a process.
const THREADS: usize = 2;

/// Threads and limits that all clients of a process share. Clones share them.
#[derive(Clone)]
pub struct SshRuntime {
    inner: Arc<RuntimeInner>,
}

struct RuntimeInner {
    /// `None` only while it is dropped.
    runtime: Option<tokio::runtime::Runtime>,
    admission: Arc<Admission>,
    /// Attempts without a caller.
    probes: Arc<Semaphore>,
    limits: ConnectionLimits,
}

impl Drop for RuntimeInner {
    fn drop(&mut self) {
        // Waits for nothing: connections are closed by their owners.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for SshRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SshRuntime")
    }
}

impl SshRuntime {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the system has no threads or descriptors left.
    pub fn new(limits: ConnectionLimits) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("ssh")
            .enable_all()
            .build()?;
        let admission = Arc::new(Admission::new(&limits));
        let probes = Arc::new(Semaphore::new(limits.probes.max(1)));
        Ok(SshRuntime {
            inner: Arc::new(RuntimeInner { runtime: Some(runtime), admission, probes, limits }),
        })
    }

    pub(crate) fn handle(&self) -> tokio::runtime::Handle {
        let runtime = self.inner.runtime.as_ref();
        runtime.expect("invariant: taken only when dropped").handle().clone()
    }

    pub(crate) fn admission(&self) -> Arc<Admission> {
        Arc::clone(&self.inner.admission)
    }

    pub(crate) fn probes(&self) -> Arc<Semaphore> {
        Arc::clone(&self.inner.probes)
    }

    pub(crate) fn limits(&self) -> &ConnectionLimits {
        &self.inner.limits
    }
}
