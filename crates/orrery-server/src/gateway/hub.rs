//! Sessions of remote agents and the commands that wait for answers: who is connected here, and who wants to hear from whom.
//!
//! Nothing here waits. A call is heard by its `Sink` only from the agent that it was made to, so that no agent can answer for another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orrery_agent::protocol::{Answer, FromAgent, Refusal, RefusalCode, RejectionCode};
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use crate::metrics::Metrics;

/// The text of a message. Copies share it.
pub(crate) type Frame = axum::extract::ws::Utf8Bytes;

/// Messages that may wait for one agent.
const WAITING_MAX: usize = 1024;
/// Sessions of one gateway.
const SESSIONS_MAX: usize = 20_000;
/// What an agent may say of one command in one session.
const SAID_MAX: u32 = 1000;

/// What is heard of a command.
#[derive(Debug)]
pub(crate) enum Reply {
    Accepted,
    Busy,
    Announce,
    Answer(Box<Answer>),
    Rejected {
        code: RejectionCode,
        reason: String,
    },
    /// The session through which it was sent is over.
    Broken,
    /// It did not get to the agent.
    NotConnected,
}

/// Hears what becomes of a command. It must not wait, nor ask the hub.
pub(crate) type Sink = Box<dyn Fn(Reply) + Send>;

struct Call {
    agent: Uuid,
    sink: Sink,
    /// How much the agent has said of it in its session.
    said: u32,
    /// There is an answer: nothing follows it.
    is_over: bool,
}

struct Session {
    number: i64,
    frames: mpsc::Sender<Frame>,
    end: watch::Sender<Option<Refusal>>,
}

/// The session's side of an attachment.
#[derive(Debug)]
pub(crate) struct Attached {
    /// What is to be sent to the agent.
    pub(crate) frames: mpsc::Receiver<Frame>,
    /// Why the session has to end, as soon as it has to.
    pub(crate) end: watch::Receiver<Option<Refusal>>,
}

/// Why nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSent {
    NotConnected,
    /// Too much waits for this agent already.
    Full,
    /// There may be a way in a moment.
    Soon,
}

/// An agent said more than anybody could have asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMuch;

/// The gateway of this process.
#[derive(Clone, Debug)]
pub(crate) struct OwnGateway {
    pub(crate) id: Uuid,
    /// Where other servers reach it.
    pub(crate) peer_address: String,
}

#[derive(Default)]
struct Inner {
    sessions: HashMap<Uuid, Session>,
    calls: HashMap<Uuid, Call>,
}

/// The remote agents that are connected to this process.
pub(crate) struct Hub {
    inner: Mutex<Inner>,
    metrics: Arc<Metrics>,
    /// The gateway of this process, if it has one.
    gateway: Mutex<Option<OwnGateway>>,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inner = self.own();
        f.debug_struct("Hub")
            .field("sessions", &inner.sessions.len())
            .field("calls", &inner.calls.len())
            .finish()
    }
}

/// A call that is open as long as this is kept.
#[derive(Debug)]
pub(crate) struct OpenCall {
    hub: Arc<Hub>,
    id: Uuid,
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.hub.own().calls.remove(&self.id);
    }
}

impl Inner {
    /// Tells all who wait for this agent that its session is over.
    fn broke(&mut self, agent: Uuid) {
        for call in self.calls.values_mut().filter(|call| call.agent == agent) {
            call.said = 0;
            (call.sink)(Reply::Broken);
        }
    }
}

impl Hub {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Hub { inner: Mutex::default(), metrics, gateway: Mutex::default() }
    }

    fn own(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes which gateway agents dial in to, or that they cannot any more.
    pub(crate) fn set_gateway(&self, id: Option<OwnGateway>) {
        *self.gateway.lock().unwrap_or_else(PoisonError::into_inner) = id;
    }

    /// The gateway of this process.
    pub(crate) fn gateway(&self) -> Option<OwnGateway> {
        self.gateway.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes a session in. The one before it, if it is here, ends.
    pub(crate) fn attach(&self, agent: Uuid, number: i64) -> Result<Attached, Refusal> {
        let mut inner = self.own();
        if inner.sessions.get(&agent).is_some_and(|known| known.number > number) {
            return Err(superseded());
        }
        if inner.sessions.len() >= SESSIONS_MAX {
            let reason = "this gateway has too many agents".to_owned();
            return Err(Refusal { code: RefusalCode::Unavailable, reason });
        }
        let (sender, frames) = mpsc::channel(WAITING_MAX);
        let (ender, end) = watch::channel(None);
        let session = Session { number, frames: sender, end: ender };
        match inner.sessions.insert(agent, session) {
            Some(former) => {
                former.end.send_replace(Some(superseded()));
                inner.broke(agent);
            }
            None => drop(self.metrics.agent_sessions.inc()),
        }
        Ok(Attached { frames, end })
    }

    /// Lets a session go, unless a newer one has taken its place.
    pub(crate) fn detach(&self, agent: Uuid, number: i64) {
        let mut inner = self.own();
        if inner.sessions.get(&agent).is_some_and(|known| known.number == number) {
            inner.sessions.remove(&agent);
            self.metrics.agent_sessions.dec();
            inner.broke(agent);
        }
    }

    /// Ends a session, with the reason that the agent is told.
    pub(crate) fn end(&self, agent: Uuid, number: i64, refusal: Refusal) {
        let inner = self.own();
        if let Some(session) = inner.sessions.get(&agent).filter(|known| known.number == number) {
            session.end.send_replace(Some(refusal));
        }
    }

    /// Agents that are connected here, and the numbers of their sessions.
    pub(crate) fn sessions(&self) -> Vec<(Uuid, i64)> {
        self.own().sessions.iter().map(|(agent, session)| (*agent, session.number)).collect()
    }

    /// The number of the session that an agent has here.
    pub(crate) fn session(&self, agent: Uuid) -> Option<i64> {
        self.own().sessions.get(&agent).map(|session| session.number)
    }

    /// Hears what an agent says of a command, from before it is sent.
    pub(crate) fn open_call(self: &Arc<Self>, id: Uuid, agent: Uuid, sink: Sink) -> OpenCall {
        self.own().calls.insert(id, Call { agent, sink, said: 0, is_over: false });
        OpenCall { hub: Arc::clone(self), id }
    }

    /// Sends a message to an agent that is connected here.
    pub(crate) fn send(&self, agent: Uuid, frame: Frame) -> Result<(), NotSent> {
        let inner = self.own();
        let session = inner.sessions.get(&agent).ok_or(NotSent::NotConnected)?;
        session.frames.try_send(frame).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NotSent::Full,
            mpsc::error::TrySendError::Closed(_) => NotSent::NotConnected,
        })
    }

    /// Passes on what an agent says, to whoever asked this very agent. What nobody waits for is dropped.
    pub(crate) fn deliver(&self, agent: Uuid, message: FromAgent) -> Result<(), TooMuch> {
        let (id, reply) = match message {
            FromAgent::Accepted { id } => (id, Reply::Accepted),
            FromAgent::Busy { id } => (id, Reply::Busy),
            FromAgent::Announce { id } => (id, Reply::Announce),
            FromAgent::Result(answer) => (answer.id, Reply::Answer(answer)),
            FromAgent::Rejected { id, code, reason } => (id, Reply::Rejected { code, reason }),
            FromAgent::Hello(_) | FromAgent::Pong => return Ok(()),
        };
        let mut inner = self.own();
        let call = inner.calls.get_mut(&id);
        let Some(call) = call.filter(|call| call.agent == agent && !call.is_over) else {
            tracing::debug!(%agent, %id, "nobody waits for this answer any more");
            return Ok(());
        };
        call.said += 1;
        if call.said > SAID_MAX {
            return Err(TooMuch);
        }
        call.is_over = matches!(reply, Reply::Answer(_) | Reply::Rejected { .. });
        (call.sink)(reply);
        Ok(())
    }

    /// Passes on what is heard of a command through another process.
    pub(crate) fn hear(&self, agent: Uuid, id: Uuid, reply: Reply) {
        let mut inner = self.own();
        if let Some(call) = inner.calls.get_mut(&id).filter(|call| call.agent == agent) {
            call.said = 0;
            (call.sink)(reply);
        }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}

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

    fn hub() -> Arc<Hub> {
        Arc::new(Hub::new(Arc::default()))
    }

    fn call(hub: &Arc<Hub>) -> (OpenCall, Receiver<Reply>) {
        let (tell, heard) = channel();
        let sink = Box::new(move |reply| drop(tell.send(reply)));
        (hub.open_call(CALL, AGENT, sink), heard)
    }

    #[test]
    fn an_agent_answers_only_what_it_was_asked() {
        let hub = hub();
        let (open, heard) = call(&hub);
        hub.deliver(OTHER, FromAgent::Accepted { id: CALL }).unwrap();
        assert!(heard.try_recv().is_err(), "another agent cannot answer");
        hub.deliver(AGENT, FromAgent::Accepted { id: CALL }).unwrap();
        assert!(matches!(heard.try_recv(), Ok(Reply::Accepted)));
        drop(open);
        hub.deliver(AGENT, FromAgent::Accepted { id: CALL }).unwrap();
        assert!(heard.try_recv().is_err(), "nobody listens any more");
    }

    #[test]
    fn the_newest_session_gets_what_is_sent() {
        let hub = hub();
        assert_eq!(hub.send(AGENT, "a".into()), Err(NotSent::NotConnected));
        let mut first = hub.attach(AGENT, 1).unwrap();
        let (_open, heard) = call(&hub);
        let mut second = hub.attach(AGENT, 2).unwrap();
        assert!(matches!(heard.try_recv(), Ok(Reply::Broken)), "it has to be sent again");
        let told = first.end.borrow().clone().unwrap();
        assert_eq!(told.code, RefusalCode::Superseded);
        assert_eq!(hub.attach(AGENT, 1).unwrap_err().code, RefusalCode::Superseded);
        hub.send(AGENT, "b".into()).unwrap();
        assert_eq!(second.frames.try_recv().unwrap().as_str(), "b");
        assert!(first.frames.try_recv().is_err());
        hub.detach(AGENT, 1);
        assert_eq!(hub.sessions(), [(AGENT, 2)], "the end of an older session changes nothing");
        hub.detach(AGENT, 2);
        assert!(matches!(heard.try_recv(), Ok(Reply::Broken)));
        assert!(hub.sessions().is_empty());
    }

    #[test]
    fn an_agent_that_says_too_much_is_stopped_and_one_answer_is_enough() {
        let hub = hub();
        let (_open, heard) = call(&hub);
        for _ in 0..SAID_MAX {
            hub.deliver(AGENT, FromAgent::Announce { id: CALL }).unwrap();
        }
        assert_eq!(hub.deliver(AGENT, FromAgent::Announce { id: CALL }), Err(TooMuch));
        assert_eq!(heard.try_iter().count(), SAID_MAX as usize);
        let rejected =
            || FromAgent::Rejected { id: CALL, code: RejectionCode::Unable, reason: String::new() };
        hub.hear(AGENT, CALL, Reply::Broken);
        hub.deliver(AGENT, rejected()).unwrap();
        hub.deliver(AGENT, rejected()).unwrap();
        assert_eq!(heard.try_iter().count(), 2);
    }

    #[test]
    fn too_much_for_one_agent_is_refused() {
        let hub = hub();
        let _attached = hub.attach(AGENT, 1).unwrap();
        for _ in 0..WAITING_MAX {
            hub.send(AGENT, Frame::default()).unwrap();
        }
        assert_eq!(hub.send(AGENT, Frame::default()), Err(NotSent::Full));
    }
}
