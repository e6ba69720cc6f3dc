//! Server side of peer connections: commands from other processes for agents that are connected
//! here.
//!
//! A process role connects to the gateway that has the session of an agent. It sends messages for
//! the agent, each with the agent's id, and receives the agent's replies to them, and nothing else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::{Sink, SinkExt as _, Stream, StreamExt as _};
use orrery_agent::protocol::{FromAgent, MESSAGE_MAX, RefusalCode, RejectionCode, ToAgent};
use orrery_base::lock::IgnorePoison;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

use super::GatewayState;
use super::admission::{AdmittedServer, Refused};
use super::session::{HEARTBEAT, parse};
use super::session_registry::{CallReply, Frame, NO_PYTHON, OpenCall, SendError, SessionRegistry};

/// Maximum size of a message with its envelope.
pub(super) const FRAME_MAX: usize = MESSAGE_MAX + 4096;

/// A message for an agent about a command, relayed unchanged.
#[derive(Debug, Deserialize)]
struct PeerRequest {
    agent: Uuid,
    id: Uuid,
    /// True for the command itself.
    is_command: bool,
    /// True for a command with a Python handler.
    #[serde(default)]
    needs_python: bool,
    message: Box<RawValue>,
}

/// Kind of a message for an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerMessageKind {
    Command {
        needs_python: bool,
    },
    /// About a command.
    About,
}

/// Wraps a message for an agent for the peer connection.
pub(super) fn envelope(agent: Uuid, id: Uuid, kind: PeerMessageKind, message: &Frame) -> String {
    let message = message.as_str();
    let (is_command, needs_python) = match kind {
        PeerMessageKind::Command { needs_python } => (true, needs_python),
        PeerMessageKind::About => (false, false),
    };
    format!(
        r#"{{"agent":"{agent}","id":"{id}","is_command":{is_command},"needs_python":{needs_python},"message":{message}}}"#
    )
}

/// A reply to a command.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PeerMessage {
    pub(super) agent: Uuid,
    #[serde(flatten)]
    pub(super) event: PeerEvent,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PeerEvent {
    /// Message of the agent.
    Said(FromAgent),
    /// The session of the command is over.
    Broken(Uuid),
    /// The command did not reach the agent.
    NotConnected(Uuid),
}

/// Serves a connection of another process.
pub(super) async fn open(
    State(gateway): State<GatewayState>,
    Extension(AdmittedServer(server)): Extension<AdmittedServer>,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Refused> {
    if server == gateway.peers.id() {
        // Its calls would never be answered.
        let reason = "a process does not dial itself; the --gateway-peer-address of another gateway leads here";
        return Err(Refused::new(StatusCode::CONFLICT, RefusalCode::Other, reason));
    }
    let response = upgrade.max_message_size(FRAME_MAX).max_frame_size(FRAME_MAX).on_upgrade(
        move |socket| async move {
            tracing::info!(%server, "another server connected");
            serve(&gateway, socket).await;
            tracing::info!(%server, "another server disconnected");
        },
    );
    Ok(response)
}

/// Converts a reply to its wire form; true if it is the last one.
fn to_peer_event(id: Uuid, reply: CallReply) -> (PeerEvent, bool) {
    match reply {
        CallReply::Accepted => (PeerEvent::Said(FromAgent::Accepted { id }), false),
        CallReply::Call(call) => (PeerEvent::Said(FromAgent::Call(call)), false),
        CallReply::Announce => (PeerEvent::Said(FromAgent::Announce { id }), false),
        CallReply::Busy => (PeerEvent::Said(FromAgent::Busy { id }), true),
        CallReply::Answer(answer) => (PeerEvent::Said(FromAgent::Result(answer)), true),
        CallReply::Rejected { code, reason } => {
            (PeerEvent::Said(FromAgent::Rejected { id, code, reason }), true)
        }
        CallReply::Broken => (PeerEvent::Broken(id), true),
        CallReply::NotConnected => (PeerEvent::NotConnected(id), true),
    }
}

type Calls = Mutex<HashMap<Uuid, OpenCall>>;
type PeerReply = (Uuid, Uuid, CallReply);

async fn serve(gateway: &GatewayState, socket: WebSocket) {
    let (mut writer, reader) = socket.split();
    tokio::select! {
        () = gateway.stop.cancelled() => {}
        () = relay(&gateway.registry, &mut writer, reader) => {}
    }
    let _ = tokio::time::timeout(HEARTBEAT, writer.close()).await;
}

/// Relays both directions concurrently, so that neither blocks the other. When the connection ends,
/// its calls end; the sender repeats them, here or elsewhere.
async fn relay<E>(
    registry: &Arc<SessionRegistry>,
    writer: &mut (impl Sink<Message> + Unpin),
    reader: impl Stream<Item = Result<Message, E>> + Unpin,
) {
    let calls = Calls::default();
    // Unbounded: there are no more calls than the other process has workers, and few messages per
    // call.
    let (replies_out, replies_in) = mpsc::unbounded_channel();
    tokio::select! {
        () = send_replies(writer, replies_in, &calls) => {}
        () = receive_requests(reader, registry, &calls, &replies_out) => {}
    }
}

async fn send_replies(
    writer: &mut (impl Sink<Message> + Unpin),
    mut replies_in: mpsc::UnboundedReceiver<PeerReply>,
    calls: &Calls,
) {
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            _ = heartbeat.tick() => Message::Ping(Vec::new().into()),
            next_reply = replies_in.recv() => {
                let Some((agent, id, reply)) = next_reply else { return };
                // Results may be large: serialize them on a blocking thread.
                let is_answer = matches!(reply, CallReply::Answer(_));
                let (event, is_last) = to_peer_event(id, reply);
                if is_last {
                    let ended = calls.lock().ignore_poison().remove(&id);
                    drop(ended);
                }
                let write = move || serde_json::to_string(&PeerMessage { agent, event });
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

async fn receive_requests<E>(
    mut reader: impl Stream<Item = Result<Message, E>> + Unpin,
    registry: &Arc<SessionRegistry>,
    calls: &Calls,
    replies_out: &mpsc::UnboundedSender<PeerReply>,
) {
    loop {
        let text = match reader.next().await {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
            _ => return,
        };
        let Some(sent) = parse(text).await else { return };
        handle_request(registry, sent, calls, replies_out);
    }
}

/// Relays a message to its agent.
fn handle_request(
    registry: &Arc<SessionRegistry>,
    sent: PeerRequest,
    calls: &Calls,
    replies_out: &mpsc::UnboundedSender<PeerReply>,
) {
    let PeerRequest { agent, id, is_command, needs_python, message } = sent;
    let text: Box<str> = message.into();
    if is_command {
        if !text.starts_with(r#"{"command":"#) {
            return;
        }
        // The former call first: dropping it later would close the new one.
        let former = calls.lock().ignore_poison().remove(&id);
        drop(former);
        let replies = replies_out.clone();
        // Fails only if the connection has ended.
        let sink = Box::new(move |reply| drop(replies.send((agent, id, reply))));
        let open = registry.open_call(id, agent, sink);
        calls.lock().ignore_poison().insert(id, open);
        if needs_python && registry.lacks_python(agent) {
            let (code, reason) = (RejectionCode::UnknownType, NO_PYTHON.to_owned());
            let _ = replies_out.send((agent, id, CallReply::Rejected { code, reason }));
            return;
        }
        let reply = match registry.send(agent, Frame::from(String::from(text))) {
            Ok(()) => return,
            Err(SendError::Full) => CallReply::Busy,
            Err(_) => CallReply::NotConnected,
        };
        let _ = replies_out.send((agent, id, reply));
        return;
    }
    // No other messages are relayed.
    let is_relayed = text.starts_with(r#"{"reply":"#)
        || matches!(
            serde_json::from_str(&text),
            Ok(ToAgent::Cancel { .. } | ToAgent::Announced { .. })
        );
    if is_relayed && registry.send(agent, Frame::from(String::from(text))).is_err() {
        // The sender then repeats the command, and the agent reports its state.
        let _ = replies_out.send((agent, id, CallReply::Broken));
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use super::super::session_registry::AttachedSession;
    use super::*;

    const AGENT: Uuid = Uuid::from_u128(1);
    const PATIENCE: Duration = Duration::from_secs(20);

    fn command(id: Uuid) -> Result<Message, Infallible> {
        let command = Frame::from(format!(r#"{{"command":"{id}"}}"#));
        Ok(Message::text(envelope(
            AGENT,
            id,
            PeerMessageKind::Command { needs_python: false },
            &command,
        )))
    }

    #[test]
    fn python_handlers_and_replies_reach_only_agents_that_know_them() {
        let registry = Arc::new(SessionRegistry::new(crate::GatewayMetrics::default()));
        let id = Uuid::from_u128(2);
        let send = |kind, message: &str| {
            let (replies_out, mut replies) = mpsc::unbounded_channel();
            let text = envelope(AGENT, id, kind, &Frame::from(message.to_owned()));
            let request: PeerRequest = serde_json::from_str(&text).unwrap();
            let calls = Calls::default();
            handle_request(&registry, request, &calls, &replies_out);
            replies.try_recv().ok()
        };
        let command = format!(r#"{{"command":"{id}"}}"#);
        let python = PeerMessageKind::Command { needs_python: true };
        let _older = registry.attach(AGENT, 1, false).unwrap();
        let refused = send(python, &command);
        let code = RejectionCode::UnknownType;
        assert!(
            matches!(&refused, Some((_, _, CallReply::Rejected { code: is, .. })) if *is == code),
            "{refused:?}"
        );
        assert!(send(PeerMessageKind::Command { needs_python: false }, &command).is_none());
        let AttachedSession { mut frames, .. } = registry.attach(AGENT, 2, true).unwrap();
        assert!(send(python, &command).is_none());
        let reply = format!(r#"{{"reply":{{"id":"{id}","call":1,"status":200,"result":null}}}}"#);
        assert!(send(PeerMessageKind::About, &reply).is_none());
        assert_eq!(frames.try_recv().unwrap().as_str(), command);
        assert_eq!(frames.try_recv().unwrap().as_str(), reply);
        assert!(send(PeerMessageKind::About, r#"{"refuse":{}}"#).is_none());
        assert!(frames.try_recv().is_err(), "nothing else is relayed");
    }

    #[test]
    fn requests_do_not_wait_for_replies() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(async {
            let registry = Arc::new(SessionRegistry::new(crate::GatewayMetrics::default()));
            let AttachedSession { mut frames, .. } = registry.attach(AGENT, 1, false).unwrap();
            let (first, second) = (Uuid::from_u128(2), Uuid::from_u128(3));
            let (stuck, is_stuck) = tokio::sync::oneshot::channel();
            // The other server is writing and reads nothing.
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
                registry.deliver(AGENT, FromAgent::Accepted { id: first }).unwrap();
                assert!(frames.recv().await.unwrap().contains(&second.to_string()));
            };
            let passed = tokio::select! {
                () = relay(&registry, &mut writer, Box::pin(asked)) => false,
                passed = tokio::time::timeout(PATIENCE, agent) => passed.is_ok(),
            };
            assert!(passed, "the second command waits for the other server to read");
        });
    }
}
