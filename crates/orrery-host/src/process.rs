//! The process of a host: how it gets its socket, what it prints, and how it ends.
//!
//! The socket cannot be inherited by an arbitrary number without either unsafe code or a moment in which every
//! other child of this process would inherit it too, and keep it open after the host is gone. So the host
//! gets it as standard input from a shell that moves it to its place and then becomes the host.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use orrery_sandbox::Confinement;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// Where the host finds its socket.
const SOCKET: u8 = 3;
/// Lines of output that are kept for whoever asks why a host died.
const LINES_KEPT: usize = 50;
/// Longer lines are cut.
const LINE_BYTES_KEPT: usize = 2_000;
/// How long the last words of a process are waited for after it ended.
const LAST_WORDS: Duration = Duration::from_millis(300);
/// How long a process may take to end after TERM.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// Between two looks whether a process has ended.
const POLL: Duration = Duration::from_millis(2);

/// What is started.
#[derive(Clone, Debug, Default)]
pub struct HostCommand {
    /// How log lines name it.
    pub name: String,
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// Set in addition to what this process has, or to what its confinement gives.
    pub environment: Vec<(String, OsString)>,
    pub directory: Option<PathBuf>,
    /// Bytes of private memory that each of its processes may have.
    pub memory_max: Option<u64>,
    /// Keeps its processes away from what is not theirs; `None` for the user's own code.
    pub confinement: Option<Confinement>,
}

/// Why a host could not be started.
#[derive(Debug, thiserror::Error)]
#[error("the host {name} ({}) could not be started: {cause}", program.display())]
pub struct StartError {
    pub name: String,
    pub program: PathBuf,
    pub cause: io::Error,
}

/// A host that was started. Its process and all that it started in its process group end with this.
#[derive(Debug)]
pub struct HostProcess {
    name: Arc<str>,
    pid: Pid,
    child: Mutex<Reaped>,
    output: Arc<Output>,
    /// The process is the launcher of a sandbox.
    confined: bool,
}

/// A child, and how it ended once somebody has asked: from then on its number may be another's.
#[derive(Debug)]
struct Reaped {
    child: Child,
    status: Option<ExitStatus>,
}

impl HostProcess {
    /// Starts a host; the socket is the core's end of the conversation.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn start(command: &HostCommand) -> Result<(Self, UnixStream), StartError> {
        let failed = |cause| StartError {
            name: command.name.clone(),
            program: command.program.clone(),
            cause,
        };
        if command.directory.as_ref().is_some_and(|directory| !directory.is_dir()) {
            return Err(failed(io::Error::new(
                io::ErrorKind::NotFound,
                "its working directory does not exist",
            )));
        }
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let mut process = Self::spawn(&command.name, shell(command, theirs)).map_err(failed)?;
        process.confined = command.confinement.is_some();
        Ok((process, ours))
    }

    /// Starts what a command says, which has its standard input already, in a process group of its own.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn spawn(name: &str, mut command: Command) -> io::Result<Self> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let name: Arc<str> = name.into();
        let output = Arc::new(Output::default());
        let pipes: [(&str, Option<Box<dyn Read + Send>>); 2] = [
            ("stdout", child.stdout.take().map(|pipe| Box::new(pipe) as _)),
            ("stderr", child.stderr.take().map(|pipe| Box::new(pipe) as _)),
        ];
        let child = Mutex::new(Reaped { child, status: None });
        let process = HostProcess { name, pid, child, output, confined: false };
        for (stream, pipe) in pipes {
            let Some(pipe) = pipe else { continue };
            let (name, output) = (Arc::clone(&process.name), Arc::clone(&process.output));
            output.lock().open += 1;
            let thread = std::thread::Builder::new().name(format!("host {stream}"));
            // Without the thread the process would block on a full pipe; it ends when `process` is dropped.
            thread.spawn(move || output.listen(pipe, &name, stream))?;
        }
        Ok(process)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn pid(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    /// The last lines that it printed, oldest first.
    pub fn last_lines(&self) -> Vec<String> {
        self.output.lock().lines.iter().cloned().collect()
    }

    /// The same, once it has ended: waits a moment for those that are still on their way.
    pub fn last_words(&self) -> Vec<String> {
        let lines = self.output.lock();
        let waited =
            self.output.closed.wait_timeout_while(lines, LAST_WORDS, |lines| lines.open > 0);
        let lines = waited.unwrap_or_else(PoisonError::into_inner).0;
        lines.lines.iter().cloned().collect()
    }

    fn child(&self) -> MutexGuard<'_, Reaped> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the process has ended by itself or by others. What it left behind is not yet tidied up.
    pub fn has_ended(&self) -> bool {
        let child = self.child();
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        child.status.is_some() || !matches!(waitid(WaitId::Pid(self.pid), options), Ok(None))
    }

    /// Waits until the process has ended, at most so long; says whether it has.
    pub fn wait(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while !self.has_ended() {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(POLL);
        }
        true
    }

    /// Ends the process and its group, if they have not ended: politely, then by force. Says how it ended.
    ///
    /// # Errors
    /// If the system does not know the process.
    pub fn end(&self) -> io::Result<ExitStatus> {
        self.signal(&self.child(), Signal::TERM);
        if !self.wait(TERM_GRACE) {
            tracing::warn!(host = &*self.name, "it does not end: killed");
        }
        self.kill()
    }

    /// Ends the process and its group at once. Says how it ended.
    ///
    /// # Errors
    /// If the system does not know the process.
    pub fn kill(&self) -> io::Result<ExitStatus> {
        let mut child = self.child();
        if let Some(status) = child.status {
            return Ok(status);
        }
        self.signal(&child, Signal::KILL);
        let status = child.child.wait()?;
        child.status = Some(status);
        Ok(status)
    }

    /// Tells the whole group, as long as its number is known to be its own.
    fn signal(&self, child: &Reaped, signal: Signal) {
        if child.status.is_none()
            && let Err(error) = kill_process_group(self.pid, signal)
        {
            tracing::debug!(host = &*self.name, %error, "its process group cannot be told to end");
        }
    }

    /// Processor time that the process has used so far, in ticks; `None` if the system does not tell.
    pub fn processor_ticks(&self) -> Option<u64> {
        // The launcher of a sandbox and its first process do next to nothing themselves.
        let mut pid = self.pid();
        for _ in 0..if self.confined { 2 } else { 0 } {
            let path = format!("/proc/{pid}/task/{pid}/children");
            pid = std::fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()?;
        }
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is a name in parentheses, which may hold anything.
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(number(11)? + number(12)?)
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            tracing::debug!(host = &*self.name, %error, "the process is not known any more");
        }
    }
}

/// Signals that end processes, by the names that people know.
const SIGNALS: [(Signal, &str); 11] = [
    (Signal::HUP, "SIGHUP"),
    (Signal::INT, "SIGINT"),
    (Signal::QUIT, "SIGQUIT"),
    (Signal::ILL, "SIGILL"),
    (Signal::ABORT, "SIGABRT"),
    (Signal::BUS, "SIGBUS"),
    (Signal::FPE, "SIGFPE"),
    (Signal::KILL, "SIGKILL"),
    (Signal::SEGV, "SIGSEGV"),
    (Signal::PIPE, "SIGPIPE"),
    (Signal::TERM, "SIGTERM"),
];

/// How a process ended, for people.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with the exit status {code}"),
        (None, Some(signal)) => match SIGNALS.iter().find(|(known, _)| known.as_raw() == signal) {
            Some((_, name)) => format!("it was ended by the signal {signal} ({name})"),
            None => format!("it was ended by the signal {signal}"),
        },
        (None, None) => "it ended in an unknown way".to_owned(),
    }
}

/// The shell that becomes the host.
fn shell(command: &HostCommand, socket: UnixStream) -> Command {
    let limit = match command.memory_max {
        // In the shell, so that there is no moment without it. Where it cannot be set, a lower one is in force.
        Some(bytes) => format!("ulimit -d {} 2>/dev/null || :; ", (bytes / 1024).max(1)),
        None => String::new(),
    };
    let script = format!("{limit}exec {SOCKET}<&0 </dev/null; exec \"$@\"");
    let socket_number = SOCKET.to_string();
    let mut shell = match &command.confinement {
        Some(confinement) => {
            let mut confinement = confinement.clone();
            let own = command.environment.iter().map(|(name, value)| (name.as_str(), value));
            own.for_each(|(name, value)| confinement.policy.set(name, value));
            confinement.policy.set("ORRERY_HOST_FD", &socket_number);
            confinement.policy.limits.memory = command.memory_max;
            // The working directory of this process may be hidden.
            let mut shell = confinement.command(Path::new("/bin/sh"));
            shell.current_dir("/");
            shell
        }
        None => {
            let mut shell = Command::new("/bin/sh");
            shell.envs(command.environment.iter().map(|(name, value)| (name, value)));
            shell.env("ORRERY_HOST_FD", &socket_number);
            shell
        }
    };
    shell.arg("-c").arg(script).arg("host").arg(&command.program).args(&command.arguments);
    if let Some(directory) = &command.directory {
        shell.current_dir(directory);
    }
    shell.stdin(Stdio::from(OwnedFd::from(socket)));
    shell
}

/// What a process printed last.
#[derive(Debug, Default)]
struct Output {
    lines: Mutex<Lines>,
    /// A pipe came to its end.
    closed: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    lines: VecDeque<String>,
    /// Pipes that are still read.
    open: usize,
}

impl Output {
    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a pipe to its end. Memory is bounded, whatever comes.
    fn listen(&self, mut pipe: Box<dyn Read + Send>, name: &str, stream: &str) {
        let mut chunk = [0; 8 << 10];
        let mut line = Vec::new();
        loop {
            let count = match pipe.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            for part in chunk[..count].split_inclusive(|byte| *byte == b'\n') {
                let (text, ends) = match part.strip_suffix(b"\n") {
                    Some(text) => (text, true),
                    None => (part, false),
                };
                let room = LINE_BYTES_KEPT.saturating_sub(line.len());
                line.extend_from_slice(&text[..text.len().min(room)]);
                if ends {
                    self.keep(&line, name, stream);
                    line.clear();
                }
            }
        }
        if !line.is_empty() {
            self.keep(&line, name, stream);
        }
        self.lock().open -= 1;
        self.closed.notify_all();
    }

    fn keep(&self, line: &[u8], name: &str, stream: &str) {
        let text = String::from_utf8_lossy(line).trim_end().to_owned();
        tracing::debug!(host = name, stream, "{text}");
        let mut lines = self.lock();
        if lines.lines.len() == LINES_KEPT {
            lines.lines.pop_front();
        }
        lines.lines.push_back(text);
    }
}
