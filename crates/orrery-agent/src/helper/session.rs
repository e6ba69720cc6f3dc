//! A helper as the execution site of an agent.
//!
//! Commands are multiplexed over one process. A helper that is gone is started again for the next
//! command. The effect of a command is unknown exactly if the helper was lost after it was sent.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_handlers::CancelToken;
use orrery_handlers::clock::now;
use orrery_handlers::run::{HandlerRun, Purpose, Remote, RemoteCommand, RemoteError, RunOutcome};
use orrery_handlers::target::{Transport, TransportError, TransportErrorKind};
use orrery_model::{LogLevel, LogLine, OutcomeStatus, ResourceId};
use uuid::Uuid;

use super::DriftListener;
use super::binaries::HelperBinaries;
use super::connection::{CallEvent, Connection, to_line};
use super::launch::{Launch, launch};
use super::verified::VerifiedRuns;
use crate::calls::answer_call;
use crate::protocol::{Command, CommandResult, MESSAGE_MAX, RejectionCode, ToAgent};

/// Poll interval for cancellation while waiting.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Time for a cancelled run to end.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for dry runs ahead of their runs.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after a helper reported that it is busy.
const BUSY_PAUSE: Duration = Duration::from_millis(200);

/// Helper on one machine.
pub struct HelperSession {
    transport: Arc<dyn Transport>,
    binaries: Arc<HelperBinaries>,
    /// The running helper. The lock is held while another one is started.
    connection: Mutex<Arc<Connection>>,
    /// Counter of commands.
    sent: AtomicU64,
    verified: Arc<VerifiedRuns>,
    drift: Option<DriftListener>,
    /// Reason why the machine cannot run a helper any more.
    refusal: Mutex<Option<String>>,
}

impl fmt::Debug for HelperSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HelperSession({})", self.transport.destination())
    }
}

impl Drop for HelperSession {
    fn drop(&mut self) {
        self.connection.lock().ignore_poison().end();
    }
}

impl HelperSession {
    pub(super) fn new(
        transport: Arc<dyn Transport>,
        binaries: Arc<HelperBinaries>,
        connection: Arc<Connection>,
        (drift, verified): (Option<DriftListener>, Arc<VerifiedRuns>),
    ) -> Self {
        let connection = Mutex::new(connection);
        let sent = AtomicU64::new(0);
        let refusal = Mutex::default();
        HelperSession { transport, binaries, connection, sent, verified, drift, refusal }
    }

    /// True if the helper watched files and is gone.
    pub fn has_lost_watches(&self) -> bool {
        // While another one is started, the lock is held.
        let is_broken = self.connection.try_lock().is_ok_and(|connection| connection.is_broken());
        self.drift.is_some() && is_broken
    }

    /// Reason why a helper that is gone cannot be started again: the machine has changed.
    pub fn refusal(&self) -> Option<String> {
        self.refusal.lock().ignore_poison().clone()
    }

    /// Starts a helper that is gone. It reports that it watches nothing yet.
    ///
    /// # Errors
    /// If no helper can be started.
    pub fn restore(&self, stop: &CancelToken) -> Result<(), RemoteError> {
        self.connection(stop).map(drop)
    }

    /// Returns the running helper; starts one if it is gone.
    fn connection(&self, stop: &CancelToken) -> Result<Arc<Connection>, RemoteError> {
        let mut connection = self.connection.lock().ignore_poison();
        if connection.is_broken() {
            let destination = self.transport.destination();
            let drift = self.drift.as_ref();
            let started = launch(&*self.transport, &self.binaries, drift, stop);
            match started.map_err(|error| not_started(&error, stop))? {
                Launch::Started(next) => {
                    connection.end();
                    *connection = next;
                    *self.refusal.lock().ignore_poison() = None;
                    tracing::info!(destination, "helper started again");
                }
                Launch::Impossible(reason) => {
                    *self.refusal.lock().ignore_poison() = Some(reason.clone());
                    let reason = format!("{destination}: {reason}");
                    return Err(RemoteError::Unreachable { reason, help: None });
                }
            }
        }
        Ok(Arc::clone(&connection))
    }
}

/// Nothing was done: no helper runs.
fn not_started(error: &TransportError, stop: &CancelToken) -> RemoteError {
    if matches!(error.kind, TransportErrorKind::NotStarted(_)) && stop.reason().is_some() {
        return RemoteError::Cancelled;
    }
    RemoteError::Unreachable { reason: error.to_string(), help: error.help.clone() }
}

impl Remote for HelperSession {
    fn run(&self, command: &RemoteCommand<'_>) -> Result<RunOutcome, RemoteError> {
        let stop = command.run.stop;
        if stop.reason().is_some() {
            return Err(RemoteError::Cancelled);
        }
        if let Some(known) = self.verified.take(&command.run) {
            return Ok(known);
        }
        let (id, line) = self.encode(command)?;
        if line.len() > MESSAGE_MAX {
            let reason =
                format!("the command has {} bytes; the limit is {MESSAGE_MAX}", line.len());
            return Err(RemoteError::Rejected { reason });
        }
        let changes = command.run.purpose == Purpose::Deploy;
        if changes {
            self.verified.invalidate();
        }
        let ended = self.execute(command, id, &line);
        if changes {
            // Also what was verified meanwhile.
            self.verified.invalidate();
            self.verified.record_run(ended.as_ref().ok());
        }
        ended
    }

    fn verify_max(&self, next: &ResourceId) -> usize {
        self.verified.batch_size(next)
    }

    fn verify(&self, runs: &[HandlerRun<'_>], log_level: LogLevel) {
        let (changes, verified_at) = (self.verified.changes(), monotonic());
        let Some(stop) = runs.first().map(|run| run.stop) else { return };
        let Ok(connection) = self.connection(stop) else { return };
        let mut calls = Vec::new();
        for run in runs {
            let (contents, secrets) = (BTreeMap::new(), BTreeMap::new());
            let command = RemoteCommand { run: *run, contents, secrets, log_level, code: None };
            let Ok((id, line)) = self.encode(&command) else { continue };
            calls.push((run.resource, id, connection.call(id, line)));
        }
        let until = verified_at + VERIFY_TIMEOUT;
        let mut results = Vec::new();
        for (resource, id, events) in &calls {
            if let Some(result) = wait_for_result(events, until, stop) {
                results.push((*resource, RunOutcome::from(*result)));
            }
            connection.close_call(*id);
        }
        self.verified.replace(changes, verified_at, results);
    }
}

/// Waits for the result of a dry run; `None` if there is none.
fn wait_for_result(
    events: &Receiver<CallEvent>,
    until: Instant,
    stop: &CancelToken,
) -> Option<Box<CommandResult>> {
    loop {
        match events.recv_timeout(POLL_INTERVAL) {
            Ok(CallEvent::Result(result)) => return Some(result),
            Ok(CallEvent::Accepted) => {}
            Err(RecvTimeoutError::Timeout) if monotonic() < until && stop.reason().is_none() => {}
            Ok(_) | Err(_) => return None,
        }
    }
}

impl HelperSession {
    /// Builds the message of a command.
    fn encode(&self, command: &RemoteCommand<'_>) -> Result<(Uuid, Vec<u8>), RemoteError> {
        let seq = self.sent.fetch_add(1, Ordering::Relaxed);
        let message = Command::new(command, Uuid::new_v4(), Uuid::nil(), seq);
        let id = message.id;
        let line = to_line(&ToAgent::Command(Box::new(message)));
        let line = line.map_err(|error| RemoteError::Rejected { reason: error.to_string() })?;
        Ok((id, line))
    }

    fn execute(
        &self,
        command: &RemoteCommand<'_>,
        id: Uuid,
        line: &[u8],
    ) -> Result<RunOutcome, RemoteError> {
        let stop = command.run.stop;
        // A helper that is gone before the command is sent is started again, once.
        for is_last in [false, true] {
            let connection = self.connection(stop)?;
            if command.code.is_some() && !connection.runs_python() {
                let reason = "the helper for this platform runs native handlers only".to_owned();
                return Err(RemoteError::Unsupported { reason });
            }
            let call = Call {
                session: self,
                connection: &connection,
                command,
                id,
                line,
                retry_at: None,
                cancelled: None,
                announce_error: None,
            };
            match call.run() {
                Err(CallError::NotSent) if !is_last => {}
                Err(CallError::NotSent) => break,
                Err(CallError::Remote(error)) => return Err(error),
                Ok(result) => return Ok((*result).into()),
            }
        }
        let reason = format!("{}: the helper does not keep running", self.transport.destination());
        Err(RemoteError::Unreachable { reason, help: None })
    }
}

enum CallError {
    /// The helper was gone before: nothing was done.
    NotSent,
    Remote(RemoteError),
}

type CallResult = Result<Box<CommandResult>, CallError>;

/// One command to the helper.
struct Call<'a> {
    session: &'a HelperSession,
    connection: &'a Connection,
    command: &'a RemoteCommand<'a>,
    id: Uuid,
    line: &'a [u8],
    /// Time of the next attempt after a full queue.
    retry_at: Option<Instant>,
    cancelled: Option<Instant>,
    /// Reason of a cancellation because the change could not be recorded.
    announce_error: Option<String>,
}

impl Call<'_> {
    fn run(mut self) -> CallResult {
        let events = self.connection.call(self.id, self.line.to_vec());
        let ended = self.wait(&events);
        self.connection.close_call(self.id);
        self.finish(ended)
    }

    fn wait(&mut self, events: &Receiver<CallEvent>) -> CallResult {
        loop {
            let ended = match events.recv_timeout(POLL_INTERVAL) {
                Ok(event) => self.handle_event(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(self.unknown("the call was dropped")),
            };
            if let Some(ended) = ended.or_else(|| self.poll()) {
                return ended;
            }
        }
    }

    /// Turns a run that could not record its change into a failure, as for a local run.
    fn finish(self, ended: CallResult) -> CallResult {
        let Some(message) = self.announce_error else { return ended };
        let mut result = match ended {
            Err(CallError::Remote(RemoteError::Cancelled)) => {
                return Err(CallError::Remote(RemoteError::Rejected { reason: message }));
            }
            other => other?,
        };
        if result.outcome.status == OutcomeStatus::Skipped {
            result.outcome.status = OutcomeStatus::Failed;
            let values = serde_json::Map::new();
            result.outcome.log.push(LogLine { at: now(), level: LogLevel::Error, message, values });
        }
        Ok(result)
    }

    fn unknown(&self, reason: &str) -> CallResult {
        let destination = self.session.transport.destination();
        let errors = self.connection.error_excerpt();
        let errors = errors.lines().last().map(|line| format!(" ({line})")).unwrap_or_default();
        let reason = format!("{destination}: {reason}{errors}");
        Err(CallError::Remote(RemoteError::Unknown { reason }))
    }

    fn handle_event(&mut self, event: CallEvent) -> Option<CallResult> {
        match event {
            CallEvent::Accepted => None,
            CallEvent::Result(result) => Some(Ok(result)),
            CallEvent::Rejected { code: RejectionCode::Fenced, .. } => {
                Some(Err(CallError::Remote(RemoteError::Fenced)))
            }
            CallEvent::Rejected { code: RejectionCode::UnknownType, reason } => {
                Some(Err(CallError::Remote(RemoteError::Unsupported { reason })))
            }
            CallEvent::Rejected { reason, .. } => {
                Some(Err(CallError::Remote(RemoteError::Rejected { reason })))
            }
            CallEvent::Busy => {
                self.retry_at = Some(monotonic() + BUSY_PAUSE);
                None
            }
            CallEvent::Announce => {
                self.announce();
                None
            }
            CallEvent::Call(call) => {
                let reply = answer_call(self.command, &call);
                self.connection.send(&ToAgent::Reply(Box::new(reply)));
                None
            }
            CallEvent::Broken { was_sent: true } => {
                Some(self.unknown("the connection to the helper was lost during the run"))
            }
            CallEvent::Broken { was_sent: false } => Some(Err(CallError::NotSent)),
        }
    }

    /// Records the change that the helper is about to make, and confirms it.
    fn announce(&mut self) {
        if self.cancelled.is_some() {
            return;
        }
        let recorded =
            self.command.run.before_change.map_or(Ok(()), |announcement| (announcement.0)());
        match recorded {
            Ok(()) => self.connection.send(&ToAgent::Announced { id: self.id }),
            Err(error) => {
                let destination = self.session.transport.destination();
                tracing::warn!(%error, destination, "change not started");
                self.announce_error = Some(error.to_string());
                self.cancel();
            }
        }
    }

    fn cancel(&mut self) {
        self.cancelled = Some(monotonic());
        self.connection.send(&ToAgent::Cancel { id: self.id });
    }

    /// Checks cancellation, timeouts and retries.
    fn poll(&mut self) -> Option<CallResult> {
        let now = monotonic();
        if self.cancelled.is_none() && self.command.run.stop.reason().is_some() {
            self.cancel();
        }
        if let Some(since) = self.cancelled {
            if self.retry_at.is_some() {
                return Some(Err(CallError::Remote(RemoteError::Cancelled)));
            }
            if now.duration_since(since) > CANCEL_TIMEOUT {
                // Its end cancels everything that it still runs.
                self.connection.end();
                return Some(
                    self.unknown("the helper did not report the end of the cancelled run"),
                );
            }
        }
        if self.retry_at.is_some_and(|retry_at| retry_at <= now) {
            self.retry_at = None;
            self.connection.repeat(self.id, self.line.to_vec());
        }
        None
    }
}
