//! Commands from other processes of the installation, for agents that are connected here.
//!
//! A process role that wants something of an agent dials the gateway that has its session. What it sends are the messages for the agent, each
//! with the agent's id; what it gets are the agent's answers to them, and to nothing else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::{Sink, SinkExt as _, Stream, StreamExt as _};
use orrery_agent::protocol::{FromAgent, MESSAGE_MAX, RefusalCode, ToAgent};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

use super::GatewayState;
use super::admission::{AdmittedServer, Refused};
use super::hub::{Frame, Hub, NotSent, OpenCall, Reply};
use super::session::{HEARTBEAT, parse};

/// A message with what stands around it.
pub(super) const FRAME_MAX: usize = MESSAGE_MAX + 4096;

/// A message for an agent, about a command. It is passed on as it is.
#[derive(Debug, Deserialize)]
struct Sent {
    agent: Uuid,
    id: Uuid,
    /// It is the command itself.
    is_command: bool,
    message: Box<RawValue>,
}

/// A message for an agent, as other processes send it.
pub(super) fn envelope(agent: Uuid, id: Uuid, is_command: bool, message: &Frame) -> String {
    let message = message.as_str();
    format!(r#"{{"agent":"{agent}","id":"{id}","is_command":{is_command},"message":{message}}}"#)
}

/// What is heard of a command.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Heard {
    pub(super) agent: Uuid,
    #[serde(flatten)]
    pub(super) what: What,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    /// The agent said this.
    Said(FromAgent),
    /// The session is over through which it was sent.
    Broken(Uuid),
    /// It did not get to the agent.
    NotConnected(Uuid),
}

/// Serves another process.
pub(super) async fn open(
    State(gateway): State<GatewayState>,
    Extension(AdmittedServer(server)): Extension<AdmittedServer>,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Refused> {
    if server == gateway.app.links().id() {
        // Its calls would be taken for those of another process, and never be answered.
        let reason = "a process does not dial itself; the --gateway-peer-address of another gateway leads here";
        return Err(Refused::new(StatusCode::CONFLICT, RefusalCode::Other, reason));
    }
    let response = upgrade.max_message_size(FRAME_MAX).max_frame_size(FRAME_MAX).on_upgrade(
        move |socket| async move {
            tracing::info!(%server, "another server is connected");
            serve(&gateway, socket).await;
            tracing::info!(%server, "another server is disconnected");
        },
    );
    Ok(response)
}

/// What a reply is on the wire, and whether nothing follows it.
fn told(id: Uuid, reply: Reply) -> (What, bool) {
    match reply {
        Reply::Accepted => (What::Said(FromAgent::Accepted { id }), false),
        Reply::Announce => (What::Said(FromAgent::Announce { id }), false),
        Reply::Busy => (What::Said(FromAgent::Busy { id }), true),
        Reply::Answer(answer) => (What::Said(FromAgent::Result(answer)), true),
        Reply::Rejected { code, reason } => {
            (What::Said(FromAgent::Rejected { id, code, reason }), true)
        }
        Reply::Broken => (What::Broken(id), true),
        Reply::NotConnected => (What::NotConnected(id), true),
    }
}

type Calls = Mutex<HashMap<Uuid, OpenCall>>;
type Told = (Uuid, Uuid, Reply);

async fn serve(gateway: &GatewayState, socket: WebSocket) {
    let (mut writer, reader) = socket.split();
    tokio::select! {
        () = gateway.stop.cancelled() => {}
        () = talk(gateway.app.hub(), &mut writer, reader) => {}
    }
    let _ = tokio::time::timeout(HEARTBEAT, writer.close()).await;
}

/// Both directions at once: what is sent must not wait for what is read, nor the other way round. When it ends, so do all calls; who asked sends
/// them again, here or elsewhere.
async fn talk<E>(
    hub: &Arc<Hub>,
    writer: &mut (impl Sink<Message> + Unpin),
    reader: impl Stream<Item = Result<Message, E>> + Unpin,
) {
    let calls = Calls::default();
    // Calls are few: as many as the other process has workers. Of each, not much is heard before it has an end.
    let (tell, heard) = mpsc::unbounded_channel();
    tokio::select! {
        () = tell_all(writer, heard, &calls) => {}
        () = take_all(reader, hub, &calls, &tell) => {}
    }
}

fn lock(calls: &Calls) -> MutexGuard<'_, HashMap<Uuid, OpenCall>> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn tell_all(
    writer: &mut (impl Sink<Message> + Unpin),
    mut heard: mpsc::UnboundedReceiver<Told>,
    calls: &Calls,
) {
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            _ = heartbeat.tick() => Message::Ping(Vec::new().into()),
            told_next = heard.recv() => {
                let Some((agent, id, reply)) = told_next else { return };
                // Answers may be large, and are written where that keeps nobody waiting.
                let is_answer = matches!(reply, Reply::Answer(_));
                let (what, is_last) = told(id, reply);
                if is_last {
                    let ended = lock(calls).remove(&id);
                    drop(ended);
                }
                let write = move || serde_json::to_string(&Heard { agent, what });
                let text = if is_answer {
                    tokio::task::spawn_blocking(write).await.ok()
                } else {
                    Some(write())
                };
                let Some(Ok(text)) = text else { return };
                Message::text(text)
            }
        };
        if writer.send(message).await.is_err() {
            return;
        }
    }
}

async fn take_all<E>(
    mut reader: impl Stream<Item = Result<Message, E>> + Unpin,
    hub: &Arc<Hub>,
    calls: &Calls,
    tell: &mpsc::UnboundedSender<Told>,
) {
    loop {
        let text = match reader.next().await {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
            _ => return,
        };
        let Some(sent) = parse(text).await else { return };
        take(hub, sent, calls, tell);
    }
}

/// Passes a message on to its agent.
fn take(hub: &Arc<Hub>, sent: Sent, calls: &Calls, tell: &mpsc::UnboundedSender<Told>) {
    let Sent { agent, id, is_command, message } = sent;
    let text: Box<str> = message.into();
    if is_command {
        if !text.starts_with(r#"{"command":"#) {
            return;
        }
        // The former one first: it would close this one.
        let former = lock(calls).remove(&id);
        drop(former);
        let told = tell.clone();
        // A process that is gone hears nothing.
        let sink = Box::new(move |reply| drop(told.send((agent, id, reply))));
        let open = hub.open_call(id, agent, sink);
        lock(calls).insert(id, open);
        let reply = match hub.send(agent, Frame::from(String::from(text))) {
            Ok(()) => return,
            Err(NotSent::Full) => Reply::Busy,
            Err(NotSent::NotConnected | NotSent::Soon) => Reply::NotConnected,
        };
        let _ = tell.send((agent, id, reply));
        return;
    }
    // Everything else is between this gateway and its agents.
    if let Ok(ToAgent::Cancel { .. } | ToAgent::Announced { .. }) = serde_json::from_str(&text)
        && hub.send(agent, Frame::from(String::from(text))).is_err()
    {
        // The command is sent again then, and the agent says how far it is.
        let _ = tell.send((agent, id, Reply::Broken));
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use super::super::hub::Attached;
    use super::*;

    const AGENT: Uuid = Uuid::from_u128(1);
    const PATIENCE: Duration = Duration::from_secs(20);

    fn command(id: Uuid) -> Result<Message, Infallible> {
        let command = Frame::from(format!(r#"{{"command":"{id}"}}"#));
        Ok(Message::text(envelope(AGENT, id, true, &command)))
    }

    #[test]
    fn what_is_asked_for_does_not_wait_for_what_is_told() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(async {
            let hub = Arc::new(Hub::new(Arc::default()));
            let Attached { mut frames, .. } = hub.attach(AGENT, 1).unwrap();
            let (first, second) = (Uuid::from_u128(2), Uuid::from_u128(3));
            let (stuck, is_stuck) = tokio::sync::oneshot::channel();
            // The other server is busy with what it says, and takes nothing.
            let mut writer = Box::pin(futures_util::sink::unfold(
                Some(stuck),
                |stuck: Option<tokio::sync::oneshot::Sender<()>>, message| async move {
                    let Message::Text(_) = message else { return Ok::<_, Infallible>(stuck) };
                    drop(stuck);
                    std::future::pending().await
                },
            ));
            let more = async {
                let _ = is_stuck.await;
                command(second)
            };
            let asked = futures_util::stream::iter([command(first)])
                .chain(futures_util::stream::once(more))
                .chain(futures_util::stream::pending());
            let agent = async {
                assert!(frames.recv().await.unwrap().contains(&first.to_string()));
                hub.deliver(AGENT, FromAgent::Accepted { id: first }).unwrap();
                assert!(frames.recv().await.unwrap().contains(&second.to_string()));
            };
            let passed = tokio::select! {
                () = talk(&hub, &mut writer, Box::pin(asked)) => false,
                passed = tokio::time::timeout(PATIENCE, agent) => passed.is_ok(),
            };
            assert!(passed, "the second command waits for the other server to read");
        });
    }
}
