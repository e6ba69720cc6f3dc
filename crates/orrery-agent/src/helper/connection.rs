//! One running helper: threads that read and write its streams, and the calls that wait for it.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_base::thread::spawn_named;
use orrery_handlers::CancelToken;
use orrery_handlers::target::{ProcessControl, RemoteProcess, TransportError};
use uuid::Uuid;

use super::DriftListener;
use crate::protocol::{
    CommandResult, FromAgent, HandlerCall, Hello, MESSAGE_MAX, RejectionCode, ToAgent, Welcome,
};

/// Resources of a report that are passed on.
const DRIFT_MAX: usize = 1_000;
/// Shortest time between two reports; a helper repeats those that were dropped.
const DRIFT_INTERVAL: Duration = Duration::from_millis(50);
/// Interval of messages to a helper that watches files, so that both sides keep it.
const KEEPALIVE: Duration = Duration::from_mins(4);

/// Poll interval for cancellation while a helper starts.
const GREETING_POLL: Duration = Duration::from_millis(25);

/// Limit of output before the greeting, such as that of a login shell.
const NOISE_MAX: usize = 64 * 1024;

/// First message of a started process.
#[derive(Debug)]
pub(super) enum Greeting {
    Hello(Box<Hello>),
    /// The script has no helper to start, and says why.
    Said(String),
    Ended,
}

/// Event of a call.
#[derive(Debug)]
pub(super) enum CallEvent {
    Accepted,
    Busy,
    Announce,
    Call(Box<HandlerCall>),
    Result(Box<CommandResult>),
    Rejected {
        code: RejectionCode,
        reason: String,
    },
    /// The helper is gone. Its command may have run if it `was_sent`.
    Broken {
        was_sent: bool,
    },
}

/// A message to the helper; a command with its id.
type Outgoing = (Option<Uuid>, Vec<u8>);

struct OpenCall {
    events: Sender<CallEvent>,
    was_sent: bool,
}

#[derive(Default)]
struct Calls {
    open: BTreeMap<Uuid, OpenCall>,
    is_broken: bool,
}

/// State that the threads share with the calls.
struct Shared {
    calls: Mutex<Calls>,
    drift: Option<DriftListener>,
}

/// A helper process.
pub(super) struct Connection {
    shared: Arc<Shared>,
    outgoing: Mutex<Option<Sender<Outgoing>>>,
    greeting: Mutex<Receiver<Greeting>>,
    control: Box<dyn ProcessControl>,
    /// The helper runs Python handlers.
    runs_python: AtomicBool,
}

impl Connection {
    /// Starts the threads of a process, which ends after an idle period unless it watches files.
    pub(super) fn open(
        process: RemoteProcess,
        idle_timeout: Duration,
        drift: Option<DriftListener>,
    ) -> io::Result<Arc<Self>> {
        let RemoteProcess { input, output, control } = process;
        let is_kept = drift.is_some();
        let idle_timeout = if is_kept { idle_timeout.min(KEEPALIVE) } else { idle_timeout };
        let shared = Arc::new(Shared { calls: Mutex::default(), drift });
        let (outgoing, messages) = channel();
        let (greeted, greeting) = channel();
        let writing = Arc::clone(&shared);
        spawn_named("helper-write", move || {
            // After an error, the reader finds the end of the process.
            let _ = write_messages(&messages, input, &writing, idle_timeout);
        })?;
        let reading = Arc::clone(&shared);
        spawn_named("helper-read", move || {
            if let Err(error) = read_messages(output, &greeted, &reading) {
                tracing::warn!(%error, "unreadable output of a helper");
            }
            let _ = greeted.send(Greeting::Ended);
            reading.end();
        })?;
        Ok(Arc::new(Connection {
            shared,
            outgoing: Mutex::new(Some(outgoing)),
            greeting: Mutex::new(greeting),
            control,
            runs_python: AtomicBool::new(false),
        }))
    }

    /// Takes over what the helper can do from its greeting.
    pub(super) fn learn(&self, hello: &Hello) {
        self.runs_python.store(hello.python, Ordering::Release);
    }

    pub(super) fn runs_python(&self) -> bool {
        self.runs_python.load(Ordering::Acquire)
    }

    /// Waits for the first message. `None` if there is none in time, or the wait is cancelled.
    pub(super) fn greeting(&self, limit: Duration, stop: &CancelToken) -> Option<Greeting> {
        let greeting = self.greeting.lock().ignore_poison();
        let until = monotonic() + limit;
        loop {
            match greeting.recv_timeout(GREETING_POLL) {
                Ok(greeting) => return Some(greeting),
                Err(RecvTimeoutError::Disconnected) => return Some(Greeting::Ended),
                Err(RecvTimeoutError::Timeout) => {
                    if monotonic() >= until || stop.reason().is_some() {
                        return None;
                    }
                }
            }
        }
    }

    /// Waits for the end of the process; returns its exit code, or `None` after the limit.
    ///
    /// # Errors
    /// If the connection was lost.
    pub(super) fn exit_code(&self, limit: Duration) -> Result<Option<i32>, TransportError> {
        self.control.wait(limit)
    }

    /// Asks the helper to watch the files of its resources, if there is a listener.
    pub(super) fn watch_files(&self) {
        if self.shared.drift.is_none() {
            return;
        }
        self.send(&ToAgent::Welcome(Welcome {
            agent: Uuid::nil(),
            session: 1,
            heartbeat_seconds: u32::try_from(KEEPALIVE.as_secs()).unwrap_or(u32::MAX),
            gateways: Vec::new(),
            drift: true,
        }));
    }

    pub(super) fn error_excerpt(&self) -> String {
        self.control.error_excerpt()
    }

    pub(super) fn is_broken(&self) -> bool {
        self.shared.calls.lock().ignore_poison().is_broken
    }

    /// Sends a command; its events come through the channel.
    pub(super) fn call(&self, id: Uuid, command: Vec<u8>) -> Receiver<CallEvent> {
        let (events, receiver) = channel();
        {
            let mut calls = self.shared.calls.lock().ignore_poison();
            if calls.is_broken {
                let _ = events.send(CallEvent::Broken { was_sent: false });
                return receiver;
            }
            calls.open.insert(id, OpenCall { events, was_sent: false });
        }
        self.send_line((Some(id), command));
        receiver
    }

    /// Sends the command of an open call again.
    pub(super) fn repeat(&self, id: Uuid, command: Vec<u8>) {
        self.send_line((Some(id), command));
    }

    /// Sends a message about a call.
    pub(super) fn send(&self, message: &ToAgent) {
        match to_line(message) {
            Ok(line) => self.send_line((None, line)),
            Err(error) => tracing::error!(%error, "cannot encode a message to a helper"),
        }
    }

    fn send_line(&self, line: Outgoing) {
        if let Some(outgoing) = &*self.outgoing.lock().ignore_poison() {
            // If the writer is gone, the reader reports the end.
            let _ = outgoing.send(line);
        }
    }

    pub(super) fn close_call(&self, id: Uuid) {
        self.shared.calls.lock().ignore_poison().open.remove(&id);
    }

    /// Ends the helper, which cancels its handlers.
    pub(super) fn end(&self) {
        *self.outgoing.lock().ignore_poison() = None;
        self.control.kill();
        self.shared.end();
    }
}

impl Shared {
    /// Reports the end of the process to all calls.
    fn end(&self) {
        let mut calls = self.calls.lock().ignore_poison();
        calls.is_broken = true;
        for call in std::mem::take(&mut calls.open).into_values() {
            let _ = call.events.send(CallEvent::Broken { was_sent: call.was_sent });
        }
    }

    /// Closes the connection to further calls if there is none; returns true if it did.
    fn close_if_idle(&self) -> bool {
        let mut calls = self.calls.lock().ignore_poison();
        calls.is_broken |= calls.open.is_empty();
        calls.is_broken
    }

    fn report(&self, id: Uuid, event: CallEvent) {
        if let Some(call) = self.calls.lock().ignore_poison().open.get(&id) {
            let _ = call.events.send(event);
        }
    }
}

/// Encodes a message as a line.
pub(super) fn to_line(message: &ToAgent) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// Writes messages until the connection is dropped or idle; the end of the input ends the helper.
/// Messages that wait share one flush.
fn write_messages(
    messages: &Receiver<Outgoing>,
    mut input: Box<dyn Write + Send>,
    shared: &Shared,
    idle_timeout: Duration,
) -> io::Result<()> {
    loop {
        let mut waiting = match messages.recv_timeout(idle_timeout) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) if shared.drift.is_some() => {
                Some((None, to_line(&ToAgent::Ping)?))
            }
            Err(RecvTimeoutError::Timeout) if shared.close_if_idle() => return Ok(()),
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        while let Some((id, line)) = waiting {
            if let Some(id) = id {
                let mut calls = shared.calls.lock().ignore_poison();
                if let Some(call) = calls.open.get_mut(&id) {
                    // From here on it may be executed.
                    call.was_sent = true;
                }
            }
            input.write_all(&line)?;
            waiting = messages.try_recv().ok();
        }
        input.flush()?;
    }
}

fn read_messages(
    output: Box<dyn Read + Send>,
    greeted: &Sender<Greeting>,
    shared: &Shared,
) -> io::Result<()> {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    let mut noise = 0;
    loop {
        line.clear();
        output.by_ref().take(NOISE_MAX as u64).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        if let Some(text) = line.strip_prefix(b"@orrery ") {
            let text = String::from_utf8_lossy(text).trim().to_owned();
            let _ = greeted.send(Greeting::Said(text));
            return Ok(());
        }
        if let Ok(FromAgent::Hello(hello)) = serde_json::from_slice(&line) {
            let _ = greeted.send(Greeting::Hello(Box::new(hello)));
            break;
        }
        noise += line.len();
        if noise > NOISE_MAX {
            return Err(io::Error::other("too much output before the greeting"));
        }
    }
    let mut drifted_at: Option<Instant> = None;
    loop {
        line.clear();
        output.by_ref().take(MESSAGE_MAX as u64 + 1).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return match line.len() {
                length if length > MESSAGE_MAX => Err(io::Error::other("a message is too long")),
                _ => Ok(()),
            };
        }
        match serde_json::from_slice(&line)? {
            FromAgent::Accepted { id } => shared.report(id, CallEvent::Accepted),
            FromAgent::Busy { id } => shared.report(id, CallEvent::Busy),
            FromAgent::Announce { id } => shared.report(id, CallEvent::Announce),
            FromAgent::Call(call) => shared.report(call.id, CallEvent::Call(call)),
            FromAgent::Result(result) => shared.report(result.id, CallEvent::Result(result)),
            FromAgent::Rejected { id, code, reason } => {
                shared.report(id, CallEvent::Rejected { code, reason });
            }
            FromAgent::Drift(mut drift) => {
                let is_early = drifted_at.is_some_and(|at| at.elapsed() < DRIFT_INTERVAL);
                if let Some(listener) = shared.drift.as_ref().filter(|_| !is_early) {
                    drifted_at = Some(monotonic());
                    drift.resources.truncate(DRIFT_MAX);
                    listener(drift);
                }
            }
            FromAgent::Hello(_) | FromAgent::Pong => {}
        }
    }
}
