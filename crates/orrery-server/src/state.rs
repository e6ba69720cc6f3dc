//! State of a server process: the services, and the parts that share them.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use orrery_gateway::{AgentAccess, PeerClient, SessionRegistry};
use orrery_model::SecretText;
use orrery_provisioner::slots::Slots;
use orrery_store::Store;

use crate::auth::{self, Auth, AuthSettings, BootstrapState};
use crate::batch_loader::BatchLoader;
use crate::body::Budgets;
use crate::change_stream::ChangeStream;
use crate::contents::ContentLimits;
use crate::count_cache::CountCache;
use crate::error::ServerError;
use crate::facet_cache::FacetCache;
use crate::graph::GraphCache;
use crate::heartbeat::{Heartbeats, WriteProbe};
use crate::metrics::Metrics;
use crate::services::Services;
use crate::task_status::TaskStatuses;
use crate::vault::{MasterKey, Vault};

/// Start-up settings of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerSettings {
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
///
/// It dereferences to its [`Services`], which most code needs alone.
#[derive(Clone)]
pub struct ServerState {
    services: Services,
    parts: Arc<Parts>,
}

struct Parts {
    settings: ServerSettings,
    metrics: Arc<Metrics>,
    heartbeats: Heartbeats,
    tasks: Arc<TaskStatuses>,
    writes: WriteProbe,
    change_stream: Arc<ChangeStream>,
    count_cache: CountCache,
    facet_cache: FacetCache,
    graph_cache: GraphCache,
    batch_loader: BatchLoader,
    auth: Auth,
    budgets: Arc<Budgets>,
    vault: Vault,
    agent_sessions: Arc<SessionRegistry>,
    peers: Arc<PeerClient>,
    /// Slots of tasks, if this process runs the process role.
    cluster_slots: OnceLock<Slots>,
}

impl std::fmt::Debug for ServerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerState")
            .field("settings", &self.parts.settings)
            .finish_non_exhaustive()
    }
}

impl Deref for ServerState {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.services
    }
}

impl ServerState {
    pub fn new(store: Store, settings: ServerSettings) -> Self {
        let vault = Vault::new(store.clone(), settings.master_key.clone());
        let services = Services::new(store.clone());
        let metrics: Arc<Metrics> = Arc::default();
        metrics.set_isolation(settings.isolation);
        let agent_sessions = Arc::new(SessionRegistry::new(metrics.gateway.clone()));
        let auth = Auth::new(services.clone(), settings.auth.clone());
        let cache = Arc::clone(&auth.cache);
        services.on_wake_up(move || {
            cache.invalidate();
            true
        });
        let sessions = Arc::clone(&agent_sessions);
        let peers = Arc::new(PeerClient::new(store, vault.clone(), sessions));
        let parts = Parts {
            settings,
            metrics,
            heartbeats: Heartbeats::default(),
            tasks: Arc::default(),
            writes: WriteProbe::default(),
            change_stream: Arc::default(),
            count_cache: CountCache::default(),
            facet_cache: FacetCache::default(),
            graph_cache: GraphCache::default(),
            batch_loader: BatchLoader::default(),
            auth,
            budgets: Arc::default(),
            vault,
            agent_sessions,
            peers,
            cluster_slots: OnceLock::new(),
        };
        ServerState { services, parts: Arc::new(parts) }
    }

    /// The store, the clock and wake-ups.
    pub fn services(&self) -> &Services {
        &self.services
    }

    pub fn settings(&self) -> &ServerSettings {
        &self.parts.settings
    }

    /// Vault of the server.
    pub fn vault(&self) -> &Vault {
        &self.parts.vault
    }

    /// Sessions of remote agents at this process.
    pub(crate) fn agent_sessions(&self) -> &Arc<SessionRegistry> {
        &self.parts.agent_sessions
    }

    /// Client for remote agents that are connected to other processes.
    pub(crate) fn peers(&self) -> &Arc<PeerClient> {
        &self.parts.peers
    }

    /// Access of engines to remote agents.
    pub(crate) fn agent_access(&self) -> AgentAccess {
        AgentAccess {
            services: self.services.clone(),
            registry: Arc::clone(&self.parts.agent_sessions),
            peers: Arc::clone(&self.parts.peers),
        }
    }

    /// Slots of tasks in this process, if it runs the process role.
    pub(crate) fn cluster_slots(&self) -> Option<&Slots> {
        self.parts.cluster_slots.get()
    }

    /// Creates the slots of tasks in this process, or returns the existing ones.
    pub(crate) fn open_cluster_slots(&self, total: usize) -> Slots {
        self.parts.cluster_slots.get_or_init(|| Slots::new(total)).clone()
    }

    pub(crate) fn auth(&self) -> &Auth {
        &self.parts.auth
    }

    /// Memory budgets of request bodies.
    pub(crate) fn budgets(&self) -> &Arc<Budgets> {
        &self.parts.budgets
    }

    /// Writes pending audit entries. Called after the last request.
    pub async fn close(&self) {
        self.parts.auth.audit.close(self.store(), self.now()).await;
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.parts.metrics
    }

    /// Heartbeats of the roles of this process.
    pub(crate) fn heartbeats(&self) -> &Heartbeats {
        &self.parts.heartbeats
    }

    /// Statuses of the maintenance tasks of this process.
    pub(crate) fn tasks(&self) -> &Arc<TaskStatuses> {
        &self.parts.tasks
    }

    /// Result of write probes of the store.
    pub(crate) fn writes(&self) -> &WriteProbe {
        &self.parts.writes
    }

    /// Live end of the change feed.
    pub(crate) fn change_stream(&self) -> &Arc<ChangeStream> {
        &self.parts.change_stream
    }

    /// Cached counts of resources.
    pub(crate) fn count_cache(&self) -> &CountCache {
        &self.parts.count_cache
    }

    /// Cached dependency graphs.
    pub(crate) fn graph_cache(&self) -> &GraphCache {
        &self.parts.graph_cache
    }

    /// Cached facets of resources.
    pub(crate) fn facet_cache(&self) -> &FacetCache {
        &self.parts.facet_cache
    }

    /// Batches queries for single resources.
    pub(crate) fn batch_loader(&self) -> &BatchLoader {
        &self.parts.batch_loader
    }
}

/// Prepares the first account if there is none. Each start invalidates earlier tokens.
///
/// # Errors
/// If the password is too weak, or those of the store.
pub async fn prepare_first_account(
    state: &ServerState,
    admin_password: Option<&SecretText>,
) -> Result<BootstrapState, ServerError> {
    auth::prepare_first_account(state.auth(), admin_password).await
}
