//! One command to one remote agent, on a thread that waits for the outcome.
//!
//! A command keeps its id over all retries, and the agent runs it once. When the session breaks,
//! the command is sent again on the next session. If the agent does not return, the effect is
//! unknown. An agent that was never reached did nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use orrery_agent::calls::answer_call;
use orrery_agent::protocol::{Command, CommandResult, MESSAGE_MAX, RejectionCode, ToAgent};
use orrery_base::clock::monotonic;
use orrery_handlers::run::{Remote, RemoteCommand, RemoteError, RunOutcome};
use orrery_model::{LogLevel, LogLine, OfferedType, OutcomeStatus};
use orrery_roles::services::Services;
use orrery_store::{AgentSession, StoreError};
use uuid::Uuid;

use super::peer_client::{PeerClient, PeerLink};
use super::peer_server::PeerMessageKind;
use super::session::to_frame;
use super::session_registry::{CallReply, Frame, NO_PYTHON, SendError, SessionRegistry};

/// Poll interval for cancellation while waiting.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Time for an agent to reconnect during a command.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for a session that is in the store to become usable.
const SESSION_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for a cancelled run to end.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between attempts to find a session.
const LOOKUP_INTERVAL: Duration = Duration::from_millis(250);
/// Initial and maximum backoff after an agent reported that it is busy.
const BACKOFF_MIN: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Access of engines to remote agents.
#[derive(Clone, Debug)]
pub struct AgentAccess {
    pub services: Services,
    pub registry: Arc<SessionRegistry>,
    pub peers: Arc<PeerClient>,
}

/// A remote agent as an execution site of an engine.
pub struct RemoteSite {
    access: AgentAccess,
    /// Agent name in resource ids.
    name: String,
    agent: Uuid,
    environment: Uuid,
    /// Resource types that the agent offers by itself.
    offered: Vec<OfferedType>,
    /// Counter of the engine's commands.
    sent: Arc<AtomicU64>,
}

impl RemoteSite {
    pub fn new(
        access: AgentAccess,
        environment: Uuid,
        (name, agent): (String, Uuid),
        sent: Arc<AtomicU64>,
    ) -> Self {
        RemoteSite { access, name, agent, environment, offered: Vec::new(), sent }
    }

    /// Adds the resource types that the agent offers by itself.
    #[must_use]
    pub fn offering(self, offered: Vec<OfferedType>) -> Self {
        RemoteSite { offered, ..self }
    }
}

impl Remote for RemoteSite {
    fn offered_types(&self) -> &[OfferedType] {
        &self.offered
    }

    fn run(&self, remote_command: &RemoteCommand<'_>) -> Result<RunOutcome, RemoteError> {
        let seq = self.sent.fetch_add(1, Ordering::Relaxed);
        let command = Command::new(remote_command, Uuid::new_v4(), self.environment, seq);
        let id = command.id;
        let frame = to_frame(&ToAgent::Command(Box::new(command)));
        if frame.len() > MESSAGE_MAX {
            let size = frame.len();
            let reason = format!("the command has {size} bytes; the limit is {MESSAGE_MAX}");
            return Err(RemoteError::Rejected { reason });
        }
        let call = RemoteCall {
            site: self,
            remote_command,
            id,
            frame,
            state: State::Lost { retry_at: monotonic() },
            lost_at: monotonic(),
            route: Route::Local,
            sent: 0,
            cancelled: None,
            announce_error: None,
            backoff: BACKOFF_MIN,
        };
        let ended = call.run();
        self.access.registry.metrics().count_call(match &ended {
            Ok(_) => "answered",
            Err(RemoteError::NotConnected { .. }) => "not_connected",
            Err(RemoteError::Cancelled) => "cancelled",
            Err(RemoteError::Unknown { .. }) => "unknown",
            Err(_) => "refused",
        });
        ended.map(RunOutcome::from)
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Presumably with the agent.
    Sent,
    /// No session.
    Lost { retry_at: Instant },
    /// The agent cannot run it: nothing was or will be done.
    Refused,
    /// Waiting after a full queue.
    BackingOff { retry_at: Instant },
}

/// Route to the agent.
enum Route {
    /// Connected to this process.
    Local,
    Peer(PeerLink),
}

type CallResult = Result<CommandResult, RemoteError>;

struct RemoteCall<'a> {
    site: &'a RemoteSite,
    remote_command: &'a RemoteCommand<'a>,
    id: Uuid,
    frame: Frame,
    state: State,
    /// Time at which the session was lost.
    lost_at: Instant,
    /// Route of the latest attempt.
    route: Route,
    /// Number of times the agent may have received it.
    sent: u32,
    cancelled: Option<Instant>,
    /// Reason of a cancellation because the change could not be recorded.
    announce_error: Option<String>,
    backoff: Duration,
}

impl RemoteCall<'_> {
    fn run(mut self) -> CallResult {
        let (sender, receiver) = channel();
        // Fails only after the call has its result.
        let sink = Box::new(move |reply| drop(sender.send(reply)));
        let _open = self.site.access.registry.open_call(self.id, self.site.agent, sink);
        self.send_command();
        if self.sent == 0 && self.is_lost() && self.has_no_session() {
            return Err(self.not_connected());
        }
        loop {
            let ended = match receiver.recv_timeout(POLL_INTERVAL) {
                Ok(reply) => self.handle_reply(reply),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(self.unknown("the call was dropped")),
            };
            if let Some(ended) = ended.or_else(|| self.poll()) {
                return self.finish(ended);
            }
        }
    }

    /// Turns a run that could not record its change into a failure, as for a local run.
    fn finish(self, ended: CallResult) -> CallResult {
        let Some(message) = self.announce_error else { return ended };
        let mut answer = match ended {
            Err(RemoteError::Cancelled) => return Err(RemoteError::Rejected { reason: message }),
            other => other?,
        };
        if answer.outcome.status == OutcomeStatus::Skipped {
            answer.outcome.status = OutcomeStatus::Failed;
            let (at, values) = (self.site.access.services.now(), serde_json::Map::new());
            answer.outcome.log.push(LogLine { at, level: LogLevel::Error, message, values });
        }
        Ok(answer)
    }

    fn unknown(&self, reason: &str) -> CallResult {
        let reason = format!("the remote agent {}: {reason}", self.site.name);
        Err(RemoteError::Unknown { reason })
    }

    fn session(&self) -> Result<AgentSession, StoreError> {
        self.site.access.services.store().remote_agents().session(self.site.agent.into())
    }

    fn not_connected(&self) -> RemoteError {
        let last_seen = self.session().ok().and_then(|session| session.seen);
        RemoteError::NotConnected { agent: self.site.name.clone(), last_seen }
    }

    /// True if the store reports no session; sessions are stored before they are used. A store
    /// error counts as false.
    fn has_no_session(&self) -> bool {
        match self.session() {
            Ok(session) => session.gateway.is_none(),
            Err(error) => matches!(error, StoreError::NotFound { .. }),
        }
    }

    /// Sends the command to the local session, or through the gateway that has it.
    fn send(&mut self) -> Result<(), SendError> {
        let (access, agent) = (&self.site.access, self.site.agent);
        if self.remote_command.code.is_some() && access.registry.lacks_python(agent) {
            return Err(SendError::Unsupported);
        }
        match access.registry.send(agent, self.frame.clone()) {
            Err(SendError::NotConnected) => {
                let link = access.peers.link_to(agent)?;
                let needs_python = self.remote_command.code.is_some();
                let kind = PeerMessageKind::Command { needs_python };
                link.send(agent, self.id, kind, &self.frame)?;
                self.route = Route::Peer(link);
            }
            sent => {
                sent?;
                self.route = Route::Local;
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
                    self.send_message(&ToAgent::Cancel { id: self.id });
                }
            }
            Err(SendError::Full) => self.back_off(),
            Err(SendError::Unsupported) => self.state = State::Refused,
            Err(error @ (SendError::NotConnected | SendError::Connecting)) => {
                let now = monotonic();
                if !self.is_lost() {
                    self.lost_at = now;
                }
                let backoff =
                    if error == SendError::Connecting { POLL_INTERVAL } else { LOOKUP_INTERVAL };
                self.state = State::Lost { retry_at: now + backoff };
            }
        }
    }

    /// Sends a message about the command along its route. If the queue is full or the session is
    /// over, the command itself is sent again: the agent then reports its state, and this message
    /// is repeated.
    fn send_message(&mut self, message: &ToAgent) {
        let (agent, text) = (self.site.agent, to_frame(message));
        let sent = match &self.route {
            Route::Local => self.site.access.registry.send(agent, text),
            Route::Peer(link) => link.send(agent, self.id, PeerMessageKind::About, &text),
        };
        if sent.is_err() && matches!(self.state, State::Sent) {
            self.back_off();
        }
    }

    fn back_off(&mut self) {
        self.state = State::BackingOff { retry_at: monotonic() + self.backoff };
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
    }

    fn handle_reply(&mut self, reply: CallReply) -> Option<CallResult> {
        match reply {
            CallReply::Accepted => None,
            CallReply::Answer(answer) => Some(Ok(*answer)),
            CallReply::Rejected { code: RejectionCode::Fenced, .. } => {
                Some(Err(RemoteError::Fenced))
            }
            CallReply::Rejected { code: RejectionCode::UnknownType, reason } => {
                Some(Err(RemoteError::Unsupported { reason }))
            }
            CallReply::Rejected { reason, .. } => Some(Err(RemoteError::Rejected { reason })),
            CallReply::Busy => {
                // The agent does not have the command, whatever was sent.
                self.sent = 0;
                self.back_off();
                None
            }
            CallReply::Announce => {
                self.announce();
                None
            }
            CallReply::Call(call) => {
                let reply = answer_call(self.remote_command, &call);
                self.send_message(&ToAgent::Reply(Box::new(reply)));
                None
            }
            CallReply::Broken => {
                self.lost_at = monotonic();
                self.state = State::Lost { retry_at: self.lost_at };
                None
            }
            CallReply::NotConnected => {
                // Still lost.
                self.sent = self.sent.saturating_sub(1);
                self.state = State::Lost { retry_at: monotonic() + LOOKUP_INTERVAL };
                None
            }
        }
    }

    /// Records the change that the agent is about to make, and confirms it.
    fn announce(&mut self) {
        if self.cancelled.is_some() {
            return;
        }
        let noted =
            self.remote_command.run.before_change.map_or(Ok(()), |announcement| (announcement.0)());
        match noted {
            Ok(()) => self.send_message(&ToAgent::Announced { id: self.id }),
            Err(error) => {
                tracing::warn!(%error, agent = self.site.name, "change not started");
                self.announce_error = Some(error.to_string());
                self.cancel();
            }
        }
    }

    fn cancel(&mut self) {
        self.cancelled = Some(monotonic());
        self.send_message(&ToAgent::Cancel { id: self.id });
    }

    /// Checks cancellation, timeouts and retries.
    fn poll(&mut self) -> Option<CallResult> {
        let now = monotonic();
        if self.cancelled.is_none() && self.remote_command.run.stop.reason().is_some() {
            self.cancel();
        }
        if let Some(since) = self.cancelled {
            if self.sent == 0 {
                return Some(Err(RemoteError::Cancelled));
            }
            if now.duration_since(since) > CANCEL_TIMEOUT {
                return Some(self.unknown("it did not report the end of the cancelled run"));
            }
        }
        let lost_for = now.saturating_duration_since(self.lost_at);
        match self.state {
            State::Sent => None,
            State::Refused => Some(Err(RemoteError::Unsupported { reason: NO_PYTHON.to_owned() })),
            State::BackingOff { retry_at } => {
                if retry_at <= now {
                    self.send_command();
                }
                None
            }
            State::Lost { .. } if self.sent == 0 && lost_for > SESSION_TIMEOUT => {
                Some(Err(self.not_connected()))
            }
            State::Lost { .. } if lost_for > RECONNECT_TIMEOUT => {
                let seconds = RECONNECT_TIMEOUT.as_secs();
                let reason = format!(
                    "the connection was lost during the run and not restored within {seconds} seconds"
                );
                Some(self.unknown(&reason))
            }
            State::Lost { retry_at } if retry_at <= now => {
                self.send_command();
                let is_gone = self.is_lost() && self.is_revoked();
                is_gone.then(|| self.unknown("it was revoked during the run"))
            }
            State::Lost { .. } => None,
        }
    }

    /// True if the agent cannot return.
    fn is_revoked(&self) -> bool {
        self.session().is_ok_and(|session| session.revoked)
    }

    fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost { .. })
    }
}
