//! One session of one remote agent: its beginning, its messages, its end.

use std::ops::Deref;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Extension, State};
use axum::response::Response;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use orrery_agent::protocol::{
    FromAgent, Hello, MESSAGE_MAX, PROTOCOL, Refusal, RefusalCode, ToAgent, Welcome,
};
use orrery_store::{NewAgentSession, NewNotification, OpenedSession, RemoteAgentRecord};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

use super::GatewayState;
use super::admission::{AdmittedAgent, revoked};
use super::clipping::{clipped, clipped_text};
use super::hub::{Attached, Frame, superseded};

/// How often the gateway says something.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(10);
/// A session in which no byte was heard for so long is dead.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(30);
/// An agent introduces itself within this time.
const HELLO_WITHIN: Duration = Duration::from_secs(10);
/// A hello is not longer.
const HELLO_MAX: usize = 64 * 1024;
/// After the end of a session could not be noted.
const NOTE_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// A message that is larger is read on a thread that may block.
const LARGE: usize = 256 * 1024;
/// A little more than any message: the other side is told what is wrong rather than cut off.
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

/// The text of a message; our own types can always be written.
pub(crate) fn text_of(message: &ToAgent) -> Frame {
    serde_json::to_string(message).unwrap_or_default().into()
}

async fn run(gateway: GatewayState, agent: RemoteAgentRecord, socket: WebSocket) {
    let id = Uuid::from_bytes(agent.uuid);
    let (mut writer, mut reader) = socket.split();
    let (number, Attached { frames, end }) = match begin(&gateway, &agent, &mut reader).await {
        Ok(begun) => begun,
        Err(refusal) => {
            tracing::info!(agent = %id, reason = refusal.reason, "a session is refused");
            return refuse(&mut writer, refusal).await;
        }
    };
    tracing::info!(agent = %id, names = ?agent.names, session = number, "a remote agent is connected");
    let heartbeat_seconds = u32::try_from(HEARTBEAT.as_secs()).unwrap_or(u32::MAX);
    let session = u64::try_from(number).unwrap_or_default();
    let welcome = ToAgent::Welcome(Welcome { agent: id, session, heartbeat_seconds });
    let (finish, finishing) = oneshot::channel();
    let writing = write(writer, text_of(&welcome), frames, finishing);
    let mut writing = tokio::spawn(writing);
    let (reason, refusal) = tokio::select! {
        biased;
        refusal = over(end) => ("it is over", Some(refusal)),
        () = gateway.stop.cancelled() => {
            let reason = "the gateway ends; come again".to_owned();
            ("the gateway ends", Some(Refusal { code: RefusalCode::Unavailable, reason }))
        }
        _ = &mut writing => ("the connection broke", None),
        reason = read(&gateway, id, &mut reader) => (reason, None),
    };
    // First: whoever is revoked or has a newer session counts no more, whether it can be told or not.
    gateway.app.hub().detach(id, number);
    // The writer may have ended before.
    let _ = finish.send(refusal);
    close(&gateway, id, number).await;
    tracing::info!(agent = %id, session = number, reason, "a remote agent is disconnected");
    if !writing.is_finished() {
        // It ends by itself, after the agent was told why, or could not be.
        let _ = writing.await;
    }
}

/// Why the session has to end, as soon as it has to.
async fn over(mut end: watch::Receiver<Option<Refusal>>) -> Refusal {
    while end.changed().await.is_ok() {
        if let Some(refusal) = end.borrow_and_update().clone() {
            return refusal;
        }
    }
    // Nobody knows this session any more.
    superseded()
}

/// Notes the end of a session. Nobody else would, as long as this gateway is alive.
async fn close(gateway: &GatewayState, id: Uuid, number: i64) {
    loop {
        let now = gateway.app.now();
        let closed = gateway
            .app
            .change(move |store| store.records().close_agent_session(id.as_bytes(), number, now));
        let Err(error) = closed.await else { return };
        tracing::warn!(%error, agent = %id, "the end of a session is not noted yet");
        tokio::select! {
            // The end of the gateway is that of all its sessions.
            () = gateway.stop.cancelled() => return,
            () = tokio::time::sleep(NOTE_AGAIN_AFTER) => {}
        }
    }
}

/// Hears who the agent is, and makes this its session.
async fn begin(
    gateway: &GatewayState,
    agent: &RemoteAgentRecord,
    reader: &mut Reader,
) -> Result<(i64, Attached), Refusal> {
    let refused = |code, reason: String| Err(Refusal { code, reason });
    let first = tokio::time::timeout(HELLO_WITHIN, reader.next()).await;
    let first = match first {
        Ok(Some(Ok(Message::Text(text)))) if text.len() <= HELLO_MAX => {
            serde_json::from_str::<FromAgent>(&text).ok()
        }
        _ => None,
    };
    let Some(FromAgent::Hello(hello)) = first else {
        return refused(RefusalCode::Unreadable, "a session begins with hello".to_owned());
    };
    if hello.protocol != PROTOCOL {
        let reason = format!(
            "this gateway speaks protocol {PROTOCOL}, the agent {}: use programs of the same version",
            hello.protocol
        );
        return refused(RefusalCode::Protocol, reason);
    }
    let id = Uuid::from_bytes(agent.uuid);
    let Some(opened) = note(gateway, id, hello).await? else { return Err(revoked().1) };
    if opened.from_another_process {
        warn_of_second(gateway, agent).await;
    }
    let number = opened.number;
    match gateway.app.hub().attach(id, number) {
        Ok(attached) => Ok((number, attached)),
        Err(refusal) => {
            close(gateway, id, number).await;
            Err(refusal)
        }
    }
}

async fn note(
    gateway: &GatewayState,
    id: Uuid,
    hello: Hello,
) -> Result<Option<OpenedSession>, Refusal> {
    let (me, now) = (gateway.id.into_bytes(), gateway.app.now());
    let opened = gateway.app.change(move |store| {
        let facts = serde_json::to_value(clipped(hello.machine)).unwrap_or_default();
        let version = clipped_text(&hello.program_version);
        let new = NewAgentSession {
            gateway: me,
            boot: hello.boot.into_bytes(),
            version: &version,
            facts: &facts,
        };
        store.records().open_agent_session(id.as_bytes(), &new, now)
    });
    opened.await.map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "no session can be opened");
        let reason = "the gateway cannot answer now; its log tells more".to_owned();
        Refusal { code: RefusalCode::Unavailable, reason }
    })
}

/// Two processes with one identity: people have to know.
async fn warn_of_second(gateway: &GatewayState, agent: &RemoteAgentRecord) {
    let (id, environment) = (Uuid::from_bytes(agent.uuid), agent.environment);
    tracing::warn!(agent = %id, "another process of a remote agent took its session over");
    let names = agent.names.join(", ");
    let now = gateway.app.now();
    let noted = gateway.app.change(move |store| {
        let message = format!(
            "Another process took over the session of the remote agent {id} ({names}), which seemed alive. If this happens again and again, \
             two machines use the same identity: revoke it, and invite each of them."
        );
        let new = NewNotification {
            uuid: Uuid::new_v4().into_bytes(),
            title: "A remote agent was started twice",
            message: &message,
            severity: "warning",
            uri: "",
            compile: None,
        };
        store.records().add_notification(environment, &new, now)
    });
    if let Err(error) = noted.await {
        tracing::warn!(%error, "a notification is not kept");
    }
}

async fn refuse(writer: &mut Writer, refusal: Refusal) {
    let told = async {
        let reason = refusal.reason.chars().take(60).collect::<String>();
        let text = text_of(&ToAgent::Refuse(refusal));
        writer.send(Message::Text(text)).await?;
        let frame = CloseFrame { code: close_code::POLICY, reason: reason.into() };
        writer.send(Message::Close(Some(frame))).await
    };
    // An agent that is gone learns it when it comes again.
    let _ = tokio::time::timeout(HELLO_WITHIN, told).await;
}

/// Sends what there is to send, until the session ends.
async fn write(
    mut writer: Writer,
    first: Frame,
    mut frames: mpsc::Receiver<Frame>,
    mut finishing: oneshot::Receiver<Option<Refusal>>,
) {
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    heartbeat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut next = Some(first);
    let told = loop {
        let text = match next.take() {
            Some(text) => text,
            None => tokio::select! {
                biased;
                told = &mut finishing => break told,
                frame = frames.recv() => match frame {
                    Some(frame) => frame,
                    // The session is over; why, is about to be told.
                    None => break (&mut finishing).await,
                },
                _ = heartbeat.tick() => text_of(&ToAgent::Ping),
            },
        };
        tokio::select! {
            biased;
            // What is half sent is sent to its end with what follows.
            told = &mut finishing => break told,
            sent = writer.send(Message::Text(text)) => if sent.is_err() {
                return;
            },
        }
    };
    match told {
        Ok(Some(refusal)) => refuse(&mut writer, refusal).await,
        Ok(None) | Err(_) => {
            let _ = tokio::time::timeout(HELLO_WITHIN, writer.close()).await;
        }
    }
}

/// Takes in what the agent says. The answer is why it does not go on. How long it may be silent is watched below, where bytes count.
async fn read(gateway: &GatewayState, id: Uuid, reader: &mut Reader) -> &'static str {
    loop {
        let message = match reader.next().await {
            None | Some(Ok(Message::Close(_))) => return "the agent closed it",
            Some(Err(_)) => return "the connection broke, or nothing was heard for too long",
            Some(Ok(Message::Text(text))) => parse(text).await,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
            Some(Ok(Message::Binary(_))) => None,
        };
        let Some(message) = message else { return "the agent said what is not understood" };
        if gateway.app.hub().deliver(id, message).is_err() {
            return "the agent said more than it was asked for";
        }
    }
}

/// What a message of an agent or of another server says; `None` if that is not understood.
pub(super) async fn parse<T: DeserializeOwned + Send + 'static>(
    text: impl Deref<Target = str> + Send + 'static,
) -> Option<T> {
    if text.len() < LARGE {
        return serde_json::from_str(&text).ok();
    }
    let parse = move || serde_json::from_str(&text).ok();
    tokio::task::spawn_blocking(parse).await.ok().flatten()
}
