//! The gateway role: remote agents dial in to it, and to nothing else.
//!
//! | module | what |
//! |---|---|
//! | `authority` | who vouches for agents and gateways |
//! | `tls`, `admission` | connections on which both sides show who they are; who may do what |
//! | `enrolment`, `clipping` | joining and renewing; what agents tell of themselves |
//! | `session` | one session of one agent |
//! | `hub` | who is connected here, and who waits for which answer |
//! | `peer`, `links` | commands from and to other processes of the installation |
//! | `call` | one command to one agent, from a thread that waits for what comes of it |
//! | `alive` | signs of life for the store; ending what the store says is over |
//!
//! A gateway keeps connections and nothing else. What an agent may see is decided here; what it is to do comes from engines, through the hub.

mod admission;
mod alive;
mod authority;
mod call;
mod clipping;
mod enrolment;
mod hub;
mod links;
mod peer;
mod session;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware;
use axum::routing::{get, post};
use orrery_agent::protocol::{JOIN_PATH, RENEW_PATH, RefusalCode, SESSION_PATH};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_http::timeout::RequestBodyTimeoutLayer;
use uuid::Uuid;

use crate::app::App;
use crate::connection::{self, Encryption, PlaceLimits, Places};

pub(crate) use authority::{Authority, AuthorityError};
pub(crate) use call::RemotePlace;
pub(crate) use hub::Hub;
pub(crate) use links::Links;
pub(crate) use session::SILENCE_MAX;
pub(crate) use tls::MutualTls;

use admission::{PEER_PATH, Refused};
use hub::OwnGateway;

/// A gateway that was seen within this time is alive.
pub(crate) const ALIVE_WITHIN: Duration = Duration::from_secs(30);

/// A body of which nothing more comes for so long is given up.
const BODY_STALLED: Duration = Duration::from_secs(30);

/// Requests of agents are small; commands and answers are messages of sessions.
const BODY_MAX: usize = 512 * 1024;

/// How long it may take to send all agents away.
const FAREWELL: Duration = Duration::from_secs(5);

/// How a gateway works.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    pub listen: SocketAddr,
    /// What invitations tell agents, as `host:port`. Without, where it listens, or the name of this machine if that is everywhere.
    pub address: Option<String>,
    /// Where other servers reach just this gateway, if that is not where agents do.
    pub peer_address: Option<String>,
    /// Further names under which agents dial it.
    pub names: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    #[error("--gateway-listen {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("{option} {given:?} is no host and port, such as agents.example.com:8889")]
    Address { option: &'static str, given: String },
}

/// What all of a gateway shares.
#[derive(Clone)]
pub(crate) struct GatewayState {
    pub(crate) app: App,
    pub(crate) id: Uuid,
    pub(crate) tls: Arc<MutualTls>,
    pub(crate) stop: CancellationToken,
    /// Sessions that have not said goodbye.
    pub(crate) sessions: TaskTracker,
}

/// A running gateway.
#[derive(Debug)]
pub struct GatewayRole {
    address: String,
    hub: Arc<Hub>,
    stop: CancellationToken,
    sessions: TaskTracker,
    serving: JoinHandle<()>,
    living: JoinHandle<()>,
}

fn check_address(option: &'static str, address: &str) -> Result<(), GatewayError> {
    let fits = |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok();
    if address.rsplit_once(':').is_some_and(fits) && !address.contains('/') {
        return Ok(());
    }
    Err(GatewayError::Address { option, given: address.to_owned() })
}

impl GatewayRole {
    /// Listens, and tells the store where.
    ///
    /// # Errors
    /// If it cannot listen, or nobody would know where it is.
    pub async fn start(app: App, options: GatewayOptions) -> Result<Self, GatewayError> {
        let GatewayOptions { listen, address, peer_address, names } = options;
        let failed = |source| GatewayError::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let address = match address {
            Some(address) => address,
            // All addresses of this machine: its name is the best guess, and can be corrected.
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
        let tls = Arc::new(MutualTls::new(app.vault().clone(), id, names));
        let stop = CancellationToken::new();
        let sessions = TaskTracker::new();
        let (tracker, stopping) = (sessions.clone(), stop.clone());
        let state =
            GatewayState { app, id, tls: Arc::clone(&tls), stop: stopping, sessions: tracker };
        let hub = Arc::clone(state.app.hub());
        let addresses = alive::Addresses { agents: address.clone(), peers: peer_address.clone() };
        // Sessions are opened only at gateways that the store knows.
        if let Err(error) = alive::beat(&state, &addresses).await {
            tracing::warn!(%error, "the store does not know the gateway yet");
        }
        let living = tokio::spawn(alive::live(state.clone(), addresses));
        let encryption = Encryption::Mutual(tls);
        let places = Places::new(PlaceLimits::for_process(false), Vec::new());
        let router = router(state);
        let serving =
            tokio::spawn(connection::serve(listener, encryption, router, places, stop.clone()));
        hub.set_gateway(Some(OwnGateway { id, peer_address }));
        tracing::info!(%bound, address, "the gateway is ready");
        Ok(GatewayRole { address, hub, stop, sessions, serving, living })
    }

    /// Where agents reach it, as `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends all agents away, and ends.
    pub async fn stop(self) {
        self.hub.set_gateway(None);
        self.stop.cancel();
        // Each is told, and noted, by its own task.
        self.sessions.close();
        if tokio::time::timeout(FAREWELL, self.sessions.wait()).await.is_err() {
            tracing::warn!("some agents were not told that the gateway ends");
        }
        for task in [self.serving, self.living] {
            if let Err(error) = task.await {
                tracing::error!(%error, "the gateway did not end properly");
            }
        }
    }
}

fn router(state: GatewayState) -> Router {
    Router::new()
        .route(JOIN_PATH, post(enrolment::join))
        .route(RENEW_PATH, post(enrolment::renew))
        .route(SESSION_PATH, get(session::open))
        .route(PEER_PATH, get(peer::open))
        .route_layer(middleware::from_fn_with_state(state.clone(), admission::check))
        .fallback(async || {
            let reason = "there is nothing for agents at this path";
            Refused::new(StatusCode::NOT_FOUND, RefusalCode::Unreadable, reason)
        })
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(RequestBodyTimeoutLayer::new(BODY_STALLED))
        .with_state(state)
}
