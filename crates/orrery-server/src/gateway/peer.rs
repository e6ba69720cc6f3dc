//! Commands from other processes of the installation, for agents that are connected here.
//!
//! A process role that wants something of an agent dials the gateway that has its session. What it sends are the messages for the agent, each
//! with the agent's id; what it gets are the agent's answers to them, and to nothing else.

use std::collections::HashMap;

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::{SinkExt as _, StreamExt as _};
use orrery_agent::protocol::{FromAgent, MESSAGE_MAX, RefusalCode, ToAgent};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

use super::GatewayState;
use super::admission::{AdmittedServer, Refused};
use super::hub::{NotSent, OpenCall, Reply};
use super::session::{HEARTBEAT, SILENCE_MAX, text_of};

/// A message with what stands around it.
pub(super) const FRAME_MAX: usize = MESSAGE_MAX + 4096;

/// A message for an agent.
#[derive(Debug, Deserialize)]
struct Sent {
    agent: Uuid,
    message: ToAgent,
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

async fn serve(gateway: &GatewayState, mut socket: WebSocket) {
    let mut calls: HashMap<Uuid, OpenCall> = HashMap::new();
    // Calls are few: as many as the other process has workers. What is heard of them is not more.
    let (tell, mut heard) = mpsc::unbounded_channel::<(Uuid, Uuid, Reply)>();
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let silence = tokio::time::sleep(SILENCE_MAX);
    tokio::pin!(silence);
    loop {
        let next = tokio::select! {
            () = gateway.stop.cancelled() => break,
            () = &mut silence => break,
            _ = heartbeat.tick() => Some(Message::Ping(Vec::new().into())),
            Some((agent, id, reply)) = heard.recv() => {
                let (what, is_last) = told(id, reply);
                if is_last {
                    calls.remove(&id);
                }
                let text = serde_json::to_string(&Heard { agent, what }).unwrap_or_default();
                Some(Message::text(text))
            }
            message = socket.next() => {
                silence.as_mut().reset(tokio::time::Instant::now() + SILENCE_MAX);
                match message {
                    Some(Ok(Message::Text(text))) => {
                        let parsed = tokio::task::spawn_blocking(move || serde_json::from_str(&text));
                        let Ok(Ok(sent)) = parsed.await else { break };
                        take(gateway, sent, &mut calls, &tell);
                        None
                    }
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => None,
                    _ => break,
                }
            }
        };
        if let Some(message) = next {
            match tokio::time::timeout(SILENCE_MAX, socket.send(message)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => break,
            }
        }
    }
    // Who asked sends it again, here or elsewhere.
    drop(calls);
    let _ = tokio::time::timeout(HEARTBEAT, socket.close()).await;
}

/// Passes a message on to its agent.
fn take(
    gateway: &GatewayState,
    Sent { agent, message }: Sent,
    calls: &mut HashMap<Uuid, OpenCall>,
    tell: &mpsc::UnboundedSender<(Uuid, Uuid, Reply)>,
) {
    let hub = gateway.app.hub();
    match &message {
        ToAgent::Command(command) => {
            let id = command.id;
            // The former one first: it would close this one.
            drop(calls.remove(&id));
            let told = tell.clone();
            // A process that is gone hears nothing.
            let sink = Box::new(move |reply| drop(told.send((agent, id, reply))));
            calls.insert(id, hub.open_call(id, agent, sink));
            let reply = match hub.send(agent, text_of(&message)) {
                Ok(()) => return,
                Err(NotSent::Full) => Reply::Busy,
                Err(NotSent::NotConnected) => Reply::NotConnected,
            };
            let _ = tell.send((agent, id, reply));
        }
        ToAgent::Cancel { .. } | ToAgent::Announced { .. } => {
            // If it is lost, so is the session, and the command is sent again.
            let _ = hub.send(agent, text_of(&message));
        }
        // Everything else is between this gateway and its agents.
        ToAgent::Welcome(_) | ToAgent::Refuse(_) | ToAgent::Ping => {}
    }
}
