//! What all requests share.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use orrery_model::Timestamp;
use orrery_store::{Store, StoreError, on_behalf_of};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::auth::{Auth, AuthSettings};
use crate::body::Budgets;
use crate::contents::ContentLimits;
use crate::conventions;
use crate::counts::Counts;
use crate::gateway::{Hub, Links};
use crate::gather::Gather;
use crate::metrics::Metrics;
use crate::problem::ServerError;
use crate::pulse::{Pulse, WriteProbe};
use crate::tail::Tail;
use crate::vault::{MasterKey, Vault};

/// Nudges that a slow listener may miss; it reads the store again then.
const NUDGES: usize = 1024;

/// A hint that the store is worth reading again. It may be lost, repeated or late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nudge;

/// What a server is told at its start.
#[derive(Clone, Debug, Default)]
pub struct AppSettings {
    /// Git repositories may be paths and `file:` URLs of this machine.
    pub local_repositories: bool,
    /// How callers are known.
    pub auth: AuthSettings,
    /// What seals the server's own secrets.
    pub master_key: MasterKey,
    /// How long entries of the audit log are kept; `None` for ever.
    pub audit_retention: Option<std::time::Duration>,
    /// Limits for contents that no version refers to.
    pub contents: ContentLimits,
    /// How code of environments is kept away from this process, if it runs some: `sandboxed`, `shared` or `refused`.
    pub isolation: Option<&'static str>,
    /// How environments act on the machine of this process, if it runs some: `auto`, `allow`, `sandbox` or `forbid`.
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
    pulse: Pulse,
    writes: WriteProbe,
    nudges: broadcast::Sender<Nudge>,
    stopping: CancellationToken,
    tail: Tail,
    counts: Counts,
    gather: Gather,
    auth: Auth,
    budgets: Budgets,
    vault: Vault,
    hub: Arc<Hub>,
    links: Links,
    /// Who is called at each nudge, until they say that they do not care any more.
    listeners: Mutex<Vec<NudgeListener>>,
}

/// Says whether it wants to be called again. It must not wait.
type NudgeListener = Box<dyn Fn() -> bool + Send>;

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}

/// The one clock of the server.
#[expect(clippy::disallowed_methods, reason = "the server is where the clock is read")]
pub(crate) fn wall_clock() -> SystemTime {
    SystemTime::now()
}

pub(crate) fn system_time() -> Timestamp {
    Timestamp::from_system(wall_clock())
}

impl App {
    pub fn new(store: Arc<dyn Store>, settings: AppSettings) -> Self {
        let (nudges, _) = broadcast::channel(NUDGES);
        let vault = Vault::new(Arc::clone(&store), settings.master_key.clone());
        let metrics: Arc<Metrics> = Arc::default();
        metrics.isolated(settings.isolation);
        let hub = Arc::new(Hub::new(Arc::clone(&metrics)));
        App {
            inner: Arc::new(Inner {
                links: Links::new(Arc::clone(&store), vault.clone(), Arc::clone(&hub)),
                store,
                settings,
                hub,
                metrics,
                pulse: Pulse::default(),
                writes: WriteProbe::default(),
                nudges,
                auth: Auth::default(),
                budgets: Budgets::default(),
                stopping: CancellationToken::new(),
                tail: Tail::default(),
                counts: Counts::default(),
                gather: Gather::default(),
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

    /// The server's own secrets.
    pub fn vault(&self) -> &Vault {
        &self.inner.vault
    }

    /// The remote agents that are connected to this process, and what they are asked.
    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.inner.hub
    }

    /// The way to remote agents that are connected to other processes.
    pub(crate) fn links(&self) -> &Links {
        &self.inner.links
    }

    pub(crate) fn auth(&self) -> &Auth {
        &self.inner.auth
    }

    /// Memory that bodies of requests may take.
    pub(crate) fn budgets(&self) -> &Budgets {
        &self.inner.budgets
    }

    /// Writes what is still to be written. To be called when the last request has been answered.
    pub async fn close(&self) {
        self.inner.auth.audit.close(self.store(), self.now()).await;
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.inner.metrics
    }

    /// Whether the roles of this process go on.
    pub(crate) fn pulse(&self) -> &Pulse {
        &self.inner.pulse
    }

    /// Whether the store can be written to.
    pub(crate) fn writes(&self) -> &WriteProbe {
        &self.inner.writes
    }

    pub fn now(&self) -> Timestamp {
        system_time()
    }

    /// Ends what would go on for ever, when the server does.
    pub fn stopping(&self) -> &CancellationToken {
        &self.inner.stopping
    }

    /// The end of the change feed, for those who listen to it.
    pub(crate) fn tail(&self) -> &Tail {
        &self.inner.tail
    }

    /// Counts of resources that are not asked for anew each time.
    pub(crate) fn counts(&self) -> &Counts {
        &self.inner.counts
    }

    /// Questions about single resources, asked together.
    pub(crate) fn gather(&self) -> &Gather {
        &self.inner.gather
    }

    /// Runs `work` with the store on a thread that may block.
    ///
    /// # Errors
    /// Those of `work`; `Stopping` if the server ends meanwhile.
    pub async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ServerError> {
        let store = Arc::clone(&self.inner.store);
        let attempt = conventions::attempt();
        let work = move || on_behalf_of(attempt, || work(&*store));
        let done = tokio::task::spawn_blocking(work).await;
        match done {
            Ok(answer) => Ok(answer?),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(ServerError::Stopping),
        }
    }

    /// As `with_store`, for work that changes something: everybody who waits for changes looks at once.
    ///
    /// # Errors
    /// As `with_store`.
    pub async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ServerError> {
        let answer = self.with_store(work).await;
        self.nudge();
        answer
    }

    /// Says that the store is worth reading again.
    pub fn nudge(&self) {
        self.inner.auth.remembered.forget();
        // Without listeners there is nobody to tell.
        let _ = self.inner.nudges.send(Nudge);
        let listeners = self.inner.listeners.lock();
        listeners.unwrap_or_else(PoisonError::into_inner).retain(|listener| listener());
    }

    /// Calls somebody at each nudge, on whatever thread it comes from.
    pub(crate) fn on_nudge(&self, listener: impl Fn() -> bool + Send + 'static) {
        let listeners = self.inner.listeners.lock();
        listeners.unwrap_or_else(PoisonError::into_inner).push(Box::new(listener));
    }

    pub fn nudges(&self) -> broadcast::Receiver<Nudge> {
        self.inner.nudges.subscribe()
    }
}
