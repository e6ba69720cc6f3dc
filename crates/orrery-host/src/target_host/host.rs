//! The process of a target host, as the server has it: started when it is needed, ended when it is not, and replaced when it is
//! lost.

use std::fmt;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use orrery_handlers::{Moment, Permit, Stop, StopReason};

use crate::process::HostProcess;
use crate::session::Lost;
use crate::wire::WireError;

use super::channel::{Channel, hand_over};
use super::message::{Answer, Call, Reply, What};

/// A process that has answered its first question is ready. Starting takes milliseconds; this is for machines that are overloaded.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Hosts that are lost at once are not started more often than this.
const START_EVERY: Duration = Duration::from_secs(1);
/// A host that nothing was asked of for so long is ended, with all that commands have left running in it.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(60);
/// Connections that are kept for the next call.
const CONNECTIONS_KEPT: usize = 64;
/// Poll interval for cancellation.
const POLL: Duration = Duration::from_millis(50);
/// How long a host may be silent before it is asked whether it is alive.
const SILENT_MAX: Duration = Duration::from_secs(5);
/// How long it may take to say so.
const ALIVE_WITHIN: Duration = Duration::from_secs(10);
/// How long it may take nothing of a message.
const SEND_WITHIN: Duration = Duration::from_secs(60);
/// How long a cancelled command may take to end. The host kills it after two seconds.
const STOP_WITHIN: Duration = Duration::from_secs(8);
/// As above, when the right to act is over: another process may be about to begin the same.
const UNAUTHORIZED_WITHIN: Duration = Duration::from_secs(3);
/// How long it takes at most until the end of a process is seen, after that of its connections.
const END_SEEN_WITHIN: Duration = Duration::from_millis(300);

/// Gives the command that becomes a target host, or says why there can be none.
pub type Spawn = dyn Fn() -> Result<Command, String> + Send + Sync;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// There is no host; nothing was done.
    Unavailable(String),
    /// There are not enough descriptors or processes; nothing was done.
    Exhausted,
    /// It may have been done.
    Lost(String),
    Stopped(StopReason),
    /// The right to act is over; nothing was done.
    Unauthorized,
}

/// What is asked of a host.
pub(super) struct Question<'a> {
    pub(super) what: What,
    pub(super) bytes: &'a [u8],
    pub(super) permit: Option<&'a Permit>,
    /// For what may take long.
    pub(super) stop: Option<&'a Stop>,
    /// Bytes of the answer, at most.
    pub(super) answer_max: u64,
}

/// The target host of one environment.
pub struct TargetHost {
    name: String,
    spawn: Box<Spawn>,
    idle_max: Duration,
    state: Mutex<State>,
    /// Something was changed since the last sync.
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
    /// A host was ended before what it wrote was synced.
    lost_unsynced: bool,
}

/// A host process and the connections to it.
#[derive(Debug)]
struct Running {
    process: HostProcess,
    control: UnixStream,
    connections: Mutex<Connections>,
    /// When it was last known to be alive.
    alive: Mutex<Instant>,
}

#[derive(Debug)]
struct Connections {
    kept: Vec<Connection>,
    busy: usize,
    used: Instant,
}

#[derive(Debug)]
struct Connection {
    channel: Channel,
    seq: u64,
}

/// A conversation that is over.
struct Broken {
    error: WireError,
    /// Whether the host may have begun what it was asked for.
    begun: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TargetHost {
    /// A host that is started when something is asked of it. `name` is for log lines.
    pub fn new(name: impl Into<String>, spawn: Box<Spawn>) -> Arc<Self> {
        Self::with_idle_time(name, spawn, IDLE_MAX)
    }

    /// The same, with another time after which it is ended when nothing is asked of it.
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

    /// The process, while there is one.
    pub fn pid(&self) -> Option<u32> {
        lock(&self.state).running.as_ref().map(|running| running.process.pid())
    }

    /// Ends the process with all that runs in it.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        if let Some(running) = state.running.take() {
            state.lost_unsynced |= self.unsynced.load(Ordering::Acquire);
            drop(state);
            if lock(&running.connections).busy > 0 {
                // It cancels what runs.
                let _ = running.control.shutdown(Shutdown::Both);
                running.process.wait(STOP_WITHIN);
            }
            // Callers that still wait for an answer see that their connections are closed.
            let _ = running.process.kill();
        }
    }

    /// Notes that something is about to be changed.
    pub(super) fn note_change(&self) {
        self.unsynced.store(true, Ordering::Release);
    }

    /// What the next sync has to do; from now on counts what is changed later.
    pub(super) fn take_unsynced(&self) -> Unsynced {
        let mut state = lock(&self.state);
        let changed = self.unsynced.swap(false, Ordering::AcqRel);
        match (std::mem::take(&mut state.lost_unsynced), changed) {
            (true, _) => Unsynced::Lost,
            (false, true) => Unsynced::Changed,
            (false, false) => Unsynced::Nothing,
        }
    }

    /// Asks, and waits for the answer. A host that is missing is started; one that was lost before it could begin, or while it
    /// only looked, is replaced once.
    pub(super) fn ask(
        self: &Arc<Self>,
        question: &Question<'_>,
    ) -> Result<(Reply, Vec<u8>), Trouble> {
        let mut replaced = false;
        loop {
            if question.permit.is_some_and(Permit::is_over) {
                return Err(Trouble::Unauthorized);
            }
            if let Some(reason) = question.stop.and_then(Stop::reason) {
                return Err(Trouble::Stopped(reason));
            }
            let running = self.running()?;
            let broken = match running.connection() {
                Ok((mut connection, is_new)) => match connection.exchange(&running, question) {
                    Ok(Ok(answer)) => {
                        running.give_back(Some(connection));
                        return Ok(answer);
                    }
                    // Something may still come on the connection: it is not used again.
                    Ok(Err(trouble)) => {
                        running.give_back(None);
                        return Err(trouble);
                    }
                    Err(broken) => {
                        running.give_back(None);
                        let closed =
                            matches!(broken.error, WireError::Closed | WireError::Truncated);
                        if closed && !running.process.wait(END_SEEN_WITHIN) {
                            // It lives, and had no room for a new connection.
                            return Err(match is_new {
                                true => Trouble::Exhausted,
                                false => Trouble::Lost("it closed a connection".to_owned()),
                            });
                        }
                        broken
                    }
                },
                Err(error) if error.raw_os_error().is_some_and(is_shortage) => {
                    return Err(Trouble::Exhausted);
                }
                Err(error) => Broken { error: error.into(), begun: false },
            };
            let how = self.lose(&running, &broken.error);
            if replaced || (broken.begun && !question.what.only_looks()) {
                return Err(Trouble::Lost(how));
            }
            tracing::debug!(host = self.name, how, "the target host is replaced");
            replaced = true;
        }
    }

    /// The host; started, if there is none.
    fn running(self: &Arc<Self>) -> Result<Arc<Running>, Trouble> {
        let mut state = lock(&self.state);
        if let Some(running) = &state.running {
            return Ok(Arc::clone(running));
        }
        let pause =
            state.started.map_or(Duration::ZERO, |at| START_EVERY.saturating_sub(at.elapsed()));
        std::thread::sleep(pause);
        state.started = Some(Instant::now());
        let running = Arc::new(self.start()?);
        state.running = Some(Arc::clone(&running));
        drop(state);
        let (host, watched) = (Arc::downgrade(self), Arc::downgrade(&running));
        let idle_max = self.idle_max;
        let thread = std::thread::Builder::new().name("target host".to_owned());
        if let Err(error) = thread.spawn(move || end_when_idle(&host, &watched, idle_max)) {
            tracing::warn!(%error, "the target host is ended when the environment is given back");
        }
        Ok(running)
    }

    fn start(&self) -> Result<Running, Trouble> {
        let unavailable = |reason: String| Trouble::Unavailable(reason);
        let failed = |error: std::io::Error| match error.raw_os_error() {
            Some(number) if is_shortage(number) => Trouble::Exhausted,
            _ => Trouble::Unavailable(format!("its process could not be started: {error}")),
        };
        let mut command = (self.spawn)().map_err(unavailable)?;
        let (control, theirs) = UnixStream::pair().map_err(failed)?;
        control.set_write_timeout(Some(ALIVE_WITHIN)).map_err(failed)?;
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        let process = HostProcess::spawn(&self.name, command).map_err(failed)?;
        let now = Instant::now();
        let connections = Connections { kept: Vec::new(), busy: 0, used: now };
        let running = Running {
            process,
            control,
            connections: Mutex::new(connections),
            alive: Mutex::new(now),
        };
        match running.ping(READY_WITHIN) {
            Ok(()) => Ok(running),
            Err(error) => {
                Err(Trouble::Unavailable(Lost::after(&running.process, &error).to_string()))
            }
        }
    }

    /// Ends a host after an error, unless somebody did already, and says how it was lost.
    fn lose(&self, running: &Arc<Running>, error: &WireError) -> String {
        {
            let mut state = lock(&self.state);
            if state.running.as_ref().is_some_and(|current| Arc::ptr_eq(current, running)) {
                state.running = None;
                state.lost_unsynced |= self.unsynced.load(Ordering::Acquire);
            }
        }
        Lost::after(&running.process, error).to_string()
    }
}

/// What a sync has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsynced {
    Nothing,
    Changed,
    /// A host was lost that had changed something.
    Lost,
}

fn is_shortage(number: i32) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE, Errno::AGAIN].iter().any(|errno| errno.raw_os_error() == number)
}

/// Ends a host that nothing is asked of.
fn end_when_idle(host: &Weak<TargetHost>, watched: &Weak<Running>, idle_max: Duration) {
    let step = (idle_max / 10).clamp(Duration::from_millis(10), Duration::from_secs(5));
    loop {
        std::thread::sleep(step);
        let (Some(host), Some(running)) = (host.upgrade(), watched.upgrade()) else { return };
        let mut state = lock(&host.state);
        if !state.running.as_ref().is_some_and(|current| Arc::ptr_eq(current, &running)) {
            return;
        }
        let connections = lock(&running.connections);
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
    /// A connection for one call, and whether it is a new one.
    fn connection(&self) -> std::io::Result<(Connection, bool)> {
        let kept = lock(&self.connections).kept.pop();
        let is_new = kept.is_none();
        let connection = kept.map_or_else(|| self.connect(), Ok)?;
        lock(&self.connections).busy += 1;
        Ok((connection, is_new))
    }

    fn connect(&self) -> std::io::Result<Connection> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_write_timeout(Some(SEND_WITHIN))?;
        hand_over(&self.control, &theirs)?;
        Ok(Connection { channel: Channel::new(ours), seq: 0 })
    }

    fn give_back(&self, connection: Option<Connection>) {
        let mut connections = lock(&self.connections);
        connections.busy -= 1;
        connections.used = Instant::now();
        if connections.kept.len() < CONNECTIONS_KEPT {
            connections.kept.extend(connection);
        }
    }

    /// Asks the host whether it is alive.
    fn ping(&self, within: Duration) -> Result<(), WireError> {
        let mut connection = match self.connect() {
            // Without descriptors nothing is known.
            Err(error) if error.raw_os_error().is_some_and(is_shortage) => return Ok(()),
            other => other?,
        };
        connection.channel.stream().set_read_timeout(Some(within))?;
        connection.channel.send(&Call { seq: 1, until: None, bytes: 0, what: What::Ping }, &[])?;
        match connection.channel.receive(|_: &Answer| Ok(0)) {
            Ok(_) => Ok(()),
            Err(WireError::TimedOut) => Err(WireError::Silent(within)),
            Err(error) => Err(error),
        }
    }

    /// Whether a host that says nothing is alive. Of many that wait, one asks.
    fn check_alive(&self) -> Result<(), WireError> {
        let Ok(mut alive) = self.alive.try_lock() else { return Ok(()) };
        if alive.elapsed() >= SILENT_MAX {
            self.ping(ALIVE_WITHIN)?;
            *alive = Instant::now();
        }
        Ok(())
    }
}

impl Connection {
    /// One call and its answer.
    fn exchange(
        &mut self,
        running: &Running,
        question: &Question<'_>,
    ) -> Result<Result<(Reply, Vec<u8>), Trouble>, Broken> {
        let Question { bytes, stop, answer_max, .. } = *question;
        self.seq += 1;
        let permit = stop.and_then(Stop::permit).or(question.permit);
        let mut until = permit.and_then(Permit::end);
        let begin = CallOf {
            seq: self.seq,
            until: until.map(Moment::to_nanoseconds),
            bytes: bytes.len() as u64,
            what: &question.what,
        };
        let timeout = if stop.is_some() { POLL } else { SILENT_MAX };
        let prepared = self.channel.stream().set_read_timeout(Some(timeout));
        prepared.map_err(|error| Broken { error: error.into(), begun: false })?;
        self.channel.send(&begin, bytes).map_err(|error| Broken { error, begun: false })?;
        let broken = |error| Broken { error, begun: true };
        let length = |answer: &Answer| {
            usize::try_from(answer.bytes)
                .ok()
                .filter(|_| answer.bytes <= answer_max)
                .ok_or(WireError::TooLong)
        };
        let mut cancelled: Option<(StopReason, Instant)> = None;
        loop {
            match self.channel.receive(length) {
                Ok((Answer { seq: 0, reply: Reply::Failed(_), .. }, _)) => {
                    return Ok(Err(Trouble::Exhausted));
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
                    self.say(What::Extend, until).map_err(broken)?;
                }
                match (stop.reason(), cancelled) {
                    (Some(reason), None) => {
                        cancelled = Some((reason, Instant::now()));
                        self.say(What::Cancel, None).map_err(broken)?;
                    }
                    (_, Some((reason, since))) => {
                        if stop.is_unauthorized() && since.elapsed() > UNAUTHORIZED_WITHIN {
                            // With all that runs in it: another process may act from now on.
                            let _ = running.process.kill();
                            return Ok(Err(Trouble::Stopped(reason)));
                        }
                        if since.elapsed() > STOP_WITHIN {
                            return Ok(Err(Trouble::Stopped(reason)));
                        }
                    }
                    (None, None) => {}
                }
            }
            running.check_alive().map_err(broken)?;
        }
    }

    fn say(&mut self, what: What, until: Option<Moment>) -> Result<(), WireError> {
        let until = until.map(Moment::to_nanoseconds);
        self.channel.send(&Call { seq: self.seq, until, bytes: 0, what }, &[])
    }
}

/// A [`Call`] that is only written.
#[derive(serde::Serialize)]
struct CallOf<'a> {
    seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
    bytes: u64,
    what: &'a What,
}
