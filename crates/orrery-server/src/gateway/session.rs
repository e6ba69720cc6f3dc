//! One session of one remote agent: its beginning, its messages, its end.

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
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::GatewayState;
use super::admission::{AdmittedAgent, revoked};
use super::hub::{Attached, Frame};

/// How often the gateway says something.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(10);
/// A session in which nothing was heard for so long is dead.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(30);
/// An agent introduces itself within this time.
const HELLO_WITHIN: Duration = Duration::from_secs(10);
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
    upgrade
        .max_message_size(FRAME_MAX)
        .max_frame_size(FRAME_MAX)
        .on_upgrade(move |socket| run(gateway, agent, socket))
}

/// The text of a message; our own types can always be written.
pub(crate) fn text_of(message: &ToAgent) -> Frame {
    serde_json::to_string(message).unwrap_or_default().into()
}

async fn run(gateway: GatewayState, agent: RemoteAgentRecord, socket: WebSocket) {
    let id = Uuid::from_bytes(agent.uuid);
    let (mut writer, mut reader) = socket.split();
    let (number, attached) = match begin(&gateway, &agent, &mut reader).await {
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
    let over = CancellationToken::new();
    let first = text_of(&welcome);
    let (ended, stopping) = (over.clone(), gateway.stop.clone());
    let writing = tokio::spawn(async move {
        write(writer, first, attached, &ended, &stopping).await;
        ended.cancel();
    });
    let reason = tokio::select! {
        reason = read(&gateway, id, &mut reader) => reason,
        () = over.cancelled() => "it was closed here",
    };
    over.cancel();
    gateway.app.hub().detach(id, number);
    let now = gateway.app.now();
    let closed = gateway
        .app
        .change(move |store| store.records().close_agent_session(id.as_bytes(), number, now))
        .await;
    if let Err(error) = closed {
        // The gateway's next sign of life does not count this session any more.
        tracing::warn!(%error, agent = %id, "the end of a session is not noted yet");
    }
    tracing::info!(agent = %id, session = number, reason, "a remote agent is disconnected");
    // It ends by itself, now or after the agent was told why.
    let _ = tokio::time::timeout(SILENCE_MAX, writing).await;
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
        Ok(Some(Ok(Message::Text(text)))) => serde_json::from_str::<FromAgent>(&text).ok(),
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
    let attached = gateway.app.hub().attach(id, number)?;
    Ok((number, attached))
}

async fn note(
    gateway: &GatewayState,
    id: Uuid,
    hello: Hello,
) -> Result<Option<OpenedSession>, Refusal> {
    let (me, now) = (gateway.id.into_bytes(), gateway.app.now());
    let opened = gateway.app.change(move |store| {
        let facts = serde_json::to_value(&hello.machine).unwrap_or_default();
        let new = NewAgentSession {
            gateway: me,
            boot: hello.boot.into_bytes(),
            version: &hello.program_version,
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

/// Sends what there is to send, until the session has to end.
async fn write(
    mut writer: Writer,
    first: Frame,
    mut attached: Attached,
    over: &CancellationToken,
    stopping: &CancellationToken,
) {
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    heartbeat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut next = Some(first);
    loop {
        if let Some(text) = next.take() {
            match tokio::time::timeout(SILENCE_MAX, writer.send(Message::Text(text))).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
        tokio::select! {
            biased;
            () = over.cancelled() => {
                let _ = tokio::time::timeout(HELLO_WITHIN, writer.close()).await;
                return;
            }
            () = stopping.cancelled() => {
                let reason = "the gateway ends; come again".to_owned();
                let code = RefusalCode::Unavailable;
                return refuse(&mut writer, Refusal { code, reason }).await;
            }
            Ok(()) = attached.end.changed() => {
                let told = attached.end.borrow().clone();
                if let Some(refusal) = told {
                    return refuse(&mut writer, refusal).await;
                }
            }
            frame = attached.frames.recv() => match frame {
                Some(frame) => next = Some(frame),
                None => {
                    // A newer session has taken this one's place; why, is about to be told.
                    let told = attached.end.borrow().clone();
                    return refuse(&mut writer, told.unwrap_or_else(super::hub::superseded)).await;
                }
            },
            _ = heartbeat.tick() => next = Some(text_of(&ToAgent::Ping)),
        }
    }
}

/// Takes in what the agent says. The answer is why it does not go on.
async fn read(gateway: &GatewayState, id: Uuid, reader: &mut Reader) -> &'static str {
    loop {
        let message = match tokio::time::timeout(SILENCE_MAX, reader.next()).await {
            Err(_) => return "nothing was heard for too long",
            Ok(None | Some(Ok(Message::Close(_)))) => return "the agent closed it",
            Ok(Some(Err(_))) => return "the connection broke",
            Ok(Some(Ok(Message::Text(text)))) => parse(text).await,
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => continue,
            Ok(Some(Ok(Message::Binary(_)))) => None,
        };
        match message {
            Some(message) => gateway.app.hub().deliver(id, message),
            None => return "the agent said what is not understood",
        }
    }
}

async fn parse(text: Frame) -> Option<FromAgent> {
    if text.len() < LARGE {
        return serde_json::from_str(&text).ok();
    }
    tokio::task::spawn_blocking(move || serde_json::from_str(&text).ok()).await.ok().flatten()
}
