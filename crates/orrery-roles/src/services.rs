//! What every part of a server needs: the store, the clock, wake-ups and the end of the process.

use std::sync::{Arc, Mutex};

use orrery_base::lock::IgnorePoison;
use orrery_model::Timestamp;
use orrery_store::{IdempotentRequest, Store, StoreError, with_idempotency};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

/// Capacity of the wake-up channel. A receiver that lags reads the store again.
const WAKE_UPS_MAX: usize = 1024;

/// A hint to read the store again. May be lost, repeated or late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeUp;

/// Failure of work with the store.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the server is stopping; try again elsewhere or later")]
    Stopping,
}

/// The store, the clock and wake-ups of one server process. Cheap to clone.
#[derive(Clone)]
pub struct Services {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    wake_ups: broadcast::Sender<WakeUp>,
    stopping: CancellationToken,
    /// Listeners, called at each wake-up until they return false.
    listeners: Mutex<Vec<WakeUpListener>>,
}

/// Returns false to unsubscribe. Must not block.
type WakeUpListener = Box<dyn Fn() -> bool + Send>;

tokio::task_local! {
    /// Idempotent request of the current task.
    static CURRENT_REQUEST: Arc<IdempotentRequest>;
}

/// Runs `work`; its effects in the store belong to an idempotent request.
pub async fn for_idempotent_request<F: Future>(
    request: Arc<IdempotentRequest>,
    work: F,
) -> F::Output {
    CURRENT_REQUEST.scope(request, work).await
}

/// The wall clock of the server.
pub fn system_time() -> Timestamp {
    Timestamp::from_system(orrery_base::clock::wall())
}

impl std::fmt::Debug for Services {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Services")
    }
}

impl Services {
    pub fn new(store: Store) -> Self {
        let (wake_ups, _) = broadcast::channel(WAKE_UPS_MAX);
        let stopping = CancellationToken::new();
        Services {
            inner: Arc::new(Inner { store, wake_ups, stopping, listeners: Mutex::default() }),
        }
    }

    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    pub fn now(&self) -> Timestamp {
        system_time()
    }

    /// Cancelled when the server stops.
    pub fn stopping(&self) -> &CancellationToken {
        &self.inner.stopping
    }

    /// Runs `work` with the store on a blocking thread.
    ///
    /// # Errors
    /// Those of `work`; `Stopping` if the server stops meanwhile.
    pub async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ServiceError> {
        self.try_with_store(move |store| Ok(work(store)?)).await
    }

    /// Like `with_store`, for work that may also refuse by a rule, with an error of its own.
    ///
    /// # Errors
    /// Those of `work`; `Stopping` if the server stops meanwhile.
    pub async fn try_with_store<T: Send + 'static, E: From<ServiceError> + Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let store = self.inner.store.clone();
        let request = CURRENT_REQUEST.try_with(Arc::clone).ok();
        let work = move || with_idempotency(request, || work(&store));
        match tokio::task::spawn_blocking(work).await {
            Ok(answer) => answer,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(ServiceError::Stopping.into()),
        }
    }

    /// Like `with_store`, for changes: sends a wake-up afterwards.
    ///
    /// # Errors
    /// As `with_store`.
    pub async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ServiceError> {
        self.try_change(move |store| Ok(work(store)?)).await
    }

    /// Like `try_with_store`, for changes: sends a wake-up afterwards.
    ///
    /// # Errors
    /// As `try_with_store`.
    pub async fn try_change<T: Send + 'static, E: From<ServiceError> + Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let answer = self.try_with_store(work).await;
        self.wake_up();
        answer
    }

    /// Sends a wake-up: the store is worth reading again.
    pub fn wake_up(&self) {
        // Listeners first: a receiver must not meet a cache from before the change.
        let listeners = self.inner.listeners.lock();
        listeners.ignore_poison().retain(|listener| listener());
        // Fails without receivers, which is fine.
        let _ = self.inner.wake_ups.send(WakeUp);
    }

    /// Registers a listener for wake-ups. It runs on the thread of the sender.
    pub fn on_wake_up(&self, listener: impl Fn() -> bool + Send + 'static) {
        let listeners = self.inner.listeners.lock();
        listeners.ignore_poison().push(Box::new(listener));
    }

    pub fn wake_ups(&self) -> broadcast::Receiver<WakeUp> {
        self.inner.wake_ups.subscribe()
    }
}
