//! The way to agents that are connected to other processes: one connection to each gateway that has one of them.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use orrery_agent::protocol::FromAgent;
use orrery_agent::watched::{Life, Watched};
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

use crate::vault::Vault;

use super::ALIVE_WITHIN;
use super::admission::PEER_PATH;
use super::hub::{Frame, Hub, NotSent, Reply};
use super::peer::{FRAME_MAX, Heard, What, envelope};
use super::session::{HEARTBEAT, SILENCE_MAX, parse};
use super::tls::{MutualTls, host_of};

/// How long a gateway may take to answer at first.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// A gateway that was not reached is not dialled again for so long.
const DIAL_AGAIN_AFTER: Duration = Duration::from_secs(1);
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

/// A connection to a gateway. Copies share it.
#[derive(Clone)]
pub(crate) struct Link(mpsc::Sender<Outgoing>);

impl Link {
    /// Sends a message about a command, or the command itself, to an agent of the gateway.
    pub(crate) fn send(
        &self,
        agent: Uuid,
        id: Uuid,
        is_command: bool,
        frame: &Frame,
    ) -> Result<(), NotSent> {
        let text = envelope(agent, id, is_command, frame);
        self.0.try_send(Outgoing { agent, id, text }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NotSent::Full,
            mpsc::error::TrySendError::Closed(_) => NotSent::NotConnected,
        })
    }
}

/// How it stands with a gateway.
enum Standing {
    /// Somebody dials it.
    Dialling,
    Open(Link),
    /// It was not reached.
    Failed(Instant),
}

impl Standing {
    /// Gateways that came and went leave nothing behind.
    fn is_of_use(&self) -> bool {
        match self {
            Standing::Dialling => true,
            Standing::Open(link) => !link.0.is_closed(),
            Standing::Failed(at) => at.elapsed() < DIAL_AGAIN_AFTER,
        }
    }
}

type Standings = Arc<Mutex<HashMap<Uuid, Standing>>>;

fn lock(links: &Standings) -> MutexGuard<'_, HashMap<Uuid, Standing>> {
    links.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connections to other gateways.
pub(crate) struct Links {
    store: Arc<dyn Store>,
    hub: Arc<Hub>,
    /// Who this process is, for other gateways.
    id: Uuid,
    tls: Arc<MutualTls>,
    /// Absent where nobody may reach out: then only agents that are connected here are reached.
    runtime: OnceLock<Handle>,
    links: Standings,
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
        Links { store, hub, id, tls, runtime: OnceLock::new(), links: Standings::default() }
    }

    pub(crate) fn id(&self) -> Uuid {
        self.id
    }

    /// Lets connections be made, by this runtime. The first one counts.
    pub(crate) fn run_on(&self, runtime: Handle) {
        let _ = self.runtime.set(runtime);
    }

    /// The way to an agent that is connected to another process. Nobody waits for a connection here: who comes again in a moment finds it.
    pub(crate) fn to(&self, agent: Uuid) -> Result<Link, NotSent> {
        let Some(runtime) = self.runtime.get() else { return Err(NotSent::NotConnected) };
        let gateway = match self.gateway_of(agent) {
            Ok(Some(gateway)) => gateway,
            Ok(None) => return Err(NotSent::NotConnected),
            Err(error) => {
                tracing::warn!(%error, %agent, "it is not known where an agent is connected");
                return Err(NotSent::Soon);
            }
        };
        let id = Uuid::from_bytes(gateway.uuid);
        let mut links = lock(&self.links);
        links.retain(|_, standing| standing.is_of_use());
        match links.get(&id) {
            Some(Standing::Open(link)) => return Ok(link.clone()),
            Some(Standing::Dialling) => return Err(NotSent::Soon),
            Some(Standing::Failed(_)) => return Err(NotSent::NotConnected),
            None => {}
        }
        links.insert(id, Standing::Dialling);
        let (tls, hub, links) =
            (Arc::clone(&self.tls), Arc::clone(&self.hub), Arc::clone(&self.links));
        runtime.spawn(async move {
            let socket = match connect(&tls, &gateway).await {
                Ok(socket) => socket,
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    let address = gateway.peer_address;
                    tracing::warn!(error, gateway = address, "a gateway is not reached");
                    lock(&links).insert(id, Standing::Failed(Instant::now()));
                    return;
                }
            };
            let (open, outgoing) = mpsc::channel(WAITING_MAX);
            lock(&links).insert(id, Standing::Open(Link(open)));
            run(socket, outgoing, &hub).await;
        });
        Err(NotSent::Soon)
    }

    /// Which other gateway has the agent's session, as far as the store knows.
    fn gateway_of(&self, agent: Uuid) -> Result<Option<GatewayRecord>, StoreError> {
        let own = self.hub.gateway();
        let is_own = |gateway: &GatewayRecord| {
            // A gateway that was killed a moment ago may still be known, under the address that is this one's by now.
            own.as_ref().is_some_and(|own| {
                own.id.as_bytes() == &gateway.uuid || own.peer_address == gateway.peer_address
            })
        };
        let found = self.store.records().gateway_of_agent(agent.as_bytes(), ALIVE_WITHIN)?;
        Ok(found.filter(|gateway| !is_own(gateway)))
    }
}

type Socket = WebSocketStream<Watched>;

async fn connect(tls: &Arc<MutualTls>, gateway: &GatewayRecord) -> Result<Socket, LinkError> {
    let config = tls.client().await.ok_or(LinkError::NoAuthority)?;
    let host = host_of(&gateway.peer_address).to_owned();
    let name = ServerName::try_from(host.clone()).map_err(|_| LinkError::Name(host))?;
    let dial = async {
        let stream = TcpStream::connect(&gateway.peer_address).await?;
        stream.set_nodelay(true)?;
        let stream = TlsConnector::from(config).connect(name, stream).await?;
        let stream = Watched::new(Box::new(stream), Life::Heard(SILENCE_MAX));
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

/// Commands that were sent and have no end yet, with their agents.
type Waiting = Mutex<BTreeSet<(Uuid, Uuid)>>;

fn waiting(of: &Waiting) -> MutexGuard<'_, BTreeSet<(Uuid, Uuid)>> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries messages until the connection ends; then all who wait learn that they have to ask again. Both directions at once: what is sent
/// must not wait for what is read, nor the other way round.
async fn run(socket: Socket, mut outgoing: mpsc::Receiver<Outgoing>, hub: &Hub) {
    let (writer, reader) = socket.split();
    let open = Waiting::default();
    tokio::select! {
        () = send_all(writer, &mut outgoing, &open) => {}
        () = hear_all(reader, hub, &open) => {}
    }
    // What was not sent any more is broken, too.
    outgoing.close();
    while let Some(Outgoing { agent, id, .. }) = outgoing.recv().await {
        waiting(&open).insert((agent, id));
    }
    let open = std::mem::take(&mut *waiting(&open));
    for (agent, id) in open {
        hub.hear(agent, id, Reply::Broken);
    }
}

async fn send_all(
    mut writer: SplitSink<Socket, Message>,
    outgoing: &mut mpsc::Receiver<Outgoing>,
    open: &Waiting,
) {
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let next = tokio::select! {
            _ = heartbeat.tick() => Message::Ping(Vec::new().into()),
            sent = outgoing.recv() => {
                let Some(Outgoing { agent, id, text }) = sent else { return };
                waiting(open).insert((agent, id));
                Message::text(text)
            }
        };
        if writer.send(next).await.is_err() {
            return;
        }
    }
}

async fn hear_all(mut reader: SplitStream<Socket>, hub: &Hub, open: &Waiting) {
    loop {
        let text = match reader.next().await {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
            _ => return,
        };
        let Some(heard) = parse(text).await else { return };
        take(hub, heard, open);
    }
}

fn take(hub: &Hub, Heard { agent, what }: Heard, open: &Waiting) {
    let ended = |id: Uuid| {
        waiting(open).remove(&(agent, id));
    };
    match what {
        What::Said(message) => {
            match &message {
                FromAgent::Result(answer) => ended(answer.id),
                FromAgent::Busy { id } | FromAgent::Rejected { id, .. } => ended(*id),
                _ => {}
            }
            // How much an agent may say is watched by its gateway.
            let _ = hub.deliver(agent, message);
        }
        What::Broken(id) => {
            ended(id);
            hub.hear(agent, id, Reply::Broken);
        }
        What::NotConnected(id) => {
            ended(id);
            hub.hear(agent, id, Reply::NotConnected);
        }
    }
}

#[cfg(test)]
mod tests {
    use orrery_model::Timestamp;
    use orrery_store::{Join, Joining, LiveGateway, NewAgentSession, NewInvitation, SqliteStore};
    use serde_json::json;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use crate::app::{App, AppSettings};
    use crate::vault::MasterKey;

    use super::super::Authority;
    use super::*;

    const AGENT: Uuid = Uuid::from_u128(1);
    const CALL: Uuid = Uuid::from_u128(2);

    #[test]
    fn what_is_heard_does_not_wait_for_what_is_sent() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(async {
            let (near, far) = tokio::io::duplex(1024);
            let near = Watched::new(Box::new(near), Life::Heard(SILENCE_MAX));
            let near = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
            let mut far = WebSocketStream::from_raw_socket(far, Role::Server, None).await;
            let hub = Arc::new(Hub::new(Arc::default()));
            let (tell, mut told) = mpsc::unbounded_channel();
            let sink = Box::new(move |reply| drop(tell.send(reply)));
            let _open = hub.open_call(CALL, AGENT, sink);
            let (send, outgoing) = mpsc::channel(1);
            let running = {
                let hub = Arc::clone(&hub);
                tokio::spawn(async move { run(near, outgoing, &hub).await })
            };
            // The other side is busy with what it says, and does not read.
            let large = Frame::from(format!("{:?}", "x".repeat(1024 * 1024)));
            assert_eq!(Link(send.clone()).send(AGENT, CALL, true, &large), Ok(()));
            drop(send.reserve().await.unwrap());
            let said = Heard { agent: AGENT, what: What::Said(FromAgent::Accepted { id: CALL }) };
            let said = serde_json::to_string(&said).unwrap();
            far.send(Message::text(said)).await.unwrap();
            let heard = tokio::time::timeout(Duration::from_secs(20), told.recv()).await;
            assert!(matches!(heard, Ok(Some(Reply::Accepted))), "{heard:?}");
            // When the connection ends, who waits has to ask again.
            drop(far);
            running.await.unwrap();
            assert!(matches!(told.recv().await, Some(Reply::Broken)));
        });
    }

    /// An agent that is connected to a gateway at this address, as far as the store knows.
    fn connected_to(store: &dyn Store, address: &str) -> Uuid {
        let (environment, now) = (store.default_environment().unwrap(), Timestamp(1_000));
        let new = NewInvitation {
            uuid: [1; 16],
            hash: [1; 32],
            names: vec!["web1".to_owned()],
            created: now,
            expires: Timestamp(2_000),
            token: None,
        };
        store.records().create_invitation(environment, &new).unwrap();
        let joining = Joining {
            uuid: AGENT.into_bytes(),
            key: [1; 32],
            names: Vec::new(),
            facts: json!({}),
            version: String::new(),
        };
        let joined = store.records().join(&[1; 32], &joining, now).unwrap();
        assert!(matches!(joined, Join::Joined(_)), "{joined:?}");
        let gateway = LiveGateway { uuid: [5; 16], address, peer_address: address };
        store.records().gateway_is_alive(&gateway, ALIVE_WITHIN).unwrap();
        let facts = json!({});
        let new =
            NewAgentSession { gateway: gateway.uuid, boot: [1; 16], version: "", facts: &facts };
        store.records().open_agent_session(AGENT.as_bytes(), &new, now).unwrap().unwrap();
        AGENT
    }

    #[test]
    fn nobody_waits_for_a_gateway_that_does_not_answer() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let data = tempfile::tempdir().unwrap();
        let master_key = MasterKey::Made(data.path().join("secret.key"));
        let settings = AppSettings { master_key, ..AppSettings::default() };
        let app = App::new(Arc::new(SqliteStore::in_memory().unwrap()), settings);
        Authority::open_or_make(app.vault(), app.now()).unwrap();
        // It takes connections, and says nothing.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let agent = connected_to(&**app.store(), &address);
        app.links().run_on(runtime.handle().clone());
        let began = Instant::now();
        assert_eq!(app.links().to(agent).err(), Some(NotSent::Soon));
        let _dialled = silent.accept().unwrap();
        assert_eq!(app.links().to(agent).err(), Some(NotSent::Soon));
        assert!(began.elapsed() < CONNECT_WITHIN / 2, "{:?}", began.elapsed());
    }
}
