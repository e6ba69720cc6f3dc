//! Threads of a gateway, apart from those of the API.
//!
//! Thousands of machines that connect at once queue for handshakes and for the store. On threads of
//! their own, they delay each other and no request of the API.

use std::future::Future;
use std::io;

use tokio::runtime::{Builder, Handle, Runtime};

/// Threads that serve all connections.
const THREADS: usize = 2;
/// Threads for calls of the store, and so the number of calls at once.
const STORE_THREADS: usize = 16;

/// Threads that end in the background when dropped.
#[derive(Debug)]
pub(crate) struct GatewayRuntime(Option<Runtime>);

impl GatewayRuntime {
    pub(crate) fn new() -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(THREADS).max_blocking_threads(STORE_THREADS);
        Ok(GatewayRuntime(Some(builder.thread_name("gateway").enable_all().build()?)))
    }

    /// Runs a future to its end on these threads.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let handle = self.0.as_ref().map_or_else(Handle::current, |one| one.handle().clone());
        match handle.spawn(work).await {
            Ok(done) => done,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

impl Drop for GatewayRuntime {
    fn drop(&mut self) {
        // Dropping a runtime waits, which asynchronous code must not.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
