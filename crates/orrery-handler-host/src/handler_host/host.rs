//! One host process and its connection: pending operations, liveness and loss.

use std::collections::HashMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_base::thread::spawn_named;
use orrery_model::{LogLevel, LogLine};
use serde_json::json;

use orrery_host::framing::{Reader, WireError, Writer, kind, parse};
use orrery_host::handshake::{HostSession, LostHost, Ping, Pong};
use orrery_host::process::HostProcess;

use super::HostLimits;
use super::callbacks::Reply;
use super::messages::{Line, Log, Report, ServerCall, write_operation};

/// Log limits of one operation: beyond these only warnings and worse are passed on, and beyond four
/// times as much nothing.
const LOG_LINES_MAX: usize = 10_000;
const LOG_BYTES_MAX: usize = 4 << 20;
/// Maximum number of unanswered calls of one operation.
const CALLS_MAX: usize = 1_000;
/// Interval of liveness checks on an idle connection.
const TICK: Duration = Duration::from_millis(250);

/// Message of a host about one operation.
#[derive(Debug)]
pub(super) enum HostMessage {
    Lines(Vec<LogLine>),
    Call(ServerCall),
    Report(Report),
}

/// Handle of a running operation.
#[derive(Debug)]
pub(super) struct OperationHandle {
    pub(super) number: u64,
    /// Messages of the operation; disconnected when the host is lost.
    pub(super) messages: Receiver<HostMessage>,
    /// Number of dropped log lines.
    pub(super) dropped: Arc<AtomicUsize>,
}

/// Reason that a host does not accept an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BeginError {
    /// The host is closing.
    Closing,
    TooLong,
}

/// Loss of a host and its consequences for pending operations.
#[derive(Clone, Debug)]
pub(super) struct HostLoss {
    pub(super) lost: LostHost,
    /// Number of operations that ran at that moment.
    pub(super) in_flight: usize,
    /// Operation that caused the end of the process.
    pub(super) blamed: Option<u64>,
}

#[derive(Debug)]
struct Running {
    agent: Box<str>,
    messages: Sender<HostMessage>,
    dropped: Arc<AtomicUsize>,
    lines: usize,
    bytes: usize,
    calls: usize,
}

#[derive(Debug)]
struct State {
    running: HashMap<u64, Running>,
    last_number: u64,
    /// Last use by each agent for which the host may hold connections.
    agents: HashMap<Box<str>, Instant>,
    used_at: Instant,
    /// Start of the shutdown, if any.
    closing: Option<Instant>,
    blamed: Option<u64>,
    loss: Option<Arc<HostLoss>>,
}

#[derive(Debug)]
pub(super) struct Host {
    process: HostProcess,
    socket: UnixStream,
    writer: Mutex<Writer<UnixStream>>,
    state: Mutex<State>,
    /// Signalled when an operation ends or the host is lost.
    ended: Condvar,
    limits: HostLimits,
}

impl Host {
    /// Starts serving a session with loaded modules.
    pub(super) fn new(session: HostSession, limits: HostLimits) -> std::io::Result<Arc<Self>> {
        let HostSession { process, reader, writer, socket, .. } = session;
        socket.set_read_timeout(Some(TICK.min(limits.ping_interval)))?;
        socket.set_write_timeout(Some(limits.silence_max))?;
        let state = State {
            running: HashMap::new(),
            last_number: 0,
            agents: HashMap::new(),
            used_at: monotonic(),
            closing: None,
            blamed: None,
            loss: None,
        };
        let host = Arc::new(Host {
            process,
            socket,
            writer: Mutex::new(writer),
            state: Mutex::new(state),
            ended: Condvar::new(),
            limits,
        });
        let listener = Arc::clone(&host);
        spawn_named("host", move || listener.listen(reader))?;
        Ok(host)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    fn writer(&self) -> MutexGuard<'_, Writer<UnixStream>> {
        self.writer.lock().ignore_poison()
    }

    pub(super) fn name(&self) -> &str {
        self.process.name()
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(super) fn is_usable(&self) -> bool {
        let state = self.state();
        state.closing.is_none() && state.loss.is_none()
    }

    /// Begins an operation.
    pub(super) fn begin(
        &self,
        agent: &str,
        operation: &str,
    ) -> Result<OperationHandle, BeginError> {
        let handle = {
            let mut state = self.state();
            if state.closing.is_some() || state.loss.is_some() {
                return Err(BeginError::Closing);
            }
            state.last_number += 1;
            let number = state.last_number;
            let (sender, messages) = channel();
            let dropped = Arc::new(AtomicUsize::new(0));
            let running = Running {
                agent: agent.into(),
                messages: sender,
                dropped: Arc::clone(&dropped),
                lines: 0,
                bytes: 0,
                calls: 0,
            };
            state.running.insert(number, running);
            state.used_at = monotonic();
            OperationHandle { number, messages, dropped }
        };
        let number = handle.number;
        let written = self.writer().write(|buffer| write_operation(buffer, number, operation));
        match written {
            Ok(()) => Ok(handle),
            // Nothing was sent, and the connection is intact.
            Err(WireError::TooLong) => {
                self.finish(number);
                Err(BeginError::TooLong)
            }
            Err(error) => {
                self.disconnect(&error);
                Ok(handle)
            }
        }
    }

    /// Removes a finished operation.
    pub(super) fn finish(&self, number: u64) {
        let mut state = self.state();
        let now = monotonic();
        if let Some(running) = state.running.remove(&number) {
            state.agents.insert(running.agent, now);
        }
        state.used_at = now;
        drop(state);
        self.ended.notify_all();
    }

    /// Requests the end of an operation, without blocking on a host that does not read.
    pub(super) fn cancel(&self, number: u64) {
        let until = monotonic() + TICK;
        while monotonic() < until {
            if let Ok(mut writer) = self.writer.try_lock() {
                let sent = writer.send(&json!({ "k": "cancel", "c": number }));
                drop(writer);
                return sent.unwrap_or_else(|error| self.disconnect(&error));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(super) fn reply(&self, number: u64, q: u64, reply: &Reply) {
        if let Some(running) = self.state().running.get_mut(&number) {
            running.calls -= 1;
        }
        let sent = self.writer().send(&reply.message(q));
        match sent {
            Ok(()) => {}
            Err(WireError::TooLong) => {
                self.send(&Reply::refused(413, "the answer is too long").message(q));
            }
            Err(error) => self.disconnect(&error),
        }
    }

    /// Sends a short message. On failure the connection is closed.
    fn send(&self, message: &serde_json::Value) {
        let sent = self.writer().send(message);
        sent.unwrap_or_else(|error| self.disconnect(&error));
    }

    /// Announces the deploy of a newer version.
    pub(super) fn begin_version(&self, version: u32) {
        self.send(&json!({ "k": "version", "version": version }));
    }

    /// Closes the connection; the listener thread handles the loss.
    fn disconnect(&self, error: &WireError) {
        tracing::debug!(host = self.name(), %error, "the host cannot be written to");
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Ends the process because of an operation that does not end. Other operations get a grace
    /// period.
    pub(super) fn abandon(&self, number: u64) {
        let until = monotonic() + self.limits.drain_time_max;
        {
            let mut state = self.state();
            state.closing.get_or_insert_with(monotonic);
            state.blamed.get_or_insert(number);
            while state.running.len() > 1 && state.loss.is_none() {
                let left = until.saturating_duration_since(monotonic());
                if left.is_zero() {
                    break;
                }
                let waited = self.ended.wait_timeout(state, left);
                state = waited.ignore_poison().0;
            }
        }
        if let Err(error) = self.process.end() {
            tracing::warn!(host = self.name(), %error, "the process has already been reaped");
        }
        let _ = self.socket.shutdown(Shutdown::Both);
        self.wait_for_loss(Duration::from_secs(1));
    }

    /// Waits for the details of the loss. Requires that the host is lost.
    pub(super) fn wait_for_loss(&self, limit: Duration) -> Option<Arc<HostLoss>> {
        let waited =
            self.ended.wait_timeout_while(self.state(), limit, |state| state.loss.is_none());
        waited.ignore_poison().0.loss.clone()
    }

    /// Requests an orderly end of the process; `wait_for_end` enforces it.
    pub(super) fn begin_shutdown(&self) {
        let already = self.state().closing.replace(monotonic());
        if already.is_none() {
            self.send(&json!({ "k": "shutdown" }));
        }
    }

    pub(super) fn wait_for_end(&self, until: Instant) {
        if !self.process.wait(until.saturating_duration_since(monotonic())) {
            tracing::debug!(host = self.name(), "it does not end by itself");
        }
        let _ = self.process.end();
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Main loop of the listener thread.
    fn listen(self: Arc<Self>, mut reader: Reader<UnixStream>) {
        let mut liveness = Liveness::new();
        let error = loop {
            match reader.read_line() {
                Ok(line) => {
                    liveness.record_message();
                    if let Err(error) = self.handle_message(line) {
                        break error;
                    }
                }
                Err(WireError::TimedOut) => {}
                Err(error) => break error,
            }
            if let Err(error) = self.check_liveness(&mut liveness) {
                break error;
            }
        };
        self.mark_lost(&error);
    }

    /// Records the loss and disconnects all pending operations.
    fn mark_lost(&self, error: &WireError) {
        let expected = {
            let mut state = self.state();
            state.closing.get_or_insert_with(monotonic);
            state.running.is_empty()
        };
        let lost = LostHost::from_error(&self.process, error);
        if !expected {
            tracing::warn!(host = self.name(), reason = lost.reason, "a host was lost");
        }
        let mut state = self.state();
        let running = std::mem::take(&mut state.running);
        let loss = HostLoss { lost, in_flight: running.len(), blamed: state.blamed };
        state.loss = Some(Arc::new(loss));
        drop(state);
        // Disconnects waiting operations only now, after the loss is recorded.
        drop(running);
        self.ended.notify_all();
    }

    /// Processes one message.
    fn handle_message(&self, line: &[u8]) -> Result<(), WireError> {
        match &*kind(line)? {
            "log" => {
                let log: Log = parse(line)?;
                if let Some(running) = self.state().running.get_mut(&log.c) {
                    running.forward_lines(log.lines, line.len());
                }
            }
            "report" => {
                let report: Report = parse(line)?;
                if let Some(running) = self.state().running.get(&report.c) {
                    let _ = running.messages.send(HostMessage::Report(report));
                }
            }
            "server" => {
                let call: ServerCall = parse(line)?;
                let mut state = self.state();
                if let Some(running) = call.c.and_then(|c| state.running.get_mut(&c)) {
                    if running.calls >= CALLS_MAX {
                        return Err(WireError::unexpected("server, too often at once"));
                    }
                    running.calls += 1;
                    let _ = running.messages.send(HostMessage::Call(call));
                    return Ok(());
                }
                drop(state);
                let reply = Reply::refused(410, "the operation is over");
                self.send(&reply.message(call.q));
            }
            "ping" => {
                let ping: Ping = parse(line)?;
                let sent = self.writer().send(&Pong { k: "pong", n: ping.n });
                sent?;
            }
            "pong" => {}
            other => return Err(WireError::unexpected(other)),
        }
        Ok(())
    }

    /// Checks liveness and idle time.
    fn check_liveness(&self, liveness: &mut Liveness) -> Result<(), WireError> {
        let now = monotonic();
        if now < liveness.next_look {
            return Ok(());
        }
        liveness.next_look = now + TICK;
        // A child may hold the socket open after the process itself ended.
        if self.process.has_ended() {
            return Err(WireError::Closed);
        }
        let (busy, used_at, closing) = {
            let state = self.state();
            (!state.running.is_empty(), state.used_at, state.closing)
        };
        if !busy {
            match closing {
                None => self.close_idle(now, used_at),
                Some(since) if now.duration_since(since) <= self.limits.shutdown_time_max => {}
                // The shutdown is complete.
                Some(_) => return Err(WireError::Closed),
            }
            liveness.restart(now);
            return Ok(());
        }
        if now >= liveness.next_ping {
            liveness.next_ping = now + self.limits.ping_interval;
            liveness.number += 1;
            // A concurrent writer detects a stalled host on its own.
            if let Ok(mut writer) = self.writer.try_lock() {
                let sent = writer.send(&json!({ "k": "ping", "n": liveness.number }));
                sent?;
            }
        }
        liveness.record_activity(self.process.processor_ticks(), now);
        if now.duration_since(liveness.alive_at.max(used_at)) > self.limits.silence_max {
            return Err(WireError::Silent(self.limits.silence_max));
        }
        Ok(())
    }

    /// Closes idle agents' connections, then the idle host.
    fn close_idle(&self, now: Instant, used_at: Instant) {
        let limit = self.limits.idle_time_max;
        let retired: Vec<Box<str>> = {
            let mut state = self.state();
            let State { agents, running, .. } = &mut *state;
            let idle = |agent: &str, at: Instant| {
                now.duration_since(at) > limit && running.values().all(|one| &*one.agent != agent)
            };
            agents.extract_if(|agent, at| idle(agent, *at)).map(|(agent, _)| agent).collect()
        };
        for agent in retired {
            self.send(&json!({ "k": "retire", "agent": agent }));
        }
        // Later than the agents' limit, so that agents are closed first.
        if now.duration_since(used_at) > limit + 2 * TICK {
            self.begin_shutdown();
        }
    }
}

impl Running {
    /// Forwards log lines within the limits.
    fn forward_lines(&mut self, lines: Vec<Line>, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        let mut kept = Vec::with_capacity(lines.len());
        for line in lines {
            let full = |times: usize| {
                self.lines >= times * LOG_LINES_MAX || self.bytes >= times * LOG_BYTES_MAX
            };
            if full(4) || full(1) && line.level() < LogLevel::Warning {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            self.lines += 1;
            kept.push(line.into_line());
        }
        if !kept.is_empty() {
            let _ = self.messages.send(HostMessage::Lines(kept));
        }
    }
}

/// Liveness of a host.
struct Liveness {
    next_look: Instant,
    next_ping: Instant,
    number: u64,
    /// Time of the last message or observed activity.
    alive_at: Instant,
    ticks: Option<u64>,
}

impl Liveness {
    fn new() -> Self {
        let now = monotonic();
        Liveness { next_look: now, next_ping: now, number: 0, alive_at: now, ticks: None }
    }

    fn record_message(&mut self) {
        self.alive_at = monotonic();
    }

    fn restart(&mut self, now: Instant) {
        self.alive_at = now;
    }

    /// Counts processor use as liveness: code may hold the interpreter's lock for long.
    fn record_activity(&mut self, ticks: Option<u64>, now: Instant) {
        if ticks != self.ticks {
            self.ticks = ticks;
            self.alive_at = now;
        }
    }
}
