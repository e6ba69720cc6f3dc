//! Process of a host: its socket, output and end.
//!
//! The socket cannot be inherited under an arbitrary number without unsafe code or a moment in
//! which every other child of this process would inherit it too, and hold it open after the host is
//! gone. So the host gets it as standard input from a shell that moves it to its number and then
//! becomes the host.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_base::thread::spawn_named;
use orrery_sandbox::Confinement;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// File descriptor of the host's socket.
const SOCKET: u8 = 3;
/// Captured lines of output, for the report of a dead host.
const LINES_KEPT: usize = 50;
/// Longer lines are cut.
const LINE_BYTES_KEPT: usize = 2_000;
/// Time to wait for the final output of an ended process.
const FINAL_OUTPUT_WAIT: Duration = Duration::from_millis(300);
/// Grace period after SIGTERM.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// Poll interval for the end of a process.
const POLL: Duration = Duration::from_millis(2);

/// Command line of a host.
#[derive(Clone, Debug, Default)]
pub struct HostCommand {
    /// Name in log lines.
    pub name: String,
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// Environment variables, added to those of this process or of the confinement.
    pub environment: Vec<(String, OsString)>,
    /// Environment variables of this process that an unconfined host does not get.
    pub hidden_variables: Vec<OsString>,
    pub directory: Option<PathBuf>,
    /// Limit of private memory of each of its processes, in bytes.
    pub memory_max: Option<u64>,
    /// Sandbox of its processes; `None` for the user's own code.
    pub confinement: Option<Confinement>,
}

/// Error of a host that could not be started.
#[derive(Debug, thiserror::Error)]
#[error("the host {name} ({}) could not be started: {cause}", program.display())]
pub struct StartError {
    pub name: String,
    pub program: PathBuf,
    pub cause: io::Error,
}

/// A started host. Its process and its process group end when this is dropped.
#[derive(Debug)]
pub struct HostProcess {
    name: Arc<str>,
    pid: Pid,
    child: Mutex<ChildState>,
    output: Arc<Output>,
    /// True if the process is the launcher of a sandbox.
    confined: bool,
}

/// A child and its exit status once reaped: from then on its pid may be reused.
#[derive(Debug)]
struct ChildState {
    child: Child,
    status: Option<ExitStatus>,
}

impl HostProcess {
    /// Starts a host. Returns the core's end of the socket.
    ///
    /// # Errors
    /// Fails if the process cannot be started.
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

    /// Starts a command, with its standard input already set, in a new process group.
    ///
    /// # Errors
    /// Fails if the process cannot be started.
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
        let child = Mutex::new(ChildState { child, status: None });
        let process = HostProcess { name, pid, child, output, confined: false };
        for (stream, pipe) in pipes {
            let Some(pipe) = pipe else { continue };
            let (name, output) = (Arc::clone(&process.name), Arc::clone(&process.output));
            output.lock().open += 1;
            // Without the thread the process would block on a full pipe; the thread ends when
            // `process` is dropped.
            spawn_named(&format!("host {stream}"), move || output.listen(pipe, &name, stream))?;
        }
        Ok(process)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn pid(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    /// Returns the last lines of output, oldest first.
    pub fn last_lines(&self) -> Vec<String> {
        self.output.lock().lines.iter().cloned().collect()
    }

    /// Returns the last lines of an ended process; waits briefly for lines in flight.
    pub fn final_output(&self) -> Vec<String> {
        let lines = self.output.lock();
        let waited =
            self.output.closed.wait_timeout_while(lines, FINAL_OUTPUT_WAIT, |lines| lines.open > 0);
        let lines = waited.ignore_poison().0;
        lines.lines.iter().cloned().collect()
    }

    fn child(&self) -> MutexGuard<'_, ChildState> {
        self.child.lock().ignore_poison()
    }

    /// Returns true if the process has ended. Its group may still run.
    pub fn has_ended(&self) -> bool {
        let child = self.child();
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        child.status.is_some() || !matches!(waitid(WaitId::Pid(self.pid), options), Ok(None))
    }

    /// Waits for the end of the process within a limit. Returns true if it has ended.
    pub fn wait(&self, limit: Duration) -> bool {
        let until = monotonic() + limit;
        while !self.has_ended() {
            if monotonic() >= until {
                return false;
            }
            std::thread::sleep(POLL);
        }
        true
    }

    /// Ends the process and its group: SIGTERM, then SIGKILL. Returns the exit status.
    ///
    /// # Errors
    /// Fails if the process is unknown to the system.
    pub fn end(&self) -> io::Result<ExitStatus> {
        self.signal(&self.child(), Signal::TERM);
        if !self.wait(TERM_GRACE) {
            tracing::warn!(host = &*self.name, "the process did not end and was killed");
        }
        self.kill()
    }

    /// Kills the process and its group. Returns the exit status.
    ///
    /// # Errors
    /// Fails if the process is unknown to the system.
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

    /// Signals the whole group, while its pid is known to be valid.
    fn signal(&self, child: &ChildState, signal: Signal) {
        if child.status.is_none()
            && let Err(error) = kill_process_group(self.pid, signal)
        {
            tracing::debug!(host = &*self.name, %error, "its process group cannot be signalled");
        }
    }

    /// Returns the processor time used so far, in ticks; `None` if unavailable.
    pub fn processor_ticks(&self) -> Option<u64> {
        // The launcher of a sandbox and its init process use next to no time themselves.
        let mut pid = self.pid();
        for _ in 0..if self.confined { 2 } else { 0 } {
            let path = format!("/proc/{pid}/task/{pid}/children");
            pid = std::fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()?;
        }
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is a name in parentheses, with arbitrary content.
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(number(11)? + number(12)?)
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            tracing::debug!(host = &*self.name, %error, "the process has already been reaped");
        }
    }
}

/// Signals that end processes, with their common names.
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

/// Describes an exit status for display.
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
        // Set in the shell, so that the limit holds from the start. Where it cannot be set, a lower
        // one is in force.
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
            // The working directory of this process may be invisible in the sandbox.
            let mut shell = confinement.command(Path::new("/bin/sh"));
            shell.current_dir("/");
            shell
        }
        None => {
            let mut shell = Command::new("/bin/sh");
            for name in &command.hidden_variables {
                shell.env_remove(name);
            }
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

/// Captured output of a process.
#[derive(Debug, Default)]
struct Output {
    lines: Mutex<Lines>,
    /// Signalled when a pipe ends.
    closed: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    lines: VecDeque<String>,
    /// Number of open pipes.
    open: usize,
}

impl Output {
    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().ignore_poison()
    }

    /// Reads a pipe to its end. Memory is bounded for any input.
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
                    self.capture_line(&line, name, stream);
                    line.clear();
                }
            }
        }
        if !line.is_empty() {
            self.capture_line(&line, name, stream);
        }
        self.lock().open -= 1;
        self.closed.notify_all();
    }

    fn capture_line(&self, line: &[u8], name: &str, stream: &str) {
        let text = String::from_utf8_lossy(line).trim_end().to_owned();
        tracing::debug!(host = name, stream, "{text}");
        let mut lines = self.lock();
        if lines.lines.len() == LINES_KEPT {
            lines.lines.pop_front();
        }
        lines.lines.push_back(text);
    }
}
