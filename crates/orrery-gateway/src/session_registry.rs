//! Registry of the sessions of remote agents and of the calls that wait for replies.
//!
//! Nothing here blocks. A call accepts replies only from its own agent, so no agent can answer for
//! another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use orrery_agent::protocol::{
    CommandResult, FromAgent, HandlerCall, Refusal, RefusalCode, RejectionCode,
};
use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use crate::metrics::GatewayMetrics;

/// Text of a message, cheap to clone.
pub(crate) type Frame = axum::extract::ws::Utf8Bytes;

/// Queue length per agent.
const QUEUE_MAX: usize = 1024;
/// Maximum number of sessions per gateway.
const SESSIONS_MAX: usize = 20_000;
/// Maximum number of messages about one command per session.
const MESSAGES_MAX: u32 = 10_000;

/// Reply to a command.
#[derive(Debug)]
pub(crate) enum CallReply {
    Accepted,
    Busy,
    Announce,
    Call(Box<HandlerCall>),
    Answer(Box<CommandResult>),
    Rejected {
        code: RejectionCode,
        reason: String,
    },
    /// The session of the command is over.
    Broken,
    /// The command did not reach the agent.
    NotConnected,
}

/// Receives the replies to a command. Must neither block nor call the registry.
pub(crate) type ReplySink = Box<dyn Fn(CallReply) + Send>;

struct PendingCall {
    agent: Uuid,
    sink: ReplySink,
    /// Messages received in the current session.
    message_count: u32,
    /// The final reply has arrived.
    is_over: bool,
}

struct Session {
    number: i64,
    runs_python: bool,
    frames: mpsc::Sender<Frame>,
    end: watch::Sender<Option<Refusal>>,
    /// Time of the ping that waits for its answer.
    pinged: Option<Instant>,
    /// Last round trip.
    latency: Option<Duration>,
}

/// The session's side of its registration.
#[derive(Debug)]
pub(crate) struct AttachedSession {
    /// Messages to send to the agent.
    pub(crate) frames: mpsc::Receiver<Frame>,
    /// Set when the session must end.
    pub(crate) end: watch::Receiver<Option<Refusal>>,
}

/// Reason why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendError {
    NotConnected,
    /// The queue of the agent is full.
    Full,
    /// A connection is being established; retry shortly.
    Connecting,
    /// The agent runs native handlers only.
    Unsupported,
}

/// An agent exceeded the message limit of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyMessages;

/// The gateway of this process.
#[derive(Clone, Debug)]
pub struct OwnGateway {
    pub id: Uuid,
    /// Address for other servers.
    pub peer_address: String,
}

#[derive(Default)]
struct Inner {
    sessions: HashMap<Uuid, Session>,
    calls: HashMap<Uuid, PendingCall>,
}

/// Remote agents that are connected to this process.
pub struct SessionRegistry {
    inner: Mutex<Inner>,
    metrics: GatewayMetrics,
    /// The gateway of this process, if it has one.
    gateway: Mutex<Option<OwnGateway>>,
}

impl std::fmt::Debug for SessionRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inner = self.lock();
        f.debug_struct("SessionRegistry")
            .field("sessions", &inner.sessions.len())
            .field("calls", &inner.calls.len())
            .finish()
    }
}

/// An open call; dropping it closes the call.
#[derive(Debug)]
pub(crate) struct OpenCall {
    registry: Arc<SessionRegistry>,
    id: Uuid,
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.registry.lock().calls.remove(&self.id);
    }
}

impl Inner {
    /// Notifies all calls to this agent that its session is over.
    fn notify_broken(&mut self, agent: Uuid) {
        for call in self.calls.values_mut().filter(|call| call.agent == agent) {
            call.message_count = 0;
            (call.sink)(CallReply::Broken);
        }
    }
}

impl SessionRegistry {
    pub fn new(metrics: GatewayMetrics) -> Self {
        SessionRegistry { inner: Mutex::default(), metrics, gateway: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().ignore_poison()
    }

    /// Sets the gateway of this process; `None` when it stops.
    pub(crate) fn set_gateway(&self, id: Option<OwnGateway>) {
        *self.gateway.lock().ignore_poison() = id;
    }

    /// The gateway of this process.
    pub fn gateway(&self) -> Option<OwnGateway> {
        self.gateway.lock().ignore_poison().clone()
    }

    /// Registers a session and ends the agent's former one.
    pub(crate) fn attach(
        &self,
        agent: Uuid,
        number: i64,
        runs_python: bool,
    ) -> Result<AttachedSession, Refusal> {
        let mut inner = self.lock();
        if inner.sessions.get(&agent).is_some_and(|known| known.number > number) {
            return Err(superseded());
        }
        if inner.sessions.len() >= SESSIONS_MAX {
            let reason = "this gateway has too many agents".to_owned();
            return Err(Refusal { code: RefusalCode::Unavailable, reason });
        }
        let (sender, frames) = mpsc::channel(QUEUE_MAX);
        let (ender, end) = watch::channel(None);
        let session = Session {
            number,
            runs_python,
            frames: sender,
            end: ender,
            pinged: None,
            latency: None,
        };
        match inner.sessions.insert(agent, session) {
            Some(former) => {
                former.end.send_replace(Some(superseded()));
                inner.notify_broken(agent);
            }
            None => drop(self.metrics.sessions.inc()),
        }
        self.check_invariants(&inner);
        Ok(AttachedSession { frames, end })
    }

    /// Unregisters a session, unless a newer one has replaced it.
    pub(crate) fn detach(&self, agent: Uuid, number: i64) {
        let mut inner = self.lock();
        if inner.sessions.get(&agent).is_some_and(|known| known.number == number) {
            inner.sessions.remove(&agent);
            self.metrics.sessions.dec();
            self.check_invariants(&inner);
            inner.notify_broken(agent);
        }
    }

    /// Checks that the gauge counts the sessions, in debug builds.
    fn check_invariants(&self, inner: &Inner) {
        debug_assert_eq!(
            usize::try_from(self.metrics.sessions.get()),
            Ok(inner.sessions.len()),
            "the gauge of sessions is wrong"
        );
    }

    /// Ends a session, with the reason for the agent.
    pub(crate) fn end(&self, agent: Uuid, number: i64, refusal: Refusal) {
        let inner = self.lock();
        if let Some(session) = inner.sessions.get(&agent).filter(|known| known.number == number) {
            session.end.send_replace(Some(refusal));
        }
    }

    /// Returns the connected agents and their session numbers.
    pub(crate) fn sessions(&self) -> Vec<(Uuid, i64)> {
        self.lock().sessions.iter().map(|(agent, session)| (*agent, session.number)).collect()
    }

    /// Records that a ping is sent. One that was not answered yet counts from its own time.
    pub(crate) fn record_ping(&self, agent: Uuid, number: i64) {
        let mut inner = self.lock();
        let session = inner.sessions.get_mut(&agent).filter(|session| session.number == number);
        if let Some(session) = session {
            session.pinged.get_or_insert_with(monotonic);
        }
    }

    fn record_pong(&self, agent: Uuid) {
        let mut inner = self.lock();
        if let Some(session) = inner.sessions.get_mut(&agent)
            && let Some(pinged) = session.pinged.take()
        {
            session.latency = Some(pinged.elapsed());
        }
    }

    /// Returns the last round trips of the connected agents. A ping that waits for its answer for
    /// longer counts with its age.
    pub(crate) fn latencies(&self) -> Vec<(Uuid, Duration)> {
        let inner = self.lock();
        let latency = |session: &Session| {
            let waiting = session.pinged.map(|pinged| pinged.elapsed());
            session.latency.map(|latency| waiting.map_or(latency, |waiting| waiting.max(latency)))
        };
        let measured = inner.sessions.iter();
        measured.filter_map(|(agent, session)| Some((*agent, latency(session)?))).collect()
    }

    /// Returns the session number of a connected agent.
    pub(crate) fn session(&self, agent: Uuid) -> Option<i64> {
        self.lock().sessions.get(&agent).map(|session| session.number)
    }

    /// Returns true if an agent that is connected here runs native handlers only.
    pub(crate) fn lacks_python(&self, agent: Uuid) -> bool {
        self.lock().sessions.get(&agent).is_some_and(|session| !session.runs_python)
    }

    /// Opens a call, before its command is sent.
    pub(crate) fn open_call(self: &Arc<Self>, id: Uuid, agent: Uuid, sink: ReplySink) -> OpenCall {
        self.lock().calls.insert(id, PendingCall { agent, sink, message_count: 0, is_over: false });
        OpenCall { registry: Arc::clone(self), id }
    }

    /// Sends a message to an agent that is connected here.
    pub(crate) fn send(&self, agent: Uuid, frame: Frame) -> Result<(), SendError> {
        let inner = self.lock();
        let session = inner.sessions.get(&agent).ok_or(SendError::NotConnected)?;
        session.frames.try_send(frame).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SendError::Full,
            mpsc::error::TrySendError::Closed(_) => SendError::NotConnected,
        })
    }

    /// Delivers a message of an agent to the call that it concerns, if that call is to this agent;
    /// drops other messages.
    pub(crate) fn deliver(&self, agent: Uuid, message: FromAgent) -> Result<(), TooManyMessages> {
        let (id, reply) = match message {
            FromAgent::Accepted { id } => (id, CallReply::Accepted),
            FromAgent::Busy { id } => (id, CallReply::Busy),
            FromAgent::Announce { id } => (id, CallReply::Announce),
            FromAgent::Call(call) => (call.id, CallReply::Call(call)),
            FromAgent::Result(answer) => (answer.id, CallReply::Answer(answer)),
            FromAgent::Rejected { id, code, reason } => (id, CallReply::Rejected { code, reason }),
            FromAgent::Pong => {
                self.record_pong(agent);
                return Ok(());
            }
            FromAgent::Hello(_) | FromAgent::Drift(_) => return Ok(()),
        };
        let mut inner = self.lock();
        let call = inner.calls.get_mut(&id);
        let Some(call) = call.filter(|call| call.agent == agent && !call.is_over) else {
            tracing::debug!(%agent, %id, "no call waits for this reply");
            return Ok(());
        };
        call.message_count += 1;
        if call.message_count > MESSAGES_MAX {
            return Err(TooManyMessages);
        }
        call.is_over = matches!(reply, CallReply::Answer(_) | CallReply::Rejected { .. });
        (call.sink)(reply);
        Ok(())
    }

    /// Delivers a reply that came through another process.
    pub(crate) fn deliver_from_peer(&self, agent: Uuid, id: Uuid, reply: CallReply) {
        let mut inner = self.lock();
        if let Some(call) = inner.calls.get_mut(&id).filter(|call| call.agent == agent) {
            call.message_count = 0;
            (call.sink)(reply);
        }
    }

    pub(crate) fn metrics(&self) -> &GatewayMetrics {
        &self.metrics
    }
}

/// Rejection of a Python handler by an agent that runs native handlers only.
pub(crate) const NO_PYTHON: &str = "the remote agent is older than the server, and runs native handlers only; install the program of the server's version on its machine";

pub(crate) fn superseded() -> Refusal {
    Refusal {
        code: RefusalCode::Superseded,
        reason: "there is a newer session of this agent: does another process use its state directory, or a copy of it?"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    const AGENT: Uuid = Uuid::from_u128(1);
    const OTHER: Uuid = Uuid::from_u128(2);
    const CALL: Uuid = Uuid::from_u128(3);

    fn registry() -> Arc<SessionRegistry> {
        Arc::new(SessionRegistry::new(GatewayMetrics::default()))
    }

    fn call(registry: &Arc<SessionRegistry>) -> (OpenCall, Receiver<CallReply>) {
        let (sender, replies) = channel();
        let sink = Box::new(move |reply| drop(sender.send(reply)));
        (registry.open_call(CALL, AGENT, sink), replies)
    }

    #[test]
    fn an_agent_answers_only_what_it_was_asked() {
        let registry = registry();
        let (open, replies) = call(&registry);
        registry.deliver(OTHER, FromAgent::Accepted { id: CALL }).unwrap();
        assert!(replies.try_recv().is_err(), "another agent cannot answer");
        registry.deliver(AGENT, FromAgent::Accepted { id: CALL }).unwrap();
        assert!(matches!(replies.try_recv(), Ok(CallReply::Accepted)));
        drop(open);
        registry.deliver(AGENT, FromAgent::Accepted { id: CALL }).unwrap();
        assert!(replies.try_recv().is_err(), "the call is closed");
    }

    #[test]
    fn the_newest_session_gets_what_is_sent() {
        let registry = registry();
        assert_eq!(registry.send(AGENT, "a".into()), Err(SendError::NotConnected));
        let mut first = registry.attach(AGENT, 1, false).unwrap();
        let (_open, replies) = call(&registry);
        let mut second = registry.attach(AGENT, 2, false).unwrap();
        assert!(matches!(replies.try_recv(), Ok(CallReply::Broken)), "it has to be sent again");
        let refusal = first.end.borrow().clone().unwrap();
        assert_eq!(refusal.code, RefusalCode::Superseded);
        assert_eq!(registry.attach(AGENT, 1, false).unwrap_err().code, RefusalCode::Superseded);
        registry.send(AGENT, "b".into()).unwrap();
        assert_eq!(second.frames.try_recv().unwrap().as_str(), "b");
        assert!(first.frames.try_recv().is_err());
        registry.detach(AGENT, 1);
        assert_eq!(
            registry.sessions(),
            [(AGENT, 2)],
            "the end of an older session changes nothing"
        );
        registry.detach(AGENT, 2);
        assert!(matches!(replies.try_recv(), Ok(CallReply::Broken)));
        assert!(registry.sessions().is_empty());
    }

    #[test]
    fn too_many_messages_are_refused_and_one_result_is_enough() {
        let registry = registry();
        let (_open, replies) = call(&registry);
        for _ in 0..MESSAGES_MAX {
            registry.deliver(AGENT, FromAgent::Announce { id: CALL }).unwrap();
        }
        assert_eq!(registry.deliver(AGENT, FromAgent::Announce { id: CALL }), Err(TooManyMessages));
        assert_eq!(replies.try_iter().count(), MESSAGES_MAX as usize);
        let rejected =
            || FromAgent::Rejected { id: CALL, code: RejectionCode::Unable, reason: String::new() };
        registry.deliver_from_peer(AGENT, CALL, CallReply::Broken);
        registry.deliver(AGENT, rejected()).unwrap();
        registry.deliver(AGENT, rejected()).unwrap();
        assert_eq!(replies.try_iter().count(), 2);
    }

    #[test]
    fn a_full_queue_is_refused() {
        let registry = registry();
        let _attached = registry.attach(AGENT, 1, false).unwrap();
        for _ in 0..QUEUE_MAX {
            registry.send(AGENT, Frame::default()).unwrap();
        }
        assert_eq!(registry.send(AGENT, Frame::default()), Err(SendError::Full));
    }
}
