//! Runs commands: in their own process group, which can be ended as a whole; with concurrent
//! reading of output; without waiting for daemons that they start.

use std::borrow::Cow;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use orrery_base::clock::monotonic;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::command_records::MARKER;
use super::{LocalTarget, failed};
use crate::error::{Cause, TargetError, TargetVerb};
use crate::target::{CancelCause, CancelToken, CommandLine, Output, Result, Target};

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// Poll interval for cancellation.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Poll interval without a pidfd, where the exit must be polled, too.
const POLL_INTERVAL_SHORT: Duration = Duration::from_millis(5);

pub(super) fn run(
    target: &LocalTarget,
    command: &CommandLine,
    stop: &CancelToken,
) -> Result<Output> {
    let stop = command.timeout.map_or_else(|| stop.clone(), |limit| stop.within(limit));
    let error = |cause| TargetError::new(TargetVerb::Run, command.display(), cause);
    if let Some(reason) = stop.reason() {
        return Err(error(cancel_cause(reason)));
    }
    let search_path = search_path(target, command);
    let program = program(command)
        .and_then(|program| target.which(&program, Some(&search_path)).transpose())
        .transpose()?
        .ok_or_else(|| error(Cause::CommandNotFound))?;
    let mut prepared = Command::new(program);
    prepared
        .args(command.arguments.iter().skip(1))
        .env_clear()
        .envs(target.variables.collect())
        .env("PATH", &search_path)
        .envs(command.environment.iter().map(|(name, value)| (name, value)))
        .stdin(if command.input.is_empty() { Stdio::null() } else { Stdio::piped() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    if let Some(directory) = &command.directory {
        if !std::path::Path::new(directory).is_dir() {
            let cause =
                Cause::Unexpected(format!("its working directory {directory} does not exist"));
            return Err(error(cause));
        }
        prepared.current_dir(directory);
    }
    // Check again, as late as possible: the permit may have ended while this process was suspended.
    if let Some(reason) = stop.reason() {
        return Err(error(cancel_cause(reason)));
    }
    // Removed at the end of this function: the command has ended then.
    let record = target.records.as_ref().map(|records| records.begin(command.program()));
    let mut record = record.transpose().map_err(|found| {
        let text = format!("its start cannot be recorded: {found}");
        let cause = Cause::from_io(found);
        error(if cause.is_descriptors_exhausted() { cause } else { Cause::Unexpected(text) })
    })?;
    if let Some(record) = &record {
        prepared.env(MARKER, record.marker());
    }
    let child =
        prepared.spawn().map_err(|found| failed(TargetVerb::Run, &command.display(), found))?;
    if let Some(record) = &mut record {
        record.set_group(child.id());
    }
    let mut running = RunningCommand::new(child, command);
    match running.finish(&stop) {
        Ok(CommandEnd::Exited(status)) => Ok(running.into_output(status)),
        Ok(CommandEnd::Stopped(reason)) => Err(error(cancel_cause(reason))),
        Err(found) => {
            running.end();
            Err(failed(TargetVerb::Run, &command.display(), found))
        }
    }
}

/// Search path: of the command, of its environment, or the target's default.
fn search_path(target: &LocalTarget, command: &CommandLine) -> String {
    let set = || command.environment.iter().find(|(name, _)| name == "PATH");
    let configured = command.search_path.clone().or_else(|| set().map(|(_, value)| value.clone()));
    configured.unwrap_or_else(|| target.search_path())
}

/// Program by name or absolute path. `None` for a relative path without a directory.
fn program(command: &CommandLine) -> Option<Cow<'_, str>> {
    let program = command.program();
    if program.starts_with('/') || !program.contains('/') {
        return Some(Cow::Borrowed(program));
    }
    let directory = command.directory.as_ref()?.trim_end_matches('/');
    let program = program.trim_start_matches("./");
    Some(Cow::Owned(format!("{directory}/{program}")))
}

pub(in crate::target) fn cancel_cause(reason: CancelCause) -> Cause {
    match reason {
        CancelCause::Cancelled => Cause::Cancelled,
        CancelCause::DeadlinePassed => Cause::TimedOut,
    }
}

enum CommandEnd {
    Exited(ExitStatus),
    Stopped(CancelCause),
}

/// One output stream and its retained bytes.
struct Stream<S> {
    source: Option<S>,
    retained: Vec<u8>,
    truncated: bool,
}

struct RunningCommand<'a> {
    child: Child,
    /// pidfd, readable when the child exits; `None` on older kernels.
    end_of_child: Option<OwnedFd>,
    stdout: Stream<std::process::ChildStdout>,
    stderr: Stream<std::process::ChildStderr>,
    input: &'a [u8],
    output_limit: usize,
}

impl<'a> RunningCommand<'a> {
    fn new(mut child: Child, command: &'a CommandLine) -> Self {
        let end_of_child = pid(&child).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let stdout = Stream { source: child.stdout.take(), retained: Vec::new(), truncated: false };
        let stderr = Stream { source: child.stderr.take(), retained: Vec::new(), truncated: false };
        RunningCommand {
            child,
            end_of_child,
            stdout,
            stderr,
            input: &command.input,
            output_limit: command.output_limit,
        }
    }

    fn finish(&mut self, stop: &CancelToken) -> io::Result<CommandEnd> {
        for stream in [
            self.stdout.source.as_ref().map(AsFd::as_fd),
            self.stderr.source.as_ref().map(AsFd::as_fd),
            self.child.stdin.as_ref().map(AsFd::as_fd),
        ]
        .into_iter()
        .flatten()
        {
            rustix::io::ioctl_fionbio(stream, true)?;
        }
        loop {
            if let Some(reason) = stop.reason() {
                self.end();
                return Ok(CommandEnd::Stopped(reason));
            }
            self.wait_for_something(stop)?;
            self.feed()?;
            self.stdout.drain(self.output_limit)?;
            self.stderr.drain(self.output_limit)?;
            if let Some(status) = self.child.try_wait()? {
                // Output before the exit is in the pipes; a daemon may keep them open.
                self.stdout.drain(self.output_limit)?;
                self.stderr.drain(self.output_limit)?;
                return Ok(CommandEnd::Exited(status));
            }
        }
    }

    fn wait_for_something(&self, stop: &CancelToken) -> io::Result<()> {
        let mut events = Vec::with_capacity(4);
        if let Some(stdout) = &self.stdout.source {
            events.push(PollFd::new(stdout, PollFlags::IN));
        }
        if let Some(stderr) = &self.stderr.source {
            events.push(PollFd::new(stderr, PollFlags::IN));
        }
        if let Some(stdin) = &self.child.stdin {
            events.push(PollFd::new(stdin, PollFlags::OUT));
        }
        let interval = match &self.end_of_child {
            Some(end) => {
                events.push(PollFd::new(end, PollFlags::IN));
                POLL_INTERVAL
            }
            None => POLL_INTERVAL_SHORT,
        };
        let interval = stop.remaining().map_or(interval, |remaining| interval.min(remaining));
        let timeout = Timespec::try_from(interval).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        match poll(&mut events, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes as much input as the child accepts now.
    fn feed(&mut self) -> io::Result<()> {
        while let Some(stdin) = &mut self.child.stdin {
            if self.input.is_empty() {
                self.child.stdin = None;
                break;
            }
            match stdin.write(self.input) {
                Ok(count) => self.input = &self.input[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The child ignores its input.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => self.input = &[],
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Ends the child and its process group: SIGTERM, then SIGKILL. Leaves no zombie.
    fn end(&mut self) {
        if let Some(group) = pid(&self.child) {
            let _ = kill_process_group(group, Signal::TERM);
            let until = monotonic() + GRACE;
            while matches!(self.child.try_wait(), Ok(None)) && monotonic() < until {
                std::thread::sleep(POLL_INTERVAL_SHORT);
            }
            // Even after its exit: members of its group may survive.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn into_output(self, status: ExitStatus) -> Output {
        let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(-1);
        Output {
            code,
            truncated: self.stdout.truncated || self.stderr.truncated,
            stdout: self.stdout.retained,
            stderr: self.stderr.retained,
        }
    }
}

fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

impl<S: Read> Stream<S> {
    /// Reads the available output; drops the source at its end.
    fn drain(&mut self, limit: usize) -> io::Result<()> {
        /// Bounds the reads per step, so endless output does not delay the deadline check.
        const READS_MAX: usize = 64;
        let mut buffer = [0; 16 * 1024];
        for _ in 0..READS_MAX {
            let Some(source) = &mut self.source else {
                break;
            };
            match source.read(&mut buffer) {
                Ok(0) => self.source = None,
                Ok(count) => {
                    let retained = count.min(limit.saturating_sub(self.retained.len()));
                    self.retained.extend_from_slice(&buffer[..retained]);
                    self.truncated |= retained < count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
