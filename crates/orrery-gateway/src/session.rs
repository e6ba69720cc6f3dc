//! One session of one remote agent: handshake, messages, end.

use std::ops::Deref;
use std::sync::LazyLock;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Extension, State};
use axum::response::Response;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use orrery_agent::protocol::{
    FromAgent, Hello, MESSAGE_MAX, PROTOCOL, Refusal, RefusalCode, ToAgent, Welcome,
};
use orrery_handlers::Registry;
use orrery_store::{NewNotification, OpenedSession, RemoteAgentRecord};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

use super::GatewayState;
use super::admission::{AdmittedAgent, revoked};
use super::drift::{DriftLimit, request_verification};
use super::session_log::{NewSession, SessionEntry};
use super::session_registry::{AttachedSession, Frame, superseded};
use super::truncate::{truncate_machine, truncate_text};

/// Heartbeat interval of sessions.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(3);
/// Idle time after which a session is dead. States of agents are accurate within ten seconds.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(9);
/// Timeout of the hello message.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of the hello message.
const HELLO_MAX: usize = 64 * 1024;
/// Maximum number of resource types that an agent offers by itself.
const TYPES_MAX: usize = 256;
/// Retry delay for recording the end of a session.
const RECORD_RETRY_AFTER: Duration = Duration::from_secs(1);
/// Size above which a message is parsed on a blocking thread.
const LARGE_MIN: usize = 256 * 1024;
/// Slightly more than any message: an oversized one gets an error instead of a broken connection.
const FRAME_MAX: usize = MESSAGE_MAX + 1024;

type Reader = SplitStream<WebSocket>;
type Writer = SplitSink<WebSocket, Message>;

/// Opens the session of an agent.
pub(super) async fn open(
    State(gateway): State<GatewayState>,
    Extension(AdmittedAgent(agent)): Extension<AdmittedAgent>,
    upgrade: WebSocketUpgrade,
) -> Response {
    upgrade.max_message_size(FRAME_MAX).max_frame_size(FRAME_MAX).on_upgrade(move |socket| {
        gateway.sessions.clone().track_future(run(gateway, agent, socket))
    })
}

/// Serializes a message; our own types always serialize.
pub(crate) fn to_frame(message: &ToAgent) -> Frame {
    serde_json::to_string(message).unwrap_or_default().into()
}

async fn run(gateway: GatewayState, agent: RemoteAgentRecord, socket: WebSocket) {
    let id = agent.uuid.uuid();
    let (mut writer, mut reader) = socket.split();
    let (number, AttachedSession { frames, end }) =
        match open_session(&gateway, &agent, &mut reader).await {
            Ok(begun) => begun,
            Err(refusal) => {
                tracing::info!(agent = %id, reason = refusal.reason, "session refused");
                return refuse(&mut writer, refusal).await;
            }
        };
    tracing::info!(agent = %id, names = ?agent.names, session = number, "remote agent connected");
    let heartbeat_seconds = u32::try_from(HEARTBEAT.as_secs()).unwrap_or(u32::MAX);
    let session = u64::try_from(number).unwrap_or_default();
    let welcome =
        Welcome { agent: id, session, heartbeat_seconds, gateways: Vec::new(), drift: true };
    let welcome = WelcomeSource { welcome, addresses: gateway.addresses.subscribe() };
    let (finish, finishing) = oneshot::channel();
    let registry = gateway.registry.clone();
    let on_ping = move || registry.record_ping(id, number);
    let writing = write(writer, welcome, frames, finishing, on_ping);
    let mut writing = tokio::spawn(writing);
    let (reason, refusal) = tokio::select! {
        biased;
        refusal = wait_for_end(end) => ("ended by the server", Some(refusal)),
        () = gateway.stop.cancelled() => {
            let reason = "the gateway is shutting down; reconnect".to_owned();
            ("gateway shutdown", Some(Refusal { code: RefusalCode::Unavailable, reason }))
        }
        _ = &mut writing => ("connection broken", None),
        reason = read(&gateway, &agent, &mut reader) => (reason, None),
    };
    // First: a revoked or superseded agent is unregistered whether it can be notified or not.
    gateway.registry.detach(id, number);
    // Fails only if the writer has ended.
    let _ = finish.send(refusal);
    record_end(&gateway, id, number).await;
    tracing::info!(agent = %id, session = number, reason, "remote agent disconnected");
    if !writing.is_finished() {
        // Ends after the agent was notified, or could not be.
        let _ = writing.await;
    }
}

/// Waits until the session must end; returns the reason.
async fn wait_for_end(mut end: watch::Receiver<Option<Refusal>>) -> Refusal {
    while end.changed().await.is_ok() {
        if let Some(refusal) = end.borrow_and_update().clone() {
            return refusal;
        }
    }
    // The registry has dropped this session.
    superseded()
}

/// Records the end of a session, with retries: nothing else does while this gateway is alive.
async fn record_end(gateway: &GatewayState, id: Uuid, number: i64) {
    loop {
        let close = SessionEntry::Close { agent: id.into(), number };
        let Err(error) = gateway.session_log.record(close).await else { return };
        tracing::warn!(%error, agent = %id, "end of a session not recorded yet");
        tokio::select! {
            // The end of the gateway ends all its sessions.
            () = gateway.stop.cancelled() => return,
            () = tokio::time::sleep(RECORD_RETRY_AFTER) => {}
        }
    }
}

/// Performs the handshake and registers the session.
async fn open_session(
    gateway: &GatewayState,
    agent: &RemoteAgentRecord,
    reader: &mut Reader,
) -> Result<(i64, AttachedSession), Refusal> {
    let refused = |code, reason: String| Err(Refusal { code, reason });
    let first = tokio::time::timeout(HELLO_TIMEOUT, reader.next()).await;
    let first = match first {
        Ok(Some(Ok(Message::Text(text)))) if text.len() <= HELLO_MAX => {
            serde_json::from_str::<FromAgent>(&text).ok()
        }
        _ => None,
    };
    let Some(FromAgent::Hello(hello)) = first else {
        return refused(RefusalCode::Unreadable, "expected hello as the first message".to_owned());
    };
    if hello.protocol != PROTOCOL {
        let reason = format!(
            "this gateway speaks protocol {PROTOCOL}, the agent {}: use programs of the same version",
            hello.protocol
        );
        return refused(RefusalCode::Protocol, reason);
    }
    if hello.types.len() > TYPES_MAX {
        let reason = format!("an agent offers at most {TYPES_MAX} types of its own");
        return refused(RefusalCode::Unreadable, reason);
    }
    if let Some(error) = hello.types.iter().find_map(|offered| offered.check().err()) {
        return refused(RefusalCode::Unreadable, error.to_string());
    }
    if let Some(entity) = native_type_in(&hello) {
        tracing::warn!(agent = %agent.uuid.uuid(), names = ?agent.names, entity, "a remote agent offers a built-in type");
        let reason = format!(
            "the type {entity} is built in, and no agent may redefine it: choose a name in a namespace of its own"
        );
        return refused(RefusalCode::Unreadable, reason);
    }
    let id = agent.uuid.uuid();
    let runs_python = hello.python;
    let Some(opened) = record_session(gateway, id, hello).await? else { return Err(revoked().1) };
    if opened.from_another_process {
        notify_second_process(gateway, agent).await;
    }
    let number = opened.number;
    match gateway.registry.attach(id, number, runs_python) {
        Ok(attached) => Ok((number, attached)),
        Err(refusal) => {
            record_end(gateway, id, number).await;
            Err(refusal)
        }
    }
}

/// Returns an offered type that has a native handler. Its resources would be checked against a
/// declaration of the agent instead of that of the type.
fn native_type_in(hello: &Hello) -> Option<&str> {
    static NATIVE: LazyLock<Registry> = LazyLock::new(Registry::native);
    let mut offered = hello.types.iter().map(|offered| &*offered.entity);
    offered.find(|entity| NATIVE.declaration(entity).is_some())
}

async fn record_session(
    gateway: &GatewayState,
    id: Uuid,
    hello: Hello,
) -> Result<Option<OpenedSession>, Refusal> {
    let new = NewSession {
        agent: id.into(),
        gateway: gateway.id.into(),
        boot: hello.boot.into(),
        version: truncate_text(&hello.program_version),
        facts: serde_json::to_value(truncate_machine(hello.machine)).unwrap_or_default(),
        offered: hello.types,
    };
    let opened = gateway.session_log.record(SessionEntry::Open(Box::new(new)));
    opened.await.map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "no session can be opened");
        let reason = "the gateway is temporarily unavailable; see its log".to_owned();
        Refusal { code: RefusalCode::Unavailable, reason }
    })
}

/// Notifies operators that two processes use one identity.
async fn notify_second_process(gateway: &GatewayState, agent: &RemoteAgentRecord) {
    let (id, environment) = (agent.uuid.uuid(), agent.environment);
    tracing::warn!(agent = %id, "another process of a remote agent took over its session");
    let names = agent.names.join(", ");
    let now = gateway.services.now();
    let noted = gateway.services.change(move |store| {
        let message = format!(
            "Another process took over the session of the remote agent {id} ({names}), which seemed alive. If this happens repeatedly, \
             two machines use the same identity: revoke it, and invite each of them."
        );
        let new = NewNotification {
            uuid: Uuid::new_v4().into(),
            title: "A remote agent was started twice",
            message: &message,
            severity: "warning",
            uri: "",
            compile: None,
        };
        store.notifications().add(environment, &new, now)
    });
    if let Err(error) = noted.await {
        tracing::warn!(%error, "notification not stored");
    }
}

async fn refuse(writer: &mut Writer, refusal: Refusal) {
    let send = async {
        let reason = refusal.reason.chars().take(60).collect::<String>();
        let text = to_frame(&ToAgent::Refuse(refusal));
        writer.send(Message::Text(text)).await?;
        let frame = CloseFrame { code: close_code::POLICY, reason: reason.into() };
        writer.send(Message::Close(Some(frame))).await
    };
    // A disconnected agent learns it when it reconnects.
    let _ = tokio::time::timeout(HELLO_TIMEOUT, send).await;
}

/// Welcome of a session with the current addresses of the gateways.
struct WelcomeSource {
    welcome: Welcome,
    addresses: watch::Receiver<Vec<String>>,
}

impl WelcomeSource {
    fn current(&mut self) -> Frame {
        let gateways = self.addresses.borrow_and_update().clone();
        to_frame(&ToAgent::Welcome(Welcome { gateways, ..self.welcome.clone() }))
    }

    /// Returns the welcome with other addresses once there are some.
    async fn changed(&mut self) -> Frame {
        if self.addresses.changed().await.is_err() {
            // The gateway is shutting down.
            return std::future::pending().await;
        }
        self.current()
    }
}

/// Sends messages and heartbeats until the session ends. An agent that does not know of a new
/// gateway could not use it after the end of this one.
async fn write(
    mut writer: Writer,
    mut welcome: WelcomeSource,
    mut frames: mpsc::Receiver<Frame>,
    mut finishing: oneshot::Receiver<Option<Refusal>>,
    on_ping: impl Fn(),
) {
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    heartbeat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut next = Some(welcome.current());
    let finish = loop {
        let text = match next.take() {
            Some(text) => text,
            None => tokio::select! {
                biased;
                finish = &mut finishing => break finish,
                frame = frames.recv() => match frame {
                    Some(frame) => frame,
                    // The session is over; the reason follows.
                    None => break (&mut finishing).await,
                },
                _ = heartbeat.tick() => {
                    on_ping();
                    to_frame(&ToAgent::Ping)
                }
                changed = welcome.changed() => changed,
            },
        };
        tokio::select! {
            biased;
            // A partly sent message is completed by the next send.
            finish = &mut finishing => break finish,
            sent = writer.send(Message::Text(text)) => if sent.is_err() {
                return;
            },
        }
    };
    match finish {
        Ok(Some(refusal)) => refuse(&mut writer, refusal).await,
        Ok(None) | Err(_) => {
            let _ = tokio::time::timeout(HELLO_TIMEOUT, writer.close()).await;
        }
    }
}

/// Reads the agent's messages; returns why reading ended. The stream below enforces the idle
/// timeout, on bytes.
async fn read(
    gateway: &GatewayState,
    agent: &RemoteAgentRecord,
    reader: &mut Reader,
) -> &'static str {
    let id = agent.uuid.uuid();
    let mut limit = DriftLimit::default();
    loop {
        let message = match reader.next().await {
            None | Some(Ok(Message::Close(_))) => return "closed by the agent",
            Some(Err(_)) => return "connection broken, or idle for too long",
            Some(Ok(Message::Text(text))) => parse(text).await,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
            Some(Ok(Message::Binary(_))) => None,
        };
        let Some(message) = message else { return "invalid message" };
        if let FromAgent::Drift(drift) = message {
            request_verification(gateway, agent, &mut limit, drift).await;
            continue;
        }
        if gateway.registry.deliver(id, message).is_err() {
            return "too many messages";
        }
    }
}

/// Parses a message of an agent or another server; `None` if it is malformed.
pub(super) async fn parse<T: DeserializeOwned + Send + 'static>(
    text: impl Deref<Target = str> + Send + 'static,
) -> Option<T> {
    if text.len() < LARGE_MIN {
        return serde_json::from_str(&text).ok();
    }
    let parse = move || serde_json::from_str(&text).ok();
    tokio::task::spawn_blocking(parse).await.ok().flatten()
}
