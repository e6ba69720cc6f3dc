//! State shared by all requests.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use orrery_model::Timestamp;
use orrery_store::{Store, StoreError, with_idempotency};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::auth::{Auth, AuthSettings};
use crate::batch_loader::BatchLoader;
use crate::body::Budgets;
use crate::change_stream::ChangeStream;
use crate::contents::ContentLimits;
use crate::count_cache::CountCache;
use crate::error::ServerError;
use crate::gateway::{PeerClient, SessionRegistry};
use crate::heartbeat::{Heartbeats, WriteProbe};
use crate::metrics::Metrics;
use crate::middleware;
use crate::vault::{MasterKey, Vault};

/// Capacity of the wake-up channel. A receiver that lags reads the store again.
const WAKE_UPS_MAX: usize = 1024;

/// A hint to read the store again. May be lost, repeated or late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeUp;

/// Start-up settings of a server.
#[derive(Clone, Debug, Default)]
pub struct AppSettings {
    /// Allows paths and `file:` URLs of this machine as Git repositories.
    pub local_repositories: bool,
    /// Authentication settings.
    pub auth: AuthSettings,
    /// Key that seals the vault.
    pub master_key: MasterKey,
    /// Retention of the audit log; `None` for unlimited.
    pub audit_retention: Option<std::time::Duration>,
    /// Limits for contents without a referring version.
    pub contents: ContentLimits,
    /// Isolation of environment code in this process: `sandboxed`, `shared` or `refused`; `None` if
    /// it runs none.
    pub isolation: Option<&'static str>,
    /// Policy for environments that act on the machine of this process: `auto`, `allow`, `sandbox`
    /// or `forbid`; `None` if it runs none.
    pub own_machine: Option<&'static str>,
}

/// One server process. Cheap to clone.
#[derive(Clone)]
pub struct App {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    settings: AppSettings,
    metrics: Arc<Metrics>,
    heartbeats: Heartbeats,
    writes: WriteProbe,
    wake_ups: broadcast::Sender<WakeUp>,
    stopping: CancellationToken,
    change_stream: ChangeStream,
    count_cache: CountCache,
    batch_loader: BatchLoader,
    auth: Auth,
    budgets: Budgets,
    vault: Vault,
    agent_sessions: Arc<SessionRegistry>,
    peers: PeerClient,
    /// Listeners, called at each wake-up until they return false.
    listeners: Mutex<Vec<WakeUpListener>>,
}

/// Returns false to unsubscribe. Must not block.
type WakeUpListener = Box<dyn Fn() -> bool + Send>;

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}

/// The only clock of the server.
#[expect(clippy::disallowed_methods, reason = "the server is where the clock is read")]
pub(crate) fn wall_clock() -> SystemTime {
    SystemTime::now()
}

pub(crate) fn system_time() -> Timestamp {
    Timestamp::from_system(wall_clock())
}

impl App {
    pub fn new(store: Arc<dyn Store>, settings: AppSettings) -> Self {
        let (wake_ups, _) = broadcast::channel(WAKE_UPS_MAX);
        let vault = Vault::new(Arc::clone(&store), settings.master_key.clone());
        let metrics: Arc<Metrics> = Arc::default();
        metrics.set_isolation(settings.isolation);
        let agent_sessions = Arc::new(SessionRegistry::new(Arc::clone(&metrics)));
        App {
            inner: Arc::new(Inner {
                peers: PeerClient::new(
                    Arc::clone(&store),
                    vault.clone(),
                    Arc::clone(&agent_sessions),
                ),
                store,
                settings,
                agent_sessions,
                metrics,
                heartbeats: Heartbeats::default(),
                writes: WriteProbe::default(),
                wake_ups,
                auth: Auth::default(),
                budgets: Budgets::default(),
                stopping: CancellationToken::new(),
                change_stream: ChangeStream::default(),
                count_cache: CountCache::default(),
                batch_loader: BatchLoader::default(),
                listeners: Mutex::default(),
                vault,
            }),
        }
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    pub fn settings(&self) -> &AppSettings {
        &self.inner.settings
    }

    /// Vault of the server.
    pub fn vault(&self) -> &Vault {
        &self.inner.vault
    }

    /// Sessions of remote agents at this process.
    pub(crate) fn agent_sessions(&self) -> &Arc<SessionRegistry> {
        &self.inner.agent_sessions
    }

    /// Client for remote agents that are connected to other processes.
    pub(crate) fn peers(&self) -> &PeerClient {
        &self.inner.peers
    }

    pub(crate) fn auth(&self) -> &Auth {
        &self.inner.auth
    }

    /// Memory budgets of request bodies.
    pub(crate) fn budgets(&self) -> &Budgets {
        &self.inner.budgets
    }

    /// Writes pending audit entries. Called after the last request.
    pub async fn close(&self) {
        self.inner.auth.audit.close(self.store(), self.now()).await;
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.inner.metrics
    }

    /// Heartbeats of the roles of this process.
    pub(crate) fn heartbeats(&self) -> &Heartbeats {
        &self.inner.heartbeats
    }

    /// Result of write probes of the store.
    pub(crate) fn writes(&self) -> &WriteProbe {
        &self.inner.writes
    }

    pub fn now(&self) -> Timestamp {
        system_time()
    }

    /// Cancelled when the server stops.
    pub fn stopping(&self) -> &CancellationToken {
        &self.inner.stopping
    }

    /// Live end of the change feed.
    pub(crate) fn change_stream(&self) -> &ChangeStream {
        &self.inner.change_stream
    }

    /// Cached counts of resources.
    pub(crate) fn count_cache(&self) -> &CountCache {
        &self.inner.count_cache
    }

    /// Batches queries for single resources.
    pub(crate) fn batch_loader(&self) -> &BatchLoader {
        &self.inner.batch_loader
    }

    /// Runs `work` with the store on a blocking thread.
    ///
    /// # Errors
    /// Those of `work`; `Stopping` if the server stops meanwhile.
    pub async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ServerError> {
        let store = Arc::clone(&self.inner.store);
        let attempt = middleware::idempotent_request();
        let work = move || with_idempotency(attempt, || work(&*store));
        let done = tokio::task::spawn_blocking(work).await;
        match done {
            Ok(answer) => Ok(answer?),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(ServerError::Stopping),
        }
    }

    /// Like `with_store`, for changes: sends a wake-up afterwards.
    ///
    /// # Errors
    /// As `with_store`.
    pub async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ServerError> {
        let answer = self.with_store(work).await;
        self.wake_up();
        answer
    }

    /// Sends a wake-up: the store is worth reading again.
    pub fn wake_up(&self) {
        self.inner.auth.cache.invalidate();
        // Fails without receivers, which is fine.
        let _ = self.inner.wake_ups.send(WakeUp);
        let listeners = self.inner.listeners.lock();
        listeners.unwrap_or_else(PoisonError::into_inner).retain(|listener| listener());
    }

    /// Registers a listener for wake-ups. It runs on the thread of the sender.
    pub(crate) fn on_wake_up(&self, listener: impl Fn() -> bool + Send + 'static) {
        let listeners = self.inner.listeners.lock();
        listeners.unwrap_or_else(PoisonError::into_inner).push(Box::new(listener));
    }

    pub fn wake_ups(&self) -> broadcast::Receiver<WakeUp> {
        self.inner.wake_ups.subscribe()
    }
}
