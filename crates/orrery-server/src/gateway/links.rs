//! The way to agents that are connected to other processes: one connection to each gateway that has one of them.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use orrery_agent::protocol::FromAgent;
use orrery_model::Timestamp;
use orrery_store::{GatewayRecord, Store};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use uuid::Uuid;

use crate::app::system_time;
use crate::vault::Vault;

use super::ALIVE_WITHIN;
use super::admission::PEER_PATH;
use super::hub::{Frame, Hub, NotSent, Reply};
use super::peer::{FRAME_MAX, Heard, What};
use super::session::{HEARTBEAT, SILENCE_MAX};
use super::tls::{MutualTls, host_of};

/// How long a gateway may take to answer at first.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Messages that may wait for one gateway.
const WAITING_MAX: usize = 1024;

#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error("the installation has no authority, or it cannot be used")]
    NoAuthority,
    #[error("{0:?} is no name of a host")]
    Name(String),
    #[error("it took too long")]
    TooLate,
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    WebSocket(#[from] tokio_tungstenite::tungstenite::Error),
}

/// What is sent to one gateway.
struct Outgoing {
    agent: Uuid,
    /// Which command it is about.
    id: Uuid,
    text: String,
}

type Link = mpsc::Sender<Outgoing>;

/// Connections to other gateways. Its calls block.
pub(crate) struct Links {
    store: Arc<dyn Store>,
    hub: Arc<Hub>,
    /// Who this process is, for other gateways.
    id: Uuid,
    tls: Arc<MutualTls>,
    /// Absent where nobody may reach out: then only agents that are connected here are reached.
    runtime: OnceLock<Handle>,
    links: Mutex<HashMap<Uuid, Arc<Mutex<Option<Link>>>>>,
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Links")
    }
}

impl Links {
    pub(crate) fn new(store: Arc<dyn Store>, vault: Vault, hub: Arc<Hub>) -> Self {
        let id = Uuid::new_v4();
        let tls = Arc::new(MutualTls::new(vault, id, Vec::new()));
        Links { store, hub, id, tls, runtime: OnceLock::new(), links: Mutex::default() }
    }

    pub(crate) fn id(&self) -> Uuid {
        self.id
    }

    /// Lets connections be made, by this runtime. The first one counts.
    pub(crate) fn run_on(&self, runtime: Handle) {
        let _ = self.runtime.set(runtime);
    }

    /// Sends a message about a command to an agent that is connected to another process.
    pub(crate) fn send(&self, agent: Uuid, id: Uuid, frame: &Frame) -> Result<(), NotSent> {
        let Some(runtime) = self.runtime.get() else { return Err(NotSent::NotConnected) };
        let Some(gateway) = self.gateway_of(agent) else { return Err(NotSent::NotConnected) };
        let link = {
            let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
            // Gateways that came and went leave nothing behind.
            links.retain(|id, link| *id == gateway_id(&gateway) || is_open(link));
            Arc::clone(links.entry(gateway_id(&gateway)).or_default())
        };
        // Only those who want the same gateway wait for each other.
        let mut link = link.lock().unwrap_or_else(PoisonError::into_inner);
        let open = match link.take().filter(|link| !link.is_closed()) {
            Some(open) => open,
            None => match runtime.block_on(connect(&self.tls, &gateway)) {
                Ok(socket) => {
                    let (open, outgoing) = mpsc::channel(WAITING_MAX);
                    runtime.spawn(run(socket, outgoing, Arc::clone(&self.hub)));
                    open
                }
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(
                        error,
                        gateway = gateway.peer_address,
                        "a gateway is not reached"
                    );
                    return Err(NotSent::NotConnected);
                }
            },
        };
        let text = format!(r#"{{"agent":"{agent}","message":{}}}"#, frame.as_str());
        let sent = open.try_send(Outgoing { agent, id, text });
        *link = Some(open);
        sent.map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NotSent::Full,
            mpsc::error::TrySendError::Closed(_) => NotSent::NotConnected,
        })
    }

    /// Which other gateway has the agent's session, as far as the store knows.
    fn gateway_of(&self, agent: Uuid) -> Option<GatewayRecord> {
        let records = self.store.records();
        let at = records.remote_agent(agent.as_bytes()).ok()?.gateway?;
        let own = self.hub.gateway();
        let is_own = |gateway: &GatewayRecord| {
            // A gateway that was killed a moment ago may still be known, under the address that is this one's by now.
            own.as_ref().is_some_and(|own| {
                own.id == gateway_id(gateway) || own.peer_address == gateway.peer_address
            })
        };
        let since = Timestamp(system_time().0 - ALIVE_WITHIN);
        let found = records.gateways(since).ok()?.into_iter().find(|gateway| gateway.uuid == at);
        found.filter(|gateway| !is_own(gateway))
    }
}

fn gateway_id(gateway: &GatewayRecord) -> Uuid {
    Uuid::from_bytes(gateway.uuid)
}

/// Whether a connection is open, or being made.
fn is_open(link: &Mutex<Option<Link>>) -> bool {
    link.try_lock().map_or(true, |link| link.as_ref().is_some_and(|link| !link.is_closed()))
}

type Socket = WebSocketStream<TlsStream<TcpStream>>;

async fn connect(tls: &Arc<MutualTls>, gateway: &GatewayRecord) -> Result<Socket, LinkError> {
    let config = tls.client().await.ok_or(LinkError::NoAuthority)?;
    let host = host_of(&gateway.peer_address).to_owned();
    let name = ServerName::try_from(host.clone()).map_err(|_| LinkError::Name(host))?;
    let dial = async {
        let stream = TcpStream::connect(&gateway.peer_address).await?;
        stream.set_nodelay(true)?;
        let stream = TlsConnector::from(config).connect(name, stream).await?;
        let url = format!("wss://{}{PEER_PATH}", gateway.peer_address);
        let limits = WebSocketConfig::default()
            .max_message_size(Some(FRAME_MAX))
            .max_frame_size(Some(FRAME_MAX));
        let dialled =
            tokio_tungstenite::client_async_with_config(url, stream, Some(limits)).await?;
        Ok(dialled.0)
    };
    tokio::time::timeout(CONNECT_WITHIN, dial).await.unwrap_or(Err(LinkError::TooLate))
}

/// Carries messages until the connection ends; then all who wait learn that they have to ask again.
async fn run(mut socket: Socket, mut outgoing: mpsc::Receiver<Outgoing>, hub: Arc<Hub>) {
    let mut open: BTreeSet<(Uuid, Uuid)> = BTreeSet::new();
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let silence = tokio::time::sleep(SILENCE_MAX);
    tokio::pin!(silence);
    loop {
        let next = tokio::select! {
            () = &mut silence => break,
            _ = heartbeat.tick() => Message::Ping(Vec::new().into()),
            sent = outgoing.recv() => match sent {
                Some(Outgoing { agent, id, text }) => {
                    open.insert((agent, id));
                    Message::text(text)
                }
                None => break,
            },
            heard = socket.next() => {
                silence.as_mut().reset(tokio::time::Instant::now() + SILENCE_MAX);
                match heard {
                    Some(Ok(Message::Text(text))) => {
                        let parsed = tokio::task::spawn_blocking(move || serde_json::from_str(&text));
                        let Ok(Ok(heard)) = parsed.await else { break };
                        take(&hub, heard, &mut open);
                    }
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    _ => break,
                }
                continue;
            }
        };
        match tokio::time::timeout(SILENCE_MAX, socket.send(next)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => break,
        }
    }
    // What was not sent any more is broken, too.
    outgoing.close();
    while let Some(Outgoing { agent, id, .. }) = outgoing.recv().await {
        open.insert((agent, id));
    }
    for (agent, id) in open {
        hub.hear(agent, id, Reply::Broken);
    }
}

fn take(hub: &Hub, Heard { agent, what }: Heard, open: &mut BTreeSet<(Uuid, Uuid)>) {
    match what {
        What::Said(message) => {
            let ended = match &message {
                FromAgent::Result(answer) => Some(answer.id),
                FromAgent::Busy { id } | FromAgent::Rejected { id, .. } => Some(*id),
                _ => None,
            };
            if let Some(id) = ended {
                open.remove(&(agent, id));
            }
            hub.deliver(agent, message);
        }
        What::Broken(id) => {
            open.remove(&(agent, id));
            hub.hear(agent, id, Reply::Broken);
        }
        What::NotConnected(id) => {
            open.remove(&(agent, id));
            hub.hear(agent, id, Reply::NotConnected);
        }
    }
}
