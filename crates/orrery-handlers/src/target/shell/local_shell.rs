//! Transport to this machine through a shell of its own: for tests, with real processes and files
//! but without a network.

use std::io::{self, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_base::thread::spawn_named;

use crate::error::Cause;
use crate::target::transport::{ExecLimits, ProcessControl, RemoteProcess, Transport};
use crate::target::{
    CancelToken, CommandLine, InterruptCause, LocalTarget, Output, Target as _, TransportError,
    TransportErrorKind,
};

/// Poll interval for the end of a process.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Limit of kept standard error.
const STDERR_MAX: usize = 16 * 1024;

/// Runs commands with a shell of this machine.
#[derive(Debug)]
pub struct LocalShell {
    /// Program and arguments before the command.
    shell: Vec<String>,
    variables: Vec<(String, String)>,
    local: LocalTarget,
    round_trips: AtomicUsize,
    generation: AtomicU64,
    failure: Mutex<Option<Failure>>,
}

/// Failure of the next command.
#[derive(Clone, Copy, Debug)]
enum Failure {
    /// It does not start.
    NotStarted(TransportErrorKind),
    /// The connection is lost after this time, and the command goes on if it can.
    LostAfter(Duration),
}

impl Default for LocalShell {
    fn default() -> Self {
        LocalShell::new(&["/bin/sh"])
    }
}

impl LocalShell {
    /// Uses this shell, which accepts `-c`.
    pub fn new(shell: &[&str]) -> Self {
        LocalShell {
            shell: shell.iter().map(|&word| word.to_owned()).collect(),
            variables: Vec::new(),
            local: LocalTarget::default(),
            round_trips: AtomicUsize::new(0),
            generation: AtomicU64::new(1),
            failure: Mutex::default(),
        }
    }

    /// Sets an environment variable; `PATH` for other programs than those of this machine.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    /// Number of commands and uploads so far.
    pub fn round_trips(&self) -> usize {
        self.round_trips.load(Ordering::Relaxed)
    }

    /// Makes the next command fail before its start.
    pub fn fail_next(&self, kind: TransportErrorKind) {
        *self.failure.lock().ignore_poison() = Some(Failure::NotStarted(kind));
    }

    /// Loses the connection during the next command.
    pub fn lose_next(&self, after: Duration) {
        *self.failure.lock().ignore_poison() = Some(Failure::LostAfter(after));
    }

    fn error(&self, kind: TransportErrorKind, reason: impl Into<String>) -> TransportError {
        TransportError::new(kind, self.destination(), reason)
    }

    fn take_failure(&self) -> Option<Failure> {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
        let failure = self.failure.lock().ignore_poison().take();
        if failure.is_some() {
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
        failure
    }
}

impl Transport for LocalShell {
    fn exec(
        &self,
        command: &str,
        input: &[u8],
        limits: &ExecLimits,
        stop: &CancelToken,
    ) -> Result<Output, TransportError> {
        let lost_after = match self.take_failure() {
            Some(Failure::NotStarted(kind)) => return Err(self.error(kind, "as ordered")),
            Some(Failure::LostAfter(after)) => Some(after),
            None => None,
        };
        let words = self.shell.iter().map(String::as_str).chain(["-c", command]);
        let mut line = CommandLine::new(words);
        input.clone_into(&mut line.input);
        line.timeout = limits.timeout;
        line.output_limit = limits.output_bytes;
        line.environment.clone_from(&self.variables);
        if let Some(after) = lost_after {
            // Its own process group is ended, as by a server that closes a session.
            let _ = self.local.run(&line, &stop.within(after));
            return Err(self.error(TransportErrorKind::Lost, "as ordered"));
        }
        let done = self.local.run(&line, stop);
        done.map_err(|error| {
            let kind = match error.cause {
                Cause::TimedOut => TransportErrorKind::Interrupted(InterruptCause::TimedOut),
                Cause::Cancelled => TransportErrorKind::Interrupted(InterruptCause::Cancelled),
                _ => TransportErrorKind::Refused,
            };
            self.error(kind, error.to_string())
        })
    }

    fn start(&self, command: &str, _: &CancelToken) -> Result<RemoteProcess, TransportError> {
        if self.take_failure().is_some() {
            return Err(self.error(TransportErrorKind::Refused, "as ordered"));
        }
        let refused = |error: io::Error| self.error(TransportErrorKind::Refused, error.to_string());
        let (program, arguments) = self
            .shell
            .split_first()
            .ok_or_else(|| self.error(TransportErrorKind::Refused, "no shell"))?;
        let mut prepared = Command::new(program);
        prepared.args(arguments).arg("-c").arg(command);
        prepared.envs(self.variables.iter().map(|(name, value)| (name, value)));
        prepared.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = prepared.spawn().map_err(refused)?;
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(input), Some(output), Some(mut errors)) = streams else {
            return Err(self.error(TransportErrorKind::Refused, "no pipes"));
        };
        let kept = Arc::new(Mutex::new(Vec::new()));
        let collected = Arc::clone(&kept);
        let collect = move || {
            let mut buffer = [0; 1024];
            while let Ok(count @ 1..) = errors.read(&mut buffer) {
                let mut kept = collected.lock().ignore_poison();
                kept.extend_from_slice(&buffer[..count]);
                let excess = kept.len().saturating_sub(STDERR_MAX);
                kept.drain(..excess);
            }
        };
        spawn_named("local-shell", collect).map_err(refused)?;
        let control = Box::new(LocalProcess { child: Mutex::new(child), errors: kept });
        Ok(RemoteProcess { input: Box::new(input), output: Box::new(output), control })
    }

    fn upload(
        &self,
        path: &str,
        content: &[u8],
        mode: u32,
        stop: &CancelToken,
    ) -> Result<(), TransportError> {
        use std::io::Write as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        if self.take_failure().is_some() {
            return Err(self.error(TransportErrorKind::Refused, "as ordered"));
        }
        if let Some(reason) = stop.reason() {
            return Err(self.error(TransportErrorKind::NotStarted(reason.into()), "stopped"));
        }
        let mut options = std::fs::OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(mode).open(path);
        opened
            .and_then(|mut file| file.write_all(content))
            .map_err(|error| self.error(TransportErrorKind::Upload, error.to_string()))
    }

    fn destination(&self) -> &'static str {
        "this machine"
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }
}

/// A child process.
struct LocalProcess {
    child: Mutex<Child>,
    errors: Arc<Mutex<Vec<u8>>>,
}

impl ProcessControl for LocalProcess {
    fn error_excerpt(&self) -> String {
        String::from_utf8_lossy(&self.errors.lock().ignore_poison()).trim().to_owned()
    }

    fn wait(&self, limit: Duration) -> Result<Option<i32>, TransportError> {
        let until = monotonic() + limit;
        loop {
            match self.child.lock().ignore_poison().try_wait() {
                Ok(Some(status)) => return Ok(Some(status.code().unwrap_or(-1))),
                Ok(None) => {}
                Err(error) => {
                    let (kind, place) = (TransportErrorKind::Lost, "this machine");
                    return Err(TransportError::new(kind, place, error.to_string()));
                }
            }
            if monotonic() >= until {
                return Ok(None);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn kill(&self) {
        let mut child = self.child.lock().ignore_poison();
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for LocalProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
