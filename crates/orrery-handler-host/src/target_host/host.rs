//! Process of a target host, on the server's side: started when needed, ended when idle, replaced
//! when lost.

use std::fmt;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_base::thread::spawn_named;
use orrery_handlers::{CancelCause, CancelToken, Moment, Permit};

use orrery_host::framing::WireError;
use orrery_host::handshake::LostHost;
use orrery_host::process::HostProcess;

use super::channel::{Channel, send_connection};
use super::message::{Answer, Call, Reply, TargetOperation};

/// Time limit for the first answer. A start takes milliseconds; the limit is for overloaded
/// machines.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Minimum interval between starts of hosts that are lost at once.
const START_EVERY: Duration = Duration::from_secs(1);
/// Idle time after which a host is ended, with all processes that commands left in it.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(60);
/// Maximum number of idle connections.
const CONNECTIONS_KEPT: usize = 64;
/// Poll interval for cancellation.
const POLL: Duration = Duration::from_millis(50);
/// Silence after which a host is pinged.
const SILENT_MAX: Duration = Duration::from_secs(5);
/// Time limit for the answer to a ping.
const ALIVE_WITHIN: Duration = Duration::from_secs(10);
/// Time limit for a send without progress.
const SEND_WITHIN: Duration = Duration::from_secs(60);
/// Grace period of a cancelled command. The host kills it after two seconds.
const STOP_WITHIN: Duration = Duration::from_secs(8);
/// Grace period after the permit ends: another process may be about to start the same command.
const UNAUTHORIZED_WITHIN: Duration = Duration::from_secs(3);
/// Maximum delay between the end of a process's connections and its exit.
const END_SEEN_WITHIN: Duration = Duration::from_millis(300);

/// Returns the command that becomes a target host, or the reason that there is none.
pub type Spawn = dyn Fn() -> Result<Command, String> + Send + Sync;

/// Error of a call.
#[derive(Debug)]
pub(super) enum CallError {
    /// No host; nothing was done.
    Unavailable(String),
    /// Out of descriptors or processes; nothing was done.
    Exhausted,
    /// The host was lost; the call may have taken effect.
    Lost(String),
    Stopped(CancelCause),
    /// The permit has ended; nothing was done.
    Unauthorized,
}

/// Request to a host.
pub(super) struct HostRequest<'a> {
    pub(super) what: TargetOperation,
    pub(super) bytes: &'a [u8],
    pub(super) permit: Option<&'a Permit>,
    /// Cancellation of long operations.
    pub(super) stop: Option<&'a CancelToken>,
    /// Maximum bytes of the answer.
    pub(super) answer_max: u64,
}

/// The target host of one environment.
pub struct TargetHost {
    name: String,
    spawn: Box<Spawn>,
    idle_max: Duration,
    state: Mutex<State>,
    /// True if something changed since the last sync.
    unsynced: AtomicBool,
}

impl fmt::Debug for TargetHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TargetHost").field("name", &self.name).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    running: Option<Arc<Running>>,
    started: Option<Instant>,
    /// True if a host ended before its writes were synced.
    lost_unsynced: bool,
}

/// A host process and the connections to it.
#[derive(Debug)]
struct Running {
    process: HostProcess,
    control: UnixStream,
    connections: Mutex<Connections>,
    /// Time of the last sign of life.
    alive: Mutex<Instant>,
}

#[derive(Debug)]
struct Connections {
    idle: Vec<Connection>,
    busy: usize,
    used: Instant,
}

#[derive(Debug)]
struct Connection {
    channel: Channel,
    seq: u64,
}

/// A broken connection.
struct BrokenConnection {
    error: WireError,
    /// True if the host may have begun the operation.
    begun: bool,
}

impl TargetHost {
    /// Creates a host that starts on first use. `name` is for log lines.
    pub fn new(name: impl Into<String>, spawn: Box<Spawn>) -> Arc<Self> {
        Self::with_idle_time(name, spawn, IDLE_MAX)
    }

    /// Creates a host with another idle time.
    pub fn with_idle_time(
        name: impl Into<String>,
        spawn: Box<Spawn>,
        idle_max: Duration,
    ) -> Arc<Self> {
        Arc::new(TargetHost {
            name: name.into(),
            spawn,
            idle_max,
            state: Mutex::default(),
            unsynced: AtomicBool::new(false),
        })
    }

    /// Returns the process id, if running.
    pub fn pid(&self) -> Option<u32> {
        self.state.lock().ignore_poison().running.as_ref().map(|running| running.process.pid())
    }

    /// Ends the process and all processes in it.
    pub fn close(&self) {
        let mut state = self.state.lock().ignore_poison();
        if let Some(running) = state.running.take() {
            state.lost_unsynced |= self.unsynced.load(Ordering::Acquire);
            drop(state);
            if running.connections.lock().ignore_poison().busy > 0 {
                // The host cancels its running commands.
                let _ = running.control.shutdown(Shutdown::Both);
                running.process.wait(STOP_WITHIN);
            }
            // Waiting callers see their connections closed.
            let _ = running.process.kill();
        }
    }

    /// Records an imminent change.
    pub(super) fn note_change(&self) {
        self.unsynced.store(true, Ordering::Release);
    }

    /// Returns the work of the next sync, and resets the record.
    pub(super) fn take_unsynced(&self) -> Unsynced {
        let mut state = self.state.lock().ignore_poison();
        let changed = self.unsynced.swap(false, Ordering::AcqRel);
        match (std::mem::take(&mut state.lost_unsynced), changed) {
            (true, _) => Unsynced::Lost,
            (false, true) => Unsynced::Changed,
            (false, false) => Unsynced::Nothing,
        }
    }

    /// Sends a request and waits for the answer. A missing host is started; a host lost before it
    /// could begin, or during a read-only operation, is replaced once.
    pub(super) fn ask(
        self: &Arc<Self>,
        question: &HostRequest<'_>,
    ) -> Result<(Reply, Vec<u8>), CallError> {
        let mut replaced = false;
        loop {
            if question.permit.is_some_and(Permit::is_over) {
                return Err(CallError::Unauthorized);
            }
            if let Some(reason) = question.stop.and_then(CancelToken::reason) {
                return Err(CallError::Stopped(reason));
            }
            let running = self.running()?;
            let broken = match running.connection() {
                Ok((mut connection, is_new)) => match connection.exchange(&running, question) {
                    Ok(Ok(answer)) => {
                        running.give_back(Some(connection));
                        return Ok(answer);
                    }
                    // A late answer may arrive on the connection: it is not reused.
                    Ok(Err(error)) => {
                        running.give_back(None);
                        return Err(error);
                    }
                    Err(broken) => {
                        running.give_back(None);
                        let closed =
                            matches!(broken.error, WireError::Closed | WireError::Truncated);
                        if closed && !running.process.wait(END_SEEN_WITHIN) {
                            // The host is alive, but has no capacity for a new connection.
                            return Err(match is_new {
                                true => CallError::Exhausted,
                                false => CallError::Lost("it closed a connection".to_owned()),
                            });
                        }
                        broken
                    }
                },
                Err(error) if error.raw_os_error().is_some_and(is_shortage) => {
                    return Err(CallError::Exhausted);
                }
                Err(error) => BrokenConnection { error: error.into(), begun: false },
            };
            let how = self.mark_lost(&running, &broken.error);
            if replaced || (broken.begun && !question.what.only_reads()) {
                return Err(CallError::Lost(how));
            }
            tracing::debug!(host = self.name, how, "the target host is replaced");
            replaced = true;
        }
    }

    /// Returns the host, started if missing.
    fn running(self: &Arc<Self>) -> Result<Arc<Running>, CallError> {
        let mut state = self.state.lock().ignore_poison();
        if let Some(running) = &state.running {
            return Ok(Arc::clone(running));
        }
        let pause =
            state.started.map_or(Duration::ZERO, |at| START_EVERY.saturating_sub(at.elapsed()));
        std::thread::sleep(pause);
        state.started = Some(monotonic());
        let running = Arc::new(self.start()?);
        state.running = Some(Arc::clone(&running));
        drop(state);
        let (host, watched) = (Arc::downgrade(self), Arc::downgrade(&running));
        let idle_max = self.idle_max;
        if let Err(error) =
            spawn_named("target host", move || end_when_idle(&host, &watched, idle_max))
        {
            tracing::warn!(%error, "the target host is ended when the environment is given back");
        }
        Ok(running)
    }

    fn start(&self) -> Result<Running, CallError> {
        let unavailable = |reason: String| CallError::Unavailable(reason);
        let failed = |error: std::io::Error| match error.raw_os_error() {
            Some(number) if is_shortage(number) => CallError::Exhausted,
            _ => CallError::Unavailable(format!("its process could not be started: {error}")),
        };
        let mut command = (self.spawn)().map_err(unavailable)?;
        let (control, theirs) = UnixStream::pair().map_err(failed)?;
        control.set_write_timeout(Some(ALIVE_WITHIN)).map_err(failed)?;
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        let process = HostProcess::spawn(&self.name, command).map_err(failed)?;
        let now = monotonic();
        let connections = Connections { idle: Vec::new(), busy: 0, used: now };
        let running = Running {
            process,
            control,
            connections: Mutex::new(connections),
            alive: Mutex::new(now),
        };
        match running.ping(READY_WITHIN) {
            Ok(()) => Ok(running),
            Err(error) => Err(CallError::Unavailable(
                LostHost::from_error(&running.process, &error).to_string(),
            )),
        }
    }

    /// Ends a host after an error, unless already done, and describes the loss.
    fn mark_lost(&self, running: &Arc<Running>, error: &WireError) -> String {
        {
            let mut state = self.state.lock().ignore_poison();
            if state.running.as_ref().is_some_and(|current| Arc::ptr_eq(current, running)) {
                state.running = None;
                state.lost_unsynced |= self.unsynced.load(Ordering::Acquire);
            }
        }
        LostHost::from_error(&running.process, error).to_string()
    }
}

/// Work of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsynced {
    Nothing,
    Changed,
    /// A host with changes was lost.
    Lost,
}

fn is_shortage(number: i32) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE, Errno::AGAIN].iter().any(|errno| errno.raw_os_error() == number)
}

/// Ends an idle host.
fn end_when_idle(host: &Weak<TargetHost>, watched: &Weak<Running>, idle_max: Duration) {
    let step = (idle_max / 10).clamp(Duration::from_millis(10), Duration::from_secs(5));
    loop {
        std::thread::sleep(step);
        let (Some(host), Some(running)) = (host.upgrade(), watched.upgrade()) else { return };
        let mut state = host.state.lock().ignore_poison();
        if !state.running.as_ref().is_some_and(|current| Arc::ptr_eq(current, &running)) {
            return;
        }
        let connections = running.connections.lock().ignore_poison();
        if connections.busy == 0 && connections.used.elapsed() >= idle_max {
            state.lost_unsynced |= host.unsynced.load(Ordering::Acquire);
            state.running = None;
            drop((connections, state));
            tracing::debug!(host = host.name, "nothing to do: the target host is ended");
            let _ = running.process.kill();
            return;
        }
    }
}

impl Running {
    /// Returns a connection for one call, and true if it is new.
    fn connection(&self) -> std::io::Result<(Connection, bool)> {
        let reused = self.connections.lock().ignore_poison().idle.pop();
        let is_new = reused.is_none();
        let connection = reused.map_or_else(|| self.connect(), Ok)?;
        self.connections.lock().ignore_poison().busy += 1;
        Ok((connection, is_new))
    }

    fn connect(&self) -> std::io::Result<Connection> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_write_timeout(Some(SEND_WITHIN))?;
        send_connection(&self.control, &theirs)?;
        Ok(Connection { channel: Channel::new(ours), seq: 0 })
    }

    fn give_back(&self, connection: Option<Connection>) {
        let mut connections = self.connections.lock().ignore_poison();
        connections.busy -= 1;
        connections.used = monotonic();
        if connections.idle.len() < CONNECTIONS_KEPT {
            connections.idle.extend(connection);
        }
    }

    /// Pings the host.
    fn ping(&self, within: Duration) -> Result<(), WireError> {
        let mut connection = match self.connect() {
            // Without descriptors the state is unknown.
            Err(error) if error.raw_os_error().is_some_and(is_shortage) => return Ok(()),
            other => other?,
        };
        connection.channel.stream().set_read_timeout(Some(within))?;
        connection
            .channel
            .send(&Call { seq: 1, until: None, bytes: 0, what: TargetOperation::Ping }, &[])?;
        match connection.channel.receive(|_: &Answer| Ok(0)) {
            Ok(_) => Ok(()),
            Err(WireError::TimedOut) => Err(WireError::Silent(within)),
            Err(error) => Err(error),
        }
    }

    /// Checks a silent host. Of many waiting callers, one pings.
    fn check_alive(&self) -> Result<(), WireError> {
        let Ok(mut alive) = self.alive.try_lock() else { return Ok(()) };
        if alive.elapsed() >= SILENT_MAX {
            self.ping(ALIVE_WITHIN)?;
            *alive = monotonic();
        }
        Ok(())
    }
}

impl Connection {
    /// Performs one call.
    fn exchange(
        &mut self,
        running: &Running,
        question: &HostRequest<'_>,
    ) -> Result<Result<(Reply, Vec<u8>), CallError>, BrokenConnection> {
        let HostRequest { bytes, stop, answer_max, .. } = *question;
        self.seq += 1;
        let permit = stop.and_then(CancelToken::permit).or(question.permit);
        let mut until = permit.and_then(Permit::end);
        let begin = CallRef {
            seq: self.seq,
            until: until.map(Moment::to_nanoseconds),
            bytes: bytes.len() as u64,
            what: &question.what,
        };
        let timeout = if stop.is_some() { POLL } else { SILENT_MAX };
        let prepared = self.channel.stream().set_read_timeout(Some(timeout));
        prepared.map_err(|error| BrokenConnection { error: error.into(), begun: false })?;
        self.channel
            .send(&begin, bytes)
            .map_err(|error| BrokenConnection { error, begun: false })?;
        let broken = |error| BrokenConnection { error, begun: true };
        let length = |answer: &Answer| {
            usize::try_from(answer.bytes)
                .ok()
                .filter(|_| answer.bytes <= answer_max)
                .ok_or(WireError::TooLong)
        };
        let mut cancelled: Option<(CancelCause, Instant)> = None;
        loop {
            match self.channel.receive(length) {
                Ok((Answer { seq: 0, reply: Reply::Failed(_), .. }, _)) => {
                    return Ok(Err(CallError::Exhausted));
                }
                Ok((Answer { seq, reply, .. }, bytes)) if seq == self.seq => {
                    return Ok(Ok((reply, bytes)));
                }
                Ok(_) => return Err(broken(WireError::unexpected("answer"))),
                Err(WireError::TimedOut) => {}
                Err(error) => return Err(broken(error)),
            }
            if let Some(stop) = stop {
                let now = permit.and_then(Permit::end);
                if now != until && cancelled.is_none() {
                    until = now;
                    self.send(TargetOperation::Extend, until).map_err(broken)?;
                }
                match (stop.reason(), cancelled) {
                    (Some(reason), None) => {
                        cancelled = Some((reason, monotonic()));
                        self.send(TargetOperation::Cancel, None).map_err(broken)?;
                    }
                    (_, Some((reason, since))) => {
                        if stop.is_unauthorized() && since.elapsed() > UNAUTHORIZED_WITHIN {
                            // With all its processes: another process may act from now on.
                            let _ = running.process.kill();
                            return Ok(Err(CallError::Stopped(reason)));
                        }
                        if since.elapsed() > STOP_WITHIN {
                            return Ok(Err(CallError::Stopped(reason)));
                        }
                    }
                    (None, None) => {}
                }
            }
            running.check_alive().map_err(broken)?;
        }
    }

    fn send(&mut self, what: TargetOperation, until: Option<Moment>) -> Result<(), WireError> {
        let until = until.map(Moment::to_nanoseconds);
        self.channel.send(&Call { seq: self.seq, until, bytes: 0, what }, &[])
    }
}

/// Borrowed form of [`Call`] for serialization.
#[derive(serde::Serialize)]
struct CallRef<'a> {
    seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
    bytes: u64,
    what: &'a TargetOperation,
}
