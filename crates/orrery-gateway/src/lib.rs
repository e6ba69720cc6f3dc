//! The gateway role: the only listener that remote agents connect to.
//!
//! | module | what |
//! |---|---|
//! | `certificate_authority` | certificates of agents and gateways |
//! | `tls`, `admission` | mutual TLS; required credentials of each route |
//! | `enrolment`, `truncate` | joining, renewal of certificates; sanitized machine facts |
//! | `program` | download of the agent's program |
//! | `session` | one session of one agent |
//! | `session_log` | begin and end of sessions in the store, many in one transaction |
//! | `session_registry` | connected agents, and calls that wait for replies |
//! | `peer_server`, `peer_client` | commands from and to other processes of the installation |
//! | `remote_call` | one command to one agent, on a thread that waits for the outcome |
//! | `runtime` | threads of the gateway, apart from those of the API |
//! | `heartbeat` | heartbeats of the gateway; end of stale sessions |
//!
//! A gateway stores nothing but connections. It decides what an agent may see; commands come from
//! engines, through the session registry. It knows neither the API nor the engines of the server;
//! [`GatewayContext`] has what it needs of the process. Tests are beside the code, and in
//! `crates/orrery-server/tests/it/gateway`.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")
)]

mod admission;
mod certificate_authority;
mod drift;
mod enrolment;
mod heartbeat;
mod metrics;
mod peer_client;
mod peer_server;
mod program;
mod remote_call;
mod runtime;
mod session;
mod session_log;
mod session_registry;
mod tls;
mod truncate;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::routing::{get, post};
use orrery_agent::protocol::{
    JOIN_PATH, PROGRAM_INFO_PATH, PROGRAM_PATH, RENEW_PATH, RefusalCode, SESSION_PATH,
};
use orrery_roles::body::Budgets;
use orrery_roles::change_stream::ChangeStream;
use orrery_roles::listener::{self, ConnectionSlots, Encryption, SlotLimits};
use orrery_roles::services::Services;
use orrery_roles::vault::Vault;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_http::timeout::RequestBodyTimeoutLayer;
use uuid::Uuid;

pub use certificate_authority::{AuthorityError, CertificateAuthority};
pub use enrolment::{EnrolmentAudit, EnrolmentNote};
pub use metrics::GatewayMetrics;
pub use peer_client::PeerClient;
pub use remote_call::{AgentAccess, RemoteSite};
pub use session_registry::{OwnGateway, SessionRegistry};

use admission::{PEER_PATH, Refused};
use program::AgentProgram;
use runtime::GatewayRuntime;
use session::SILENCE_MAX;
use session_log::SessionLog;
use tls::MutualTls;

/// Age up to which a heartbeat of a gateway is valid.
pub const HEARTBEAT_MAX_AGE: Duration = Duration::from_secs(8);

/// Idle timeout of request bodies.
const BODY_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum body size. Requests of agents are small; commands and results are session messages.
const BODY_MAX: usize = 512 * 1024;

/// Time to notify all agents of a shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Options of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    pub listen: SocketAddr,
    /// Address in invitations, as `host:port`. Default: the listen address, or this machine's name
    /// if that is a wildcard.
    pub address: Option<String>,
    /// Address for other servers, if it differs from that for agents.
    pub peer_address: Option<String>,
    /// Further names for the certificate.
    pub names: Vec<String>,
    /// Program of an agent for this platform, which machines can download.
    pub program: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    #[error("--gateway-listen {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("{option} {given:?}: expected host and port, such as agents.example.com:8889")]
    Address { option: &'static str, given: String },
    #[error("the threads of the gateway cannot be started")]
    Threads(#[source] std::io::Error),
}

/// What a gateway needs of the process that it runs in.
#[derive(Clone)]
pub struct GatewayContext {
    pub services: Services,
    pub vault: Vault,
    pub changes: Arc<ChangeStream>,
    pub budgets: Arc<Budgets>,
    pub registry: Arc<SessionRegistry>,
    pub peers: Arc<PeerClient>,
    pub audit: EnrolmentAudit,
}

/// State shared by all handlers of a gateway.
#[derive(Clone)]
pub(crate) struct GatewayState {
    pub(crate) services: Services,
    pub(crate) changes: Arc<ChangeStream>,
    pub(crate) budgets: Arc<Budgets>,
    pub(crate) registry: Arc<SessionRegistry>,
    pub(crate) peers: Arc<PeerClient>,
    pub(crate) id: Uuid,
    /// Addresses of all gateways of the server, which agents use for failover.
    pub(crate) addresses: Arc<watch::Sender<Vec<String>>>,
    pub(crate) tls: Arc<MutualTls>,
    pub(crate) program: Arc<AgentProgram>,
    pub(crate) stop: CancellationToken,
    /// Running sessions.
    pub(crate) sessions: TaskTracker,
    pub(crate) session_log: SessionLog,
}

/// A running gateway, on threads of its own.
#[derive(Debug)]
pub struct GatewayRole {
    running: RunningGateway,
    _runtime: GatewayRuntime,
}

#[derive(Debug)]
struct RunningGateway {
    address: String,
    registry: Arc<SessionRegistry>,
    stop: CancellationToken,
    sessions: TaskTracker,
    serving: JoinHandle<()>,
    heartbeat_task: JoinHandle<()>,
}

fn check_address(option: &'static str, address: &str) -> Result<(), GatewayError> {
    let fits = |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok();
    if address.rsplit_once(':').is_some_and(fits) && !address.contains('/') {
        return Ok(());
    }
    Err(GatewayError::Address { option, given: address.to_owned() })
}

impl GatewayRole {
    /// Starts to listen and registers the gateway in the store.
    ///
    /// # Errors
    /// If it cannot listen, an address is invalid, or the system has no threads left.
    pub async fn start(
        context: GatewayContext,
        options: GatewayOptions,
    ) -> Result<Self, GatewayError> {
        let runtime = GatewayRuntime::new().map_err(GatewayError::Threads)?;
        let running = runtime.run(RunningGateway::start(context, options)).await?;
        Ok(GatewayRole { running, _runtime: runtime })
    }

    /// Address for agents, as `host:port`.
    pub fn address(&self) -> &str {
        &self.running.address
    }

    /// Ends all sessions and stops.
    pub async fn stop(self) {
        self.running.stop().await;
    }
}

impl RunningGateway {
    async fn start(context: GatewayContext, options: GatewayOptions) -> Result<Self, GatewayError> {
        let GatewayContext { services, vault, changes, budgets, registry, peers, audit } = context;
        let GatewayOptions { listen, address, peer_address, names, program } = options;
        let failed = |source| GatewayError::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let address = match address {
            Some(address) => address,
            // For a wildcard address, the machine's name is the best guess; an option overrides it.
            None if bound.ip().is_unspecified() => {
                format!("{}:{}", tls::host_name(), bound.port())
            }
            None => bound.to_string(),
        };
        let peer_address = peer_address.unwrap_or_else(|| address.clone());
        check_address("--gateway-address", &address)?;
        check_address("--gateway-peer-address", &peer_address)?;
        let id = Uuid::new_v4();
        let names = tls::own_names(&names, [&address, &peer_address], bound.ip());
        let tls = Arc::new(MutualTls::new(vault, id, names));
        let stop = CancellationToken::new();
        let sessions = TaskTracker::new();
        let (tracker, stopping) = (sessions.clone(), stop.clone());
        let state = GatewayState {
            session_log: SessionLog::start(services.clone()),
            services,
            changes,
            budgets,
            registry: Arc::clone(&registry),
            peers,
            id,
            addresses: Arc::new(watch::Sender::new(Vec::new())),
            tls: Arc::clone(&tls),
            program: Arc::new(AgentProgram::new(program)),
            stop: stopping,
            sessions: tracker,
        };
        let addresses =
            heartbeat::Addresses { agents: address.clone(), peers: peer_address.clone() };
        // The store accepts sessions only for registered gateways.
        if let Err(error) = heartbeat::send(&state, &addresses, false).await {
            tracing::warn!(%error, "gateway not registered yet");
        }
        let heartbeat_task = tokio::spawn(heartbeat::run(state.clone(), addresses));
        let encryption = Encryption::Mutual { configs: tls, silence_max: SILENCE_MAX };
        let slots = ConnectionSlots::new(SlotLimits::for_process(false), Vec::new());
        let router = router(state, audit);
        let serving =
            tokio::spawn(listener::serve(listener, encryption, router, slots, stop.clone()));
        registry.set_gateway(Some(OwnGateway { id, peer_address }));
        tracing::info!(%bound, address, "the gateway is ready");
        Ok(RunningGateway { address, registry, stop, sessions, serving, heartbeat_task })
    }

    async fn stop(self) {
        self.registry.set_gateway(None);
        self.stop.cancel();
        // The task of each session notifies its agent and records the end.
        self.sessions.close();
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, self.sessions.wait()).await.is_err() {
            tracing::warn!("some agents were not notified of the shutdown");
        }
        for task in [self.serving, self.heartbeat_task] {
            if let Err(error) = task.await {
                tracing::error!(%error, "the gateway did not shut down cleanly");
            }
        }
    }
}

fn router(state: GatewayState, audit: EnrolmentAudit) -> Router {
    let audited = move |request: Request, next: Next| audit(request, next);
    Router::new()
        .route(JOIN_PATH, post(enrolment::join))
        .route(RENEW_PATH, post(enrolment::renew))
        .route_layer(middleware::from_fn(audited))
        .route(SESSION_PATH, get(session::open))
        .route(PEER_PATH, get(peer_server::open))
        .route(PROGRAM_PATH, get(program::download))
        .route(PROGRAM_INFO_PATH, get(program::info))
        .route_layer(middleware::from_fn_with_state(state.clone(), admission::check))
        .fallback(async || {
            let reason = "unknown path";
            Refused::new(StatusCode::NOT_FOUND, RefusalCode::Unreadable, reason)
        })
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(RequestBodyTimeoutLayer::new(BODY_IDLE_TIMEOUT))
        .with_state(state)
}
