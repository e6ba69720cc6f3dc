//! One command to one remote agent, from a thread that waits for what comes of it.
//!
//! A command keeps its id however often it is sent: the agent runs it once. When the session breaks, it is sent again as soon as the agent is
//! back; if it does not come back, nobody knows what it did. Who was never reached did nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use orrery_agent::protocol::{Answer, Command, MESSAGE_MAX, RejectionCode, ToAgent};
use orrery_executor::{Order, Performed, Remote, RemoteError};
use orrery_model::{LogLevel, LogLine, OutcomeStatus};
use orrery_store::{AgentSession, StoreError};
use uuid::Uuid;

use crate::app::App;

use super::hub::{Frame, NotSent, Reply};
use super::links::Link;
use super::session::text_of;

/// How often a call looks whether it is still wanted.
const TICK: Duration = Duration::from_millis(25);
/// How long an agent may be away in the middle of a command.
const BACK_WITHIN: Duration = Duration::from_secs(30);
/// How long a session that the store knows may take to be usable.
const USABLE_WITHIN: Duration = Duration::from_secs(3);
/// How long a run may take to end after it was cancelled.
const END_WITHIN: Duration = Duration::from_secs(10);
/// How often a session is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long to wait after an agent said that it has no room, at first and at most.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The machine of a remote agent, as an engine sees it.
pub(crate) struct RemotePlace {
    app: App,
    /// The agent of the resources.
    name: String,
    agent: Uuid,
    environment: Uuid,
    /// Counts the commands of an engine.
    sent: Arc<AtomicU64>,
}

impl RemotePlace {
    pub(crate) fn new(
        app: App,
        environment: Uuid,
        (name, agent): (String, Uuid),
        sent: Arc<AtomicU64>,
    ) -> Self {
        RemotePlace { app, name, agent, environment, sent }
    }
}

impl Remote for RemotePlace {
    fn run(&self, order: &Order<'_>) -> Result<Performed, RemoteError> {
        let seq = self.sent.fetch_add(1, Ordering::Relaxed);
        let command = Command::of(order, Uuid::new_v4(), self.environment, seq);
        let id = command.id;
        let frame = text_of(&ToAgent::Command(Box::new(command)));
        if frame.len() > MESSAGE_MAX {
            let size = frame.len();
            let reason = format!("the command has {size} bytes; agents take up to {MESSAGE_MAX}");
            return Err(RemoteError::Rejected { reason });
        }
        let call = Call {
            place: self,
            order,
            id,
            frame,
            state: State::Lost { look_at: Instant::now() },
            lost: Instant::now(),
            way: Way::Here,
            sent: 0,
            cancelled: None,
            not_noted: None,
            pause: PAUSE,
        };
        let ended = call.run();
        self.app.hub().metrics().agent_called(match &ended {
            Ok(_) => "answered",
            Err(RemoteError::NotConnected { .. }) => "not_connected",
            Err(RemoteError::Cancelled) => "cancelled",
            Err(RemoteError::Unknown { .. }) => "unknown",
            Err(_) => "refused",
        });
        ended.map(Performed::from)
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// With the agent, as far as anybody knows.
    Sent,
    /// There is no session.
    Lost { look_at: Instant },
    /// There was no room, for it or for what was to be said of it.
    Put { again_at: Instant },
}

/// How the agent is reached.
enum Way {
    /// It is connected to this process.
    Here,
    Through(Link),
}

type Ended = Result<Answer, RemoteError>;

struct Call<'a> {
    place: &'a RemotePlace,
    order: &'a Order<'a>,
    id: Uuid,
    frame: Frame,
    state: State,
    /// Since when there is no session, if there is none.
    lost: Instant,
    /// Where it was sent.
    way: Way,
    /// How often the agent may have got it.
    sent: u32,
    cancelled: Option<Instant>,
    /// Why it was cancelled, if that is because its change could not be noted.
    not_noted: Option<String>,
    pause: Duration,
}

impl Call<'_> {
    fn run(mut self) -> Ended {
        let (tell, heard) = channel();
        // Who does not listen any more has got its answer.
        let sink = Box::new(move |reply| drop(tell.send(reply)));
        let _open = self.place.app.hub().open_call(self.id, self.place.agent, sink);
        self.send_command();
        if self.sent == 0 && self.has_no_session() {
            return Err(self.not_connected());
        }
        loop {
            let ended = match heard.recv_timeout(TICK) {
                Ok(reply) => self.hear(reply),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(self.unknown("the call was dropped")),
            };
            if let Some(ended) = ended.or_else(|| self.look()) {
                return self.judged(ended);
            }
        }
    }

    /// A run that may not begin its change has failed, as it would have here.
    fn judged(self, ended: Ended) -> Ended {
        let Some(message) = self.not_noted else { return ended };
        let mut answer = match ended {
            Err(RemoteError::Cancelled) => return Err(RemoteError::Rejected { reason: message }),
            other => other?,
        };
        if answer.outcome.status == OutcomeStatus::Skipped {
            answer.outcome.status = OutcomeStatus::Failed;
            let (at, values) = (self.place.app.now(), serde_json::Map::new());
            answer.outcome.log.push(LogLine { at, level: LogLevel::Error, message, values });
        }
        Ok(answer)
    }

    fn unknown(&self, reason: &str) -> Ended {
        let reason = format!("the remote agent {}: {reason}", self.place.name);
        Err(RemoteError::Unknown { reason })
    }

    fn session(&self) -> Result<AgentSession, StoreError> {
        self.place.app.store().records().agent_session(self.place.agent.as_bytes())
    }

    fn not_connected(&self) -> RemoteError {
        let last_seen = self.session().ok().and_then(|session| session.seen);
        RemoteError::NotConnected { agent: self.place.name.clone(), last_seen }
    }

    /// Whether the store says that the agent is not connected; it is told before anybody can use the session. A store that does not answer
    /// says nothing.
    fn has_no_session(&self) -> bool {
        match self.session() {
            Ok(session) => session.gateway.is_none(),
            Err(error) => matches!(error, StoreError::NotFound { .. }),
        }
    }

    /// To the session here, or through the gateway that has it.
    fn send(&mut self) -> Result<(), NotSent> {
        let (app, agent) = (&self.place.app, self.place.agent);
        match app.hub().send(agent, self.frame.clone()) {
            Err(NotSent::NotConnected) => {
                let link = app.links().to(agent)?;
                link.send(agent, self.id, true, &self.frame)?;
                self.way = Way::Through(link);
            }
            sent => {
                sent?;
                self.way = Way::Here;
            }
        }
        Ok(())
    }

    fn send_command(&mut self) {
        match self.send() {
            Ok(()) => {
                self.state = State::Sent;
                self.sent += 1;
                if self.cancelled.is_some() {
                    self.tell(&ToAgent::Cancel { id: self.id });
                }
            }
            Err(NotSent::Full) => self.put_off(),
            Err(error @ (NotSent::NotConnected | NotSent::Soon)) => {
                let now = Instant::now();
                if !self.is_lost() {
                    self.lost = now;
                }
                let pause = if error == NotSent::Soon { TICK } else { LOOK_EVERY };
                self.state = State::Lost { look_at: now + pause };
            }
        }
    }

    /// Says something about the command, where that was sent. If there is no room, the command is sent again when there is: the agent then
    /// says how far it is, and this is said again. If the session is over, it is sent again, too.
    fn tell(&mut self, message: &ToAgent) {
        let (agent, text) = (self.place.agent, text_of(message));
        let told = match &self.way {
            Way::Here => self.place.app.hub().send(agent, text),
            Way::Through(link) => link.send(agent, self.id, false, &text),
        };
        if told.is_err() && matches!(self.state, State::Sent) {
            self.put_off();
        }
    }

    fn put_off(&mut self) {
        self.state = State::Put { again_at: Instant::now() + self.pause };
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    fn hear(&mut self, reply: Reply) -> Option<Ended> {
        match reply {
            Reply::Accepted => None,
            Reply::Answer(answer) => Some(Ok(*answer)),
            Reply::Rejected { code: RejectionCode::Fenced, .. } => Some(Err(RemoteError::Fenced)),
            Reply::Rejected { reason, .. } => Some(Err(RemoteError::Rejected { reason })),
            Reply::Busy => {
                // It does not have it, however often it was sent.
                self.sent = 0;
                self.put_off();
                None
            }
            Reply::Announce => {
                self.announce();
                None
            }
            Reply::Broken => {
                self.lost = Instant::now();
                self.state = State::Lost { look_at: self.lost };
                None
            }
            Reply::NotConnected => {
                // It was lost before, and still is.
                self.sent = self.sent.saturating_sub(1);
                self.state = State::Lost { look_at: Instant::now() + LOOK_EVERY };
                None
            }
        }
    }

    /// The agent is about to change something, and waits until that is noted.
    fn announce(&mut self) {
        if self.cancelled.is_some() {
            return;
        }
        let noted = self.order.task.announce.map_or(Ok(()), |announcement| (announcement.0)());
        match noted {
            Ok(()) => self.tell(&ToAgent::Announced { id: self.id }),
            Err(error) => {
                tracing::warn!(%error, agent = self.place.name, "a change is not begun");
                self.not_noted = Some(error.to_string());
                self.cancel();
            }
        }
    }

    fn cancel(&mut self) {
        self.cancelled = Some(Instant::now());
        self.tell(&ToAgent::Cancel { id: self.id });
    }

    /// What time and people have changed.
    fn look(&mut self) -> Option<Ended> {
        let now = Instant::now();
        if self.cancelled.is_none() && self.order.task.stop.reason().is_some() {
            self.cancel();
        }
        if let Some(since) = self.cancelled {
            if self.sent == 0 {
                return Some(Err(RemoteError::Cancelled));
            }
            if now.duration_since(since) > END_WITHIN {
                return Some(self.unknown("it did not say how the run ended that was cancelled"));
            }
        }
        let lost_for = now.saturating_duration_since(self.lost);
        match self.state {
            State::Sent => None,
            State::Put { again_at } => {
                if again_at <= now {
                    self.send_command();
                }
                None
            }
            State::Lost { .. } if self.sent == 0 && lost_for > USABLE_WITHIN => {
                Some(Err(self.not_connected()))
            }
            State::Lost { .. } if lost_for > BACK_WITHIN => {
                let seconds = BACK_WITHIN.as_secs();
                let reason = format!(
                    "the connection was lost in the middle of the run, and did not come back within {seconds} seconds"
                );
                Some(self.unknown(&reason))
            }
            State::Lost { look_at } if look_at <= now => {
                self.send_command();
                let is_gone = self.is_lost() && self.is_revoked();
                is_gone.then(|| self.unknown("it was revoked in the middle of the run"))
            }
            State::Lost { .. } => None,
        }
    }

    /// It will not come back.
    fn is_revoked(&self) -> bool {
        self.session().is_ok_and(|session| session.revoked)
    }

    fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost { .. })
    }
}
