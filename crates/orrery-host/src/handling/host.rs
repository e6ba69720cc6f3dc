//! One host process and the conversation with it: who waits for what, whether it is alive, and how it was lost.

use std::collections::HashMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use orrery_model::{LogLevel, LogLine};
use serde_json::json;

use crate::process::HostProcess;
use crate::session::{Lost, Ping, Pong, Session};
use crate::wire::{Reader, WireError, Writer, kind, parse};

use super::Limits;
use super::messages::{Line, Log, Report, ServerCall, write_operation};
use super::services::Reply;

/// Log of one operation: beyond these, only warnings and worse are kept, and beyond four times as much nothing.
const LOG_LINES_MAX: usize = 10_000;
const LOG_BYTES_MAX: usize = 4 << 20;
/// Calls of one operation that wait for an answer.
const CALLS_MAX: usize = 1_000;
/// How often the conversation is looked after while nothing is said.
const TICK: Duration = Duration::from_millis(250);

/// What a host says about one operation.
#[derive(Debug)]
pub(super) enum Said {
    Lines(Vec<LogLine>),
    Call(ServerCall),
    Report(Report),
}

/// An operation that a host works on.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) number: u64,
    /// Ends when the host was lost.
    pub(super) said: Receiver<Said>,
    /// Lines that were too many.
    pub(super) dropped: Arc<AtomicUsize>,
}

/// Why a host does not take an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotBegun {
    /// It takes no more of them.
    Closing,
    TooLong,
}

/// How a host was lost, and what that means for those who waited.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    pub(super) lost: Lost,
    /// Operations that ran at that moment.
    pub(super) in_flight: usize,
    /// The operation because of which it was ended.
    pub(super) blamed: Option<u64>,
}

#[derive(Debug)]
struct Running {
    agent: Box<str>,
    said: Sender<Said>,
    dropped: Arc<AtomicUsize>,
    lines: usize,
    bytes: usize,
    calls: usize,
}

#[derive(Debug)]
struct State {
    running: HashMap<u64, Running>,
    last_number: u64,
    /// When agents were last heard of that the host may keep something open for.
    agents: HashMap<Box<str>, Instant>,
    used_at: Instant,
    /// Since when it gets no more operations.
    closing: Option<Instant>,
    blamed: Option<u64>,
    loss: Option<Arc<Loss>>,
}

#[derive(Debug)]
pub(super) struct Host {
    process: HostProcess,
    socket: UnixStream,
    writer: Mutex<Writer<UnixStream>>,
    state: Mutex<State>,
    /// An operation ended, or the host was lost.
    ended: Condvar,
    limits: Limits,
}

impl Host {
    /// Takes over a conversation in which the modules are loaded.
    pub(super) fn new(session: Session, limits: Limits) -> std::io::Result<Arc<Self>> {
        let Session { process, reader, writer, socket, .. } = session;
        socket.set_read_timeout(Some(TICK.min(limits.ping_interval)))?;
        socket.set_write_timeout(Some(limits.silence_max))?;
        let state = State {
            running: HashMap::new(),
            last_number: 0,
            agents: HashMap::new(),
            used_at: Instant::now(),
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
        let thread = std::thread::Builder::new().name("host".to_owned());
        thread.spawn(move || listener.listen(reader))?;
        Ok(host)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Writer<UnixStream>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub(super) fn begin(&self, agent: &str, operation: &str) -> Result<Ticket, NotBegun> {
        let ticket = {
            let mut state = self.state();
            if state.closing.is_some() || state.loss.is_some() {
                return Err(NotBegun::Closing);
            }
            state.last_number += 1;
            let number = state.last_number;
            let (sender, said) = channel();
            let dropped = Arc::new(AtomicUsize::new(0));
            let running = Running {
                agent: agent.into(),
                said: sender,
                dropped: Arc::clone(&dropped),
                lines: 0,
                bytes: 0,
                calls: 0,
            };
            state.running.insert(number, running);
            state.used_at = Instant::now();
            Ticket { number, said, dropped }
        };
        let number = ticket.number;
        let written = self.writer().write(|buffer| write_operation(buffer, number, operation));
        match written {
            Ok(()) => Ok(ticket),
            // It was not sent, and the conversation is whole.
            Err(WireError::TooLong) => {
                self.finish(number);
                Err(NotBegun::TooLong)
            }
            Err(error) => {
                self.disconnect(&error);
                Ok(ticket)
            }
        }
    }

    /// The operation is over for whoever asked.
    pub(super) fn finish(&self, number: u64) {
        let mut state = self.state();
        let now = Instant::now();
        if let Some(running) = state.running.remove(&number) {
            state.agents.insert(running.agent, now);
        }
        state.used_at = now;
        drop(state);
        self.ended.notify_all();
    }

    /// Asks for the end of an operation. Whoever asks does not wait for a host that does not listen.
    pub(super) fn cancel(&self, number: u64) {
        let until = Instant::now() + TICK;
        while Instant::now() < until {
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

    /// Says something that is short. If it cannot be said, the conversation is over.
    fn send(&self, message: &serde_json::Value) {
        let sent = self.writer().send(message);
        sent.unwrap_or_else(|error| self.disconnect(&error));
    }

    /// Says that a newer version is deployed from now on.
    pub(super) fn begin_version(&self, version: u32) {
        self.send(&json!({ "k": "version", "version": version }));
    }

    /// Ends the connection, which the listener notices.
    fn disconnect(&self, error: &WireError) {
        tracing::debug!(host = self.name(), %error, "nothing can be said to it any more");
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Ends the process because of an operation that does not end. Others get a while to do so.
    pub(super) fn give_up(&self, number: u64) {
        let until = Instant::now() + self.limits.drain_time_max;
        {
            let mut state = self.state();
            state.closing.get_or_insert_with(Instant::now);
            state.blamed.get_or_insert(number);
            while state.running.len() > 1 && state.loss.is_none() {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                let waited = self.ended.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        if let Err(error) = self.process.end() {
            tracing::warn!(host = self.name(), %error, "the process is not known any more");
        }
        let _ = self.socket.shutdown(Shutdown::Both);
        self.wait_for_loss(Duration::from_secs(1));
    }

    /// How it was lost. To be asked by those who know that it was.
    pub(super) fn wait_for_loss(&self, limit: Duration) -> Option<Arc<Loss>> {
        let waited =
            self.ended.wait_timeout_while(self.state(), limit, |state| state.loss.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.loss.clone()
    }

    /// Asks the process to end when it has nothing more to do; `wait_for_end` sees to it that it does.
    pub(super) fn begin_shutdown(&self) {
        let already = self.state().closing.replace(Instant::now());
        if already.is_none() {
            self.send(&json!({ "k": "shutdown" }));
        }
    }

    pub(super) fn wait_for_end(&self, until: Instant) {
        if !self.process.wait(until.saturating_duration_since(Instant::now())) {
            tracing::debug!(host = self.name(), "it does not end by itself");
        }
        let _ = self.process.end();
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// The life of the thread that listens.
    fn listen(self: Arc<Self>, mut reader: Reader<UnixStream>) {
        let mut pulse = Pulse::new();
        let error = loop {
            match reader.read_line() {
                Ok(line) => {
                    pulse.heard();
                    if let Err(error) = self.take(line) {
                        break error;
                    }
                }
                Err(WireError::TimedOut) => {}
                Err(error) => break error,
            }
            if let Err(error) = self.look_after(&mut pulse) {
                break error;
            }
        };
        self.lose(&error);
    }

    /// Everybody who waits is told that it is in vain.
    fn lose(&self, error: &WireError) {
        let expected = {
            let mut state = self.state();
            state.closing.get_or_insert_with(Instant::now);
            state.running.is_empty()
        };
        let lost = Lost::after(&self.process, error);
        if !expected {
            tracing::warn!(host = self.name(), reason = lost.reason, "a host was lost");
        }
        let mut state = self.state();
        let running = std::mem::take(&mut state.running);
        let loss = Loss { lost, in_flight: running.len(), blamed: state.blamed };
        state.loss = Some(Arc::new(loss));
        drop(state);
        // Only now do those who wait see the end of what was said: they ask how it came to it.
        drop(running);
        self.ended.notify_all();
    }

    /// One message.
    fn take(&self, line: &[u8]) -> Result<(), WireError> {
        match &*kind(line)? {
            "log" => {
                let log: Log = parse(line)?;
                if let Some(running) = self.state().running.get_mut(&log.c) {
                    running.keep(log.lines, line.len());
                }
            }
            "report" => {
                let report: Report = parse(line)?;
                if let Some(running) = self.state().running.get(&report.c) {
                    let _ = running.said.send(Said::Report(report));
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
                    let _ = running.said.send(Said::Call(call));
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

    /// What has to be done now and then.
    fn look_after(&self, pulse: &mut Pulse) -> Result<(), WireError> {
        let now = Instant::now();
        if now < pulse.next_look {
            return Ok(());
        }
        pulse.next_look = now + TICK;
        // A child of the process may keep the socket open when the process itself is gone.
        if self.process.has_ended() {
            return Err(WireError::Closed);
        }
        let (busy, used_at, closing) = {
            let state = self.state();
            (!state.running.is_empty(), state.used_at, state.closing)
        };
        if !busy {
            match closing {
                None => self.retire_idle(now, used_at),
                Some(since) if now.duration_since(since) <= self.limits.shutdown_time_max => {}
                // It was asked to end and has nothing to do.
                Some(_) => return Err(WireError::Closed),
            }
            pulse.restart(now);
            return Ok(());
        }
        if now >= pulse.next_ping {
            pulse.next_ping = now + self.limits.ping_interval;
            pulse.number += 1;
            // Somebody who writes at this moment finds out by himself whether the host takes it.
            if let Ok(mut writer) = self.writer.try_lock() {
                let sent = writer.send(&json!({ "k": "ping", "n": pulse.number }));
                sent?;
            }
        }
        pulse.worked(self.process.processor_ticks(), now);
        if now.duration_since(pulse.alive_at.max(used_at)) > self.limits.silence_max {
            return Err(WireError::Silent(self.limits.silence_max));
        }
        Ok(())
    }

    /// Closes what nobody used for a while.
    fn retire_idle(&self, now: Instant, used_at: Instant) {
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
        // A little later, so that the agents come first.
        if now.duration_since(used_at) > limit + 2 * TICK {
            self.begin_shutdown();
        }
    }
}

impl Running {
    /// Passes lines on, as long as they are not too many.
    fn keep(&mut self, lines: Vec<Line>, bytes: usize) {
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
            let _ = self.said.send(Said::Lines(kept));
        }
    }
}

/// Signs of life.
struct Pulse {
    next_look: Instant,
    next_ping: Instant,
    number: u64,
    /// When it last said something or was seen working.
    alive_at: Instant,
    ticks: Option<u64>,
}

impl Pulse {
    fn new() -> Self {
        let now = Instant::now();
        Pulse { next_look: now, next_ping: now, number: 0, alive_at: now, ticks: None }
    }

    fn heard(&mut self) {
        self.alive_at = Instant::now();
    }

    fn restart(&mut self, now: Instant) {
        self.alive_at = now;
    }

    /// Code may hold the interpreter's lock for long; as long as it works, it is not hung.
    fn worked(&mut self, ticks: Option<u64>, now: Instant) {
        if ticks != self.ticks {
            self.ticks = ticks;
            self.alive_at = now;
        }
    }
}
