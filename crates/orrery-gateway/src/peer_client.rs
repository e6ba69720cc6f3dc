//! Client of other gateways: one connection to each gateway that has a needed agent.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use orrery_agent::idle_timeout::{IdleTimeout, IdleTimeoutStream};
use orrery_agent::protocol::FromAgent;
use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_store::{GatewayRecord, Store, StoreError};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use uuid::Uuid;

use orrery_roles::vault::Vault;

use super::HEARTBEAT_MAX_AGE;
use super::admission::PEER_PATH;
use super::peer_server::{FRAME_MAX, PeerEvent, PeerMessage, PeerMessageKind, envelope};
use super::session::{HEARTBEAT, SILENCE_MAX, parse};
use super::session_registry::{CallReply, Frame, SendError, SessionRegistry};
use super::tls::{MutualTls, host_of};

/// Timeout for connecting to a gateway.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay before an unreachable gateway is dialled again.
const REDIAL_AFTER: Duration = Duration::from_secs(1);
/// Queue length per gateway.
const QUEUE_MAX: usize = 1024;

#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error("no usable certificate authority")]
    NoAuthority,
    #[error("{0:?} is not a host name")]
    Name(String),
    #[error("timed out")]
    TooLate,
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    WebSocket(#[from] tokio_tungstenite::tungstenite::Error),
}

/// A message to a gateway.
struct Outgoing {
    agent: Uuid,
    /// Command that the message concerns.
    id: Uuid,
    text: String,
}

/// A connection to a gateway, cheap to clone.
#[derive(Clone)]
pub(crate) struct PeerLink(mpsc::Sender<Outgoing>);

impl PeerLink {
    /// Sends a command, or a message about it, to an agent of the gateway.
    pub(crate) fn send(
        &self,
        agent: Uuid,
        id: Uuid,
        kind: PeerMessageKind,
        frame: &Frame,
    ) -> Result<(), SendError> {
        let text = envelope(agent, id, kind, frame);
        self.0.try_send(Outgoing { agent, id, text }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SendError::Full,
            mpsc::error::TrySendError::Closed(_) => SendError::NotConnected,
        })
    }
}

/// State of the connection to a gateway.
enum LinkState {
    /// Being dialled.
    Dialling,
    Open(PeerLink),
    /// Unreachable since this time.
    Failed(Instant),
}

impl LinkState {
    /// False for entries that can be dropped.
    fn is_current(&self) -> bool {
        match self {
            LinkState::Dialling => true,
            LinkState::Open(link) => !link.0.is_closed(),
            LinkState::Failed(at) => at.elapsed() < REDIAL_AFTER,
        }
    }
}

type LinkStates = Arc<Mutex<HashMap<Uuid, LinkState>>>;

/// Connections to other gateways.
pub struct PeerClient {
    store: Store,
    registry: Arc<SessionRegistry>,
    /// Id of this process, for other gateways.
    id: Uuid,
    tls: Arc<MutualTls>,
    /// Without a runtime only locally connected agents are reached.
    runtime: OnceLock<Handle>,
    links: LinkStates,
}

impl std::fmt::Debug for PeerClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PeerClient")
    }
}

impl PeerClient {
    pub fn new(store: Store, vault: Vault, registry: Arc<SessionRegistry>) -> Self {
        let id = Uuid::new_v4();
        let tls = Arc::new(MutualTls::new(vault, id, Vec::new()));
        PeerClient {
            store,
            registry,
            id,
            tls,
            runtime: OnceLock::new(),
            links: LinkStates::default(),
        }
    }

    pub(crate) fn id(&self) -> Uuid {
        self.id
    }

    /// Enables connections, on this runtime. The first call wins.
    pub fn set_runtime(&self, runtime: Handle) {
        let _ = self.runtime.set(runtime);
    }

    /// Returns the connection to the gateway of an agent. Does not block: starts to connect if
    /// necessary, and a later call finds the connection.
    pub(crate) fn link_to(&self, agent: Uuid) -> Result<PeerLink, SendError> {
        let Some(runtime) = self.runtime.get() else { return Err(SendError::NotConnected) };
        let gateway = match self.gateway_of(agent) {
            Ok(Some(gateway)) => gateway,
            Ok(None) => return Err(SendError::NotConnected),
            Err(error) => {
                tracing::warn!(%error, %agent, "cannot look up the gateway of an agent");
                return Err(SendError::Connecting);
            }
        };
        let id = gateway.uuid.uuid();
        let mut links = self.links.lock().ignore_poison();
        links.retain(|_, state| state.is_current());
        match links.get(&id) {
            Some(LinkState::Open(link)) => return Ok(link.clone()),
            Some(LinkState::Dialling) => return Err(SendError::Connecting),
            Some(LinkState::Failed(_)) => return Err(SendError::NotConnected),
            None => {}
        }
        links.insert(id, LinkState::Dialling);
        let (tls, registry, links) =
            (Arc::clone(&self.tls), Arc::clone(&self.registry), Arc::clone(&self.links));
        runtime.spawn(async move {
            let socket = match connect(&tls, &gateway).await {
                Ok(socket) => socket,
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    let address = gateway.peer_address;
                    tracing::warn!(error, gateway = address, "gateway unreachable");
                    links.lock().ignore_poison().insert(id, LinkState::Failed(monotonic()));
                    return;
                }
            };
            let (open, outgoing) = mpsc::channel(QUEUE_MAX);
            links.lock().ignore_poison().insert(id, LinkState::Open(PeerLink(open)));
            run(socket, outgoing, &registry).await;
        });
        Err(SendError::Connecting)
    }

    /// Returns the other gateway that has the agent's session, according to the store.
    fn gateway_of(&self, agent: Uuid) -> Result<Option<GatewayRecord>, StoreError> {
        let own = self.registry.gateway();
        let is_own = |gateway: &GatewayRecord| {
            // A killed gateway may still be in the store, with the address that this process now
            // has.
            own.as_ref().is_some_and(|own| {
                own.id == gateway.uuid.uuid() || own.peer_address == gateway.peer_address
            })
        };
        let found = self.store.gateways().of_agent(agent.into(), HEARTBEAT_MAX_AGE)?;
        Ok(found.filter(|gateway| !is_own(gateway)))
    }
}

type Socket = WebSocketStream<IdleTimeoutStream>;

async fn connect(tls: &Arc<MutualTls>, gateway: &GatewayRecord) -> Result<Socket, LinkError> {
    let config = tls.client().await.ok_or(LinkError::NoAuthority)?;
    let host = host_of(&gateway.peer_address).to_owned();
    let name = ServerName::try_from(host.clone()).map_err(|_| LinkError::Name(host))?;
    let dial = async {
        let stream = TcpStream::connect(&gateway.peer_address).await?;
        stream.set_nodelay(true)?;
        let stream = TlsConnector::from(config).connect(name, stream).await?;
        let stream = IdleTimeoutStream::new(Box::new(stream), IdleTimeout::Received(SILENCE_MAX));
        let url = format!("wss://{}{PEER_PATH}", gateway.peer_address);
        let limits = WebSocketConfig::default()
            .max_message_size(Some(FRAME_MAX))
            .max_frame_size(Some(FRAME_MAX));
        let dialled =
            tokio_tungstenite::client_async_with_config(url, stream, Some(limits)).await?;
        Ok(dialled.0)
    };
    tokio::time::timeout(CONNECT_TIMEOUT, dial).await.unwrap_or(Err(LinkError::TooLate))
}

/// Unfinished commands, with their agents.
type OpenCalls = Mutex<BTreeSet<(Uuid, Uuid)>>;

/// Relays messages until the connection ends, then breaks all open calls, which are sent again.
/// Both directions run concurrently, so that neither blocks the other.
async fn run(socket: Socket, mut outgoing: mpsc::Receiver<Outgoing>, registry: &SessionRegistry) {
    let (writer, reader) = socket.split();
    let open = OpenCalls::default();
    tokio::select! {
        () = send_all(writer, &mut outgoing, &open) => {}
        () = receive_all(reader, registry, &open) => {}
    }
    // Unsent messages are broken, too.
    outgoing.close();
    while let Some(Outgoing { agent, id, .. }) = outgoing.recv().await {
        open.lock().ignore_poison().insert((agent, id));
    }
    let open = std::mem::take(&mut *open.lock().ignore_poison());
    for (agent, id) in open {
        registry.deliver_from_peer(agent, id, CallReply::Broken);
    }
}

async fn send_all(
    mut writer: SplitSink<Socket, Message>,
    outgoing: &mut mpsc::Receiver<Outgoing>,
    open: &OpenCalls,
) {
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let next = tokio::select! {
            _ = heartbeat.tick() => Message::Ping(Vec::new().into()),
            sent = outgoing.recv() => {
                let Some(Outgoing { agent, id, text }) = sent else { return };
                open.lock().ignore_poison().insert((agent, id));
                Message::text(text)
            }
        };
        if writer.send(next).await.is_err() {
            return;
        }
    }
}

async fn receive_all(
    mut reader: SplitStream<Socket>,
    registry: &SessionRegistry,
    open: &OpenCalls,
) {
    loop {
        let text = match reader.next().await {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
            _ => return,
        };
        let Some(heard) = parse(text).await else { return };
        handle_message(registry, heard, open);
    }
}

fn handle_message(
    registry: &SessionRegistry,
    PeerMessage { agent, event }: PeerMessage,
    open: &OpenCalls,
) {
    let ended = |id: Uuid| {
        open.lock().ignore_poison().remove(&(agent, id));
    };
    match event {
        PeerEvent::Said(message) => {
            match &message {
                FromAgent::Result(answer) => ended(answer.id),
                FromAgent::Busy { id } | FromAgent::Rejected { id, .. } => ended(*id),
                _ => {}
            }
            // The agent's own gateway enforces the message limit.
            let _ = registry.deliver(agent, message);
        }
        PeerEvent::Broken(id) => {
            ended(id);
            registry.deliver_from_peer(agent, id, CallReply::Broken);
        }
        PeerEvent::NotConnected(id) => {
            ended(id);
            registry.deliver_from_peer(agent, id, CallReply::NotConnected);
        }
    }
}

#[cfg(test)]
mod tests {
    use orrery_model::Timestamp;
    use orrery_store::{
        GatewayHeartbeat, JoinOutcome, JoiningAgent, NewAgentSession, NewInvitationRecord, Store,
    };
    use serde_json::json;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use orrery_roles::vault::MasterKey;

    use super::super::{CertificateAuthority, GatewayMetrics};
    use super::*;

    const COMMAND: PeerMessageKind = PeerMessageKind::Command { needs_python: false };
    const AGENT: Uuid = Uuid::from_u128(1);
    const CALL: Uuid = Uuid::from_u128(2);

    #[test]
    fn reading_does_not_wait_for_writing() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(async {
            let (near, far) = tokio::io::duplex(1024);
            let near = IdleTimeoutStream::new(Box::new(near), IdleTimeout::Received(SILENCE_MAX));
            let near = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
            let mut far = WebSocketStream::from_raw_socket(far, Role::Server, None).await;
            let registry = Arc::new(SessionRegistry::new(GatewayMetrics::default()));
            let (sender, mut receiver) = mpsc::unbounded_channel();
            let sink = Box::new(move |reply| drop(sender.send(reply)));
            let _open = registry.open_call(CALL, AGENT, sink);
            let (send, outgoing) = mpsc::channel(1);
            let running = {
                let registry = Arc::clone(&registry);
                tokio::spawn(async move { run(near, outgoing, &registry).await })
            };
            // The peer is writing and does not read.
            let large = Frame::from(format!("{:?}", "x".repeat(1024 * 1024)));
            assert_eq!(PeerLink(send.clone()).send(AGENT, CALL, COMMAND, &large), Ok(()));
            drop(send.reserve().await.unwrap());
            let said = PeerMessage {
                agent: AGENT,
                event: PeerEvent::Said(FromAgent::Accepted { id: CALL }),
            };
            let said = serde_json::to_string(&said).unwrap();
            far.send(Message::text(said)).await.unwrap();
            let heard = tokio::time::timeout(Duration::from_secs(20), receiver.recv()).await;
            assert!(matches!(heard, Ok(Some(CallReply::Accepted))), "{heard:?}");
            // When the connection ends, open calls are broken.
            drop(far);
            running.await.unwrap();
            assert!(matches!(receiver.recv().await, Some(CallReply::Broken)));
        });
    }

    /// An agent that the store shows as connected to a gateway at this address.
    fn connected_to(store: &Store, address: &str) -> Uuid {
        let (environment, now) = (store.environments().ensure_default().unwrap(), Timestamp(1_000));
        let new = NewInvitationRecord {
            uuid: orrery_model::Id::from_bytes([1; 16]),
            hash: [1; 32],
            names: vec!["web1".to_owned()],
            created: now,
            expires: Timestamp(2_000),
            token: None,
        };
        store.invitations().create(environment, &new).unwrap();
        let joining = JoiningAgent {
            uuid: AGENT.into(),
            key: [1; 32],
            names: Vec::new(),
            facts: json!({}),
            version: String::new(),
        };
        let joined = store.invitations().join(&[1; 32], &joining, now).unwrap();
        assert!(matches!(joined, JoinOutcome::Joined(_)), "{joined:?}");
        let gateway = GatewayHeartbeat {
            uuid: orrery_model::Id::from_bytes([5; 16]),
            address,
            peer_address: address,
            latencies: None,
        };
        store.gateways().record_heartbeat(&gateway, HEARTBEAT_MAX_AGE).unwrap();
        let facts = json!({});
        let new = NewAgentSession {
            gateway: gateway.uuid,
            boot: orrery_model::Id::from_bytes([1; 16]),
            version: "",
            facts: &facts,
            offered: &[],
        };
        store.remote_agents().open_session(AGENT.into(), &new, now).unwrap().unwrap();
        AGENT
    }

    #[test]
    fn an_unresponsive_gateway_does_not_block_callers() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let data = tempfile::tempdir().unwrap();
        let master_key = MasterKey::Generated(data.path().join("secret.key"));
        let store: Store = Store::in_memory().unwrap();
        let vault = Vault::new(store.clone(), master_key);
        let registry = Arc::new(SessionRegistry::new(GatewayMetrics::default()));
        let now = orrery_roles::services::system_time();
        CertificateAuthority::open_or_create(&vault, now).unwrap();
        let peers = PeerClient::new(store.clone(), vault, registry);
        // Accepts connections and never answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let agent = connected_to(&store, &address);
        peers.set_runtime(runtime.handle().clone());
        let began = Instant::now();
        assert_eq!(peers.link_to(agent).err(), Some(SendError::Connecting));
        let _dialled = silent.accept().unwrap();
        assert_eq!(peers.link_to(agent).err(), Some(SendError::Connecting));
        assert!(began.elapsed() < CONNECT_TIMEOUT / 2, "{:?}", began.elapsed());
    }
}
